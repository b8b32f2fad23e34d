"""Measures of Use on a source of the small SpringWorld bank, against plain computations."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_sources import measuring

from sprii_envs.banks import Bank
from sprii_train.analysis.use import TRANSFORMS, pulse_queries, query_targets
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.sources import Source


def test_response_shares(spring_source: Source, spring_bank: Bank):
    """Shares from differences of every two levels, ball by ball; a spring moves the balls about their centre alone."""
    source = replace(spring_source, cell=measuring(spring_source.cell, "response"))
    row = MEASURES["response"](source)
    kept = load_file(source.folder / source.cell.arrays)
    table = spring_bank.split("validation")
    queries = pulse_queries(spring_bank, table.select(table["group"] == "continuous"))
    for transform in TRANSFORMS:
        assert row[f"simulator_share_stiffness_{transform}"] == pytest.approx(1.0, abs=1e-6)
    for factor in ("mass", "drag", "stiffness"):
        found = query_targets(spring_bank, queries, factor, kept[f"{factor}|levels"]).states.astype(np.float64)
        moved = found[:, :, 16] - found[:, :, 0]
        np.testing.assert_allclose(kept[f"{factor}|course"], found[0] - found[0][:, :1])
        centre, relative = np.zeros(len(moved)), np.zeros(len(moved))
        for i, one in enumerate(moved):
            for a in one:
                for b in one:
                    x1, y1, x2, y2, u1, v1, u2, v2 = a - b
                    centre[i] += sum((p + q) ** 2 / 2 for p, q in ((x1, x2), (y1, y2), (u1, u2), (v1, v2))) / 50
                    relative[i] += sum((p - q) ** 2 / 2 for p, q in ((x1, x2), (y1, y2), (u1, u2), (v1, v2))) / 50
        for transform, common, apart in (("orthonormal", 1.0, 1.0), ("mean-difference", 0.5, 2.0)):
            name, both = f"{factor}|{transform}|simulator", (common * centre, apart * relative)
            np.testing.assert_allclose(kept[f"{name}_centre"], both[0], atol=1e-12)
            np.testing.assert_allclose(kept[f"{name}_relative"], both[1], rtol=1e-6)
            share = both[1].sum() / (both[0] + both[1]).sum()
            assert row[f"simulator_share_{factor}_{transform}"] == pytest.approx(share)
        read = {part: kept[f"{factor}|orthonormal|reader_{part}"] for part in ("centre", "relative")}
        assert row[f"reader_relative_minus_centre_{factor}_orthonormal"] == pytest.approx(
            (read["relative"] - read["centre"]).mean()
        )
        last = kept[f"{factor}|predicted"][:, -1]
        whole = np.square(last - last.mean(0)).sum() / len(last)  # the transform keeps the norm
        assert read["centre"][0] + read["relative"][0] == pytest.approx(whole)
