"""Models that are planned with and are no learners of the five operations, by the name in a checkpoint."""

from sprii_train.checkpoints import Kinds
from sprii_train.control.latent import LatentConfig, LatentModel
from sprii_train.control.recurrent import RecurrentConfig, RecurrentModel

MODELS: Kinds = {"latent-model": (LatentModel, LatentConfig), "recurrent-model": (RecurrentModel, RecurrentConfig)}
"""For `checkpoints.save(model, path, also=MODELS)` and `load`; made by `cls(config)`, as learners are."""
