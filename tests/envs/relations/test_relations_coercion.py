"""What NumPy would make into numbers without a word is refused by name."""

import numpy as np
import pytest
from relation_tables import systems

from sprii_envs.relations import (
    SAME_SYSTEM,
    Candidates,
    EpisodeTable,
    FlatPairs,
    Graph,
    PairSampler,
    WindowSampler,
    donor_bank,
    episode_runs,
    knn_graph,
)

HIDDEN = np.ma.array([0, 1, 2], mask=[False, True, False])
GOOD = {"episode": [0, 1, 2], "system": [0, 0, 1], "rollout": [0, 1, 0], "length": [64, 64, 64]}


class Tensor:
    """What a tensor that requires a gradient answers NumPy."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


STRANGE = {
    "masked": HIDDEN,
    "masked in a list": [0, np.ma.masked, 2],
    "masked among objects": np.array([0, np.ma.masked, 2], object),
    "gradient": Tensor(),
    "complex": np.array([0, 1, 2]) + 0j,
    "bytes": [b"a", b"b", b"c"],
    "times": np.array([0, 1, 2], "M8[s]"),
    "records": np.zeros(3, [("a", int)]),
    "arrays": np.array([np.zeros(2), np.zeros(3), 1], object),
    "10**40": [10**40, 1, 2],
    "none": [None, 1, 2],
    "ragged": [[1], [2, 3], 4],
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("column", ["episode", "system", "rollout", "length", "mass"])
def test_coercion_of_columns(column, name):
    with pytest.raises(ValueError, match=f"column '{column}'"):
        EpisodeTable(GOOD | {column: STRANGE[name]})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", [*STRANGE, "floats", "bools", "strings"])
def test_coercion_of_integers(name):
    more = {"floats": [0.0, 1.0, 2.0], "bools": [True, False, True], "strings": ["0", "1", "2"]}
    values = (STRANGE | more)[name]
    table = systems([2, 2], length=64)
    pairs = PairSampler(table.select([0, 1, 2]), SAME_SYSTEM, on_missing="drop")
    for use in (
        lambda: WindowSampler(values),
        lambda: WindowSampler([64] * 9).starts(values),
        lambda: Graph(values, [1, 0]),
        lambda: Graph([0, 1, 2, 3], values),
        lambda: Graph([0, 1, 2, 3], [1, 2, 0], None, values),
        lambda: FlatPairs(pairs, None, values),
        lambda: episode_runs(values, [0, 0, 0]),
    ):
        with pytest.raises(ValueError, match=r"indptr|indices|episodes|lengths|rows|first|episode"):
            use()
    if name not in ("bools", "strings"):
        with pytest.raises(ValueError, match=r"rows|1-D"):
            table.select(values)
        if name != "floats":
            with pytest.raises(ValueError, match=r"systems|1-D"):
                Candidates(values, [[1], [2], [0]])


@pytest.mark.parametrize("name", STRANGE)
def test_coercion_of_numbers(name):
    with pytest.raises(ValueError, match="weights"):
        Graph([0, 1, 2, 3], [1, 2, 0], STRANGE[name])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="codes"):
        knn_graph(STRANGE[name], 1)  # type: ignore[arg-type]
    if name not in ("times", "bytes"):
        with pytest.raises(ValueError, match="system"):
            episode_runs([0, 1, 2], STRANGE[name])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        *("12", b"3", [1.5, 2.7], 3.0, 3 + 0j, np.nan, None, True, np.True_, np.array(True), np.array([3])),
        *(np.ma.masked, np.ma.array(3, mask=True), np.datetime64(3, "s"), np.array(3, object)),
    ],
)
def test_coercion_of_counts(value):
    with pytest.raises(ValueError, match=r"seed is .*; legal: an integer"):
        PairSampler(systems([2, 2]), SAME_SYSTEM, seed=value)


def test_coercion_of_offsets():
    mass, drag = np.repeat(np.arange(2), 8), np.tile(np.repeat(np.arange(4), 2), 2)
    more = {"mass": mass, "drag": drag, "stiffness": np.arange(16)}
    even = systems([1] * 16)
    table = EpisodeTable({name: even[name] for name in even.columns} | more)
    donor_bank(table, offsets=(1, 2))
    for wrong in (1.5, "1", True, np.nan):
        with pytest.raises(ValueError, match=r"an offset is .*; legal: an integer"):
            donor_bank(table, offsets=(wrong,))  # type: ignore[arg-type]
