"""SPRII beside TDS and temporal FCRL (`tab:v3-tds-spring`): SpringWorld's frames and D-Clean's states.

A compact TDS has the size of code that its own prediction is best with, on systems that no table reports.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import over_sources, reduction
from sprii_train.experiments.targets.base import Group, Row, Target, spread_of, stacked
from sprii_train.experiments.targets.within import by_system, number_of
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Table, interval, number, spread
from sprii_train.settings.others import STATE_SIZES, VISUAL_SIZES

SEED = 0
OURS, FULL, FCRL = "align-cross", "tds", "fcrl"
COMPACT = tuple(f"tds-{d}" for d in VISUAL_SIZES)
STATES = tuple(f"tds-{d}" for d in STATE_SIZES)
CONTROLS = {"Fresh Null": "null", "Matched": "matched", "Fixed Wrong": "wrong"}

ADAPTER = {OURS: EVERY_RECIPE[OURS].label, FCRL: "FCRL-style, temporal"}
"""Arms of panel B → their names."""

COMMON_COLUMNS = {"Matched": "matched_h32", "Fresh Null": "null_h32", "Fixed Wrong": "wrong_h32",
                  "Fixed Zero": "zero_h32"}  # fmt: skip


# Which row stands for a compact TDS: that of the size chosen for its source.

Pick = Callable[[Arms], Row]


def named(arm: str) -> Pick:
    """The row of an arm, `world/arm`."""
    return lambda arms: arms[arm]


def chosen(world: str, candidates: Sequence[str]) -> Pick:
    """The row of a world's candidate with the lowest selection error; of equal ones the first, which is the smallest.

    Candidates that were not run are passed over; KeyError where none was.
    """

    def pick(arms: Arms) -> Row:
        rows = [arms[name] for name in (f"{world}/{arm}" for arm in candidates) if name in arms]
        if not rows:
            raise KeyError(f"{world}/{candidates[0]}")
        return min(rows, key=lambda row: number_of(row, "selection"))

    return pick


VISUAL, STATE = chosen("spring", COMPACT), chosen("d-clean", STATES)


def by_source(rows: Sequence[Row], pick: Pick) -> list[Row]:
    """What a pick finds, one row a source that has it."""
    found = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        try:
            found.append(pick({f"{row['world']}/{row['arm']}": row for row in rows if row["seed"] == seed}))
        except KeyError:
            continue
    return found


def size(row: Row) -> str:
    """d of a row of TDS."""
    return row["arm"].removeprefix("tds-")


def sizes(rows: Sequence[Row]) -> str:
    """`0`, or `0, 2, 0` where sources differ."""
    found = [size(row) for row in rows]
    return found[0] if len(set(found)) == 1 else ", ".join(found)


# --- tables ---


def _selection(rows: Sequence[Row], world: str, letter: str, candidates: Sequence[str]) -> Table | None:
    own = [row for row in rows if row["world"] == world and "selection" in row]
    picked = [size(row) for row in by_source(own, chosen(world, candidates))]
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in own):
        group = [row for row in own if row["arm"] == arm]
        numbers = [spread(spread_of(group, name)) for name in ("selection", "shuffled_selection", "own_selection")]
        count = f"{picked.count(size(group[0]))} of {len(group)}" if arm in candidates else "no candidate"
        lines.append([f"{EVERY_RECIPE[arm].label}, {world}", *numbers, count])
    if not lines:
        return None
    return Table(
        f"{letter}. Selection of d: error at h16 of its own prediction, {world}",
        ["Source", "Same-system donor (selects)", "Other system's donor", "Own history", "Chosen by sources"],
        lines,
        "Shares of the targets' variance, on validation systems that no other table here reads; the mean scores 1.",
    )


def _controls(
    title: str, sources: Sequence[tuple[str, Sequence[Row]]], columns: dict[str, str], note: str
) -> Table | None:
    lines = [[name, *(spread(spread_of(rows, key)) for key in columns.values())] for name, rows in sources if rows]
    return Table(title, ["Source", *columns], lines, note) if lines else None


def _spring(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    compact = by_source(rows, VISUAL)
    return [
        (EVERY_RECIPE[OURS].label, by_source(rows, named(f"spring/{OURS}"))),
        ("TDS", by_source(rows, named(f"spring/{FULL}"))),
        (f"Compact TDS (d = {sizes(compact)})" if compact else "", compact),
    ]


def _adapter(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(name, by_source(rows, named(f"spring/{arm}"))) for arm, name in ADAPTER.items()]


def _reductions(panel: str, sources: Sequence[tuple[str, list[Row]]]) -> Table | None:
    """Over the sources that have both the first row's learner and another's."""
    (_, ours), *others = sources
    lines = []
    for name, theirs in others:
        seeds = sorted({row["seed"] for row in ours} & {row["seed"] for row in theirs})
        if not seeds:
            continue
        pairs = {
            key: stacked([row for row in of if row["seed"] in seeds], "fixed-wrong", "matched")
            for key, of in (("ours", ours), ("theirs", theirs))
        }
        contrast = {"": reduction("ours", denominator="theirs")}
        found = system_bootstrap(pairs, contrast, seed=SEED, strata=list(ours[0]["strata"]))[""]
        lower = int((pairs["ours"].mean((1, 2)) < pairs["theirs"].mean((1, 2))).sum())
        lines.append([name, interval(found), f"{lower} of {len(seeds)}"])
    if not lines:
        return None
    return Table(
        f"{panel}, continued. Reduction of the Matched error by Align + Cross",
        ["Comparator", "Percent [95 % interval]", "Sources where it is lower"],
        lines,
        "Stratified system bootstrap, 10,000 draws, conditional on the fitted models.",
    )


DECODERS = {
    "Direct h1": "direct_h1", "Direct h4": "direct_h4", "Direct h16": "direct_h16",
    "Free rollout h32, single steps": "rollout_h32", "Free rollout h32, two of sixteen": "jumps_h32",
}  # fmt: skip


def _decoders(rows: Sequence[Row]) -> Table | None:
    found = [row for row in by_source(rows, STATE) if "direct_h16" in row]
    if not found:
        return None
    lines = [[name, *(number(row[key]) for row in found)] for name, key in DECODERS.items()]
    for other, prefix in (("another system's donor", "wrong_"), ("untrained", "untrained_")):
        lines += [
            [f"{name}, {other}", *(number(row[f"{prefix}{key}"]) for row in found)]
            for name, key in DECODERS.items() if key in ("direct_h16", "rollout_h32")
        ]  # fmt: skip
    lines += [[f"No motion, h{h}", *(number(row[f"still_h{h}"]) for row in found)] for h in (16, 32)]
    return Table(
        "D. D-Clean: state-space TDS's own decoder, raw-state MSE",
        ["Measurement", *(f"Source {row['seed']} (d = {size(row)})" for row in found)],
        lines,
        "The reported half of validation systems, 16 cases each. Direct predictions begin at true states, free ones at "
        "predicted states.",
    )


def _budgets(rows: Sequence[Row]) -> Table | None:
    """`tab:spring-budgets`, of what was run."""
    candidates = [row for row in rows if row["world"] == "spring" and row["arm"] in COMPACT]
    declared = ", ".join(dict.fromkeys(size(row) for row in candidates))
    told = {
        OURS: "fixed weights; the last step's weights",
        FULL: "d as wide as SPRII's code; the last step's weights",
        FCRL: "fixed temperature 0.07; the last step's weights",
        "compact": f"d among {declared}, by the table of selection; the last step's weights",
    }
    groups = {arm: by_source(rows, named(f"spring/{arm}")) for arm in (OURS, FULL, FCRL)} | {
        "compact": by_source(rows, VISUAL)
    }
    lines = [
        [
            "Compact TDS" if arm == "compact" else ADAPTER.get(arm, EVERY_RECIPE[arm].label),
            f"{own[0]['steps']:,}",
            f"{own[0]['reader_updates']:,}",
            f"{len(own)} × {own[0]['readers']}",
            f"{over_sources([float(row['parameters']) for row in own]).mean:,.0f}",
            told[arm],
        ]
        for arm, own in groups.items()
        if own
    ]
    columns = ["Comparison", "Source updates", "Reader updates", "Sources × readers", "Parameters", "Selection"]
    return Table("E. SpringWorld: budgets and selection", columns, lines, "Updates are per fit.") if lines else None


def _tables(rows: Sequence[Row]) -> list[Table]:
    states = by_source(rows, STATE)
    common = [(EVERY_RECIPE[OURS].label, by_source(rows, named(f"d-clean/{OURS}")))]
    common += [(f"State-space TDS (d = {sizes(states)})", states)] if states else []
    found = [
        _controls(
            "A. SpringWorld, original reader: cold queries at h16, 100 development systems", _spring(rows), CONTROLS,
            "Standardised MSE; Fixed Wrong gives the Matched readers a donor of another system of the stratum.",
        ),
        _reductions("A", _spring(rows)),
        _controls(
            "B. SpringWorld, common adapter: the same queries", _adapter(rows), CONTROLS,
            "A code of 64 numbers has the readers of panel A. Each source has its own query encoder: where Fresh Null "
            "differs, presents do.",
        ),
        _reductions("B", _adapter(rows)),
        _controls("C. D-Clean, common reader at h32", common, COMMON_COLUMNS, "Raw-state MSE."),
        _decoders(rows),
        _budgets(rows),
        _selection(rows, "spring", "F", COMPACT),
        _selection(rows, "d-clean", "G", STATES),
    ]  # fmt: skip
    return [table for table in found if table is not None]


# --- statements ---


def _ratio(
    measure: str, first: tuple[Pick, str], second: tuple[Pick, str], suffix: str = "", **at: Any
) -> dict[str, Any]:
    """Measure and interval of one error ÷ another's: whose row it is, and the name of its array by system.

    Args:
        suffix: of that name, where the row has the mean.
    """
    (one, above), (two, below) = first, second
    within = by_system(measure, lambda m: m["one"] / m["two"], {"one": ("one", above), "two": ("two", below)}, **at)
    return {
        "measure": lambda arms: number_of(one(arms), above + suffix) / number_of(two(arms), below + suffix),
        "interval": lambda arms: within({"one": one(arms), "two": two(arms)}),
        "ratio": True,
    }


def _cold(first: tuple[Pick, str], second: tuple[Pick, str]) -> dict[str, Any]:
    return _ratio("fixed-wrong", first, second, strata=lambda row: list(row["strata"]))


def _common(first: tuple[Pick, str], second: tuple[Pick, str]) -> dict[str, Any]:
    return _ratio("common-reader", first, second, "_h32", at=lambda errors: errors[..., -1])


_CONTRASTIVE = named(f"spring/{FCRL}")
_OURS, _FULL, _STATES = named(f"spring/{OURS}"), named(f"spring/{FULL}"), named(f"d-clean/{OURS}")
_SPRING_COMPACT = tuple(f"spring/{arm}" for arm in COMPACT)
_D_CLEAN_SIZES = tuple(f"d-clean/{arm}" for arm in STATES)

CLAIMS = (
    Claim(
        "SPRII lowers the Matched error of cold queries below that of TDS",
        (f"spring/{OURS}", f"spring/{FULL}"),
        **_cold((_OURS, "matched"), (_FULL, "matched")),
        what="ratio of errors",
        below=0.9,
        paper=0.70,
        null=1.0,
    ),
    Claim(
        "SPRII lowers the Matched error of cold queries below that of compact TDS",
        (f"spring/{OURS}", *_SPRING_COMPACT),
        **_cold((_OURS, "matched"), (VISUAL, "matched")),
        what="ratio of errors",
        below=0.9,
        paper=0.66,
        null=1.0,
    ),
    Claim(
        "SPRII's readers use the donor: another system's costs them far more than one of the recipient's",
        (f"spring/{OURS}",),
        **_cold((_OURS, "wrong"), (_OURS, "matched")),
        what="Fixed Wrong ÷ Matched",
        above=1.2,
        paper=2.18,
        null=1.0,
    ),
    Claim(
        "TDS's readers use the donor too",
        (f"spring/{FULL}",),
        **_cold((_FULL, "wrong"), (_FULL, "matched")),
        what="Fixed Wrong ÷ Matched",
        above=1.02,
        paper=1.12,
        null=1.0,
    ),
    Claim(
        "SPRII lowers the Matched error of cold queries below that of temporal FCRL",
        (f"spring/{OURS}", f"spring/{FCRL}"),
        **_cold((_OURS, "matched"), (_CONTRASTIVE, "matched")),
        what="ratio of errors",
        below=0.8,
        paper=0.415,
        null=1.0,
    ),
    Claim(
        "Temporal FCRL's history realises little: its Matched error is close to its Null error",
        (f"spring/{FCRL}",),
        **_cold((_CONTRASTIVE, "matched"), (_CONTRASTIVE, "null")),
        what="ratio of errors",
        above=0.95,
        paper=0.988,
        null="this is what it says",
    ),
    Claim(
        "Temporal FCRL's presents serve readers less than SPRII's: without histories its error is higher",
        (f"spring/{OURS}", f"spring/{FCRL}"),
        **_cold((_CONTRASTIVE, "null"), (_OURS, "null")),
        what="ratio of errors",
        above=1.1,
        paper=1.556,
        null="no contexts are read",
    ),
    Claim(
        "State-space TDS predicts with its donor: its own error at h16 is below that of another system's code",
        _D_CLEAN_SIZES,
        **_ratio("native-decoder", (STATE, "direct_h16"), (STATE, "wrong_direct_h16")),
        what="ratio of raw-state errors",
        below=0.8,
        null=1.0,
    ),
    Claim(
        "SPRII has a lower h32 error than state-space TDS under the common reader",
        (f"d-clean/{OURS}", *_D_CLEAN_SIZES),
        **_common((_STATES, "matched"), (STATE, "matched")),
        what="ratio of raw-state errors",
        below=0.8,
        paper=0.11,
        null=1.0,
    ),
    Claim(
        "Another system's code costs state-space TDS's readers more than no code",
        _D_CLEAN_SIZES,
        **_common((STATE, "wrong"), (STATE, "null")),
        what="Fixed Wrong ÷ Fresh Null",
        above=1.1,
        paper=2.9,
        null=1.0,
    ),
    Claim(
        "State-space TDS keeps drag: a larger error is no lack of it",
        _D_CLEAN_SIZES,
        lambda arms: number_of(STATE(arms), "probe_r2"),
        "R² of the damping probe",
        above=0.9,
        paper=0.97,
        null=0.0,
    ),
)

TDS_TARGETS = (
    Target(
        "tab:v3-tds-spring",
        "Trajectory-decoupled prediction and temporal FCRL beside Align + Cross",
        (
            Group("spring", (FULL, *COMPACT), ("selection",)),
            Group("spring", (OURS, FULL, FCRL, *COMPACT), ("fixed-wrong",)),
            Group("d-clean", STATES, ("selection", "native-decoder")),
            Group("d-clean", (OURS, *STATES), ("common-reader",)),
        ),
        _tables,
        CLAIMS,
        note="Sizes of codes are chosen for each source by its own rows of the tables of selection, on SpringWorld's "
        "interpolated and extrapolated systems and on half of D-Clean's validation systems; the paper has one size, "
        "from a source of its own and a bank of its own. Both trajectories of a pair are once TDS's recipient. The "
        "paper's original reader and common adapter differ in how a code of 64 numbers is padded before a linear map, "
        "which is no other function: one reader serves panels A and B. The paper has no Fixed Wrong of panel B.",
    ),
)
