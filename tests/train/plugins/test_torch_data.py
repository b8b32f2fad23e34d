"""One stream for any number of workers and ranks, equal to the naive reading of `PairSampler`'s pairs."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from torch.utils.data import DataLoader

from sprii_envs.banks import Bank, BankError, build
from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, PairSampler, WindowSampler
from sprii_train.plugins.torch_data import PairBatches, PairedWindowDataset, PairLoader

HISTORY, HORIZON, SIZE, LENGTH = 6, 3, 6, 7
WORKERS = [(0, None), (1, "fork"), (2, "fork"), (4, "fork"), (2, "spawn")]


def batches(bank: Bank, seed: int = 3, relation=SAME_SYSTEM, kernel=None, size: int = SIZE, **ranks) -> PairBatches:
    table = bank.split("train")
    pairs = PairSampler(table, relation, kernel, seed=seed, distinct="system")
    return PairBatches(pairs, WindowSampler(table, HISTORY, HORIZON, seed), size, LENGTH, **ranks)


def dataset(bank: Bank, columns=("states", "actions")) -> PairedWindowDataset:
    return PairedWindowDataset(bank, HISTORY + HORIZON, columns)


def loader(bank: Bank, workers: int = 0, context: str | None = None, seed: int = 3, **more) -> PairLoader:
    return PairLoader(dataset(bank), batches(bank, seed), num_workers=workers, multiprocessing_context=context, **more)


def assert_equal(a, b) -> None:
    assert a.keys() == b.keys()
    for name in a:
        if isinstance(a[name], dict):
            assert_equal(a[name], b[name])
        else:
            assert a[name].dtype == b[name].dtype
            assert torch.equal(a[name], b[name]), name


def naive(bank: Bank, step: int, relation=SAME_SYSTEM, kernel=None):
    """A batch from the samplers and the bank's columns, one window at a time."""
    table = bank.split("train")
    pairs = PairSampler(table, relation, kernel, seed=3, distinct="system").batch(step, SIZE)
    w = WindowSampler(table, HISTORY, HORIZON, 3).batch(step, pairs, relation)
    ids, length = table["episode"], HISTORY + HORIZON
    out = {}
    for side, rows, starts in (("recipient", w.recipient, w.recipient_start), ("donor", w.donor, w.donor_start)):
        out[side] = {
            name: torch.tensor(np.stack([bank[name][ids[r], s : s + n] for r, s in zip(rows, starts, strict=True)]))
            for name, n in (("states", length), ("actions", length - 1))
        }
    index = [ids[w.recipient], w.recipient_start, ids[w.donor], w.donor_start]
    return out | {"index": torch.tensor(np.stack(index, 1))}


@pytest.mark.parametrize(("relation", "kernel"), [(SAME_SYSTEM, None), (SAME_SYSTEM, Derangement())])
def test_batches_are_the_samplers(bank: Bank, relation, kernel):
    both = PairLoader(dataset(bank), batches(bank, relation=relation, kernel=kernel))
    seen = list(both)
    assert len(seen) == len(both) == LENGTH
    for step, batch in enumerate(seen):
        assert_equal(batch, naive(bank, step, relation, kernel))


def test_same_rollout_windows_do_not_overlap(bank: Bank):
    for batch in PairLoader(dataset(bank), batches(bank, relation=SAME_ROLLOUT)):
        recipient, recipient_start, donor, donor_start = batch["index"].T
        assert torch.equal(recipient, donor)
        assert (donor_start + HISTORY <= recipient_start).all()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("workers", "context"), WORKERS)
