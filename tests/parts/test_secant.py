"""A matrix that learns from steps: the identities of the BFGS update, in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from trsvr.parts.acceptance import Point
from trsvr.parts.norms import DenseNorm, IdentityNorm
from trsvr.parts.secant import learnt

STRENGTH = 0.1


@pytest.fixture
def quadratic():
    """The Hessian of the losses and what a sample has made of it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 6)) * np.logspace(-2, 2, 6)
    H = rows.T @ rows / 200
    sample = rows[:40]
    return H, (sample.T @ sample / 40)[None]


def slopes(x):
    return STRENGTH * x


def point(H, x, decrease=np.nan):
    gradient = H @ x + slopes(x) - 1.0
    return Point(x, 0.5 * x @ H @ x + 0.5 * STRENGTH * x @ x - x.sum(), gradient, decrease)


def norm_of(losses):
    return DenseNorm(losses[0], np.full(6, STRENGTH))


def newton(H, losses, x):
    return x - norm_of(losses).solve(point(H, x).gradient)


def test_the_matrix_maps_the_step_to_the_change_of_the_gradient(quadratic):
    H, sampled = quadratic
    x = np.ones(6)
    y = newton(H, sampled, x)
    found = learnt(sampled, norm_of(sampled), point(H, x), point(H, y), slopes, 0.25)[0]
    step = y - x
    np.testing.assert_allclose(found @ step, H @ step, rtol=1e-9)
    np.testing.assert_allclose(found, found.T, rtol=1e-12)
    assert np.linalg.eigvalsh(found).min() > 0.0
    # Directions that are conjugate to the step in both matrices are left alone.
    seen = np.array([sampled[0] @ step, H @ step])
    free = np.linalg.svd(seen)[2][2:]
    np.testing.assert_allclose(found @ free.T, sampled[0] @ free.T, atol=1e-9 * np.abs(sampled).max())


def test_newton_steps_with_it_converge_faster_than_linearly(quadratic):
    H, kept = quadratic
    sampled, x, z = kept, np.ones(6), np.ones(6)
    best = np.linalg.solve(H + STRENGTH * np.eye(6), np.ones(6))
    for _ in range(9):
        y = newton(H, kept, x)
        kept = learnt(kept, norm_of(kept), point(H, x), point(H, y), slopes, 0.25)
        x, z = y, newton(H, sampled, z)
    with_it, without = (np.linalg.norm((end - best) / best) for end in (x, z))
    assert with_it < 1e-3 * without


def test_rounding_and_other_curvatures_teach_nothing(quadratic):
    H, sampled = quadratic
    x, norm = np.ones(6), norm_of(sampled)
    y = newton(H, sampled, x)
    assert learnt(sampled, IdentityNorm(), point(H, x), point(H, y), slopes, 0.25) is sampled
    assert learnt(None, norm, point(H, x), point(H, y), slopes, 0.25) is None
    close = x + 1e-9 * (y - x)
    assert learnt(sampled, norm, point(H, x), point(H, close), slopes, 0.25) is sampled
    # What changes the gradient across the step, in the units of P, is not what P has measured by.
    flat, steep = np.eye(6)[0] / H[0, 0] ** 0.5, np.eye(6)[5] * H[5, 5] ** 0.5
    elsewhere = point(H, x + flat)._replace(gradient=point(H, x).gradient + H @ flat + 5.0 * steep)
    assert learnt(sampled, norm, point(H, x), elsewhere, slopes, 0.25) is sampled


def test_many_columns_are_learnt_with_the_bits_of_plain_numpy():
    rng, d = np.random.default_rng(0), 131
    rows = rng.normal(size=(400, d))
    H, sampled = rows.T @ rows / 400, (rows[:200].T @ rows[:200] / 200)[None]
    norm, x, y = DenseNorm(sampled[0], np.full(d, STRENGTH)), np.ones(d), rng.normal(size=d)
    found = learnt(sampled, norm, point(H, x), point(H, y), slopes, 0.0)
    step = y - x
    change = point(H, y).gradient - point(H, x).gradient - (slopes(y) - slopes(x))
    image = norm.product(step) - STRENGTH * step
    new, old = np.outer(change, change / np.vdot(step, change)), np.outer(image, image / np.vdot(step, image))
    np.testing.assert_array_equal(found, sampled + (new - old))
