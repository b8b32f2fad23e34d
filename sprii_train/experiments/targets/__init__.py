"""What `sprii reproduce` knows, by the paper's label."""

from sprii_train.experiments.targets.base import Group, Target
from sprii_train.experiments.targets.poke import POKE_TARGETS
from sprii_train.experiments.targets.spring import SPRING_TARGETS

TARGETS: dict[str, Target] = {target.label: target for target in (*POKE_TARGETS, *SPRING_TARGETS)}

__all__ = ["TARGETS", "Group", "Target", "target"]


def target(label: str) -> Target:
    """The target of a label.

    Raises:
        ValueError: naming the legal ones.
    """
    if label not in TARGETS:
        raise ValueError(f"unknown table or figure {label!r}; legal: {', '.join(TARGETS)}")
    return TARGETS[label]
