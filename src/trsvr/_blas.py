"""One BLAS thread where BLAS is called: its threads spin while they wait, and beside other work that takes seconds."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Up to so many columns LAPACK factors and solves on one thread anyway.
LONE_COLUMNS = 96

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be there to be found
    from threadpoolctl import ThreadpoolController  # not everybody needs it

    return ThreadpoolController().select(user_api="blas")


def _change(setting: Callable[[], Any]) -> Any:
    """Change what the process's BLAS may use, from any thread.

    Since 3.8 threadpoolctl lets only the thread that came first change OpenBLAS, and ignores all others: the last to
    leave the block below may be another one.
    """
    from threadpoolctl import OpenBLASController

    release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    release(force=True)
    try:
        return setting()
    finally:
        release(force=True)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside the block, and then as many as before.

    The setting is the process's: the first caller changes it, and the last to leave puts back what was found.
    """
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = _change(lambda: _controller().limit(limits=1))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _change(_limit.restore_original_limits)
                _limit = None


def _forget() -> None:
    global _lock, _inside
    _lock, _inside = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads, and so nobody who would leave.
    os.register_at_fork(after_in_child=_forget)
