import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from relation_tables import factorial, systems, tables

from sprii_envs.relations import Derangement, EpisodeTable, Mismatch, Mixture, PairSampler, Relation


def columns(**changed):
    base = {"episode": [7, -2, 5], "system": ["a", "a", "b"], "rollout": [0, 1, 0], "length": [64, 64, 30]}
    return {name: values for name, values in (base | changed).items() if values is not None}


def test_columns_are_typed_copies_that_cannot_change():
    source = np.array([0.5, 1.0, 2.0], np.float32)
    table = EpisodeTable(columns(drag=source, level=np.array([1, 2, 3], np.uint8), wet=[True, False, True]))
    source[:] = 9
    assert table["drag"].tolist() == [0.5, 1.0, 2.0]
    assert [table[c].dtype for c in ("episode", "drag", "level", "wet")] == [
        np.int64,
        np.float64,
        np.int64,
        bool,
    ]
    assert len(table) == 3
    assert "drag" in table
    assert "mass" not in table
    assert table.columns == ("episode", "system", "rollout", "length", "drag", "level", "wet")
    with pytest.raises(ValueError, match="read-only"):
        table["drag"][0] = 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"length": None}, r"lacks the column 'length'; required are 'episode', 'system', 'length'"),
        ({"system": None, "length": None}, r"lacks the columns 'system', 'length'"),
        ({"episode": ["a", "b", "a"]}, r"'episode' must hold unique ids; 1 occur more than once: a"),
        ({"episode": ["a", "b", "c"], "episode_id": [1, 2, 3]}, r"'episode_id' is kept for"),
        ({"drag": [1.0, 2.0]}, r"'drag' has 2 rows, 'episode' has 3"),
        ({"episode": [4, 4, 5]}, r"'episode' must hold unique ids; 1 occur more than once: 4"),
        ({"episode": [4.0, 3.0, 5.0]}, r"'episode' must hold integers, got float64"),
        ({"length": [64, 0, 3]}, r"'length' must be at least 1 observation; not so for episodes -2"),
        ({"system": [1.0, 2.0, 2.0]}, r"'system' must hold integers or strings, got float64"),
        ({"system": ["a", None, "b"]}, r"'system' must hold .* row 1 holds None"),
        ({"drag": [[1.0], [2.0], [3.0]]}, r"'drag' must be 1-D, one value per episode, got shape \(3, 1\)"),
        ({"drag": [[1.0], [2.0, 3.0], [3.0]]}, r"'drag' is not a 1-D array"),
        ({"drag": [1j, 2.0, 3.0]}, r"'drag' must hold integers, floats, booleans or strings, got complex128"),
        ({"when": np.zeros(3, "datetime64[s]")}, r"'when' must hold"),
        (
            {"big": np.array([1, 2, 2**64 - 1], np.uint64)},
            r"'big' holds 18446744073709551615, which exceeds int64",
        ),
        ({"": [1, 2, 3]}, r"column names must be non-empty strings"),
        ({k: [] for k in ("episode", "system", "rollout", "length")}, r"at least one episode, got none"),
    ],
)
def test_bad_input_is_one_error_that_names_the_column(changed, message):
    with pytest.raises(ValueError, match=message):
        EpisodeTable(columns(**changed))


def test_unknown_column_suggests_a_near_one():
    with pytest.raises(ValueError, match=r"no column 'sytem'.*did you mean 'system'\?"):
        EpisodeTable(columns())["sytem"]


def test_nan_is_a_value_but_not_a_label():
    table = EpisodeTable(columns(drag=[np.nan, 1.0, np.nan]))
    assert np.isnan(table["drag"]).sum() == 2
    with pytest.raises(ValueError, match=r"'drag' is used as a label but is NaN for 2 episodes: 7, 5"):
        table.codes("drag")


def test_select_remembers_the_rows_of_the_first_table():
    table = systems([3, 3, 2], split=["train"] * 6 + ["test"] * 2)
    train = table.select("train")
    assert train.rows.tolist() == [0, 1, 2, 3, 4, 5]
    late = train.select(train["system"] == 1).select(np.array([2, 0]))
    assert late.rows.tolist() == [5, 3]
    assert late["episode"].tolist() == table["episode"][late.rows].tolist()
    numbered = systems([2, 1], split=[0, 0, 1])
    assert numbered.select("1").rows.tolist() == [2]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("tset", "no episode has split 'tset'; splits are test, train"),
        (np.array([True, False]), r"mask has shape \(2,\), the table 3 rows"),
        (np.zeros(3, bool), "the selection is empty"),
        (np.array([0, 3]), r"must lie in \[0, 3\), got 0..3"),
        (np.array([-1]), "must lie in"),
        (np.array([1, 1]), "must be distinct"),
        (np.array([0.0, 1.0]), "a boolean mask or 1-D row numbers"),
    ],
)
def test_bad_selections(which, message):
    with pytest.raises(ValueError, match=message):
        EpisodeTable(columns(split=["train", "train", "test"])).select(which)


