"""The user's own files: LIBSVM, CSV, Parquet, NPZ."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr import _check
from trsvr.cli.categories import AUTO, Levels, encode, encoded_names, levels_in
from trsvr.datasets.arrays import read_arrays
from trsvr.datasets.errors import DataFileError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("auto", "libsvm", "csv", "parquet", "npz")
_COMPRESSION = (".gz", ".bz2", ".xz", ".zip", ".zst")
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}
_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": r"\s+", " ": r"\s+"}
NO_TARGET = "--target is for CSV, Parquet and NPZ files: in a LIBSVM file the target begins the line"
_USUAL_TARGETS = ("target", "label", "class", "y")
_NUMBERS = "this column is used as numbers"
_ENCODE = "trsvr solve --categorical {name} makes columns of 0 and 1 of it, --drop {name} leaves it out"


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
    weights : array or None
        Of the rows, where they were asked for.
    left_out : str or None
        A column without a name that only counts the rows, as data frames write it.
    offset : array or None
        Of the rows, where it was asked for.
    groups : array or None
        The same.
    raw_columns : tuple of str or None
        Names of the file's columns that X is made of, where some hold categories.
    levels : dict
        Their levels.
    """

    X: Any
    y: NDArray[Any] | None
    columns: tuple[str, ...] | None
    target: str | None
    kind: str
    weights: NDArray[np.float64] | None = None
    left_out: str | None = None
    offset: NDArray[np.float64] | None = None
    groups: NDArray[Any] | None = None
    raw_columns: tuple[str, ...] | None = None
    levels: Levels = field(default_factory=dict)


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
    separator : str
        Between the columns of a CSV file; "auto" looks at its first line.
    weights : str or None
        Name of the rows' weights.
    drop : sequence of str
        Columns that are not used.
    offset : str or None
        Name of a number for each row that is added to its margin, or log(NAME) for its logarithm.
    offset_needed : bool
        Whether a file without it is refused.
    groups : str or None
        Name of what names the rows' groups.
    categorical : sequence of str
        Columns that are encoded as 0 and 1; "auto" is all that hold text.
    drop_first : bool
        Whether the first level of each has no column.
    levels : dict
        Their levels, where they are known already.
    """

    target: str | None = None
    target_needed: bool = True
    columns: Sequence[str] | None = None
    n_features: int | None = None
    header: bool = True
    zero_based: bool = False
    separator: str = "auto"
    weights: str | None = None
    drop: Sequence[str] = ()
    offset: str | None = None
    offset_needed: bool = True
    groups: str | None = None
    categorical: Sequence[str] = ()
    drop_first: bool = False
    levels: Levels | None = None

    def options(self) -> list[tuple[str, Sequence[str | None]]]:
        """The options that name columns which cannot be the target."""
        return [
            ("weights", [self.weights]),
            ("offset", [self.offset_column]),
            ("drop", self.drop),
            ("categorical", self.categorical),
        ]

    def others(self, known: Sequence[str]) -> list[tuple[str, str]]:
        """Names beside X and the target that a file must have, and what for."""
        offset = self.offset_column if self.offset_needed or self.offset_column in known else None
        named = (self.weights, " for the weights"), (offset, " for the offset"), (self.groups, " for the groups")
        return [(name, purpose) for name, purpose in named if name is not None]

    @property
    def offset_column(self) -> str | None:
        """The column of the offset."""
        logarithm = self.offset is not None and self.offset.startswith("log(") and self.offset.endswith(")")
        return self.offset[4:-1].strip() if self.offset is not None and logarithm else self.offset

    def offset_from(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """The offset from its column."""
        if self.offset_column == self.offset:
            return np.asarray(numbers, dtype=np.float64)
        bad = np.flatnonzero(~(numbers > 0.0))
        if bad.size:
            raise ValueError(f"--offset {self.offset} needs numbers > 0, got {numbers[bad[0]]} in row {bad[0] + 1}")
        return np.asarray(np.log(numbers))


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
        raise DataFileError(path, None, "this is a folder; a file is needed")
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT) + _what_was_meant(path), str(path))
    if path.is_file() and not path.stat().st_size:  # a pipe has no size
        raise DataFileError(path, None, "is empty")
    if wanted.drop and kind not in ("csv", "parquet"):
        raise ValueError(f"--drop is for columns with names, of CSV and Parquet files; this is {kind.upper()}")
    if wanted.categorical and kind not in ("csv", "parquet"):
        raise ValueError(f"--categorical is for columns with names, of CSV and Parquet files; this is {kind.upper()}")
    if wanted.separator != "auto" and kind != "csv":
        raise ValueError(f"--sep is for CSV files; this is {kind.upper()}")
    if len(wanted.separator) != 1 and wanted.separator not in ("auto", *_SEPARATORS):
        raise ValueError(f"--sep must be one character, tab, space or auto, got {wanted.separator!r}")
    if kind == "libsvm":
        table = _read_libsvm(path, wanted)
    elif kind == "npz":
        table = _read_npz(path, wanted)
    else:
        try:
            table = _from_frame(path, _read_frame(path, kind, wanted), kind, wanted)
        except UnicodeDecodeError as error:  # text is decoded when it is looked at
            raise DataFileError(path, None, f"holds text that is not UTF-8: {error.object[:20]!r}") from None
    if table.X.ndim != 2:
        raise DataFileError(path, None, f"X must be two-dimensional (rows are samples), got shape {table.X.shape}")
    if wanted.n_features is not None and table.X.shape[1] != wanted.n_features:
        raise DataFileError(path, None, f"has {table.X.shape[1]} columns of data, {wanted.n_features} are needed")
    return table


def _what_was_meant(path: Path) -> str:
    """A hint for a file that is not there: a data set of that name, or a file with nearly that name."""
    from trsvr.datasets.registry import ENTRIES

    if str(path) in ENTRIES:
        return f"; {path} is a known data set: trsvr compare {path} runs on it, trsvr data fetch {path} tells its file"
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    return _check.nearest(path.name, beside) or _check.nearest(path, ENTRIES)


def _read_libsvm(path: Path, wanted: Wanted) -> Table:
    from trsvr.datasets.libsvm import read_libsvm

    if wanted.target is not None:
        raise ValueError(NO_TARGET)
    if wanted.weights is not None:
        raise ValueError("--weights is for CSV, Parquet and NPZ files: a LIBSVM file has none")
    if (wanted.offset is not None and wanted.offset_needed) or wanted.groups is not None:
        raise ValueError("--offset and --groups are for CSV, Parquet and NPZ files: a LIBSVM file has none")
    X, y = read_libsvm(path, n_features=wanted.n_features, zero_based=wanted.zero_based)
    return Table(X, y, None, None, "libsvm")


# ------------------------------------------------------------------------------------------------------------- NPZ


def _read_npz(path: Path, wanted: Wanted) -> Table:
    arrays = read_arrays(path)
    name = wanted.target or "y"
    if name not in arrays and (wanted.target_needed or wanted.target is not None):
        raise _missing(path, "array", name, " for the target", list(arrays))
    for other, purpose in wanted.others(list(arrays)):
        if other not in arrays:
            raise _missing(path, "array", other, purpose, list(arrays))
    weights, shift, groups = (
        arrays.get(other) if other else None for other in (wanted.weights, wanted.offset_column, wanted.groups)
    )
    shift = None if shift is None else wanted.offset_from(shift)
    return Table(_matrix(path, arrays), arrays.get(name), None, name, "npz", weights, offset=shift, groups=groups)


def _missing(path: Path, kind: str, name: str, purpose: str, known: list[str]) -> DataFileError:
    """The error for a column or array that is not there, with the one that was perhaps meant."""
    near = _check.nearest(name, known)
    return DataFileError(path, None, f"has no {kind} {name!r}{purpose}; it has {_listed(known)}{near}")


def _matrix(path: Path, arrays: dict[str, NDArray[Any]]) -> Any:
    if "X" in arrays:
        return _finite(path, arrays["X"])
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
    _finite(path, matrix.data)
    return matrix


def _finite(path: Path, numbers: NDArray[Any]) -> NDArray[Any]:
    """Real numbers, all of them finite."""
    if numbers.dtype.kind not in "buif":
        raise DataFileError(path, None, f"X must hold real numbers, got dtype {numbers.dtype}")
    if not np.isfinite(numbers).all():
        place = tuple(map(int, np.argwhere(~np.isfinite(numbers))[0]))
        raise DataFileError(
            path, None, f"X must be finite, got {numbers[place]} at position {', '.join(map(str, place))}"
        )
    return numbers


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
    except UnicodeDecodeError:
        raise DataFileError(path, None, "is not text in UTF-8, which a CSV file must be") from None
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

    separator = _separator(path, wanted.separator)
    return pd.read_csv(path, sep=separator, header=0 if wanted.header else None, skipinitialspace=True)


def _separator(path: Path, chosen: str) -> str:
    """What stands between columns, as pandas wants it; by default what the first line shows."""
    import pandas as pd

    if chosen != "auto":
        return _SEPARATORS.get(chosen, chosen)
    if ".tsv" in (ending.lower() for ending in path.suffixes):
        return "\t"
    first = pd.read_csv(path, sep=",", header=None, nrows=1, dtype=str)
    if first.shape[1] > 1:
        return ","
    line = str(first.iloc[0, 0])
    separator = max(";\t|", key=line.count)
    if separator in line:
        return separator
    return r"\s+" if len(line.split()) > 1 else ","


def _from_frame(path: Path, frame: pd.DataFrame, kind: str, wanted: Wanted) -> Table:
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise DataFileError(path, None, f"has two columns called {repeated[0]!r}")
    if not len(frame):
        raise DataFileError(path, None, "has no rows")
    columns = list(frame.columns)
    counter = _row_counter(frame) if kind == "csv" and wanted.header and wanted.columns is None else None
    target = _target(path, columns, wanted)
    for name, purpose in (
        *wanted.others(columns),
        *((name, " to drop") for name in wanted.drop),
        *((name, " to encode") for name in wanted.categorical if name != AUTO),
    ):
        if name not in columns:
            raise _missing(path, "column", name, purpose, columns)
    if target is not None:
        for option, given in wanted.options():
            if target in given:
                raise ValueError(f"--{option} {target}: this column is the target; name another one")
    unused = {target, wanted.weights, wanted.offset_column, wanted.groups, counter, *wanted.drop}
    names = [name for name in columns if name not in unused] if wanted.columns is None else list(wanted.columns)
    missing = [name for name in names if name not in columns]
    if missing:
        raise _missing(path, "column", missing[0], "", columns)
    if not names:
        raise DataFileError(path, None, f"has no column besides the target {target!r}")
    _check.fits_in_memory(8 * len(frame) * len(names), f"{len(frame)} x {len(names)} numbers", "use fewer rows")
    levels = levels_in(path, frame, names, wanted.categorical) if wanted.levels is None else wanted.levels
    if levels:
        X: Any = encode(path, frame, names, levels, wanted.drop_first, _numbers)
    else:
        X = np.empty((len(frame), len(names)))
        for k, name in enumerate(names):
            X[:, k] = _numbers(path, frame[name], name, _ENCODE if wanted.columns is None else _NUMBERS)
    y = None if target is None else _labels(path, frame[target], target)
    weights, shift = (
        _numbers(path, frame[name], name) if name is not None and name in columns else None
        for name in (wanted.weights, wanted.offset_column)
    )
    return Table(
        X,
        y,
        tuple(encoded_names(names, levels, wanted.drop_first)),
        target,
        kind,
        weights,
        counter,
        None if shift is None else wanted.offset_from(shift),
        None if wanted.groups is None else _labels(path, frame[wanted.groups], wanted.groups),
        tuple(names),
        levels,
    )


def _row_counter(frame: pd.DataFrame) -> str | None:
    """The first column if it has no name and only counts the rows: the index that data frames write."""
    name = str(frame.columns[0])
    first = frame.iloc[:, 0]
    if (
        name == "Unnamed: 0"
        and first.dtype.kind == "i"
        and len(frame.columns) > 2
        and (first.diff().iloc[1:] > 0).all()
    ):
        return name
    return None


def _target(path: Path, columns: list[str], wanted: Wanted) -> str | None:
    if wanted.target is not None:
        if wanted.target in columns:
            return wanted.target
        if not wanted.target_needed:
            return None
        raise _missing(path, "column", wanted.target, " for the target", columns)
    usual = [name for name in columns if name.lower() in _USUAL_TARGETS]
    if len(usual) == 1:
        return usual[0]
    if not wanted.target_needed:
        return None
    found = "several columns could be the target" if usual else "no column is called target, label, class or y"
    raise DataFileError(path, None, f"{found}: choose one with --target; it has {_listed(columns)}")


def _numbers(path: Path, column: pd.Series[Any], name: str, advice: str = _NUMBERS) -> NDArray[np.float64]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not is_numeric_dtype(column) and not is_bool_dtype(column):
        shown = next((str(value) for value in column if not isinstance(value, int | float)), "nothing")
        comma = shown.count(",") == 1 and shown.replace(",", "").lstrip("+-").isdigit()
        hint = "write decimals with a point" if comma else advice.format(name=name)
        raise DataFileError(path, None, f"column {name!r} must hold numbers, got {shown!r}; {hint}")
    try:
        numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise DataFileError(path, None, f"column {name!r} must hold real numbers, got {column.dtype}") from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        got = "no number" if np.isnan(numbers[bad[0]]) else "an infinite number"
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
