"""The panel of fresh episodes with one ego, and what is read of it, against loops, SciPy and scikit-learn."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from sklearn.linear_model import LinearRegression, Ridge

pytest.importorskip("jaxmarl")

from kitchens import GAME, ROSTER

from sprii_envs.overcooked.collect import collect
from sprii_envs.overcooked.game import ACTIONS
from sprii_envs.overcooked.partners.partner import Partner
from sprii_envs.overcooked.partners.roster import Roster
from sprii_train.experiments.measures.partners import formed
from sprii_train.learners import AD, ADConfig
from sprii_train.learners.ad import Play
from sprii_train.overcooked.measures import (
    PENALTIES,
    Slots,
    chosen,
    chosen_penalty,
    compact,
    distance_ratio,
    left_out,
    probe,
    shown,
    slots,
    two_names,
)
from sprii_train.overcooked.panel import Panel, PanelConfig, fixed_ego, greedy, panel

SMALL = PanelConfig(episodes=8)
FAMILIAR = np.array(ROSTER.group("familiar"))
WALKERS = Roster([*ROSTER, Partner("walker", "walker"), Partner("still", "still")])


@pytest.fixture(scope="module")
def played() -> Panel:
    return panel(GAME, 1, ROSTER, SMALL)


def planted(noise: float, *, seed: int = 0, partners: int = 6, contexts: int = 4) -> tuple[Slots, Slots, np.ndarray]:
    """Slots that are a rotation of the partner's signature, with noise: fit and test samples."""
    rng = np.random.default_rng(seed)
    signatures = rng.dirichlet(np.ones(6), (partners, 5)).reshape(partners, 30)
    means, parts = signatures @ rng.normal(size=(30, 8)), []
    for _ in range(2):
        who = np.repeat(np.arange(partners), contexts)
        codes = means[who] + noise * rng.normal(size=(len(who), 8))
        parts.append(Slots(codes, who, np.tile(np.arange(contexts), partners)))
    return parts[0], parts[1], signatures


def test_a_panel_is_a_function_of_its_arguments(played: Panel):
    again = panel(GAME, 1, Roster(list(ROSTER)), SMALL)
    for name in played._fields:
        np.testing.assert_array_equal(getattr(again, name), getattr(played, name))
    other = panel(GAME, 1, ROSTER, PanelConfig(episodes=8, seed=1))
    assert not np.array_equal(other.observations, played.observations)


def test_nothing_but_the_partner_differs(played: Panel):
    """The same first observations with every partner, and no ego but the greedy network."""
    assert played.observations.shape == (5 * 4, 2, 10, *GAME.shape)
    first = played.observations.reshape(5, 8, 10, -1)[:, :, 0]
    assert (first == first[:1]).all()
    np.testing.assert_array_equal(played.partners, np.repeat(np.arange(5), 4))
    np.testing.assert_array_equal(played.contexts, np.tile([0, 1], 10))
    np.testing.assert_array_equal(played.fit, np.tile([True, True, False, False], 5))
    assert fixed_ego(ROSTER).name == "a-1"
    told = collect(GAME, 1, fixed_ego(ROSTER), ROSTER[2], histories=8, seed=SMALL.seed)
    np.testing.assert_array_equal(told.actions[:, 0].reshape(4, 2, 10), played.actions[8:12])
    assert told.returns.mean() == played.returns[2] == -20.0  # a signaller presses four times


def test_a_greedy_network_takes_its_likeliest_action():
    """By a loop of NumPy, from the observations that it has seen."""
    own = ROSTER[0]
    found = collect(GAME, 0, greedy(own), ROSTER[2], histories=3, seed=0)
    sampled = collect(GAME, 0, own, ROSTER[2], histories=3, seed=0)
    assert found.observations is not None
    w = {name: array.astype(np.float64) for name, array in own.parameters.items()}
    for episode, actions in zip(found.observations[:, 0], found.actions[:, 0], strict=True):
        chances = by_hand(w, episode.reshape(10, -1))
        np.testing.assert_array_equal(actions, chances.argmax(1))
    assert not np.array_equal(sampled.actions, found.actions)


