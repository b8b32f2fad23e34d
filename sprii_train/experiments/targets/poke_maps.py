"""What shared factors and what objectives organise, as two heat maps (`fig:v3-poke-formation-use`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of
from sprii_train.experiments.targets.poke import (
    COMPONENTS,
    FACTORIAL_CLAIMS,
    FACTORS,
    REFINEMENT_CLAIMS,
    factorial_tables,
    refinement_tables,
)
from sprii_train.reports.formation_figures import heat_maps
from sprii_train.reports.page import Picture, Table
from sprii_train.reports.paper import paper_panels

SHARED = ("structure", "g1", "g2", "g3")
BLOCKS: tuple[tuple[str, tuple[str, ...], str, Callable[[Sequence[Row]], list[Table]]], ...] = (
    ("a. Shared factors", SHARED, "tab:refinement-full", refinement_tables),
    ("b. Objective components", COMPONENTS, "tab:factorial-confirmation", factorial_tables),
)
"""Title, arms, the table that prints their numbers, our tables."""


def _of(rows: Sequence[Row], arms: Sequence[str]) -> list[Row]:
    return [row for row in rows if row["arm"] in arms]


def _tables(rows: Sequence[Row]) -> list[Table]:
    return [
        replace(table, title=f"{title}: {table.title}")
        for title, arms, _, tables in BLOCKS
        if (own := _of(rows, arms))
        for table in tables(own)
    ]


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    blocks, paper = {}, {}
    for title, arms, table, _ in BLOCKS:
        if groups := arms_of(_of(rows, arms)):
            blocks[title] = {
                group[0]["label"]: {f: _mean(group, f"confirmation.rho_{f}") for f in FACTORS}
                for group in groups.values()
            }
            paper[title] = printed(table)
    return [
        Picture(
            "geometry",
            "Relation semantics and objective composition organize different factors",
            "Mean partial geometry ρ over sources on confirmation systems, in one colour scale; the paper's means in "
            "brackets. Source SDs are in the tables. The blocks share the Structure sources here, and the paper's have "
            "their own.",
            heat_maps(blocks, paper),
        )
    ]


def _mean(group: Sequence[Row], path: str) -> float:
    found = spread_of(group, path)
    return float("nan") if found is None else found.mean


def printed(table: str) -> dict[str, dict[str, float]]:
    """Label of an arm → factor → the mean on confirmation systems that a table of the paper prints."""
    lines = [line for line in paper_panels(table)[0] if any("±" in cell for cell in line)]
    first = {"tab:refinement-full": 4, "tab:factorial-confirmation": 1}[table]
    subscripts = str.maketrans("123", "₁₂₃")
    return {
        line[0].translate(subscripts) if line[0].startswith("G") else line[0]: {
            f: float(line[first + i].split(" ")[0]) for i, f in enumerate(FACTORS)
        }
        for line in lines
    }


POKE_MAP_TARGETS = (
    Target(
        "fig:v3-poke-formation-use",
        "PokeWorld: what relations and objectives organise",
        (Group("poke", tuple(dict.fromkeys((*SHARED, *COMPONENTS)))),),
        _tables,
        (*(claim for claim in REFINEMENT_CLAIMS if set(claim.arms) <= set(SHARED)), *FACTORIAL_CLAIMS),
        _pictures,
    ),
)
