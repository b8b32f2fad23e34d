"""Realization routes: the equations, what is frozen, selection, and known risks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import erf
from value_toys import HORIZONS, ROUTE, linear_gaussian, null_risk, oracle_risk

from sprii_train.analysis.populations import (
    Confirmation,
    Development,
    PopulationError,
    Sealed,
    Training,
)
from sprii_train.analysis.value import (
    FitConfig,
    RouteConfig,
    amplitude_errors,
    fit_base,
    fit_bases,
    fit_route,
    fit_routes,
    other_system_rows,
    reader_errors,
)
from sprii_train.analysis.value.routes import ResidualNetwork

TRAIN = linear_gaussian(Training("train"), 800)
SELECT = linear_gaussian(Development("validation"), 200)
TEST = linear_gaussian(Sealed("sealed"), 200)
SHORT = replace(ROUTE, select_every=10, fit=FitConfig(updates=20, batch=32))


@pytest.fixture(scope="module")
def base():
    return fit_base(TRAIN, SELECT, ROUTE, 0)


@pytest.fixture(scope="module")
def m1(base):
    return fit_route(TRAIN, SELECT, base, "m1")


@pytest.fixture(scope="module")
def m2(base):
    return fit_route(TRAIN, SELECT, base, "m2")


@pytest.fixture(scope="module")
def short_base():
    return fit_base(TRAIN, SELECT, SHORT, 0)


# Known risks


def test_the_base_and_m1_reach_the_risk_without_the_factor(base, m1):
    for route in (base, m1):
        np.testing.assert_allclose(reader_errors(route, TEST).mean(0), null_risk(TEST), rtol=0.15)


def test_m2_reaches_the_risk_with_the_factor(m2):
    np.testing.assert_allclose(reader_errors(m2, TEST).mean(0), oracle_risk(), rtol=0.4)


def test_mismatched_m2_recovers_nothing(base):
    route = fit_route(TRAIN, SELECT, base, "m2", donors="mismatched")
    assert reader_errors(route, TEST).mean() > 0.95 * reader_errors(base, TEST).mean()
    # The map holds in evaluation too.
    matched = replace(route, donors="matched")
    by_hand = matched.predict(TEST.mismatched(ROUTE.donor_seed))
    np.testing.assert_array_equal(route.predict(TEST), by_hand)
    assert (matched.predict(TEST) != by_hand).any()


def test_the_oracle_route_reads_true_factors(base):
    route = fit_route(TRAIN, SELECT, base, "m2", context="oracle")
    np.testing.assert_allclose(reader_errors(route, TEST).mean(0), oracle_risk(), rtol=0.4)
    np.testing.assert_array_equal(route.predict(TEST.mismatched(0)), route.predict(TEST))
    assert route.network.project.weight.shape == (1, 1, ROUTE.code)  # type: ignore[union-attr]
    curve = amplitude_errors(route, TEST, (0.0, 1.0), seed=0)
    assert curve["cross"][1].mean() > curve["own"][0].mean() > curve["own"][1].mean()


# Equations


def gelu(x):
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


@pytest.mark.parametrize("kind", ["m1", "m2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_routes_equal_the_equations_one_case_at_a_time(short_base, kind, weighted):
    weights = np.array([2.5]) if weighted else None
    route = fit_route(TRAIN, SELECT, short_base, kind, weights=weights)
    found, r0 = route.predict(TEST), short_base.predict(TEST)
    w = {name: p.detach()[0].double().numpy() for name, p in route.network.named_parameters()}
    b = {name: p.detach()[0].double().numpy() for name, p in short_base.network.named_parameters()}
    assert set(w) == {"value.weight", "query.weight", "query.bias", "proxy.weight", "persistent.weight", "out.weight"}
    for i in (0, 5):
        for k, horizon in enumerate(HORIZONS):
            actions = np.where(np.arange(3) < horizon, TEST.actions[i, :, 0], 0.0)
            h = np.concatenate([TEST.query[i], actions, np.arange(3) < horizon, b["horizon"][k]])
            base = gelu(h @ b["hidden.0.weight"] + b["hidden.0.bias"][0]) @ b["out.weight"] + b["out.bias"][0]
            np.testing.assert_allclose(r0[i, k], base, rtol=1e-4, atol=1e-5)
            v = gelu(h @ w["value.weight"])
            q = h @ w["query.weight"] + w["query.bias"][0] + h @ w["proxy.weight"]
            p = TEST.context[i] @ w["persistent.weight"]
            gate = np.tanh(q) if kind == "m1" else np.tanh(q + p) - np.tanh(q)
            residual = (v * gate) @ w["out.weight"] * (2.5 if weighted else 1.0)
            np.testing.assert_allclose(found[i, k], base + residual, rtol=1e-4, atol=1e-5)


def test_m2_without_a_code_is_the_base(base, m1, m2):
    np.testing.assert_array_equal(m2.predict(TEST, np.zeros_like(TEST.context)), base.predict(TEST))
    assert (m2.predict(TEST) != base.predict(TEST)).any()
    assert (m1.predict(TEST, np.zeros_like(TEST.context)) != base.predict(TEST)).any()


def test_amplitudes_scale_own_and_cross_codes(base, m2):
    scales = (0.0, 0.5, 1.0)
    curves = amplitude_errors(m2, TEST, scales, seed=3)
    rows = other_system_rows(TEST.systems, 3, TEST.strata)
    for name, p in (("own", TEST.context), ("cross", TEST.context[rows])):
        assert curves[name].shape == (3, len(TEST), 2)
        np.testing.assert_array_equal(curves[name][0], reader_errors(base, TEST))
        for s, errors in zip(scales, curves[name], strict=True):
            np.testing.assert_array_equal(errors, reader_errors(m2, replace(TEST, context=s * p)))
    means = {name: errors.mean((1, 2)) for name, errors in curves.items()}
    assert means["own"][0] > means["own"][1] > means["own"][2]
    assert means["cross"][2] > means["cross"][0]


def test_m1_ignores_the_code(m1):
    np.testing.assert_array_equal(m1.predict(TEST), m1.predict(TEST.mismatched(0)))


# What is frozen


def test_the_base_does_not_change(short_base):
    before = {name: p.clone() for name, p in short_base.network.state_dict().items()}
    for kind in ("m1", "m2"):
        route = fit_route(TRAIN, SELECT, short_base, kind)
        assert route.base is short_base
    for name, p in short_base.network.named_parameters():
        assert torch.equal(p, before[name])
        assert p.grad is None
        assert not p.requires_grad


def test_the_query_only_arm_registers_the_projection_without_an_update(short_base):
    start = dict(ResidualNetwork(SHORT, "m1", short_base.network.size, 4, 1, 0, None, (0,)).named_parameters())
    for kind in ("m1", "m2"):
        found = dict(fit_route(TRAIN, SELECT, short_base, kind).network.named_parameters())
        assert found.keys() == start.keys()
        assert torch.equal(found["persistent.weight"], start["persistent.weight"]) == (kind == "m1")
        for name in set(start) - {"persistent.weight"}:
            assert not torch.equal(found[name], start[name])


def test_weights_of_zero_leave_a_coordinate_to_the_base():
    doubled = [replace(c, targets=np.repeat(c.targets, 2, -1)) for c in (TRAIN, SELECT, TEST)]
    base = fit_base(doubled[0], doubled[1], SHORT, 0)
    route = fit_route(doubled[0], doubled[1], base, "m2", weights=np.array([0.0, 2.0]))
    found, r0 = route.predict(doubled[2]), base.predict(doubled[2])
    np.testing.assert_array_equal(found[..., 0], r0[..., 0])
    assert (found[..., 1] != r0[..., 1]).any()


# Selection


@pytest.mark.parametrize("what", ["base", "m1", "m2"])
def test_the_best_checkpoint_on_the_selection_cases_is_kept(base, what):
    """A shorter fit is the beginning of a longer one, so checkpoints can be had one by one."""

    def fit(updates: int, every: int):
        config = replace(ROUTE, select_every=every, fit=FitConfig(updates=updates, batch=8, learning_rate=0.1))
        if what == "base":
            return fit_base(TRAIN, SELECT, config, 1)
        return fit_route(TRAIN, SELECT, replace(base, config=config), what)

    single = [reader_errors(fit(u, u), SELECT).mean() for u in (4, 8, 12, 16, 20)]
    assert np.argmin(single) != 4  # the last one is not the best, or nothing is tested
    np.testing.assert_allclose(reader_errors(fit(20, 4), SELECT).mean(), min(single), rtol=1e-6)


@pytest.mark.parametrize("population", [Confirmation, Sealed])
def test_checkpoints_are_not_selected_on_held_back_systems(short_base, population):
    held_back = replace(SELECT, population=population("x"))
    with pytest.raises(PopulationError, match="selected on training or development"):
        fit_base(TRAIN, held_back, SHORT, 0)
    with pytest.raises(PopulationError, match="selected on training or development"):
        fit_route(TRAIN, held_back, short_base, "m2")


@pytest.mark.parametrize("population", [Development, Confirmation, Sealed])
def test_routes_fit_on_training_systems_alone(short_base, population):
    other = replace(TRAIN, population=population("x"))
    with pytest.raises(PopulationError, match="training systems only"):
        fit_base(other, SELECT, SHORT, 0)
    with pytest.raises(PopulationError, match="training systems only"):
        fit_route(other, SELECT, short_base, "m2")


# Stacks and refusals


@pytest.mark.parametrize("kind", ["m1", "m2"])
def test_a_stack_fits_as_its_routes_would_alone(kind):
    stack = replace(SHORT, fit=replace(SHORT.fit, stack=3))
    bases = fit_bases(TRAIN, SELECT, stack, (0, 1, 2))
    routes = fit_routes(TRAIN, SELECT, bases, kind)
    for seed in range(3):
        alone = fit_base(TRAIN, SELECT, SHORT, seed)
        np.testing.assert_allclose(bases[seed].predict(TEST), alone.predict(TEST), rtol=1e-3, atol=1e-4)
        route = fit_route(TRAIN, SELECT, alone, kind)
        assert routes[seed].base.seed == seed
        np.testing.assert_allclose(routes[seed].predict(TEST), route.predict(TEST), rtol=1e-3, atol=1e-4)


def test_illegal_routes_are_refused(short_base, m1):
    with pytest.raises(ValueError, match="route kind is 'm3'"):
        fit_route(TRAIN, SELECT, short_base, "m3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="recipient's own factors"):
        fit_route(TRAIN, SELECT, short_base, "m2", context="oracle", donors="mismatched")
    for weights in (np.ones(2), np.array([-1.0]), np.array([np.nan])):
        with pytest.raises(ValueError, match="route weights must be 1 finite numbers"):
            fit_route(TRAIN, SELECT, short_base, "m2", weights=weights)
    with pytest.raises(ValueError, match="no context"):
        fit_route(replace(TRAIN, context=None), SELECT, short_base, "m2")
    with pytest.raises(ValueError, match="distinct seeds"):
        fit_routes(TRAIN, SELECT, (short_base, short_base), "m2")
    with pytest.raises(ValueError, match="other configs"):
        fit_routes(TRAIN, SELECT, (short_base, replace(short_base, seed=1, config=ROUTE)), "m2")
    with pytest.raises(ValueError, match=r"horizons \(1, 3\); the cases have \(2, 3\)"):
        fit_base(TRAIN, replace(SELECT, horizons=(2, 3)), SHORT, 0)
    with pytest.raises(ValueError, match="amplitudes are of M2"):
        amplitude_errors(m1, TEST, seed=0)
    with pytest.raises(ValueError, match=r"RouteConfig\.base_layers"):
        RouteConfig(base_layers=0)
