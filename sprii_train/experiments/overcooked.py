"""Tables `tab:v3-overcooked` and `tab:overcooked-complete`: the action learner with and without relation alignment."""

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sprii_envs.fields import check, flag, instance, integer, integers
from sprii_envs.files import absolute
from sprii_envs.overcooked.bank import HistoryBank, HistoryProtocol, identity
from sprii_envs.overcooked.partners.roster import Roster, load_roster, shipped
from sprii_envs.relations import Derangement, Kernel, Uniform
from sprii_train.checkpoints import save
from sprii_train.experiments.grid import Cell, Report
from sprii_train.fit import ENGINE, TrainConfig, fit, what_matters
from sprii_train.identity import cell_code
from sprii_train.learners.ad import AD, ADConfig
from sprii_train.overcooked.learning import build_histories
from sprii_train.overcooked.measures import Slots, alias_ratio, distance_ratio, probe, slots, swapped
from sprii_train.overcooked.play import play
from sprii_train.overcooked.windows import PairedPlay
from sprii_train.protocol import Objective
from sprii_train.records import training_seconds

WEIGHT = 0.001


@dataclass(frozen=True)
class PartnerRecipe:
    """One arm: loss weights, and whose histories are paired."""

    name: str
    label: str
    objective: Objective
    kernel: Kernel = Uniform()  # noqa: RUF009 (frozen and stateless)


PARTNER_RECIPES = {
    recipe.name: recipe
    for recipe in (
        PartnerRecipe("h", "H", Objective()),
        PartnerRecipe("h-vc", "H+VC", Objective(lambda_p=WEIGHT, invariance=0.0)),
        PartnerRecipe("h-sprii", "H+SPRII", Objective(lambda_p=WEIGHT)),
        PartnerRecipe("h-random", "H+Random", Objective(lambda_p=WEIGHT), Derangement()),
    )
}
"""0.001·(25V + C), 0.001·(25I + 25V + C), and the latter with histories of other partners."""


@dataclass(frozen=True)
class PartnerPreset:
    """Budget of a comparison.

    Attributes:
        train: one seed of an arm; the seed is replaced.
        learner: sizes; those that the kitchen decides are replaced.
        histories: of the bank.
        episodes, repeats: of the evaluation, with each partner.
        seeds: of training.
        note: how this differs from the paper.
        judged: whether its numbers are a test of the paper's statements.
    """

    train: TrainConfig
    learner: ADConfig
    histories: HistoryProtocol
    episodes: int
    repeats: int
    seeds: tuple[int, ...]
    note: str
    judged: bool = True

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "train", of=TrainConfig)
        check(self, instance, "learner", of=ADConfig)
        check(self, instance, "histories", of=HistoryProtocol)
        check(self, integer, "episodes", "repeats", least=1)
        check(self, integers, "seeds", some=True)
        check(self, flag, "judged")


PRESETS = {
    "smoke": PartnerPreset(
        TrainConfig(steps=2, pairs=2, warmup=1, log_every=1),
        ADConfig(width=16, layers=1, heads=2),
        HistoryProtocol(runs=1, histories=2, episodes=5, kitchens=4, iterations=5),
        episodes=6,
        repeats=1,
        seeds=(4200,),
        note="a check that everything runs; its numbers mean nothing",
        judged=False,
    ),
    "quick": PartnerPreset(
        TrainConfig(
            steps=1_200,
            pairs=8,
            warmup=100,
            weight_decay=0.01,
            log_every=25,
            checkpoint_every=200,
            precision="fp32",
            learning_rate=1e-3,
        ),
        ADConfig(width=64, layers=2),
        HistoryProtocol(),
        episodes=20,
        repeats=4,
        seeds=(4200,),
        note="1,200 of 20,000 updates of 16 of 1,024 windows, at a rate of 1e-3, of a smaller network; own partners",
    ),
    "paper": PartnerPreset(
        TrainConfig(steps=20_000, pairs=512, weight_decay=0.01),
        ADConfig(width=256, layers=4),
        HistoryProtocol(runs=8, validation=2, histories=16, episodes=146, iterations=146),
        episodes=20,
        repeats=1,
        seeds=(4200, 4201, 4202),
        note="the published sizes, with the partners shipped here in place of the paper's twenty",
    ),
}