class Series:
    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


class Frame(dict):
    columns = property(lambda self: list(self))


def test_from_frame_reads_what_pandas_hands_over():
    frame = Frame(
        {
            "episode": Series(np.array([1, 2])),
            "system": Series(np.array(["a", "b"], object)),
            "rollout": Series(np.array([0, 0], object)),
            "length": Series(np.array([64, 64])),
            "drag": Series(np.array([1, 2.5], object)),
            "wet": Series(np.array([True, False], object)),
        }
    )
    table = EpisodeTable.from_frame(frame)
    assert [table[c].dtype.kind for c in frame] == list("iUiifb")
    with pytest.raises(TypeError, match="from_frame needs"):
        EpisodeTable.from_frame([1, 2])
    frame["wet"] = Series(np.array([True, 1], object))
    with pytest.raises(ValueError, match="'wet' must hold"):
        EpisodeTable.from_frame(frame)


def test_save_and_load_round_trip(tmp_path):
    part = factorial().select(np.arange(5, 20))
    part.save(tmp_path / "table.npz")
    back = EpisodeTable.load(tmp_path / "table.npz")
    assert back.fingerprint() == part.fingerprint()
    assert (back.rows == part.rows).all()
    for name in part.columns:
        np.testing.assert_array_equal(back[name], part[name])
        assert back[name].dtype == part[name].dtype
    assert [p.name for p in tmp_path.iterdir()] == ["table.npz"]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "table.npz"
    factorial().save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        systems([2]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", float("nan"), "b"], r"of one type; row 1 holds nan \(float\)"),
        (["1", 1, "2"], r"row 1 holds 1 \(int\)"),
        ([True, 2, 3], r"row 0 holds True \(bool\)"),
        ([np.bool_(True), 2, 3], r"row 0 holds True \(bool\)"),
        ([2**63, -1, 0], "holds 9223372036854775808, which exceeds int64"),
    ],
)
def test_a_plain_list_is_no_laxer_than_an_array_of_objects(labels, message):
    for same in (labels, tuple(labels), np.array(labels, object)):
        with pytest.raises(ValueError, match=f"column 'task' .*{message}"):
            EpisodeTable(columns(task=same))


def test_plain_lists_of_one_type_are_as_numpy_has_them():
    for labels in ([1, 2, 3], [1, 2.5, 3], ["a", "bc", "a"], [True, False, True], list(np.arange(3.0)), range(3)):
        column = EpisodeTable(columns(task=labels))["task"]
        assert column.tolist() == list(labels)
        assert column.dtype == np.asarray(labels).dtype


def test_rows_have_the_fingerprint_of_their_episodes_in_order():
    table = systems([2, 2])
    assert table.rows_fingerprint() == systems([2, 2], length=9).rows_fingerprint() == table.rows_fingerprint()
    others = [table.select(order).rows_fingerprint() for order in ([0, 1, 3, 2], [0, 1, 2], [1, 2, 3])]
    assert len({table.rows_fingerprint(), *others}) == 4


