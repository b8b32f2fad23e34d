"""`docs/claims.md` is what the code judges; `python tests/train/experiments/test_claims_page.py` writes it anew."""

import json
import math
import re
from pathlib import Path

from sprii_train.experiments.targets import TARGETS
from sprii_train.reports.claims import Claim, judge
from sprii_train.reports.page import RULE

PAGE = Path(__file__).parents[3] / "docs" / "claims.md"
HEAD = f"""# What is judged

{RULE} The code is one function, `outcome` in `sprii_train/reports/claims.py`.

Every statement says what a learner whose contexts say nothing would score: an untrained one, a constant code, shuffled
donors. It cannot be held within bounds that this passes. Some statements ask nothing of contexts, or that they do
nothing; there words stand instead of a number, and a learner that learned nothing would meet them as well. *Over* says
what the interval resamples: `systems` within each source (`episodes` in control), or, where a row has no numbers by
system, and in the lines of `sources`, one number a source: a t interval, which two sources leave wide and one leaves
open. Over `sources and episodes` both are resampled together, from two sources on. `exact` numbers have none.

"""
WITHIN = dict.fromkeys(("tab:pendulum-r7", "ext:pendulum-context", "ext:poke-push"), "episodes")


def tables() -> dict[str, tuple[Claim, ...]]:
    return {label: one.claims for label, one in TARGETS.items() if one.claims}


def render() -> str:
    parts, seen = [], set()
    for label, claims in tables().items():
        lines = ["| statement | number (bounds; without information; paper) | over |", "|---|---|---|"]
        for claim in claims:
            within = WITHIN.get(label, "systems") if claim.interval else "sources"
            over = "exact" if claim.exact else f"sources and {within}" if claim.over else within
            lines.append(f"| {claim.text} | {claim.shows} | {over} |".replace("|mean", "\\|mean"))
        new = [line for line in lines[2:] if line not in seen]
        seen.update(new)
        parts.append(
            f"## {label}\n\n" + ("\n".join([*lines[:2], *new]) if new else "Statements of a table above.") + "\n"
        )
    return HEAD + "\n".join(parts)


def test_the_page_of_claims_is_that_of_the_code():
    assert PAGE.read_text(encoding="utf-8") == render(), f"python {__file__} writes it anew"


def test_every_statement_has_a_margin_that_stands_beside_every_verdict():
    """A bound that can fail, in words before what was measured: in what would be judged, and in every kept report."""
    margin = re.compile(r"\((> |< |signs differ|−?[\d.e+−]+ to −?[\d.e+−]+)")
    for label, claims in tables().items():
        for claim in claims:
            assert math.isfinite(claim.above) or math.isfinite(claim.below), (label, claim.text)
            for evidence in (claim.shows, claim.untested("no report").evidence, judge([claim], [])[0].evidence):
                assert margin.search(evidence), (label, evidence)
    kept = sorted(PAGE.parent.joinpath("results").rglob("results.json"))
    verdicts = [(path, v) for path in kept for v in json.loads(path.read_text()).get("verdicts", [])]
    assert len(verdicts) > 100
    for path, verdict in verdicts:
        if verdict["verdict"] != "not tested":
            assert margin.search(verdict["evidence"]), (path, verdict)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
