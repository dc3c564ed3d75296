"""Which folders may hold a file, and under which names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from trsvr.datasets import cache
from trsvr.datasets.registry import ENTRIES, DataFile, Entry

SUFFIXES = ("", ".bz2", ".gz", ".xz")


def folders(data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where files are looked for, in this order: the argument, ``TRSVR_DATA_DIR``, the user's cache."""
    places = []
    if data_dir is not None:
        given = Path(data_dir)
        if not given.is_dir():
            raise ValueError(f"data_dir must be a folder, got {os.fspath(data_dir)!r}")
        places.append(given)
    named = os.environ.get("TRSVR_DATA_DIR")
    if named:
        places.append(Path(named).expanduser())
    own = own_folder()
    if own is not None:
        places.append(own)
    return places


def own_folder() -> Path | None:
    """The folder in the user's cache that receives downloaded files; None where there is no place to write."""
    root = cache.data_folder()
    return None if root is None else root / "files"


def names(file: DataFile) -> list[str]:
    """Names under which a folder may hold a file: those of the site, then our own, plain or compressed."""
    plain = file.upstream.removesuffix(".bz2")
    return list(dict.fromkeys([file.upstream, *(base + suffix for base in (plain, file.local) for suffix in SUFFIXES)]))


def find(file: DataFile, folder: Path) -> Path | None:
    """The file in a folder."""
    for name in names(file):
        path = folder / name
        if path.is_file():
            return path
    return None


def candidates(entry: Entry, split: str, data_dir: str | os.PathLike[str] | None) -> Iterator[tuple[Entry, Path]]:
    """Files that would do, folder by folder; in each the data set itself comes before its substitute."""
    accepted = [entry] if entry.substitute is None else [entry, ENTRIES[entry.substitute]]
    for folder in folders(data_dir):
        for candidate in accepted:
            file = candidate.file(split)
            path = None if file is None else find(file, folder)
            if path is not None:
                yield candidate, path
                break
