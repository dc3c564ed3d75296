"""What lies on a worker, and what a worker does with it.

A `Block` is some of the rows, with their labels and weights. All functions here run where the block lies; only what
they return travels: sums of a few vectors, or the rows that were asked for. They are pure: run again on another worker,
after a failure, they return the same bits.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

from trsvr import _threads
from trsvr._arrays import Indices, Vector, as_array
from trsvr._compile import record
from trsvr.problems.curvature import MarginView
from trsvr.problems.families import mean_of, outside_domain
from trsvr.problems.linear import LinearModel, rows_of_offset
from trsvr.problems.losses import labels_of
from trsvr.problems.margins import WeightedRows
from trsvr.problems.matrix import as_rows, first_bad_entry, take_rows
from trsvr.problems.output_curvature import OutputView
from trsvr.problems.passes import GradientSum, Passes, ProductSum, RowNorms, Runs
from trsvr.problems.regularizers import L2
from trsvr.problems.rows import DenseRows, Rows, SparseRows

Sums = dict[str, NDArray[np.float64]]
_NOTHING = np.empty(0)


class Formulas(NamedTuple):
    """What is summed over the rows: a loss and what it needs to know. The penalty is the caller's."""

    loss: Any
    regularizer: Any
    intercept: bool
    classes: Any
    n_features: int

    def without_penalty(self) -> Formulas:
        """The losses alone."""
        return self._replace(regularizer=L2(0.0))


class Raw(NamedTuple):
    """Rows in the form that kernels take, labels and weights as the user gave them."""

    rows: Rows
    columns: int
    y: NDArray[Any]
    weights: NDArray[Any] | None
    offset: NDArray[Any] | None


class Facts(NamedTuple):
    """What a first look at a block finds."""

    rows: int
    columns: int
    counted: int  # rows of positive weight
    entries: int
    size: int  # in bytes
    kind: str
    labels: Any  # the distinct ones, or None for numbers
    weight: float
    largest: float  # max of weight · (‖row‖² + 1 if there is an intercept)
    summed: float  # sum of the same
    shifts: int  # numbers of the offset for each row
    bad: tuple[str, int, Any, float] | None  # what, row, column, value of an entry that is refused


