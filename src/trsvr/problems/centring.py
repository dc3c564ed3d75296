"""Columns centred without a copy: the same linear model in the coordinates (w, b + mᵀw).

With an intercept b, columns far from the origin are nearly parallel to it, and the Hessian of (w, b) has lost its
digits before anything is solved. Margins are xᵀw + b = (x − m)ᵀw + (b + mᵀw): in the coordinates z = (w, b + mᵀw) the
columns are centred at m, whatever m is, and the means will do. x = T z with T = (I, 0; −mᵀ, 1), so gradients become
Tᵀg and Hessians TᵀHT. The penalty sees w alone, and stays as it is. With K outputs there are K such intercepts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._draws import Draws
from trsvr._vectors import SHORT, add_scaled, dot
from trsvr.problems.base import Problem
from trsvr.problems.certificate import GapFacts
from trsvr.problems.dual import DualAscent
from trsvr.problems.frames import Frame
from trsvr.problems.losses import curvature_bound
from trsvr.problems.small import SmallModel
from trsvr.problems.small_views import small_view
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices

# A squared mean beyond this part of a column's mean square is worth a product that takes it out of the diagonal.
_SEEN = 0.01
# What rounding leaves of a diagonal entry at least.
_ROUNDING = 1e-12


# More columns are those of sparse rows, and near zero.
_MANY = 4096


class Centring(Frame):
    """The way between a user's x = (w, b) and z = (w, b + mᵀw).

    ``exact`` says that m are the weighted means, ``is_far`` that a matrix of the rows as they are has lost its digits.
    """

    def __init__(self, means: Vector, outputs: int, exact: bool = True, is_far: bool = False) -> None:
        self.means, self.outputs, self.exact, self.is_far = means, outputs, exact, is_far
        self._in_full = means.astype(np.longdouble) if means.size <= _MANY else means

    def spread(self, rows: float) -> float:
        """Mean of ‖x_i − m‖² where that of ‖x_i‖² is known; what it is at most where m is no mean."""
        length = math.sqrt(dot(self.means, self.means))
        if not self.exact:
            return (math.sqrt(rows) + length) ** 2
        return max(rows - length * length, 0.0) + _ROUNDING * rows

    def inside(self, x: Vector) -> Vector:
        """The centred point."""
        return self._shifted(x, 1.0)

    def outside(self, z: Vector) -> Vector:
        """The user's point."""
        return self._shifted(z, -1.0)

    @np.errstate(all="ignore")  # a step may overflow, and is refused
    def _shifted(self, point: Vector, sign: float) -> Vector:
        moved = point.copy()
        # The sum is of large numbers that cancel: it is rounded once. No BLAS, whose threads would wake, is in these.
        if self.outputs > 1:
            W = moved.reshape(-1, self.outputs)
            W[-1] = W[-1] + sign * np.einsum("j,jk->k", self._in_full, W[:-1])
        elif self.means.size <= _MANY:
            moved[-1] += sign * np.vdot(self._in_full, moved[:-1])
        else:
            moved[-1] += sign * dot(self.means, moved[:-1])
        return moved

    def gradient_inside(self, gradient: Vector) -> Vector:
        """The gradient for z, Tᵀg."""
        return self._carried(gradient, -1.0)

    def gradient_outside(self, gradient: Vector) -> Vector:
        """The gradient for x of one for z."""
        return self._carried(gradient, 1.0)

    @np.errstate(all="ignore")  # where a loss overflows, the gradient is not finite, and the step is refused
    def _carried(self, gradient: Vector, sign: float) -> Vector:
        if self.outputs == 1:
            g = gradient.copy()
            if g.size <= SHORT:
                g[:-1] += (sign * g[-1]) * self.means
            else:
                add_scaled(sign * float(g[-1]), self.means, g[:-1])
            return g
        G = gradient.reshape(-1, self.outputs).copy()
        G[:-1] += sign * self.means[:, None] * G[-1]
        return G.ravel()

    def matrix_inside(self, matrices: Matrix) -> Matrix:
        """TᵀHT of each of some (p + 1) × (p + 1) matrices."""
        return self._both_sides(matrices, -self.means)

    def matrix_outside(self, matrices: Matrix) -> Matrix:
        """The other way round."""
        return self._both_sides(matrices, self.means)

    @staticmethod
    def _both_sides(matrices: Matrix, m: Vector) -> Matrix:
        H = matrices.copy()
        H[..., :-1, :] += m[:, None] * H[..., -1:, :]
        H[..., :, :-1] += H[..., :, -1:] * m
        return H


