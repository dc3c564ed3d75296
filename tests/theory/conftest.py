"""Problems of this room: their constants are part of the tests, so they are not shared with other rooms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from oracle import Oracle
from trsvr import problems


@pytest.fixture(scope="session")
def data():
    """400 rows, 6 columns of uneven scale, noisy labels ±1."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6)) * np.array([0.3, 0.5, 1.0, 1.0, 1.5, 2.0])
    return X, np.where(X @ rng.normal(size=6) + rng.logistic(size=400) > 0, 1.0, -1.0)


@pytest.fixture(scope="session")
def convex(data):
    """Logistic regression with L2, dense; and its oracle."""
    return problems.logistic(*data, l2=1e-2), Oracle(*data, problems.Logistic(), problems.L2(1e-2))


@pytest.fixture(scope="session")
def nonconvex(data):
    """With a double well of strength γ = 10·λ·d, sparse; and its oracle."""
    X, y = np.where(np.abs(data[0]) > 0.5, data[0], 0.0), data[1]
    problem = problems.double_well_logistic(scipy.sparse.csr_array(X), y, l2=1e-2, gamma=0.6, a=0.5)
    return problem, Oracle(X, y, problems.Logistic(), problem.regularizer)
