"""One learner, one file. `LEARNERS` maps the name in a checkpoint to (class, config class)."""

from typing import Any

from torch import nn

from sprii_train.learners.ad import AD, ADConfig
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.learners.jepa import JEPA, JEPAConfig

LEARNERS: dict[str, tuple[type[nn.Module], type[Any]]] = {
    "jepa": (JEPA, JEPAConfig),
    "cadm": (CaDM, CaDMConfig),
    "ad": (AD, ADConfig),
}

__all__ = ["AD", "JEPA", "LEARNERS", "ADConfig", "CaDM", "CaDMConfig", "JEPAConfig"]
