"""Controllers against LQR, one episode at a time, bad returns, bounds, resets and warm starts."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_are
from torch import Tensor

from sprii_train.control import pendulum
from sprii_train.control.controllers import (
    CEM,
    CONTROLLERS,
    ICEM,
    MPPI,
    Shooting,
    base,
    cem,
    icem,
    initial,
    mppi,
    named_controller,
    noise,
    plan,
    reset,
    shooting,
)
from sprii_train.control.planning import rollout_score

SMALL = {
    "shooting": Shooting(candidates=12, horizon=4),
    "cem": CEM(candidates=12, elites=4, iterations=2, horizon=4),
    "mppi": MPPI(candidates=12, iterations=2, horizon=4),
    "icem": ICEM(candidates=12, elites=4, kept=2, horizon=4),
    "icem-mean": ICEM(candidates=12, elites=4, kept=2, horizon=4, execute="mean"),
}
MODULES = {"shooting": shooting, "cem": cem, "mppi": mppi, "icem": icem, "icem-mean": icem}
NOISE = {"shooting": noise.uniform, "cem": noise.truncated_normal, "mppi": noise.normal}
NOISE |= {"icem": partial(noise.coloured, beta=2.0), "icem-mean": partial(noise.coloured, beta=2.0)}
every_controller = pytest.mark.parametrize("name", list(SMALL))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bounds(*sides: tuple[float, float]) -> tuple[Tensor, Tensor]:
    low, high = zip(*sides, strict=True)
    return torch.tensor(low), torch.tensor(high)


UNIT = bounds((-1.0, 1.0))


def toward(target: float):
    """The return of a sequence is the less, the further its actions are from a target."""
    return lambda actions: -(actions - target).square().sum((2, 3))


# --- the best controller of a linear system under a quadratic cost ---


def linear_systems(count: int, states: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Systems x' = Ax + Bu with one action, spectral radius up to 0.9, and starts of length 3."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(count, states, states)), rng.normal(size=(count, states, 1))
    a *= (rng.uniform(0.7, 0.9, count) / np.abs(np.linalg.eigvals(a)).max(1))[:, None, None]
    x = rng.normal(size=(count, states))
    return a, b / np.linalg.norm(b, axis=1, keepdims=True), 3.0 * x / np.linalg.norm(x, axis=1, keepdims=True)


def riccati_cost(a: np.ndarray, b: np.ndarray, x: np.ndarray, price: float) -> np.ndarray:
    """The least Σ x'x + price·u² from each start."""
    q, r = np.eye(a.shape[1]), np.array([[price]])
    return np.array([y @ solve_discrete_are(*system, q, r) @ y for *system, y in zip(a, b, x, strict=True)])


def receding_cost(config: Any, a: np.ndarray, b: np.ndarray, x: np.ndarray, price: float, counted: float) -> np.ndarray:
    """Σ x'x + counted·u² of a controller that plans for Σ x'x + price·u² again at each of 40 steps."""
    n, s = x.shape

    def step(state: Tensor, action: Tensor, context: Tensor) -> Tensor:
        return torch.einsum("nij,nj->ni", context[:, : s * s].view(-1, s, s), state) + context[:, s * s :] * action

    def reward(state: Tensor, action: Tensor, _: Any) -> Tensor:
        return -state.square().sum(1) - price * action.square().sum(1)

    context = torch.tensor(np.concatenate((a.reshape(n, -1), b.reshape(n, -1)), 1), dtype=torch.float32)
    drawn, warm, total = generator(), initial(config, n, 1), np.zeros(n)
    for _ in range(40):
        score = rollout_score(step, reward, torch.tensor(x, dtype=torch.float32), context, reads_next=False, rows=8192)
        action, warm = plan(config, score, warm, bounds((-4.0, 4.0)), drawn)
        u = action.double().numpy()
        total += (x**2).sum(1) + counted * (u**2).sum(1)
        x = np.einsum("nij,nj->ni", a, x) + np.einsum("nij,nj->ni", b, u)
    return total