def by_hand(w: dict[str, np.ndarray], seen: np.ndarray) -> np.ndarray:
    """Probabilities (T, 6) of a network that begins with a carry of zeros."""
    carry, found = np.zeros(w["gru.h"].shape[0]), []
    n = len(carry)
    for row in seen:
        read = np.maximum(row @ w["embed.w"] + w["embed.b"], 0) @ w["gru.x"] + w["gru.b"]
        hidden = carry @ w["gru.h"]
        reset, update = 1 / (1 + np.exp(-(read[: 2 * n] + hidden[: 2 * n]).reshape(2, n)))
        carry = update * carry + (1 - update) * np.tanh(read[2 * n :] + reset * hidden[2 * n :])
        logits = carry @ w["policy.w"] + w["policy.b"]
        found.append(np.exp(logits) / np.exp(logits).sum())
    return np.array(found)


def test_signatures_are_of_the_same_snippets():
    """Networks by a loop over what training partners saw; scripts by their shares; all of them probabilities."""
    found = panel(GAME, 1, WALKERS, SMALL).signatures.reshape(len(WALKERS), -1, 6)
    familiar = WALKERS.group("familiar")
    length = found.shape[1] // (2 * len(familiar))
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-5)
    seen, recipes = [], []
    for i in familiar:  # the same episodes, seen from the partner's seat
        states = collect(GAME, 1, fixed_ego(WALKERS), WALKERS[i], histories=8, seed=SMALL.seed, states=True).states
        seen.append(observations(states)[0])
        recipes.append(states.recipe[:, 0, 0])
    assert (np.array(recipes) == recipes[0]).all()
    assert len(set(recipes[0].tolist())) == 2
    for i in (0, 3):  # the second is held out: it is asked, and no snippet is of it
        w = {name: array.astype(np.float64) for name, array in WALKERS[i].parameters.items()}
        expected = [by_hand(w, own[s : s + length].reshape(length, -1)) for own in seen for s in (0, 3)]
        np.testing.assert_allclose(found[i], np.concatenate(expected), atol=1e-4)
    walker, still = found[-2], found[-1]
    np.testing.assert_array_equal(still, np.eye(6)[[ACTIONS.index("stay")] * len(still)])
    assert (walker[:, ACTIONS.index("interact")] == 0).all()
    np.testing.assert_allclose(walker[:, :5], 0.2, atol=0.12)


def observations(states) -> np.ndarray:
    """Of seat 0, first episodes (N, T, …), by the environment's own function."""
    import jax

    from sprii_envs.overcooked.game import observe

    flat = jax.tree.map(lambda leaf: leaf[:, 0], states)
    return np.asarray(jax.vmap(jax.vmap(lambda state: observe(GAME, state)))(flat))[:, :, 0]


def test_states_are_those_of_the_observations():
    kept = collect(GAME, 0, ROSTER[0], ROSTER[2], histories=3, episodes=2, seed=4, states=True)
    plain = collect(GAME, 0, ROSTER[0], ROSTER[2], histories=3, episodes=2, seed=4)
    assert plain.states is None
    np.testing.assert_array_equal(kept.observations, plain.observations)
    np.testing.assert_array_equal(observations(kept.states), kept.observations[:, 0])  # type: ignore[index]


def test_slots_are_of_two_episodes_in_a_row(played: Panel):
    torch.manual_seed(0)
    learner = AD(ADConfig(inputs=1000, steps=10, width=16, layers=1, heads=2)).eval()
    found = slots(learner, played, batch=3)
    assert found.shape == (20, 32)
    with torch.no_grad():
        for row in (0, 13):
            parts = (played.observations, played.actions, played.rewards)
            own = learner.encode_history(Play(*(torch.from_numpy(part[row : row + 1]) for part in parts)))
            np.testing.assert_allclose(found[row], own[0].numpy(), atol=1e-6)
    rows = chosen(played, found, FAMILIAR, fit=False)
    assert rows.partners.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(rows.codes, found[[2, 3, 6, 7, 10, 11]])


