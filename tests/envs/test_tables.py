"""Tables with a step a row: whoever holds them, the store is that of the same rows."""

from typing import Any

import numpy as np
import pytest

from sprii_envs.banks import StoreError, from_pandas
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler

pandas = pytest.importorskip("pandas")

LENGTHS = (4, 6, 5, 4)
NUMBERS = np.random.default_rng(0).random((sum(LENGTHS), 3))


def columns() -> dict[str, list[Any]]:
    """Steps of four episodes of two systems."""
    episode = [e for e, n in enumerate(LENGTHS) for _ in range(n)]
    return {
        "episode_index": episode,
        "frame_index": [t for n in LENGTHS for t in range(n)],
        "system": ["ab"[e % 2] for e in episode],
        "split": ["train" if e % 2 == 0 else "test" for e in episode],
        "mass": [1.0 + e % 2 for e in episode],
        "x": NUMBERS.tolist(),
        "u": NUMBERS[:, 0].tolist(),
        "ok": (NUMBERS[:, 1] > 0.5).tolist(),
    }


def frame(given: dict[str, list[Any]]) -> Any:
    return pandas.DataFrame(given)


def arrow(given: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pyarrow").table(given)


def dataset(given: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(given)


def shuffled(given: dict[str, list[Any]]) -> dict[str, list[Any]]:
    order = np.random.default_rng(1).permutation(sum(LENGTHS))
    return {name: [values[i] for i in order] for name, values in given.items()}


MAKERS = pytest.mark.parametrize("make", [frame, arrow, dataset])


@MAKERS
@pytest.mark.parametrize("mixed", [False, True])
def test_the_store_of_a_table(make, mixed):
    given = columns()
    store = from_pandas(make(shuffled(given) if mixed else given), labels=["mass"], sealed=("test",))
    assert store.columns == ("x", "u", "ok")
    assert (set(store.splits), store.sealed_splits) == ({"train", "test"}, ("test",))
    table, ends = store.table, np.cumsum(LENGTHS)
    for row, e in enumerate(table["episode"]):
        assert (table["system"][row], table["length"][row], table["mass"][row]) == ("ab"[e % 2], LENGTHS[e], 1 + e % 2)
        rows = slice(ends[e] - LENGTHS[e], ends[e])
        np.testing.assert_array_equal(store.windows("x", [e], [0], LENGTHS[e])[0], NUMBERS[rows])
        np.testing.assert_array_equal(store.windows("u", [e], [1], 2)[0], NUMBERS[rows, 0][1:3])
        np.testing.assert_array_equal(store.windows("ok", [e], [0], LENGTHS[e])[0], NUMBERS[rows, 1] > 0.5)
    if not mixed:
        assert table["episode"].tolist() == [0, 1, 2, 3]
    train = store.split("train")
    windows = WindowSampler(train, 2, 1).batch(0, PairSampler(train, SAME_SYSTEM).batch(0, 8))
    assert store.read(windows, "x", 2)[0].shape == (8, 2, 3)


def test_all_kinds_of_table_are_one_store():
    stores = [from_pandas(make(columns()), labels=["mass"]) for make in (frame, arrow, dataset)]
    assert len({store.fingerprint for store in stores}) == 1


@MAKERS
def test_rows_without_frames_keep_their_order(make):
    given = columns()
    del given["frame_index"]
    mixed = [row for e in (2, 0) for row in range(19) if given["episode_index"][row] == e]
    store = from_pandas(make({name: [values[i] for i in mixed] for name, values in given.items()}), frame=None)
    assert store.table["episode"].tolist() == [2, 0]
    np.testing.assert_array_equal(store.windows("x", [0], [0], 4)[0], NUMBERS[:4])


@MAKERS
def test_other_names_and_labels_that_lie_elsewhere(make):
    given = columns()
    for name in ("system", "split", "mass"):
        del given[name]
    given["run"] = [f"run{e}" for e in given.pop("episode_index")]
    own = EpisodeTable(
        {"episode": [3, 2, 1, 0], "system": [1, 0, 1, 0], "length": [1, 1, 1, 1], "mass": [4.0, 3.0, 2.0, 1.0]}
    )
    labels = {"episode": [f"run{e}" for e in own["episode"]], "system": own["system"], "mass": own["mass"]}
    store = from_pandas(make(given), episode="run", labels=labels, columns=["x"])
    assert store.table["episode_id"].tolist() == ["run0", "run1", "run2", "run3"]
    assert store.table["system"].tolist() == [0, 1, 0, 1]
    assert store.table["mass"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (store.columns, store.splits) == (("x",), ("train",))
    twice = labels | {"episode": ["run3", "run2", "run1", "run3"]}
    with pytest.raises(StoreError, match="labels name the episode 'run3' more than once"):
        from_pandas(make(given), episode="run", labels=twice, columns=["x"])
    with pytest.raises(StoreError, match="labels have 4 episodes and 1 values of 'system'"):
        from_pandas(make(given), episode="run", labels=labels | {"system": [0]}, columns=["x"])


def test_pictures_of_datasets():
    datasets, image = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(2).integers(0, 255, (6, 8, 10, 3), dtype=np.uint8)
    given = {
        "episode_index": [0, 0, 0, 1, 1, 1],
        "frame_index": [0, 1, 2, 0, 1, 2],
        "system": [7, 7, 7, 8, 8, 8],
        "picture": [image.fromarray(each) for each in pixels],
    }
    features = {n: datasets.Value("int64") for n in ("episode_index", "frame_index", "system")}
    data = datasets.Dataset.from_dict(given, features=datasets.Features(features | {"picture": datasets.Image()}))
    store = from_pandas(data)
    np.testing.assert_array_equal(store.windows("picture", [1], [0], 3)[0], pixels[3:])


def changed(**values: Any) -> dict[str, list[Any]]:
    return columns() | values


@MAKERS
@pytest.mark.parametrize(
    ("given", "how", "said"),
    [
        (changed(frame_index=[0, 1, 2, 2, *columns()["frame_index"][4:]]), {}, "in episode 0, frame 2 follows 2"),
        (changed(frame_index=[0, 1, 2, 4, *columns()["frame_index"][4:]]), {}, "in episode 0, frame 4 follows 2"),
        (changed(frame_index=[0.5] * 19), {}, "frames are float64; legal: integers, or frame=None"),
        (changed(mass=NUMBERS[:, 2].tolist()), {"labels": ["mass"]}, "'mass' varies in episode 0, so it is no label"),
        (changed(note=[str(i) for i in range(19)]), {}, "'note' varies in episode 0"),
        (columns(), {"system": "robot"}, "has no column 'robot'; columns: episode_index"),
        (columns(), {"columns": ["y"]}, "has no column 'y'"),
        (columns(), {"labels": ["colour"]}, "has no column 'colour'"),
        (columns(), {"labels": {"mass": [1]}}, "need a column 'episode'; given: mass"),
        (columns(), {"labels": {"episode": [0, 1, 2], "mass": [1, 1, 1]}}, "no labels of the episodes 3"),
        (columns(), {"sealed": ("final",)}, "no split 'final' to seal"),
        (columns(), {"columns": ["split"]}, "holds"),
    ],
)
def test_what_is_no_table_of_steps(make, given, how, said):
    with pytest.raises(StoreError, match=said):
        from_pandas(make(given), **how)


def test_what_is_wrong_with_a_table_is_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"episode_index": [*"aabb"], "frame_index": [0, 1] * 2, "system": [0, 0, 1, 1], "x": [1.0, np.nan, 3.0, 4.0]}
    )
    mass = frame.assign(mass=[0.5, 0.5, np.nan, np.nan], force=[[0.0, 1.0]] * 4)
    for data, how, said in (
        (frame, {"labels": "x"}, r"labels is 'x'; legal: a list of columns, such as \['x'\]"),
        (mass[:0], {}, "table has no rows"),
        (mass, {"labels": ["mass"]}, "the label 'mass' of episode b is nan; legal: a finite number, text"),
        (frame, {"labels": {"episode": ["a", "b"], "m": [np.nan, 1.0]}}, "the label 'm' of episode a is nan"),
        (frame.assign(episode_index=["a", "a", None, None]), {}, "column 'episode_index' must hold"),
    ):
        with pytest.raises(StoreError, match=said):
            from_pandas(data, **how)
    store = from_pandas(frame)
    np.testing.assert_array_equal(store.windows("x", [0], [0], 2), [[1.0, np.nan]])  # a stream may lack numbers
    with pytest.raises(StoreError, match=r"must be integers.*; its texts are numbered: windows takes the table's 'epi"):
        store.windows("x", ["a"], [0], 1)
    datasets = pytest.importorskip("datasets")
    several = datasets.DatasetDict({"fit": datasets.Dataset.from_pandas(frame)})
    with pytest.raises(TypeError, match="needs one table, got a DatasetDict of 'fit'; give one of them"):
        from_pandas(several)


def test_entries_of_several_shapes():
    given = changed(x=[[0.0] * (1 + i % 2) for i in range(19)])
    with pytest.raises(StoreError, match="has entries of several shapes"):
        from_pandas(frame(given))
    for make in (arrow, dataset):
        with pytest.raises(StoreError, match="has lists of 1 to 2 entries; legal: of one length"):
            from_pandas(make(given))
    missing = changed(u=[None, *columns()["u"][1:]])
    with pytest.raises(StoreError, match="'u' has 1 missing values"):
        from_pandas(arrow(missing))
    with pytest.raises(TypeError, match=r"needs a table with .columns or .column_names, got list"):
        from_pandas([1, 2])


@MAKERS
def test_tables_with_a_row_an_episode(make):
    given = {"episode": [4, 5], "system": ["a", "b"], "length": [3, 4], "mass": [0.5, 1.0]}
    assert EpisodeTable.from_pandas(make(given)).fingerprint() == EpisodeTable(given).fingerprint()


def test_a_length_is_the_episodes_and_one_column_is_the_system():
    given = columns()
    robots = ["rs"[int(system == "a")] for system in given["system"]]
    with pytest.raises(StoreError, match="both system='robot' and the column 'system'"):
        from_pandas(frame({**given, "robot": robots}), system="robot", labels=["mass"])
    rod = [0.5 for _ in given["system"]]
    for made in (
        lambda: from_pandas(frame({**given, "length": rod}), labels=["mass", "length"]),
        lambda: from_pandas(frame(given), labels={"episode": [0, 1, 2, 3], "length": [0.5] * 4}),
    ):
        with pytest.raises(StoreError, match=r"label 'length' of episode 0 is 0\.5, but the table's length is its 4"):
            made()
    store = from_pandas(frame(given), labels={"episode": [3, 2, 1, 0], "length": [4, 5, 6, 4], "rod": [1.0] * 4})
    assert store.table["length"].tolist() == list(LENGTHS)


def test_labels_that_are_missing_or_have_an_index_of_their_own():
    nan = float("nan")
    for system in (["a", nan, nan, "b"], [1, "1", "b", "c"], [True, 2, 1, 1]):
        with pytest.raises(StoreError, match="system"):
            from_pandas(frame(columns()), labels={"episode": [0, 1, 2, 3], "system": system})
    given = pandas.DataFrame({"episode": [3, 2, 1, 0], "rod": [4.0, 3.0, 2.0, 1.0]})
    for labels in (given, given.set_index("episode")):
        assert from_pandas(frame(columns()), labels=labels).table["rod"].tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(StoreError, match="the labels' index is none of episodes"):
        from_pandas(frame(columns()), labels=given.set_index("episode").rename_axis("number"))
