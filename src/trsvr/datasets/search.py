"""Which folders may hold a file, and under which names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from trsvr.datasets import cache
from trsvr.datasets.registry import DataFile

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


def find_all(file: DataFile, data_dir: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """The file in every folder that has it, in the order of search."""
    for folder in folders(data_dir):
        path = find(file, folder)
        if path is not None:
            yield path
