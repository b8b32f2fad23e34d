"""The kitchen against JaxMARL's own, under the checkers of Gymnasium and PettingZoo."""

import multiprocessing
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jaxmarl")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from sprii_envs.overcooked.collect import action_counts, collect  # noqa: E402
from sprii_envs.overcooked.env import OvercookedEnv  # noqa: E402
from sprii_envs.overcooked.game import ACTIONS, AGENTS, Game  # noqa: E402
from sprii_envs.overcooked.parallel import OvercookedParallelEnv  # noqa: E402
from sprii_envs.overcooked.partners.partner import Partner  # noqa: E402
from sprii_envs.overcooked.partners.roster import Roster  # noqa: E402

STILL, WALKER = Partner("still", "still"), Partner("walker", "walker")
ONCE, OFTEN = Partner("once", "signaller"), Partner("often", "signaller", {"every": 15})
FIRST = Partner("first", "signaller", {"recipes": (0,)})
LATE = Partner("late", "signaller", {"waits": 30})
SCRIPTED = Roster([STILL, WALKER, ONCE, OFTEN, FIRST, LATE])


def replay(game: Game, states: list[Any], actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observations (E, T, 2, …) and rewards (E, T) that JaxMARL's own environment gives for actions (E, T, 2)."""
    import jax.numpy as jnp
    from jaxmarl.environments.overcooked_v2.overcooked import OvercookedV2

    theirs = OvercookedV2(layout=game.layout, max_steps=game.max_steps, agent_view_size=game.view)

    @jax.jit
    def episode(state, moves):
        def turn(state, move):
            seen, state, reward, done, _ = theirs.step_env(
                jax.random.PRNGKey(0), state, dict(zip(AGENTS, move, strict=True))
            )
            return state, (jnp.stack([seen[a] for a in AGENTS]), reward["agent_0"], done["__all__"])

        return jax.lax.scan(turn, state, moves)[1]

    found = [jax.device_get(episode(state, jnp.asarray(own))) for state, own in zip(states, actions, strict=True)]
    assert all(done[-1] and not done[:-1].any() for _, _, done in found)
    return np.stack([seen for seen, _, _ in found]), np.stack([reward for _, reward, _ in found])


@pytest.mark.parametrize("episodes", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_thousands_of_steps_are_jaxmarls(episodes):
    env, rng = OvercookedEnv(ego="agent_1", partners=[WALKER, OFTEN]), np.random.default_rng(0)
    states, actions, observations, rewards = [], [], [], []
    # Half of the egos' moves are `interact` and `right`, so that dishes are begun and counters filled.
    odds = np.array([0.2, 0.1, 0.1, 0.1, 0.1, 0.4])
    for episode in range(episodes):
        env.reset(seed=episode)
        states.append(env._now[0])
        for _ in range(env.game.max_steps):
            action = int(rng.choice(6, p=odds))
            seen, reward, terminated, truncated, info = env.step(action)
            actions.append((info["partner_action"], action))
            observations.append(seen)
            rewards.append(reward)
        assert truncated
        assert not terminated
    shape = (episodes, 100)
    theirs, paid = replay(env.game, states, np.array(actions).reshape(*shape, 2))
    np.testing.assert_array_equal(theirs[:, :, 1], np.array(observations).reshape(*shape, *env.game.shape))
    np.testing.assert_array_equal(paid, np.array(rewards).reshape(shape))
    assert paid.min() == -5.0
    assert (np.diff(theirs.reshape(*shape, -1), axis=1) != 0).any((1, 2)).all()


def test_gymnasium_checker():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make("sprii/Overcooked-v0", partners=SCRIPTED, render_mode="rgb_array")
        check_env(env.unwrapped)
        env.reset(seed=0)
    assert env.render().shape == (5 * 32, 8 * 32, 3)  # type: ignore[union-attr]


def test_pettingzoo_checkers(capsys: pytest.CaptureFixture[str]):
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(OvercookedParallelEnv(max_steps=30), num_cycles=70)
        parallel_seed_test(lambda: OvercookedParallelEnv(max_steps=30), num_cycles=40)
    assert "Passed" in capsys.readouterr().out


def test_both_seats_of_the_parallel_environment_are_jaxmarls():
    env, rng = OvercookedParallelEnv(layout="cramped_room", max_steps=50, view=None), np.random.default_rng(1)
    first, _ = env.reset(seed=3)
    state, actions, seen, rewards = env._state, [], [], []
    for _ in range(50):
        move = rng.integers(6, size=2)
        after, reward, terminated, truncated, infos = env.step(dict(zip(AGENTS, move, strict=True)))
        actions.append(move)
        seen.append([after[a] for a in AGENTS])
        rewards.append(reward["agent_1"])
        assert set(infos) == set(AGENTS)
    assert env.agents == []
    assert truncated == dict.fromkeys(AGENTS, True)
    assert not any(terminated.values())
    theirs, paid = replay(env.game, [state], np.array([actions]))
    np.testing.assert_array_equal(theirs[0], np.array(seen))
    np.testing.assert_array_equal(paid[0], rewards)
    assert first["agent_0"].dtype == np.uint8


def test_the_partner_persists_and_is_not_observed():
    env = OvercookedEnv(partners=SCRIPTED)
    first, told = env.reset(seed=7)
    assert told["partner"] == SCRIPTED.names[told["partner_id"]] == env.partner.name
    for _ in range(3):
        _, again = env.reset(options={"partner": "same"})
        assert again == told
    for name in SCRIPTED.names:
        seen, info = env.reset(seed=7, options={"partner": name})
        assert info["partner"] == name
        np.testing.assert_array_equal(seen, first)
    drawn = {env.reset()[1]["partner"] for _ in range(60)}
    assert drawn == set(SCRIPTED.names)
    pinned = OvercookedEnv(partners=SCRIPTED, partner="late")
    assert {pinned.reset(seed=i)[1]["partner"] for i in range(5)} == {"late"}


def test_groups_of_partners():
    held = Roster([STILL, Partner("w", "walker", held_out=True)])
    assert {OvercookedEnv(partners=held, group="held_out").reset(seed=i)[1]["partner"] for i in range(5)} == {"w"}
    assert {OvercookedEnv(partners=held, group="familiar").reset(seed=i)[1]["partner"] for i in range(5)} == {"still"}
    with pytest.raises(ValueError, match="group 'held_out' of the roster is empty"):
        OvercookedEnv(partners=[STILL], group="held_out")


def test_seeds_repeat_episodes():
    def episode(env: OvercookedEnv) -> list[Any]:
        env.reset(seed=5)
        return [env.step(a % 6)[:2] for a in range(40)]

    for (a, r), (b, s) in zip(
        episode(OvercookedEnv(partners=[WALKER])), episode(OvercookedEnv(partners=[WALKER])), strict=True
    ):
        np.testing.assert_array_equal(a, b)
        assert r == s


@pytest.mark.parametrize(
    ("partner", "presses"),
    [(STILL, [0, 0]), (WALKER, [0, 0]), (ONCE, [1, 1]), (OFTEN, [7, 7]), (FIRST, [1, 0]), (LATE, [1, 1])],
)
def test_scripted_families_press_as_they_say(partner: Partner, presses: list[int]):
    game = Game()
    played = collect(game, 1, STILL, partner, histories=24, seed=0)
    counts = (played.partner_actions[:, 0] == ACTIONS.index("interact")).sum(1)
    np.testing.assert_allclose(played.returns[:, 0], -5.0 * counts)
    if partner is FIRST:
        assert set(counts.tolist()) == {0, 1}
        # The recipe's layers of the button's cell say which recipe was shown: only one ever is.
        assert played.observations is not None
        pressed = played.observations[counts == 1, 0]
        assert len({row[3].tobytes() for row in pressed}) == 1
    else:
        assert set(counts.tolist()) <= set(presses)
    if partner is LATE:
        first = (played.partner_actions[:, 0] == ACTIONS.index("interact")).argmax(1)
        assert (first == 30).all()


def cooked(ego: Partner, **options: Any) -> np.ndarray:
    return collect(Game(), 0, ego, Partner("cook", "cook", options), histories=24, seed=0).returns[:, 0]


def test_cooks_cook_what_they_are_told_to():
    """In a hundred steps a cook delivers two dishes, and a third while it loses no time."""
    first, second = cooked(STILL, untold=0, heeds=False), cooked(STILL, untold=1, heeds=False)
    assert set(first.tolist()) == {0.0, 40.0}
    np.testing.assert_array_equal(first + second, 40.0)  # the same kitchens, of which each has one recipe
    assert (cooked(STILL) == 0.0).all()
    assert (cooked(ONCE) == 35.0).all()
    assert (cooked(ONCE, forgets=True) == 15.0).all()
    told = cooked(ONCE, untold=0)
    assert (told[first > 0.0] == 35.0).all()
    assert (told[second > 0.0] == 15.0).all()  # what was begun before the signal spoils a dish
    np.testing.assert_array_equal(cooked(STILL, untold=0), first)
    np.testing.assert_array_equal(cooked(ONCE, untold=0, heeds=False), first - 5.0)


@pytest.mark.slow
def test_a_cook_reads_the_button_within_its_view():
    waits = Partner("waits", "cook")
    near = collect(Game(view=1), 0, ONCE, waits, histories=4, seed=0)
    assert (near.returns == -5.0).all()
    assert (near.partner_actions == ACTIONS.index("interact")).sum() == 0
    assert (collect(Game(view=None), 0, ONCE, waits, histories=4, seed=0).returns == 35.0).all()


def test_the_collector_plays_the_same_game():
    game = Game(max_steps=40)
    played = collect(game, 1, WALKER, OFTEN, histories=5, episodes=3, seed=1)
    again = collect(game, 1, [WALKER] * 3, OFTEN, histories=5, episodes=3, seed=1)
    assert played.observations is not None
    assert played.observations.shape == (5, 3, 40, *game.shape)
    for name in ("observations", "actions", "partner_actions", "rewards"):
        np.testing.assert_array_equal(getattr(played, name), getattr(again, name))
    assert len({row.tobytes() for row in played.actions.reshape(15, -1)}) == 15
    # From its first state on, JaxMARL's own environment gives what the collector recorded.
    env = OvercookedEnv(max_steps=40, partners=[STILL])
    starts = {}
    for seed in range(20):
        env.reset(seed=seed)
        starts[int(env._now[0].recipe)] = env._now[0]
    assert len(starts) == 2
    pairs = np.stack([played.partner_actions, played.actions], -1).reshape(15, 40, 2)
    runs = [replay(game, [state] * 15, pairs) for state in starts.values()]
    ours = played.observations.reshape(15, 40, *game.shape)[:, 1:]
    fits = [(seen[:, :-1, 1] == ours).all((1, 2, 3, 4)) for seen, _ in runs]
    assert (fits[0] | fits[1]).all()
    assert (fits[0] ^ fits[1]).any()
    paid = np.where(fits[0][:, None], runs[0][1], runs[1][1])
    np.testing.assert_array_equal(paid, played.rewards.reshape(15, 40))
    shares = action_counts(played.actions)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    assert shares[:, ACTIONS.index("interact")].max() == 0.0


def test_bad_input_is_named():
    with pytest.raises(
        ValueError, match=r"unknown layout 'gronded_coord_simple'; did you mean 'grounded_coord_simple'"
    ):
        OvercookedEnv(layout="gronded_coord_simple")
    with pytest.raises(ValueError, match="max_steps is 0; legal"):
        OvercookedEnv(max_steps=0)
    with pytest.raises(ValueError, match="view is 0; legal"):
        OvercookedEnv(view=0)
    with pytest.raises(ValueError, match="unknown agent 'agent_2'"):
        OvercookedEnv(ego="agent_2")
    with pytest.raises(ValueError, match="unknown partner 'nobody'"):
        OvercookedEnv(partners=SCRIPTED, partner="nobody")
    env = OvercookedEnv(partners=SCRIPTED)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    with pytest.raises(ValueError, match="partner 'same' needs a partner"):
        env.reset(options={"partner": "same"})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="unknown reset option 'parner'; did you mean 'partner'"):
        env.reset(options={"parner": "still"})
    with pytest.raises(ValueError, match="action 6 is illegal; legal: 0 to 5"):
        env.step(6)
    with pytest.raises(ValueError, match="unknown family of partners 'sleeper'"):
        Partner("x", "sleeper")
    with pytest.raises(ValueError, match="unknown option of 'cook' 'untol'; did you mean 'untold'"):
        Partner("x", "cook", {"untol": 1})
    with pytest.raises(ValueError, match="twice: still"):
        Roster([STILL, STILL])
    with pytest.raises(ValueError, match="no recipe button, which a signaller needs"):
        collect(Game(layout="cramped_room"), 1, STILL, ONCE, histories=1, seed=0)
    with pytest.raises(ValueError, match="has 2 pots; legal for a cook: one"):
        collect(Game(layout="asymm_advantages"), 0, STILL, Partner("c", "cook"), histories=1, seed=0)
    with pytest.raises(ValueError, match="untold is 2; legal: None, or a recipe"):
        collect(Game(), 0, STILL, Partner("c", "cook", {"untold": 2}), histories=1, seed=0)
    with pytest.raises(ValueError, match="histories is 0; legal"):
        collect(Game(), 1, STILL, ONCE, histories=0, seed=0)
    parallel = OvercookedParallelEnv()
    parallel.reset(seed=0)
    with pytest.raises(ValueError, match="actions lack 'agent_1'"):
        parallel.step({"agent_0": 0})
    with pytest.raises(ValueError, match="agent_0's action 9 is illegal"):
        parallel.step({"agent_0": 9, "agent_1": 0})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "same"}, "name is 'same'; legal: text, but not 'same'"),
        ({"name": 3}, "name is 3"),
        ({"options": {"recipes": 3}}, "'recipes' of partner 'x' is 3; legal: a tuple of integers"),
        ({"options": {"recipes": ()}}, "'recipes' of partner 'x' is"),
        ({"options": {"waits": -3}}, "'waits' of partner 'x' is -3; legal: an integer >= 0"),
        ({"options": {"every": "x"}}, "'every' of partner 'x' is 'x'"),
        ({"family": "cook", "options": {"untold": "x"}}, "'untold' of partner 'x' is 'x'; legal: an integer"),
        ({"family": "cook", "options": {"heeds": 1}}, "'heeds' of partner 'x' is 1; legal: True, False"),
        ({"family": "ippo"}, "'x' has no matrix 'embed.w'"),
        ({"family": "ippo", "parameters": {"embed.w": np.zeros((9, 4))}}, "'embed.b' has shape None, expected"),
    ],
)
def test_illegal_partners(fields: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Partner(**{"name": "x", "family": "signaller", **fields})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seat": 2}, "seat is 2; legal: an integer >= 0, at most 1"),
        ({"seat": True}, "seat is True"),
        ({"seed": -1}, "seed is -1; legal: an integer >= 0"),
        ({"episodes": "x"}, "episodes is 'x'"),
        ({"partner": "waits"}, "a player is 'waits'; legal: a Partner"),
        ({"partner": Partner("r", "signaller", {"recipes": (2,)})}, r"recipes are \(2,\); legal: None, or recipes of"),
    ],
)
def test_illegal_collections(changes: dict[str, Any], message: str):
    told: dict[str, Any] = {"seat": 0, "ego": STILL, "partner": STILL, "histories": 1, "seed": 0} | changes
    with pytest.raises(ValueError, match=message):
        collect(Game(), **told)


