"""Train and measure the sources of a target, and write its report beside the paper's numbers."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sprii_envs.banks import Bank, Store
from sprii_envs.files import absolute
from sprii_train import distributed
from sprii_train.experiments.cells import KEPT, Cell, folder_of, result_of
from sprii_train.experiments.costs import seconds, span
from sprii_train.experiments.grid import run_grid
from sprii_train.experiments.groups import Scope, Unit
from sprii_train.experiments.launchers import named_launcher
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.seeds import Asked, chosen
from sprii_train.experiments.targets import Target
from sprii_train.experiments.targets.sight import sight_tables
from sprii_train.learners import learner_of
from sprii_train.recipes import EVERY_RECIPE, Compared, recipe
from sprii_train.reports.claims import NOT_JUDGED, UNTESTED, Verdict, judge
from sprii_train.reports.page import Page, Table, paper_table_of, versions, write_page
from sprii_train.reports.paper import paper_panels
from sprii_train.settings import Budget, Setting, named_setting
from sprii_train.settings.base import listed

RUNNING = "still running"


@dataclass(frozen=True)
class Plan:
    """A target at a budget.

    Attributes:
        seeds, arms, steps: replace the preset's where given; of a count of seeds see `seeds.chosen`.
        root: banks and cells, shared by all targets of a folder.
        report: folder of the report; None is `root/<label>`.
        device: that sources are trained on; their folders depend on it through the precision alone.
        population: split that measures of one held-out population are of; None is `test`.
        partners: folder of the partners of a setting that has any; None are its own.
    """

    target: Target
    preset: str
    root: Path
    seeds: Asked | None = None
    arms: tuple[str, ...] | None = None
    steps: int | None = None
    device: str = "cpu"
    population: str | None = None
    partners: Path | None = None
    report: Path | None = None

    def __post_init__(self) -> None:
        """ValueError for what the target does not take."""
        label = self.target.label
        takes = any(MEASURES[name].population for group in self.target.groups for name in group.measures)
        if self.population is not None and not takes:
            raise ValueError(f"--population is not of {label}, which says itself which systems it is of")

    @property
    def folder(self) -> Path:
        """Of the report."""
        return self.root / self.target.folder if self.report is None else self.report

    @property
    def suffix(self) -> str:
        """Of the report's files: of another population than `test`."""
        return f"-{self.population}" if self.population not in (None, "test") else ""

    def setting(self, group: Unit) -> Setting:
        """The setting of a group.

        Raises:
            ValueError: for partners of a setting without any.
        """
        found = named_setting(group.world)
        if self.partners is None:
            return found
        if not hasattr(found, "partners"):
            raise ValueError(f"--partners is {self.partners}, but the setting {found.name!r} has no partners")
        return replace(found, partners=str(absolute(self.partners)))  # type: ignore[call-arg]

    def budget(self, group: Unit) -> Budget:
        """The budget of a group's sources."""
        found = named_setting(group.world).budget(self.preset)
        sources = found.sources if self.seeds is None else chosen(self.seeds, found.sources)
        found = replace(found.trained(device=self.device), sources=sources)
        if self.steps is None or (changed := found.trained(steps=self.steps)) == found:
            return found
        return replace(changed, note=f"{found.note}; here --steps {self.steps}")

    def recipes(self, group: Unit) -> tuple[str, ...]:
        """The arms that are trained.

        Raises:
            ValueError: for an arm that the group does not have.
        """
        if self.arms is None:
            return group.arms(self.preset)
        known = {name: EVERY_RECIPE[name] for each in self.target.groups for name in each.recipes}
        if len(unknown := [arm for arm in self.arms if arm not in known]) > 1:
            raise ValueError(f"unknown arms {', '.join(map(repr, unknown))}; legal names: {', '.join(known)}")
        for arm in self.arms:
            recipe(arm, known)
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"--arms names an arm twice: {', '.join(self.arms)}")
        return tuple(arm for arm in group.recipes if arm in self.arms)

    def scope(self, group: Unit, store: Store) -> Scope:
        """A group with its store."""
        return Scope(self.setting(group), self.budget(group), self.recipes(group), store, self.population or "test")


