"""Sums over all rows, or over runs of consecutive rows, in pieces that threads share.

A piece is a group of runs; its sum goes into a vector of its own, and the vectors are added in order. The pieces
depend on the data alone, so a sum has the same bits for any number of threads. Threads fetch the number of their next
piece from a shared counter: a core that is slowed by other work simply does fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trsvr import _threads
from trsvr._arrays import Indices, Matrix, Vector
from trsvr._compile import compiled_for, kernel, record
from trsvr._intrinsics import fetch_add, matrix_in
from trsvr.problems.margins import Factors, Sample, chance_of, chances_of_eight

# What the calling thread works off before Python may look at signals, in numbers read: some hundredths of a second.
_NUMBERS_PER_CALL = 20_000_000
# A sum of less work, in numbers read, is made by the calling thread alone: it takes about a twentieth of a millisecond,
# and two threads that meet at its end cost more than they save. A row costs as much as some numbers: its loss.
_WORTH_A_THREAD = 2**18
_NUMBERS_PER_ROW = 8
#: An entry of sparse rows costs as much as so many numbers: it has a column, and that lies anywhere.
NUMBERS_PER_ENTRY = 5
# Rows whose chances to be in a sample are added up at once: mostly none of them is. Below this sum, that is, not one:
# in another order it may have rounded differently.
_TOGETHER = 8
_NO_ROW = 1.0 - 1e-12


class Runs(NamedTuple):
    """Runs of rows begins[k] … ends[k]−1; piece p is the runs groups[p] … groups[p+1]−1."""

    begins: Indices
    ends: Indices
    groups: Indices

    @classmethod
    def of_pieces(cls, bounds: Indices) -> Runs:
        """One run per piece: all rows, cut at the bounds."""
        return cls(bounds[:-1].copy(), bounds[1:].copy(), np.arange(bounds.size))

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return self.groups.size - 1


# What is summed: a record whose ``add_run`` adds the rows begin … end−1 of run k to a piece's vector, and returns a
# number that is added to the piece's total.


@record
class GradientSum(NamedTuple):
    """Losses (in the total) and their gradients at x; keeps margins and curvatures where there is room for them."""

    x: Vector
    margins: Vector
    weights: Vector

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        d = self.x.size
        return kernels.sum_rows(self.x, begin, end, part[d:], self.margins, self.weights, part[:d])


@record
class MarginSum(NamedTuple):
    """Losses (in the total) at x; keeps margins and weighted slopes and curvatures."""

    x: Vector
    margins: Vector
    slopes: Vector
    weights: Vector

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Look at one run."""
        return kernels.sum_margins(self.x, begin, end, part[self.x.size :], self.margins, self.slopes, self.weights)


@record
class ConstantSum(NamedTuple):
    """Losses (in the total), slopes and curvatures where every margin is a constant and the offset."""

    constant: float

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        return kernels.sum_constant(self.constant, begin, end, part[2:], part)


@record
class ProductSum(NamedTuple):
    """Hessians of the losses at x, times v."""

    x: Vector
    v: Vector

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        d = self.x.size
        kernels.sum_products(self.x, self.v, begin, end, part[d:], part[:d])
        return 0.0


