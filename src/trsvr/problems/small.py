"""Small data without compiling: full passes and curvatures of a linear model in NumPy, all rows at once.

The rows are one dense matrix of float64, with a column of ones for an intercept and without the rows of weight zero.
It lies column by column: loops along the rows are the long ones. BLAS makes its products with one thread alone: nobody
waits for others, and results have the same bits for any number of them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from trsvr._arrays import Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr._draws import Draws
from trsvr._vectors import SHORT
from trsvr.problems.columns import evenly, middles_of
from trsvr.problems.curvature import matrix_bounds, sample_of
from trsvr.problems.families import FAMILIES
from trsvr.problems.losses import (
    Logistic,
    PseudoHuber,
    Softmax,
    Squared,
    SquaredHinge,
    sharing,
)
from trsvr.problems.matrix import as_matrix
from trsvr.problems.regularizers import L2, DoubleWell, Penalty, Sum
from trsvr.problems.rows import DenseRows
from trsvr.problems.views import Prices

if TYPE_CHECKING:
    from trsvr.problems.linear import LinearModel

# Small: so many numbers in the rows made dense, so many margins times columns, so many columns.
_NUMBERS = 2**17
MOST_WORK = 2**21
FEW_COLUMNS = 96
# Centred: a column whose squared mean is no more than this part of its mean square.
_CENTRED = 1e-6
# Near enough to zero for a fit: no more than this part, which costs a digit or two of none that count. One huge entry
# would make it so, wherever the others lie: no square may be so many times the least mean square.
_NEAR, _HUGE = 0.8, 100.0
# A mean square about the mean has kept its digits when it comes from one about zero, and is more than this part of it.
_DIGITS_KEPT = 1e-3

_KNOWN = (Logistic, SquaredHinge, Squared, PseudoHuber, Softmax, *FAMILIES, L2, DoubleWell)
_takes_arrays: dict[type, bool] = {}


def is_small(n_rows: int, columns: int, outputs: int, loss: Any, regularizer: Any) -> bool:
    """Whether NumPy does it: a question of the shape alone, and of formulas that take arrays."""
    return (
        n_rows * columns <= _NUMBERS
        and n_rows * columns * outputs <= MOST_WORK
        and columns <= FEW_COLUMNS
        and columns * outputs <= SHORT
        and takes_arrays(loss, _SOME_LABELS)
        and takes_arrays(regularizer, 3)
    )


_SOME_MARGINS = np.array([-1.75, -0.5, 0.0, 0.25, 1.0, 3.5])
_SOME_LABELS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])


def takes_arrays(formulas: Any, second: Any) -> bool:
    """Whether a loss or regulariser gives for arrays what it gives for numbers; one of the user's is tried, once."""
    if isinstance(formulas, Sum):
        return takes_arrays(formulas.first, second) and takes_arrays(formulas.second, second)
    kind = type(formulas)
    if kind in _KNOWN:
        return True
    if kind not in _takes_arrays:
        _takes_arrays[kind] = _try(formulas, second)
    return _takes_arrays[kind]


def _try(formulas: Any, second: Any) -> bool:
    seconds = np.broadcast_to(second, _SOME_MARGINS.shape).tolist()
    try:
        with np.errstate(all="ignore"):
            for formula in (formulas.value, formulas.slope, formulas.curvature):
                one_by_one = [float(formula(*pair)) for pair in zip(_SOME_MARGINS.tolist(), seconds, strict=True)]
                together = np.broadcast_to(formula(_SOME_MARGINS.copy(), second), _SOME_MARGINS.shape)
                if not np.allclose(together, one_by_one, rtol=1e-9, atol=1e-12, equal_nan=True):
                    return False
    except Exception:  # whatever the user's formula says to an array: it is compiled then
        return False
    return True


