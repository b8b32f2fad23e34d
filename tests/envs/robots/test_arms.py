"""The stand-in for RH20T: its forces obey its laws, its tasks persist, and knowing a task helps to foretell forces."""

import numpy as np
import pytest

from sprii_envs.banks.generated import build_generated
from sprii_envs.robots import arms
from sprii_envs.robots.arms import ArmsProtocol, laws, motions, pictures, users
from sprii_envs.robots.splits import split_tasks

TASKS, EACH = 60, 5
OF, EPISODE = np.repeat(np.arange(TASKS), EACH), np.tile(np.arange(EACH), TASKS)


@pytest.fixture(scope="module")
def found():
    return motions(0, OF, EPISODE)


def test_an_episode_is_its_own_whatever_is_made_with_it(found):
    rows = [7, 3, 250]
    alone = motions(0, OF[rows], EPISODE[rows])
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_array_equal(one, other[rows])
    other = motions(1, OF[rows], EPISODE[rows])
    assert abs(other.force - alone.force).mean() > 0.1
    law, whole = laws(0, [5, 2]), laws(0, np.arange(TASKS))
    np.testing.assert_array_equal(law.stiffness, whole.stiffness[[5, 2]])


def test_what_is_carried_weighs_what_its_task_says(found):
    law, checked = laws(0, OF), 0
    for row in range(0, len(OF), 3):
        height = found.object[row, :, 2]
        carried = (height > found.heights[row].max() + 0.03) & (abs(np.gradient(height)) < 0.01)
        if carried.sum() > 3:
            checked += 1
            weight = -found.force[row, carried, 2].mean()
            assert abs(weight - 9.81 * law.mass[row]) < 1.2  # a bias of 0.5, noise, and what it speeds up
    assert checked > 40


def test_pressing_follows_springs_in_a_row_and_rubbing_their_friction():
    """The greatest force of a press: arm and surface in a row, led in by a depth that users change by a fifth."""
    found, law = motions(3, OF, EPISODE), laws(3, OF)
    both = law.stiffness * 1500.0 / (law.stiffness + 1500.0)
    most = (law.depth * both).max(axis=1)
    ratio = np.quantile(found.force[..., 2], 0.97, axis=1) / most
    assert np.corrcoef(np.log(most), np.log(found.force[..., 2].max(axis=1)))[0, 1] > 0.9
    assert 0.6 < np.median(ratio) < 1.25
    normal, sideways = found.force[..., 2], np.linalg.norm(found.force[..., :2], axis=-1)
    firm = normal > 8.0
    assert (sideways[firm] <= law.friction.max(axis=1)[:, None].repeat(96, 1)[firm] * normal[firm] + 4.0).all()


def test_poses_and_grippers_are_such_as_are_recorded(found):
    quaternions = found.tcp[..., 3:]
    np.testing.assert_allclose(np.linalg.norm(quaternions, axis=-1), 1.0, atol=1e-12)
    assert ((quaternions[:, 1:] * quaternions[:, :-1]).sum(axis=-1) > 0).all()
    assert (np.linalg.norm(found.tcp[..., :3], axis=-1) < 1.5).all()
    size = laws(0, OF).size
    least = found.gripper[..., 0].min(axis=1)
    np.testing.assert_allclose(least, size, atol=1.5)
    closed = found.action[..., 0] < 80.0
    assert (found.action[closed][:, 0] == np.repeat(size - 5.0, closed.sum(axis=1))).all()
    assert (closed.sum(axis=1) > 3).all()


def test_users_differ_and_tasks_do_not_choose_them():
    who = users(0, OF, EPISODE, 8)
    assert set(who) == set(range(8))
    assert np.bincount(who).min() > len(who) / 16


def test_pictures_show_the_object_where_it_is(found):
    rows = slice(0, 6)
    some = arms.Motions(*(each[rows] for each in found))
    seen = pictures(some, laws(0, OF[rows]).places, 96)
    assert seen.shape == (6, 96, 96, 96)
    places = arms._seen(some.object, 96).astype(int)
    inside = ((places >= 2) & (places < 94)).all(axis=-1)
    assert inside.mean() > 0.95
    n, t = np.nonzero(inside)
    column, row = places[n, t].T
    assert (seen[n, t, row, column] >= 170).all()
    assert (seen > 0).mean() < 0.2


