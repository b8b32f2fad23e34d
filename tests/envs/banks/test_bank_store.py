"""A row of any table reads its own episode, in every store, or is refused."""

import numpy as np
import pytest

from sprii_envs.banks import Bank, BankError, BankProtocol, build
from sprii_envs.collection.episodes import RelatedEpisodes
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler

HISTORY = 4


def sampled(table: EpisodeTable, n: int = 6):
    pairs = PairSampler(table, SAME_SYSTEM, seed=1).batch(0, n)
    return pairs, WindowSampler(table, history=HISTORY, horizon=2).batch(0, pairs)


def tables(table: EpisodeTable) -> list[EpisodeTable]:
    last = table.select(np.isin(table["system"], np.unique(table["system"])[-2:]))
    return [table, table.select(np.arange(len(table))[::-1]), last]


def test_a_bare_integer_whose_table_is_not_known(bank: Bank):
    for table in (part for split in bank.protocol.systems for part in tables(bank.split(split, unseal=True))):
        pairs, w = sampled(table)
        ids = table["episode"][np.asarray(w.donor)]
        want = np.stack([bank["states"][e, s : s + HISTORY] for e, s in zip(ids, w.donor_start, strict=True)])
        assert np.array_equal(bank.windows("states", w.donor, w.donor_start, HISTORY), want)
        assert np.array_equal(bank.windows("states", list(w.donor), w.donor_start, HISTORY), want)
        assert np.array_equal(bank.windows("states", ids, w.donor_start, HISTORY), want)
        recipient, donor = bank.read(w, "states", HISTORY)
        assert np.array_equal(donor, want)
        assert np.array_equal(recipient[:, 0], bank["states"][w.recipient.episodes, w.recipient_start])
        loop = [
            bank.windows("states", [e], [s], HISTORY)[0] for e, s in zip(w.donor, w.donor_start.tolist(), strict=True)
        ]
        assert np.array_equal(loop, want)
        assert np.array_equal(bank.windows("states", pairs.donor, 0, 1)[:, 0], bank["states"][pairs.donor.episodes, 0])
        drawn = bank.frames(w.donor, w.donor_start, HISTORY, size=8)
        assert np.array_equal(drawn, bank.frames(ids, w.donor_start, HISTORY, size=8))
        bank.prefetch("states", w.donor, w.donor_start, HISTORY)
        both = np.concatenate([w.donor, w.recipient])
        assert np.array_equal(bank.windows("states", both, 0, 1)[:, 0], bank["states"][both.episodes, 0])


def test_rows_of_another_bank_are_refused(bank: Bank, protocol: BankProtocol, tmp_path):
    other = build(protocol.replace(seed=protocol.seed + 1), tmp_path / "other")
    _, w = sampled(other.split("train"))
    for use in (
        lambda: bank.windows("states", w.donor, w.donor_start, HISTORY),
        lambda: bank.read(w, "states", HISTORY),
        lambda: bank.frames(w.donor, w.donor_start, HISTORY, size=8),
    ):
        with pytest.raises(BankError, match=f"{bank.path}: these are rows of another store's table: its episode"):
            use()
    with pytest.raises(BankError, match="joined with other integers"):
        bank.windows("states", np.stack(w, axis=1)[:, 2], w.donor_start, HISTORY)


def test_collected_episodes_read_rows_of_their_selections(bank: Bank):
    table = bank.split("train")
    columns = {"observations": bank["states"][table.rows], "actions": bank["actions"][table.rows]}
    found = RelatedEpisodes(table, columns, None, None)  # type: ignore[arg-type]
    for part in tables(table):
        _, w = sampled(part)
        recipient, donor = found.read(w, "observations", HISTORY)
        assert np.array_equal(donor[:, 0], bank["states"][w.donor.episodes, w.donor_start])
        assert np.array_equal(recipient[:, 1], bank["states"][w.recipient.episodes, w.recipient_start + 1])
