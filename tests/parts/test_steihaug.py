"""Steihaug's conjugate gradients against dense linear algebra and the inequalities of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from trsvr.parts import Exit, SteihaugCG, steihaug_cg
from trsvr.parts.subproblems import CGWork


class Matrix:
    """A dense H that counts its products."""

    def __init__(self, H):
        self.H = H
        self.products = 0

    def product(self, v, squared_norm, out):
        assert_allclose(squared_norm, v @ v, rtol=1e-6)  # the solver's bookkeeping
        self.products += 1
        out[:] = self.H @ v
        return v @ out


def solve(H, g, radius, tolerance=0.0, limit=1000):
    matrix, work = Matrix(H), CGWork.of_size(g.size)
    reason, products = steihaug_cg(matrix, g, radius, tolerance, limit, work)
    assert products == matrix.products <= limit
    # The residual is ḡ + Hp without a further product, at the boundary too.
    scale = np.linalg.norm(g) + np.linalg.norm(H) * np.linalg.norm(work.step)
    assert_allclose(work.residual, g + H @ work.step, atol=1e-9 * scale)
    return work.step.copy(), Exit(reason), products


def model(H, g, p):
    return g @ p + 0.5 * p @ H @ p


@st.composite
def subproblems(draw, lowest=-2.0):
    """A random symmetric H with eigenvalues from `lowest` to 3, a gradient and a radius."""
    d = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    eigenvalues = np.array(draw(st.lists(st.floats(lowest, 3.0), min_size=d, max_size=d)))
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    H = (Q * eigenvalues) @ Q.T
    scale = draw(st.sampled_from([1e-8, 1e-3, 1.0, 1e4]))
    return (H + H.T) / 2, scale * rng.normal(size=d), scale * draw(st.floats(1e-3, 1e3))


@given(subproblems(), st.integers(1, 5))
def test_every_step_stays_inside_and_has_the_cauchy_decrease(subproblem, limit):
    H, g, radius = subproblem
    norm, curvature = np.linalg.norm(g), np.linalg.norm(H, 2)
    for iterations in (limit, 200):
        p, reason, _ = solve(H, g, radius, tolerance=min(0.5, np.sqrt(norm)) * norm, limit=iterations)
        length = np.linalg.norm(p)
        assert length <= radius * (1 + 1e-10)
        if reason in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE):
            assert_allclose(length, radius, rtol=1e-10)
        cauchy = -norm * radius + 0.5 * curvature * radius**2
        slack = 1e-9 * (norm * radius + curvature * radius**2)
        assert model(H, g, p) <= cauchy + slack
        assert model(H, g, p) <= 0.0
        # and not higher than the true Cauchy point, the best one along −g
        along = g @ H @ g
        step = radius / norm if along <= 0 else min(norm**2 / along, radius / norm)
        assert model(H, g, p) <= model(H, g, -step * g) + slack


@given(subproblems(lowest=0.2))
def test_an_interior_step_is_the_dense_solution(subproblem):
    H, g, _ = subproblem
    newton = -np.linalg.solve(H, g)
    p, reason, products = solve(H, g, 2 * np.linalg.norm(newton), tolerance=1e-12 * np.linalg.norm(g))
    assert reason is Exit.TOLERANCE
    assert products <= 3 * g.size
    assert_allclose(p, newton, atol=1e-10 * np.linalg.norm(newton))


@given(subproblems(), st.floats(-5.0, -0.1))
def test_indefinite_curvature_ends_on_the_boundary(subproblem, negative):
    """Along the gradient itself the model falls without end."""
    H, g, radius = subproblem
    unit = g / np.linalg.norm(g)
    rest = np.eye(g.size) - np.outer(unit, unit)
    H = rest @ H @ rest + negative * np.outer(unit, unit)
    p, reason, products = solve(H, g, radius)
    assert (reason, products) == (Exit.NEGATIVE_CURVATURE, 1)
    assert_allclose(p, -radius * unit, atol=1e-9 * radius)


def test_negative_curvature_found_on_the_way():
    """First a good direction, then one that falls for ever: still on the boundary, and lower than before."""
    H, g = np.diag([2.0, 1.0, -1.0]), np.array([1.0, 1.0, 0.1])
    p, reason, products = solve(H, g, 10.0)
    assert reason is Exit.NEGATIVE_CURVATURE
    assert products >= 2
    assert_allclose(np.linalg.norm(p), 10.0)
    assert model(H, g, p) < model(H, g, -g / 1.5)


def test_a_small_radius_gives_steepest_descent():
    """While Δ/‖g‖ ≤ 1/λmax the first step already leaves: p = −Δ g/‖g‖ after one product."""
    H, g = np.diag([4.0, 1.0]), np.array([3.0, 4.0])
    p, reason, products = solve(H, g, 0.2 * 5.0)
    assert (reason, products) == (Exit.BOUNDARY, 1)
    assert_allclose(p, -0.2 * g, rtol=1e-14)


def test_identity_needs_one_product_and_is_exact():
    g = np.array([1.0, -2.0, 2.0])
    for radius in (0.5 * 3.0, 1.0 * 3.0):  # α ≤ 1
        p, reason, products = solve(np.eye(3), g, radius)
        assert (reason, products) == (Exit.BOUNDARY, 1)
        assert_allclose(p, -radius / 3.0 * g, rtol=1e-14)
    p, reason, products = solve(np.eye(3), g, 7.0 * 3.0)  # α > 1: the Newton step
    assert (reason, products) == (Exit.TOLERANCE, 1)
    assert_allclose(p, -g, rtol=1e-14)


def test_the_iteration_limit_is_reported():
    rng = np.random.default_rng(0)
    B = rng.normal(size=(20, 20))
    p, reason, products = solve(B @ B.T + np.eye(20), rng.normal(size=20), 1e3, limit=3)
    assert (reason, products) == (Exit.ITERATION_LIMIT, 3)
    assert 0 < np.linalg.norm(p) < 1e3


def test_a_zero_gradient_gives_a_zero_step():
    p, reason, products = solve(np.eye(4), np.zeros(4), 0.0)
    assert (reason, products) == (Exit.TOLERANCE, 0)
    assert (p == 0).all()


def test_a_product_that_is_nan_does_not_leave_the_region():
    work = CGWork.of_size(2)

    class Broken:
        def product(self, v, squared_norm, out):
            out[:] = np.nan
            return np.nan

    reason, products = steihaug_cg(Broken(), np.array([3.0, 4.0]), 0.5, 0.0, 10, work)
    assert Exit(reason) is Exit.NEGATIVE_CURVATURE
    assert products == 1
    assert_allclose(work.step, [-0.3, -0.4])


@given(subproblems(lowest=0.1))
def test_the_part_uses_the_papers_tolerance(subproblem):
    """min(½, √‖g‖)·‖g‖, inside the region."""
    H, g, _ = subproblem
    norm = np.linalg.norm(g)
    work = CGWork.of_size(g.size)
    reason, _ = SteihaugCG().solve(Matrix(H), g, norm, 1e9 * norm, work)
    assert Exit(reason) is Exit.TOLERANCE
    assert np.linalg.norm(g + H @ work.step) <= min(0.5, np.sqrt(norm)) * norm * (1 + 1e-6)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_an_ill_conditioned_step_stays_inside(condition):
    """‖p‖ is computed, not carried along: no drift over hundreds of iterations."""
    rng = np.random.default_rng(2)
    d = 100
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    H = (Q * np.geomspace(1.0 / condition, 1.0, d)) @ Q.T
    g = rng.normal(size=d)
    newton = np.linalg.norm(np.linalg.solve(H, g))
    for radius in (1e-3 * newton, 0.5 * newton):
        p, reason, _ = solve((H + H.T) / 2, g, radius, limit=2000)
        assert reason is Exit.BOUNDARY
        assert_allclose(np.linalg.norm(p), radius, rtol=1e-9)
