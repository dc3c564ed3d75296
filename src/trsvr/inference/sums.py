"""Sums over the rows of a linear model that its statistics are made of.

They are functions of a model in memory, so that `trsvr.problems.base.Problem.on_rows` can run them where the rows lie:
what comes back is small.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._draws import NO_EPOCH
from trsvr._vectors import dot
from trsvr.problems.curvature import SampledMatrix
from trsvr.problems.families import LOG_LINK, Binomial, Gamma, NegativeBinomial, Poisson, is_glm
from trsvr.problems.linear import LinearModel
from trsvr.problems.losses import Logistic, Squared
from trsvr.problems.margins import Factors
from trsvr.problems.matrix import as_matrix
from trsvr.problems.passes import ConstantSum, MarginSum

#: families whose dispersion is 1
KNOWN_DISPERSION = (Poisson, NegativeBinomial, Binomial)
# Losses whose ℓ″ does not depend on y: what is expected of it is what it is.
CANONICAL = (Poisson, Binomial, Squared)
# Losses whose expected ℓ″ is ℓ″ or 1: their sums come from one reading that keeps nothing per row.
_AT_ONCE = (*CANONICAL, Gamma)
_OF_SLOPES = {(): 0, ("squares",): 1, ("squares of sums",): 2}
# Rows are at the edge of their range where their share of the largest curvature is so small.
_EDGE = 1e-6
# Counts up to this one are counted themselves: many rows have the same.
_COUNTED = 100_000


def family_of(loss: Any) -> Any:
    """The loss of responses 0 and 1 instead of labels −1 and 1."""
    return Binomial() if isinstance(loss, Logistic) else loss


class _Responses(NamedTuple):
    """Of the rows that count: y, weights of mean one (or 1 for all), and the offset (or 0)."""

    y: Vector
    w: Vector | float
    offset: Vector | float

    @classmethod
    def of(cls, model: LinearModel) -> _Responses:
        kernels = model.kernels
        y = 0.5 * (kernels.labels + 1.0) if isinstance(model.loss, Logistic) else kernels.labels
        w = kernels.weights if kernels.weights.size else 1.0
        offset = kernels.offset if kernels.offset.size else 0.0
        return cls(*_counting(model, y, w, offset))

    def total(self, column: Vector | float) -> float:
        """Weighted sum of a column."""
        if isinstance(column, float):
            return column * self.y.size  # the mean of the weights is one
        return float(column.sum()) if isinstance(self.w, float) else dot(self.w, column)


def _counting(model: LinearModel, *columns: Any) -> list[Any]:
    """Those of the rows that count."""
    chosen = model.chosen_rows
    if chosen is None:
        return list(columns)
    return [column if isinstance(column, float) else column[chosen] for column in columns]


class _Look(NamedTuple):
    """Sum of the losses; of the rows that count margins, weighted slopes and curvatures."""

    losses: float
    z: Vector
    slopes: Vector
    curvatures: Vector


def _look(model: LinearModel, x: Vector) -> _Look:
    """One reading of the rows."""
    kernels, loss = model.kernels, model.loss
    if model.is_small:
        z, w = model.decision(x), kernels.weights if kernels.weights.size else 1.0
        parts = [w * formula(z, kernels.labels) for formula in (loss.value, loss.slope, loss.curvature)]
        losses, z, slopes, curvatures = _counting(model, parts[0], z, *parts[1:])
        return _Look(float(np.sum(losses)), z, slopes, curvatures)
    at = MarginSum(np.ascontiguousarray(x), *(np.empty(kernels.labels.size) for _ in range(3)))
    total = model.passes.sums(at, kernels, lambda totals, parts: float(totals.sum()))
    return _Look(total, *_counting(model, at.margins, at.slopes, at.weights))


class RowSums(NamedTuple):
    """Losses, Pearson's statistic, whether some rows are at the edge of their range, and the matrices asked for."""

    losses: float
    pearson: float
    at_edge: bool
    matrices: dict[str, Matrix]


