"""Model steps per second of the planners beside mbrl-lib's, and what planners reach with the true pendulum.

    python benchmarks/planning.py [--threads 1] [--rounds 7]
    python benchmarks/planning.py --oracle [--groups ID,OOD_c3] [--episodes 30] [--only CEM]

Two models: a network of CaDM's size, 14 → 4 × 200 SiLU → 3, float32, random weights; and the pendulum's own equations,
which cost little more than the calls that compute them. mbrl-lib plans one episode a call with the same model, reward,
candidates, elites, iterations and horizon (`pip install --no-deps mbrl hydra-core omegaconf antlr4-python3-runtime
termcolor`); without it its rows are left out. "Model alone" makes the same model calls with nothing around them. The
bound is the time of the network's own products at the best rate that this machine reaches on one of them. A third table
plans with CaDM itself, by torch's layers and by oneDNN's (`learners/products.py`).

Rows take turns and a time is the best round's. With one thread it is CPU time, which other work on the machine disturbs
less; read the ratios.
"""

import argparse
import importlib
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from sprii_envs.arguments import WORKERS, option
from sprii_envs.envs.pendulum import GROUPS
from sprii_train.control import pendulum
from sprii_train.control.controllers import CEM, CONTROLLERS, ICEM, MPPI, Config, Score, initial, plan
from sprii_train.control.pendulum_agents import ENV_ID, known, nominal
from sprii_train.control.planning import ROWS, Step, rollout_score
from sprii_train.evaluation import RandomAgent, evaluate_agent
from sprii_train.learners import CaDM, CaDMConfig, cadm, products

CONTEXT, WIDTH = 10, 200
SIZES = (3 + 1 + CONTEXT, *[WIDTH] * 4, 3)
PUBLISHED, SMALLER = CEM(), ICEM()


