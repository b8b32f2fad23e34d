"""The common reader: its equation, its arms against known risks, and what arms share."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from value_toys import HORIZONS, READER, linear_gaussian, null_risk, oracle_risk

from sprii_train.analysis.formation import Factor, fit_ridge
from sprii_train.analysis.populations import (
    Confirmation,
    Development,
    PopulationError,
    Sample,
    Sealed,
    Training,
)
from sprii_train.analysis.value import (
    ARMS,
    FitConfig,
    ReaderConfig,
    by_system,
    fit_reader,
    fit_readers,
    fit_standardiser,
    grid_errors,
    reader_errors,
    squared_errors,
    strata_by_system,
)
from sprii_train.analysis.value.slots import fit_slot

TRAIN = linear_gaussian(Training("train"), 800)
TEST = linear_gaussian(Sealed("sealed"), 200)
SHORT = replace(READER, fit=FitConfig(updates=12, batch=32))


@pytest.fixture(scope="module")
def readers():
    return {arm: fit_reader(TRAIN, arm, READER, 0) for arm in ARMS}


# Known risks


@pytest.mark.parametrize("arm", ["persistent", "decode", "oracle"])
def test_readers_that_know_the_factor_reach_its_risk(readers, arm):
    np.testing.assert_allclose(reader_errors(readers[arm], TEST).mean(0), oracle_risk(), rtol=0.15)


def test_null_reaches_the_marginal_risk(readers):
    np.testing.assert_allclose(reader_errors(readers["null"], TEST).mean(0), null_risk(TEST), rtol=0.1)


def test_shuffled_is_no_better_than_null(readers):
    null, shuffled = (reader_errors(readers[arm], TEST).mean() for arm in ("null", "shuffled"))
    assert shuffled > 0.97 * null


def test_fixed_wrong_pays_for_the_wrong_factor(readers):
    """Through the reader of y = c·θ + …, another system's θ' costs c²·E(θ − θ')² on top."""
    wrong = TEST.mismatched(7)
    theta, other = np.log(TEST.factors["mass"]), wrong.context[:, 0]
    expected = oracle_risk() + np.array([0.25, 1.0]) * np.mean((theta - other) ** 2)
    np.testing.assert_allclose(reader_errors(readers["persistent"], wrong).mean(0), expected, rtol=0.1)


def test_shuffled_evaluates_with_its_own_map(readers):
    """Its contexts are those of another system already: exchanging the donors by hand changes them."""
    persistent = replace(readers["shuffled"], slot=replace(readers["shuffled"].slot, arm="persistent"))
    by_hand = persistent.predict(TEST.mismatched(READER.donor_seed))
    np.testing.assert_array_equal(readers["shuffled"].predict(TEST), by_hand)
    assert (persistent.predict(TEST) != by_hand).any()


def test_decode_reads_the_code_and_oracle_the_factor(readers):
    foreign = replace(TEST, factors={"mass": np.ones(len(TEST))})
    np.testing.assert_array_equal(readers["decode"].predict(foreign), readers["decode"].predict(TEST))
    assert (readers["oracle"].predict(foreign) != readers["oracle"].predict(TEST)).any()
    wrong = TEST.mismatched(0)
    np.testing.assert_array_equal(readers["oracle"].predict(wrong), readers["oracle"].predict(TEST))
    # The code is a linear function of log mass, so that its ridge estimate is that, standardised by training cases.
    logs = np.log(TRAIN.factors["mass"])
    expected = (np.log(TEST.factors["mass"]) - logs.mean()) / logs.std()
    np.testing.assert_allclose(readers["decode"].slot(TEST)[:, 0], expected, atol=1e-3)
    np.testing.assert_allclose(readers["oracle"].slot(TEST)[:, 0], expected, atol=1e-12)


# Equation


@pytest.mark.parametrize(("arm", "prefix"), [("persistent", None), ("oracle", None), ("persistent", 2)])
def test_network_equals_one_case_and_horizon_at_a_time(arm, prefix):
    cases = linear_gaussian(Training("train"), 6, features=3)
    config = replace(SHORT, query=5, prefix=prefix)
    reader = fit_reader(cases, arm, config, 1)
    net, found = reader.network, reader.predict(cases)
    weights = {name: p.detach()[0] for name, p in net.named_parameters()}
    first = torch.cat([weights[f"by_{part}.weight"] for part in ("case", "action", "horizon")])
    slot = torch.tensor(reader.slot(cases), dtype=torch.float32)
    if arm == "oracle":
        slot = slot @ weights["slot.weight"] + weights["slot.bias"]
    for i in (0, 7):
        features = torch.tensor(cases.query[i], dtype=torch.float32)
        if prefix is None:
            query = features[-1] @ weights["query.weight"] + weights["query.bias"][0]
        else:
            query = net.query(features[None, None])[0, 0]
        for k, h in enumerate(HORIZONS):
            actions = torch.zeros(3)
            actions[:h] = torch.tensor(cases.actions[i, :h, 0])
            mask = torch.tensor([1.0] * h + [0.0] * (3 - h))
            x = torch.cat([query, slot[i], actions, mask, weights["horizon"][k]])
            x = F.gelu(x @ first + weights["by_case.bias"][0])
            x = F.gelu(x @ weights["second.weight"] + weights["second.bias"][0])
            y = x @ weights["last.weight"] + weights["last.bias"][0]
            np.testing.assert_allclose(found[i, k], y.detach(), rtol=1e-4, atol=1e-5)


def test_three_factors_add_256_parameters_to_the_common_reader():
    n = 8
    factors = dict.fromkeys("abc", np.arange(1.0, n + 1))
    fields = {"query": np.zeros((n, 64)), "context": np.zeros((n, 64)), "factors": factors, "strata": None}
    cases = linear_gaussian(Training("train"), 2, **fields)
    config = ReaderConfig(fit=FitConfig(updates=1, batch=2))

    def parameters(arm):
        return sum(p.numel() for p in fit_reader(cases, arm, config, 0).network.parameters())

    common = 64 + 64 + 3 + 3 + 32
    expected = (common + 1) * 256 + 257 * 256 + 257 * 1 + len(HORIZONS) * 32
    assert parameters("null") == parameters("persistent") == parameters("shuffled") == expected
    assert parameters("decode") == parameters("oracle") == expected + 256


def test_codes_of_another_width_reach_the_slot_through_a_linear_map(readers):
    """Native's history context is twice as wide as the slot; the same information gives the same risk."""
    wide, wider = (replace(cases, context=np.repeat(cases.context, 2, axis=1)) for cases in (TRAIN, TEST))
    reader = fit_reader(wide, "persistent", READER, 0)
    assert reader.network.slot.weight.shape == (1, 8, 4)
    own, narrow = (reader_errors(r, c).mean(0) for r, c in ((reader, wider), (readers["persistent"], TEST)))
    np.testing.assert_allclose(own, narrow, rtol=0.1)
    null = reader_errors(readers["null"], TEST).mean(0)
    assert (own < 0.7 * null).all()
    with pytest.raises(ValueError, match="4 dimensions; the reader was fitted for 8"):
        reader.predict(TEST)
    assert fit_slot(wide, "null", 4, donor_seed=0, penalties=(1.0,)).mapped == 0
    assert fit_slot(TRAIN, "persistent", 4, donor_seed=0, penalties=(1.0,)).mapped == 0


def test_factors_may_be_read_as_they_are():
    raw = fit_reader(TRAIN, "decode", replace(SHORT, log_factors=False), 0)
    mass = TRAIN.factors["mass"]
    np.testing.assert_allclose(
        fit_slot(TRAIN, "oracle", 4, donor_seed=0, penalties=(1.0,), log_factors=False)(TEST)[:, 0],
        (TEST.factors["mass"] - mass.mean()) / mass.std(),
        atol=1e-12,
    )
    sample = Sample(TRAIN.population, TRAIN.context, TRAIN.systems, TRAIN.factors)
    expected = fit_ridge(sample, Factor("mass")).predict(TEST.context)
    np.testing.assert_allclose(raw.slot(TEST)[:, 0], (expected - mass.mean()) / mass.std(), rtol=1e-9)


# What arms share


def test_arms_start_from_the_same_common_weights():
    """As one update too small for float32 leaves them."""
    still = replace(READER, fit=FitConfig(updates=1, batch=32, learning_rate=1e-30))
    first, *others = (dict(fit_reader(TRAIN, arm, still, 4).network.named_parameters()) for arm in ARMS)
    for weights in others:
        assert {name for name in weights if name not in first} <= {"slot.weight", "slot.bias"}
        for name in first:
            assert torch.equal(weights[name], first[name])


def test_arms_see_the_same_cases_in_the_same_order():
    """A code of zeros makes Persistent Null, a code that all systems share makes Shuffled Persistent, bit by bit."""
    zeros = replace(TRAIN, context=np.zeros((len(TRAIN), 4)))
    shared = replace(TRAIN, context=np.tile([1.0, 2.0, 3.0, 4.0], (len(TRAIN), 1)))
    for cases, pair in ((zeros, ("null", "persistent")), (shared, ("persistent", "shuffled"))):
        first, second = (fit_reader(cases, arm, SHORT, 2).network.state_dict() for arm in pair)
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_fits_are_functions_of_their_seed():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    a, b, c = (fit_reader(TRAIN, "persistent", SHORT, seed).predict(TEST) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("arm", ["persistent", "decode"])
def test_a_stack_fits_as_its_readers_would_alone(arm):
    together = fit_readers(TRAIN, arm, replace(SHORT, fit=replace(SHORT.fit, stack=2)), (0, 1, 2))
    for seed, reader in enumerate(together):
        alone = fit_reader(TRAIN, arm, SHORT, seed)
        assert reader.seed == seed
        np.testing.assert_allclose(reader.predict(TEST), alone.predict(TEST), rtol=1e-3, atol=1e-4)


# Recipient prefix


def test_a_prefix_reader_sees_that_many_features():
    train = linear_gaussian(Training("train"), 20, features=4)
    reader = fit_reader(train, "null", replace(SHORT, prefix=1), 0)
    base = reader.predict(train)
    for back, changes in ((1, True), (2, True), (3, False)):
        query = train.query.copy()
        query[:, -back] += 1.0
        assert (reader.predict(replace(train, query=query)) != base).any() == changes
    with pytest.raises(ValueError, match="prefix 4 reads 5 features of a recipient; the cases have 4"):
        fit_reader(train, "null", replace(SHORT, prefix=4), 0)


# Errors


def test_errors_by_case_coordinate_and_system(readers):
    reader, targets = readers["persistent"], TEST.targets
    twice = replace(TEST, targets=np.concatenate([targets, targets + 1], -1))

    class Both:
        def predict(self, cases):
            return np.concatenate([reader.predict(TEST)] * 2, -1)

    squares = squared_errors(Both(), twice)
    np.testing.assert_allclose(squares[..., 0], (reader.predict(TEST)[..., 0] - targets[..., 0]) ** 2)
    np.testing.assert_allclose(reader_errors(Both(), twice), squares.mean(-1))
    np.testing.assert_allclose(reader_errors(Both(), twice, coordinates=[1]), squares[..., 1])
    raw = reader_errors(Both(), twice, scale=np.array([2.0, 3.0]))
    np.testing.assert_allclose(raw, (4 * squares[..., 0] + 9 * squares[..., 1]) / 2)

    means = by_system(squares[..., 0], TEST.systems)
    expected = [squares[TEST.systems == s, :, 0].mean(0) for s in np.unique(TEST.systems)]
    np.testing.assert_allclose(means, expected)


def test_raw_errors_undo_the_standardisation(readers):
    raw_targets = 5.0 * TRAIN.targets + 2.0
    standardise = fit_standardiser(Training("train"), raw_targets)
    cases = replace(TRAIN, targets=standardise(raw_targets))

    class Raw:
        def predict(self, cases):
            return standardise(np.zeros_like(raw_targets))

    np.testing.assert_allclose(reader_errors(Raw(), cases, scale=standardise.scale), (raw_targets**2).mean(-1))


def test_a_grid_is_sources_by_readers_by_systems_by_horizons():
    sources = [linear_gaussian(Training("train"), 10, seed=0), linear_gaussian(Training("train"), 10, seed=0)]
    sources[1] = replace(sources[1], query=sources[1].query + 1.0)
    fitted = [fit_readers(cases, "persistent", SHORT, (0, 1, 2)) for cases in sources]
    grid = grid_errors(fitted, sources)
    assert grid.shape == (2, 3, 10, 2)
    expected = by_system(reader_errors(fitted[1][2], sources[1]), sources[1].systems)
    np.testing.assert_array_equal(grid[1, 2], expected)
    with pytest.raises(ValueError, match="same cases"):
        grid_errors(fitted, [sources[0], sources[1].take(np.arange(40)[::-1])])
    with pytest.raises(ValueError, match="readers; legal"):
        grid_errors([fitted[0], fitted[1][:2]], sources)
    with pytest.raises(ValueError, match="2 sources and cases for 1"):
        grid_errors(fitted, sources[:1])


def test_strata_are_told_by_system():
    strata = strata_by_system(TEST)
    np.testing.assert_array_equal(strata, np.where(np.unique(TEST.systems) % 2, "odd", "even"))
    assert strata_by_system(replace(TEST, strata=None)) is None
    with pytest.raises(ValueError, match="two strata"):
        strata_by_system(replace(TEST, strata=np.arange(len(TEST))))


# Refusals


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("population", [Development, Confirmation, Sealed])
def test_readers_fit_on_training_systems_alone(arm, population):
    with pytest.raises(PopulationError, match=f"{arm}.*training systems only"):
        fit_reader(replace(TRAIN, population=population("x")), arm, SHORT, 0)


def test_what_a_reader_cannot_read_is_refused():
    bare = replace(TRAIN, context=None, factors={})
    fit_reader(bare, "null", SHORT, 0)
    for arm in ("persistent", "shuffled"):
        with pytest.raises(ValueError, match="no context"):
            fit_reader(bare, arm, SHORT, 0)
    for arm in ("decode", "oracle"):
        with pytest.raises(ValueError, match="no factors"):
            fit_reader(bare, arm, SHORT, 0)
    with pytest.raises(ValueError, match="no context"):
        fit_reader(replace(TRAIN, context=None), "decode", SHORT, 0)
    wide = fit_reader(TRAIN, "persistent", SHORT, 0)
    with pytest.raises(ValueError, match="3 dimensions; the reader was fitted for 4"):
        wide.predict(replace(TEST, context=TEST.context[:, :3]))
    with pytest.raises(ValueError, match="positive"):
        fit_reader(replace(TRAIN, factors={"mass": -TRAIN.factors["mass"]}), "oracle", SHORT, 0)
    with pytest.raises(ValueError, match="unknown arm 'wrong'; legal names: null"):
        fit_reader(TRAIN, "wrong", SHORT, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="distinct seeds"):
        fit_readers(TRAIN, "null", SHORT, (1, 1))
    reader = fit_reader(TRAIN, "null", SHORT, 0)
    with pytest.raises(ValueError, match=r"horizons \(1, 3\); the cases have \(2, 3\)"):
        reader.predict(replace(TEST, horizons=(2, 3)))
    with pytest.raises(ValueError, match="query=8"):
        reader.predict(replace(TEST, query=TEST.query[:, :5]))
    with pytest.raises(ValueError, match="prefix"):
        ReaderConfig(prefix=-1)
    with pytest.raises(ValueError, match=r"ReaderConfig\.width"):
        ReaderConfig(width=0)