def ridge(train, test, y_train, y_test):
    """Mean square error on test rows, of a ridge fitted to the training rows."""
    a, b = (np.concatenate([x, np.ones((len(x), 1))], axis=1) for x in (train, test))
    weights = np.linalg.solve(a.T @ a + 10.0 * np.eye(a.shape[1]), a.T @ y_train)
    return float(((b @ weights - y_test) ** 2).mean())


def foretold(found, ahead):
    """Errors of force `ahead` steps later on tasks that no fit has seen: of the past alone, with a donor, with a wrong
    one; a donor tells its own forces at the same clock, and all know the clock."""
    force = (found.force - found.force.mean((0, 1))) / found.force.std((0, 1))
    low = np.concatenate([found.force, found.tcp, found.gripper], axis=-1)
    low = (low - low.mean((0, 1))) / low.std((0, 1)).clip(1e-9)
    anchors = np.arange(24, 96 - ahead)
    past = np.stack([low[:, a - 23 : a + 1 : 2].reshape(len(low), -1) for a in anchors], axis=1)
    clock = np.broadcast_to(np.eye(len(anchors)), (len(low), len(anchors), len(anchors)))
    target = force[:, anchors + ahead]

    def told(shift_tasks):
        donor = np.roll(np.roll(force.reshape(TASKS, EACH, 96, 6), 1, axis=1), shift_tasks, axis=0)
        donor = donor.reshape(len(force), 96, 6)
        return np.concatenate([past, clock, donor[:, anchors], donor[:, anchors + ahead]], axis=-1)

    train = OF < 40
    errors = []
    for inputs in (np.concatenate([past, clock], axis=-1), told(0), told(7)):
        fit, held = (inputs[rows].reshape(-1, inputs.shape[-1]) for rows in (train, ~train))
        errors.append(ridge(fit, held, target[train].reshape(-1, 6), target[~train].reshape(-1, 6)))
    return errors


@pytest.mark.parametrize("ahead", [4, 16])
def test_another_episode_of_the_task_foretells_what_the_past_does_not(found, ahead):
    alone, donor, wrong = foretold(found, ahead)
    assert donor < 0.95 * alone
    assert wrong > 0.99 * alone


def test_a_bank_has_whole_tasks_in_splits_and_the_same_bytes(tmp_path):
    small = ArmsProtocol(tasks=5, each=4, size=16, seed=2)
    one = build_generated(small, tmp_path / "a")
    other = build_generated(small, tmp_path / "b", workers=2)
    assert one.fingerprint == other.fingerprint
    assert one.origin["kind"] == "stand-in"
    splits = split_tasks([f"task_{i:04d}" for i in range(5)], 2)
    assert {*zip(one.table["system"].tolist(), one.table["split"].tolist(), strict=True)} == {*splits.items()}
    whole = motions(2, np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5))
    for name in ("force", "tcp", "gripper", "action"):
        found = one.windows(name, range(20), [0] * 20, 96)
        np.testing.assert_array_equal(found, getattr(whole, name).astype(np.float32))
    assert one.windows("frames", [3], [0], 96).max() > 150


def test_the_published_number_of_tasks():
    plan = arms.PROTOCOLS["rh20t"].plan()
    tasks = {split: {row["task"] for row in plan if row["split"] == split} for split in ("train", "validation", "test")}
    assert [len(each) for each in tasks.values()] == [74, 25, 25]
    assert len(plan) == 124 * 8


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"each": 3}, "each is 3"),
        ({"tasks": 0}, "tasks is 0"),
        ({"frames": 63}, "frames is 63"),
        ({"size": 8}, "size is"),
    ],
)
def test_values_that_no_bank_has(how, said):
    with pytest.raises(ValueError, match=f"ArmsProtocol.{said}"):
        ArmsProtocol(**how)
