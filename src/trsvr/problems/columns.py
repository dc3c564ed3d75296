"""The columns of a data matrix: where most of their entries are, and sums that keep their digits far from zero."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from trsvr._arrays import Indices, Matrix, Vector

# A mean so many median deviations from the median is not where the column is: centred there, its digits would be lost.
# So many from zero, squares of entries have lost half of theirs.
_FAR = 1e3


def evenly(n: int) -> Indices:
    """A few rows of n."""
    some = min(n, 31)
    return np.arange(some) * (n - 1) // max(some - 1, 1)


def _medians(columns: Matrix) -> Vector:
    """Of a few numbers in each row; NumPy's own takes several times as long."""
    ordered, half = np.sort(columns, axis=1), columns.shape[1] // 2
    return ordered[:, half] if columns.shape[1] % 2 else 0.5 * (ordered[:, half - 1] + ordered[:, half])


class Bulk(NamedTuple):
    """Where most entries of each column are."""

    middles: Vector  # the means; the median of some rows where a few huge entries have moved a mean far from the others
    is_far: bool  # whether a column is so far from zero that squares of its entries have lost their digits


def bulk_of(means: Vector, some_rows: Matrix, far: float = _FAR) -> Bulk:
    """The bulk of columns with these means, as some rows have it; so many deviations from zero it is far."""
    middles, deviations = middles_of(means, some_rows)
    return Bulk(middles, bool(((deviations > 0.0) & (np.abs(middles) > far * deviations)).any()))


def middles_of(means: Vector, some_rows: Matrix) -> tuple[Vector, Vector]:
    """The middle of each column with these means, as some rows have it, and the median deviation."""
    columns = np.ascontiguousarray(some_rows.T)
    medians = _medians(columns)
    deviations = _medians(np.abs(columns - medians[:, None]))
    return np.where((deviations > 0.0) & (np.abs(means - medians) > _FAR * deviations), medians, means), deviations


def centred_gram(matrix: Any, means: Vector, weights: Vector, rows: int = 1024) -> Matrix:
    """Sum of w_i (x_i − m, 1)(x_i − m, 1)ᵀ, some rows at a time."""
    d = means.size
    total = np.zeros((d + 1, d + 1))
    for begin in range(0, matrix.shape[0], rows):
        some = weights[begin : begin + rows]
        piece = np.ones((some.size, d + 1))
        piece[:, :d] = matrix[begin : begin + rows] - means
        piece[some == 0.0] = 0.0  # whatever is in them
        total += (piece.T * some) @ piece
    return total


def column_squares(matrix: Any, weights: Vector, rows: int = 4096) -> Vector:
    """Weighted mean squares of the columns, some rows at a time."""
    total = np.zeros(matrix.shape[1])
    for begin in range(0, matrix.shape[0], rows):
        piece = matrix[begin : begin + rows].astype(np.float64)
        total += weights[begin : begin + rows] @ (piece.power(2) if scipy.sparse.issparse(piece) else piece * piece)
    return total / weights.sum()
