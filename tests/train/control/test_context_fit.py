"""Contexts fitted at test time, against closed forms and the same fits one by one."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sprii_train.control import pendulum
from sprii_train.control.agent import PlanningAgent
from sprii_train.control.context_fit import ContextFit, ContextPrior, calibrated
from sprii_train.control.controllers import CEM
from sprii_train.control.pendulum_agents import ENV_ID, KnownModel
from sprii_train.evaluation import evaluate_agent
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.learners.contextual import Contextual, ContextualConfig
from sprii_train.learners.histories import History, window_history

S, A, D, K = 3, 2, 2, 8
SD = torch.tensor([0.1, 0.2, 0.05])
PRIOR = ContextPrior(torch.tensor([0.5, -0.3]), torch.tensor([[4.0, 1.0], [1.0, 2.0]]), SD)
SMALL = CEM(candidates=6, elites=3, iterations=1, horizon=3)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Linear:
    """s' = s + Σ_k c_k·(F_k s + G_k a), and an encoder that says what it is told to."""

    f: Tensor
    g: Tensor
    history: int = K

    def context(self, history: History) -> Tensor:
        return torch.zeros(len(history.filled), D)

    def features(self, state: Tensor, action: Tensor) -> Tensor:
        """(…, S, D)."""
        return torch.einsum("ksi,...i->...sk", self.f, state) + torch.einsum("ksi,...i->...sk", self.g, action)

    def step(self, state: Tensor, action: Tensor, context: Tensor) -> Tensor:
        return state + (self.features(state, action) @ context[..., None])[..., 0]


MODEL = Linear(random(D, S, S, seed=1), random(D, S, A, seed=2))


class Contextless(Linear):
    """A model that has none, as a planner allows."""

    def context(self, history: History) -> Any:
        return None


def episodes(count: int, noise: float = 1.0, filled: tuple[int, ...] | None = None) -> tuple[History, Tensor]:
    """Transitions of random systems with Gaussian noise of SD · `noise`, and their contexts."""
    truth, seen, taken = random(count, D, seed=3), random(count, K, S, seed=4), random(count, K, A, seed=5)
    after = MODEL.step(seen, taken, truth[:, None]) + noise * SD * random(count, K, S, seed=6)
    number = torch.tensor(filled or (K,) * count)
    mask = (torch.arange(K) < number[:, None])[..., None]
    return History(seen * mask, taken * mask, after * mask, number), truth


def ridge(history: History, centre: Tensor, strength: float = 1.0) -> np.ndarray:
    """The posterior mean, episode by episode, in float64."""
    found = []
    for seen, taken, after, n, mu in zip(*history, centre, strict=True):
        phi = MODEL.features(seen[:n], taken[:n]).double().numpy() / SD.double().numpy()[:, None]
        y = ((after - seen)[:n].double() / SD.double()).numpy()
        prior = strength * PRIOR.precision.double().numpy()
        gram = np.einsum("nsk,nsl->kl", phi, phi) + prior
        found.append(np.linalg.solve(gram, np.einsum("nsk,ns->k", phi, y) + prior @ mu.double().numpy()))
    return np.array(found)


@pytest.mark.parametrize("centre", ["encoder", "training"])
@pytest.mark.parametrize(
    ("method", "steps", "within"), [("newton", 2, 1e-4), ("gradient", 400, 3e-3), ("cem", 30, 1e-2)]
)
def test_linear_gaussian_contexts_are_the_ridge_solution(method: Any, steps: int, within: float, centre: Any):
    history, _ = episodes(5, filled=(8, 5, 2, 1, 8))
    fit = ContextFit(PRIOR, K, method, steps, centre, strength=0.5, rate=0.05)
    encoded = random(5, D, seed=7)
    expected = ridge(history, encoded if centre == "encoder" else PRIOR.mean.expand(5, -1), 0.5)
    np.testing.assert_allclose(fit(MODEL, history, encoded).numpy(), expected, atol=within)


def test_without_noise_the_truth_is_found():
    history, truth = episodes(6, noise=0.0)
    weak = replace(PRIOR, noise=1e-3 * SD)
    torch.testing.assert_close(ContextFit(weak)(MODEL, history, torch.zeros(6, D)), truth, atol=1e-3, rtol=0)


