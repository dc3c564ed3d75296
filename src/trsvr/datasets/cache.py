"""Arrays kept on disk so that they can be mapped into memory: one folder an entry, one NPY file an array, no pickle.

An entry is written beside its place and the folder renamed, so it is there whole or not at all. What is read is
compared with what was noted when it was written; an entry that does not agree is removed and made again by the caller.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _files, _folders

# Part of every key: a new number makes the entries of older versions of the package unknown. To be raised when the
# reader, a way of preprocessing or the layout of an entry changes its result.
_FORMAT = 1
_FACTS = "facts.json"


def data_folder() -> Path | None:
    """The user's folder for data sets; None where there is no place to write."""
    return _folders.private_folder("data")


def key(*parts: object) -> str:
    """Name of an entry, from everything that decides its content."""
    return hashlib.sha256(json.dumps([_FORMAT, *map(str, parts)]).encode()).hexdigest()[:40]


def store(name: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bool:
    """Write an entry; False where there is no place to write. If another process was faster, its entry stays."""
    root = data_folder()
    if root is None:
        return False
    place = root / "arrays" / name
    try:
        place.parent.mkdir(exist_ok=True)
        with _files.folder_beside(place) as beside:
            parts = {}
            # Without fsync a power failure after the renaming may leave files of the right size and no content.
            for part, array in arrays.items():
                with open(beside / f"{part}.npy", "wb") as stream:
                    np.save(stream, array, allow_pickle=False)
                    os.fsync(stream.fileno())
                parts[part] = {
                    "dtype": array.dtype.str,
                    "shape": list(array.shape),
                    "bytes": (beside / f"{part}.npy").stat().st_size,
                }
            with open(beside / _FACTS, "w", encoding="utf-8") as text:
                json.dump({"arrays": parts, "facts": dict(facts)}, text, indent=1)
                text.flush()
                os.fsync(text.fileno())
            # Fails if the entry exists by now.
            with contextlib.suppress(OSError):
                beside.rename(place)
            return place.is_dir()
    except OSError:
        # A full disk must not keep anybody from the data that is already in memory.
        return False


def fetch(name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """The arrays, mapped read-only, and the facts of an entry; None where there is none or it is damaged."""
    root = data_folder()
    if root is None:
        return None
    place = root / "arrays" / name
    try:
        noted = json.loads((place / _FACTS).read_text(encoding="utf-8"))
        arrays = {part: _mapped(place / f"{part}.npy", about) for part, about in noted["arrays"].items()}
        return arrays, dict(noted["facts"])
    except FileNotFoundError:
        if not place.exists():
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    _remove(place)
    return None


def _mapped(path: Path, about: Mapping[str, Any]) -> NDArray[Any]:
    if path.stat().st_size != about["bytes"]:
        raise ValueError(f"{path} has a wrong size")
    empty = 0 in about["shape"]
    array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    if array.dtype.str != about["dtype"] or list(array.shape) != about["shape"]:
        raise ValueError(f"{path} has a wrong type or shape")
    # A plain array over the mapped file: the subclass costs time in every slice and has no use for us.
    return array.view(np.ndarray)


def _remove(place: Path) -> None:
    """Remove an entry; renamed first, so that nobody meets half of it."""
    with contextlib.suppress(OSError), _files.folder_beside(place) as aside:
        place.rename(aside / "entry")
