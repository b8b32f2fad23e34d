"""TorchRL's own buffers return the pairs that `PairSampler` draws."""

import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("torchrl")
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, ListStorage, ReplayBuffer, TensorDictReplayBuffer

from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Derangement,
    EpisodeTable,
    FlatPairs,
    PairSampler,
    StaleError,
    WindowSampler,
    episode_runs,
)
from sprii_train.plugins.torchrl import RelationSampler, as_pairs

LENGTHS = np.array([5, 9, 7, 6, 8, 5, 9, 6, 7, 5, 6, 8])
EPISODE = np.repeat(np.arange(12)[::-1] * 10 + 3, LENGTHS)
SYSTEM = np.repeat(np.arange(12) % 4, LENGTHS)
T = np.concatenate([np.arange(n) for n in LENGTHS])
N = 4


def transitions() -> TensorDict:
    """Every value is its own: episode, step within it, and an observation that holds both."""
    observation = torch.tensor(EPISODE * 1000 + T, dtype=torch.float64)[:, None]
    columns = {"episode": torch.tensor(EPISODE), "system": torch.tensor(SYSTEM), "t": torch.tensor(T)}
    return TensorDict({"observation": observation, **columns}, batch_size=[len(T)])


def whole_episodes() -> TensorDict:
    return TensorDict({"row": torch.arange(12), "states": torch.randn(12, 5, 2)}, batch_size=[12])


def sampler(history: int | None = None, relation=SAME_SYSTEM, kernel=None, seed: int = 5) -> RelationSampler:
    table, first = episode_runs(EPISODE, SYSTEM)
    pairs = PairSampler(table, relation, kernel, seed=seed, distinct="system")
    if history is None:
        return RelationSampler(pairs)
    return RelationSampler(pairs, WindowSampler(table, history, 0, seed), first)


def filled(data: TensorDict, sampler: RelationSampler, kind=ReplayBuffer, storage=LazyTensorStorage, **more):
    buffer = kind(storage=storage(len(data)), sampler=sampler, batch_size=N, **more)
    buffer.extend(data)
    return buffer


@pytest.mark.parametrize("kernel", [None, Derangement()])
@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_episodes_are_the_pair_samplers(storage, kernel):
    buffer, pairs = filled(whole_episodes(), sampler(kernel=kernel), storage=storage), sampler(kernel=kernel).pairs
    torch.manual_seed(0)
    for step in range(20):
        (recipient, donor), info = buffer.sample(return_info=True)
        want = pairs.batch(step, N)
        assert np.array_equal(recipient["row"], want.recipient)
        assert np.array_equal(donor["row"], want.donor)
        assert np.array_equal(info["correct"], np.stack([want.correct] * 2))
        assert recipient.batch_size == donor.batch_size == (N,)
        assert torch.equal(donor["states"], buffer[:]["states"][donor["row"]])


@pytest.mark.parametrize("relation", [SAME_SYSTEM, SAME_ROLLOUT])
@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_windows_lie_inside_one_episode(relation, kind):
    history = 2
    buffer, own = filled(transitions(), sampler(history, relation), kind), sampler(history, relation)
    table, windows = own.pairs.table, WindowSampler(own.pairs.table, history, 0, 5)
    starts = set()
    for step in range(40):
        sample = buffer.sample()
        assert sample.batch_size == (2, N, history)
        pairs = as_pairs(sample)
        assert pairs.batch_size == (N, history)
        batch = own.pairs.batch(step, N)
        want = windows.batch(step, batch, relation)
        for side, rows, start in (
            (pairs["recipient"], want.recipient, want.recipient_start),
            (pairs["donor"], want.donor, want.donor_start),
        ):
            episode, t = table["episode"][rows][:, None], start[:, None] + np.arange(history)
            assert np.array_equal(side["observation"][..., 0], episode * 1000 + t)
            starts |= set(start.tolist())
        assert torch.equal(pairs["recipient"]["system"], pairs["donor"]["system"])
        same = (pairs["recipient"]["episode"] == pairs["donor"]["episode"]).all()
        assert same if relation is SAME_ROLLOUT else not same
        if kind is TensorDictReplayBuffer:
            assert pairs["donor"]["correct"].all()
            assert torch.equal(buffer[pairs["donor"]["index"]]["t"], pairs["donor"]["t"])
    assert starts == set(range(9 - history + 1))