def reproduce(plan: Plan, command: str, *, workers: int | None = None, launcher: str = "local") -> Page:
    """Run what is not done, and write the report; under torchrun each source over all ranks.

    Args:
        launcher: where the cells run, see `run_grid`.

    Raises:
        ValueError: for an unknown arm, preset or launcher.
    """
    groups = plan.target.groups
    for group in groups:  # whatever is refused is refused before anything is built
        plan.recipes(group)
        plan.setting(group)
        plan.budget(group)
    if launcher != "local":
        named_launcher(launcher, workers=workers, threads=1)
    stores = {group.world: plan.setting(group).open_store(plan.root, plan.budget(group)) for group in groups}
    scopes = [plan.scope(group, stores[group.world]) for group in groups]
    for group, scope in zip(groups, scopes, strict=True):  # and what can be known to fail, before anything is trained
        if group.measures:
            for arm in (EVERY_RECIPE[name] for name in scope.arms):
                learner = scope.budget.of(arm).learner
                presents = hasattr(learner_of(learner)[1], "present")  # without them no cases are drawn
                scope.setting.check(scope.store, learner, cases=presents and "task" in group.measures)
                for measure in (MEASURES[name] for name in group.measures if presents):
                    if measure.windows is not None:
                        scope.setting.check_windows(scope.store, learner, *measure.windows, f"measure {measure.name}")
                scope.setting.check_learner(scope.store, arm, learner)
    cells = [cell for group, scope in zip(groups, scopes, strict=True) for cell in group.cells(scope)]
    root = plan.root / "cells"
    _tell_cost(plan, scopes, cells, root)

    def fill() -> None:
        """The report of what is done so far; it says what is not, and judges nothing."""
        rows, running = _so_far(cells, root)
        if plan.target.fills and rows and running:
            write_page(_unfinished(_page(plan, rows, scopes, command), running), plan.folder, plan.suffix)

    distributed.first(fill)
    found = run_grid(cells, root, workers=workers, launcher=launcher, finished=fill)
    rows = merged(cells, found, root)
    page = _page(plan, rows, scopes, command)
    distributed.first(lambda: write_page(page, plan.folder, plan.suffix))
    return page


def _tell_cost(plan: Plan, scopes: Sequence[Scope], cells: Sequence[Cell], root: Path) -> None:
    """A line on stderr of what takes more than a minute, unless it is done already."""
    if distributed.rank() or all(result_of(cell, root) is not None for cell in cells):
        return
    parts = [(g, s.setting, s.budget, s.arms) for g, s in zip(plan.target.groups, scopes, strict=True)]
    needed = seconds(parts, share=0.2 if plan.preset == "smoke" else 1.0)
    if needed is not None and needed > 60:
        cost = f"about {span(needed)} of one core of this machine to itself, if nothing of it is done yet"
        resumes = "a stopped run goes on when the command is repeated"
        print(f"{plan.target.label}, preset {plan.preset}: {cost}; {resumes}", file=sys.stderr, flush=True)


