"""Rows that training writes: cut back where it resumes, and read with the name of what is damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sprii_train.analysis.gradients import read_gradients
from sprii_train.checkpoints import CheckpointError
from sprii_train.records import Records, read_rows, training_seconds

ROW = {"step": 2, "loss": 0.1, "steps_per_second": 4.0}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_rows_after_the_resumed_step_go_and_the_others_keep_their_bytes(tmp_path: Path):
    rows = [ROW | {"step": step, "loss": step / 3} for step in (2, 4, 6)]
    path = write(tmp_path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + '{"step": 8, "lo')
    before = path.read_text()
    with Records(tmp_path, 4, tensorboard=False) as records:
        assert before.startswith(path.read_text())
        records.log(5, {"loss": 0.5})
    assert [row["step"] for row in read_rows(path)] == [2, 4, 5]
    assert not list(tmp_path.glob(".*"))


def test_seconds_over_resumptions(tmp_path: Path):
    write(tmp_path / "metrics.jsonl", json.dumps(ROW) + "\n" + json.dumps(ROW | {"step": 10}) + "\n")
    assert training_seconds(tmp_path, 10) == 2 / 4 + 8 / 4
    for half, step in ((json.dumps(ROW) + "\n", 2), ("", 0)):
        write(tmp_path / "metrics.jsonl", half)
        with pytest.raises(CheckpointError, match=rf"metrics\.jsonl is damaged: it ends at step {step} of 10; remove"):
            training_seconds(tmp_path, 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000 + "\n", "line 1 is damaged: JSON nested without end"),
        ("{}\n", "line 1 is damaged: no number step"),
        (json.dumps(ROW) + '\n{"step": 3}\n', "line 2 is damaged: no number (steps_per_second|align_norm)"),
        ('{"step": true}\n', "line 1 is damaged: no number step"),
        ("3\n", "line 1 is damaged: int where an object"),
        ('{"step"\n', "line 1 is damaged: not JSON"),
        (json.dumps(ROW) + '\n{"step": 4, "st', "line 2 is damaged: it has no end"),
    ],
)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics", lambda folder: training_seconds(folder, 2)),
        ("gradients", lambda folder: read_gradients({0: folder})),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, name: str, read: Callable[[Path], Any], text: str, message: str):
    if name == "gradients":
        text = text.replace("steps_per_second", "align_norm").replace("loss", "cross_norm")
        text = text.replace('"align_norm": 4.0', '"align_norm": 4.0, "cosine": null')
    path = write(tmp_path / f"{name}.jsonl", text)
    with pytest.raises(CheckpointError, match=rf"{path}, {message}.*remove the folder {tmp_path}"):
        read(tmp_path)


def test_a_run_is_not_resumed_over_damaged_rows(tmp_path: Path):
    write(tmp_path / "metrics.jsonl", '{"step": 1}\n{}\n')
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 2 is damaged: no number step"):
        Records(tmp_path, 1, tensorboard=False)


def test_what_is_missing_or_has_no_rate_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl does not exist"):
        training_seconds(tmp_path, 2)
    with pytest.raises(FileNotFoundError, match=r"gradients\.jsonl does not exist"):
        read_gradients({0: tmp_path})
    for rate in ("0.0", "-1.0", "NaN", "Infinity"):
        write(tmp_path / "metrics.jsonl", json.dumps(ROW).replace("4.0", rate) + "\n")
        with pytest.raises(CheckpointError, match="steps a second; remove the folder"):
            training_seconds(tmp_path, 2)
    write(tmp_path / "gradients.jsonl", '{"step": 1, "align_norm": 1.0, "cross_norm": 1.0, "cosine": "x"}\n')
    with pytest.raises(CheckpointError, match="line 1 is damaged: no cosine"):
        read_gradients({0: tmp_path})
