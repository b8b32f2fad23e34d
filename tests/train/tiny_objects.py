"""Small windows of objects made by hand: recipients with videos of their own, donor rows with others'."""

import torch
from torch import Tensor

from sprii_train.cophy.windows import ObjectWindows


def object_windows(
    pairs: int = 4,
    *,
    objects: int = 3,
    slots: int = 4,
    features: int = 6,
    frames: int = 8,
    videos: int = 3,
    absent: bool = False,
    seed: int = 0,
) -> ObjectWindows:
    """2·pairs rows: donor rows with as many videos as objects at most, the queries of their recipients.

    Args:
        absent: every second recipient lacks its last object.
    """
    g = torch.Generator().manual_seed(seed)
    n, b = pairs, 2 * pairs

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    active = torch.ones(n, objects, dtype=torch.bool)
    if absent:
        active[::2, -1] = False
    slot = torch.stack([torch.randperm(slots, generator=g)[:objects].sort().values for _ in range(n)])
    kind = torch.randint(0, 2, (n, objects), generator=g).masked_fill(~active, -1)
    focal = torch.stack([row.nonzero()[torch.randint(int(row.sum()), (1,), generator=g), 0] for row in active]).view(n)
    seen = torch.zeros(b, videos, objects, dtype=torch.bool)
    seen[:n], seen[n:, 0] = True, active
    video = torch.stack([torch.randint(0, videos, (n, objects), generator=g), torch.zeros(n, objects).long()])
    place = torch.stack(
        [torch.randint(0, objects, (n, objects), generator=g), torch.arange(objects).expand(n, objects)]
    )
    query, poses, positions = (normal(n, frames, objects, size) for size in (features, 3, 3))
    still = torch.rand(n, frames, objects, generator=g) < 0.5
    return ObjectWindows(
        features=normal(b, videos, frames, objects, features) * seen[:, :, None, :, None],
        poses=normal(b, videos, frames, objects, 3) * seen[:, :, None, :, None],
        seen=seen, video=video.flatten(0, 1), place=place.flatten(0, 1),
        **{
            name: torch.cat([value, value])
            for name, value in {
                "query_features": query * active[:, None, :, None], "query_poses": poses, "active": active,
                "slot": slot, "kind": kind, "focal": focal, "positions": positions, "still": still,
            }.items()
        },
    )  # fmt: skip
