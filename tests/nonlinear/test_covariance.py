"""The covariance of nonlinear least squares against the algebra of a linear model."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import trsvr
from trsvr.problems import LeastSquares

RANDOM = np.random.default_rng(0)
A, Y = RANDOM.normal(size=(50, 3)), RANDOM.normal(size=50)
WEIGHTS = np.where(np.arange(50) % 5, RANDOM.uniform(20.0, 200.0, size=50), 0.0)


def linear(**options):
    return LeastSquares(50, 3, lambda x, i: A[i] @ x - Y[i], lambda x, i: A[i], **options)


@pytest.mark.parametrize("known", [None, 1.0, 0.3])
@pytest.mark.parametrize("weights", [None, np.full(50, 100.0), WEIGHTS])
def test_it_is_that_of_weighted_least_squares(weights, known):
    problem, w = linear(weights=weights), np.ones(50) if weights is None else weights
    inverse = np.linalg.inv(A.T @ (w[:, None] * A))
    x = inverse @ (A.T @ (w * Y))
    found = trsvr.inference.covariance(problem, x, known_variance=known)
    freedom = np.count_nonzero(w) - 3
    variance = np.sum(w * (A @ x - Y) ** 2) / freedom if known is None else known
    assert_allclose(found.matrix, variance * inverse, rtol=1e-10)
    assert_allclose(found.variance, variance, rtol=1e-10)
    assert (found.degrees_of_freedom, found.rank) == (freedom, 3)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_penalty_draws_and_does_not_scatter(weights):
    """The scatter of the ridge estimate H⁻¹AᵀWy, whatever the penalty's own value is."""
    w = np.ones(50) if weights is None else weights
    problem = linear(weights=weights, l2=0.3, towards=np.full(3, 40.0))
    gram = A.T @ (w[:, None] * A)
    # λ of the sum with the user's weights
    inverse = np.linalg.inv(gram + 0.3 * w.sum() * np.eye(3))
    x = inverse @ (A.T @ (w * Y) + 0.3 * w.sum() * 40.0)
    assert_allclose(trsvr.minimize(problem).x, x, rtol=1e-9)
    found = trsvr.inference.covariance(problem, x)
    freedom = np.count_nonzero(w) - np.trace(inverse @ gram)
    variance = np.sum(w * (A @ x - Y) ** 2) / freedom
    assert_allclose(found.matrix, variance * inverse @ gram @ inverse, rtol=1e-9)
    assert_allclose(found.degrees_of_freedom, freedom, rtol=1e-10)


def test_the_rank_is_that_of_the_data():
    problem = LeastSquares(50, 3, lambda x, i: A[i, 0] * (x[0] + x[1]) - Y[i], l2=0.1)
    found = trsvr.inference.covariance(problem, np.zeros(3))
    assert found.rank == 1
    assert np.isfinite(found.matrix).all()
