"""Dense rows with K outputs, processed as products of matrices: blocks of rows times p × K weights, and back.

Values and gradients are computed in float64, whatever the rows are. What only directs a step, the products with the
Hessian and its diagonal, is multiplied in the rows' own type and added up in float64: of float32 rows that leaves six
digits of a product, and all digits of what is minimised. Along a direction that is next to flat, where six digits of
the largest curvature are none of this one, a product is made anew in float64.

A row keeps its slopes r = π − e_y, from which its curvature (diag(π) − ππᵀ) follows without cancelling, however near
to one π_y is: times t it is r ∘ (u − rᵀu) with u = t − t_y, less rᵀu at y; its diagonal is |r| (1 − |r|).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr._compile import jitable_loop, record
from trsvr._draws import Draws
from trsvr._intrinsics import exp_minus, matrix_in
from trsvr._linking import PART
from trsvr._tiles import STEP, add_turned, lanes, packed, padded, times_packed
from trsvr._vectors import dot, is_zero
from trsvr.problems.certificate import GapFacts, between_outputs, linear_facts, softmax_stays_steady
from trsvr.problems.curvature import SampledMatrix
from trsvr.problems.outputs import OutputKernels
from trsvr.problems.passes import Passes, Runs, add_parts
from trsvr.problems.regularizers import Penalty, add_penalty
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising

if TYPE_CHECKING:
    from trsvr.problems.linear import LinearModel

# Rows that are multiplied at a time: as many as stay in a core's cache, for both readings of them.
_CACHED_BYTES = 2**19
_MOST_ROWS = 3 * STEP
# A piece of a pass has so many rows at least, and so many for each output: its own sum costs little beside them then.
_ROWS_PER_PIECE, _ROWS_PER_OUTPUT = 512, 12
_PIECES = 64
_RAISED = 2**14  # slopes that are raised at a time: a near cache holds them
_GATHERED = 8192  # rows whose probabilities are written down at a time
_TILE = 128  # columns of a matrix that a thread makes at a time
# Below this part of the mean of ‖x‖² a curvature along a direction may be the rounding of float32.
_FLAT = 1e-6
# Squared rows beyond which products of float32 may overflow, or vanish.
_LARGE, _SMALL = 1e24, 1e-24


@record
class OutputRows(NamedTuple):
    """Rows, and what is known of each."""

    values: NDArray[Any]  # n × p
    places: Indices  # of the labels
    weights: Vector  # empty: every row has weight one
    offsets: Matrix  # n × K, added to the margins; or 0 × K
    together: int  # rows that are multiplied at a time

    def scale(self, i: int) -> float:
        """Of row i."""
        return self.weights[i] if self.weights.size > 0 else 1.0


def in_type_of(example: NDArray[Any], rows: NDArray[Any], room: NDArray[Any]) -> NDArray[Any]:
    """The rows, or a copy of them in ``room`` if what they are multiplied with is not of their type."""
    if rows.dtype == example.dtype:
        return rows
    room[:] = rows
    return room


@overload(in_type_of, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_in_type_of(example: Any, rows: Any, room: Any) -> Any:
    if rows.dtype == example.dtype:
        return lambda example, rows, room: rows

    def copied(example: Any, rows: Any, room: Any) -> Any:
        for i in range(rows.shape[0]):
            row, out = rows[i], room[i]
            for j in range(row.size):
                out[j] = row[j]
        return room

    return copied


@jitable_loop(fastmath=True)
def _sum(numbers: Vector) -> float:
    total = 0.0
    for k in range(numbers.size):
        total += numbers[k]
    return total


@jitable_loop(fastmath=True)
def _curvature_of(slopes: Vector) -> float:
    """Σ |r| (1 − |r|)."""
    total = 0.0
    for k in range(slopes.size):
        total += abs(slopes[k]) * (1.0 - abs(slopes[k]))
    return total


@jitable_loop()
def _slopes_of_row(margins: Vector, place: int) -> float:
    """The loss; the margins become the slopes r."""
    largest = margins[0]
    for k in range(1, margins.size):
        largest = max(largest, margins[k])
    of_label = margins[place] - largest
    for k in range(margins.size):
        margins[k] = exp_minus(largest - margins[k])
    right = margins[place]
    margins[place] = 0.0
    others = _sum(margins)
    total = right + others
    for k in range(margins.size):
        margins[k] /= total
    margins[place] = -others / total
    # On the right side the loss is the logarithm of 1 + others, of which a sum would lose what is small.
    return np.log1p(others) if of_label == 0.0 else np.log(total) - of_label


@jitable_loop(fastmath=True)
def _curvature_times(slopes: NDArray[Any], place: int, directions: NDArray[Any]) -> None:
    """The curvature of a row's loss times the K directions, in place."""
    of_label = directions[place]
    mean = of_label - of_label
    for k in range(slopes.size):
        directions[k] -= of_label
        mean += slopes[k] * directions[k]
    for k in range(slopes.size):
        directions[k] = slopes[k] * (directions[k] - mean)
    directions[place] -= mean


