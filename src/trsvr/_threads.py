"""The one pool of threads that full passes over the data share.

Compiled kernels release the GIL, so plain Python threads run them side by side. Unlike Numba's own parallel layers
this survives `fork` and several callers at once. The calling thread always takes part, so with one thread nothing is
started and nothing is handed over.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr._compile import kernel
from trsvr._intrinsics import read_shared

# How often a waiting thread looks before it sleeps: about a sixth of a millisecond. Between two passes over small data
# there is less than that, and to be woken takes a tenth of a pass; to look for longer would cost other work more.
_LOOKS = 500_000
# How often it looks on once it is called: whoever calls holds the GIL until it is in compiled code, some microseconds
# later. To ask for the GIL before that is to be put to sleep, and that takes twenty.
_LOOKS_ON = 30_000
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


@kernel()
def _watch(bell: NDArray[np.int64], heard: int, looks: int, looks_on: int) -> None:
    """Look at the bell until it has rung again, or so many times; and then so many times more."""
    for _ in range(looks):
        if read_shared(bell) != heard:
            break
    for _ in range(looks_on):
        if read_shared(bell) == heard:  # nobody has called
            return


class _Bell:
    """Wakes one waiting thread.

    Passes follow one another within microseconds, and the system takes some fifty to wake a thread: so the waiting one
    keeps looking for a moment, without the GIL, before it goes to sleep.
    """

    def __init__(self, looks_on: int = 0) -> None:
        self._rung = np.zeros(1, dtype=np.int64)
        self._heard, self._looks_on = 0, looks_on
        self._asleep = False
        self._wake = threading.Semaphore(0)

    def ring(self) -> None:
        self._rung[0] += 1
        if self._asleep:
            self._wake.release()

    def wait(self) -> None:
        _watch(self._rung, self._heard, _LOOKS, self._looks_on)
        while self._rung[0] == self._heard:
            self._asleep = True
            # It may have rung just before that; if it rings from now on, it sees that somebody sleeps.
            if self._rung[0] == self._heard:
                self._wake.acquire()
            self._asleep = False
        self._heard += 1


class _Helper(threading.Thread):
    """A thread that does one task at a time for whoever has borrowed it."""

    def __init__(self) -> None:
        super().__init__(name="trsvr", daemon=True)
        self._begin, self._end = _Bell(_LOOKS_ON), _Bell()
        self._tasks: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        while True:
            self._begin.wait()
            try:
                task = self._tasks.pop()
            except IndexError:  # taken back before it began
                continue
            try:
                task()
            except BaseException as error:
                self._error = error
            del task
            self._end.ring()

    def submit(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        self._begin.ring()

    def finish(self) -> None:
        """Take the task back if it has not begun (nothing would be left to fetch), else wait for its end."""
        try:
            self._tasks.pop()
        except IndexError:
            self._end.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error


_idle: collections.deque[_Helper] = collections.deque()
_started = 0


def _forget_helpers() -> None:
    global _started
    _idle.clear()
    _started = 0


if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget_helpers)


def _borrow(count: int) -> list[_Helper]:
    """Up to ``count`` helpers that nobody uses now; more are started while there are fewer than that."""
    global _started
    helpers: list[_Helper] = []
    while len(helpers) < count:
        try:
            helpers.append(_idle.pop())
        except IndexError:
            if _started >= count:
                break
            _started += 1
            helpers.append(_Helper())
    return helpers


def run(task: Callable[[], None], helper_task: Callable[[], None], parts: int, abandon: Callable[[], None]) -> None:
    """Work off `parts` pieces that the tasks fetch for themselves.

    `task` runs here, `helper_task` in as many other threads as are allowed and useful. If this thread is interrupted,
    `abandon` tells the helpers to fetch nothing more, and they have finished when this function raises.
    """
    wanted = min(current(), parts) - 1
    if wanted < 1:
        task()
        return
    helpers = _borrow(wanted)
    try:
        for helper in helpers:
            helper.submit(helper_task)
        task()
    except BaseException:
        abandon()
        raise
    finally:
        for helper in helpers:
            helper.finish()
            _idle.append(helper)


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
