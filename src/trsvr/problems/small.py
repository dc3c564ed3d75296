"""Small data without compiling: full passes and curvatures of a linear model in NumPy, all rows at once.

The rows are one dense matrix of float64, with a column of ones for an intercept and without the rows of weight zero.
Its products are made in pieces that are too small for BLAS to wake its threads, or with one thread alone: nobody waits
for them, and results have the same bits for any number of them.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr._draws import Draws
from trsvr._vectors import SHORT
from trsvr.problems.certificate import GapFacts, between_outputs, lowest_value, softmax_stays_steady, stays_steady
from trsvr.problems.columns import bulk_of, evenly
from trsvr.problems.curvature import draw_runs, matrix_bounds, sample_of
from trsvr.problems.families import FAMILIES
from trsvr.problems.lines import HingedRows, lowest_part
from trsvr.problems.losses import (
    Logistic,
    PseudoHuber,
    Softmax,
    Squared,
    SquaredHinge,
    bend_of,
    curvature_bound,
    is_smooth,
    sharing,
)
from trsvr.problems.margins import raised_curvature
from trsvr.problems.matrix import as_matrix
from trsvr.problems.output_curvature import raised_chances
from trsvr.problems.regularizers import L2, DoubleWell, Sum, least_curvature, penalty_curvatures, penalty_slopes
from trsvr.problems.rows import DenseRows
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising

if TYPE_CHECKING:
    from trsvr.problems.linear import LinearModel

# Small: so many numbers in the rows made dense, so many margins times columns, so many columns.
_NUMBERS = 2**17
_WORK = 2**21
_COLUMNS = 96
# The most that BLAS does on one thread: numbers in a matrix times a vector, multiplications of two matrices (OpenBLAS
# takes a thread for each 2¹⁸ whole ones).
_LONE_ENTRIES = 9000
_LONE_PRODUCTS = 2**19 - 1
# Centred: a column whose squared mean is no more than this part of its mean square. One huge entry among small data
# makes it more, wherever the others lie.
_CENTRED = 1e-6
# How much cheaper than elsewhere a matrix is beside a product: BLAS makes it, and calls cost as much as arithmetic. Of
# several outputs it is no cheaper: their products are of matrices, too.
_CHEAPER = 8.0

_KNOWN = (Logistic, SquaredHinge, Squared, PseudoHuber, Softmax, *FAMILIES, L2, DoubleWell)
_takes_arrays: dict[type, bool] = {}


def is_small(n_rows: int, columns: int, outputs: int, loss: Any, regularizer: Any) -> bool:
    """Whether NumPy does it: a question of the shape alone, and of formulas that take arrays."""
    return (
        n_rows * columns <= _NUMBERS
        and n_rows * columns * outputs <= _WORK
        and columns <= _COLUMNS
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
        matrix = as_matrix(kernels.rows, problem.n_features)
        values = matrix if isinstance(kernels.rows, DenseRows) else matrix.toarray()
        self.design = np.ones((self.n, problem.n_features + int(problem.intercept)))
        self.design[:, : problem.n_features] = values if chosen is None else values[chosen]
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
        self._cut_up()

    def _cut_up(self) -> None:
        d = self.design.shape[1]
        most = _LONE_ENTRIES // d if self.outputs == 1 else _LONE_PRODUCTS // (d * self.outputs)
        self._pieces = self._cut(most)
        self._blocks = self._cut(_LONE_PRODUCTS // (d * d))

    def _cut(self, most: int) -> list[tuple[slice, Matrix]]:
        slices = (slice(begin, begin + max(1, most)) for begin in range(0, self.n, max(1, most)))
        return [(rows, self.design[rows]) for rows in slices]

    @property
    def _thin_pieces(self) -> list[tuple[slice, Matrix]]:
        """Pieces for a vector; with several outputs the usual ones are for a matrix."""
        return self._pieces if self.outputs == 1 else self._cut(_LONE_ENTRIES // self.design.shape[1])

    @property
    def _row_weights(self) -> Vector:
        return self.ones if self.scale is None else self.scale

    @cached_property
    @np.errstate(all="ignore")
    def column_means(self) -> Vector:
        """Weighted, of each column."""
        weights, total = self._row_weights, np.zeros(self.design.shape[1])
        for rows, piece in self._thin_pieces:
            total += weights[rows] @ piece
        return total / self.n

    @cached_property
    @np.errstate(all="ignore")
    def mean_squares(self) -> Vector:
        """Weighted, of each column."""
        weights, total = self._row_weights, np.zeros(self.design.shape[1])
        for rows, piece in self._thin_pieces:
            total += weights[rows] @ (piece * piece)
        return total / self.n

    def with_regularizer(self, regularizer: Any) -> SmallModel:
        """The same rows under another penalty."""
        other = object.__new__(SmallModel)
        vars(other).update(vars(self), regularizer=regularizer)
        return other

    @cached_property
    @np.errstate(all="ignore")
    def is_centred(self) -> bool:
        """Whether the columns' means are small beside their sizes: those of standardised data, most of all."""
        columns = self.penalised // self.outputs
        means = self.column_means[:columns]
        return bool((means * means <= _CENTRED * self.mean_squares[:columns]).all())

    def centred(self, columns: int) -> tuple[SmallModel, Vector]:
        """The same rows with these columns centred, and what was subtracted: their weighted means."""
        other = object.__new__(SmallModel)
        first = _finite_part(self.column_means, columns)
        vars(other).update(vars(self), design=self.design - first)
        for known in ("is_centred", "column_means", "mean_squares"):
            vars(other).pop(known, None)
        other._cut_up()
        # Twice: a constant column is then zero, to its last bit.
        rest = _finite_part(other.column_means, columns)
        other.design -= rest
        del other.column_means
        means = (first + rest)[:columns]
        middles = bulk_of(means, self.design[evenly(self.n), :columns]).middles
        if (moved := middles != means).any():
            means = middles
            other.design[:, :columns][:, moved] = self.design[:, :columns][:, moved] - middles[moved]
        _ = other.mean_squares  # once for all penalties
        return other, means

    # -------------------------------------------------------------------------------------------- products with rows

    def margins(self, x: Vector) -> Matrix:
        """Of all rows: n numbers, or K × n."""
        if self.outputs == 1:
            out = np.empty(self.n)
            for rows, piece in self._pieces:
                np.dot(piece, x, out=out[rows])
            return out
        table, weights = np.empty((self.outputs, self.n)), np.ascontiguousarray(x.reshape(-1, self.outputs).T)
        for rows, piece in self._pieces:
            table[:, rows] = weights @ piece.T
        return table

    def sums(self, factors: Matrix) -> Vector:
        """Mean of the rows, each times its factor, or times its K factors."""
        mean = self._mean_row(factors)
        return mean if self.outputs == 1 else mean.T.ravel()

    def _mean_row(self, factors: Matrix) -> Matrix:
        rows, piece = self._pieces[0]
        total = factors[..., rows] @ piece
        for rows, piece in self._pieces[1:]:
            total += factors[..., rows] @ piece
        total /= self.n
        return total

    @np.errstate(all="ignore")
    def gram(self, weights: Vector) -> Matrix:
        """Mean of w_i x_i x_iᵀ; with K × n weights a matrix for each of them."""
        if weights.ndim > 1:
            return self._grams(np.sqrt(weights))
        rows, piece = self._blocks[0]
        total = _gram(piece, weights[rows])
        for rows, piece in self._blocks[1:]:
            total += _gram(piece, weights[rows])
        total /= self.n
        return total

    def _grams(self, roots: Matrix) -> Matrix:
        """A matrix for each of K vectors, from the roots of the weights: half of a symmetric product is enough."""
        totals, scaled = np.empty((len(roots), *(self.design.shape[1],) * 2)), np.empty_like(self.design)
        with one_blas_thread():  # such a product would be divided among threads whatever its size
            for root, total in zip(roots, totals, strict=True):
                np.multiply(self.design, root[:, None], out=scaled)
                np.matmul(scaled.T, scaled, out=total)
        totals /= self.n
        return totals

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
        matrix, most = np.zeros((self.design.shape[1],) * 2), self._blocks[0][1].shape[0]
        for begin in range(0, chosen.size, most):
            some = chosen[begin : begin + most]
            matrix += _gram(self.design[some], weights[some] / chances[some])
        return matrix / self.n, chosen.size

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
        value += float(np.sum(self.regularizer.value(weights, self.penalised)))
        gradient[: self.penalised] += self.regularizer.slope(weights, self.penalised)
        return value, gradient, kept, curvatures, slopes

    def bent(self, loss: Any, margins: Vector) -> Vector:
        """Weighted curvatures of the rows; a loss may have one for all of them."""
        curvatures = loss.curvature(margins, self.labels)
        return self.weighted(curvatures if isinstance(curvatures, np.ndarray) else curvatures * self.ones)

    @np.errstate(all="ignore")
    def hessian_product(self, x: Vector, v: Vector) -> Vector:
        """∇²f(x) v."""
        return self.product(self.evaluate(x)[3], v) + self.penalty_curvatures(x) * v

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

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return penalty_slopes(self.regularizer, x, self.penalised)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return penalty_curvatures(self.regularizer, x, self.penalised)


