"""The user's own files: LIBSVM, CSV, Parquet, NPZ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr import _check
from trsvr.datasets.arrays import read_arrays
from trsvr.datasets.errors import DataFileError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("auto", "libsvm", "csv", "parquet", "npz")
_COMPRESSION = (".gz", ".bz2", ".xz", ".zip", ".zst")
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}
_USUAL_TARGETS = ("target", "label", "class", "y")


@dataclass(frozen=True)
class Table:
    """A file's content.

    Attributes
    ----------
    X : array or csr_array
    y : array or None
        None where the file has no target, as files to predict may.
    columns : tuple of str or None
        Names of X's columns, where the file has them.
    target : str or None
        Name of y, where it has one.
    kind : str
        The format.
    """

    X: Any
    y: NDArray[Any] | None
    columns: tuple[str, ...] | None
    target: str | None
    kind: str


@dataclass(frozen=True)
class Wanted:
    """What is expected of a file.

    Attributes
    ----------
    target : str or None
        Name of the target; None is the usual ones.
    target_needed : bool
        Whether a file without a target is refused.
    columns : sequence of str or None
        The columns of X, where they are known already.
    n_features : int or None
        Their number.
    header, zero_based : bool
        Details of CSV and LIBSVM files.
    """

    target: str | None = None
    target_needed: bool = True
    columns: Sequence[str] | None = None
    n_features: int | None = None
    header: bool = True
    zero_based: bool = False


def format_of(path: Path, chosen: str = "auto") -> str:
    """The format of a file, from its name unless it is chosen."""
    if _check.one_of("--format", chosen, FORMATS) != "auto":
        return chosen
    endings = [ending.lower() for ending in path.suffixes]
    while endings and endings[-1] in _COMPRESSION:
        endings.pop()
    return _ENDINGS.get(endings[-1], "libsvm") if endings else "libsvm"


def read_table(path: Path, wanted: Wanted, chosen: str = "auto") -> Table:
    """Read a file; raises ValueError or OSError in words."""
    kind = format_of(path, chosen)
    if path.is_dir():
        raise DataFileError(path, None, "this is a folder; a file is wanted")
    if kind == "libsvm":
        table = _read_libsvm(path, wanted)
    elif kind == "npz":
        table = _read_npz(path, wanted)
    else:
        try:
            table = _from_frame(path, _read_frame(path, kind, wanted), kind, wanted)
        except UnicodeDecodeError as error:  # text is decoded when it is looked at
            raise DataFileError(path, None, f"holds text that is not UTF-8: {error.object[:20]!r}") from None
    if wanted.n_features is not None and table.X.shape[1] != wanted.n_features:
        raise DataFileError(path, None, f"has {table.X.shape[1]} columns of data, {wanted.n_features} are wanted")
    return table


def _read_libsvm(path: Path, wanted: Wanted) -> Table:
    from trsvr.datasets.libsvm import read_libsvm

    if wanted.target is not None:
        raise ValueError("--target is for CSV, Parquet and NPZ files: in a LIBSVM file the target begins the line")
    X, y = read_libsvm(path, n_features=wanted.n_features, zero_based=wanted.zero_based)
    return Table(X, y, None, None, "libsvm")


# ------------------------------------------------------------------------------------------------------------- NPZ


def _read_npz(path: Path, wanted: Wanted) -> Table:
    arrays = read_arrays(path)
    name = wanted.target or "y"
    if name not in arrays and (wanted.target_needed or wanted.target is not None):
        raise DataFileError(path, None, f"has no array {name!r} for the target; it has {_listed(list(arrays))}")
    return Table(_matrix(path, arrays), arrays.get(name), None, name, "npz")


def _matrix(path: Path, arrays: dict[str, NDArray[Any]]) -> Any:
    if "X" in arrays:
        return arrays["X"]
    parts = ("data", "indices", "indptr", "shape")
    if not all(part in arrays for part in parts):
        raise DataFileError(
            path, None, f"must hold X, or a CSR matrix as {', '.join(parts)}; it has {_listed(list(arrays))}"
        )
    kind = _word(arrays.get("format", np.array("csr")))
    if kind != "csr":
        raise DataFileError(path, None, f"holds a sparse matrix in {kind} format; CSR is read")
    try:
        shape = tuple(int(length) for length in arrays["shape"])
        matrix = scipy.sparse.csr_array(tuple(arrays[part] for part in parts[:3]), shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise DataFileError(path, None, f"data, indices, indptr and shape are no CSR matrix: {error}") from None
    return matrix


def _word(array: NDArray[Any]) -> str:
    """A short text, kept as text or as bytes."""
    if array.size != 1 or array.dtype.kind not in "SU":
        return "an unknown"
    word = array.reshape(-1)[0]
    return word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)


# -------------------------------------------------------------------------------------------------- CSV and Parquet


def _read_frame(path: Path, kind: str, wanted: Wanted) -> pd.DataFrame:
    """The file's columns; whatever a reader raises over a stranger's bytes becomes one sentence about the file."""
    try:
        return _read_parquet(path) if kind == "parquet" else _read_csv(path, wanted)
    except (ImportError, DataFileError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise  # the file itself: missing, no permission
        reason = _first_line(error)
    except Exception as error:
        reason = _first_line(error)
    name = "a Parquet file, or damaged" if kind == "parquet" else "a readable CSV file"
    raise DataFileError(path, None, f"is not {name}: {reason}")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'trsvr[cli]'") from None
    with pyarrow.parquet.ParquetFile(path) as file:
        said = file.metadata
        groups = (said.row_group(k) for k in range(said.num_row_groups))
        size = max(8 * said.num_rows * said.num_columns, sum(max(0, group.total_byte_size) for group in groups))
        _check.fits_in_memory(size, f"{said.num_rows} rows of {said.num_columns} columns", "read a part of them")
        return file.read().to_pandas().reset_index(drop=True)


def _read_csv(path: Path, wanted: Wanted) -> pd.DataFrame:
    import pandas as pd

    separator = "\t" if ".tsv" in (ending.lower() for ending in path.suffixes) else ","
    return pd.read_csv(path, sep=separator, header=0 if wanted.header else None, skipinitialspace=True)


def _from_frame(path: Path, frame: pd.DataFrame, kind: str, wanted: Wanted) -> Table:
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise DataFileError(path, None, f"has two columns called {repeated[0]!r}")
    if not len(frame):
        raise DataFileError(path, None, "has no rows")
    target = _target(path, list(frame.columns), wanted)
    names = [name for name in frame.columns if name != target] if wanted.columns is None else list(wanted.columns)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise DataFileError(path, None, f"has no column {missing[0]!r}; it has {_listed(list(frame.columns))}")
    if not names:
        raise DataFileError(path, None, f"has no column beside the target {target!r}")
    _check.fits_in_memory(8 * len(frame) * len(names), f"{len(frame)} x {len(names)} numbers", "use fewer rows")
    X = np.empty((len(frame), len(names)))
    for k, name in enumerate(names):
        X[:, k] = _numbers(path, frame[name], name)
    return Table(X, None if target is None else _labels(path, frame[target], target), tuple(names), target, kind)


def _target(path: Path, columns: list[str], wanted: Wanted) -> str | None:
    if wanted.target is not None:
        if wanted.target in columns:
            return wanted.target
        if not wanted.target_needed:
            return None
        raise DataFileError(path, None, f"has no column {wanted.target!r} for the target; it has {_listed(columns)}")
    usual = [name for name in columns if name.lower() in _USUAL_TARGETS]
    if len(usual) == 1:
        return usual[0]
    if not wanted.target_needed:
        return None
    found = "several columns could be the target" if usual else "no column is called target, label, class or y"
    raise DataFileError(path, None, f"{found}: choose one with --target; it has {_listed(columns)}")


def _numbers(path: Path, column: pd.Series[Any], name: str) -> NDArray[np.float64]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not is_numeric_dtype(column) and not is_bool_dtype(column):
        shown = next((str(value) for value in column if not isinstance(value, int | float)), "nothing")
        raise DataFileError(
            path, None, f"column {name!r} must hold numbers, got {shown!r}; turn categories into columns of 0 and 1"
        )
    try:
        numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise DataFileError(path, None, f"column {name!r} must hold real numbers, got {column.dtype}") from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        got = "no number" if np.isnan(numbers[bad[0]]) else "an infinite one"
        raise DataFileError(path, None, f"column {name!r} has {got} in row {bad[0] + 1} ({bad.size} such in all)")
    return numbers


def _labels(path: Path, column: pd.Series[Any], name: str) -> NDArray[Any]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise DataFileError(path, None, f"the target {name!r} has no value in row {missing[0] + 1}")
    if is_numeric_dtype(column) or is_bool_dtype(column):
        return np.asarray(column.to_numpy())
    return np.array([str(value) for value in column])


def _listed(names: list[str]) -> str:
    """Names for a message: not too many."""
    if not names:
        return "none"
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
