"""The training loss of a batch whose activations do not fit: a part of the rows at a time, the same gradient.

Each part is computed without keeping its activations and again when its gradient is due (`torch.utils.checkpoint`), so
that two parts never stand together. What is of the whole batch, Align's and InfoNCE's statistics, is of all contexts:
they are as small as the batch, and kept.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sprii_envs.arguments import integer
from sprii_train.memory import hand_back_freed_memory
from sprii_train.protocol import (
    Learner,
    Objective,
    Windows,
    aligned_codes,
    check_objective,
    cross_loss,
    encode,
    take,
    with_relation,
)


def chunked_loss(
    learner: Learner, windows: Windows, objective: Objective, *, pairs: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """`protocol.training_loss` of parts of so many donors and their recipients; at the price of a further forward pass.

    The same number and gradient, but for the order of sums. A learner says by `native_by_window = True` that its native
    loss is a mean over windows, without statistics of a batch. Dropout draws part by part: its masks are others.

    Args:
        windows: 2n windows; row i is the donor of row n + i.
        pairs: in a part; the last one may have fewer.

    Raises:
        ValueError: for a learner that does not say so, an odd number of windows, no pairs in a part, or as
            `check_objective`.
    """
    if not getattr(learner, "native_by_window", False):
        raise ValueError(
            f"the native loss of {type(learner).__name__} may have statistics of a batch; legal in microbatches: a "
            "learner with native_by_window = True"
        )
    check_objective(learner, objective)
    integer("pairs", pairs, least=1)
    n, odd = divmod(len(windows.actions), 2)
    if odd:
        raise ValueError(f"chunked_loss needs n donors stacked on n recipients, got {2 * n + 1} windows")
    loss: Any = 0.0
    parts: dict[str, Any] = {}
    codes: list[tuple[Tensor, Tensor]] = []
    for begin in range(0, n, pairs):
        rows = torch.arange(begin, min(n, begin + pairs))
        both = torch.cat([rows, rows + n]).to(windows.actions.device)
        # Reentrant: a part leaves one node until its gradient is due, where a graph without tensors is 2 MB.
        anchor = torch.zeros((), device=both.device, requires_grad=True)
        part = partial(_part, learner, windows, both, objective)
        told: Any = checkpoint(lambda _, part=part: part(), anchor, use_reentrant=True)
        of_part, named, donors, recipients = told
        share = len(rows) / n
        loss = loss + share * of_part
        parts = {name: parts.get(name, 0.0) + share * value.detach() for name, value in named.items()}
        codes.append((donors, recipients))
    donors, recipients = (torch.cat(part) for part in zip(*codes, strict=True))
    loss = with_relation(loss, parts, donors, recipients, objective)
    return loss, {name: value.detach() for name, value in parts.items()}


def _part(
    learner: Learner, windows: Windows, rows: Tensor, objective: Objective
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """What is a mean over some windows, by name too, and their donors' and recipients' contexts.

    Rows are taken here, because what is handed in is held until the gradient is due.
    """
    hand_back_freed_memory()
    batch = learner.prepare(take(windows, rows))
    codes = encode(learner, batch)
    n = len(codes.z_p) // 2
    if objective.native_on == "all":
        loss, parts = learner.native_loss(batch, codes)
    else:
        loss, parts = learner.native_loss(take(batch, slice(n, None)), take(codes, slice(n, None)))
    if objective.lambda_x:
        term = cross_loss(learner, batch, codes, objective)
        loss, parts = loss + objective.lambda_x * term, parts | {"cross": term}
    return loss, parts, *aligned_codes(learner, batch, codes)
