"""``trsvr solve --dask`` and ``--scheduler``: the data on the workers of a Dask cluster; and how one is reached."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trsvr import _check
from trsvr.cli.tables import FORMATS, format_of

REMOTE_FORMATS = (*FORMATS, "zarr", "npy-stack")
_IN_BLOCKS = ("libsvm", "parquet", "zarr", "npy-stack")
# How long a scheduler may take to answer, and how long its first worker may take to come.
_ANSWER_SECONDS, _WORKER_SECONDS = 20, 120


@contextlib.contextmanager
def connected(scheduler: str | None, workers: int | None, memory_limit: str | None) -> Iterator[Any]:
    """A client of the scheduler at this address, or of workers that are started on this machine."""
    try:
        import distributed
        from dask.utils import parse_bytes

        import trsvr.dask
    except ImportError as error:
        raise ImportError("--dask and --scheduler need Dask: pip install 'trsvr[dask]'") from error
    if scheduler is not None:
        if workers is not None or memory_limit is not None:
            raise ValueError("--workers and --memory-limit are for --dask; the cluster at --scheduler has its own")
        try:
            client = distributed.Client(scheduler, timeout=_ANSWER_SECONDS)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--scheduler {scheduler}: no scheduler answers there ({error}); the address is what `dask scheduler` "
                "prints when it starts, such as tcp://10.0.0.1:8786"
            ) from None
        # What callbacks of a connection run into while Ctrl-C closes it is nobody's concern; real failures are raised.
        logging.getLogger("tornado.application").setLevel(logging.CRITICAL)
        with client:
            yield client
        return
    import trsvr._threads

    count = trsvr._threads.available() if workers is None else _check.whole("--workers", workers)
    if memory_limit is not None:
        try:
            parse_bytes(memory_limit)
        except ValueError:
            raise ValueError(f"--memory-limit must be a size such as 2GB, got {memory_limit!r}") from None
    with (
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=memory_limit or "auto",
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=True) as client,
    ):
        yield client


def count_of_workers(client: Any, scheduler: str) -> int:
    """How many tasks the cluster runs at the same time; waits for its first worker."""
    if not client.nthreads():
        print(f"trsvr: {scheduler} has no worker yet: waiting for one", file=sys.stderr, flush=True)
        try:
            client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except TimeoutError:
            raise ValueError(
                f"--scheduler {scheduler}: no worker has come in {_WORKER_SECONDS:g} s; "
                f"`dask worker {scheduler}` starts one"
            ) from None
    return int(sum(client.nthreads().values()))


def remote_format(path: Path, chosen: str) -> str:
    """The format of a file or folder, which must be there, and one that is read in blocks."""
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", str(path))
    kind = _check.one_of("--format", chosen, REMOTE_FORMATS)
    if kind == "auto":
        kind = _usual_format(path)
    if kind not in _IN_BLOCKS:
        raise ValueError(f"--dask reads {', '.join(_IN_BLOCKS[:-1])} and {_IN_BLOCKS[-1]}, got format {kind!r}")
    return kind


def _usual_format(path: Path) -> str:
    if path.suffix == ".zarr":
        return "zarr"
    if path.is_dir() and (path / "X" / "info").is_file():
        return "npy-stack"
    if path.is_dir() and any(path.glob("*.parquet")):
        return "parquet"
    return format_of(path)


def remote_problem(
    client: Any,
    path: Path,
    kind: str,
    target: str | None,
    zero_based: bool,
    objective: tuple[Any, Any],
    intercept: bool,
) -> tuple[Any, Any]:
    """The problem that the options describe, over blocks, and where they come from."""
    from trsvr.dask import LinearModel
    from trsvr.dask.readers import read

    source = read(path, kind, target, zero_based, client)
    return LinearModel(source.X, source.y, *objective, intercept=intercept, client=client), source
