"""Random numbers of a run: functions of seed and epoch alone.

So compiled, plain and distributed runs use the same rows, the next epoch's rows can be fetched ahead, and a resumed run
goes on with the very same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trsvr._arrays import Indices

# What the adaptive mode and SDCA draw for.
_PURPOSES = {"matrix": 1, "batch": 2, "held": 5, "dual": 6}


def generator(seed: int, epoch: int, *more: int) -> np.random.Generator:
    """The random numbers of one epoch: ``Philox(SeedSequence([seed, epoch]))``."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, *more])))


def spread(n: int, count: int, random: np.random.Generator) -> Indices:
    """One random place of each of ``count`` equal parts of n: in order, and all equally likely."""
    places = (np.arange(count) + random.random(count)) * (n / count)
    return np.minimum(places.astype(np.int64), n - 1)


class Draws(NamedTuple):
    """The random numbers of one epoch of the adaptive mode: a stream for every purpose, whoever asks and when."""

    seed: int
    epoch: int

    def stream(self, purpose: str, number: int = 0) -> np.random.Generator:
        """The numbers for one purpose; there is one stream for every batch, and for every matrix."""
        return generator(self.seed, self.epoch, _PURPOSES[purpose], number)

    def key(self, purpose: str) -> int:
        """A number below 2³¹ from which a device draws: the last step of splitmix64 for each of what it depends on."""
        word = 0
        for number in (self.seed, self.epoch, _PURPOSES[purpose]):
            word = (word + number + 0x9E3779B97F4A7C15) % 2**64
            word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
            word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
            word ^= word >> 31
        return word >> 33


#: For a look aside that is no run's: all rows, say, of which none is drawn.
NO_EPOCH = Draws(0, 2**62)
