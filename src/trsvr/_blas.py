"""One BLAS thread where BLAS is called: its threads spin while they wait, and beside other work that takes seconds."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

# Up to so many columns LAPACK factors and solves on one thread anyway.
LONE_COLUMNS = 96

_lock = threading.RLock()


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be there to be found
    from threadpoolctl import ThreadpoolController  # not everybody needs it

    return ThreadpoolController().select(user_api="blas")


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside the block, and then as many as before.

    The setting is the process's: one caller at a time, so that each puts back what it has found.
    """
    with _lock, _controller().limit(limits=1):
        yield


def _forget() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads, and so nobody who would open the lock.
    os.register_at_fork(after_in_child=_forget)
