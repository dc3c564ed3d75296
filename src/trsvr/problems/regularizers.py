"""Separable regularisers r(w) = Σ_j r_j(w_j), as formulas of one coordinate.

``d``, the number of penalised coordinates, is an argument because the paper's double well is divided by it. Add two
regularisers with ``+``. The kernels over rows never see them: they act on vectors of length d only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from trsvr._arrays import Numbers
from trsvr._compile import record


@record
class L2(NamedTuple):
    """(strength / 2) w²."""

    strength: float = 1e-4

    def value(self, w: Numbers, d: int) -> Numbers:
        """Penalty of one coordinate."""
        return 0.5 * self.strength * w * w

    def slope(self, w: Numbers, d: int) -> Numbers:
        """First derivative."""
        return self.strength * w

    def curvature(self, w: Numbers, d: int) -> Numbers:
        """Second derivative."""
        return self.strength

    def __add__(self, other: Any) -> Any:  # a sum of penalties, not of tuples
        return Sum(self, other)


@record
class DoubleWell(NamedTuple):
    """(gamma / d) (w² − a²)²: minima at w = ±a, negative curvature for |w| < a/√3."""

    gamma: float = 1e-4
    a: float = 0.5

    def value(self, w: Numbers, d: int) -> Numbers:
        """Penalty of one coordinate."""
        well = w * w - self.a * self.a
        return self.gamma / d * well * well

    def slope(self, w: Numbers, d: int) -> Numbers:
        """First derivative."""
        return 4.0 * self.gamma / d * w * (w * w - self.a * self.a)

    def curvature(self, w: Numbers, d: int) -> Numbers:
        """Second derivative."""
        return 4.0 * self.gamma / d * (3.0 * w * w - self.a * self.a)

    def __add__(self, other: Any) -> Any:  # a sum of penalties, not of tuples
        return Sum(self, other)


@record
class Sum(NamedTuple):
    """Two regularisers together, made by ``first + second``."""

    first: Any
    second: Any

    def value(self, w: Numbers, d: int) -> Numbers:
        """Penalty of one coordinate."""
        return self.first.value(w, d) + self.second.value(w, d)

    def slope(self, w: Numbers, d: int) -> Numbers:
        """First derivative."""
        return self.first.slope(w, d) + self.second.slope(w, d)

    def curvature(self, w: Numbers, d: int) -> Numbers:
        """Second derivative."""
        return self.first.curvature(w, d) + self.second.curvature(w, d)

    def __add__(self, other: Any) -> Any:
        return Sum(self, other)


def least_curvature(regularizer: Any, d: int) -> Any:
    """What the curvature of a coordinate is at least, wherever it is; None where that is not known."""
    if isinstance(regularizer, L2):
        return regularizer.strength
    if isinstance(regularizer, DoubleWell):
        return -4.0 * regularizer.gamma * regularizer.a**2 / d
    if isinstance(regularizer, Sum):
        parts = [least_curvature(part, d) for part in regularizer]
        return None if any(part is None for part in parts) else parts[0] + parts[1]
    return None


Regularizer = L2 | DoubleWell | Sum
