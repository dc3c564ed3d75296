"""Whether a point where the gradient vanishes is a minimum: the search for a direction of negative curvature."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trsvr._arrays import Vector
from trsvr._blas import one_blas_thread
from trsvr._draws import NO_EPOCH
from trsvr._vectors import dot
from trsvr.parts.norms import DiagonalNorm
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.problems.steps import Exit, NormedStep, Product, StepTaken
from trsvr.problems.views import CurvatureView

# A curvature counts as negative below this part of the penalty's largest one, with a minus sign.
_FLAT = 1e-7


def negative_curvature(view: CurvatureView, penalty: Vector, gradient: Vector, dense: bool) -> Vector | None:
    """A direction v, of entries at most one, in which vᵀHv is clearly negative; None if none is found.

    Losses are convex, so that only a penalty bends down. With a dense norm the answer is exact, from the eigenvalues of
    the full Hessian. Otherwise the coordinates are tried, all those together that bend down, and conjugate gradients
    from a fixed start, which meet negative curvature if their Krylov space contains it.
    """
    if (penalty >= 0.0).all():
        return None
    limit = -_FLAT * float(np.abs(penalty).max())
    if dense:
        matrix = view.blocks(view.n_rows, NO_EPOCH)[0][0] + np.diag(penalty)
        with one_blas_thread():
            values, vectors = np.linalg.eigh(matrix)
        return np.ascontiguousarray(vectors[:, 0]) if values[0] < limit else None

    def product(v: Vector) -> Vector:
        return np.asarray(view.product(v) + penalty * v)

    diagonal = view.diagonal() + penalty
    if diagonal.min() < limit:
        # Columns that no row uses sit on their hills together: one step for all of them.
        together = np.where(diagonal < limit, -np.sign(gradient) + (gradient == 0.0), 0.0)
        if dot(together, product(together)) < limit * dot(together, together):
            return together
        lowest = np.zeros_like(penalty)
        lowest[diagonal.argmin()] = 1.0
        return lowest
    start = np.cos(np.arange(1.0, penalty.size + 1.0))
    norm = DiagonalNorm(np.abs(diagonal))
    found = preconditioned_cg(product, norm, start, math.inf, 1e-8, 200)
    if found.exit is not Exit.NEGATIVE_CURVATURE:
        return None
    size = math.sqrt(dot(found.step, found.step))
    # Late directions are little but rounding: theirs may be negative where no curvature is.
    return found.step / size if dot(found.step, found.product) < limit * size * size else None


@dataclass
class Escape:
    """A direction of negative curvature at a point where the gradient vanishes, and how far to go along it."""

    direction: Vector | None = None
    length: float = 1.0

    def along(self, direction: Vector, gradient: Vector) -> None:
        """Step along it, downhill, in the next iteration."""
        self.direction, self.length = direction if dot(direction, gradient) <= 0.0 else -direction, 1.0

    def step(self, product: Product, alpha: float) -> StepTaken:
        """That step; ``alpha`` is the radius, which stays as it is."""
        assert self.direction is not None
        step = self.length * self.direction
        return StepTaken(NormedStep(step, product(step), 0.0, Exit.NEGATIVE_CURVATURE, 1), alpha)

    def shorten(self, factor: float) -> None:
        """The step was refused."""
        self.length *= factor
        if self.length <= float(np.finfo(float).eps):
            self.direction = None
