"""LeRobot datasets: what is exported follows the format, what others wrote opens, and nothing is lost on the way."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("av")

import pyarrow.parquet as pq  # noqa: E402

from sprii_envs.banks import ArrayStore, RecordedBank, Recording, StoreError, StreamSpec, open_store  # noqa: E402
from sprii_envs.banks.lerobot import LeRobotStore, export_lerobot, import_lerobot  # noqa: E402
from sprii_envs.banks.store import origin_of  # noqa: E402
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler  # noqa: E402

LENGTHS = np.array([5, 9, 7, 1, 6, 8])
TASKS = ["push", "lift", "push", "lift", "push", "push"]


def source() -> ArrayStore:
    """A store of six episodes, with numbers of every kind and two cameras."""
    rng, total = np.random.default_rng(0), LENGTHS.sum()
    table = {
        "episode": [3, 1, 4, 10, 5, 9],
        "system": ["a", "a", "b", "b", "c", "c"],
        "length": LENGTHS,
        "split": ["train"] * 4 + ["test"] * 2,
        "mass": [0.5, 0.5, 1.0, 1.0, 2.0, 2.0],
        "task": TASKS,
    }
    columns = {
        "states": rng.random((total, 4), np.float32),
        "actions": rng.random((total - 6, 1)),
        "reward": rng.random(total),
        "ok": rng.random((total, 2)) > 0.5,
        "grid": rng.integers(0, 9, (total, 3, 2)),
        "cam": rng.integers(0, 255, (total, 16, 18, 3), dtype=np.uint8),
        "gray": rng.integers(0, 255, (total, 16, 16), dtype=np.uint8),
    }
    return ArrayStore(EpisodeTable(table), columns, sealed=("test",))


def whole(store: Any, column: str, row: int, fewer: int = 0) -> np.ndarray:
    table = store.table
    return store.windows(column, table["episode"][[row]], [0], int(table["length"][row]) - fewer)[0]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    root = tmp_path_factory.mktemp("lerobot") / "data"
    return root, export_lerobot(source(), root, fps=10, exact=True, unseal=True, robot="toy")


def test_what_is_exported_opens_as_it_was(exported):
    root, names = exported
    before, store = source(), LeRobotStore.open(root)
    assert names == {
        "states": "observation.state",
        "actions": "action",
        "reward": "observation.reward",
        "ok": "observation.ok",
        "grid": "observation.grid",
        "cam": "observation.images.cam",
        "gray": "observation.images.gray",
    }
    for column, feature in names.items():
        fewer = int(column == "actions")
        for row in np.flatnonzero(fewer < LENGTHS):
            kept, found = whole(before, column, row, fewer), whole(store, feature, row, fewer)
            assert found.dtype == kept.dtype
            np.testing.assert_array_equal(found, kept)
    assert (store.splits, store.sealed_splits, store.robot) == (("train", "test"), ("test",), "toy")
    for label in ("system", "length", "split", "mass", "task", "rollout"):
        assert store.table[label].tolist() == before.table[label].tolist()
    assert store.table["source_episode"].tolist() == before.table["episode"].tolist()
    with pytest.raises(StoreError, match="window of 5 from 0 is not inside episode 0, which has 4 entries of 'action'"):
        store.windows("action", [0], [0], 5)


def test_related_windows_are_those_of_the_source(exported):
    root, names = exported
    before, store = source(), LeRobotStore.open(root)
    pairs = PairSampler(store.split("train"), SAME_SYSTEM, seed=0).batch(0, 16)
    short = WindowSampler(store.split("train"), history=1, horizon=0, seed=0).batch(0, pairs)
    for column in ("states", "cam"):
        for side in zip(store.read(short, names[column], 1), before.read(_in(before, short), column, 1), strict=True):
            np.testing.assert_array_equal(*side)


def _in(store: ArrayStore, windows: Any) -> Any:
    """The same windows of the source, whose episodes have other ids."""
    ids = lambda rows: store.table["episode"][np.asarray(rows)]  # noqa: E731
    return windows._replace(recipient=ids(windows.recipient), donor=ids(windows.donor))


def test_the_export_is_a_dataset_by_the_rules_of_the_format(exported):
    """Read with pandas and FFmpeg's program alone."""
    pandas = pytest.importorskip("pandas")
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    root, before = exported[0], source()
    info = json.loads((root / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["robot_type"]) == ("v3.0", 10, "toy")
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (6, LENGTHS.sum(), 2)
    assert info["splits"] == {"train": "0:4", "test": "4:6"}
    assert info["features"]["observation.images.cam"]["shape"] == [16, 18, 3]
    tasks = pandas.read_parquet(root / "meta" / "tasks.parquet")
    assert tasks.index.tolist() == ["push", "lift"]
    assert tasks["task_index"].tolist() == [0, 1]
    episodes = pandas.read_parquet(
        root / info["data_path"].replace("data", "meta/episodes").format(chunk_index=0, file_index=0)
    )
    frames = pandas.read_parquet(root / info["data_path"].format(chunk_index=0, file_index=0))
    assert episodes["tasks"].tolist() == [[task] for task in TASKS]
    assert frames["index"].tolist() == list(range(LENGTHS.sum()))
    assert frames["task_index"].tolist() == [
        t for n, task in zip(LENGTHS, TASKS, strict=True) for t in [task == "lift"] * n
    ]
    for row, episode in episodes.iterrows():
        own = frames[frames["episode_index"] == row]
        assert own["index"].tolist() == list(range(episode["dataset_from_index"], episode["dataset_to_index"]))
        np.testing.assert_allclose(own["timestamp"], np.arange(LENGTHS[row]) / 10, rtol=1e-6)
        np.testing.assert_array_equal(np.stack(own["observation.state"]), whole(before, "states", row))
        actions = own["action"].to_numpy()
        np.testing.assert_array_equal(
            actions[:-1, None], before.stream("actions").values[LENGTHS[:row].sum() - row :][: LENGTHS[row] - 1]
        )
        assert actions[-1] == 0.0
    stats = json.loads((root / "meta" / "stats.json").read_text())
    states = before.stream("states").values.astype(np.float64)
    for name, expected in (
        ("mean", states.mean(0)),
        ("std", states.std(0)),
        ("min", states.min(0)),
        ("max", states.max(0)),
    ):
        np.testing.assert_allclose(stats["observation.state"][name], expected, rtol=1e-9)
    assert stats["observation.state"]["count"] == [LENGTHS.sum()]
    cam = before.stream("cam").values
    np.testing.assert_allclose(np.ravel(stats["observation.images.cam"]["mean"]), cam.mean((0, 1, 2)) / 255, rtol=1e-9)
    assert np.shape(stats["observation.images.gray"]["q50"]) == (3, 1, 1)
    file = root / info["video_path"].format(video_key="observation.images.cam", chunk_index=0, file_index=0)
    stream = imageio_ffmpeg.read_frames(file)
    assert next(stream)["fps"] == 10
    decoded = np.stack([np.frombuffer(data, np.uint8).reshape(16, 18, 3) for data in stream])
    begins = np.rint(episodes["videos/observation.images.cam/from_timestamp"].to_numpy() * 10).astype(int)
    for row, begin in enumerate(begins):
        np.testing.assert_array_equal(decoded[begin : begin + LENGTHS[row]], whole(before, "cam", row))


def test_lerobot_itself_reads_the_export_and_is_read(exported, tmp_path, monkeypatch):
    pytest.importorskip("lerobot")
    torch = pytest.importorskip("torch")
    import lerobot.datasets.lerobot_dataset as module

    from sprii_envs.banks.films import FilmReader

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        import torchcodec  # noqa: F401
    except (ImportError, OSError, RuntimeError):  # the decoder alone is replaced where it does not load

        def decode(path: Any, times: list[float], *_: Any) -> Any:
            reader = FilmReader(10)
            frames = [reader.frames(Path(path), round(t * 10), 1)[0].transpose(2, 0, 1) for t in times]
            return torch.from_numpy(np.stack(frames)).float() / 255

        monkeypatch.setattr(module, "decode_video_frames", decode)
    root, names = exported
    theirs, store = module.LeRobotDataset("tests/exported", root=root), LeRobotStore.open(root)
    assert (theirs.num_episodes, len(theirs)) == (6, LENGTHS.sum())
    for i in range(len(theirs)):
        item = theirs[i]
        row, t = int(item["episode_index"]), int(item["frame_index"])
        assert item["task"] == TASKS[row]
        for column in ("states", "ok", "grid"):
            ours = store.windows(names[column], [row], [t], 1)[0, 0]
            np.testing.assert_array_equal(np.asarray(item[names[column]]), ours)
        pixels = np.rint(item["observation.images.cam"].numpy() * 255).astype(np.uint8).transpose(1, 2, 0)
        np.testing.assert_array_equal(pixels, store.windows("observation.images.cam", [row], [t], 1)[0, 0])
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": list("xyz")},
        "observation.images.top": {"dtype": "video", "shape": (64, 64, 3), "names": ["height", "width", "channels"]},
        "observation.images.png": {"dtype": "image", "shape": (16, 20, 3), "names": ["height", "width", "channels"]},
    }
    writer = module.LeRobotDataset.create("tests/written", 10, features, root=tmp_path / "written", vcodec="h264")
    rng, kept = np.random.default_rng(0), []
    for episode, (length, task) in enumerate([(5, "push"), (9, "lift"), (7, "push")]):
        for t in range(length):
            frame = {
                "observation.state": rng.random(3, np.float32),
                "observation.images.top": np.full((64, 64, 3), 20 * episode + 10 * t, np.uint8),
                "observation.images.png": rng.integers(0, 255, (16, 20, 3), dtype=np.uint8),
            }
            kept.append(dict(frame))
            writer.add_frame(frame | {"task": task})
        writer.save_episode()
    writer.finalize()
    ours = LeRobotStore.open(tmp_path / "written")
    assert ours.table["system"].tolist() == [0, 1, 0]
    for name, most in (("observation.state", 0), ("observation.images.png", 0), ("observation.images.top", 2)):
        found = np.concatenate([whole(ours, name, row) for row in range(3)]).astype(float)
        assert np.abs(found - np.stack([frame[name] for frame in kept])).max() <= most


