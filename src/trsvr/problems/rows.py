"""The rows of a data matrix, dense or compressed, behind the same few operations.

Every kernel is written against these operations, so it exists once for both kinds of rows. Weights of one output are a
vector w of length p (the columns); weights of K outputs are the flattened p × K matrix.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trsvr._arrays import Matrix, Vector
from trsvr._compile import jitable_loop, record
from trsvr._intrinsics import prefetch, whole_numbers_in
from trsvr._lanes import LANES, add_eight, add_narrow, eight_dots, narrow_dots
from trsvr.problems.gram import add_dense, add_sparse

_CACHE_LINE = 64
# (Remainders of powers of two are taken as bits, x & 7: Numba's % compiles a function of its own.)
# Consecutive rows are taken in blocks: at most so many rows, and so few bytes that memory, which is read ahead of need,
# has no pause while margins are made into slopes.
BLOCK = 64
_BLOCK_BYTES = 8192
# The weights of several outputs that an entry of a compressed row asks for lie anywhere: ask some entries early.
_ENTRIES_AHEAD = 6
# In outer products, dense rows of so many columns are looked at for zeros: few entries are less than one in so many.
_WIDE_ROW, _FEW = 32, 3


@jitable_loop(fastmath=True)
def _dense_dot(values: NDArray[Any], i: int, w: Vector) -> float:
    row = values[i]
    total = 0.0
    for j in range(row.size):
        total += row[j] * w[j]
    return total


@jitable_loop(fastmath=True)
def _dense_two_dots(values: NDArray[Any], i: int, w: Vector, v: Vector) -> tuple[float, float]:
    row = values[i]
    first = 0.0
    second = 0.0
    for j in range(row.size):
        first += row[j] * w[j]
        second += row[j] * v[j]
    return first, second


@jitable_loop(fastmath=True)
def _dense_add(values: NDArray[Any], i: int, factor: float, out: Vector) -> None:
    row = values[i]
    for j in range(row.size):
        out[j] += factor * row[j]


@jitable_loop()
def _dense_block_dots(values: NDArray[Any], start: int, count: int, w: Vector, out: Vector) -> None:
    whole = count & ~7
    if values.shape[1] <= LANES:
        for k in range(0, whole, LANES):
            narrow_dots(values, start + k, w, out, k)
    else:
        for k in range(0, whole, LANES):
            eight_dots(values, start + k, w, out, k)
    for k in range(whole, count):
        out[k] = _dense_dot(values, start + k, w)


@jitable_loop()
def _dense_block_add(values: NDArray[Any], start: int, count: int, factors: Vector, out: Vector) -> None:
    whole = count & ~7
    if values.shape[1] <= LANES:
        add_narrow(values, start, whole, factors, out)
    else:
        for k in range(0, whole, LANES):
            add_eight(values, start + k, factors, k, out)
    for k in range(whole, count):
        _dense_add(values, start + k, factors[k], out)


# A row's entries and columns are slices of their own: counted from zero, they spare the compiled code a test of each
# place, and a sum that may be taken in any order runs in vector registers. Together that is a quarter of a pass.


@jitable_loop(fastmath=True)
def _sparse_dot(data: NDArray[Any], indices: NDArray[Any], w: Vector) -> float:
    total = 0.0
    for k in range(data.size):
        total += data[k] * w[indices[k]]
    return total


@jitable_loop()
def _sparse_add(data: NDArray[Any], indices: NDArray[Any], factor: float, out: Vector) -> None:
    for k in range(data.size):
        out[indices[k]] += factor * data[k]


@jitable_loop()
def _sparse_block_dots(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], start: int, count: int, w: Vector, out: Vector
) -> None:
    for k in range(count):
        begin, end = indptr[start + k], indptr[start + k + 1]
        out[k] = _sparse_dot(data[begin:end], indices[begin:end], w)


@jitable_loop()
def _sparse_block_add(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    start: int,
    count: int,
    factors: Vector,
    out: Vector,
) -> None:
    for k in range(count):
        begin, end = indptr[start + k], indptr[start + k + 1]
        _sparse_add(data[begin:end], indices[begin:end], factors[k], out)


@jitable_loop(fastmath=True)
def _sum_of_squares(row: NDArray[Any]) -> float:
    total = 0.0
    for j in range(row.size):
        entry = np.float64(row[j])
        total += entry * entry
    return total


@record
class DenseRows(NamedTuple):
    """Rows of a C-ordered array, float64 or float32."""

    values: NDArray[Any]

    def dot(self, i: int, w: Vector) -> float:
        """Row i times w."""
        return _dense_dot(self.values, i, w)

    def two_dots(self, i: int, w: Vector, v: Vector) -> tuple[float, float]:
        """Row i times w and times v, reading the row once."""
        return _dense_two_dots(self.values, i, w, v)

    def add(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times row i to ``out``."""
        _dense_add(self.values, i, factor, out)

    def block(self) -> int:
        """How many consecutive rows to take together."""
        size = self.values.shape[1] * self.values.itemsize
        fewest = 2 * LANES if 2 * LANES * size <= 2 * _BLOCK_BYTES else LANES
        return min(BLOCK, max(_BLOCK_BYTES // size & ~7, fewest))

    def block_dots(self, start: int, count: int, w: Vector, out: Vector) -> None:
        """Rows start … start+count−1 times w, in ``out``."""
        _dense_block_dots(self.values, start, count, w, out)

    def block_add(self, start: int, count: int, factors: Vector, out: Vector) -> None:
        """Add the same rows, each times its factor, to ``out``."""
        _dense_block_add(self.values, start, count, factors, out)

    def add_squares(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times the squares of row i to ``out``."""
        row = self.values[i]
        for j in range(row.size):
            out[j] += factor * row[j] * row[j]

    def add_outer_squares(self, i: int, factors: Vector, out: Vector) -> None:
        """Add the outer product of the squares of row i and the K ``factors`` to the p × K matrix ``out``."""
        row, outputs = self.values[i], factors.size
        for j in range(row.size):
            for k in range(outputs):
                out[j * outputs + k] += factors[k] * row[j] * row[j]

    def turned_size(self, outputs: int) -> int:
        """Room for the weights of several outputs in the order that suits these rows: an output after the other."""
        return self.values.shape[1] * outputs

    def turn_weights(self, w: Vector, outputs: int, turned: Vector) -> None:
        """Put the p × K matrix ``w`` into that order."""
        columns = self.values.shape[1]
        for j in range(columns):
            for k in range(outputs):
                turned[k * columns + j] = w[j * outputs + k]

    def add_turned(self, turned: Vector, outputs: int, out: Vector) -> None:
        """Add what lies in that order to the p × K matrix ``out``."""
        columns = self.values.shape[1]
        for j in range(columns):
            for k in range(outputs):
                out[j * outputs + k] += turned[k * columns + j]

    def block_outputs(
        self, start: int, count: int, w: Vector, turned: Vector, outputs: int, one: Vector, out: Vector
    ) -> None:
        """Rows start … start+count−1 times the p × K matrix, K numbers a row in ``out``."""
        columns = self.values.shape[1]
        for k in range(outputs):
            _dense_block_dots(self.values, start, count, turned[k * columns : (k + 1) * columns], one)
            for i in range(count):
                out[i * outputs + k] = one[i]

    def block_add_outputs(
        self, start: int, count: int, factors: Vector, outputs: int, one: Vector, turned: Vector, out: Vector
    ) -> None:
        """Add the outer products of the same rows and their K factors to ``turned``."""
        columns = self.values.shape[1]
        for k in range(outputs):
            for i in range(count):
                one[i] = factors[i * outputs + k]
            _dense_block_add(self.values, start, count, one, turned[k * columns : (k + 1) * columns])

    def dots(self, i: int, w: Vector, out: Vector) -> None:
        """Add row i times the p × K matrix ``w`` to the K entries of ``out``."""
        row = self.values[i]
        outputs = out.size
        for j in range(row.size):
            for k in range(outputs):
                out[k] += row[j] * w[j * outputs + k]

    def add_outer(self, i: int, factors: Vector, out: Vector) -> None:
        """Add the outer product of row i and the K ``factors`` to the p × K matrix ``out``."""
        row = self.values[i]
        outputs = factors.size
        for j in range(row.size):
            for k in range(outputs):
                out[j * outputs + k] += row[j] * factors[k]

    def add_outer_square(self, i: int, weight: float, intercept: int, block: Matrix, filled: int, out: Matrix) -> int:
        """Add ``weight`` times the outer square of row i to ``out``, as `trsvr.problems.gram` keeps it.

        A row with few entries is added at once. Others wait in ``block`` until it is full; returns how many do. With an
        intercept a row has a one in that column; else it is negative.
        """
        row, last = self.values[i], block.shape[0] - 2
        columns = row.size
        if columns >= _WIDE_ROW:
            empty = 0
            for j in range(columns):
                empty += row[j] == 0.0
            if (columns - empty) * _FEW < columns:
                entries, places = block[last], whole_numbers_in(block[last + 1])
                count = 0
                for j in range(columns):
                    entries[count] = row[j]
                    places[count] = j
                    count += row[j] != 0.0
                add_sparse(entries[:count], places[:count], weight, intercept, out)
                return filled
        return self.add_full_square(i, weight, intercept, block, filled, out)

    def add_full_square(self, i: int, weight: float, intercept: int, block: Matrix, filled: int, out: Matrix) -> int:
        """The same for any row: it waits."""
        row, last, factor = self.values[i], block.shape[0] - 2, math.sqrt(weight)
        waiting = block[filled]
        for j in range(row.size):
            waiting[j] = factor * row[j]
        if intercept >= 0:
            waiting[intercept] = factor
        if filled + 1 < last:
            return filled + 1
        add_dense(block, last, out)
        return 0

    def finish_squares(self, block: Matrix, filled: int, out: Matrix) -> None:
        """Add the rows that still wait."""
        add_dense(block, filled, out)

    def squared_norm(self, i: int) -> float:
        """Sum of the squares of row i; not finite if an entry is not."""
        return _sum_of_squares(self.values[i])

    def touch(self, i: int) -> None:
        """Ask the memory for row i, which will be needed soon."""
        columns = self.values.shape[1]
        line = _CACHE_LINE // self.values.itemsize
        for start in range(0, columns, line):
            prefetch(self.values, i * columns + start)
        prefetch(self.values, i * columns + columns - 1)


@record
class FullRows(NamedTuple):
    """Dense rows without many zeros, for sums of outer squares: they need not be looked at, nor that be compiled."""

    rows: Any

    @classmethod
    def unless_sparse(cls, rows: Any, some: Any) -> Any:
        """Of dense rows that have few zeros, in some of them; others are as they are."""
        if not isinstance(rows, DenseRows):
            return rows
        seen = rows.values[some]
        few = seen.shape[1] >= _WIDE_ROW and 2 * np.count_nonzero(seen) < seen.size
        return rows if few else cls(rows)

    def add_outer_square(self, i: int, weight: float, intercept: int, block: Matrix, filled: int, out: Matrix) -> int:
        """As that of `DenseRows`."""
        return self.rows.add_full_square(i, weight, intercept, block, filled, out)

    def finish_squares(self, block: Matrix, filled: int, out: Matrix) -> None:
        """Add the rows that still wait."""
        self.rows.finish_squares(block, filled, out)


@record
class SparseRows(NamedTuple):
    """Rows in compressed form (CSR): entries, their columns, and where each row begins."""

    data: NDArray[Any]
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    width: int

    def dot(self, i: int, w: Vector) -> float:
        """Row i times w."""
        begin, end = self.indptr[i], self.indptr[i + 1]
        return _sparse_dot(self.data[begin:end], self.indices[begin:end], w)

    def two_dots(self, i: int, w: Vector, v: Vector) -> tuple[float, float]:
        """Row i times w and times v, reading the row once."""
        first = 0.0
        second = 0.0
        for k in range(self.indptr[i], self.indptr[i + 1]):
            column = self.indices[k]
            first += self.data[k] * w[column]
            second += self.data[k] * v[column]
        return first, second

    def add(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times row i to ``out``."""
        begin, end = self.indptr[i], self.indptr[i + 1]
        _sparse_add(self.data[begin:end], self.indices[begin:end], factor, out)

    def block(self) -> int:
        """How many consecutive rows to take together."""
        return BLOCK

    def block_dots(self, start: int, count: int, w: Vector, out: Vector) -> None:
        """Rows start … start+count−1 times w, in ``out``."""
        _sparse_block_dots(self.data, self.indices, self.indptr, start, count, w, out)

    def block_add(self, start: int, count: int, factors: Vector, out: Vector) -> None:
        """Add the same rows, each times its factor, to ``out``."""
        _sparse_block_add(self.data, self.indices, self.indptr, start, count, factors, out)

    def add_squares(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times the squares of row i to ``out``."""
        for k in range(self.indptr[i], self.indptr[i + 1]):
            out[self.indices[k]] += factor * self.data[k] * self.data[k]

    def add_outer_squares(self, i: int, factors: Vector, out: Vector) -> None:
        """Add the outer product of the squares of row i and the K ``factors`` to the p × K matrix ``out``."""
        outputs = factors.size
        for entry in range(self.indptr[i], self.indptr[i + 1]):
            begin = np.int64(self.indices[entry]) * outputs
            for k in range(outputs):
                out[begin + k] += factors[k] * self.data[entry] * self.data[entry]

    def turned_size(self, outputs: int) -> int:
        """The K weights of a column, side by side, suit these rows as they are."""
        return 0

    def turn_weights(self, w: Vector, outputs: int, turned: Vector) -> None:
        """Nothing to do."""

    def add_turned(self, turned: Vector, outputs: int, out: Vector) -> None:
        """Nothing to do."""

    def block_outputs(
        self, start: int, count: int, w: Vector, turned: Vector, outputs: int, one: Vector, out: Vector
    ) -> None:
        """Rows start … start+count−1 times the p × K matrix ``w``, K numbers a row in ``out``."""
        for i in range(count):
            sums = out[i * outputs : (i + 1) * outputs]
            sums[:] = 0.0
            self.dots(start + i, w, sums)

    def block_add_outputs(
        self, start: int, count: int, factors: Vector, outputs: int, one: Vector, turned: Vector, out: Vector
    ) -> None:
        """Add the outer products of the same rows and their K factors to ``out``."""
        for i in range(count):
            self.add_outer(start + i, factors[i * outputs : (i + 1) * outputs], out)

    def dots(self, i: int, w: Vector, out: Vector) -> None:
        """Add row i times the p × K matrix ``w`` to the K entries of ``out``."""
        outputs = out.size
        for entry in range(self.indptr[i], self.indptr[i + 1]):
            self.touch_outputs(entry, w, outputs)
            begin = np.int64(self.indices[entry]) * outputs
            for k in range(outputs):
                out[k] += self.data[entry] * w[begin + k]

    def add_outer(self, i: int, factors: Vector, out: Vector) -> None:
        """Add the outer product of row i and the K ``factors`` to the p × K matrix ``out``."""
        outputs = factors.size
        for entry in range(self.indptr[i], self.indptr[i + 1]):
            self.touch_outputs(entry, out, outputs)
            begin = np.int64(self.indices[entry]) * outputs
            for k in range(outputs):
                out[begin + k] += self.data[entry] * factors[k]

    def touch_outputs(self, entry: int, w: Vector, outputs: int) -> None:
        """Ask the memory for the K numbers in ``w`` of an entry that comes soon, if they are more than a cache line."""
        numbers = _CACHE_LINE // 8
        if outputs > numbers:
            begin: Any = np.int64(self.indices[min(entry + _ENTRIES_AHEAD, self.indices.size - 1)]) * outputs
            for k in range(0, outputs, numbers):
                prefetch(w, begin + k)

    def add_outer_square(self, i: int, weight: float, intercept: int, block: Matrix, filled: int, out: Matrix) -> int:
        """Add ``weight`` times the outer square of row i to ``out``; nothing waits."""
        begin, end = self.indptr[i], self.indptr[i + 1]
        add_sparse(self.data[begin:end], self.indices[begin:end], weight, intercept, out)
        return 0

    def finish_squares(self, block: Matrix, filled: int, out: Matrix) -> None:
        """Nothing waits."""

    def squared_norm(self, i: int) -> float:
        """Sum of the squares of row i; not finite if an entry is not."""
        return _sum_of_squares(self.data[self.indptr[i] : self.indptr[i + 1]])

    def touch(self, i: int) -> None:
        """Ask the memory for the beginning of row i; the hardware follows the rest of a run by itself."""
        begin = self.indptr[i]
        prefetch(self.data, begin)
        prefetch(self.indices, begin)


Rows = DenseRows | SparseRows
