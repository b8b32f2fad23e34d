"""Table `tab:dclean-full`: the D-Clean arms, trained and measured on held-out systems."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sprii_envs.banks import D_CLEAN, Bank, BankProtocol, build
from sprii_envs.fields import check, flag, instance, integers
from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.analysis.formation import (
    Factor,
    between_within,
    fit_ridge,
    sample_of,
    score,
    standardise,
    system_centroids,
)
from sprii_train.analysis.populations import Training, population_of
from sprii_train.checkpoints import save
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.distributed import first
from sprii_train.experiments.grid import Report
from sprii_train.fit import ENGINE, TrainConfig, fit, what_matters
from sprii_train.identity import cell_code
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.recipes import RECIPES, recipe
from sprii_train.records import training_seconds

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

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "learner", of=JEPAConfig)
        check(self, instance, "train", of=TrainConfig)
        check(self, instance, "protocol", of=BankProtocol)
        check(self, integers, "seeds", some=True)
        check(self, flag, "judged")


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
        arm = recipe(self.arm)
        law = (type(arm), type(arm.relation), type(arm.kernel))
        return {
            "arm": self.arm,
            "recipe": repr(arm),
            "learner": asdict(self.learner),
            "train": what_matters(self.train),
            "bank": self.fingerprint,
            "code": cell_code(*ENGINE, JEPA, PairedWindows, WindowReader, *law),
        }

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides the weights."""
        return {"code": cell_code(measure, WindowReader)}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train, save and measure; returns the row of `results.json`."""
        bank = Bank.open(self.bank)
        arm = recipe(self.arm)
        config = replace(self.learner, context=arm.context)
        reader = WindowReader(bank, config.history, config.horizons, properties=("drag",))
        relation, kernel = arm.pairing(bank.split("train"))
        data = PairedWindows(reader, relation=relation, kernel=kernel, pairs=self.train.pairs, seed=self.train.seed)
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
        learner.cpu()  # windows are read, and codes measured, on the CPU
        first(lambda: save(learner, folder / "model"))
        row = {"arm": self.arm, "label": arm.label, "seed": self.train.seed, "steps": self.train.steps}
        return (
            row
            | first(lambda: measure(learner, reader, self.population))
            | {"train_seconds": training_seconds(folder, self.train.steps)}
        )


def measure(learner: JEPA, reader: WindowReader, population: str) -> dict[str, Any]:
    """The Formation measures of one learner on a split that it never saw.

    Probes are fitted on training systems. `drag_r2` reads single windows, `drag_r2_centroid` the mean code of a
    system's episodes. Errors are mean squared embedding errors; they can be compared between arms only beside
    `target_variance`, for each arm predicts its own embedding.
    """
    learner.eval()
    train = encode_split(learner, reader, "train", seed=EVALUATION_SEED)
    held_out = encode_split(learner, reader, population, seed=EVALUATION_SEED)
    fitted = sample_of(Training("train"), train.codes.z_p, train.table, ("drag",))
    read = sample_of(population_of(reader.bank, population), held_out.codes.z_p, held_out.table, ("drag",))
    drag, log_drag = Factor("drag"), Factor("drag", log=True)
    geometry = between_within(standardise(fitted.codes, read.codes)[1], read.systems)
    errors = donor_errors(learner, held_out, seed=EVALUATION_SEED)
    row: dict[str, Any] = {
        "drag_r2": score(fit_ridge(fitted, drag), read).r2,
        "drag_r2_centroid": score(fit_ridge(system_centroids(fitted), drag), system_centroids(read)).r2,
        "log_drag_r2": score(fit_ridge(fitted, log_drag), read).r2,
        "within": geometry.within,
        "between": geometry.between,
        "between_within": geometry.ratio,
        "code_sd": float(read.codes.std(0).mean()),
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
