"""What can be wrong with data: each error is one readable line that names the file."""

from __future__ import annotations

from os import PathLike, fspath


class DataFileError(ValueError):
    """A file that cannot be used as it is.

    Attributes
    ----------
    path : str
        The file.
    line : int or None
        Number of the line, from 1, where the trouble is; None where no single line is to blame.
    reason : str
        What is wrong and what is accepted.
    """

    def __init__(self, path: str | PathLike[str], line: int | None, reason: str) -> None:
        self.path = fspath(path)
        self.line = line
        self.reason = reason
        super().__init__(path, line, reason)

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"{where}: {self.reason}"


class ContentError(DataFileError):
    """A readable file that does not hold the data set it is named after."""


class DataNotFoundError(FileNotFoundError):
    """No file of a data set was found in any folder, and it could not be downloaded."""


class DownloadError(OSError):
    """A download that did not succeed."""
