"""How the gradients of Align and Cross on the persistent encoder g_p lie to each other (`app:spring-gradient`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.protocol import Objective, Windows, align_terms, cross_loss, encode, evaluation_mode
from sprii_train.randomness import torch_seed
from sprii_train.records import read_rows


class GradientRelation(NamedTuple):
    """Norms of the unweighted gradients, and their cosine: None where a norm is zero or not finite."""

    align_norm: float
    cross_norm: float
    cosine: float | None


def gradient_relation(
    learner: nn.Module,
    windows: Windows,
    objective: Objective,
    *,
    seed: int = 0,
    step: int = 0,
    encoder: str = "history",
) -> GradientRelation:
    """∇Align and ∇Cross on the parameters of g_p, of one stacked batch.

    The learner is in evaluation mode meanwhile: no dropout, and no statistic of the batch is taken or left behind.
    Parameters, their `grad`, modes, buffers and random states stay as they were.

    Args:
        windows: n donors stacked on n recipients; in a process group a rank's own, and every rank calls this.
        objective: its weights within Align, and the directions of Cross; λ_p and λ_x do not count.
        seed, step: of whatever the learner draws.
        encoder: name of the submodule that is g_p.

    Raises:
        ValueError: if there is no such submodule.
    """
    parameters = [p for p in _submodule(learner, encoder).parameters() if p.requires_grad]
    device = windows.actions.device
    with (
        evaluation_mode(learner),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.backends.cudnn.flags(enabled=False),  # its recurrent layers have no backward pass in this mode
    ):
        torch.manual_seed(torch_seed(seed, step))
        batch = learner.prepare(windows)  # type: ignore[operator]
        codes = encode(learner, batch)  # type: ignore[arg-type]
        terms = align_terms(learner, batch, codes, objective)  # type: ignore[arg-type]
        losses = terms.total, cross_loss(learner, batch, codes, objective)  # type: ignore[arg-type]
        align, cross = (distributed.average(_gradient(loss, parameters)) for loss in losses)
    norms = float(align.norm()), float(cross.norm())
    valid = all(0.0 < norm < float("inf") for norm in norms)
    return GradientRelation(*norms, float(align @ cross) / (norms[0] * norms[1]) if valid else None)


@dataclass(frozen=True)
class GradientDiagnostic:
    """`gradient_relation` as a diagnostic of `fit`, of the batch of every hundredth update, after it.

    Attributes:
        every: updates between two observations.
        encoder: name of the submodule that is g_p.
        name: of the file, `<name>.jsonl`.
    """

    every: int = 100
    encoder: str = "history"
    name: str = "gradients"

    def __post_init__(self) -> None:
        check(self, integer, "every", least=1)
        check(self, instance, "encoder", "name", of=str)

    def check(self, learner: nn.Module) -> None:
        """ValueError, before training, for a learner without that submodule, or one whose parameters are frozen."""
        if not any(p.requires_grad for p in _submodule(learner, self.encoder).parameters()):
            raise ValueError(f"the submodule {self.encoder!r} has no parameter with a gradient; legal: one that trains")

    def __call__(
        self, learner: nn.Module, windows: Windows, objective: Objective, seed: int, step: int
    ) -> dict[str, Any]:
        """One row."""
        return gradient_relation(learner, windows, objective, seed=seed, step=step, encoder=self.encoder)._asdict()


@dataclass(frozen=True)
class GradientObservations:
    """Rows of the diagnostic of several sources, one of each (n,); `cosine` is NaN where it is not defined."""

    source: NDArray[np.int64]
    step: NDArray[np.int64]
    align_norm: NDArray[np.float64]
    cross_norm: NDArray[np.float64]
    cosine: NDArray[np.float64]

    def select(self, rows: NDArray[np.bool_]) -> "GradientObservations":
        """Some of the rows."""
        return GradientObservations(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def read_gradients(folders: Mapping[int, str | Path], name: str = "gradients") -> GradientObservations:
    """What the diagnostic wrote in the runs' folders, by source.

    Raises:
        FileNotFoundError: for a run without it.
        CheckpointError: for a file that is damaged.
    """
    rows = [
        (source, row["step"], row["align_norm"], row["cross_norm"], np.nan if row["cosine"] is None else row["cosine"])
        for source, folder in folders.items()
        for row in _rows(Path(folder) / f"{name}.jsonl")
    ]
    source, step, *values = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return GradientObservations(source.astype(np.int64), step.astype(np.int64), *values)


@dataclass(frozen=True)
class GradientSummary:
    """Columns of `tab:spring-gradient-distribution` and `tab:spring-gradient-source-phase`.

    Attributes:
        valid: observations with a cosine; `mean` to `negative` are of these.
        mean, q1, median, q3: of the cosine.
        negative: per cent of the valid ones.
        zero_norm: per cent of all observations in which a gradient is zero.
        align_norm, cross_norm: medians over all observations.
    """

    valid: int
    mean: float
    q1: float
    median: float
    q3: float
    negative: float
    zero_norm: float
    align_norm: float
    cross_norm: float


def summarise(observations: GradientObservations) -> GradientSummary:
    """All observations pooled; NaN for what no observation tells.

    Raises:
        ValueError: without any observation.
    """
    if not len(observations.cosine):
        raise ValueError("there is no gradient observation: the run is shorter than the diagnostic's interval")
    cosine = observations.cosine[~np.isnan(observations.cosine)]
    quartiles = np.quantile(cosine, (0.25, 0.5, 0.75)) if len(cosine) else np.full(3, np.nan)
    zero = (observations.align_norm == 0.0) | (observations.cross_norm == 0.0)
    return GradientSummary(
        len(cosine),
        float(cosine.mean()) if len(cosine) else np.nan,
        *quartiles.tolist(),
        negative=100.0 * float((cosine < 0.0).mean()) if len(cosine) else np.nan,
        zero_norm=100.0 * float(zero.mean()),
        align_norm=float(np.median(observations.align_norm)),
        cross_norm=float(np.median(observations.cross_norm)),
    )


def by_source(observations: GradientObservations) -> dict[int, GradientSummary]:
    """A summary of each source."""
    sources = np.unique(observations.source).tolist()
    return {source: summarise(observations.select(observations.source == source)) for source in sources}


def by_phase(observations: GradientObservations, steps: int) -> dict[str, GradientSummary]:
    """Summaries of the thirds (0, steps/3], (steps/3, 2·steps/3] and (2·steps/3, steps] that have observations."""
    steps = integer("steps", steps, least=1)
    third = (3 * observations.step - 1) // steps
    phases = {name: third == i for i, name in enumerate(("early", "middle", "late"))}
    return {name: summarise(observations.select(rows)) for name, rows in phases.items() if rows.any()}


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: that run was trained without the diagnostic")
    rows = read_rows(path, ["align_norm", "cross_norm"])
    for line, row in enumerate(rows, 1):
        if not isinstance(row.get("cosine", ""), float | int | None):
            raise CheckpointError(f"{path}, line {line} is damaged: no cosine; remove the folder {path.parent}")
    return rows


def _submodule(learner: nn.Module, name: str) -> nn.Module:
    try:
        return learner.get_submodule(name)
    except AttributeError:
        raise ValueError(
            f"{type(learner).__name__} has no submodule {name!r} whose gradients could be compared; legal: "
            f"{', '.join(child for child, _ in learner.named_children())}"
        ) from None


def _gradient(loss: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Of all parameters in one vector, float64; zero where the loss does not reach."""
    grads = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([grad.flatten().double() for grad in grads])
