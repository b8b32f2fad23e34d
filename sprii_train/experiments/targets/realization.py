"""What residual routes recover from frozen contexts, standard and physically weighted (`app:realization-slot`)."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from sprii_train.analysis.value.realization import Realization, realization_row
from sprii_train.analysis.value.routes import SCALES
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of, spread_of
from sprii_train.experiments.targets.reader_capacity import amplitude_pictures, specificity_table
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Picture, Table, number, spread
from sprii_train.reports.value_figures import reductions

PANELS = (("", "Standard M2"), ("-phys", "Physically weighted M2"))
DONORS = (("own", "own"), ("cross", "cross-system"))
NOTE = (
    "The paper names a prescribed sensitivity procedure for its weights without a formula; ours are the mean of "
    "|∂ standardised target / ∂ log property| over training cases, of mean 1."
)


def _row(group: Sequence[Row]) -> Realization:
    errors = [arrays_of(row, "realization") for row in group]
    m1, m2, m1_phys, m2_phys = (
        {row["seed"]: kept[name] for row, kept in zip(group, errors, strict=True)}
        for name in ("m1", "m2", "m1-phys", "m2-phys")
    )
    return realization_row(m1, m2, (m1_phys, m2_phys))


def _grid(rows: Sequence[Row]) -> list[Table]:
    lines = []
    for name, group in arms_of(rows).items():
        found = _row(group)
        fits = sum(found.readers)
        lines.append([
            f"{group[0]['label']}{', ' + name.split('/')[0] if '/' in name else ''}",
            f"{len(group)} × {found.readers[0]}",
            *(number(value) for value in (found.m1, found.m2, found.gain, found.weighted_gain)),
            f"{found.reduction:.2f}",
            f"{found.favouring} of {fits}",
        ])  # fmt: skip
    columns = ["Family", "Sources × readers", "M1", "M2", "Gain", "Weighted gain", "Reduction (%)", "Favour M2"]
    note = "Errors over the development mixture; means over fits, without uncertainty. Gain is M1 − M2."
    return [Table("Reader recovery by source family", columns, lines, note)]


def _grid_pictures(rows: Sequence[Row]) -> list[Picture]:
    shares = {}
    for name, group in arms_of(rows).items():
        world = f", {name.split('/')[0]}" if "/" in name else ""
        kept = [arrays_of(row, "realization") for row in group]
        shares[f"{group[0]['label']}{world}"] = [float(np.mean(100 * (k["m1"] - k["m2"]) / k["m1"])) for k in kept]
    spring = [row for row in rows if row["world"] == "spring"]
    recovered = Picture(
        "recovery",
        "What M2 recovers by source family",
        "Mean error reduction within fits, 100 · (M1 − M2)/M1, readers within a source first; positive favours M2.",
        reductions(shares),
    )
    return [recovered, *(amplitude_pictures(spring) if spring else [])]


def _replacements(rows: Sequence[Row]) -> list[Table]:
    return [
        Table(
            f"{title}: error as contexts are scaled by s",
            ["Source", "Donor", *(f"s = {s:g}" for s in SCALES)],
            [
                [group[0]["label"], donor, *(spread(spread_of(group, f"{key}{variant}_s{s:g}")) for s in SCALES)]
                for group in arms_of(rows).values()
                for key, donor in DONORS
            ],
            "At s = 0 the route is the recipient-only base R0, not M1.",
        )
        for variant, title in PANELS
    ] + [specificity_table(rows, dict(PANELS))]


def _sweep_pictures(rows: Sequence[Row]) -> list[Picture]:
    return [p for variant, title in PANELS for p in amplitude_pictures(rows, variant, title)]


def _gain(arm: str, variant: str = "") -> Callable[[Arms], float]:
    """M1's error minus M2's in percent of M1's."""
    return lambda a: 100 * (a[arm][f"mean_m1{variant}"] - a[arm][f"mean_m2{variant}"]) / a[arm][f"mean_m1{variant}"]


GRID_CLAIMS = (
    Claim(
        "With Align + Cross the standard M2 has lower error than M1",
        ("align-cross",),
        _gain("align-cross"),
        "gain in percent of M1's error",
        above=1,
        paper=7.9,
        null=0.0,
    ),
    Claim(
        "With Align + Cross the physically weighted M2 has lower error than M1",
        ("align-cross",),
        _gain("align-cross", "-phys"),
        "gain in percent of M1's error",
        above=1,
        paper="0.051, undivided",
        null=0.0,
    ),
    *(
        Claim(
            f"M2 recovers nothing from {name}: M1 has the lower error",
            (arm,),
            _gain(arm),
            "gain in percent of M1's error",
            below=0,
            paper=paper,
            null="holds too",
        )
        for arm, name, paper in (
            ("structure", "Structure", -0.98), ("g1", "PokeWorld's G₁", -0.35), ("g2", "PokeWorld's G₂", -0.86),
        )
    ),
)  # fmt: skip

REPLACEMENT_CLAIMS = tuple(
    Claim(
        text + (", weighted route" if variant else ""),
        ("align-cross",),
        lambda a, key=key, variant=variant: (
            a["align-cross"][f"{key}{variant}_s1"] - a["align-cross"][f"{key}{variant}_s0"]
        ),
        "error at s = 1 minus at s = 0",
        above=above,
        below=below,
        paper=paper,
        null=0.0,
    )
    for text, key, above, below, papers in (
        ("Own-system context lowers the error of Align + Cross", "own", -math.inf, -0.01, (-0.064, -0.067)),
        ("Another system's context raises it", "cross", 0.01, math.inf, (0.079, 0.077)),
    )
    for (variant, _), paper in zip(PANELS, papers, strict=True)
)

REALIZATION_TARGETS = (
    Target(
        "tab:realization-complete-grid",
        "SpringWorld and PokeWorld: reader recovery by source family",
        (Group("spring", ("align-cross", "structure"), ("realization",)),
         Group("poke", ("g1", "g2"), ("realization",))),
        _grid,
        GRID_CLAIMS,
        _grid_pictures,
        NOTE,
    ),
    Target(
        "tab:realization-replacements",
        "SpringWorld: donors and the scale of the context, both routes",
        (Group("spring", ("align-cross", "structure"), ("realization",)),),
        _replacements,
        REPLACEMENT_CLAIMS,
        _sweep_pictures,
        NOTE,
    ),
)  # fmt: skip