# A dataset as somebody else writes it


def written(root: Path, tasks: list[list[str]] | None = None) -> dict[str, list[np.ndarray]]:
    """Four episodes in three files of several row groups, two of them in one chunk; pictures are PNG in the rows."""
    pandas, image = pytest.importorskip("pandas"), pytest.importorskip("PIL.Image")
    import io

    rng, lengths = np.random.default_rng(3), [4, 6, 3, 5]
    tasks = tasks or [["push"], ["lift"], ["push"], ["turn"]]
    texts = list(dict.fromkeys(text for each in tasks for text in each))
    places = [(0, 0), (0, 0), (0, 1), (1, 0)]
    state = [rng.random((n, 2), np.float32) for n in lengths]
    pictures = [rng.integers(0, 255, (n, 8, 10, 3), dtype=np.uint8) for n in lengths]
    rows, begin = {}, 0
    for i, n in enumerate(lengths):
        encoded = []
        for picture in pictures[i]:
            image.fromarray(picture).save(data := io.BytesIO(), "PNG")
            encoded.append({"bytes": data.getvalue(), "path": None})
        frame = pandas.DataFrame(
            {
                "observation.state": list(state[i]),
                "picture": encoded,
                "note": ["text"] * n,
                "timestamp": np.arange(n, dtype=np.float32) / 20,
                "frame_index": np.arange(n),
                "episode_index": np.full(n, i),
                "index": begin + np.arange(n),
                "task_index": np.full(n, texts.index(tasks[i][0])),
            }
        )
        rows.setdefault(places[i], []).append(frame)
        begin += n
    for (chunk, file), frames in rows.items():
        path = root / f"data/chunk-{chunk:03d}/file-{file:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pandas.concat(frames).to_parquet(path, index=False, row_group_size=3)
    ends = np.cumsum(lengths)
    episodes = pandas.DataFrame(
        {
            "episode_index": np.arange(4),
            "tasks": tasks,
            "length": lengths,
            "dataset_from_index": ends - lengths,
            "dataset_to_index": ends,
            "data/chunk_index": [chunk for chunk, _ in places],
            "data/file_index": [file for _, file in places],
            "stats/observation.state/mean": [s.mean(0).tolist() for s in state],
        }
    )
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    for file, part in enumerate((episodes[:3], episodes[3:])):
        part.to_parquet(root / f"meta/episodes/chunk-000/file-{file:03d}.parquet", index=False)
    pandas.DataFrame({"task_index": range(len(texts))}, index=texts).to_parquet(root / "meta/tasks.parquet")
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "picture": {"dtype": "image", "shape": [3, 8, 10], "names": ["channels", "height", "width"]},
        "note": {"dtype": "string", "shape": [1], "names": None},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    } | {
        n: {"dtype": "int64", "shape": [1], "names": None}
        for n in ("frame_index", "episode_index", "index", "task_index")
    }
    info = {
        "codebase_version": "v3.0",
        "robot_type": "toy",
        "fps": 20,
        "splits": {"train": "0:3", "validation": "3:4"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": features,
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    return {"observation.state": state, "picture": pictures}


def test_somebody_elses_dataset(tmp_path):
    kept = written(tmp_path / "data")
    store = LeRobotStore.open(tmp_path / "data")
    assert store.columns == ("observation.state", "picture", "timestamp", "task_index")
    assert store.table["system"].tolist() == [0, 1, 0, 2]  # of what a task asks, which persists
    assert store.table["task"].tolist() == ["push", "lift", "push", "turn"]
    assert store.splits == ("train", "validation")
    for name, episodes in kept.items():
        for row, expected in enumerate(episodes):
            np.testing.assert_array_equal(whole(store, name, row), expected)
    assert store.windows("timestamp", [1], [2], 2).tolist() == [[np.float32(0.1), np.float32(0.15)]]
    np.testing.assert_array_equal(store.windows("picture", [3, 0], [1, 2], 2)[1], kept["picture"][0][2:4])


@pytest.mark.parametrize("form", ["mapping", "table", "frame", "arrow"])
def test_labels_of_ones_own(tmp_path, form):
    kept = written(tmp_path / "data", [["push", "lift"], ["lift"], ["push"], ["turn"]])
    with pytest.raises(StoreError, match="episode 0 has several tasks or none, so they are no system; give labels"):
        LeRobotStore.open(tmp_path / "data")
    own = {"episode": [2, 0], "system": ["left", "right"], "split": ["train", "final"], "mass": [1.0, 2.0]}
    make = {
        "mapping": dict,
        "table": lambda given: EpisodeTable(given | {"length": [3, 4]}),
        "frame": lambda given: pytest.importorskip("pandas").DataFrame(given),
        "arrow": pa.table,
    }[form]
    store = LeRobotStore.open(tmp_path / "data", make(own), sealed=("final",))
    assert store.table["episode"].tolist() == [2, 0]
    assert store.table["length"].tolist() == [3, 4]
    assert store.table["task"].tolist() == ["push", "push; lift"]
    assert (store.splits, store.sealed_splits) == (("train", "final"), ("final",))
    np.testing.assert_array_equal(store.windows("observation.state", [0], [0], 4)[0], kept["observation.state"][0])
    with pytest.raises(StoreError, match="no episode 1"):
        store.windows("observation.state", [1], [0], 1)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"system": [1, 2]}, r"label 'system' is of shape \(2,\); legal: \(4,\)"),
        ({"episode": [0, 4], "system": [1, 2]}, "labels of episodes 0 to 4; it has 0 to 3"),
        ({"episode": [0, 0], "system": [1, 2]}, "unique ids"),
        (
            {"episode": ["0", "1"], "system": [1, 2]},
            r"labels of the episodes \['0', '1'\]; legal: integers \(N,\) of 0",
        ),
        ({"episode": [], "system": []}, r"labels of the episodes \[\]; legal: integers"),
        ({"episode": [3, 1], "system": [1.0, np.nan]}, "label 'system' of episode 1 is nan; legal: a finite number"),
        ("system", "labels are a str; legal: a mapping"),
    ],
)
def test_labels_of_other_episodes_are_refused(tmp_path, labels, said):
    written(tmp_path / "data")
    with pytest.raises(StoreError, match=said):
        LeRobotStore.open(tmp_path / "data", labels)


