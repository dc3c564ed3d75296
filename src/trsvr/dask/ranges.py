"""A LIBSVM text file by byte ranges: a line belongs to the range in which it begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr.datasets.errors import DataFileError
from trsvr.datasets.libsvm import NO_ROWS, read_source

_STEP = 2**16


class _RangeSource:
    """The lines that begin in a range, as the reader of whole files wants its bytes."""

    def __init__(self, path: str, begin: int, end: int) -> None:
        self.path = path
        self._file = open(path, "rb")  # noqa: SIM115  # closed by __exit__
        self.begin = _next_line(self._file, begin)
        self.end = max(self.begin, _next_line(self._file, end))
        self._file.seek(self.begin)
        self._left = self.end - self.begin

    def __enter__(self) -> _RangeSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read_into(self, room: memoryview, lines: int) -> int:
        """Fill some of the room; 0 at the end of the range."""
        count = self._file.readinto(room[: min(len(room), self._left)]) if self._left else 0
        self._left -= count
        return count

    def share_read(self) -> float:
        """Which part of the range has been read."""
        size = self.end - self.begin
        return 1.0 - self._left / size if size else 1.0

    def lines_before(self) -> int:
        """Lines of the file before the range."""
        self._file.seek(0)
        left, lines = self.begin, 0
        while left:
            piece = self._file.read(min(left, _STEP))
            lines += piece.count(b"\n")
            left -= len(piece)
        return lines


def _next_line(file: Any, place: int) -> int:
    """Where the first line begins that begins at ``place`` or later."""
    if place == 0:
        return 0
    file.seek(place - 1)
    while True:
        piece = file.read(_STEP)
        if not piece:
            return int(file.tell())
        found = piece.find(b"\n")
        if found >= 0:
            return int(file.tell() - len(piece) + found + 1)


def read_range(
    path: str, span: tuple[int, int], n_features: int | None, zero_based: bool, dtype: Any
) -> tuple[Any, NDArray[np.float64]]:
    """Rows and labels of the lines that begin in the range; none, where it has none."""
    with _RangeSource(path, *span) as source:
        try:
            return read_source(source, n_features=n_features, zero_based=zero_based, dtype=dtype)
        except DataFileError as error:
            if error.reason == NO_ROWS:
                return scipy.sparse.csr_array((0, n_features or 1), dtype=dtype), np.empty(0)
            line = None if error.line is None else error.line + source.lines_before()
            raise DataFileError(path, line, error.reason) from None


def largest_column(path: str, span: tuple[int, int], zero_based: bool) -> int:
    """Number of columns that the lines of a range need."""
    return int(read_range(path, span, None, zero_based, np.dtype(np.float64))[0].shape[1])
