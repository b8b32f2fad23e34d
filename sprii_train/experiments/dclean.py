"""Table `tab:dclean-full`: the D-Clean arms, trained and measured on held-out systems."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sprii_envs.banks import D_CLEAN, Bank, BankProtocol, build
from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.analysis.formation import between_within, centroids, ridge_probe, standardise
from sprii_train.checkpoints import save
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.experiments.grid import Report
from sprii_train.fit import TrainConfig, fit, training_seconds, what_matters
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.recipes import RECIPES, recipe

EVALUATION_SEED = 20_261  # of evaluation windows and donors; shared by all arms and sources


@dataclass(frozen=True)
class Preset:
    """A budget: model, updates, arms and sources; `judged` if its numbers are a test of the paper's statements."""

    name: str
    learner: JEPAConfig
    train: TrainConfig
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    protocol: BankProtocol = D_CLEAN
    note: str = ""
    judged: bool = True


STORY = ("structure", "same-rollout", "align-cross", "align-random")

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "smoke",
            JEPAConfig(width=32, layers=1, heads=4, sigreg_slices=64),
            TrainConfig(steps=60, pairs=24, warmup=20, checkpoint_every=30, log_every=10),
            STORY,
            (0,),
            D_CLEAN.replace(systems={"train": 60, "validation": 20, "test": 20}),
            "a check that everything runs; its numbers mean nothing",
            judged=False,
        ),
        Preset(
            "quick",
            JEPAConfig(width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128),
            TrainConfig(steps=3_000, learning_rate=1e-3, warmup=100, checkpoint_every=250),
            STORY,
            (0, 1),
            note="a narrower model (width 64 × 2 layers, no dropout, 128 slices), a rate of 1e-3 and 3,000 of the "
            "paper's 20,000 steps; these settings were chosen on validation systems",
        ),
        Preset(
            "paper",
            JEPAConfig(),
            TrainConfig(),
            tuple(RECIPES),
            (0, 1, 2),
            note="the paper's model; its budget is 20,000 steps and three sources",
        ),
    )
}


@dataclass(frozen=True)
class DCleanCell:
    """One arm of one source."""

    arm: str
    learner: JEPAConfig
    train: TrainConfig
    bank: str
    fingerprint: str
    population: str

    @property
    def title(self) -> str:
        """Arm and source."""
        return f"{self.arm}-seed{self.train.seed}"

    @property
    def steps(self) -> int:
        """Updates of this run."""
        return self.train.steps

    @property
    def result(self) -> str:
        """The measures, by the systems that they were taken on."""
        return f"{self.population}.json"

    def identity(self) -> dict[str, Any]:
        """Everything that the weights depend on."""
        return {
            "arm": self.arm,
            "recipe": repr(recipe(self.arm)),
            "learner": asdict(self.learner),
            "train": what_matters(self.train),
            "bank": self.fingerprint,
        }

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train, save and measure; returns the row of `results.json`."""
        bank = Bank.open(self.bank)
        arm = recipe(self.arm)
        config = replace(self.learner, context=arm.context)
        reader = WindowReader(bank, config.history, config.horizons, properties=("drag",))
        data = PairedWindows(
            reader, relation=arm.relation, kernel=arm.kernel, pairs=self.train.pairs, seed=self.train.seed
        )
        torch.manual_seed(self.train.seed)
        learner = JEPA(config)
        fit(
            learner,
            data,
            arm.objective,
            self.train,
            folder,
            identity={"arm": self.arm, "learner": asdict(config), "bank": self.fingerprint},
            progress=report,
        )
        save(learner.cpu(), folder / "model")  # windows are read, and codes measured, on the CPU
        row = {"arm": self.arm, "label": arm.label, "seed": self.train.seed, "steps": self.train.steps}
        return row | measure(learner, reader, self.population) | {"train_seconds": training_seconds(folder)}


def measure(learner: JEPA, reader: WindowReader, population: str) -> dict[str, Any]:
    """The Formation measures of one learner on a split that it never saw.

    Probes are fitted on training systems. `drag_r2` reads single windows, `drag_r2_centroid` the mean code of a
    system's episodes. Errors are mean squared embedding errors; they can be compared between arms only beside
    `target_variance`, for each arm predicts its own embedding.
    """
    learner.eval()
    train = encode_split(learner, reader, "train", seed=EVALUATION_SEED)
    held_out = encode_split(learner, reader, population, seed=EVALUATION_SEED)
    z_train, z = train.codes.z_p.double().numpy(), held_out.codes.z_p.double().numpy()
    drag_train, drag = train.table["drag"], held_out.table["drag"]
    systems_train, systems = train.table["system"], held_out.table["system"]
    mean_train, first_train = centroids(z_train, systems_train)
    mean, first = centroids(z, systems)
    geometry = between_within(standardise(z_train, z)[1], systems)
    errors = donor_errors(learner, held_out, seed=EVALUATION_SEED)
    row: dict[str, Any] = {
        "drag_r2": ridge_probe(z_train, drag_train, z, drag, systems_train),
        "drag_r2_centroid": ridge_probe(
            mean_train, drag_train[first_train], mean, drag[first], systems_train[first_train]
        ),
        "log_drag_r2": ridge_probe(z_train, np.log(drag_train), z, np.log(drag), systems_train),
        "within": geometry.within,
        "between": geometry.between,
        "between_within": geometry.ratio,
        "code_sd": float(z.std(0).mean()),
        "target_variance": float(held_out.y[:, -1].double().var(0).mean()),
    }
    for i, h in enumerate(reader.horizons):
        row[f"self_h{h}"] = float(errors.own[i])
        if learner.config.context != "monolithic":
            row[f"correct_h{h}"] = float(errors.correct[i])
            row[f"shuffled_h{h}"] = float(errors.shuffled[i])
    last = reader.horizons[-1]
    has_donors = learner.config.context != "monolithic"
    row["gap"] = row[f"shuffled_h{last}"] - row[f"correct_h{last}"] if has_donors else None
    if not has_donors:
        row[f"correct_h{last}"] = None
    return row


def cells(preset: Preset, bank: Bank, *, population: str = "test") -> list[DCleanCell]:
    """Seeds outermost, so that a stopped run has whole sources."""
    return [
        DCleanCell(
            arm,
            preset.learner,
            replace(preset.train, seed=seed),
            str(bank.path),
            bank.fingerprint,
            population,
        )
        for seed in preset.seeds
        for arm in preset.arms
    ]


def open_bank(preset: Preset, root: Path) -> Bank:
    """The preset's bank under `root/banks`, built if it is not there, verified if it is."""
    size = "-".join(str(n) for n in preset.protocol.counts.values())
    bank = build(preset.protocol, root / "banks" / f"d-clean-{size}", wait=True)
    bank.verify(checksums=True)
    return bank
