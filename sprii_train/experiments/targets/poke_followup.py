"""Does factor-targeted utility repeat on new systems? (`app:records-poke-followup`)"""

from collections.abc import Sequence

from sprii_train.analysis.statistics import Interval
from sprii_train.analysis.value.targeted import TargetedUtility
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_table
from sprii_train.experiments.targets.poke_value import slopes_of
from sprii_train.experiments.targets.within import has_arrays
from sprii_train.reports.claims import FAILED, HELD, OPEN, UNTESTED, Arms, Claim, Verdict, outcome
from sprii_train.reports.page import Picture, Table, interval
from sprii_train.reports.value_figures import contrast_intervals

RELATIONS = ("g1", "g2")
STOPS = "The sources' slopes vary in sign: the study ends at its prespecified consistency check"


def _by_source(rows: Sequence[Row]) -> dict[str, Interval]:
    """Seed → the slope of the two sources of that seed, with its interval over systems."""
    groups = {arm: {row["seed"]: row for row in group} for arm, group in arms_of(rows).items()}
    both = [seed for seed in groups.get("g1", {}) if seed in groups.get("g2", {})]
    return {f"source {seed}": _slopes([groups[arm][seed] for arm in RELATIONS]).mean for seed in both}


def _slopes(pair: Sequence[Row]) -> TargetedUtility:
    return slopes_of(pair[:1], pair[1:], "followup")


def _tables(rows: Sequence[Row]) -> list[Table]:
    found = _by_source(rows)
    errors = {"Null": "new_null_h16", "Persistent": "new_persistent_h16"}
    tables = [
        spread_table(rows, f"Reader errors at h16 on {rows[0]['new_systems']} new systems", errors, first="Relation")
    ]
    if found:
        slopes = [[name, interval(each), "+" if each.estimate > 0 else "−"] for name, each in found.items()]
        tables.insert(
            0,
            Table(
                "Slope of ΔU on sensitivity dominance, by source",
                ["G₁ and G₂ of", "Slope [95 % interval]", "Sign"],
                slopes,
                f"Prespecified consistency check, the signs of the slopes: {_checked(list(found.values()))} ΔU and "
                "dominance are those of tab:poke-targeted-utility; the interval resamples the systems, 10,000 draws.",
            ),
        )
    return tables


def _checked(slopes: Sequence[Interval]) -> str:
    """What the check says of the slopes as they are."""
    if len(slopes) < 2:
        return "one source has no other to agree with."
    if len({each.estimate > 0 for each in slopes}) > 1:
        return "they vary, and the study ends here."
    return "they agree, and the study may go on to an intervention."


def _check(rows: Sequence[Row]) -> list[Verdict]:
    """Held where two slopes differ in sign beyond their intervals; did not hold where all lie on one side of 0."""
    slopes = list(_by_source(rows).values())
    told = ", ".join(f"{each.estimate:+.4f} [{each.low:+.4f}, {each.high:+.4f}]" for each in slopes)
    if len(slopes) < 2:
        return [Verdict(STOPS, UNTESTED, "needs the arms g1 and g2 of two sources or more")]
    above = [outcome(each, above=0.0) for each in slopes]
    sides = set(above) - {OPEN}
    status = HELD if sides == {HELD, FAILED} else FAILED if len(set(above)) == 1 and sides else OPEN
    evidence = (
        f"slopes by source (signs differ; paper +0.0092, −0.1686, +0.1314): {told} (95% over systems, by source); "
        f"by their signs alone {_checked(slopes)}"
    )
    return [Verdict(STOPS, status, evidence.replace("-0.", "−0."))]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    found = _by_source(rows)
    return [
        Picture(
            "slopes",
            "Slopes of the sources",
            "G₁'s history benefit minus G₂'s against sensitivity dominance, new systems; pointwise system intervals.",
            contrast_intervals(found, "slope of ΔU"),
        )
    ] if found else []  # fmt: skip


def _slope(arms: Arms) -> Interval | None:
    if not has_arrays(arms, RELATIONS, "followup"):
        return None
    return _slopes([arms[arm] for arm in RELATIONS]).mean


POKE_FOLLOWUP_TARGETS = (
    Target(
        "app:records-poke-followup",
        "PokeWorld: factor-targeted utility on new systems",
        (Group("poke", RELATIONS, ("followup",)),),
        _tables,
        (
            Claim(
                "On new systems G₁'s context gains where mass matters more, in each source",
                RELATIONS,
                lambda a: float(_slopes([a[arm] for arm in RELATIONS]).sources[0]),
                "slope",
                above=0,
                paper="+0.0092, −0.1686 and +0.1314: no",
                null=0.0,
                interval=_slope,
            ),
        ),
        _pictures,
        note="A hundred systems drawn anew from the whole ranges, four episodes and 16 windows each; two pairs of "
        "readers a source at most. The paper does not say how its new systems were drawn.",
        checks=_check,
    ),
)
