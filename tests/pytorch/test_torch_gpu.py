"""Triton kernels against plain torch, on a CUDA device: the checks of benchmarks/gpu/check.py, one test each."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

_FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "check.py"


def _checks():
    specification = importlib.util.spec_from_file_location("gpu_checks", _FILE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return list(module.all_checks())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in _checks()])
def test_on_a_device(check):
    check()
