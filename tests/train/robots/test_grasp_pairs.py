"""Whose grasp is whose donor: relations, even marginals, derangements; and the order of the samples that are read."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from sprii_envs.banks import ArrayStore
from sprii_envs.relations import SAME_SYSTEM, Derangement, EpisodeTable, Relation
from sprii_envs.robots.tactile import TactileProtocol
from sprii_train.recipes import GRASP_RECIPES
from sprii_train.robots.grasps import GraspPairs, GraspReader, derangement
from sprii_train.settings import BAXTER

PROTOCOL = TactileProtocol(counts=(10, 2, 2))
HORIZONS = (1, 20, 40)


def store_of(protocol: TactileProtocol = PROTOCOL, drop: tuple[int, ...] = ()) -> ArrayStore:
    """Grasps in memory, but some rows of the plan."""
    plan = [row for i, row in enumerate(protocol.plan()) if i not in drop]
    table = {name: [row[name] for row in plan] for name in plan[0]}
    table |= {"episode": list(range(len(plan))), "length": [80] * len(plan)}
    return ArrayStore(EpisodeTable(table), {"tactile": protocol.episodes(plan)[1]["tactile"]})


STORE = store_of()


def pairs_of(arm: str, store: ArrayStore = STORE, pairs: int = 48, seed: int = 0) -> GraspPairs:
    relation, kernel = GRASP_RECIPES[arm].pairing(store.split("train"))
    reader = GraspReader(store, 40, HORIZONS, observation="tactile")
    return GraspPairs(reader, store.split("train"), relation=relation, kernel=kernel, pairs=pairs, seed=seed)


def labels(store: ArrayStore, episodes: np.ndarray) -> list[tuple[str, int, int]]:
    """Shape, level and grasp of episodes, whose ids are rows here."""
    table = store.table
    return [(str(table["shape"][i]), int(table["level"][i]), int(table["grasp"][i])) for i in episodes]


@pytest.mark.parametrize("arm", GRASP_RECIPES)
def test_donors_are_those_of_the_relation_and_all_margins_are_even(arm: str):
    data, train = pairs_of(arm), set(STORE.split("train")["episode"].tolist())
    for step in range(30):
        donors, recipients = data.draw(step)
        assert set(donors.tolist()) | set(recipients.tolist()) <= train
        assert len(set(recipients.tolist())) == 48
        found = list(zip(labels(STORE, donors), labels(STORE, recipients), strict=True))
        for side in (0, 1):
            assert set(Counter(pair[side][:2] for pair in found).values()) == {8}
        for (shape, level, grasp), (own_shape, own_level, own_grasp) in found:
            assert grasp != own_grasp
            if arm == "baxter-hardness":
                assert (level == own_level, shape == own_shape) == (True, False)
            elif arm == "baxter-shape":
                assert (level == own_level, shape == own_shape) == (False, True)
            else:
                assert (shape, level) != (own_shape, own_level)
        of = Counter((own[:2], donor[:2]) for donor, own in found)
        assert set(of.values()) == ({4} if arm == "baxter-shape" else {8})


def test_shape_donors_are_at_both_offsets_of_hardness():
    donors, recipients = pairs_of("baxter-shape").draw(3)
    offsets = Counter(
        (own[:2], (donor[1] - own[1]) % 3)
        for donor, own in zip(labels(STORE, donors), labels(STORE, recipients), strict=True)
    )
    assert len(offsets) == 12
    assert set(offsets.values()) == {4}


def test_random_is_a_uniform_derangement_of_the_configurations():
    seen = Counter()
    data = pairs_of("baxter-random")
    for step in range(200):
        donors, recipients = data.draw(step)
        pairs = zip(labels(STORE, donors), labels(STORE, recipients), strict=True)
        seen[tuple(sorted({(own[:2], donor[:2]) for donor, own in pairs}))] += 1
    assert len(seen) > 90  # of 265: with replacement, 140 of 200 draws are expected to differ
    rng = np.random.default_rng(0)
    drawn = Counter(tuple(derangement(rng, 4).tolist()) for _ in range(9_000))
    assert len(drawn) == 9
    assert chisquare(list(drawn.values())).pvalue > 1e-3


def test_donors_and_queries_are_drawn_evenly_from_all_grasps():
    data, counted, queried = pairs_of("baxter-hardness"), Counter(), Counter()
    for step in range(150):
        donors, recipients = data.draw(step)
        counted.update(donors.tolist())
        queried.update(recipients.tolist())
    assert len(counted) == len(queried) == 60
    assert chisquare(list(counted.values())).pvalue > 1e-3
    assert min(queried.values()) > 90  # 120 expected


def test_a_batch_is_a_function_of_seed_and_step_and_shards_are_its_rows():
    data = pairs_of("baxter-shape")
    windows = data(5)
    assert [t.shape for t in windows[:4]] == [(96, 40, 16), (96, 39, 0), (96, 3, 16), (96, 40, 0)]
    torch.testing.assert_close(pairs_of("baxter-shape")(5).observations, windows.observations, rtol=0, atol=0)
    assert not torch.equal(data(6).observations, windows.observations)
    assert not torch.equal(pairs_of("baxter-shape", seed=1)(5).observations, windows.observations)
    for rank in (0, 1):
        rows = torch.arange(96).view(2, 2, 24)[:, rank].flatten()
        torch.testing.assert_close(data.shard(rank, 2)(5).observations, windows.observations[rows])
    assert data.identity() != pairs_of("baxter-random").identity()
    assert data.identity() == pairs_of("baxter-shape").identity()


def test_samples_are_standardised_by_training_grasps_and_targets_are_samples_40_59_and_79():
    reader = GraspReader(STORE, 40, HORIZONS, observation="tactile")
    train = STORE.split("train")["episode"]
    raw = STORE.windows("tactile", STORE.table["episode"], np.zeros(len(STORE.table), np.int64), 80).astype(np.float64)
    told = raw[train].reshape(-1, 16)
    expected = (raw - told.mean(0)) / told.std(0)
    episodes = np.array([80, 3, 11])
    windows = reader.read(episodes, np.zeros(3, np.int64))
    np.testing.assert_allclose(windows.observations, expected[episodes, :40], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(windows.future_observations, expected[episodes][:, [40, 59, 79]], rtol=1e-4, atol=1e-5)


def test_ragged_configurations_serve_and_what_cannot_be_dealt_is_refused():
    first = [i for i, row in enumerate(PROTOCOL.plan()) if row["split"] == "train"][:2]
    ragged = store_of(drop=tuple(first))
    donors, recipients = pairs_of("baxter-hardness", ragged).draw(0)
    assert all(a[2] != b[2] for a, b in zip(labels(ragged, donors), labels(ragged, recipients), strict=True))
    with pytest.raises(ValueError, match="pairs is 18; legal: a multiple of 12"):
        pairs_of("baxter-shape", pairs=18)
    with pytest.raises(ValueError, match="cube-0 has 10 grasps; legal: 11 or more"):
        pairs_of("baxter-hardness", pairs=66)
    reader = GraspReader(STORE, 40, HORIZONS, observation="tactile")
    with pytest.raises(ValueError, match="no configuration is related to cube-0"):
        GraspPairs(reader, STORE.split("train"), relation=SAME_SYSTEM)
    with pytest.raises(ValueError, match=r"donors of grasps are drawn by 'uniform'; legal: Uniform\(\), Derangement"):
        GraspPairs(reader, STORE.split("train"), relation=Relation(("level",), ("shape",)), kernel="uniform")
    alone = STORE.split("train").select(STORE.split("train")["system"] == "cube-0")
    with pytest.raises(ValueError, match="no configuration is related"):
        GraspPairs(reader, alone, relation=Relation((), ("system",)), kernel=Derangement())


def test_the_setting_refuses_what_it_cannot_serve():
    config = BAXTER.budget("quick").learner
    BAXTER.check(STORE, config)
    for changes, message in (
        ({"history": 39}, r"TactileConfig has a history of 39 and predicts \(1, 20, 40\); legal: 40, and at most 40"),
        ({"horizons": (1, 41)}, r"predicts \(1, 41\)"),
        ({"taxels": 15}, r"TactileConfig\.taxels is 15; legal: 16"),
    ):
        with pytest.raises(ValueError, match=message):
            BAXTER.check(STORE, replace(config, **changes))
    gone = tuple(
        i for i, row in enumerate(PROTOCOL.plan()) if (row["system"], row["split"]) == ("cylinder-1", "validation")
    )
    with pytest.raises(ValueError, match="has no grasp of cylinder-1 in 'validation'"):
        BAXTER.check(store_of(drop=gone), config)
    short = EpisodeTable({**{n: STORE.table[n] for n in STORE.table.columns}, "length": [79] * len(STORE.table)})
    cut = ArrayStore(short, {"tactile": STORE.windows("tactile", short["episode"], [0] * len(short), 79)})
    with pytest.raises(ValueError, match="has grasps of 79 samples; legal: at least 80"):
        BAXTER.check(cut, config)
    with pytest.raises(ValueError, match="has no column 'tactile'; columns: other"):
        BAXTER.check(ArrayStore(STORE.table, {"other": np.zeros((len(STORE.table), 80, 16))}), config)
