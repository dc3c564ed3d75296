"""Where the package keeps what it can make again: compiled kernels and data sets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs


def is_private(folder: Path) -> bool:
    """Whether only this user can have put files there."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def private_folder(*parts: str) -> Path | None:
    """A writable folder inside the user's cache, private to the user; None where no such folder can be made.

    ``TRSVR_CACHE_DIR`` replaces the system's place for caches; where that cannot be written, a folder with the user's
    number beside the temporary files is taken.
    """
    chosen = os.environ.get("TRSVR_CACHE_DIR")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    roots = [
        Path(chosen) if chosen else Path(platformdirs.user_cache_dir("trsvr")),
        Path(tempfile.gettempdir()) / f"trsvr-{user}",
    ]
    for root in roots:
        folder = root.joinpath(*parts)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (root / parts[0]).chmod(0o700)
            if is_private(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return None
