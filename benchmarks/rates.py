"""Other learners' rates, chosen on systems that no table reports: own error and what the code tells, by rate.

    python benchmarks/rates.py [--learners cadm-offline,nod-states,fcrl] [--factors 0.33,1,3] [--out runs/rates]

Each learner of D-Clean trains whole at preset quick, source 0, at the paper's rate times each factor. Own errors
(training losses of 8 batches of 48 pairs, CaDM's with its L2, in evaluation, in the learner's own units) and the R² of
a ridge probe of log drag on single windows are of the half of the validation systems that is selected on; the probe is
fitted on training systems. A stopped run resumes.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from sprii_envs.arguments import option
from sprii_envs.relations import EpisodeTable
from sprii_train.data import PairedWindows
from sprii_train.experiments.measures.selection import halves
from sprii_train.fit import TrainConfig
from sprii_train.protocol import training_loss
from sprii_train.recipes import STATE_RECIPES, recipe
from sprii_train.schedules import Stairs
from sprii_train.settings import D_CLEAN

SEED = 20_266
PAIRS = 48


def at(train: TrainConfig, published: TrainConfig, factor: float) -> TrainConfig:
    """A budget's updates at the published rate times a factor, without endpoints."""
    if isinstance(train, Stairs) and isinstance(published, Stairs):
        return replace(train, share=published.share * factor)
    factor *= published.learning_rate / train.learning_rate
    rates = tuple((begin, rate * factor) for begin, rate in train.rates)
    return replace(train, learning_rate=train.learning_rate * factor, rates=rates, endpoints=())


def measured(learner: Any, reader: Any, train: EpisodeTable, selected: EpisodeTable) -> dict[str, float]:
    """Own error, and R² of log drag, on the selected systems."""
    batches = PairedWindows(reader, selected, pairs=PAIRS, seed=SEED)
    objective = recipe("structure").objective
    with torch.no_grad():
        own = np.mean([float(training_loss(learner, batches(step), objective)[0]) for step in range(8)])
    codes, drags = _codes(learner, reader, train, 40)
    seen, told = _codes(learner, reader, selected, 20)
    scaler = StandardScaler().fit(codes)
    r2 = Ridge(1.0).fit(scaler.transform(codes), drags).score(scaler.transform(seen), told)
    return {"own": float(own), "r2": float(r2)}


def _codes(learner: Any, reader: Any, table: EpisodeTable, batches: int) -> tuple[Any, Any]:
    data = PairedWindows(reader, table, pairs=PAIRS, seed=SEED + 1)
    codes, drags = [], []
    with torch.no_grad():
        for step in range(batches):
            drawn = data.draw(step)
            rows = np.concatenate([drawn.donor, drawn.recipient])
            codes.append(learner.encode_history(learner.prepare(data(step)).history).double().numpy())
            drags.append(np.log(table["drag"][rows]))
    return np.concatenate(codes), np.concatenate(drags)


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", default="cadm-offline,nod-states,fcrl", help=f"of {', '.join(STATE_RECIPES)}")
    parser.add_argument("--factors", default="0.33,1,3")
    parser.add_argument("--steps", type=option(), help="updates; by default the preset's")
    parser.add_argument("--out", type=Path, default=Path("runs/rates"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    budget = D_CLEAN.budget("quick")
    store = D_CLEAN.open_store(options.out, budget)
    train, selected = D_CLEAN.episodes(store, "train"), halves(D_CLEAN.episodes(store, "validation"))[0]
    print(f"{'learner':<16}{'× rate':>8}{'updates':>9}{'own error':>12}{'R² of log drag':>16}", flush=True)
    for name in options.learners.split(","):
        arm = recipe(name, STATE_RECIPES)
        own, published = budget.of(arm), D_CLEAN.budget("paper").of(arm)
        for factor in map(float, options.factors.split(",")):
            updates = at(own.train, published.train, factor)
            updates = replace(updates, steps=options.steps or updates.steps, seed=0)
            folder = options.out / f"{name}-{factor:g}-{updates.steps}"
            config = D_CLEAN.learner_config(own.learner, arm)
            learner = D_CLEAN.train(
                store, arm, config, updates, folder, identity={"data": store.fingerprint}, progress=_quiet
            )
            found = measured(learner, D_CLEAN.reader(store, config), train, selected)
            print(f"{name:<16}{factor:>8g}{updates.steps:>9}{found['own']:>12.5f}{found['r2']:>16.3f}", flush=True)


def _quiet(done: int, values: dict[str, float]) -> None:
    pass


if __name__ == "__main__":
    main()
