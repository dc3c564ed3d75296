"""Norms in which a step is measured: ‖p‖_P ≤ α‖ḡ‖_{P⁻¹} instead of ‖p‖ ≤ α‖ḡ‖.

With P near the Hessian, α = 1 is a Newton step on every problem, whatever the units of its columns. A norm has
``solve(v)``, which is P⁻¹v, and ``dual(v)``, which is ‖v‖²_{P⁻¹}.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trsvr._vectors import Vector, dot

Matrix = NDArray[np.float64]

# The smallest eigenvalue that P may have, relative to the largest entry on its diagonal.
_FLOOR = 1e-13


class IdentityNorm:
    """P = I: the paper's norm."""

    def solve(self, v: Vector) -> Vector:
        """V itself."""
        return v

    def dual(self, v: Vector) -> float:
        """‖v‖²."""
        return dot(v, v)


class DiagonalNorm:
    """P = a diagonal, kept positive."""

    def __init__(self, diagonal: Vector) -> None:
        largest = float(diagonal.max(initial=0.0))
        self.diagonal = np.maximum(diagonal, max(_FLOOR * largest, np.finfo(float).tiny))

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        return v / self.diagonal

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""
        return dot(v, v / self.diagonal)


class DenseNorm:
    """P = M + diag(max(penalty, floor)), factored; H = M + diag(penalty) is the model's Hessian.

    M is the losses' curvature and positive semidefinite; the penalty's curvature may be negative.
    """

    def __init__(self, losses: Matrix, penalty: Vector) -> None:
        from scipy.linalg import lapack  # slow to import, and not everybody needs it

        self._solve = lapack.dpotrs
        self.losses = losses
        self.penalty = penalty
        self.convex = bool((penalty >= 0.0).all())
        if not (np.isfinite(losses).all() and np.isfinite(penalty).all()):
            raise FloatingPointError("the curvature is too large for floating-point numbers: scale the columns of X")
        floor = _FLOOR * max(float(np.diagonal(losses).max(initial=0.0)), float(np.abs(penalty).max(initial=0.0)))
        # Where the penalty bends down, P takes its size: a step along such a coordinate is then of the right scale.
        shift = np.maximum(np.abs(penalty), max(floor, np.finfo(float).tiny))
        matrix = losses.copy()
        while True:
            matrix[np.diag_indices_from(matrix)] = np.diagonal(losses) + shift
            factor, failed = lapack.dpotrf(matrix, lower=True)
            if not failed:
                break
            shift = np.maximum(10.0 * shift, 10.0 * floor)
        self._factor = factor

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        solution: Vector = self._solve(self._factor, v, lower=True)[0]
        return solution

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""
        return dot(v, self.solve(v))

    def product(self, v: Vector) -> Vector:
        """H v."""
        return self.losses @ v + self.penalty * v