@pytest.mark.parametrize("method", ["newton", "gradient", "cem"])
def test_a_batch_is_its_episodes_one_by_one(method: Any):
    history, _ = episodes(4, filled=(8, 3, 0, 6))
    fit, encoded, warm = ContextFit(PRIOR, K, method), random(4, D, seed=8), random(4, D, seed=9)
    together = fit(MODEL, history, encoded, warm)
    for i in range(4):
        one = fit(MODEL, History(*(x[i : i + 1] for x in history)), encoded[i : i + 1], warm[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("centre", ["encoder", "training"])
def test_no_transition_leaves_the_encoder_s_context(centre: Any):
    history, _ = episodes(3, filled=(0, 4, 0))
    encoded = random(3, D, seed=8)
    found = ContextFit(PRIOR, centre=centre)(MODEL, history, encoded, random(3, D, seed=9))
    assert torch.equal(found[[0, 2]], encoded[[0, 2]])
    assert not torch.equal(found[1], encoded[1])


def errors(model: Any, history: History, context: Tensor) -> Tensor:
    """Σ_i ‖(step − after) / σ‖² of each episode, slot by slot."""
    total = torch.zeros(len(context))
    for k in range(history.actions.shape[1]):
        after = model.step(history.observations[:, k], history.actions[:, k], context)
        total += history.mask[:, k] * ((after - history.after[:, k]) / PRIOR.noise).square().sum(1)
    return total


@pytest.mark.parametrize("method", ["newton", "gradient", "cem"])
def test_a_fit_scores_no_worse_than_its_start(method: Any):
    """Of a nonlinear model, whose steps may overshoot: on the fitted transitions, from the encoder's context."""

    class Bent(Linear):
        def step(self, state: Tensor, action: Tensor, context: Tensor) -> Tensor:
            return super().step(state, action, torch.sin(4.0 * context))

    bent = Bent(MODEL.f, MODEL.g)
    history, _ = episodes(40)
    encoded = random(40, D, seed=11)
    before = errors(bent, history, encoded)
    for steps in (0, 1, 5):
        found = ContextFit(PRIOR, K, method, steps, rate=1.0)(bent, history, encoded)
        after = errors(bent, history, found)
        assert (after <= before * (1 + 1e-5)).all()
        assert (after < before).any() == (steps > 0)


def test_a_better_warm_start_is_taken_and_a_worse_one_is_not():
    history, _ = episodes(2)
    best, far = torch.tensor(ridge(history, torch.zeros(2, D))).float(), torch.full((2, D), 50.0)
    still = ContextFit(PRIOR, steps=0)
    assert torch.equal(still(MODEL, history, torch.zeros(2, D), best), best)
    assert torch.equal(still(MODEL, history, torch.zeros(2, D), far), torch.zeros(2, D))


def test_contexts_stay_within_their_ends():
    history, _ = episodes(6, noise=0.0)
    ends = replace(PRIOR, noise=1e-2 * SD, low=torch.full((D,), -0.2), high=torch.full((D,), 0.2))
    for method in ("newton", "gradient", "cem"):
        found = ContextFit(ends, K, method)(MODEL, history, torch.zeros(6, D))
        assert float(found.abs().max()) == pytest.approx(0.2)


@pytest.mark.parametrize("method", ["newton", "gradient", "cem"])
def test_no_gradient_reaches_the_model(method: Any):
    learner = CaDM(CaDMConfig(history=4, context=3, encoder=(6, 6, 6), dynamics=(6, 6, 6, 6)), seed=0)
    history = window_history(random(5, 5, 3), random(5, 4, 1), 4)
    before = [p.clone() for p in learner.parameters()]
    fit = ContextFit(calibrated(learner, history), 4, method)
    with torch.inference_mode():
        running = History(*(x.clone() for x in history))
        encoded = learner.context(running)
    found = fit(learner, running, encoded)
    assert not found.requires_grad
    assert all(p.grad is None for p in learner.parameters())
    assert all(torch.equal(p, q) for p, q in zip(learner.parameters(), before, strict=True))


def test_calibration_is_of_contexts_and_errors():
    learner = CaDM(CaDMConfig(history=4, context=2, encoder=(6, 6, 6), dynamics=(6, 6, 6, 6)), seed=0)
    history = window_history(random(50, 5, 3), random(50, 4, 1), 4)
    prior = calibrated(learner, history)
    with torch.no_grad():
        contexts = learner.context(history)
        flat = contexts.repeat_interleave(4, 0)
        after = learner.step(history.observations.flatten(0, 1), history.actions.flatten(0, 1), flat)
    torch.testing.assert_close(prior.mean, contexts.mean(0))
    torch.testing.assert_close(prior.noise, (after - history.after.flatten(0, 1)).square().mean(0).sqrt())
    covariance = np.cov(contexts.double().numpy().T)
    np.testing.assert_allclose(
        torch.linalg.inv(prior.precision.double()), covariance, rtol=1e-2, atol=1e-4 * covariance.max()
    )


def test_a_planner_fits_what_it_has_seen():
    """The true equations, in which mass and length are wrong until they are fitted: contexts come to the truth."""
    seen: list[Tensor] = []
    prior = ContextPrior(torch.ones(2), 10.0 * torch.eye(2), torch.full((3,), 1e-3), low=torch.full((2,), 0.05))
    agent = PlanningAgent(
        KnownModel(pendulum.nominal_context(1)), SMALL, pendulum.reward, reads_next=False,
        fit=ContextFit(prior, steps=8), watch=seen.append,
    )  # fmt: skip
    own = evaluate_agent(agent, ENV_ID, groups={"OOD_c2": 4}, env_kwargs={"max_episode_steps": 25}).groups["OOD_c2"]
    assert torch.equal(seen[0], torch.ones(4, 2))  # nothing seen, nothing fitted
    np.testing.assert_allclose(seen[-1], own.values, rtol=0.03)


def test_linear_dynamics_fit_themselves():
    """A model that is linear in its context: its own context and a Newton fit by the same prior are one."""
    config = ContextualConfig(history=6, context=3, hidden=(16,))
    model = Contextual(config, seed=0).eval().requires_grad_(False)
    model.difference.copy_(torch.tensor([[0.1, 0.0, -0.1], [0.5, 2.0, 1.5]]))
    history = window_history(random(4, 6, 3), random(4, 5, 1), 6)
    noise = model.log_noise.exp() * model.difference[1]
    fit = ContextFit(ContextPrior(torch.zeros(3), torch.eye(3), noise), 6, centre="training")
    torch.testing.assert_close(fit(model, history, torch.zeros(4, 3)), model.context(history), atol=1e-4, rtol=1e-3)


def test_the_page_s_example_runs():
    page = Path(__file__).parents[3] / "docs" / "context_fit.md"
    told: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(block, told)
    assert np.isfinite(told["found"].groups["ID"].returns).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ContextFit(PRIOR, method="grid"), "method is 'grid'; legal: newton"),  # type: ignore[arg-type]
        (lambda: ContextFit(PRIOR, transitions=0), "transitions is 0; legal: an integer >= 1"),
        (lambda: ContextFit(PRIOR, elites=65), "elites is 65; legal: at most the 64 candidates"),
        (lambda: ContextFit("prior"), "prior is 'prior'; legal: ContextPrior"),  # type: ignore[arg-type]
        (lambda: replace(PRIOR, noise=torch.zeros(3)), "must be positive"),
        (lambda: replace(PRIOR, low=torch.zeros(3)), r"ContextPrior.low has shape \(3,\); legal: \(2,\)"),
        (lambda: ContextFit(PRIOR)(MODEL, episodes(2)[0], torch.zeros(2, 3)), r"legal: \(E, 2\)"),
        (lambda: calibrated(MODEL, episodes(1)[0]), "history is of 1 episodes; legal: two or more"),
        (lambda: calibrated(MODEL, episodes(3)[0]), "the contexts of all histories are one"),
        (
            lambda: calibrated(Contextless(MODEL.f, MODEL.g), episodes(3)[0]),
            "what Contextless.context returns is None; legal",
        ),
        (lambda: calibrated(MODEL, episodes(3)[0], [1.0]), r"contexts is \[1.0\]; legal with a fit"),  # type: ignore[arg-type]
        (lambda: ContextFit(PRIOR)(MODEL, episodes(2)[0], None), "encoded is None; legal with a fit"),  # type: ignore[arg-type]
    ],
)
def test_unchecked_arguments(call: Any, message: str):
    with pytest.raises(ValueError, match=message):
        call()
