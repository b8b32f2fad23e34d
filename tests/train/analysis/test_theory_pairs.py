"""Propositions 1 and 2 against the real samplers: the measured pair moment is the closed form's."""

import numpy as np
import pytest
from theory_bank import EPISODES, FACTORS, LEVELS, Bank, Z, draw, make_bank, z_score

from sprii_envs.relations import SAME_SYSTEM, Derangement, Mismatch, Mixture, PairSampler, Relation
from sprii_train.analysis.theory import (
    corrupted_pressure,
    covariances,
    cross_covariances,
    expected_disagreement,
    factor_pressure,
    forced_gap,
    matched_second_moment,
    mean_code_error,
    pair_moments,
    pair_second_moment,
    variance_components,
)

BANK = make_bank()
CODES = BANK.histories @ BANK.encoder.T
SYSTEM = BANK.table["system"]
OTHERS = {name: tuple(f for f in FACTORS if f != name) for name in FACTORS}


def pressure(alpha: float) -> float:
    """Proposition 2 with the bank's own covariances."""
    within, between = variance_components(BANK.histories, SYSTEM)
    return corrupted_pressure(BANK.encoder, np.eye(len(within)), between, within, alpha)


def correct(seed: int = 0) -> PairSampler:
    return PairSampler(BANK.table, SAME_SYSTEM, seed=seed, distinct="system")


def random(seed: int = 0) -> PairSampler:
    return PairSampler(BANK.table, SAME_SYSTEM, Derangement(), seed=seed, distinct="system")


def all_pairs(bank: Bank, relation: Relation) -> np.ndarray:
    """Q(A | B) (recipient, donor) by listing every pair."""
    table = bank.table
    legal = ~np.eye(len(table), dtype=bool)
    for name in relation.shared:
        legal &= table[name][:, None] == table[name][None]
    for name in relation.differ:
        legal &= table[name][:, None] != table[name][None]
    return legal / legal.sum(1, keepdims=True)


# Proposition 1


def test_the_general_form_is_the_average_of_the_drawn_pairs():
    donor, recipient = draw(random(), 50)
    a, b = CODES[donor].reshape(-1, 3) + 0.3, CODES[recipient].reshape(-1, 3)
    assert pair_second_moment(pair_moments(a, b)) == pytest.approx(((a - b) ** 2).sum(1).mean(), rel=1e-12)


def test_matched_pairs_are_twice_the_within_covariance_of_the_bank():
    within = variance_components(CODES, SYSTEM).within
    assert abs(z_score(correct(), CODES, matched_second_moment(within))) < Z
    # The population form, with replacement, is a share 1/R too small, and the measurement can tell.
    population = matched_second_moment(covariances(CODES, SYSTEM).within)
    assert population == pytest.approx(matched_second_moment(within) * (1 - 1 / EPISODES))
    assert abs(z_score(correct(), CODES, population)) > 6


def test_the_iid_form_holds_for_iid_pairs_of_a_continuous_law():
    rng = np.random.default_rng(3)
    mean, scale = rng.standard_normal((200_000, 2)), rng.uniform(0.5, 2.0, (200_000, 1))  # groups differ in spread too
    a, b = (mean + scale * rng.standard_normal((200_000, 2)) for _ in range(2))
    within = np.eye(2) * (scale**2).mean()
    pairs = ((a - b) ** 2).sum(1)
    assert abs(pairs.mean() - matched_second_moment(within)) < Z * pairs.std() / np.sqrt(len(pairs))
    assert np.abs(pair_moments(a, b).cov_ab - np.eye(2)).max() < Z * 3 / np.sqrt(len(pairs))


