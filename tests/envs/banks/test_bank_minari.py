"""Banks as Minari datasets, and datasets of Minari's own collector as tables: against Minari's reader, bit for bit."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from bounded import PROTOCOL as BOUNDED
from minari_store import let_collect

from sprii_envs.banks import D_CLEAN, POKE_FACTORIAL, BankError, build
from sprii_envs.banks.minari import MinariWindows, from_minari, to_minari
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")

POKE = POKE_FACTORIAL.replace(systems={"train": 2, "confirmation": 2}, rollouts=2, steps=14)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """An empty place for datasets; Minari's own is under the home."""
    path = tmp_path / "store"
    path.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(path))
    return path


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    return build(BOUNDED, tmp_path_factory.mktemp("banks") / "bounded")


@pytest.fixture(scope="module")
def poke(tmp_path_factory):
    return build(POKE, tmp_path_factory.mktemp("banks") / "poke")


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def long(bank):
    """The episodes Minari can hold."""
    return bank.table.select(bank.table["length"] > 1)


def check_episodes(bank, table, dataset, observations):
    """Every episode of a dataset is that of a row of the bank: read by Minari, compared with the bank's raw columns."""
    loaded = minari.load_dataset(dataset.id)
    assert loaded.total_episodes == len(table)
    assert loaded.total_steps == (table["length"] - 1).sum()
    for episode, row, length in zip(loaded.iterate_episodes(), table.rows, table["length"], strict=True):
        assert same(episode.observations, observations(row)[:length])
        assert all(loaded.observation_space.contains(o) for o in episode.observations)
        assert same(episode.actions, bank["actions"][row, : length - 1])
        assert same(episode.rewards, bank["rewards"][row, : length - 1])
        assert episode.terminations.shape == (length - 1,)
        assert not episode.terminations.any()
        assert episode.truncations.tolist() == [False] * (length - 2) + [True]


def test_states_round_trip_bit_for_bit_with_early_endings_and_kinds(bounded):
    table = long(bounded)
    assert len(set(table["length"].tolist())) > 3
    assert (table["ending"] != "").any()
    dataset = to_minari(bounded, "tests/bounded-v0", table, unseal=True, observations="states")
    check_episodes(bounded, table, dataset, lambda row: bounded["states"][row])
    assert dataset.storage.metadata["sprii_fingerprint"] == bounded.fingerprint


def test_stored_frames_round_trip_bit_for_bit(poke):
    dataset = to_minari(poke, "tests/poke-v0", unseal=True)
    from minari.dataset.minari_storage import is_image_space

    assert is_image_space(dataset.observation_space)  # Minari's default would have stored JPEG
    assert not dataset.storage.jpeg_encoding
    assert dataset.observation_space.shape == (64, 64)
    check_episodes(poke, poke.table, dataset, lambda row: poke["frames"][row])


def test_drawn_frames_on_request(bank):
    dataset = to_minari(bank, "tests/drawn-v1", "train", observations="frames", size=48)
    train = bank.split("train")
    check_episodes(bank, train, dataset, lambda row: bank.frames([row], 0, 20, 48)[0])
    assert len(np.unique(dataset[0].observations)) > 2


@pytest.mark.parametrize(("observations", "size"), [("states", None), ("pixels", None), ("pixels", 32)])
def test_the_recovered_environment_repeats_every_episode(poke, observations, size):
    dataset = to_minari(poke, "tests/replay-v0", "train", observations=observations, size=size)
    env = dataset.recover_environment()
    assert env.observation_space == dataset.observation_space
    assert env.action_space == dataset.action_space
    for episode, metadata in zip(dataset, dataset.storage.get_episode_metadata(range(4)), strict=True):
        seen = [env.reset(options=metadata["options"])[0]]
        ends = []
        for action in episode.actions:
            observation, _, terminated, truncated, _ = env.step(action)
            seen.append(observation)
            ends.append(terminated or truncated)
        assert same(np.stack(seen), episode.observations)
        assert ends == episode.truncations.tolist()


