"""The rows of an epoch, fetched before they are needed.

The indices of epoch k are a function of the seed and of k alone. So the rows can be sent for together with the full
gradient at which the epoch begins; where they are too many for this process at once, they come in parts, each while
the steps on the part before are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from trsvr._arrays import Indices
from trsvr._draws import generator
from trsvr.dask.blocks import join
from trsvr.problems.linear import LinearModel

if TYPE_CHECKING:
    from trsvr.dask.model import LinearModel as DaskModel
    from trsvr.dask.rounds import Round


class Here:
    """Some rows as a problem in this process's memory; `numbers` says where each of them lies in it."""

    def __init__(self, model: DaskModel, indices: Indices, counted: bool = True) -> None:
        self._model = model
        self.distinct = np.unique(indices)
        self.wanted = model.split(self.distinct, counted)
        self.counted = counted
        self._round: Round | None = None
        self._problem: LinearModel | None = None

    def comes_with(self, sent: Round) -> None:
        """The round that brings the rows."""
        self._round = sent

    def problem(self) -> LinearModel:
        """The rows; waits for them."""
        if self._problem is None:
            if self._round is None:
                self._round = self._model.rounds.start(None, wanted=self.wanted, counted=self.counted)
            self._problem = join(self._round.rows(), self._model.formulas)
            self._round = None
        return self._problem

    def numbers(self, indices: Indices) -> Indices:
        """Where these rows lie; all must be here."""
        return np.searchsorted(self.distinct, indices)


class EpochStream:
    """The indices of one epoch, in parts that fit into this process."""

    def __init__(self, model: DaskModel, seed: int, epoch: int, batch_size: int, steps: int, rows_at_once: int) -> None:
        self._model = model
        self.key = (seed, epoch, batch_size, steps)
        self._random = generator(seed, epoch)
        self._per_part = max(1, rows_at_once // batch_size) * batch_size
        self._left = steps * batch_size
        self.ahead: tuple[Indices, Here] | None = self._draw()
        self._now: tuple[Indices, Here] | None = None
        self._begin = 0
        self.sent = False  # whether the first part is on its way

    @property
    def begun(self) -> bool:
        """Whether rows have been taken from it."""
        return self._now is not None

    def _draw(self) -> tuple[Indices, Here] | None:
        size = min(self._per_part, self._left)
        if size == 0:
            return None
        self._left -= size
        indices = self._random.integers(self._model.n_samples, size=size)
        return indices, Here(self._model, indices)

    def _turn(self) -> bool:
        """Go on to the next part, and send for the one after it."""
        if self.ahead is None:
            return False
        self._now, self._begin = self.ahead, 0
        self._now[1].problem()
        self.ahead = self._draw()
        if self.ahead is not None:
            here = self.ahead[1]
            here.comes_with(self._model.rounds.start(None, wanted=here.wanted))
        return True

    def take(self, indices: Indices) -> Iterator[tuple[Any, Indices]]:
        """Problems with these rows, which are the next ones of the epoch; ends early where they are not."""
        while indices.size:
            if (self._now is None or self._begin == self._now[0].size) and not self._turn():
                return
            assert self._now is not None
            part, here = self._now
            size = min(indices.size, part.size - self._begin)
            if not np.array_equal(part[self._begin : self._begin + size], indices[:size]):
                return
            self._begin += size
            yield here.problem(), here.numbers(indices[:size])
            indices = indices[size:]
