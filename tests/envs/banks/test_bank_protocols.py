"""Protocols are strict values."""

import importlib.util
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
from bounded import PROTOCOL as BOUNDED
from bounded import Bounded

from sprii_envs.banks import (
    D_CLEAN,
    POKE_FACTORIAL,
    POKE_FRESH,
    POKE_ORIGINAL,
    PROTOCOLS,
    SPRING,
    SPRING_SEALED,
    SWIMMER,
    BankProtocol,
    build,
    simulate,
)
from sprii_envs.banks.populations import Combinations, FactorialBlocks, Uniform, Union


def test_d_clean_is_the_papers_protocol():
    assert dict(D_CLEAN.systems) == {"train": 1000, "validation": 200, "test": 200}
    assert (D_CLEAN.rollouts, D_CLEAN.steps, D_CLEAN.episodes) == (8, 64, 11_200)


@pytest.mark.parametrize("protocol", [*PROTOCOLS.values(), BOUNDED], ids=lambda p: p.name)
def test_round_trips(protocol):
    assert protocol.to_dict() == json.loads(json.dumps(protocol.to_dict()))
    assert BankProtocol.from_dict(json.loads(json.dumps(protocol.to_dict()))) == protocol
    assert pickle.loads(pickle.dumps(protocol)) == protocol
    assert hash(protocol.replace()) == hash(protocol)
    assert protocol != protocol.replace(seed=99)


def test_order_of_splits_counts():
    a = D_CLEAN.replace(systems={"train": 2, "test": 1})
    assert a != D_CLEAN.replace(systems={"test": 1, "train": 2})


def test_from_dict_is_strict():
    data = D_CLEAN.to_dict()
    with pytest.raises(ValueError, match="missing fields \\['seed'\\]"):
        BankProtocol.from_dict({key: value for key, value in data.items() if key != "seed"})
    with pytest.raises(ValueError, match="unknown fields \\['sed'\\]"):
        BankProtocol.from_dict({**data, "sed": 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("systems", {}),
        ("systems", {"train": 0}),
        ("systems", {"": 1}),
        ("rollouts", 0),
        ("steps", 1),
        ("seed", -1),
        ("seed", 0.5),
        ("systems_per_chunk", 0),
        ("systems", {"train": 0.5}),
        ("rollouts", True),
        ("rollouts", {"train": {"push": 1}}),
        ("lengths", {"push": 3}),
        ("frames", 4),
        ("sealed_splits", ("confirmation",)),
    ],
)
def test_illegal_fields_are_named(field, value):
    message = {"frames": "image_size"}.get(field, field)
    with pytest.raises(ValueError, match=message):
        D_CLEAN.replace(**{field: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollouts": {"train": {"push": 1}}}, r"rollouts must name the splits \['train', 'validation', 'sealed'\]"),
        ({"rollouts": {**BOUNDED.rollouts, "sealed": {}}}, r"rollouts\['sealed'\] must name at least one kind"),
        ({"rollouts": {**BOUNDED.rollouts, "sealed": {"jump": 1}}}, "'jump'; the behaviour's kinds: still, push"),
        ({"rollouts": {**BOUNDED.rollouts, "sealed": {"push": 0}}}, r"rollouts\['sealed'\]\['push'\] is 0"),
        ({"rollouts": {**BOUNDED.rollouts, "sealed": 3}}, r"rollouts\['sealed'\] must map kinds of episode"),
        ({"lengths": {"push": 25}}, r"lengths\['push'\] is 25; legal: an integer >= 2, at most 24"),
        ({"lengths": {"jump": 5}}, "lengths names the kind of episode 'jump'"),
    ],
)
def test_illegal_kinds_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        BOUNDED.replace(**changes)


def test_a_number_of_rollouts_counts_for_every_kind():
    every = BOUNDED.replace(rollouts=2)
    assert [tuple(part) for part in every.parts("train")] == [("still", 2, 9), ("push", 2, 20), ("chase", 2, 24)]
    assert every.episodes == 12 * 6


