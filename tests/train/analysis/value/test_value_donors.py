"""What fits draw: cases by their weights, donors of a pool anew, rates of a schedule; and what weights do to errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from value_toys import NOISE, READER, ROUTE, linear_gaussian

from sprii_train.analysis.populations import Development, Training
from sprii_train.analysis.use.interventions import effect
from sprii_train.analysis.value import (
    FitConfig,
    by_system,
    fit_bases,
    fit_reader,
    fit_readers,
    fit_routes,
    fit_standardiser,
    grid_errors,
    other_system_rows,
    reader_errors,
)
from sprii_train.analysis.value.bases import mean_errors
from sprii_train.analysis.value.cases import Cases, DonorPool
from sprii_train.analysis.value.fitting import DonorInputs, fit_stack
from sprii_train.analysis.value.log_factors import fit_decoder, fit_log_factors
from sprii_train.analysis.value.stacked import StackedLinear

TRAIN = linear_gaussian(Training("train"), 200)
TEST = linear_gaussian(Development("validation"), 100)
DONORS = 6


def pooled(cases: Cases, *, spread: float = 0.0, seed: int = 0) -> Cases:
    """Cases whose donors are `DONORS` codes of their system, scattered about its own; `context` is rank 0's."""
    systems, of = np.unique(cases.systems, return_inverse=True)
    own = np.stack([cases.context[(cases.systems == s).argmax()] for s in systems])  # type: ignore[index]
    rng = np.random.default_rng(seed)
    codes = own[:, None] + spread * rng.standard_normal((len(systems), DONORS, own.shape[1]))
    return replace(cases, pool=DonorPool(codes, of), context=codes[of, 0])


def test_donors_are_drawn_anew_and_uniformly_among_a_systems():
    cases = pooled(TRAIN, spread=1.0)
    assert cases.pool is not None
    inputs = DonorInputs(cases, lambda c: c.context, (3, 4), "cpu")  # type: ignore[return-value, arg-type]
    assert inputs.width == 4
    rows = torch.tensor([[0] * 300, [5] * 300])
    seen = inputs(rows).numpy()
    for r, row in enumerate((0, 5)):
        own = cases.pool.codes[cases.pool.of[row]].astype(np.float32)
        rank = np.abs(seen[r][:, None] - own).max(-1).argmin(1)
        assert (np.abs(seen[r] - own[rank]).max(1) < 1e-6).all()
        assert chisquare(np.bincount(rank, minlength=DONORS)).pvalue > 1e-3
    assert not torch.equal(inputs(rows), torch.from_numpy(seen))
    again = DonorInputs(cases, lambda c: c.context, (3, 4), "cpu")  # type: ignore[return-value, arg-type]
    np.testing.assert_array_equal(again(rows).numpy(), seen)
    alone = DonorInputs(cases, lambda c: c.context, (4,), "cpu")  # type: ignore[return-value, arg-type]
    np.testing.assert_array_equal(alone(rows[1:]).numpy(), seen[1:])


def test_a_case_of_every_donor_and_where_it_stands():
    cases = pooled(TRAIN.take(np.arange(len(TRAIN)) % 3 > 0), spread=1.0)
    some = cases.take(np.isin(cases.systems, [3, 8, 9]))
    every, first = some.of_donors()
    assert every.systems.tolist() == [3] * DONORS + [8] * DONORS + [9] * DONORS
    assert (every.systems[first] == some.systems).all()
    assert every.pool is None
    assert cases.pool is not None
    np.testing.assert_array_equal(every.context, cases.pool.codes[[3, 8, 9]].reshape(-1, 4))
    np.testing.assert_array_equal(every.factors["mass"][first], some.factors["mass"])
    with pytest.raises(ValueError, match="have no pool of donors"):
        TRAIN.of_donors()
    with pytest.raises(ValueError, match="must be rows of 2 systems, got up to 2"):
        DonorPool(np.zeros((2, 3, 4)), np.array([0, 2]))
    with pytest.raises(ValueError, match=r"DonorPool\.codes must be finite"):
        DonorPool(np.full((2, 3, 4), np.nan), np.array([0]))


def test_a_pool_of_equal_donors_fits_the_reader_of_those_donors():
    config = replace(READER, fit=replace(READER.fit, updates=40))
    for arm in ("null", "persistent", "decode", "oracle"):
        one, other = (fit_reader(c, arm, config, 2).predict(TEST) for c in (TRAIN, pooled(TRAIN)))
        np.testing.assert_allclose(one, other, atol=1e-5 if arm != "decode" else 1e-3)
    route = replace(ROUTE, fit=replace(ROUTE.fit, updates=40))
    routes = [fit_routes(c, TEST, fit_bases(c, TEST, route, (1,)), "m2")[0] for c in (TRAIN, pooled(TRAIN))]
    np.testing.assert_allclose(routes[0].predict(TEST), routes[1].predict(TEST), atol=1e-5)


def test_redrawn_donors_do_not_serve_as_labels_of_their_cases():
    """Where codes are noise, a reader of fixed donors learns which case is whose; one of redrawn donors cannot.

    Both predict no better than without codes on new systems; the former is worse than the latter.
    """
    few = linear_gaussian(Training("train"), 30, seed=1)
    noise = np.random.default_rng(0).standard_normal((30, 100, 4))
    of = np.unique(few.systems, return_inverse=True)[1]
    rank = np.random.default_rng(1).integers(100, size=len(few))
    noisy = replace(few, context=noise[of, rank])
    blind = replace(TEST, context=np.random.default_rng(2).standard_normal((len(TEST), 4)))
    config = replace(READER, fit=replace(READER.fit, updates=300))
    fixed, redrawn = (
        np.mean([reader_errors(r, blind).mean() for r in fit_readers(c, "persistent", config, (0, 1))])
        for c in (noisy, replace(noisy, pool=DonorPool(noise, of)))
    )
    assert redrawn < fixed - 0.1 * NOISE


