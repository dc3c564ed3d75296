"""What a linear model with one output knows of its curvature at a point where it has just been evaluated.

A full pass leaves every row's margin and weighted curvature behind. From them come, without another product per row:
sampled or full Hessian matrices, Hessian products, the Hessian's diagonal, and changes of the gradient since then on
runs of consecutive rows.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr._compile import compiled_for
from trsvr._draws import Draws
from trsvr._vectors import dot, moments
from trsvr.problems.certificate import GapFacts, linear_facts, stays_steady
from trsvr.problems.columns import centred_gram
from trsvr.problems.dual import DualAscent, dual_price, why_no_dual
from trsvr.problems.families import STEEPNESS
from trsvr.problems.gram import block_rows, folded, padded
from trsvr.problems.lines import HingedRows, lowest_part
from trsvr.problems.losses import BENDS, curvature_bound, is_smooth, sharing
from trsvr.problems.margins import SCRATCH, Factors, MarginKernels, Sample, raise_weights
from trsvr.problems.passes import (
    ChangeSum,
    DiagonalSum,
    GramSum,
    InformationSum,
    Passes,
    Runs,
    WeightedSum,
    add_parts,
)
from trsvr.problems.regularizers import Penalty
from trsvr.problems.rows import DenseRows, SparseRows
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising

if TYPE_CHECKING:
    from trsvr.problems.linear import LinearModel

# About how many rows say how long a step should be.
_LINE_ROWS = 500
# Pieces of a sampled matrix and of a batch: enough for a few threads, few enough to add up quickly.
_PIECES = 8
_BATCH_PIECES = 16
# Numbers in the matrices of the pieces that wait for the next run: new pages cost as much as many rows.
_NUMBERS_KEPT = 2**18


def draw_runs(
    n_rows: int, batch_size: int, random: np.random.Generator, scattered: bool = False
) -> tuple[Indices, int]:
    """Where the runs of a batch begin, an even number of them, and how long each is; they wrap around at the end."""
    length = 1 if scattered else int(np.clip(batch_size // 32, 4, 64))
    count = max(2, math.ceil(batch_size / length / 2) * 2)
    return random.integers(n_rows, size=count), min(length, n_rows)


def matrix_pieces(n_rows: int) -> int:
    """Into how many pieces the rows of a sampled matrix are cut."""
    return min(_PIECES, max(1, n_rows // 64))


def matrix_bounds(n_rows: int) -> Indices:
    """Where these begin and end."""
    return np.linspace(0, n_rows, matrix_pieces(n_rows) + 1).astype(np.int64)


def sample_of(rows: int, weights: Vector, norms: Vector) -> Sample:
    """About so many rows, half of them drawn for their curvature and length; all of them where as many are wanted."""
    if rows >= weights.size:
        return Sample(1.0, 0.0)
    importance = dot(weights, norms)
    share = 0.5 * rows / weights.size
    return Sample(share, 0.5 * rows / importance if importance > 0.0 else share)


class Information(NamedTuple):
    """The losses' sum, Pearson's statistic, whether some row has less curvature than asked for, the matrices over N."""

    losses: float
    pearson: float
    is_flat: bool
    matrices: list[Matrix]


class SampledMatrix:
    """Σ weight_i x_i x_iᵀ / N from some of the rows.

    Rows are taken along the data, in order, so a sample touches the memory once. All rows are used where as many are
    asked for.
    """

    def __init__(self, problem: LinearModel) -> None:
        self.problem, self.n_rows = problem, problem.kernels.labels.size
        self.rows = problem.rows_to_square
        self.d = problem.n_features + int(problem.intercept)
        self._one = problem.n_features if problem.intercept else -1
        self._size, self._block = padded(self.d), block_rows(self.d)
        self._passes: Passes | None = None

    def matrix(self, weights: Vector, rows: int, draws: Draws, number: int = 0) -> tuple[Matrix, int]:
        """The matrix from about so many rows, half of them drawn for their weight and length; and how many."""
        # Where all rows are taken, their lengths do not matter.
        norms = self.problem.squared_rows if rows < self.n_rows else weights
        sample = sample_of(rows, weights, norms)
        pieces = matrix_pieces(self.n_rows)
        offsets = np.zeros(pieces) if rows >= self.n_rows else draws.stream("matrix", number).random(pieces)
        taken, (matrix,), _ = self._summed(self._task(sample, weights, norms, offsets), self.rows, rows, 1)
        return matrix, int(taken)

    def information(self, x: Vector, factors: Factors, level: float) -> Information:
        """What `Information` has, at x: in one reading of the rows."""
        task = InformationSum(np.ascontiguousarray(x), factors, level, self._size, self._block)
        losses, matrices, (pearson, flat) = self._summed(
            task, self.problem.kernels, self.n_rows, 2 if factors.of_slopes else 1
        )
        return Information(losses, float(pearson), flat > 0, matrices)

    def _summed(self, task: Any, over: Any, rows: int, count: int) -> tuple[float, list[Matrix], Vector]:
        """The total, so many matrices of so many rows, and the two numbers that an `InformationSum` has beside them."""
        size, one = self._size, self._size * (self._size + self._block)
        beside = count * one + SCRATCH
        if self._passes is None:
            self._passes = self._passes_over(beside + 2)

        def use(totals: Vector, parts: Matrix) -> tuple[float, list[Vector], Vector]:
            known = parts[: totals.size]  # added in order
            halves = [known[:, k * one : k * one + size * size].sum(axis=0) for k in range(count)]
            return float(totals.sum()), halves, known[:, beside : beside + 2].sum(axis=0)

        # To look at a row takes the time of a few numbers read, and to take it that of many. Multiplications of a row
        # with itself are made in the registers: several take the time of one.
        work = 3.0 * self.n_rows + count * min(rows, self.n_rows) * (64.0 + self.d**2 / 4.0)
        total, halves, numbers = self._passes.sums(task, over, use, work=work)
        matrices = []
        for half in halves:
            half *= 1.0 / self.problem.n_samples
            matrices.append(np.empty((self.d, self.d)))
            folded(half.reshape(size, size), matrices[-1])
        return total, matrices, numbers

    def _passes_over(self, length: int) -> Passes:
        """All rows, with so many numbers for each piece: those of an earlier run, unless that is much memory."""
        kept = self.problem.matrix_passes
        if length in kept:
            return kept[length]
        passes = Passes(Runs.of_pieces(matrix_bounds(self.n_rows)), length, self.n_rows * self.d)
        if length * matrix_pieces(self.n_rows) <= _NUMBERS_KEPT:
            kept[length] = passes
        return passes

    def _task(self, sample: Sample, weights: Vector, norms: Vector, offsets: Vector) -> GramSum:
        return GramSum(sample, weights, norms, offsets, self._size, self._block, self._one)

    def warm_up(self) -> None:
        """Compile (or load) it."""
        nothing = np.zeros(1)
        self.problem.passes.warm_up(self._task(Sample(0.0, 0.0), nothing, nothing, nothing), self.rows)


class MarginView(CurvatureView):
    """Margins and curvatures of the rows at one point, and what can be made of them."""

    def __init__(self, problem: LinearModel) -> None:
        assert isinstance(problem.kernels, MarginKernels)
        self.problem = problem
        self.kernels = problem.kernels
        self.n_rows = problem.kernels.labels.size
        self.d = problem.n_parameters
        self.margins, self.weights = problem.memory_of_rows()
        self._total: float | None = None  # sum of the curvatures, where it is known
        self._raised = False  # whether they are
        self._penalty = Penalty(problem.regularizer, self.d, self.kernels.columns)
        self._gram = SampledMatrix(problem)
        bound = curvature_bound(problem.loss)
        self.raising = Raising.WHOLE if bound is None else Raising.GRADED
        self._bound = 0.0 if bound is None else bound
        self._prices = Prices.of_rows(problem.n_samples, self.d, 1, problem.n_entries)
        if isinstance(self.kernels.rows, SparseRows) and not why_no_dual(problem):
            self._prices = self._prices._replace(dual=dual_price(problem))
        takes_arrays = type(problem.loss) in BENDS
        if isinstance(self.kernels.rows, DenseRows) and takes_arrays and is_smooth(problem.loss):
            self._prices = self._prices._replace(line=_LINE_ROWS / self.n_rows)

    def prices(self) -> Prices:
        """What arithmetic costs."""
        return self._prices

    def close(self) -> None:
        """Leave the memory to the next run."""
        self.problem.keep_memory(self.margins, self.weights)
        self.margins = self.weights = np.empty(0)

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self._raised = False
        value, gradient, self._total = self.problem.with_curvatures(x, self.margins, self.weights)
        return value, gradient

    def snapshot(self) -> dict[str, Vector]:
        """What the view knows, for a checkpoint."""
        return {"margins": self.margins, "weights": self.weights}

    def restore(self, snapshot: dict[str, Vector]) -> None:
        """Take over such a snapshot."""
        for name, known in self.snapshot().items():
            kept = snapshot[name]
            if kept.shape != known.shape or kept.dtype != known.dtype:
                raise ValueError(f"{name} must have {known.size} numbers, got shape {kept.shape}")
            known[:] = kept
        self._total = None

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        if self._total is None:
            self._total = float(self.weights.sum())
        return self._total

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after."""
        before, self._raised = self.total_weight(), True
        loss, kernels = self.kernels.loss, self.kernels
        compiled_for(raise_weights, loss)(loss, kernels.labels, kernels.weights, self.margins, self.weights, steep)
        if flat > 0.0:
            scale = self.kernels.weights if self.kernels.weights.size else 1.0
            np.maximum(self.weights, flat * self._bound * scale, out=self.weights)
        self._total = after = float(self.weights.sum())
        return before / after if after > 0.0 else 1.0

    # ------------------------------------------------------------------------------------------------ penalty

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._penalty.slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self._penalty.curvatures(x)

    # ---------------------------------------------------------------------------------------------- the losses

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses from about so many rows, half of them drawn for their curvature; and how many."""
        matrix, taken = self.sampled_matrix(rows, draws)
        return matrix[None], taken

    def sampled_matrix(self, rows: int, draws: Draws, number: int = 0) -> tuple[Matrix, int]:
        """The one block, by the numbered stream of draws."""
        return self._gram.matrix(self.weights, rows, draws, number)

    def centred_matrix(self, means: Vector) -> Matrix | None:
        """Mean Hessian of the losses of dense rows minus these means."""
        rows = self.kernels.rows
        if not isinstance(rows, DenseRows):
            return None
        with np.errstate(all="ignore"), one_blas_thread():
            return centred_gram(rows.values, means, self.weights) / self.problem.n_samples

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        return self._mean(self.product_task(v))

    def product_task(self, v: Vector) -> WeightedSum:
        """The same as a task for `Passes`."""
        return WeightedSum(self.weights, v)

    def diagonal(self) -> Vector:
        """Diagonal of the mean Hessian of the losses."""
        return self._mean(DiagonalSum(self.weights, self.d))

    @cached_property
    def _line_rows(self) -> tuple[Any, Any]:
        """Rows at equal distances, and how much each counts.

        Of rows with weights, at equal distances of their sum: else a few of most of the weight would hardly be seen.
        """
        every, weights = max(1, self.n_rows // _LINE_ROWS), self.kernels.weights
        if every == 1 or not weights.size:
            return slice(0, None, every), weights[::every] if weights.size else 1.0
        sums = np.cumsum(weights)
        places = (np.arange(_LINE_ROWS) + 0.5) / _LINE_ROWS
        return np.searchsorted(sums, places * sums[-1]), sums[-1] / self.n_rows

    @np.errstate(all="ignore")
    def line(self, x: Vector, gradient: Vector, step: Vector) -> tuple[float, float, int]:
        """First and second derivative along a step, at its end: how they change, from rows at equal distances."""
        kernels, loss, there = self.kernels, self.problem.loss, x + step
        rows, counts = self._line_rows
        margins, labels = self.margins[rows], kernels.labels[rows]
        along = np.einsum("ij,j->i", kernels.rows.values[rows], step[: kernels.columns])
        if self.problem.intercept:
            along += step[-1]
        scaled = along * counts
        ends = margins + along
        at_ends = sharing(loss, ends)
        slopes = at_ends.slope(ends, labels) - loss.slope(margins, labels)
        slope = dot(gradient + self.penalty_slopes(there) - self.penalty_slopes(x), step)
        curvature = dot(self.penalty_curvatures(there) * step, step)
        curvatures = at_ends.curvature(ends, labels)
        share = self.n_rows / (self.problem.n_samples * along.size)  # rows of weight zero do not count
        slope += share * float((slopes * scaled).sum())
        return slope, curvature + share * float((curvatures * along * scaled).sum()), along.size

    def lowest_part(self, there: Any, x: Vector, gradient: Vector, step: Vector) -> float:
        """Which part of a step leads to where f is lowest on its way, at a hinge."""
        loss, kernels = self.problem.loss, self.kernels
        if is_smooth(loss) or type(loss) not in BENDS:
            return math.nan
        weights = kernels.weights if kernels.weights.size else 1.0
        rows = HingedRows(loss, kernels.labels, weights, self.margins, there.margins, self.problem.n_samples)
        return lowest_part(rows, self, x, gradient, step)

    def _mean(self, task: Any) -> Vector:
        return self.problem.summed(task, 1.0 / self.problem.n_samples)[1]

    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int]:
        """Mean change of the losses' gradients between this view's point and x, on two independent halves of a batch.

        The batch is runs of consecutive rows from random places (the rows wrap around, so every row is as likely as any
        other), or ``scattered``: single rows. Returns the two halves' means and the number of rows.
        """
        begins, length = draw_runs(self.n_rows, batch_size, draws.stream("batch", number), scattered)
        # The mean over rows that count is taken from a mean over all rows.
        share = self.n_rows / self.problem.n_samples
        first, second = self.changes_on(x, begins, length)
        return share * first, share * second, begins.size * length

    def changes_on(self, x: Vector, begins: Indices, length: int) -> tuple[Vector, Vector]:
        """The same on given runs: means over all rows of the first half of them, and of the second."""
        count = begins.size
        ends = begins + length
        rest = np.maximum(ends - self.n_rows, 0)
        # A run that wraps around is two runs of the same group: the second one is empty for all others.
        pairs_begin = np.stack([begins, np.zeros_like(begins)], axis=1).ravel()
        pairs_end = np.stack([ends - rest, rest], axis=1).ravel()
        pieces = min(_BATCH_PIECES, count // 2 * 2)
        groups = np.linspace(0, count, pieces + 1).astype(np.int64) * 2
        groups[pieces // 2] = count // 2 * 2
        first, second = np.empty(self.d), np.empty(self.d)
        per_half = 1.0 / (count // 2 * length)

        def use(totals: Vector, parts: Matrix) -> None:
            add_parts(parts, 0, pieces // 2, per_half, first)
            add_parts(parts, pieces // 2, pieces, per_half, second)

        runs = Runs(pairs_begin, pairs_end, groups)
        self.problem.passes.sums(ChangeSum(x, self.margins), self.kernels, use, runs)
        return first, second

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f."""
        if self._raised and self.problem.intercept:
            return None  # the curvatures are not those of the losses
        n, kept, scale = self.problem.n_samples, self.weights, self.kernels.weights
        total, power = moments(kept)
        own = kept
        if scale.size:
            own = kept / np.where(scale > 0.0, scale, 1.0)
            power = dot(kept, own)
        intercepts, curved = np.array([[total / n]]), math.sqrt(power / n)
        slope, loss, labels = None, self.problem.loss, self.kernels.labels
        if curvature_bound(loss) is None and type(loss) in BENDS:  # they take arrays
            steepness = STEEPNESS.get(type(loss))
            slopes = loss.slope(self.margins, labels) if steepness is None else steepness(own, labels)
            slope = math.sqrt(dot(slopes, scale * slopes if scale.size else slopes) / n)
        return linear_facts(
            self.problem, x, value, intercepts, self._steady, curved, slope, lambda: self.problem.column_squares
        )

    def _steady(self, t: float) -> bool:
        return stays_steady(self.problem.loss, self.margins, self.kernels.labels, self.kernels.weights, t)

    def ascent(self) -> DualAscent:
        """Coordinate ascent in the dual, not begun yet."""
        ascent = DualAscent(self.problem)
        ascent.warm_up()
        return ascent

    def start_ascent(self, ascent: DualAscent, x: Vector, gradient: Vector) -> None:
        """Let it begin at the view's point x."""
        ascent.start(x, self.margins, gradient)

    def warm_up(self, dense: bool) -> None:
        """Compile (or load) what every run needs, so that a clock started afterwards does not see it.

        Most runs need no more: what steps on batches and raised curvatures need is compiled when they are asked for.
        """
        x, nothing = np.zeros(self.d), np.zeros(1)
        self.problem.warm_up()
        self.penalty_curvatures(x)
        self.penalty_slopes(x)
        if dense:
            self._gram.warm_up()
        else:
            self.problem.passes.warm_up(WeightedSum(nothing, x), self.kernels)
            self.problem.passes.warm_up(DiagonalSum(nothing, self.d), self.kernels)
