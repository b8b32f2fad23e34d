"""Episodes that an agent acted in, as a measure's row has them, and the course of each group's first one."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.evaluation import Evaluation, evaluate_agent

Courses = dict[str, NDArray[np.float64]]


def acted(agent: Any, env_id: str, **options: Any) -> tuple[dict[str, Any], Courses]:
    """Rows of every group, for JSON, and the seconds that took; `GROUP|states` and `GROUP|values` of each first one.

    Args:
        options: of `evaluate_agent`.
    """
    began = time.perf_counter()
    found = evaluate_agent(agent, env_id, record=True, progress=False, **options)
    row = {"evaluation_seconds": time.perf_counter() - began, "groups": rows(found)}
    return row, {f"{g}|{name}": getattr(e, name)[0] for g, e in found.groups.items() for name in ("states", "values")}


def rows(found: Evaluation) -> dict[str, dict[str, Any]]:
    """Returns, successes, properties and the hash of systems and starts, by group."""
    made = {}
    for name, own in found.groups.items():
        assert own.success is not None
        made[name] = {
            "return": float(own.returns.mean()),
            "success": float(own.success.mean()),
            "returns": own.returns.tolist(),
            "successes": own.success.tolist(),
            **{each: own.values[:, i].tolist() for i, each in enumerate(found.properties)},
            "starts": own.starts,
        }
    return made