def _finite_part(means: Vector, columns: int) -> Vector:
    """Means of so many columns, zero where they are no numbers; and zero for the intercept."""
    return np.where(np.isfinite(means) & (np.arange(means.size) < columns), means, 0.0)


def squared_norms(matrix: Any) -> Vector:
    """‖x_i‖² of every row."""
    if scipy.sparse.issparse(matrix):
        return np.asarray(matrix.astype(np.float64).power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)


def _gram(piece: Matrix, weights: Vector) -> Matrix:
    return (piece.T * weights) @ piece


def small_view(model: SmallModel) -> CurvatureView:
    """What the adaptive mode looks at: a view of one matrix, unless several outputs make that a large one."""
    if model.outputs == 1:
        return SmallView(model)
    whole = model.outputs * model.design.shape[1]
    fits = whole <= _COLUMNS and model.n * whole * whole <= 4 * _WORK
    return (WholeOutputView if fits else SmallOutputView)(model)


class _View(CurvatureView):
    """What the views share."""

    def __init__(self, model: SmallModel) -> None:
        self.model, self.n_rows = model, model.n
        if type(self) not in model.prices:
            model.prices[type(self)] = self._find_prices()
        self._prices = model.prices[type(self)]

    def _find_prices(self) -> Prices:
        model = self.model
        d = model.design.shape[1] * model.outputs // self.n_outputs
        known = Prices.of_rows(model.n, d, self.n_outputs, model.design.size)
        line = 1.0 if is_smooth(model.loss) else math.inf
        cheaper = _CHEAPER if self.n_outputs == 1 else 1.0
        return known._replace(matrix_row=known.matrix_row / cheaper, line=line)

    def prices(self) -> Prices:
        """What arithmetic costs."""
        return self._prices

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self.model.penalty_slopes(x)

    @np.errstate(all="ignore")
    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f."""
        model, columns = self.model, self.model.penalised // self.model.outputs
        if bend_of(model.loss) is None:
            return None
        squares, sizes = model.mean_squares, np.abs(x.reshape(-1, model.outputs)).max(axis=1)
        spread = float(squares[:columns].sum())
        intercepts, slope, curved = self.sizes()
        return GapFacts(
            least_curvature(model.regularizer, model.penalised),
            intercepts if model.design.shape[1] > columns else None,
            spread,
            spread,
            slope,
            curved,
            self.steady,
            float(np.sqrt(squares) @ sizes),
            lowest_value(model.loss, model.regularizer, model.penalised),
        )

    def sizes(self) -> tuple[Matrix, float, float]:
        """Mean Hessian of the losses between the intercepts; root mean squares of the rows' slopes and curvatures."""
        raise NotImplementedError

    def steady(self, length: float) -> bool:
        """Whether curvatures stay above their half where slopes move along t."""
        raise NotImplementedError

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self.model.penalty_curvatures(x)

    @np.errstate(all="ignore")
    def line(self, x: Vector, gradient: Vector, step: Vector) -> tuple[float, float, int]:
        """First and second derivative of f along a step, at its end; all rows are looked at."""
        along, there, model = self.model.margins(step), x + step, self.model
        slope, curvature = self.line_of_losses(along)
        slope, curvature = slope / self.n_rows, curvature / self.n_rows
        slope += float((model.penalty_slopes(there) * step).sum())
        return slope, curvature + float((model.penalty_curvatures(there) * step * step).sum()), self.n_rows

    def line_of_losses(self, along: Matrix) -> tuple[float, float]:
        """The same of the losses' sum, where margins change by so much."""
        raise NotImplementedError


