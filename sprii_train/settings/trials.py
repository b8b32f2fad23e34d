"""Episodes that an evaluation acts in under more than one planner."""

from dataclasses import dataclass

from sprii_train.control.controllers import Config
from sprii_train.settings.base import Trials


@dataclass(frozen=True)
class PlannedTrials(Trials):
    """Episodes under several planners.

    Attributes:
        planners: name → controller, in the order of the tables.
        histories: of training, which a fit's Gaussian and errors are of.
    """

    planners: tuple[tuple[str, Config], ...] = ()
    histories: int = 2_000