def test_cases_are_drawn_as_they_weigh():
    rows = []

    def losses(drawn: torch.Tensor) -> torch.Tensor:
        rows.append(drawn)
        return network(drawn[..., None].float()).square().mean((1, 2))

    network = StackedLinear((0, 1), "x", 1, 1)
    weights = np.array([1.0, 3.0, 0.5, 5.5])
    fit_stack(network, losses, 4, (0, 1), FitConfig(updates=100, batch=50), weights=weights)
    for r in (0, 1):
        counts = np.bincount(torch.stack(rows)[:, r].flatten().numpy(), minlength=4)
        assert chisquare(counts, 5000 * weights / weights.sum()).pvalue > 1e-3


def test_errors_and_selection_are_means_as_cases_weigh():
    """As of cases that are repeated as often as they weigh."""
    times = np.random.default_rng(0).integers(1, 4, len(TEST))
    weighed, repeated = replace(TEST, weights=times.astype(float)), TEST.take(np.repeat(np.arange(len(TEST)), times))
    reader = fit_reader(TRAIN, "persistent", replace(READER, fit=replace(READER.fit, updates=20)), 0)
    found, wanted = (grid_errors([[reader]], [c]) for c in (weighed, repeated))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(found[0, 0], by_system(reader_errors(reader, weighed), TEST.systems, weighed.weights))
    errors = [mean_errors(torch.from_numpy(reader.predict(c))[None], c) for c in (weighed, repeated)]
    torch.testing.assert_close(*errors)
    rows = other_system_rows(TEST.systems, 0, TEST.strata)
    y, m = TEST.targets, reader.predict(TEST)
    one = effect(y, m, m[rows], TEST.systems, weighed.weights)
    at = np.repeat(np.arange(len(TEST)), times)
    other = effect(y[at], m[at], m[rows][at], TEST.systems[at])
    np.testing.assert_allclose(one.specificity, other.specificity, rtol=1e-9)
    np.testing.assert_allclose(one.matched, other.matched, rtol=1e-9)
    with pytest.raises(ValueError, match="weights must be positive"):
        replace(TEST, weights=np.zeros(len(TEST)))
    with pytest.raises(ValueError, match=r"Cases.weights must have shape"):
        replace(TEST, weights=np.ones(3))


def test_shifts_stay_in_their_stratum_and_keep_the_order():
    rows = other_system_rows(TEST.systems, 5, TEST.strata)
    assert (TEST.strata[rows] == TEST.strata).all()  # type: ignore[index]
    for stratum in ("odd", "even"):
        ids = np.unique(TEST.systems[TEST.strata == stratum])
        donor = {s: TEST.systems[rows[(TEST.systems == s).argmax()]] for s in ids}
        shifts = {int(np.searchsorted(ids, donor[s]) - i) % len(ids) for i, s in enumerate(ids)}
        assert len(shifts) == 1
        assert shifts != {0}
    with pytest.raises(ValueError, match="at least 2 systems in each stratum"):
        other_system_rows(np.array([0, 0, 1, 2]), 0, np.array(["a", "a", "b", "b"]))


def test_the_decoder_reads_each_donor_of_the_pool_once():
    cases = pooled(TRAIN, spread=0.5)
    every, _ = cases.of_donors()
    for one, other in zip(fit_decoder(cases, fit_log_factors(cases), (1.0,)),
                          fit_decoder(every, fit_log_factors(every), (1.0,)), strict=True):  # fmt: skip
        np.testing.assert_allclose(one.predict(TEST.context), other.predict(TEST.context))  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_rates_rise_in_equal_steps_and_then_keep_the_schedule(schedule: str):
    config = FitConfig(updates=100, learning_rate=2.0, schedule=schedule, warmup=10)  # type: ignore[arg-type]
    np.testing.assert_allclose([config.rate(t) for t in range(10)], 0.2 * np.arange(1, 11))
    later = [config.rate(t) for t in range(10, 100)]
    if schedule == "constant":
        assert later == [2.0] * 90
    else:
        np.testing.assert_allclose(later, [1 + math.cos(math.pi * t / 90) for t in range(90)])


def test_horizons_may_have_a_standardiser_each_with_floors():
    targets = TRAIN.targets * [[1.0], [7.0]] + 3.0
    found = fit_standardiser(Training("train"), targets, floors=(1e9,))
    np.testing.assert_allclose(found.mean, targets.mean(0))
    np.testing.assert_allclose(found.scale, np.full((2, 1), 1e9))
    scaled = fit_standardiser(Training("train"), targets, floors=(1e-9,))(targets)
    np.testing.assert_allclose(scaled.std(0), 1.0)


def test_a_code_as_wide_as_the_slot_may_be_projected():
    config = replace(READER, project=True, fit=replace(READER.fit, updates=2))
    reader, plain = (fit_reader(TRAIN, "persistent", c, 0) for c in (config, replace(config, project=False)))
    count = [sum(p.numel() for p in r.network.parameters()) for r in (reader, plain)]
    assert count[0] - count[1] == 4 * 4 + 4
    assert fit_reader(TRAIN, "null", config, 0).slot.mapped == 0


def test_routes_may_have_a_batch_of_their_own():
    route = replace(ROUTE, fit=replace(ROUTE.fit, updates=3))
    bases = fit_bases(TRAIN, TEST, route, (0,))
    same, usual, larger = (fit_routes(TRAIN, TEST, bases, "m2", batch=b)[0].predict(TEST) for b in (128, None, 256))
    np.testing.assert_array_equal(same, usual)
    assert (larger != usual).any()
