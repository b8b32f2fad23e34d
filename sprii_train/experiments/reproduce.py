"""Train and measure the sources of a target, and write its report beside the paper's numbers."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sprii_envs.banks import Bank, Store
from sprii_train import distributed
from sprii_train.experiments.grid import folder_of, run_grid
from sprii_train.experiments.launchers import named_launcher
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.pairings import PairingCell
from sprii_train.experiments.sources import ReaderBudget, SourceCell
from sprii_train.experiments.targets import INFERRED, Group, Pairings, Target
from sprii_train.fit import resolve_precision
from sprii_train.recipes import EVERY_RECIPE, recipe
from sprii_train.reports.claims import Verdict, judge
from sprii_train.reports.page import Page, Table, paper_table_of, versions, write_page
from sprii_train.reports.paper import paper_panels
from sprii_train.settings import Budget, named_setting

TEACHER = "structure"  # of history-inferred relations


@dataclass(frozen=True)
class Plan:
    """A target at a budget.

    Attributes:
        seeds, arms, steps: replace the preset's where given.
        root: banks and cells, shared by all targets of a folder; the report goes to `root/<label>`.
        device: that sources are trained on; their folders depend on it through the precision alone.
    """

    target: Target
    preset: str
    root: Path
    seeds: tuple[int, ...] | None = None
    arms: tuple[str, ...] | None = None
    steps: int | None = None
    device: str = "cpu"

    def budget(self, group: Group | Pairings) -> Budget:
        """The budget of a group's sources."""
        found = named_setting(group.world).budget(self.preset)
        sources = found.sources if self.seeds is None else self.seeds
        found = replace(found, train=replace(found.train, device=self.device))
        if self.steps in (None, found.train.steps):
            return replace(found, sources=sources)
        train, note = replace(found.train, steps=self.steps), f"{found.note}; here {self.steps:,} steps"
        return replace(found, train=train, note=note, sources=sources)

    def recipes(self, group: Group | Pairings) -> tuple[str, ...]:
        """The arms that are trained.

        Raises:
            ValueError: for an arm that the group does not have.
        """
        if self.arms is None:
            return group.arms(self.preset)
        for arm in self.arms:
            recipe(arm, {name: EVERY_RECIPE[name] for each in self.target.groups for name in each.recipes})
        return tuple(arm for arm in group.recipes if arm in self.arms)


def cells_of(plan: Plan, group: Group | Pairings, store: Store) -> list[SourceCell | PairingCell]:
    """Cells of one group, seeds outermost, so that a stopped run has whole sources."""
    spent = plan.budget(group)
    given = {"updates": spent.reader_steps, "route_updates": spent.route_steps}
    readers = ReaderBudget(count=spent.readers, **{name: n for name, n in given.items() if n is not None})
    cells: list[SourceCell | PairingCell] = []
    for seed in spent.sources:
        base = SourceCell(
            named_setting(group.world),
            EVERY_RECIPE[TEACHER],
            spent.learner,
            replace(spent.train, seed=seed),
            store.name,
            store.fingerprint,
            readers=readers,
        )
        teachers = {name: base if name == INFERRED else None for name in plan.recipes(group)}
        if isinstance(group, Pairings):
            law = (group.splits, seed, base.bank, base.fingerprint)
            cells += [
                PairingCell(base.setting, EVERY_RECIPE[name], *law, teacher) for name, teacher in teachers.items()
            ]
            continue
        # A source is trained for its first measure; by the time of the second no two workers want the same one.
        for measure in group.measures:
            for name, teacher in teachers.items():
                cells.append(replace(base, recipe=EVERY_RECIPE[name], measure=MEASURES[measure], teacher=teacher))
    return cells


def reproduce(plan: Plan, command: str, *, workers: int | None = None, launcher: str = "local") -> Page:
    """Run what is not done, and write the report; under torchrun each source over all ranks.

    Args:
        launcher: where the cells run, see `run_grid`.

    Raises:
        ValueError: for an unknown arm, preset or launcher.
    """
    for group in plan.target.groups:  # whatever is refused is refused before anything is built
        plan.recipes(group)
        plan.budget(group)
    if launcher != "local":
        named_launcher(launcher, workers=workers, threads=1)
    stores = {group.world: named_setting(group.world).open_store(plan.root) for group in plan.target.groups}
    for group in plan.target.groups:  # and whatever can be known to fail, before anything is trained
        if isinstance(group, Group):
            setting, learner = named_setting(group.world), plan.budget(group).learner
            setting.check(stores[group.world], learner, cases="task" in group.measures)
    cells = [cell for group in plan.target.groups for cell in cells_of(plan, group, stores[group.world])]
    root = plan.root / "cells"
    found = run_grid(cells, root, workers=workers, launcher=launcher)
    rows = _merged(cells, found, root)
    page = _page(plan, rows, stores, command)
    distributed.first(lambda: write_page(page, plan.root / plan.target.folder))
    return page