def test_a_numpy_string_is_a_name_like_any_other():
    table, name = systems([2, 2], task=[0, 0, 1, 1]), np.str_("task")
    other = EpisodeTable({np.str_(c): table[c] for c in table.columns})
    assert other.fingerprint() == table.fingerprint() == table.fingerprint(map(np.str_, table.columns))
    assert repr(other) == repr(table)
    arms = [
        PairSampler(t, Relation(shared=(by,)), Mixture(0.5, wrong=wrong), distinct=by).fingerprint()
        for t, by in ((table, "task"), (other, name))
        for wrong in (Derangement(by), Mismatch(by))
    ]
    assert arms[:2] == arms[2:]


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "table.npz"
    factorial().save(path)
    whole = path.read_bytes()
    for bad in (b"", b"no zip", whole[: len(whole) // 2], whole[:300] + b"\xff" * 40 + whole[340:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"table\.npz is not an episode table or is damaged"):
            EpisodeTable.load(path)
    np.savez(path, a=np.zeros(3))
    with pytest.raises(ValueError, match=r"table\.npz is not an episode table"):
        EpisodeTable.load(path)
    encrypted, unknown = bytearray(whole), bytearray(whole)
    for start in (i for i in range(len(whole)) if whole[i : i + 4] in (b"PK\x03\x04", b"PK\x01\x02")):
        at = start + (6 if whole[start + 2] == 3 else 8)
        encrypted[at] |= 1  # the zip says that it is encrypted, or of an unknown compression
        unknown[at + 2] = 99
    for bad in (encrypted, unknown):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"table\.npz is not an episode table or is damaged"):
            EpisodeTable.load(path)
    arrays: dict[str, Any] = {f"column/{name}": factorial()[name] for name in factorial().columns} | {
        "format": np.int64(1)
    }
    rows = np.arange(len(factorial()))
    lost = {name: values for name, values in arrays.items() if name != "column/system"}
    for bad in (lost | {"rows": rows}, arrays | {"rows": rows[:3]}, arrays | {"rows": rows * 1.0}):
        np.savez(path, allow_pickle=False, **bad)
        with pytest.raises(ValueError, match=r"table\.npz is not an episode table or is damaged"):
            EpisodeTable.load(path)
    np.save(tmp_path / "y.npy", rows)
    with pytest.raises(ValueError, match=r"y\.npy is not an episode table or is damaged"):
        EpisodeTable.load(tmp_path / "y.npy")
    np.savez(path, format=np.int64(99), rows=np.arange(3))
    with pytest.raises(ValueError, match="format 99; this version reads 1"):
        EpisodeTable.load(path)
    with pytest.raises(FileNotFoundError):
        EpisodeTable.load(tmp_path / "none.npz")


@settings(max_examples=40, deadline=None)
@given(tables())
def test_fingerprint_ignores_row_and_column_order_and_nothing_else(table):
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(table))
    shuffled = EpisodeTable({name: table[name][rows] for name in reversed(table.columns)})
    assert shuffled.fingerprint() == table.fingerprint()
    changed = {name: table[name] for name in table.columns} | {"drag": table["drag"] + (rows == 0)}
    assert EpisodeTable(changed).fingerprint() != table.fingerprint()
    assert EpisodeTable(changed).fingerprint(["system", "mass"]) == table.fingerprint(["system", "mass"])
    assert pickle.loads(pickle.dumps(table)).fingerprint() == table.fingerprint()


def test_fingerprint_ignores_the_width_of_strings():
    wide = EpisodeTable(columns(system=np.array(["a", "a", "b"], "<U50")))
    assert wide.fingerprint() == EpisodeTable(columns()).fingerprint()
    part = EpisodeTable(columns(task=["a", "b", "a long one"])).select(np.array([0, 1]))
    alone = EpisodeTable({name: part[name] for name in part.columns})
    assert part.fingerprint() == alone.fingerprint()


def test_fingerprint_is_pinned():
    # A change of this value orphans every saved sampler state: raise the format and say so in the changelog.
    assert EpisodeTable(columns(drag=[0.5, 1.0, -0.0])).fingerprint()[:16] == "e370a888f154e8e1"


def test_importing_the_package_brings_no_torch():
    import subprocess

    code = "import sys, sprii_envs.relations; assert not {'torch', 'pandas', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Other people's tables


def test_rollouts_are_counted_where_they_are_missing():
    table = EpisodeTable(columns(rollout=None, episode=[3, 1, 2, 9], system=["b", "a", "b", "b"], length=[9] * 4))
    assert table["rollout"].tolist() == [0, 0, 1, 2]
    assert table.budget(1)["episode"].tolist() == [3, 1]


def test_episodes_of_names_are_numbered_and_keep_them():
    table = EpisodeTable(columns(episode=["x", "z", "y"]))
    assert table["episode"].tolist() == [0, 1, 2]
    assert table["episode_id"].tolist() == ["x", "z", "y"]
    assert EpisodeTable.concat([table]).fingerprint() == table.fingerprint()


