"""What is measured of CoPhy's sources: conditions by single predictions, channels, probes, distances, baselines."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from tiny_scenes import drifting, noisy, objects_of

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.formation.geometry import standardise
from sprii_train.cophy.evaluation import (
    Evaluation,
    channels,
    class_means,
    evaluate,
    extrapolations,
    factors_of,
    oracle,
    paired,
    probes,
    risks,
    within_between,
)
from sprii_train.cophy.reader import Encoded, HeadConfig, Queries, Reader, contexts, errors, fit_reader
from sprii_train.cophy.supports import FACTORS, Objects, Supports

SMALL = HeadConfig(code=16, hidden=24, epochs=16, batch=32, learning_rate=4e-3, selection=40)


class Scene:
    """One source and its head, fitted once."""

    def __init__(self) -> None:
        self.objects = objects_of({"train": 160, "validation": 80}, slots=2, levels=2, absent=True)
        self.encoded, self.asked, self.supports = noisy(self.objects), drifting(self.objects), Supports(self.objects)
        self.reader = fit_reader(self.encoded, self.asked, self.supports, SMALL, seed=0)
        self.all = self.reader, self.encoded, self.asked, self.supports
        self.rows = self.supports.rows("train"), self.supports.rows("validation")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def predicted(s: Scene, row: int, ids: torch.Tensor | None) -> float:
    """Error of one recipient, alone."""
    e = torch.tensor([row])
    told = contexts(s.encoded, e, None if ids is None else ids[None])
    given = Queries(*(x[e] for x in s.asked))
    with torch.no_grad():
        made = s.reader.head(s.reader.head.memory(told), torch.tensor([ids is not None]), given)
    there = given.seen[0]
    return float((made - given.targets)[0][:, there].square().mean())


def test_every_condition_is_the_prediction_from_its_own_histories(scene: Scene):
    found = risks(*scene.all, counts=(3, 5))
    assert np.array_equal(found.recipients, scene.rows[1])
    matched, five = (torch.from_numpy(scene.supports.matched(k, seed=0)) for k in (3, 5))
    wrong = {f: torch.from_numpy(scene.supports.wrong(3, seed=0, factor=f)) for f in (None, *FACTORS)}
    for place, row in enumerate(found.recipients.tolist()):
        single = [predicted(scene, row, matched[row][:, [k]]) for k in range(3)]
        repeated = [predicted(scene, row, matched[row][:, [k, k, k]]) for k in range(3)]
        assert single == pytest.approx(repeated, rel=1e-4)  # three times one history says what it says once
        expected = {
            "matched": predicted(scene, row, matched[row]),
            "null": predicted(scene, row, None),
            "repeat": np.mean(single),
            "s3": predicted(scene, row, matched[row]),
            "s5": predicted(scene, row, five[row]),
            "wrong": predicted(scene, row, wrong[None][row]),
        } | {f"wrong_{f}": predicted(scene, row, wrong[f][row]) for f in FACTORS}
        ids = {"s5": five, "wrong": wrong[None]} | {f"wrong_{f}": wrong[f] for f in FACTORS}
        seen = scene.objects.seen[row]
        for name, error in expected.items():
            if name in ids and (ids[name][row].numpy()[seen] < 0).any():
                assert np.isnan(found.errors[name][place])
            else:
                assert found.errors[name][place] == pytest.approx(error, rel=1e-4)
    assert set(found.errors) == {"matched", "null", "wrong", *(f"wrong_{f}" for f in FACTORS), "repeat", "s3", "s5"}


def test_only_the_factor_that_moves_objects_matters(scene: Scene):
    found = paired(risks(*scene.all, counts=(3, 5)).errors)
    mean = {name: e.mean() for name, e in found.items()}
    assert mean["wrong_restitution"] > 3 * mean["matched"]
    for factor in ("mass", "friction"):
        assert mean[f"wrong_{factor}"] == pytest.approx(mean["matched"], rel=0.25)
    assert mean["matched"] < mean["repeat"]  # three independent histories lessen the noise of one
    intervals = system_bootstrap(found, {"gap": lambda m: m["wrong_restitution"] - m["matched"]}, seed=0)
    assert intervals["gap"].low > 0


def test_recipients_of_all_conditions():
    a, b = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0]]), np.array([1.0, 2.0, np.nan])
    found = paired({"a": a, "b": b})
    assert found["a"].tolist() == [[1.0], [1.0]]
    assert found["b"].tolist() == [1.0]
    with pytest.raises(ValueError, match="no recipient has all of the conditions a, b"):
        paired({"a": a[:, 1:], "b": b[1:]})


def test_channels_are_of_the_objects_that_are_there(scene: Scene):
    rows = scene.rows[1]
    found = channels(scene.reader, scene.encoded, scene.supports, rows)
    ids = scene.supports.matched(3, seed=0)
    at = 0
    for e in rows:
        for o in range(2):
            if not scene.objects.seen[e, o]:
                continue
            memory = scene.encoded.memory.flatten(0, 1)[ids[e, o]]
            assert np.allclose(found["U"][at], torch.cat([scene.encoded.memory[e, o], scene.encoded.query[e, o]]))
            assert np.allclose(found["S"][at], memory[:, :1].mean(0))
            told = torch.cat([memory, scene.encoded.query[e, o].expand(3, -1)], 1)[None, None]
            with torch.no_grad():
                assert np.allclose(found["M"][at], scene.reader.head.memory(told)[0, 0], atol=1e-5)
            at += 1
    assert at == len(found["U"])
    assert set(channels(None, scene.encoded, scene.supports, rows)) == {"U", "S"}


def test_probes_find_what_a_source_sees_and_nothing_else(scene: Scene):
    train, held = (channels(scene.reader, scene.encoded, scene.supports, rows) for rows in scene.rows)
    found = probes(train, held, scene.supports, scene.rows)
    assert set(found["U"]) == set(FACTORS)  # gravity is −10 everywhere
    signal, noise = 0.2**2, 0.3**2
    assert found["U"]["restitution"] == pytest.approx(signal / (signal + noise), abs=0.12)
    assert found["S"]["restitution"] == pytest.approx(signal / (signal + noise / 3), abs=0.12)
    for channel in ("U", "S", "M"):
        assert max(found[channel][f] for f in ("mass", "friction")) < 0.12
    shuffled = probes(train, held, scene.supports, scene.rows, shuffled=3)
    assert max(max(r2.values()) for r2 in shuffled.values()) < 0.12


def test_an_oracle_is_read_without_error_gravity_that_varies_too():
    objects = objects_of({"train": 200, "validation": 120}, slots=2, levels=2, gravities=2)
    encoded, asked, supports = oracle(objects), drifting(objects), Supports(objects)
    rows = supports.rows("train"), supports.rows("validation")
    train, held = (channels(None, encoded, supports, r) for r in rows)
    found = probes(train, held, supports, rows, penalties=(1e-6,))
    for channel in ("U", "S"):
        assert found[channel].keys() == {*FACTORS, "gravity_x"}
        assert min(found[channel].values()) > 1 - 1e-6
    told = factors_of(objects, rows[1])
    assert np.array_equal(told["mass"], objects.physics[rows[1]].reshape(-1, 3)[:, 0])
    assert np.array_equal(told["gravity_x"], np.repeat(objects.gravity[rows[1], 0], 2))
    reader = fit_reader(encoded, asked, supports, SMALL, seed=0)
    one = paired({k: v for k, v in risks(reader, encoded, asked, supports).errors.items() if not k.startswith("s")})
    assert one["repeat"] == pytest.approx(one["matched"], rel=1e-4)  # all its histories say the same
    assert one["matched"].mean() < 0.25 * one["null"].mean()


def test_within_over_between_by_all_pairs():
    objects = objects_of({"train": 90}, objects=1, slots=2, levels=2, seed=4)
    supports, rng = Supports(objects), np.random.default_rng(0)
    rows = np.arange(90)
    classes, slot = supports.classes, objects.slot[:, 0]
    codes = rng.standard_normal((90, 3)) + 2.0 * rng.standard_normal((len(supports.sizes), 3))[classes]
    train = codes + rng.standard_normal((90, 3))
    found = within_between(train, codes, supports, rows)
    z = standardise(train, codes)[1]
    z = z - np.stack([z[slot == s].mean(0) for s in slot])
    kept = [c for c in range(len(supports.sizes)) if supports.sizes[c] > 1]
    within = np.mean([np.mean(pdist(z[classes == c]) ** 2) for c in kept])
    between = np.mean(pdist(np.stack([z[classes == c].mean(0) for c in kept])) ** 2)
    assert found.ratio == pytest.approx(within / between)
    assert found.ratio < 1
    apart = codes + 3.0 * slot[:, None]  # a colour that a code shows is no distance between physics
    assert within_between(train, apart, supports, rows).ratio == pytest.approx(found.ratio)


def test_extrapolations_in_closed_form():
    objects = objects_of({"train": 3, "validation": 2}, objects=1, slots=1)
    time, speed = torch.arange(7.0).view(1, 7, 1, 1), torch.arange(1.0, 6.0).view(5, 1, 1, 1)
    paths = (speed * time).expand(5, 7, 1, 3)
    asked = Queries(paths[:, :3], paths[:, 3:], torch.from_numpy(objects.seen), torch.from_numpy(objects.kind))
    found = extrapolations(asked, np.array([3, 4]), np.array([0, 1, 2]), 2)
    squares = np.mean(np.arange(1, 5) ** 2)
    assert found["velocity"] == pytest.approx([0, 0], abs=1e-9)
    assert found["rest"] == pytest.approx([16 * squares, 25 * squares])
    frames = np.mean(np.arange(3, 7) ** 2)
    assert found["mean"] == pytest.approx([(4 - 2) ** 2 * frames, (5 - 2) ** 2 * frames])


def test_the_null_of_a_source_may_be_the_mean_of_a_slot_and_kind():
    objects = objects_of({"train": 60, "validation": 20}, kinds=2, absent=True)
    encoded = noisy(objects)
    null = class_means(encoded, objects).null
    for e, o in ((0, 0), (3, 0), (70, 1)):
        alike = np.asarray((objects.slot == objects.slot[e, o]) & (objects.kind == objects.kind[e, o]) & objects.seen)
        alike &= np.arange(80)[:, None] < 60
        torch.testing.assert_close(null[e, o], encoded.memory[torch.from_numpy(alike)].mean(0))
    assert not null[~torch.from_numpy(objects.seen)].any()
    kind = np.array(objects.kind)
    kind[70, 0] = 3
    with pytest.raises(ValueError, match=f"no training object has the slot {objects.slot[70, 0]} and the kind 3"):
        class_means(encoded, objects._replace(kind=kind))


def test_all_of_it_on_a_split_that_was_not_selected_on(scene: Scene):
    objects: Objects = scene.objects._replace(split=np.where(np.arange(240) < 200, scene.objects.split, "test"))
    supports = Supports(objects)
    reader: Reader = fit_reader(scene.encoded, scene.asked, supports, replace(SMALL, epochs=2), seed=0)
    found: Evaluation = evaluate(reader, scene.encoded, scene.asked, supports, split="test", penalties=(1.0,))
    rows = found.risks.recipients
    assert set(objects.split[rows]) == {"test"}
    matched = errors(reader.head, scene.encoded, scene.asked, rows, torch.from_numpy(supports.matched(3, seed=0)))
    assert np.array_equal(found.risks.errors["matched"], matched)
    assert {len(e) for e in found.baselines.values()} == {len(rows)}
    assert found.r2.keys() == found.shuffled.keys() == found.ratio.keys() == {"U", "S", "M"}
    assert found.epoch == reader.epoch


def test_encoded_is_unmoved(scene: Scene):
    """Measuring changes neither the source's arrays nor the head."""
    before = [x.clone() for x in (scene.encoded.memory, scene.encoded.query, *scene.reader.head.state_dict().values())]
    evaluate(*scene.all)
    after: Any = (scene.encoded.memory, scene.encoded.query, *scene.reader.head.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert isinstance(scene.encoded, Encoded)