def test_covariances_are_those_of_a_loop_and_sum_to_the_total():
    within, between = covariances(CODES, SYSTEM)
    parts = [CODES[rows] for rows in (np.flatnonzero(s == SYSTEM) for s in np.unique(SYSTEM))]
    assert np.allclose(within, sum(len(x) * np.cov(x.T, ddof=0) for x in parts) / len(CODES))
    assert np.allclose(between, np.cov(np.stack([x.mean(0) for x in parts]).T, ddof=0))
    assert np.allclose(within + between, np.cov(CODES.T, ddof=0))
    assert np.allclose(covariances(CODES, np.stack([BANK.table[f] for f in FACTORS], 1)).within, within)


def test_variance_components_are_unbiased_for_the_model_when_groups_are_uneven():
    rng = np.random.default_rng(5)
    sizes = rng.integers(2, 6, 40)
    groups = np.repeat(np.arange(40), sizes)
    found = []
    for _ in range(2000):
        codes = 0.5 * rng.standard_normal(40)[groups] + rng.standard_normal(len(groups))
        found.append([float(part[0, 0]) for part in variance_components(codes, groups)])
    found = np.array(found)
    assert (np.abs(found.mean(0) - [1.0, 0.25]) < Z * found.std(0) / np.sqrt(len(found))).all()


def test_without_replacement_pairs_are_negatively_dependent_within_a_system():
    donor, recipient = (rows.ravel() for rows in draw(correct()))
    within, between = cross_covariances(CODES[donor], CODES[recipient], SYSTEM[recipient])
    assert np.allclose(within + between, pair_moments(CODES[donor], CODES[recipient]).cov_ab)
    scale = covariances(CODES, SYSTEM)
    assert np.allclose(within, -scale.within / (EPISODES - 1), atol=0.02 * np.trace(scale.within))
    assert np.allclose(between, scale.between, atol=0.02 * np.trace(scale.between))


# Proposition 2


@pytest.mark.parametrize(("alpha", "sampler"), [(1.0, correct), (0.0, random)])
def test_the_ends_of_the_corruption(alpha, sampler):
    assert abs(z_score(sampler(), CODES, pressure(alpha))) < Z
    assert abs(z_score(sampler(), CODES, pressure(abs(alpha - 0.05)))) > 6


@pytest.mark.parametrize("mode", ["exact", "iid"])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_a_mixture_has_the_pressure_of_its_share_of_correct_pairs(alpha, mode):
    sampler = PairSampler(BANK.table, SAME_SYSTEM, Mixture(alpha, mode=mode), seed=11, distinct="system")
    assert abs(z_score(sampler, CODES, pressure(alpha))) < Z
    for other in (alpha - 0.05, alpha + 0.05):
        assert not 0 <= other <= 1 or abs(z_score(sampler, CODES, pressure(other))) > 6


def test_with_few_uneven_systems_the_formula_is_that_of_every_pair_listed():
    rng = np.random.default_rng(6)
    system = np.repeat(np.arange(4), [2, 5, 3, 4])
    codes = rng.standard_normal((4, 2))[system] + rng.standard_normal((14, 2))
    within, between = variance_components(codes, system)
    squared = ((codes[:, None] - codes[None]) ** 2).sum(2)
    chance = 1 / np.bincount(system)[system]  # a uniform episode of a uniform system
    other = (system[:, None] != system[None]) * chance[:, None] * chance / (4 * 3)
    own = (system[:, None] == system[None]) * ~np.eye(14, dtype=bool)
    own = own / own.sum(1, keepdims=True) * chance[:, None] / 4
    for alpha, listed in ((0.0, (other * squared).sum()), (1.0, (own * squared).sum())):
        assert corrupted_pressure(np.eye(2), np.eye(2), between, within, alpha) == pytest.approx(listed)


def test_uneven_systems_obey_the_same_formula():
    rng = np.random.default_rng(2)
    table = BANK.table.select((BANK.table["rollout"] < 2) | (rng.random(len(SYSTEM)) < 0.5))
    codes = CODES[table.rows]
    within, between = variance_components(codes, table["system"])
    for alpha, kernel in ((1.0, None), (0.0, Derangement())):
        sampler = PairSampler(table, SAME_SYSTEM, kernel, distinct="system")
        assert abs(z_score(sampler, codes, corrupted_pressure(np.eye(3), np.eye(3), between, within, alpha))) < Z


