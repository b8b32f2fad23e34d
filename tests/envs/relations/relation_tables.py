"""Small tables and a plain definition of legality that the tests hold the samplers to."""

import numpy as np
from hypothesis import strategies as st

from sprii_envs.banks import PROTOCOLS, simulate
from sprii_envs.relations import EpisodeTable, Relation


def poke(*splits, rollouts=4) -> EpisodeTable:
    """The table of the paper's factorial PokeWorld bank, without simulating it; all splits by default."""
    protocol = PROTOCOLS["poke-factorial"]
    systems = simulate.systems(protocol)
    assert systems.levels is not None
    assert systems.split is not None
    row = np.repeat(np.arange(len(systems.values)), rollouts)
    columns = {"episode": np.arange(len(row)), "system": row, "rollout": np.arange(len(row)) % rollouts}
    columns |= {"length": np.full(len(row), 64), "split": systems.split[row]}
    columns |= {name: systems.column(name)[row] for name in systems.names}
    columns |= {f"{name}_level": systems.levels[row, i] for i, name in enumerate(systems.names)}
    table = EpisodeTable(columns)
    return table.select(np.isin(table["split"], splits)) if splits else table


def factorial(masses=3, drags=3, stiffnesses=3, rollouts=2, length=80) -> EpisodeTable:
    """A full factorial bank; episode ids neither sorted nor consecutive."""
    m, d, k, r = (a.ravel() for a in np.indices((masses, drags, stiffnesses, rollouts)))
    n = len(m)
    return EpisodeTable(
        {
            "episode": np.random.default_rng(1).permutation(3 * n)[:n] - n,
            "system": (m * drags + d) * stiffnesses + k,
            "rollout": r,
            "length": np.full(n, length),
            "mass": m * 0.5 + 1.0,
            "drag": d,
            "stiffness": np.array(["soft", "firm", "hard", "rigid"])[k],
        }
    )


def systems(sizes, length=80, **more) -> EpisodeTable:
    """One system per entry, with that many episodes."""
    system = np.repeat(np.arange(len(sizes)), sizes)
    n = len(system)
    rollout = np.concatenate([np.arange(s) for s in sizes])
    return EpisodeTable(
        {"episode": np.arange(n), "system": system, "rollout": rollout, "length": np.full(n, length), **more}
    )


def legal(table: EpisodeTable, relation: Relation) -> np.ndarray:
    """(N, N) matrix [recipient, donor] straight from the definition."""
    n = len(table)
    if relation.same_episode:
        return np.eye(n, dtype=bool)
    ok = ~np.eye(n, dtype=bool)
    for name in relation.shared:
        ok &= table[name][:, None] == table[name][None]
    for name in relation.differ:
        ok &= table[name][:, None] != table[name][None]
    return ok


@st.composite
def tables(draw) -> EpisodeTable:
    """Random tables: singletons, one group, string systems, negative ids, any row order."""
    n = draw(st.integers(1, 24))
    ids = draw(st.lists(st.integers(-(2**62), 2**62), min_size=n, max_size=n, unique=True))
    names = draw(st.sampled_from([[0], [0, 1], [-5, 3, 10**15], ["a", "bb", "ccc"], ["∅", "x"]]))

    def column(choices):
        return draw(st.lists(st.sampled_from(choices), min_size=n, max_size=n))

    return EpisodeTable(
        {
            "episode": ids,
            "system": column(names),
            "rollout": list(range(n)),
            "length": [80] * n,
            "mass": column([0.5, 1.0, -0.0, 0.0]),
            "drag": column([1, 2, 3]),
            "task": column(["push", "lift"]),
            "wet": column([True, False]),
        }
    )


LABELS = ("system", "mass", "drag", "task", "wet")


@st.composite
def relations(draw) -> Relation:
    if draw(st.integers(0, 9)) == 0:
        return Relation(same_episode=True)
    names = draw(st.permutations(LABELS))
    a, b = draw(st.integers(0, 2)), draw(st.integers(0, 3))
    return Relation(tuple(names[:a]), tuple(names[a : a + b]))
