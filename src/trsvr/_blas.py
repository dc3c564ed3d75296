"""One BLAS thread where BLAS is called: its threads spin while they wait, and beside other work that takes seconds."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

# Up to so many columns LAPACK factors and solves on one thread anyway.
LONE_COLUMNS = 96

_lock = threading.Lock()
_inside = 0  # callers that are within the guard now
_limiter: Any = None
_controller: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside the block; what was set before is set again when the last caller leaves."""
    global _inside, _limiter, _controller
    with _lock:
        if _inside == 0:
            if _controller is None:
                import scipy.linalg  # noqa: F401  # its BLAS must be there to be found
                from threadpoolctl import ThreadpoolController  # not everybody needs it

                _controller = ThreadpoolController().select(user_api="blas")
            _limiter = _controller.limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limiter.restore_original_limits()


def _forget() -> None:
    global _lock, _inside
    _lock, _inside = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads, and so no caller within the guard.
    os.register_at_fork(after_in_child=_forget)