def _merged(
    cells: Sequence[SourceCell | PairingCell], found: Sequence[dict[str, Any]], root: Path
) -> list[dict[str, Any]]:
    """One row a source, with all its measures, where their arrays are, and the audit of its pairs."""
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for cell, result in zip(cells, found, strict=True):
        row = rows.setdefault((result["world"], result["arm"], result["seed"]), {"arrays": {}})
        lacking = row.get("unmeasured", {}) | result.get("unmeasured", {})
        row |= result | ({"unmeasured": lacking} if lacking else {})
        if isinstance(cell, SourceCell) and cell.measure is not None:
            row["arrays"][cell.measure.name] = str(folder_of(cell, root) / cell.arrays)
    return list(rows.values())


def _page(plan: Plan, rows: list[dict[str, Any]], stores: dict[str, Store], command: str) -> Page:
    target = plan.target
    budgets = {g.world: plan.budget(g) for g in target.groups if isinstance(g, Group) or g.trains}
    judged = all(b.judged for b in budgets.values())
    measured = [row for row in rows if "unmeasured" not in row]
    verdicts = [*judge(target.claims, measured), *target.untested] if judged else [
        Verdict("The paper's statements", "not tested", "this preset checks that everything runs")
    ]  # fmt: skip
    shown = rows if target.partial else measured
    tables: list[Table] = list(target.tables(shown)) if shown else []
    try:
        panels = paper_panels(target.label)
    except ValueError:
        panels = []
    letters = [""] if len(panels) == 1 else [f", panel {chr(65 + i)}" for i in range(len(panels))]
    tables += [paper_table_of(f"The paper's{letter}", panel) for letter, panel in zip(letters, panels, strict=True)]
    trained = [row["train_seconds"] for row in rows if "train_seconds" in row]
    facts = {}
    if budgets:
        facts["Budget"] = "; ".join(
            f"{world}: {b.train.steps:,} steps of {b.train.pairs} pairs; seeds of sources: "
            f"{', '.join(map(str, b.sources))}; readers of each: {b.readers}; {b.note}"
            for world, b in budgets.items()
        )
    if trained:
        facts["Training time"] = (
            f"{sum(trained) / 60:.0f} process-minutes for {len(trained)} sources, one thread each, on "
            f"{os.cpu_count()} cores that may have had other work"
        )
    for world, store in stores.items():
        facts[f"Bank of {world}"] = f"{store.name}, fingerprint {store.fingerprint[:16]}"
        if isinstance(store, Bank):
            facts[f"Bank of {world}"] = (
                f"{store.protocol.name} v{store.protocol.version}, fingerprint {store.fingerprint[:16]}"
            )
    if lacking := dict.fromkeys(why for row in rows for why in row.get("unmeasured", {}).values()):
        facts["Not measured"] = "; ".join(lacking)
    for world, b in budgets.items():
        facts[f"Learner of {world}"] = ", ".join(f"{k} {v}" for k, v in asdict(b.learner).items())
        facts[f"Training of {world}"] = (
            ", ".join(f"{k} {v}" for k, v in asdict(b.train).items() if k != "seed")
            + f" ({resolve_precision(b.train)})"
        )
    note = f" {target.note}" if target.note else ""
    told = [{k: v for k, v in row.items() if k != "arrays"} for row in rows]
    return Page(
        title=f"{target.title}, preset {plan.preset}",
        lead=f"{target.label}. " + " ".join(f"{b.note[:1].upper()}{b.note[1:]}." for b in _unique(budgets)) + note,
        tables=tables,
        verdicts=verdicts,
        pictures=target.pictures(measured) if measured else [],
        command=command,
        facts=facts | {"Versions": versions()},
        data={"table": target.label, "preset": plan.preset, "rows": told},
    )


def _unique(budgets: dict[str, Budget]) -> list[Budget]:
    return list({b.note: b for b in budgets.values()}.values())
