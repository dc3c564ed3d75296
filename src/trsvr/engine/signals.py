"""Ctrl-C and a request to terminate: noticed at once, acted upon where nothing can be left half-done.

While a run computes, a signal ends the computation right away; while it records, writes or looks at what it has, the
signal waits until that is complete. Long native calls (compiling, a step on very many rows, a factorisation) cannot be
ended, so they are handed to a thread of their own, and this one waits for them or for the signal.

One signal ends one run, which returns its best point. Who asks twice, in the same run or in the next one of a loop a
few seconds later, wants out: then KeyboardInterrupt is raised.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ClassVar, TypeVar

from trsvr import _threads

Answer = TypeVar("Answer")

#: Ctrl-C within so many seconds of the one before, which has ended a run, means the whole program.
_TWICE_SECONDS = 5.0


class Interrupted(KeyboardInterrupt):
    """A signal has asked this run to stop."""


class Stop:
    """Whether, and by which signal, a run has been asked to stop; ``insisted`` says that it was for the second time."""

    #: when the last Ctrl-C came, in any run of this process
    _last_interrupt: ClassVar[float] = -math.inf

    def __init__(self) -> None:
        self.by: str | None = None
        self.insisted = False
        self.installed = False
        self._armed = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[Stop]:
        """Handle SIGINT and SIGTERM inside the block, as far as nobody else does; the old handlers come back after it.

        A handler of the user's own stays, and so does a signal that is ignored. Only the main thread may have handlers;
        in any other one nothing happens here.
        """
        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) == usual:
                    before[number] = signal.signal(number, self._handle)
        self.installed = bool(before)
        try:
            yield self
        finally:
            for caught, handler in before.items():
                signal.signal(caught, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        second = self.by is not None
        self.by = signal.Signals(number).name
        now = time.monotonic()
        again = number == signal.SIGINT and now - Stop._last_interrupt < _TWICE_SECONDS
        self.insisted = self.insisted or second or again
        if number == signal.SIGINT:
            Stop._last_interrupt = now
        if self._armed or second:  # who asks twice does not want to wait for anything
            raise Interrupted

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Let a signal end what happens inside the block."""
        before, self._armed = self._armed, True
        try:
            self.check()
            yield
        finally:
            self._armed = before

    def hold(self, block: Callable[[], Answer]) -> Answer:
        """The answer of a call that a signal waits for."""
        before, self._armed = self._armed, False
        try:
            answer = block()
        finally:
            self._armed = before
        self.check()
        return answer

    def check(self) -> None:
        """End the run if a signal has come."""
        if self.by is not None:
            raise Interrupted

    def compute(self, call: Callable[[], Answer], lasts: bool) -> Answer:
        """The answer of a call that a signal may end; ``lasts`` says that it may be long without a chance to do so."""
        before, self._armed = self._armed, True
        try:
            self.check()
            return _threads.handed_over(call) if lasts and self.installed else call()
        finally:
            self._armed = before
