"""What the arms of the common reader put into their persistent slot (`app:reader-interfaces`)."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sprii_train.analysis.formation import Probe
from sprii_train.analysis.populations import Training, check_fit
from sprii_train.analysis.value.cases import Cases, codes
from sprii_train.analysis.value.log_factors import LogFactors, fit_decoder, fit_log_factors

Arm = Literal["null", "persistent", "decode", "oracle", "shuffled"]
ARMS: tuple[Arm, ...] = get_args(Arm)


@dataclass(frozen=True, eq=False)
class Slot:
    """The slot's input (n, s) as a function of cases, with all that was fitted for it.

    Attributes:
        arm: null (zeros), persistent (the donor's code), decode (ridge estimates of the log factors from that code),
            oracle (the true log factors) or shuffled (the code of another system's donor).
        width: of the slot.
        donor_seed: of the shuffled donors.
        factors: of decode and oracle, which the reader maps to the slot.
        decoder: of decode.
    """

    arm: Arm
    width: int
    donor_seed: int
    factors: LogFactors | None = None
    decoder: tuple[Probe, ...] | None = None

    def __call__(self, cases: Cases[Any]) -> NDArray[Any]:
        """(n, width), or (n, F) for decode and oracle.

        Raises:
            ValueError: for cases that lack what the arm reads, or whose codes are not as wide as the slot.
        """
        if self.arm == "null":
            return np.zeros((len(cases), self.width), np.float32)
        if self.factors is not None:
            return self.factors.true(cases) if self.decoder is None else self.factors.decoded(self.decoder, cases)
        context = codes(cases.mismatched(self.donor_seed) if self.arm == "shuffled" else cases)
        if context.shape[1] != self.width:
            raise ValueError(f"donor codes have {context.shape[1]} dimensions; the slot has {self.width}")
        return context


def fit_slot(cases: Cases[Training], arm: Arm, width: int, *, donor_seed: int, penalties: tuple[float, ...]) -> Slot:
    """The slot of an arm; factor statistics and the decoder come from these training cases.

    Args:
        penalties: of the decoder, selected by cross-validation over training systems.

    Raises:
        PopulationError: for cases of another population.
        ValueError: for an unknown arm.
    """
    check_fit(cases.population, f"the reader {arm!r}")
    if arm not in ARMS:
        raise ValueError(f"unknown arm {arm!r}; legal: {', '.join(ARMS)}")
    factors = fit_log_factors(cases) if arm in ("decode", "oracle") else None
    decoder = fit_decoder(cases, factors, penalties) if factors and arm == "decode" else None
    return Slot(arm, width, donor_seed, factors, decoder)
