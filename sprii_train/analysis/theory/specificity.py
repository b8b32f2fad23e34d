"""What replacing a donor does to the risk of fixed weights (`eq:app-specificity-decomposition`)."""

from typing import NamedTuple

from numpy.typing import ArrayLike

from sprii_train.analysis.theory.arrays import rows


class Specificity(NamedTuple):
    """Δ_spec = sensitivity + cross."""

    total: float  # E‖Y − Ŷ_s‖² − E‖Y − Ŷ_m‖²
    sensitivity: float  # E‖Ŷ_s − Ŷ_m‖²: reliance on the donor
    cross: float  # 2 E⟨Y − Ŷ_m, Ŷ_m − Ŷ_s⟩: how that reliance meets the residual


def specificity(target: ArrayLike, matched: ArrayLike, substituted: ArrayLike) -> Specificity:
    """Risk change of a fixed predictor under a donor substitution, and its two parts.

    `cross` is zero in expectation if the matched prediction is E[Y | X, D_m] and the substitute tells nothing more
    about Y. A `total` near zero with a large `sensitivity` is reliance that does not pay.

    Args:
        target: Y (n, k) or (n,).
        matched: predictions with the matched donor, of that shape.
        substituted: predictions with the replacement, of that shape.
    """
    y = rows("target", target)
    m, s = rows("matched", matched, like=y), rows("substituted", substituted, like=y)
    n = len(y)
    total = float((((y - s) ** 2).sum() - ((y - m) ** 2).sum()) / n)
    return Specificity(total, float(((s - m) ** 2).sum() / n), float(2.0 * ((y - m) * (m - s)).sum() / n))
