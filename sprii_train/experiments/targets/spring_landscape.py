"""SpringWorld's donor–target landscapes, and which coordinates a donor moves (`app:landscape`)."""

from collections.abc import Mapping, Sequence

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import ALIGN_EFFECT, CROSS_EFFECT, Contrast, Interval, difference, mean_of
from sprii_train.analysis.use.landscape import POOLED, Valley, summary
from sprii_train.experiments.spring_cases import HORIZONS
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of, spread_of, stacked
from sprii_train.experiments.targets.spring import COMPONENTS, FACTORS
from sprii_train.reports.claims import Claim
from sprii_train.reports.page import Picture, Table, interval, number, spread
from sprii_train.reports.use_figures import Case, Panel, landscapes, trajectories, valley_depths

COORDINATES = ("x₁", "y₁", "x₂", "y₂")
SEED = 0

CONTRASTS: dict[str, tuple[Contrast, tuple[str, ...]]] = {
    "Align + Cross − Structure": (difference("align-cross", "structure"), ("structure", "align-cross")),
    "Main effect of Align": (ALIGN_EFFECT, COMPONENTS),
    "Main effect of Cross": (CROSS_EFFECT, COMPONENTS),
}
"""Name → contrast of valley depths, and the recipes that it needs."""


def _landscapes(group: Sequence[Row]) -> dict[str, dict[str, Valley]]:
    """Factor → `pooled`, then single sources → landscape."""
    return summary({factor: stacked(group, "landscape", f"{factor}|grids") for factor in FACTORS})


def _panel(one: Valley) -> Panel:
    """With the system interval of its depth."""
    return Panel(one, system_bootstrap({"d": one.depths}, {"": mean_of("d")}, seed=SEED)[""])


def _depths(rows: Sequence[Row]) -> list[Table]:
    lines = []
    for group in arms_of(rows).values():
        named = {POOLED: "Pooled"} | {str(i): f"Seed {row['seed']}" for i, row in enumerate(group)}
        for factor, sources in _landscapes(group).items():
            # One source alone is not pooled.
            shown = named if len(group) > 1 else {"0": named["0"]}
            for key, title in shown.items():
                found = _panel(sources[key])
                lines.append([group[0]["label"], factor, title, interval(found.depth), number(found.valley.rho)])
    ended = ", ".join(f"{factor} {sum(int(row[f'ended_{factor}']) for row in rows)}" for factor in FACTORS)
    return [
        Table(
            "A. Valley depth at h16, 64 continuous development systems",
            ["Recipe", "Factor", "Source", "Depth [95 % interval]", "ρ of the grid"],
            lines,
            "Mean off-diagonal minus mean diagonal error of the 5 × 5 donor–target grid through fixed weights; "
            "intervals resample systems, 10,000 draws, conditional on the fitted models. Simulated episodes that ended "
            f"early: {ended}.",
        )
    ]


def _contrasts(rows: Sequence[Row]) -> Table:
    groups = arms_of(rows)
    found = {arm: _landscapes(group) for arm, group in groups.items()}

    def told(factor: str, contrast: Contrast, needed: Sequence[str]) -> str:
        if not set(needed) <= set(groups):
            return "not tested"
        depths = {arm: found[arm][factor][POOLED].depths for arm in needed}
        return interval(system_bootstrap(depths, {"": contrast}, seed=SEED)[""])

    return Table(
        "B. Differences of depth between recipes [95 % interval]",
        ["Contrast", *FACTORS],
        [[name, *(told(factor, *of) for factor in FACTORS)] for name, of in CONTRASTS.items()],
        "Paired by system, conditional on the fitted models, which differ in source and reader. A balanced main effect "
        "is the mean of its two differences, with and without the other objective, and needs all four recipes.",
    )


def _responses(rows: Sequence[Row]) -> Table:
    lines = []
    for group in arms_of(rows).values():
        for factor in FACTORS:
            centre, relative = (
                stacked(group, "response", f"{factor}|reader_{part}") for part in ("centre", "relative")
            )
            gap = system_bootstrap({"gap": relative - centre}, {"": mean_of("gap")}, seed=SEED)[""]
            shares = (spread(spread_of(group, f"{who}_share_{factor}")) for who in ("reader", "simulator"))
            lines.append([group[0]["label"], factor, *shares, _small(gap)])
    return Table(
        "C. Which coordinates the donor's level moves at h16",
        ["Recipe", "Factor", "Reader: relative share", "Simulator", "Reader: relative − centre, 10⁻³ [95 % interval]"],
        lines,
        "Of the squared displacement from the mean over five donor levels, in physical units; centre and relative are "
        "(first ± second)/√2 of positions and velocities. The paper's shares of Align + Cross: reader 0.610 to 0.700 / "
        "0.650 to 0.689 / 0.637 to 0.696 for mass / drag / stiffness over its sources, simulator 0.7143 / 0.7149 / "
        "1.0000; its relative − centre of stiffness is 1.551 · 10⁻³.",
    )


