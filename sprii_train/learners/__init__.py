"""One learner, one file. `LEARNERS` maps the name in a checkpoint to (class, config class)."""

from dataclasses import is_dataclass
from importlib.metadata import entry_points
from typing import Any

from torch import nn

from sprii_train.learners.ad import AD, ADConfig
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.learners.coda import AmortisedCoDA, AmortisedCoDAConfig, CoDA, CoDAConfig
from sprii_train.learners.contextual import Contextual, ContextualConfig
from sprii_train.learners.cophynet import CoPhyNet, CoPhyNetConfig
from sprii_train.learners.cpc import CPC, CPCConfig
from sprii_train.learners.dali import DALI, DALIConfig
from sprii_train.learners.fcrl import FCRL, FCRLConfig, TemporalFCRL, TemporalFCRLConfig
from sprii_train.learners.geps import GEPS, GEPSConfig
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.learners.multimodal import MultimodalConfig, MultimodalPredictor
from sprii_train.learners.nod import NOD, NODConfig
from sprii_train.learners.nod_hier import NODHier, NODHierConfig
from sprii_train.learners.nod_states import NODStates, NODStatesConfig
from sprii_train.learners.object_cpc import ObjectCPC, ObjectCPCConfig
from sprii_train.learners.object_jepa import ObjectJEPA, ObjectJEPAConfig
from sprii_train.learners.object_rssm import ObjectRSSM, ObjectRSSMConfig
from sprii_train.learners.pooled import PooledConfig, PooledDynamics
from sprii_train.learners.reference import Reference, ReferenceConfig
from sprii_train.learners.regression import Regression, RegressionConfig
from sprii_train.learners.rssm import RSSM, RSSMConfig
from sprii_train.learners.segments import MaskedGRU, MaskedGRUConfig, PersistentJEPA, PersistentJEPAConfig
from sprii_train.learners.supervised import SupervisedJEPA, SupervisedJEPAConfig
from sprii_train.learners.tactile import TactileConfig, TactileEncoder
from sprii_train.learners.tds import TDS, TDSConfig

LEARNERS: dict[str, tuple[type[nn.Module], type[Any]]] = {
    "jepa": (JEPA, JEPAConfig),
    "cadm": (CaDM, CaDMConfig),
    "contextual": (Contextual, ContextualConfig),
    "ad": (AD, ADConfig),
    "nod": (NOD, NODConfig),
    "nod-hier": (NODHier, NODHierConfig),
    "coda": (CoDA, CoDAConfig),
    "coda-amortised": (AmortisedCoDA, AmortisedCoDAConfig),
    "geps": (GEPS, GEPSConfig),
    "object-jepa": (ObjectJEPA, ObjectJEPAConfig),
    "object-cpc": (ObjectCPC, ObjectCPCConfig),
    "cophynet": (CoPhyNet, CoPhyNetConfig),
    "object-rssm": (ObjectRSSM, ObjectRSSMConfig),
    "persistent-jepa": (PersistentJEPA, PersistentJEPAConfig),
    "masked-gru": (MaskedGRU, MaskedGRUConfig),
    "tactile": (TactileEncoder, TactileConfig),
    "multimodal": (MultimodalPredictor, MultimodalConfig),
    "tds": (TDS, TDSConfig),
    "dali": (DALI, DALIConfig),
    "fcrl": (FCRL, FCRLConfig),
    "fcrl-temporal": (TemporalFCRL, TemporalFCRLConfig),
    "nod-states": (NODStates, NODStatesConfig),
    "cpc": (CPC, CPCConfig),
    "rssm": (RSSM, RSSMConfig),
    "reference": (Reference, ReferenceConfig),
    "pooled": (PooledDynamics, PooledConfig),
    "jepa-regression": (Regression, RegressionConfig),
    "jepa-supervised": (SupervisedJEPA, SupervisedJEPAConfig),
}
"""A learner is made by `cls(config)` and keeps the config as its attribute `config`."""

__all__ = [
    "AD",
    "CPC",
    "DALI",
    "FCRL",
    "GEPS",
    "JEPA",
    "LEARNERS",
    "NOD",
    "RSSM",
    "TDS",
    "ADConfig",
    "AmortisedCoDA",
    "AmortisedCoDAConfig",
    "CPCConfig",
    "CaDM",
    "CaDMConfig",
    "CoDA",
    "CoDAConfig",
    "CoPhyNet",
    "CoPhyNetConfig",
    "Contextual",
    "ContextualConfig",
    "DALIConfig",
    "FCRLConfig",
    "GEPSConfig",
    "JEPAConfig",
    "MaskedGRU",
    "MaskedGRUConfig",
    "MultimodalConfig",
    "MultimodalPredictor",
    "NODConfig",
    "NODHier",
    "NODHierConfig",
    "NODStates",
    "NODStatesConfig",
    "ObjectCPC",
    "ObjectCPCConfig",
    "ObjectJEPA",
    "ObjectJEPAConfig",
    "ObjectRSSM",
    "ObjectRSSMConfig",
    "PersistentJEPA",
    "PersistentJEPAConfig",
    "PooledConfig",
    "PooledDynamics",
    "RSSMConfig",
    "Reference",
    "ReferenceConfig",
    "Regression",
    "RegressionConfig",
    "SupervisedJEPA",
    "SupervisedJEPAConfig",
    "TDSConfig",
    "TactileConfig",
    "TactileEncoder",
    "TemporalFCRL",
    "TemporalFCRLConfig",
    "learner_of",
    "load_entry_points",
    "register_learner",
]


def register_learner(name: str, cls: type[nn.Module], config: type[Any]) -> None:
    """Let sources be of a learner of one's own, and checkpoints name it. Each worker process needs the call.

    An installed package may name `(cls, config)` in the entry-point group `sprii.learners` in place of the call.

    Raises:
        ValueError: for a config that is no dataclass, or a name, a class or a config class that is another learner's.
    """
    if not (isinstance(config, type) and is_dataclass(config)):
        raise ValueError(f"the config of the learner {name!r} is {config!r}; legal: a dataclass")
    for other, (known, known_config) in LEARNERS.items():
        if other == name and (known, known_config) != (cls, config):
            raise ValueError(f"the learner {name!r} is registered as {known.__qualname__}; choose another name")
        if other != name and known_config is config:
            raise ValueError(f"{config.__qualname__} is the config of the learner {other!r}; give yours its own")
    LEARNERS[name] = (cls, config)


def load_entry_points() -> None:
    """Register the learners of installed packages; ValueError naming the one that cannot be."""
    for point in entry_points(group="sprii.learners"):
        if point.name not in LEARNERS:
            try:
                cls, config = point.load()
            except Exception as error:
                raise ValueError(f"the entry point sprii.learners {point.name!r} = {point.value}: {error}") from error
            register_learner(point.name, cls, config)


def learner_of(config: Any) -> tuple[str, type[nn.Module]]:
    """Name and class of the learner that a config is of.

    Raises:
        ValueError: naming the configs of the registered ones.
    """
    load_entry_points()
    for name, (cls, own) in LEARNERS.items():
        if type(config) is own:
            return name, cls
    legal = ", ".join(own.__qualname__ for _, own in LEARNERS.values())
    raise ValueError(f"{type(config).__qualname__} is no registered learner's config; legal: {legal}")
