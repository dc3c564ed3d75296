"""Files and folders that are there whole or not at all: written beside their place and renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside the given place, renamed to it when the block ends well and removed otherwise."""
    place = Path(path)
    number, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.absolute().parent)
    os.close(number)
    with moved(Path(name), place):
        yield Path(name)
        os.chmod(name, usual_rights(0o666))


@contextlib.contextmanager
def moved(part: Path, place: Path) -> Iterator[None]:
    """Rename a file that the block writes when the block ends well; remove it otherwise."""
    try:
        yield
        os.replace(part, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


@contextlib.contextmanager
def folder_beside(place: Path) -> Iterator[Path]:
    """A new folder beside the given place, for the block to fill and to rename; what is not renamed is removed."""
    beside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.absolute().parent))
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def usual_rights(mode: int) -> int:
    """The rights any new file or folder gets; what `tempfile` makes only the user may read."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mode & ~mask
