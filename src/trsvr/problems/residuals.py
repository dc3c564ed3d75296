"""Sums of losses of residuals, f(x) = (1/N) Σ_i w_i Σ_k ℓ(r_ik(x)) + (λ/2)‖x − c‖²: what all of them share.

Row i of the Jacobian J takes the place that row i of X has in a linear model: to second order f is half a sum of
squares, ‖r̃ + J̃p‖²/2, with J̃ = √(ℓ″/N) J and J̃ᵀr̃ = ∇f. Rows come in blocks, so that J is never whole unless it is
small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector
from trsvr._blas import alone
from trsvr._draws import Draws
from trsvr.problems.base import Problem
from trsvr.problems.plain import NotFinite
from trsvr.problems.residual_losses import LossTerms, ResidualLoss, as_residual_loss, loss_terms
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices

# Numbers of J up to which it is kept whole, 16 MB; if it is larger, so many at a time, which a near cache holds.
BLOCK, NEAR = 2**21, 2**17


_BAD_JACOBIAN = "the Jacobian is not finite where the residuals are"


class Block(NamedTuple):
    """Some rows of J̃, those of r̃, and where they are among all residuals."""

    rows: slice
    jacobian: Matrix
    residuals: Vector


class Squares(NamedTuple):
    """J̃ᵀJ̃ and ∇f, and the sweeps over the rows that both took."""

    matrix: Matrix
    gradient: Vector
    passes: float


class ResidualProblem(Problem):
    """A sum of losses of residuals; a kind of it says how residuals and rows of J are computed.

    Attributes
    ----------
    n_residuals : int
        m = N·k, numbers that the residuals are.
    loss : ResidualLoss
    l2, towards
        The penalty (l2/2)‖x − towards‖².
    weights, weight_scale
        Weights scaled to have mean one, and the mean of those that were given.
    sweeps : float
        For the solver that counts them: those over the rows that Jacobians have taken since it looked.
    scales_columns : bool
        Whether unknowns have units of their own: steps are then measured in those of the columns of J.
    """

    n_residuals: int
    loss: ResidualLoss
    l2: float
    towards: Vector
    weight_scale: float = 1.0
    sweeps: float = 0.0
    scales_columns: bool = True
    has_view = True
    products_are_exact = False

    def _set(self, n_samples: int, n_parameters: int, loss: Any, weights: Any, l2: Any, towards: Any) -> None:
        """Check and keep what every kind has."""
        self.n_samples, self.n_parameters = n_samples, n_parameters
        self.loss = as_residual_loss(loss)
        self.l2 = _check.positive("l2", l2, zero=True)
        self.towards = np.zeros(n_parameters) if towards is None else _check.vector("towards", towards, n_parameters)
        self.weights: Vector | None = None
        if weights is not None:
            given = _check.vector("weights", weights, n_samples)
            if not (given >= 0.0).all() or not given.any():
                raise ValueError("weights must be >= 0, and not all zero")
            self.weight_scale = float(given.sum()) / n_samples
            self.weights = given / self.weight_scale

    # --------------------------------------------------------------------------------- what a kind of it must answer

    def residuals_at(self, x: Vector) -> Vector:
        """All residuals as one vector of length m; NaN or infinite where a function is."""
        raise NotImplementedError

    def jacobian_rows(self, x: Vector, residuals: Vector, fine: bool) -> Iterator[tuple[slice, Matrix]]:
        """Rows of J at x in blocks: which residuals, and their derivatives.

        ``residuals`` are those at x; ``fine`` asks for the more exact of two kinds of differences.
        """
        raise NotImplementedError

    def jacobian_passes(self, fine: bool) -> int:
        """Sweeps over the rows that this takes: one, where it does not take differences."""
        return 1

    def sampled(self, x: Vector, residuals: Vector) -> Squares | None:
        """With some rows of J where it costs much beside the gradient; None where all rows are as well taken."""
        return None

    # ------------------------------------------------------------------------------------------------ what follows

    def terms(self, residuals: Vector, rows: Indices | None = None) -> LossTerms:
        """The losses and their derivatives, weighted; of all rows, or of these."""
        weights = self.weights if rows is None or self.weights is None else self.weights[rows]
        if weights is not None and weights.size != residuals.size:
            weights = np.repeat(weights, residuals.size // weights.size)
        return loss_terms(self.loss, residuals, weights)

    def value_of(self, x: Vector, terms: LossTerms) -> float:
        """The value f."""
        away = x - self.towards
        return terms.total / self.n_samples + 0.5 * self.l2 * float(away @ away)

    def value_at(self, x: Vector) -> tuple[float, Vector]:
        """The value f, infinite outside its domain, and the residuals: one pass."""
        residuals = self.residuals_at(x)
        with np.errstate(over="ignore", invalid="ignore"):
            value = self.value_of(x, self.terms(residuals)) if _all_finite(residuals) else np.inf
        return (value if np.isfinite(value) else np.inf), residuals

    def linearized(self, x: Vector, residuals: Vector, fine: bool) -> Iterator[Block]:
        """The blocks of J̃ and r̃, those of the losses alone."""
        terms = self.terms(residuals)
        roots = np.sqrt(terms.curvatures / self.n_samples)
        counts = roots > 0.0
        # One number for all, as of squares without weights, is multiplied much faster than one for each row.
        alike = bool((roots == roots[:1]).all())
        ratio = np.divide(terms.slopes / self.n_samples, roots, out=np.zeros_like(roots), where=counts)
        for rows, jacobian in self.jacobian_rows(x, residuals, fine):
            if not _all_finite(jacobian):
                raise NotFinite(_BAD_JACOBIAN)
            yield Block(rows, jacobian * (roots[0] if alike else roots[rows, None]), ratio[rows])

    def penalised(self, x: Vector, blocks: Iterable[Block]) -> Iterator[Block]:
        """The blocks, and rows that stand for the penalty."""
        yield from blocks
        if self.l2 > 0.0:
            root = np.sqrt(self.l2)
            yield Block(slice(0, 0), root * np.eye(x.size), root * (x - self.towards))

    def pulled(self, x: Vector, residuals: Vector, slopes: Vector) -> Vector:
        """J(x)ᵀ times a vector."""
        total = np.zeros(x.size)
        for place, rows in self.jacobian_rows(x, residuals, False):
            with alone(rows):
                total += rows.T @ slopes[place]
        return total

    def squares(self, x: Vector, residuals: Vector, fine: bool) -> Squares:
        """J̃ᵀJ̃ and ∇f, where J has so many rows that nothing else of it is kept."""
        terms = self.terms(residuals)
        curvatures, matrix, gradient = terms.curvatures, np.zeros((x.size, x.size)), np.zeros(x.size)
        alike = bool((curvatures == curvatures[:1]).all())
        for rows, jacobian in self.jacobian_rows(x, residuals, fine):
            weighted = jacobian if alike else jacobian * np.sqrt(curvatures[rows, None])
            with alone(jacobian):
                matrix += weighted.T @ weighted
                gradient += jacobian.T @ terms.slopes[rows]
        matrix *= float(curvatures[0]) if alike else 1.0
        return self.with_penalty(x, matrix / self.n_samples, gradient / self.n_samples, self.jacobian_passes(fine))

    def with_penalty(self, x: Vector, matrix: Matrix, gradient: Vector, passes: float) -> Squares:
        """Mean sums of the losses, and those of the penalty."""
        if not _all_finite(np.diagonal(matrix)):
            raise NotFinite(_BAD_JACOBIAN)
        matrix.reshape(-1)[:: x.size + 1] += self.l2
        return Squares(matrix, gradient + self.l2 * (x - self.towards), passes)

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and ∇f(x): two passes, one of residuals and one of their Jacobian."""
        value, residuals = self.value_at(x)
        if not np.isfinite(value):
            raise NotFinite("residuals are not finite")
        self.sweeps += self.jacobian_passes(False)
        gradient = self.pulled(x, residuals, self.terms(residuals).slopes) / self.n_samples
        if not _all_finite(gradient):
            raise NotFinite(_BAD_JACOBIAN)
        return value, gradient + self.l2 * (x - self.towards)

    def curvature_view(self) -> CurvatureView:
        """Rows of J in the place of rows of X."""
        return ResidualView(self)


