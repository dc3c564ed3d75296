"""One thread: small tensors gain nothing from more, and two test processes would fight."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _quiet():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
