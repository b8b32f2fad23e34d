"""Windows of scenes and batches of them against explicit loops over the bank."""

from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train.robots.scene_pairs import ScenePairs, before, random_groups
from sprii_train.robots.scenes import SceneReader

H, AHEAD = 24, (1, 4, 16)


@pytest.fixture(scope="module")
def reader(scene_bank: Store) -> SceneReader:
    return SceneReader(scene_bank, H, AHEAD, image=16)


def whole(store: Store, name: str, episodes: Any) -> np.ndarray:
    return store.windows(name, np.atleast_1d(episodes), np.zeros(np.size(episodes), np.int64), 72)


def test_windows_are_those_of_the_bank(scene_bank: Store, reader: SceneReader):
    train, table = scene_bank.split("train"), scene_bank.split("test")
    told = {name: whole(scene_bank, name, train["episode"]) for name in ("force", "tcp", "gripper", "action", "frames")}
    flat = {name: values.reshape(-1, values.shape[-1]).astype(np.float64) for name, values in told.items()}
    scales = {name: np.where(values.std(0) == 0, 1.0, values.std(0)) for name, values in flat.items()}
    units = {name: (values.mean(0), scales[name]) for name, values in flat.items()}
    episodes, starts = table["episode"][[0, 3, 5]], np.array([0, 7, 32])
    found = reader.read(episodes, starts)
    for i, (episode, start) in enumerate(zip(episodes, starts, strict=True)):
        own = {name: whole(scene_bank, name, episode)[0] for name in told}
        for name, part in (("force", slice(0, 6)), ("tcp", slice(6, 13)), ("gripper", slice(13, 14))):
            scaled = (own[name] - units[name][0]) / units[name][1]
            np.testing.assert_allclose(
                found.observations["sensors"][i, :, part], scaled[start : start + H], atol=2e-4, rtol=1e-4
            )
            ahead = scaled[[start + H - 1 + h for h in AHEAD]]
            np.testing.assert_allclose(found.future_observations["sensors"][i, :, part], ahead, atol=2e-4, rtol=1e-4)
        commands = (own["action"] - units["action"][0]) / units["action"][1]
        np.testing.assert_allclose(found.actions[i], commands[start : start + H - 1], atol=1e-4)
        now = start + H - 1
        np.testing.assert_allclose(found.future_actions[i], commands[now : now + 16], atol=1e-4)
        frames = own["frames"]
        np.testing.assert_array_equal(found.observations["frames"][i, 0], frames[max(start - 1, 0)])
        np.testing.assert_array_equal(found.observations["frames"][i, 1:], frames[start : start + H])
        for k, h in enumerate(AHEAD):
            np.testing.assert_array_equal(found.future_observations["frames"][i, k], frames[[now + h - 1, now + h]])
    grey = told["frames"] / 255.0  # 40 scenes: fewer than are looked at
    difference = np.diff(grey, axis=1, prepend=grey[:, :1])
    mean, sd = reader.picture_statistics()
    np.testing.assert_allclose(mean, [grey.mean(), difference.mean()], atol=1e-6)
    np.testing.assert_allclose(sd, [grey.std(), difference.std()], rtol=1e-5)


def test_a_reader_of_other_pictures_is_refused(scene_bank: Store):
    with pytest.raises(ValueError, match=r"image is 96; legal: 0, or 16, the side of the pictures of"):
        SceneReader(scene_bank, H, AHEAD, image=96)
    assert "frames" not in SceneReader(scene_bank, H, AHEAD, image=0).read(np.array([0]), np.array([0])).observations


