"""The block of docs/swimmer_updates.md runs, and its tables are those of the code."""

import re
from pathlib import Path

import pytest

from sprii_envs.swimmer import HISTORIES, QUERIES, SPLITS, WORLD, SegmentProtocol
from sprii_train.learners import PersistentJEPA, PersistentJEPAConfig
from sprii_train.settings import SWIMMER
from sprii_train.swimmer.assay import CONTEXT_SALT
from sprii_train.swimmer.updates import ADAPTER_SEEDS, EPOCHS

PAGE = (Path(__file__).parents[3] / "docs" / "swimmer_updates.md").read_text(encoding="utf-8")
ROWS = {
    line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
    for line in PAGE.splitlines()
    if "|" in line
}


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    told: dict = {}
    exec(block, told)
    assert told["donors"].shape == (48, 6, 6)
    assert told["loss"].item() > told["parts"]["self"].item() > 0.0


def test_the_experience_is_that_of_the_page():
    protocol = SegmentProtocol()
    for split in SPLITS:
        assert ROWS[f"`{split}`"][:2] == [f"{getattr(protocol, split):,}", str(getattr(protocol, f"{split}_seed"))]
    plain = re.sub(r"[-_]", " ", PAGE)
    for kind in (*HISTORIES, *QUERIES):
        assert kind.replace("_", " ") in plain
    assert (WORLD["root_damping"], WORLD["torque_limit"]) == (0.02, 1.0)
    assert str(CONTEXT_SALT) in ROWS["seeds of training and selection systems, salt of contexts"][0]
    assert f"(seeds {', '.join(map(str, ADAPTER_SEEDS))};" in PAGE


def test_the_presets_are_those_of_the_page():
    for i, preset in enumerate(("smoke", "quick", "paper")):
        budget = SWIMMER.budget(preset)
        made = SWIMMER.store if budget.store is None else budget.store
        protocol, config = made.protocol, budget.learner  # pyright: ignore[reportFunctionMemberAccess]
        counts = (protocol.train, protocol.selection, protocol.prospective)
        assert ROWS["systems of training, selection, assay"][i] == ", ".join(f"{count:,}" for count in counts)
        assert ROWS["draws"][i] == str(protocol.draws)
        sizes = (config.width, config.embedding, config.latent, config.state)
        assert ROWS["hidden width, embedding, latent, GRU state"][i] == ", ".join(map(str, sizes))
        updates = (budget.train.epoch, budget.reader_steps // EPOCHS)
        assert ROWS["updates of an epoch, base and adapter"][i] == ", ".join(f"{count:,}" for count in updates)
        assert float(ROWS["seconds an update of a base, one thread"][i]) == budget.step_seconds


def test_the_networks_are_those_of_the_page():
    learner = PersistentJEPA(PersistentJEPAConfig())
    ends = {name: (part[0].in_features, part[-1].out_features) for name, part in learner.named_children()}  # pyright: ignore
    told = re.findall(r"(\d+)→(\d+)", ROWS["segment, query, target, predictor, decoder"][0])
    names = ("segment", "query", "target_encoder", "predictor", "decoder")
    assert [ends[name] for name in names] == [(int(a), int(b)) for a, b in told]
    assert ends["aggregator"] == (258, 64)
