"""Random numbers of a run: functions of seed and epoch alone.

So compiled, plain and distributed runs use the same rows, the next epoch's rows can be fetched ahead, and a resumed run
goes on with the very same numbers.
"""

from __future__ import annotations

import numpy as np


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The random numbers of one epoch: ``Philox(SeedSequence([seed, epoch]))``."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))


class Draws:
    """The random numbers of one epoch of the adaptive mode, made when they are first asked for: many need none."""

    def __init__(self, seed: int, epoch: int) -> None:
        self.seed, self.epoch = seed, epoch
        self._generator: np.random.Generator | None = None

    def stream(self, name: str, number: int = 0) -> np.random.Generator:
        """The numbers for one purpose."""
        if self._generator is None:
            self._generator = generator(self.seed, self.epoch)
        return self._generator


#: For a look aside that is no run's: all rows, say, of which none is drawn.
NO_EPOCH = Draws(0, 2**62)