@pytest.mark.parametrize("episodes", [511, 512, 600])
def test_written_in_pieces_of_512(tmp_path, episodes):
    bank = build(D_CLEAN.replace(systems={"train": episodes}, rollouts=1, steps=3), tmp_path / "bank")
    dataset = to_minari(bank, "tests/pieces-v0")
    check_episodes(bank, bank.table, dataset, lambda row: bank["states"][row])
    assert same(from_minari(dataset)["bank_episode"], bank.table["episode"])


def test_the_recovered_environment_has_the_constants_of_the_protocol(tmp_path):
    protocol = D_CLEAN.replace(systems={"train": 1}, rollouts=1, steps=9, constants={**D_CLEAN.constants, "dt": 0.1})
    env = to_minari(build(protocol, tmp_path / "bank"), "constants-v0").recover_environment()
    assert env.unwrapped.world.dt == 0.1
    assert env.spec.max_episode_steps == 8


def test_metadata_tell_everything_the_table_does(bounded):
    table = long(bounded)
    dataset = to_minari(bounded, "tests/told-v0", table, unseal=True)
    systems = bounded.systems
    for row, told in zip(table.rows, dataset.storage.get_episode_metadata(range(len(table))), strict=True):
        for name in set(bounded.table.columns) - {"episode", "length"}:
            assert told[name] == bounded.table[name][row]
        assert told["bank_episode"] == bounded.table["episode"][row]
        assert told["system_id"] == systems.ids[bounded.table["system"][row]]
        assert told["total_steps"] == bounded.table["length"][row] - 1


def test_the_table_comes_back(bank, bounded):
    for source, rows in ((bank, bank.table), (bounded, long(bounded))):
        back = from_minari(to_minari(source, f"tests/{source.path.name}-v0", rows, unseal=True))
        assert back["episode"].tolist() == list(range(len(rows)))
        for name in source.table.columns:
            column = "bank_episode" if name == "episode" else name
            assert same(back[column], rows[name])
        filtered = from_minari(
            minari.MinariDataset(minari.load_dataset(f"tests/{source.path.name}-v0").storage, np.array([4, 2]))
        )
        assert filtered["bank_episode"].tolist() == rows["episode"][[4, 2]].tolist()
        assert filtered["episode"].tolist() == [4, 2]


def test_our_samplers_draw_windows_from_a_dataset(bank):
    to_minari(bank, "tests/windows-v0")
    train = from_minari("tests/windows-v0").select("train")
    pairs = PairSampler(train, SAME_SYSTEM, seed=1, distinct="system").batch(0, 6)
    w = WindowSampler(train, history=6, horizon=4).batch(0, pairs)
    reader = MinariWindows("tests/windows-v0", train)
    for rows, starts in ((w.recipient, w.recipient_start), (w.donor, w.donor_start)):
        episodes = train["episode"][rows]
        for column, own in (("observations", "states"), ("actions", "actions"), ("rewards", "rewards")):
            found = reader.windows(column, episodes, starts, 6)
            assert same(found, bank.windows(own, train["bank_episode"][rows], starts, 6))
    assert reader.windows("truncations", [5, 3], 0, 19)[:, -1].all()


def test_a_bare_integer_whose_table_is_not_known(bank):
    to_minari(bank, "tests/rows-v0")
    table = from_minari("tests/rows-v0")
    reader = MinariWindows("tests/rows-v0", table)
    for part in (table.select("test"), table.select(np.arange(17, -1, -1))):
        w = WindowSampler(part, history=6, horizon=4).batch(0, PairSampler(part, SAME_SYSTEM).batch(0, 6))
        recipient, donor = reader.read(w, "observations", 6)
        assert same(donor, bank.windows("states", part["bank_episode"][w.donor], w.donor_start, 6))
        assert same(recipient, reader.windows("observations", w.recipient.episodes, w.recipient_start, 6))
        with pytest.raises(ValueError, match=r"no episode .* in this table"):
            MinariWindows("tests/rows-v0", table.select("validation")).read(w, "observations", 6)
    backwards = to_minari(bank, "tests/backwards-v0", bank.table.select(np.arange(len(bank))[::-1]))
    ours = bank.split("train")
    w = WindowSampler(ours, history=6, horizon=4).batch(0, PairSampler(ours, SAME_SYSTEM).batch(0, 6))
    with pytest.raises(ValueError, match="rows of another store's table"):
        MinariWindows(backwards, from_minari(backwards)).read(w, "observations", 6)