@pytest.mark.parametrize("donors", ["matched", "own", "random"])
def test_who_is_whose_donor_and_when(scene_bank: Store, reader: SceneReader, donors: str):
    table = scene_bank.split("train")
    pairs = ScenePairs(reader, table, donors=donors, pairs=24, seed=5)
    for step in range(20):
        donor, earlier, query, start = pairs.draw(step)
        tasks, counts = np.unique(table["system"][query], return_counts=True)
        assert len(tasks) == len(np.unique(table["system"]))
        assert counts.max() - counts.min() <= 1
        assert ((start >= H) & (start <= 72 - H - 16)).all()
        for d, e, q, s in zip(donor, earlier, query, start, strict=True):
            assert e == s - H
            if donors == "own":
                assert d == q
                assert e + H <= s  # which do not overlap
            else:
                assert d != q
                same = table["system"][d] == table["system"][q]
                assert same == (donors == "matched")
                assert pairs.group[d] == pairs.group[q]
        again = ScenePairs(reader, table, donors="matched", pairs=24, seed=5).draw(step)
        np.testing.assert_array_equal(again[2:], (query, start))  # the same queries, whoever the donors are
    windows = pairs(3)
    donor, earlier, query, start = pairs.draw(3)
    expected = reader.read(table["episode"][np.concatenate([donor, query])], np.concatenate([earlier, start]))
    torch.testing.assert_close(windows._asdict(), expected._asdict())
    parts = [pairs.shard(rank, 2)(3).actions for rank in range(2)]
    halves = [torch.cat([part[:12] for part in parts]), torch.cat([part[12:] for part in parts])]
    torch.testing.assert_close(torch.cat(halves), windows.actions)


def test_a_joint_context_gets_queries_that_hold_their_donors(scene_bank: Store, reader: SceneReader):
    table = scene_bank.split("train")
    plain, joint = (ScenePairs(reader, table, pairs=8, seed=1, joint=joint)(4) for joint in (False, True))
    assert len(joint.actions) == 8
    torch.testing.assert_close(joint.actions, plain.actions[8:])
    torch.testing.assert_close(joint.observations["donor_actions"], plain.actions[:8])
    torch.testing.assert_close(joint.observations["donor"]["sensors"], plain.observations["sensors"][:8])


def test_every_scene_is_a_query_and_a_donor(scene_bank: Store, reader: SceneReader):
    pairs = ScenePairs(reader, scene_bank.split("train"), pairs=48, seed=0)
    drawn = [pairs.draw(step) for step in range(40)]
    for column in (0, 2):
        counts = np.bincount(np.concatenate([each[column] for each in drawn]), minlength=40)
        assert counts.min() > 0.4 * counts.mean()
    starts = np.concatenate([each[3] for each in drawn])
    assert set(starts.tolist()) == set(range(H, 72 - H - 16 + 1))


@pytest.mark.parametrize("sizes", [(4,) * 9, (5, 4, 7, 6, 4, 12), (3, 3)])
def test_random_groups_are_balanced_and_mix_tasks(sizes: tuple[int, ...]):
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    group = random_groups(tasks, 3)
    counts = np.bincount(group, minlength=len(sizes))
    assert counts.sum() == sum(sizes)
    assert counts.max() - counts.min() <= 1
    for task, size in enumerate(sizes):
        assert np.bincount(group[tasks == task]).max() == -(-size // len(sizes))  # apart, as far as groups reach
    assert not np.array_equal(group, random_groups(tasks, 4)) or len(sizes) == 2


def test_donors_in_short_scenes_begin_sooner():
    np.testing.assert_array_equal(before(np.array([30, 60]), np.array([72, 64]), H, 16), [6, 24])


def test_scenes_that_are_too_short_are_refused(scene_bank: Store, reader: SceneReader):
    table = scene_bank.split("train")
    columns = {name: table[name].copy() for name in ("episode", "system", "length")}
    columns["length"][2] = 63
    with pytest.raises(ValueError, match=rf"episode {table['episode'][2]} has 63 frames; legal: 64 or more"):
        ScenePairs(reader, EpisodeTable(columns))
    alone = table.select(np.isin(np.arange(len(table)), [0, 1, 2, 3, 4]))
    with pytest.raises(ValueError, match=r"groups of matched donors have one scene; legal: two or more in each"):
        ScenePairs(reader, alone)
    with pytest.raises(ValueError, match=r"donors is 'wrong'; legal: matched, own, random"):
        ScenePairs(reader, table, donors="wrong")
