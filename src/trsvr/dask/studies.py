"""The jobs of a study on the workers of a cluster: what `trsvr paper run --scheduler` does.

Data sets are read on the workers, from their own folders (``TRSVR_DATA_DIR`` there). One that they do not find but the
caller has is sent: to one worker, and from there to every other that needs it, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from distributed import Client
from distributed.scheduler import KilledWorker

from trsvr.dask.jobs import run_jobs
from trsvr.experiments.jobs import code_hash, versions
from trsvr.experiments.subjects import Subject


class OnCluster:
    """A mapper of `trsvr.experiments.runner.Runner`: work on every item, on whichever worker is free.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._shipped: dict[Subject, Any] = {}

    def ship(self, subject: Subject) -> None:
        """Send a problem's data to the cluster, for those of its workers that will need it."""
        self._shipped[subject] = self.client.scatter(subject.dataset(), hash=False)

    def __call__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield (item, what the work returned) as they finish; the first failure ends it."""
        call = _Work(work, (code_hash(), versions()))
        data = [self._shipped.get(_subject_of(item)) for item in items]
        try:
            for number, answer in run_jobs(call, items, self.client, retries=0, data=data):
                if isinstance(answer, BaseException):
                    raise answer
                yield items[number], answer
        except KilledWorker as error:
            raise OSError(f"workers died again and again at {error.task}: is their memory too small?") from None
        except CancelledError:
            raise ConnectionError("the connection to the scheduler is lost; what is finished is kept") from None


def _subject_of(item: Any) -> Subject:
    found: Subject = item if isinstance(item, Subject) else item.subject
    return found


class _Work:
    """What a worker does with an item, having made sure that it has the caller's library."""

    def __init__(self, work: Callable[[Any], Any], code: Any) -> None:
        self.work, self.code = work, code

    def __call__(self, item: Any, data: Any = None) -> Any:
        mine = (code_hash(), versions())
        if mine != self.code:
            raise ValueError(
                f"a worker has another trsvr than the caller: {_described(mine)}, not {_described(self.code)}"
            )
        if data is not None:
            _subject_of(item).provide(data)
        return self.work(item)


def _described(code: Any) -> str:
    names = ", ".join(f"{name} {version}" for name, version in code[1].items())
    return f"{names}, sources {code[0][:8]}"