def test_an_index_over_a_dataset_that_grew(bank):
    dataset = to_minari(bank, "tests/grows-v0", "train")
    table = from_minari(dataset)
    reader = MinariWindows("tests/grows-v0", table)
    before = reader.windows("observations", table["episode"], 2, 5)
    dataset.storage.update_episodes(_recorded(bank, row) for row in range(2))
    told = [{"system": 0, "rollout": 3 + i, "split": "train"} for i in range(2)]
    dataset.storage.update_episode_metadata(told, range(len(table), len(table) + 2))
    with pytest.raises(ValueError, match="replaced or written to after"):
        reader.windows("observations", table["episode"], 2, 5)
    grown = from_minari("tests/grows-v0")
    assert len(grown) == len(table) + 2
    w = WindowSampler(table, history=5, horizon=4).batch(0, PairSampler(table, SAME_SYSTEM).batch(0, 6))
    _, donors = MinariWindows("tests/grows-v0", grown).read(w, "observations", 5)  # rows of the older table
    assert same(donors[:, 0], bank["states"][w.donor.episodes, w.donor_start])
    assert same(MinariWindows("tests/grows-v0", table).windows("observations", table["episode"], 2, 5), before)


def _recorded(bank, row):
    from minari.data_collector.episode_buffer import EpisodeBuffer

    steps = bank["rewards"].shape[1]
    none = np.zeros(steps, np.bool_)
    data = (bank[name][row] for name in ("states", "actions", "rewards"))
    return EpisodeBuffer(None, None, None, *data, none, none, {})


@pytest.mark.parametrize("observations", ["states", "frames"])
def test_a_table_of_another_dataset_of_equally_many_episodes(bank, observations):
    short = EpisodeTable({n: bank.table[n] for n in bank.table.columns} | {"length": bank.table["length"] - 3})
    size = None if observations == "states" else 8
    dataset = to_minari(bank, "tests/short-v0", short.select("train"), observations=observations, size=size)
    reader = MinariWindows(dataset, from_minari(to_minari(bank, "tests/long-v0", "train")))
    with pytest.raises(ValueError, match="has 17 observations and 20 in the table, which is of another dataset"):
        reader.windows("observations", [0], 2, 5)


def test_a_part_of_a_bank_in_any_order(bank):
    rows = bank.table.select([17, 4, 29, 8])
    dataset = to_minari(bank, "tests/part-v0", rows)
    check_episodes(bank, rows, dataset, lambda row: bank["states"][row])
    table = from_minari(dataset).select([2, 0, 3])
    assert table["bank_episode"].tolist() == [29, 17, 8]
    reader = MinariWindows(dataset, table)
    found = reader.windows("observations", [0, 3, 2, 0], [1, 2, 3, 4], 5)
    assert same(found, bank.windows("states", [17, 8, 29, 17], [1, 2, 3, 4], 5))
    with pytest.raises(ValueError, match="not inside episode 3, which has 20"):
        reader.windows("observations", [0, 3], [1, 16], 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("observations", [0], 15, 6), r"window of 6 from 15 is not inside episode 0, which has 20 entries"),
        (("actions", [0], 14, 6), r"which has 19 entries of 'actions'"),
        (("observations", [29], 0, 2), r"no episode 29 in the table"),
        (("states", [0], 0, 2), r"episode 0 .* has no column 'states'; legal: actions, observations, rewards, "),
        (("observations", [0.5], 0, 2), r"episodes must be integers"),
    ],
)
def test_windows_that_there_are_not(bank, arguments, message):
    dataset = to_minari(bank, "tests/wrong-v0")
    reader = MinariWindows(dataset, from_minari(dataset).select("train"))
    with pytest.raises(ValueError, match=message):
        reader.windows(*arguments)


