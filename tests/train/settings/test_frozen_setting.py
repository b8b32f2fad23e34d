"""Stems of sources: one a seed, shared by arms, left as it is by most and begun with by one that trains."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_worlds import POKE_LEARNER, POKE_SMALL

from sprii_envs.banks import Bank, build
from sprii_train.data import WindowReader
from sprii_train.embeddings import EmbeddingReader
from sprii_train.fit import TrainConfig
from sprii_train.learners.pretext import PretextConfig
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import POKE, POKE_FROZEN, Built, FrozenBudget
from sprii_train.settings.frozen import FrozenSetting, begin
from sprii_train.settings.poke_frozen import end_to_end, on_embeddings

STEM = PretextConfig(image=16, stem=(4,), patch=4, embedding=8, hidden=8)
TRAIN = TrainConfig(steps=3, pairs=6, warmup=1, checkpoint_every=2, log_every=1, precision="fp32")
LEARNER = on_embeddings(POKE_LEARNER, STEM)
BUDGET = FrozenBudget(LEARNER, TRAIN, (0, 1), 1, 5, "small", pretext=STEM, pretext_train=replace(TRAIN, pairs=4))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(POKE_SMALL, tmp_path_factory.mktemp("frozen") / "banks" / "poke")


@pytest.fixture(scope="module")
def own() -> FrozenSetting:
    found = POKE_FROZEN.of_source(BUDGET, 0)
    assert isinstance(found, FrozenSetting)
    return found


def digests(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_arms_share_what_a_seed_trains_and_leave_it_as_it_is(own: FrozenSetting, store: Bank, tmp_path: Path):
    kept = own.embeddings(store)
    before = digests(own.stem_folder(store))
    for arm in ("alpha-0", "alpha-1"):
        recipe = EVERY_RECIPE[arm]
        own.train(store, recipe, LEARNER, TRAIN, tmp_path / arm, identity={}, progress=lambda step, values: None)
        reader = own.reader(store, LEARNER)
        assert isinstance(reader, EmbeddingReader)
        assert reader.embeddings is not None
        assert reader.embeddings.folder == kept
    assert digests(own.stem_folder(store)) == before
    assert len(list((Path(store.name).parent / "stems").glob("seed0-*px-*[0-9a-f]"))) == 1


def test_another_seed_or_stem_has_another_folder_and_law(own: FrozenSetting, store: Bank):
    others = [
        POKE_FROZEN.of_source(BUDGET, 1),
        POKE_FROZEN.of_source(replace(BUDGET, pretext=replace(STEM, hidden=9)), 0),
        POKE_FROZEN.of_source(replace(BUDGET, pretext_train=replace(BUDGET.pretext_train, steps=4)), 0),
        POKE_FROZEN.of_source(replace(BUDGET, seen=Built(POKE_SMALL)), 0),
    ]
    folders = [each.stem_folder(store) for each in (own, *others) if isinstance(each, FrozenSetting)]
    assert len(set(folders)) == 5
    laws = [repr(each.law(TRAIN)) for each in (own, *others)]
    assert len(set(laws)) == 5
    again = pickle.loads(pickle.dumps(own))
    assert again.stem_folder(store) == own.stem_folder(store)


def test_a_setting_without_a_source_reads_a_stem_that_is_not_trained(store: Bank):
    reader = POKE_FROZEN.reader(store, LEARNER)
    found = reader.histories(store.table["episode"][:2], np.zeros(2, np.int64))
    assert found.observations.shape == (2, 24, 8)
    for arm in ("alpha-1", "g1"):
        POKE_FROZEN.check_learner(store, EVERY_RECIPE[arm], LEARNER)


def test_a_learner_with_an_image_begins_with_the_stem(own: FrozenSetting, store: Bank):
    config = end_to_end(POKE_LEARNER, STEM)
    learner = own.fresh(store, config).eval()
    frames = own.reader(store, config)
    assert type(frames) is WindowReader
    episodes, times = store.split("validation")["episode"][:4], np.array([1, 5, 9, 30])
    with torch.no_grad():
        found = learner.target(frames.presents(episodes, times))  # type: ignore[operator]
    expected = own.reader(store, LEARNER).presents(episodes, times)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)
    untrained = POKE.fresh(store, config).eval()
    with torch.no_grad():
        other = untrained.target(frames.presents(episodes, times))  # type: ignore[operator]
    assert not torch.allclose(other, expected, atol=0.1)


def test_refused(own: FrozenSetting, store: Bank):
    with pytest.raises(ValueError, match=r"'poke-frozen' has the budget .*; legal: a FrozenBudget"):
        POKE_FROZEN.of_source(POKE.budget("quick"), 0)
    with pytest.raises(ValueError, match="'poke-frozen' has no source yet"):
        POKE_FROZEN.stem_folder(store)
    wrong = end_to_end(POKE_LEARNER, replace(STEM, stem=(5,)))
    with pytest.raises(ValueError, match="JEPA cannot begin with the stem PretextConfig"):
        begin(POKE.fresh(store, wrong), own.stem_of(store))


def test_the_device_is_the_stems_too():
    assert BUDGET.trained(device="cuda").pretext_train.device == "cuda"
    assert BUDGET.trained(steps=7).pretext_train.steps == 3


def test_budgets_of_pokeworld_see_the_same_bank_and_stem():
    """One stem a source serves both banks."""
    from sprii_train.settings import POKE_FROZEN_FACTORIAL

    for preset, one in POKE_FROZEN.budgets.items():
        other = POKE_FROZEN_FACTORIAL.budgets[preset]
        assert isinstance(one, FrozenBudget)
        assert isinstance(other, FrozenBudget)
        assert (one.pretext, one.pretext_train, one.seen) == (other.pretext, other.pretext_train, other.seen)
        assert "frozen" in one.note or preset == "smoke"
        twins = one.others["end-to-end"], one.others["frozen"]
        assert twins[0].train == twins[1].train
        assert (twins[0].learner.image, twins[1].learner.image) == (one.pretext.image, 0)


def test_the_pages_example_runs(capsys: pytest.CaptureFixture[str]):
    page = Path(__file__).parents[3] / "docs" / "frozen_pixels.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(block, {})
    assert capsys.readouterr().out == "torch.Size([2, 24, 16]) torch.Size([2, 3, 16])\n"
