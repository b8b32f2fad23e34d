"""A bank of frames to Minari and back, and pairs drawn from a dataset of Minari (half a minute).

    python examples/minari_round_trip.py

Needs `pip install "minari[hdf5]" pillow`. Everything is written to a temporary folder.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from sprii_envs.banks import POKE_FACTORIAL, build
from sprii_envs.banks.minari import MinariWindows, from_minari, to_minari
from sprii_envs.relations import PairSampler, Relation, WindowSampler


def main() -> None:
    """Export, compare, sample, replay."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = str(Path(folder) / "minari")
        protocol = POKE_FACTORIAL.replace(systems={"train": 60}, rollouts=4, sealed_splits=())
        bank = build(protocol, Path(folder) / "bank")
        begin = time.perf_counter()
        dataset = to_minari(bank, "sprii/poke-v0", observations="pixels")
        print(f"exported {len(bank)} episodes of 64 frames, {len(bank) / (time.perf_counter() - begin):.0f} a second")

        differ = 0
        for row, episode in enumerate(dataset.iterate_episodes()):
            differ += np.count_nonzero(episode.observations[..., 0] != bank["frames"][row])
        print(f"pixels that differ from the bank's: {differ}")

        table = from_minari(dataset)
        print(table)
        reader = MinariWindows(dataset, table)
        sampler = PairSampler(table, Relation(shared=("system",)), seed=0, distinct="system")
        pairs = sampler.batch(0, 48)
        w = WindowSampler(table, history=24, horizon=16).batch(0, pairs)
        begin = time.perf_counter()
        _, donors = reader.read(w, "observations", 24)
        print(f"{len(donors)} pairs of histories {donors.shape[1:]} in {time.perf_counter() - begin:.3f} s")
        agree = table["mass"][w.recipient] == table["mass"][w.donor]
        print(f"recipient and donor have the same mass in {agree.mean():.0%} of pairs")

        env = dataset.recover_environment()
        (metadata,) = dataset.storage.get_episode_metadata([7])
        env.reset(options=metadata["options"])
        again = [env.step(action)[0] for action in dataset[7].actions]
        print(f"episode 7 replayed in the recovered environment: {np.array_equal(again, dataset[7].observations[1:])}")


if __name__ == "__main__":
    main()
