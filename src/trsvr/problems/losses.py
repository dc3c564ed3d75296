"""Losses of a linear model, as functions of the margin z = wᵀx and the label y.

A loss is a NamedTuple whose fields are its parameters and whose methods are three formulas: ``value``, ``slope`` (first
derivative in z) and ``curvature`` (second). They are compiled into the kernels; a loss of your own is one more such
class, in any file. All formulas hold for margins of any size: nothing overflows.

``labels`` says what y may be: ``"two classes"`` (kept as ±1), ``"classes"`` (kept as 0 … K−1) or ``"numbers"``.
``curvature_bound`` is the supremum of the curvature, from which step sizes are derived.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba.extending import overload

from trsvr._arrays import Vector
from trsvr._compile import record
from trsvr._intrinsics import exp_minus


@record
class Logistic(NamedTuple):
    """log(1 + exp(−y z)), y = ±1."""

    def value(self, margin: float, label: float) -> float:
        """Loss."""
        additive, factor = self.split_value(margin, label)
        return additive + math.log(factor)

    def split_value(self, margin: float, label: float) -> tuple[float, float]:
        """(a, c) with loss = a + log(c) and 1 ≤ c ≤ 2, so that one logarithm serves the product of many c."""
        m = margin * label
        return max(-m, 0.0), 1.0 + exp_minus(abs(m))

    def slope(self, margin: float, label: float) -> float:
        """Derivative, −y σ(−y z)."""
        m = margin * label
        e = exp_minus(abs(m))
        numerator = e if m > 0.0 else 1.0
        return -label * (numerator / (1.0 + e))

    def curvature(self, margin: float, label: float) -> float:
        """Second derivative, σ(z) σ(−z)."""
        e = exp_minus(abs(margin))
        return e / ((1.0 + e) * (1.0 + e))


@record
class SquaredHinge(NamedTuple):
    """max(0, 1 − y z)², y = ±1; the curvature is the one-sided one at the kink."""

    def value(self, margin: float, label: float) -> float:
        """Loss."""
        gap = 1.0 - margin * label
        return 0.0 if gap <= 0.0 else gap * gap  # a margin that is not a number is not without loss

    def slope(self, margin: float, label: float) -> float:
        """Derivative."""
        gap = 1.0 - margin * label
        return 0.0 if gap <= 0.0 else -2.0 * label * gap

    def curvature(self, margin: float, label: float) -> float:
        """Second derivative: 2 inside the margin, 0 outside."""
        return 2.0 if margin * label < 1.0 else 0.0


@record
class Squared(NamedTuple):
    """(z − y)² / 2."""

    def value(self, margin: float, label: float) -> float:
        """Loss."""
        residual = margin - label
        return 0.5 * residual * residual

    def slope(self, margin: float, label: float) -> float:
        """Derivative."""
        return margin - label

    def curvature(self, margin: float, label: float) -> float:
        """Second derivative."""
        return 1.0


@record
class PseudoHuber(NamedTuple):
    """δ² (√(1 + ((z − y)/δ)²) − 1): quadratic near zero, linear far out."""

    delta: float = 1.0

    def value(self, margin: float, label: float) -> float:
        """Loss, in the form that keeps its digits for small residuals."""
        residual = margin - label
        ratio = residual / self.delta
        return residual * residual / (1.0 + math.sqrt(1.0 + ratio * ratio))

    def slope(self, margin: float, label: float) -> float:
        """Derivative."""
        residual = margin - label
        ratio = residual / self.delta
        return residual / math.sqrt(1.0 + ratio * ratio)

    def curvature(self, margin: float, label: float) -> float:
        """Second derivative."""
        ratio = (margin - label) / self.delta
        square = 1.0 + ratio * ratio
        return 1.0 / (square * math.sqrt(square))


@record
class Softmax(NamedTuple):
    """log Σ_k exp(z_k) − z_y for K outputs z and a class y in 0 … K−1.

    Its formulas take the vector of margins: `value_and_slopes` replaces it by the slopes p − e_y (p the probabilities),
    `curvature_product` multiplies K numbers t by the K × K curvature, p ∘ t − p (pᵀt).
    """

    def value_and_slopes(self, margins: Vector, label: float) -> float:
        """Loss; ``margins`` is overwritten by the slopes."""
        largest = margins[0]
        for k in range(1, margins.size):
            largest = max(largest, margins[k])
        of_label = margins[int(label)] - largest
        total = 0.0
        for k in range(margins.size):
            margins[k] = exp_minus(largest - margins[k])
            total += margins[k]
        for k in range(margins.size):
            margins[k] /= total
        margins[int(label)] -= 1.0
        return math.log(total) - of_label

    def curvature_product(self, margins: Vector, label: float, directions: Vector) -> None:
        """Multiply ``directions`` by the curvature, in place; ``margins`` is overwritten."""
        self.value_and_slopes(margins, label)
        margins[int(label)] += 1.0
        self.probability_product(margins, directions)

    def probability_product(self, probabilities: Vector, directions: Vector) -> None:
        """The same from the probabilities p."""
        mean = 0.0
        for k in range(probabilities.size):
            mean += probabilities[k] * directions[k]
        for k in range(probabilities.size):
            directions[k] = probabilities[k] * (directions[k] - mean)


MarginLoss = Logistic | SquaredHinge | Squared | PseudoHuber

_LABELS: dict[type, str] = {Logistic: "two classes", SquaredHinge: "two classes", Softmax: "classes"}
_CURVATURE_BOUNDS: dict[type, float] = {
    Logistic: 0.25,
    SquaredHinge: 2.0,
    Squared: 1.0,
    PseudoHuber: 1.0,
    Softmax: 0.5,
}


def labels_of(loss: Any) -> str:
    """What kind of labels a loss wants; a loss from outside the package says so in an attribute ``labels``."""
    return str(_LABELS.get(type(loss)) or getattr(loss, "labels", "numbers"))


def curvature_bound(loss: Any) -> float | None:
    """Supremum of the second derivative, where it is known."""
    return _CURVATURE_BOUNDS.get(type(loss)) or getattr(loss, "curvature_bound", None)


def split_value(loss: Any, margin: float, label: float) -> tuple[float, float]:
    """(a, c) with loss = a + log(c); c is 1 for losses without a logarithm."""
    if hasattr(loss, "split_value"):
        pair: tuple[float, float] = loss.split_value(margin, label)
        return pair
    return loss.value(margin, label), 1.0


@overload(split_value, strict=False)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_split_value(loss: Any, margin: Any, label: Any) -> Any:
    if hasattr(loss.instance_class, "split_value"):
        return lambda loss, margin, label: loss.split_value(margin, label)
    return lambda loss, margin, label: (loss.value(margin, label), 1.0)
