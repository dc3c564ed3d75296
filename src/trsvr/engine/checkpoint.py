"""Checkpoints: one file, written whole or not at all, that says itself whether it is intact.

Layout: a line ``trsvr checkpoint 1``, the length of the header (8 bytes, little-endian), the header (JSON in UTF-8:
numbers, texts, and the types and shapes of the arrays), the arrays one after another (raw, little-endian), and the
SHA-256 of all that. Nothing in it is executed when it is read; every size is compared with the file's own before
anything is allocated.

A new checkpoint is written beside its place, forced to the disk, and renamed; the one before stays as
``<name>.previous``. So at every moment at least one of the two is whole.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _files
from trsvr._arrays import raw_bytes

_log = logging.getLogger("trsvr")

_MAGIC = b"trsvr checkpoint "
FORMAT = 1
_FIRST_LINE = _MAGIC + b"%d\n" % FORMAT
_LENGTH_BYTES = 8
_DIGEST_BYTES = 32
_CHUNK = 2**24
_LARGEST_HEADER = 2**26
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u8", "<u4", "|i1", "|u1", "|b1")

Content = dict[str, Any]


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: damaged, of another format, or of another run."""


class NotACheckpoint(CheckpointError):
    """A file that is none of ours, as far as can be seen: nobody is told to remove it."""


# ------------------------------------------------------------------------------------------------------------ writing


def previous(path: Path) -> Path:
    """Where the checkpoint before the newest is kept."""
    return path.with_name(path.name + ".previous")


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def packed(content: Content) -> list[memoryview]:
    """The bytes of a checkpoint, in pieces: arrays are not copied."""
    arrays: list[NDArray[Any]] = []
    header = json.dumps(_described(content, arrays), ensure_ascii=False).encode()
    begin = _FIRST_LINE + len(header).to_bytes(_LENGTH_BYTES, "little") + header
    pieces = [memoryview(begin), *(raw_bytes(array) for array in arrays if array.size)]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, memoryview(digest.digest())]


