"""A linear-Gaussian bank for the tests of theory: H = Lθ + N, an episode table, and pairs from the real samplers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.relations import EpisodeTable, PairSampler

Array = NDArray[np.float64]

FACTORS = ("mass", "drag", "stiffness")
LEVELS = (5, 6, 4)
EPISODES = 4  # a system
# Beyond this many standard errors a formula counts as wrong; by chance once in 150,000 checks.
Z = 4.5


class Bank(NamedTuple):
    table: EpisodeTable
    factors: Array  # θ (episodes, 3)
    histories: Array  # H (episodes, p)
    loadings: Array  # L (p, 3)
    encoder: Array  # W (d, p)


def make_bank(seed: int = 0, p: int = 6, d: int = 3, noise: float = 0.7) -> Bank:
    """Every combination of random levels, four episodes each, rows in random order."""
    rng = np.random.default_rng(seed)
    codes = np.stack([c.ravel() for c in np.indices((*LEVELS, EPISODES))], 1)
    codes = codes[rng.permutation(len(codes))]
    factors = np.stack([rng.standard_normal(n)[codes[:, i]] for i, n in enumerate(LEVELS)], 1)
    loadings, encoder = rng.standard_normal((p, 3)), rng.standard_normal((d, p)) / np.sqrt(p)
    histories = factors @ loadings.T + noise * rng.standard_normal((len(codes), p))
    columns = {
        "episode": rng.permutation(len(codes)),
        "system": np.ravel_multi_index(tuple(codes[:, :3].T), LEVELS),
        "rollout": codes[:, 3],
        "length": np.full(len(codes), 64),
        **{name: codes[:, i] for i, name in enumerate(FACTORS)},
    }
    return Bank(EpisodeTable(columns), factors, histories, loadings, encoder)


def draw(sampler: PairSampler, batches: int = 1000, n: int = 100) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Donor and recipient rows, (batches, n) each, of the sampler's first batches."""
    drawn = [sampler.batch(step, n) for step in range(batches)]
    return np.stack([b.donor for b in drawn]), np.stack([b.recipient for b in drawn])


def z_score(sampler: PairSampler, codes: Array, expected: float) -> float:
    """(measured − expected) / standard error of the pair second moment; batches, not pairs, are independent."""
    donor, recipient = draw(sampler)
    of_batch = ((codes[donor] - codes[recipient]) ** 2).sum(2).mean(1)
    return float((of_batch.mean() - expected) / (of_batch.std(ddof=1) / np.sqrt(len(of_batch))))