def test_a_table_of_another_dataset_is_refused(bank):
    small = to_minari(bank, "tests/small-v0", "test")
    with pytest.raises(ValueError, match="has no episodes 6, 7, 8"):
        MinariWindows(small, from_minari(to_minari(bank, "tests/large-v0")))


def test_an_interrupted_export_leaves_nothing(bank, store):
    def stop(done, total):
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_minari(bank, "tests/stopped-v0", progress=stop)
    assert list(store.rglob("*")) == []
    with pytest.raises(FileNotFoundError):
        minari.load_dataset("tests/stopped-v0")


KILLED = """
import sys, time
from sprii_envs.banks import Bank
from sprii_envs.banks.minari import to_minari

def progress(done, total):
    if done == 20:
        print("now", flush=True)
        time.sleep(60)

to_minari(Bank.open(sys.argv[1]), "tests/killed-v0", progress=progress)
"""


def test_a_killed_export_loads_nowhere_and_can_be_repeated(bank, store):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(bank.path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"now\n"
    with pytest.raises(ValueError, match=rf"this dataset is being written \(by process {process.pid}\)"):
        to_minari(bank, "tests/killed-v0")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [p for p in store.rglob("main_data.hdf5") if p.stat().st_size]
    assert minari.list_local_datasets() == {}
    with pytest.raises(FileNotFoundError):
        minari.load_dataset("tests/killed-v0")
    seen = []
    dataset = to_minari(bank, "tests/killed-v0", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 30) for i in range(31)]
    check_episodes(bank, bank.table, dataset, lambda row: bank["states"][row])
    assert list(minari.list_local_datasets()) == ["tests/killed-v0"]
    assert not [p for p in store.iterdir() if p.name.startswith(".")]


def test_namespaces_are_minaris(bank):
    from minari.namespace import list_local_namespaces

    to_minari(bank, "outer/inner/name-v3", "test")
    to_minari(bank, "outer/inner/name-v4", "test")
    assert list_local_namespaces() == ["outer", "outer/inner"]
    assert to_minari(bank, "name-v0", "test").id == "name-v0"


@pytest.mark.parametrize("dataset_id", ["no-version", "x/one-letter-v0", "a b-v0", "../up-v0", "", "/root-v0"])
def test_illegal_ids(bank, dataset_id, store):
    with pytest.raises(ValueError, match=r"must be \(namespace/\)name-vN"):
        to_minari(bank, dataset_id)
    assert list(store.iterdir()) == []


def test_a_taken_id(bank):
    to_minari(bank, "tests/taken-v0", "test")
    with pytest.raises(ValueError, match=r"already a Minari dataset 'tests/taken-v0'"):
        to_minari(bank, "tests/taken-v0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "no split 'tset'; splits: train, validation, test"),
        ({"observations": "frames"}, r"stores no frames, so say which to draw: to_minari\(..., size=64\)"),
        ({"size": 64}, "size=64 is of frames"),
        ({"observations": "images"}, "images"),
        ({"about": {"licence": "MIT"}}, "no field 'licence'; legal: author"),
    ],
)
def test_bad_arguments(bank, store, arguments, message):
    with pytest.raises(ValueError, match=message):
        to_minari(bank, "tests/bad-v0", **arguments)
    assert list(store.iterdir()) == []


def test_sealed_splits(poke, tmp_path):
    assert set(from_minari(to_minari(poke, "open-v0"))["split"]) == {"train"}
    sealed = poke.table.select("confirmation")
    for split in ("confirmation", sealed):
        with pytest.raises(BankError, match=r"seal.*unseal=True"):
            to_minari(poke, "sealed-v0", split)
        dataset = to_minari(poke, f"unsealed-{type(split).__name__}-v0", split, unseal=True)
        assert set(from_minari(dataset)["split"]) == {"confirmation"}
    closed = build(POKE.replace(sealed_splits=("train", "confirmation")), tmp_path / "closed")
    with pytest.raises(BankError, match="every split is sealed"):
        to_minari(closed, "sealed-v0")


