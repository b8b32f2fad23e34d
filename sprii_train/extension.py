"""A budget that is extended where training still helps: decided on validation losses of arms that all of them heed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sprii_envs.arguments import check, integer, number


@dataclass(frozen=True)
class Extension:
    """So many epochs, or more if a judged arm still gains near their end; the defaults are CoPhyNet's of the paper.

    Attributes:
        first, most: epochs without and with the extension.
        every: epochs between two validation losses.
        gain: least relative fall of the loss over the last `every` of the first epochs that extends all arms.
    """

    first: int = 25
    most: int = 50
    every: int = 5
    gain: float = 0.01

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "first", "most", "every", least=1)
        check(self, number, "gain", above=0, below=1)
        if self.first % self.every or self.first < 2 * self.every:
            raise ValueError(
                f"Extension.first is {self.first}; legal: a multiple of every, {self.every}, twice it at least"
            )
        if self.most <= self.first:
            raise ValueError(f"Extension.most is {self.most}; legal: more than the first {self.first}")

    def epochs(self, curves: Sequence[Sequence[float]]) -> int:
        """How long all arms are trained.

        Args:
            curves: of each judged arm, the validation losses after every `every` epochs, to `first`.

        Raises:
            ValueError: for no curve, or one of another length.
        """
        count = self.first // self.every
        if not curves or any(len(curve) != count for curve in curves):
            raise ValueError(f"curves have {[len(c) for c in curves]} losses; legal: {count} of each judged arm")
        return self.most if any(c[-1] <= (1.0 - self.gain) * c[-2] for c in curves) else self.first
