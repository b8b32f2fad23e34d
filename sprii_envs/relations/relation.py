"""What two episodes share: R_G of `app:relation-sampling`, kept apart from which legal donor is drawn."""

from dataclasses import dataclass


class NoLegalDonorError(ValueError):
    """Some recipients have no legal donor under the relation."""


@dataclass(frozen=True)
class Relation:
    """The legal donors of a recipient: other episodes that equal it in every `shared` column and differ in
    every `differ` column.

    The recipient's own episode is never legal, except under `same_episode=True`, where it is the only donor
    and `WindowSampler` picks another window of it: an earlier one that does not overlap.

    >>> Relation(shared=("mass",), differ=("drag", "stiffness"))   # G1 of PokeWorld (`eq:refinement-keys`)
    >>> Relation(shared=("mass", "drag"), differ=("stiffness",))   # G2
    >>> Relation(shared=("mass", "drag", "stiffness"))             # G3: same system, another episode
    >>> Relation(differ=("system",))                               # any episode of another system
    """

    shared: tuple[str, ...] = ()
    differ: tuple[str, ...] = ()
    same_episode: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        for field in ("shared", "differ"):
            names = getattr(self, field)
            if isinstance(names, str):
                raise TypeError(f"{field} must be a tuple of column names; write ({names!r},) for one column")
            if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
                raise TypeError(f"{field} must be a tuple of column names, got {names!r}")
            names = tuple(str(name) for name in names)  # no np.str_: its repr differs
            if len(set(names)) != len(names):
                raise ValueError(f"{field} names a column twice: {names}")
            object.__setattr__(self, field, names)
        both = sorted(set(self.shared) & set(self.differ))
        if both:
            raise ValueError(f"no pair can both share and differ in {', '.join(map(repr, both))}")
        if self.same_episode and (self.shared or self.differ):
            raise ValueError("same_episode=True pairs windows of one episode: it takes no shared or differ columns")

    def __str__(self) -> str:
        if self.name:
            return self.name
        if self.same_episode:
            return "same episode"
        shared = ", ".join(self.shared) or "nothing"
        return f"same {shared}" + (f"; other {', '.join(self.differ)}" if self.differ else "")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide legality."""
        return self.shared + self.differ


def check_relation(relation: object) -> None:
    """TypeError if it is not a `Relation`."""
    if not isinstance(relation, Relation):
        raise TypeError(
            f"relation must be SAME_SYSTEM, SAME_ROLLOUT or a Relation(shared=..., differ=...), got {relation!r}"
        )


SAME_SYSTEM = Relation(shared=("system",), name="same system")
"""Another episode of the recipient's system."""

SAME_ROLLOUT = Relation(same_episode=True, name="same rollout")
"""An earlier, non-overlapping window of the recipient's own episode (`app:matched-control`)."""