@pytest.mark.parametrize(
    "config",
    [
        CEM(horizon=12, elites=20, iterations=12),
        ICEM(horizon=12, candidates=150, elites=20, iterations=8, variance=0.03, beta=0.5, decay=1.0),
        ICEM(horizon=12, candidates=150, elites=20, iterations=8, variance=0.03, beta=0.5, decay=1.0, execute="mean"),
        MPPI(horizon=12, candidates=150, iterations=12, temperature=0.1, variance=0.001, alpha=1.0),
    ],
    ids=["cem", "icem-best", "icem-mean", "mppi"],
)
def test_costs_what_the_riccati_equation_says(config: Any):
    systems = linear_systems(4, states=2, seed=11)
    optimum = riccati_cost(*systems, 0.5)
    assert np.all(receding_cost(Shooting(1, 1), *systems, 0.5, 0.5) > 1.2 * optimum)  # what chance costs
    assert receding_cost(config, *systems, 0.5, 0.5) == pytest.approx(optimum, rel=0.01)


def test_mppi_charges_control_as_published():
    # Its weighted mean is the optimum of cost + λ·u²/(2σ²), whatever plan it started from; with α = 1 it is not.
    systems = linear_systems(4, states=2, seed=11)
    config = MPPI(horizon=12, candidates=1000, iterations=3, temperature=1.0, variance=0.01)
    price = 0.5 + config.temperature / (2 * config.variance * 4.0**2)  # σ is a share of half the bounds' width
    optimum = riccati_cost(*systems, price)
    assert receding_cost(config, *systems, 0.5, price) == pytest.approx(optimum, rel=0.01)
    assert np.all(receding_cost(replace(config, alpha=1.0), *systems, 0.5, price) > 1.02 * optimum)


def test_random_shooting_costs_what_the_riccati_equation_says():
    # Two steps ahead, with cheap control, are nearly all there is: what is brought to zero at once stays there.
    a = np.random.default_rng(0).uniform(0.5, 0.9, (4, 1, 1))
    systems = a, np.ones((4, 1, 1)), np.ones((4, 1))
    cost = receding_cost(Shooting(candidates=20_000, horizon=2), *systems, 0.05, 0.05)
    assert cost == pytest.approx(riccati_cost(*systems, 0.05), rel=0.01)


# --- batches ---


def swing_up(episodes: slice = slice(None)):
    """A score of the pendulum for five episodes of different systems and states."""
    rng = np.random.default_rng(3)
    angle, speed = rng.uniform(-3, 3, 5), rng.uniform(-2, 2, 5)
    observation = torch.tensor(np.stack((np.cos(angle), np.sin(angle), speed), 1), dtype=torch.float32)
    context = torch.tensor(rng.uniform(0.5, 1.5, (5, 2)), dtype=torch.float32)
    return rollout_score(pendulum.step, pendulum.reward, observation[episodes], context[episodes])


@every_controller
def test_a_batch_plans_as_single_episodes_with_the_same_noise(name: str):
    config, plan, drawn = SMALL[name], MODULES[name].plan, []

    def record(*args: Any) -> Tensor:
        drawn.append(NOISE[name](*args))
        return drawn[-1].clone()

    state, drawing, together = initial(config, 5, 1), generator(), []
    for _ in range(3):
        action, state = plan(config, swing_up(), state, UNIT, drawing, record)
        together.append(action)
    for episode in range(5):
        rows = slice(episode, episode + 1)
        calls, alone = iter([each[rows] for each in drawn]), initial(config, 1, 1)
        for step in range(3):
            action, alone = plan(config, swing_up(rows), alone, UNIT, generator(), lambda *_: next(calls).clone())  # noqa: B023
            assert torch.allclose(action, together[step][rows], atol=1e-5)
        assert all(torch.allclose(a, b[rows], atol=1e-5) for a, b in zip(alone, state, strict=True))
    assert len({round(float(action), 4) for action in together[-1]}) >= 3  # the episodes are not alike


@every_controller
def test_plans_are_a_function_of_the_generator(name: str):
    before = torch.get_rng_state()
    runs = []
    for seed in (0, 0, 1):
        drawing, state, actions = generator(seed), initial(SMALL[name], 5, 1), []
        for _ in range(3):
            action, state = plan(SMALL[name], swing_up(), state, UNIT, drawing)
            actions.append(action)
        runs.append(torch.stack(actions))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(torch.get_rng_state(), before)


