"""SpringWorld's donor–target landscapes, and which coordinates a donor moves (`app:landscape`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import ALIGN_EFFECT, CROSS_EFFECT, Contrast, Interval, difference, mean_of
from sprii_train.analysis.use.landscape import POOLED, Valley, summary, valley_depth
from sprii_train.analysis.use.response import TRANSFORMS, Transform, unstructured_share
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, arrays_of, spread_of, stacked
from sprii_train.experiments.targets.spring import COMPONENTS, FACTORS
from sprii_train.experiments.targets.within import by_system, has_arrays
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Picture, Table, interval, number, spread
from sprii_train.reports.use_figures import Case, Panel, landscapes, trajectories, valley_depths
from sprii_train.settings.spring import SPRING_CASES

COORDINATES = ("x₁", "y₁", "x₂", "y₂")
SEED = 0
SHARE = 0.05
"""How far the reader's relative share may lie from the simulator's."""

JUDGED: Transform = "mean-difference"
TITLES: dict[Transform, tuple[str, str]] = {
    "mean-difference": ("C.", "mean and difference of the balls"),
    "orthonormal": ("D.", "(first ± second)/√2"),
}

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


def _parts(who: str, factor: str, transform: Transform) -> dict[str, str]:
    return {f"{who} {part}": f"{factor}|{transform}|{who}_{part}" for part in ("centre", "relative")}


def _share(means: Mapping[str, Any], who: str) -> Any:
    """A ratio of sums over systems."""
    return means[f"{who} relative"] / (means[f"{who} centre"] + means[f"{who} relative"])


def _apart(means: Mapping[str, Any]) -> Any:
    return _share(means, "reader") - _share(means, "simulator")


def _responses(rows: Sequence[Row], transform: Transform) -> Table:
    lines = []
    for group in arms_of(rows).values():
        for factor in FACTORS:
            names = {
                name: key for who in ("reader", "simulator") for name, key in _parts(who, factor, transform).items()
            }
            energies = {name: stacked(group, "response", key) for name, key in names.items()}
            found = system_bootstrap(
                energies,
                {"share": _apart, "gap": difference("reader relative", "reader centre")},
                seed=SEED,
            )
            shares = (spread(spread_of(group, f"{who}_share_{factor}_{transform}")) for who in ("reader", "simulator"))
            lines.append([group[0]["label"], factor, *shares, interval(found["share"]), _small(found["gap"])])
    return Table(
        f"{TITLES[transform][0]} Which coordinates the donor's level moves at h16: {TITLES[transform][1]}",
        [
            "Recipe",
            "Factor",
            "Reader: relative share",
            "Simulator: its own",
            "Reader − simulator [95 % interval]",
            "Reader: relative − centre, 10⁻³ [95 % interval]",
        ],
        lines,
        "Shares of the squared displacement from the mean over five donor levels, in physical units; intervals of the "
        "pooled sources, systems resampled. A response that moves every coordinate alike has a share of "
        f"{unstructured_share(transform):g}. The paper's shares of Align + Cross: reader 0.610 to 0.700 / 0.650 to "
        "0.689 / 0.637 to 0.696 for mass / drag / stiffness over its sources, simulator 0.7143 / 0.7149 / 1.0000; its "
        "relative − centre of stiffness is 1.551 · 10⁻³. It does not print its transform.",
    )


def _small(found: Interval) -> str:
    return interval(found._replace(**{end: 1e3 * getattr(found, end) for end in ("estimate", "low", "high")}))


def _tables(rows: Sequence[Row]) -> list[Table]:
    return [*_depths(rows), _contrasts(rows), *(_responses(rows, transform) for transform in TRANSFORMS)]


# --- figures ---


def _case(kept: Mapping[str, np.ndarray], factor: str) -> Case:
    """The position that the simulator's levels move most; no reader has a say in it."""
    course, predicted = (kept[f"{factor}|{what}"].astype(np.float64) for what in ("course", "predicted"))
    which = int(np.ptp(course[:, -1, : len(COORDINATES)], axis=0).argmax())
    steps = np.arange(course.shape[1])
    shown = course[..., which], np.array(SPRING_CASES.horizons), predicted[..., which]
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
            "Error at h16 under every donor level against every target level. A reader that took its donor's physics "
            "for its own without error would have the lowest errors of every column on the diagonal.",
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


def _depth(factor: str, contrast: Contrast, arms: Sequence[str]) -> dict[str, Any]:
    """A contrast of the recipes' depths in one source, with its interval over systems."""

    def within(a: Arms) -> Interval | None:
        if not has_arrays(a, arms, "landscape"):
            return None
        depths = {arm: valley_depth(stacked([a[arm]], "landscape", f"{factor}|grids")[0]) for arm in arms}
        return system_bootstrap(depths, {"": contrast}, seed=SEED)[""]

    return {"measure": lambda a: contrast({arm: a[arm][f"depth_{factor}"] for arm in arms}), "interval": within}


def _shares_apart(a: Arms, factor: str) -> float:
    row = a["align-cross"]
    return row[f"reader_share_{factor}_{JUDGED}"] - row[f"simulator_share_{factor}_{JUDGED}"]


CLAIMS = (
    *(
        Claim(
            f"The {factor} valley of Align + Cross is deeper than Structure's",
            ("structure", "align-cross"),
            **_depth(factor, difference("align-cross", "structure"), ("structure", "align-cross")),
            what="difference of depths",
            above=0,
            paper=paper,
            null=0.0,
        )
        for factor, paper in zip(FACTORS, (0.170, 0.0272, 0.0238), strict=True)
    ),
    *(
        Claim(
            f"Align deepens the {factor} valley: its balanced main effect is positive",
            COMPONENTS,
            **_depth(factor, ALIGN_EFFECT, COMPONENTS),
            what="main effect",
            above=0,
            paper=paper,
            null=0.0,
        )
        for factor, paper in zip(FACTORS, (0.165, 0.0248, 0.0236), strict=True)
    ),
    *(
        Claim(
            f"What {factor} moves in the reader's output is as much relative motion as in the simulator's",
            ("align-cross",),
            lambda a, factor=factor: _shares_apart(a, factor),
            "reader's − simulator's relative share, mean and difference of the balls",
            above=-SHARE,
            below=SHARE,
            paper=paper,
            null=lambda a, factor=factor: (
                unstructured_share(JUDGED) - a["align-cross"][f"simulator_share_{factor}_{JUDGED}"]
            ),
            interval=by_system(
                "response",
                _apart,
                {
                    name: ("align-cross", key)
                    for who in ("reader", "simulator")
                    for name, key in _parts(who, factor, JUDGED).items()
                },
            ),
        )
        for factor, paper in zip(FACTORS, ("−0.10 to −0.01", "−0.06 to −0.03", "−0.36 to −0.30"), strict=True)
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
        "A positive depth is no statement by itself, as contexts that separate no systems may have one too: depths are "
        "judged against Structure's, the interface alone.",
    ),
)