def test_in_the_limit_of_large_banks_the_model_covariances_predict():
    rng = np.random.default_rng(4)
    w, load, noise = rng.standard_normal((2, 5)), rng.standard_normal((5, 3)), np.diag([0.1, 0.5, 1.0, 2.0, 0.3])
    root = np.linalg.cholesky(np.array([[1.0, 0.4, 0.0], [0.4, 2.0, 0.1], [0.0, 0.1, 0.5]]))
    theta_a, redrawn = (rng.standard_normal((100_000, 3)) @ root.T for _ in range(2))
    right = rng.random((100_000, 1)) < 0.6
    theta_b = np.where(right, theta_a, redrawn)
    a, b = (t @ load.T + rng.standard_normal((100_000, 5)) @ np.sqrt(noise) for t in (theta_a, theta_b))
    pairs = (((a - b) @ w.T) ** 2).sum(1)

    def z(alpha: float) -> float:
        expected = corrupted_pressure(w, load, root @ root.T, noise, alpha)
        return abs(pairs.mean() - expected) / (pairs.std() / np.sqrt(len(pairs)))

    assert z(0.6) < Z
    assert z(0.55) > 6


# One factor at a time


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_one_wrong_factor_has_the_finite_bank_coefficient(factor, alpha):
    i = FACTORS.index(factor)
    kernel = Mixture(alpha, wrong=Mismatch(factor))
    sampler = PairSampler(BANK.table, Relation(shared=FACTORS), kernel, seed=i)
    donor, recipient = draw(sampler)
    difference = BANK.factors[donor] - BANK.factors[recipient]
    assert not np.delete(difference, i, 2).any()
    # The corollary redraws the noise for every pair; L = I would do without noise.
    noise = 0.5 * np.random.default_rng(i).standard_normal((2, *donor.shape, len(BANK.loadings)))
    pairs = (difference @ BANK.loadings.T + noise[0] - noise[1]) @ BANK.encoder.T
    of_batch = (pairs**2).sum(2).mean(1)
    error = of_batch.std(ddof=1) / np.sqrt(len(of_batch))
    levels = np.array([BANK.factors[BANK.table[factor] == code, i][0] for code in range(LEVELS[i])])

    def z(share: float, gap: float) -> float:
        cov = 0.25 * np.eye(len(BANK.loadings))
        return abs(of_batch.mean() - factor_pressure(BANK.encoder, BANK.loadings[:, i], gap, cov, share)) / error

    gap = forced_gap(levels)
    assert gap == pytest.approx(2 * LEVELS[i] / (LEVELS[i] - 1) * levels.var())
    assert z(alpha, gap) < Z
    assert z(abs(alpha - 0.05), gap) > 6
    assert alpha == 1.0 or z(alpha, 2 * levels.var()) > 6  # an independent redraw is another law


# Any relation, without drawing


@pytest.mark.parametrize(
    "relation",
    [
        SAME_SYSTEM,
        Relation(shared=("mass",)),
        Relation(shared=("mass",), differ=("drag", "stiffness")),
        Relation(shared=("mass", "drag"), differ=("stiffness",)),
        Relation(differ=("mass", "drag", "stiffness")),
        Relation(),
    ],
    ids=str,
)
@pytest.mark.parametrize("law", ["recipient", "pair"])
def test_expected_disagreement_is_that_of_every_pair_listed(relation, law):
    uneven = make_bank(seed=1)
    keep = np.flatnonzero((uneven.table["rollout"] < 2) | (np.arange(len(uneven.table)) % 3 > 0))
    bank = uneven._replace(table=uneven.table.select(keep), histories=uneven.histories[keep] + 50.0)
    q = all_pairs(bank, relation)
    legal = (q > 0).sum(1)
    p = legal / legal.sum() if law == "pair" else np.full(len(q), 1 / len(q))
    difference = bank.histories[None] - bank.histories[:, None]
    listed = np.einsum("i,ij,ijk,ijl->kl", p, q, difference, difference, optimize=True)
    sampler = PairSampler(bank.table, relation, law=law)
    assert np.allclose(expected_disagreement(sampler, bank.histories), listed, rtol=1e-8)