@every_controller
def test_a_reset_forgets_those_episodes_alone(name: str):
    config, drawing = SMALL[name], generator()
    state = initial(config, 5, 1)
    for _ in range(2):
        _, state = plan(config, swing_up(), state, UNIT, drawing)
    begins = torch.tensor([True, False, False, True, False])
    after, fresh = reset(state, begins), initial(config, 5, 1)
    for now, old, new in zip(after, state, fresh, strict=True):
        assert torch.equal(now[begins], new[begins])
        assert torch.equal(now[~begins], old[~begins])
    if name != "shooting":
        assert not torch.equal(after.mean, state.mean)
    for mask in (torch.ones(4, dtype=torch.bool), torch.ones(5)):
        with pytest.raises(ValueError, match="reset mask"):
            reset(state, mask)


# --- bad returns ---


@every_controller
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_returns_that_are_not_finite_are_the_worst(name: str, bad: float):
    # Every candidate that begins at or above 0 is spoilt, though only those come near the target.
    config = replace(SMALL[name], candidates=40)

    def score(actions: Tensor) -> Tensor:
        return torch.where(actions[:, :, 0, 0] >= 0, bad, toward(2.0)(actions) - 1e6)

    action, state = plan(config, score, initial(config, 6, 1), UNIT, generator())
    assert torch.all(action < 0)
    assert torch.all(torch.isfinite(state[0]))


@every_controller
def test_without_any_finite_return_the_plan_stays(name: str):
    config, drawing = SMALL[name], generator()
    _, warm = plan(config, toward(0.4), initial(config, 3, 1), UNIT, drawing)
    mean = warm.mean.clone()
    action, after = plan(config, lambda actions: torch.full(actions.shape[:2], math.nan), warm, UNIT, drawing)
    assert torch.all(action.abs() <= 1)
    assert torch.isfinite(after.mean).all()
    if name != "shooting":
        assert action == pytest.approx(mean[:, 0])
        assert after.mean[:, :-1] == pytest.approx(mean[:, 1:])


def test_elites_with_a_finite_return_are_averaged_alone():
    elites = torch.tensor([1.0, 3.0, 50.0]).view(1, 3, 1, 1).expand(2, 3, 1, 1)
    values = torch.tensor([[5.0, 4.0, -math.inf], [-math.inf] * 3])
    mean, variance = base.moments(elites, values, torch.full((2, 1, 1), 7.0), torch.full((2, 1, 1), 9.0))
    assert mean.flatten().tolist() == [2.0, 7.0]
    assert variance.flatten().tolist() == [1.0, 9.0]


# --- bounds ---


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(list(SMALL)),
    sides=st.lists(
        st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(0.015625, 1e3, width=32)), min_size=1, max_size=3
    ),
    variance=st.floats(1e-4, 1e3),
    target=st.floats(-2e3, 2e3),
    seed=st.integers(0, 2**31),
)
def test_no_candidate_and_no_action_leaves_the_bounds(name, sides, variance, target, seed):
    config = SMALL[name] if name == "shooting" else replace(SMALL[name], variance=variance)
    low, high = bounds(*((start, start + width) for start, width in sides))

    def score(actions: Tensor) -> Tensor:
        assert torch.all((low <= actions) & (actions <= high))
        return toward(target)(actions)

    state, drawing = initial(config, 2, len(sides)), generator(seed)
    for _ in range(4):
        action, state = plan(config, score, state, (low, high), drawing)
        assert torch.all((low <= action) & (action <= high))


@pytest.mark.parametrize("name", ["cem", "mppi", "icem", "icem-mean"])
def test_plans_scale_with_the_bounds(name: str):
    config, (low, high) = SMALL[name], bounds((-1.0, 3.0), (10.0, 10.5))
    centre, half = (low + high) / 2, (high - low) / 2
    unit, real = initial(config, 2, 2), initial(config, 2, 2)
    one, two = generator(), generator()
    for _ in range(3):
        expected, unit = plan(config, toward(0.6), unit, bounds((-1.0, 1.0), (-1.0, 1.0)), one)
        got, real = plan(config, lambda a: toward(0.6)((a - centre) / half), real, (low, high), two)
        assert got == pytest.approx(centre + half * expected, rel=1e-4)


