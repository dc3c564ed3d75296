"""Two small clusters for all tests of this folder: starting a worker is what costs most here."""

from __future__ import annotations

import contextlib
from pathlib import Path

import distributed
import pytest
from small import LIMIT, small_cluster

_clusters: dict[str, distributed.Client] = {}
_closing = contextlib.ExitStack()


def _shared(name: str, workers: int, **options) -> distributed.Client:
    if name not in _clusters:
        _clusters[name] = _closing.enter_context(small_cluster(workers, **options))
    return _clusters[name]


@pytest.fixture(scope="module")
def client():
    return _shared("two workers", 2)


@pytest.fixture(scope="module")
def single():
    """One worker with little memory."""
    return _shared("one worker", 1, memory_limit=LIMIT)


# Not fixtures of the session: with nothing to do the clusters would take a fifth of a core from all tests that follow.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        pytest_sessionfinish()


def pytest_sessionfinish():
    _clusters.clear()
    _closing.close()
