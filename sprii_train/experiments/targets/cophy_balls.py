"""CoPhy's Balls in depth: whose histories, which physics they tell, and how many of them (`app:balls-use`)."""

from collections.abc import Callable, Sequence

import numpy as np

from sprii_train.experiments.targets.base import Group, Row, Target, spread_of, value_of
from sprii_train.experiments.targets.cophy_rows import (
    ARMS,
    CHANNELS,
    DEVELOPMENT,
    FAMILIES,
    MEASURE,
    NOTE,
    by_arm,
    contexts_table,
    contrasts_table,
    errors_table,
    four,
    frontend_facts,
    minus,
    name,
    recipe,
    times,
    told,
    world,
)
from sprii_train.experiments.targets.within import number_of
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.cophy_figures import memory_bars
from sprii_train.reports.page import Picture, Table, number, spread

BALLS = world("balls")
FACTORS = ("mass", "friction", "restitution")
NET = tuple(recipe("net", arm) for arm in ("native", "sprii", "random"))
RSSM = four("rssm")
COUNTS = {"repeat": "Repeat", "matched": "S3", "s5": "S5", "s8": "S8"}

PAPER_DIFFERENCES = {
    ("rssm", "native"): 0.1151, ("rssm", "random"): 0.1856, ("rssm", "structure"): 0.1177,
    ("net", "native"): 0.0424, ("net", "random"): 0.0344,
}  # fmt: skip
PAPER_CONTEXTS = {  # matched, null, wrong
    ("rssm", "sprii"): (1.171, 1.892, 2.296), ("rssm", "native"): (1.286, 2.485, 2.293),
    ("rssm", "random"): (1.356, 2.004, 2.300), ("rssm", "structure"): (1.288, 1.937, 2.335),
    ("net", "sprii"): (1.044, 1.791, 2.228), ("net", "native"): (1.087, 1.773, 2.244),
    ("net", "random"): (1.079, 1.759, 2.216),
}  # fmt: skip
PAPER_HISTORIES = {
    "sprii": (1.29, 1.171, 1.156, 1.147), "native": (1.532, 1.286, 1.241, 1.206),
    "random": (1.497, 1.356, 1.333, 1.316), "structure": (1.517, 1.288, 1.246, 1.218),
}  # fmt: skip
PAPER_RATIOS = {"sprii": 1.205, "native": 2.722, "random": 2.378, "structure": 2.463}  # means of panel B

SUMMARY_CLAIMS = (
    *(
        Claim(
            f"{FAMILIES[family]}: SPRII has a lower error than {ARMS[control]}",
            (name("balls", family, control), name("balls", family, "sprii")),
            **minus(name("balls", family, control), name("balls", family, "sprii"), DEVELOPMENT),
            what="difference of mean squared errors, m²",
            above=0.0,
            paper=paper,
            null=0.0,
        )
        for (family, control), paper in PAPER_DIFFERENCES.items()
    ),
    *(
        told("balls", family, arm, DEVELOPMENT, condition, words, above=1.05, paper=round(errors[place] / errors[0], 3))
        for (family, arm), errors in PAPER_CONTEXTS.items()
        for place, (condition, words) in enumerate(
            (("null", "no history raises its error"), ("wrong", "histories of other physics raise its error")), 1
        )
    ),
)


def _read(family: str, arm: str, channel: str, factor: str) -> Callable[[Arms], float]:
    one = name("balls", family, arm)
    return lambda a: number_of(a[one], f"probe.{channel}.{factor}")


def _readable(family: str, arm: str, paper: str) -> Claim:
    return Claim(
        f"{FAMILIES[family]} {ARMS[arm]}: restitution can be read from the reader's memory",
        (name("balls", family, arm),),
        _read(family, arm, "M", "restitution"),
        "R²",
        above=0.2,
        paper=paper,
        null=0.0,
    )


def _selective(family: str, arm: str) -> Claim:
    read = {factor: _read(family, arm, "M", factor) for factor in FACTORS}
    return Claim(
        f"{FAMILIES[family]} {ARMS[arm]}: restitution is read better than mass and friction",
        (name("balls", family, arm),),
        lambda a: read["restitution"](a) - max(read["mass"](a), read["friction"](a)),
        "difference of R² to the better of the two",
        above=0.1,
        paper="0.72 to 0.78",
        null=0.0,
    )


def _leads(family: str, control: str) -> Claim:
    return Claim(
        f"{FAMILIES[family]}: restitution is read better from SPRII's memory than from {ARMS[control]}'s",
        (name("balls", family, "sprii"), name("balls", family, control)),
        lambda a: _read(family, "sprii", "M", "restitution")(a) - _read(family, control, "M", "restitution")(a),
        "difference of R²",
        above=0.0,
        paper={"native": 0.0649, "random": 0.0627}.get(control) if family == "net" else None,
        null=0.0,
    )