# --- each controller's own ---


def test_cem_shifts_its_plan_and_puts_zero_at_the_end():
    target = torch.tensor([0.1, -0.3, 0.5, -0.6])[:, None]
    config = CEM(candidates=200, elites=20, iterations=20, horizon=4)
    action, state = plan(config, toward(target), initial(config, 3, 1), UNIT, generator())  # type: ignore[arg-type]
    assert action == pytest.approx(torch.full((3, 1), 0.1), abs=0.01)
    assert state.mean[0, :, 0] == pytest.approx(torch.tensor([-0.3, 0.5, -0.6, 0.0]), abs=0.01)
    assert torch.all(state.mean[:, -1] == 0)


def test_cem_is_the_published_update():
    drawn = torch.linspace(-2, 2, 24).view(1, 12, 2, 1)[:, torch.randperm(12, generator=generator())]
    config, seen = CEM(candidates=12, elites=3, iterations=3, horizon=2), []

    def score(actions: Tensor) -> Tensor:
        seen.append(actions)
        return toward(0.3)(actions)

    mean, variance = np.array([0.9, -0.2]), np.array([0.25, 0.25])
    warm = base.Plan(torch.tensor(mean, dtype=torch.float32).view(1, 2, 1))
    action, state = cem.plan(config, score, warm, UNIT, generator(), lambda *_: drawn)
    for candidates in seen:
        spread = np.sqrt(np.minimum(variance, ((1 - np.abs(mean)) / 2) ** 2))  # capped by the distance to the bound
        expected = mean + spread * drawn[0, :, :, 0].numpy()
        assert candidates[0, :, :, 0].numpy() == pytest.approx(expected, abs=1e-6)
        elites = expected[np.argsort(((expected - 0.3) ** 2).sum(1))[:3]]
        mean, variance = 0.1 * mean + 0.9 * elites.mean(0), 0.1 * variance + 0.9 * elites.var(0)
    assert float(action) == pytest.approx(mean[0], abs=1e-6)
    assert state.mean[0, :, 0].tolist() == pytest.approx([mean[1], 0.0], abs=1e-6)


def test_icem_scores_as_many_sequences_as_it_says():
    assert CONTROLLERS["icem"].sequences * 30 == 4_950
    assert CONTROLLERS["cem"].sequences * 30 == 30_000
    for config in (*SMALL.values(), ICEM(candidates=10, elites=8, iterations=4)):
        scored = []

        def score(actions: Tensor, scored: list[int] = scored) -> Tensor:
            scored.append(actions.shape[1])
            return toward(0.0)(actions)

        plan(config, score, initial(config, 2, 1), UNIT, generator())
        assert sum(scored) == config.sequences
    assert SMALL["icem"].populations == (12, 9, 8)  # 12/1.25², rounded down, is 7, below twice the elites


def test_icem_offers_shifted_elites_and_its_mean_again():
    config, drawing, pools = replace(SMALL["icem"], execute="best"), generator(), []

    def score(actions: Tensor) -> Tensor:
        pools.append(actions)
        return toward(0.4)(actions)

    _, state = plan(config, score, initial(config, 2, 1), UNIT, drawing)
    first_step = [pool.clone() for pool in pools]
    best = first_step[-1].gather(1, toward(0.4)(first_step[-1]).argmax(1).view(2, 1, 1, 1).expand(2, 1, 4, 1))[:, 0]
    assert torch.equal(state.elites[:, 0], best)
    pools.clear()
    action, _ = plan(config, score, reset(state, torch.tensor([False, True])), UNIT, drawing)
    assert torch.equal(pools[0][0, 12:, :-1], state.elites[0, :, 1:])
    fresh = pools[0][1, 12:, :-1]  # of the episode that begins anew
    assert not torch.any((fresh == state.elites[1, :, 1:]) | (fresh == 0))
    for earlier, later in ((0, 1), (1, 2)):
        again = pools[earlier].gather(1, toward(0.4)(pools[earlier]).topk(2)[1][:, :, None, None].expand(2, 2, 4, 1))
        assert torch.equal(pools[later][:, config.populations[later] :][:, :2], again)
    everything = toward(0.4)(pools[-1])
    assert torch.equal(action, pools[-1][torch.arange(2), everything.argmax(1), 0])
    pools.clear()
    once = replace(config, iterations=1)
    plan(once, score, state, UNIT, drawing)
    assert torch.equal(pools[0][:, -1], state.mean)


