"""Self-play: advantages by a loop, the recurrent unit by torch's, learning, and exact resume."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

jax = pytest.importorskip("jax")
pytest.importorskip("jaxmarl")

import jax.numpy as jnp  # noqa: E402

from sprii_envs.overcooked.bank import HistoryProtocol  # noqa: E402
from sprii_envs.overcooked.game import Game, step  # noqa: E402
from sprii_envs.overcooked.partners.network import features, heads, recur, shapes  # noqa: E402
from sprii_envs.overcooked.partners.partner import Partner  # noqa: E402
from sprii_envs.overcooked.partners.roster import load_roster, shipped, write_roster  # noqa: E402
from sprii_train.checkpoints import CheckpointError  # noqa: E402
from sprii_train.cli.overcooked import MeasurePartners, TrainPartners, WatchPartners  # noqa: E402
from sprii_train.overcooked import ippo, learning, selfplay  # noqa: E402
from sprii_train.overcooked.ippo import IPPO, Sequences, advantages, initial, loss, shaping_at  # noqa: E402
from sprii_train.overcooked.selfplay import SelfPlay, _read, _written, crossplay, train_partners  # noqa: E402

SMALL = SelfPlay(
    game=Game(max_steps=10),
    ippo=IPPO(kitchens=4, width=8, epochs=2, minibatches=2),
    iterations=4,
    seeds=(0, 1),
    held_out=(1,),
    measured=4,
    save_every=1,
)


def test_advantages_are_the_sums_they_stand_for():
    rng = np.random.default_rng(0)
    reward, value, discount, trace = rng.normal(size=(7, 3)), rng.normal(size=(7, 3)), 0.9, 0.8
    cut = rng.normal(size=3)
    after = np.concatenate([value[1:], cut[None]])
    surprise = reward + discount * after - value
    expected = [sum((discount * trace) ** (k - t) * surprise[k] for k in range(t, 7)) for t in range(7)]
    found = advantages(jnp.asarray(reward), jnp.asarray(value), jnp.asarray(cut), discount, trace)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # With a trace of 1 they are the discounted returns, those after the time limit with them, less the values.
    returns = [sum(discount ** (k - t) * reward[k] for k in range(t, 7)) + discount ** (7 - t) * cut for t in range(7)]
    found = advantages(jnp.asarray(reward), jnp.asarray(value), jnp.asarray(cut), discount, 1.0)
    np.testing.assert_allclose(found, returns - value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learner", ["self-play", "ego"])
def test_a_time_limit_is_no_end(learner: str, monkeypatch: pytest.MonkeyPatch):
    """A kitchen that pays 1 a step for ever is worth 1 / (1 − discount) in every state: nothing is better or worse."""
    seen: list[Sequences] = []

    def paid(*arguments):
        after, state, reward, shaped = step(*arguments)
        return after, state, jnp.ones_like(reward), jnp.zeros_like(shaped)

    def improve(_config, training, batch, _key):
        seen.append(batch)
        return training.parameters, training.optimiser

    monkeypatch.setattr(learning if learner == "ego" else ippo, "step", paid)
    monkeypatch.setattr(learning, "improve", improve)
    game, config = SMALL.game, SMALL.ippo
    training = initial(game, config, 0)
    worth = jnp.full(1, 1.0 / (1.0 - config.discount))
    right = training.parameters | {"value.w": jnp.zeros((config.width, 1)), "value.b": worth}
    if learner == "ego":
        still = Partner("still", "still")
        ego = training._replace(parameters=right)
        learning._iterate.__wrapped__(game, config, 0, "still", ego, still.reads, still.initial())
    else:
        seen.append(ippo.play(game, config, right, jnp.float32(0.0), jax.random.PRNGKey(0))[0])
    np.testing.assert_allclose(seen[0].advantage, 0.0, atol=1e-3)
    np.testing.assert_allclose(seen[0].target, worth[0], rtol=1e-4)


def test_the_recurrent_unit_is_torchs():
    rng, width = np.random.default_rng(1), 6
    made = {k: rng.normal(0.0, 0.5, s).astype(np.float32) for k, s in shapes(12, width, 6).items()}
    cell = torch.nn.GRUCell(width, width)
    with torch.no_grad():
        cell.weight_ih.copy_(torch.from_numpy(made["gru.x"].T.copy()))
        cell.weight_hh.copy_(torch.from_numpy(made["gru.h"].T.copy()))
        cell.bias_ih.copy_(torch.from_numpy(made["gru.b"]))
        cell.bias_hh.zero_()
    carry, theirs = jnp.zeros((4, width)), torch.zeros(4, width)
    for _ in range(3):
        seen = rng.integers(0, 3, (4, 2, 2, 3)).astype(np.uint8)
        flat = torch.from_numpy(seen.reshape(4, -1)).float()
        embedded = torch.relu(flat @ torch.from_numpy(made["embed.w"]) + torch.from_numpy(made["embed.b"]))
        theirs = cell(embedded, theirs)
        carry = recur(made, carry, features(made, jnp.asarray(seen)))  # type: ignore[arg-type]
        np.testing.assert_allclose(carry, theirs.detach(), rtol=1e-4, atol=1e-5)
    assert heads(made, carry)[0].shape == (4, 6)  # type: ignore[arg-type]


def test_the_surrogate_raises_what_was_good():
    training = initial(SMALL.game, SMALL.ippo, 0)
    rng = np.random.default_rng(2)
    seen = jnp.asarray(rng.integers(0, 2, (3, 6, *SMALL.game.shape)), jnp.uint8)
    action = jnp.asarray(rng.integers(0, 6, (3, 6)))
    plain = replace(SMALL.ippo, entropy=0.0, value=0.0)

    @jax.jit
    def probability(parameters):
        read, carry, logs = features(parameters, seen), jnp.zeros((6, 8)), []
        for now in read:
            carry = recur(parameters, carry, now)
            logs.append(jax.nn.log_softmax(heads(parameters, carry)[0]))
        return jnp.take_along_axis(jnp.stack(logs), action[..., None], -1)[..., 0]

    before = probability(training.parameters)
    good = jnp.zeros((3, 6)).at[2, 3].set(1.0)
    batch = Sequences(seen, action, before, good, good)
    gradient = jax.jit(jax.grad(loss), static_argnums=2)(training.parameters, batch, plain)
    moved = jax.tree.map(lambda p, g: p - 0.01 * g, training.parameters, gradient)
    after = probability(moved)
    assert after[2, 3] > before[2, 3]


def test_aids_fade():
    config = IPPO(fade=0.5)
    assert [shaping_at(i, 10, config) for i in (0, 1, 5, 9)] == [1.0, 0.8, 0.0, 0.0]


def test_a_stopped_training_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = train_partners(SMALL, tmp_path / "whole", lambda *_: None)

    def stop(seed: int, done: int, value: float) -> None:
        if (seed, done) == (1, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_partners(SMALL, tmp_path / "stopped", stop)
    assert not (tmp_path / "stopped" / "partners.json").exists()
    seen: list[tuple[int, int]] = []
    resumed = train_partners(SMALL, tmp_path / "stopped", lambda seed, done, _: seen.append((seed, done)))
    assert seen == [(1, 3), (1, 4)]  # that iteration was told of before it was kept
    for one, two in zip(whole, resumed, strict=True):
        assert one.name == two.name
        for name, array in one.parameters.items():
            np.testing.assert_array_equal(array, two.parameters[name])
    found = load_roster(tmp_path / "stopped")
    assert [p.name for p in found][:4] == ["ippo-0-0", "ippo-0-1", "ippo-1-0", "ippo-1-1"]
    assert [p.checkpoint for p in found][:2] == [2 * 4 * 10, 4 * 4 * 10]
    assert [p.held_out for p in found][:4] == [False, False, True, True]
    told = json.loads((tmp_path / "stopped" / "partners.json").read_text())
    assert [row["seed"] for row in told["partners"][:4]] == [0, 0, 1, 1]
    with pytest.raises(CheckpointError, match="partners of another configuration"):
        train_partners(replace(SMALL, iterations=5), tmp_path / "stopped", lambda *_: None)
    config = tmp_path / "stopped" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("bootstrapped", "zero"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="returns differ"):
        train_partners(SMALL, tmp_path / "stopped", lambda *_: None)
    config.write_bytes(b"[" * 200_000)
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        train_partners(SMALL, tmp_path / "stopped", lambda *_: None)


def test_a_damaged_state_is_not_gone_on_from(tmp_path: Path):
    begun = initial(SMALL.game, SMALL.ippo, 0)
    kept = {at: {name: np.asarray(a) for name, a in begun.parameters.items()} for at in SMALL.kept()}
    path = tmp_path / "seed-0.safetensors"
    path.write_bytes(whole := _written(begun, kept, SMALL.iterations))
    assert _read(path, begun, SMALL)[2] == SMALL.iterations
    flipped = bytearray(whole)
    flipped[-9] ^= 1
    nothing = replace(SMALL, ippo=replace(SMALL.ippo, width=4))
    for data, message in (
        (b"", "is damaged"),
        (whole[:50], "is damaged"),
        (b"[" * len(whole), "is damaged"),
        (bytes(flipped), "its checksum is another"),
        (_written(begun, kept, 99_999_999_999), "is not of this training"),
        (_written(begun, {}, SMALL.iterations), "is not of this training"),
        (_written(initial(SMALL.game, nothing.ippo, 0), kept, SMALL.iterations), "is not of this training"),
    ):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=rf"seed-0\.safetensors.*{message}.*remove it"):
            _read(path, begun, SMALL)


@pytest.mark.slow
def test_crossplay_is_of_every_pair(tmp_path: Path):
    roster = train_partners(replace(SMALL, iterations=1, checkpoints=(1.0,)), tmp_path, lambda *_: None)
    matrix = crossplay(SMALL.game, roster[:2], [roster[0], Partner("once", "signaller")], seat=1, episodes=3)
    assert matrix.shape == (2, 2)
    # The signaller pays once; what the ego could press lies out of its reach, and ten steps are too few for a dish.
    assert matrix[:, 1].tolist() == [-5.0, -5.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"checkpoints": (0.0,)}, r"checkpoints\[0\] is 0\.0; legal: a number in \(0, 1\]"),
        ({"seeds": (0, 0)}, r"seeds is \(0, 0\); legal: different integers"),
        ({"held_out": (9,)}, "held_out names seed 9"),
    ],
)
def test_illegal_runs(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


@pytest.mark.parametrize("config", [SMALL, SMALL.ippo, SMALL.game, HistoryProtocol()], ids=lambda c: type(c).__name__)
def test_coercion_in_a_config(config: Any):
    for field in fields(config):
        if type(getattr(config, field.name)) in (int, float):
            for value in (torch.tensor(2.0, requires_grad=True), "1", True, np.True_, float("nan"), 10**40, [1]):
                with pytest.raises(ValueError, match=rf"{type(config).__name__}\.{field.name} is .*; legal: "):
                    replace(config, **{field.name: value})


@pytest.mark.slow
def test_a_pair_learns_to_cook(tmp_path: Path):
    config = SelfPlay(game=Game(layout="cramped_room", view=None), iterations=120, seeds=(0,), held_out=())
    returns: list[float] = []
    train_partners(config, tmp_path, lambda _seed, _done, value: returns.append(value))
    assert returns[-1] > 5.0


def test_names_from_a_file_are_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    names = ("[/b]", "$a_", "[link=file:///etc]x[/link]")
    partners = [replace(partner, name=name) for partner, name in zip(_networks(3), names, strict=True)]
    write_roster(tmp_path / "partners", SMALL.game, partners, {})
    monkeypatch.setattr(selfplay, "self_play", lambda *_, **__: np.zeros(2))
    monkeypatch.setattr(selfplay, "crossplay", lambda _game, egos, partners, **__: np.zeros((len(egos), len(partners))))
    MeasurePartners(tmp_path / "partners", out=tmp_path / "out").run()
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
    assert (tmp_path / "out" / "crossplay.png").stat().st_size > 0


def test_an_episode_is_watched_in_the_kitchen_of_its_partners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, two = _networks(2)
    write_roster(tmp_path / "partners", SMALL.game, [one, two], {})
    watched = []
    monkeypatch.setattr("sprii_train.overcooked.watch.episode_gif", lambda *_, game, **__: watched.append(game) or 0.0)
    WatchPartners(one.name, two.name, tmp_path / "partners", out=tmp_path / "a.gif").run()
    WatchPartners(*[each.name for each in list(shipped())[:2]], out=tmp_path / "a.gif").run()
    assert watched == [SMALL.game, Game()]
    assert SMALL.game != Game()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (MeasurePartners(episodes=4294967296), "--episodes is 4294967296; legal"),
        (WatchPartners("still", "still", seed=2**64), "--seed is 18446744073709551616; legal"),
        (TrainPartners(held_out="inf"), "--held-out is 'inf'; legal: comma-separated integers"),
        (TrainPartners(max_steps=4294967296), "max_steps is 4294967296; legal"),
        (TrainPartners(view=2**40), "view is 1099511627776; legal"),
    ],
)
def test_numbers_of_the_command_have_an_upper_end(command: Any, message: str, tmp_path: Path):
    command.out = tmp_path / "out.gif" if isinstance(command, WatchPartners) else tmp_path
    with pytest.raises(ValueError, match=message):
        command.run()


def _networks(count: int) -> list[Partner]:
    begun = initial(SMALL.game, SMALL.ippo, 0)
    weights = {name: np.asarray(array) for name, array in begun.parameters.items()}
    return [Partner(f"n-{i}", "ippo", {}, weights, i) for i in range(count)]
