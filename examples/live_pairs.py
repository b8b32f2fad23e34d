"""What persists is told by another episode: drag read off a donor's motion, then off its recipient's (seconds).

    python examples/live_pairs.py

Collects two episodes of each of 500 systems from a live environment. No single observation shows the drag; the rate at
which free motion slows does. Between episodes of one system the estimates agree, between episodes of two they do not.
"""

import time

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import sprii_envs  # noqa: F401  (registers the environments)
from sprii_envs.collection import RelatedEpisodes, collect_related
from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler


def glide(observation: NDArray[np.float32]) -> NDArray[np.float32]:
    """No force: what remains is drag."""
    return np.zeros((*observation.shape[:-1], 2), np.float32)


def slowing(found: RelatedEpisodes) -> NDArray[np.float64]:
    """The rate (1/s) at which each episode's speed decays, between its first and tenth observation."""
    velocity = found["observations"][:, :10, 2:].astype(np.float64)
    speed = np.linalg.norm(velocity, axis=-1)
    return np.log(speed[:, 0] / speed[:, 9]) / (9 * 0.05)


def main() -> None:
    """Collect, pair rightly and wrongly, compare."""
    envs = gym.make_vec("sprii/D-Clean-v0", num_envs=500)
    begin = time.perf_counter()
    found = collect_related(envs, glide, systems=500, episodes_per_system=2, steps=63)
    took = time.perf_counter() - begin
    print(f"{found.table}\ncollected in {took:.2f} s, {found.table['length'].sum() / took:,.0f} observations a second")

    rate = slowing(found)
    print(f"correlation of the slowing with the drag: {np.corrcoef(rate, found.table['drag'])[0, 1]:.4f}")
    for name, kernel in (("of the same system", None), ("dealt to others", Derangement(by="system"))):
        sampler = PairSampler(found.table, SAME_SYSTEM, kernel, seed=0, distinct="system")
        pairs = sampler.batch(0, 256)
        error = np.abs(rate[pairs.recipient] - rate[pairs.donor]).mean()
        print(f"donors {name:<19} the recipient's slowing is off by {error:.4f} 1/s on average")


if __name__ == "__main__":
    main()
