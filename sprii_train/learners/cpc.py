"""CPC over windows of states or frames (`tab:spring-complete`; van den Oord et al. 2018): the controlled JEPA's
networks, discrimination of the future in place of its squared error.

    ℓ_ih = −log exp(cos(ê_ih, e_ih)/τ) / Σ_j exp(cos(ê_ih, e_jh)/τ)        τ = 0.1
    L_base = mean_ih ℓ_ih + 0.02·SIGReg(e)

Candidates j of window i at horizon h are the embeddings that all windows of the batch have at that horizon: in Cross,
those of the recipients. The paper prints its sizes and losses for CoPhy alone (`learners.object_cpc`), and of
SpringWorld no more than the row. Ours are by analogy: the loss of the former, stem, history encoder, predictor, codes
and SIGReg of the JEPA that it is compared with. What is left out of the original is its autoregressive network, in
whose place z_p and z_s stand, and its linear map for each step, in whose place the predictor does.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sprii_envs.arguments import check, instance, number
from sprii_train.distributed import gather, rank
from sprii_train.learners.jepa import JEPA, JEPAConfig


@dataclass(frozen=True)
class CPCConfig(JEPAConfig):
    """Sizes; those of the controlled JEPA.

    Attributes:
        temperature: τ.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "temperature", above=0)

    @classmethod
    def like(cls, jepa: JEPAConfig) -> "CPCConfig":
        """The CPC with the networks of a JEPA."""
        return cls(**asdict(jepa))


class CPC(JEPA):
    """The learner; its operations are those of the controlled JEPA."""

    def __init__(self, config: CPCConfig) -> None:
        super().__init__(instance("config", config, of=CPCConfig))
        self.temperature = config.temperature

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean over horizons of InfoNCE among the batch, (B,)."""
        return info_nce(prediction, y, temperature=self.temperature).mean(-1)

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared embedding error at each horizon, (B, K) float32, of predictions as long as their targets.

        A measured population has no fixed candidates, and the cosine leaves the length of a prediction open.
        """
        y = y.float()
        return (F.normalize(prediction.float(), dim=-1) * y.norm(dim=-1, keepdim=True) - y).square().mean(-1)


def info_nce(prediction: Tensor, y: Tensor, *, temperature: float) -> Tensor:
    """−log of the share of a window's own target among those of all windows, at each horizon.

    Args:
        prediction, y: (B, K, D); in a process group candidates are the targets of all ranks.

    Returns:
        (B, K) float32.
    """
    b, k, _ = prediction.shape
    with torch.autocast(prediction.device.type, enabled=False):
        asked, keys = (F.normalize(x.float(), dim=-1).transpose(0, 1) for x in (prediction, gather(y.float())))
        scores = asked @ keys.transpose(1, 2) / temperature
        own = torch.arange(b, device=scores.device) + rank() * b
        return F.cross_entropy(scores.flatten(0, 1), own.repeat(k), reduction="none").view(k, b).T