def test_as_pairs_is_a_transform():
    buffer = filled(transitions(), sampler(3), transform=as_pairs)
    want = sampler(3).flat.batch(0, N)[0]
    sample = buffer.sample()
    assert sorted(sample.keys()) == ["donor", "recipient"]
    assert torch.equal(sample["donor"]["t"], torch.tensor(T[want[1]]))


@pytest.mark.parametrize("prefetch", [None, 1])
def test_state_dict_resumes_exactly(prefetch):
    def draws(buffer, count):
        return [buffer.sample()["observation"].clone() for _ in range(count)]

    buffer = filled(transitions(), sampler(3), prefetch=prefetch)
    draws(buffer, 5)
    saved = buffer.state_dict()
    want = draws(buffer, 6)
    other = filled(transitions(), sampler(3), prefetch=prefetch)
    draws(other, 2)
    other.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(draws(other, 6), want, strict=True))
    assert torch.equal(want[0], torch.tensor(EPISODE * 1000.0 + T)[sampler(3).flat.batch(5, N)[0]][..., None])


def test_several_prefetch_threads_draw_every_step_once():
    """TorchRL's threads race for the next step, so their order is not fixed."""
    buffer, flat = filled(transitions(), sampler(3), prefetch=3), sampler(3).flat
    steps = [torch.tensor(EPISODE * 1000.0 + T)[flat.batch(step, N)[0]][..., None] for step in range(23)]
    drawn = [buffer.sample()["observation"].clone() for _ in range(20)]
    which = [[k for k, want in enumerate(steps) if torch.equal(one, want)] for one in drawn]
    assert all(len(k) == 1 for k in which)
    assert len({k[0] for k in which}) == 20


def test_dumps_and_loads(tmp_path):
    buffer = filled(transitions(), sampler(3))
    for _ in range(3):
        buffer.sample()
    buffer.dumps(tmp_path / "buffer")
    want = buffer.sample()
    other = filled(transitions(), sampler(3, seed=5))
    other.loads(tmp_path / "buffer")
    assert torch.equal(other.sample()["observation"], want["observation"])
    with pytest.raises(ValueError, match="another sampler"):
        sampler(3, SAME_ROLLOUT).loads(tmp_path / "buffer" / "sampler")


def test_bad_storages_are_refused():
    short = ReplayBuffer(storage=LazyTensorStorage(200), sampler=sampler(3), batch_size=N)
    with pytest.raises(ValueError, match=f"{len(T)} entries; this LazyTensorStorage has 1 and 0"):
        short.sample()
    short.extend(transitions()[:-1])
    listed = ReplayBuffer(storage=ListStorage(12), sampler=sampler(), batch_size=N)
    listed.extend([TensorDict({"row": i}) for i in range(12)])
    flat = ReplayBuffer(storage=LazyTensorStorage(20, ndim=2), sampler=sampler(), batch_size=N)
    flat.extend(TensorDict({"row": torch.zeros(20, 3)}, batch_size=[20, 3]))
    for buffer, told in ((short, f"has 1 and {len(T) - 1}"), (listed, "this ListStorage"), (flat, "has 2 and")):
        with pytest.raises(ValueError, match=told):
            buffer.sample()
    table, first = episode_runs(EPISODE, SYSTEM)
    pairs = PairSampler(table, SAME_SYSTEM)
    for arguments in ((WindowSampler(table, 2, 0),), (WindowSampler(LENGTHS[:-1], 2, 0), first)):
        with pytest.raises(ValueError, match="the pairs' own table"):
            RelationSampler(pairs, *arguments)
    other = table.select(np.arange(len(table))[::-1])
    with pytest.raises(ValueError, match="rows of another table"):
        RelationSampler(pairs, WindowSampler(other, 2, 0), first)
    for bad in (first[:-1], first.astype(float), first - 1):
        with pytest.raises(ValueError, match="first must be entries"):
            RelationSampler(pairs, None, bad)


