"""CoPhyNet's two recipes of the paper: an extension decided on validation, and S1's groups and selected epoch."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from object_banks import object_features

from sprii_train.checkpoints import load
from sprii_train.cophy.episodes import training
from sprii_train.cophy.features import Features
from sprii_train.cophy.pairs import Groups
from sprii_train.experiments.sources import SourceCell, train_source
from sprii_train.extension import Extension
from sprii_train.fit import Interrupted
from sprii_train.learners import CoPhyNet, CoPhyNetConfig, ObjectJEPAConfig
from sprii_train.learners.cophynet import Query
from sprii_train.recipes import COPHY_RECIPES, ObjectRecipe
from sprii_train.records import read_rows
from sprii_train.selection import Selection
from sprii_train.settings import SETTINGS
from sprii_train.settings.cophy import COPHY, ObjectTraining, position_error

SETTING = SETTINGS["cophy-collision"]
LEARNER = ObjectJEPAConfig(projection=8, width=8, persistent=6, current=6, layers=1, sigreg_slices=16)
RULE = Extension(first=2, most=3, every=1, gain=0.01)
TRAIN = ObjectTraining(steps=40, pairs=8, checkpoint_every=3, log_every=1, net_rate=1e-3)
EPOCH = 8  # updates: 60 pairs, 8 recipients at once


def silent(step: int, values: dict[str, float]) -> None:
    pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Features:
    return object_features(tmp_path_factory.mktemp("objects"))


def cell(store: Features, arm: str, train: ObjectTraining) -> SourceCell:
    return SourceCell(SETTING, COPHY_RECIPES[arm], LEARNER, train, store.name, store.fingerprint)


# The rule


def test_the_papers_rule_and_where_it_holds():
    for setting in COPHY:
        assert setting.budget("paper").train.extension == Extension(first=25, most=50, every=5, gain=0.01)
        assert setting.budget("quick").train.extension is None  # it keeps its share
    assert {name for name, recipe in COPHY_RECIPES.items() if isinstance(recipe, ObjectRecipe) and recipe.judges} == {
        f"cophy-net50-{arm}" for arm in ("native", "structure", "sprii", "random")
    }
    flat, falling = [5.0, 4.0, 3.0, 2.0, 1.981], [5.0, 4.0, 3.0, 2.0, 1.98]
    rule = Extension()
    assert (rule.epochs([flat, flat]), rule.epochs([flat, falling]), rule.epochs([falling, flat])) == (25, 50, 50)
    assert rule.epochs([[1.0, 0.5, 0.4, 0.3, 0.4]]) == 25  # what fell before does not count


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=5, max_size=5), min_size=1, max_size=3))
def test_a_rule_by_hand(curves: list[list[float]]):
    gains = [(curve[3] - curve[4]) / curve[3] for curve in curves]
    if min(abs(gain - 0.01) for gain in gains) > 1e-9:
        assert Extension().epochs(curves) == (50 if max(gains) > 0.01 else 25)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"first": 24}, "first is 24; legal: a multiple of every, 5"),
        ({"first": 5}, "first is 5"),
        ({"most": 25}, "most is 25; legal: more than the first 25"),
        ({"gain": 0}, "gain is 0"),
    ],
)
def test_rules_that_are_refused(wrong: dict[str, int], said: str):
    with pytest.raises(ValueError, match=said):
        Extension(**wrong)
    with pytest.raises(ValueError, match=r"\[4\] losses"):
        Extension().epochs([[1.0] * 4])


# Training under it


@torch.no_grad()
def by_hand(learner: Any, store: Features) -> float:
    """Mean squared error of an episode's own code, one episode and one object at a time."""
    held, errors = training(store, store.split("validation")), []
    for i, row in enumerate(held.rows):
        there, poses = held.active[i], torch.from_numpy(np.array(store.poses[row]))
        seen = torch.from_numpy(held.kind[i] >= 0)[None]
        code = learner.history(poses[0][None], seen) * torch.from_numpy(there)[None, :, None]
        p, t = code[..., : learner._persistent], code[..., learner._persistent :]
        query = Query(poses[1][None], torch.from_numpy(there)[None])
        found = learner.predict(t.flatten(1), p.flatten(1), query)[0, :, :, :3].numpy()
        each = [np.mean((found[:, o] - held.positions[i, 1:, o]) ** 2) for o in np.flatnonzero(there)]
        errors.append(np.mean(each))
    return float(np.mean(errors))


def test_the_validation_error_is_that_of_one_episode_after_another(store: Features):
    torch.manual_seed(3)
    learner = CoPhyNet(CoPhyNetConfig()).eval()
    held = training(store, store.split("validation"))
    assert position_error(learner, held, chunk=7) == pytest.approx(by_hand(learner, store), rel=1e-5)