# Damage


def edit(root: Path, **changed: Any) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def shuffle(file: Path) -> None:
    pq.write_table(pq.read_table(file)[::-1], file)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda root: edit(root, codebase_version="v2.1"), "is of version 'v2.1'; legal: v3.x"),
        (lambda root: edit(root, fps=0), "has 0 frames a second"),
        (lambda root: edit(root, features=[]), "info.json is damaged"),
        (lambda root: edit(root, data_path="../{chunk_index}"), "leads out of the dataset"),
        (lambda root: edit(root, data_path="{chunk}"), "info.json is damaged: KeyError: 'chunk'"),
        (lambda root: (root / "meta/info.json").unlink(), "info.json does not exist"),
        (lambda root: (root / "meta/tasks.parquet").unlink(), "tasks.parquet is missing"),
        (lambda root: (root / "meta/tasks.parquet").write_bytes(b"x"), "tasks.parquet is damaged"),
        (lambda root: (root / "meta/episodes/chunk-000/file-000.parquet").unlink(), "does not hold episodes 0 to 0"),
        (lambda root: shuffle(root / "meta/episodes/chunk-000/file-000.parquet"), "does not hold episodes 0 to 3"),
        (lambda root: (root / "data/chunk-000/file-001.parquet").unlink(), "file-001.parquet is missing"),
        (lambda root: (root / "data/chunk-001/file-000.parquet").write_bytes(b"PAR1"), "file-000.parquet is damaged"),
        (lambda root: shuffle(root / "data/chunk-000/file-000.parquet"), "holds other episodes than meta/episodes"),
    ],
)  # fmt: skip
def test_damage_is_named(tmp_path, damage, said):
    written(tmp_path / "data")
    damage(tmp_path / "data")
    with pytest.raises(StoreError, match=said):
        LeRobotStore.open(tmp_path / "data").windows("observation.state", [0], [0], 1)


