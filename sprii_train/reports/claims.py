"""Statements of the paper as checks on measured rows: held, did not hold, not resolved, not tested.

A statement carries its bounds and what a learner without information scores; its verdict needs an interval.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from sprii_train.analysis.statistics import Interval, extreme_interval, mapped, paired_source_interval

Row = Mapping[str, Any]
Arms = Mapping[str, Row]

NOT_JUDGED = "All statements"
"""What stands in place of all statements where the budget is no test of them."""

GIVEN_ONE = "given one source"
"""How evidence names an interval within the only source that there is."""

HELD, FAILED, OPEN, UNTESTED = "held", "did not hold", "not resolved", "not tested"


@dataclass(frozen=True)
class Claim:
    """A statement about arms of one source: a number that lies between two bounds.

    Attributes:
        text: the statement.
        arms: the arms it needs; `world/arm` where several worlds have the arm.
        measure: rows by arm → the number that decides.
        what: what the number is, for people.
        above, below: the bounds, both excluded.
        paper: the paper's number, or what it says of it.
        null: what a learner whose contexts say nothing scores. Where this lies within the bounds the statement cannot
            be held. Words where there is no such number: it asks nothing of contexts, or that they do nothing.
        interval: rows by arm → interval within one source, over systems or episodes; None where the rows lack what it
            needs. Without it the interval is over sources.
        over: rows by arm of every source → one interval over all of them, from two sources on in place of theirs.
        ratio: whether an interval over sources is of the logarithms.
        exact: whether the number is known without sampling, so that its interval is a point.
        unless: rows by arm of every source → why the number tests nothing in them, None where it does.
    """

    text: str
    arms: tuple[str, ...]
    measure: Callable[[Arms], float]
    what: str
    _: KW_ONLY
    above: float = -math.inf
    below: float = math.inf
    paper: float | str | None = None
    null: float | str | Callable[[Arms], float]
    interval: Callable[[Arms], Interval | None] | None = None
    over: Callable[[Sequence[Arms]], Interval | None] | None = None
    ratio: bool = False
    exact: bool = False
    unless: Callable[[Sequence[Arms]], str | None] | None = None

    @property
    def shows(self) -> str:
        """`ratio of errors (< 0.95; without information 1; paper 0.72)`."""
        if math.isinf(self.below):
            parts = [f"> {_number(self.above)}"]
        elif math.isinf(self.above):
            parts = [f"< {_number(self.below)}"]
        else:
            parts = [f"{_number(self.above)} to {_number(self.below)}"]
        null = "as measured" if callable(self.null) else self.null
        parts.append(f"without information{f': {null}' if isinstance(null, str) else f' {_number(null)}'}")
        if self.paper is not None:
            parts.append(f"paper {self.paper if isinstance(self.paper, str) else _number(self.paper)}")
        return f"{self.what} ({'; '.join(parts)})"

    def untested(self, why: str) -> "Verdict":
        """The verdict where there is no number to judge; its bounds stand beside it as beside any other."""
        return Verdict(self.text, UNTESTED, f"{self.shows}: {why}")


@dataclass(frozen=True)
class Verdict:
    """What was found for a claim."""

    text: str
    status: str
    evidence: str

    def as_dict(self) -> dict[str, str]:
        """For `results.json`."""
        return {"claim": self.text, "verdict": self.status, "evidence": self.evidence}


def outcome(found: Interval, *, above: float = -math.inf, below: float = math.inf) -> str:
    """Whether a number lies between two bounds, as far as its interval says.

    Returns:
        `held` where estimate and interval lie between the bounds, `did not hold` where all of it lies on the far side
        of one of them, the bound included, and `not resolved` where it spans a bound or is not a number.
    """
    whole = (found.low, found.estimate, found.high)
    if all(above < value < below for value in whole):
        return HELD
    if all(value <= above for value in whole) or all(value >= below for value in whole):
        return FAILED
    return OPEN


def judge(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Verdict]:
    """Judge every claim on the sources that have all of its arms.

    Where every source has an interval of its own, the sources must agree: one that held and one that did not, or did
    not resolve it, leave a claim unresolved. Rows of an older report may lack a number: its claim is not tested.
    """
    by_seed: dict[int, dict[str, Row]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {}).update(named(row))
    return [_judge(claim, by_seed) for claim in claims]


def named(row: Row) -> dict[str, Row]:
    """A row under the names that a claim may give it, its arm and `world/arm`."""
    arm = row["arm"]
    return {arm: row} | ({f"{row['world']}/{arm}": row} if "world" in row else {})


def extreme(choose: Callable[..., float], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Measure and interval of the least (`min`) or largest (`max`) of several numbers of a claim.

    Args:
        parts: `measure`, `interval` and perhaps `ratio` of each, as a claim takes them.
    """

    def interval(arms: Arms) -> Interval | None:
        found = [part["interval"](arms) for part in parts]
        return None if None in found else extreme_interval(found, choose)

    return {
        "measure": lambda a: choose([part["measure"](a) for part in parts]),
        "interval": interval,
        "ratio": all(part.get("ratio", False) for part in parts),
    }


