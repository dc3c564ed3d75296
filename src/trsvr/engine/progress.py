"""One line that shows how a run is doing, rewritten in place on stderr."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_BAR = 24
_EVERY_SECONDS = 0.1


class ProgressBar:
    """A bar over epochs, passes or seconds: whichever limit is nearest."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self.label = label
        self.stream = stream or sys.stderr
        self._shown = 0.0
        self._width = 0

    def update(self, row: dict[str, float], fraction: float | None, force: bool = False) -> None:
        """Show a row of the trace; ``fraction`` is the part of the nearest limit that is used up."""
        now = time.monotonic()
        if not force and now - self._shown < _EVERY_SECONDS:
            return
        self._shown = now
        if fraction is None:
            bar = " " * _BAR
        else:
            full = min(_BAR, int(fraction * _BAR))
            bar = "█" * full + "░" * (_BAR - full)
        text = (
            f"{self.label} |{bar}| epoch {row['epoch']:.0f}  {row['passes']:.1f} passes  {row['seconds']:.1f} s  "
            f"f {row['value']:.6g}  |g|² {row['gradient_norm_sq']:.1e}"
        )
        self.stream.write("\r" + text.ljust(self._width))
        self.stream.flush()
        self._width = len(text)

    def close(self) -> None:
        """Leave the last line standing."""
        if self._width:
            self.stream.write("\n")
            self.stream.flush()