def test_the_probe_is_ridge_on_standardised_slots():
    """By scikit-learn's solver on hand-standardised slots, by the normal equations, and least squares as its limit."""
    fitted, tested, signatures = planted(0.3)
    told = probe(fitted, tested, signatures)
    mean, sd = fitted.codes.mean(0), fitted.codes.std(0)
    x, y = (fitted.codes - mean) / sd, signatures[fitted.partners]
    at = (tested.codes - mean) / sd
    for read in (
        Ridge(alpha=1e-3, solver="svd").fit(x, y).predict(at),
        at @ np.linalg.solve(x.T @ x + 1e-3 * np.eye(8), x.T @ (y - y.mean(0))) + y.mean(0),
    ):
        for partner in range(6):
            rows = tested.partners == partner
            assert told.error[partner] == pytest.approx(np.square(read[rows] - signatures[partner]).mean())
            assert told.constant[partner] == pytest.approx(np.square(y.mean(0) - signatures[partner]).mean())
    free = np.square(LinearRegression().fit(x, y).predict(at) - signatures[tested.partners]).mean()
    assert probe(fitted, tested, signatures, penalty=1e-12).error.mean() == pytest.approx(free, rel=1e-6)


def test_the_probe_knows_what_is_there_and_what_is_not():
    fitted, tested, signatures = planted(0.01)
    told = probe(fitted, tested, signatures)
    assert told.error.mean() < 0.1 * told.constant.mean()
    rng = np.random.default_rng(1)
    noise = [part._replace(codes=rng.normal(size=part.codes.shape)) for part in (fitted, tested)]
    assert probe(noise[0], noise[1], signatures).error.mean() > told.constant.mean()