def test_a_damaged_video_is_named(exported, tmp_path):
    import shutil

    root = tmp_path / "data"
    shutil.copytree(exported[0], root)
    saved = LeRobotStore.open(root).save(tmp_path / "saved")
    file = root / "videos/observation.images.cam/chunk-000/file-000.mp4"
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(StoreError, match=r"file-000.mp4 cannot be decoded"):
        LeRobotStore.open(root).windows("observation.images.cam", [5], [0], 8)
    with pytest.raises(StoreError, match=r"file-000.mp4 has changed: [0-9,]+ bytes, expected"):
        saved.verify(checksums=False)
    with pytest.raises(StoreError, match=r"file-000.mp4 has changed: [0-9,]+ bytes, expected"):
        open_store(tmp_path / "saved")
    file.unlink()
    with pytest.raises(StoreError, match=r"file-000.mp4 is missing"):
        LeRobotStore.open(root).windows("observation.images.cam", [5], [0], 8)


# Saved, pickled, imported


def test_a_saved_store_opens_where_it_was_saved(exported, tmp_path):
    store = LeRobotStore.open(exported[0], {"system": [0, 0, 1, 1, 2, 2]})
    saved = store.save(tmp_path / "store")
    again = open_store(tmp_path / "store")
    assert isinstance(again, LeRobotStore)
    assert again.fingerprint == saved.fingerprint == store.fingerprint
    assert again.table["system"].tolist() == [0, 0, 1, 1, 2, 2]
    assert LeRobotStore.open(exported[0]).fingerprint != store.fingerprint  # of other labels
    copy = pickle.loads(pickle.dumps(again))
    for column in ("observation.grid", "observation.images.gray"):
        np.testing.assert_array_equal(whole(copy, column, 1), whole(store, column, 1))
    with pytest.raises(StoreError, match="exists; choose another folder"):
        store.save(tmp_path / "store")
    with pytest.raises(StoreError, match="is the folder of a store, not a LeRobot dataset"):
        LeRobotStore.open(tmp_path / "store")


