"""From what users of Dask have (arrays, frames, lists of delayed blocks) to one entry per block."""

from __future__ import annotations

import math
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse

from trsvr._arrays import as_array


def as_blocks(X: Any, y: Any, weights: Any, offset: Any) -> tuple[list[tuple[Any, ...]], int | None]:
    """(rows, labels, weights, offset) of every block, not computed; and the size of X in bytes, where it is known."""
    size: int | None = None
    if hasattr(X, "to_dask_array"):  # a data frame
        X = X.to_dask_array()
    if isinstance(X, da.Array):
        if X.ndim != 2:
            raise ValueError(f"X must be two-dimensional (rows are samples), got shape {X.shape}")
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        lengths: tuple[Any, ...] | None = X.chunks[0]
        if not math.isnan(X.nbytes) and not scipy.sparse.issparse(X._meta):
            size = int(X.nbytes)
        blocks = [block[0] for block in X.to_delayed(optimize_graph=True)]
    elif isinstance(X, list | tuple) and len(X):
        blocks, lengths = list(X), None
        if all(isinstance(block, np.ndarray) or scipy.sparse.issparse(block) for block in blocks):
            lengths = tuple(block.shape[0] for block in blocks)
    else:
        raise ValueError(
            f"X must be a dask array, a dask data frame or a list of blocks, got {type(X).__name__}; "
            "dask.array.from_array(X, chunks=(rows, -1)) cuts an array into blocks"
        )
    if y is None:
        if not isinstance(X, list | tuple):
            raise ValueError("y must be given, except for a list of blocks that are pairs of rows and labels")
        labels: list[Any] = [None] * len(blocks)
    else:
        labels = _vector_blocks("y", y, len(blocks), lengths)
    parts = [blocks, labels]
    for name, given, columns in (("sample_weight", weights, 1), ("offset", offset, 2)):
        none: list[Any] = [None] * len(blocks)
        parts.append(none if given is None else _vector_blocks(name, given, len(blocks), lengths, columns))
    return list(zip(*parts, strict=True)), size


def _vector_blocks(
    name: str, values: Any, count: int, lengths: tuple[Any, ...] | None, dimensions: int = 1
) -> list[Any]:
    """A vector, or where two dimensions are allowed a matrix, cut as the rows are."""
    if hasattr(values, "to_dask_array"):
        values = values.to_dask_array()
    known = lengths is not None and not any(math.isnan(length) for length in lengths)
    if isinstance(values, da.Array):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim > dimensions:
            raise ValueError(f"{name} must be a vector, got shape {values.shape}")
        if known and not math.isnan(values.shape[0]):
            assert lengths is not None
            if values.shape[0] != sum(lengths):
                raise ValueError(
                    f"{name} must have one entry for each of the {sum(lengths)} rows of X, got {values.shape[0]}"
                )
            values = values.rechunk({0: lengths} | ({1: -1} if values.ndim == 2 else {}))
        values = [np.ravel(block)[0] for block in values.to_delayed(optimize_graph=True)]
    elif isinstance(values, list | tuple) and len(values) and not np.isscalar(values[0]):
        values = list(values)
    else:
        array = as_array(values)
        if not known:
            raise ValueError(
                f"{name} must be cut into blocks as X is (a dask array or a list), got {type(values).__name__}: "
                "the blocks of X do not say how many rows they have"
            )
        assert lengths is not None
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim > dimensions or array.shape[:1] != (sum(lengths),):
            raise ValueError(
                f"{name} must have one entry for each of the {sum(lengths)} rows of X, got shape {array.shape}"
            )
        values = np.split(array, np.cumsum(lengths)[:-1])
    if len(values) != count:
        raise ValueError(f"{name} must have as many blocks as X, {count}, got {len(values)}")
    return values
