"""Does each learner learn its own objective? Own errors beside those of a constant prediction and of first weights.

    python benchmarks/own_losses.py [--setting spring] [--learners spring-cpc,tds,…] [--seeds 1] [--out runs/own-losses]

Each learner trains whole at preset quick. Its own error is its task loss with its own context (TDS: with the context of
the pair's other window) over 8 batches of 48 pairs of validation systems, in evaluation, in its own units. *Constant*
gives every window of a batch the mean of the learner's predictions in that batch: what is left when nothing is known of
a window. D-Clean's validation systems are the half that is selected on; SpringWorld's are the 100 systems of the
cold-start panel, on which nothing is selected. A stopped run resumes.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sprii_envs.arguments import option
from sprii_train.data import PairedWindows
from sprii_train.experiments.measures.selection import halves
from sprii_train.learners.tds import TDS
from sprii_train.protocol import Batch, encode
from sprii_train.recipes import EVERY_RECIPE, Reference, recipe
from sprii_train.records import read_rows
from sprii_train.settings import D_CLEAN, SPRING
from sprii_train.settings.spring import SPRING_CASES

SETTINGS = {"d-clean": D_CLEAN, "spring": SPRING}
LEARNERS = {
    "d-clean": "cadm-offline,nod-states,fcrl,dali,tds-4,structure,align-cross",
    "spring": "tds,fcrl,spring-cpc,spring-rssm,supervised-split,"
    "reference-gru,reference-transformer,reference-tcn,reference-deepsets",
}
SEED, PAIRS, BATCHES = 20_267, 48, 8


class Losses(NamedTuple):
    """Own error of a learner, and of its mean prediction for every window."""

    own: float
    constant: float


def losses(learner: Any, batches: Iterator[Batch]) -> Losses:
    """Means over batches of task losses in evaluation."""
    own, constant = [], []
    with torch.no_grad():
        for batch in batches:
            codes = encode(learner, batch)
            context = codes.z_p.roll(len(codes.z_p) // 2, 0) if isinstance(learner, TDS) else codes.z_p
            told = learner.predict(codes.z_s, context, batch.u)
            own.append(float(learner.task_loss(told, batch.y).mean()))
            constant.append(float(learner.task_loss(told.mean(0, keepdim=True).expand_as(told), batch.y).mean()))
    return Losses(float(np.mean(own)), float(np.mean(constant)))


def held(setting: Any, store: Any, config: Any, arm: Any) -> Callable[[int], Any]:
    """Batches of validation systems as the recipe's training draws them."""
    table = setting.episodes(store, "validation")
    if setting is not SPRING:
        return PairedWindows(setting.reader(store, config), halves(table)[0], pairs=PAIRS, seed=SEED)
    if isinstance(arm, Reference):
        whole = store.split("validation")
        panel = whole.select(np.isin(whole["group"], SPRING_CASES.groups))
        return SPRING._queried(store, panel, config, pairs=PAIRS, seed=SEED)
    panel = table.select(np.isin(table["group"], SPRING_CASES.groups))
    return PairedWindows(setting.reader(store, config), panel, pairs=PAIRS, seed=SEED)


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="spring", choices=list(SETTINGS))
    parser.add_argument("--learners", help="arms; by default all other learners of the setting")
    parser.add_argument("--seeds", type=option(), default=1, help="sources of each")
    parser.add_argument("--steps", type=option(), help="updates; by default the preset's")
    parser.add_argument("--out", type=Path, default=Path("runs/own-losses"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS[options.setting]
    budget = setting.budget("quick")
    store = setting.open_store(options.out, budget)
    print(
        f"{'learner':<22}{'seed':>5}{'updates':>9}{'training':>22}{'own':>10}{'constant':>10}{'untrained':>10}",
        flush=True,
    )
    for name in (options.learners or LEARNERS[options.setting]).split(","):
        arm = recipe(name, EVERY_RECIPE)
        own = budget.of(arm)
        config = setting.learner_config(own.learner, arm)
        for seed in range(options.seeds):
            given = {"seed": seed, "endpoints": ()} | ({"steps": options.steps} if options.steps else {})
            train = replace(own.train, **given)
            folder = options.out / "own-losses" / f"{options.setting}-{name}-{seed}-{train.steps}"
            learner = setting.train(
                store, arm, config, train, folder, identity={"data": store.fingerprint}, progress=_quiet
            ).eval()
            torch.manual_seed(seed)
            fresh = setting.fresh(store, config).eval()
            data = held(setting, store, config, arm)
            found = losses(learner, (learner.prepare(data(step)) for step in range(BATCHES)))
            first = losses(fresh, (fresh.prepare(data(step)) for step in range(BATCHES)))
            course = [row["loss"] for row in read_rows(folder / "metrics.jsonl")]
            fell = f"{course[0]:.4g} → {course[-1]:.4g}"
            print(
                f"{name:<22}{seed:>5}{train.steps:>9}{fell:>22}{found.own:>10.4f}{found.constant:>10.4f}{first.own:>10.4f}",
                flush=True,
            )


def _quiet(done: int, values: dict[str, float]) -> None:
    pass


if __name__ == "__main__":
    main()