class Network(nn.Module):
    """A network of CaDM's size as a model: (B, 3), (B, 1), (B, 10) → (B, 3)."""

    flops = sum(2 * a * b for a, b in pairwise(SIZES))

    def __init__(self, precision: str) -> None:
        super().__init__()
        layers = [nn.Linear(a, b) for a, b in pairwise(SIZES)]
        self.net = nn.Sequential(*(part for layer in layers for part in (layer, nn.SiLU())))[:-1].requires_grad_(False)
        self.precision = precision

    def forward(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            return observation + self.net(torch.cat((observation, action, context), dim=1))


class Counted:
    """A model that counts the rows it has stepped, with what planning with it needs.

    Args:
        features: of the context.
        rows: unrolled at once.
    """

    def __init__(self, step: Step, features: int, rows: int) -> None:
        self.step, self.features, self.rows, self.steps = step, features, rows, 0

    def __call__(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        self.steps += len(observation)
        return self.step(observation, action, context)

    def inputs(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Observations, actions and contexts; masses and lengths are positive."""
        drawn = torch.Generator().manual_seed(0)
        observation, action = (torch.randn(rows, size, generator=drawn) for size in (3, 1))
        return observation, action, 0.5 + torch.rand(rows, self.features, generator=drawn)

    def score(self, episodes: int) -> Score:
        observation, _, context = self.inputs(episodes)
        return rollout_score(self, pendulum.reward, observation, context, reads_next=False, rows=self.rows)


Run = Callable[[], object]


def ours(model: Counted, config: Config, episodes: int) -> Run:
    """One planning step of all episodes; the warm start goes on from call to call."""
    drawn, held = torch.Generator().manual_seed(0), [initial(config, episodes, 1)]

    def run() -> None:
        _, held[0] = plan(config, model.score(episodes), held[0], pendulum.bounds(), drawn)

    return run


def mbrl(model: Counted, config: CEM | ICEM) -> Run:
    """One planning step of one episode by mbrl-lib; ImportError where that is not installed."""
    planning = importlib.import_module("mbrl.planning.trajectory_opt")
    settings = {
        "num_iterations": config.iterations,
        "elite_ratio": config.elites / config.candidates,
        "population_size": config.candidates,
        "lower_bound": [[-1.0]] * config.horizon,
        "upper_bound": [[1.0]] * config.horizon,
        "alpha": config.smoothing,
        "device": torch.device("cpu"),
        "return_mean_elites": True,
    }
    if isinstance(config, ICEM):
        coloured = {"population_decay_factor": config.decay, "colored_noise_exponent": config.beta}
        optimizer = planning.ICEMOptimizer(**settings, **coloured, keep_elite_frac=config.kept / config.elites)
    else:
        optimizer = planning.CEMOptimizer(**settings)
    held = [torch.zeros(config.horizon, 1)]

    def run() -> None:
        score = model.score(1)
        found = optimizer.optimize(lambda actions: score(actions[None])[0], x0=held[0])
        held[0] = torch.cat((found[1:], torch.zeros(1, 1)))

    return run


def alone(model: Counted, config: Config, episodes: int) -> Run:
    """The model calls of a planning step, with nothing around them."""
    total = episodes * config.sequences
    inputs = model.inputs(min(model.rows, total))

    @torch.inference_mode()
    def run() -> None:
        for _ in range(total * (config.horizon - 1) // len(inputs[0])):
            model(*inputs)

    return run


def gemm_rate(clock: Callable[[], float]) -> float:
    """Best measured FLOP/s of a hidden layer's product, float32."""
    a, weight, bias = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH), torch.randn(WIDTH)
    best = float("inf")
    for _ in range(20):
        start = clock()
        for _ in range(10):
            torch.addmm(bias, a, weight)
        best = min(best, (clock() - start) / 10)
    return 2 * ROWS * WIDTH**2 / best


def throughput(threads: int, rounds: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    single, half = Network("fp32"), Network("bf16")
    half.load_state_dict(single.state_dict())
    network, rounded = Counted(single, CONTEXT, ROWS), Counted(half, CONTEXT, ROWS)
    equations = Counted(pendulum.step, 2, 8192)
    measure("network", network, threads, rounds, {"CEM, 10 episodes, bfloat16 products": rounded})
    measure("pendulum's equations", equations, threads, rounds, {})


def measure(name: str, model: Counted, threads: int, rounds: int, others: dict[str, Counted]) -> None:
    """One table: rows of a model, and our CEM on variants of it."""
    makers: dict[str, tuple[Counted, Callable[[], Run]]] = {
        "mbrl-lib CEM, one by one": (model, lambda: mbrl(model, PUBLISHED)),
        "CEM, 1 episode": (model, lambda: ours(model, PUBLISHED, 1)),
        "CEM, 10 episodes": (model, lambda: ours(model, PUBLISHED, 10)),
        "CEM, 50 episodes": (model, lambda: ours(model, PUBLISHED, 50)),
        "mbrl-lib iCEM, one by one": (model, lambda: mbrl(model, SMALLER)),
        "iCEM, 1 episode": (model, lambda: ours(model, SMALLER, 1)),
        "iCEM, 10 episodes": (model, lambda: ours(model, SMALLER, 10)),
        "model alone, 10 episodes": (model, lambda: alone(model, PUBLISHED, 10)),
        **{label: (other, lambda other=other: ours(other, PUBLISHED, 10)) for label, other in others.items()},
    }
    runs: dict[str, tuple[Counted, Run]] = {}
    for label, (used, make) in makers.items():
        try:
            runs[label] = used, make()
            runs[label][1]()  # warms up
        except ImportError as error:
            print(f"{label}: left out ({error})")
    clock = time.process_time if threads == 1 else time.perf_counter
    rates, products = dict.fromkeys(runs, 0.0), 0.0
    for _ in range(rounds):
        products = max(products, gemm_rate(clock))
        for label, (used, run) in runs.items():
            before, start = used.steps, clock()
            run()
            rates[label] = max(rates[label], (used.steps - before) / (clock() - start))
    free = rates["model alone, 10 episodes"]
    bound = products / Network.flops if model.step is not pendulum.step else None
    told = f"; bound {bound:,.0f} steps/s at {products / 1e9:.0f} GFLOP/s" if bound else ""
    print(f"\n{name}, {threads} thread(s), best of {rounds}{told}\n")
    print(f"{'':<38}{'model steps/s':>14}{'/ mbrl-lib':>12}{'/ model alone':>15}" + f"{'/ bound':>9}" * bool(bound))
    for label, rate in rates.items():
        peer = rates.get(f"mbrl-lib {'iCEM' if 'iCEM' in label else 'CEM'}, one by one")
        beside = f"{rate / peer:.2f}" if peer and "alone" not in label else "–"
        print(f"{label:<38}{rate:>14,.0f}{beside:>12}{rate / free:>15.2f}" + (f"{rate / bound:>9.2f}" if bound else ""))


def layers(threads: int, rounds: int) -> None:
    """Planning with CaDM by torch's layers and by oneDNN's, taking turns."""
    learner = CaDM(CaDMConfig(), seed=0).eval()
    ways = {"torch": (lambda x: False, ROWS), "oneDNN": (lambda x: not torch.is_grad_enabled(), products.BLOCK)}
    planners = {
        "CEM, 10 episodes": (PUBLISHED, 10),
        "iCEM, horizon 20, 10 episodes": (ICEM(horizon=20), 10),
        "iCEM, horizon 20, 50 episodes": (ICEM(horizon=20), 50),
    }
    clock = time.process_time if threads == 1 else time.perf_counter
    print(f"\nplanning with CaDM, {threads} thread(s), best of {rounds}\n")
    print(f"{'':<38}" + "".join(f"{f'{way}, {rows} rows':>18}" for way, (_, rows) in ways.items()) + f"{'ratio':>8}")
    for label, (config, episodes) in planners.items():
        models = {way: Counted(learner.step, CONTEXT, rows) for way, (_, rows) in ways.items()}
        runs, rates = {way: ours(model, config, episodes) for way, model in models.items()}, dict.fromkeys(ways, 0.0)
        for way in [*ways] * (rounds + 1):  # the first of each warms up
            before, start = models[way].steps, clock()
            with patch.object(cadm, "fusible", ways[way][0]):
                runs[way]()
            rates[way] = max(rates[way], (models[way].steps - before) / (clock() - start))
        told = "".join(f"{rate:>18,.0f}" for rate in rates.values())
        print(f"{label:<38}{told}{rates['oneDNN'] / rates['torch']:>8.2f}")


def oracle(groups: list[str], episodes: int, threads: int, only: str | None) -> None:
    torch.set_num_threads(threads)
    rows: list[tuple[str, Config | None, Any]] = [
        ("random torque", None, RandomAgent(seed=0)),
        ("nominal model, CEM", PUBLISHED, nominal(PUBLISHED, seed=0)),
    ]
    planners = {
        "random shooting": CONTROLLERS["shooting"],
        "CEM": PUBLISHED,
        "MPPI": CONTROLLERS["mppi"],
        "MPPI, temperature 1": MPPI(temperature=1.0),
        **{f"iCEM, H {h}, {what}": ICEM(horizon=h, execute=what) for h in (30, 20) for what in ("best", "mean")},
    }
    rows += [(label, config, known(config, seed=0)) for label, config in planners.items()]
    print(f"True equations, {episodes} episodes a group: return ± standard error, success\n")
    print(f"{'':<22}{'model steps':>12}" + "".join(f"{group:>22}" for group in groups))
    for label, config, policy in (row for row in rows if only in (None, row[0])):
        trials = evaluate_agent(policy, ENV_ID, seed=0, episodes=episodes, groups=groups)
        cells = [
            f"{row['return']:,.0f} ± {trials.groups[row['group']].returns.std(ddof=1) / episodes**0.5:.0f}"
            f" {100 * row['success']:>4.0f} %"
            for row in trials.by_group()
        ]
        steps = f"{config.sequences * (config.horizon - 1):,}" if config else "–"
        print(f"{label:<22}{steps:>12}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--oracle", action="store_true", help="returns with the true equations instead of speed")
    parser.add_argument("--groups", default="ID,OOD_c3", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--episodes", type=option(), default=30, help="of a group, for --oracle")
    parser.add_argument("--only", help="one row of --oracle, such as CEM")
    parser.add_argument("--threads", type=option(most=WORKERS), default=1)
    parser.add_argument("--rounds", type=option(), default=7)
    arguments = parser.parse_args()
    if arguments.oracle:
        oracle(arguments.groups.split(","), arguments.episodes, arguments.threads, arguments.only)
    else:
        throughput(arguments.threads, arguments.rounds)
        layers(arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main()
