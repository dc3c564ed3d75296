"""From what users have (arrays, frames, memory maps, sparse matrices) to `DenseRows` or `SparseRows`.

No copy is made of C-ordered float64 and float32 arrays, of memory maps of that kind, and of the entries of CSR
matrices. A copy is made, and said in the log at level INFO, of F-ordered arrays, of other number types (to float64),
of other sparse formats and of 64-bit column indices.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr import _check
from trsvr._arrays import as_array
from trsvr.problems.rows import DenseRows, Rows, SparseRows

_log = logging.getLogger("trsvr")
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
_CACHED = 2**17  # numbers that stay in a core's cache


def as_rows(X: Any) -> tuple[Rows, int, int]:
    """Rows, their number and the number of columns; raises ValueError for what is not a matrix of numbers."""
    if scipy.sparse.issparse(X):
        return _sparse_rows(X)
    return _dense_rows(X)


def _dense_rows(X: Any) -> tuple[DenseRows, int, int]:
    if np.ma.is_masked(X):
        raise ValueError("X must have no masked entries: fill them, or leave those rows out")
    try:
        array = as_array(X)
    except ValueError as error:
        raise ValueError(f"X must be a matrix of numbers: {error}") from None
    if array.ndim != 2:
        got = f"shape {array.shape}" if array.ndim else type(X).__name__
        raise ValueError(f"X must be two-dimensional (rows are samples), got {got}")
    if array.dtype not in _FLOATS:
        if array.dtype.kind == "c":
            raise ValueError(f"X must be a matrix of real numbers, got dtype {array.dtype}")
        if array.dtype.kind not in "buif":
            array = _numbers(array, X)
        _log.info("X is copied from %s to float64", array.dtype)
        _check.fits_in_memory(8 * array.size, f"a float64 copy of X ({array.dtype})", "float32 is used without a copy")
        array = array.astype(np.float64)
    if not array.flags.c_contiguous:
        _log.info("X is copied to C order: its rows are not contiguous")
        _check.fits_in_memory(array.nbytes, "a copy of X in C order", "an array whose rows are contiguous needs none")
        array = np.ascontiguousarray(array)
    elif not array.flags.aligned:
        array = array.copy()
    return DenseRows(_writable_view(array)), *array.shape


def _numbers(array: NDArray[Any], X: Any) -> NDArray[np.float64]:
    """Objects or texts that are numbers as such; an error names the first column that holds something else."""
    for k, column in enumerate(array.T):
        try:
            column.astype(np.float64)
        except (TypeError, ValueError):
            name = repr(X.columns[k]) if type(X).__name__ == "DataFrame" else k
            got = next(entry for entry in column.tolist() if not _is_number(entry))
            raise ValueError(f"X must be a matrix of real numbers, got {got!r} in column {name}") from None
    return array.astype(np.float64)


def _is_number(entry: Any) -> bool:
    try:
        float(entry)
    except (TypeError, ValueError):
        return False
    return True


def rows_to_predict(X: Any, columns: int) -> Any:
    """X as a matrix of finite numbers with so many columns, dense or CSR; raises ValueError for anything else."""
    rows, n_rows, width = as_rows(X)
    if width != columns:
        raise ValueError(f"X must have {columns} columns, as the model has, got {width}")
    matrix = as_matrix(rows, width)
    if not np.isfinite(rows.values if isinstance(rows, DenseRows) else rows.data).all():
        i, (j, value) = next((i, bad) for i in range(n_rows) if (bad := first_bad_entry(rows, i)) is not None)
        raise ValueError(f"X must be finite, got {value} at row {i}, column {j}")
    return matrix


def _sparse_rows(X: Any) -> tuple[SparseRows, int, int]:
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional (rows are samples), got shape {X.shape}")
    if X.dtype.kind not in "buif":
        raise ValueError(f"X must be a matrix of real numbers, got dtype {X.dtype}")
    if X.format != "csr":
        _log.info("X is copied from %s to CSR", X.format)
        _check.fits_in_memory(
            X.nnz * (X.dtype.itemsize + 8), f"X as CSR ({X.format} now)", "CSR is used without a copy"
        )
        X = X.tocsr()
    if not X.has_canonical_format:
        _log.info("X is copied: its column indices are unsorted or repeated")
        X = X.copy()
        X.sum_duplicates()
    rows, columns = X.shape
    if X.indptr[0] != 0 or X.indptr[-1] > X.data.size or (np.diff(X.indptr) < 0).any():
        raise ValueError("X is not a valid CSR matrix: its row pointers do not ascend from 0 to the number of entries")
    if columns >= 2**32:
        raise ValueError(f"X must have fewer than 2**32 columns, got {columns}")
    # Unsigned indices spare the compiled code, and this line, a test for negative ones.
    unsigned = X.indices.view(f"u{X.indices.dtype.itemsize}")
    if X.nnz and unsigned.max() >= columns:
        raise ValueError(f"X has a column index outside 0 … {columns - 1}")
    data = X.data if X.dtype in _FLOATS else X.data.astype(np.float64)
    indices = unsigned.astype(np.uint32, copy=False)
    compressed = SparseRows(
        _writable_view(np.ascontiguousarray(data)),
        _writable_view(np.ascontiguousarray(indices)),
        np.array(X.indptr, dtype=np.int64),
        columns,
    )
    return compressed, rows, columns


class _Interface:
    def __init__(self, array: NDArray[Any]) -> None:
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
        self.owner = array


def _writable_view(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, seen as writable: to Numba a read-only array is another type, which would be compiled anew.

    Kernels never write to the data; a read-only memory map stays protected by the system.
    """
    return array if array.flags.writeable else np.asarray(_Interface(array))


