"""Fixtures that several rooms share. Compiling dominates the suite, so they are few and reused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import settings

from cases import pytest_runtest_makereport, pytest_runtest_setup  # noqa: F401  # hooks of pytest
from oracle import Oracle
from trsvr import problems

settings.register_profile("trsvr", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("trsvr")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the real data sets: TRSVR_DATA_DIR, or ../shared/data beside the repository."""
    chosen = os.environ.get("TRSVR_DATA_DIR")
    folder = Path(chosen) if chosen else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not here: no folder {folder} (set TRSVR_DATA_DIR)")
    return folder


@pytest.fixture(scope="session")
def data() -> tuple[np.ndarray, np.ndarray]:
    """400 rows, 6 columns of uneven scale, noisy labels ±1."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6)) * np.array([0.3, 0.5, 1.0, 1.0, 1.5, 2.0])
    y = np.where(X @ rng.normal(size=6) + rng.logistic(size=400) > 0, 1.0, -1.0)
    return X, y


@pytest.fixture(scope="session")
def convex(data):
    """Strongly convex: dense logistic regression with L2. Returns the problem and its oracle."""
    X, y = data
    return problems.logistic(X, y, l2=1e-2), Oracle(X, y, problems.Logistic(), problems.L2(1e-2))


@pytest.fixture(scope="session")
def nonconvex(data):
    """Truly nonconvex: sparse rows, double well of strength γ = 10·λ·d. Returns the problem and its oracle."""
    X, y = data
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    strength, d = 0.1, X.shape[1]
    problem = problems.double_well_logistic(scipy.sparse.csr_array(X), y, l2=strength, gamma=10 * strength * d, a=0.5)
    return problem, Oracle(X, y, problems.Logistic(), problem.regularizer)