def test_an_import_is_a_bank_of_the_same_entries_and_goes_on_after_a_stop(exported, tmp_path):
    store = LeRobotStore.open(exported[0])

    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_lerobot(exported[0], tmp_path / "bank", progress=stop)
    seen: list[int] = []
    bank = import_lerobot(exported[0], tmp_path / "bank", progress=lambda done, _: seen.append(done))
    assert seen == [3, 4, 5, 6]
    assert isinstance(bank, RecordedBank)
    assert (bank.columns, bank.sealed_splits) == (store.columns, ("test",))
    for column in store.columns:
        fewer = int(column == "action")
        for row in np.flatnonzero(fewer < LENGTHS):
            np.testing.assert_array_equal(whole(bank, column, row, fewer), whole(store, column, row, fewer))
    assert import_lerobot(exported[0], tmp_path / "bank").fingerprint == bank.fingerprint
    with pytest.raises(StoreError, match="holds another bank"):
        import_lerobot(exported[0], tmp_path / "bank", {"system": np.arange(6)})
    small = import_lerobot(exported[0], tmp_path / "small", size=8)
    blocks = whole(store, "observation.images.gray", 1).reshape(9, 8, 2, 8, 2).mean((2, 4))
    np.testing.assert_array_equal(whole(small, "observation.images.gray", 1), np.rint(blocks))
    assert whole(small, "observation.images.cam", 0).shape == (5, 8, 8, 3)
    numbers = import_lerobot(exported[0], tmp_path / "numbers", videos=False)
    assert not [column for column in numbers.columns if "images" in column]
    for path, videos in ((tmp_path / "bank", False), (tmp_path / "numbers", True)):
        with pytest.raises(StoreError, match=f"holds another bank: it .* the pictures; legal: videos={not videos}"):
            import_lerobot(exported[0], path, videos=videos)
    assert import_lerobot(exported[0], tmp_path / "numbers", videos=False).fingerprint == numbers.fingerprint
    with pytest.raises(ValueError, match="exclude each other"):
        import_lerobot(exported[0], tmp_path / "none", videos=False, size=8)
    with pytest.raises(ValueError, match="videos is 'no'; legal: True, False"):
        import_lerobot(exported[0], tmp_path / "none", videos="no")  # type: ignore[arg-type]