def first_bad_entry(rows: Rows, i: int) -> tuple[int, float] | None:
    """Column and value of the first entry of row i that is not finite."""
    if isinstance(rows, DenseRows):
        values: NDArray[Any] = rows.values[i]
        columns: NDArray[Any] = np.arange(values.size)
    else:
        piece = slice(rows.indptr[i], rows.indptr[i + 1])
        values, columns = rows.data[piece], rows.indices[piece]
    bad = np.flatnonzero(~np.isfinite(values))
    return (int(columns[bad[0]]), float(values[bad[0]])) if bad.size else None


def take_rows(rows: Rows, indices: NDArray[np.int64]) -> Rows:
    """A copy of the chosen rows."""
    if isinstance(rows, DenseRows):
        return DenseRows(rows.values[indices])
    lengths = rows.indptr[indices + 1] - rows.indptr[indices]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.repeat(rows.indptr[indices] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return SparseRows(rows.data[places], rows.indices[places], indptr, rows.width)


def as_matrix(rows: Rows, columns: int) -> Any:
    """The rows as an array, or as SciPy's CSR array; entries and, where they fit, their columns are not copied."""
    if isinstance(rows, DenseRows):
        return rows.values
    # SciPy wants one type for both, with a sign, and copies what has another: the pointers are few.
    small = max(rows.data.size, columns) <= np.iinfo(np.int32).max
    indices = rows.indices.view(np.int32) if small else rows.indices.astype(np.int64)
    pointers = rows.indptr.astype(indices.dtype, copy=False)
    return scipy.sparse.csr_array((rows.data, indices, pointers), shape=(rows.indptr.size - 1, columns))


def piece_bounds(rows: Rows, n_rows: int, d: int, outputs: int) -> NDArray[np.int64]:
    """Where a full pass is cut into pieces that threads share.

    The cut depends on the data alone, so a sum does not depend on the number of threads. A piece is worth some tens of
    microseconds at least, and its vector of length d a small part of its own cost: to clear and to add it is dearer
    where it does not stay in a core's cache.
    """
    entries = rows.values.size if isinstance(rows, DenseRows) else rows.data.size
    work = entries * outputs
    entries_per_number = 8 if d <= _CACHED else 16
    pieces = int(np.clip(min(work // (entries_per_number * d), work // 2**16), 1, min(64, n_rows)))
    if pieces > 1:
        pieces = min(pieces + pieces % 2, n_rows)  # two threads are the least there is to share among
    if isinstance(rows, DenseRows):
        return np.linspace(0, n_rows, pieces + 1).astype(np.int64)
    cuts = np.searchsorted(rows.indptr, np.linspace(0, entries, pieces + 1)[1:-1])
    return np.concatenate([[0], np.clip(cuts, 0, n_rows), [n_rows]]).astype(np.int64)