@record
class WeightedSum(NamedTuple):
    """Hessians of the losses, from kept curvatures, times v."""

    weights: Vector
    v: Vector

    def add_run(self, rows: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        d = self.v.size
        rows.sum_weighted(self.weights, self.v, begin, end, part[d:], part[:d])
        return 0.0


@record
class KeptProductSum(NamedTuple):
    """Hessians of a softmax loss, from known probabilities, times v."""

    probabilities: Matrix
    v: Vector

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        d = self.v.size
        kernels.sum_kept_products(self.probabilities, self.v, begin, end, part[d:], part[:d])
        return 0.0


@record
class DiagonalSum(NamedTuple):
    """Diagonals of the losses' Hessians, from kept curvatures."""

    weights: Vector
    d: int

    def add_run(self, rows: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        rows.sum_squares(self.weights, begin, end, part[: self.d])
        return 0.0


@record
class KeptDiagonalSum(NamedTuple):
    """Diagonals of the Hessians of a softmax loss, from known probabilities."""

    probabilities: Matrix
    d: int

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        kernels.sum_kept_squares(self.probabilities, begin, end, part[self.d :], part[: self.d])
        return 0.0


@record
class ChangeSum(NamedTuple):
    """Gradients of the losses at x minus those at kept margins."""

    x: Vector
    margins: Vector

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        d = self.x.size
        kernels.sum_changes(self.x, self.margins, begin, end, part[d:], part[:d])
        return 0.0


@record
class GramSum(NamedTuple):
    """A sampled curvature matrix (as `trsvr.problems.gram` keeps it), and how many rows it has (in the total).

    Row i is taken with chance π_i = share + per_weight · weights_i · norms_i, at most once: along the rows the chances
    add up, from the run's offset, and a row is taken whenever the sum passes a whole number (systematic sampling). A
    taken row counts 1/π_i times, so the mean of the result is the whole sum.
    """

    sample: Sample
    weights: Vector
    norms: Vector
    offsets: Vector
    size: int
    block_size: int
    one: int  # the column of the intercept, or negative

    def add_run(self, rows: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        size = self.size
        matrix, block = matrix_in(part, size, size), matrix_in(part[size * size :], self.block_size, size)
        passed = self.offsets[k]
        taken = 0
        filled = 0
        i = begin
        while i < end:
            if i + 8 <= end:
                chances = chances_of_eight(self.sample, self.weights, self.norms, i)
                if passed + chances < _NO_ROW:
                    passed += chances
                    i += 8
                    continue
            for k in range(i, min(i + 8, end)):
                chance = chance_of(self.sample, self.weights, self.norms, k)
                passed += chance
                if passed < 1.0:
                    continue
                passed -= 1.0
                taken += 1
                filled = rows.add_outer_square(k, self.weights[k] / chance, self.one, block, filled, matrix)
            i += 8
        rows.finish_squares(block, filled, matrix)
        return taken


@record
class InformationSum(NamedTuple):
    """Losses (in the total) at x, and one or two matrices of all rows, each with its block behind it.

    The first has factors of a row's curvature, or its weight; the second those of its slope. Behind them two numbers:
    Pearson's statistic, and how many rows have less curvature than ``level`` times their weight.
    """

    x: Vector
    factors: Factors
    level: float
    size: int
    block_size: int

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        size, one = self.size, self.size * (self.size + self.block_size)
        other = one if self.factors.of_slopes > 0 else 0  # where there is no second matrix nothing is written to it
        first, second = part[:one], part[other : other + one]
        return kernels.sum_information(
            self.x,
            self.factors,
            self.level,
            begin,
            end,
            part[other + one :],
            matrix_in(first[size * size :], self.block_size, size),
            matrix_in(first, size, size),
            matrix_in(second[size * size :], self.block_size, size),
            matrix_in(second, size, size),
        )


@record
class RowNorms(NamedTuple):
    """Squared norms of the rows, each in its own place; and the rows times factors, if there are any."""

    norms: Vector
    factors: Vector

    def add_run(self, rows: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Look at one run."""
        rows.look(self.factors, begin, end, self.norms, part)
        return 0.0


def _needed(task: Any, kernels: Any) -> Any:
    """What the task needs of the kernels: without loss and regulariser, it is compiled for all of them at once."""
    return kernels.weighted_rows() if isinstance(task, WeightedSum | DiagonalSum) else kernels


def work_off(over: Any, task: Any, runs: Runs, ticket: Indices, totals: Vector, parts: Matrix, most: int) -> None:
    """Take pieces until none is left, or ``most`` of them; several threads call at once."""
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        total = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            total += task.add_run(over, k, runs.begins[k], runs.ends[k], part)
        totals[piece] = total


@kernel()
def add_parts(parts: Matrix, first: int, last: int, factor: float, out: Vector) -> None:
    """``factor`` times the sum of parts first … last−1, added in order, in ``out``."""
    for j in range(out.size):
        out[j] = 0.0
    for piece in range(first, last):
        for j in range(out.size):
            out[j] += parts[piece, j]
    for j in range(out.size):
        out[j] *= factor


class Passes:
    """Runs the sums above; keeps the vectors of the pieces from pass to pass."""

    def __init__(self, all_rows: Runs, length: int, numbers: int) -> None:
        self.all_rows = all_rows
        # Behind each vector lie unused cache lines: threads must not write to the same line.
        self._length = (length + 23) // 8 * 8
        self._pieces_per_call = max(1, _NUMBERS_PER_CALL * all_rows.pieces // max(1, numbers))
        self._work = numbers + _NUMBERS_PER_ROW * int(all_rows.ends[-1])
        self._spare: list[Matrix] = []
        self._compiled: dict[tuple[type, type], Any] = {}

    @property
    def are_shared(self) -> bool:
        """Whether sums over all rows are worth more than one thread."""
        return self._work >= _WORTH_A_THREAD

    def _runner(self, task: Any, over: Any) -> Any:
        """`work_off` for this kind of task."""
        kinds = type(task), type(over)
        if kinds not in self._compiled:
            self._compiled[kinds] = compiled_for(work_off, over, task)
        return self._compiled[kinds]

    def _borrow(self, pieces: int) -> Matrix:
        """A vector per piece; a second set is made for a second caller."""
        try:
            parts = self._spare.pop()
        except IndexError:
            parts = np.empty((0, 0))
        return parts if parts.shape[0] >= pieces else np.empty((max(pieces, self.all_rows.pieces), self._length))

    def sums(
        self,
        task: Any,
        over: Any,
        use: Callable[[Vector, Matrix], Any],
        runs: Runs | None = None,
        work: float | None = None,
    ) -> Any:
        """Work off all pieces, here and in the pool's threads, and return what ``use(totals, parts)`` makes of them.

        ``work`` is what that takes, in numbers read, where it is not about what a pass over all rows takes.
        """
        pieces_of = self.all_rows if runs is None else runs
        pieces = pieces_of.pieces
        ticket = np.zeros(1, dtype=np.int64)
        totals = np.empty(pieces)
        parts = self._borrow(pieces)
        over = _needed(task, over)
        run = self._runner(task, over)

        def here() -> None:
            while ticket[0] < pieces:
                run(over, task, pieces_of, ticket, totals, parts, self._pieces_per_call)

        def helper() -> None:
            run(over, task, pieces_of, ticket, totals, parts, pieces)

        def abandon() -> None:
            ticket[0] = pieces

        if not (self.are_shared if work is None else work >= _WORTH_A_THREAD):
            here()
        else:
            _threads.run(here, helper, pieces, abandon)
        result = use(totals, parts)
        self._spare.append(parts)
        return result

    def warm_up(self, task: Any, over: Any) -> None:
        """Compile (or load) a sum without adding anything."""
        nothing_left = np.full(1, self.all_rows.pieces, dtype=np.int64)
        totals, parts = np.zeros(self.all_rows.pieces), self._borrow(self.all_rows.pieces)
        over = _needed(task, over)
        self._runner(task, over)(over, task, self.all_rows, nothing_left, totals, parts, 1)
        self._spare.append(parts)