def test_usual_videos_differ_by_little(tmp_path):
    """A smooth picture that moves: what H.264 in 4:2:0 keeps."""
    y, x, t = np.mgrid[:64, :64, :30].astype(float)
    frames = 127 + 100 * np.sin((x + 2 * t) / 9) * np.cos(y / 11)
    video = np.repeat(frames.transpose(2, 0, 1)[..., None], 3, axis=-1).astype(np.uint8)
    table = EpisodeTable({"episode": [0, 1], "system": [0, 0], "length": [20, 10]})
    export_lerobot(ArrayStore(table, {"cam": video}), tmp_path / "data", fps=30)
    store = LeRobotStore.open(tmp_path / "data")
    found = np.concatenate([whole(store, "observation.images.cam", row) for row in (0, 1)])
    error, shifted = np.abs(found.astype(int) - video), np.abs(found[1:].astype(int) - video[:-1])
    assert error.max() <= 16
    assert 4 * error.mean() < shifted.mean()  # each frame is that of its time
    size = (tmp_path / "data/videos/observation.images.cam/chunk-000/file-000.mp4").stat().st_size
    assert size < video.nbytes / 10


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"fps": 0}, ValueError, "fps is 0"),
        ({"task": "colour"}, StoreError, "no label 'colour'; labels: episode, system"),
        ({"names": {"state": "x"}}, ValueError, "names has 'state'; columns of arrays: states"),
        ({"names": {"states": "action"}}, ValueError, "two columns are 'action'"),
        ({"names": {"states": "a/b"}}, ValueError, "the feature of 'states' is 'a/b'"),
        ({"table": source().table}, StoreError, "the split 'test' is sealed; copy it with unseal=True"),
    ],
)
def test_what_is_not_exported(tmp_path, how, error, said):
    with pytest.raises(error, match=said):
        export_lerobot(source(), tmp_path / "data", **how)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_named(tmp_path, monkeypatch):
    odd = ArrayStore(EpisodeTable({"episode": [7], "system": [0], "length": [2]}), {"x": np.array([0.0, np.nan])})
    with pytest.raises(StoreError, match="'x' holds NaN or infinity in episode 7; legal: finite numbers"):
        export_lerobot(odd, tmp_path / "data")
    with pytest.raises(StoreError, match="store is 'bank'; legal: a Store, such as what open_store"):
        export_lerobot("bank", tmp_path / "data")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for write in (lambda: export_lerobot(source(), tmp_path / "file" / "data", exact=True),
                  lambda: LeRobotStore.open(tmp_path / "dataset").save(tmp_path / "file" / "saved")):  # fmt: skip
        if not (tmp_path / "dataset").exists():
            export_lerobot(stand_in(tmp_path / "bank"), tmp_path / "dataset")
        with pytest.raises(StoreError, match=r"file(/data|/saved)? cannot be written: (Not a directory|File exists)"):
            write()
    with pytest.raises(StoreError, match=r"cannot be written: (Not a directory|File exists)$"):  # nothing is kept
        import_lerobot(tmp_path / "dataset", tmp_path / "file" / "bank")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recording, "append", full)
    with pytest.raises(
        StoreError, match=r"No space left on device; episodes that were written are kept, the same call"
    ):
        import_lerobot(tmp_path / "dataset", tmp_path / "back")


