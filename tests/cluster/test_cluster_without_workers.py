"""A cluster that has lost its workers."""

from __future__ import annotations

import time

import numpy as np
import pytest
from small import LIMIT, classification, cut, small_cluster

import trsvr
import trsvr.dask


@pytest.fixture
def single():
    """Not the one that the other tests share: its worker leaves."""
    with small_cluster(1, memory_limit=LIMIT) as client:
        yield client


def test_no_worker_is_there_any_more(single):
    X, y = classification(300, 7)
    problem = trsvr.dask.LinearModel(cut(X, [100, 200]), cut(y, [100, 200]), client=single, patience=1.0)
    single.cluster.scale(0)
    deadline = time.monotonic() + 20
    while single.nthreads() and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(trsvr.problems.DataLostError, match=r"no worker has been there for 1 s"):
        problem.value_and_gradient(np.zeros(7))