def centring_by_product(problem: Any) -> Centring:
    """At means of the columns, weighted by the rows' curvatures at zero, from one product: near enough to any others.

    Where those have their bound in the mean, they have it all.
    """
    K = problem.n_outputs
    along = np.zeros(problem.n_parameters)
    along[-K] = 1.0
    with np.errstate(all="ignore"):
        column = problem.hessian_product(np.zeros_like(along), None, along)[::K]
        means = column[:-1] / column[-1]
    bound = curvature_bound(problem.loss)
    exact = bound is not None and abs(column[-1] - bound) <= _ROUNDING * bound
    return Centring(np.where(np.isfinite(means), means, 0.0), K, exact)


class CentredProblem(Problem):
    """A linear model in centred coordinates, wherever its rows are."""

    frame: Centring
    has_view = True

    def __init__(self, model: Problem, frame: Centring, kind_of_view: Any = None) -> None:
        self.model, self.frame = model, frame
        self.kind_of_view = kind_of_view or CentredView
        self.n_samples, self.n_parameters, self.n_outputs = model.n_samples, model.n_parameters, model.n_outputs
        self.is_elsewhere, self.compiles, self.is_small = model.is_elsewhere, model.compiles, model.is_small
        self.lasts_long, self.defined_at_zero = model.lasts_long, model.defined_at_zero
        self.certifies = model.certifies

    @property
    def largest_squared_row(self) -> float | None:  # type: ignore[override]  # it is looked for
        """That of the rows as they are."""
        return self.model.largest_squared_row

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """The value f and its gradient."""
        value, gradient = self.model.value_and_gradient(self.frame.outside(x))
        return value, self.frame.gradient_inside(gradient)

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of the Hessians times v."""
        frame = self.frame
        return frame.gradient_inside(self.model.hessian_product(frame.outside(x), indices, frame.outside(v)))

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of the gradients of some rows."""
        return self.frame.gradient_inside(self.model.batch_gradient(self.frame.outside(x), indices))

    def warm_up(self, products: bool = False) -> None:
        """Compile (or load) what full passes need."""
        self.model.warm_up(products)

    def expect(self, draws: Draws, batches: tuple[int, int] | None) -> None:
        """Learn what the coming epoch will draw."""
        self.model.expect(draws, batches)

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at."""
        return self.kind_of_view(self.model.curvature_view(), self.frame)


class SmallCentredProblem(CentredProblem):
    """Small data, whose rows have been copied and centred: sums keep all their digits."""

    def __init__(self, model: Problem, small: SmallModel, means: Vector) -> None:
        super().__init__(model, Centring(means, small.outputs))
        self.small = small

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """The value f and its gradient."""
        return self.small.evaluate(x)[:2]

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of the Hessians times v."""
        return self.small.hessian_product(x, v) if indices is None else super().hessian_product(x, indices, v)

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at."""
        return small_view(self.small)


class CentredView(CurvatureView):
    """A view of a linear model, in centred coordinates."""

    def __init__(self, view: CurvatureView, frame: Centring) -> None:
        self.view, self.frame = view, frame
        self.n_rows, self.n_outputs, self.raising = view.n_rows, view.n_outputs, view.raising

    def prices(self) -> Prices:
        """As they are."""
        return self.view.prices()

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and its gradient at x; the view is then of x."""
        value, gradient = self.view.evaluate(self.frame.outside(x), coming)
        return value, self.frame.gradient_inside(gradient)

    def warm_up(self, dense: bool) -> None:
        """Compile (or load) what will be needed."""
        self.view.warm_up(dense)

    def close(self) -> None:
        """The run is over."""
        self.view.close()

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return self.view.total_weight()

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after."""
        return self.view.raise_curvatures(steep, flat)

    def lower_curvatures(self, x: Vector) -> float:
        """The curvatures are those of the losses again."""
        return self.view.lower_curvatures(self.frame.outside(x))

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x), which is of w alone."""
        return self.view.penalty_slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self.view.penalty_curvatures(x)

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return self.view.snapshot()

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        self.view.restore(snapshot)

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses times v."""
        return self.frame.gradient_inside(self.view.product(self.frame.outside(v)))

    def line(self, x: Vector, gradient: Vector, step: Vector) -> tuple[float, float, int]:
        """First and second derivative of f along a step, at its end."""
        frame = self.frame
        return self.view.line(frame.outside(x), frame.gradient_outside(gradient), frame.outside(step))

    def lowest_part(self, there: Any, x: Vector, gradient: Vector, step: Vector) -> float:
        """Which part of a step leads to where f is lowest on its way."""
        frame = self.frame
        slope = frame.gradient_outside(gradient)
        return self.view.lowest_part(there.view, frame.outside(x), slope, frame.outside(step))

    def diagonal(self) -> Vector:
        """h_jj − 2 m_j h_jb + m_j² h_bb; where means are small beside their columns, h_jj will do."""
        K, m = self.frame.outputs, self.frame.means[:, None]
        D = self.view.diagonal().reshape(-1, K)
        if (m * m * D[-1] > _SEEN * D[:-1]).any():
            D[:-1] = np.maximum(D[:-1] - m * (2.0 * self.mixed(D[-1]) - m * D[-1]), _ROUNDING * D[:-1])
        return D.ravel()

    def mixed(self, intercepts: Vector) -> Matrix:
        """The Hessian's entries between weights and intercept, where those of the intercepts are known.

        With several outputs: as if the curvatures did not depend on the columns.
        """
        if self.frame.outputs > 1:
            return self.frame.means[:, None] * intercepts
        along = np.zeros(self.frame.means.size + 1)
        along[-1] = 1.0
        return self.view.product(along)[:-1, None]

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Diagonal blocks of the Hessian; those of all rows are of centred ones, where that makes a difference."""
        if self.frame.is_far and rows >= self.n_rows:
            matrix = self.view.centred_matrix(self.frame.means)
            if matrix is not None:
                return matrix[None], self.n_rows
        matrices, taken = self.view.blocks(rows, draws)
        return self.frame.matrix_inside(matrices), taken

    def shared(self) -> Matrix:
        """The mean of these blocks."""
        return self.frame.matrix_inside(self.view.shared())

    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int] | None:
        """Mean change of the gradients on two halves of a batch."""
        found = self.view.changes(self.frame.outside(x), batch_size, scattered, draws, number)
        if found is None:
            return None
        first, second, rows = found
        return self.frame.gradient_inside(first), self.frame.gradient_inside(second), rows

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f: the rows are shorter here."""
        facts = self.view.gap_facts(self.frame.outside(x), value)
        if facts is None:
            return None
        facts = facts._replace(spread=self.frame.spread(facts.rows))
        product, frame = facts.product, self.frame
        if product is None:
            return facts
        return facts._replace(product=lambda v: frame.gradient_inside(product(frame.outside(v))))

    def ascent(self) -> DualAscent:
        """Coordinate ascent in the dual, on the rows as they are."""
        ascent = self.view.ascent()
        ascent.frame = self.frame
        return ascent

    def start_ascent(self, ascent: DualAscent, x: Vector, gradient: Vector) -> None:
        """Let it begin at the view's point x."""
        self.view.start_ascent(ascent, x, gradient)