@pytest.mark.parametrize(
    ("relation", "kernel"),
    [
        (Relation(shared=("mass",), differ=("drag", "stiffness")), None),
        (Relation(shared=("mass", "drag"), differ=("stiffness",)), None),
        (Relation(shared=FACTORS), Mismatch("stiffness")),
        (Relation(shared=FACTORS), Mixture(0.25, wrong=Mismatch("drag"))),
        (Relation(shared=("mass", "drag"), differ=("stiffness",)), Mixture(0.5, wrong=Mismatch("mass"), mode="iid")),
    ],
    ids=["G1", "G2", "stiffness wrong", "drag partly wrong", "mass partly wrong, G2"],
)
def test_expected_disagreement_predicts_what_the_sampler_draws(relation, kernel):
    sampler = PairSampler(BANK.table, relation, kernel, distinct="system")
    expected = np.trace(expected_disagreement(sampler, CODES))
    assert abs(z_score(sampler, CODES, expected)) < Z
    assert abs(z_score(sampler, CODES, 0.95 * expected)) > 6


def test_expected_disagreement_agrees_with_the_variance_components():
    expected = np.trace(expected_disagreement(correct(), CODES))
    assert expected == pytest.approx(matched_second_moment(variance_components(CODES, SYSTEM).within))


def test_expected_disagreement_refuses_donors_without_a_law_by_recipient():
    for kernel in (Derangement(), Mixture(0.5)):
        with pytest.raises(ValueError, match="depends on the recipient alone"):
            expected_disagreement(PairSampler(BANK.table, SAME_SYSTEM, kernel, distinct="system"), CODES)
    with pytest.raises(ValueError, match="480 episodes"):
        expected_disagreement(correct(), CODES[:7])


# Repetitions


@pytest.mark.parametrize("repetitions", [1, 2, 8])
def test_averages_of_repetitions(repetitions):
    rng = np.random.default_rng(repetitions)
    root = rng.standard_normal((3, 3))
    means = (rng.standard_normal((20_000, repetitions, 3)) @ root.T).mean(1)
    errors = (means**2).sum(1)
    expected = mean_code_error(root @ root.T, repetitions)
    assert abs(errors.mean() - expected) < Z * errors.std() / np.sqrt(len(errors))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corrupted_pressure(np.eye(2), np.eye(2), np.eye(2), np.eye(2), 1.2), "alpha is"),
        (lambda: corrupted_pressure(np.eye(2), np.eye(2), np.eye(3), np.eye(2), 0.5), "factor_cov must be"),
        (lambda: factor_pressure(np.eye(2), np.ones(3), 1.0, np.eye(2), 0.5), "loading must be"),
        (lambda: factor_pressure(np.eye(2), np.ones(2), -1.0, np.eye(2), 0.5), "gap is"),
        (lambda: forced_gap([1.0]), "at least two"),
        (lambda: mean_code_error(np.eye(2), 0), "repetitions is"),
        (lambda: variance_components([[1.0], [2.0], [3.0]], [0, 0, 1]), "two groups of two rows"),
        (lambda: covariances([[np.nan], [2.0]], [0, 0]), "finite"),
        (lambda: covariances([[1.0], [2.0]], [0, 0, 1]), "one label a row"),
        (lambda: pair_moments([[1.0]], [[1.0, 2.0]]), "codes_b must have shape"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
