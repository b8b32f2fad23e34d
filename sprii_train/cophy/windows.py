"""What learners of objects consume: a query, and for each of its objects the video that its persistent code is of.

A row has up to V videos AB. A recipient's own is video 0, and its codes are of that one's objects. A donor row has the
query of its recipient, and each of its objects has a code from another episode: `video` and `place` say from where.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sprii_train.devices import demand, moved
from sprii_train.protocol import each

GIVEN = 3
"""Frames of a query that are given; the later ones are predicted."""


class ObjectWindows(NamedTuple):
    """B rows; where Cross or Align is on, n donor rows stacked on their n recipients. Features may be float16."""

    features: Tensor  # (B, V, T, O, F) of the videos that a row's persistent codes are read from
    poses: Tensor  # (B, V, T, O, 3) estimated positions in them
    seen: Tensor  # (B, V, O) bool, objects of each video; all False where a row has fewer than V
    video: Tensor  # (B, O) int64: object o's code is read from this video, or (B, O, K), the mean of K videos …
    place: Tensor  # the same: … at this object of it
    query_features: Tensor  # (B, T, O, F) of the query, whole: operations read its first `GIVEN` frames
    query_poses: Tensor  # (B, T, O, 3) estimated
    active: Tensor  # (B, O) bool, objects of the query
    slot: Tensor  # (B, O) int64, the objects' colours
    kind: Tensor  # (B, O) int64, their visible types
    focal: Tensor  # (B,) int64, the object that Cross's loss is of
    positions: Tensor  # (B, T, O, 3) true positions in the query: read by supervised learners only, as is …
    still: Tensor  # (B, T, O) bool: … whether an object rests

    @property
    def actions(self) -> Tensor:
        """(B, 0): nothing acts."""
        return self.positions.flatten(1)[:, :0]

    def to(self, device: torch.device | str) -> "ObjectWindows":
        """The same windows on a device."""
        return each(self, lambda tensor: moved(tensor, device))


def check_windows(windows: ObjectWindows, *, features: int | None = None, means: bool = False) -> None:
    """Shapes, types and references of a batch.

    Args:
        features: numbers of an object in a frame; None is any.
        means: whether an object may have several videos.

    Raises:
        ValueError: naming the field and what is legal.
    """
    w = windows
    if w.features.ndim != 5:
        raise ValueError(f"features have shape {tuple(w.features.shape)}; legal: (B, V, T, O, F)")
    b, v, t, o, f = w.features.shape
    if features is not None and f != features:
        raise ValueError(f"features have {f} numbers an object; legal: {features}, as the learner's config says")
    if w.query_features.ndim != 4 or w.query_features.shape[1] <= GIVEN:
        found = tuple(w.query_features.shape)
        raise ValueError(f"query_features have shape {found}; legal: ({b}, T, {o}, {f}), T at least {GIVEN + 1}")
    q = w.query_features.shape[1]
    several = w.video.shape[2:3] if means else ()
    legal = {
        "poses": (b, v, t, o, 3), "seen": (b, v, o), "video": (b, o, *several), "place": (b, o, *several),
        "query_features": (b, q, o, f), "query_poses": (b, q, o, 3), "active": (b, o), "slot": (b, o), "kind": (b, o),
        "focal": (b,), "positions": (b, q, o, 3), "still": (b, q, o),
    }  # fmt: skip
    for name, shape in legal.items():
        if (found := tuple(getattr(w, name).shape)) != shape:
            raise ValueError(f"{name} has shape {found}; legal: {shape}")
    for name, dtype in (
        *((name, torch.bool) for name in ("seen", "active", "still")),
        *((name, torch.int64) for name in ("video", "place", "slot", "kind", "focal")),
    ):
        if (found := getattr(w, name).dtype) != dtype:
            raise ValueError(f"{name} is of {found}; legal: {dtype}")
    for name, most in (("video", v), ("place", o), ("focal", o)):
        indices = getattr(w, name)
        demand(
            (indices >= 0) & (indices < most),
            name,
            lambda indices=indices, name=name, most=most: (
                f"{name} are {indices.min().item()} to {indices.max().item()}; legal: 0 to {most - 1}"
            ),
        )
    inactive = "focal names an object that is not active; legal: active ones"
    demand(w.active.gather(1, w.focal[:, None]), "focal", lambda: inactive)
    unseen = "an active object's code is of an object that is not in its video; legal: those in `seen`"
    demand(~w.active | at_source(w.seen, w).view(b, o, -1).all(-1), "objects of codes", lambda: unseen)


def at_source(values: Tensor, windows: ObjectWindows) -> Tensor:
    """What (B, V, O, …) says of the object that each object's code is read from: (B, O, …), or (B, O, K, …) of K."""
    rows = torch.arange(len(values), device=values.device).view(-1, *[1] * (windows.video.ndim - 1))
    return values[rows, windows.video, windows.place]
