"""The references' data law, their selection, and the errors of their heads, against plain loops over the bank."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_sources import cell_of, measuring, source_of
from tiny_worlds import IMAGE

from sprii_envs.banks import Bank
from sprii_train.cases.contexts import MIXTURE, SHOWN, Context, QueriedContexts
from sprii_train.checkpoints import read_tensors
from sprii_train.experiments.measures.own_head import own_head
from sprii_train.experiments.sources import Source
from sprii_train.learners import ReferenceConfig
from sprii_train.records import read_rows
from sprii_train.settings.references import ReferenceTraining
from sprii_train.settings.spring import SELECTION_SEED, SPRING_CASES, queried_loss

CONFIG = ReferenceConfig(
    encoder="tcn", image=IMAGE, stem=(4,), patch=4, frames="scaled", embedding=8, width=8, hidden=(16,)
)
TRAIN = ReferenceTraining(
    steps=6, pairs=3, learning_rate=0.05, warmup=1, checkpoint_every=3, log_every=1, precision="fp32", select_every=2,
    select_batches=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def source(spring_bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Source:
    cell = cell_of(spring_bank, "spring", "reference-tcn", learner=CONFIG, train=TRAIN)
    return source_of(cell, tmp_path_factory.mktemp("cells"))


def test_the_mixture_is_the_references() -> None:
    assert sum(context.share for context in MIXTURE) == pytest.approx(1.0)
    single = {(*c.kinds, c.length): c.share for c in MIXTURE if len(c.kinds) == 1 and not c.twice}
    assert single == {("forced", 24): 0.15, ("forced", 48): 0.13, ("forced", 96): 0.30, ("mass", 48): 0.03}
    assert sum(c.share for c in MIXTURE if len(c.kinds) == 2) == pytest.approx(0.31)
    assert SHOWN["moving"] == (0, 1, 3, 7, 15, 31, 63, 95)
    for kind, anchor in SPRING_CASES.anchors.items():
        assert max(SHOWN[kind]) <= anchor


@pytest.mark.parametrize(
    "context", [Context(1.0, ("forced", "forced"), 48), Context(1.0, ("forced",), 24, twice=True)], ids=str
)
def test_a_batch_is_of_windows_and_futures_of_its_systems(spring_bank: Bank, context: Context) -> None:
    table = spring_bank.split("train")
    data = QueriedContexts(spring_bank, table, SPRING_CASES, CONFIG, pairs=3, seed=0, mixture=[context])
    read: list[Any] = []
    data._frames = lambda *of: read.append(of) or QueriedContexts._frames(data, *of)  # type: ignore[method-assign]
    batch, again = data(5), QueriedContexts.__call__(data, 5)
    assert all(torch.equal(a, b) for a, b in zip(batch, again, strict=True))
    *windows, (queries, begins, count) = read[: len(context.kinds) + 1]
    order = table.by_episode()
    system, kind = ({e: v for e, v in zip(table["episode"], table[n], strict=True)} for n in ("system", "kind"))
    assert len(order) == len(system)
    assert len({system[e] for e in queries}) == 6
    (asked,) = {kind[e] for e in queries}
    anchor = SPRING_CASES.anchors[asked]
    assert count - 1 in SHOWN[asked]
    assert (begins + count - 1 == anchor).all()
    for i, (episodes, starts, length) in enumerate(windows):
        assert [system[e] for e in episodes] == [system[e] for e in queries]
        assert {kind[e] for e in episodes} == {context.kinds[i]}
        assert length == context.length
        assert starts.min() >= 0
        assert starts.max() + length <= 193
        frames = spring_bank.frames(episodes, starts, length, IMAGE)
        np.testing.assert_array_equal(batch.histories[:, i, 1:], frames)
        np.testing.assert_array_equal(batch.histories[:, i, 0], frames[:, 0])
        actions = spring_bank.windows("actions", episodes, starts, length - 1)
        np.testing.assert_allclose(batch.actions[:, i], actions)
    if context.twice:
        assert torch.equal(batch.histories[:, 0], batch.histories[:, 1])
    else:
        assert not (windows[0][0] == windows[1][0]).any()
    states = spring_bank.windows("states", queries, np.full(6, anchor), 33).astype(np.float64)
    train = table.select(np.isin(table["kind"], list(SPRING_CASES.anchors)))
    begin = np.array([SPRING_CASES.anchors[k] for k in train["kind"]])
    of = spring_bank.windows("states", train["episode"], begin, 33).astype(np.float64)
    for k, h in enumerate((1, 4, 16, 32)):
        known = of[:, h] - of[:, 0]
        scale = np.maximum(known.std(0), SPRING_CASES.floors)
        expected = (states[:, h] - states[:, 0] - known.mean(0)) / scale
        np.testing.assert_allclose(batch.targets[:, k], expected, atol=1e-4, rtol=1e-4)


def test_the_kept_weights_are_those_of_the_least_loss_on_systems_that_no_table_reports(
    source: Source, spring_bank: Bank
) -> None:
    losses = [row["loss"] for row in read_rows(source.folder / "selection.jsonl")]
    assert len(losses) == 3
    table = spring_bank.split("validation")
    table = table.select(np.isin(table["group"], ("interpolated", "extrapolated")))
    held = QueriedContexts(spring_bank, table, SPRING_CASES, CONFIG, pairs=3, seed=SELECTION_SEED)
    with torch.no_grad():
        assert queried_loss(source.learner, held, 2) == pytest.approx(min(losses), rel=1e-5)


def test_the_rate_ends_at_a_tenth() -> None:
    train = ReferenceTraining(steps=1_000)
    assert train.rate(0, 1.0) == pytest.approx(0.01)
    assert train.rate(99, 1.0) == train.rate(100, 1.0) == 1.0
    assert train.rate(550, 1.0) == pytest.approx(0.55)
    assert train.rate(1_000, 1.0) == pytest.approx(0.1)


def test_errors_of_a_head_are_those_of_the_readers_cases(source: Source, spring_source: Source) -> None:
    row, cases = own_head(source), SPRING_CASES(spring_source).development
    kept = {name: array.numpy() for name, array in read_tensors(source.folder / source.cell.arrays).items()}
    learner, law = source.learner, SPRING_CASES
    queries, drawn = law.drawn(source, source.bank, "validation")
    errors = []
    with torch.no_grad():
        for i in range(len(cases)):
            q, j = divmod(i, len(queries))
            at, donor = drawn.anchors[j : j + 1], drawn.donors[j : j + 1]
            frames = source.bank.frames(drawn.episodes[j : j + 1], at - q, 1 + q, IMAGE)
            z_p = learner.encode_history(learner.prepare(source.reader.histories(donor, np.zeros(1, int))).history)
            u = torch.from_numpy(cases.actions[i : i + 1].astype(np.float32))
            found = learner.answers(learner.present(torch.from_numpy(frames)), z_p, u, law.horizons)[0].numpy()
            errors.append(np.square(found - cases.targets[i]).mean(-1))
    systems = np.unique(cases.systems)
    weights = np.asarray(cases.weights)
    every = np.full(len(cases), True)
    cold = (np.arange(len(cases)) < len(queries)) & (cases.kinds == "cold")
    cold &= np.isin(cases.strata, ("continuous", "combination"))
    for name, panel in (("full", every), ("cold", cold)):
        rows = [panel & (cases.systems == system) for system in systems]
        expected = np.stack([np.average(np.array(errors)[of], axis=0, weights=weights[of]) for of in rows if of.any()])
        np.testing.assert_allclose(kept[f"head|{name}"][0], expected, rtol=1e-3, atol=1e-4)
        told = expected.mean() if name == "full" else expected[:, -1].mean()
        assert row[f"head_{name}"] == pytest.approx(told, rel=1e-3)
        assert kept[f"null|{name}"].shape == kept[f"head|{name}"].shape
    assert row["null_full"] != row["head_full"]


def test_a_learner_of_pairs_has_no_head_of_its_own(spring_source: Source) -> None:
    cell = measuring(spring_source.cell, "own-head")
    reason = cell.measure.lacking(replace(spring_source, cell=cell))  # type: ignore[union-attr]
    assert reason == "own-head needs the operation 'answers', which JEPA lacks"