@jitable_loop(fastmath=True)
def _weigh(weight: float, numbers: NDArray[Any]) -> None:
    """Multiply by a row's weight; a row of weight zero is left out, whatever it contains."""
    for k in range(numbers.size):
        numbers[k] = numbers[k] * weight if weight > 0.0 else 0.0


@jitable_loop(fastmath=True)
def _add_to(sums: Vector, numbers: NDArray[Any]) -> None:
    for j in range(sums.size):
        sums[j] += numbers[j]


# The tasks of `trsvr.problems.passes`: a piece's sums are p × K numbers and K of the intercepts, K padded to whole
# vectors, and ``scratch`` has a row of room for it.


@record
class OutputValues(NamedTuple):
    """Losses (in the total) and gradients at packed weights and intercepts; keeps slopes and curvatures."""

    weights: NDArray[Any]
    shifts: Vector
    slopes: NDArray[Any]
    curvatures: Vector
    scratch: Matrix

    def add_run(self, over: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        columns, outputs = over.values.shape[1], self.shifts.size
        width = self.weights.size // columns
        sums, intercepts = matrix_in(part, columns, width), part[columns * width :]
        room = self.scratch[k]
        value = 0.0
        begins = is_zero(self.weights)  # as runs do: half of the work is spared
        for start in range(begin, end, over.together):
            count = min(over.together, end - start)
            table, beside = matrix_in(room, count, width), matrix_in(room[over.together * width :], count, columns)
            rows = in_type_of(self.weights, over.values[start : start + count], beside)
            if begins:
                table[:] = 0.0
            else:
                times_packed(rows, self.weights, table)
            for i in range(count):
                mine, weight = table[i, :outputs], over.scale(start + i)
                for j in range(outputs):
                    mine[j] += self.shifts[j]
                if over.offsets.size > 0:
                    for j in range(outputs):
                        mine[j] += over.offsets[start + i, j]
                loss = _slopes_of_row(mine, over.places[start + i])
                if weight > 0.0:
                    value += weight * loss
                if self.curvatures.size > 0:
                    self.curvatures[start + i] = weight * _curvature_of(mine) if weight > 0.0 else 0.0
                    kept = self.slopes[start + i]
                    for j in range(outputs):
                        kept[j] = mine[j]
                if over.weights.size > 0:
                    _weigh(weight, mine)
                _add_to(intercepts[:outputs], mine)
            add_turned(rows, table, sums)
        return value


@record
class OutputProducts(NamedTuple):
    """Hessians of the losses, from kept slopes, times packed weights and intercepts, in their type."""

    weights: NDArray[Any]
    shifts: NDArray[Any]
    slopes: NDArray[Any]
    scratch: NDArray[Any]

    def add_run(self, over: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        columns, outputs = over.values.shape[1], self.shifts.size
        width = self.weights.size // columns
        sums, intercepts = matrix_in(part, columns, width), part[columns * width :]
        room = self.scratch[k]
        for start in range(begin, end, over.together):
            count = min(over.together, end - start)
            table, beside = matrix_in(room, count, width), matrix_in(room[over.together * width :], count, columns)
            rows = in_type_of(self.weights, over.values[start : start + count], beside)
            times_packed(rows, self.weights, table)
            for i in range(count):
                mine = table[i, :outputs]
                for j in range(outputs):
                    mine[j] += self.shifts[j]
                _curvature_times(self.slopes[start + i], over.places[start + i], mine)
                if over.weights.size > 0:
                    _weigh(over.scale(start + i), mine)
                _add_to(intercepts[:outputs], mine)
            add_turned(rows, table, sums)
        return 0.0


@record
class OutputSquares(NamedTuple):
    """Diagonals of the same Hessians; K is padded to ``width``."""

    slopes: NDArray[Any]
    scratch: NDArray[Any]
    width: int

    def add_run(self, over: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        columns, outputs, width = over.values.shape[1], self.slopes.shape[1], self.width
        sums, intercepts = matrix_in(part, columns, width), part[columns * width :]
        room = self.scratch[k]
        for start in range(begin, end, over.together):
            count = min(over.together, end - start)
            squared = matrix_in(room[over.together * width :], count, columns)
            table = matrix_in(room, count, width)
            table[:] = 0.0
            for i in range(count):
                row, mine, weight = over.values[start + i], squared[i], over.scale(start + i)
                for j in range(columns):
                    mine[j] = row[j] * row[j]
                for j in range(outputs):
                    share = abs(self.slopes[start + i, j])
                    table[i, j] = weight * (share * (1.0 - share)) if weight > 0.0 else 0.0
                _add_to(intercepts[:outputs], table[i])
            add_turned(squared, table, sums)
        return 0.0


@record
class SharedMatrix(NamedTuple):
    """Σ weight_i (x_i, 1) x_iᵀ: a run is some of its columns, from the diagonal down, or behind them the intercept's.

    Its columns are padded to whole vectors, of so many ``lanes``, and so is the intercept's.
    """

    curvatures: Vector
    matrix: NDArray[Any]
    scratch: NDArray[Any]
    lanes: int

    def add_run(self, over: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Make these columns."""
        n, columns = over.values.shape
        ones = begin == columns
        width = (end - begin + self.lanes - 1) // self.lanes * self.lanes
        first = 0 if ones else begin
        place = self.matrix.shape[1] - width if ones else begin
        out = self.matrix[first:, place:]
        for start in range(0, n, over.together):
            count = min(over.together, n - start)
            rows = over.values[start : start + count]
            scaled = matrix_in(self.scratch[k], count, width)
            scaled[:] = 0.0
            for i in range(count):
                weight = self.curvatures[start + i]
                for j in range(end - begin):
                    scaled[i, j] = weight if ones else weight * rows[i, begin + j]
            add_turned(rows[:, first:], scaled, out)
        return 0.0


class DenseOutputView(CurvatureView):
    """Slopes and curvatures of the rows at one point, and what can be made of them."""

    raising = Raising.GRADED

    def __init__(self, problem: LinearModel) -> None:
        kernels = problem.kernels
        assert isinstance(kernels, OutputKernels)
        self.problem, self.kernels, self.n_outputs = problem, kernels, kernels.classes
        values, self._intercept = kernels.rows.values, kernels.intercept
        self.n_rows, self._columns = values.shape
        self._type = values.dtype
        self._rows = OutputRows(
            values,
            kernels.labels.astype(np.int64),
            kernels.weights,
            kernels.offset.reshape(-1, self.n_outputs),
            _block(self._columns, values.itemsize),
        )
        self._slopes, self._curvatures = np.zeros((self.n_rows, self.n_outputs), self._type), np.zeros(self.n_rows)
        self._raised: tuple[NDArray[Any], Vector] | None = None
        if not problem.squared_rows.size:
            problem._scan()
        mean, largest = problem.mean_squared_row, problem.largest_squared_row or 0.0
        self._narrow = self._type == np.float32 and mean > _SMALL and largest < _LARGE
        self._sums = _Sums(self._rows, self.n_outputs, problem.n_samples, self._intercept)
        d = self._columns + int(self._intercept)
        self._gram = SampledMatrix(problem)
        self._penalty = Penalty(kernels.regularizer, problem.n_parameters, self._columns * self.n_outputs)
        known = Prices.of_rows(problem.n_samples, d, self.n_outputs, problem.n_entries)
        self._prices = known.with_shared(self.n_rows, d, self.n_outputs)

    def prices(self) -> Prices:
        """What arithmetic costs; batches of several outputs are not worth their noise."""
        return self._prices

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self._raised = None
        task = OutputValues(*self._apart(x), self._slopes, self._curvatures, self._sums.scratch(np.float64))
        total, gradient = self._sums.mean(task, np.float64)
        penalty = add_penalty(self.kernels.regularizer, x, self._columns * self.n_outputs, gradient)
        return total + penalty, gradient

    def _apart(self, x: Vector, kind: Any = np.float64) -> tuple[NDArray[Any], NDArray[Any]]:
        """The p × K weights, packed, and K intercepts in x."""
        table = x.reshape(-1, self.n_outputs)
        shifts = table[-1] if self._intercept else np.zeros(self.n_outputs)
        return packed(table[: self._columns], kind), shifts.astype(kind)

    def snapshot(self) -> dict[str, Matrix]:
        """What the view knows, for a checkpoint."""
        return {"slopes": self._slopes, "curvatures": self._curvatures}

    def restore(self, snapshot: dict[str, Matrix]) -> None:
        """Take over such a snapshot."""
        for name, known in self.snapshot().items():
            if snapshot[name].shape != known.shape or snapshot[name].dtype != known.dtype:
                raise ValueError(f"{name} must have shape {known.shape}, got {snapshot[name].shape}")
            known[:] = snapshot[name]
        self._raised = None

    # ---------------------------------------------------------------------------------------------- curvatures

    @property
    def _now(self) -> tuple[NDArray[Any], Vector]:
        """Slopes that make the curvatures, and the sum of these for every row."""
        return (self._slopes, self._curvatures) if self._raised is None else self._raised

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return float(self._now[1].sum())

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures as `OutputView` does; returns their sum before over after."""
        raised, sums, before = np.empty_like(self._slopes), np.empty(self.n_rows), float(self._curvatures.sum())
        together = max(1, _RAISED // self.n_outputs)
        for begin in range(0, self.n_rows, together):
            rows = slice(begin, begin + together)
            slopes, places = self._slopes[rows].astype(np.float64), self._rows.places[rows]
            of_labels = np.arange(len(slopes)), places
            slopes *= (1.0 - flat) * (1.0 - mixed_in(1.0 + slopes[of_labels], steep))[:, None]
            slopes += flat / self.n_outputs
            slopes[of_labels] -= flat
            raised[rows] = slopes
            np.abs(slopes, out=slopes)
            slopes *= 1.0 - slopes
            slopes.sum(axis=1, out=sums[rows])
        if self._rows.weights.size:
            sums *= self._rows.weights
        self._raised = raised, sums
        after = float(sums.sum())
        return before / after if after > 0.0 else 1.0

    def lower_curvatures(self, x: Vector) -> float:
        """They are kept beside the raised ones."""
        self._raised = None
        return 0.0

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._penalty.slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self._penalty.curvatures(x)

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        if not self._narrow:
            return self._product(v, self._type)
        product = self._product(v, np.dtype(np.float32))
        scale = self.problem.mean_squared_row * self.total_weight() / (self.n_rows * self.n_outputs)
        return product if dot(v, product) > _FLAT * scale * dot(v, v) else self._product(v, np.dtype(np.float64))

    def _product(self, v: Vector, kind: np.dtype[Any]) -> Vector:
        size = float(np.abs(v).max(initial=0.0)) or 1.0  # so that float32 has room for it
        task = OutputProducts(*self._apart(v / size, kind), self._now[0], self._sums.scratch(kind))
        return size * self._sums.mean(task, kind)[1]

    def diagonal(self) -> Vector:
        """Its diagonal."""
        return self._sums.mean(self._squares(), self._type)[1]

    def _squares(self) -> OutputSquares:
        width = padded(self.n_outputs, self._type)
        return OutputSquares(self._now[0], self._sums.scratch(self._type), width)

    def shared(self) -> Matrix:
        """The mean over the outputs of its K diagonal blocks."""
        p, d, width = self._columns, self._columns + int(self._intercept), lanes(self._type)
        matrix = np.zeros((p, padded(p, self._type) + width), self._type)
        bounds = np.unique(np.append(np.arange(0, p, _TILE), [p, d]))
        runs = Runs(bounds[:-1].copy(), bounds[1:].copy(), np.arange(bounds.size))
        self._sums.run(SharedMatrix(self._now[1], matrix, self._sums.scratch(self._type), width), runs)
        whole = np.zeros((d, d))
        whole[:p, :p] = np.tril(matrix[:, :p])
        if self._intercept:
            whole[p, :p], whole[p, p] = matrix[:, -width], self.total_weight()
        whole += np.tril(whole, -1).T
        whole /= self.problem.n_samples * self.n_outputs
        return whole

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f."""
        return linear_facts(
            self.problem,
            x,
            value,
            self._between_intercepts(),
            softmax_stays_steady,
            squares=lambda: self.problem.column_squares,
            product=self._exact_product if self._now[0] is self._slopes else None,
        )

    def _exact_product(self, v: Vector) -> Vector:
        """A product in float64."""
        return self._product(v, np.dtype(np.float64))

    def _between_intercepts(self) -> Matrix:
        """Mean of diag(π) − ππᵀ, from the slopes π − e_y of some rows at a time."""
        K, places, weights = self.n_outputs, self._rows.places, self._rows.weights
        total = np.zeros((K, K))
        with one_blas_thread():
            for begin in range(0, self.n_rows, _GATHERED):
                rows = slice(begin, begin + _GATHERED)
                chances = self._slopes[rows].astype(np.float64)
                chances[np.arange(len(chances)), places[rows]] += 1.0
                weighted = chances * weights[rows, None] if weights.size else chances
                total += weighted.T @ chances
        return between_outputs(total) / self.problem.n_samples

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Its K diagonal blocks, each from about so many rows; and how many rows that took together."""
        shares = np.abs(self._now[0].T.astype(np.float64))
        weights = np.ascontiguousarray(shares * (1.0 - shares))
        if self._rows.weights.size:
            weights *= self._rows.weights
        found = [self._gram.matrix(of_one, rows, draws, k) for k, of_one in enumerate(weights)]
        return np.stack([matrix for matrix, _ in found]), sum(taken for _, taken in found)

    def warm_up(self, dense: bool) -> None:
        """Compile (or load) what will be needed, so that a clock started afterwards does not see it."""
        x, own, scratch = np.zeros(self.problem.n_parameters), self._type, self._sums.scratch
        add_penalty(self.kernels.regularizer, x, self._columns * self.n_outputs, x.copy())
        self.penalty_curvatures(x)
        self._sums.warm_up(OutputValues(*self._apart(x), self._slopes, self._curvatures, scratch(np.float64)))
        self._sums.warm_up(OutputProducts(*self._apart(x, own), self._slopes, scratch(own)))
        if dense:
            self._gram.warm_up()
        else:
            self._sums.warm_up(self._squares())


def mixed_in(right: Vector, steep: float) -> Vector:
    """By which part rows on the wrong side move towards their label: `raised_chances` says why."""
    odds = np.log1p(-np.minimum(right, 0.5)) - np.log(np.maximum(right, np.finfo(float).eps))
    wanted = np.minimum((1.0 - right) / np.maximum(odds, 1.0), 0.25)
    share = 0.5 - np.sqrt(0.25 - wanted)
    return np.where(share > right, steep * (share - right) / np.maximum(1.0 - right, 0.5), 0.0)


def _block(columns: int, itemsize: int) -> int:
    """Rows that are multiplied at a time."""
    return int(np.clip(_CACHED_BYTES // (columns * itemsize) // STEP * STEP, STEP, _MOST_ROWS))


class _Sums:
    """Runs the tasks; keeps their room from pass to pass."""

    def __init__(self, rows: OutputRows, outputs: int, n_samples: int, intercept: bool) -> None:
        self._rows, self._outputs, self._n_samples = rows, outputs, n_samples
        n, columns = rows.values.shape
        self._sizes = columns + int(intercept), columns + 1
        pieces = int(np.clip(n // max(_ROWS_PER_OUTPUT * outputs, _ROWS_PER_PIECE), 1, _PIECES))
        bounds = np.linspace(0, n, pieces + 1).astype(np.int64) // STEP * STEP
        bounds[-1] = n
        self._width = padded(outputs, np.float32)  # no type has more
        self._passes = Passes(Runs.of_pieces(bounds), (columns + 1) * self._width, n * columns * outputs)
        self._room: dict[Any, NDArray[Any]] = {}

    def scratch(self, kind: Any) -> NDArray[Any]:
        """A row of room for every piece: a block of K numbers a row, and one of the rows."""
        kind = np.dtype(kind)
        if kind not in self._room:
            columns = self._rows.values.shape[1]
            length = self._rows.together * (self._width + max(columns, _TILE))
            tiles = columns // _TILE + 3
            self._room[kind] = np.empty((max(self._passes.all_rows.pieces, tiles), length + 64), kind)
        return self._room[kind]

    def mean(self, task: Any, kind: Any) -> tuple[float, Vector]:
        """Total and vector of a pass over all rows, in this type, divided by their number."""
        known, rows = self._sizes
        table, n = np.empty((rows, padded(self._outputs, kind))), self._n_samples

        def use(totals: Vector, parts: Matrix) -> float:
            add_parts(parts, 0, totals.size, 1.0 / n, table.reshape(-1))
            return float(totals.sum()) / n

        total = self._passes.sums(task, self._rows, use)
        return total, table[:known, : self._outputs].ravel()

    def run(self, task: Any, runs: Runs) -> None:
        """Work off other runs, which leave their results themselves."""
        self._passes.sums(task, self._rows, lambda totals, parts: None, runs)

    def warm_up(self, task: Any) -> None:
        """Compile (or load) a sum without adding anything."""
        self._passes.warm_up(task, self._rows)
