"""The common reader against a loop in plain torch, and what codes are worth to it on carts whose drag is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sprii_train.analysis.populations import Development, PopulationError, Training
from sprii_train.analysis.value.common import (
    PAIRS,
    CommonConfig,
    Panel,
    common_errors,
    common_network,
    draw_pairs,
    fit_common,
    fit_scales,
    hash_halves,
    next_systems,
    report_pairs,
    slot_codes,
    window_table,
)
from sprii_train.analysis.value.readers import Sizes
from sprii_train.analysis.value.stacked import generator

TINY = CommonConfig(
    horizons=(1, 3), anchors=(2, 3, 5), systems=3, slot=5, horizon=3, width=8, updates=12, learning_rate=3e-3, warmup=5
)
SEEDS = (3, 8)


def carts(population, systems: int, *, steps: int = 9, seed: int = 0) -> tuple[Panel, np.ndarray]:
    """Panels of x' = v, v' = a − γv, and log γ (N,)."""
    rng = np.random.default_rng([seed, systems])
    gamma = np.exp(rng.uniform(math.log(0.1), math.log(3.0), systems))
    actions = rng.standard_normal((systems, 3, steps - 1, 2))
    x, v = rng.standard_normal((2, systems, 3, 2))
    states = [np.concatenate([x, v], -1)]
    for t in range(steps - 1):
        v = v + 0.2 * (actions[:, :, t] - gamma[:, None, None] * v)
        x = x + 0.2 * v
        states.append(np.concatenate([x, v], -1))
    return Panel(population, 10 + np.arange(systems), np.stack(states, 2), actions), np.log(gamma)


def windows_of(values: np.ndarray, panel: Panel, config: CommonConfig) -> np.ndarray:
    """One number a system at every window, (N, E, W, 1)."""
    return np.broadcast_to(values[:, None, None, None], (*panel.shape(config), 1))


# Against plain torch


def plain(codes: torch.Tensor, panel: Panel, config: CommonConfig, seed: int) -> tuple[nn.Module, torch.Tensor]:
    """The reader fitted case by case and horizon by horizon, and its horizon table."""
    start = common_network(Sizes(4, 2, config.horizons, 4), config, (seed,))
    first, second, last = nn.Linear(4 + 5 + 6 + 3 + 3, 8), nn.Linear(8, 8), nn.Linear(8, 4)
    table = nn.Parameter(start.horizon.detach()[0].clone())
    with torch.no_grad():
        first.weight.copy_(
            torch.cat([start.by_case.weight[0], start.by_action.weight[0], start.by_horizon.weight[0]]).T
        )
        for layer, own in ((first, start.by_case), (second, start.second), (last, start.last)):
            layer.bias.copy_(own.bias[0, 0])
        second.weight.copy_(start.second.weight[0].T)
        last.weight.copy_(start.last.weight[0].T)
    model = nn.Sequential(first, nn.GELU(), second, nn.GELU(), last)
    parameters = [*model.parameters(), table]
    optimizer = torch.optim.AdamW(parameters, lr=1.0, weight_decay=0.05)
    rng = generator(seed, "batches")
    for step in range(config.updates):
        pairs = draw_pairs(rng, panel.shape(config), config.systems)
        losses = []
        for recipient, donor in zip(pairs.recipients.tolist(), pairs.donors.tolist(), strict=True):
            for k in range(len(config.horizons)):
                x, target = case(panel, config, recipient, codes[donor], k, table)
                losses.append(((model(x) - target) ** 2).mean())
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        rising = 3e-3 * step / 5
        falling = 3e-3 * 0.5 * (1 + math.cos(math.pi * (step - 5) / (config.updates - 5)))
        optimizer.param_groups[0]["lr"] = rising if step < 5 else falling
        optimizer.step()
    return model, table


def case(panel: Panel, config: CommonConfig, recipient: int, code: torch.Tensor, k: int, table: torch.Tensor):
    """Input (21,) and target (4,) of one recipient window at one horizon, from the episodes themselves."""
    n, rollouts, windows = panel.shape(config)
    system, rollout, anchor = np.unravel_index(recipient, (n, rollouts, windows))
    at, h, last = config.anchors[anchor], config.horizons[k], config.horizons[-1]
    states, actions = panel.states[system, rollout], panel.actions[system, rollout]
    mean, sd = panel.states.reshape(-1, 4).mean(0), panel.states.reshape(-1, 4).std(0)
    ahead, mask = np.zeros((last, 2)), np.zeros(last)
    ahead[:h] = actions[at : at + h] / panel.actions.reshape(-1, 2).std(0)
    mask[:h] = 1
    x = torch.tensor(np.concatenate([(states[at] - mean) / sd]), dtype=torch.float32)
    rest = torch.tensor(np.concatenate([ahead.ravel(), mask]), dtype=torch.float32)
    target = torch.tensor((states[at + h] - states[at]) / sd, dtype=torch.float32)
    return torch.cat([x, code, rest, table[k]]), target


def test_readers_of_two_seeds_equal_loops_in_plain_torch():
    panel, drag = carts(Training("train"), 6)
    (codes,) = slot_codes(windows_of(drag, panel, TINY), [windows_of(drag, panel, TINY)], TINY.slot)
    scales, pairs = fit_scales(panel), report_pairs(panel.shape(TINY), seed=1)
    network = fit_common(panel, codes, scales, TINY, SEEDS)
    found = common_errors(network, panel, codes, scales, TINY, pairs)
    assert found.shape == (2, 6, 2)
    sd = panel.states.reshape(-1, 4).std(0)
    for r, seed in enumerate(SEEDS):
        model, table = plain(codes, panel, TINY, seed)
        for n in range(6):
            for k in range(2):
                errors = []
                for recipient, donor in zip(pairs.recipients[n], pairs.donors[n], strict=True):
                    x, target = case(panel, TINY, recipient, codes[donor], k, table)
                    errors.append(float((((model(x) - target).detach() * torch.tensor(sd)) ** 2).mean()))
                assert found[r, n, k] == pytest.approx(np.mean(errors), rel=1e-3)


def test_a_seed_is_the_same_reader_alone_and_in_a_stack():
    panel, drag = carts(Training("train"), 6)
    (codes,) = slot_codes(windows_of(drag, panel, TINY), [windows_of(drag, panel, TINY)], TINY.slot)
    scales = fit_scales(panel)
    both, one = (fit_common(panel, codes, scales, TINY, seeds) for seeds in (SEEDS, SEEDS[1:]))
    for name, parameter in one.named_parameters():
        torch.testing.assert_close(dict(both.named_parameters())[name][1:], parameter, rtol=1e-4, atol=1e-5)


# Batches and cases


def test_batches_pair_two_rollouts_of_distinct_systems_in_both_directions():
    shape, rng, seen = (7, 3, 4), generator(0, "batches"), []
    for _ in range(300):
        pairs = draw_pairs(rng, shape, 5)
        recipients, donors = (np.stack(np.unravel_index(rows.numpy(), shape)) for rows in pairs)
        assert recipients.shape == (3, 10)
        assert (recipients[0] == donors[0]).all()
        assert (recipients[1] != donors[1]).all()
        assert len(set(recipients[0, :5])) == 5
        np.testing.assert_array_equal(recipients[:, :5], donors[:, 5:])
        np.testing.assert_array_equal(recipients[:, 5:], donors[:, :5])
        seen.append(recipients)
    counts = np.unique(np.concatenate(seen, axis=1), axis=1, return_counts=True)[1]
    assert len(counts) == 7 * 3 * 4
    assert abs(counts - 3000 / 84).max() < 6 * math.sqrt(3000 / 84)  # windows are equally likely
    few = draw_pairs(generator(1, "batches"), (3, 2, 1), 48)
    assert len(few.recipients) == 6  # all systems, where a batch would have more


def test_shuffled_donors_are_of_another_system_of_the_batch():
    shape = (7, 3, 4)
    own, other = (draw_pairs(generator(2, "batches"), shape, 5, donors) for donors in ("matched", "shuffled"))
    assert torch.equal(own.recipients, other.recipients)
    assert sorted(own.donors.tolist()) == sorted(other.donors.tolist())
    systems = [rows // 12 for rows in other]
    assert (systems[0] != systems[1]).all()


@pytest.mark.parametrize("rollouts", [2, 4, 8])
def test_a_report_has_eight_pairs_in_both_directions(rollouts: int):
    shape = (5, rollouts, 9)
    pairs = report_pairs(shape, seed=3)
    r, d = (np.stack(np.unravel_index(rows, shape)) for rows in pairs)
    assert r.shape == (3, 5, 2 * PAIRS)
    assert (r[0] == np.arange(5)[:, None]).all()
    assert (d[0] == r[0]).all()
    assert (d[1] != r[1]).all()
    assert (np.unique(r[1], return_counts=True)[1] == 5 * 2 * PAIRS / rollouts).all()
    np.testing.assert_array_equal(pairs.recipients[:, :PAIRS], pairs.donors[:, PAIRS:])
    wrong = np.stack(np.unravel_index(next_systems(pairs.donors, shape), shape))
    np.testing.assert_array_equal(wrong[0], (d[0] + 1) % 5)
    np.testing.assert_array_equal(wrong[1:], d[1:])


def test_halves_are_disjoint_and_a_function_of_the_ids():
    ids = np.arange(1000, 1200)
    selection, report = hash_halves(ids)
    assert (selection ^ report).all()
    assert (selection.sum(), report.sum()) == (100, 100)
    order = np.random.default_rng(0).permutation(200)
    again = hash_halves(ids[order])
    assert set(ids[order][again[0]]) == set(ids[selection])
    assert not np.array_equal(selection, np.arange(200) < 100)
    assert (hash_halves(ids, "other")[0] != selection).any()
    assert [half.sum() for half in hash_halves(np.arange(5))] == [2, 3]
    with pytest.raises(ValueError, match="two or more distinct systems, got 1 in shape"):
        hash_halves(np.array([4, 4]))


def test_narrow_codes_are_padded_with_zeros_and_wide_ones_refused():
    rng = np.random.default_rng(0)
    train, others = 3 + 2 * rng.standard_normal((4, 3, 2, 3)), rng.standard_normal((2, 3, 2, 3))
    one, two = slot_codes(train, [train, others], 5)
    flat = train.reshape(-1, 3)
    np.testing.assert_allclose(one[:, :3], (flat - flat.mean(0)) / flat.std(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(two[:, :3], (others.reshape(-1, 3) - flat.mean(0)) / flat.std(0), rtol=1e-5, atol=1e-6)
    assert not one[:, 3:].any()
    assert not two[:, 3:].any()
    assert torch.equal(slot_codes(np.ones((2, 2, 2, 1)), [np.ones((2, 2, 2, 1))], 5)[0], torch.zeros(8, 5))
    with pytest.raises(ValueError, match="codes of 6 numbers do not fit the common reader's slot; legal: at most 5"):
        slot_codes(np.zeros((1, 2, 3, 6)), [], 5)


# What codes are worth


@pytest.fixture(scope="module")
def worth():
    """Errors (R, N, K) by code: readers of two seeds on 96 carts, read on 96 others."""
    config = replace(TINY, systems=32, width=24, updates=300, learning_rate=1e-2, warmup=20)
    (train, drag), (held, other) = carts(Training("train"), 96), carts(Development("validation"), 96, seed=1)
    codes = slot_codes(
        windows_of(drag, train, config), [windows_of(d, p, config) for d, p in ((drag, train), (other, held))], 5
    )
    scales, pairs = fit_scales(train), report_pairs(held.shape(config))
    wrong = pairs._replace(donors=next_systems(pairs.donors, held.shape(config)))
    seeds = (0, 1)
    null = fit_common(train, None, scales, config, seeds)
    oracle = fit_common(train, codes[0], scales, config, seeds)
    shuffled = fit_common(train, codes[0], scales, config, seeds, "shuffled")
    constant = fit_common(train, torch.zeros_like(codes[0]), scales, config, seeds[:1])
    return {
        "null": common_errors(null, held, None, scales, config, pairs),
        "oracle": common_errors(oracle, held, codes[1], scales, config, pairs),
        "wrong": common_errors(oracle, held, codes[1], scales, config, wrong),
        "shuffled": common_errors(shuffled, held, codes[1], scales, config, wrong),
        "constant": common_errors(constant, held, torch.zeros_like(codes[1]), scales, config, pairs),
    }


def test_the_drag_beats_no_code_and_another_systems_drag_costs(worth):
    means = {name: errors.mean((0, 1)) for name, errors in worth.items()}
    assert (means["oracle"] < 0.5 * means["null"]).all()
    assert (means["wrong"] > 1.3 * means["null"]).all()
    np.testing.assert_allclose(worth["constant"], worth["null"][:1], rtol=1e-3)


def test_shuffled_codes_are_worth_nothing(worth):
    """The interval of their cost over 96 systems holds 0 and is within a tenth of what the drag is worth: a gain of
    more than a fifth of that would be found."""
    cost = (worth["shuffled"] - worth["null"]).mean(0)[:, -1]
    gain = (worth["null"] - worth["oracle"]).mean()
    half = 1.96 * cost.std(ddof=1) / math.sqrt(len(cost))
    assert half < 0.1 * gain
    assert -half < cost.mean() < 0.1 * gain  # noise in a slot may cost what is fitted to it


# Refused


def test_refused():
    panel, _ = carts(Training("train"), 4)
    held, _ = carts(Development("validation"), 4)
    scales = fit_scales(panel)
    with pytest.raises(PopulationError, match="scales of states and actions may be fitted on training systems only"):
        fit_scales(held)  # type: ignore[arg-type]
    with pytest.raises(PopulationError, match="a common reader may be fitted on training systems only"):
        fit_common(held, None, scales, TINY, (0,))  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"episodes of 9 observations; legal: at least 10, for horizon 4 after anchor 5"
    ):
        window_table(panel, scales, replace(TINY, horizons=(1, 4)))
    with pytest.raises(ValueError, match=r"codes have shape \(36, 4\); legal: \(36, 5\)"):
        fit_common(panel, torch.zeros(36, 4), scales, TINY, (0,))
    with pytest.raises(ValueError, match="distinct seeds"):
        fit_common(panel, None, scales, TINY, (0, 0))
    with pytest.raises(ValueError, match=r"a Panel has 4 systems of 1 rollouts; legal: 2 or more of each"):
        Panel(panel.population, panel.systems, panel.states[:, :1], panel.actions[:, :1])
    with pytest.raises(ValueError, match=r"a Panel of 4 systems has states \(4, 3, 9, 4\) and actions \(4, 3, 9, 2\)"):
        Panel(panel.population, panel.systems, panel.states, panel.actions[:, :, [0, *range(8)]])
    for changes, message in (
        ({"anchors": (3, 2)}, r"CommonConfig.anchors are \(3, 2\); legal: increasing steps >= 0"),
        ({"horizons": (0, 2)}, r"CommonConfig.horizons are \(0, 2\); legal: increasing steps >= 1"),
        ({"systems": 1}, "systems"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(TINY, **changes)
