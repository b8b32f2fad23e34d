"""Do wrong-factor donors redirect PokeWorld's predictions, and what does that cost? (`fig:v3-poke-semantics`)"""

from collections.abc import Mapping, Sequence

from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import Interval, mapped, mean_of
from sprii_train.analysis.use.direction import Projection, contrasts
from sprii_train.experiments.targets.base import (
    Group,
    Row,
    Target,
    arms_of,
    arrays_of,
    spread_of,
    spread_table,
    stacked,
)
from sprii_train.experiments.targets.within import has_arrays
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Picture, Table, interval, spread
from sprii_train.reports.value_figures import contrast_intervals

FACTORS = ("mass", "drag")
SEED = 0
SPACES = {"native embedding": "", "state decoder": "state|"}
SHORT = {"mass": "mass, G₁ − G₂", "drag": "drag, G₂ − G₁"}
CONTRASTS = {
    "mass": "P(mass, G₁) − P(mass, G₂)",
    "drag": "P(drag, G₂) − P(drag, G₁)",
    "sum": "Sum",
}
ASSAYS = (("", "native embedding, validation systems"), ("object_", "object state, confirmation systems"))


def _redirected(groups: Mapping[str, Sequence[Row]], prefix: str) -> dict[str, Interval]:
    """The three contrasts of P in one space; none without both relations."""
    if not {"g1", "g2"} <= set(groups):
        return {}
    g1, g2 = groups["g1"], groups["g2"]
    mass, drag = ((_projections(g1, f"{prefix}{f}"), _projections(g2, f"{prefix}{f}")) for f in FACTORS)
    return contrasts(mass, drag, seed=SEED)


def _projections(group: Sequence[Row], factor: str) -> list[Projection]:
    kept = [arrays_of(row, "direction") for row in group]
    return [Projection(*(k[f"{factor}|{part}"] for part in ("systems", "numerators", "denominators"))) for k in kept]


def _risks(groups: Mapping[str, Sequence[Row]]) -> dict[tuple[str, str], Interval]:
    """(relation, factor) → wrong minus matched object-state MSE; systems resampled, sources fixed."""
    return {
        (arm, factor): system_bootstrap(
            {"": stacked(group, "direction", f"object|{factor}|difference")}, {"": mean_of("")}, seed=SEED
        )[""]
        for arm, group in groups.items()
        for factor in FACTORS
    }


