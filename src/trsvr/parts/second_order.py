"""What Gauss–Newton leaves out: S = Σ ℓ′(rᵢ)∇²rᵢ/N, learnt from steps, and steps on a model that has it.

Jacobians at both ends of a step s show S along it: (J₊ − J)ᵀℓ′(r₊)/N ≈ S s. The update of Dennis, Gay & Welsch (1981)
makes S agree with that, first shrunk where the old S was too large, so that it vanishes with the residuals.
"""

from __future__ import annotations

import math

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr.parts.damping import DampedStep, radius_of

# Less than this part of ‖s‖‖y‖ is no curvature to learn from.
_CURVED = 1e-8
# A curvature is one from this part of the largest.
_FLAT = 1e-12
_CLOSE = 1e-3


def updated(second: Matrix, step: Vector, seen: Vector, change: Vector) -> Matrix:
    """S after a step: ``seen`` is what it should make of it, ``change`` the difference of the gradients."""
    along = float(step @ change)
    if not along > _CURVED * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return second
    before, now = abs(float(step @ second @ step)), abs(float(step @ seen))
    shrunk = second * (min(now / before, 1.0) if before > 0.0 else 1.0)
    missing, weight = seen - shrunk @ step, change / along
    return shrunk + np.outer(missing, weight) + np.outer(weight, missing) - (step @ missing) * np.outer(weight, weight)


class CurvedModel:
    """gᵀp + ½pᵀHp over ‖Dp‖ ≤ Δ, H any symmetric matrix: by the eigenvalues of D⁻¹HD⁻¹."""

    def __init__(self, hessian: Matrix, gradient: Vector, scaling: Vector) -> None:
        self._scaling = scaling
        self.curvatures, self._vectors = np.linalg.eigh(hessian / np.outer(scaling, scaling))
        self._pulls = self._vectors.T @ (gradient / scaling)
        self._limit = _FLAT * float(np.abs(self.curvatures).max(initial=0.0))

    @property
    def is_convex(self) -> bool:
        """Whether no curvature is negative, but for rounding."""
        return bool(self.curvatures[0] >= -self._limit)

    def left(self, gradient: Vector | None = None, flat: float = _FLAT) -> float:
        """How far the model, or that with another gradient, falls without a bound; infinite where it bends down.

        A curvature above −``flat`` of the largest is none.
        """
        if not self.curvatures[0] >= -(flat / _FLAT) * self._limit:
            return math.inf
        pulls = self._pulls if gradient is None else self._vectors.T @ (gradient / self._scaling)
        # Along what rounding hides the gradient may still mean something.
        return 0.5 * float(np.sum(pulls**2 / np.maximum(self.curvatures, self._limit or 1.0)))

    def softest(self) -> Vector:
        """The direction, of length one in the norm of D, of the least curvature."""
        return self._vectors[:, 0] / self._scaling

    def step(self, radius: float) -> DampedStep:
        """Its minimiser within the radius."""
        lowest, pulls = float(self.curvatures[0]), self._pulls

        def length_at(damping: float) -> tuple[float, float]:
            parts = pulls / (self.curvatures + damping)
            length = float(np.linalg.norm(parts))
            return length, -float(np.sum(parts * parts / (self.curvatures + damping))) / length if length else 0.0

        least = max(0.0, 2.0 * self._limit - lowest)
        damping = least
        if length_at(least)[0] > radius:
            highest = least + float(np.linalg.norm(pulls)) / radius
            # Measured from where the matrix is positive.
            damping += radius_of(lambda more: length_at(least + more), radius, highest, _CLOSE)
        parts = -pulls / (self.curvatures + damping)
        length = float(np.linalg.norm(parts))
        if lowest < -self._limit and length < radius:  # the gradient hides where it bends down
            rest = math.sqrt(radius * radius - length * length + parts[0] ** 2)
            parts[0], length = math.copysign(rest, -pulls[0] or 1.0), radius
        predicted = -float(pulls @ parts) - 0.5 * float(self.curvatures @ (parts * parts))
        step = (self._vectors @ parts) / self._scaling
        return DampedStep(step, length, predicted, damping if damping > least else 0.0)
