"""The outsider's package of `examples/own_setting`, as its page says to run it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from sprii_train.cli import main
from sprii_train.settings import SETTINGS

EXAMPLES = Path(__file__).parents[2] / "examples"


PAGE = EXAMPLES.parent / "docs" / "own_setting.md"


def sprii(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    command = [sys.executable, "-m", "sprii_train", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_package_is_short_and_none_of_ours():
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in (EXAMPLES / "own_setting").glob("*.py"))
    assert lines < 200


def test_its_learner_offers_the_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from own_setting.lstm import LSTMConfig, LSTMPredictor
    from own_setting.setting import VALVES

    from sprii_train.protocol import check_learner
    from sprii_train.recipes import RECIPES

    store = VALVES.open_store(tmp_path)
    assert store.splits == ("train", "validation", "test")
    data = VALVES.data(store, LSTMConfig(), RECIPES["align-cross"], pairs=8, seed=0)
    windows = data(0)
    check_learner(LSTMPredictor(LSTMConfig()), windows)
    # A window is the signals of its own valve: the first difference follows its opening and its labels.
    table = store.table
    assert table["episode_id"][0] == "valve0-0"
    assert np.unique(table["flow"]).size == np.unique(table["system"]).size == 96


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from sprii_train.learners import LEARNERS
    from sprii_train.reports.claims import HELD, judge
    from sprii_train.settings import SETTINGS

    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    told: dict = {"__name__": "page"}
    before = dict(SETTINGS), dict(LEARNERS)
    try:
        for block in blocks:
            exec(block, told)
    finally:  # what the page registers is gone afterwards
        for registry, names in zip((SETTINGS, LEARNERS), before, strict=True):
            for name in set(registry) - set(names):
                del registry[name]
    exec(blocks[0], told)  # run twice, as by every worker: the bank is opened
    assert told["bank"].windows("imu", [0, 3], [5, 0], 24).shape == (2, 24, 10, 6)
    assert told["arrays"].columns == ("signals", "opening", "level", "speed", "imu")
    shapes = {column: tuple(tensor.shape) for column, tensor in told["windows"].observations.items()}
    assert shapes == {"signals": (8, 24, 2), "camera": (8, 24, 8, 8), "imu": (8, 24, 10, 6)}
    setting = told["SETTING"]
    setting.check(setting.open_store(tmp_path), told["config"], cases=True)
    assert len(setting.episodes(told["bank"], "train")) == 24
    row = {"arm": "align-cross", "seed": 0, "validation": {"ratio": 3.0, "intervals": {"ratio": [2.0, 4.0]}}}
    (verdict,) = judge(told["CLAIMS"], [row])
    assert verdict.status == HELD
    assert "3 [2, 4] (95% over systems, given one source)" in verdict.evidence


def test_the_page_names_every_field():
    from sprii_train.protocol import Batch, Windows
    from sprii_train.reports.claims import Claim
    from sprii_train.settings import PRESET_NAMES, Budget, Setting

    page = PAGE.read_text(encoding="utf-8")
    for kind in (Setting, Budget, Claim):
        (table,) = re.findall(rf"\| field of `{kind.__name__}` .*?\n\n", page + "\n\n", re.DOTALL)
        assert sorted(
            re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.split("\n")[2:-2]))
        ) == sorted(field.name for field in fields(kind) if field.name != "_")
    for name in (*Windows._fields, *Batch._fields, *PRESET_NAMES):
        assert f"`{name}`" in page


@pytest.mark.slow
def test_its_report_has_formation_use_and_value(tmp_path: Path):
    arguments = ["setting:valves", "--plugin", "own_setting.setting", "--preset", "smoke", "--out", str(tmp_path)]
    done = sprii(EXAMPLES, "reproduce", *arguments, "--arms", "structure,align-cross")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "setting-valves"
    assert (folder / "report.html").stat().st_size > 10_000
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert "--plugin own_setting.setting" in results["command"]
    for row in results["rows"]:
        for split in ("validation", "test"):
            assert {"ratio", "rho_flow", "centroid_ridge_leak", "self_h16", "correct_h16"} <= set(row[split])
            assert row["untrained"][split]["ratio"] > 0
            low, high = row[split]["intervals"]["ratio"]
            assert low <= row[split]["ratio"] <= high
        assert {"value_null", "value_persistent", "value_oracle", "value_m2", "wrong_m2", "own_s1"} <= set(row)


def test_what_cannot_be_loaded_or_is_not_registered_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # in which the command puts its folder
    monkeypatch.delitem(SETTINGS, "valves", raising=False)  # another test may have registered it

    def said(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["sprii", "reproduce", "setting:valves", *arguments])
        with pytest.raises(SystemExit, match=r"^2$"):
            main()
        return capsys.readouterr().err

    told = said("--plugin", "no_such_module")
    assert told.count("\n") == 1
    assert "--plugin no_such_module: No module named 'no_such_module'" in told
    for name, text, message in (
        ("broken", "raise OSError('no disk')", "--plugin broken does not import: OSError: no disk ("),
        ("absent", "import missing_package", "--plugin absent does not import: ModuleNotFoundError: No module named"),
        ("wrong", "dict(a=1)(2)", "--plugin wrong does not import: TypeError: 'dict' object is not callable ("),
    ):
        (tmp_path / f"{name}.py").write_text(f"\n{text}\n")
        told = said("--plugin", name)
        assert told.count("\n") == 1
        assert message in told
        assert f"{name}.py, line 2)" in told
    assert "unknown setting 'valves'; legal names: d-clean, poke" in said()
    done = sprii(tmp_path, "reproduce", "setting:valves", "--plugin", "broken")  # as a process, from its own folder
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--plugin broken does not import: OSError: no disk (" in done.stderr
