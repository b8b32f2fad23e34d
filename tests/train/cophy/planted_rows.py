"""Rows of sources of CoPhy's scenes made by hand, with arrays by recipient, in the form that the measure has."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from sprii_train.experiments.measures.cophy import POPULATIONS, READERS, compared
from sprii_train.experiments.targets import Target
from sprii_train.recipes import EVERY_RECIPE

Row = dict[str, Any]
FACTORS = ("mass", "friction", "restitution")
RECIPIENTS = 40


def planted(
    target: Target, folder: Path, seeds: Sequence[int], *, arms: Sequence[str] | None = None,
    error: Callable[[str, str, int], float] = lambda world, arm, seed: 1.0, noise: float = 0.2,
) -> list[Row]:  # fmt: skip
    """Rows as `reproduce` hands them to a target.

    Args:
        error: (world, arm, seed) → mean error with matched histories; others lie above it.
        noise: of errors by recipient and of R².
    """
    rows: dict[tuple[str, str, int], Row] = {}
    for group in target.groups:
        for seed in seeds:
            for arm in group.recipes:
                if arms is None or arm in arms:
                    key = (group.world, arm, seed)
                    rows[key] = _row(folder, *key, error(*key), noise, group.measures)
    return list(rows.values())


def _row(folder: Path, world: str, arm: str, seed: int, level: float, noise: float, measures: Sequence[str]) -> Row:
    rng = np.random.default_rng([seed, *f"{world} {arm}".encode()])
    place = folder / f"{world}-{arm}-{seed}"
    place.mkdir(exist_ok=True)
    row: Row = {"world": world, "arm": arm, "label": EVERY_RECIPE[arm].label, "seed": seed, "folder": str(place)}
    row |= {"arrays": {}, "recipients": {}, "errors": {}, "rise": {}}
    scale = np.linspace(0.5, 1.5, RECIPIENTS) * (1.0 + noise * rng.standard_normal(RECIPIENTS).clip(-2, 2))
    scale *= level / scale.mean()
    if "cophy-readers" in measures:
        kept = {f"readers|{name}": scale * rng.uniform(0.9, 1.1) ** bool(noise) for name in READERS}
        row["readers"] = {name.partition("|")[2]: float(values.mean()) for name, values in kept.items()}
        save_file(kept, place / "readers.safetensors")
        row["arrays"]["cophy-readers"] = str(place / "readers.safetensors")
        return row
    kept: dict[str, Any] = {}
    factors = ("mass", "friction", "gravity") if world.endswith("blocktower") else FACTORS
    for population in POPULATIONS:
        above = {"null": 1.5, "wrong": 2.0, "repeat": 1.1, "s5": 0.98, "s8": 0.96, "still": 3.0, "moving": 2.5}
        above |= {"wrong_mass": 1.01, "wrong_friction": 1.005, "wrong_restitution": 1.6}
        if not noise:
            above = dict.fromkeys(above, 1.0)
        errors = {"matched": scale, "s3": scale} | {name: times * scale for name, times in above.items()}
        errors["s8"] = np.where(np.arange(RECIPIENTS) % 2, errors["s8"], np.nan)
        own = compared(errors)
        row["recipients"] |= {population: RECIPIENTS, "s5": len(own["s5"]), "s8": len(own["s8"])}
        row["errors"][population] = {name: float(values.mean()) for name, values in own.items()}
        row["rise"][population] = {
            f: float((own[f"wrong_{f}"] - own[f"wrong_{f}:matched"]).mean()) for f in FACTORS
        }  # fmt: skip
        kept |= {f"{population}|{name}": values for name, values in own.items()}
    base = {"restitution": 0.8, "gravity": 0.1} if noise else {}
    row["probe"] = {
        channel: {f: base.get(f, 0.0) + 0.1 * noise * rng.standard_normal() for f in factors} for channel in "USM"
    }
    if arm == "cophy-rssm-structure":
        kinds = [
            f"{name}_{condition}" for name in ("untrained", "oracle") for condition in ("matched", "null", "wrong")
        ]
        row["baseline"] = {population: {kind: 1.0 + rng.random() for kind in kinds} for population in POPULATIONS}
    row["frontend"] = {"split": "validation", "frames": 9} | {
        who: {"position_rmse": rmse} for who, rmse in (("trained", 0.25), ("constant", 2.0), ("untrained", 2.5))
    }
    row["geometry"] = {channel: 1.0 + noise * rng.random() for channel in "USM"}
    kept |= {
        f"shown|{name}": rng.standard_normal((5, 2, 3)).astype(np.float32) for name in ("true", "matched", "wrong")
    }
    kept |= {"shown|given": rng.standard_normal((3, 2, 3)).astype(np.float32)}
    kept |= {"shown|seen": np.ones(2, np.int64), "shown|slot": np.arange(2)}
    save_file({name: np.ascontiguousarray(values) for name, values in kept.items()}, place / "cophy.safetensors")
    row["arrays"]["cophy"] = str(place / "cophy.safetensors")
    lines = [f'{{"step": {step}, "kl": {2.0 / step}, "free_nats": {0.1 * step}}}' for step in (1, 2, 3)]
    (place / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return row
