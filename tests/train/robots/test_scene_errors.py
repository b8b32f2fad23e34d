"""Donors of held-out queries and errors under them, against explicit loops and predictors that are known."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.banks import Store
from sprii_train.experiments.measures.scenes import conditions
from sprii_train.learners.multimodal import Ahead
from sprii_train.protocol import Batch, Windows
from sprii_train.robots.scene_donors import NONE, Donors, queries
from sprii_train.robots.scene_errors import Bench
from sprii_train.robots.scenes import SceneReader

H, AHEAD = 24, (1, 4, 16)


@pytest.fixture(scope="module")
def bench(scene_bank: Store) -> Bench:
    table = scene_bank.split("test")
    return Bench(SceneReader(scene_bank, H, AHEAD, image=0), table, queries(table, H, 16, 3))


def test_queries_are_evenly_spaced_and_leave_room(bench: Bench):
    asked = bench.asked
    assert len(asked.rows) == 3 * 16
    np.testing.assert_array_equal(asked.starts[:3], [24, 28, 32])  # 72 frames: 72 − 24 − 16
    np.testing.assert_array_equal(bench.donors.tasks[asked.task], bench.table["system"][asked.rows])


def test_every_kind_of_donor_is_what_it_says(bench: Bench):
    donors, asked, table = bench.donors, bench.asked, bench.table
    task, calib = table["system"], table["calib"].astype(str)
    matched, random = donors.matched(4), donors.random(4)
    calibrated, shuffled = donors.calibrated(), donors.shuffled()
    given: dict[str, set[str]] = {}
    for i, row in enumerate(asked.rows):
        assert (task[matched[i]] == task[row]).all()
        assert row not in matched[i]
        assert len(set(matched[i, :3])) == 3  # a task has four scenes: the fourth donor is the first again
        assert matched[i, 3] == matched[i, 0]
        assert (task[random[i]] != task[row]).all()
        legal = (task != task[row]) & (calib == calib[row])
        assert (calibrated[i] != NONE) == legal.any()
        assert calibrated[i] == NONE or legal[calibrated[i]]
        given.setdefault(str(task[row]), set()).add(str(task[shuffled[i]]))
    assert all(len(found) == 1 and own not in found for own, found in given.items())  # one other task for each
    assert set.union(*given.values()) == given.keys()  # and each once
    np.testing.assert_array_equal(donors.matched(2), matched[:, :2])
    again = Donors(bench.reader, table, asked)
    np.testing.assert_array_equal(again.random(4), random)


def test_commands_of_hard_donors_are_nearest(bench: Bench):
    donors, asked, table = bench.donors, bench.asked, bench.table
    matched = donors.matched()[:, 0]
    found = donors.commanded(matched)
    commands = bench.reader.bank.windows("action", table["episode"], np.zeros(len(table), np.int64), 72)[..., 0]
    for i, (row, start) in enumerate(zip(asked.rows, asked.starts, strict=True)):
        aim = commands[matched[i], start - H : start]
        apart = {
            other: float(np.square(commands[other, start - H : start] - aim).mean())
            for other in range(len(table))
            if table["system"][other] != table["system"][row]
        }
        assert found[i] in apart
        assert apart[found[i]] == pytest.approx(min(apart.values()), abs=1e-6)


class Known(torch.nn.Module):
    """Predicts its context's first two numbers, plus the sum of what commands it is given."""

    def __init__(self, context: str = "split") -> None:
        super().__init__()
        self.config = SimpleNamespace(context=context)

    def prepare(self, windows: Windows) -> Batch:
        seen = windows.observations
        history = seen["donor"]["sensors"] if self.config.context == "joint" else seen["sensors"]
        return Batch(history, seen["sensors"][:, -1], windows.future_actions, None)

    def encode_history(self, history: torch.Tensor) -> torch.Tensor:
        return history.mean(1)[:, :2]

    def encode_current(self, current: torch.Tensor) -> torch.Tensor:
        return current[:, :0]

    def predict(self, z_s: torch.Tensor, z_p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        told = (z_p[:, :1] + u.sum((1, 2))[:, None])[:, None]
        return torch.cat([told.expand(-1, 3, 6), z_p[:, None, 1:].expand(-1, 3, 3)], dim=-1)

    def parts(self, told: torch.Tensor) -> Ahead:
        return Ahead(told[..., :0], told[..., :6], told[..., 6:])


def by_hand(bench: Bench, donors: list[np.ndarray], *, still: bool = False) -> dict[str, np.ndarray]:
    """Errors of `Known` by task, window by window; an empty list of donors is the query's own history."""
    reader, asked, table = bench.reader, bench.asked, bench.table
    unit = 100.0 * reader.sensors.scale[6:9]
    found: dict[str, dict[Any, list[float]]] = {}
    for i, (row, start) in enumerate(zip(asked.rows, asked.starts, strict=True)):
        own = reader.read(table["episode"][[row]], np.array([start]))
        codes = [own.observations["sensors"][0].double().numpy().mean(0)[:2]]
        if donors:
            codes = [
                reader.histories(table["episode"][[rows[i]]], np.array([start - H])).observations["sensors"][0]
                .double().numpy().mean(0)[:2]
                for rows in donors
            ]  # fmt: skip
        code = np.mean(codes, axis=0)
        commands = 0.0 if still else float(own.future_actions.double().sum())
        truth = own.future_observations["sensors"][0].double().numpy()
        for k, h in enumerate(AHEAD):
            force = np.mean((truth[k, :6] - code[0] - commands) ** 2)
            tcp = np.sqrt(np.sum(((truth[k, 6:9] - code[1]) * unit) ** 2))
            for name, value in ((f"force_h{h}", force), (f"tcp_h{h}", tcp)):
                found.setdefault(name, {}).setdefault(table["system"][row], []).append(float(value))
    return {name: np.array([np.mean(of[task]) for task in sorted(of)]) for name, of in found.items()}


def test_errors_by_condition_are_those_by_hand(bench: Bench):
    found, eligible = conditions(Known(), bench)
    donors = bench.donors
    matched, random = donors.matched(4), donors.random(4)
    expected = {
        "self": by_hand(bench, []),
        "matched": by_hand(bench, [matched[:, 0]]),
        "shuffled": by_hand(bench, [donors.shuffled()]),
        "still": by_hand(bench, [matched[:, 0]], still=True),
        "correct_k4": by_hand(bench, list(matched.T)),
        "random_k2": by_hand(bench, list(random[:, :2].T)),
    }
    for name, own in expected.items():
        for endpoint, values in own.items():
            np.testing.assert_allclose(found[name][endpoint], values, rtol=1e-4, err_msg=f"{name} {endpoint}")
    np.testing.assert_allclose(found["correct_k1"]["tcp_h4"], found["matched"]["tcp_h4"])
    assert 0 < eligible.sum() <= len(eligible)
    of = [bench.errors(bench.averaged(Known(), rows[:, None])) for rows in (donors.commanded(matched[:, 0]),
          donors.calibrated())]  # fmt: skip
    hard = (of[0]["tcp_h16"] + of[1]["tcp_h16"]) / 2
    for task in range(len(donors.tasks)):
        rows = eligible & (bench.asked.task == task)
        told = found["bank:hard"]["tcp_h16"][task]
        assert np.isnan(told) if not rows.any() else told == pytest.approx(hard[rows].mean())


def test_what_other_contexts_have(bench: Bench):
    assert set(conditions(Known("monolithic"), bench)[0]) == {"self"}
    joint, split = (conditions(Known(context), bench)[0] for context in ("joint", "split"))
    assert not {"self", "random_k2", "correct_k4"} & joint.keys()
    for name in ("matched", "shuffled", "still", "bank:hard", "random_k1"):
        np.testing.assert_allclose(joint[name]["force_h4"], split[name]["force_h4"], rtol=1e-5)


def test_what_stands_beside(bench: Bench):
    asked, table = bench.asked, bench.table
    last, mean = bench.errors(bench.last), bench.errors(bench.mean)
    for i in (0, 17, 40):
        episode, now = table["episode"][[asked.rows[i]]], asked.starts[i] + H - 1
        tcp = bench.reader.bank.windows("tcp", episode, np.zeros(1, np.int64), 72)[0, :, :3].astype(np.float64)
        assert last["tcp_h16"][i] == pytest.approx(100 * np.linalg.norm(tcp[now + 16] - tcp[now]), rel=1e-3, abs=1e-4)
        force = bench.reader.bank.windows("force", episode, np.zeros(1, np.int64), 72)[0].astype(np.float64)
        scale = bench.reader.sensors
        assert last["force_h4"][i] == pytest.approx(
            np.mean(((force[now + 4] - force[now]) / scale.scale[:6]) ** 2), rel=1e-3
        )
        own = np.mean(((force[now + 1] - scale.mean[:6]) / scale.scale[:6]) ** 2)
        assert mean["force_h1"][i] == pytest.approx(own, rel=1e-3)
