"""CoPhy's settings and measures on a small bank: whose truth is read, how arms train, what rows hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from object_banks import COUNTS, SLOTS, object_features

from sprii_envs.banks import ArrayStore
from sprii_envs.cophy.protocols import CoPhyProtocol
from sprii_envs.relations import EpisodeTable
from sprii_train.checkpoints import read_tensors
from sprii_train.cophy.episodes import evaluated, training, truth
from sprii_train.cophy.evaluation import oracle, risks
from sprii_train.cophy.features import Features
from sprii_train.cophy.reader import encode, fit_reader
from sprii_train.cophy.supports import Supports
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.cophy import READERS, compared
from sprii_train.experiments.sources import ReaderBudget, SourceCell, train_source
from sprii_train.fit import learning_rate
from sprii_train.learners import CoPhyNet, ObjectCPC, ObjectJEPA, ObjectJEPAConfig, ObjectRSSM, learner_of
from sprii_train.recipes import COPHY_RECIPES
from sprii_train.settings import SETTINGS
from sprii_train.settings.cophy import COPHY, ObjectTraining
from sprii_train.settings.perceived import Perceived

SETTING = SETTINGS["cophy-collision"]
LEARNER = ObjectJEPAConfig(projection=8, width=8, persistent=6, current=6, layers=1, sigreg_slices=16)
TRAIN = ObjectTraining(steps=4, pairs=8, checkpoint_every=2, log_every=1, precision="fp32")
READ = ReaderBudget(1, 2, 1)


def silent(step: int, values: dict[str, float]) -> None:
    pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Features:
    return object_features(tmp_path_factory.mktemp("objects"))


def cell(store: Features, arm: str, measure: str | None = None) -> SourceCell:
    return SourceCell(
        SETTING, COPHY_RECIPES[arm], LEARNER, TRAIN, store.name, store.fingerprint,
        None if measure is None else MEASURES[measure], READ,
    )  # fmt: skip


def test_the_papers_budgets():
    for setting, pairs in zip(COPHY, (7_000, 14_000, 28_310), strict=True):
        budget = setting.budget("paper")
        train = budget.train
        assert isinstance(setting.store, Perceived)
        assert setting.store.protocol == CoPhyProtocol(
            setting.name.removeprefix("cophy-"), setting.store.protocol.objects
        )
        assert setting.store.protocol.train == pairs
        assert train.steps == pytest.approx(100 * pairs / 32, rel=0.01)
        assert budget.reader_steps == pytest.approx(100 * pairs / 128, rel=0.01)
        assert (train.pairs, train.learning_rate, train.weight_decay, train.clip) == (32, 3e-4, 1e-4, 1.0)
        assert budget.learner == ObjectJEPAConfig()
        assert budget.sources == (0, 1, 2)
        configs = {arm: setting.learner_config(budget.learner, recipe) for arm, recipe in COPHY_RECIPES.items()}
        for family, cls in (("jepa", ObjectJEPA), ("cpc", ObjectCPC), ("rssm", ObjectRSSM), ("net", CoPhyNet)):
            native, split = configs[f"cophy-{family}-native"], configs[f"cophy-{family}-sprii"]
            assert learner_of(split)[1] is cls
            assert split == type(split)()  # the paper's sizes
            assert native == replace(split, context="monolithic")


def test_a_share_of_the_updates_at_a_constant_rate_on_as_many_recipients():
    train = ObjectTraining(steps=100)
    for arm, (steps, pairs, rate) in {
        "cophy-jepa-native": (100, 16, 3e-4), "cophy-jepa-sprii": (100, 32, 3e-4), "cophy-j2-random": (50, 32, 3e-4),
        "cophy-net-structure": (100, 16, 1e-3), "cophy-net50-sprii": (50, 32, 1e-3),
    }.items():  # fmt: skip
        spent = train.spent(COPHY_RECIPES[arm])
        assert (spent.steps, spent.pairs) == (steps, pairs)
        assert {learning_rate(spent, step) for step in (0, steps - 1)} == {rate}
        assert spent.weight_decay == (0.0 if "net" in arm else 1e-4)
        assert (spent.clip > 1e6) == ("net" in arm)


def test_what_is_true_of_a_pair(store: Features):
    t = truth(store, np.arange(len(store.table)))
    table, states = store.table, store.windows("cd_states", store.table["episode"], np.zeros(120, np.int64), 6)
    for row in (0, 17, 59, 61, 119):
        there = [slot for slot in range(SLOTS) if table[f"kind_{slot}"][row] >= 0]
        assert t.slot[row].tolist() == there
        assert t.physics[row, :, 0].tolist() == [table[f"mass_{slot}"][row] for slot in there]
        np.testing.assert_array_equal(t.positions[row], states[row][:, there, :3])
    gone = COUNTS["train"]  # the first pair of validation
    assert t.seen.all()
    assert (~t.asked).sum() == 1 == (~t.asked[gone]).sum()
    objects, asked = evaluated(store)
    assert torch.equal(asked.seen, torch.from_numpy(t.asked))
    episodes = training(store, store.split("train"))
    assert len(episodes.rows) == 60
    assert len(np.unique(episodes.unit)) == 8  # four colours, two masses
    assert len(np.unique(episodes.stratum)) == 4
    assert objects.split[[0, 60, 90]].tolist() == ["train", "validation", "test"]


ARMS = ("cophy-jepa-native", "cophy-cpc-align", "cophy-rssm-sprii", "cophy-net-random")


@pytest.mark.parametrize("arm", ARMS)
def test_rows_hold_what_was_measured(arm: str, store: Features, tmp_path: Path):
    one = cell(store, arm, "cophy")
    row = one.run(tmp_path, silent)
    kept = {name: tensor.numpy() for name, tensor in read_tensors(tmp_path / one.arrays).items()}
    assert (row["arm"], row["steps"]) == (arm, 4)
    for population in ("validation", "test"):
        assert row["recipients"][population] == len(kept[f"{population}|matched"])
        for name, value in row["errors"][population].items():
            assert value == pytest.approx(kept[f"{population}|{name}"].mean(), rel=1e-6)
        assert {"matched", "null", "wrong", "wrong:matched", "wrong_mass", "repeat", "still", "moving"} <= set(
            row["errors"][population]
        )
        assert "wrong_friction" not in row["errors"][population]  # one level
        rise = kept[f"{population}|wrong_mass"] - kept[f"{population}|wrong_mass:matched"]
        assert row["rise"][population] == {"mass": pytest.approx(rise.mean(), abs=1e-6)}
    assert {channel: set(told) for channel, told in row["probe"].items()} == {c: {"mass"} for c in "USM"}
    assert set(row["geometry"]) == set("USM")
    assert kept["shown|true"].shape == kept["shown|matched"].shape == (3, 2, 3)
    assert not np.array_equal(kept["shown|matched"], kept["shown|wrong"])
    source = train_source(one, tmp_path, silent)
    objects, asked = evaluated(store)
    supports = Supports(objects)
    encoded = encode(source.learner, store.features, store.poses, np.stack([objects.seen, objects.active], axis=1))
    if "net" not in arm:  # whose null, which a head's training meets, is another
        from sprii_train.cophy.reader import HeadConfig

        reader = fit_reader(encoded, asked, supports, HeadConfig(epochs=1, batch=32), seed=0)
        found = risks(reader, encoded, asked, supports, split="test").errors["matched"]
        np.testing.assert_allclose(kept["test|matched"], found, rtol=1e-5)


def test_arms_train_on_the_same_recipients_and_are_told_apart(store: Features, tmp_path: Path):
    runs: dict[str, Any] = {}
    for arm in ("cophy-jepa-structure", "cophy-jepa-sprii", "cophy-jepa-random"):
        train_source(cell(store, arm), tmp_path / arm, silent)
        runs[arm] = json.loads((tmp_path / arm / "run.json").read_text())
    assert len({run["learner"]["weights"] for run in runs.values()}) == 1
    assert [run["data"]["donors"] for run in runs.values()] == ["none", "related", "random"]
    assert len({run["data"]["episodes"] for run in runs.values()}) == 1
    assert [run["train"]["pairs"] for run in runs.values()] == [4, 8, 8]


def test_baselines_and_readers(store: Features, tmp_path: Path):
    arm = "cophy-net50-sprii"
    row = cell(store, arm, "cophy-readers").run(tmp_path, silent)
    assert row["steps"] == 2
    assert set(row["readers"]) == set(READERS)
    assert len(set(row["readers"].values())) == len(READERS)
    told = cell(store, arm, "cophy-baselines").run(tmp_path, silent)["baseline"]["test"]
    assert set(told) == {f"{n}_{c}" for n in ("untrained", "oracle") for c in ("matched", "null", "wrong")}
    assert oracle(evaluated(store)[0]).memory.shape[-1] == 6


def test_conditions_are_compared_on_the_recipients_that_have_them():
    errors = {
        "matched": np.array([1.0, 2.0, 3.0]), "s5": np.array([1.0, 1.0, np.nan]), "s8": np.array([np.nan, 0.5, np.nan]),
        "wrong": np.full(3, np.nan),
    }  # fmt: skip
    found = {name: values.tolist() for name, values in compared(errors).items()}
    assert found == {
        "matched": [1.0, 2.0, 3.0], "s5": [1.0, 1.0], "s5:matched": [1.0, 2.0], "s8": [0.5], "s8:matched": [2.0],
        "s8:s5": [1.0],
    }  # fmt: skip


def test_every_learner_is_tried_before_anything_is_trained(store: Features):
    for arm in COPHY_RECIPES:
        SETTING.check_learner(store, COPHY_RECIPES[arm], LEARNER)
    SETTING.check(store, LEARNER)
    with pytest.raises(ValueError, match=r"ObjectJEPAConfig.features is 10; legal: 784, as in"):
        SETTING.check(store, ObjectJEPAConfig(features=10))
    table = EpisodeTable({"episode": [0], "system": [0], "length": [3]})
    with pytest.raises(ValueError, match=r"arrays holds no features of CoPhy; legal: a store that `Perceived` makes"):
        SETTING.check(ArrayStore(table, {"states": np.zeros((1, 3, 1))}), LEARNER)