def _wrong(
    family: str, arm: str, factor: str, *, above: float | None = None, paper: float | str | None = None
) -> Claim:
    one = name("balls", family, arm)
    if above is not None:
        return Claim(
            f"{FAMILIES[family]} {ARMS[arm]}: histories of another {factor} raise its error",
            (one,),
            **minus(one, one, DEVELOPMENT, f"wrong_{factor}", f"wrong_{factor}:matched"),
            what="difference of mean squared errors, m²",
            above=above,
            paper=paper,
            null=0.0,
        )
    both = _delta(one, "restitution"), _delta(one, factor)
    return Claim(
        f"{FAMILIES[family]} {ARMS[arm]}: another restitution costs more than another {factor}",
        (one,),
        lambda a: both[0](a) - both[1](a),
        "difference of the rises of mean squared errors, m²",
        above=0.0,
        paper=paper,
        null=0.0,
    )


def _delta(one: str, factor: str) -> Callable[[Arms], float]:
    return lambda a: number_of(a[one], f"rise.{DEVELOPMENT}.{factor}")


PROBE_CLAIMS = (
    *(
        _readable("net", arm, paper)
        for arm, paper in (("sprii", "0.821 to 0.830"), ("native", "0.758 to 0.768"), ("random", "0.760 to 0.768"))
    ),
    *(_selective("net", arm) for arm in ("sprii", "native", "random")),
    *(_leads("net", control) for control in ("native", "random")),
    *(
        Claim(
            f"RSSM: codes of the same physics lie nearer to one another in SPRII than in {ARMS[control]}",
            (name("balls", "rssm", "sprii"), name("balls", "rssm", control)),
            lambda a, c=control: (
                number_of(a[name("balls", "rssm", "sprii")], "geometry.S")
                / number_of(a[name("balls", "rssm", c)], "geometry.S")
            ),
            "ratio of the ratios of distances, within to between",
            below=1.0,
            paper=round(PAPER_RATIOS["sprii"] / PAPER_RATIOS[control], 3),
            null=1.0,
            ratio=True,
        )
        for control in ("native", "random", "structure")
    ),
    *(_wrong(family, "sprii", "restitution", above=0.0, paper=p) for family, p in (("jepa", 0.5140), ("net", 0.5184))),
    *(
        _wrong(family, "sprii", factor, paper=paper)
        for family, papers in (("jepa", (0.5135, 0.5128)), ("net", (0.5140, 0.5200)))
        for factor, paper in zip(("mass", "friction"), papers, strict=True)
    ),
)

FIGURE_CLAIMS = (
    *(_readable("rssm", arm, "as drawn") for arm in ARMS),
    *(_selective("rssm", arm) for arm in ARMS),
    *(_leads("rssm", control) for control in ("native", "structure", "random")),
    _wrong("rssm", "sprii", "restitution", above=0.0, paper="0.521, third source"),
    *(
        _wrong("rssm", "sprii", factor, paper=paper)
        for factor, paper in (("mass", "0.518, third source"), ("friction", "0.523, third source"))
    ),
)  # fmt: skip

HISTORY_CLAIMS = tuple(
    Claim(
        f"{ARMS[arm]}: {words}",
        (name("balls", "rssm", arm),),
        **times(name("balls", "rssm", arm), name("balls", "rssm", arm), DEVELOPMENT, fewer, more),
        what="ratio of mean squared errors",
        above=1.0,
        paper=round(errors[i] / errors[i + 1], 3),
        null=1.0,
    )
    for arm, errors in PAPER_HISTORIES.items()
    for i, (fewer, more, words) in enumerate(
        (
            ("repeat", "matched", "one history thrice serves worse than three"),
            ("s5:matched", "s5", "three histories serve worse than five"),
            ("s8:s5", "s8", "five histories serve worse than eight"),
        )
    )
)


def _summary_tables(rows: Sequence[Row]) -> list[Table]:
    pairs = [("balls", family, control, "sprii") for family, control in PAPER_DIFFERENCES]
    contrasts = contrasts_table(rows, DEVELOPMENT, pairs, level=1.0 - 0.05 / len(pairs))
    return [
        contexts_table(rows, DEVELOPMENT, "Errors by context"),
        *([] if contrasts is None else [contrasts]),
        errors_table(rows, DEVELOPMENT, ("balls",), ("rssm", "net")),
    ]


def _probes(rows: Sequence[Row], families: Sequence[str]) -> Table:
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    lines = []
    for own in by_arm(rows).values():
        if any(own[0]["arm"].startswith(f"cophy-{family}-") for family in families):
            for factor in FACTORS:
                found = {row["seed"]: value_of(row, f"probe.M.{factor}") for row in own}
                lines.append([f"{own[0]['label']}, {factor}", *(number(found.get(seed)) for seed in seeds)])
    note = "R² of ridge probes of the fitted reader's memory, a projection of supports, fitted on training episodes."
    return Table("Reader memory", ["Learner, factor", *(f"Source {s}" for s in seeds)], lines, note)


