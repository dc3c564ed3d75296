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
from trsvr.problems.families import LOG_LINK, Binomial, Gamma, NegativeBinomial, Poisson
from trsvr.problems.linear import LinearModel
from trsvr.problems.losses import Logistic, Squared
from trsvr.problems.matrix import as_matrix
from trsvr.problems.passes import ConstantSum, MarginSum

#: families whose dispersion is 1
KNOWN_DISPERSION = (Poisson, NegativeBinomial, Binomial)
# Losses whose ℓ″ does not depend on y: what is expected of it is what it is.
CANONICAL = (Poisson, Binomial, Squared)
# Rows are at the edge of their range where their share of the largest curvature is so small.
_EDGE = 1e-6
# Counts up to this one are counted themselves: many rows have the same.
_COUNTED = 100_000


def family_of(loss: Any) -> Any:
    """The loss of responses 0 and 1 instead of labels −1 and 1."""
    return Binomial() if isinstance(loss, Logistic) else loss


class _Responses(NamedTuple):
    """Of the rows that count: y, weights of mean one, and the offset."""

    y: Vector
    w: Vector
    offset: Vector

    @classmethod
    def of(cls, model: LinearModel) -> _Responses:
        kernels = model.kernels
        y = 0.5 * (kernels.labels + 1.0) if isinstance(model.loss, Logistic) else kernels.labels
        w = kernels.weights if kernels.weights.size else np.ones(y.size)
        offset = kernels.offset if kernels.offset.size else np.zeros(y.size)
        return cls(*_counting(model, y, w, offset))


def _counting(model: LinearModel, *columns: Any) -> list[Any]:
    """Those of the rows that count."""
    chosen = model.chosen_rows
    return list(columns) if chosen is None else [column[chosen] for column in columns]


def _margins(model: LinearModel, x: Vector) -> tuple[float, Vector, Vector, Vector]:
    """Sum of the losses, and of the rows that count: margins, weighted slopes, weighted curvatures."""
    kernels, loss = model.kernels, model.loss
    if model.is_small:
        z, w = model.decision(x), kernels.weights if kernels.weights.size else 1.0
        parts = [w * formula(z, kernels.labels) for formula in (loss.value, loss.slope, loss.curvature)]
        losses, z, slopes, curvatures = _counting(model, parts[0], z, *parts[1:])
        return float(np.sum(losses)), z, slopes, curvatures
    z, slopes, curvatures = (np.empty(kernels.labels.size) for _ in range(3))
    task = MarginSum(np.ascontiguousarray(x), z, slopes, curvatures)
    total = model.passes.sums(task, kernels, lambda totals, parts: float(totals.sum()))
    return total, *_counting(model, z, slopes, curvatures)


class RowSums(NamedTuple):
    """Losses, Pearson's statistic, whether some rows are at the edge of their range, and the matrices asked for."""

    losses: float
    pearson: float
    at_edge: bool
    matrices: dict[str, Matrix]


@np.errstate(all="ignore")
def row_sums(model: LinearModel, x: Vector, matrices: tuple[str, ...]) -> RowSums:
    """Each matrix is Σ of a factor times (x_i, 1)(x_i, 1)ᵀ, by its name: that of A, B or M of `trsvr.inference`."""
    losses, z, slopes, curvatures = _margins(model, x)
    rows, loss, pearson = _Responses.of(model), family_of(model.loss), math.nan
    factors = {"observed": curvatures}
    if "expected" in matrices:
        factors["expected"] = _expected(loss, z, rows.w, curvatures)
        if not isinstance(loss, KNOWN_DISPERSION):
            # w (y − μ)²/V = (wℓ′)²/(wI)
            pearson = float(np.sum(np.where(slopes == 0.0, 0.0, slopes * (slopes / factors["expected"]))))
    if "squares" in matrices:
        factors["squares"] = slopes * (slopes / rows.w)
    if "squares of sums" in matrices:
        factors["squares of sums"] = slopes * slopes
    found = {name: _gram(model, factors[name]) for name in matrices}
    return RowSums(losses, pearson, _at_edge(loss, z, rows, curvatures), found)


def _expected(loss: Any, z: Vector, w: Vector, curvatures: Vector) -> Vector:
    """The weighted ℓ″ that is expected, (dμ/dz)²/V."""
    if isinstance(loss, CANONICAL):
        return curvatures
    if isinstance(loss, Gamma):
        return w
    mean = loss.expectation(z)
    return np.asarray(w * mean * (mean / loss.variance(mean)))


def _at_edge(loss: Any, z: Vector, rows: _Responses, curvatures: Vector) -> bool:
    """Whether the mean of some row is at the edge of its range: near 0 or 1, or near 0 where y is 0."""
    if isinstance(loss, Binomial):
        return bool(np.any(curvatures < _EDGE * rows.w))
    if not isinstance(loss, LOG_LINK) or isinstance(loss, Gamma):
        return False
    least = math.log(max(_EDGE * dot(rows.w, rows.y) / rows.y.size, np.finfo(float).tiny))
    return bool(z.min() < least and np.any((z < least) & (rows.y == 0.0)))


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
    _, _, slopes, _ = _margins(model, x)
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
    return np.array([dot(rows.w, rows.y), dot(rows.w, rows.offset)])


@np.errstate(all="ignore")
def constant_sums(model: LinearModel, constant: float) -> Vector:
    """Sums of losses, slopes and curvatures where every margin is a constant and the offset."""
    if not model.is_small:

        def use(totals: Vector, parts: Matrix) -> Vector:
            return np.array([totals.sum(), *parts[: totals.size, :2].sum(axis=0)])

        found: Vector = model.passes.sums(ConstantSum(constant), model.kernels, use)
        return found
    rows, loss = _Responses.of(model), family_of(model.loss)
    z = constant + rows.offset
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


def _distinct(y: Vector, w: Vector) -> tuple[Vector, Vector]:
    """The different counts, and the weight of each; as they are where they are large or not whole."""
    if not y.max(initial=0.0) <= _COUNTED:
        return y, w
    whole = y.astype(np.int64)
    if not np.array_equal(whole, y):
        return y, w
    weights: Vector = np.bincount(whole, w).astype(np.float64)
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
    return float(np.sum(np.log(_Responses.of(model).w)))
