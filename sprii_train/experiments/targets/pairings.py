"""What pairing laws draw: donor pools, structured mismatches, inferred relations (`app:donor-pool-control`)."""

from collections.abc import Sequence

from sprii_train.experiments.targets.base import (
    Group,
    Pairings,
    Row,
    Target,
    arms_of,
    spread_of,
    spread_table,
    value_of,
)
from sprii_train.experiments.targets.geometry import interval_table
from sprii_train.experiments.targets.within import times
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Table, spread

FACTORS = ("mass", "drag", "stiffness")
POOLS = (("train", "Training"), ("validation", "Validation"))
COUNTS = {
    "Eligible systems": "eligible_systems",
    "Selected systems": "selected_systems",
    "Rollouts/system": "rollouts_per_system",
    "Supported histories": "supported_histories",
}


def _percent(rows: Sequence[Row], path: str) -> str:
    """The mean over sources of a share."""
    values = [100.0 * float(value_of(row, path)) for row in rows]
    return f"{sum(values) / len(values):.4g}"


# --- donor pools ---


def _pools(rows: Sequence[Row]) -> list[Table]:
    lines = [
        [title, group[0]["label"], *(_range(*group[0]["pairs"][split][column]) for column in COUNTS.values())]
        for split, title in POOLS
        for group in arms_of(rows).values()
    ]
    return [Table("Donors of a recipient", ["Split", "Relation", *COUNTS], lines, "Exact counts, nothing is drawn.")]


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}–{high}"


def _eligible(arm: str, split: str, low: int, high: int) -> Claim:
    return Claim(
        f"{arm.upper()}, {split}: {_range(low, high)} eligible systems, 3 of them drawn from, with 12 histories",
        (arm,),
        lambda a: max(
            abs(found - expected)
            for column, range_ in (("eligible_systems", (low, high)), ("selected_systems", (3, 3)),
                                   ("rollouts_per_system", (4, 4)), ("supported_histories", (12, 12)))
            for found, expected in zip(a[arm]["pairs"][split][column], range_, strict=True)
        ),
        "largest deviation of a count",
        below=0.5,
        null="no contexts",
        exact=True,
    )  # fmt: skip


POOL_CLAIMS = (
    _eligible("g1", "train", 173, 174),
    _eligible("g2", "train", 19, 19),
    _eligible("g1", "validation", 35, 36),
    _eligible("g2", "validation", 3, 3),
)

# --- structured mismatches ---

MISMATCHED = ("g3", "mismatch-random", "mismatch-drag", "mismatch-mass")
HORIZONS = (1, 4, 16)