def test_an_int_is_a_uniform_population():
    assert D_CLEAN.population("test") == Uniform(200)
    populated = D_CLEAN.replace(systems={"train": Uniform(5), "test": 3})
    assert np.array_equal(
        simulate.systems(populated).values, simulate.systems(D_CLEAN.replace(systems=populated.counts)).values
    )


def test_unknown_constants_are_named_before_anything_is_built(tmp_path):
    with pytest.raises(ValueError, match=r"unknown constant of D-Clean in protocol 'd-clean': 'foo'.*dt, mass, force"):
        build(D_CLEAN.replace(constants={"foo": 1}), tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
    assert not (tmp_path / "bank.partial").exists()
    with pytest.raises(ValueError, match="did you mean 'mass'"):
        build(D_CLEAN.replace(constants={"mas": 1.0}), tmp_path / "bank")


def test_differences_name_the_field():
    assert D_CLEAN.differences(D_CLEAN.replace(seed=3)) == "seed: 0, not 3"


def test_spring_is_the_papers_protocol():
    """`app:spring-profile`: 144 training systems; 64 + 36 + 30 + 48 for validation; 256 + 36 sealed."""
    assert SPRING.counts == {"train": 144, "validation": 178}
    assert SPRING.episodes == 144 * 120 + 178 * 19 == 20_662
    assert (SPRING.version, SPRING_SEALED.version) == (2, 2)  # its bytes are not those of version 1
    assert (SPRING_SEALED.counts, SPRING_SEALED.episodes) == ({"sealed": 292}, 292 * 19)
    assert {part.kind: part.length for part in SPRING.parts("validation")} == {
        **dict.fromkeys(("forced", "glide", "static"), 193),
        **dict.fromkeys(("mass", "free"), 97),
        "cold": 34,
        "moving": 128,
    }
    drawn, sealed = simulate.draw(SPRING), simulate.draw(SPRING_SEALED)
    groups, counts = np.unique(drawn.group[144:], return_counts=True)
    assert dict(zip(groups.tolist(), counts.tolist(), strict=True)) == {
        **{"continuous": 64, "combination": 36, "interpolated": 30, "extrapolated": 48},
    }
    train = drawn.levels[:144]
    for column, values in enumerate(
        ([0.5, 0.8, 1.1, 1.4, 1.7, 2.0], [0.25, 0.5, 0.75, 1.0, 1.25, 1.5], [4.0, 8.2, 12.4, 16.6, 20.8, 25.0])
    ):
        np.testing.assert_allclose(np.unique(drawn.values[:144, column]), values, rtol=1e-14)
    for pair in ((0, 1), (0, 2), (1, 2)):
        assert len(np.unique(train[:, pair], axis=0)) == 36  # every pair of levels is in training
    triples = np.concatenate([train, drawn.levels[drawn.group == "combination"], sealed.levels[256:]])
    assert len(np.unique(triples, axis=0)) == 216  # and every triple in exactly one of the three
    extrapolated = drawn.values[drawn.group == "extrapolated"]
    outside = [
        np.unique(extrapolated[extrapolated[:, i] != np.clip(extrapolated[:, i], *ends), i]).tolist()
        for i, ends in enumerate(((0.5, 2.0), (0.25, 1.5), (4.0, 25.0)))
    ]
    assert outside == [[0.4, 2.2], [0.2, 1.8], [3.5, 28.0]]


def test_poke_and_swimmer_are_the_papers_protocols():
    counts = {"train": 2000, "validation": 400, "confirmation": 400}
    assert (POKE_FACTORIAL.counts, POKE_FACTORIAL.episodes) == (counts, 11_200)
    assert len(simulate.systems(POKE_FACTORIAL)) == 2800
    assert POKE_ORIGINAL.episodes == 11_200
    assert POKE_ORIGINAL.nested
    assert (POKE_FRESH.counts, POKE_FRESH.episodes, POKE_FRESH.sealed_splits) == ({"fresh": 100}, 400, ("fresh",))
    seen, new = ({tuple(row) for row in simulate.draw(p).values.tolist()} for p in (POKE_ORIGINAL, POKE_FRESH))
    assert not seen & new
    assert SWIMMER.episodes == (2048 + 256 + 512) * 6


def small(protocol):
    """The same protocol with a system or a few a split."""
    few = {
        "spring": {
            "train": Combinations({"mass": 2, "drag": 1, "stiffness": 1}),
            "validation": Union(
                {
                    "continuous": Uniform(2),
                    "combination": Combinations({"mass": (1.0,), "drag": (1.0,), "stiffness": (9.0,)}),
                }
            ),
        },
        "poke-factorial": {
            "train": FactorialBlocks(LEVELS, 0, 2),
            "validation": FactorialBlocks(LEVELS, 2, 3),
            "confirmation": FactorialBlocks(LEVELS, 3, 4),
        },
    }.get(protocol.name, {split: 2 for split in protocol.systems})
    return protocol.replace(systems=few, systems_per_chunk=3)


LEVELS = {"mass": 2, "drag": 2, "stiffness": 4}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_environment_replays_a_small_bank_of_every_protocol_bit_for_bit(name, tmp_path):
    if name == "swimmer" and importlib.util.find_spec("mujoco") is None:
        pytest.skip("needs MuJoCo")
    protocol = small(PROTOCOLS[name])
    bank = build(protocol, tmp_path / "bank")
    env = gym.make(protocol.env_id, obs_type="state", max_episode_steps=protocol.steps - 1, **protocol.constants)
    table, names = bank.table, bank.properties.names
    for episode in range(0, len(bank), max(1, len(bank) // 12)):
        system = {name: float(table[name][episode]) for name in names}
        start = bank["states"][episode, 0].astype(np.float64)
        env.reset(options={"system": system, "state": start})
        for t in range(int(table["length"][episode]) - 1):
            *_, reward, terminated, truncated, info = env.step(bank["actions"][episode, t])
            assert np.array_equal(env.unwrapped.state.astype(np.float32), bank["states"][episode, t + 1])
            assert np.float32(reward) == bank["rewards"][episode, t]
            assert not terminated
            assert truncated == (t == protocol.steps - 2)
            for signal in bank.world.signals:
                assert bank[signal][episode, t] == info[signal]
    if protocol.frames:
        rows = np.arange(len(bank))
        states = bank.windows("states", rows, 0, protocol.steps).astype(np.float64)
        drawn = [bank.world.draw(trajectory, protocol.frames) for trajectory in states]
        assert np.array_equal(bank.frames(rows, 0, protocol.steps), drawn)


def test_poke_rollout_budgets_nest(tmp_path):
    protocol = small(POKE_ORIGINAL).replace(frames=None)
    r8, r2 = (build(protocol.replace(rollouts=r), tmp_path / str(r)) for r in (8, 2))
    first = r8.table["rollout"] < 2
    assert np.array_equal(r2["states"], r8["states"][first])
    assert np.array_equal(r2["contact_force"], r8["contact_force"][first])


def test_splits_that_share_a_system_are_refused(tmp_path):
    levels = Combinations({"drag": (0.5, 1.0)})
    shared = D_CLEAN.replace(systems={"train": levels, "test": Combinations({"drag": (1.0, 2.0)})})
    with pytest.raises(ValueError, match=r"the system \{'drag': 1.0\} occurs 2 times in its splits"):
        build(shared, tmp_path / "bank")
    assert not list(tmp_path.iterdir())


class Unavailable(Bounded):
    packages = ("no-such-simulator",)


gym.register("test/Unavailable-v0", entry_point=f"{__name__}:UnavailableEnv")


def test_a_missing_package_is_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match="the bank 'bounded' needs no-such-simulator: pip install no-such-simulator"):
        build(BOUNDED.replace(env_id="test/Unavailable-v0"), tmp_path / "bank")
    assert not list(tmp_path.glob("bank*"))
