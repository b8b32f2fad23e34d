"""The supervised variant of the controlled JEPA: its code is also told the true properties (PokeWorld's drag).

    L = L_base + w·mean‖MLP(z_p) − y‖²,    MLP 64-64-F, w = 10, y the properties, standardised by training systems

Context, predictor and L_base are the JEPA's, and no relation is used. It says how far a code of these networks can tell
a property if its value is given. The JEPA's context `supervised` is another reference: there the regression is all of
the code.
"""

from dataclasses import asdict, dataclass

from torch import Tensor

from sprii_envs.arguments import check, choice, instance, integer, number
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.modules import perceptron
from sprii_train.protocol import Batch, Codes


@dataclass(frozen=True)
class SupervisedJEPAConfig(JEPAConfig):
    """Sizes; those of the controlled JEPA.

    Attributes:
        labels: names of the persistent properties that are told.
        label_width: of the head's hidden layer.
        label_weight: w.
    """

    labels: tuple[str, ...] = ("drag",)
    label_width: int = 64
    label_weight: float = 10.0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "persistent", "label_width", least=1)
        check(self, instance, "labels", of=tuple)
        check(self, number, "label_weight", above=0)
        check(self, choice, "context", legal=("split",))
        if not self.labels:
            raise ValueError("SupervisedJEPAConfig.labels is (); legal: names of properties, such as ('drag',)")

    @classmethod
    def like(cls, jepa: JEPAConfig, labels: tuple[str, ...] = ("drag",)) -> "SupervisedJEPAConfig":
        """The supervised learner with the networks of a JEPA."""
        return cls(**asdict(jepa), labels=labels)


class SupervisedJEPA(JEPA):
    """The learner; its operations are those of the controlled JEPA, and `told`."""

    def __init__(self, config: SupervisedJEPAConfig) -> None:
        super().__init__(instance("config", config, of=SupervisedJEPAConfig))
        self.head = perceptron(config.persistent, config.label_width, len(config.labels))
        self.label_weight = config.label_weight

    def told(self, z_p: Tensor) -> Tensor:
        """Codes (B, d) → what the head says of the properties (B, F), standardised."""
        return self.head(z_p)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The JEPA's, and w·the squared error of the properties; ValueError for windows without labels."""
        if batch.labels is None:
            raise ValueError("SupervisedJEPA needs labels in its windows; legal: a reader with properties")
        loss, parts = super().native_loss(batch, codes)
        supervised = (self.told(codes.z_p).float() - batch.labels).square().mean()
        return loss + self.label_weight * supervised, parts | {"supervised": supervised}
