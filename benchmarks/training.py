"""Seconds per training step, split into data, forward, backward and optimiser, beside the bound of its own products.

    python benchmarks/training.py [--world poke] [--preset paper] [--arms native,align-cross] [--pairs 48]

The bound is the time that the step's own matrix products and convolutions would take at the rates that this machine
reaches on the largest of them, at the precision each runs in. Arms are interleaved step by step, so that the ratio
between them is of one run. Quote minima and ratios: machines are noisy.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils.flop_counter import FlopCounterMode

from sprii_envs.arguments import WORKERS, option
from sprii_envs.banks import Bank, build
from sprii_train import kernels
from sprii_train.fit import TrainConfig, build_optimizer, resolve_precision
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import training_loss
from sprii_train.recipes import EVERY_RECIPE, recipe
from sprii_train.settings import PRESET_NAMES, SETTINGS, Built, Setting

PHASES = ("data", "forward", "backward", "optimiser", "total")


class Arm:
    """One recipe, ready to be stepped and timed."""

    def __init__(self, name: str, setting: Setting, bank: Bank, learner: JEPAConfig, train: TrainConfig) -> None:
        arm = recipe(name, EVERY_RECIPE)
        config = setting.learner_config(learner, arm)
        self.data = setting.data(bank, config, arm, pairs=train.pairs, seed=0)
        self.objective, self.config = arm.objective, train
        self.learner = JEPA(config).train()
        self.optimizer = build_optimizer(self.learner, train)
        self.precision = resolve_precision(train)
        self.best = dict.fromkeys(PHASES, float("inf"))

    def step(self, number: int) -> None:
        """One update; keeps the fastest time of every phase."""
        marks = [time.perf_counter()]
        windows = self.data(number)
        marks.append(time.perf_counter())
        self.learner.at_step(0, number)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            loss, _ = training_loss(self.learner, windows, self.objective)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        clip_grad_norm_(self.learner.parameters(), self.config.clip)
        self.optimizer.step()
        self.learner.after_step()
        self.optimizer.zero_grad(set_to_none=True)
        marks.append(time.perf_counter())
        spent = [b - a for a, b in pairwise(marks)] + [marks[-1] - marks[0]]
        for phase, seconds in zip(PHASES, spent, strict=True):
            self.best[phase] = min(self.best[phase], seconds)

    def bound(self, rates: dict[str, float]) -> float:
        """Seconds of this step's matrix products at the measured rates (FLOP/s by precision)."""
        config, windows = self.learner.config, self.data(0)
        n = windows.actions.shape[0]
        times = config.history + len(config.horizons)
        projections = 2 * 2 * times * n * config.embedding * config.sigreg_slices  # forward and backward, float32
        # The counter sees torch's products alone: none of them in C here
        with patch.object(kernels, "library", lambda: None), FlopCounterMode(display=False) as counter:
            loss, _ = training_loss(self.learner, windows, self.objective)
            loss.backward()
        self.optimizer.zero_grad(set_to_none=True)
        counted = counter.get_total_flops()
        convolved = sum(
            flops for operation, flops in counter.get_flop_counts()["Global"].items() if "convolution" in str(operation)
        )
        with (
            patch.object(kernels, "library", lambda: None),
            FlopCounterMode(display=False) as counter,
        ):  # what the counter itself sees of SIGReg
            z = torch.randn(times * n, config.embedding, requires_grad=True)
            sigreg(z, sigreg_directions(config.embedding, config.sigreg_slices, seed=0, step=0)).backward()
        products = counted - counter.get_total_flops() - convolved
        bound = products / rates[self.precision] + projections / rates["fp32"]
        return bound + (convolved / rates["convolution"] if convolved else 0.0)


def convolution_rate(config: JEPAConfig, precision: str, frames: int = 256, repeats: int = 5) -> float:
    """Best measured FLOP/s, forward and backward, of the stem's second convolution."""
    first, second, side = config.stem[0], config.stem[1], config.image // 2
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    x = torch.randn(frames, first, side, side, dtype=dtype, requires_grad=True)
    weight = torch.randn(second, first, 3, 3, dtype=dtype, requires_grad=True)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        F.conv2d(x, weight, stride=2, padding=1).sum().backward()
        best = min(best, time.perf_counter() - start)
    return 3 * 2 * frames * (side // 2) ** 2 * second * first * 9 / best


def gemm_rate(dtype: torch.dtype, rows: int, width: int, repeats: int = 30) -> float:
    """Best measured FLOP/s of a (rows, width) × (width, 4·width) product."""
    a, b = torch.randn(rows, width, dtype=dtype), torch.randn(width, 4 * width, dtype=dtype)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(10):
            torch.mm(a, b)
        best = min(best, (time.perf_counter() - start) / 10)
    return 2 * rows * width * 4 * width / best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=list(SETTINGS), default="d-clean")
    parser.add_argument("--preset", choices=PRESET_NAMES, default="paper")
    parser.add_argument("--arms", default="native,structure,align-cross")
    parser.add_argument("--pairs", type=option(), help="pairs in a batch; by default the preset's")
    parser.add_argument("--repeats", type=option(), default=12)
    parser.add_argument("--threads", type=option(most=WORKERS), default=1)
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    setting = SETTINGS[options.world]
    try:
        spent = setting.budget(options.preset)
    except ValueError as error:
        parser.error(str(error))
    store = spent.store or setting.store
    if not isinstance(store, Built):
        parser.error(f"--world is {setting.name}, which has no bank of windows")
    learner, train, protocol = spent.learner, spent.train, store.protocol
    train = replace(train, precision=options.precision, pairs=options.pairs or train.pairs)
    precision = resolve_precision(train)
    rates = {
        name: gemm_rate(dtype, 2 * train.pairs * learner.history, learner.width)
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    }
    if learner.image and len(learner.stem) > 1:
        rates["convolution"] = convolution_rate(learner, precision)
    with tempfile.TemporaryDirectory() as folder:
        bank = build(protocol, Path(folder) / "bank")
        arms = {name: Arm(name, setting, bank, learner, train) for name in options.arms.split(",")}
        for number in range(options.repeats + 2):
            for arm in arms.values():
                arm.step(number)
        bounds = {name: arm.bound(rates) for name, arm in arms.items()}
    first = next(iter(arms.values()))
    print(f"preset {options.preset}, {first.precision}, {options.threads} thread(s), best of {options.repeats + 2}")
    print(
        f"world {setting.name}, {train.pairs} pairs; measured rates: "
        + ", ".join(f"{k} {v / 1e9:.0f} GFLOP/s" for k, v in rates.items())
    )
    print(
        f"{'arm':<16}"
        + "".join(f"{p:>11}" for p in PHASES)
        + f"{'data share':>12}{'bound':>9}{'/bound':>8}{'/first':>8}"
    )
    report = {}
    for name, arm in arms.items():
        b = arm.best
        ratios = b["data"] / b["total"], b["total"] / bounds[name], b["total"] / first.best["total"]
        print(
            f"{name:<16}"
            + "".join(f"{b[p] * 1e3:>8.1f} ms" for p in PHASES)
            + f"{ratios[0]:>12.1%}{bounds[name] * 1e3:>6.0f} ms{ratios[1]:>8.2f}{ratios[2]:>8.2f}"
        )
        report[name] = b | {"bound": bounds[name], "over_bound": ratios[1], "over_first": ratios[2]}
    if options.json:
        options.json.write_text(
            json.dumps({"world": setting.name, "preset": options.preset, "rates": rates, "arms": report}, indent=2)
            + "\n"
        )


if __name__ == "__main__":
    main()
