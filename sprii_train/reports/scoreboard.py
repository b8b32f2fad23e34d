"""One page of many reports: every statement with its verdict, grouped by finding (`tab:claim-map`)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sprii_envs.files import write_whole
from sprii_train.reports.claims import FAILED, HELD, OPEN, UNTESTED, Verdict
from sprii_train.reports.glossary import PRIMER, VERDICTS
from sprii_train.reports.page import RULE, rendered


@dataclass(frozen=True)
class Run:
    """What one report says of a target.

    Attributes:
        budget: preset, updates and sources.
        sources: trained ones.
        link: from the page to the report; empty where there is none.
        verdicts: one a statement.
    """

    budget: str
    sources: int
    link: str
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Entry:
    """A target with all of its reports; `why` says what stands in the way of one that has none."""

    label: str
    title: str
    runs: Sequence[Run]
    why: str = ""


@dataclass(frozen=True)
class Section:
    """A finding, what it rests on, and what of that cannot be computed here."""

    title: str
    note: str
    entries: Sequence[Entry]
    lacking: Sequence[str] = ()

    def counts(self) -> dict[str, int]:
        """Verdict → statements."""
        return counted(self.entries)


def counted(entries: Sequence[Entry]) -> dict[str, int]:
    """Verdict → statements, over all reports."""
    found = Counter(verdict.status for entry in entries for run in entry.runs for verdict in run.verdicts)
    return {status: found[status] for status in (HELD, FAILED, OPEN, UNTESTED)}


def write_scoreboard(title: str, lead: str, sections: Sequence[Section], path: Path) -> None:
    """Write the page, whole."""
    total = counted([entry for section in sections for entry in section.entries])
    html = rendered(
        "scoreboard.html",
        title=title,
        lead=lead,
        rule=RULE,
        primer=PRIMER,
        verdicts=VERDICTS,
        sections=sections,
        total=total,
    )
    write_whole(path, html)