def test_other_tables_are_refused(bank, bounded):
    with pytest.raises(BankError, match="not selected from this bank's table"):
        to_minari(bank, "tests/other-v0", bounded.table)
    with pytest.raises(BankError, match="not selected from this bank's table"):
        to_minari(bank, "tests/other-v0", EpisodeTable({n: bank.table[n][::-1] for n in bank.table.columns}))


def test_an_episode_without_a_transition_is_named(bounded, monkeypatch):
    length = np.full(len(bounded), 5)
    length[1] = 1
    columns = {name: bounded.table[name] for name in bounded.table.columns}
    monkeypatch.setattr(bounded, "_table", EpisodeTable({**columns, "length": length}))
    with pytest.raises(BankError, match=r"1 episodes have one observation .*: 1; pass split=table.select"):
        to_minari(bounded, "tests/short-v0", unseal=True)


def test_no_space(bank, monkeypatch, store):
    full = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(ValueError, match=r"no disk space .* about [\d,]+ bytes needed, 1,000 bytes free"):
        to_minari(bank, "tests/full-v0")
    assert list(store.iterdir()) == []


def test_what_a_dataset_says_of_itself(bank):
    about = {"author": "A. Uthor", "author_email": ["a@b.org"], "code_permalink": "https://example.org"}
    metadata = to_minari(bank, "tests/about-v0", about=about).storage.metadata
    assert metadata["author"] == {"A. Uthor"}
    assert metadata["author_email"] == {"a@b.org"}
    assert metadata["code_permalink"] == "https://example.org"
    assert metadata["sprii_protocol"]["name"] == "d-clean"


def test_without_minari(monkeypatch, bank):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r'pip install "minari\[hdf5\]" pillow'):
        to_minari(bank, "tests/none-v0")
    with pytest.raises(ImportError, match=r'pip install "minari\[hdf5\]" pillow'):
        from_minari("tests/none-v0")


def test_an_old_minari_would_store_jpeg(monkeypatch, bank):
    monkeypatch.setattr(minari, "supported_dataset_versions", {"0.5.3"})
    with pytest.raises(ImportError, match=r"Minari 0.5.4 or newer"):
        to_minari(bank, "tests/old-v0")