class ResidualView(CurvatureView):
    """JᵀℓJ at a point: what conjugate gradients and sampled matrices need where a factorisation costs too much."""

    def __init__(self, problem: ResidualProblem) -> None:
        self._problem, self.n_rows = problem, problem.n_samples
        self._x, self._residuals = np.full(problem.n_parameters, np.nan), np.empty(0)
        self._kept: list[Block] | None = None

    def prices(self) -> Prices:
        """As of a linear model with dense rows; no batches, no sketch."""
        d, m = self._problem.n_parameters, self._problem.n_residuals
        return Prices.of_rows(m, d, 1, m * d)._replace(batch_row=np.inf)

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x."""
        value, residuals = self._problem.value_at(x)
        if not np.isfinite(value):
            raise NotFinite("residuals are not finite")
        self._x, self._residuals, self._kept = x.copy(), residuals, None
        if residuals.size * x.size <= BLOCK:
            self._kept = list(self._blocks())
        gradient = self.penalty_slopes(x)
        for block in self._blocks():
            gradient += block.jacobian.T @ block.residuals
        return value, gradient

    def _blocks(self) -> Iterator[Block]:
        if self._kept is not None:
            return iter(self._kept)
        self._problem.sweeps += self._problem.jacobian_passes(False)
        return self._problem.linearized(self._x, self._residuals, False)

    def _is_counted(self) -> None:
        """The first sweep for what comes now, by the caller."""
        self._problem.sweeps -= 0.0 if self._kept is not None else 1.0

    def total_weight(self) -> float:
        """Sum of the squared entries of J̃."""
        return float(sum(np.vdot(block.jacobian, block.jacobian) for block in self._blocks()))

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._problem.l2 * (x - self._problem.towards)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return np.full_like(x, self._problem.l2)

    def product(self, v: Vector) -> Vector:
        """J̃ᵀ(J̃v)."""
        self._is_counted()
        return np.sum([block.jacobian.T @ (block.jacobian @ v) for block in self._blocks()], axis=0)

    def diagonal(self) -> Vector:
        """Its diagonal."""
        self._is_counted()
        return np.sum([np.einsum("ij,ij->j", block.jacobian, block.jacobian) for block in self._blocks()], axis=0)

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """J̃ᵀJ̃, of all rows: with residuals that come in blocks a sample would not be cheaper."""
        matrix = np.sum([block.jacobian.T @ block.jacobian for block in self._blocks()], axis=0)
        return matrix[None], self.n_rows

    def snapshot(self) -> dict[str, Any]:
        """Its point."""
        return {"x": self._x}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        if snapshot["x"].shape != self._x.shape:
            raise ValueError(f"x must have {self._x.size} numbers, got shape {snapshot['x'].shape}")
        self.evaluate(snapshot["x"])


def _all_finite(numbers: Vector | Matrix) -> bool:
    """Whether they are; a sum over them tells nearly always, in half of the time."""
    return bool(np.isfinite(numbers.sum())) or bool(np.isfinite(numbers).all())


def all_blocks(n_samples: int, at_once: int) -> Iterator[Indices]:
    """The rows 0 … N−1 in runs."""
    for begin in range(0, n_samples, at_once):
        yield np.arange(begin, min(begin + at_once, n_samples))