def _judge(claim: Claim, by_seed: Mapping[int, Arms]) -> Verdict:
    sources = [arms for _, arms in sorted(by_seed.items()) if set(claim.arms) <= set(arms)]
    if not sources:
        return claim.untested(f"needs the arms {', '.join(claim.arms)}")
    try:
        if claim.unless is not None and (why := claim.unless(sources)) is not None:
            return claim.untested(why)
        found, over = _intervals(claim, sources)
    except KeyError as missing:
        return claim.untested(f"the rows lack {missing}")
    except ArithmeticError as error:
        return claim.untested(f"its number cannot be computed: {error}")
    outcomes = {outcome(each, above=claim.above, below=claim.below) for each in found}
    status = outcomes.pop() if len(outcomes) == 1 else OPEN
    evidence = f"{claim.shows}: {over}"
    if not isinstance(claim.null, str):
        nulls = [claim.null(arms) for arms in sources] if callable(claim.null) else [claim.null]
        if callable(claim.null):  # a number is told with the bounds
            evidence += f"; without information {', '.join(map(_number, nulls))}"
        if status == HELD and any(claim.above < null < claim.below for null in nulls):
            status = OPEN
            evidence += (
                ", which holds as well" if callable(claim.null) else "; what no information scores holds as well"
            )
    return Verdict(claim.text, status, evidence)


def _intervals(claim: Claim, sources: Sequence[Arms]) -> tuple[list[Interval], str]:
    """An interval a source, or one over all of them, and how to tell it."""
    if claim.over is not None and len(sources) > 1 and (whole := claim.over(sources)) is not None:
        told = f"{_number(whole.estimate)} [{_number(whole.low)}, {_number(whole.high)}]"
        return [whole], f"{told} ({whole.level:.0%} over {whole.unit}s, {whole.n} sources)"
    if claim.interval is not None:
        own = [claim.interval(arms) for arms in sources]
        within = [each for each in own if each is not None]
        if len(within) == len(own):
            given = GIVEN_ONE if len(own) == 1 else "by source"
            told = ", ".join(f"{_number(e.estimate)} [{_number(e.low)}, {_number(e.high)}]" for e in within)
            return within, f"{told} ({within[0].level:.0%} over {within[0].unit}s, {given})"
    values = [float(claim.measure(arms)) for arms in sources]
    told = ", ".join(map(_number, values))
    if claim.exact:
        return [Interval(value, value, value, 1.0, 1, "source") for value in values], told
    whole = over_source_values(values, ratio=claim.ratio)
    if len(values) == 1:
        return [whole], f"{told} (one source, no interval)"
    mean = f"mean {_number(whole.estimate)} [{_number(whole.low)}, {_number(whole.high)}]"
    return [whole], f"{told}; {mean} ({whole.level:.0%} over sources, t)"


def over_source_values(values: Sequence[float], *, ratio: bool = False) -> Interval:
    """The t interval of the mean of one number a source, of the geometric mean of a `ratio`.

    Without bounds for one source, and where a number has no logarithm or is not finite.
    """
    array = np.asarray(values, np.float64)
    if ratio:
        array = np.log(np.where(array > 0, array, np.nan))
    if len(array) < 2 or not np.isfinite(array).all():
        return Interval(float(np.mean(values)), -math.inf, math.inf, 0.95, len(array), "source")
    found = paired_source_interval(array, np.zeros_like(array))
    return mapped(found, math.exp) if ratio else found


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")
