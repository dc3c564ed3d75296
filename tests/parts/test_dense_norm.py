"""P as a matrix: its inverse and its factor, where it is the model's Hessian and where it is not."""

from __future__ import annotations

import numpy as np

from trsvr.parts.norms import DenseNorm


def test_inverse():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 5))
    losses, penalty = rows.T @ rows / 30, np.full(5, 0.1)
    norm = DenseNorm(losses, penalty)
    P = losses + np.diag(penalty)
    np.testing.assert_allclose(norm.plain_inverse() @ P, np.eye(5), atol=1e-13)


def test_none_where_p_was_changed_to_be_positive():
    norm = DenseNorm(np.eye(3), np.array([1.0, -0.5, 1.0]))
    assert norm.plain_inverse() is None
