"""What runs leave on disk: killed at every call of the system that its writer makes, and each file damaged.

pytest -m slow -s tests/train/test_faults_of_runs.py     # prints the counts
"""

import os
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import JEPA_CONFIG

from sprii_envs.relations.kernels.candidates import Candidates, load_candidates, save_candidates
from sprii_train import checkpoints
from sprii_train.checkpoints import load_training_state, save_training_state
from sprii_train.control.experience import Experience
from sprii_train.evaluation import Evaluation, GroupEpisodes
from sprii_train.experiments import cells
from sprii_train.fit import TrainConfig, build_optimizer
from sprii_train.learners import JEPA
from sprii_train.reports.page import Page, Table, write_page

sys.path.append(str(Path(__file__).parents[1] / "envs"))

from faults import NAME, Kept, damaged_everywhere, killed_everywhere  # pyright: ignore[reportMissingImports]
from kills import kills  # pyright: ignore[reportMissingImports]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")]
CONFIG = TrainConfig(steps=5, warmup=0, precision="fp32")


def learner(seed: int) -> JEPA:
    torch.manual_seed(seed)
    return JEPA(JEPA_CONFIG)


def arrays(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def state(path: Path, seed: int) -> None:
    made = learner(seed)
    optimizer = build_optimizer(made, CONFIG)
    for parameter in made.parameters():
        parameter.grad = torch.full_like(parameter, 0.5 + seed)
    optimizer.step()
    save_training_state(path, made, optimizer, 4 * (1 + seed))


def read_state(path: Path) -> object:
    made = learner(7)
    optimizer = build_optimizer(made, CONFIG)
    before = arrays(made)
    step = load_training_state(path, made, optimizer)
    if not step and not optimizer.state and all((v == before[k]).all() for k, v in arrays(made).items()):
        raise ValueError(f"{path}: no state here, the run begins anew")
    moments = [each[key].numpy() for each in optimizer.state.values() for key in sorted(each)]
    return step, arrays(made), moments


def experience(path: Path, seed: int) -> None:
    rng, store = np.random.default_rng(seed), Experience(2, 1, ("mass",))
    store.add(rng.random((3, 6, 2), np.float32), rng.random((3, 5, 1), np.float32), ["a", "b", "c"], rng.random((3, 1)))
    store.save(path)


def read_experience(path: Path) -> object:
    found = Experience.load(path)
    names = ("observations", "actions", "lengths", "systems", "properties")
    return found.digest(), {name: np.asarray(getattr(found, name)) for name in names}


def evaluation(path: Path, seed: int) -> None:
    returns = np.random.default_rng(seed).normal(size=4)
    ids = np.array([f"system-{i}" for i in range(4)])
    own = GroupEpisodes(ids=ids, values=np.arange(4.0)[:, None], each=1, starts="0" * 64, returns=returns,
                        lengths=np.full(4, 7), success=None)  # fmt: skip
    Evaluation(agent="a", env_id="e", constants={}, steps=7, seed=0, told=False, properties=("m",),
               groups={"g": own}).to_json(path)  # fmt: skip


def read_evaluation(path: Path) -> object:
    found = Evaluation.from_json(path)
    own = found.groups["g"]
    return own.returns, own.ids, own.values, own.lengths, found.rows()


def candidates(path: Path, seed: int) -> None:
    systems = ["a", "b", "c"]
    save_candidates(path, {"G": Candidates(systems, [["b"], ["c"], ["ab"[seed]]])})


def read_candidates(path: Path) -> object:
    found = load_candidates(path)
    return {name: [np.asarray(part) for part in vars(each).values()] for name, each in found.items()}


@dataclass(frozen=True)
class Cell:
    """A result with an array beside it, of one measurement or another."""

    seed: int
    title: str = "cell"
    steps: int = 1
    result: str = "result.json"
    arrays: str = "arrays.npz"

    def identity(self) -> dict[str, int]:
        return {"number": 3}

    def measurement(self) -> int:
        return self.seed

    def run(self, folder: Path, report: object) -> dict[str, float]:
        from sprii_envs.files import written_file

        with written_file(folder / self.arrays) as temporary, open(temporary, "wb") as file:
            np.savez(file, x=np.random.default_rng(self.seed).random(9))
        return {"error": 0.125 + self.seed, "steps": 5}


def read_cell(path: Path) -> tuple[object, object]:
    for cell in (Cell(0), Cell(1)):
        if (row := cells.result_of(cell, path)) is not None:
            with np.load(cells.folder_of(cell, path) / cell.arrays) as found:
                return row, found["x"]
    raise ValueError(f"{path}: not done, or of another measurement: it is run again")


EVERY = [
    Kept("learner", lambda path, seed: checkpoints.save(learner(seed), path),
         lambda path: arrays(checkpoints.load(path)), over=True),
    Kept("training state", state, read_state, over=True),
    Kept("experience", experience, read_experience, over=True),
    Kept("evaluation", evaluation, read_evaluation, over=True),
    Kept("candidates", candidates, read_candidates, over=True),
    Kept("cell", lambda path, seed: cells.work(Cell(seed), path, lambda *_: None), read_cell, over=True),
]  # fmt: skip


@pytest.mark.parametrize("kept", EVERY, ids=str)
def test_a_run_killed_at_every_call_of_the_system(kept: Kept, tmp_path: Path) -> None:
    for over in (False, True):
        counts = killed_everywhere(kept, tmp_path / str(over), over=over)
        print(f"\n{kept}, {'over another' if over else 'fresh'}: {dict(counts)}")
        assert counts["kills"] > 5


@pytest.mark.parametrize("kept", EVERY, ids=str)
def test_damage_of_every_file_of_a_run(kept: Kept, tmp_path: Path) -> None:
    counts = damaged_everywhere(kept, tmp_path, flips=40)
    print(f"\n{kept}: {dict(counts)}")
    assert counts["refused"] > counts["read"]


def test_a_report_killed_at_every_call_of_the_system_has_whole_files(tmp_path: Path) -> None:
    def write(folder: Path, number: int) -> None:
        table = Table("Numbers", ["arm", "error"], [["a", f"0.{number}"], ["b", f"1.{number}"]])
        write_page(Page("A report", f"Of {number}.", [table], [], [], "sprii", {"seed": str(number)}), folder)

    def held(folder: Path) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}

    for number in (0, 1):
        write(tmp_path / f"whole-{number}", number)
    old, new = (held(tmp_path / f"whole-{number}") for number in (0, 1))
    counts = Counter()
    for folder in kills(lambda f: write(f / NAME, 0), lambda f: write(f / NAME, 1), tmp_path / "killed"):
        counts["kills"] += 1
        for name, data in held(folder / NAME).items():
            assert data in (old[name], new[name])
            counts["old" if data == old[name] else "new"] += 1
        write(folder / NAME, 1)
        assert held(folder / NAME) == new
        assert not [p for p in (folder / NAME).iterdir() if p.name.startswith(".")]
        shutil.rmtree(folder)
    print(f"\nreport: {dict(counts)}")
    assert min(counts["old"], counts["new"]) > 5