class SmallView(_View):
    """One output: margins and curvatures of the rows at one point, as `trsvr.problems.curvature.MarginView`."""

    def __init__(self, model: SmallModel) -> None:
        super().__init__(model)
        self.margins = self.weights = np.zeros(model.n)
        # As they are without being raised; None where the view comes from a checkpoint.
        self._slopes_and_weights: tuple[Vector, Vector] | None = None
        bound = curvature_bound(model.loss)
        self.raising = Raising.WHOLE if bound is None else Raising.GRADED
        self._bound = 0.0 if bound is None else bound

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        value, gradient, self.margins, self.weights, slopes = self.model.evaluate(x)
        self._slopes_and_weights = slopes, self.weights
        return value, gradient

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return {"margins": self.margins, "weights": self.weights}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        for name, known in self.snapshot().items():
            if snapshot[name].shape != known.shape or snapshot[name].dtype != known.dtype:
                raise ValueError(f"{name} must have {known.size} numbers, got shape {snapshot[name].shape}")
        self.margins, self.weights = snapshot["margins"].copy(), snapshot["weights"].copy()
        self._slopes_and_weights = None

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return float(self.weights.sum())

    @np.errstate(all="ignore")
    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after."""
        before, model = float(self.weights.sum()), self.model
        scale: Any = 1.0 if model.scale is None else model.scale
        self.weights = raised_curvature(model.loss, self.margins, model.labels, scale, self.weights, steep)
        if flat > 0.0:
            np.maximum(self.weights, flat * self._bound * scale, out=self.weights)
        after = float(self.weights.sum())
        return before / after if after > 0.0 else 1.0

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses times v."""
        return self.model.product(self.weights, v)

    def line_of_losses(self, along: Matrix) -> tuple[float, float]:
        """Σ φ' t and Σ φ'' t², where margins change by t."""
        model, there, weighted = self.model, self.margins + along, self.model.weighted(along)
        loss = sharing(model.loss, there)
        slopes, curvatures = loss.slope(there, model.labels), loss.curvature(there, model.labels)
        return float((slopes * weighted).sum()), float((curvatures * along * weighted).sum())

    def lowest_part(self, there: Any, x: Vector, gradient: Vector, step: Vector) -> float:
        """Which part of a step leads to where f is lowest on its way, at a hinge."""
        model = self.model
        if is_smooth(model.loss):
            return math.nan
        weights = 1.0 if model.scale is None else model.scale
        rows = HingedRows(model.loss, model.labels, weights, self.margins, there.margins, self.n_rows)
        return lowest_part(rows, self, x, gradient, step)

    def sizes(self) -> tuple[Matrix, float, float]:
        """Mean curvature, as it is without being raised; root mean squares of the rows' slopes and curvatures."""
        model, n = self.model, self.n_rows
        if self._slopes_and_weights is None:
            slopes = model.loss.slope(self.margins, model.labels)
            self._slopes_and_weights = slopes, model.bent(model.loss, self.margins)
        slopes, weights = self._slopes_and_weights
        curvatures = weights if model.scale is None else weights / model.scale
        mean, slope = float(weights.sum()) / n, float(model.weighted(slopes * slopes).sum()) / n
        return np.array([[mean]]), math.sqrt(slope), math.sqrt(float((weights * curvatures).sum()) / n)

    def steady(self, length: float) -> bool:
        """Whether curvatures stay above their half where slopes move by t times them."""
        return stays_steady(self.model.loss, self.margins, self.model.labels, np.empty(0), length)

    @np.errstate(all="ignore")
    def diagonal(self) -> Vector:
        """Its diagonal."""
        return np.einsum("ij,ij,i->j", self.model.design, self.model.design, self.weights) / self.n_rows

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses from about so many rows, half of them drawn for their curvature; and how many."""
        if rows >= self.n_rows:
            return self.model.gram(self.weights)[None], self.n_rows
        matrix, taken = self.model.sampled_gram(self.weights, rows, draws)
        return matrix[None], taken

    @np.errstate(all="ignore")
    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int]:
        """Mean change of the losses' gradients from the view's point to x, on the two halves of a batch of runs."""
        begins, length = draw_runs(self.n_rows, batch_size, draws.stream("batch", number), scattered)
        chosen = (begins[:, None] + np.arange(length)) % self.n_rows  # runs wrap around at the end
        half = begins.size // 2
        return self._change(x, chosen[:half].ravel()), self._change(x, chosen[half:].ravel()), chosen.size

    def _change(self, x: Vector, chosen: Indices) -> Vector:
        model, rows, labels = self.model, self.model.design[chosen], self.model.labels[chosen]
        there = _apart(rows, x) + (0.0 if model.offset is None else model.offset[chosen])
        slopes = model.loss.slope(there, labels) - model.loss.slope(self.margins[chosen], labels)
        slopes *= 1.0 if model.scale is None else model.scale[chosen]
        return np.einsum("ij,i->j", rows, slopes) / chosen.size


def _apart(rows: Matrix, x: Vector) -> Vector:
    return np.einsum("ij,j->i", rows, x)


class SmallOutputView(_View):
    """Several outputs: probabilities of the rows, K × n, as `trsvr.problems.output_curvature.OutputView`."""

    raising = Raising.GRADED

    def __init__(self, model: SmallModel) -> None:
        self.n_outputs = model.outputs
        super().__init__(model)
        self._probabilities = self._chances = np.zeros((model.outputs, model.n))

    def _find_prices(self) -> Prices:
        return super()._find_prices()._replace(batch_row=math.inf)

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        value, gradient, self._probabilities, *_ = self.model.evaluate(x)
        self._chances = self._probabilities
        return value, gradient

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return {"probabilities": self._probabilities}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        if snapshot["probabilities"].shape != self._probabilities.shape:
            raise ValueError(f"probabilities must have shape {self._probabilities.shape}")
        self._probabilities = self._chances = snapshot["probabilities"].copy()

    def _curvatures(self) -> Matrix:
        """π_k (1 − π_k) of every row, weighted."""
        return self.model.weighted(self._chances * (1.0 - self._chances))

    def sizes(self) -> tuple[Matrix, float, float]:
        """Mean of diag(π) − ππᵀ; root mean squares of the rows' slopes and, as it has at most its trace, of that."""
        model, chances = self.model, self._probabilities
        weighted = model.weighted(chances)
        between = between_outputs(np.einsum("ki,li->kl", weighted, chances)) / self.n_rows
        slopes = chances.copy()
        slopes[model.labels, np.arange(self.n_rows)] -= 1.0
        squares = (slopes * slopes).sum(axis=0), (chances * (1.0 - chances)).sum(axis=0) ** 2
        slope, curved = (float(model.weighted(one).sum()) / self.n_rows for one in squares)
        return between, math.sqrt(slope), math.sqrt(curved)

    def steady(self, length: float) -> bool:
        """Whether probabilities stay positive where slopes move along t."""
        return softmax_stays_steady(length)

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return float(self._curvatures().sum())

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after."""
        self._chances = self._probabilities
        before = self.total_weight()
        raised = raised_chances(self._probabilities.T, self.model.labels, steep) * (1.0 - flat)
        self._chances = np.ascontiguousarray(raised.T) + flat / self.model.outputs
        after = self.total_weight()
        return before / after if after > 0.0 else 1.0

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses times v."""
        return self.model.product(self._chances, v)

    def line_of_losses(self, along: Matrix) -> tuple[float, float]:
        """Σ (π − e)ᵀt and Σ tᵀ(diag(π) − ππᵀ)t, where margins change by t."""
        chances = self._probabilities * np.exp(along - along.max(axis=0))
        chances /= chances.sum(axis=0)
        moved = chances * along
        mean = moved.sum(axis=0)
        slopes = mean - along[self.model.labels, np.arange(self.n_rows)]
        curvatures = (moved * along).sum(axis=0) - mean * mean
        return float(self.model.weighted(slopes).sum()), float(self.model.weighted(curvatures).sum())

    @np.errstate(all="ignore")
    def diagonal(self) -> Vector:
        """Its diagonal."""
        squares = np.einsum("ij,ij,ki->jk", self.model.design, self.model.design, self._curvatures())
        return squares.ravel() / self.n_rows

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian blocks of the losses, one for each output; and how many rows that took together."""
        if rows >= self.n_rows:
            return self.model.gram(self._curvatures()), self.n_outputs * self.n_rows
        found = [self.model.sampled_gram(of_one, rows, draws, k) for k, of_one in enumerate(self._curvatures())]
        return np.stack([matrix for matrix, _ in found]), sum(taken for _, taken in found)


class WholeOutputView(SmallOutputView):
    """Several outputs and few columns: the whole Hessian is one small matrix."""

    def __init__(self, model: SmallModel) -> None:
        super().__init__(model)
        self.n_outputs = 1

    def _find_prices(self) -> Prices:
        self.n_outputs = 1
        return super()._find_prices()

    @np.errstate(all="ignore")
    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses, (diag(π) − ππᵀ) ⊗ x xᵀ of every row.

        Nothing is subtracted, and digits stay where a class is all but sure: 1 − π_k is the sum of the others.
        """
        model, outputs, d = self.model, self.model.outputs, self.model.design.shape[1]
        # An output's columns lie together until the end: so there are fewer and longer loops.
        spread = (self._chances.T[:, :, None] * model.design[:, None, :]).reshape(self.n_rows, -1)
        weighted = -spread if model.scale is None else spread * -model.scale[:, None]
        together = np.zeros((outputs * d, outputs * d))
        most = max(1, _LONE_PRODUCTS // together.size)
        for begin in range(0, self.n_rows, most):
            together += weighted[begin : begin + most].T @ spread[begin : begin + most]
        blocks, own = together.reshape(outputs, d, outputs, d), np.arange(outputs)
        blocks[own, :, own] = 0.0
        blocks[own, :, own] = -blocks.sum(axis=2)
        matrix = blocks.transpose(1, 0, 3, 2).reshape(together.shape) / self.n_rows
        if d * outputs > model.penalised:
            # What all intercepts have in common the losses do not see: it stays where it is, and rounding out of it.
            matrix[-outputs:, -outputs:] += np.trace(matrix[-outputs:, -outputs:]) / outputs
        return matrix[None], self.n_rows
