"""Table `tab:pendulum-r7`: CaDM, Random relation and SPRII (R7) on the pendulum, beside what is known of its floor."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sprii_envs.fields import check, flag, instance, integer, integers
from sprii_envs.files import write_json
from sprii_train.checkpoints import save
from sprii_train.control.assay import context_probes, donor_errors
from sprii_train.control.controllers import CEM, ICEM, Config
from sprii_train.control.evaluation import PolicyOf, evaluate, known, learned, random
from sprii_train.control.loop import ControlRun, train_control
from sprii_train.control.relations import CONTROL_RECIPES
from sprii_train.control.training import ControlTraining
from sprii_train.experiments.grid import Report
from sprii_train.experiments.pendulum_banks import assay_banks, simulated_banks
from sprii_train.identity import cell_code
from sprii_train.learners.cadm import CaDM, CaDMConfig

REFERENCES = {"random-policy": "Random policy", "nominal": "Nominal model", "oracle": "Oracle dynamics"}
"""Rows that train nothing: uniform actions, and planning with the equations of m = l = 1 or of the true system."""


@dataclass(frozen=True)
class ControlPreset:
    """Budget of a comparison.

    Attributes:
        run: one seed of a row; recipe and seed are replaced.
        episodes: of a group and seed at evaluation.
        seeds: of training; systems and starts of an evaluation are of the same seed in every row.
        note: how this differs from the paper.
        judged: whether its numbers are a test of the paper's statements.
    """

    run: ControlRun
    episodes: int
    seeds: tuple[int, ...]
    note: str
    judged: bool = True

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "run", of=ControlRun)
        check(self, integer, "episodes", least=1)
        check(self, integers, "seeds", some=True)
        check(self, flag, "judged")


CHEAP = ICEM(horizon=20)
"""64 candidates, 10 elites, 3 iterations: 3,300 model steps a step and episode instead of CEM's 30,000."""

PRESETS = {
    "smoke": ControlPreset(
        ControlRun(
            iterations=2,
            episodes=2,
            cloned=True,  # so that there are pairs of one system
            controller=CEM(candidates=8, elites=4, iterations=1, horizon=4),
            learner=CaDMConfig(encoder=(16, 16, 16), dynamics=(16, 16, 16, 16)),
            training=ControlTraining(epochs=1),
        ),
        2,
        (0,),
        "a check that everything runs; its numbers mean nothing",
        judged=False,
    ),
    "quick": ControlPreset(
        ControlRun(iterations=8, controller=CHEAP),
        10,
        (0,),
        "8 of 20 iterations, planned by iCEM with 64 candidates, 10 elites, 3 iterations and 20 steps in place of CEM "
        "with 200, 50, 5 and 30",
    ),
    "paper": ControlPreset(ControlRun(), 10, (0, 1, 2), "the published protocol"),
}


@dataclass(frozen=True)
class ControlCell:
    """One seed of a trained row: collection, training, evaluation, probes and the donor assay.

    Attributes:
        episodes: of a group at evaluation.
        planner: of the evaluation; None is that of collection.
    """

    control: ControlRun
    episodes: int
    planner: Config | None = None

    @property
    def title(self) -> str:
        """Row and seed."""
        return f"{self.control.recipe}-seed{self.control.seed}"

    @property
    def steps(self) -> int:
        """Iterations of collection and training."""
        return self.control.iterations

    @property
    def result(self) -> str:
        """The file of the row."""
        return f"evaluation-{self.episodes}-{short(self.planner)}.json"

    @property
    def arrays(self) -> str:
        """The file of the courses of the row's first episodes."""
        return _courses(self.result)

    def identity(self) -> dict[str, Any]:
        """Everything that the weights depend on."""
        return self.control.identity()

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides the weights."""
        return {"code": _measure_code(), "planner": repr(self.planner)}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train unless that is done, then measure."""
        learner, iterations = train_control(self.control, folder, report)
        save(learner.cpu(), folder / "model")
        seed, controller = self.control.seed, self.planner or self.control.controller
        row = measured(learned(learner, controller, seed=seed), folder / self.arrays, seed, self.episodes)
        named = {"arm": self.control.recipe, "label": CONTROL_RECIPES[self.control.recipe].label, "seed": seed}
        return named | row | {"iterations": iterations, "assay": assayed(learner, folder.parent.parent / "banks")}


@dataclass(frozen=True)
class ReferenceCell:
    """One seed of a row that trains nothing."""

    name: str
    controller: Config
    seed: int
    episodes: int

    @property
    def title(self) -> str:
        """Row and seed."""
        return f"{self.name}-seed{self.seed}"

    @property
    def steps(self) -> int:
        """Nothing is trained."""
        return 0

    @property
    def result(self) -> str:
        """The file of the row."""
        return "evaluation.json"

    @property
    def arrays(self) -> str:
        """The file of the courses of the row's first episodes."""
        return _courses(self.result)

    def identity(self) -> dict[str, Any]:
        """What the row depends on."""
        return asdict(self) | {"controller": repr(self.controller)}

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides."""
        return {"code": _measure_code()}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Evaluate."""
        policies = {
            "random-policy": random(seed=self.seed),
            "nominal": known(self.controller, seed=self.seed, nominal=True),
            "oracle": known(self.controller, seed=self.seed),
        }
        named = {"arm": self.name, "label": REFERENCES[self.name], "seed": self.seed}
        return named | measured(policies[self.name], folder / self.arrays, self.seed, self.episodes)


def _measure_code() -> dict[str, str]:
    return cell_code(measured, learned, known, random, assayed, simulated_banks)


def short(controller: Config | None) -> str:
    """A planner as a part of a file's name."""
    if controller is None:
        return "own"
    return "-".join(f"{value}" for value in (type(controller).__name__.lower(), *asdict(controller).values()))


def _courses(result: str) -> str:
    return result.replace("evaluation", "courses")


def measured(policy_of: PolicyOf, courses: Path, seed: int, episodes: int) -> dict[str, Any]:
    """Rows of every group and the seconds that took; the states of each group's first episode go to a file."""
    began = time.perf_counter()
    trials = evaluate(policy_of, seed=seed, episodes=episodes)
    seconds = time.perf_counter() - began
    write_json(courses, {g: {"states": t.states[0].tolist(), "values": t.values[0].tolist()}
                         for g, t in trials.items()})  # fmt: skip
    return {"groups": {group: trial.row() for group, trial in trials.items()}, "evaluation_seconds": seconds}


def assayed(learner: CaDM, banks: Path) -> dict[str, float]:
    """Probes and logged-action donors of a checkpoint, on banks common to all checkpoints."""
    train, held_out = assay_banks(banks)
    probes, donors = context_probes(learner, train, held_out), donor_errors(learner, held_out)
    row = {f"r2_{name}": float(scored.r2) for name, scored in probes.items()}
    return row | {"own_donor_h10": donors.matched_last, "wrong_minus_matched": donors.wrong_minus_matched}


def cells(preset: ControlPreset, recipes: Sequence[str] = tuple(CONTROL_RECIPES)) -> list[ControlCell | ReferenceCell]:
    """References first, which are quick, then the trained rows, seeds outermost."""
    found: list[ControlCell | ReferenceCell] = [
        ReferenceCell(name, preset.run.controller, seed, preset.episodes)
        for seed in preset.seeds
        for name in REFERENCES
    ]
    for seed in preset.seeds:
        for name in recipes:
            training = replace(preset.run.training, seed=seed)
            found.append(ControlCell(replace(preset.run, recipe=name, training=training), preset.episodes))
    return found
