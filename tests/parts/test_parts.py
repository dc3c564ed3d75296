"""The other parts, one by one: estimators and their statistics, curvature, the radius rule."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trsvr.parts import EstimatedHessian, ExactHessian, GradientRadius, Identity, PlainGradient, SVRGGradient
from trsvr.parts.curvature import BatchHessian
from trsvr.parts.gradients import NoMemory, Reference
from trsvr.problems.plain import PlainKernels


@pytest.fixture
def kernels(convex):
    return PlainKernels(convex[0])


def test_svrg_estimate_is_unbiased_and_its_variance_obeys_the_papers_bound(convex, kernels):
    """E‖ḡ − g‖² ≤ (L²/b)‖x − x̃‖² with L the largest Lipschitz constant of a component gradient."""
    _problem, oracle = convex
    rng = np.random.default_rng(0)
    reference, x = rng.normal(size=(2, 6))
    memory = Reference(reference, oracle.gradient(reference))
    estimates, out = np.empty((oracle.y.size, 6)), np.empty(6)
    for i in range(oracle.y.size):  # every batch of one row: the exact mean, no sampling
        SVRGGradient().estimate(memory, kernels, x, np.array([i]), np.empty(0), out)
        estimates[i] = out
    assert_allclose(estimates.mean(axis=0), oracle.gradient(x), atol=1e-13)
    largest = 0.25 * (oracle.X**2).sum(axis=1).max() + 1e-2
    variance = ((estimates - oracle.gradient(x)) ** 2).sum(axis=1).mean()
    assert variance <= largest**2 * np.sum((x - reference) ** 2)
    # and with x at the reference there is none
    SVRGGradient().estimate(memory, kernels, reference, np.array([3, 5]), np.empty(0), out)
    assert_allclose(out, oracle.gradient(reference), atol=1e-15)


def test_plain_estimate_is_the_mean_of_the_batch(convex, kernels):
    _, oracle = convex
    x, batch, out = np.ones(6), np.array([1, 1, 399]), np.empty(6)
    PlainGradient().estimate(NoMemory(), kernels, x, batch, np.empty(0), out)
    assert_allclose(out, oracle.gradient(x, batch), rtol=1e-12)


def test_what_a_step_counts():
    assert PlainGradient().evaluations(7) == 7
    assert SVRGGradient().evaluations(7) == 14
    assert Identity().rows_per_product(7) == 0
    assert EstimatedHessian().rows_per_product(7) == ExactHessian().rows_per_product(7) == 7


@pytest.mark.parametrize("length", [1e-6, 1.0, 1e6])
def test_estimated_curvature_has_finite_difference_accuracy_at_any_length_of_v(convex, kernels, length):
    """The spacing h = √ε(1 + ‖x‖)/‖v‖ makes the error relative to v."""
    _, oracle = convex
    rng = np.random.default_rng(1)
    x, v, batch = rng.normal(size=6), length * rng.normal(size=6), rng.integers(400, size=30)
    exact = oracle.hessian(x, batch) @ v
    out = np.empty(6)
    kernels.batch_gradient(x, batch, np.empty(0), out)
    kind = EstimatedHessian()
    along = BatchHessian(kind, kernels, x, batch, np.empty(0), kind.spacing(x)).product(v, v @ v, out)
    assert_allclose(out, exact, atol=1e-6 * np.abs(exact).max())
    assert_allclose(along, v @ exact, rtol=1e-6)
    assert_allclose(kind.spacing(x), np.sqrt(np.finfo(float).eps) * (1 + np.linalg.norm(x)), rtol=1e-12)


def test_exact_and_identity_products(convex, kernels):
    _, oracle = convex
    rng = np.random.default_rng(1)
    x, v, batch, out = rng.normal(size=6), rng.normal(size=6), rng.integers(400, size=30), np.empty(6)
    along = BatchHessian(ExactHessian(), kernels, x, batch, np.empty(0), 0.0).product(v, v @ v, out)
    assert_allclose(out, oracle.hessian(x, batch) @ v, rtol=1e-11)
    assert_allclose(along, v @ out, rtol=1e-12)
    assert BatchHessian(Identity(), kernels, x, batch, np.empty(0), 0.0).product(v, v @ v, out) == v @ v
    assert (out == v).all()


def test_the_radius_is_alpha_times_the_norm():
    assert GradientRadius(0.25).radius_for(8.0) == 2.0
