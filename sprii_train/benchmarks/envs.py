"""Environment steps and frames per second: ours beside the peers', in one run of one process.

    sprii benchmark envs                 # a table
    sprii benchmark envs --json out.json # and the numbers
    sprii benchmark envs --n 1           # one environment at a time

Each row is the median over repeated timings after a warm-up; rows take turns within a repeat, so that a busy machine
slows all of them alike. Rows of one environment, which keep one core busy, count the process's CPU time, which what
else runs does not change; the others, some with threads of their own, count the time that passes. Actions are drawn
beforehand; resets, autoresets and everything `step` returns are included. A frame is one pixel observation: of ours two
grayscale channels, of the peers what they give. A peer that is not installed is named and left out.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

import sprii_envs
from sprii_envs.dependencies import is_absent

Run = Callable[[], int]
"""Takes a few steps and returns how many environment steps that was."""


@dataclass(frozen=True)
class Row:
    """One measured configuration; `peer` is the (name, N) of the row it is compared with."""

    name: str
    n: int
    make: Callable[[], Run]
    peer: tuple[str, int] | None = None
    needs: str | None = None
    """A module without which the row is left out."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds of the process if one core does it all, else those that pass."""
        return time.process_time if self.n == 1 else time.perf_counter


def _gymnasium(env: Any, n: int = 1) -> Run:
    """Sixteen steps of random actions."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(16)]
    env.reset(seed=0)
    if isinstance(env, gym.vector.VectorEnv):

        def run() -> int:
            for action in actions:
                env.step(action)
            return n * len(actions)
    else:
        renders = env.render_mode == "rgb_array"

        def run() -> int:
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if renders:
                    env.render()
                if terminated or truncated:
                    env.reset()
            return len(actions)

    return run


def _single(id: str, **kwargs: Any) -> Callable[[], Run]:
    return lambda: _gymnasium(gym.make(id, **kwargs))


def _vector(id: str, n: int, **kwargs: Any) -> Callable[[], Run]:
    return lambda: _gymnasium(gym.make_vec(id, num_envs=n, **kwargs), n)


def _ours(id: str, n: int, **kwargs: Any) -> Callable[[], Run]:
    """Ours, with a system of its own in every slot, as everywhere."""
    return _single(id, **kwargs) if n == 1 else _vector(id, n, **kwargs)


def _envpool(id: str, n: int, size: int | None = None) -> Callable[[], Run]:
    def make() -> Run:
        import envpool  # pyright: ignore[reportMissingImports]

        render = {} if size is None else {"render_mode": "rgb_array", "render_width": size, "render_height": size}
        env = envpool.make_gymnasium(id, num_envs=n, num_threads=os.cpu_count() or 1, **render)
        rng = np.random.default_rng(0)
        actions = [rng.uniform(-1, 1, (n, *env.action_space.shape)).astype(np.float32) for _ in range(16)]
        env.reset()

        def run() -> int:
            for action in actions:
                env.step(action)
                if size is not None:
                    env.render(np.arange(n))
            return n * len(actions)

        return run

    return make


def _gymnax(n: int) -> Callable[[], Run]:
    def make() -> Run:
        import gymnax  # pyright: ignore[reportMissingImports]
        import jax  # pyright: ignore[reportMissingImports]

        env, params = gymnax.make("Pendulum-v1")
        steps = 100

        @jax.jit
        def program(key: Any, state: Any) -> Any:
            def one(carry: Any, _: Any) -> Any:
                key, state = carry
                key, act, move = jax.random.split(key, 3)
                action = jax.random.uniform(act, (n, 1), minval=-2.0, maxval=2.0)
                observation, state, reward, *_ = jax.vmap(env.step, (0, 0, 0, None))(
                    jax.random.split(move, n), state, action, params
                )
                return (key, state), (observation.sum(), reward.sum())

            return jax.lax.scan(one, (key, state), length=steps)

        key = jax.random.PRNGKey(0)
        _, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, n), params)

        def run() -> int:
            jax.block_until_ready(program(key, state))
            return n * steps

        return run

    return make


def _carl(n: int) -> Callable[[], Run]:
    def make() -> Run:
        from carl.envs import CARLPendulum  # pyright: ignore[reportMissingImports]

        return _gymnasium(CARLPendulum())

    return make


def _stable_worldmodel(id: str, size: int) -> Callable[[], Run]:
    def make() -> Run:
        import stable_worldmodel  # noqa: F401  # pyright: ignore[reportMissingImports]

        env = gym.make(id, render_mode="rgb_array")
        return _gymnasium(gym.wrappers.ResizeObservation(gym.wrappers.AddRenderObservation(env), (size, size)))

    return make


def _swimmer_bank() -> Run:
    """Whole trajectories of systems of their own, as the bank builder simulates them: no disk."""
    from sprii_envs.banks import PROTOCOLS, simulate

    protocol = PROTOCOLS["swimmer"]
    systems = simulate.systems(protocol).values
    chunk = simulate.chunks(protocol)[0]

    def run() -> int:
        done = simulate.simulate(protocol, systems[chunk.first : chunk.last], chunk)
        return done["actions"].shape[0] * done["actions"].shape[1]

    return run


def _sb3_env(id: str, n: int, native: bool, **kwargs: Any) -> Any:
    """Stable-Baselines3's vector of N: over our native vector environment, or its own over single ones."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sprii_train.plugins.sb3_envs import NativeVecEnv

    if native:
        return NativeVecEnv(gym.make_vec(id, num_envs=n, **kwargs))
    return DummyVecEnv([lambda: gym.make(id, **kwargs)] * n)


