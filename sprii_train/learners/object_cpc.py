"""CPC over the objects of CoPhy (`app:cophy-profile`): the towers of the object JEPA, conditional discrimination of the
future in place of its squared error.

    ℓ_it = −log exp(cos(x̂_it, x_it)/τ) / Σ_j exp(cos(x̂_it, x_jt)/τ)        τ = 0.1
    L_base = mean ℓ + 0.2·SIGReg(x)

Candidates j of object i at time t are the objects of the batch in its slot and of its visible type at that time, itself
among them. An object that has no other is not counted, and a row without a counted object neither: the mean of a
batch's losses is over the rows that count.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from sprii_envs.arguments import check, instance, number
from sprii_train.distributed import gather, rank
from sprii_train.learners.object_jepa import ObjectJEPA, ObjectJEPAConfig, Targets


@dataclass(frozen=True)
class ObjectCPCConfig(ObjectJEPAConfig):
    """Sizes of the object JEPA; the defaults are the paper's.

    Attributes:
        temperature: τ.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "temperature", above=0)


class ObjectCPC(ObjectJEPA):
    """The learner; its operations are those of the object JEPA."""

    def __init__(self, config: ObjectCPCConfig) -> None:
        super().__init__(instance("config", config, of=ObjectCPCConfig))
        self.temperature = config.temperature

    def object_losses(self, prediction: Tensor, y: Targets) -> tuple[Tensor, Tensor]:
        """InfoNCE at each time (B, K, O), and the objects that have a candidate besides themselves (B, O)."""
        b, times, objects, _ = prediction.shape
        keys = F.normalize(gather(y.x.float().transpose(1, 2).flatten(0, 1)), dim=-1).transpose(0, 1)
        asked = F.normalize(prediction.float().permute(1, 0, 2, 3).flatten(1, 2), dim=-1)
        slot, kind, active = (gather(tag.long().flatten()).long() for tag in (y.slot, y.kind, y.active))
        first = rank() * b * objects
        own = slice(first, first + b * objects)
        legal = (slot[own, None] == slot) & (kind[own, None] == kind) & (active[own, None] * active).bool()
        counted = legal.sum(1) > 1
        legal[:, own].fill_diagonal_(True)  # of absent objects, whose losses are none
        scores = (asked @ keys.transpose(1, 2) / self.temperature).masked_fill(~legal, float("-inf"))
        positive = scores[:, :, own].diagonal(dim1=1, dim2=2)
        losses = (scores.logsumexp(-1) - positive).masked_fill(~counted, 0.0)
        return losses.view(times, b, objects).transpose(0, 1), counted.view(b, objects)