def _mismatches(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    lines = [
        [
            group[0]["label"],
            _percent(group, "pairs.train.coverage"),
            *(_percent(group, f"pairs.train.match_rates.{f}") for f in FACTORS),
            spread(spread_of(group, "validation.ratio")),
        ]
        for group in groups.values()
    ]
    native = {f"h{h}": f"validation.self_h{h}" for h in HORIZONS}
    native |= {f"variance h{h}": f"validation.variance_h{h}" for h in HORIZONS}
    return [
        Table(
            "Pairing quality and system separation",
            ["Pairing", "Coverage (%)", *(f"{f.capitalize()} (%)" for f in FACTORS), "Separation"],
            lines,
            "Match rates are of 200,000 seeded pairs of training episodes; separation is between/within on validation.",
        ),
        interval_table(rows, {"Separation": "validation.ratio"}, first="Pairing"),
        spread_table(
            rows, "Native error, and the variance of its target", native, first="Pairing",
            note="Each source has its own target space.",
        ),
    ]  # fmt: skip


def _own_error(row: Row, horizon: int) -> float:
    return row["validation"][f"self_h{horizon}"] / row["validation"][f"variance_h{horizon}"]


def _match(arms: Arms, arm: str, factor: str) -> float:
    return float(value_of(arms[arm], f"pairs.train.match_rates.{factor}"))


MISMATCH_CLAIMS = (
    *(
        Claim(
            f"A {factor}-only mismatch leaves the other factors right in every pair, and {factor} in half",
            (f"mismatch-{factor}",),
            lambda a, factor=factor: max(
                abs(_match(a, f"mismatch-{factor}", f) - (0.5 if f == factor else 1.0)) for f in FACTORS
            ),
            "largest deviation of a match rate",
            below=0.01,
            null="no contexts",
            exact=True,
        )
        for factor in ("drag", "mass")
    ),
    Claim(
        "Mass-only mismatch separates systems far more than correct pairing",
        ("g3", "mismatch-mass"),
        **times("mismatch-mass", "g3", "validation.ratio"),
        what="ratio of ratios",
        above=1.5,
        paper=3.7,
        null=1.0,
    ),
    Claim(
        "Correct pairing does not minimise the native error at any horizon",
        MISMATCHED,
        lambda a: min(_own_error(a["g3"], h) - min(_own_error(a[arm], h) for arm in MISMATCHED[1:]) for h in HORIZONS),
        "smallest over horizons of its error minus the least other, each by the variance of its target",
        above=0.01,
        paper=0.083,
        null=0.0,
    ),
)

# --- inferred relations ---

INFERRED_RELATIONS = ("g3", "inferred", "random-history")


def _quality(rows: Sequence[Row]) -> list[Table]:
    labels = {"g3": "True"}
    lines = [
        [
            labels.get(arm, group[0]["label"]),
            *(_percent(group, f"pairs.train.match_rates.{c}") for c in ("system", *FACTORS)),
            _percent(group, "pairs.train.coverage"),
            f"{sum(row['pairs']['train']['donor_entropy'] for row in group) / len(group):.3f}",
        ]
        for arm, group in arms_of(rows).items()
    ]
    return [
        Table(
            "Agreement and coverage of relations, percent",
            ["Relation", "Tuple p", *(f.capitalize() for f in FACTORS), "Coverage", "Donor usage"],
            lines,
            "Exact over all pairs of a graph; donor usage is the entropy of donor rollouts over the log of their "
            "number.",
        )
    ]


QUALITY_CLAIMS = (
    *(
        Claim(
            f"Neighbours in a Structure teacher's codes share {factor} more often than random histories",
            ("inferred", "random-history"),
            lambda a, factor=factor: 100 * (_match(a, "inferred", factor) - _match(a, "random-history", factor)),
            "difference in percentage points",
            above=0.5,
            paper=paper,
            null=0.0,
            exact=True,
        )
        for factor, paper in (("mass", 1.1), ("drag", 3.3))
    ),
    Claim(
        "Inferred pairs are almost never of one system",
        ("inferred",),
        lambda a: 100 * _match(a, "inferred", "system"),
        "percent of pairs",
        below=1,
        paper=0.064,
        null="random pairs hold too",
        exact=True,
    ),
)

PAIRING_TARGETS = (
    Target(
        "tab:donor-pool-audit",
        "PokeWorld: semantic eligibility and training support",
        (Pairings("poke", ("g1", "g2"), tuple(split for split, _ in POOLS)),),
        _pools,
        POOL_CLAIMS,
        note="Nothing is trained.",
    ),
    Target(
        "tab:structured-mismatch-diagnostics",
        "PokeWorld: pairing quality, separation and native prediction",
        (Pairings("poke", MISMATCHED), Group("poke", MISMATCHED, ("development",))),
        _mismatches,
        MISMATCH_CLAIMS,
    ),
    Target(
        "tab:inferred-relation-quality",
        "PokeWorld: agreement and coverage of history-inferred relations",
        (Pairings("poke", INFERRED_RELATIONS),),
        _quality,
        QUALITY_CLAIMS,
        note="Only the Structure teachers are trained.",
    ),
)
