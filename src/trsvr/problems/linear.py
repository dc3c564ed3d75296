"""Linear models: any margin loss with any separable regulariser, over dense or compressed rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector, as_array
from trsvr._blas import one_blas_thread
from trsvr._compile import compiled_for, record
from trsvr._vectors import dot
from trsvr.problems import fingerprint
from trsvr.problems.base import LinearProblem, Problem
from trsvr.problems.centring import CentredProblem, Centring, SmallCentredProblem
from trsvr.problems.columns import bulk_of, column_squares, evenly
from trsvr.problems.curvature import MarginView
from trsvr.problems.dense_outputs import DenseOutputView
from trsvr.problems.families import FAMILIES, Binomial, check_family, outside_domain, shares_of
from trsvr.problems.losses import Logistic, PseudoHuber, Softmax, Squared, SquaredHinge, labels_of
from trsvr.problems.margins import SCRATCH, MarginKernels, WeightedRows
from trsvr.problems.matrix import as_matrix, as_rows, first_bad_entry, piece_bounds, take_rows
from trsvr.problems.output_curvature import OutputView
from trsvr.problems.outputs import OutputKernels
from trsvr.problems.passes import NUMBERS_PER_ENTRY, GradientSum, Passes, ProductSum, RowNorms, Runs, add_parts
from trsvr.problems.regularizers import (
    L2,
    DoubleWell,
    Sum,
    add_penalty,
    add_penalty_product,
    check_strength,
    fitted,
)
from trsvr.problems.rows import DenseRows, FullRows, Rows
from trsvr.problems.small import SmallModel, is_small, squared_norms
from trsvr.problems.small_views import small_view
from trsvr.problems.views import CurvatureView

_NOTHING = np.empty(0)
# Vectors of the length of x that a run needs at least.
_VECTORS = 10
# From this many numbers on, an epoch's native calls may last too long to wait for before a signal is obeyed.
_LARGE = 2**24
_LARGE_MATRIX = 2**20
# Rows for which a problem keeps the memory of its last run.
_ROWS_KEPT = 2**18
# Columns are far from zero where no more than this part of their mean square is around their means.
_FAR = 1e-4

FORMULAS = ("value", "slope", "curvature")
SOFTMAX_FORMULAS = ("value_and_slopes", "curvature_product")
LOSSES = (Logistic, SquaredHinge, Squared, PseudoHuber, Softmax, *FAMILIES)
REGULARIZERS = (L2, DoubleWell, Sum)


def _batch_product(
    kernels: Any, x: Vector, batch: Indices, margins: Vector, v: Vector, scratch: Vector, out: Vector
) -> None:
    kernels.batch_gradient(x, batch, margins, scratch)
    kernels.hessian_product(x, batch, margins, v, out)


class LinearModel(LinearProblem):
    """f(x) = (1/N) Σ loss(x_iᵀw + intercept + offset_i, y_i) + r(w).

    Parameters
    ----------
    X : array, data frame, memory map or sparse matrix of shape (N, p)
        Rows are samples. Used without a copy if it is C-ordered float64 or float32, or CSR. (Full
        passes over small data, of at most 2¹⁷ numbers, are made in NumPy on a dense copy.)
    y : array of length N
        For `Logistic` and `SquaredHinge` two labels of any kind, kept as ±1 in sorted order; for `Softmax` any number
        of labels; for all other losses numbers: for `Poisson`, `NegativeBinomial` and `Tweedie` y >= 0, for `Gamma`
        y > 0, for `Binomial` shares of successes, or N × 2 successes and failures. ``classes`` has the labels.
    loss : Logistic, SquaredHinge, Squared, PseudoHuber, Softmax, a family or a loss of your own
        The families are Poisson, Gamma, Tweedie, NegativeBinomial and Binomial (`trsvr.problems.families`).
    regularizer : L2, DoubleWell, a sum of them, or one of your own
        The intercept is not penalised. `L2` takes one strength, or one for each column.
    intercept : bool
        Whether x has an entry more (K more with `Softmax`) for it; X is not copied for this.
    sample_weight : array of length N, optional
        Row i counts N w_i / Σw times. Rows of weight zero are left out, also from N; a whole weight k equals the row
        repeated k times. With shares of successes the weights are numbers of trials.
    classes : array, optional
        All labels there are, in ascending order, where y may lack some of them (a part of larger data, say); default:
        those in y.
    offset : array of length N, optional
        A number for each row that is added to its margin, such as the logarithm of an exposure; with K outputs N × K
        numbers.

    Attributes
    ----------
    n_samples, n_parameters : int
        N, and the length of x = (w, intercept). With K outputs w is the flattened p × K matrix.
    classes : array or None
        The labels as given.
    feature_names : tuple of str or None
        The columns of X, where it is a data frame.
    total_weight : float
        Sum of the weights as given: the number of observations.
    """

    compiles = defined_at_zero = True
    feature_names: tuple[str, ...] | None = None
    total_weight: float = np.nan

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Any = None,
        regularizer: Any = None,
        intercept: bool = False,
        sample_weight: Any = None,
        classes: Any = None,
        offset: Any = None,
    ) -> None:
        loss = Logistic() if loss is None else loss
        regularizer = L2() if regularizer is None else regularizer
        self._check_formulas(loss, regularizer)
        rows, n_rows, columns = as_rows(X)
        if n_rows == 0 or columns == 0:
            raise ValueError(f"X must have at least one row and one column, got shape {(n_rows, columns)}")
        y, sample_weight = responses(y, loss, sample_weight)
        labels, self.classes = _labels(y, n_rows, labels_of(loss), classes)
        weights, self._chosen = _weights(sample_weight, n_rows)
        check_domain(loss, labels, self._chosen)
        #: sum of the weights as they were given, N without weights: how many observations there are
        self.total_weight = float(n_rows if sample_weight is None else np.sum(sample_weight))
        #: names of X's columns, where it has them
        self.feature_names = names_of(X)
        offsets = checked_offset(offset, n_rows, self._outputs_of(loss))
        self._build(rows, n_rows, columns, labels, weights, offsets, loss, regularizer, bool(intercept))
        self._scan()

    @staticmethod
    def _check_formulas(loss: Any, regularizer: Any) -> None:
        _check_has_formulas("loss", loss, LOSSES, REGULARIZERS)
        _check_regularizer(regularizer)
        if isinstance(loss, PseudoHuber):
            _check.positive("delta", loss.delta)
        check_family(loss)

    def _build(
        self,
        rows: Rows,
        n_rows: int,
        columns: int,
        labels: Vector,
        weights: Vector,
        offset: Vector,
        loss: Any,
        regularizer: Any,
        intercept: bool,
    ) -> None:
        self.n_features = columns
        self.n_outputs = self._outputs_of(loss)
        regularizer = fitted(regularizer, columns, self.n_outputs)
        self.loss, self.regularizer, self.intercept = loss, regularizer, intercept
        self.n_parameters = (columns + intercept) * self.n_outputs
        self.n_samples = n_rows if self._chosen is None else len(self._chosen)
        # Before anything of the length of x is allocated: a file of a few bytes may name column 2147483647.
        size = _VECTORS * 8 * self.n_parameters
        _check.fits_in_memory(size, f"a model with {self.n_parameters} parameters", "leave out columns, or outputs")
        if self.n_outputs > 1:
            self.kernels: Any = OutputKernels(
                rows, labels, weights, offset, loss, regularizer, columns, intercept, self.n_outputs
            )
        else:
            self.kernels = MarginKernels(rows, labels, weights, offset, loss, regularizer, columns, intercept)
        #: numbers that X stores
        self.n_entries = rows.values.size if isinstance(rows, DenseRows) else rows.data.size

    @cached_property
    def _spare(self) -> list[tuple[Vector, Vector]]:
        return []

    @cached_property
    def rows_to_square(self) -> Any:
        """The rows, as sums of their outer squares take them."""
        return FullRows.unless_sparse(self.kernels.rows, evenly(self.kernels.labels.size))

    @cached_property
    def matrix_passes(self) -> dict[int, Passes]:
        """Those over all rows that earlier sampled matrices have left, by the length of a piece's vector."""
        return {}

    def memory_of_rows(self) -> tuple[Vector, Vector]:
        """Two numbers a row, in an earlier run's memory where there is some: new pages cost as much as a pass."""
        try:
            return self._spare.pop()
        except IndexError:
            return np.zeros(self.kernels.labels.size), np.zeros(self.kernels.labels.size)

    def keep_memory(self, first: Vector, second: Vector) -> None:
        """Keep what a view has used, unless that is much."""
        if first.size <= _ROWS_KEPT and len(self._spare) < 2:
            self._spare.append((first, second))

    def _outputs_of(self, loss: Any) -> int:
        return len(self.classes) if isinstance(loss, Softmax) and self.classes is not None else 1

    @cached_property
    def passes(self) -> Passes:
        """Runs sums over the rows on all allowed threads."""
        kernels = self.kernels
        bounds = piece_bounds(kernels.rows, kernels.labels.size, self.n_parameters, self.n_outputs)
        # Room for a block of rows lies behind each vector.
        length = self.n_parameters + kernels.pass_room()
        numbers = self.n_entries * (1 if isinstance(kernels.rows, DenseRows) else NUMBERS_PER_ENTRY)
        return Passes(Runs.of_pieces(bounds), length, numbers * self.n_outputs)

    def _scan(self) -> None:
        """Look at every entry once: refuse NaN and infinity, and keep the squared norms that step sizes need."""
        rows, known = self.kernels.rows, vars(self)
        for name in ("squared_rows", "largest_squared_row", "mean_squared_row"):
            known.pop(name, None)
        if self.is_small:
            matrix = as_matrix(rows, self.n_features)
            with np.errstate(all="ignore"):
                total = float((matrix if isinstance(rows, DenseRows) else rows.data).sum(dtype=np.float64))
            if math.isfinite(total):
                return  # all entries are: norms are found once somebody asks for them
            norms = squared_norms(matrix)
        else:
            norms, means = self._look()
            known["squared_rows"] = norms + self.intercept
            if self.intercept:
                self.column_means = means
        for i in np.flatnonzero(~np.isfinite(norms)):
            bad = first_bad_entry(rows, int(i))
            if bad is not None:
                raise ValueError(f"X must be finite, got {bad[1]} at row {i}, column {bad[0]}")

    @cached_property
    def squared_rows(self) -> Vector:
        """‖x_i‖², plus 1 if there is an intercept; empty for `of_rows`, which looks at none."""
        return squared_norms(as_matrix(self.kernels.rows, self.n_features)) + float(self.intercept)

    @property
    def _weighted_squares(self) -> Vector:
        norms, weights = self.squared_rows, self.kernels.weights
        # Rows of weight zero are left out, whatever they contain.
        return np.where(weights > 0.0, norms, 0.0) * weights if weights.size and norms.size else norms

    @cached_property
    def largest_squared_row(self) -> float | None:  # type: ignore[override]  # it is looked for
        """The largest weight_i (‖x_i‖² + 1 if there is an intercept)."""
        return float(self._weighted_squares.max()) if self.squared_rows.size else None

    @cached_property
    def mean_squared_row(self) -> float:
        """The mean of the same."""
        return float(self._weighted_squares.sum() / self.n_samples)

    def _look(self) -> tuple[Vector, Vector]:
        """Squared norms of the rows and, with an intercept, weighted means of the columns: one pass."""
        kernels, norms, means = self.kernels, np.empty(self.kernels.labels.size), np.empty(self.n_features)
        factors = _NOTHING  # the means are needed where an intercept is
        if self.intercept:
            factors = kernels.weights if kernels.weights.size else np.ones(norms.size)

        def use(totals: Vector, parts: Matrix) -> None:
            add_parts(parts, 0, totals.size, 1.0 / self.n_samples, means)

        rows = WeightedRows(kernels.rows, kernels.weights, self.n_features, False)
        self.passes.sums(RowNorms(norms, factors), rows, use)
        return norms, np.where(np.isfinite(means), means, 0.0)

    @cached_property
    def is_small(self) -> bool:  # type: ignore[override]  # it depends on the size
        """Whether full passes are NumPy's, so that they need not be compiled."""
        columns = self.n_features + int(self.intercept)
        return is_small(self.kernels.labels.size, columns, self.n_outputs, self.loss, self.regularizer)

    @property
    def kind(self) -> Any:
        """What decides what is compiled: the types of rows, loss and regulariser."""
        rows = self.kernels.rows
        types = rows.values.dtype if isinstance(rows, DenseRows) else (rows.data.dtype, rows.indices.dtype)
        return type(self.kernels), types, type(self.loss), _types_of(self.regularizer)

    @cached_property
    def small(self) -> SmallModel:
        """The model in NumPy."""
        return SmallModel(self)

    # ------------------------------------------------------------------------------------- full passes

    def warm_up(self, products: bool = False) -> None:
        """Compile (or load) what full passes need, so that a clock started afterwards does not see it."""
        if self.is_small:
            return
        kernels, x = self.kernels, np.zeros(self.n_parameters)
        self.passes.warm_up(GradientSum(x, _NOTHING, _NOTHING), kernels)
        add_penalty(self.regularizer, x, self.n_penalised, x.copy())
        if products:
            self.passes.warm_up(ProductSum(x, x), kernels)
            add_penalty_product(self.regularizer, x, self.n_penalised, x, x.copy())

    @property
    def n_penalised(self) -> int:
        """Entries of x that are weights: they come first."""
        return self.n_features * self.n_outputs

    def value_and_gradient(
        self, x: Vector, margins: Vector = _NOTHING, weights: Vector = _NOTHING
    ) -> tuple[float, Vector]:
        """f(x) and ∇f(x): one pass over the data, on all allowed threads.

        With one output, ``margins`` and ``weights`` (of the length of y) keep what each row's curvature needs.
        """
        x = self._point("x", x)
        if self.is_small and not margins.size:
            return self.small.evaluate(x)[:2]
        total, gradient = self.summed(GradientSum(x, margins, weights), 1.0 / self.n_samples)
        penalty = add_penalty(self.regularizer, x, self.n_penalised, gradient)
        return total / self.n_samples + penalty, gradient

    def with_curvatures(self, x: Vector, margins: Vector, weights: Vector) -> tuple[float, Vector, float]:
        """The same with one output, and the sum of the curvatures that it keeps."""
        x, gradient = self._point("x", x), np.empty(self.n_parameters)

        def use(totals: Vector, parts: Matrix) -> tuple[float, float]:
            add_parts(parts, 0, totals.size, 1.0 / self.n_samples, gradient)
            return float(totals.sum()), float(parts[: totals.size, x.size + SCRATCH].sum())

        total, curvatures = self.passes.sums(GradientSum(x, margins, weights), self.kernels, use)
        penalty = add_penalty(self.regularizer, x, self.n_penalised, gradient)
        return total / self.n_samples + penalty, gradient, curvatures

    def summed(self, task: Any, factor: float) -> tuple[float, Vector]:
        """Total of a pass over all rows, and its vector times ``factor``."""
        out = np.empty(self.n_parameters)

        def use(totals: Vector, parts: NDArray[np.float64]) -> float:
            add_parts(parts, 0, totals.size, factor, out)
            return float(totals.sum())

        return self.passes.sums(task, self.kernels, use), out

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices; over all rows, on all allowed threads, for ``indices=None``."""
        x, v = self._point("x", x), self._point("v", v)
        kernels = self.kernels
        if indices is None and self.is_small:
            return self.small.hessian_product(x, v)
        if indices is None:
            _, out = self.summed(ProductSum(x, v), 1.0 / self.n_samples)
            add_penalty_product(self.regularizer, x, self.n_penalised, v, out)
            return out
        batch = self.rows_of(indices)
        out, margins = np.empty(self.n_parameters), np.empty(kernels.room(batch.size))
        compiled_for(_batch_product, kernels)(kernels, x, batch, margins, v, np.empty_like(out), out)
        return out

    # ----------------------------------------------------------------------------------------- batches

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices, regulariser included."""
        batch, kernels = self.rows_of(indices), self.kernels
        out, margins = np.empty(self.n_parameters), np.empty(kernels.room(batch.size))
        compiled_for(type(kernels).batch_gradient, kernels)(kernels, self._point("x", x), batch, margins, out)
        return out

    def rows_of(self, indices: Any) -> Indices:
        """Rows of X that indices 0 … N−1 stand for: the same, unless rows of weight zero are left out."""
        batch = _check.row_indices(indices, self.n_samples)
        return batch if self._chosen is None else self._chosen[batch]

    @property
    def chosen_rows(self) -> Indices | None:
        """The rows that count, where some have weight zero."""
        return self._chosen

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at."""
        if self.is_small:
            return small_view(self.small)
        if self.n_outputs == 1:
            return MarginView(self)
        return (DenseOutputView if isinstance(self.kernels.rows, DenseRows) else OutputView)(self)

    def centred(self) -> Problem:
        """The same model in centred coordinates, where it has an intercept."""
        if not self.intercept:
            return self
        if self.is_small:
            if self.small.is_centred:
                return self
            model, means = self._small_centred
            return SmallCentredProblem(self, model.with_regularizer(self.regularizer), means)
        means, is_far = self.column_means, False
        if isinstance(self.kernels.rows, DenseRows):
            rows = evenly(self.n_samples) if self.chosen_rows is None else self.chosen_rows[evenly(self.n_samples)]
            means, is_far = bulk_of(means, self.kernels.rows.values[rows].astype(np.float64))
        exact = bool((means == self.column_means).all())
        return CentredProblem(self, Centring(means, self.n_outputs, exact, is_far))

    @np.errstate(all="ignore")
    def why_few_digits(self) -> str:
        """Without an intercept nothing is centred."""
        squares = self.mean_squared_row
        if self.intercept or squares - dot(self.column_means, self.column_means) > _FAR * squares:
            return ""
        return "columns far from zero cost digits: centre them, or add an intercept"

    @cached_property
    def _small_centred(self) -> tuple[SmallModel, Vector]:
        return self.small.centred()

    @cached_property
    def column_means(self) -> Vector:
        """Weighted means of the columns; zero where they are no numbers. They need not be exact."""
        if self.intercept and not self.is_small:
            return self._look()[1]
        weights = self.kernels.weights if self.kernels.weights.size else np.ones(self.kernels.labels.size)
        with np.errstate(all="ignore"), one_blas_thread():
            means = np.asarray(weights @ as_matrix(self.kernels.rows, self.n_features)) / self.n_samples
        return np.where(np.isfinite(means), means, 0.0)

    @cached_property
    def column_squares(self) -> Vector:
        """Weighted mean squares of the columns; one pass, once."""
        weights = self.kernels.weights if self.kernels.weights.size else np.ones(self.kernels.labels.size)
        with np.errstate(all="ignore"), one_blas_thread():
            return column_squares(as_matrix(self.kernels.rows, self.n_features), weights)

    def on_rows(self, function: Callable[..., Any], *arguments: Any, per_row: Any = None) -> list[Any]:
        """``function(self, *arguments)``."""
        if per_row is None:
            return [function(self, *arguments)]
        return [function(self, *arguments, one_for_each_row(per_row, self.kernels.labels.size))]

    @property
    def lasts_long(self) -> bool:  # type: ignore[override]  # it depends on the size
        """Whether a pass, or a matrix, may last too long to wait for when a signal comes."""
        return self.n_entries * self.n_outputs > _LARGE or self.n_parameters**2 > _LARGE_MATRIX

    def fingerprint(self) -> str:
        """Hash of every entry, label and weight, and of loss and regulariser with their formulas."""
        return fingerprint.of_linear_model(self)

    def with_formulas(self, loss: Any, regularizer: Any) -> LinearModel:
        """The same rows, weights and intercept with another loss, of one output, and another regulariser."""
        kernels = self.kernels
        twin: LinearModel = object.__new__(LinearModel)
        twin.classes, twin._chosen = None, self._chosen
        twin.feature_names, twin.total_weight = self.feature_names, self.total_weight
        shape = kernels.labels.size, self.n_features
        offset = kernels.offset if self.n_outputs == 1 else _NOTHING
        twin._build(kernels.rows, *shape, kernels.labels, kernels.weights, offset, loss, regularizer, self.intercept)
        return twin

    def with_regularizer(self, regularizer: Any) -> LinearModel:
        """The same rows under another regulariser; nothing is copied and nothing is looked at again."""
        if regularizer is self.regularizer:
            return self
        _check_regularizer(regularizer)
        regularizer = fitted(regularizer, self.n_features, self.n_outputs)
        if self.is_small and self.intercept:
            _ = self.small.is_centred or self._small_centred  # once for all penalties
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.regularizer = regularizer
        other.kernels = self.kernels._replace(regularizer=regularizer)
        vars(other).pop("is_small", None), vars(other).pop("small", None)
        if self.is_small and other.is_small:
            vars(other)["small"] = self.small.with_regularizer(regularizer)
        return other

    def gather(self, indices: Indices) -> LinearModel:
        """The same problem restricted to those rows, copied. Weights keep their scale."""
        chosen = self.rows_of(indices)
        kernels = self.kernels
        part = LinearModel.of_rows(
            take_rows(kernels.rows, chosen),
            kernels.labels[chosen],
            kernels.weights[chosen] if kernels.weights.size else kernels.weights,
            rows_of_offset(kernels.offset, chosen, self.n_outputs),
            self,
        )
        part._scan()
        return part

    @staticmethod
    def of_rows(
        rows: Rows, labels: Vector, weights: Vector, offset: Vector, like: Any, chosen: Indices | None = None
    ) -> LinearModel:
        """A problem over rows that have been checked before, as they are: nothing is copied or looked at.

        ``like`` is a problem, or anything else with its ``loss``, ``regularizer``, ``intercept``, ``classes`` and
        ``n_features``; labels, weights and offset are as the kernels want them.
        """
        part = object.__new__(LinearModel)
        part._chosen, part.classes = chosen, like.classes
        vars(part)["is_small"] = False  # a part of larger data is processed as the whole is
        vars(part)["squared_rows"] = _NOTHING
        shape = labels.size, like.n_features
        part._build(rows, *shape, labels, weights, offset, like.loss, like.regularizer, like.intercept)
        return part

    def as_whole(self) -> LinearModel:
        """These rows as all that there are: looked at, and processed as data of their size."""
        whole = copy.copy(self)
        vars(whole).pop("is_small", None)
        whole._scan()
        return whole

    # ------------------------------------------------------------------------------------ conveniences

    def _times(self, W: Matrix) -> Matrix:
        products = np.asarray(as_matrix(self.kernels.rows, self.n_features) @ W)
        return products + self.kernels.offset.reshape(products.shape) if self.kernels.offset.size else products

    def __repr__(self) -> str:
        kind = "dense" if isinstance(self.kernels.rows, DenseRows) else "CSR"
        extra = ", intercept" if self.intercept else ""
        return (
            f"LinearModel({self.n_samples} rows × {self.n_features} columns, {kind}, "
            f"{self.loss!r}, {self.regularizer!r}{extra})"
        )


def _types_of(regularizer: Any) -> Any:
    if isinstance(regularizer, Sum):
        return tuple(map(_types_of, regularizer))
    return type(regularizer), isinstance(regularizer, L2) and np.ndim(regularizer.strength)


def _check_has_formulas(name: str, value: Any, ours: tuple[type, ...], others: tuple[type, ...]) -> None:
    if type(value) in ours:
        return
    if isinstance(value, type) or not isinstance(value, tuple) or not hasattr(value, "_fields"):
        raise ValueError(
            f"{name} must be an instance of a NamedTuple class with the formulas "
            f"(such as trsvr.problems.Logistic() or trsvr.problems.L2(1e-4)), got {value!r}"
        )
    needed = SOFTMAX_FORMULAS if isinstance(value, Softmax) else FORMULAS
    lacking = [formula for formula in needed if not hasattr(value, formula)]
    if lacking:
        raise ValueError(f"{name} must have the formulas {', '.join(needed)}, got {value!r} without {lacking[0]}")
    if isinstance(value, others):
        raise ValueError(f"{name} must be a {name}, got {value!r}: are two arguments exchanged?")
    record(type(value))


def _check_regularizer(regularizer: Any) -> None:
    _check_has_formulas("regularizer", regularizer, REGULARIZERS, LOSSES)
    if isinstance(regularizer, Sum):
        for part in regularizer:
            _check_regularizer(part)
    elif isinstance(regularizer, L2):
        check_strength(regularizer.strength)
    elif isinstance(regularizer, DoubleWell):
        _check.positive("regularizer gamma", regularizer.gamma, zero=True)
        _check.positive("regularizer a", regularizer.a, zero=True)


def _labels(y: Any, n_rows: int, kind: str, known: Any = None) -> tuple[Vector, NDArray[Any] | None]:
    """Labels as the kernels want them, and the user's own where they are classes."""
    array = as_array(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.size != n_rows:
        got = f"shape {array.shape}" if array.ndim else repr(y)
        raise ValueError(f"y must be a vector with one label for each of the {n_rows} rows of X, got {got}")
    if array.dtype.kind == "c":
        raise ValueError(f"y must be real, got dtype {array.dtype}")
    if array.dtype.kind == "f":
        _check.finite("y", array)
    if kind == "numbers":
        try:
            numbers: Vector = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must be numbers for this loss, got dtype {array.dtype}") from None
        _check.finite("y", numbers)
        return numbers, None
    if known is not None:
        return _places(array, np.asarray(known), kind)
    if kind == "two classes" and array.dtype.kind in "buif":
        # Two numbers are the usual case, and two comparisons are many times cheaper than sorting.
        low, high = array.min(), array.max()
        above = array == high
        if low != high and bool(((array == low) | above).all()):
            return np.where(above, 1.0, -1.0), np.array([low, high])
    classes, places = classes_in(array, kind)
    return (places * 2.0 - 1.0 if kind == "two classes" else places), classes


def classes_in(array: NDArray[Any], kind: str) -> tuple[NDArray[Any], Vector]:
    """The distinct labels in order, refused if they are too few or too many for the loss; and each label's place."""
    try:
        classes, places = np.unique(array, return_inverse=True)
    except TypeError:
        raise ValueError("y has labels of different types, which cannot be put in order") from None
    if len(classes) < 2:
        raise ValueError(f"y must contain at least two classes, got only the label {classes.tolist()[0]!r}")
    if kind == "two classes" and len(classes) > 2:
        shown = ", ".join(map(repr, classes[:3].tolist())) + (", …" if len(classes) > 3 else "")
        raise ValueError(
            f"y must contain exactly two classes for this loss, got {len(classes)} ({shown}); "
            "the loss softmax takes several classes, squared and pseudo-huber take numbers"
        )
    return classes, places.astype(np.float64)


def _places(array: NDArray[Any], classes: NDArray[Any], kind: str) -> tuple[Vector, NDArray[Any]]:
    """Labels as the kernels want them, among classes that are known beforehand."""
    counted = classes.ndim == 1 and classes.size > 1 and bool((classes == np.arange(classes.size)).all())
    ascending = counted or (classes.ndim == 1 and bool((classes[:-1] < classes[1:]).all()))
    if classes.size < 2 or not ascending:
        raise ValueError(f"classes must be two or more labels in ascending order, got {classes.tolist()}")
    if kind == "two classes" and classes.size > 2:
        raise ValueError(f"classes must be exactly two labels for this loss, got {classes.size}")
    if counted and array.dtype.kind in "biu" and array.min() >= 0 and array.max() < classes.size:
        places = array  # the labels are their own places: no need to search
        strange: NDArray[Any] = _NOTHING
    else:
        places = np.searchsorted(classes, array)
        strange = np.flatnonzero(classes.take(places, mode="clip") != array)
    if strange.size:
        raise ValueError(f"y must contain only labels of classes, got {array[strange[0]]!r} at position {strange[0]}")
    labels = places.astype(np.float64)
    return (labels * 2.0 - 1.0 if kind == "two classes" else labels), classes


def checked_offset(offset: Any, n_rows: int, outputs: int) -> Vector:
    """A number for each row, or K for each; empty where there are none."""
    if offset is None:
        return _NOTHING
    try:
        array = np.array(as_array(offset), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"offset must be numbers: {error}") from None
    wanted = (n_rows,) if outputs == 1 else (n_rows, outputs)
    if array.shape != wanted and array.shape != (n_rows, outputs):
        what = "number" if outputs == 1 else f"{outputs} numbers"
        raise ValueError(f"offset must have one {what} for each of the {n_rows} rows of X, got shape {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"offset must be finite, got {array.flat[bad[0]]} at row {bad[0] // outputs}")
    return array.ravel()


def rows_of_offset(offset: Vector, rows: Indices, outputs: int) -> Vector:
    """Those of some rows."""
    return offset.reshape(-1, outputs)[rows].ravel() if offset.size else offset


def one_for_each_row(per_row: Any, n_rows: int) -> Any:
    """The entries themselves, if they are as many as the rows."""
    if len(per_row) != n_rows:
        raise ValueError(f"groups must have one entry for each of the {n_rows} rows of X, got {len(per_row)}")
    return per_row


def names_of(X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a data frame."""
    columns = getattr(X, "columns", None)
    return None if columns is None or callable(columns) else tuple(map(str, columns))


def responses(y: Any, loss: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Labels and weights as they are; of N × 2 successes and failures, shares and trials times the weights."""
    array = np.asarray(y) if isinstance(loss, Binomial) else y
    if not isinstance(loss, Binomial) or array.ndim != 2 or array.shape[1] != 2:
        return y, sample_weight
    shares, trials = shares_of(array)
    return shares, trials if sample_weight is None else trials * _check.vector("sample_weight", sample_weight, len(y))


def check_domain(loss: Any, labels: Vector, chosen: Indices | None = None) -> None:
    """Refuse a response that the family of the loss cannot have; rows of weight zero may."""
    found = outside_domain(loss, labels if chosen is None else labels[chosen])
    if found is not None:
        row = found[0] if chosen is None else int(chosen[found[0]])
        raise ValueError(f"y must be {found[1]} for {type(loss).__name__}, got {labels[row]} at row {row}")


def _weights(sample_weight: Any, n_rows: int) -> tuple[Vector, Indices | None]:
    """Weights scaled to mean one over the rows that count, and those rows where they are not all."""
    if sample_weight is None:
        return np.empty(0), None
    weights = _check.vector("sample_weight", sample_weight, n_rows)
    if (weights < 0).any():
        place = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"sample_weight must be >= 0, got {weights[place]} at position {place}")
    positive = np.flatnonzero(weights > 0)
    if positive.size == 0:
        raise ValueError("sample_weight must have at least one positive entry, got only zeros")
    weights *= positive.size / weights.sum()
    return weights, None if positive.size == n_rows else positive