def _tables(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    columns = {f"P({f}), {space}": f"P_{key.replace('|', '_')}{f}" for space, key in SPACES.items() for f in FACTORS}
    tables = [spread_table(rows, "Response of fixed predictors to wrong-factor donors, h16", columns, first="Relation")]
    found = {space: _redirected(groups, prefix) for space, prefix in SPACES.items()}
    if all(found.values()):
        tables.append(
            Table(
                "Redirection [95 % interval]",
                ["Contrast", *(space.capitalize() for space in SPACES)],
                [[title, *(interval(found[space][key]) for space in SPACES)] for key, title in CONTRASTS.items()],
                "Pooled within systems, sources equal; paired system bootstrap, 10,000 draws. What a decoder reads is "
                "compared with the simulated displacement of the object's state.",
            )
        )
    risks = [
        [groups[arm][0]["label"], factor, spread(spread_of(groups[arm], f"object_matched_{factor}")), interval(each)]
        for (arm, factor), each in _risks(groups).items()
    ]
    systems, decoder = rows[0]["object_systems"], min(row["decoder_r2"] for row in rows)
    tables.append(
        Table(
            "Physical risk: h16 object-state MSE under a wrong factor",
            ["Relation", "Wrong factor", "Matched", "Wrong − matched [95 % interval]"],
            risks,
            f"{systems} confirmation systems, three windows each; positions and velocities of the object in training "
            "SDs, read from predicted embeddings by a frozen ridge decoder that was fitted on training systems (R² of "
            f"validation states from their own embeddings: {decoder:.2f} or more). Intervals resample systems, sources "
            "and decoders fixed.",
        )
    )
    parts = [
        [
            groups[arm][0]["label"],
            factor,
            space,
            *(spread(spread_of(groups[arm], f"{prefix}{part}_{factor}"))
              for part in ("wrong_minus_matched", "sensitivity", "cross")),
        ]
        for prefix, space in ASSAYS
        for arm in groups
        for factor in FACTORS
    ]  # fmt: skip
    tables.append(
        Table(
            "What a wrong donor does to the risk: Δ = sensitivity + cross",
            ["Relation", "Wrong factor", "Space", "Δ, wrong − matched", "Sensitivity", "Cross"],
            parts,
            "Exact within a source, per coordinate. Sensitivity is how far the prediction moves, E‖Ŷ_s − Ŷ_m‖²; cross "
            "is how that meets the error, 2 E⟨Y − Ŷ_m, Ŷ_m − Ŷ_s⟩.",
        )
    )
    return tables


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    groups = arms_of(rows)
    moved = {
        f"{SHORT[key]}\n{space}": each
        for space, prefix in SPACES.items()
        for key, each in _redirected(groups, prefix).items()
        if key in SHORT
    }
    risks = {f"{groups[arm][0]['label']}, wrong {factor}": each for (arm, factor), each in _risks(groups).items()}
    pictures = [
        Picture(
            "risk",
            "Wrong-factor donors in object-state units",
            "Wrong minus matched h16 object-state MSE, with pointwise system intervals; sources and decoders fixed.",
            contrast_intervals(risks, "wrong − matched MSE"),
        )
    ]
    if moved:
        pictures.insert(
            0,
            Picture(
                "redirection",
                "Which relation redirects which response",
                "Differences of P between relations with pointwise system intervals, in two spaces of unlike scale.",
                contrast_intervals(moved, "difference of P(f, G)"),
            ),
        )
    return pictures


def _redirects(text: str, factor: str, high: str, low: str, space: str, least: float, what: str, paper: float) -> Claim:
    def interval(arms: Arms) -> Interval | None:
        if not has_arrays(arms, ("g1", "g2"), "direction"):
            return None
        return _redirected({arm: [arms[arm]] for arm in ("g1", "g2")}, SPACES[space])[factor]

    key = f"P_{SPACES[space].replace('|', '_')}{factor}"
    return Claim(
        text,
        ("g1", "g2"),
        lambda a: a[high][key] - a[low][key],
        what,
        above=least,
        paper=paper,
        null=0.0,
        interval=interval,
    )


def _costs(text: str, arm: str, factor: str) -> Claim:
    """The error that a wrong donor adds, as a share of the matched one's."""

    def interval(arms: Arms) -> Interval | None:
        if not has_arrays(arms, (arm,), "direction"):
            return None
        row = arms[arm]
        return mapped(_risks({arm: [row]})[arm, factor], lambda value: value / row[f"object_matched_{factor}"])

    return Claim(
        text,
        (arm,),
        lambda a: a[arm][f"object_wrong_minus_matched_{factor}"] / a[arm][f"object_matched_{factor}"],
        "(wrong − matched) ÷ matched MSE",
        above=0.01,
        paper="a figure",
        null=0.0,
        interval=interval,
    )


CLAIMS = (
    _redirects(
        "A wrong-mass donor moves G₁'s predictions along the mass counterfactual more than G₂'s",
        "mass", "g1", "g2", "native embedding", 0.01, "P(mass, G₁) − P(mass, G₂)", 0.042,
    ),
    _redirects(
        "A wrong-drag donor moves G₂'s predictions along the drag counterfactual more than G₁'s",
        "drag", "g2", "g1", "native embedding", 0.01, "P(drag, G₂) − P(drag, G₁)", 0.172,
    ),
    _redirects(
        "The same of mass in state coordinates",
        "mass", "g1", "g2", "state decoder", 0.001, "P(mass, G₁) − P(mass, G₂), decoded", 0.005,
    ),
    _redirects(
        "The same of drag in state coordinates",
        "drag", "g2", "g1", "state decoder", 0.001, "P(drag, G₂) − P(drag, G₁), decoded", 0.0206,
    ),
    _costs("A wrong mass raises G₁'s object-state error", "g1", "mass"),
    _costs("A wrong drag raises G₂'s object-state error", "g2", "drag"),
)  # fmt: skip

POKE_DIRECTION_TARGETS = (
    Target(
        "fig:v3-poke-semantics",
        "PokeWorld: do wrong-factor donors redirect predictions?",
        (Group("poke", ("g1", "g2"), ("direction",)),),
        _tables,
        CLAIMS,
        _pictures,
        "The physical assay is of 96 systems of the confirmation split; the paper's are of a bank of their own, and it "
        "does not say which state coordinates its decoded P is of: here the object's four.",
    ),
)
