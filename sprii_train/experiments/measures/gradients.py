"""How the gradients of Align and Cross lay to each other while a source was trained (`app:spring-gradient`)."""

from dataclasses import asdict
from typing import Any

from sprii_train.analysis.gradients import by_phase, read_gradients, summarise
from sprii_train.experiments.sources import Source


def gradients(source: Source) -> dict[str, Any]:
    """The source's own summary and the mean cosine of each third; observations are kept beside the model.

    Raises:
        ValueError: for a source trained without the diagnostic.
    """
    try:
        observed = read_gradients({source.seed: source.folder})
    except FileNotFoundError:
        raise ValueError(
            f"{source.folder} was trained without the gradient diagnostic; legal: a source trained under Align and "
            "Cross. Remove the folder to train it again"
        ) from None
    source.keep(asdict(observed))
    phases = by_phase(observed, source.cell.train.steps)
    row = asdict(summarise(observed)) | {f"mean_{name}": phase.mean for name, phase in phases.items()}
    row["smallest_norm"] = float(min(observed.align_norm.min(), observed.cross_norm.min()))
    return {name: None if value != value else value for name, value in row.items()}