def test_concat_keeps_ids_that_differ_and_numbers_ids_that_do_not():
    first, second = EpisodeTable(columns(drag=[1.0, 2.0, 3.0])), EpisodeTable(columns(episode=[1, 2, 3]))
    both = EpisodeTable.concat([first, second])
    assert both["episode"].tolist() == [7, -2, 5, 1, 2, 3]
    assert "drag" not in both
    assert both.rows.tolist() == list(range(6))
    assert EpisodeTable.concat([first, first])["episode"].tolist() == list(range(6))
    with pytest.raises(ValueError, match=r"'system' holds strings in one table"):
        EpisodeTable.concat([first, EpisodeTable(columns(system=[1, 1, 2]))])
    with pytest.raises(ValueError, match="needs a table at least"):
        EpisodeTable.concat([])


def test_a_frame_of_pandas_comes_back_as_it_went():
    pandas = pytest.importorskip("pandas")
    table = EpisodeTable(columns(drag=[0.1, 0.2, 0.3], wet=[True, False, True]))
    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert EpisodeTable.from_pandas(frame).fingerprint() == table.fingerprint()
    frame.loc[0, "drag"] = 9.0
    assert table["drag"][0] == 0.1


def test_episodes_that_are_too_short_are_left_out_by_name():
    table = EpisodeTable(columns())
    kept, short = table.without_short(40)
    assert (kept["episode"].tolist(), kept.rows.tolist(), short.tolist()) == ([7, -2], [0, 1], [5])
    assert table.without_short(30)[0] is table
    with pytest.raises(ValueError, match="no episode has 65 observations; the longest has 64"):
        table.without_short(65)


# Rollout budgets


def test_budgets_are_nested():
    table = systems([8, 9, 8]).select(np.random.default_rng(0).permutation(25))
    whole = set(table["episode"].tolist())
    for rollouts in (8, 4, 2):
        part = table.budget(rollouts)
        expected = table["rollout"] < rollouts
        assert part["episode"].tolist() == table["episode"][expected].tolist()
        assert part.rows.tolist() == table.rows[expected].tolist()
        assert np.unique(part["system"], return_counts=True)[1].tolist() == [rollouts] * 3
        assert set(part["episode"].tolist()) < whole
        whole = set(part["episode"].tolist())


def test_a_system_with_fewer_rollouts_is_named():
    with pytest.raises(ValueError, match=r"rollouts 0 to 3 .* 1 of 3 systems .* system 1 has 2 of them .systems 1."):
        systems([4, 2, 5]).budget(4)
    columns = {"episode": range(4), "system": ["a", "a", "b", "b"], "length": [9] * 4}
    gap = EpisodeTable({**columns, "rollout": [0, 2, 0, 1]})
    with pytest.raises(ValueError, match="system a has 1 of them"):
        gap.budget(2)
    twice = EpisodeTable({**columns, "rollout": [0, 0, 0, 1]})  # two episodes of rollout 0 are not two rollouts
    with pytest.raises(ValueError, match="system a has 1 of them"):
        twice.budget(2)
    with pytest.raises(ValueError, match="the budget of rollouts is 0; legal: an integer >= 1"):
        gap.budget(0)
    half: Any = 1.5
    with pytest.raises(ValueError, match=r"the budget of rollouts is 1\.5; legal: an integer"):
        gap.budget(half)


def test_rollouts_that_are_there_twice():
    """Tables of one system joined number its rollouts anew; one made with a rollout twice has no budget."""
    each = [
        EpisodeTable({"episode": [k, k + 1], "system": ["a", "b"], "rollout": [0, 0], "length": [9, 9]}) for k in (0, 2)
    ]
    both = EpisodeTable.concat(each)
    assert both["rollout"].tolist() == [0, 0, 1, 1]
    assert both.budget(1)["episode"].tolist() == [0, 1]
    apart = EpisodeTable({"episode": [4], "system": ["c"], "rollout": [3], "length": [9]})
    assert EpisodeTable.concat([each[0], apart])["rollout"].tolist() == [0, 0, 3]
    twice = EpisodeTable({"episode": [0, 1, 2], "system": ["a"] * 3, "rollout": [0, 0, 1], "length": [9] * 3})
    with pytest.raises(ValueError, match="system a has rollout 0 more than once"):
        twice.budget(2)
    assert EpisodeTable.concat([twice])["rollout"].tolist() == [0, 0, 1]


def test_copies_are_as_immutable():
    table = EpisodeTable({"episode": [0, 1], "system": ["a", "b"], "length": [9, 9]})
    for made in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table), copy.copy(table)):
        assert made["system"].tolist() == ["a", "b"]
        with pytest.raises(ValueError, match="read-only"):
            made["episode"][0] = 7
        with pytest.raises(ValueError, match="read-only"):
            made.rows[0] = 7
