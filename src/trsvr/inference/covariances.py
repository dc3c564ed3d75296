"""Covariances of estimates, of nonlinear least squares and of linear models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector, as_array
from trsvr._blas import one_blas_thread
from trsvr.inference.determined import SeparationError, inverse_of, refuse_separation
from trsvr.inference.fits import Fit, point
from trsvr.inference.sums import CANONICAL, family_of, group_sums, row_sums
from trsvr.parts.damping import sums_of
from trsvr.problems.base import as_problem
from trsvr.problems.families import is_glm
from trsvr.problems.residuals import ResidualProblem

KINDS = ("model", "HC0", "HC1", "cluster")


@dataclass(frozen=True)
class Covariance:
    """Of the estimates x.

    Attributes
    ----------
    matrix : array of shape (d, d)
        The covariance; infinite where neither the data nor a penalty determine x.
    standard_errors : array
        Square roots of its diagonal.
    variance : float
        That of a residual of weight one, or the dispersion of a generalised linear model.
    degrees_of_freedom : float
        Observations less the rank, or less the effective number of coefficients.
    rank : int
        Directions of x that the data determine; less than d means that no single x is the answer.
    """

    matrix: Matrix
    variance: float
    degrees_of_freedom: float
    rank: int

    @property
    def standard_errors(self) -> Vector:
        """√ of the diagonal."""
        return np.sqrt(np.diagonal(self.matrix))


def covariance(
    problem: Any,
    result: Any,
    *,
    known_variance: float | None = None,
    kind: str = "model",
    groups: Any = None,
    weights: str = "frequency",
) -> Covariance:
    """Covariance of a fit at its end: of nonlinear least squares, or of a linear model with one output.

    Parameters
    ----------
    problem : LeastSquares or LinearModel
        A linear model in memory or on Dask.
    result : Result, LeastSquaresResult or array
        The end of a run on it, or x.
    known_variance : float, optional
        That of a residual of weight one, or the dispersion, where it is known and not to be estimated.
    kind : {"model", "HC0", "HC1", "cluster"}
        Of a linear model: what is believed of the variance of y (see the top of `trsvr.inference`). "model" needs a
        loss that is a likelihood: a family, `Logistic` or `Squared`.
    groups : array of length N, optional
        With kind="cluster": rows of one group may depend on each other. G groups, of n rows and k coefficients, correct
        it by G/(G − 1) · (n − 1)/(n − k).
    weights : {"frequency", "precision"}
        What the sample weights count: a row of weight 2 is two observations, or one of half the variance (the mean of
        two measurements, or of two trials of `Binomial`). It matters for n and for HC0 and HC1.

    Notes
    -----
    Least squares: s²(JᵀWJ)⁻¹, inverted by singular values of the scaled columns, so that nearly dependent parameters
    keep their digits. With a loss other than the squared one, ℓ″ is in the place of W: an approximation that ignores
    how far the noise is from normal. With a penalty it is s²H⁻¹(JᵀWJ)H⁻¹, H = JᵀWJ + λ, as for linear models: the
    scatter of the estimates, not how far the penalty draws them. Weights 1/σ² and ``known_variance=1`` belong together.

    Linear models: one reading of the rows for all matrices; groups on a cluster take a second one. Dependent columns
    without a penalty, and a fit whose coefficients grow for ever (separated classes), raise ValueError.
    """
    problem, x = as_problem(problem), point(result)
    if not isinstance(problem, ResidualProblem):
        return estimated(Fit.of(problem, x, weights), kind, groups, known_variance).covariance
    if kind != "model":
        raise ValueError(f"kind must be 'model' for least squares, got {kind!r}")
    return _of_least_squares(problem, x, known_variance)


def _of_least_squares(problem: ResidualProblem, x: Vector, known_variance: float | None) -> Covariance:
    value, residuals = problem.value_at(x)
    if not np.isfinite(value):
        raise ValueError("result must be a point where the residuals are finite")
    d, m = x.size, residuals.size
    if problem.weights is not None:  # rows of weight zero are no observations
        m = m // problem.n_samples * int(np.count_nonzero(problem.weights))
    sums = sums_of(problem.linearized(x, residuals, True), max(residuals.size, d), d, True)
    columns = np.where(sums.columns > 0.0, sums.columns, 1.0)
    data, penalty = sums.matrix / columns, np.diag(np.sqrt(problem.l2) / columns)
    left, values, right = np.linalg.svd(np.vstack([data, penalty]) if problem.l2 > 0.0 else data, full_matrices=False)
    own = np.linalg.svd(data, compute_uv=False)
    rank = int(np.sum(own > np.finfo(float).eps * max(residuals.size, d) * own.max(initial=0.0)))
    # H⁻¹J̃ᵀ of H = J̃ᵀJ̃ + λ is V S⁻¹U₁ᵀ, with U₁ the rows of the data, whose squares count the coefficients.
    of_data = left[: len(data)]
    freedom = m - (float(np.sum(of_data**2)) if problem.l2 > 0.0 else rank)
    # Weights were scaled for the sum, not by the user.
    count = problem.n_samples * problem.weight_scale
    if known_variance is not None:
        variance = _check.positive("known_variance", known_variance)
    else:
        losses = problem.terms(residuals).total * problem.weight_scale
        variance = 2.0 * losses / freedom if freedom > 0 else np.inf
    if rank < d and problem.l2 == 0.0:
        return Covariance(np.full((d, d), np.inf), variance, freedom, rank)
    root = (right.T / values) @ of_data.T / columns[:, None]
    return Covariance(root @ root.T * (variance / count), variance, freedom, rank)


# --------------------------------------------------------------------------------------------------- linear models


class Estimated(NamedTuple):
    """What one reading of the rows tells; the deviance is NaN where the loss is no likelihood."""

    covariance: Covariance
    deviance: float


def estimated(fit: Fit, kind: str, groups: Any, known_variance: float | None) -> Estimated:
    """The covariance of a linear model, as `covariance` says, and its deviance."""
    _check.one_of("kind", kind, KINDS)
    if (groups is None) == (kind == "cluster"):
        raise ValueError("groups must be given for the kind 'cluster', and for no other")
    likelihood = is_glm(fit.loss)
    if kind == "model" and not likelihood:
        raise ValueError(
            f"kind must be 'HC0', 'HC1' or 'cluster' with the loss {type(fit.loss).__name__}, which is no "
            "likelihood, got 'model'"
        )
    # One reading of the rows for all sums. Where ℓ″ does not depend on y, B is A.
    first, bread = "expected" if likelihood else "observed", "observed"
    if kind == "model" or isinstance(family_of(fit.loss), CANONICAL):
        bread = first
    meat = "squares of sums" if fit.precision else "squares"
    if kind != "model" and not fit.penalty.any():
        first = bread  # only the number of coefficients is asked of A, and without a penalty B knows it too
    wanted = {first, bread} if kind in ("model", "cluster") else {first, bread, meat}
    parts = fit.parts(row_sums, fit.x, tuple(sorted(wanted)))
    losses = fit.scale * sum(part.losses for part in parts)
    if not np.isfinite(losses):
        raise ValueError("result must be a point where the losses are finite")
    sums = {name: fit.scale * sum(part.matrices[name] for part in parts) for name in wanted}
    inverse = inverse_of(sums[first] + np.diag(fit.penalty), fit)
    count = float(np.sum(inverse * sums[first]))
    freedom = fit.n - count
    if known_variance is not None:
        variance = _check.positive("known_variance", known_variance)
    elif fit.dispersion_is_known:
        variance = 1.0
    else:
        variance = fit.scale * sum(part.pearson for part in parts) / freedom if freedom > 0.0 else math.inf
    if kind == "model":
        matrix = variance * (inverse @ sums[first] @ inverse if fit.penalty.any() else inverse)
    else:
        if bread != first:
            inverse = inverse_of(sums[bread] + np.diag(fit.penalty), fit)
        if kind == "cluster":
            middle = _of_groups(fit, groups, count)
        else:
            # M of weights as precisions has the square of the scale.
            middle = sums[meat] * (fit.scale if fit.precision else 1.0) * (1.0 if kind == "HC0" else fit.n / freedom)
        with one_blas_thread():
            matrix = np.asarray(inverse @ middle @ inverse)
    if any(part.at_edge for part in parts):
        refuse_separation(np.sqrt(np.diagonal(matrix)), fit)
    return Estimated(Covariance(matrix, variance, freedom, fit.x.size), 2.0 * losses if likelihood else math.nan)


def _of_groups(fit: Fit, groups: Any, count: float) -> Matrix:
    """M of whole groups, corrected for how many there are."""
    codes, number = _codes(groups)
    together = np.zeros((number, fit.x.size))
    for found, sums in fit.parts(group_sums, fit.x, per_row=codes):
        together[found] += fit.scale * sums
    correction = number / (number - 1.0) * (fit.n - 1.0) / (fit.n - count)
    return np.asarray(correction * (together.T @ together))


def _codes(groups: Any) -> tuple[Indices, int]:
    array = as_array(groups)
    if array.ndim != 1:
        raise ValueError(f"groups must be a vector with one entry for each row, got shape {array.shape}")
    known, codes = np.unique(array, return_inverse=True)
    if known.size < 2:
        raise ValueError("groups must be two or more, got one: nothing can be said of their scatter")
    return codes.astype(np.int64), int(known.size)


def separation(problem: Any, x: Vector) -> str | None:
    """What is to be said where the rows are separated, and x has only come so far on an endless way; else None.

    One look at the rows, and a covariance only if some of them are at the edge of their range.
    """
    fit = Fit.of(problem, x, "frequency")
    if any(part.at_edge for part in fit.parts(row_sums, x, ())):
        try:
            estimated(fit, "model", None, None)
        except SeparationError as error:
            return str(error)
        except ValueError:
            return None  # dependent columns: another matter
    return None