class SmallModel:
    """Sums over all rows of a small linear model; x is a vector of length d, or d × K numbers, flattened."""

    def __init__(self, problem: LinearModel) -> None:
        kernels, chosen = problem.kernels, problem.chosen_rows
        self.loss, self.regularizer, self.outputs = problem.loss, problem.regularizer, problem.n_outputs
        self.n, self.penalised = problem.n_samples, problem.n_features * problem.n_outputs
        self.n_parameters = problem.n_parameters
        matrix = as_matrix(kernels.rows, problem.n_features)
        values = matrix if isinstance(kernels.rows, DenseRows) else matrix.toarray()
        self.values = np.asarray(values if chosen is None else values[chosen], dtype=np.float64)
        self.intercept = bool(problem.intercept)
        self.labels = kernels.labels if chosen is None else kernels.labels[chosen]
        if self.outputs > 1:
            self.labels = self.labels.astype(np.intp)
        self.scale = None  # of the rows: one
        if kernels.weights.size:
            self.scale = kernels.weights if chosen is None else kernels.weights[chosen]
        self.offset: Any = None
        if kernels.offset.size:
            table = kernels.offset.reshape(-1, self.outputs)
            table = table if chosen is None else table[chosen]
            self.offset = table[:, 0] if self.outputs == 1 else table.T
        self.ones = np.ones(self.n)  # a loss may have one curvature for all rows
        self.prices: dict[type, Prices] = {}  # of its views, once found

    @cached_property
    def columns(self) -> Matrix:
        """X's columns as rows, and ones for the intercept."""
        return self._minus(0.0)

    def _minus(self, means: Any) -> Matrix:
        columns = np.empty((self.values.shape[1] + self.intercept, self.n))
        np.subtract(self.values.T, means, out=columns[: self.values.shape[1]])
        columns[self.values.shape[1] :] = 1.0
        return columns

    @property
    def design(self) -> Matrix:
        """The rows, with a one behind each where there is an intercept."""
        return self.columns.T

    @property
    def _row_weights(self) -> Vector:
        return self.ones if self.scale is None else self.scale

    @cached_property
    @np.errstate(all="ignore")
    def column_means(self) -> Vector:
        """Weighted, of each column but the intercept's."""
        with one_blas_thread():
            return np.asarray(self._row_weights @ self.values / self.n)

    @cached_property
    @np.errstate(all="ignore")
    def mean_squares(self) -> Vector:
        """The same of their squares."""
        with one_blas_thread():
            return np.asarray(self._row_weights @ (self.values * self.values) / self.n)

    def with_regularizer(self, regularizer: Any) -> SmallModel:
        """The same rows under another penalty."""
        other = object.__new__(SmallModel)
        vars(other).update(vars(self), regularizer=regularizer)
        vars(other).pop("penalty", None)
        return other

    @cached_property
    @np.errstate(all="ignore")
    def is_centred(self) -> bool:
        """Whether the columns' means are small beside their sizes: those of standardised data, most of all."""
        squares, means = self.mean_squares, self.column_means**2
        if (means <= _CENTRED * squares).all():
            return True
        near = bool((means <= _NEAR * squares).all())
        return near and bool(max(self.values.max(), -self.values.min()) ** 2 <= _HUGE * squares.min())

    @np.errstate(all="ignore")
    def centred(self) -> tuple[SmallModel, Vector]:
        """The same rows with the columns centred, and what was subtracted: their weighted means."""
        known = self.column_means
        means = np.where(np.isfinite(known), known, 0.0)
        middles = middles_of(means, self.values[evenly(self.n)])[0]
        other = self._shifted(middles)
        squares = self.mean_squares - middles * (2.0 * known - middles)
        if (squares > _DIGITS_KEPT * self.mean_squares).all():
            vars(other)["mean_squares"] = squares
            return other, middles
        # Far from zero once more where it makes a difference: a constant column is then zero, to its last bit.
        rest = np.where(np.isfinite(other.column_means) & (middles == means), other.column_means, 0.0)
        if (rest * rest > _CENTRED * other.mean_squares).any():
            other = other._shifted(rest)
            middles = middles + rest
        _ = other.mean_squares  # once for all penalties
        return other, middles

    def _shifted(self, means: Vector) -> SmallModel:
        other = object.__new__(SmallModel)
        vars(other).update(vars(self), columns=self._minus(means[:, None]))
        for known in ("is_centred", "column_means", "mean_squares"):
            vars(other).pop(known, None)
        other.values = other.design[:, : means.size]
        return other

    # -------------------------------------------------------------------------------------------- products with rows

    def margins(self, x: Vector) -> Matrix:
        """Of all rows: n numbers, or K × n."""
        weights = x if self.outputs == 1 else np.ascontiguousarray(x.reshape(-1, self.outputs).T)
        with one_blas_thread():
            return np.asarray(weights @ self.columns)

    def sums(self, factors: Matrix) -> Vector:
        """Mean of the rows, each times its factor, or times its K factors."""
        with one_blas_thread():
            total = self.columns @ factors.T
        total /= self.n
        return total.ravel()

    @np.errstate(all="ignore")
    def gram(self, weights: Vector) -> Matrix:
        """Mean of w_i x_i x_iᵀ; with K × n weights a matrix for each of them."""
        with one_blas_thread():
            if weights.ndim == 1:
                return _product(self.columns, weights) / self.n
            return np.stack([_product(self.columns, of_one) for of_one in weights]) / self.n

    @np.errstate(all="ignore")
    def sampled_gram(self, weights: Vector, rows: int, draws: Draws, number: int = 0) -> tuple[Matrix, int]:
        """The same from about so many rows, as `trsvr.problems.curvature.SampledMatrix`; and how many."""
        norms = squared_norms(self.design)
        sample, bounds = sample_of(rows, weights, norms), matrix_bounds(self.n)
        chances = np.minimum(1.0, sample.share + sample.per_weight * weights * norms)
        taken = []
        offsets = draws.stream("matrix", number).random(bounds.size - 1)
        for offset, begin, end in zip(offsets, bounds[:-1], bounds[1:], strict=True):
            # A row is taken whenever the sum of the chances passes a whole number.
            passed = np.floor(np.cumsum(np.append(offset, chances[begin:end])))
            taken.append(begin + np.flatnonzero(np.diff(passed) > 0.0))
        chosen = np.concatenate(taken)
        with one_blas_thread():
            return _product(self.columns[:, chosen], weights[chosen] / chances[chosen]) / self.n, chosen.size

    def weighted(self, table: Matrix) -> Matrix:
        """Numbers of the rows, times the weights of these."""
        return table if self.scale is None else table * self.scale

    # ------------------------------------------------------------------------------------------------- full passes

    @np.errstate(all="ignore")
    def evaluate(self, x: Vector) -> tuple[float, Vector, Matrix, Matrix, Matrix]:
        """Value and gradient, margins, the rows' weighted curvatures (both are probabilities where K > 1), slopes."""
        table = self.margins(x)
        if self.offset is not None:
            table += self.offset
        if self.outputs == 1:
            loss, labels = sharing(self.loss, table), self.labels
            values, slopes, curvatures = loss.value(table, labels), loss.slope(table, labels), self.bent(loss, table)
            kept = table
        else:
            values, slopes = self.loss.value_and_slopes(table, self.labels), table
            kept = curvatures = table.copy()
            kept[self.labels, np.arange(self.n)] += 1.0
        gradient = self.sums(self.weighted(slopes))
        value = float(self.weighted(values).sum()) / self.n
        weights = x[: self.penalised]
        penalty = self.regularizer.value(weights, self.penalised)
        value += float(penalty.sum() if isinstance(penalty, np.ndarray) else penalty)
        gradient[: self.penalised] += self.regularizer.slope(weights, self.penalised)
        return value, gradient, kept, curvatures, slopes

    def bent(self, loss: Any, margins: Vector) -> Vector:
        """Weighted curvatures of the rows; a loss may have one for all of them."""
        curvatures = loss.curvature(margins, self.labels)
        return self.weighted(curvatures if isinstance(curvatures, np.ndarray) else curvatures * self.ones)

    @np.errstate(all="ignore")
    def hessian_product(self, x: Vector, v: Vector) -> Vector:
        """∇²f(x) v."""
        return self.product(self.evaluate(x)[3], v) + self.penalty.curvatures(x) * v

    @np.errstate(all="ignore")
    def product(self, curvatures: Matrix, v: Vector) -> Vector:
        """Mean Hessian of the losses, from the rows' curvatures or probabilities, times v."""
        table = self.margins(v)
        if self.outputs == 1:
            table *= curvatures
            return self.sums(table)
        self.loss.probability_product(curvatures, table)
        return self.sums(self.weighted(table))

    # ------------------------------------------------------------------------------------------------- the penalty

    @cached_property
    def penalty(self) -> Penalty:
        """The regulariser's part of derivatives."""
        return Penalty(self.regularizer, self.n_parameters, self.penalised)


def dot_of_rows(a: Vector, b: Vector) -> float:
    """Σ a_i b_i over the rows, which may be many."""
    with one_blas_thread():
        return float(np.vdot(a, b))


def squared_norms(matrix: Any) -> Vector:
    """‖x_i‖² of every row."""
    if scipy.sparse.issparse(matrix):
        return np.asarray(matrix.astype(np.float64).power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)


def _product(columns: Matrix, weights: Vector) -> Matrix:
    """Sum of w_i x_i x_iᵀ. Half of a symmetric product is enough, unless a loss of the user's own bends down."""
    scaled = columns * np.sqrt(weights)
    total = scaled @ scaled.T
    return (columns * weights) @ columns.T if total[0, 0] != total[0, 0] else total