def test_a_compact_signature_gives_the_same_probe():
    fitted, tested, signatures = planted(0.3)
    assert compact(signatures).shape == (6, 6)
    for one, two in zip(probe(fitted, tested, signatures), probe(fitted, tested, compact(signatures)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


def test_a_left_out_partner_is_new_to_probe_and_constant():
    """By a loop over partners and penalties with scikit-learn; the penalty is of the other partners' fit samples."""
    fitted, tested, signatures = planted(0.5, partners=8)
    told, known = left_out(fitted, tested, signatures), []

    def read(who: list[int], name: int, source: Slots, penalty: float) -> float:
        rows, at = np.isin(fitted.partners, who), source.partners == name
        mean, sd = fitted.codes[rows].mean(0), fitted.codes[rows].std(0)
        model = Ridge(alpha=penalty).fit((fitted.codes[rows] - mean) / sd, signatures[fitted.partners[rows]])
        return float(np.square(model.predict((source.codes[at] - mean) / sd) - signatures[name]).mean())

    for name in range(8):
        others = [i for i in range(8) if i != name]
        errors = [np.mean([read([i for i in others if i != o], o, fitted, p) for o in others]) for p in PENALTIES]
        best = PENALTIES[int(np.argmin(errors))]
        known.append(best)
        assert told.error[name] == pytest.approx(read(others, name, tested, best))
        assert told.constant[name] == pytest.approx(np.square(signatures[others].mean(0) - signatures[name]).mean())
    assert len(set(known)) > 1
    with pytest.raises(ValueError, match="samples are of 1 partners; legal: at least 2"):
        left_out(*(Slots(*(field[:4] for field in part)) for part in (fitted, tested)), signatures)


def test_the_penalty_is_chosen_without_what_is_tested():
    """Noise wants a large one, and samples that tell partners apart a small one."""
    rng = np.random.default_rng(0)
    known = rng.normal(size=(20, 8))  # signatures are a linear function of these
    signatures, who = known @ rng.normal(size=(8, 30)), np.repeat(np.arange(20), 4)
    told = Slots(known[who] + 0.01 * rng.normal(size=(80, 8)), who, np.tile(np.arange(4), 20))
    assert chosen_penalty(told._replace(codes=rng.normal(size=(80, 8))), signatures) >= 1e3
    assert chosen_penalty(told, signatures) <= 1.0


def test_behaviour_is_what_partners_did(played: Panel):
    """Shares of actions by a loop; places and loads are shares too."""
    told = collect(GAME, 1, fixed_ego(ROSTER), ROSTER[0], histories=8, seed=SMALL.seed, states=True)
    everyone = [collect(GAME, 1, fixed_ego(ROSTER), each, histories=8, seed=SMALL.seed) for each in ROSTER]
    known = np.unique(np.concatenate([each.partner_actions.ravel() for each in everyone]))
    for sample in range(4):
        pair = told.partner_actions[2 * sample : 2 * sample + 2].ravel()
        expected = [(pair == action).mean() for action in known]
        np.testing.assert_allclose(played.behaviour[sample, : len(known)], expected)
    np.testing.assert_allclose(played.behaviour.sum(1), 3.0)


def test_the_ratio_is_of_cosines_between_contexts():
    """By SciPy, pair by pair."""
    fitted, tested, _ = planted(1.0)
    mean, sd = fitted.codes.mean(0), fitted.codes.std(0)
    codes, apart, same = (tested.codes - mean) / sd, [], []
    for i in range(len(codes)):
        for j in range(i):
            if tested.contexts[i] != tested.contexts[j]:
                alike = tested.partners[i] == tested.partners[j]
                (same if alike else apart).append(cosine(codes[i], codes[j]))
    assert len(same) == 6 * 6
    assert len(apart) == 15 * 12
    assert distance_ratio(fitted, tested) == pytest.approx(np.mean(apart) / np.mean(same))


def test_a_ratio_without_partners_and_without_differences():
    fitted, tested, _ = planted(0.1)
    assert distance_ratio(fitted, tested) > 3.0
    values = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise = [part._replace(codes=rng.normal(size=part.codes.shape)) for part in (fitted, tested)]
        values.append(distance_ratio(noise[0], noise[1]))
    assert np.mean(values) == pytest.approx(1.0, abs=0.03)
    constant = [part._replace(codes=np.ones_like(part.codes)) for part in (fitted, tested)]
    assert distance_ratio(constant[0], constant[1]) == 1.0
    same = planted(0.0)
    with pytest.raises(ValueError, match="the same in all its samples"):
        distance_ratio(same[0], same[1])
    one = [Slots(part.codes[:4], part.partners[:4], part.contexts[:4]) for part in (fitted, tested)]
    with pytest.raises(ValueError, match="two partners"):
        distance_ratio(one[0], one[1])


def test_two_names_of_one_partner_mean_nothing_unless_they_are_planted():
    ratios, errors = np.mean([two_names(*planted(0.5, seed=seed)[:2]) for seed in range(10)], axis=0)
    assert ratios == pytest.approx(1.0, abs=0.05)
    assert errors > 1.0
    fitted, tested, _ = planted(0.5)
    tested = tested._replace(codes=tested.codes + np.linspace(10.0, -10.0, 8))
    assert two_names(fitted, tested)[0] > 1.5
    fitted, tested = (
        part._replace(codes=part.codes + 20.0 * (part.contexts % 2)[:, None]) for part in (fitted, tested)
    )
    assert two_names(fitted, tested)[1] < 0.5


def test_what_is_shown_without_a_learner_is_of_fit_samples(played: Panel):
    found = shown(played, FAMILIAR)
    assert found.shape[0] == 20
    assert found.shape[1] <= 8
    changed = played._replace(rewards=np.where(played.fit[:, None, None], played.rewards, played.rewards + 5.0))
    rows = played.fit
    np.testing.assert_allclose(shown(changed, FAMILIAR)[rows], found[rows], atol=1e-8)


def test_a_slot_that_holds_nothing_has_what_the_constant_has(played: Panel):
    groups = {name: ROSTER.group(name) for name in ("familiar", "held_out")}
    told = formed(played, np.zeros((20, 32)), groups)
    assert told["distance_ratio"] == 1.0
    assert told["two_names"] == {"ratio": 1.0, "probe": pytest.approx(1.0)}
    for cohort in groups:  # ridge from nothing is the constant
        assert told[f"probe_{cohort}"]["error"] == pytest.approx(told[f"probe_{cohort}"]["constant"])
        assert told[f"probe_{cohort}"]["chosen"] == pytest.approx(told[f"probe_{cohort}"]["constant"])
    assert told["probe_left_out"]["chosen"] == pytest.approx(told["probe_left_out"]["constant"])


@pytest.mark.parametrize("episodes", [4, 10])
def test_illegal_panels(episodes: int):
    with pytest.raises(ValueError, match=rf"PanelConfig.episodes is {episodes}; legal"):
        PanelConfig(episodes=episodes)


def test_the_panel_of_the_page():
    page = (Path(__file__).parents[3] / "docs" / "overcooked.md").read_text(encoding="utf-8")
    (block,) = [part for part in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "PanelConfig" in part]
    told: dict = {}
    exec(block, told)
    assert told["played"].observations.shape == (12, 2, 20, 5, 5, 40)
    assert told["played"].signatures.shape == (3, 288)
