"""How certain estimates are: the covariance of a least-squares fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Matrix, Vector
from trsvr.parts.damping import sums_of
from trsvr.problems.base import as_problem
from trsvr.problems.residuals import ResidualProblem

__all__ = ["Covariance", "covariance"]


@dataclass(frozen=True)
class Covariance:
    """Of the estimates x.

    Attributes
    ----------
    matrix : array of shape (d, d)
        The covariance; infinite where the data do not determine x.
    standard_errors : array
        Square roots of its diagonal.
    variance : float
        That of a residual of weight one: their sum of squares over the degrees of freedom.
    degrees_of_freedom : int
        Residuals less the rank.
    rank : int
        Directions of x that the data determine; less than d means that no single x is the answer.
    """

    matrix: Matrix
    variance: float
    degrees_of_freedom: int
    rank: int

    @property
    def standard_errors(self) -> Vector:
        """√ of the diagonal."""
        return np.sqrt(np.diagonal(self.matrix))


def covariance(problem: Any, result: Any, *, known_variance: float | None = None) -> Covariance:
    """Covariance of a fit by nonlinear least squares, s²(JᵀWJ)⁻¹ at its end.

    Parameters
    ----------
    problem : LeastSquares
    result : Result, LeastSquaresResult or array
        The end of a run on it, or x.
    known_variance : float, optional
        That of a residual of weight one, where it is known and not to be estimated.

    Notes
    -----
    JᵀWJ is inverted by singular values of the scaled columns, so that nearly dependent parameters keep their digits.
    With a loss other than the squared one, ℓ″ is in the place of W: an approximation that ignores how far the noise is
    from normal.
    """
    problem = as_problem(problem)
    if not isinstance(problem, ResidualProblem):
        raise ValueError(f"problem must be a trsvr.problems.LeastSquares, got {type(problem).__name__}")
    x = _check.vector("result", result if isinstance(result, np.ndarray | list | tuple) else result.x)
    value, residuals = problem.value_at(x)
    if not np.isfinite(value):
        raise ValueError("result must be a point where the residuals are finite")
    d, m = x.size, residuals.size
    sums = sums_of(problem.linearized(x, residuals, True), max(m, d), d, True)
    columns = np.where(sums.columns > 0.0, sums.columns, 1.0)
    _, values, right = np.linalg.svd(sums.matrix / columns)
    rank = int(np.sum(values > np.finfo(float).eps * max(m, d) * values.max(initial=0.0)))
    freedom = m - rank
    if known_variance is not None:
        variance = _check.positive("known_variance", known_variance)
    else:
        variance = 2.0 * problem.n_samples * value / freedom if freedom > 0 else np.inf
    if rank < d:
        return Covariance(np.full((d, d), np.inf), variance, freedom, rank)
    root = right.T / values / columns[:, None]
    return Covariance(root @ root.T * (variance / problem.n_samples), variance, freedom, rank)