def test_icem_executes_the_mean_where_told_to():
    config = replace(SMALL["icem-mean"], smoothing=0.0, iterations=1)
    pools = []

    def score(actions: Tensor) -> Tensor:
        pools.append(actions)
        return toward(0.4)(actions)

    action, state = plan(config, score, initial(config, 2, 1), UNIT, generator())
    elites = pools[0][torch.arange(2)[:, None], toward(0.4)(pools[0]).topk(4)[1]]
    assert torch.allclose(action, elites.mean(1)[:, 0])
    assert torch.allclose(state.mean, torch.cat((elites.mean(1)[:, 1:], elites.mean(1)[:, -1:]), 1))


def test_mppi_weighs_by_exponentiated_return():
    drawn = torch.tensor([[-1.0, 0.5, 2.0]]).view(1, 3, 1, 1)
    config = MPPI(candidates=3, horizon=1, temperature=0.7, variance=0.09)
    returns = torch.tensor([[1.0, 2.0, 1.5]])
    warm = base.Plan(torch.tensor([[[0.6]]]))
    action, _ = mppi.plan(config, lambda _: returns, warm, UNIT, generator(), lambda *_: drawn.clone())
    moved = np.clip(0.6 + 0.3 * drawn.flatten().numpy(), -1, 1) - 0.6
    cost = -returns[0].numpy() + 0.7 * 0.6 * moved / 0.09
    weight = np.exp(-(cost - cost.min()) / 0.7)
    assert float(action) == pytest.approx(0.6 + (weight * moved).sum() / weight.sum(), abs=1e-6)


# --- names and errors ---


