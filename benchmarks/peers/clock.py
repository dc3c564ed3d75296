"""Time of a call, with its warnings and its chatter kept out of the way."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable
from typing import Any


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what it returned."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        result = call()
        return time.perf_counter() - begun, result
