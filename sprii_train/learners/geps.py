"""GEPS: a code scales a low-rank change of every layer, W_e = W + A diag(c_e) B (Koupaï et al. 2024).

    native     relative L2 error of rollouts by Euler's method
    new case   50 steps of Adam on the mean squared error, from the mean of the training codes

Biases and Swish's slopes move by a linear map of the code too. Three things of the released code are not copied: it
clips gradients after they were set to zero, ours are clipped before they are used; its solver is Euler's whatever the
config says, ours is an attribute; its map of the slopes is uninitialised, ours begins at zero, as in the paper's use.
The released plateau schedule is left out, and scheduled forcing is CoDA's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sprii_envs.arguments import instance
from sprii_train.fields.rings import RingWeights
from sprii_train.fields.rolling import euler
from sprii_train.learners.forecasters import Decoder, ForecasterConfig, PerEnvironment, normed, swish_slopes


@dataclass(frozen=True)
class GEPSConfig(ForecasterConfig):
    """Sizes; the defaults are those of the paper's Burgers."""

    code: int = 4
    kernel: int = 7
    adapt_rate: float = 1e-2


class LowRank(Decoder):
    """W + A diag(c) B of every layer, with biases and slopes."""

    def __init__(self, config: GEPSConfig) -> None:
        super().__init__()
        self.shapes, r = config.shapes, config.code
        self.kernels, self.left, self.right = (nn.ParameterList() for _ in range(3))
        self.biases, self.bias_maps = nn.ParameterList(), nn.ParameterList()
        for out, channels, width in self.shapes:
            inner = channels * width
            for held, shape in ((self.kernels, (out, inner)), (self.left, (out, r)), (self.right, (r, inner))):
                held.append(nn.Parameter(nn.init.orthogonal_(torch.empty(shape))))
            self.biases.append(nn.Parameter(torch.zeros(out)))
            self.bias_maps.append(nn.Parameter(torch.zeros(r, out)))
        self.slopes = nn.Parameter(swish_slopes(config.layers))
        self.slope_map = nn.Parameter(torch.zeros(r, config.layers - 1))

    def weights(self, codes: Tensor) -> RingWeights:
        """Codes (B, code) → weights of B networks."""
        kernels = [
            (w + (a * codes.unsqueeze(1)) @ b).view(-1, *shape)
            for w, a, b, shape in zip(self.kernels, self.left, self.right, self.shapes, strict=True)
        ]
        biases = [bias + codes @ moves for bias, moves in zip(self.biases, self.bias_maps, strict=True)]
        return RingWeights(kernels, biases, self.slopes + codes @ self.slope_map)


class GEPS(PerEnvironment):
    """The learner; its operations are those of `protocol.Learner`, with `EnvironmentWindows`."""

    solver = staticmethod(euler)

    def __init__(self, config: GEPSConfig) -> None:
        super().__init__(instance("config", config, of=GEPSConfig))
        self.decoder = LowRank(config)

    @property
    def start(self) -> Tensor:
        """The mean of the training codes."""
        return self.codes.mean(0)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Relative L2 error, (B,); codes are adapted on the mean squared one."""
        return normed(prediction - y, y)
