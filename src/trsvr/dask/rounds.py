"""One round: a task on every block, a tree that adds up, and the rows that were asked for.

The tree's shape and the order in which it adds depend on the number of blocks alone, so a sum has the same bits
whichever worker answers first, however many there are, and however often one of them dies. Every task has a name of
its own, and Dask keeps one result for a name: an answer that comes late, or twice, is that same result.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from trsvr._arrays import Indices
from trsvr.dask.blocks import Block, Order, Own, Rowset, Sums, add, sums_on_block
from trsvr.problems.protocol import DataLostError

# Answers that one task of the tree adds up.
_FAN_IN = 8
# Longer vectors are sent to the workers once, instead of with every task.
_INLINE_BYTES = 2**16
_LOOK_SECONDS = 1.0
_MORE_TRIES, _PAUSE_SECONDS = 2, 1.0
Make = Callable[[], list[Any]]
_LOST = (CancelledError, CommClosedError, OSError)


class Round:
    """A round under way."""

    def __init__(self, rounds: Rounds, make_sums: Make | None, make_rows: Make | None) -> None:
        self._rounds, self._make_sums = rounds, make_sums
        makers = [make for make in (make_sums, make_rows) if make is not None]
        tasks = [make() for make in makers]
        # One graph: it is one message to the scheduler.
        futures = rounds.compute([task for part in tasks for task in part])
        count = len(tasks[0]) if make_sums is not None else 0
        self._sums, rows = futures[:count], futures[count:]
        # The rows travel while the caller waits for the sums.
        self._rows: Future[Any] | None = rounds.background.submit(rounds.collect, rows, make_rows) if rows else None

    def sums(self) -> Sums:
        """The sums over all blocks."""
        return self._rounds.collect(self._sums, self._make_sums)[0]

    def rows(self) -> list[Rowset]:
        """The rows that were asked for, in the order of the blocks."""
        return [] if self._rows is None else self._rows.result()


def _fused(task: Any) -> Any:
    """The task with chains of tasks made one. Dask's own switch for this is global, and other threads would see it."""
    try:
        from dask._task_spec import fuse_linear_task_spec
    except ImportError:  # another version: the same results, more traffic
        return task
    return Delayed(task.key, fuse_linear_task_spec(dict(task.__dask_graph__()), [task.key]))


class Rounds:
    """Sends orders to the blocks.

    Parameters
    ----------
    client : distributed.Client
    blocks : list
        One future or delayed object for every block: what lies on the workers, or how it is read again.
    patience : float
        Seconds without any worker after which the data counts as lost.
    """

    def __init__(self, client: Client, blocks: Sequence[Any], patience: float) -> None:
        self.client, self.blocks, self.patience = client, list(blocks), patience
        self.background = ThreadPoolExecutor(2, thread_name_prefix="trsvr-rows")
        self._numbers = itertools.count()
        self._name = uuid.uuid4().hex[:8]

    def map(self, function: Any, *arguments: Any, own: Sequence[Any] | None = None) -> list[Any]:
        """``function(block, *arguments)`` on all blocks, with one argument more where each has its own."""
        name = f"trsvr-{function.__name__.replace('_', '-')}-{self._number()}"
        call = dask.delayed(function, pure=False)
        more: Sequence[Any] = [()] * len(self.blocks) if own is None else [(one,) for one in own]
        tasks = [call(block, *arguments, *more[i], dask_key_name=f"{name}-{i}") for i, block in enumerate(self.blocks)]
        return self.collect(self.compute(tasks))

    def compute(self, tasks: list[Any]) -> list[Any]:
        """Futures of the tasks.

        Where blocks are read anew, reading one and what is done with it become one task: between two tasks Dask might
        send the block to another worker.
        """
        if isinstance(self.blocks[0], Delayed):
            tasks = [_fused(task) for task in tasks]
        return self.client.compute(tasks)

    def start(
        self,
        order: Order | None,
        own: Sequence[Own] | None = None,
        wanted: Sequence[Indices] | None = None,
        counted: bool = True,
    ) -> Round:
        """Send a round: an order to all blocks, and the numbers of the rows that are wanted of each."""
        make_sums = None if order is None else lambda: [self._tree(self._number(), order, own)]
        make_rows = None if wanted is None else lambda: self._row_tasks(self._number(), wanted, counted)
        return Round(self, make_sums, make_rows)

    def _row_tasks(self, number: str, wanted: Sequence[Indices], counted: bool) -> list[Any]:
        fetch = dask.delayed(Block.take, pure=False)
        return [
            fetch(block, numbers, counted, dask_key_name=f"trsvr-rows-{number}-{i}")
            for i, (block, numbers) in enumerate(zip(self.blocks, wanted, strict=True))
            if numbers.size
        ]

    def _tree(self, number: str, order: Order, own: Sequence[Own] | None) -> Any:
        point: Any = None
        if sum(np.asarray(one).nbytes for one in (order.x, order.product) if one is not None) > _INLINE_BYTES:
            name = f"trsvr-point-{number}"
            point = self.client.scatter({name: (order.x, order.product)}, broadcast=True)[name]
            order = order._replace(x=None, product=None)
        call, adding = dask.delayed(sums_on_block, pure=False), dask.delayed(add, pure=False)
        level = [
            call(block, order, point, None if own is None else own[i], dask_key_name=f"trsvr-sums-{number}-{i}")
            for i, block in enumerate(self.blocks)
        ]
        depth = 0
        while len(level) > 1:
            depth += 1
            level = [
                adding(level[i : i + _FAN_IN], dask_key_name=f"trsvr-add-{number}-{depth}-{i}")
                for i in range(0, len(level), _FAN_IN)
            ]
        return level[0]

    def collect(self, futures: list[Any], again: Make | None = None) -> list[Any]:
        """Results, or `DataLostError` when they cannot be had any more.

        Tasks are pure, so what a broken connection has taken along may be sent ``again``.
        """
        for left in reversed(range(1 + _MORE_TRIES)):
            try:
                self.wait_for(futures)
                return self.client.gather(futures)
            except KilledWorker as error:
                reason = f"the workers of task {error.task} died again and again; is a block too large?"
                raise DataLostError(reason) from error
            except _LOST as error:
                if again is None or left == 0 or self.client.status != "running":
                    raise DataLostError(f"{type(error).__name__}: {error}") from error
                time.sleep(_PAUSE_SECONDS)
                futures = self.compute(again())
        raise AssertionError("the last try returns or raises")

    def wait_for(self, futures: list[Any]) -> None:
        """Wait until they are done; but not for ever where nobody works."""
        last_seen = time.monotonic()
        waiting = list(futures)
        while waiting:
            try:
                waiting[-1].exception(timeout=_LOOK_SECONDS)  # whatever it is: `gather` raises it
                waiting.pop()
            except TimeoutError:
                if self.client.status != "running":
                    raise DataLostError("the connection to the scheduler is lost") from None
                if self.client.nthreads():
                    last_seen = time.monotonic()
                elif time.monotonic() - last_seen > self.patience:
                    raise DataLostError(f"no worker has been there for {self.patience:g} s") from None

    def _number(self) -> str:
        return f"{self._name}-{next(self._numbers)}"
