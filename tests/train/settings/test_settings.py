"""What is so of every setting: its store, its episodes, its training data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_worlds import IMAGE, POKE_LEARNER, POKE_SMALL, SPRING_LEARNER, SPRING_SMALL

from sprii_envs.banks import (
    D_CLEAN,
    POKE_FACTORIAL,
    POKE_FRESH,
    POKE_ORIGINAL,
    SPRING_SEALED,
    ArrayStore,
    Bank,
    BankError,
)
from sprii_envs.banks import SPRING as SPRING_PROTOCOL
from sprii_envs.relations import EpisodeTable
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import POKE, SETTINGS, SPRING, Built, Setting
from sprii_train.settings.base import MEASURED_SEED

SCENES = ("cophy-balls", "cophy-collision", "cophy-blocktower")


def test_the_settings():
    expected = {
        "d-clean": (D_CLEAN, 24, None, False),
        "poke": (POKE_FACTORIAL, 24, None, False),
        **{f"poke-r{r}": (POKE_ORIGINAL.replace(rollouts=r), 24, None, False) for r in (2, 4, 8)},
        "spring": (SPRING_PROTOCOL, 96, "forced", True),
    }
    assert set(SETTINGS) == {
        *expected, "pendulum", "pendulum-context", "overcooked", "overcooked-half", "overcooked-quarter", "burgers",
        "burgers-adaptive", "fhn", "baxter", "swimmer", "rh20t", "push", "poke-frozen",
        "poke-frozen-factorial", *SCENES,
    }  # fmt: skip
    for name, (protocol, history, kind, still) in expected.items():
        setting = SETTINGS[name]
        assert setting.name == name
        assert setting.store == Built(protocol.replace(frames=None))  # drawn when they are read
        assert (setting.history, setting.kind, setting.still) == (history, kind, still)
        assert set(setting.properties) <= {"mass", "drag", "stiffness"}
        for anchor in setting.anchors:
            assert setting.starts(anchor) >= 0
            assert anchor < 96
    assert POKE.anchors == (24, 32, 40, 47)  # the paper's atlas
    assert [POKE.starts(a) for a in POKE.anchors] == [1, 9, 17, 24]
    assert SPRING.sealed == Built(SPRING_SEALED)
    assert POKE.sealed == Built(POKE_FRESH.replace(frames=None))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"properties": "mass"}, r"Setting\.properties is 'mass'; legal: a tuple of columns, such as \('mass',\)"),
        ({"anchors": ()}, r"Setting\.anchors is \(\); legal: a tuple of integers, at least one"),
        ({"anchors": 24}, r"Setting\.anchors is 24; legal: a tuple of integers"),
        ({"anchors": (24.5,)}, r"Setting\.anchors\[0\] is 24\.5; legal: an integer"),
        ({"history": 0}, r"Setting\.history is 0; legal: an integer >= 1"),
        ({"name": None}, r"Setting\.name is None; legal: str"),
    ],
)
def test_fields_that_are_not_legal_are_refused_when_a_setting_is_made(changed: dict[str, Any], message: str):
    legal: dict[str, Any] = {"properties": ("mass",), "history": 24, "anchors": (24,)}
    with pytest.raises(ValueError, match=message):
        Setting(**{"name": "own", "store": POKE.store, **legal, **changed})


def test_what_a_store_cannot_serve_is_refused_before_training():
    columns = {"system": [0, 1, 2], "length": [50, 60, 70], "mass": [1.0, np.nan, 2.0], "driver": ["ann", "ben", "cem"]}
    table = EpisodeTable({"episode": np.arange(3), "flow": [1, 2, 3], **columns})
    store = ArrayStore(table, {"states": np.zeros((180, 2)), "actions": np.zeros((177, 1))})
    own = Setting("own", lambda _: store, ("flow",), 24, (24, 49))
    own.check(store, JEPAConfig())
    for changed, message in (
        ({"properties": ("driver",)}, "the property 'driver', which is 'ann' in an episode of arrays; legal: columns"),
        ({"properties": ("flow", "mass")}, "the property 'mass', which is nan in an episode of arrays; legal: columns"),
        ({"history": 60}, "has a history of 60; legal: at most 50, the observations of the shortest episode of arrays"),
        ({"anchors": (50,)}, "has the anchor 50; legal: 23 to 49, where"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(own, factors=(), **changed).check(store, JEPAConfig())


def test_episodes_of_a_split(poke_bank: Bank, spring_bank: Bank):
    everything = POKE.episodes(poke_bank, "train")
    assert (everything["episode"] == np.arange(128)).all()
    forced = SPRING.episodes(spring_bank, "validation")
    assert set(forced["kind"]) == {"forced"}
    assert np.unique(forced["system"], return_counts=True)[1].tolist() == [4] * 10
    chosen = POKE.episodes(poke_bank, "train", systems=5)
    ids = np.random.default_rng(MEASURED_SEED).permutation(32)[:5]
    assert sorted(set(chosen["system"])) == sorted(ids)
    assert len(chosen) == 20
    assert len(POKE.episodes(poke_bank, "train", systems=400)) == 128
    with pytest.raises(BankError, match="sealed"):
        POKE.episodes(poke_bank, "confirmation")
    assert len(POKE.episodes(poke_bank, "confirmation", unseal=True)) == 32


def test_training_data_of_a_recipe(poke_bank: Bank, spring_bank: Bank):
    data = POKE.data(poke_bank, POKE_LEARNER, EVERY_RECIPE["g1"], pairs=4, seed=7)
    windows = data(0)
    assert windows.observations.shape == (8, 25, IMAGE, IMAGE)
    assert windows.labels is None
    assert (data.identity()["relation"], data.identity()["seed"]) == ("G1", 7)
    supervised = replace(POKE_LEARNER, context="supervised", label_dim=3)
    labels = POKE.data(poke_bank, supervised, EVERY_RECIPE["supervised"], pairs=4, seed=7)(0).labels
    assert labels is not None
    assert labels.shape == (8, 3)
    swept = SPRING.data(spring_bank, SPRING_LEARNER, EVERY_RECIPE["align"], pairs=4, seed=7)
    assert set(swept.table["kind"]) == {"forced"}
    assert set(swept.table["split"]) == {"train"}
    windows = swept(0)
    assert windows.observations.shape == (8, 97, IMAGE, IMAGE)
    assert (windows.observations[:, 0] == windows.observations[:, 1]).all()


def test_banks_are_built_once_and_verified(tmp_path: Path):
    for setting, protocol, folder in (
        (POKE, POKE_SMALL, "poke-factorial-32-12-8-r4"),
        (SPRING, SPRING_SMALL, "spring-v2-16-10-rkinds"),
    ):
        small = replace(setting, store=Built(protocol))
        first = small.open_store(tmp_path)
        assert isinstance(first, Bank)
        assert first.path == tmp_path / "banks" / folder
        stamps = {file: file.stat().st_mtime_ns for file in first.path.iterdir()}
        assert small.open_store(tmp_path).fingerprint == first.fingerprint
        assert {file: file.stat().st_mtime_ns for file in first.path.iterdir()} == stamps
    states = tmp_path / "banks" / "spring-v2-16-10-rkinds" / "states.f32"
    data = bytearray(states.read_bytes())
    data[100] ^= 1
    states.write_bytes(data)
    with pytest.raises(BankError, match=r"states\.f32 is damaged: its checksum is another"):
        replace(SPRING, store=Built(SPRING_SMALL)).open_store(tmp_path)


def test_sealed_banks(tmp_path: Path):
    sealed = SPRING_SEALED.replace(systems={"sealed": SPRING_SMALL.systems["train"]})
    bank = replace(SPRING, sealed=Built(sealed)).open_sealed(tmp_path)
    assert bank.path.parent == tmp_path
    assert bank.protocol == sealed
    with pytest.raises(ValueError, match="the setting 'poke' has no sealed bank"):
        replace(POKE, sealed=None).open_sealed(tmp_path)


def test_what_can_be_known_to_fail_is_refused_before_anything_is_trained(tmp_path: Path):
    from dataclasses import dataclass

    from sprii_envs.banks import ArrayStore
    from sprii_envs.relations import EpisodeTable
    from sprii_train.settings import Setting

    @dataclass(frozen=True)
    class Config:
        horizons: tuple[int, ...] = (1, 2)

    systems = np.repeat(np.arange(6), 2)
    split = np.where(systems < 4, "train", "validation")
    table = EpisodeTable(
        {"episode": np.arange(12), "system": systems, "length": np.full(12, 20), "split": split, "mass": systems * 1.0}
    )
    store = ArrayStore(table, {"x": np.zeros((12, 20, 2)), "u": np.zeros((12, 19, 1))})
    good = Setting(
        "own", lambda folder: store, ("mass",), 8, (7, 19), observation="x", action="u",
        case_horizons=(1, 11), case_count=4,
    )  # fmt: skip
    good.check(store, Config(), cases=True)
    for changes, message in (
        ({"observation": "y"}, "no column 'y'"),
        ({"properties": ("mas",)}, "no column 'mas'"),
        ({"anchors": (6,)}, "'own' has the anchor 6; legal: 7 to 19"),
        ({"anchors": (20,)}, "has the anchor 20"),
        ({"case_count": 5}, "case_count 5; legal: a multiple of the episodes of a system"),
        ({"case_count": 6}, "case_count 6 .* has 20 observations, no room for 3 histories of 8 with 11 steps after"),
        ({"case_horizons": (1, 12)}, r"case_horizons \(1, 12\)"),
        ({"case_horizons": (1, 16)}, "no room for 2 histories of 8 with 16 steps"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(good, **changes).check(store, Config(), cases=True)
        if "case_horizons" in changes:  # of no cases, nothing is said
            replace(good, **changes).check(store, Config())
    with pytest.raises(ValueError, match=r"no room for .* or for a donor's with 13"):
        good.check(store, Config((1, 13)), cases=True)
    with pytest.raises(ValueError, match="no field 'horizons'"):
        good.check(store, object())
