"""Random rows of an epoch, in slices of any length: how they are cut does not change them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from trsvr._arrays import Indices
from trsvr._draws import Draws, generator

# A slice lasts about this long, so that Ctrl-C and a time limit are noticed between two of them.
_SLICE_SECONDS = 0.05
_LARGEST_SLICE = 2**22


class RowSource:
    """Hands out the rows of an epoch, in slices that take about `_SLICE_SECONDS` of work each."""

    def __init__(self, seed: int, n_samples: int) -> None:
        self.seed = seed
        self.n_samples = n_samples
        self.draws = Draws(seed, 0)
        self._deadline = math.inf
        self._steps = 1  # per slice; follows what the slices before have taken
        self.abandoned = False  # set by the loop when nobody waits for this epoch any more

    def begin(self, epoch: int, seconds: float) -> None:
        """Turn to an epoch that may take this many seconds."""
        self.draws = Draws(self.seed, epoch)
        self._deadline = time.perf_counter() + seconds

    def time_is_up(self) -> bool:
        """Whether the epoch should end as soon as it can."""
        return self.abandoned or time.perf_counter() >= self._deadline

    def slices(self, batch_size: int, steps: int, at_once: int | None = None) -> Iterator[Indices]:
        """Indices of ``steps`` batches; fewer if the time is up.

        ``at_once`` batches make a slice, for methods whose last digits depend on where the slices end; by default as
        many as take about `_SLICE_SECONDS`.
        """
        rng = generator(self.seed, self.draws.epoch)
        done = 0
        while done < steps:
            length = min(at_once or self._steps, steps - done, max(1, _LARGEST_SLICE // batch_size))
            indices = rng.integers(self.n_samples, size=length * batch_size)
            begun = time.perf_counter()
            yield indices
            seconds = time.perf_counter() - begun
            done += length
            if self.time_is_up():
                return
            if seconds < _SLICE_SECONDS / 2:
                self._steps = max(self._steps, 4 * length)
            elif seconds > 2 * _SLICE_SECONDS:
                self._steps = max(1, int(length * _SLICE_SECONDS / seconds))
