"""Factors: the coordinate in which a persistent property is read, and what is held fixed beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Factor:
    """A property, its logarithm, or a ratio of two properties.

    Attributes:
        column: the property's column.
        log: read its logarithm; the coordinate of `tab:v3-poke-accessibility` for mass, not for drag.
        over: column of the denominator: `Factor("stiffness", over="mass")` is k/m.
        controls: names of the factors held fixed in partial geometry; None: every other factor of the list that is no
            ratio and has no column in common with this one, so that k/m controls drag (`app:spring-components`).
    """

    column: str
    log: bool = False
    over: str | None = None
    controls: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """`mass`, `stiffness_over_mass`; the logarithm has its property's name."""
        return self.column if self.over is None else f"{self.column}_over_{self.over}"

    @property
    def label(self) -> str:
        """As axes and tables print it: `log mass`, `drag`, `log stiffness/mass`."""
        return ("log " if self.log else "") + (self.column if self.over is None else f"{self.column}/{self.over}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it is read from."""
        return (self.column,) if self.over is None else (self.column, self.over)

    def of(self, values: Mapping[str, NDArray]) -> Array:
        """Its values (n,) float64 from columns (n,).

        Raises:
            ValueError: for a missing column, a value that is not finite, or a logarithm or ratio of one that is not
                positive.
        """
        parts = [_column(name, values) for name in self.columns]
        for name, part in zip(self.columns, parts, strict=True):
            if (self.log or self.over is not None) and not (part > 0).all():
                raise ValueError(f"{self.label} needs positive values, but {name!r} has {part.min():g}")
        result = parts[0] if self.over is None else parts[0] / parts[1]
        return np.log(result) if self.log else result


POKE_FACTORS = (Factor("mass", log=True), Factor("drag"), Factor("stiffness", log=True))
"""Mass, drag and contact stiffness of PokeWorld, in the coordinates in which its banks draw them."""

SPRING_FACTORS = (
    Factor("mass", log=True),
    Factor("drag", log=True),
    Factor("stiffness", log=True),
    Factor("stiffness", log=True, over="mass"),
)
"""The four columns of `tab:spring-source-geometry` and `tab:spring-probe`."""


def by_name(factors: Sequence[Factor]) -> dict[str, Factor]:
    """Name → factor, in order.

    Raises:
        ValueError: for no factors or two of one name.
    """
    named = {factor.name: factor for factor in factors}
    if not factors or len(named) != len(factors):
        raise ValueError(f"factors must be one or more of different names, got {[f.name for f in factors]}")
    return named


def controls_of(factor: Factor, factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """The factors held fixed when `factor` is related to code distance.

    Raises:
        ValueError: for a control that is the factor itself or not among `factors`.
    """
    named = by_name(factors)
    if factor.controls is None:
        own = set(factor.columns)
        return tuple(other for other in factors if other.over is None and other.column not in own)
    for name in factor.controls:
        if name not in named or name == factor.name:
            legal = ", ".join(other for other in named if other != factor.name) or "none"
            raise ValueError(f"{factor.name} cannot control {name!r}; legal: {legal}")
    return tuple(named[name] for name in factor.controls)


def _column(name: str, values: Mapping[str, NDArray]) -> Array:
    if name not in values:
        raise ValueError(f"no factor {name!r}; factors: {', '.join(values) or 'none'}")
    column = np.asarray(values[name], dtype=np.float64)
    if not np.isfinite(column).all():
        raise ValueError(f"factor {name!r} must be finite, got {int((~np.isfinite(column)).sum())} that are not")
    return column
