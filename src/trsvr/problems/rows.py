"""The rows of a data matrix, dense or compressed, behind the same few operations.

Every kernel is written against these operations, so it exists once for both kinds of rows. Weights of one output are a
vector w of length p (the columns); weights of K outputs are the flattened p × K matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trsvr._compile import kernel, record
from trsvr._intrinsics import prefetch

Vector = NDArray[np.float64]
_CACHE_LINE = 64
_AHEAD_BYTES = 8192


@kernel(fastmath=True)
def _dense_dot(values: NDArray[Any], i: int, w: Vector) -> float:
    row = values[i]
    total = 0.0
    for j in range(row.size):
        total += row[j] * w[j]
    return total


@kernel(fastmath=True)
def _dense_two_dots(values: NDArray[Any], i: int, w: Vector, v: Vector) -> tuple[float, float]:
    row = values[i]
    first = 0.0
    second = 0.0
    for j in range(row.size):
        first += row[j] * w[j]
        second += row[j] * v[j]
    return first, second


@kernel(fastmath=True)
def _dense_add(values: NDArray[Any], i: int, factor: float, out: Vector) -> None:
    row = values[i]
    for j in range(row.size):
        out[j] += factor * row[j]


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

    def add_squares(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times the squares of row i to ``out``."""
        row = self.values[i]
        for j in range(row.size):
            out[j] += factor * row[j] * row[j]

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

    def squared_norm(self, i: int) -> float:
        """Sum of the squares of row i; not finite if an entry is not."""
        total = 0.0
        for j in range(self.values.shape[1]):
            entry = np.float64(self.values[i, j])
            total += entry * entry
        return total

    def touch(self, i: int) -> None:
        """Ask the memory for row i, which will be needed soon."""
        columns = self.values.shape[1]
        line = _CACHE_LINE // self.values.itemsize
        for start in range(0, columns, line):
            prefetch(self.values, i * columns + start)
        prefetch(self.values, i * columns + columns - 1)

    def ahead(self) -> int:
        """In a pass over consecutive rows, how far ahead to ask for one: the hardware alone asks too late."""
        return max(1, _AHEAD_BYTES // (self.values.shape[1] * self.values.itemsize))


@record
class SparseRows(NamedTuple):
    """Rows in compressed form (CSR): entries, their columns, and where each row begins."""

    data: NDArray[Any]
    indices: NDArray[np.uint32]
    indptr: NDArray[np.int64]

    def dot(self, i: int, w: Vector) -> float:
        """Row i times w."""
        total = 0.0
        for k in range(self.indptr[i], self.indptr[i + 1]):
            total += self.data[k] * w[self.indices[k]]
        return total

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
        for k in range(self.indptr[i], self.indptr[i + 1]):
            out[self.indices[k]] += factor * self.data[k]

    def add_squares(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times the squares of row i to ``out``."""
        for k in range(self.indptr[i], self.indptr[i + 1]):
            out[self.indices[k]] += factor * self.data[k] * self.data[k]

    def dots(self, i: int, w: Vector, out: Vector) -> None:
        """Add row i times the p × K matrix ``w`` to the K entries of ``out``."""
        outputs = out.size
        for entry in range(self.indptr[i], self.indptr[i + 1]):
            begin = np.int64(self.indices[entry]) * outputs
            for k in range(outputs):
                out[k] += self.data[entry] * w[begin + k]

    def add_outer(self, i: int, factors: Vector, out: Vector) -> None:
        """Add the outer product of row i and the K ``factors`` to the p × K matrix ``out``."""
        outputs = factors.size
        for entry in range(self.indptr[i], self.indptr[i + 1]):
            begin = np.int64(self.indices[entry]) * outputs
            for k in range(outputs):
                out[begin + k] += self.data[entry] * factors[k]

    def squared_norm(self, i: int) -> float:
        """Sum of the squares of row i; not finite if an entry is not."""
        total = 0.0
        for k in range(self.indptr[i], self.indptr[i + 1]):
            total += np.float64(self.data[k]) * self.data[k]
        return total

    def touch(self, i: int) -> None:
        """Ask the memory for the beginning of row i; the hardware follows the rest of a run by itself."""
        begin = self.indptr[i]
        prefetch(self.data, begin)
        prefetch(self.indices, begin)

    def ahead(self) -> int:
        """In a pass over consecutive rows the hardware keeps up by itself."""
        return 0


Rows = DenseRows | SparseRows
