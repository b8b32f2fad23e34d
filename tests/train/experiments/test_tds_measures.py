"""Selection systems, readers with a fixed wrong donor, and native decoders, against plain computations."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tiny_sources import TRAIN, cell_of, measuring, source_of
from tiny_worlds import D_CLEAN_LEARNER, D_CLEAN_SMALL, SPRING_LEARNER

from sprii_envs.banks import Bank, build
from sprii_train.analysis.donors import encode_split
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.measures.native_decoder import direct, native_decoder, rolled
from sprii_train.experiments.measures.selection import SEED, halves, selection, selection_episodes
from sprii_train.experiments.sources import Source
from sprii_train.learners import TDSConfig
from sprii_train.settings import D_CLEAN, SPRING


@pytest.fixture(scope="module")
def d_clean(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    protocol = D_CLEAN_SMALL.replace(systems={"train": 8, "validation": 7, "test": 2})
    return build(protocol, tmp_path_factory.mktemp("tds") / "bank")


@pytest.fixture(scope="module")
def states(d_clean: Bank, tmp_path_factory: pytest.TempPathFactory) -> Source:
    learner = TDSConfig.like(D_CLEAN_LEARNER, 2, "increments")
    return source_of(cell_of(d_clean, "d-clean", "tds-2", learner=learner), tmp_path_factory.mktemp("cells"))


# Systems that are selected on


def test_selected_and_reported_systems_are_all_and_disjoint(d_clean: Bank) -> None:
    table = D_CLEAN.episodes(d_clean, "validation")
    selected, reported = halves(table)
    one, two = set(selected["system"].tolist()), set(reported["system"].tolist())
    assert not one & two
    assert one | two == set(table["system"].tolist())
    assert (len(one), len(two)) == (3, 4)
    assert len(selected) == 3 * 4  # rollouts
    shuffled = table.select(np.random.default_rng(0).permutation(len(table)))
    assert set(halves(shuffled)[0]["system"].tolist()) == one
    assert set(selection_episodes(D_CLEAN, d_clean)["system"].tolist()) == one


def test_springworld_selects_on_no_system_of_its_panel(spring_bank: Bank) -> None:
    chosen = selection_episodes(SPRING, spring_bank)
    assert set(chosen["group"].tolist()) == {"interpolated", "extrapolated"}
    assert set(chosen["kind"].tolist()) == {"forced"}
    panel = spring_bank.split("validation")
    panel = panel.select(np.isin(panel["group"], ("continuous", "combination")))
    assert not set(chosen["system"].tolist()) & set(panel["system"].tolist())


def test_selection_is_the_donors_error_at_the_last_horizon(states: Source) -> None:
    found, learner = selection(states), states.learner
    table = selection_episodes(states.setting, states.store)
    encoded = encode_split(learner, states.reader, table, seed=SEED)
    variance = encoded.y[:, -1].double().numpy().var(0, ddof=1).mean()
    with torch.no_grad():
        own = learner.predict(encoded.codes.z_s, encoded.codes.z_p, encoded.u)[:, -1]
    expected = ((own - encoded.y[:, -1]).double() ** 2).mean().item() / variance
    assert found["own_selection"] == pytest.approx(expected, rel=1e-5)
    # All pairs of other episodes of a system, of which the measure has all or draws many.
    systems, errors = table["system"], []
    for i in range(len(table)):
        for j in np.flatnonzero((systems == systems[i]) & (np.arange(len(table)) != i)):
            with torch.no_grad():
                one = learner.predict(encoded.codes.z_s[i : i + 1], encoded.codes.z_p[j : j + 1], encoded.u[i : i + 1])
            errors.append(((one[0, -1] - encoded.y[i, -1]).double() ** 2).mean().item() / variance)
    assert found["selection"] == pytest.approx(np.mean(errors), rel=0.02)


# Readers


def test_an_empty_code_is_no_donor(spring_bank: Bank, tmp_path: Path) -> None:
    """Matched and Fixed Wrong of compact TDS with d = 0 are its Fresh Null, as in the paper's table."""
    empty = TDSConfig.like(SPRING_LEARNER, 0, "embedding")
    train = replace(TRAIN, steps=1)
    rows = {}
    for arm, learner in (("tds-0", empty), ("tds", replace(empty, persistent=4))):
        cell = measuring(cell_of(spring_bank, "spring", arm, learner=learner, train=train), "fixed-wrong")
        folder = folder_of(cell, tmp_path)
        rows[arm] = cell.run(folder, lambda step, values: None)
        arrays = load_file(folder / cell.arrays)
        assert set(arrays) == {"null", "matched", "wrong"}
        assert {array.shape for array in arrays.values()} == {(2, 5)}
        assert rows[arm]["matched"] == pytest.approx(arrays["matched"].mean())
    assert rows["tds-0"]["null"] == rows["tds-0"]["matched"] == rows["tds-0"]["wrong"]
    assert len({rows["tds"][name] for name in ("null", "matched", "wrong")}) == 3
    assert rows["tds"]["strata"] == ["continuous"] * 3 + ["combination"] * 2
    assert (rows["tds"]["readers"], rows["tds"]["reader_updates"]) == (2, 5)


# Native decoders


class Adding:
    """A learner whose states are sums of actions, scaled by the code."""

    config = SimpleNamespace(horizons=(1, 4, 16))

    def forecast(self, states: torch.Tensor, z_p: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        sums = actions.cumsum(1)[:, [h - 1 for h in self.config.horizons]]
        return states[:, None] + z_p[:, None] * sums


def test_rollouts_of_any_stride_sum_all_actions() -> None:
    draw = torch.Generator().manual_seed(0)
    states, z_p, actions = (torch.randn(*shape, generator=draw) for shape in ((5, 2), (5, 1), (5, 32, 2)))
    total = states + z_p * actions.sum(1)
    for stride in (1, 4, 16):
        torch.testing.assert_close(rolled(Adding(), states, z_p, actions, stride), total, atol=1e-5, rtol=1e-5)
    found = direct(Adding(), states, z_p, actions)
    assert list(found) == [1, 4, 16]
    torch.testing.assert_close(found[4], states + z_p * actions[:, :4].sum(1))
    with pytest.raises(ValueError, match=r"the stride is 3; legal: horizons of \(1, 4, 16\) that divide 32 steps"):
        rolled(Adding(), states, z_p, actions, 3)


def test_decoders_are_measured_on_reported_systems_in_raw_states(states: Source, monkeypatch: Any) -> None:
    row = native_decoder(states)
    arrays = load_file(states.folder / states.cell.arrays)
    assert all(array.shape == (4,) for array in arrays.values())
    assert row == pytest.approx({name: array.mean() for name, array in arrays.items()})
    # The learner of no motion has the error of no motion, at once and step by step, whoever the donor is.
    monkeypatch.setattr(states.learner, "forecast", lambda states, z_p, actions: states[:, None].expand(-1, 3, -1))
    still = native_decoder(states)
    assert still["direct_h16"] == still["wrong_direct_h16"] == still["still_h16"] == row["still_h16"]
    assert still["rollout_h32"] == still["jumps_h32"] == still["still_h32"] == row["still_h32"]


def test_what_cannot_be_decoded_says_so(d_clean: Bank, tmp_path: Path) -> None:
    cell = measuring(cell_of(d_clean, "d-clean"), "native-decoder")
    row = cell.run(folder_of(cell, tmp_path), lambda step, values: None)
    assert row["unmeasured"] == {"native-decoder": "native-decoder needs the operation 'forecast', which JEPA lacks"}