def merged(cells: Sequence[Cell], found: Sequence[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
    """One row a source, with all its measures, where its arrays and its folder are, and the audit of its pairs.

    The entries of the arrays that were the rows' when these were read are under `KEPT`, by measure.
    """
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for cell, result in zip(cells, found, strict=True):
        row = rows.setdefault((result["world"], result["arm"], result["seed"]), {"arrays": {}, KEPT: {}})
        lacking = row.get("unmeasured", {}) | result.get("unmeasured", {})
        entry = result.get(KEPT)
        row |= (
            {name: value for name, value in result.items() if name != KEPT}
            | {"folder": str(folder_of(cell, root))}
            | ({"unmeasured": lacking} if lacking else {})
        )
        if (measure := getattr(cell, "measure", None)) is not None:
            row["arrays"][measure.name] = str(folder_of(cell, root) / getattr(cell, "arrays", ""))
            row[KEPT] |= {} if entry is None else {measure.name: entry}
    return list(rows.values())


def _so_far(cells: Sequence[Cell], root: Path) -> tuple[list[dict[str, Any]], list[Cell]]:
    """Rows of the sources that have all their measures, and one cell of each that has not."""
    results = [(cell, result_of(cell, root)) for cell in cells]
    running = {cell.title: cell for cell, result in results if result is None}
    done = [(cell, result) for cell, result in results if result is not None and cell.title not in running]
    return merged([cell for cell, _ in done], [result for _, result in done], root), list(running.values())


def _unfinished(page: Page, running: Sequence[Cell]) -> Page:
    """A page with a row for each source that is missing from its first table, and without verdicts."""
    table, *rest = page.tables
    rows = [[cell.title, *[RUNNING] * (len(table.columns) - 1)] for cell in running]
    why = "sources are still running: this report fills as they are done"
    return replace(
        page,
        tables=[replace(table, rows=[*table.rows, *rows]), *rest],
        verdicts=[Verdict(NOT_JUDGED, UNTESTED, why)],
        facts={"Still running": ", ".join(cell.title for cell in running)} | dict(page.facts),
    )


def _page(plan: Plan, rows: list[dict[str, Any]], scopes: Sequence[Scope], command: str) -> Page:
    target = plan.target
    trained = {
        scope.setting.name: scope
        for group, scope in zip(target.groups, scopes, strict=True)
        if group.measures or group.sources(scope.arms)
    }
    measured = [row for row in rows if "unmeasured" not in row]
    judged = all(scope.budget.judged for scope in trained.values())
    verdicts = [*judge(target.claims, measured), *target.checks(measured), *target.untested] if judged else [
        Verdict(NOT_JUDGED, UNTESTED, "this preset checks that everything runs")
    ]  # fmt: skip
    shown = rows if target.partial else measured
    tables: list[Table] = [*target.tables(shown), *sight_tables(measured)] if shown else []
    try:
        panels = paper_panels(target.label)
    except ValueError:
        panels = []
    letters = [""] if len(panels) == 1 else [f", panel {chr(65 + i)}" for i in range(len(panels))]
    tables += [paper_table_of(f"The paper's{letter}", panel) for letter, panel in zip(letters, panels, strict=True)]
    notes = dict.fromkeys(scope.budget.note for scope in trained.values())
    note = f" {target.note}" if target.note else ""
    told = [{k: v for k, v in row.items() if k not in ("arrays", "folder", KEPT)} for row in rows]
    return Page(
        title=f"{target.title}, preset {plan.preset}",
        lead=f"{target.label}. " + " ".join(f"{text[:1].upper()}{text[1:]}." for text in notes) + note,
        tables=tables,
        verdicts=verdicts,
        pictures=target.pictures(measured) if measured else [],
        command=command,
        facts=_facts(plan, rows, scopes, trained),
        data={"table": target.label, "preset": plan.preset, "rows": told},
        files=target.files(measured) if measured else {},
    )


def _facts(
    plan: Plan, rows: Sequence[dict[str, Any]], scopes: Sequence[Scope], trained: dict[str, Scope]
) -> dict[str, str]:
    """Budget, cost, stores, what is missing, learners: everything that a number may depend on."""
    facts = {world: scope.setting.facts(scope.budget) for world, scope in trained.items()}
    found: dict[str, str] = {}
    if facts:
        found["Budget"] = "; ".join(f"{world}: {own['Budget']}" for world, own in facts.items())
    if seconds := [row["train_seconds"] for row in rows if "train_seconds" in row]:
        found["Training time"] = (
            f"{sum(seconds) / 60:.0f} process-minutes for {len(seconds)} sources, one thread each, on "
            f"{os.cpu_count()} cores that may have had other work"
        )
    for world, store in {scope.setting.name: scope.store for scope in scopes}.items():
        named = f"{store.protocol.name} v{store.protocol.version}" if isinstance(store, Bank) else Path(store.name).name
        found[f"Bank of {world}"] = f"{named}, fingerprint {store.fingerprint[:16]}"
    if lacking := dict.fromkeys(why for row in rows for why in row.get("unmeasured", {}).values()):
        found["Not measured"] = "; ".join(lacking)
    for world, own in facts.items():
        found |= {f"{name} of {world}": text for name, text in own.items() if name != "Budget"}
    for scope in scopes:
        for arm in (EVERY_RECIPE[name] for name in scope.arms):
            if isinstance(arm, Compared):
                own = scope.budget.of(arm)
                found[f"Learner of {arm.label}"] = (
                    f"{learner_of(own.learner)[0]}, {listed(own.learner)}; {listed(own.train, but=('seed', 'device'))}"
                )
    if plan.population is not None:
        found["Population"] = plan.population
    return found | dict(plan.target.facts(rows)) | {"Versions": versions()}
