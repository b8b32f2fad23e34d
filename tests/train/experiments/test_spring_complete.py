"""The table of SpringWorld's references on planted rows: whose number is printed, and when statements hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sprii_train.experiments.targets import TARGETS
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.claims import FAILED, HELD, UNTESTED, judge

ONE = TARGETS["tab:spring-complete"]
STRATA = ["continuous"] * 12 + ["combination"] * 8
CONTROLLED = {"native": (0.172, 0.851), "structure": (0.171, 0.847), "align-cross": (0.092, 0.789)}
REFERENCES = {
    "reference-gru": (0.093, 0.633), "reference-transformer": (0.089, 0.663), "reference-tcn": (0.059, 0.595),
    "reference-deepsets": (0.089, 0.66),
}  # fmt: skip


def planted(folder: Path, **changed: tuple[float, float]) -> list[dict[str, Any]]:
    """One source an arm, with the paper's errors unless they are changed."""
    noise = np.random.default_rng(0).normal(1.0, 0.02, (1, 20, 5))
    noise /= noise.mean(axis=(0, 1), keepdims=True)
    rows = []
    for arm, errors in (CONTROLLED | REFERENCES | changed).items():
        own = arm in REFERENCES
        measure, name = ("own-head", "head") if own else ("value", "persistent")
        row: dict[str, Any] = {"world": "spring", "arm": arm, "label": EVERY_RECIPE[arm].label, "seed": 0}
        row |= {"strata": STRATA, "validation": {}}
        kept = {}
        for panel, error in zip(("cold", "full"), errors, strict=True):
            row |= {f"head_{panel}": error} if own else {f"reader0_{panel}_{r}": error for r in ("persistent", "null")}
            # Two readers, of which the second is far worse and not of this table.
            kept[f"{name}|{panel}"] = error * noise if own else error * np.concatenate([noise, 3 * noise])
            kept[f"null|{panel}"] = 2 * kept[f"{name}|{panel}"]
        save_file(kept, folder / f"{arm}.safetensors")
        rows.append(row | {"arrays": {measure: str(folder / f"{arm}.safetensors")}})
    return rows


def verdicts(rows: list[dict[str, Any]]) -> dict[str, str]:
    claims = [claim for claim in ONE.claims if "supervised" in claim.text]
    return {verdict.text: verdict.status for verdict in judge(claims, rows)}


def test_a_reference_is_printed_by_its_own_head(tmp_path: Path) -> None:
    rows = planted(tmp_path)
    table = ONE.tables([*rows, {"world": "spring", "arm": "cross", "label": "Cross", "seed": 0}])[0]
    printed = {line[0]: [float(cell.split()[0]) for cell in line[1:]] for line in table.rows}
    expected = {EVERY_RECIPE[arm].label: list(errors) for arm, errors in (CONTROLLED | REFERENCES).items()}
    assert printed.keys() == expected.keys()
    for label, errors in expected.items():
        assert printed[label] == pytest.approx(errors, abs=6e-4)


def test_statements_of_the_references(tmp_path: Path) -> None:
    rows = planted(tmp_path)
    assert set(verdicts(rows).values()) == {HELD}
    assert len(verdicts(rows)) == 3
    fewer = [row for row in rows if row["arm"] != "reference-deepsets"]
    found = verdicts(fewer)
    assert list(found.values()).count(UNTESTED) == 2
    worse = tmp_path / "worse"
    worse.mkdir()
    found = verdicts(planted(worse, **{"reference-tcn": (0.12, 0.9)}))
    assert set(found.values()) == {FAILED}
