"""Rounds and bytes, counted by a plugin in the scheduler."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass, fields
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin


@dataclass
class Counts:
    """What has gone over the network.

    Attributes
    ----------
    rounds : int
        Times that the caller has sent tasks and waited.
    tasks : int
    to_workers : int
        Bytes of the tasks' arguments: the point x, numbers of rows. A long x goes once to every worker.
    to_caller : int
        Bytes of the results that the caller has asked for: sums, rows.
    between_workers : int
        Bytes of results that another worker needed: partial sums on their way up the tree.
    blocks_copied : int
        Bytes of blocks that Dask has copied to an idle worker because it thought that this pays; they stay there.
    largest : int
        Bytes of the largest single thing that travelled, blocks apart.
    """

    rounds: int = 0
    tasks: int = 0
    to_workers: int = 0
    to_caller: int = 0
    between_workers: int = 0
    blocks_copied: int = 0
    largest: int = 0

    def __sub__(self, other: Counts) -> Counts:
        """What has been added since; ``largest`` stays."""
        more = {one.name: getattr(self, one.name) - getattr(other, one.name) for one in fields(self)}
        return Counts(**{**more, "largest": self.largest})

    @property
    def moved(self) -> int:
        """All bytes."""
        return self.to_workers + self.to_caller + self.between_workers + self.blocks_copied


# Results that stay on the workers although the caller holds on to them: the blocks.
_STAY = ("trsvr-raw-", "trsvr-block-")
# What the caller has sent to all workers before the tasks.
_SENT = "trsvr-point-"


class TrafficPlugin(SchedulerPlugin):  # type: ignore[misc]  # Dask carries no types
    """Counts the tasks whose names begin with ``prefix``."""

    def __init__(self, name: str, prefix: str) -> None:
        self.name, self.prefix = name, prefix
        self.counts = Counts()
        self._wanted: set[Any] = set()
        self._seen: set[Any] = set()
        self._places: dict[Any, set[str]] = {}
        self._scheduler: Any = None

    async def start(self, scheduler: Any) -> None:
        """Called by Dask when the plugin is registered."""
        self._scheduler = scheduler

    def _is_ours(self, key: Any) -> bool:
        return str(key).startswith(self.prefix) and not str(key).startswith((*_STAY, _SENT))

    def update_graph(self, scheduler: Any, *, keys: set[Any], tasks: list[Any], **more: Any) -> None:
        """New tasks: a round, if they are ours."""
        ours = [key for key in tasks if self._is_ours(key) and key not in self._seen]
        if not ours:
            return
        self._seen.update(ours)
        self.counts.rounds += 1
        self.counts.tasks += len(ours)
        self._wanted |= keys
        for key in ours:
            known = scheduler.tasks.get(key)
            if known is not None and known.run_spec is not None:
                self.counts.to_workers += len(pickle.dumps(known.run_spec))
                for needed in known.dependencies:
                    if str(needed.key).startswith(_SENT) and needed.key not in self._seen:
                        self._seen.add(needed.key)
                        self._move("to_workers", needed.nbytes, max(1, len(needed.who_has or ())))

    def transition(self, key: Any, start: str, finish: str, *arguments: Any, **more: Any) -> None:
        """A task has been done: what did its worker have to fetch, and who wants the result."""
        if finish in ("released", "forgotten"):
            self._places.pop(key, None)
            if finish == "forgotten":
                self._wanted.discard(key)
                self._seen.discard(key)
            return
        if finish != "memory" or "worker" not in more:
            return
        worker, task = more["worker"], self._scheduler.tasks[key]
        self._places[key] = {worker}
        for needed in task.dependencies:
            places = self._places.setdefault(needed.key, {state.address for state in needed.who_has or ()})
            if worker not in places:
                places.add(worker)
                self._move("blocks_copied" if str(needed.key).startswith(_STAY) else "between_workers", needed.nbytes)
        if key in self._wanted and self._is_ours(key):
            self._move("to_caller", more.get("nbytes") or task.nbytes)

    def _move(self, which: str, size: int, times: int = 1) -> None:
        setattr(self.counts, which, getattr(self.counts, which) + times * size)
        if which != "blocks_copied":
            self.counts.largest = max(self.counts.largest, size)


class Traffic:
    """Counts rounds and bytes of the problems of this package while the block lasts.

    >>> with trsvr.dask.Traffic(client) as traffic:   # doctest: +SKIP
    ...     trsvr.minimize(problem)
    >>> traffic.counts()                              # doctest: +SKIP

    Parameters
    ----------
    client : distributed.Client
    prefix : str
        Beginning of the names of the tasks that count.
    """

    def __init__(self, client: Client, prefix: str = "trsvr-") -> None:
        self._client = client
        self._plugin = TrafficPlugin(f"trsvr-traffic-{uuid.uuid4().hex[:8]}", prefix)
        self._last = Counts()

    def __enter__(self) -> Traffic:
        self._client.register_plugin(self._plugin)
        return self

    def __exit__(self, *_: object) -> None:
        self._last = self.counts()
        self._client.unregister_scheduler_plugin(self._plugin.name)
        self._plugin.name = ""

    def counts(self) -> Counts:
        """What has been counted so far."""
        if not self._plugin.name:
            return self._last
        return self._client.run_on_scheduler(_read, name=self._plugin.name)


def _read(dask_scheduler: Any, name: str) -> Counts:
    counts: Counts = dask_scheduler.plugins[name].counts
    return counts