def test_minari_is_imported_on_use_only():
    code = (
        "import sys, sprii_envs.banks.minari, sprii_envs.collection; assert not {'minari', 'h5py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Told(minari.EpisodeMetadataCallback):
    """Gives each episode the metadata that `collect` sets."""

    rows: list = []  # noqa: RUF012

    def __call__(self, episode):
        return self.rows[episode["id"]]


def collect(env, dataset_id, rows, steps=12, jpeg=False, data_format=None, options=None, infos=False):
    """A dataset of Minari's own collector: an episode for each row of metadata, of different lengths."""
    Told.rows = rows
    env = minari.DataCollector(
        env, episode_metadata_callback=Told, record_infos=infos, jpeg_encoding=jpeg, data_format=data_format
    )
    for i in range(len(rows)):
        env.reset(seed=i, options=None if options is None else options[i])
        for _ in range(steps + i):
            if any(env.step(env.action_space.sample())[2:4]):
                break
    return env.create_dataset(dataset_id)


MASSES = [0.1, 0.2, 0.3, 0.4] * 2


@pytest.fixture
def cartpole(monkeypatch):
    """Eight episodes of CartPole, pole masses 0.1, 0.2, 0.3, 0.4 and again."""
    let_collect(monkeypatch)
    env = gym.make("CartPole-v1")
    env.action_space.seed(0)

    def make(told=lambda mass, i: {"pole": mass}, **kwargs):
        return collect(env, "public/cartpole-v0", [told(mass, i) for i, mass in enumerate(MASSES)], **kwargs)

    return make


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_dataset_of_minaris_collector(cartpole, data_format):
    if data_format == "arrow":
        pytest.importorskip("pyarrow")
    dataset = cartpole(data_format=data_format)
    table = from_minari("public/cartpole-v0", "pole")
    episodes = list(dataset.iterate_episodes())
    assert table["length"].tolist() == [len(e.observations) for e in episodes]
    assert len(set(table["length"].tolist())) > 3
    assert table["system"].tolist() == ["pole=0.1", "pole=0.2", "pole=0.3", "pole=0.4"] * 2
    assert table["rollout"].tolist() == [0] * 4 + [1] * 4
    assert table["pole"].tolist() == [0.1, 0.2, 0.3, 0.4] * 2
    pairs = PairSampler(table, SAME_SYSTEM, seed=0, distinct="system").batch(0, 4)
    assert (np.abs(pairs.recipient - pairs.donor) == 4).all()
    w = WindowSampler(table, history=4, horizon=3).batch(0, pairs)
    reader = MinariWindows(dataset, table)
    for column in ("observations", "actions", "rewards", "terminations", "truncations"):
        found = reader.windows(column, w.donor, w.donor_start, 4)
        naive = [getattr(episodes[e], column)[s : s + 4] for e, s in zip(w.donor, w.donor_start, strict=True)]
        assert same(found, np.stack(naive))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_several_keys_make_a_system(cartpole):
    dataset = cartpole(
        told=lambda mass, i: {
            "pole": mass,
            "task": ["push", "lift"][i % 2],
            "index": i // 4,
            "part": "train",
            "vector": np.arange(3.0),
            "huge": np.uint64(2**63 + 5),
            **({"sometimes": 1} if i == 2 else {}),
        }
    )
    table = from_minari(dataset, ["task", "pole"], rollout="index", split="part")
    assert table["system"][:2].tolist() == ["task='push', pole=0.1", "task='lift', pole=0.2"]
    assert table["rollout"].tolist() == [0] * 4 + [1] * 4
    assert set(table["split"]) == {"train"}
    assert {"pole", "task", "index", "part"} <= set(table.columns)
    assert not {"vector", "huge", "sometimes"} & set(table.columns)
    assert from_minari(dataset, "task")["system"].tolist() == ["push", "lift"] * 4
    assert from_minari(dataset, "index")["system"].tolist() == [0] * 4 + [1] * 4
    for key, message in {
        "mass": r"no metadata 'mass' for 8 of 8 episodes: 0, 1, .*; its episodes have: .*pole",
        "sometimes": r"no metadata 'sometimes' for 7 of 8 episodes",
        "vector": r"metadata 'vector' of episode 0 is an array of shape \(3,\), not a label",
    }.items():
        with pytest.raises(ValueError, match=message):
            from_minari(dataset, key)
    with pytest.raises(ValueError, match="at least one metadata key"):
        from_minari(dataset, [])
    with pytest.raises(ValueError, match="no local Minari dataset 'public/none-v0'"):
        from_minari("public/none-v0")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({}, r"no metadata 'split' for 1 of 8 episodes: 3"),
        ({"split": np.arange(2)}, "'split' of episode 3 is an array"),
    ],
)
def test_a_split_of_some_episodes_is_refused(cartpole, odd, message):
    dataset = cartpole(told=lambda mass, i: {"pole": mass, **(odd if i == 3 else {"split": "ab"[i // 4]})})
    with pytest.raises(ValueError, match=message):
        from_minari(dataset, "pole")
    rest = dataset.filter_episodes(lambda episode: episode.id != 3)
    assert from_minari(rest, "pole")["split"].tolist() == ["a"] * 3 + ["b"] * 4


def test_a_damaged_file_is_told_by_the_datasets_name(bank):
    dataset = to_minari(bank, "tests/torn-v0")
    table = from_minari(dataset)
    reader = MinariWindows(dataset, table)
    file = dataset.storage.data_path / "main_data.hdf5"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(ValueError, match=r"Minari dataset 'tests/torn-v0' was replaced or written to"):
        reader.windows("observations", [0], 0, 3)
    for use in (
        lambda: from_minari("tests/torn-v0"),
        lambda: from_minari(dataset),
        lambda: MinariWindows(dataset, table).windows("observations", [0], 0, 3),
    ):
        with pytest.raises(ValueError, match=r"Minari dataset 'tests/torn-v0' is damaged or cannot be read"):
            use()


@pytest.mark.parametrize("content", ["", "{", "[" * 200_000, "[]", "{}", '{"data_format": 3}'])
def test_damaged_metadata_are_told_by_the_datasets_name(bank, content):
    dataset = to_minari(bank, "tests/torn-v0", "test")
    (dataset.storage.data_path / "metadata.json").write_text(content)
    for use in (from_minari, lambda name: MinariWindows(name, bank.table)):
        with pytest.raises(ValueError, match=r"Minari dataset 'tests/torn-v0' is damaged or cannot be read"):
            use("tests/torn-v0")


def test_a_dataset_that_was_replaced_is_refused_and_not_mixed(bank, tmp_path):
    other = build(bank.protocol.replace(seed=1), tmp_path / "other")
    dataset = to_minari(bank, "tests/again-v0")
    reader = MinariWindows(dataset, from_minari(dataset))
    before = reader.windows("observations", [3], 0, 4)
    minari.delete_dataset("tests/again-v0")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'tests/again-v0' was replaced or written to"):
            reader.windows("actions", [3], 0, 4)
        if "tests/again-v0" not in minari.list_local_datasets():
            to_minari(other, "tests/again-v0")
    again = MinariWindows("tests/again-v0", from_minari("tests/again-v0"))
    assert not same(again.windows("observations", [3], 0, 4), before)


@pytest.mark.parametrize("decoded", [False, True])
def test_a_dataset_is_read_from_another_folder(bank, store, monkeypatch, decoded):
    monkeypatch.chdir(store.parent)
    monkeypatch.setenv("MINARI_DATASETS_PATH", store.name)
    to_minari(bank, "tests/there-v0", "test")
    given = minari.load_dataset("tests/there-v0")
    assert not given.storage.data_path.is_absolute()
    readers = [MinariWindows(dataset, from_minari(dataset)) for dataset in (given, "tests/there-v0")]
    for reader in readers:
        reader._sliced = not decoded
    elsewhere = store.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for reader in readers:
        assert same(reader.windows("observations", [0], 0, 5)[0], bank["states"][bank.split("test").rows[0], :5])
    with pytest.raises(ValueError, match="no local Minari dataset 'tests/there-v0'"):
        from_minari("tests/there-v0")


def test_an_export_follows_the_link_of_a_namespace_and_none_of_its_own_files(bank, store, tmp_path):
    disk, victim = tmp_path / "disk", tmp_path / "victim"
    disk.mkdir()
    victim.mkdir()
    (victim / "thesis.tex").write_text("precious")
    (store / "linked").symlink_to(disk)
    assert from_minari(to_minari(bank, "linked/name-v0", "test"))
    assert (disk / "name-v0").is_dir()
    (store / ".tests--name-v0.partial").symlink_to(victim)
    with pytest.raises(ValueError, match=r"'tests/name-v0' cannot be written: .*\.partial"):
        to_minari(bank, "tests/name-v0", "test")
    (store / ".tests--name-v0.partial").unlink()
    (store / ".tests--name-v0.partial.lock").symlink_to(victim / "thesis.tex")
    with pytest.raises(ValueError, match=r"\.lock is in the way: a lock must be a plain file"):
        to_minari(bank, "tests/name-v0", "test")
    assert (victim / "thesis.tex").read_text() == "precious"
    (store / "taken-v0").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="already a Minari dataset 'taken-v0'"):
        to_minari(bank, "taken-v0", "test")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_reset_options_of_the_collector_are_labels(monkeypatch):
    let_collect(monkeypatch)
    env = gym.make("sprii/SpringWorld-v0", obs_type="state")
    drags = [0.25, 1.5, 0.25]
    systems = [{"system": {"mass": 1.0, "drag": drag, "stiffness": 10.0}} for drag in drags]
    dataset = collect(env, "public/options-v0", [{}] * 3, options=systems)
    keys = ["options/system/mass", "options/system/drag"]
    table = from_minari(dataset, keys)
    assert table["rollout"].tolist() == [0, 0, 1]
    assert table["options/system/drag"].tolist() == drags


class Counting(gym.Wrapper):
    """Counts in its infos, which the collector records only if reset and step give the same ones."""

    def reset(self, **kwargs):
        self.count = 0
        return self.env.reset(**kwargs)[0], {"count": 0}

    def step(self, action):
        self.count += 1
        return *self.env.step(action)[:4], {"count": self.count}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_infos_have_windows(monkeypatch):
    let_collect(monkeypatch)
    dataset = collect(Counting(gym.make("sprii/D-Clean-v0")), "public/infos-v0", [{"pole": 1}] * 3, infos=True)
    reader = MinariWindows(dataset, from_minari(dataset, "pole"))
    assert reader.windows("infos/count", [2, 0], [3, 5], 4).tolist() == [[3, 4, 5, 6], [5, 6, 7, 8]]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nan_is_no_label(cartpole):
    dataset = cartpole(told=lambda mass, i: {"pole": float("nan") if i in (1, 5) else mass, "id_": i})
    with pytest.raises(ValueError, match=r"'pole' is used as a label but is NaN for episodes 1, 5"):
        from_minari(dataset, "pole")
    assert np.isnan(from_minari(dataset, "id_")["pole"]).sum() == 2  # a column may have them


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_jpeg_is_told_and_read(monkeypatch):
    let_collect(monkeypatch)
    env = gym.make("sprii/PokeWorld-v0", image_size=32)
    env = gym.wrappers.TransformObservation(env, lambda o: o[..., 0], gym.spaces.Box(0, 255, (32, 32), np.uint8))
    dataset = collect(env, "public/jpeg-v0", [{"pole": 1}, {"pole": 2}], jpeg=True, steps=5)
    table = from_minari(dataset, "pole")
    with pytest.warns(UserWarning, match="stores images as JPEG"):
        reader = MinariWindows(dataset, table)
    naive = [dataset[0].observations[1:4], dataset[1].observations[2:5], dataset[0].observations[0:3]]
    assert same(reader.windows("observations", [0, 1, 0], [1, 2, 0], 3), np.stack(naive))
    with pytest.raises(ValueError, match=r"has no column 'images'; legal: .*observations.*truncations"):
        reader.windows("images", [0], [0], 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_parts_of_dictionaries(monkeypatch, data_format):
    if data_format == "arrow":
        pytest.importorskip("pyarrow")
    let_collect(monkeypatch)
    env = gym.make("sprii/D-Clean-v0")
    space = gym.spaces.Dict(
        {"place": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), "seen": gym.spaces.Discrete(3)}
    )
    env = gym.wrappers.TransformObservation(env, lambda o: {"place": o[:2], "seen": np.int64(o[0] > 0)}, space)
    dataset = collect(env, "public/parts-v0", [{"pole": 1}, {"pole": 2}], data_format=data_format)
    reader = MinariWindows(dataset, from_minari(dataset, "pole"))
    assert same(reader.windows("observations/place", [1], [3], 4)[0], dataset[1].observations["place"][3:7])
    assert same(reader.windows("observations/seen", [0], [0], 4)[0], np.asarray(dataset[0].observations["seen"][0:4]))
    for column in ("observations", "observations/colour", "infos/none"):
        with pytest.raises(
            ValueError, match=f"has no column '{column}'; legal: .*observations/place, observations/seen"
        ):
            reader.windows(column, [0], [0], 2)


ROOT = Path(__file__).parents[3]


def test_the_page_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "minari.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    namespace: dict = {}
    for block in blocks:
        exec(block, namespace)
    assert namespace["histories"].shape == (32, 8, 8)
    assert sorted(minari.list_local_datasets()) == ["live/spring-v0", "sprii/d-clean-frames-v0", "sprii/d-clean-v0"]


def test_the_examples_run(monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "MINARI_DATASETS_PATH", "")  # restored afterwards
    for name in ("minari_round_trip", "live_pairs"):
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "pixels that differ from the bank's: 0" in printed
    assert "replayed in the recovered environment: True" in printed
    assert "drag: 1.0000" in printed
