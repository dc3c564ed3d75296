"""One BLAS thread where BLAS is called: its threads spin while they wait, and beside other work that takes seconds."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import Any

# Up to so many columns LAPACK factors and solves on one thread anyway.
LONE_COLUMNS = 96
# Singular values and products with matrices of so many numbers, too.
_LONE_NUMBERS = 2048

_lock = threading.Lock()
_inside: set[int] = set()  # threads
_limit: Any = None


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be there to be found
    from threadpoolctl import ThreadpoolController  # not everybody needs it

    return ThreadpoolController().select(user_api="blas")


def _free() -> None:
    """Let any thread change the setting: threadpoolctl 3.8 ignores all but the first that did, and says nothing."""
    for library in _controller().lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)


class _Here(threading.local):
    held = False  # whether this thread is inside


_here = _Here()


class _Guard:
    """The setting is the process's: the first thread changes it, and the last to leave puts back what was found.

    A signal may end a run at any point of this. So threads are known by their number and not counted: what one of them
    has left behind it takes away when it comes again.
    """

    def __enter__(self) -> None:
        global _limit
        with _lock:
            if _limit is None and any(library.get_num_threads() != 1 for library in _controller().lib_controllers):
                _free()
                _limit = _controller().limit(limits=1)
            _inside.add(threading.get_ident())
        _here.held = True

    def __exit__(self, *error: object) -> None:
        global _limit
        _here.held = False
        with _lock:
            _inside.discard(threading.get_ident())
            if not _inside and _limit is not None:
                _free()
                _limit.restore_original_limits()
                _limit = None
                _free()


_guard, _nothing = _Guard(), contextlib.nullcontext()


def one_blas_thread() -> contextlib.AbstractContextManager[None]:
    """Let BLAS use one thread inside the block, and then as many as before; within another block nothing is done."""
    return _nothing if _here.held else _guard


def alone(matrix: Any) -> contextlib.AbstractContextManager[None]:
    """The same where a matrix is so large that BLAS would take more: beside other work they wait, and bits differ."""
    return one_blas_thread() if matrix.size > _LONE_NUMBERS else _nothing


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _inside.clear()
    _here.held = False


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads, and so nobody who would leave.
    os.register_at_fork(after_in_child=_forget)