@dataclass(frozen=True)
class PartnerCell:
    """One seed of an arm: training, returns, probe, distances and exchanged histories."""

    recipe: str
    train: TrainConfig
    learner: ADConfig
    histories: HistoryProtocol
    episodes: int
    repeats: int
    bank: str
    partners: str = ""
    identity_of_bank: str = field(default="", compare=False)

    @property
    def title(self) -> str:
        """Arm and seed."""
        return f"{self.recipe}-seed{self.train.seed}"

    @property
    def steps(self) -> int:
        """Updates."""
        return self.train.steps

    @property
    def result(self) -> str:
        """The file of the row."""
        return f"evaluation-{self.episodes}-{self.repeats}.json"

    def identity(self) -> dict[str, Any]:
        """Everything that the weights depend on."""
        return {
            "recipe": repr(PARTNER_RECIPES[self.recipe]),
            "train": what_matters(self.train),
            "learner": asdict(self.learner),
            "bank": self.identity_of_bank,
            "code": cell_code(*ENGINE, AD, PairedPlay),
        }

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides the weights."""
        return {"code": cell_code(measured), "partners": identity(self.histories, roster(self.partners), "")}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train unless that is done, then measure."""
        recipe, bank = PARTNER_RECIPES[self.recipe], HistoryBank(self.bank)
        torch.manual_seed(self.train.seed)
        learner = AD(self.learner)
        untrained = copy.deepcopy(learner).eval()
        data = PairedPlay(bank, kernel=recipe.kernel, pairs=self.train.pairs, seed=self.train.seed)
        fit(learner, data, recipe.objective, self.train, folder, progress=report)  # type: ignore[arg-type]
        learner = learner.cpu()
        if not (folder / "model").exists():
            save(learner, folder / "model")
        named = {"arm": self.recipe, "label": recipe.label, "seed": self.train.seed}
        row = measured(learner, untrained, bank, roster(self.partners), self.episodes, self.repeats, self.train.seed)
        return named | row | {"training_seconds": training_seconds(folder, self.train.steps)}


def roster(folder: str) -> Roster:
    """The shipped partners, or those of a folder."""
    return load_roster(folder) if folder else shipped()


def measured(
    learner: AD, untrained: AD, bank: HistoryBank, partners: Roster, episodes: int, repeats: int, seed: int
) -> dict[str, Any]:
    """Every number of a row. The primary return is of episodes 6 to 20, averaged within partner, then over partners.

    Args:
        untrained: the learner as it began, whose distance ratios stand beside those of training.
    """
    began = time.perf_counter()
    returns = play(
        learner, bank.protocol.game, partners, seat=bank.protocol.seat, episodes=episodes, repeats=repeats, seed=seed
    )
    by_partner = returns[:, :, 5:].mean((1, 2))
    fitted, own, unseen = (slots(learner, bank, split) for split in ("train", "validation", "held_out"))
    familiar, held_out = (partners.group(name) for name in ("familiar", "held_out"))
    return {
        "returns": {name: float(value) for name, value in zip(partners.names, by_partner, strict=True)},
        "return_familiar": float(by_partner[familiar].mean()),
        "return_held_out": float(by_partner[held_out].mean()),
        "curve": returns.mean(1)[familiar].mean(0).tolist(),
        "probe_familiar": probe(fitted, own)._asdict(),
        "probe_held_out": probe(fitted, unseen)._asdict(),
        **ratios(fitted, own),
        "untrained": ratios(*(slots(untrained, bank, split) for split in ("train", "validation"))),
        "swapped_familiar": swapped(learner, bank, "validation", seed=seed)._asdict(),
        "swapped_held_out": swapped(learner, bank, "held_out", seed=seed)._asdict(),
        "evaluation_seconds": time.perf_counter() - began,
    }


def ratios(fitted: Slots, own: Slots) -> dict[str, float]:
    """The distance ratio of validation histories, and that of one partner under several names, in both splits."""
    return {"distance_ratio": distance_ratio(own), "alias_ratio": alias_ratio(fitted, own)}


def cells(
    preset: PartnerPreset, root: Path, recipes: Sequence[str], partners: str = "", show: Any = None
) -> list[Cell]:
    """The arms of every seed, on a bank that is built first."""
    partners = str(absolute(partners)) if partners else ""
    own = roster(partners)
    bank = build_histories(preset.histories, own, root / "bank", progress=show)
    inputs = int(np.prod(bank.protocol.game.shape))
    learner = replace(preset.learner, inputs=inputs, steps=bank.protocol.game.max_steps)
    return [
        PartnerCell(
            name, replace(preset.train, seed=seed), learner, preset.histories, preset.episodes, preset.repeats,
            str(bank.folder), partners, bank.fingerprint,
        )
        for seed in preset.seeds
        for name in recipes
    ]  # fmt: skip
