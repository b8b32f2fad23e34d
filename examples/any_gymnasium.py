"""CartPole with a pole that persists: collected, saved, opened, and read off another episode (seconds).

    python examples/any_gymnasium.py

Three episodes of each of 200 poles come from eight of Gymnasium's CartPoles in a vector, and go to a folder. A push of
the cart turns a short pole faster: how fast, in a donor's episode, tells the recipient's length if their system is one.
"""

import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from sprii_envs.banks import open_store
from sprii_envs.collection import collect_related
from sprii_envs.relations import SAME_SYSTEM, Derangement, PairSampler, WindowSampler
from sprii_envs.wrappers import PersistentEnv, without_effect


def set_pole(env: Any, values: dict[str, float]) -> None:
    """CartPole computes two attributes from these when it is made, and never again."""
    env.length, env.masspole = values["length"], values["masspole"]
    env.total_mass, env.polemass_length = env.masspole + env.masscart, env.masspole * env.length


def make() -> PersistentEnv:
    """Half the pole's length in metres and its mass in kilograms persist."""
    return PersistentEnv(gym.make("CartPole-v1"), {"length": (0.25, 1.0), "masspole": (0.05, 0.15)}, set_pole)


def read_length(observations: NDArray[np.float32]) -> NDArray[np.float64]:
    """Half the length (m) of a near-upright pole of 0.1 kg, from how a push turns it: windows (n, T, 4) → (n,)."""
    turn = np.abs(np.diff(observations[..., 3].astype(np.float64), axis=1)).mean(axis=1)
    return 0.02 * 10.0 / 1.1 / (4 / 3 - 0.1 / 1.1) / turn


def main() -> None:
    """Collect, save, open, pair rightly and wrongly, compare."""
    print(f"properties that change nothing: {without_effect(make(), starts=2) or 'none'}")
    found = collect_related(SyncVectorEnv([make] * 8), systems=200, episodes_per_system=3, steps=30)
    with tempfile.TemporaryDirectory() as folder:
        found.save(Path(folder) / "poles")
        store = open_store(Path(folder) / "poles")
        table = store.split("train")
        table = table.select(table["length"] >= 7)
        for name, kernel in (("of the same system", None), ("dealt to others", Derangement(by="system"))):
            pairs = PairSampler(table, SAME_SYSTEM, kernel, seed=0, on_missing="drop").batch(0, 500)
            windows = WindowSampler(table, history=6, horizon=1).batch(0, pairs)
            _, donors = store.read(windows, "observations", 6)
            error = np.abs(read_length(donors) - table["property_length"][pairs.recipient]).mean()
            print(f"donors {name:<19} the recipient's half length is off by {error:.3f} m on average")


if __name__ == "__main__":
    main()
