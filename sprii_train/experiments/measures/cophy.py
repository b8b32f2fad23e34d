"""A source of CoPhy through the common head: errors under other histories, and what codes tell of physics."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.cophy.bank import scene_of
from sprii_train.cophy.episodes import evaluated, features_in, truth
from sprii_train.cophy.evaluation import class_means, evaluate, oracle, risks
from sprii_train.cophy.reader import (
    SUPPORTS,
    Encoded,
    HeadConfig,
    Queries,
    Reader,
    contexts,
    encode,
    fit_reader,
)
from sprii_train.cophy.supports import FACTORS, Supports
from sprii_train.cophy.windows import GIVEN
from sprii_train.experiments.sources import Source
from sprii_train.fit import TrainConfig, resolve_precision
from sprii_train.learners.cophynet import CoPhyNet
from sprii_train.records import read_rows

Array = NDArray[np.float64]

POPULATIONS = ("validation", "test")
MANY, FEW = 4_000, 32
"""Training recipients below which a batch of the head is of 32: with 128 it has too few updates to use its memory."""
READERS: Mapping[str, dict[str, Any]] = {
    "main": {},
    "alternative-0": {"initial": "alternative", "dropout": 0.0},
    "alternative": {"initial": "alternative"},
    "new-0": {"initial": "new", "dropout": 0.0},
    "every-step": {"initial": "new", "delivery": "every"},
}
"""Recipe of the reader → what of `HeadConfig` is other than in the main one (`tab:v3-cophy-reader`)."""


class Bench:
    """The episodes of a source's store, and the head that is fitted on it."""

    def __init__(self, source: Source) -> None:
        self.source, self.store = source, features_in(source.store)
        objects, self.asked = evaluated(self.store)
        self.supports = Supports(objects)
        self.rows = self.supports.rows("train", SUPPORTS)

    def encoded(self, learner: Any) -> Encoded:
        """What a frozen learner says of all episodes; CoPhyNet's null is the mean of a colour and type."""
        of = self.supports.objects
        found = encode(learner, self.store.features, self.store.poses, np.stack([of.seen, of.active], axis=1))
        return class_means(found, of) if isinstance(learner, CoPhyNet) else found

    def config(self, **changed: Any) -> HeadConfig:
        """As many epochs as the cell's updates are."""
        dims = 2 if scene_of(self.store) == "balls" else 3
        updates = self.source.cell.readers.updates
        batch = HeadConfig().batch if len(self.rows) >= MANY else FEW
        epochs = max(1, round(updates / -(-len(self.rows) // batch)))
        precision: Any = resolve_precision(TrainConfig())  # errors are the same to four digits, in half the time
        return HeadConfig(dims=dims, epochs=epochs, batch=batch, precision=precision, **changed)

    def reader(self, encoded: Encoded, **changed: Any) -> Reader:
        """The head of the source's seed."""
        return fit_reader(encoded, self.asked, self.supports, self.config(**changed), seed=self.source.seed)


def cophy(source: Source) -> dict[str, Any]:
    """Errors by population and condition, R² by channel and factor, distances of codes; errors by recipient are kept.

    Conditions are those of `cophy.evaluation.risks`, and `still` and `moving`, objects that rest or go on from where
    the front end estimates them to be in the given frames. Where not all recipients have the histories of a condition,
    `condition:matched` is the matched error of those that have, and `s8:s5` that of five histories of those that have
    eight.
    """
    bench = Bench(source)
    encoded = bench.encoded(source.learner)
    reader = bench.reader(encoded)
    trained = read_rows(source.folder / "metrics.jsonl")[-1]["step"]  # a recipe may have a share of the steps
    row: dict[str, Any] = {"steps": trained, "reader_epoch": reader.epoch, "recipients": {}, "errors": {}, "rise": {}}
    row["frontend"] = dict(bench.store.quality)
    kept: dict[str, NDArray[Any]] = {}
    for population in POPULATIONS:
        found = evaluate(reader, encoded, bench.asked, bench.supports, split=population)
        every = dict(found.risks.errors) | {"still": found.baselines["rest"], "moving": found.baselines["velocity"]}
        own = compared(every)
        row["recipients"][population] = len(found.risks.recipients)
        row["errors"][population] = {name: float(values.mean()) for name, values in own.items()}
        row["rise"][population] = {
            factor: float((own[name] - own[f"{name}:matched"]).mean())
            for factor in FACTORS
            if (name := f"wrong_{factor}") in own
        }
        kept |= {f"{population}|{name}": values for name, values in own.items()}
        kept[f"{population}|recipients"] = found.risks.recipients
        if population == POPULATIONS[0]:
            row["recipients"] |= {name: len(own[name]) for name in ("s5", "s8") if name in own}
            row["probe"] = {channel: _with_gravity(r2) for channel, r2 in found.r2.items()}
            row["shuffled_probe"] = {channel: _with_gravity(r2) for channel, r2 in found.shuffled.items()}
            row["geometry"] = {channel: float(ratio) for channel, ratio in found.ratio.items()}
    source.keep(kept | shown(bench, reader, encoded))
    return row


def compared(errors: Mapping[str, Array]) -> dict[str, Array]:
    """Condition → errors of the recipients that have its histories, and the errors that these compare with."""
    found: dict[str, Array] = {}
    for name, values in errors.items():
        has = np.isfinite(values)
        if has.any():
            found[name] = values[has]
            if name.startswith("wrong") or name in ("s5", "s8"):
                found[f"{name}:matched"] = errors["matched"][has]
            if name == "s8":
                found["s8:s5"] = errors["s5"][has]
    return found


def _with_gravity(r2: Mapping[str, float]) -> dict[str, float]:
    """With `gravity`, the mean of its components that vary."""
    of = [value for name, value in r2.items() if name.startswith("gravity")]
    return dict(r2) | ({"gravity": float(np.mean(of))} if of else {})


@torch.no_grad()
def shown(bench: Bench, reader: Reader, encoded: Encoded) -> dict[str, NDArray[Any]]:
    """Of a validation recipient with wrong histories: its true given frames, the rest, and two predictions.

    It is the one whose stillest object goes furthest after the given frames.
    """
    rows = bench.supports.rows("validation", SUPPORTS)
    matched, wrong = (draw(SUPPORTS, seed=reader.seed) for draw in (bench.supports.matched, bench.supports.wrong))
    rows = rows[bench.supports.eligible(wrong)[rows]]
    if not len(rows):
        return {}
    gone = bench.asked.targets[rows].diff(dim=1).norm(dim=-1).sum(1)
    least = torch.where(bench.asked.seen[rows], gone, torch.inf).amin(1)
    rows = rows[[int(least.argmax())]]
    part = torch.from_numpy(rows)
    given = Queries(*(values[part] for values in bench.asked))
    made = {
        f"shown|{name}": reader.head(
            reader.head.memory(contexts(encoded, part, torch.from_numpy(ids)[part])),
            torch.ones(1, dtype=torch.bool),
            given,
        )[0].numpy()
        for name, ids in (("matched", matched), ("wrong", wrong))
    }
    told = {
        "first": truth(bench.store, rows).positions[0, :GIVEN],
        "true": given.targets[0],
        "seen": given.seen[0],
        "slot": bench.store.slot[rows[0]],
    }
    return made | {f"shown|{name}": np.asarray(values) for name, values in told.items()}


def cophy_readers(source: Source) -> dict[str, Any]:
    """Validation errors of a frozen source through readers of five recipes; errors by recipient are kept."""
    bench = Bench(source)
    encoded = bench.encoded(source.learner)
    found = {
        name: risks(bench.reader(encoded, **changed), encoded, bench.asked, bench.supports, counts=()).errors["matched"]
        for name, changed in READERS.items()
    }
    source.keep({f"readers|{name}": values for name, values in found.items()})
    trained = read_rows(source.folder / "metrics.jsonl")[-1]["step"]
    return {"steps": trained, "readers": {name: float(values.mean()) for name, values in found.items()}}


def cophy_baselines(source: Source) -> dict[str, Any]:
    """Errors through heads of their own: of the learner's first weights, and of the true properties for a memory."""
    bench, setting = Bench(source), source.setting
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(source.seed)
        blank = setting.fresh(source.store, source.learner.config).eval()  # type: ignore[attr-defined]
    row: dict[str, Any] = {"baseline": {population: {} for population in POPULATIONS}}
    kept: dict[str, Array] = {}
    for name, encoded in (("untrained", bench.encoded(blank)), ("oracle", oracle(bench.supports.objects))):
        reader = bench.reader(encoded)
        for population in POPULATIONS:
            found = risks(reader, encoded, bench.asked, bench.supports, split=population, counts=()).errors
            for condition in ("matched", "null", "wrong"):
                own = compared({condition: found[condition], "matched": found["matched"]})
                if condition in own:
                    row["baseline"][population][f"{name}_{condition}"] = float(own[condition].mean())
            kept[f"{population}|{name}"] = found["matched"]
    source.keep(kept)
    return row