def test_what_differs_is_told_when_an_import_would_go_on(exported, tmp_path):
    def stop(done: int, _: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_lerobot(exported[0], tmp_path / "bank", size=8, progress=stop)
    with pytest.raises(
        StoreError, match=r"bank.partial is a recording of .* \(its shape is \[8, 8, 3\], not \[16, 18, 3\]"
    ):
        import_lerobot(exported[0], tmp_path / "bank")
    with pytest.raises(
        StoreError, match=r"another or has changed since: the checksum of its meta differs\); remove it"
    ):
        import_lerobot(exported[0], tmp_path / "bank", {"system": np.arange(6)}, size=8)


def test_sealed_splits_stay_and_nothing_is_replaced(tmp_path):
    export_lerobot(source(), tmp_path / "data", exact=True)
    assert LeRobotStore.open(tmp_path / "data").splits == ("train",)
    with pytest.raises(StoreError, match="exists; choose another folder"):
        export_lerobot(source(), tmp_path / "data")
    odd = ArrayStore(
        EpisodeTable({"episode": [0], "system": [0], "length": [2]}), {"cam": np.zeros((2, 17, 20, 3), np.uint8)}
    )
    with pytest.raises(StoreError, match="'cam' is 20×17; legal: even sides, or exact=True"):
        export_lerobot(odd, tmp_path / "odd")
    export_lerobot(odd, tmp_path / "odd", exact=True)
    assert whole(LeRobotStore.open(tmp_path / "odd"), "observation.images.cam", 0).shape == (2, 17, 20, 3)


def test_files_are_cut_where_they_are_large(tmp_path, monkeypatch):
    from sprii_envs.banks.lerobot import export

    for name, value in (("_DATA_BYTES", 1), ("_VIDEO_BYTES", 1), ("_ROWS", 1), ("_EPISODES", 2), ("CHUNK", 2)):
        monkeypatch.setattr(export, name, value)
    names = export_lerobot(source(), tmp_path / "data", exact=True, unseal=True)
    assert len(list((tmp_path / "data" / "data").rglob("*.parquet"))) == 6
    assert (tmp_path / "data/data/chunk-002/file-001.parquet").exists()
    assert len(list((tmp_path / "data" / "videos").rglob("*.mp4"))) >= 4
    before, store = source(), LeRobotStore.open(tmp_path / "data")
    for column in ("states", "cam"):
        for row in range(6):
            np.testing.assert_array_equal(whole(store, names[column], row), whole(before, column, row))


# What is kept of the source


def stand_in(folder: Path) -> RecordedBank:
    """A bank of four episodes whose origin says what it stands for."""
    origin = {"kind": "stand-in", "benchmark": "toy"}
    with Recording(folder, {"states": StreamSpec((2,))}, origin) as recording:
        for i, split in enumerate(["validation", "train", "validation", "train"]):
            recording.append({"states": np.full((3, 2), i)}, system=i, split=split)
    return RecordedBank(folder)


def test_the_origin_goes_with_a_copy(tmp_path):
    bank = stand_in(tmp_path / "bank")
    export_lerobot(bank, tmp_path / "data")
    assert json.loads((tmp_path / "data/meta/info.json").read_text())["sprii"]["origin"] == bank.origin
    store = LeRobotStore.open(tmp_path / "data")
    assert store.origin == origin_of(store) == bank.origin
    back = import_lerobot(tmp_path / "data", tmp_path / "back")
    assert back.origin["kind"] == "lerobot"
    assert origin_of(back) == bank.origin
    export_lerobot(back, tmp_path / "again")
    assert origin_of(LeRobotStore.open(tmp_path / "again").save(tmp_path / "saved")) == bank.origin
    assert origin_of(source()) == {}


def test_episodes_are_numbered_by_split(tmp_path):
    bank = stand_in(tmp_path / "bank")
    export_lerobot(bank, tmp_path / "data")
    assert json.loads((tmp_path / "data/meta/info.json").read_text())["splits"] == {
        "validation": "0:2", "train": "2:4",
    }  # fmt: skip
    store = LeRobotStore.open(tmp_path / "data")
    assert store.table["split"].tolist() == ["validation", "validation", "train", "train"]
    assert store.table["source_episode"].tolist() == store.table["system"].tolist() == [0, 2, 1, 3]
    for row, kept in enumerate([0, 2, 1, 3]):
        np.testing.assert_array_equal(whole(store, "observation.state", row), whole(bank, "states", kept))


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        ({"validation": "0:3", "train": "2:4"}, "the split 'train' has episode 2, which is in 'validation', too"),
        ({"validation": "0:2", "train": "2:9"}, "the split 'train' is 2:9; legal: within 0:4"),
        ({"validation": "-1:2", "train": "2:4"}, "the split 'validation' is -1:2; legal: within 0:4"),
        ({"validation": "0:3", "train": "3:4"}, "of episode 2 is 'validation', its label labels/split is 'train'"),
    ],
)
def test_splits_that_do_not_agree_are_told(tmp_path, splits, said):
    export_lerobot(stand_in(tmp_path / "bank"), tmp_path / "data")
    edit(tmp_path / "data", splits=splits)
    with pytest.raises(StoreError, match=said):
        LeRobotStore.open(tmp_path / "data")
    own = LeRobotStore.open(tmp_path / "data", {"split": ["a", "a", "b", "b"]})
    assert own.splits == ("a", "b")
    edit(tmp_path / "data", splits={"train": "0:4"})  # of an older export, which told nothing but the labels
    assert LeRobotStore.open(tmp_path / "data").splits == ("validation", "train")


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("column", ["observation.state", "observation.images.cam"])
def test_files_that_change_after_the_store_was_opened_are_not_read(exported, tmp_path, saved, column):
    import shutil

    root = tmp_path / "data"
    shutil.copytree(exported[0], root)
    store = LeRobotStore.open(root)
    store = store.save(tmp_path / "saved") if saved else store
    store.verify()
    place = "data/chunk-000/file-000.parquet" if column.endswith("state") else f"videos/{column}/chunk-000/file-000.mp4"
    shutil.copy(root / place, tmp_path / "kept")
    (root / place).unlink()
    shutil.copy(tmp_path / "kept", root / place)  # the same bytes at another time: nobody has compared them
    with pytest.raises(StoreError, match="has changed since the store was opened; open it again"):
        store.windows(column, [0], [0], 2)
    if saved:
        store.verify()  # compares checksums
    else:
        for call in (store.verify, lambda: store.fingerprint):
            with pytest.raises(StoreError, match="has changed since the store was opened; open it again"):
                call()
    with open(root / place, "r+b") as file:
        file.write(b"other")
    with pytest.raises(StoreError, match=f"{Path(place).name} has changed"):
        store.verify()
    (root / place).unlink()
    with pytest.raises(StoreError, match=f"{Path(place).name} is missing"):
        store.verify()


