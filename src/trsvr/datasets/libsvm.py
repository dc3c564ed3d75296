"""LIBSVM text files, read and written.

The format: one row a line, ``label index:value index:value …``, indices ascending and counted from 1, entries that are
not written are zero. ``#`` begins a comment. Files may be compressed with bzip2, gzip or xz, which is recognised by
their first bytes and not by their name.

The reader goes through the file once, in blocks, and needs no memory beyond the result except a few megabytes (and,
while a line is longer than a block, that line). Plain text is parsed several times faster than scikit-learn does it; of
a bzip2 file the decompression takes nearly all the time. ``benchmarks/datasets.py`` measures both.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray

from trsvr import _check
from trsvr._files import written_beside
from trsvr.datasets.errors import DataFileError

_BLOCK_BYTES = 2**18
_MAX_LINE_BYTES = 2**26
_SCRATCH_ROWS = 2**16
_SCRATCH_ENTRIES = 2**16
_SCRATCH_HARD = 2**10
_WRITE_ENTRIES = 2**17
NO_ROWS = "the file holds no row of data"


# ------------------------------------------------------------------------------------------------------------ reading


def read_libsvm(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    two_classes: bool = False,
    dtype: DTypeLike = np.float64,
    max_line_bytes: int = _MAX_LINE_BYTES,
) -> tuple[Any, NDArray[np.float64]]:
    """Read a LIBSVM text file.

    Parameters
    ----------
    path : str or path
        The file, plain or compressed with bzip2, gzip or xz.
    n_features : int, optional
        Number of columns, at least the largest index; by default the largest index of the file.
    zero_based : bool
        Whether indices count from 0. It is never guessed: in a one-based file an index of 0 is an error.
    two_classes : bool
        Whether to refuse a file whose labels are not of exactly two kinds.
    dtype : float64 or float32
        Type of the entries; numbers are rounded to float64 first.
    max_line_bytes : int
        A longer line is refused (unless it fits into a block of 256 KiB), so that a file that is no text cannot fill
        the memory.

    Returns
    -------
    X : scipy.sparse.csr_array
        The rows; entries that are written but zero are left out.
    y : ndarray of float64
        The labels as they stand in the file.

    Raises
    ------
    DataFileError
        If the file is damaged: its message names the file, the line and what is accepted there. Refused are numbers
        that cannot be read, NaN and infinity, indices that repeat or descend, ``qid`` fields, broken compression, a
        file without rows.
    OSError
        If the file cannot be opened or read.
    """
    limit = _check.whole("max_line_bytes", max_line_bytes, at_least=1)
    if n_features is not None:
        _check.whole("n_features", n_features, at_least=1, at_most=2**31 - 1)
    kind = float_type(dtype)
    with _Source(path) as source:
        reader = _Reader(source, n_features, bool(zero_based), kind, bool(two_classes), limit)
        return reader.read()


class ByteSource(Protocol):
    """Where the reader has its bytes from: a whole file, or the lines of a part of one."""

    path: str

    def read_into(self, room: memoryview, lines: int) -> int:
        """Fill some of the room, ``lines`` lines having been read before; 0 at the end."""

    def share_read(self) -> float:
        """Which part has been read, from 0 to 1."""


def read_source(
    source: ByteSource, *, n_features: int | None, zero_based: bool, dtype: np.dtype[Any]
) -> tuple[Any, NDArray[np.float64]]:
    """Rows and labels of whole lines from any source of bytes; arguments as for `read_libsvm`, and checked already.

    The lines that a `DataFileError` names are counted from the source's beginning.
    """
    return _Reader(source, n_features, zero_based, dtype, False, _MAX_LINE_BYTES).read()


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """float64 or float32, or an error that says so."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be float64 or float32, got {dtype!r}")
    return kind


