"""Relational InfoNCE in the place of Align (`app:revision-protocol`)."""

from collections.abc import Callable, Sequence
from typing import Any

from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of, spread_table
from sprii_train.experiments.targets.geometry import both_splits, interval_table
from sprii_train.experiments.targets.poke import CONFIRMED, LEAST
from sprii_train.experiments.targets.within import lead, times
from sprii_train.reports.claims import Arms, Claim, Verdict
from sprii_train.reports.page import Table

SEARCHED = tuple(f"nce-{t:g}-{w:g}" for t in (0.07, 0.1, 0.2) for w in (0.1, 1.0))
CHOSEN_BY = "rho_drag"
"""The validation measure that chooses τ and λ; the paper does not print its rule."""

_GEOMETRY = {"Ratio": "ratio", "ρ drag": "rho_drag"}


def _tables(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    spreads = {arm: spread_of(groups[arm], f"validation.{CHOSEN_BY}") for arm in SEARCHED if arm in groups}
    scores = {arm: found.mean for arm, found in spreads.items() if found}
    best = max(scores, key=scores.__getitem__, default=None)
    arms = [arm for arm in groups if arm not in SEARCHED or arm == best]
    confirmed = spread_table(
        [row for arm in arms for row in groups[arm]],
        "Confirmation systems, with the τ and λ of the highest mean ρ of drag on validation systems",
        CONFIRMED,
        first="Objective",
        note="Every τ and λ has the same sources; the choice reads validation systems alone.",
    )
    columns = both_splits(_GEOMETRY, "confirmation")
    return [
        confirmed,
        spread_table(rows, "The search", columns, first="Objective"),
        interval_table(rows, columns, first="Objective"),
    ]


def _chosen(arms: Arms) -> str:
    """The τ and λ that this source's validation systems choose."""
    return max(SEARCHED, key=lambda arm: arms[arm]["validation"][CHOSEN_BY])


def _against(of: Callable[..., dict[str, Any]], arm: str, path: str, *, better: bool) -> dict[str, Any]:
    """`lead` or `times` of an arm over the chosen one on confirmation systems, or of the chosen one over the arm."""

    def part(name: str) -> Callable[[Arms], Any]:
        def value(a: Arms) -> Any:
            pair = (arm, _chosen(a)) if better else (_chosen(a), arm)
            return of(*pair, f"confirmation.{path}")[name](a)

        return value

    return {name: part(name) for name in ("measure", "interval")}


CLAIMS = (
    Claim(
        "Relational InfoNCE organises contexts by drag far more than Structure does",
        ("structure", *SEARCHED),
        **_against(lead, "structure", "rho_drag", better=False),
        what="difference of ρ on confirmation systems",
        above=LEAST,
        paper=0.539,
        null=0.0,
    ),
    Claim(
        "Align organises contexts by drag more than relational InfoNCE does",
        ("align", *SEARCHED),
        **_against(lead, "align", "rho_drag", better=True),
        what="difference of ρ on confirmation systems",
        above=0.02,
        paper=0.051,
        null=0.0,
    ),
    Claim(
        "Align separates systems far more than relational InfoNCE does",
        ("align", *SEARCHED),
        **_against(times, "align", "ratio", better=True),
        what="ratio of ratios on confirmation systems",
        above=1.5,
        paper=2.4,
        null=1.0,
        ratio=True,
    ),
)

POKE_INFONCE_TARGETS = (
    Target(
        "app:revision-protocol",
        "PokeWorld: relational InfoNCE in the place of Align",
        (Group("poke", ("structure", "align", *SEARCHED)),),
        _tables,
        CLAIMS,
        note="The paper prints the chosen confirmation geometry (drag, by its size) and ratio, not its τ, λ or rule; "
        "each statement chooses by the drag geometry of the source's own validation systems.",
        untested=(
            Verdict(
                "The paper's search chooses this τ and λ",
                "not tested",
                "the paper does not say which τ and λ its validation search chose",
            ),
        ),
    ),
)
