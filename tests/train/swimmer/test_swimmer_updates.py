"""Frozen bases, adapters and the assay: algebra, donor maps, standards, planted updates; a target on a small bank."""

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from torch import Tensor

from sprii_envs.banks import RecordedBank, open_store
from sprii_envs.swimmer import ACTED, OBSERVED, SegmentProtocol
from sprii_train.checkpoints import CheckpointError
from sprii_train.experiments.cells import result_of, work
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.measures.fixed_weight import VARIANTS, _summary
from sprii_train.experiments.reproduce import merged
from sprii_train.experiments.targets import target
from sprii_train.experiments.targets.base import arrays_of
from sprii_train.experiments.targets.swimmer import CLAIMS, SWIMMER_TARGETS
from sprii_train.fit import TrainConfig
from sprii_train.identity import code_of
from sprii_train.learners import MaskedGRU, MaskedGRUConfig, PersistentJEPA, PersistentJEPAConfig
from sprii_train.learners.segments import Adapter
from sprii_train.protocol import Objective, check_learner, encode
from sprii_train.recipes import SWIMMER_RECIPES, SegmentRecipe
from sprii_train.reports.claims import FAILED, HELD, OPEN, judge
from sprii_train.selection import Selection, _without_data, fit_selected, mean_loss
from sprii_train.settings import SWIMMER, Budget
from sprii_train.settings.swimmer import Segments, SegmentTraining
from sprii_train.swimmer import assay
from sprii_train.swimmer.rows import (
    PAIRS,
    ROWS,
    SegmentBatches,
    Shuffled,
    every_row,
    read_rows,
    selecting,
    tables,
    windows,
)
from sprii_train.swimmer.updates import FrozenCodes, fit_adapter, frozen_codes, shuffled, told

pytest.importorskip("mujoco")
Row = dict[str, Any]
SIZES = {"width": 12, "embedding": 10, "latent": 6}
JEPA, GRU = PersistentJEPAConfig(**SIZES), MaskedGRUConfig(**SIZES, state=9)
PROTOCOL = SegmentProtocol(train=6, selection=4, prospective=48, draws=2)
TINY = Budget(
    GRU, SegmentTraining(steps=24, pairs=8, checkpoint_every=2, log_every=1), (0,), 2, 20, "tests",
    store=Segments(PROTOCOL),
)  # fmt: skip


def silent(step: int, values: dict[str, float]) -> None:
    pass


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swimmer")


@pytest.fixture(scope="module")
def store(root: Path) -> RecordedBank:
    found = SWIMMER.open_store(root, TINY)
    assert isinstance(found, RecordedBank)
    return found


