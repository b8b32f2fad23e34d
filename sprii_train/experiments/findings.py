"""The paper's findings, the targets that test each, and the page that says what stands (`tab:claim-map`)."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprii_envs.files import read_json
from sprii_train.experiments.targets import TARGETS, Target, canonical
from sprii_train.reports.claims import NOT_JUDGED, Verdict
from sprii_train.reports.scoreboard import Entry, Run, Section, write_scoreboard

INDEX = "index.html"
LEAD = (
    "Every statement that is judged here, by the paper's findings, and what each report says of it. The counts are of "
    "statements × reports."
)


@dataclass(frozen=True)
class Finding:
    """One row of `tab:claim-map`, or one of the settings beside it.

    Attributes:
        title: what was found.
        note: where the paper has it.
        labels: targets that test it.
        lacking: what else it rests on and is not computed here.
    """

    title: str
    note: str
    labels: tuple[str, ...]
    lacking: tuple[str, ...] = ()


FINDINGS = (
    Finding(
        "Predictive performance: persistent context lowers held-out errors",
        "tab:main-task, tab:extended-validation, app:task-complete.",
        (
            "tab:v3-spring-sealed",
            "tab:v3-tds-spring",
            "tab:v3-collision",
            "tab:balls-heldout",
            "tab:spring-complete",
            "tab:spring-cost",
            "tab:v3-nod-native",
            "tab:nod-mechanism",
            "tab:burgers-adaptation-cost",
            "tab:coda-host-results",
            "tab:dclean-all-budgets",
        ),
    ),
    Finding(
        "More reliable relations organise shared information better",
        "app:poke-formation.",
        (
            "tab:fidelity-full",
            "tab:dclean-full",
            "tab:v3-poke-input-diversity",
            "app:poke-acquisition",
            "app:revision-protocol",
            "tab:inferred-relation-quality",
            "tab:inferred-relation-factors",
            "tab:inferred-relation-task",
            "tab:inferred-relation-recovery",
        ),
    ),
    Finding(
        "Sharing more properties can make a property that is still shared harder to read",
        "app:poke-formation.",
        (
            "tab:pokeworld-geometry",
            "tab:refinement-full",
            "fig:v3-poke-formation-use",
            "tab:v3-poke-accessibility",
            "fig:poke-persistent-atlas",
            "tab:donor-pool-audit",
            "tab:structured-mismatch-factors",
            "tab:structured-mismatch-diagnostics",
            "fig:structured-mismatch-differences",
        ),
    ),
    Finding(
        "In SpringWorld Align organises, and Cross adds gains on tasks",
        "app:spring-components.",
        (
            "tab:v3-spring-components",
            "tab:factorial-confirmation",
            "tab:frozen-head",
            "tab:spring-lambda",
            "tab:spring-gradient-distribution",
            "tab:spring-gradient-source-phase",
        ),
    ),
    Finding(
        "Another history redirects the same predictor along the properties that changed",
        "app:landscape, app:poke-direction.",
        (
            "tab:spring-functional-landscape",
            "app:spring-recipient-evidence",
            "fig:v3-poke-semantics",
            "tab:poke-targeted-utility",
            "app:records-poke-followup",
            "tab:poke-object-only-config",
            "tab:external-alpha",
        ),
    ),
    Finding("History is worth more at longer horizons", "app:horizon-conditions.", ("tab:v3-horizon",)),
    Finding(
        "Direct context serves better in D-Clean, decoded parameters in SpringWorld",
        "app:horizon.",
        ("tab:v3-bottleneck-endpoints", "tab:spring-same-donor"),
    ),
    Finding(
        "Another readout recovers gains of frozen representations, though not of every source",
        "app:realization-slot.",
        ("tab:reader-capacity-errors", "tab:realization-complete-grid", "tab:realization-replacements"),
    ),
    Finding(
        "More histories lower errors of fields, and more so with Align",
        "app:external-fhn.",
        ("tab:fhn-breadth", "tab:external-fhn-probes"),
    ),
    Finding(
        "Gains on CoPhy depend on learner, scene, control and reader",
        "app:cophy, app:cophy-reader-design.",
        (
            "tab:cophy-complete",
            "tab:ctp-replication-complete",
            "tab:cophy-new5-summary",
            "tab:v3-cophy-reader",
            "tab:followup-complete-summary",
        ),
    ),
    Finding(
        "In Balls the reader's memory tells restitution, and other donors change what it predicts",
        "app:balls-use.",
        ("fig:v3-balls", "tab:cophy-new5-probes", "tab:v3-balls-histories"),
    ),
    Finding(
        "A recipient's own persistent update lowers errors through fixed weights",
        "app:fixed-weight.",
        ("tab:v3-swimmer",),
    ),
    Finding(
        "Whose history is whose donor selects which property codes tell",
        "app:baxter.",
        ("fig:baxter-selectivity",),
    ),
    Finding(
        "Other recordings of a task tell of its forces and motion",
        "app:rh20t.",
        ("tab:rh20t-complete-self", "tab:v3-rh-risk", "tab:v3-rh-validation"),
    ),
    Finding("Online control", "app:pendulum-control.", ("tab:pendulum-r7", "ext:pendulum-context")),
    Finding("Control of a second system, beyond the paper", "docs/control.md.", ("ext:poke-push",)),
    Finding(
        "Relations on a frozen stem of pixels, beyond the paper", "docs/frozen_pixels.md.", ("ext:poke-frozen-pixels",)
    ),
    Finding("A partner as the persistent entity", "app:overcooked-profile.", ("tab:overcooked-complete",)),
)


def scoreboard(
    folder: Path, *, title: str = "What stands", failures: Mapping[str, str] | None = None, where: Path | None = None
) -> Path:
    """Write `index.html` of all reports under a folder: every statement of every target, tested or not.

    Args:
        failures: label → why a target could not be run.
        where: the page; by default in the folder.

    Raises:
        ReportError: for a folder without any results that can be read; single ones are named on the page.
    """
    path = where or folder / INDEX
    runs, damaged = _runs(folder, path.parent)
    if not runs and failures is None:
        if damaged:
            raise ReportError(damaged[0].why)
        raise ReportError(f"{folder} holds no report: no results.json that `sprii reproduce` wrote lies in it")
    entries = {label: _entry(one, runs.pop(label, []), failures or {}) for label, one in TARGETS.items()}
    sections = [
        Section(one.title, one.note, [entries.pop(label) for label in one.labels], one.lacking) for one in FINDINGS
    ]
    if entries:
        sections.append(Section("Further measurements", "", list(entries.values())))
    if runs:
        own = [Entry(label, told[0][1], [run for run, _ in told]) for label, told in runs.items()]
        sections.append(Section("Further settings", "", own))
    if damaged:
        sections.append(Section("Reports that cannot be read", "", damaged))
    write_scoreboard(title, LEAD, sections, path)
    return path


class ReportError(ValueError):
    """A report's results that cannot be read."""


