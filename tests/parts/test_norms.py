"""Norms against dense linear algebra."""

import numpy as np
import pytest

from cases import cases
from trsvr.parts.norms import (
    BlockNorm,
    DenseNorm,
    DiagonalNorm,
    QuasiNewtonNorm,
    ShiftNorm,
)
from trsvr.parts.subproblems import Exit, preconditioned_cg


def curved(d=60, falling=2.0, seed=0):
    """A positive matrix with eigenvalues 1/k^falling in random directions, in units that differ by column."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix = (turn / np.arange(1.0, d + 1.0) ** falling) @ turn.T + 1e-7 * np.eye(d)
    units = 10.0 ** rng.uniform(-3, 3, size=d)
    return matrix * np.outer(units, units), rng


def test_the_quasi_newton_norm_is_a_sum_of_squares():
    matrix, rng = curved(d=12, falling=1.0)
    diagonal = np.diag(matrix).copy()
    directions = rng.normal(size=(5, 12)) / np.sqrt(diagonal)
    norm = QuasiNewtonNorm(diagonal, directions, directions @ matrix)
    inverse = np.diag(1.0 / diagonal)  # Broyden, Fletcher, Goldfarb and Shanno, as in the books
    for s, y in zip(directions, directions @ matrix, strict=True):
        left = np.eye(12) - np.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
    v = rng.normal(size=12)
    np.testing.assert_allclose(norm.solve(v), inverse @ v, rtol=1e-9)
    assert norm.dual(v) == pytest.approx(v @ inverse @ v, rel=1e-9)


def test_rounding_does_not_make_the_quasi_newton_norm_negative():
    rng = np.random.default_rng(3)
    for _ in cases(50, seed=3):
        directions = rng.normal(size=(6, 20)) * 10.0 ** rng.uniform(-9, 9, size=(6, 1))
        images = directions * 10.0 ** rng.uniform(-14, 14, size=20)  # curvatures of one matrix, 28 decades apart
        norm = QuasiNewtonNorm(10.0 ** rng.uniform(-14, 14, size=20), directions, images)
        assert norm.dual(rng.normal(size=20)) >= 0.0


def softmax_hessian(rng, rows=40, columns=5, outputs=4, l2=1e-7):
    """Σ (diag(π) − ππᵀ) ⊗ x xᵀ / N + λ, entry by entry, and its blocks."""
    X, scores = rng.normal(size=(rows, columns)), 2.0 * rng.normal(size=(rows, outputs))
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    bends = np.einsum("ik,kl->ikl", chances, np.eye(outputs)) - np.einsum("ik,il->ikl", chances, chances)
    tensor = np.einsum("ij,im,ikl->jkml", X, X, bends) / rows
    size = columns * outputs
    blocks = np.stack([tensor[:, k, :, k] for k in range(outputs)])
    return tensor.reshape(size, size) + l2 * np.eye(size), blocks, np.full(size, l2)


@pytest.mark.parametrize("kind", ["blocks", "diagonal"])
def test_along_a_common_shift_the_norm_is_the_penalty(kind):
    rng = np.random.default_rng(0)
    hessian, blocks, penalty = softmax_hessian(rng)
    plain = BlockNorm(blocks, penalty) if kind == "blocks" else DiagonalNorm(np.diag(hessian).copy())
    norm = ShiftNorm(plain, penalty, 4)
    mean = np.kron(np.eye(5), np.full((4, 4), 0.25))
    rest = np.eye(20) - mean
    inverse = np.column_stack([plain.solve(unit) for unit in np.eye(20)])
    v = rng.normal(size=20)
    expected = (rest @ inverse @ rest + mean @ np.diag(1.0 / penalty) @ mean) @ v
    np.testing.assert_allclose(norm.solve(v), expected, rtol=1e-9)
    assert norm.dual(v) == pytest.approx(v @ expected, rel=1e-9)
    shift = np.repeat(rng.normal(size=5), 4)
    np.testing.assert_allclose(norm.solve(hessian @ shift), shift, rtol=1e-6)  # a Newton step at once


def test_the_norm_saves_products_where_the_penalty_is_small():
    rng = np.random.default_rng(1)
    hessian, blocks, penalty = softmax_hessian(rng, rows=200, columns=12)
    plain = BlockNorm(blocks, penalty)
    gradient = hessian @ rng.normal(size=48)
    known, ignored = (
        preconditioned_cg(lambda v: hessian @ v, norm, gradient, np.inf, 1e-8, 500).products
        for norm in (ShiftNorm(plain, penalty, 4), plain)
    )
    assert known <= 0.7 * ignored


def test_no_shift_is_made_where_nothing_is_penalised():
    rng = np.random.default_rng(2)
    norm = ShiftNorm(DiagonalNorm(np.ones(12)), np.zeros(12), 3)
    solved = norm.solve(rng.normal(size=12)).reshape(-1, 3)
    np.testing.assert_allclose(solved.sum(axis=1), 0.0, atol=1e-15)


def test_a_square_is_not_negative_by_rounding():
    """Nothing but a shift, which changes nothing; and directions remembered where curvatures were other ones."""
    rng = np.random.default_rng(3)
    for trial in cases(200, seed=3):
        directions = rng.normal(size=(6, 12)) * 10.0 ** rng.uniform(-6, 6, size=(6, 1))
        matrix = np.diag(10.0 ** rng.uniform(-12, 3, size=12))
        plain = QuasiNewtonNorm(10.0 ** rng.uniform(-40, 0, size=12), directions, directions @ matrix)
        v = np.repeat(rng.normal(size=4), 3) + (trial % 2) * 1e-16 * rng.normal(size=12)
        assert ShiftNorm(plain, np.zeros(12), 3).dual(v) >= 0.0


def test_conjugate_gradients_do_not_follow_rounding():
    """Two equal columns and no penalty: how they differ changes nothing, and the gradient's part of it is noise."""
    rng = np.random.default_rng(4)
    for _ in cases(50, seed=4):
        X = rng.normal(size=(40, 7))
        X[:, 0] = X[:, 1] * rng.choice([1.0, 3.0, 30.0])
        gradient = X.T @ rng.normal(size=40) + 1e-15 * rng.normal(size=7)
        norm = DiagonalNorm(np.einsum("ij,ij->j", X, X))
        taken = preconditioned_cg(lambda v, X=X: X.T @ (X @ v), norm, gradient, np.inf, 1e-16, 500)
        least = np.linalg.lstsq(X.T @ X, -gradient, rcond=1e-12)[0]
        assert np.abs(taken.step).max() <= 1e3 * np.abs(least).max()
        np.testing.assert_allclose(X @ taken.step, X @ least, atol=1e-9)


def test_a_newton_step_as_long_as_the_radius_ends_on_the_boundary_whatever_its_rounding():
    random = np.random.default_rng(0)
    for _ in cases(200, seed=0):
        d = int(random.integers(1, 12))
        matrix = np.cov(random.normal(size=(d, 3 * d + 2))).reshape(d, d)
        norm, gradient = DenseNorm(matrix, np.full(d, 1e-3)), random.normal(size=d) * 10.0 ** random.uniform(-8, 8)
        radius = np.sqrt(norm.dual(gradient))
        taken = preconditioned_cg(norm.product, norm, gradient, radius, 0.1, 500)
        assert taken.exit is Exit.BOUNDARY
        newton = -np.linalg.solve(matrix + 1e-3 * np.eye(d), gradient)
        np.testing.assert_allclose(taken.step, newton, rtol=1e-8, atol=1e-10 * np.abs(newton).max())
