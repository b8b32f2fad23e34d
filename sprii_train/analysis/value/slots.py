"""What the arms of the common reader put into their persistent slot (`app:reader-interfaces`)."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sprii_envs.properties import unknown_name
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
        arm: null (zeros), persistent (the donor's code; zeros for an empty one), decode (ridge estimates of the log
            factors from that code), oracle (the true log factors) or shuffled (the code of another system's donor).
        width: of the slot.
        code: width of the donor codes that it was fitted for; 0 where there were none.
        donor_seed: of the shuffled donors.
        factors: of decode and oracle, which the reader maps to the slot.
        decoder: of decode.
        project: codes of the slot's width are mapped too.
    """

    arm: Arm
    width: int
    code: int
    donor_seed: int
    factors: LogFactors | None = None
    decoder: tuple[Probe, ...] | None = None
    project: bool = False

    @property
    def mapped(self) -> int:
        """Inputs that the reader takes to the slot by a linear map: factors, codes of another width; 0: none."""
        if self.factors is not None:
            return len(self.factors)
        if self.arm not in ("persistent", "shuffled"):
            return 0
        return self.code if self.project or self.code != self.width else 0

    def __call__(self, cases: Cases[Any]) -> NDArray[Any]:
        """(n, width), (n, F) for decode and oracle, or codes (n, code) of another width.

        Raises:
            ValueError: for cases that lack what the arm reads, or whose codes are not as wide as those of the fit.
        """
        if self.arm == "null":
            return np.zeros((len(cases), self.width), np.float32)
        if self.factors is not None:
            return self.factors.true(cases) if self.decoder is None else self.factors.decoded(self.decoder, cases)
        context = codes(cases.mismatched(self.donor_seed) if self.arm == "shuffled" else cases)
        if context.shape[1] != self.code:
            raise ValueError(f"donor codes have {context.shape[1]} dimensions; the reader was fitted for {self.code}")
        return context if self.code else np.zeros((len(cases), self.width), np.float32)


def fit_slot(
    cases: Cases[Training],
    arm: Arm,
    width: int,
    *,
    donor_seed: int,
    penalties: tuple[float, ...],
    log_factors: bool = True,
    project: bool = False,
) -> Slot:
    """The slot of an arm; factor statistics and the decoder come from these training cases.

    Args:
        log_factors: decode and oracle read the factors' logs; False: the factors themselves.
        project: codes of the slot's width are mapped too.
        penalties: of the decoder, selected by cross-validation over training systems.

    Raises:
        PopulationError: for cases of another population.
        ValueError: for an unknown arm.
    """
    check_fit(cases.population, f"the reader {arm!r}")
    if arm not in ARMS:
        raise unknown_name("arm", arm, ARMS)
    factors = fit_log_factors(cases, log=log_factors) if arm in ("decode", "oracle") else None
    decoder = fit_decoder(cases, factors, penalties) if factors and arm == "decode" else None
    code = 0 if cases.context is None else cases.context.shape[1]
    return Slot(arm, width, code, donor_seed, factors, decoder, project)
