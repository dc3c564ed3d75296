"""One BLAS thread where BLAS is called: its threads spin while they wait, and beside other work that takes seconds."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
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
    leave the guard may be another one.
    """
    from threadpoolctl import OpenBLASController

    release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    release(force=True)
    try:
        return setting()
    finally:
        release(force=True)


class _Here(threading.local):
    held = False  # whether this thread is inside


_here = _Here()


class _Guard:
    """The setting is the process's: the first thread changes it, and the last to leave puts back what was found."""

    def __enter__(self) -> None:
        global _inside, _limit
        with _lock:
            if _inside == 0 and any(library.get_num_threads() != 1 for library in _controller().lib_controllers):
                _limit = _change(lambda: _controller().limit(limits=1))
            _inside += 1
        _here.held = True

    def __exit__(self, *error: object) -> None:
        global _inside, _limit
        _here.held = False
        with _lock:
            _inside -= 1
            if _inside == 0 and _limit is not None:
                _change(_limit.restore_original_limits)
                _limit = None


_guard, _nothing = _Guard(), contextlib.nullcontext()


def one_blas_thread() -> contextlib.AbstractContextManager[None]:
    """Let BLAS use one thread inside the block, and then as many as before; within another block nothing is done."""
    return _nothing if _here.held else _guard


def _forget() -> None:
    global _lock, _inside
    _lock, _inside = threading.Lock(), 0
    _here.held = False


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads, and so nobody who would leave.
    os.register_at_fork(after_in_child=_forget)