def base(config: Any = JEPA, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return (MaskedGRU if isinstance(config, MaskedGRUConfig) else PersistentJEPA)(config).eval()


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


# Rows


def test_arrays_are_z_scores_of_training_segments(store: RecordedBank):
    split, standards = tables(store)
    train = split["train"]
    assert (train.anchors.shape, train.candidates.shape) == ((6, 2, 6, 48), (6, 2, 6, 48))
    assert (train.queries.shape, train.targets.shape) == ((6, 2, 6, 16), (6, 2, 6, 32))
    both = torch.cat([train.anchors, train.candidates], dim=2).double()
    for array in (both, train.queries.double(), train.targets.double()):
        np.testing.assert_allclose(array.mean((0, 1, 2)), 0.0, atol=1e-5)
        np.testing.assert_allclose(array.std((0, 1, 2), correction=0), 1.0, atol=1e-5)
    other = split["prospective"].targets.double()
    assert (other.mean((0, 1, 2)).abs() > 1e-4).any()  # by the training systems, not its own
    noise = (train.targets - train.clean).double() * torch.from_numpy(standards.targets.scale)
    assert float(noise.std()) == pytest.approx(0.0125, rel=0.1)
    # One segment by hand: system 1 of the split, draw 1, the third candidate.
    table = store.split("train")
    (row,) = np.flatnonzero((table["system"] == np.unique(table["system"])[1]) & (table["rollout"] == 1))
    at = table["episode"][[row]], np.array([6 + 2]), 1
    seen, acted = (store.windows(name, *at)[0, 0].astype(np.float64) for name in (OBSERVED, ACTED))
    raw = np.concatenate([seen.ravel(), acted.ravel()])
    made = train.candidates[1, 1, 2].double().numpy() * standards.segments.scale + standards.segments.mean
    np.testing.assert_allclose(made, raw, atol=1e-5)


def test_an_epoch_has_every_row_once():
    rows = Shuffled(3, 4, (0, 1, 2), batch=ROWS, epoch=3, seed=5)
    seen = [rows(step) for step in range(3)]
    keys = [tuple(map(int, key)) for at in seen for key in zip(*at[:1], *at[2:], strict=True)]
    assert len(set(keys)) == len(keys) == 3 * ROWS == 1944
    assert Counter(key[1] for key in keys) == {0: 648, 1: 648, 2: 648}
    assert Counter(np.concatenate([at.draw for at in seen]).tolist()).keys() == {0, 1, 2, 3}
    again = Shuffled(3, 4, (0, 1, 2), batch=ROWS, epoch=3, seed=5)(1)  # whatever was asked before
    assert all(np.array_equal(a, b) for a, b in zip(again, seen[1], strict=True))
    assert not np.array_equal(rows(3).system, seen[0].system)
    every = every_row(np.array([2, 0]), 2, (2,))
    assert len(every.system) == 2 * PAIRS
    assert set(every.condition) == {2}
    assert set(every.system) == {0, 2}
    assert set(every.draw) == {0, 1}


def test_selection_systems_are_shared_or_halved():
    whole, halves = selecting(6, halved=False), selecting(6, halved=True)
    assert [part.tolist() for part in whole] == [[*range(6)], [*range(6)]]
    assert sorted(np.concatenate(halves)) == [*range(6)]
    assert len(halves[0]) == 3


# Bases


@pytest.mark.parametrize("config", [JEPA, GRU])
def test_a_base_is_a_learner_of_its_batches(config: Any, store: RecordedBank):
    batches = SegmentBatches(store, pairs=8, epoch=2, seed=0)
    learner = base(config)
    check_learner(learner, batches(0))
    batch = learner.prepare(batches(1))
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    decoded, latent = learner.predict(codes.z_s, codes.z_p)
    target = learner.target_encoder(batch.y)
    expected = (
        ((decoded - batch.y) ** 2).mean()
        + 0.1 * ((latent - target) ** 2).mean()
        + 0.1 * ((learner.decoder(target) - batch.y) ** 2).mean()
    )
    torch.testing.assert_close(loss, expected)
    assert set(parts) == {"self", "latent", "reconstruction"}
    learner.zero_grad()
    parts["latent"].backward()
    assert all(p.grad is None for p in learner.target_encoder.parameters())  # the target's latent is detached


@pytest.mark.parametrize("config", [JEPA, GRU])
def test_a_masked_segment_says_nothing(config: Any):
    learner, segments, others = base(config), numbers(5, 2, 48), numbers(5, 2, 48, seed=1)
    for mask in ((0.0, 0.0), (1.0, 0.0)):
        masks = torch.tensor([mask]).expand(5, 2)
        mixed = torch.where(masks[..., None] > 0, segments, others)
        torch.testing.assert_close(
            learner.encode_history((segments, masks)), learner.encode_history((mixed, masks)), rtol=0, atol=0
        )
    both = torch.ones(5, 2)
    changed = learner.encode_history((torch.stack([segments[:, 0], others[:, 1]], 1), both))
    assert not torch.allclose(changed, learner.encode_history((segments, both)))


def test_a_masked_step_of_the_gru_is_the_identity():
    """Against torch's own GRU over the segments that are seen."""
    learner, segments = base(GRU), numbers(4, 2, 48)
    whole = torch.nn.GRU(GRU.embedding, GRU.state, batch_first=True)
    whole.load_state_dict({f"{name}_l0": value for name, value in learner.cell.state_dict().items()})
    embedded = learner.segment(segments)
    for mask, seen in (((0.0, 0.0), []), ((1.0, 0.0), [0]), ((0.0, 1.0), [1]), ((1.0, 1.0), [0, 1])):
        state = whole(embedded[:, seen])[1][0] if seen else torch.zeros(4, GRU.state)
        found = learner.encode_history((segments, torch.tensor([mask]).expand(4, 2)))
        torch.testing.assert_close(found, learner.head(state))


# Adapters


def test_the_adapter_is_its_formula_and_zero_for_zero():
    learner = base()
    adapter = Adapter(learner)
    delta, query, latent = numbers(7, 6, seed=2), numbers(7, 6, seed=3), numbers(7, 6, seed=4)
    with torch.no_grad():
        torch.testing.assert_close(adapter.predict(query, delta, latent), learner.decoder(latent), rtol=0, atol=0)
        adapter.out.weight.copy_(numbers(6, 6, seed=5))
        assert not adapter.update(torch.zeros(7, 6), query).any()
        hidden = (delta @ adapter.weight.weight.T).double().numpy()
        gate = (query @ adapter.gate.weight.T + adapter.gate.bias).double().numpy()
        expected = (hidden * ndtr(hidden) / (1.0 + np.exp(-gate))) @ adapter.out.weight.double().numpy().T
        np.testing.assert_allclose(adapter.update(delta, query).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert (adapter.weight.bias, adapter.out.bias) == (None, None)
    assert adapter.gate.bias is not None


def test_frozen_codes_are_those_of_the_base(store: RecordedBank):
    table = tables(store)[0]["train"]
    for config in (JEPA, GRU):
        learner = base(config)
        codes, at = frozen_codes(learner, table), every_row(np.arange(6), 2, (1, 2))
        read = learner.prepare(read_rows(table, at))
        with torch.no_grad():
            z_p, z_s = learner.encode_history(read.history), learner.encode_current(read.current)
        one = torch.from_numpy(at.condition == 1)
        seen = codes.of(at)
        anchor = codes.anchor[at.system, at.draw, at.anchor]
        torch.testing.assert_close(z_p[one], anchor[one])
        torch.testing.assert_close(z_p[~one], seen["both"][~one])
        torch.testing.assert_close(z_s, seen["query"])
        torch.testing.assert_close(seen["delta"], seen["both"] - anchor)


def test_shuffled_updates_are_anothers_and_told_ones_the_scales(store: RecordedBank):
    table = tables(store)[0]["train"]
    codes = frozen_codes(base(), table)
    other = shuffled(codes, 3)
    came = [(codes.delta == other.delta[i]).flatten(1).all(1).nonzero().item() for i in range(6)]
    assert sorted(came) == [*range(6)]
    assert all(came[i] != i for i in range(6))
    scaled = told(codes, table.scales).delta
    assert scaled.shape == (6, 2, 6, 6, 5)
    torch.testing.assert_close(scaled[4, 1, 2, 3], table.scales[4])


def planted_codes(learner: Any, hidden: Tensor, seed: int) -> FrozenCodes:
    """Targets that the base decodes from its latent moved along one direction by the system's number, which Δ tells."""
    s = len(hidden)
    both, query = numbers(s, 1, 6, 6, 6, seed=seed), numbers(s, 1, 6, 6, seed=seed + 1)
    delta = torch.zeros(s, 1, 6, 6, 6)
    delta[..., 0] = hidden[:, None, None, None]
    moved = torch.zeros(6)
    moved[1] = 1.0
    with torch.no_grad():
        # The one latent that all pairs share, so that a target of (system, query) is what Δ adds to the base's.
        both[:] = both[:1, :1, :1, :1]
        latent = learner.latent(query, both[:, :, 0, 0, None].expand(query.shape))
        targets = learner.decoder(latent + hidden[:, None, None, None] * moved)
    return FrozenCodes(both[:, :, :, 0], both, delta, query, targets)


def test_an_adapter_recovers_a_planted_update_and_shuffled_ones_nothing(tmp_path: Path):
    learner = base()
    train, selection, held = (planted_codes(learner, numbers(n, seed=n), n) for n in (40, 20, 24))
    systems = np.arange(24)
    at = assay.Contexts(np.zeros(24, np.int64), systems % 6)
    donor = assay.donors(systems, at.anchor)
    gains = {}
    for name, one, other in (("own", train, selection), ("none", shuffled(train, 0), shuffled(selection, 1))):
        before = copy.deepcopy(learner.state_dict())
        adapter, chosen = fit_adapter(
            learner, one, other, np.arange(20), tmp_path / name, fingerprint="x", updates=300, pairs=128, seed=86101
        )
        assert all(torch.equal(value, before[key]) for key, value in learner.state_dict().items())
        assert all(torch.equal(v, learner.decoder.state_dict()[k]) for k, v in adapter.decoder.state_dict().items())
        assert 5 <= len(chosen.losses) <= 20
        gains[name] = assay.errors(learner, adapter, held, at, donor, held.targets)
    own, none = gains["own"], gains["none"]
    assert own.own.mean() < 0.3 * own.none.mean() < 0.3 * own.wrong.mean()
    assert abs((none.wrong - none.own).mean()) < 0.1 * (own.wrong - own.own).mean()


# Selection


def test_training_ends_when_the_loss_has_not_fallen_and_keeps_the_best(tmp_path: Path):
    learner = base()
    given = iter([5.0, 4.0, 3.0, 3.5, 2.0, 2.5, 2.4, 2.1, 1.0])
    seen: list[Tensor] = []

    def loss(each: Any) -> float:
        seen.append(next(each.parameters()).clone())
        return next(given)

    def data(step: int) -> Any:
        rows = {"segments": numbers(4, 2, 48, seed=step), "mask": torch.ones(4, 2), "query": numbers(4, 16, seed=step)}
        return windows(rows, numbers(4, 32, seed=step))

    config = TrainConfig(steps=24, pairs=2, warmup=0, checkpoint_every=2, log_every=1, precision="fp32")
    kept = Selection(loss, tmp_path / "best.safetensors", every=2, least=6, patience=3)
    chosen = fit_selected(learner, data, config, tmp_path, kept, identity={"data": "planted"})
    assert chosen.losses == [5.0, 4.0, 3.0, 3.5, 2.0, 2.5, 2.4, 2.1]  # 6 at least, and three after the fifth
    assert chosen.epoch == 5
    assert torch.equal(next(learner.parameters()), seen[4])
    assert not torch.equal(seen[4], seen[7])
    assert chosen.seconds > 0
    with pytest.raises(ValueError, match="a budget has 1 updates; legal: an epoch at least, 2"):
        fit_selected(learner, data, replace(config, steps=1), tmp_path / "x", kept)


def closing(data: Any) -> Any:
    """A loss that closes over data."""
    return lambda each: mean_loss(each, data)


def test_a_run_is_of_what_it_was_selected_by_and_nan_is_the_worst(tmp_path: Path):
    def data(step: int) -> Any:
        rows = {"segments": numbers(4, 2, 48, seed=step), "mask": torch.ones(4, 2), "query": numbers(4, 16, seed=step)}
        return windows(rows, numbers(4, 32, seed=step))

    config = TrainConfig(steps=6, pairs=2, warmup=0, checkpoint_every=2, log_every=1, precision="fp32")
    place = tmp_path / "best.safetensors"

    def selected(sign: float, folder: Path = tmp_path, every: int = 2, first: float = 0.0) -> Any:
        losses = iter([first * sign, 1.0 * sign, 2.0 * sign])
        return fit_selected(
            base(), data, config, folder, Selection(lambda _: next(losses), place, every, 3, 3),
            identity={"data": "planted"},
        )  # fmt: skip

    assert selected(1.0).epoch == 1
    with pytest.raises(CheckpointError, match="selection code"):
        fit_selected(
            base(), data, config, tmp_path, Selection(lambda _: 0.5, place, 2, 3, 3), identity={"data": "planted"}
        )
    with pytest.raises(CheckpointError, match=r"selection: there \[2, 3, 3\], here \[3, 3, 3\]"):
        selected(1.0, every=3)
    told = [code_of(_without_data(closing(place))) for place in (tmp_path, place)]
    assert told[0] == told[1]  # of data, whose place is no part of a run
    place = tmp_path / "nan.safetensors"
    found = selected(1.0, tmp_path / "nan", first=float("nan"))
    assert (found.epoch, found.losses) == (2, [float("inf"), 1.0, 2.0])


def test_a_resumed_run_keeps_the_same_epoch(tmp_path: Path):
    def data(step: int) -> Any:
        rows = {"segments": numbers(8, 2, 48, seed=step), "mask": torch.ones(8, 2), "query": numbers(8, 16, seed=step)}
        return windows(rows, numbers(8, 32, seed=step))

    held = data(1000)
    config = TrainConfig(steps=24, pairs=4, warmup=0, checkpoint_every=2, log_every=1, precision="fp32")

    def run(folder: Path, stop: int | None = None) -> Any:
        learner = base()
        kept = Selection(lambda each: mean_loss(each, held), folder / "best.safetensors", 2, 6, 3)

        def progress(step: int, values: dict[str, float]) -> None:
            if step == stop:
                raise KeyboardInterrupt

        chosen = fit_selected(learner, data, config, folder, kept, identity={"data": "planted"}, progress=progress)
        return chosen, learner.state_dict()

    whole, weights = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", stop=9)
    again, resumed = run(tmp_path / "cut")
    assert (again.epoch, again.losses) == (whole.epoch, whole.losses)
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)


def test_the_mean_loss_is_over_rows_whatever_the_chunk(store: RecordedBank):
    learner, table = base(), tables(store)[0]["selection"]
    held = read_rows(table, every_row(np.arange(4), 2, (0, 1, 2)))
    batch = learner.prepare(held)
    with torch.no_grad():
        codes = encode(learner, batch)
        expected = float(learner.task_loss(learner.predict(codes.z_s, codes.z_p), batch.y).mean())
        assert mean_loss(learner, held, chunk=100) == pytest.approx(expected, rel=1e-5)


# The assay


def test_donors_are_a_derangement_of_every_cell():
    systems = np.arange(100, 612)
    at = assay.contexts(systems, 4)
    assert set(at.draw) == {0, 1, 2, 3}
    assert np.bincount(at.anchor, minlength=6).min() > 50  # of 85: the hash has no favourites
    donor = assay.donors(systems, at.anchor)
    rows = np.arange(512)
    for q, c in np.ndindex(6, 6):
        cell = donor[:, q, c]
        assert sorted(cell) == rows.tolist()  # each is donor once
        assert (cell != rows).all()
        assert (at.anchor[cell] == at.anchor).all()  # the same history, query and candidate
        for h in range(6):  # one cycle through the whole cell
            start = now = int(np.flatnonzero(at.anchor == h)[0])
            for _ in range(int((at.anchor == h).sum())):
                now = int(cell[now])
            assert now == start
            steps, now = 1, int(cell[start])
            while now != start:
                steps, now = steps + 1, int(cell[now])
            assert steps == (at.anchor == h).sum()
    assert len({donor[:, q, c].tobytes() for q, c in np.ndindex(6, 6)}) == 36
    order = np.random.default_rng(0).permutation(512)
    moved = assay.contexts(systems[order], 4)  # of a system, whatever its place
    assert np.array_equal(moved.anchor, at.anchor[order])
    with pytest.raises(ValueError, match="system 7 has no other with the anchor 1; legal: more prospective systems"):
        assay.donors(np.array([5, 6, 7]), np.array([0, 0, 1]))


@pytest.mark.parametrize("config", [JEPA, GRU])
def test_errors_are_of_the_recipient_with_one_exchanged_update(config: Any, store: RecordedBank):
    table, learner = tables(store)[0]["prospective"], base(config)
    codes = frozen_codes(learner, table)
    at = assay.contexts(table.systems, 2)
    donor = assay.donors(table.systems, at.anchor)
    adapter = Adapter(learner)
    fresh = assay.errors(learner, adapter, codes, at, donor, table.targets)
    np.testing.assert_array_equal(fresh.own, fresh.none)  # it begins at zero
    np.testing.assert_array_equal(fresh.own, fresh.wrong)
    known = assay.base_errors(learner, table, at)
    assert known["k2"] == pytest.approx(fresh.none.mean(), rel=1e-5)
    with torch.no_grad():
        adapter.out.weight.copy_(numbers(6, 6, seed=9))
    found = assay.errors(learner, adapter, codes, at, donor, table.targets)
    np.testing.assert_array_equal(found.none, fresh.none)
    # One row by hand, from segments on.
    s, q, c = 11, 3, 4
    n, h, other = int(at.draw[s]), int(at.anchor[s]), int(donor[s, q, c])
    m = int(at.draw[other])

    def context(system: int, draw: int, mask: tuple[float, float]) -> Tensor:
        pair = torch.stack([table.anchors[system, draw, h], table.candidates[system, draw, c]])[None]
        return learner.encode_history((pair, torch.tensor([mask])))

    with torch.no_grad():
        query = learner.encode_current(table.queries[s, n, q][None])
        latent = learner.latent(query, context(s, n, (1.0, 1.0)))
        for row, (system, draw) in ((found.own, (s, n)), (found.wrong, (other, m))):
            delta = context(system, draw, (1.0, 1.0)) - context(system, draw, (1.0, 0.0))
            error = (adapter.predict(query, delta, latent) - table.targets[s, n, q]).square().mean()
            assert row[s, q, c] == pytest.approx(float(error), rel=1e-5)


def test_the_true_cost_is_zero_for_the_own_system_and_grows_with_the_difference(store: RecordedBank):
    split, standards = tables(store)
    table = split["prospective"]
    at = assay.contexts(table.systems, 2)
    own = np.broadcast_to(np.arange(48)[:, None, None], (48, 6, 6))
    given = {"steps": 40, "rms": 0.42}
    assert assay.true_cost(table, at, own, standards, **given) == 0.0
    cost = assay.true_cost(table, at, assay.donors(table.systems, at.anchor), standards, **given)
    assert 1e-4 < cost < 0.1
    apart = np.asarray(table.scales)
    nearest = np.array([np.argsort(((apart - one) ** 2).sum(1))[1] for one in apart])
    near = np.broadcast_to(nearest[:, None, None], (48, 6, 6))
    assert assay.true_cost(table, at, near, standards, **given) < cost


def test_the_summary_averages_adapters_then_rows_then_systems():
    rng = np.random.default_rng(0)
    noisy = rng.uniform(size=(3, 2, 40, 6, 6))
    noisy[1] = noisy[0] + 5e-5 + 2e-5 * rng.standard_normal((1, 40, 1, 1))
    found = _summary(noisy, noisy, 89201)
    gain = noisy[1].mean((0, 2, 3)) - noisy[0].mean((0, 2, 3))
    assert found["gain"] == pytest.approx(gain.mean(), abs=1e-12)
    assert found["gain_clean"] == pytest.approx(gain.mean(), abs=1e-12)
    assert found["standard_error"] == pytest.approx(gain.std(ddof=1) / np.sqrt(40))
    low, high = found["gain_interval"]
    assert (high - low) / 2 == pytest.approx(1.96 * found["standard_error"], rel=0.15)  # the normal one
    assert low < found["gain"] < high
    assert found["standard_error"] < 1e-5
    assert found["positive"] == (gain > 0).mean()


# The target


@pytest.fixture(scope="module")
def rows(root: Path, store: RecordedBank) -> list[Row]:
    SWIMMER.check(store, TINY.learner)
    (group,) = SWIMMER_TARGETS[0].groups
    cells = group.cells(Scope(SWIMMER, TINY, group.recipes, store))
    for cell in cells:
        work(cell, root / "cells", silent)
    found = [result_of(cell, root / "cells") for cell in cells]
    return merged(cells, [row for row in found if row is not None], root / "cells")


def test_rows_hold_what_was_measured(rows: list[Row]):
    assert [row["arm"] for row in rows] == list(SWIMMER_RECIPES)
    for row in rows:
        arrays = arrays_of(row, "fixed-weight")
        assert set(arrays) == {*VARIANTS, "by_row"}
        assert arrays["own"].shape == (48,)
        assert arrays["by_row"].shape == (6, 6)
        assert row["gain"] == pytest.approx(arrays["own"].mean(), abs=1e-15)
        assert row["gain"] == pytest.approx(arrays["by_row"].mean(), abs=1e-15)
        assert row["gain"] == pytest.approx(np.mean(row["by_adapter"]), abs=1e-15)
        assert row["gain"] == pytest.approx(row["errors"]["wrong"] - row["errors"]["own"], abs=1e-9)
        assert row["errors"]["none"] == pytest.approx(row["base"]["k2"], rel=1e-5)
        assert len(row["by_adapter"]) == 2
        assert row["systems"] == 48
        assert 1 <= row["epoch"] <= 12
        assert row["train_seconds"] > 0
    assert len({row["base"]["k2"] for row in rows}) == 3
    assert len({row["untrained"]["errors"]["none"] for row in rows}) == 3  # first weights are the base's own
    assert len({row["true_cost"] for row in rows}) == 1


def test_a_source_is_taken_up_and_its_adapters_too(
    rows: list[Row], root: Path, store: RecordedBank, monkeypatch: pytest.MonkeyPatch
):
    (group,) = SWIMMER_TARGETS[0].groups
    cell = group.cells(Scope(SWIMMER, TINY, group.recipes, store))[1]
    folder = Path(rows[1]["folder"])
    (folder / cell.result).unlink()
    before = sorted(path for path in folder.glob("adapters-*/*/checkpoints/*"))
    assert len(list(folder.glob("adapters-*/*"))) == 2 + 1 + 1 + 1
    work(cell, root / "cells", silent)
    again = result_of(cell, root / "cells")
    assert again is not None
    assert (again["gain"], again["oracle"]) == (rows[1]["gain"], rows[1]["oracle"])
    assert sorted(path for path in folder.glob("adapters-*/*/checkpoints/*")) == before


def test_tables_pictures_and_labels(rows: list[Row]):
    one = SWIMMER_TARGETS[0]
    assert target("tab:ctp-fixed-weight") is target("setting:swimmer") is one
    for chosen in (rows, rows[:1], [*rows, *({**row, "seed": 1} for row in rows)]):
        tables_ = one.tables(chosen)
        for table in tables_:
            assert {len(row) for row in table.rows} == {len(table.columns)}
            assert not any("nan" in cell for row in table.rows for cell in row)
        assert all(picture.figure.axes for picture in one.pictures(chosen))
    first = one.tables(rows)[0].rows[0]
    assert first[:2] == ["Persistent-JEPA", f"{1e5 * rows[0]['gain']:.3f}"]
    assert "standard error" in one.facts(rows)["Resolution"]


def test_verdicts_follow_the_interval_over_systems(rows: list[Row]):
    def judged(gain: float, low: float, high: float) -> list[str]:
        told_ = [{**row, "gain": gain, "gain_interval": [low, high]} for row in rows]
        return [verdict.status for verdict in judge(CLAIMS, told_)]

    assert judged(5e-5, 4e-5, 6e-5) == [HELD] * 3
    assert judged(5e-5, -1e-6, 6e-5) == [OPEN] * 3
    assert judged(-5e-5, -6e-5, -4e-5) == [FAILED] * 3
    assert [claim.paper for claim in CLAIMS] == [5.329, 6.930, 6.661]


def test_seeds_and_recipes():
    assert [SWIMMER.seed_of(recipe, 0) for recipe in SWIMMER_RECIPES.values()] == [66113, 64101, 64103]
    every = {SWIMMER.seed_of(recipe, source) for recipe in SWIMMER_RECIPES.values() for source in range(50)}
    assert len(every) == 150
    with pytest.raises(ValueError, match=r"SegmentRecipe\.learner is 'lstm'; legal: persistent-jepa, masked-gru"):
        SegmentRecipe("x", "X", Objective(), learner="lstm")
    with pytest.raises(ValueError, match=r"SegmentRecipe\.objective is .*no term of pairs"):
        SegmentRecipe("x", "X", Objective(lambda_p=1.0))


def test_presets_have_the_papers_budgets():
    paper = SWIMMER.budget("paper")
    assert (paper.train.steps, paper.train.epoch, 2 * paper.train.pairs) == (12 * 1296, 1296, 1024)
    assert 2048 * ROWS == 1296 * 1024
    assert paper.reader_steps == 20 * 2048 * PAIRS // 1024
    made = SWIMMER.store
    assert isinstance(made, Segments)
    assert made.protocol == SegmentProtocol()
    for preset in ("smoke", "quick", "paper"):
        budget = SWIMMER.budget(preset)
        protocol = (budget.store or SWIMMER.store).protocol  # pyright: ignore[reportFunctionMemberAccess]
        if preset != "smoke":  # an epoch is all rows of all systems
            assert budget.train.epoch * 2 * budget.train.pairs == protocol.train * ROWS
            assert budget.reader_steps == 20 * protocol.train * PAIRS // 1024
            assert protocol.prospective == 512
    assert paper.learner == MaskedGRUConfig(256, 128, 64, state=160)


def test_what_cannot_be_trained_is_refused(store: RecordedBank):
    with pytest.raises(ValueError, match="a TrainConfig; legal: a SegmentConfig"):
        SWIMMER.check(store, TrainConfig())
    fake: Any = SimpleNamespace(name="other", columns={"states": 1})
    with pytest.raises(ValueError, match="other has no column 'observed'; columns: states"):
        SWIMMER.check(fake, GRU)
    assert open_store(store.name).fingerprint == store.fingerprint
