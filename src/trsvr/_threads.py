"""The one pool of threads that full passes over the data share.

Compiled kernels release the GIL, so plain Python threads run them side by side. Unlike Numba's own parallel layers
this survives `fork` and several callers at once. The calling thread always takes part, so with one thread nothing is
started and nothing is handed over.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_chosen: contextvars.ContextVar[int | None] = contextvars.ContextVar("trsvr_threads", default=None)


def available() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def current() -> int:
    """Number of threads a full pass uses now."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    from_environment = os.environ.get("TRSVR_NUM_THREADS", "")
    return int(from_environment) if from_environment.isdigit() and int(from_environment) > 0 else available()


@contextlib.contextmanager
def limit(threads: int | None) -> Iterator[None]:
    """Use this many threads inside the block; None leaves the choice as it is."""
    if threads is None:
        yield
        return
    token = _chosen.set(threads)
    try:
        yield
    finally:
        _chosen.reset(token)


def _forget_pool() -> None:
    global _pool, _pool_size
    _pool, _pool_size = None, 0


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget_pool)


def _workers(count: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < count:
        # The old pool, if any, finishes what it has: another caller may still be using it.
        _pool, _pool_size = ThreadPoolExecutor(count, thread_name_prefix="trsvr"), count
    return _pool


def run(task: Callable[[], None], helper_task: Callable[[], None], parts: int, abandon: Callable[[], None]) -> None:
    """Work off `parts` pieces that the tasks fetch for themselves.

    `task` runs here, `helper_task` in as many other threads as are allowed and useful. If this thread is interrupted,
    `abandon` tells the helpers to fetch nothing more, and they have finished when this function raises.
    """
    helpers = min(current(), parts) - 1
    if helpers < 1:
        task()
        return
    futures = [_workers(helpers).submit(helper_task) for _ in range(helpers)]
    try:
        task()
    except BaseException:
        abandon()
        wait(futures)
        raise
    for future in futures:
        # A helper that has not begun (the pool serves another caller) would find nothing left to fetch.
        if not future.cancel():
            future.result()


# Calls that were given up while they were under way, and how long the end of the process waits for them: a thread
# that is inside LLVM or LAPACK while the process takes itself apart may crash it.
_given_up: list[threading.Thread] = []
_PATIENCE_SECONDS = 5.0


def handed_over(call: Callable[[], Any]) -> Any:
    """The answer (or exception) of a call that another thread makes, while this one can be interrupted at any moment.

    If that happens, the call goes on in the background to its end, and its answer is dropped.
    """
    answer: list[Any] = []
    done = threading.Event()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            answer.append((context.run(call), None))
        except BaseException as error:
            answer.append((None, error))
        finally:
            done.set()

    thread = threading.Thread(target=work, name="trsvr-epoch", daemon=True)
    thread.start()
    try:
        done.wait()
    except BaseException:
        if not done.is_set():
            _given_up[:] = [other for other in _given_up if other.is_alive()] + [thread]
        raise
    value, error = answer[0]
    if error is not None:
        raise error
    return value


@atexit.register
def _wait_for_given_up() -> None:
    for thread in _given_up:
        thread.join(_PATIENCE_SECONDS)