def _small(found: Interval) -> str:
    return interval(found._replace(**{end: 1e3 * getattr(found, end) for end in ("estimate", "low", "high")}))


def _tables(rows: Sequence[Row]) -> list[Table]:
    return [*_depths(rows), _contrasts(rows), _responses(rows)]


# --- figures ---


def _case(kept: Mapping[str, np.ndarray], factor: str) -> Case:
    """The position that the simulator's levels move most; no reader has a say in it."""
    course, predicted = (kept[f"{factor}|{what}"].astype(np.float64) for what in ("course", "predicted"))
    which = int(np.ptp(course[:, -1, : len(COORDINATES)], axis=0).argmax())
    steps = np.arange(course.shape[1])
    shown = course[..., which], np.array(HORIZONS), predicted[..., which]
    return Case(kept[f"{factor}|levels"], steps, *shown, f"change of {COORDINATES[which]} (m)")


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    groups = arms_of(rows)
    panels = {
        name: {factor: _panel(sources[POOLED]) for factor, sources in _landscapes(group).items()}
        for name, group in groups.items()
    }
    labels = {name: str(group[0]["label"]) for name, group in groups.items()}
    kept = arrays_of(rows[0], "landscape")
    levels = {factor: kept[f"{factor}|levels"] for factor in FACTORS}
    depths = {name: {factor: panel.depth for factor, panel in found.items()} for name, found in panels.items()}
    sources = {
        name: {factor: [float(row[f"depth_{factor}"]) for row in group] for factor in FACTORS}
        for name, group in groups.items()
    }
    shown = groups.get("align-cross", next(iter(groups.values())))[0]
    course = arrays_of(shown, "response")
    return [
        Picture(
            "landscape",
            "Donor–target landscapes",
            "Error at h16 under every donor level against every target level. A reader that uses its donor's physics "
            "has its lowest errors on the diagonal.",
            landscapes(panels, levels, labels),
        ),
        Picture("depths", "Valley depth by recipe", "", valley_depths(depths, labels, sources)),
        Picture(
            "courses",
            f"One query under other donors, {shown['label']}, seed {shown['seed']}",
            "The first system of the panel, chosen before any error was seen, and of its positions the one that the "
            "simulator's levels move most.",
            trajectories({factor: _case(course, factor) for factor in FACTORS}, labels),
        ),
    ]


CLAIMS = (
    *(
        Claim(
            f"The {factor} landscape of Align + Cross has a valley: its depth is positive",
            ("align-cross",),
            lambda a, factor=factor: a["align-cross"][f"depth_{factor}"],
            lambda v: v > 0,
            f"depth (> 0; paper {paper})",
        )
        for factor, paper in zip(FACTORS, (0.182, 0.0303, 0.0240), strict=True)
    ),
    *(
        Claim(
            f"The {factor} valley of Align + Cross is deeper than Structure's",
            ("structure", "align-cross"),
            lambda a, factor=factor: a["align-cross"][f"depth_{factor}"] - a["structure"][f"depth_{factor}"],
            lambda v: v > 0,
            f"difference of depths (> 0; paper {paper})",
        )
        for factor, paper in zip(FACTORS, (0.170, 0.0272, 0.0238), strict=True)
    ),
    *(
        Claim(
            f"Align deepens the {factor} valley: its balanced main effect is positive",
            COMPONENTS,
            lambda a, factor=factor: ALIGN_EFFECT({arm: a[arm][f"depth_{factor}"] for arm in COMPONENTS}),
            lambda v: v > 0,
            f"main effect (> 0; paper {paper})",
        )
        for factor, paper in zip(FACTORS, (0.165, 0.0248, 0.0236), strict=True)
    ),
    *(
        Claim(
            f"Most of what {factor} moves in the reader's output is relative motion",
            ("align-cross",),
            lambda a, factor=factor: a["align-cross"][f"reader_share_{factor}"],
            lambda v: v > 0.5,
            f"relative share (> 0.5; paper {paper} over its sources)",
        )
        for factor, paper in zip(FACTORS, ("0.610 to 0.700", "0.650 to 0.689", "0.637 to 0.696"), strict=True)
    ),
)

SPRING_LANDSCAPE_TARGETS = (
    Target(
        "tab:spring-functional-landscape",
        "SpringWorld: donor–target landscapes",
        (Group("spring", COMPONENTS, ("landscape", "response"), ("structure", "align-cross")),),
        _tables,
        CLAIMS,
        _pictures,
    ),
)