def test_the_same_stream_for_any_workers(bank: Bank, workers, context):
    more = {"persistent_workers": True, "prefetch_factor": 3} if workers else {}
    both = loader(bank, workers, context, **more)
    torch.manual_seed(workers)
    for step, batch in enumerate([*both, *(both if workers < 4 else ())]):  # two epochs, of the same workers
        assert_equal(batch, naive(bank, step))
    assert both.batches.step == (2 if workers < 4 else 1) * LENGTH


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork")])
def test_works_as_a_plain_batch_sampler(bank: Bank, workers, context):
    plain = DataLoader(dataset(bank), batch_sampler=batches(bank), num_workers=workers, multiprocessing_context=context)
    assert len(plain) == LENGTH
    for step, batch in enumerate(plain):
        assert_equal(batch, naive(bank, step))
    plain.batch_sampler.set_epoch(1)
    assert_equal(next(iter(plain)), naive(bank, LENGTH))


def test_global_generators_are_neither_read_nor_touched(bank: Bank):
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    dataset(bank)[next(iter(batches(bank)))]
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork")])
@pytest.mark.parametrize("consumed", [0, 4, LENGTH, LENGTH + 2])
def test_resumes_behind_the_last_batch_consumed(bank: Bank, workers, context, consumed):
    whole = loader(bank, workers, context, **({"prefetch_factor": 3} if workers else {}))
    saved, done = whole.state_dict(), 0
    while done < consumed:
        for _ in whole:
            done += 1
            saved = whole.state_dict()
            if done == consumed:
                break
    others = (0, None) if workers else (1, "fork")
    other = loader(bank, *others, seed=8)
    with pytest.raises(ValueError, match="window_seed 3, here 8"):
        other.load_state_dict(saved)
    resumed = loader(bank, *others)
    resumed.load_state_dict(pickle.loads(pickle.dumps(saved)))
    rest = list(resumed)
    assert len(rest) == LENGTH - consumed % LENGTH
    for step, batch in enumerate(rest):
        assert_equal(batch, naive(bank, consumed + step))
    assert_equal(next(iter(resumed)), naive(bank, (consumed // LENGTH + 1) * LENGTH))
    assert_equal(next(iter(whole)), naive(bank, consumed))  # after a break the loader itself goes on


def test_what_a_worker_gets_is_small(bank: Bank):
    source = dataset(bank, ("states", "actions"))
    source[np.zeros((2, 4), np.int64)]  # maps and table are open
    assert len(pickle.dumps(source)) < 10_000
    assert_equal(pickle.loads(pickle.dumps(source))[[0, 1, 1, 2]], source[[0, 1, 1, 2]])


def test_frames(bank: Bank):
    source = PairedWindowDataset(bank, 4, ("frames",), frame_size=16)
    frames = source[[[0, 1, 5, 2], [3, 0, 2, 4]]]
    assert frames["recipient"]["frames"].shape == (2, 4, 16, 16)
    assert frames["recipient"]["frames"].dtype == torch.uint8
    assert np.array_equal(frames["donor"]["frames"], bank.frames([5, 2], [2, 4], 4, 16))


def _rank(rank: int, world: int, init: Path, bank: Bank, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=world)
    both = loader(bank, 1, "fork")
    first = [next(iter(both)) for _ in range(2)]
    state = both.state_dict()
    alike: list = [None] * world
    distributed.all_gather_object(alike, state)
    torch.save((first + list(both), alike), folder / f"{rank}.pt")
    distributed.destroy_process_group()


def test_two_ranks_share_one_global_batch(bank: Bank, tmp_path: Path):
    multiprocessing.start_processes(_rank, (2, tmp_path / "init", bank, tmp_path), 2, start_method="forkserver")
    (zero, states), (one, _) = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2))
    assert len(zero) == len(one) == LENGTH
    assert states[0] == states[1]
    for step, (a, b) in enumerate(zip(zero, one, strict=True)):
        assert len(a["index"]) == len(b["index"]) == SIZE // 2
        joined = {s: {c: torch.cat([a[s][c], b[s][c]]) for c in a[s]} for s in ("recipient", "donor")}
        assert_equal(joined | {"index": torch.cat([a["index"], b["index"]])}, naive(bank, step))
        assert not set(a["index"][:, 0].tolist()) & set(b["index"][:, 0].tolist())  # recipients are distinct
    alone = loader(bank)  # the state of two ranks continues on one
    alone.load_state_dict(states[0])
    assert_equal(next(iter(alone)), naive(bank, 2))


def test_slices_of_every_world_size(bank: Bank):
    for world in (1, 2, 3, 6):
        parts = [batches(bank, rank=rank, world_size=world).batch(5) for rank in range(world)]
        assert np.array_equal(np.concatenate(parts), batches(bank).batch(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0, "world_size": 4}, "6 pairs cannot be shared evenly by 4 ranks"),
        ({"rank": 2, "world_size": 2}, "rank is 2; legal: an integer >= 0, at most 1"),
        ({"rank": 0}, "both rank and world_size"),
        ({"size": 0}, "size is 0; legal: an integer >= 1"),
    ],
)
def test_bad_batches_are_refused(bank: Bank, arguments, message):
    with pytest.raises(ValueError, match=message):
        batches(bank, **arguments)


