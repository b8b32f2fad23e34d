"""Realization routes on SpringWorld, and the control of the same architecture with other systems' contexts.

The tables and figures of scaled and of substituted contexts serve every report of residual routes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.bootstrap import hierarchical_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Interval, difference, paired_source_interval, reduction, source_means
from sprii_train.analysis.value.routes import SCALES
from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    spread_of,
    spread_table,
    stacked,
    value_of,
)
from sprii_train.experiments.targets.spring import SEED, strata_of
from sprii_train.experiments.targets.within import by_system
from sprii_train.reports.claims import Claim, extreme
from sprii_train.reports.page import Picture, Table, interval, number, spread
from sprii_train.reports.use_figures import Amplitudes, amplitude_curves
from sprii_train.reports.value_figures import paired_contrasts

ROUTES = {"r0": "R0", "m1": "M1", "m2": "M2 matched", "m2-mismatched": "M2 mismatched"}
POPULATIONS = {"full": "Full development mixture", "cold": "Cold start, h16"}
PAIRS = {"M2 − M1": ("m2", "m1"), "Mismatched M2 − M1": ("m2-mismatched", "m1"),
         "M2 − mismatched M2": ("m2", "m2-mismatched")}  # fmt: skip
KINDS = ("systems", "paired sources, t", "sources, readers and systems")
"""What an interval accounts for; the latter two need several sources."""

PARTS = ("total", "sensitivity", "cross")  # of Δ_spec

# --- fitted routes and the matched-architecture control ---


def _errors(group: Sequence[Row], panel: str) -> dict[str, np.ndarray]:
    """Route → errors (S, R, N): cold-start ones at h16, those of the mixture over all horizons."""
    grids = {route: stacked(group, "value", f"{route}|{panel}") for route in ROUTES}
    return {route: grid[..., -1] if panel == "cold" else grid.mean(-1) for route, grid in grids.items()}


def _contrasts(group: Sequence[Row], panel: str) -> dict[str, dict[str, Interval]]:
    """Contrast → kind → interval."""
    errors, strata = _errors(group, panel), strata_of(group, panel)
    wanted = {name: difference(*pair) for name, pair in PAIRS.items()}
    found = {name: {KINDS[0]: one} for name, one in system_bootstrap(errors, wanted, seed=SEED, strata=strata).items()}
    if len(group) > 1:
        sources = {route: source_means(grid)[0].mean(-1) for route, grid in errors.items()}
        joint = hierarchical_bootstrap(errors, wanted, seed=SEED, strata=strata)
        for name, (first, second) in PAIRS.items():
            found[name] |= {KINDS[1]: paired_source_interval(sources[first], sources[second]), KINDS[2]: joint[name]}
    return found


def _capacity(rows: Sequence[Row]) -> Table:
    lines, lower = [], []
    for group in arms_of(rows).values():
        for panel, population in POPULATIONS.items():
            for name, found in _contrasts(group, panel).items():
                cells = (interval(found[kind]) if kind in found else "not tested" for kind in KINDS)
                lines.append([group[0]["label"], population, name, *cells])
            means = {route: grid.mean(-1) for route, grid in _errors(group, panel).items()}
            counts = [int((means[first] < means[second]).sum()) for first, second in PAIRS.values()]
            told = ", ".join(map(str, counts))
            lower.append(f"{group[0]['label']}, {population}: {told} of {means['m1'].size}")
    return Table(
        "Paired differences of error; negative favours the first",
        ["Recipe", "Population", "Contrast", *(f"95 % interval over {kind}" for kind in KINDS)],
        lines,
        "10,000 draws; the t interval is of source means, and with the joint one it needs two sources. Source–reader "
        f"pairs in which the first is lower, contrast by contrast: {'; '.join(lower)}. M2(h, 0) = R0(h): largest "
        f"absolute difference of predictions {number(max(float(value_of(row, 'zero_context_gap')) for row in rows))}.",
    )


def _contrast_picture(rows: Sequence[Row]) -> Picture:
    groups = arms_of(rows)
    group = groups.get("align-cross", next(iter(groups.values())))
    panels = {population: _contrasts(group, panel) for panel, population in POPULATIONS.items()}
    return Picture(
        "contrasts",
        f"{group[0]['label']}: differences of error between routes",
        "Negative favours the first route. Checkpoints were selected on these development systems.",
        paired_contrasts(panels, KINDS),
    )


# --- contexts of other systems through fixed routes ---


def specificity_table(rows: Sequence[Row], variants: Mapping[str, str] | None = None) -> Table:
    """Δ_spec of M2 under another system's context and its two parts (`eq:app-specificity-decomposition`).

    Args:
        variants: suffix of the row's keys → route; the standard one by default.
    """
    lines = [
        [f"{group[0]['label']}, {route}", *(spread(spread_of(group, f"spec_{part}{key}")) for part in PARTS)]
        for group in arms_of(rows).values()
        for key, route in (variants or {"": "M2"}).items()
    ]
    return Table(
        "What another system's context does to the error of a fixed route",
        ["Recipe", "Δ_spec", "Sensitivity", "2 · cross"],
        lines,
        "Δ_spec is the error with the cross-system context minus the error with the own one; sensitivity is "
        "E‖Ŷ_s − Ŷ_m‖², 2 · cross is 2E⟨Y − Ŷ_m, Ŷ_m − Ŷ_s⟩, and they add up to it in every source and reader.",
    )


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    return [_contrast_picture(rows), *amplitude_pictures(rows)]


def _realization(rows: Sequence[Row]) -> list[Table]:
    tables = [
        spread_table(rows, title, {name: f"{panel}_{route}" for route, name in ROUTES.items()}, first="Recipe")
        for title, panel in (("Full development mixture", "full"), ("Cold start, h16", "cold"))
    ]
    tables.append(_capacity(rows))
    lines = [
        [group[0]["label"], donor, *(spread(spread_of(group, f"{key}_s{s:g}")) for s in SCALES)]
        for group in arms_of(rows).values()
        for donor, key in (("own", "own"), ("cross-system", "cross"))
    ]
    tables.append(
        Table("Error as contexts are scaled by s", ["Recipe", "Donor", *(f"s = {s:g}" for s in SCALES)], lines)
    )
    return [*tables, specificity_table(rows)]


def amplitude_pictures(rows: Sequence[Row], variant: str = "", title: str = "") -> list[Picture]:
    """Errors as contexts are scaled, of own and of cross-system donors.

    Args:
        variant: `-phys` for the weighted route.
        title: of the route, where there are several.
    """
    groups = arms_of(rows)
    curves = {
        name: Amplitudes(
            np.array(SCALES),
            *(
                np.mean([[row[f"{donor}{variant}_s{s:g}"] for s in SCALES] for row in group], axis=0)
                for donor in ("own", "cross")
            ),
        )
        for name, group in groups.items()
    }
    return [
        Picture(
            f"amplitudes{variant}",
            f"{title}: error as the persistent input is scaled" if title else "Error as the persistent input is scaled",
            "Own-system context lowers the error where the route uses what is in it; another system's raises it.",
            amplitude_curves(curves, {name: str(group[0]["label"]) for name, group in groups.items()}),
        )
    ]


def _drop(panel: str, better: str, worse: str) -> dict[str, Any]:
    """Measure and interval of how much lower one route's error is than another's, in percent."""
    keys = {route: ("align-cross", f"{route}|{panel}") for route in (better, worse)}
    of = reduction(better, denominator=worse)
    return {
        "measure": lambda a: of({route: a["align-cross"][f"{panel}_{route}"] for route in keys}),
        "interval": by_system(
            "value",
            of,
            keys,
            at=lambda errors: errors[..., -1] if panel == "cold" else errors.mean(-1),
            strata=lambda row: strata_of([row], panel),
        ),
    }


CLAIMS = (
    Claim(
        "M2 with no context is the recipient-only base",
        ("align-cross",),
        lambda a: a["align-cross"]["zero_context_gap"],
        "largest difference of predictions",
        below=1e-5,
        null="by construction",
        exact=True,
    ),
    Claim(
        "With Align + Cross, M2 has lower error than M1 on the full mixture",
        ("align-cross",),
        **_drop("full", "m2", "m1"),
        what="reduction in percent",
        above=1,
        paper=7.9,
        null=0.0,
    ),
    Claim(
        "Matched context beats a mismatched reader of the same architecture, full mixture and cold start",
        ("align-cross",),
        **extreme(min, [_drop(panel, "m2", "m2-mismatched") for panel in POPULATIONS]),
        what="smaller reduction in percent",
        above=1,
        paper=8.7,
        null=0.0,
    ),
    Claim(
        "Scaling another system's context up raises the error",
        ("align-cross",),
        lambda a: a["align-cross"]["cross_s1"] - a["align-cross"]["cross_s0"],
        "error at s = 1 minus at s = 0",
        above=0.01,
        paper=0.079,
        null=0.0,
    ),
)

READER_CAPACITY_TARGETS = (
    Target(
        "tab:reader-capacity-errors",
        "SpringWorld: realization routes and the matched-architecture control",
        (Group("spring", ("structure", "align-cross"), ("value",)),),
        _realization,
        CLAIMS,
        _pictures,
        "The weighted routes are in tab:realization-complete-grid.",
    ),
)
