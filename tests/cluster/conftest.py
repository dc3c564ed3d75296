"""One small cluster for all tests of this folder: two worker processes."""

from __future__ import annotations

import pytest
from small import small_cluster


@pytest.fixture(scope="session")
def client():
    with small_cluster(2) as client:
        yield client
