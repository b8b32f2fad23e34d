"""Several targets at once: a label made of parts, and all of them with the page that says what stands."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sprii_train import distributed
from sprii_train.experiments.findings import scoreboard
from sprii_train.experiments.reproduce import Plan, reproduce
from sprii_train.experiments.targets import TARGETS, Composed, Target
from sprii_train.fit import Interrupted
from sprii_train.reports.page import Page, versions, write_page
from sprii_train.settings import named_setting

PlanOf = Callable[[Target], Plan]


def reproduce_composed(one: Composed, plan_of: PlanOf, command: str, **where: Any) -> Page:
    """Run what its parts lack, and write them on one page; every part gets its own report too.

    Args:
        plan_of: a part → its plan.
        command: that repeats this; a part's report names the part's own.
        where: of `reproduce`: workers and launcher.
    """
    plans = [plan_of(TARGETS[label]) for label in one.parts]
    pages = [reproduce(plan, command.replace(one.label, plan.target.label), **where) for plan in plans]
    parts = list(zip(one.parts, pages, strict=True))
    note = f" Not here: {'; '.join(one.lacking)}." if one.lacking else ""
    page = Page(
        title=f"{one.title}, preset {plans[0].preset}",
        lead=f"{one.label}, made of {', '.join(one.parts)}.{note}",
        tables=[replace(table, title=f"{label}: {table.title}") for label, page in parts for table in page.tables],
        verdicts=[verdict for page in pages for verdict in page.verdicts],
        pictures=[
            replace(picture, name=f"{plan.target.folder}-{picture.name}", title=f"{plan.target.label}: {picture.title}")
            for plan, page in zip(plans, pages, strict=True)
            for picture in page.pictures
        ],
        command=command,
        facts={f"Budget of {label}": page.facts.get("Budget", "nothing is trained") for label, page in parts}
        | {"Versions": versions()},
        data={"table": one.label, "preset": plans[0].preset, "parts": list(one.parts)},
    )
    distributed.first(lambda: write_page(page, plans[0].root / one.folder))
    return page


def reproduce_all(
    plan_of: PlanOf,
    preset: str,
    root: Path,
    command: Callable[[Target], str],
    *,
    targets: Collection[Target] = TARGETS.values(),
    **where: Any,
) -> tuple[Path, dict[str, str]]:
    """Run what is missing of every target of a preset, then write `root/index.html`.

    A target that fails is reported at once and the others go on.

    Returns:
        The page, and label → why a target was not run.

    Raises:
        ValueError: if no target could be run.
    """
    failures: dict[str, str] = {}
    for place, target in enumerate(targets, 1):
        if lacking := _lacking(target, preset):
            failures[target.label] = lacking
            continue
        if distributed.rank() == 0:
            print(f"{place} of {len(targets)}: {target.label}, {target.title}", file=sys.stderr, flush=True)
        try:
            reproduce(plan_of(target), command(target), **where)
        except Interrupted:
            raise
        except Exception as error:  # of a learner, a device or a package: whatever it is, it is one target's
            failures[target.label] = f"it failed: {error}"
            print(f"{target.label} failed, the others go on: {error}", file=sys.stderr, flush=True)
    if len(failures) == len(targets):
        raise ValueError(f"no target could be run: {next(iter(failures.values()))}")
    title = f"What stands, preset {preset}"
    page = distributed.first(lambda: scoreboard(root, title=title, failures=failures))
    return page, failures


def _lacking(target: Target, preset: str) -> str:
    worlds: Sequence[str] = [group.world for group in target.groups]
    without = sorted({world for world in worlds if preset not in named_setting(world).budgets})
    return f"{', '.join(without)} has no preset {preset}" if without else ""
