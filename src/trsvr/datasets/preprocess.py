"""Ways to prepare the columns or rows of a data matrix.

What is subtracted and divided by is always learnt from the training rows and may then be applied to others. Sparse data
stays sparse: its columns are scaled but never shifted, since a shift would turn every zero into a number. Columns that
do not vary are divided by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr._arrays import Vector

PREPROCESS = ("none", "standardize", "minmax", "unit-rows", "maxabs")


_SAID = {
    ("none", False): "as distributed",
    ("none", True): "as distributed",
    ("standardize", False): "columns centred and divided by their standard deviation",
    ("standardize", True): "columns divided by their standard deviation; not centred, so that sparse data stays sparse",
    ("minmax", False): "columns shifted and scaled to [0, 1]",
    ("minmax", True): "columns divided by their range; not shifted, so that sparse data stays sparse",
    ("maxabs", False): "columns divided by their largest absolute value",
    ("maxabs", True): "columns divided by their largest absolute value",
    ("unit-rows", False): "rows divided by their Euclidean length",
    ("unit-rows", True): "rows divided by their Euclidean length",
}


def describe(method: str, sparse: bool) -> str:
    """In words, what was done."""
    return _SAID[method, sparse]


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from each column, if anything, and what it is divided by."""

    shift: Vector | None
    scale: Vector


def learn(method: str, X: Any) -> Scaling | None:
    """The scaling of columns that a method derives from these rows; None if it has nothing to learn."""
    if method in ("none", "unit-rows"):
        return None
    if scipy.sparse.issparse(X):
        return _learn_sparse(method, X)
    if method == "standardize":
        mean = X.mean(axis=0, dtype=np.float64)
        return Scaling(mean, _nonzero(_deviation(X, mean)))
    low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    if method == "minmax":
        return Scaling(low, _nonzero(high - low))
    return Scaling(None, _nonzero(np.maximum(abs(low), abs(high))))


def _learn_sparse(method: str, X: Any) -> Scaling:
    if method == "standardize":
        rows, columns = X.shape
        mean = np.bincount(X.indices, X.data, columns) / rows
        # Σ (x − mean)² over the stored entries, and mean² for each zero.
        squares = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, columns)
        zeros = rows - np.bincount(X.indices, minlength=columns)
        return Scaling(None, _nonzero(np.sqrt((squares + zeros * mean**2) / rows)))
    low, high = (np.asarray(extreme.toarray(), dtype=np.float64).ravel() for extreme in (X.min(axis=0), X.max(axis=0)))
    return Scaling(None, _nonzero(high - low if method == "minmax" else np.maximum(abs(low), abs(high))))


def _deviation(X: NDArray[Any], mean: Vector) -> Vector:
    """Standard deviation of the columns, some rows at a time to save memory."""
    total = np.zeros(X.shape[1])
    for begin in range(0, X.shape[0], 8192):
        centred = X[begin : begin + 8192] - mean
        total += np.einsum("ij,ij->j", centred, centred)
    deviation = np.sqrt(total / X.shape[0])
    # A constant column leaves rounding errors of its mean.
    deviation[deviation <= 1e-13 * abs(mean)] = 0.0
    return deviation


def _nonzero(scale: Vector) -> Vector:
    return np.where(scale > 0, scale, 1.0)


def apply(method: str, scaling: Scaling | None, X: Any) -> Any:
    """Prepared rows, as new memory where anything changes; the form (dense or CSR) stays."""
    if method == "none":
        return X
    sparse = scipy.sparse.issparse(X)
    if method == "unit-rows":
        lengths = _nonzero(np.sqrt(row_squares(X)))
        if sparse:
            return _with_entries(X, X.data / np.repeat(lengths, np.diff(X.indptr)))
        return X / lengths[:, None]
    assert scaling is not None
    if sparse:
        return _with_entries(X, X.data / scaling.scale[X.indices])
    prepared = X.astype(np.float64) if scaling.shift is None else X - scaling.shift
    prepared /= scaling.scale
    return prepared


def row_squares(X: Any) -> Vector:
    """‖x_i‖² of every row."""
    if scipy.sparse.issparse(X):
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        return np.asarray(np.bincount(rows, X.data.astype(np.float64) ** 2, X.shape[0]), dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def _with_entries(X: Any, data: NDArray[Any]) -> Any:
    """The same pattern with other entries."""
    result = scipy.sparse.csr_array((data, X.indices, X.indptr), shape=X.shape, copy=False)
    result.has_canonical_format = True
    return result