@pytest.mark.parametrize("gain", [1e-6, 0.9])
def test_all_arms_are_trained_as_long_as_the_judges_say(gain: float, store: Features, tmp_path: Path):
    rule = replace(RULE, gain=gain)
    for arm in ("cophy-net50-native", "cophy-net50-random"):
        train_source(cell(store, arm, replace(TRAIN, extension=rule)), tmp_path / "cells" / arm, silent)
    judges = sorted((tmp_path / "cells").glob("*-judge-*"))
    assert [folder.name.split("-judge-")[0] for folder in judges] == [
        "cophy-collision-cophy-net50-native", "cophy-collision-cophy-net50-sprii",
    ]  # fmt: skip
    curves = json.loads((tmp_path / "cells" / "cophy-net50-random" / "run.json").read_text())["judges"]
    falls = max((curve[0] - curve[1]) / curve[0] for curve in curves)
    expected = EPOCH * (3 if falls >= gain else 2)
    for arm in ("cophy-net50-native", "cophy-net50-random"):
        assert read_rows(tmp_path / "cells" / arm / "metrics.jsonl")[-1]["step"] == expected
    assert expected == EPOCH * (3 if gain < 0.1 else 2)  # both happen
    # Native's own run is its judge's, continued: the errors are of the weights that it had at those epochs.
    for epochs in (1, 2):
        short = replace(COPHY_RECIPES["cophy-net50-native"], judges=(), share=epochs * EPOCH / TRAIN.steps)
        again = train_source(
            replace(cell(store, "cophy-net50-native", TRAIN), recipe=short), tmp_path / f"{epochs}", silent
        )
        assert curves[0][epochs - 1] == pytest.approx(by_hand(again.learner, store), rel=1e-5)


def test_without_a_rule_the_share_stays(store: Features, tmp_path: Path):
    train_source(cell(store, "cophy-net50-native", TRAIN), tmp_path / "cells" / "one", silent)
    assert read_rows(tmp_path / "cells" / "one" / "metrics.jsonl")[-1]["step"] == TRAIN.steps / 2
    assert not list((tmp_path / "cells").glob("*-judge-*"))


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(
    store: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = cell(store, "cophy-net50-sprii", replace(TRAIN, extension=RULE))
    whole = train_source(one, tmp_path / "a" / "own", silent).learner
    calls = 0
    kept = Selection.__call__

    def stop(self: Selection, *given: object) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls in (2, 4):  # in the first judge, and in the second
            raise Interrupted
        return kept(self, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Selection, "__call__", stop)
    for _ in range(2):
        with pytest.raises(Interrupted):
            train_source(one, tmp_path / "b" / "own", silent)
    again = train_source(one, tmp_path / "b" / "own", silent).learner
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))


# S1

S1 = COPHY_RECIPES["cophy-net-s1"]


def test_s1_is_the_papers():
    assert isinstance(S1, ObjectRecipe)
    assert (S1.objective.lambda_x, S1.objective.lambda_p, S1.donors, S1.selected) == (1.0, 0.1, "related", True)
    assert S1.groups == Groups(supports=5, recipients=3, batch=10)
    assert ObjectTraining(steps=100).spent(S1).pairs == 30


def test_a_donors_code_is_the_mean_of_its_supports(store: Features):
    small = replace(S1, groups=Groups(supports=3, recipients=2, batch=2))
    torch.manual_seed(1)
    learner = CoPhyNet(CoPhyNetConfig()).eval()
    data: Any = SETTING.data(store, CoPhyNetConfig(), small, pairs=4, seed=2)
    windows = data(1)
    drawn, held = data.batch(1), training(store, store.split("train"))
    with torch.no_grad():
        batch = learner.prepare(windows)
        z = learner.encode_history(batch.history).view(8, 2, 16)
        own = learner.align_codes(learner.encode_history(batch.history), batch)

        def code(episode: int, place: int) -> torch.Tensor:
            poses = torch.from_numpy(np.array(store.poses[held.rows[episode]][0]))[None]
            return learner.history(poses, torch.from_numpy(held.kind[episode] >= 0)[None])[0, place, :16]

        for i in range(4):
            for o in range(2):
                supports = [code(drawn.donor[i, o, k], drawn.place[i, o, k]) for k in range(3)]
                torch.testing.assert_close(z[i, o], sum(supports) / 3)
                torch.testing.assert_close(z[4 + i, o], code(drawn.recipient[i], o))
            torch.testing.assert_close(own[i], z[i, drawn.focal[i]])


def test_s1_has_the_weights_of_its_best_epoch(store: Features, tmp_path: Path):
    small = replace(S1, groups=Groups(supports=3, recipients=2, batch=2))
    train = replace(TRAIN, steps=70, net_rate=0.03)  # too fast, so that the last epoch is not the best
    made = train_source(replace(cell(store, S1.name, train), recipe=small), tmp_path / "cells" / "s1", silent)
    losses, _ = Selection(lambda _: 0.0, tmp_path / "cells" / "s1" / "best.safetensors", 1, 1, 1).kept()
    told = [row["loss"] for row in read_rows(tmp_path / "cells" / "s1" / "selection.jsonl")]
    data: Any = SETTING.data(store, CoPhyNetConfig(), small, pairs=4, seed=0)
    assert losses == told
    assert len(losses) == 70 // -(-len(data.eligible) // 4)
    assert losses.index(min(losses)) < len(losses) - 1
    assert by_hand(made.learner, store) == pytest.approx(min(losses), rel=1e-5)
    assert by_hand(load(tmp_path / "cells" / "s1" / "model"), store) == pytest.approx(min(losses), rel=1e-5)


def test_options_that_other_learners_lack():
    jepa = COPHY_RECIPES["cophy-jepa-sprii"]
    for option, value in (("groups", Groups()), ("selected", True), ("judges", ("cophy-jepa-native",))):
        with pytest.raises(ValueError, match=f"ObjectRecipe.{option} is of the learner 'jepa'; legal: of cophynet"):
            replace(jepa, **{option: value})
    with pytest.raises(ValueError, match="donors is 'random' with groups; legal: related"):
        replace(COPHY_RECIPES["cophy-net-random"], groups=Groups())
