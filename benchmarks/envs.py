"""Environment steps per second: ours beside Gymnasium's own environments, in one run of one process.

    python benchmarks/envs.py                 # a table
    python benchmarks/envs.py --json out.json # and the numbers

Each row is the median over `--repeats` timings of `--seconds` each, after a warm-up; rows take turns within a
repeat, so that a busy machine slows all of them alike. Actions are drawn beforehand; resets, autoresets and
everything `step` returns are included. A frame is one pixel observation (two grayscale channels).
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import sprii_envs  # noqa: F401  (registers the environments)

Chunk = Callable[[], int]


class Row(NamedTuple):
    """One measured configuration; `peer` names the row it is compared with."""

    name: str
    make: Callable[[], Any]
    n: int
    peer: str | None = None


def _single(id: str, **kwargs: Any) -> Callable[[], gym.Env[Any, Any]]:
    return lambda: gym.make(id, **kwargs)


def _vector(id: str, n: int, **kwargs: Any) -> Callable[[], Any]:
    return lambda: gym.make_vec(id, num_envs=n, **kwargs)


OURS = "sprii/D-Clean-v0"
ROWS = [
    Row("Gymnasium Pendulum-v1, single", _single("Pendulum-v1"), 1),
    Row("Gymnasium CartPole-v1, single", _single("CartPole-v1"), 1),
    Row("Gymnasium Pendulum-v1, sync vector", _vector("Pendulum-v1", 64, vectorization_mode="sync"), 64),
    Row("Gymnasium CartPole-v1, sync vector", _vector("CartPole-v1", 64, vectorization_mode="sync"), 64),
    Row("Gymnasium CartPole-v1, native vector", _vector("CartPole-v1", 64), 64),
    Row("Gymnasium CartPole-v1, native vector", _vector("CartPole-v1", 1024), 1024),
    Row("D-Clean state, single", _single(OURS), 1, "Gymnasium Pendulum-v1, single"),
    Row("D-Clean state, native vector", _vector(OURS, 64), 64, "Gymnasium CartPole-v1, native vector"),
    Row("D-Clean state, native vector", _vector(OURS, 1024), 1024, "Gymnasium CartPole-v1, native vector"),
    Row("D-Clean state, native vector", _vector(OURS, 4096), 4096),
    Row("D-Clean pixels 64×64, single", _single(OURS, obs_type="pixels"), 1),
    Row("D-Clean pixels 64×64, native vector", _vector(OURS, 64, obs_type="pixels"), 64),
    Row("D-Clean pixels 128×128, native vector", _vector(OURS, 256, obs_type="pixels", image_size=128), 256),
]


def _chunk(env: Any, n: int) -> Chunk:
    """A function that takes a few steps and returns how many environment steps that was."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(16)]
    env.reset(seed=0)
    if isinstance(env, gym.vector.VectorEnv):

        def run() -> int:
            for action in actions:
                env.step(action)
            return n * len(actions)
    else:

        def run() -> int:
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            return len(actions)

    return run


def _rate(run: Chunk, seconds: float) -> float:
    steps, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        steps += run()
    return steps / spent


def measure(seconds: float = 0.5, repeats: int = 5, warm_up: float = 0.1) -> dict[str, Any]:
    """All rows, with the machine they ran on."""
    runs = [_chunk(row.make(), row.n) for row in ROWS]
    for run in runs:
        _rate(run, warm_up)
    rates = [[] for _ in ROWS]
    for _ in range(repeats):
        for run, out in zip(runs, rates, strict=True):
            out.append(_rate(run, seconds))
    median = {(row.name, row.n): statistics.median(out) for row, out in zip(ROWS, rates, strict=True)}
    rows = []
    for row, out in zip(ROWS, rates, strict=True):
        mine = median[row.name, row.n]
        ratio = None if row.peer is None else mine / median[row.peer, row.n]
        rows.append(
            {"name": row.name, "n": row.n, "steps_per_second": mine, "low": min(out), "high": max(out)}
            | {"peer": row.peer, "ratio": ratio}
        )
    machine = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gym.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }
    return {"machine": machine, "seconds": seconds, "repeats": repeats, "rows": rows}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def table(result: dict[str, Any]) -> str:
    """The result as text: median, spread, and the ratio to the peer of the same N."""
    machine = result["machine"]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores; Python {machine['python']}, "
        f"NumPy {machine['numpy']}, Gymnasium {machine['gymnasium']}; "
        f"median of {result['repeats']} × {result['seconds']} s",
        "",
        f"{'environment':<40} {'N':>5} {'steps/s':>13} {'spread':>9}  beside",
    ]
    for row in result["rows"]:
        spread = (row["high"] - row["low"]) / row["steps_per_second"]
        beside = "" if row["ratio"] is None else f"{row['ratio']:.2f} × {row['peer']}"
        rate = f"{row['steps_per_second']:,.0f}"
        lines.append(f"{row['name']:<40} {row['n']:>5} {rate:>13} {spread:>8.0%}  {beside}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one timing")
    parser.add_argument("--repeats", type=int, default=5, help="timings a row")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args(arguments)
    result = measure(options.seconds, options.repeats)
    print(table(result))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    main()
