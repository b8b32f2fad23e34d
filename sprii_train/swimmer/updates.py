"""Persistent updates of a frozen base, and adapters that are fitted to them (`app:fixed-weight`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_train.fit import TrainConfig
from sprii_train.learners.segments import Adapter, SegmentLearner
from sprii_train.protocol import Windows
from sprii_train.selection import Selected, Selection, fit_selected, mean_loss
from sprii_train.swimmer.rows import H, Places, SegmentTable, Shuffled, every_row, windows

ADAPTER_SEEDS = (86101, 86103, 86107)
EPOCHS, LEAST, PATIENCE = 20, 5, 3
"""Of an adapter, at most and at least; and after the best one."""


@dataclass(frozen=True, eq=False)
class FrozenCodes:
    """What a frozen base says of the segments of a split; S systems, N draws.

    Attributes:
        anchor: (S, N, H, d), context of the anchor alone.
        both: (S, N, H, C, d), of the anchor and the candidate.
        delta: (S, N, H, C, m), what an adapter is handed: `both` − `anchor`, or what stands for it.
        query: (S, N, Q, d).
        targets: (S, N, Q, 32).
    """

    anchor: Tensor
    both: Tensor
    delta: Tensor
    query: Tensor
    targets: Tensor

    def of(self, at: Places) -> dict[str, Tensor]:
        """Δ, context and embedded query of rows."""
        s, n = at.system, at.draw
        return {
            "delta": self.delta[s, n, at.anchor, at.candidate],
            "both": self.both[s, n, at.anchor, at.candidate],
            "query": self.query[s, n, at.query],
        }


@torch.no_grad()
def frozen_codes(base: SegmentLearner, table: SegmentTable) -> FrozenCodes:
    """Codes of all segments of a split."""
    anchor = base.segment(table.anchors)
    candidate = base.segment(table.candidates)
    one, two = [], []
    for h in range(H):
        first = anchor[:, :, h, None].expand(candidate.shape)
        pairs = torch.stack([first, candidate], dim=-2)
        shape = pairs.shape[:-2]
        flat = pairs.flatten(0, -3)
        two.append(base.aggregate(flat, torch.ones(len(flat), 2)).view(*shape, -1))
        alone = pairs[:, :, 0].flatten(0, 1)
        one.append(base.aggregate(alone, torch.tensor([[1.0, 0.0]]).expand(len(alone), 2)).view(*shape[:2], -1))
    z_1, z_2 = torch.stack(one, dim=2), torch.stack(two, dim=2)
    return FrozenCodes(z_1, z_2, z_2 - z_1[:, :, :, None], base.query(table.queries), table.targets)


def shuffled(codes: FrozenCodes, seed: int) -> FrozenCodes:
    """Every Δ is another system's, of the same draw and waveforms."""
    order = np.random.default_rng(seed).permutation(len(codes.delta))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    return replace(codes, delta=codes.delta[other])


def told(codes: FrozenCodes, scales: Tensor) -> FrozenCodes:
    """Every Δ is the five true scales of the system, standardised: what an oracle would say of it."""
    return replace(codes, delta=scales[:, None, None, None].expand(*codes.delta.shape[:-1], scales.shape[1]))


def adapter_windows(base: SegmentLearner, codes: FrozenCodes, at: Places) -> Windows:
    """What an adapter sees of rows, the base's latent among it."""
    seen = codes.of(at)
    with torch.no_grad():
        latent = base.latent(seen["query"], seen.pop("both"))
    return windows(seen | {"latent": latent}, codes.targets[at.system, at.draw, at.query])


class UpdateBatches:
    """Batches of rows with both segments, a pure function of the step: call it with one.

    Args:
        base: frozen.
        codes: of the training systems.
        fingerprint: of what base and codes come from.
        pairs: half the rows of a batch.
        epoch: updates of an epoch.
    """

    def __init__(
        self, base: SegmentLearner, codes: FrozenCodes, fingerprint: str, *, pairs: int, epoch: int, seed: int
    ) -> None:
        self._base, self._codes, self.fingerprint = base, codes, fingerprint
        self.pairs, self.epoch, self.seed = pairs, epoch, seed
        self._rows = Shuffled(codes.delta.shape[0], codes.delta.shape[1], (2,), 2 * pairs, epoch, seed)

    def identity(self) -> dict[str, Any]:
        """What the windows depend on; `fit` keeps it with the run."""
        return {"of": self.fingerprint, "pairs": self.pairs, "epoch": self.epoch, "seed": self.seed}

    def __call__(self, step: int) -> Windows:
        """Windows of an update."""
        return adapter_windows(self._base, self._codes, self._rows(step))


def fit_adapter(
    base: SegmentLearner,
    train: FrozenCodes,
    selection: FrozenCodes,
    systems: NDArray[np.int64],
    folder: Path,
    *,
    fingerprint: str,
    updates: int,
    pairs: int,
    seed: int,
) -> tuple[Adapter, Selected]:
    """An adapter with the weights of the epoch that had the lowest error on rows of the selection systems.

    Args:
        base: frozen; nothing of it changes.
        train, selection: codes of those splits.
        systems: rows of `selection` that count.
        folder: of checkpoints and records.
        fingerprint: of what base and codes come from.
        updates: at most, `EPOCHS` epochs.
    """
    epoch = max(1, updates // EPOCHS)
    config = TrainConfig(
        steps=EPOCHS * epoch, pairs=pairs, learning_rate=1e-3, weight_decay=1e-4, warmup=0, clip=1e9,
        rates=((0, 1e-3),), precision="fp32", seed=seed, checkpoint_every=epoch, log_every=epoch,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapter = Adapter(base, train.delta.shape[-1])
    held = adapter_windows(base, selection, every_row(systems, selection.delta.shape[1], (2,)))
    loss: Callable[[Any], float] = lambda learner: mean_loss(learner, held)  # noqa: E731
    kept = Selection(loss, folder / "best.safetensors", epoch, LEAST, PATIENCE)
    data = UpdateBatches(base, train, fingerprint, pairs=pairs, epoch=epoch, seed=seed)
    chosen = fit_selected(adapter, data, config, folder, kept)
    return adapter, chosen
