"""Two small clusters for all tests of this folder: starting a worker is what costs most here."""

from __future__ import annotations

import pytest
from small import LIMIT, small_cluster


@pytest.fixture(scope="session")
def client():
    with small_cluster(2) as client:
        yield client


@pytest.fixture(scope="session")
def single():
    """One worker with little memory."""
    with small_cluster(1, memory_limit=LIMIT) as client:
        yield client
