"""NPZ archives from strangers: arrays of numbers and text, nothing executed, no size believed before it is checked.

An archive is a zip of NPY files. `numpy.load` allocates what a header asks for before it looks at the data; here the
header must agree with the size of the entry, the entries together must fit into memory, and names that would lead out
of a folder are refused even though nothing is ever written.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _check
from trsvr.datasets.errors import DataFileError

_ENDING = ".npy"
_MOST_ENTRIES = 1000
_TROUBLE = (ValueError, EOFError, LookupError, TypeError, SyntaxError, OverflowError, zlib.error)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an NPZ archive; raises DataFileError for anything that is not one, OSError if it cannot be read."""
    with path.open("rb") as file:
        if file.read(4) not in (b"PK\x03\x04", b"PK\x05\x06"):
            raise DataFileError(path, None, "is not an NPZ archive")
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                _check_entries(path, entries)
                return {entry.filename.removesuffix(_ENDING): _read(path, archive, entry) for entry in entries}
        except DataFileError:
            raise
        except zipfile.BadZipFile as error:
            raise DataFileError(path, None, f"is not an NPZ archive, or damaged: {_one_line(error)}") from None
        except RuntimeError as error:  # encrypted
            raise DataFileError(path, None, f"cannot be read: {_one_line(error)}") from None
        except OSError as error:
            if error.errno is not None and error.errno != 22:
                raise
            raise DataFileError(path, None, f"is damaged: {_one_line(error)}") from None
        except _TROUBLE as error:
            raise DataFileError(path, None, f"is damaged: {_one_line(error)}") from None


def _check_entries(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > _MOST_ENTRIES:
        raise DataFileError(path, None, f"holds {len(entries)} arrays, more than {_MOST_ENTRIES}")
    names = [entry.filename for entry in entries]
    for name in names:
        plain = name.removesuffix(_ENDING)
        if not name.endswith(_ENDING) or not plain.isprintable() or {"/", "\\", ":"} & set(plain) or plain == "..":
            raise DataFileError(path, None, f"holds {name!r}, which is not the name of an array")
    if len(set(names)) != len(names):
        raise DataFileError(path, None, "holds two arrays of the same name")
    try:
        _check.fits_in_memory(sum(entry.file_size for entry in entries), "its content", "this is not read")
    except ValueError as error:
        raise DataFileError(path, None, str(error)) from None


def _read(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as stream:
        shape, fortran, dtype, begin = _header(stream)
        if dtype.hasobject:
            raise DataFileError(path, None, "holds Python objects; only arrays of numbers and text are read")
        if dtype.kind not in "buifcSUmM?" or dtype.fields is not None or dtype.subdtype is not None:
            raise DataFileError(path, None, f"holds an array of {dtype}; only arrays of numbers and text are read")
        size = dtype.itemsize
        for length in shape:
            if not 0 <= length < 2**62:
                raise ValueError(f"the shape {shape}")
            size *= length
        if begin + size != entry.file_size:
            raise ValueError(f"{entry.filename} has {entry.file_size} bytes, its header asks for {begin + size}")
        raw = stream.read()  # as many as were announced, with their checksum compared
        if len(raw) != size:
            raise ValueError(f"{entry.filename} is cut off")
    array = np.frombuffer(bytearray(raw), dtype=dtype) if size else np.empty(shape, dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type, and where the data begin."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"NPY version {version}")
    first = version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    return *read(stream), stream.tell()


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
