"""Horizons by brute force, donors by hand, errors of planted predictors, probes of planted codes, and rolls."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from field_banks import LEARNER, SMALL, store_of

from sprii_envs.fields.bank import FIELD
from sprii_train.fhn.evaluation import (
    DONORS,
    HORIZONS,
    REPORTED,
    STARTS,
    by_horizon,
    code_table,
    codes,
    curve,
    decomposition,
    donors_of,
    errors,
    held,
    mean_codes,
    persistence,
    r2,
)
from sprii_train.learners.nod_hier import NODHier


@pytest.mark.parametrize("horizon", range(1, 61))
def test_a_horizon_is_the_fewest_steps_of_9_3_and_1_with_small_ones_first(horizon: int):
    found = decomposition(horizon)
    assert sum(found) == horizon
    assert list(found) == sorted(found)
    counts = [(a, b, horizon - 9 * a - 3 * b) for a, b in product(range(7), range(21)) if 9 * a + 3 * b <= horizon]
    assert len(found) == min(map(sum, counts))
    assert set(found) <= {1, 3, 9}


def test_one_rollout_serves_all_horizons():
    longest = decomposition(HORIZONS[-1])
    assert longest == (1, 1, 3, 9, 9, 9, 9, 9)
    for horizon in HORIZONS:
        assert longest[: len(decomposition(horizon))] == decomposition(horizon)


def test_donors_come_in_their_order_without_the_recipient():
    assert donors_of(15, 4) == (36, 5, 24, 45)
    assert donors_of(5, 4) == (36, 15, 24, 45)
    assert donors_of(45, 2) == (36, 5)
    assert [donors_of(case, 1) for case in (5, 15, 24, 45)] == [(36,)] * 4
    table = {case: np.full((2, 2), float(case)) for case in DONORS}
    assert (mean_codes(table, 24, 4) == (36 + 5 + 15 + 45) / 4).all()


def test_groups_have_every_case_of_their_systems():
    store = store_of()
    for split, systems in (("id", SMALL.systems), ("intra", SMALL.inside), ("extra", SMALL.outside)):
        group = held(store, split)
        assert sorted(zip(group.factors["k"], group.factors["beta"], strict=True)) == sorted(systems)
        assert set(group.episodes) == set(DONORS)
        at = {e: i for i, e in enumerate(store.table["episode"].tolist())}
        for case, episodes in group.episodes.items():
            rows = [at[e] for e in episodes.tolist()]
            assert (store.table["case"][rows] == case).all()
            assert (store.table["system"][rows] == group.systems).all()
            assert (store.table["split"][rows] != "train").all()


def test_errors_of_predictors_that_are_known():
    """Persistence by a loop over frames; the truth has none; half the truth is half wrong; late starts have no H50."""
    store = store_of()
    episodes = held(store, "id").episodes[15]
    fields = store.stream(FIELD).values.reshape(-1, SMALL.frames, 2, 8, 8).astype(np.float64)[episodes]
    expected = np.full((3, 4, 3), np.nan)
    for i, (start, horizon) in product(range(3), product(STARTS, HORIZONS)):
        if start + horizon <= 100:
            truth, now = fields[i, start + horizon], fields[i, start]
            ratio = np.linalg.norm((now - truth).ravel()) / np.linalg.norm(truth.ravel())
            expected[i, STARTS.index(start), HORIZONS.index(horizon)] = ratio
    found = errors(store, episodes, persistence)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.isnan(found[:, 2:, 2]).all()
    assert not np.isnan(found[:, :2]).any()
    assert by_horizon(found)["h50"] == pytest.approx(np.mean(expected[:, :2, 2]), rel=1e-6)

    def truth_times(scale: float):
        def predict(starts: torch.Tensor, steps) -> torch.Tensor:
            whole = torch.from_numpy(fields).float()
            begin = next(t for t in STARTS if torch.equal(whole[:, t], starts))
            return scale * whole[:, begin + np.cumsum(steps)]

        return predict

    assert np.nanmax(errors(store, episodes, truth_times(1.0))) == 0.0
    half = errors(store, episodes, truth_times(0.5))
    np.testing.assert_allclose(half[~np.isnan(half)], 0.5, rtol=1e-6)


def test_evaluation_is_the_same_of_rolled_fields_for_a_learner_without_coordinates():
    found = {}
    for coordinates, far in product((False, True), (0, 8)):
        torch.manual_seed(0)
        learner: Any = NODHier(replace(LEARNER, coordinates=coordinates)).eval()
        with torch.no_grad():
            learner.project[-1].weight.mul_(100.0)
        store = store_of(replace(SMALL, side=16), far=far)
        group = held(store, "extra")
        table = code_table(learner, store, group)
        found[coordinates, far] = curve(learner, store, group, REPORTED, lambda case, t=table: mean_codes(t, case, 4))
    np.testing.assert_allclose(found[False, 0], found[False, 8], rtol=1e-3, equal_nan=True)
    assert np.nanmax(np.abs(found[True, 0] / found[True, 8] - 1.0)) > 1e-2
    assert found[False, 0].shape == (len(SMALL.outside), 3, 4, 3)


def test_codes_are_those_of_the_context_frames_whatever_is_read_at_once(monkeypatch: pytest.MonkeyPatch):
    store, learner = store_of(), NODHier(LEARNER).eval()
    episodes = np.array([7, 0, 3, 11, 2])
    fields = torch.from_numpy(store.stream(FIELD).values.reshape(-1, SMALL.frames, 2, 8, 8)[episodes])
    with torch.no_grad():
        expected = learner.encode_history(fields[:, [0, 25, 50, 75, 100]]).numpy()
    monkeypatch.setattr("sprii_train.fhn.evaluation.ROWS", 2)
    np.testing.assert_allclose(codes(learner, store, episodes), expected, rtol=1e-5, atol=1e-6)


def test_probes_read_planted_codes_and_no_others():
    rng = np.random.default_rng(0)
    systems = np.repeat(np.arange(9), 40)
    k, beta = np.repeat(rng.uniform(size=9), 40), np.repeat(rng.uniform(size=9), 40)
    told = {"k": k, "beta": beta}
    mixed = np.stack([2.0 * k - beta + 5.0, k + 0.5 * beta], axis=1)
    new = {"k": rng.uniform(size=12), "beta": rng.uniform(size=12)}
    planted = np.stack([2.0 * new["k"] - new["beta"] + 5.0, new["k"] + 0.5 * new["beta"]], axis=1)
    assert min(r2((mixed, systems, told), planted, new).values()) > 0.9999
    blind = r2((rng.normal(size=(360, 2)), systems, told), rng.normal(size=(12, 2)), new)
    assert max(blind.values()) < 0.3
    one = r2((np.stack([k, k], axis=1), systems, told), np.stack([new["k"], new["k"]], axis=1), new)
    assert one["k"] > 0.9999
    assert one["beta"] < 0.5