class Block:
    """Some of the rows, ready for the kernels."""

    def __init__(self, rows: Rows, labels: Vector, weights: Vector, offset: Vector, chosen: Indices | None) -> None:
        self.rows, self.labels, self.weights, self.offset, self.chosen = rows, labels, weights, offset, chosen
        self._models: dict[Any, LinearModel] = {}

    def __reduce__(self) -> Any:
        return Block, (self.rows, self.labels, self.weights, self.offset, self.chosen)

    def model(self, formulas: Formulas) -> LinearModel:
        """The losses of these rows as a problem, without penalty."""
        record(type(formulas.loss))
        key = (formulas.loss, type(formulas.loss), formulas.intercept)
        model = self._models.get(key)
        if model is None:
            facts = self.rows, self.labels, self.weights, self.offset
            model = LinearModel.of_rows(*facts, formulas.without_penalty(), self.chosen)
            self._models[key] = model
        return model

    def take(self, numbers: Indices, counted: bool) -> Rowset:
        """Copies of some rows; numbers count the rows of positive weight, or all."""
        places = numbers if self.chosen is None or not counted else self.chosen[numbers]
        weights = self.weights[places] if self.weights.size else self.weights
        offset = rows_of_offset(self.offset, places, max(1, self.offset.size // max(1, self.labels.size)))
        return Rowset(take_rows(self.rows, places), self.labels[places], weights, offset)


class Rowset(NamedTuple):
    """Rows on their way to the caller."""

    rows: Rows
    labels: Vector
    weights: Vector
    offset: Vector


def _rows_size(rows: Rows) -> int:
    return sum(part.nbytes for part in rows if isinstance(part, np.ndarray))


def _size(part: Block | Rowset) -> int:
    """Bytes, for Dask's own accounts: it spills what does not fit."""
    return _rows_size(part.rows) + part.labels.nbytes + part.weights.nbytes + part.offset.nbytes + 200


def _raw_size(raw: Raw) -> int:
    return _rows_size(raw.rows) + raw.y.nbytes + (0 if raw.weights is None else raw.weights.nbytes) + 200


sizeof.register(Block, _size)
sizeof.register(Rowset, _size)
sizeof.register(Raw, _raw_size)


# ------------------------------------------------------------------------------------------------ from data to blocks


def _vector(values: Any) -> NDArray[Any]:
    array = as_array(values)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def make_raw(X: Any, y: Any = None, weights: Any = None, offset: Any = None) -> Raw:
    """A block as it comes from the user's graph; without ``y``, X is a pair of rows and labels."""
    if y is None:
        X, y = X
    if isinstance(X, np.ndarray) and X.ndim == 2 and not X.flags.c_contiguous:
        X = np.ascontiguousarray(X)
    rows, _, columns = as_rows(X)
    return Raw(rows, columns, _vector(y), *(None if given is None else _vector(given) for given in (weights, offset)))


def look(raw: Raw, loss: Any, intercept: bool) -> Facts:
    """Look at every entry once."""
    rows = raw.rows
    n = rows.values.shape[0] if isinstance(rows, DenseRows) else rows.indptr.size - 1
    entries = rows.values.size if isinstance(rows, DenseRows) else rows.data.size
    bad: tuple[str, int, Any, float] | None = None
    if raw.y.ndim != 1 or raw.y.size != n:
        bad = ("y", n, raw.y.shape, 0.0)
    weights = np.ones(n)
    if raw.weights is not None:
        weights = np.asarray(raw.weights, dtype=np.float64)
        if weights.shape != (n,):
            bad, weights = ("sample_weight", n, weights.shape, 0.0), np.ones(n)
        for i in np.flatnonzero(~np.isfinite(weights) | (weights < 0.0))[:1]:
            bad = ("weight", int(i), None, float(weights[i]))
    if raw.offset is not None:
        if raw.offset.shape[:1] != (n,):
            bad = ("offset", n, raw.offset.shape, 0.0)
        elif not np.isfinite(raw.offset).all():
            i, *_ = np.argwhere(~np.isfinite(raw.offset))[0]
            bad = ("shift", int(i), None, float(np.ravel(raw.offset[i])[~np.isfinite(np.ravel(raw.offset[i]))][0]))
    norms = _squared_norms(rows, n)
    for i in np.flatnonzero(~np.isfinite(norms)):
        found = first_bad_entry(rows, int(i))
        if found is not None:
            bad = bad or ("X", int(i), found[0], found[1])
            break
    labels: Any = None
    if raw.y.dtype.kind in "fc" and bad is None and not np.isfinite(raw.y).all():
        i = int(np.flatnonzero(~np.isfinite(raw.y))[0])
        bad = ("label", i, None, float(raw.y[i].real))
    if labels_of(loss) != "numbers" and bad is None:
        labels = np.unique(raw.y)
    elif bad is None:
        found_label = outside_domain(loss, np.where(weights > 0.0, raw.y, 0.5))  # 0.5 is in every domain
        bad = (
            None
            if found_label is None
            else ("domain", found_label[0], f"{found_label[1]} for {type(loss).__name__}", float(raw.y[found_label[0]]))
        )
    # Rows of weight zero are left out, whatever they contain.
    scaled = np.where(weights > 0.0, norms + intercept, 0.0) * weights
    return Facts(
        rows=n,
        columns=raw.columns,
        counted=int(np.count_nonzero(weights > 0.0)),
        entries=entries,
        size=_rows_size(rows) + 16 * n,
        kind=f"dense {rows.values.dtype}" if isinstance(rows, DenseRows) else f"CSR {rows.data.dtype}",
        labels=labels,
        weight=float(weights.sum()),
        largest=float(scaled.max(initial=0.0)),
        summed=float(scaled.sum()),
        shifts=0 if raw.offset is None else int(np.prod(raw.offset.shape[1:])),
        bad=bad,
    )


def _squared_norms(rows: Rows, n: int) -> Vector:
    norms = np.empty(n)
    if n:
        with _threads.limit(1):
            bounds, looked_at = np.array([0, n], dtype=np.int64), WeightedRows(rows, _NOTHING, 0, False)
            Passes(Runs.of_pieces(bounds), 1, n).sums(RowNorms(norms, _NOTHING), looked_at, lambda totals, parts: None)
    return norms


def make_block(raw: Raw, classes: Any, signs: bool, scale: float) -> Block:
    """Labels as the kernels want them, two classes as signs; weights scaled to mean one over all blocks."""
    if classes is None:
        labels = raw.y.astype(np.float64)
    else:
        places = np.searchsorted(classes, raw.y).astype(np.float64)
        labels = 2.0 * places - 1.0 if signs else places
    weights, chosen = _NOTHING, None
    if raw.weights is not None:
        weights = np.asarray(raw.weights, dtype=np.float64) * scale
        positive = np.flatnonzero(weights > 0.0)
        chosen = None if positive.size == weights.size else positive
    offset = _NOTHING if raw.offset is None else np.array(raw.offset, dtype=np.float64).ravel()
    return Block(raw.rows, labels, weights, offset, chosen)


# --------------------------------------------------------------------------------------------------- sums over a block


class Order(NamedTuple):
    """What a round asks of every block; all of it at one point x."""

    formulas: Formulas
    x: Any
    gradient: bool = False  # value and gradient
    product: Any = None  # a vector v: Hessian times v; or several, the rows of a matrix
    diagonal: bool = False  # of the Hessian; and of the raised one, if that is wanted
    sample: float = 0.0  # rows of a sampled curvature matrix, as a part of all rows; 1: all
    means: Any = None  # of the columns: a matrix of all rows is about them, where the rows are dense
    raised: bool = False  # curvatures raised to what a bound on the losses would have
    scores: bool = False  # how well the rows are predicted

    @property
    def needs_weights(self) -> bool:
        """Whether every row's curvature is needed."""
        return self.diagonal or self.sample > 0.0 or self.raised or np.ndim(self.product) == 2


class Own(NamedTuple):
    """What a round asks of one block beyond that."""

    draws: Any = None  # for the sample: the epoch's, and the number of the block
    halves: Any = None  # (begins, ends) of runs in this block: the first half of a batch, and the second
    moved: Any = None  # the point for which the change of the gradient since x is wanted


def sums_on_block(block: Block, order: Order, point: Any = None, own: Own | None = None) -> Sums:
    """All that the order asks for, summed over the rows of the block; x and v may come apart, as ``point``."""
    if point is not None:
        order = order._replace(x=point[0], product=point[1])
    own = Own() if own is None else own
    with _threads.limit(1):  # a task is one thread: the blocks are what runs side by side
        return _sums(block, block.model(order.formulas), order, own)


def _sums(block: Block, model: LinearModel, order: Order, own: Own) -> Sums:
    answer: Sums = {}
    x, d = np.ascontiguousarray(order.x), model.n_parameters
    view = None
    if order.gradient or order.needs_weights:
        if order.needs_weights:
            view = MarginView(model) if model.n_outputs == 1 else OutputView(model)
        total, gradient = _evaluate(model, view, x)
        if order.gradient:
            answer["value"], answer["gradient"] = np.array([total]), gradient
        if view is not None:
            _curvature(answer, model, view, order, own)
    if np.ndim(order.product) == 2:
        assert view is not None
        vectors = np.ascontiguousarray(order.product)
        answer["product"] = np.array([model.n_samples * view.product(v) for v in vectors]).reshape(vectors.shape)
    elif order.product is not None:
        v = np.ascontiguousarray(order.product)
        task = view.product_task(v) if order.raised and view is not None else ProductSum(x, v)
        answer["product"] = model.summed(task, 1.0)[1][:d]
    if own.halves is not None:
        for name, (begins, ends) in zip(("first", "second"), own.halves, strict=True):
            answer[name] = _change(block, order.formulas, x, own.moved, _rows_of_runs(begins, ends))
    if order.scores:
        answer["scores"] = _scores(model, x)
    return answer


def on_block(block: Block, function: Any, formulas: Formulas, *arguments: Any) -> Any:
    """Whatever the function makes of the block's rows."""
    with _threads.limit(1):
        return function(block.model(formulas), *arguments)


def _evaluate(model: LinearModel, view: MarginView | OutputView | None, x: Vector) -> tuple[float, Vector]:
    """Sums of losses and gradients; the view, if there is one, is then of x."""
    if isinstance(view, OutputView):
        value, gradient = view.evaluate(x)
        return model.n_samples * value, model.n_samples * gradient
    kept = (_NOTHING, _NOTHING) if view is None else (view.margins, view.weights)
    return model.summed(GradientSum(x, *kept), 1.0)


def _curvature(answer: Sums, model: LinearModel, view: MarginView | OutputView, order: Order, own: Own) -> None:
    before = view.total_weight()
    if order.diagonal:
        answer["diagonal"] = model.n_samples * view.diagonal()
    plain = _NOTHING if isinstance(view, OutputView) else view.weights.copy()
    if order.raised or order.diagonal:
        view.raise_curvatures(1.0, 0.0)
    answer["weight"] = np.array([before, view.total_weight()])
    if order.diagonal and order.raised:
        answer["raised diagonal"] = model.n_samples * view.diagonal()
    if not order.raised:
        if isinstance(view, OutputView):
            view.be_plain()
        else:
            view.weights[:] = plain
    if order.sample > 0.0:
        assert isinstance(view, MarginView)
        if not model.squared_rows.size:
            model._scan()
        name, taken = "centred matrix", view.n_rows
        of_all = order.sample >= 1.0
        matrix = view.centred_matrix(order.means) if of_all and order.means is not None else None
        if matrix is None:
            wanted = view.n_rows if of_all else int(np.ceil(order.sample * view.n_rows))
            name, (matrix, taken) = "matrix", view.sampled_matrix(wanted, *own.draws)
        answer[name] = matrix[np.triu_indices(view.d)] * model.n_samples
        answer["taken"] = np.array([float(taken)])


def _rows_of_runs(begins: Indices, ends: Indices) -> Indices:
    lengths = ends - begins
    skipped = begins - np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return np.repeat(skipped, lengths) + np.arange(lengths.sum())


def _change(block: Block, formulas: Formulas, x: Vector, moved: Vector, numbers: Indices) -> Vector:
    """Sum over some rows of the gradients at ``moved`` minus those at x."""
    if numbers.size == 0:
        return np.zeros(x.size)
    chosen = block.take(numbers, counted=False)
    part = LinearModel.of_rows(*chosen, formulas.without_penalty())
    gradients = [part.summed(GradientSum(np.ascontiguousarray(at), _NOTHING, _NOTHING), 1.0)[1] for at in (moved, x)]
    return gradients[0] - gradients[1]


def _scores(model: LinearModel, x: Vector) -> Vector:
    """Rows, hits (for classes), and sums for the mean square error and R² (for numbers)."""
    margins, labels = model.decision(x), model.kernels.labels
    if model.classes is not None:
        found = margins.argmax(axis=1) if model.n_outputs > 1 else np.where(margins > 0, 1.0, -1.0)
        return np.array([labels.size, np.count_nonzero(found == labels), 0.0, 0.0])
    residual = mean_of(model.loss, margins) - labels
    return np.array([labels.size, residual @ residual, labels.sum(), labels @ labels])


def add(answers: list[Sums]) -> Sums:
    """The sum of some blocks' answers, in the order of the list; the answers themselves are left alone."""
    total = {name: array.copy() for name, array in answers[0].items()}
    for answer in answers[1:]:
        for name, array in answer.items():
            total[name] += array
    return total


# ------------------------------------------------------------------------------------------------------- rows and hash


def join(parts: list[Rowset], like: Formulas) -> LinearModel:
    """Rows from several blocks as one problem in this process's memory."""
    labels = np.concatenate([part.labels for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    offset = np.concatenate([part.offset for part in parts])
    first = parts[0].rows
    if isinstance(first, DenseRows):
        rows: Rows = DenseRows(np.concatenate([part.rows.values for part in parts]))  # type: ignore[union-attr]
    else:
        pieces: list[Any] = [part.rows for part in parts]
        ends = np.cumsum([0] + [piece.data.size for piece in pieces])
        pointers = [piece.indptr[1:] + end for piece, end in zip(pieces, ends, strict=False)]
        rows = SparseRows(
            np.concatenate([piece.data for piece in pieces]),
            np.concatenate([piece.indices for piece in pieces]),
            np.concatenate([np.zeros(1, dtype=np.int64), *pointers]),
            like.n_features,
        )
    return LinearModel.of_rows(rows, labels, weights, offset, like)


def hash_block(block: Block) -> str:
    """Hash of rows, labels, weights and offset."""
    digest = hashlib.sha256()
    for part in (*block.rows, block.labels, block.weights, block.offset):
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def warm_up(prototype: Rowset, formulas: Formulas, products: bool) -> None:
    """Compile (or load) on this worker what passes need."""
    block = Block(*prototype, None)
    order = Order(formulas, np.zeros(block.model(formulas).n_parameters), gradient=True)
    sums_on_block(block, order._replace(product=order.x if products else None, diagonal=products))