@np.errstate(all="ignore")
def row_sums(model: LinearModel, x: Vector, matrices: tuple[str, ...]) -> RowSums:
    """Each matrix is Σ of a factor times (x_i, 1)(x_i, 1)ᵀ, by its name: that of A, B or M of `trsvr.inference`."""
    rows, loss, pearson = _Responses.of(model), family_of(model.loss), math.nan
    if isinstance(loss, _AT_ONCE) and matrices[1:] in _OF_SLOPES and matrices and not model.is_small:
        canonical = isinstance(loss, CANONICAL)
        weighed = Factors(canonical or matrices[0] == "observed", canonical, _OF_SLOPES[matrices[1:]])
        found = SampledMatrix(model).information(x, weighed, _edge(loss, rows))
        if not found.is_flat:
            sums = {name: model.n_samples * matrix for name, matrix in zip(matrices, found.matrices, strict=True)}
            return RowSums(found.losses, found.pearson, False, sums)
    losses, z, slopes, curvatures = _look(model, x)
    factors = {"observed": curvatures}
    if matrices and is_glm(loss):
        expected = factors["expected"] = _expected(loss, z, rows.w, curvatures)
        if not isinstance(loss, KNOWN_DISPERSION):
            # w (y − μ)²/V = (wℓ′)²/(wI)
            pearson = float(np.sum(np.where(slopes == 0.0, 0.0, slopes * (slopes / expected))))
    if "squares" in matrices:
        factors["squares"] = slopes * (slopes / rows.w)
    if "squares of sums" in matrices:
        factors["squares of sums"] = slopes * slopes
    sums = {name: _gram(model, factors[name]) for name in matrices}
    return RowSums(losses, pearson, _at_edge(loss, z, rows, curvatures), sums)


def _expected(loss: Any, z: Vector, w: Vector | float, curvatures: Vector) -> Vector:
    """The weighted ℓ″ that is expected, (dμ/dz)²/V."""
    if isinstance(loss, CANONICAL):
        return curvatures
    if isinstance(loss, Gamma):
        return np.broadcast_to(w, z.shape)
    mean = loss.expectation(z)
    return np.asarray(w * mean * (mean / loss.variance(mean)))


def _edge(loss: Any, rows: _Responses) -> float:
    """Rows of weight one are at the edge of their range where their variance (or their mean, of counts) is less."""
    if isinstance(loss, Binomial):
        return _EDGE
    if not isinstance(loss, LOG_LINK) or isinstance(loss, Gamma):
        return 0.0
    return max(_EDGE * rows.total(rows.y) / rows.y.size, np.finfo(float).tiny)


def _at_edge(loss: Any, z: Vector, rows: _Responses, curvatures: Vector) -> bool:
    """Whether the mean of some row is at the edge of its range: near 0 or 1, or near 0 where y is 0."""
    edge = _edge(loss, rows)
    if isinstance(loss, Binomial):
        return bool(np.any(curvatures < edge * rows.w))
    return edge > 0.0 and bool(np.any((z < math.log(edge)) & (rows.y == 0.0)))


def _gram(model: LinearModel, factors: Vector) -> Matrix:
    if model.is_small:
        return np.asarray(model.n_samples * model.small.gram(np.ascontiguousarray(factors)))
    if model.chosen_rows is not None:
        everywhere = np.zeros(model.kernels.labels.size)
        everywhere[model.chosen_rows] = factors
        factors = everywhere
    gram = SampledMatrix(model)
    found, _ = gram.matrix(np.ascontiguousarray(factors), gram.n_rows, NO_EPOCH)
    return model.n_samples * found


@np.errstate(all="ignore")
def group_sums(model: LinearModel, x: Vector, groups: Indices) -> tuple[Indices, Matrix]:
    """The groups that there are in a block, and the sum of w ℓ′ (x_i, 1) over each."""
    slopes = _look(model, x).slopes
    found, places = np.unique(_counting(model, groups)[0], return_inverse=True)
    columns = np.arange(groups.size) if model.chosen_rows is None else model.chosen_rows
    sums = scipy.sparse.csr_array((slopes, (places.ravel(), columns)), shape=(found.size, groups.size))
    together = sums @ as_matrix(model.kernels.rows, model.n_features)
    matrix = together.toarray() if scipy.sparse.issparse(together) else np.asarray(together)
    if model.intercept:
        matrix = np.column_stack([matrix, np.bincount(places.ravel(), slopes, found.size)])
    return found, matrix.astype(np.float64)