def _deltas(rows: Sequence[Row]) -> Table:
    lines = []
    for own in by_arm(rows).values():
        found = [spread_of(own, f"errors.{DEVELOPMENT}.matched")]
        found += [spread_of(own, f"rise.{DEVELOPMENT}.{factor}") for factor in FACTORS]
        lines.append([str(own[0]["label"]), *map(spread, found)])
    note = "The supports of an object are of the same colour and type, and of the same physics but for one factor."
    return Table(
        "One factor wrong", ["Learner, arm", "Matched MSE", *(f"Δ {factor}" for factor in FACTORS)], lines, note
    )


def _geometry(rows: Sequence[Row]) -> Table:
    lines = [
        [str(own[0]["label"]), *(spread(spread_of(own, f"geometry.{channel}")) for channel in CHANNELS)]
        for own in by_arm(rows).values()
    ]
    note = (
        "Mean distance of codes of the same physics over that of other physics, within a colour and type, standardised "
        "by training codes. Codes that say nothing have as many as there are of a system, 600 Balls pairs about ten."
    )
    return Table("Distances within systems over between them", ["Learner, arm", *CHANNELS.values()], lines, note)


def _probe_tables(rows: Sequence[Row]) -> list[Table]:
    return [_probes(rows, ("net", "rssm", "jepa")), _geometry(rows), _deltas(rows)]


def _history_tables(rows: Sequence[Row]) -> list[Table]:
    lines = [
        [str(own[0]["label"]), *(spread(spread_of(own, f"errors.{DEVELOPMENT}.{c}")) for c in COUNTS)]
        for own in by_arm(rows).values()
    ]
    having = rows[0]["recipients"]
    told = ", ".join(f"{label} {having[kind]:,}" for kind, label in (("s5", "S5"), ("s8", "S8")) if kind in having)
    note = (
        "Weights of the reader stay as they were fitted on three histories. Repeat: each history by itself, three "
        f"times, averaged. More histories need recipients whose objects have as many: {told} of "
        f"{having[DEVELOPMENT]:,}; statements compare counts on the same ones."
    )
    counts = ("s5:matched", "s5", "s8:matched", "s8:s5", "s8")
    same = [
        [str(own[0]["label"]), *(spread(spread_of(own, f"errors.{DEVELOPMENT}.{c}")) for c in counts)]
        for own in by_arm(rows).values()
    ]  # fmt: skip
    return [
        Table("Numbers of histories", ["Recipe", *COUNTS.values()], lines, note),
        Table("On the same recipients", ["Recipe", "S3 of S5's", "S5", "S3 of S8's", "S5 of S8's", "S8"], same),
    ]


def _bars(rows: Sequence[Row]) -> list[Picture]:
    read, rise = {}, {}
    for own in by_arm(rows).values():
        label = str(own[0]["label"])
        read[label] = np.array([[number_of(row, f"probe.M.{factor}") for factor in FACTORS] for row in own])
        rise[label] = np.array([[number_of(row, f"rise.{DEVELOPMENT}.{factor}") for factor in FACTORS] for row in own])
    return [
        Picture(
            "memory",
            "What the reader's memory tells and what its donors change",
            "Left: R² of probes; right: error with one factor wrong minus matched. Bars: means over sources; dots: "
            "sources.",
            memory_bars(read, rise, FACTORS),
        )
    ]


BALLS_TARGETS = (
    Target(
        "tab:cophy-new5-summary",
        "CoPhy Balls: five contrasts, and whose histories are read",
        (Group(BALLS, (*RSSM, *NET), (MEASURE,)),),
        _summary_tables,
        SUMMARY_CLAIMS,
        note=f"{NOTE} Intervals of contrasts are adjusted for five.",
        facts=frontend_facts,
    ),
    Target(
        "tab:cophy-new5-probes",
        "CoPhy Balls: physics in the reader's memory, in distances of codes and in its use",
        (Group(BALLS, (*NET, *RSSM, recipe("jepa", "sprii")), (MEASURE,)),),
        _probe_tables,
        PROBE_CLAIMS,
        note=NOTE,
        facts=frontend_facts,
    ),
    Target(
        "tab:v3-balls-histories",
        "CoPhy Balls: how many histories the RSSM's reader is given",
        (Group(BALLS, RSSM, (MEASURE,)),),
        _history_tables,
        HISTORY_CLAIMS,
        note=NOTE,
        facts=frontend_facts,
    ),
    Target(
        "fig:v3-balls",
        "CoPhy Balls: restitution in the memory of the RSSM's reader, and its use",
        (Group(BALLS, RSSM, (MEASURE,)),),
        lambda rows: [_probes(rows, ("rssm",)), _deltas(rows)],
        FIGURE_CLAIMS,
        _bars,
        NOTE,
        facts=frontend_facts,
    ),
)