def test_illegal_rosters_and_options():
    with pytest.raises(ValueError, match="partners are 3; legal: a roster"):
        OvercookedEnv(partners=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="roster holds 'still'; legal: partners"):
        OvercookedEnv(partners=["still"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"partners\.json is missing"):
        OvercookedEnv(partners="nowhere")
    with pytest.raises(ValueError, match=r"group 'held_out' of the roster is empty; legal: familiar, all$"):
        OvercookedEnv(partners=SCRIPTED, group="held_out")
    env = OvercookedEnv(partners=SCRIPTED)
    with pytest.raises(ValueError, match="reset options are"):
        env.reset(options=["partner"])  # type: ignore[arg-type]
    parallel = OvercookedParallelEnv()
    with pytest.raises(ValueError, match="seed is -1"):
        parallel.reset(seed=-1)
    parallel.reset(seed=0)
    with pytest.raises(ValueError, match="agent_1's action 'a' is illegal"):
        parallel.step({"agent_0": 0, "agent_1": "a"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="unknown agent 'agent_2'"):
        parallel.step({"agent_0": 0, "agent_1": 0, "agent_2": 0})
    with pytest.raises(ValueError, match="actions lack 'agent_0'"):
        parallel.step(None)  # type: ignore[arg-type]


def test_other_layouts_come_with_scripted_partners():
    env = gym.make("sprii/Overcooked-v0", layout="cramped_room", view=None, ego="agent_0")
    seen, info = env.reset(seed=0)
    assert seen.shape == (4, 5, 30)
    assert info["partner"] in ("still", "walker")


@pytest.mark.parametrize("missing", ["jaxmarl", "jax"])
def test_without_the_extra(missing: str):
    code = f"""
import sys
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == {missing!r} else found(name, *a)
import sprii_envs, gymnasium as gym
assert "jax" not in sys.modules
try:
    gym.make("sprii/Overcooked-v0")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"Overcooked needs {missing}: pip install 'sprii[overcooked]'\n"


FORK = pytest.mark.filterwarnings("ignore:os.fork", "ignore::UserWarning")


@FORK
def test_forked_workers_say_how_to_start_them():
    kwargs = {"context": "fork"}  # Linux's default, which another test may have changed
    envs = gym.make_vec("sprii/Overcooked-v0", num_envs=2, vectorization_mode="async", vector_kwargs=kwargs)
    try:
        envs.reset_async(seed=0)  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match='context="spawn"'):
            envs.reset_wait(timeout=240)  # type: ignore[attr-defined]
    finally:
        envs.close(terminate=True)


@FORK
def test_nothing_waits_for_ever_in_a_fork():
    env, both = OvercookedEnv(partners=[STILL], render_mode="rgb_array"), OvercookedParallelEnv()
    env.reset(seed=0)
    both.reset(seed=0)
    calls = [
        lambda: env.step(0),
        env.render,
        lambda: env.reset(seed=1),
        lambda: both.step(dict.fromkeys(AGENTS, 0)),
        lambda: both.reset(seed=1),
        lambda: OvercookedEnv(max_steps=77),
        lambda: collect(Game(), 0, STILL, STILL, histories=1, seed=0),
    ]
    context = multiprocessing.get_context("fork")
    for call in calls:
        mine, theirs = context.Pipe()
        process = context.Process(target=_message, args=(call, theirs))
        process.start()
        try:
            assert mine.poll(240)
            assert 'context="spawn"' in mine.recv()
        finally:
            process.kill()
            process.join()


def _message(call: Any, pipe: Any) -> None:
    try:
        call()
    except RuntimeError as error:
        pipe.send(str(error))


@pytest.mark.slow
def test_spawned_workers_cook():
    envs = gym.make_vec(
        "sprii/Overcooked-v0", num_envs=2, vectorization_mode="async", vector_kwargs={"context": "spawn"}
    )
    try:
        assert envs.reset(seed=0)[0].shape == (2, 5, 5, 40)
        assert envs.step(np.array([4, 4]))[1].shape == (2,)
    finally:
        envs.close()
