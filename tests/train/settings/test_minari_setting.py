"""A Minari dataset as the store of a setting: windows, what is refused, and the report from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sprii_envs.banks import D_CLEAN, Bank, build, open_store
from sprii_train.data import PairedWindows, WindowReader

pytest.importorskip("minari")
from sprii_envs.banks.minari import MinariWindows, to_minari

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")

ROOT = Path(__file__).parents[3]
PROTOCOL = D_CLEAN.replace(
    systems={"train": 24, "validation": 12, "test": 8}, rollouts=4, steps=44, sealed_splits=("test",)
)

PLUGIN = '''
"""A setting over a local Minari dataset."""

from own_setting.lstm import LSTMConfig, LSTMPredictor
from own_setting.setting import budget
from sprii_envs.banks.minari import MinariWindows
from sprii_train.learners import register_learner
from sprii_train.settings import Budget, Setting, register_setting


def store(folder):
    path = folder / "clean"
    return MinariWindows.open(path) if path.exists() else MinariWindows("tests/clean-v0").save(path)


own = budget(10, "a check that everything runs", judged=False)
config = LSTMConfig(observation_dim=4, action_dim=2)
SETTING = register_setting(
    Setting(
        "clean-logs", store, properties=("drag",), history=16, anchors=(16, 20), observation="observations",
        action="actions", case_count=8, budgets={"smoke": Budget(config, own.train, (0,), 1, 10, own.note, False, 10)},
    )
)
'''


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A bank that is exported whole, its sealed split too."""
    bank = build(PROTOCOL, tmp_path_factory.mktemp("banks") / "bank")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(bank.path.parent / "minari"))
        to_minari(bank, "tests/clean-v0", unseal=True)
    return bank


@pytest.fixture(autouse=True)
def _datasets(bank: Bank, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(bank.path.parent / "minari"))


def test_a_reader_reads_it_as_it_reads_the_bank(bank: Bank) -> None:
    store = MinariWindows("tests/clean-v0")
    assert (store.splits, store.sealed_splits) == (bank.splits, ("test",))
    readers = (
        WindowReader(bank, 16, (1, 4), ("drag",)),
        WindowReader(store, 16, (1, 4), ("drag",), observation="observations"),
    )
    ours, theirs = (PairedWindows(reader, "train", pairs=6, seed=3)(2) for reader in readers)
    for one, other in zip(ours, theirs, strict=True):
        assert one is other if one is None or other is None else torch.equal(one, other)
    with pytest.raises(ValueError, match="draws no frames"):
        WindowReader(store, 16, image=32)
    with pytest.raises(ValueError, match="'test' is sealed"):
        PairedWindows(readers[1], "test")


def test_a_store_that_no_worker_can_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sprii_train.settings import Setting

    monkeypatch.chdir(tmp_path)
    setting = Setting("own", lambda folder: MinariWindows("tests/clean-v0"), ("drag",), 16, (16,))
    with pytest.raises(ValueError, match="'own' has the store 'tests/clean-v0', which no worker can open: "):
        setting.open_store(tmp_path)


def test_labels_of_ones_own_are_kept_with_it(tmp_path: Path) -> None:
    from sprii_envs.banks.minari import from_minari
    from sprii_envs.relations import EpisodeTable

    table = from_minari("tests/clean-v0")
    half = np.where(table["system"] % 2 == 0, "train", "validation")
    table = EpisodeTable({**{c: table[c] for c in table.columns}, "split": half}).select(np.arange(40)[::-1])
    saved = MinariWindows("tests/clean-v0", table, sealed=()).save(tmp_path / "halves")
    assert saved.sealed_splits == ()
    again = open_store(tmp_path / "halves")
    assert again.fingerprint == saved.fingerprint == MinariWindows("tests/clean-v0", table, sealed=()).fingerprint
    assert again.table["split"].tolist() == table["split"].tolist()
    assert again.fingerprint != MinariWindows("tests/clean-v0").fingerprint
    with pytest.raises(ValueError, match="exists; choose another folder"):
        saved.save(tmp_path / "halves")
    place = tmp_path / "halves" / "bank.json"
    told = json.loads(place.read_text(encoding="utf-8"))
    for changes, message in (
        ({"sealed": ["train"]}, "is damaged or edited"),
        ({"data": str(tmp_path / "gone")}, "gone, which is not there"),
        ({"files": None}, r"bank\.json is damaged"),
        ({"schema": 0}, "schema 0; this reads 'sprii-minari', schema 1"),
    ):
        place.write_text(json.dumps(told | changes), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            open_store(tmp_path / "halves")


@pytest.mark.slow
def test_its_report_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "logs_plugin.py").write_text(PLUGIN, encoding="utf-8")
    path = os.pathsep.join((str(ROOT), str(ROOT / "examples"), str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", "sprii_train", "reproduce", "setting:clean-logs", "--plugin", "logs_plugin", "--preset",
         "smoke", "--out", str(tmp_path / "out"), "--arms", "structure,align-cross"],
        cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "setting-clean-logs" / "results.json").read_text(encoding="utf-8"))
    assert len(results["rows"]) == 2
    for row in results["rows"]:
        assert {"ratio", "rho_drag", "self_h16"} <= set(row["validation"])
        assert "test" not in row  # sealed in the bank, and so in the dataset
        assert "unmeasured" not in row or "simulator" in str(row["unmeasured"])