def test_the_table_of_a_storage():
    table, first = episode_runs(EPISODE, SYSTEM, {"task": np.where(SYSTEM > 1, "push", "lift")})
    assert np.array_equal(table["length"], LENGTHS)
    assert np.array_equal(first, np.cumsum(LENGTHS) - LENGTHS)
    assert np.array_equal(table["system"], np.arange(12) % 4)
    assert np.array_equal(table["rollout"], np.arange(12) // 4)
    assert table["task"].tolist() == ["lift", "lift", "push", "push"] * 3
    assert isinstance(table, EpisodeTable)
    for arguments, message in (
        (([1, 1, 2, 1], [0, 0, 0, 0]), "episode 1 do not follow"),
        (([1, 1, 2, 2], [0, 0, 0, 1]), "system changes within episode 2, at entry 3"),
        (([1, 1, 2, 2], [0, 0, 0]), r"system must have one label per entry, \(4,\), got \(3,\)"),
        (([1.0, 2.0], [0, 0]), "episode must be integers"),
        (([], []), "episode must be integers"),
    ):
        with pytest.raises(ValueError, match=message):
            episode_runs(*arguments)


def test_flat_pairs_without_windows():
    table, first = episode_runs(EPISODE, SYSTEM)
    pairs = PairSampler(table, SAME_SYSTEM, seed=1)
    entries, correct = FlatPairs(pairs, None, first).batch(4, 6)
    want = pairs.batch(4, 6)
    assert np.array_equal(EPISODE[entries], table["episode"][np.stack([want.recipient, want.donor])])
    assert (T[entries] == 0).all()
    assert correct.all()


def test_one_line_says_what_to_install():
    code = "import sys; sys.modules['torchrl'] = None; import sprii_train.plugins.torchrl"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: sprii_train.plugins.torchrl needs TorchRL: pip install torchrl tensordict" in found.stderr


def part(episode: int, length: int = 30) -> TensorDict:
    """One episode of one of two systems."""
    columns = {"episode": torch.full((length,), episode), "system": torch.full((length,), episode % 2)}
    return TensorDict({**columns, "t": torch.arange(length)}, batch_size=[length])


def of_what_it_holds(buffer: ReplayBuffer, history: int = 8) -> RelationSampler:
    held = buffer[:]
    table, first = episode_runs(held["episode"], held["system"], head=buffer.write_count, shortest=history)
    pairs = PairSampler(table, SAME_SYSTEM, on_missing="drop")
    return RelationSampler(pairs, WindowSampler(table, history, horizon=0), first)


def check(buffer: ReplayBuffer) -> None:
    recipient, donor = buffer.sample()
    for side in (recipient, donor):
        assert (side["episode"] == side["episode"][:, :1]).all()
        assert (side["t"].diff(dim=-1) == 1).all()
    assert (recipient["system"] == donor["system"]).all()
    assert (recipient["episode"] != donor["episode"]).all()


@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_an_index_over_mutable_storage_without_a_version(kind):
    buffer = kind(storage=LazyTensorStorage(100), batch_size=64)
    for episode in range(3):
        buffer.extend(part(episode))
    buffer.set_sampler(of_what_it_holds(buffer))
    for episode in range(3, 12):
        check(buffer)
        overwritten = len(buffer) == 100 or buffer.write_count + 30 > 100
        buffer.extend(part(episode))
        if overwritten:
            with pytest.raises(StaleError, match="written to since the table"):
                buffer.sample()
            buffer.set_sampler(of_what_it_holds(buffer))
    assert buffer.write_count == 360


@pytest.mark.parametrize("at_once", [False, True])
def test_a_ring_overwritten_as_a_whole_before_the_first_sample(at_once):
    """Nothing tells these writes from a first filling but that something was there before."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(90), batch_size=8)
    for episode in range(3):
        buffer.extend(part(episode))
    buffer.set_sampler(of_what_it_holds(buffer))
    new = [part(episode) for episode in range(3, 6)]
    for data in [torch.cat(new)] if at_once else new:
        buffer.extend(data)
    with pytest.raises(StaleError):
        buffer.sample()


def test_a_first_filling_and_what_lies_elsewhere_are_no_change():
    table, first = episode_runs(np.repeat(np.arange(3), 30), np.zeros(90, int))
    for single in (False, True):
        made = RelationSampler(PairSampler(table, SAME_SYSTEM), WindowSampler(table, 8, horizon=0), first)
        buffer = ReplayBuffer(storage=LazyTensorStorage(120), sampler=made, batch_size=8)
        for episode in range(4):
            for data in part(episode) if single else [part(episode)]:
                buffer.add(data) if single else buffer.extend(data)
            if episode > 1:
                buffer.sample()
        buffer.extend(part(4, 1))
        with pytest.raises(StaleError):
            buffer.sample()
    shared = ReplayBuffer(storage=LazyTensorStorage(90), batch_size=8)
    shared.extend(torch.cat([part(0), part(2), part(4)]))
    shared.set_sampler(of_what_it_holds(shared))
    ReplayBuffer(storage=shared.storage).extend(part(6))  # another buffer writes
    with pytest.raises(StaleError):
        shared.sample()
    emptied = ReplayBuffer(storage=LazyTensorStorage(90), batch_size=8)
    emptied.extend(torch.cat([part(0), part(2), part(4)]))
    emptied.set_sampler(of_what_it_holds(emptied))
    emptied.empty()
    emptied.extend(torch.cat([part(6), part(8), part(10)]))
    with pytest.raises(StaleError):
        emptied.sample()


@pytest.mark.parametrize("dumped", [False, True])
def test_an_index_over_a_loaded_storage_is_checked(dumped, tmp_path):
    def ring(lengths, described: bool = True) -> ReplayBuffer:
        buffer = ReplayBuffer(storage=LazyTensorStorage(60), batch_size=8)
        buffer.extend(torch.cat([part(episode, length) for episode, length in enumerate(lengths)]))
        if described:
            buffer.set_sampler(of_what_it_holds(buffer, 3))
        return buffer

    def load(into: ReplayBuffer, saved: ReplayBuffer) -> None:
        if dumped:
            saved.dumps(tmp_path / "dump")
            into.loads(tmp_path / "dump")
        else:
            into.load_state_dict(saved.state_dict())

    def refuses(buffer: ReplayBuffer) -> None:
        for _ in range(2):
            with pytest.raises(StaleError):
                buffer.sample()

    tens, others = [10] * 6, [7, 13, 5, 15, 8, 12]
    same = ring(tens)
    load(same, ring(tens))
    check(same)
    same.extend(part(6, 1))
    refuses(same)

    written, buffer = ring(tens), ring(tens)
    written.extend(ring(others, described=False)[:])
    load(buffer, written)
    refuses(buffer)
    load(buffer, ring(tens))  # what is stale remains so
    refuses(buffer)

    buffer = ring(tens)
    load(buffer, ring(others))  # the same ids and labels elsewhere: nothing of that is in the pairs' fingerprint
    refuses(buffer)

    buffer = ring(tens)
    with pytest.raises(ValueError, match="another sampler"):
        load(buffer, ring([12] * 5))
    refuses(buffer)

    whole = ring(tens)
    half = ReplayBuffer(storage=LazyTensorStorage(60), sampler=of_what_it_holds(whole, 3), batch_size=8)
    half.extend(whole[:30])
    load(half, whole)
    check(half)
    half.storage[30:] = ring(others, described=False)[30:]
    half.sampler.mark_update(torch.arange(30, 60), storage=half.storage)  # as a writer whose head is at 30
    refuses(half)
    half.sampler.load_state_dict(whole.sampler.pairs.state_dict())
    refuses(half)


def test_a_broken_package_says_why(tmp_path):
    (tmp_path / "tensordict.py").write_text("raise OSError('undefined symbol: _ZN3c10')", encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sprii_train.plugins.torchrl"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "sprii_train.plugins.torchrl needs TorchRL, which is installed but fails to import" in said
    assert said.rstrip().endswith("OSError: undefined symbol: _ZN3c10")