def test_a_bare_integer_whose_table_is_not_known(bank: Bank, tmp_path):
    table = bank.split("test").select(np.arange(len(bank.split("test")))[::-1])
    w = WindowSampler(table, HISTORY, HORIZON).batch(0, PairSampler(table, SAME_SYSTEM).batch(0, 4))
    with pytest.raises(ValueError, match="joined with other integers"):
        dataset(bank)[np.stack(w, axis=1)]
    ids = np.stack([w.recipient.episodes, w.recipient_start, w.donor.episodes, w.donor_start], axis=1)
    read = bank.read(w, "states", HISTORY + HORIZON)
    assert np.array_equal(dataset(bank)[ids]["donor"]["states"], read[1])
    other = build(bank.protocol.replace(seed=bank.protocol.seed + 1), tmp_path / "other")
    with pytest.raises(ValueError, match="rows of another store's table"):
        PairLoader(dataset(other), batches(bank))


def test_bad_input_is_refused(bank: Bank):
    train, every = bank.split("train"), bank.table
    with pytest.raises(ValueError, match=f"{len(every)} episodes, pairs {len(train)}"):
        PairBatches(PairSampler(train, SAME_SYSTEM), WindowSampler(every, HISTORY, HORIZON))
    half = len(train) // 2
    pairs = PairSampler(train.select(np.arange(half)), SAME_SYSTEM)
    with pytest.raises(ValueError, match="rows of another table"):
        PairBatches(pairs, WindowSampler(train.select(np.arange(half, 2 * half)), HISTORY, HORIZON))
    nothing: Any = None
    with pytest.raises(ValueError, match=r"must be what state_dict\(\) gave, got None"):
        batches(bank).load_state_dict(nothing)
    with pytest.raises(ValueError, match=r"must be what state_dict\(\) gave, got None"):
        pairs.load_state_dict(nothing)
    with pytest.raises(BankError, match="missing column 'state'"):
        dataset(bank, ("state",))
    for bad in ([1, 2, 3], np.zeros((2, 4)), np.zeros((1, 2, 4), np.int64)):
        with pytest.raises(ValueError, match="recipient_start"):
            dataset(bank)[bad]
    with pytest.raises(BankError, match="not inside episode"):
        dataset(bank)[[0, 15, 1, 0]]
    apart = PairBatches(PairSampler(train, SAME_ROLLOUT), WindowSampler(train, HISTORY, HORIZON, apart=2))
    alike = PairBatches(PairSampler(train, SAME_ROLLOUT), WindowSampler(train, HISTORY, HORIZON))
    for one, other in ((apart, alike), (alike, apart)):
        with pytest.raises(ValueError, match="other batches: apart"):
            one.load_state_dict(other.state_dict())
    state = batches(bank).state_dict()
    with pytest.raises(ValueError, match="size 6, here 4"):
        batches(bank, size=4).load_state_dict(state)
    with pytest.raises(ValueError, match="no step"):
        batches(bank).load_state_dict({k: v for k, v in state.items() if k != "step"})
    with pytest.raises(ValueError, match="another sampler"):
        batches(bank, relation=SAME_ROLLOUT).load_state_dict(state)
