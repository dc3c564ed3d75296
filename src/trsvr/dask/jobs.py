"""Independent jobs, such as the runs of a study, on the workers of a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from distributed import Client, as_completed

from trsvr import _check, _threads

Job = TypeVar("Job")
Answer = TypeVar("Answer")


def run_jobs(
    function: Callable[..., Answer],
    jobs: Iterable[Job],
    client: Client,
    *,
    retries: int = 2,
    threads: int = 1,
    data: Sequence[Any] | None = None,
) -> Iterator[tuple[int, Answer | BaseException]]:
    """Run ``function(job)`` for every job on the cluster; yields number and answer of each as it is done.

    Parameters
    ----------
    function : callable
        What a job does. It must be importable on the workers, or defined in ``__main__``.
    jobs : iterable
        Descriptions of the jobs; they are sent as they are, so keep them small.
    client : distributed.Client
    retries : int
        How often a job that raises is tried again. A job whose worker dies is always sent to another one.
    threads : int
        Threads that a job may use for its full passes.
    data : sequence, optional
        For each job a future of what it needs, or None: then ``function(job, data)`` is called.

    Yields
    ------
    number, answer
        In the order in which they are done. A job that fails for good yields its exception and does not end the others.

    Notes
    -----
    Leaving the loop early, also by Ctrl-C, cancels the jobs that have not begun.
    """
    _check.whole("retries", retries, at_least=0)
    _check.whole("threads", threads)
    name = uuid.uuid4().hex[:8]
    futures = []
    for number, job in enumerate(jobs):
        more = () if data is None or data[number] is None else (data[number],)
        key = f"trsvr-job-{name}-{number}"
        futures.append(client.submit(_run, function, job, threads, *more, pure=False, retries=retries, key=key))
    numbers = {future.key: number for number, future in enumerate(futures)}
    try:
        with client.as_current():
            done = as_completed(futures)
        for future in done:
            failure = future.exception() if future.status in ("error", "lost") else None
            yield numbers[future.key], failure if failure is not None else future.result()
            future.release()
    finally:
        client.cancel([future for future in futures if not future.done()])


def _run(function: Callable[..., Any], job: Any, threads: int, *data: Any) -> Any:
    with _threads.limit(threads):
        return function(job, *data)
