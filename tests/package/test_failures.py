"""A test that fails prints its random case and the command that repeats it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
FAILING = """
import numpy as np
import pytest
from cases import cases

@pytest.mark.parametrize("size", [3])
def test_rare(size):
    rng = np.random.default_rng(5)
    for _ in cases(50, seed=5):
        assert rng.uniform(size=size).max() < 0.99
"""


def test_the_case_and_the_command_are_printed(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(FAILING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "cases", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    rng = np.random.default_rng(5)
    first = next(case for case in range(50) if rng.uniform(size=3).max() >= 0.99)
    assert f"case {first}, seed 5" in done.stdout, done.stdout
    assert "repeat: python -m pytest -n0 -m '' 'test_it.py::test_rare[3]'" in done.stdout
