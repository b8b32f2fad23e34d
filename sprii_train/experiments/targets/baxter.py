"""Figure `fig:baxter-selectivity`: whose grasp is whose donor decides what codes tell of, hardness or shape."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    arrays_of,
    data_facts,
    data_of,
    spread_of,
    value_of,
)
from sprii_train.recipes import GRASP_RECIPES
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Picture, Table, spread
from sprii_train.reports.tactile_figures import selectivity, sensor_changes

HARDNESS, SHAPE, RANDOM = "baxter-hardness", "baxter-shape", "baxter-random"
SPLITS = {"validation": "validation", "confirmation": "confirmation"}
READ = {"hardness": "Hardness across shapes", "shape": "Shape across hardness"}
CHANCE = {"hardness": 1.0 / 3.0, "shape": 0.5}
GROUP = Group("baxter", tuple(GRASP_RECIPES), ("tactile",))
NOTE = (
    "Sources, probes and readouts are fitted on training grasps. Unless the published recordings were imported, the "
    "grasps are of a simulated stand-in: this then tests the method on other data than the paper's numbers are of."
)


def _probe(arm: str, what: str, split: str = "confirmation") -> Callable[[Arms], float]:
    return lambda a: a[arm]["probe"][split][what]


def _contrast(arm: str, other: str, what: str) -> Callable[[Arms], float]:
    """The smaller difference of the two held-out splits: both must have it."""
    return lambda a: min(_probe(arm, what, s)(a) - _probe(other, what, s)(a) for s in SPLITS)


def _readout(length: str, what: str) -> Callable[[Arms], float]:
    return lambda a: a[HARDNESS]["readout"]["confirmation"][length][what]


CLAIMS = (
    Claim(
        "C_H: hardness is read across shapes better from codes aligned by hardness than from those aligned by shape",
        (HARDNESS, SHAPE),
        _contrast(HARDNESS, SHAPE, "hardness"),
        "smaller difference of accuracies of validation and confirmation",
        above=0.2,
        paper=0.667,
        null=0.0,
    ),
    Claim(
        "C_S: shape is read across hardness better from codes aligned by shape than from those aligned by hardness",
        (HARDNESS, SHAPE),
        _contrast(SHAPE, HARDNESS, "shape"),
        "smaller difference of balanced accuracies of validation and confirmation",
        above=0.15,
        paper=0.5,
        null=0.0,
    ),
    Claim(
        "Codes aligned by hardness tell it on the shape that the probe has not seen",
        (HARDNESS,),
        _probe(HARDNESS, "hardness"),
        "accuracy",
        above=0.8,
        paper=1.0,
        null=lambda a: a[HARDNESS]["untrained"]["confirmation"]["hardness"],
    ),
    Claim(
        "Codes aligned by shape tell it on the level of hardness that the probe has not seen",
        (SHAPE,),
        _probe(SHAPE, "shape"),
        "balanced accuracy",
        above=0.8,
        paper=1.0,
        null=lambda a: a[SHAPE]["untrained"]["confirmation"]["shape"],
    ),
    Claim(
        "Codes aligned by shape do not tell hardness across shapes",
        (SHAPE,),
        _probe(SHAPE, "hardness"),
        "accuracy",
        below=0.45,
        paper=0.333,
        null="chance 1/3, which holds too",
    ),
    Claim(
        "Codes aligned by hardness do not tell shape across hardness",
        (HARDNESS,),
        _probe(HARDNESS, "shape"),
        "balanced accuracy",
        below=0.6,
        paper=0.5,
        null="chance 1/2, which holds too",
    ),
    Claim(
        "Hardness is in the input of eight samples",
        (HARDNESS,),
        _readout("early", "hardness"),
        "accuracy of a network fitted on all configurations",
        above=0.5,
        paper=0.954,
        null=CHANCE["hardness"],
    ),
    Claim(
        "Hardness is in the input of a whole grasp",
        (HARDNESS,),
        _readout("full", "hardness"),
        "accuracy of a network fitted on all configurations",
        above=0.9,
        paper=1.0,
        null=CHANCE["hardness"],
    ),
    Claim(
        "Shape is in the input at both lengths",
        (HARDNESS,),
        lambda a: min(_readout(length, "shape")(a) for length in ("early", "full")),
        "smaller accuracy of a network fitted on all configurations",
        above=0.9,
        paper=1.0,
        null=CHANCE["shape"],
    ),
)

BESIDE: Mapping[str, str] = {
    "untrained": "untrained",
    "shuffled": "labels of training grasps dealt anew",
    "raw": "raw history of 40 samples",
    "last": "its last sample alone",
}
ALIKE = ("untrained", "raw", "last")
"""What does not depend on the arm."""


def _tables(rows: Sequence[Row]) -> list[Table]:
    arms = arms_of(rows)
    return [*(_probes(arms, split) for split in SPLITS), _readouts(next(iter(arms.values())))]


def _probes(arms: Mapping[str, Sequence[Row]], split: str) -> Table:
    columns = {**READ, "rho_hardness": "ρ hardness", "rho_shape": "ρ shape"}
    lines: list[list[str]] = []
    grey: set[int] = set()

    def line(label: str, rows: Sequence[Row], of: str) -> None:
        if of != "probe":
            grey.add(len(lines))
        lines.append([label, *(spread(spread_of(rows, f"{of}.{split}.{what}")) for what in columns)])

    for own in arms.values():
        line(str(own[0]["label"]), own, "probe")
        line(BESIDE["shuffled"], own, "shuffled")
    for of in ALIKE:
        line(BESIDE[of], next(iter(arms.values())), of)
    note = (
        "Logistic probes, C = 1: three levels read on the other shape than fitted, the mean of both ways (chance 1/3); "
        "shape on the level left out, balanced, the mean of three (chance 1/2). ρ: partial Spearman of the 15 "
        "distances between configurations' mean codes with one difference, given the other."
    )
    return Table(f"Probes of {split} grasps", ["Codes", *columns.values()], lines, note, frozenset(grey))


def _readouts(rows: Sequence[Row]) -> Table:
    lengths = {"early": "first 8 samples", "full": "80 samples"}
    lines = [
        [f"{label}, {split}", *(spread(spread_of(rows, f"readout.{split}.{length}.{what}")) for what in READ)]
        for split in SPLITS
        for length, label in lengths.items()
    ]
    note = f"A network of one hidden layer on all six configurations; {len(rows)} fits of each, one a seed."
    return Table("What the input tells", ["Input", "Hardness", "Shape"], lines, note)


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    arms, found = arms_of(rows), {}
    for what, title in READ.items():
        bars = [
            (str(own[0]["label"]), np.array([value_of(row, f"probe.confirmation.{what}") for row in own], np.float64))
            for own in arms.values()
        ]
        found[title] = bars
    changes = arrays_of(rows[0], "tactile")["changes"]
    return [
        Picture(
            "selectivity",
            "Which property codes tell",
            "Confirmation grasps; mean ± SD over sources, a dot each. Dashed: chance, 1/3 and 1/2.",
            selectivity(found, [CHANCE[what] for what in READ]),
        ),
        Picture(
            "sensors",
            "Taxels of one grasp in each configuration",
            "Columns share the level of hardness. Changes since the first sample, one scale that ends at the 97th "
            f"percentile. Data: {data_of(rows)}.",
            sensor_changes(changes, ("cube", "cylinder"), [f"hardness level {i}" for i in range(changes.shape[1])]),
        ),
    ]


BAXTER_TARGETS = (
    Target(
        "fig:baxter-selectivity",
        "Baxter: relation-selective organisation of tactile histories",
        (GROUP,),
        _tables,
        CLAIMS,
        _pictures,
        NOTE,
        facts=data_facts,
    ),
)