def _runs(folder: Path, page: Path) -> tuple[dict[str, list[tuple[Run, str]]], list[Entry]]:
    """Label → what each report says, and its title; and those that cannot be read."""
    found: dict[str, list[tuple[Run, str]]] = {}
    damaged: list[Entry] = []
    for path in sorted(_results(folder)):
        try:
            told = read_json(path, ReportError, "write the report again")
        except ReportError as error:
            damaged.append(Entry(str(path.relative_to(folder)), "Damaged", [], str(error)))
            continue
        if "parts" in told or "table" not in told:  # composed of others, which are here themselves
            continue
        rows = told.get("rows", [])
        steps = sorted({row["steps"] for row in rows if "steps" in row})
        sources = len({row["seed"] for row in rows if "seed" in row})
        budget = [str(told.get("preset", ""))]
        budget += [" and ".join(f"{n:,}" for n in steps) + " updates"] if steps else []
        budget += [f"{sources} source{'s' if sources != 1 else ''}"] if sources else []
        report = path.parent / f"report{path.stem.removeprefix('results')}.html"
        verdicts = [Verdict(v["claim"], v["verdict"], v["evidence"]) for v in told.get("verdicts", [])]
        link = Path(os.path.relpath(report, page)).as_posix()
        run = Run(", ".join(budget), sources, link if report.exists() else "", verdicts)
        found.setdefault(canonical(str(told["table"])), []).append((run, str(told.get("title", ""))))
    return found, damaged


def _results(folder: Path) -> Iterable[Path]:
    """Every report under a folder, as deep as they lie; folders of cells and banks hold none."""
    for place, inside, names in os.walk(folder):
        inside[:] = [name for name in inside if name not in ("cells", "banks")]
        yield from (Path(place) / name for name in names if name.startswith("results") and name.endswith(".json"))


def _entry(target: Target, runs: list[tuple[Run, str]], failures: Mapping[str, str]) -> Entry:
    """A target's statements as today's code has them; what a report lacks of them was not tested there."""
    every = [Run(run.budget, run.sources, run.link, _ordered(target, run.verdicts)) for run, _ in runs]
    why = failures.get(target.label, "")
    if not every:
        told = why or "no report"
        own = [claim.untested(told) for claim in target.claims] + list(target.untested)
        every, why = [Run("never run", 0, "", own)], ""
    return Entry(target.label, target.title, every, why)


def _ordered(target: Target, verdicts: Iterable[Verdict]) -> list[Verdict]:
    found: dict[str, Any] = {verdict.text: verdict for verdict in verdicts}
    none = found.pop(NOT_JUDGED, None)
    told = none.evidence if none else "this report is older than the statement"
    own = [found.pop(claim.text, None) or claim.untested(told) for claim in target.claims]
    own += [found.pop(each.text, None) or each for each in target.untested]
    return own + list(found.values())
