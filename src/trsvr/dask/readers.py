"""Data on disk that need not fit into memory: Parquet, Zarr, NPY stacks and LIBSVM text, as blocks.

Each reader returns what `trsvr.dask.LinearModel` takes as X and y, and reads nothing but sizes and names: the blocks
are read on the workers. The paths must mean the same there as here.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from distributed import Client, default_client
from numpy.typing import DTypeLike

from trsvr import _check
from trsvr.dask.ranges import largest_column, read_range
from trsvr.datasets.errors import DataFileError
from trsvr.datasets.libsvm import NO_ROWS, float_type

_BLOCK_BYTES = 64 * 2**20
_COMPRESSED = (b"BZh", b"\x1f\x8b", b"\xfd7zXZ\x00")


def read_parquet(path: Any, target: str, *, columns: Sequence[str] | None = None, **options: Any) -> tuple[Any, None]:
    """Parquet files: a block for every partition that Dask makes of them.

    Parameters
    ----------
    path : str, path or list
        File, folder or pattern, local or remote, as for `dask.dataframe.read_parquet`.
    target : str
        Column of the labels.
    columns : sequence of str, optional
        Columns of X; default: all others.
    **options
        Of `dask.dataframe.read_parquet`, such as ``split_row_groups``.

    Returns
    -------
    blocks, None
        Pairs of rows and labels, for ``LinearModel(blocks)``.
    """
    import dask.dataframe as dd

    source = os.fspath(path) if isinstance(path, os.PathLike) else path
    names = list(dd.read_parquet(source, **options).columns)
    for name in [target, *(columns or [])]:
        _check.one_of("column", name, names)
    chosen = [name for name in names if name != target] if columns is None else list(columns)
    frame = dd.read_parquet(source, columns=[*chosen, target], **options)
    split = dask.delayed(_split_frame, pure=False)
    return [split(part, chosen, target) for part in frame.to_delayed()], None


def _split_frame(frame: Any, columns: list[str], target: str) -> tuple[Any, Any]:
    X = frame[columns].to_numpy()
    return np.ascontiguousarray(X), frame[target].to_numpy()


def read_zarr(path: Any, X: str = "X", y: str = "y") -> tuple[da.Array, da.Array]:
    """Two arrays of a Zarr group: a block for every chunk of rows.

    Parameters
    ----------
    path : str or path
        The group.
    X, y : str
        Names of the arrays.
    """
    import zarr

    group = zarr.open_group(os.fspath(path), mode="r")  # opened here: dask 2024.8 cannot open Zarr 3 by name
    return da.from_zarr(group[X]), da.from_zarr(group[y])


def read_npy_stack(X: Any, y: Any) -> tuple[da.Array, da.Array]:
    """Folders that `dask.array.to_npy_stack` has written: a block for every file.

    Parameters
    ----------
    X, y : str or path
        The two folders.

    Notes
    -----
    The files are read and not mapped: Dask counts mapped pages as the worker's own memory and would kill it for them.
    """
    return da.from_npy_stack(os.fspath(X), mmap_mode=None), da.from_npy_stack(os.fspath(y), mmap_mode=None)


def read_libsvm(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    block_bytes: int = _BLOCK_BYTES,
    dtype: DTypeLike = np.float64,
    client: Client | None = None,
) -> tuple[list[Any], None]:
    """A LIBSVM text file: a block for every so many bytes of it.

    Parameters
    ----------
    path : str or path
        The file, as plain text: compressed files cannot be read from the middle.
    n_features : int, optional
        Number of columns; by default the file is read once, on the workers, to learn it.
    zero_based, dtype
        As for `trsvr.datasets.read_libsvm`.
    block_bytes : int
        Bytes of text per block; a line belongs to the block in which it begins.
    client : distributed.Client, optional
        Who learns the number of columns; default: the current one.

    Returns
    -------
    blocks, None
        Pairs of rows and labels, for ``LinearModel(blocks)``.
    """
    size = _check.whole("block_bytes", block_bytes)
    kind = float_type(dtype)
    place = os.fspath(path)
    with open(place, "rb") as file:
        begin = file.read(6)
        total = file.seek(0, os.SEEK_END)
    if begin.startswith(_COMPRESSED):
        raise DataFileError(place, None, "is compressed, and cannot be read from the middle: decompress it first")
    if total == 0:
        raise DataFileError(place, 1, NO_ROWS)
    cuts = [*range(0, total, size), total]
    ranges = list(itertools.pairwise(cuts))
    if n_features is None:
        measure = dask.delayed(largest_column, pure=False)
        tasks = [measure(place, one, zero_based) for one in ranges]
        workers = client or default_client()
        n_features = max(workers.gather(workers.compute(tasks)))
    else:
        _check.whole("n_features", n_features, at_most=2**31 - 1)
    read = dask.delayed(read_range, pure=False)
    return [read(place, one, max(1, n_features), zero_based, kind) for one in ranges], None


class Source(NamedTuple):
    """Blocks of a file, and the names in it."""

    X: Any
    y: Any
    columns: tuple[str, ...] | None = None
    target: str | None = None


def read(path: Path, kind: str, target: str | None, zero_based: bool, client: Client) -> Source:
    """What the command line calls: a reader by the name of the format."""
    if kind == "libsvm":
        return Source(*read_libsvm(path, zero_based=zero_based, client=client))
    if kind == "parquet":
        import dask.dataframe as dd

        names = [str(name) for name in dd.read_parquet(os.fspath(path)).columns]
        chosen = target or _usual_target(path, names)
        return Source(*read_parquet(path, chosen), tuple(name for name in names if name != chosen), chosen)
    if kind == "zarr":
        return Source(*read_zarr(path, y=target or "y"))
    if kind == "npy-stack":
        return Source(*read_npy_stack(path / "X", path / (target or "y")))
    raise ValueError(f"--dask reads libsvm, parquet, zarr and npy-stack, got format {kind!r}")


def _usual_target(path: Path, names: list[str]) -> str:
    found = [name for name in names if name.lower() in ("target", "label", "class", "y")]
    if len(found) != 1:
        raise ValueError(f"--target must name the column of the target; {path} has {', '.join(names[:20])}")
    return found[0]