def test_the_registry_has_the_published_settings():
    assert list(CONTROLLERS) == ["shooting", "cem", "mppi", "icem"]
    assert CONTROLLERS["cem"] == CEM(200, 50, 5, 30, smoothing=0.1, variance=0.25)
    assert CONTROLLERS["icem"] == ICEM(64, 10, 3, 30, beta=2.0, decay=1.25)
    assert named_controller("icem", horizon=20) == ICEM(horizon=20)
    with pytest.raises(ValueError, match="unknown controller 'cme'; did you mean 'cem'"):
        named_controller("cme")
    with pytest.raises(ValueError, match="unknown field of CEM 'elite'; did you mean 'elites'"):
        named_controller("cem", elite=3)


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        (CEM, {"elites": 201}, "elites is 201; legal: at most candidates = 200"),
        (CEM, {"horizon": 0}, "CEM.horizon is 0; legal: an integer >= 1"),
        (CEM, {"candidates": 2.5}, "CEM.candidates is 2.5"),
        (CEM, {"smoothing": 1.0}, "CEM.smoothing is 1.0"),
        (CEM, {"variance": math.nan}, "CEM.variance is nan"),
        (MPPI, {"temperature": 0.0}, "MPPI.temperature is 0.0"),
        (MPPI, {"alpha": 1.5}, "MPPI.alpha is 1.5"),
        (Shooting, {"candidates": True}, "Shooting.candidates is True"),
        (ICEM, {"kept": 11}, "ICEM.kept is 11; legal: at most elites = 10"),
        (ICEM, {"decay": 0.9}, "ICEM.decay is 0.9"),
        (ICEM, {"beta": -1.0}, "ICEM.beta is -1.0"),
        (ICEM, {"execute": "worst"}, "ICEM.execute is 'worst'; legal: best, mean"),
    ],
)
def test_settings_are_checked(kind: type, change: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        kind(**change)


@every_controller
def test_bad_input_is_named(name: str):
    config = SMALL[name]
    state = initial(config, 2, 1)
    for wrong in (bounds((1.0, 1.0)), bounds((-math.inf, 1.0)), bounds((0.0, math.nan))):
        with pytest.raises(ValueError, match="legal: finite, low < high"):
            plan(config, toward(0.0), state, wrong, generator())
    with pytest.raises(ValueError, match=r"two \(A,\) tensors"):
        plan(config, toward(0.0), state, (torch.zeros(1), torch.ones(2)), generator())
    with pytest.raises(ValueError, match="as `initial` makes it"):
        plan(config, toward(0.0), state, bounds((-1.0, 1.0), (-1.0, 1.0)), generator())
    with pytest.raises(ValueError, match="the score returned shape"):
        plan(config, lambda actions: torch.zeros(3), state, UNIT, generator())


def test_no_gradient_is_recorded():
    weight = torch.tensor(0.3, requires_grad=True)
    for config in SMALL.values():
        action, state = plan(config, lambda a: weight * toward(0.1)(a), initial(config, 2, 1), UNIT, generator())
        assert not action.requires_grad
        assert not any(field.requires_grad for field in state)


# Unchecked arguments


@every_controller
def test_unchecked_arguments_of_a_plan(name: str):
    """Each wrong one alone; the others are legal."""
    config = SMALL[name]
    other = CEM(candidates=4, elites=2, horizon=4) if isinstance(config, ICEM) else ICEM(candidates=12, horizon=4)
    legal: dict[str, Any] = {"config": config, "score": toward(0.0), "state": initial(config, 2, 1), "bounds": UNIT}
    legal |= {"generator": generator()}
    for change, message in (
        ({"config": "cem"}, "controller is 'cem'; legal: Shooting or CEM or MPPI or ICEM"),
        ({"state": initial(other, 2, 1)}, f"legal: {'Warm' if isinstance(config, ICEM) else 'Plan'}$"),
        ({"state": None}, "state is None; legal"),
        ({"bounds": (-1.0, 1.0)}, r"bounds is \(-1\.0, 1\.0\); legal: two \(A,\) tensors"),
        ({"bounds": 1.0}, r"bounds is 1\.0; legal: two \(A,\) tensors"),
        ({"bounds": (UNIT[0],)}, "legal: two"),
        ({"generator": None}, "generator is None; legal: Generator"),
        ({"generator": 0}, "generator is 0; legal: Generator"),
        ({"score": lambda actions: [0.0]}, r"what the score returned is \[0\.0\]; legal: Tensor"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(**legal | change)
    plan(**legal)


def test_unchecked_arguments_around_a_plan():
    state, wrong = initial(SMALL["cem"], 2, 1), cast(Any, "cem")

    def score_of(observation: Any, **given: Any) -> object:
        return rollout_score(lambda o, a, c: o, lambda o, a, n: o[:, 0], observation, **given)

    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: initial(wrong, 2, 1), "controller is 'cem'; legal"),
        (lambda: initial(SMALL["cem"], 2, 1, "xx"), "device is 'xx', which cannot be used here; legal: cpu"),
        (lambda: initial(SMALL["icem"], 2, 1, "cuda:99"), "device is 'cuda:99', which cannot be used here; legal: cpu"),
        (
            lambda: initial(SMALL["cem"], 2, 1, torch.device("cuda:99")),
            "device is 'cuda:99', which cannot be used here",
        ),
        (lambda: initial(SMALL["cem"], 0, 1), "episodes is 0; legal: an integer >= 1"),
        (lambda: initial(SMALL["cem"], 2, cast(Any, 1.0)), r"action_size is 1\.0; legal: an integer >= 1"),
        (lambda: reset(state, cast(Any, [True, False])), r"reset mask is \[True, False\]; legal: Tensor"),
        (lambda: named_controller(cast(Any, 3)), "controller is 3; legal: str"),
        (lambda: score_of(1.0), r"observation is 1\.0; legal: Tensor"),
        (lambda: score_of(torch.zeros(3)), r"observation has shape \(3,\); legal: \(E, S\)"),
        (lambda: score_of(torch.zeros(3, 1), context=[1]), r"context is \[1\]; legal: Tensor"),
        (lambda: score_of(torch.zeros(3, 1), rows=1.5), r"rows is 1\.5; legal: an integer >= 1"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