def _sb3(id: str, n: int, native: bool, **kwargs: Any) -> Callable[[], Run]:
    def make() -> Run:
        env = _sb3_env(id, n, native, **kwargs)
        rng = np.random.default_rng(0)
        actions = [rng.uniform(-1, 1, (n, *env.action_space.shape)).astype(np.float32) for _ in range(16)]
        env.seed(0)
        env.reset()

        def run() -> int:
            for action in actions:
                env.step(action)
            return n * len(actions)

        return run

    return make


def _ppo(id: str, n: int, native: bool, **kwargs: Any) -> Callable[[], Run]:
    """PPO that learns, gradients included: 64 steps of every slot, then 4 epochs in 8 batches, on one thread."""

    def make() -> Run:
        import torch
        from stable_baselines3 import PPO

        env, steps = _sb3_env(id, n, native, **kwargs), 64
        model = PPO("MlpPolicy", env, n_steps=steps, batch_size=n * steps // 8, n_epochs=4, device="cpu", seed=0)

        def run() -> int:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # more only wait for each other over so small a network
            model.learn(n * steps, reset_num_timesteps=False)
            torch.set_num_threads(threads)
            return n * steps

        return run

    return make


PENDULUM, SWIMMER, CARTPOLE = "Gymnasium Pendulum-v1", "Gymnasium Swimmer-v5", "Gymnasium CartPole-v1, native vector"
CHEETAH = "Gymnasium HalfCheetah-v5"
SYNC = {"vectorization_mode": "sync"}
SB3 = ("Pendulum", "SpringWorld", "PokeWorld")


def _sb3_rows(kind: str, make: Callable[..., Callable[[], Run]], names: Sequence[str], **kwargs: Any) -> list[Row]:
    """Ours in Stable-Baselines3 beside its own vector over the same environments."""
    rows, needs = [], "stable_baselines3"
    for name in names:
        id, own = f"sprii/{name}-v0", f"{kind} {name}, DummyVecEnv"
        rows.append(Row(own, 64, make(id, 64, False, **kwargs), needs=needs))
        rows.append(Row(f"{kind} {name}, NativeVecEnv", 64, make(id, 64, True, **kwargs), (own, 64), needs))
    return rows


ROWS = (
    Row(PENDULUM, 1, _single("Pendulum-v1")),
    Row("CARL CARLPendulum", 1, _carl(1), needs="carl"),
    Row("sprii Pendulum", 1, _ours("sprii/Pendulum-v0", 1), (PENDULUM, 1)),
    Row("sprii D-Clean", 1, _ours("sprii/D-Clean-v0", 1), (PENDULUM, 1)),
    Row("sprii PokeWorld, state", 1, _ours("sprii/PokeWorld-v0", 1, obs_type="state"), (PENDULUM, 1)),
    Row("sprii SpringWorld, state", 1, _ours("sprii/SpringWorld-v0", 1, obs_type="state"), (PENDULUM, 1)),
    Row(f"{PENDULUM}, sync vector", 64, _vector("Pendulum-v1", 64, **SYNC)),
    Row("EnvPool Pendulum-v1", 64, _envpool("Pendulum-v1", 64), needs="envpool"),
    Row(CARTPOLE, 64, _vector("CartPole-v1", 64)),
    Row("sprii Pendulum", 64, _ours("sprii/Pendulum-v0", 64), (f"{PENDULUM}, sync vector", 64)),
    Row("sprii D-Clean", 64, _ours("sprii/D-Clean-v0", 64), (CARTPOLE, 64)),
    Row("gymnax Pendulum, one jitted scan", 1024, _gymnax(1024), needs="gymnax"),
    Row(CARTPOLE, 1024, _vector("CartPole-v1", 1024)),
    Row("sprii Pendulum", 1024, _ours("sprii/Pendulum-v0", 1024), (CARTPOLE, 1024)),
    Row("sprii D-Clean", 1024, _ours("sprii/D-Clean-v0", 1024), (CARTPOLE, 1024)),
    Row("sprii Pendulum", 4096, _ours("sprii/Pendulum-v0", 4096)),
    Row("sprii D-Clean", 4096, _ours("sprii/D-Clean-v0", 4096)),
    Row("sprii SpringWorld, state", 256, _ours("sprii/SpringWorld-v0", 256, obs_type="state")),
    Row("sprii PokeWorld, state", 256, _ours("sprii/PokeWorld-v0", 256, obs_type="state")),
    Row(SWIMMER, 1, _single("Swimmer-v5"), needs="mujoco"),
    Row("sprii Swimmer", 1, _ours("sprii/Swimmer-v0", 1), (SWIMMER, 1), "mujoco"),
    Row(f"{SWIMMER}, sync vector", 64, _vector("Swimmer-v5", 64, **SYNC), needs="mujoco"),
    Row("sprii Swimmer", 64, _ours("sprii/Swimmer-v0", 64), (f"{SWIMMER}, sync vector", 64), "mujoco"),
    Row(CHEETAH, 1, _single("HalfCheetah-v5"), needs="imageio"),
    Row("sprii HalfCheetah", 1, _ours("sprii/HalfCheetah-v0", 1), (CHEETAH, 1), "mujoco"),
    Row(f"{CHEETAH}, sync vector", 64, _vector("HalfCheetah-v5", 64, **SYNC), needs="imageio"),
    Row("sprii HalfCheetah", 64, _ours("sprii/HalfCheetah-v0", 64), (f"{CHEETAH}, sync vector", 64), "mujoco"),
    Row("sprii Swimmer, building a bank", 64, lambda: _swimmer_bank(), (f"{SWIMMER}, sync vector", 64), "mujoco"),
    *_sb3_rows("SB3", _sb3, SB3, obs_type="state"),
    *_sb3_rows("SB3 PPO,", _ppo, SB3, obs_type="state"),
)

RENDERED = f"{PENDULUM}, rgb_array 500×500"
POOL_64, POOL_128 = "EnvPool Pendulum-v1, render 64×64", "EnvPool Pendulum-v1, render 128×128"

FRAMES = (
    Row(RENDERED, 1, _single("Pendulum-v1", render_mode="rgb_array"), needs="pygame"),
    Row("stable-worldmodel TwoRoom, 128×128", 1, _stable_worldmodel("swm/TwoRoom-v1", 128), needs="stable_worldmodel"),
    Row("sprii Pendulum, 64×64", 1, _ours("sprii/Pendulum-v0", 1, obs_type="pixels"), (RENDERED, 1)),
    Row("sprii D-Clean, 64×64", 1, _ours("sprii/D-Clean-v0", 1, obs_type="pixels"), (RENDERED, 1)),
    Row("sprii PokeWorld, 64×64", 1, _ours("sprii/PokeWorld-v0", 1), (RENDERED, 1)),
    Row("sprii SpringWorld, 128×128", 1, _ours("sprii/SpringWorld-v0", 1), (RENDERED, 1)),
    Row("sprii Swimmer, 64×64", 1, _ours("sprii/Swimmer-v0", 1, obs_type="pixels"), (RENDERED, 1), "mujoco"),
    Row(POOL_64, 256, _envpool("Pendulum-v1", 256, 64), needs="envpool"),
    Row(POOL_128, 256, _envpool("Pendulum-v1", 256, 128), needs="envpool"),
    Row("sprii Pendulum, 64×64", 256, _ours("sprii/Pendulum-v0", 256, obs_type="pixels"), (POOL_64, 256)),
    Row("sprii D-Clean, 64×64", 256, _ours("sprii/D-Clean-v0", 256, obs_type="pixels"), (POOL_64, 256)),
    Row("sprii PokeWorld, 64×64", 256, _ours("sprii/PokeWorld-v0", 256), (POOL_64, 256)),
    Row("sprii SpringWorld, 64×64", 256, _ours("sprii/SpringWorld-v0", 256, image_size=64), (POOL_64, 256)),
    Row("sprii SpringWorld, 128×128", 256, _ours("sprii/SpringWorld-v0", 256), (POOL_128, 256)),
    Row("sprii SpringWorld, 128×128", 1024, _ours("sprii/SpringWorld-v0", 1024), (POOL_128, 256)),
    *_sb3_rows("SB3", _sb3, ("PokeWorld",)),
)

COUNTS = tuple(sorted({row.n for row in (*ROWS, *FRAMES)}))
"""Numbers of environments that rows have."""


def _rate(run: Run, seconds: float, clock: Callable[[], float]) -> float:
    steps, start = 0, clock()
    while (spent := clock() - start) < seconds:
        steps += run()
    return steps / spent


def measure(
    rows: Sequence[Row], seconds: float, repeats: int, progress: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    """Median, lowest and highest rate of every row that can run; `progress` hears of timings done and in all."""
    runs: dict[Row, Run] = {}
    left_out: dict[Row, str] = {}
    for row in rows:
        if row.needs is not None and is_absent(row.needs):
            left_out[row] = f"{row.needs} is not installed"
            continue
        try:
            runs[row] = row.make()
            _rate(runs[row], 0.1, row.clock)
        except Exception as error:  # a peer that does not run here is reported, not fatal
            if row.needs is None:
                raise
            left_out[row] = f"does not run here: {type(error).__name__}: {error}".splitlines()[0]
            runs.pop(row, None)
    rates: dict[Row, list[float]] = {row: [] for row in runs}
    for repeat in range(repeats):
        for i, (row, run) in enumerate(runs.items()):
            rates[row].append(_rate(run, seconds, row.clock))
            progress(repeat * len(runs) + i + 1, repeats * len(runs))
    median = {(row.name, row.n): statistics.median(of) for row, of in rates.items()}
    out = []
    for row in rows:
        result: dict[str, Any] = {"name": row.name, "n": row.n, "left_out": left_out.get(row)}
        if row in rates:
            mine = median[row.name, row.n]
            result |= {"rate": mine, "low": min(rates[row]), "high": max(rates[row])}
            if row.peer in median:
                result |= {"peer": row.peer[0], "ratio": mine / median[row.peer]}
        out.append(result)
    return out


def machine() -> dict[str, Any]:
    """What the rates hold for."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gym.__version__,
        "sprii": sprii_envs.__version__,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def benchmark(seconds: float = 0.5, repeats: int = 5, n: int | None = None) -> dict[str, Any]:
    """Both tables, or their rows of n environments, with the machine they ran on; a progress bar goes to stderr."""
    from rich.progress import Progress

    from sprii_train.terminal import console

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a display, and without complaining
    tables: dict[str, Any] = {"machine": machine(), "seconds": seconds, "repeats": repeats}
    with Progress(console=console(stderr=True), transient=True) as bar:
        for name, rows in (("steps", ROWS), ("frames", FRAMES)):
            task = bar.add_task(f"{name} per second")

            def progress(done: int, total: int, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            some = [row for row in rows if n in (None, row.n)]
            tables[name] = measure(some, seconds, repeats, progress)
    return tables


def report(result: dict[str, Any]) -> str:
    """The result as text: median, spread, and the ratio to the peer."""
    on = result["machine"]
    lines = [
        f"{on['processor']}, {on['cores']} cores; Python {on['python']}, NumPy {on['numpy']}, "
        f"Gymnasium {on['gymnasium']}, sprii {on['sprii']}; median of {result['repeats']} × {result['seconds']} s",
    ]
    for title, rows in (("steps/s", result["steps"]), ("frames/s", result["frames"])):
        lines += ["", f"{'environment':<44} {'N':>5} {title:>13} {'spread':>7}  beside"]
        for row in rows:
            if row["left_out"] is not None:
                lines.append(f"{row['name']:<44} {row['n']:>5} {'–':>13} {'':>7}  {row['left_out']}")
                continue
            spread = (row["high"] - row["low"]) / row["rate"]
            beside = f"{row['ratio']:.2f} × {row['peer']}" if "ratio" in row else ""
            lines.append(f"{row['name']:<44} {row['n']:>5} {row['rate']:>13,.0f} {spread:>7.0%}  {beside}".rstrip())
    return "\n".join(lines)