def response_sums(model: LinearModel) -> Vector:
    """Weighted sums of the responses, and of the offset."""
    rows = _Responses.of(model)
    return np.array([rows.total(rows.y), rows.total(rows.offset)])


@np.errstate(all="ignore")
def constant_sums(model: LinearModel, constant: float) -> Vector:
    """Sums of losses, slopes and curvatures where every margin is a constant and the offset."""
    if not model.is_small:

        def use(totals: Vector, parts: Matrix) -> Vector:
            return np.array([totals.sum(), *parts[: totals.size, :2].sum(axis=0)])

        found: Vector = model.passes.sums(ConstantSum(constant), model.kernels, use)
        return found
    rows, loss = _Responses.of(model), family_of(model.loss)
    z = np.broadcast_to(constant + rows.offset, rows.y.shape)
    formulas = loss.value, loss.slope, loss.curvature
    return np.array([np.sum(rows.w * formula(z, rows.y)) for formula in formulas])


@np.errstate(all="ignore")
def saturated_likelihood(model: LinearModel, dispersion: float, scale: float, precision: bool) -> float:
    """Log-likelihood of the rows at means that are y itself; their weights are those of the kernels times ``scale``."""
    from scipy.special import gammaln, xlog1py, xlogy  # take long, and few need them

    if isinstance(model.loss, Logistic):
        return 0.0
    rows, loss = _Responses.of(model), model.loss
    y, w = rows.y, scale * rows.w
    if isinstance(loss, Poisson | NegativeBinomial):
        y, w = _distinct(y, w)
    if isinstance(loss, Poisson):
        terms = w * (xlogy(y, y) - y - gammaln(y + 1.0))
    elif isinstance(loss, NegativeBinomial):
        r, odds = 1.0 / loss.dispersion, loss.dispersion * y
        ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1.0)
        terms = w * (ways - xlog1py(y + r, odds) + xlogy(y, odds))
    elif isinstance(loss, Binomial):  # the weights are trials
        ways = gammaln(w + 1.0) - gammaln(w * y + 1.0) - gammaln(w * (1.0 - y) + 1.0)
        terms = ways + w * (xlogy(y, y) + xlog1py(1.0 - y, -y))
    elif isinstance(loss, Gamma):
        shape = np.asarray(w if precision else 1.0) / dispersion
        each = xlogy(shape, shape) - shape - gammaln(shape) - np.log(y)
        terms = each if precision else w * each
    else:
        return math.nan
    return float(np.sum(terms))


def _distinct(y: Vector, w: Any) -> tuple[Vector, Any]:
    """The different counts, and the weight of each; as they are where they are large or not whole."""
    if not y.max(initial=0.0) <= _COUNTED:
        return y, w
    whole = y.astype(np.int64)
    often = np.bincount(whole)
    if often @ np.arange(often.size) != y.sum():  # both exact where y is whole
        return y, w
    weights = w * often if isinstance(w, float) else np.bincount(whole, w)
    counts = np.flatnonzero(weights)
    return counts.astype(np.float64), weights[counts]


def column_ranges(model: LinearModel) -> tuple[Vector, Vector]:
    """Smallest and largest entries of the columns."""
    matrix = as_matrix(model.kernels.rows, model.n_features)
    if not scipy.sparse.issparse(matrix):
        return matrix.min(axis=0), matrix.max(axis=0)
    return matrix.min(axis=0).toarray().ravel(), matrix.max(axis=0).toarray().ravel()


def log_weights(model: LinearModel) -> float:
    """Sum of the logarithms of the rows' weights."""
    rows = _Responses.of(model)
    return float(np.sum(np.broadcast_to(np.log(rows.w), rows.y.shape)))