def test_a_dataset_is_no_store(exported, tmp_path):
    with pytest.raises(StoreError, match=r"is a LeRobot dataset, not a store: LeRobotStore.open .* import lerobot"):
        open_store(exported[0])
    with pytest.raises(StoreError, match=r"holds no store: it has no bank.json, it is empty$"):
        open_store(tmp_path)
    with pytest.raises(StoreError, match=r"nowhere/bank.json does not exist$"):
        open_store(tmp_path / "nowhere")


def test_an_export_has_the_callers_splits_and_labels(tmp_path):
    store = source()
    own = store.table
    told = {name: own[name] for name in own.columns} | {"split": ["test", "train"] * 3, "sort": list("xxyyzz")}
    with pytest.raises(StoreError, match="the split 'test' is sealed"):
        export_lerobot(store, tmp_path / "none", table=EpisodeTable(told), exact=True)
    export_lerobot(store, tmp_path / "data", table=EpisodeTable(told), task="sort", exact=True, unseal=True)
    table = LeRobotStore.open(tmp_path / "data").table
    assert table["split"].tolist() == ["train"] * 3 + ["test"] * 3
    assert table["sort"].tolist() == ["x", "y", "z"] * 2
    assert sorted(table["length"].tolist()) == sorted(LENGTHS.tolist())


def test_a_dataset_keeps_its_rate_and_robot_when_it_is_written_again(exported, tmp_path):
    export_lerobot(LeRobotStore.open(exported[0]), tmp_path / "again", exact=True, unseal=True)
    again = LeRobotStore.open(tmp_path / "again")
    assert (again.fps, again.robot) == (10, "toy")
    taken = ArrayStore(EpisodeTable({"episode": [0], "system": ["a"], "length": [3]}), {"timestamp": np.arange(3.0)})
    with pytest.raises(StoreError, match="'timestamp' is a feature that the format makes itself"):
        export_lerobot(taken, tmp_path / "taken")


def test_labels_of_a_dataset_are_by_the_index_that_they_have(exported):
    pandas = pytest.importorskip("pandas")
    labels = pandas.DataFrame({"episode_index": [5, 4, 3, 2, 1, 0], "rod": list("fedcba")})
    for given in (labels, labels.set_index("episode_index")):
        found = LeRobotStore.open(exported[0], labels=given).table
        assert found["rod"][np.argsort(found["episode"])].tolist() == list("abcdef")


def test_a_store_may_be_kept_within_its_data(tmp_path):
    export_lerobot(source(), tmp_path / "data", exact=True)
    store = LeRobotStore.open(tmp_path / "data")
    assert store.save(tmp_path / "data" / "sprii").fingerprint == store.fingerprint