def _described(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Plain values as they are, an array as the description of its place."""
    if isinstance(value, dict):
        return {str(name): _described(entry, arrays) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_described(entry, arrays) for entry in value]
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        if array.dtype.str not in _DTYPES:
            raise TypeError(f"arrays of {array.dtype} cannot be kept in a checkpoint")
        arrays.append(array)
        return {"array": array.dtype.str, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    raise TypeError(f"{type(value).__name__} cannot be kept in a checkpoint")


def write(path: Path, content: Content, *, keep_newest: bool = True) -> None:
    """Write a checkpoint; raises OSError, and then what was there before is still there.

    Parameters
    ----------
    path : Path
        Its place.
    content : dict
        Numbers, texts, lists, dicts and arrays.
    keep_newest : bool
        Whether the file that is at ``path`` now becomes the previous one; False where it is known to be damaged, so
        that it does not push out the good one.
    """
    part = _part(path)
    with _files.moved(part, path):
        _write_through(part, packed(content))
        if keep_newest and path.exists():
            os.replace(path, previous(path))
    _sync_folder(path.parent)


def _write_through(path: Path, pieces: list[memoryview]) -> None:
    """All of the bytes, on the disk when this returns."""
    binary = getattr(os, "O_BINARY", 0)  # Windows alone has it
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | binary, 0o666)
    try:
        for piece in pieces:
            done = 0
            while done < len(piece):
                count = os.write(descriptor, piece[done : done + _CHUNK])
                if count <= 0:
                    raise OSError(f"{path}: nothing more could be written")
                done += count
        os.fsync(descriptor)
        written, wanted = os.fstat(descriptor).st_size, sum(map(len, pieces))
        if written != wanted:
            raise OSError(f"{path}: {written} bytes arrived of {wanted}")
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Force the renaming itself to the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove the unfinished files of processes that were killed while writing."""
    with contextlib.suppress(OSError):
        for part in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
            number = part.name.removeprefix(f"{path.name}.").removesuffix(".part")
            if number.isdigit() and not _is_running(int(number)):
                with contextlib.suppress(OSError):
                    part.unlink()


def _is_running(pid: int) -> bool:
    if pid == os.getpid():
        return False  # a leftover of a process that had our number
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


# ------------------------------------------------------------------------------------------------------------ reading


def read(path: Path) -> Content:
    """The content of an intact checkpoint; raises CheckpointError for anything else, OSError if it cannot be read."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is not a file")
        size = status.st_size
        first = file.read(len(_FIRST_LINE))
        if first != _FIRST_LINE:
            raise _other_kind(path, first + file.read(20))
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        begin = len(_FIRST_LINE) + _LENGTH_BYTES
        if length > min(size - begin - _DIGEST_BYTES, _LARGEST_HEADER):
            raise CheckpointError(f"{path} is damaged: it is cut off, or its header is")
        _check_digest(path, file, size)
        file.seek(begin)
        try:
            header = json.loads(file.read(length))
            content = _Arrays(file, size - _DIGEST_BYTES).filled(header)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            raise CheckpointError(f"{path} is damaged: its header is not what trsvr writes ({error})") from None
        if file.tell() != size - _DIGEST_BYTES or not isinstance(content, dict):
            raise CheckpointError(f"{path} is damaged: header and arrays do not agree")
        return content


def _other_kind(path: Path, begin: bytes) -> CheckpointError:
    line, newline, _ = begin.partition(b"\n")
    if newline and line.startswith(_MAGIC) and line[len(_MAGIC) :].isdigit():
        number = int(line[len(_MAGIC) :])
        return CheckpointError(
            f"{path} is a checkpoint of format {number}, from another version of trsvr; this one reads {FORMAT}"
        )
    return NotACheckpoint(f"{path} is not a checkpoint of trsvr, or its beginning is damaged; it is left as it is")


def _check_digest(path: Path, file: Any, size: int) -> None:
    digest = hashlib.sha256()
    file.seek(0)
    left = size - _DIGEST_BYTES
    while left > 0:
        piece = file.read(min(_CHUNK, left))
        if not piece:
            raise CheckpointError(f"{path} is damaged: it is cut off")
        digest.update(piece)
        left -= len(piece)
    if file.read() != digest.digest():
        raise CheckpointError(f"{path} is damaged: its checksum does not agree with its content")


class _Arrays:
    """Puts arrays, in order, into the places that the header describes."""

    def __init__(self, file: Any, end: int) -> None:
        self._file = file
        self._end = end

    def filled(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.filled(entry) for entry in value]
        if isinstance(value, dict):
            if set(value) == {"array", "shape"}:
                return self._next(value["array"], value["shape"])
            return {name: self.filled(entry) for name, entry in value.items()}
        return value

    def _next(self, kind: Any, shape: Any) -> NDArray[Any]:
        if kind not in _DTYPES or not isinstance(shape, list) or len(shape) > 8:
            raise ValueError("an array of an unknown kind")
        if any(type(length) is not int or not 0 <= length < 2**62 for length in shape):
            raise ValueError("an array of an impossible shape")
        dtype = np.dtype(kind)
        size = dtype.itemsize
        for length in shape:
            size *= length
        if size > self._end - self._file.tell():
            raise ValueError("an array that is larger than the file")
        array: NDArray[Any] = np.empty(shape, dtype)
        if array.size and self._file.readinto(raw_bytes(array)) != size:
            raise ValueError("an array that is cut off")
        return array.astype(dtype.newbyteorder("="), copy=False)


def newest_intact(path: Path, *, quiet: bool = False) -> tuple[Content, bool] | None:
    """The newest checkpoint that is intact, and whether it is the one at ``path``; None where there is none at all.

    If the newest is damaged, or was lost in a crash, the previous one is taken, and that is said in the log (unless
    ``quiet``). Raises CheckpointError if neither can be used.
    """
    foreign = False
    try:
        return read(path), True
    except FileNotFoundError:
        reason = None
    except CheckpointError as error:
        reason, foreign = str(error), isinstance(error, NotACheckpoint)
    older = previous(path)
    try:
        content = read(older)
    except FileNotFoundError:
        if reason is None:
            return None
        raise CheckpointError(f"{reason}; there is no {older.name}. {_way_out(foreign)}") from None
    except CheckpointError as error:
        foreign = foreign or isinstance(error, NotACheckpoint)
        raise CheckpointError(f"{reason or f'{path} is missing'}; and {error}. {_way_out(foreign)}") from None
    if not quiet:
        _log.warning("%s; going on from %s, the checkpoint before it", reason or f"{path} is missing", older)
    return content, False


def _way_out(foreign: bool) -> str:
    return "Name another file for the checkpoint" if foreign else "Choose another file, or remove it to start over"