class _Source:
    """The bytes of a file, decompressed; knows which share of the file has been read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._raw = open(self.path, "rb")  # noqa: SIM115  # closed by __exit__
        status = os.fstat(self._raw.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        begin = self._raw.peek(6)[:6]
        self._stream: IO[bytes] = self._raw
        if begin.startswith(b"BZh"):
            self._stream = bz2.BZ2File(self._raw)
        elif begin.startswith(b"\x1f\x8b"):
            self._stream = cast(IO[bytes], gzip.GzipFile(fileobj=self._raw))
        elif begin.startswith(b"\xfd7zXZ\x00"):
            self._stream = lzma.LZMAFile(self._raw)  # noqa: SIM115

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._raw.close()

    def read_into(self, room: memoryview, lines: int) -> int:
        """Fill some of the room; 0 at the end of the file."""
        try:
            return self._stream.readinto(room)  # type: ignore[attr-defined]
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            damage: Exception = error
        except OSError as error:
            if error.errno is not None:
                raise
            damage = error  # bz2 and gzip report broken data this way
        raise DataFileError(self.path, lines + 1, f"the compressed data is damaged or cut off here ({damage})")

    def share_read(self) -> float:
        """Which part of the file has been read, from 0 to 1; 1 where that is unknown."""
        return min(1.0, self._raw.tell() / self._size) if self._size else 1.0


class _Growing:
    """A vector that grows at its end.

    The first room is chosen from the share of the file that has been read, so it seldom has to grow; what is not yet
    written to takes no memory, and the final cut gives the rest back. Where it has to grow, the system does that in
    place if it can.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype)
        self.size = 0

    def append(self, piece: NDArray[Any], share: float) -> None:
        needed = self.size + piece.size
        if needed > self._array.size:
            expected = int(1.05 * needed / max(share, 1e-5))
            if self.size > 0:
                self._array.resize(min(max(expected, needed + needed // 8), 8 * needed), refcheck=False)
            else:
                try:
                    self._array = np.empty(expected, self._array.dtype)
                except MemoryError:
                    # The file begins unlike the rest of it, or will not fit in any case; that is seen later.
                    self._array = np.empty(needed, self._array.dtype)
        self._array[self.size : needed] = piece
        self.size = needed

    def finish(self) -> NDArray[Any]:
        self._array.resize(self.size, refcheck=False)
        return self._array


class _Reader:
    """One reading of one file."""

    def __init__(
        self,
        source: ByteSource,
        n_features: int | None,
        zero_based: bool,
        dtype: np.dtype[Any],
        two_classes: bool,
        max_line_bytes: int,
    ) -> None:
        # Numba is loaded only when a file is really read.
        from trsvr.datasets import parse

        self._parse = parse
        self._source = source
        self._n_features = n_features
        self._first_index = 0 if zero_based else 1
        self._two_classes = two_classes
        self._max_line_bytes = max_line_bytes
        self._classes: NDArray[np.float64] = np.empty(0)
        self._data = _Growing(dtype)
        self._indices = _Growing(np.int32)
        self._row_ends = _Growing(np.int64)
        self._labels = _Growing(np.float64)
        self._lines = 0
        self._columns = np.empty(_SCRATCH_ENTRIES, np.int32)
        self._values = np.empty(_SCRATCH_ENTRIES)
        self._row_labels = np.empty(_SCRATCH_ROWS)
        self._ends = np.empty(_SCRATCH_ROWS, np.int64)
        self._hard = np.empty((_SCRATCH_HARD, 3), np.int64)
        self._report = np.zeros(parse.REPORT_SIZE, np.int64)

    def read(self) -> tuple[Any, NDArray[np.float64]]:
        for text, stop in self._blocks():
            self._take(text, stop)
        if self._labels.size == 0:
            raise DataFileError(self._source.path, max(self._lines, 1), NO_ROWS)
        if self._two_classes and self._classes.size < 2:
            raise self._error(
                f"every label up to this last line is {self._classes[0]:g}; two classes are needed", self._lines
            )
        return self._matrix(), self._labels.finish()

    def _matrix(self) -> Any:
        indices, data, ends = self._indices.finish(), self._data.finish(), self._row_ends.finish()
        n_features = self._n_features
        if n_features is None:
            n_features = int(indices.max()) + 1 if indices.size else 1
        indptr = np.empty(ends.size + 1, np.int32 if data.size < 2**31 else np.int64)
        indptr[0] = 0
        indptr[1:] = ends
        X = scipy.sparse.csr_array((data, indices, indptr), shape=(ends.size, n_features), copy=False)
        X.has_canonical_format = True  # ascending indices were demanded of every line
        return X

    def _blocks(self) -> Iterator[tuple[bytearray, int]]:
        """Buffers and how much of each is whole lines."""
        buffer = bytearray(_BLOCK_BYTES)
        filled = 0
        while True:
            # One byte is kept free for the newline that the last line may lack.
            with memoryview(buffer) as view, view[filled:-1] as room:
                count = self._source.read_into(room, self._lines)
            if count == 0:
                break
            end = buffer.rfind(b"\n", filled, filled + count) + 1
            filled += count
            if end:
                yield buffer, end
                buffer[: filled - end] = buffer[end:filled]
                filled -= end
            if filled > self._max_line_bytes:
                raise self._error(f"the line is longer than {self._max_line_bytes} bytes", self._lines + 1)
            missing = self._max_line_bytes + 2 - len(buffer)
            if filled > len(buffer) // 2 and missing > 0:
                buffer.extend(bytes(min(len(buffer), missing)))
        if filled:
            buffer[filled] = 10
            yield buffer, filled + 1

    def _take(self, text: bytearray, stop: int) -> None:
        """Parse whole lines and add them to the result."""
        parse = self._parse
        array = np.frombuffer(text, np.uint8)
        position = 0
        while position < stop:
            result = parse.parse_lines(
                array,
                position,
                stop,
                self._first_index,
                self._n_features if self._n_features is not None else 2**31,
                self._columns,
                self._values,
                self._row_labels,
                self._ends,
                self._hard,
                self._report,
            )
            reached, lines, rows, entries, hards = (int(number) for number in self._report[:5])
            self._read_hard_numbers(text, position, hards)
            self._check_classes(text, position, rows)
            if result not in (parse.DONE, parse.FULL):
                raise self._damage(result, text, stop, self._lines + lines + 1)
            self._add(rows, entries)
            if result == parse.FULL and reached == position:
                self._widen()
            position = reached
            self._lines += lines
        # A bytearray cannot change its size while an array looks at it.
        del array

    def _add(self, rows: int, entries: int) -> None:
        share = self._source.share_read()
        self._row_ends.append(self._ends[:rows] + self._data.size, share)
        self._data.append(self._values[:entries], share)
        self._indices.append(self._columns[:entries], share)
        self._labels.append(self._row_labels[:rows], share)

    def _widen(self) -> None:
        """Double the room for one line."""
        self._columns = np.empty(2 * self._columns.size, np.int32)
        self._values = np.empty(2 * self._values.size)
        self._hard = np.empty((2 * self._hard.shape[0], 3), np.int64)

    def _read_hard_numbers(self, text: bytearray, position: int, count: int) -> None:
        for place, begin, end in self._hard[:count].tolist():
            value = float(text[begin:end])
            if not np.isfinite(value):
                line = self._lines + text.count(b"\n", position, begin) + 1
                raise self._error(
                    f"{_shown(text, begin, end)} is too large for float64; finite numbers are accepted", line
                )
            if place >= 0:
                self._values[place] = value
            else:
                self._row_labels[-1 - place] = value

    def _check_classes(self, text: bytearray, position: int, rows: int) -> None:
        if not self._two_classes:
            return
        labels = self._row_labels[:rows]
        fresh = labels[~np.isin(labels, self._classes)]
        while fresh.size:
            if self._classes.size == 2:
                row = int(np.flatnonzero(labels == fresh[0])[0])
                first, second = self._classes
                line = self._lines + _line_of_row(text, position, row)
                raise self._error(
                    f"{fresh[0]:g} is a third label besides {first:g} and {second:g}; two are accepted", line
                )
            self._classes = np.append(self._classes, fresh[0])
            fresh = fresh[fresh != fresh[0]]

    def _error(self, reason: str, line: int) -> DataFileError:
        return DataFileError(self._source.path, line, reason)

    def _damage(self, result: int, text: bytearray, stop: int, line: int) -> DataFileError:
        """The error for what the kernel met."""
        parse = self._parse
        token, index = _shown(text, int(self._report[parse.TOKEN]), stop), int(self._report[parse.INDEX])
        from_one = "in a file whose indices count from 1 (zero_based=True or --zero-based: from 0)"
        reasons = {
            parse.BAD_LABEL: f"expected a number as label, got {token}",
            parse.LABEL_NOT_FINITE: f"the label is {token}; finite numbers are accepted",
            parse.NOT_A_PAIR: f"expected index:value, got {token}",
            parse.QUERY_ID: f"query ids are not supported, got {token}",
            parse.INDEX_TOO_LARGE: f"the index of {token} is beyond {parse.MAX_INDEX}",
            parse.INDEX_TOO_SMALL: f"index {index} {from_one}",
            parse.INDEX_REPEATED: f"index {index} appears twice; indices must ascend",
            parse.INDEX_DESCENDING: f"index {index} follows a larger one; indices must ascend",
            parse.INDEX_OUTSIDE: f"index {index} is beyond the {self._n_features} columns that are expected",
            parse.BAD_VALUE: f"expected a number after the colon, got {token}",
            parse.VALUE_NOT_FINITE: f"the value in {token} is not finite; finite numbers are accepted",
        }
        return self._error(reasons[result], line)


def _shown(text: bytearray, begin: int, stop: int) -> str:
    """A token for a message: short, printable, quoted."""
    words = bytes(text[begin : min(begin + 60, stop)]).split(maxsplit=1)
    word = words[0].decode("ascii", "backslashreplace") if words else ""
    return repr(word if len(word) <= 30 else word[:30] + "…")


def _line_of_row(text: bytearray, position: int, row: int) -> int:
    """Number of the line, from 1, that holds a row of the text; rows are counted from 0."""
    for number, line in enumerate(bytes(text[position:]).split(b"\n"), start=1):
        if line.split(b"#", maxsplit=1)[0].strip():
            if row == 0:
                return number
            row -= 1
    raise AssertionError("the row is not in the text")


# ------------------------------------------------------------------------------------------------------------ writing


def write_libsvm(
    path: str | os.PathLike[str], X: Any, y: Any, *, zero_based: bool = False, comment: str | None = None
) -> None:
    """Write a LIBSVM text file.

    Numbers are written with the fewest digits that give the same float64 back, so that `read_libsvm` returns exactly
    what was written. The format does not carry the number of columns: hand ``n_features`` to the reader if the last
    ones are empty. The file is written beside its place and renamed.

    Parameters
    ----------
    path : str or path
        The file; ``.bz2``, ``.gz`` and ``.xz`` compress.
    X : array or sparse matrix of shape (rows, columns)
        Finite numbers; zeros are not written.
    y : array of length rows
        Finite labels.
    zero_based : bool
        Whether indices count from 0.
    comment : str, optional
        Text for the first lines of the file.
    """
    if not scipy.sparse.issparse(X):
        X = np.asarray(X)
        if X.dtype.kind not in "buif":
            raise ValueError(f"X must be a matrix of real numbers, got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional (rows are samples), got shape {X.shape}")
    labels = _check.vector("y", y, X.shape[0])
    with written_beside(path) as place, _compressed(place, os.fspath(path)) as stream:
        for line in (comment or "").splitlines():
            stream.write(f"# {line}\n".encode())
        rows_at_once = max(1, _WRITE_ENTRIES // max(1, X.shape[1])) if not scipy.sparse.issparse(X) else 4096
        if scipy.sparse.issparse(X) and X.format != "csr":
            X = X.tocsr()
        for begin in range(0, X.shape[0], rows_at_once):
            piece = scipy.sparse.csr_array(X[begin : begin + rows_at_once], dtype=np.float64, copy=True)
            piece.sum_duplicates()
            piece.eliminate_zeros()
            _check.finite("X", piece.data)
            stream.write(_lines(piece, labels[begin : begin + rows_at_once], 0 if zero_based else 1))


def _lines(rows: Any, labels: NDArray[np.float64], first_index: int) -> bytes:
    pairs = [
        f" {index}:{_decimal(value)}"
        for index, value in zip((rows.indices + first_index).tolist(), rows.data.tolist(), strict=True)
    ]
    ends = rows.indptr.tolist()
    text = "".join(
        f"{_decimal(label)}{''.join(pairs[begin:end])}\n"
        for label, begin, end in zip(labels.tolist(), ends[:-1], ends[1:], strict=True)
    )
    return text.encode("ascii")


def _decimal(value: float) -> str:
    shortest = repr(value)
    return shortest[:-2] if shortest.endswith(".0") else shortest


@contextlib.contextmanager
def _compressed(place: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed as the final name says."""
    with open(place, "wb") as raw:
        if name.endswith(".bz2"):
            with bz2.BZ2File(raw, "wb") as stream:
                yield stream
        elif name.endswith(".gz"):
            # Without name and time the same data gives the same file.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as zipped:
                yield cast(IO[bytes], zipped)
        elif name.endswith(".xz"):
            with lzma.LZMAFile(raw, "wb") as stream:
                yield stream
        else:
            yield raw
