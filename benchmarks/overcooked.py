"""Steps a second of the batched collector beside JaxMARL's own scan of the same kitchen, and of the two environments.

    python benchmarks/overcooked.py --kitchens 64

JaxMARL's scans play uniformly random actions, ours random walkers, which never interact. JaxMARL's resets within its
step; ours plays whole episodes, returns actions and rewards, and in its second row the observations too. Best of
`--repeats`, after compilation, in turns.
"""

import argparse
import time
from collections.abc import Callable

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from sprii_envs.arguments import option
from sprii_envs.overcooked.collect import collect
from sprii_envs.overcooked.env import OvercookedEnv
from sprii_envs.overcooked.game import AGENTS, Game, engine
from sprii_envs.overcooked.parallel import OvercookedParallelEnv
from sprii_envs.overcooked.partners.partner import Partner

PEER = "JaxMARL's scan"


def peers(game: Game, kitchens: int, steps: int, observations: bool) -> Callable[[], object]:
    """JaxMARL's scan: autoreset, random actions; rewards and, if asked, one seat's observations returned as bytes."""
    theirs = engine(game)

    @jax.jit
    def run(key):
        _, state = jax.vmap(theirs.reset)(jax.random.split(key, kitchens))

        def move(state, key):
            choose, turn = jax.random.split(key)
            actions = jax.random.randint(choose, (2, kitchens), 0, 6)
            seen, state, reward, _, _ = jax.vmap(theirs.step)(
                jax.random.split(turn, kitchens), state, dict(zip(AGENTS, actions, strict=True))
            )
            return state, (reward["agent_0"], seen["agent_1"].astype("uint8") if observations else None)

        return jax.lax.scan(move, state, jax.random.split(key, steps))[1]

    return lambda: jax.device_get(run(jax.random.PRNGKey(0)))


def ours(game: Game, kitchens: int, steps: int, observations: bool) -> Callable[[], object]:
    """The collector."""
    walker = Partner("walker", "walker")
    return lambda: collect(
        game, 1, walker, walker, histories=kitchens, episodes=steps // game.max_steps, seed=0, observations=observations
    )


def one_by_one(kind: str, game: Game, steps: int) -> Callable[[], object]:
    """Python loops over the single environments."""
    rng = np.random.default_rng(0)
    moves = rng.integers(6, size=(steps, 2))
    if kind == "gymnasium":
        env = OvercookedEnv(view=game.view, partners=[Partner("walker", "walker")])

        def run() -> None:
            for t in range(steps):
                if t % game.max_steps == 0:
                    env.reset()
                env.step(int(moves[t, 0]))

        return run
    parallel = OvercookedParallelEnv(view=game.view)

    def both() -> None:
        for t in range(steps):
            if t % game.max_steps == 0:
                parallel.reset()
            parallel.step(dict(zip(AGENTS, moves[t].tolist(), strict=True)))

    return both


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kitchens", type=option(), default=64)
    parser.add_argument("--steps", type=option(), default=1_000, help="of each kitchen, a multiple of 100")
    parser.add_argument("--repeats", type=option(), default=5)
    told = parser.parse_args()
    game = Game()
    cases = {
        PEER: (peers(game, told.kitchens, told.steps, False), told.kitchens * told.steps),
        "JaxMARL's, observations kept": (peers(game, told.kitchens, told.steps, True), told.kitchens * told.steps),
        "collector": (ours(game, told.kitchens, told.steps, False), told.kitchens * told.steps),
        "collector, observations kept": (ours(game, told.kitchens, told.steps, True), told.kitchens * told.steps),
        "sprii/Overcooked-v0": (one_by_one("gymnasium", game, 500), 500),
        "PettingZoo ParallelEnv": (one_by_one("pettingzoo", game, 500), 500),
    }
    seconds = {name: [] for name in cases}
    for run, _ in cases.values():
        run()
    for _ in range(told.repeats):
        for name, (run, _) in cases.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    rates = {name: count / min(seconds[name]) for name, (_, count) in cases.items()}
    table = Table("", "environment steps/s", "× JaxMARL's scan", box=None, pad_edge=False)
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}", f"{rate / rates[PEER]:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
