"""What a linear model knows of its curvature, against dense NumPy."""

import numpy as np
import pytest
import scipy.sparse

import trsvr
from oracle import Oracle
from trsvr._draws import Draws
from trsvr.problems import L2, LinearModel, Softmax
from trsvr.problems.curvature import MarginView
from trsvr.problems.output_curvature import OutputView


def looked_at(intercept, sparse, d=7, rows=1500):
    rng = np.random.default_rng(d + intercept)
    X = rng.normal(size=(rows, d))
    X[:, d // 2] *= rng.random(rows) < 0.1  # a rare column
    y = np.sign(X[:, 0] + rng.normal(size=rows))
    weights = rng.random(rows) * (rng.random(rows) < 0.9)
    problem = trsvr.problems.logistic(
        scipy.sparse.csr_array(X) if sparse else X, y, l2=1e-3, intercept=intercept, sample_weight=weights
    )
    view = MarginView(problem)
    x = rng.normal(size=problem.n_parameters)
    view.evaluate(x)
    design = np.hstack([X, np.ones((rows, 1))]) if intercept else X
    p = 1 / (1 + np.exp(-(design @ x)))
    scale = weights * (weights > 0).sum() / weights.sum()
    hessian = design.T @ (design * (scale * p * (1 - p))[:, None]) / (weights > 0).sum()
    return problem, view, x, hessian, rng


@pytest.mark.parametrize(("intercept", "sparse"), [(False, False), (True, True)])
def test_matrix_product_and_diagonal_of_all_rows(intercept, sparse):
    problem, view, _, hessian, rng = looked_at(intercept, sparse)
    (matrix,), taken = view.blocks(10**9, Draws(0, 0))
    assert taken >= problem.n_samples
    np.testing.assert_allclose(matrix, hessian, rtol=1e-12, atol=1e-14)
    v = rng.normal(size=problem.n_parameters)
    np.testing.assert_allclose(view.product(v), hessian @ v, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(view.diagonal(), np.diag(hessian), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 9])
def test_matrices_of_any_width(d):
    _, view, _, hessian, _ = looked_at(False, False, d=d, rows=200)
    np.testing.assert_allclose(view.blocks(10**9, Draws(0, 0))[0][0], hessian, rtol=1e-12, atol=1e-14)


def test_a_sampled_matrix_has_the_full_one_as_its_mean():
    _, view, _, hessian, _ = looked_at(False, False)
    draws = np.array([view.blocks(200, Draws(0, epoch))[0][0] for epoch in range(400)])
    error = draws.mean(axis=0) - hessian
    standard_error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(error) <= 5 * standard_error + 1e-12).all()
    counts = [view.blocks(200, Draws(1, epoch))[1] for epoch in range(50)]
    assert 150 < np.mean(counts) < 210


def test_changes_on_runs_of_rows_are_unbiased_and_their_halves_independent():
    problem, view, x, _, rng = looked_at(False, False)
    moved = x + 0.1 * rng.normal(size=x.size)
    exact = problem.value_and_gradient(moved)[1] - problem.value_and_gradient(x)[1]
    exact -= view.penalty_slopes(moved) - view.penalty_slopes(x)
    halves = np.array([view.changes(moved, 256, False, Draws(0, 0), number)[:2] for number in range(500)])
    means = halves.mean(axis=1)
    standard_error = means.std(axis=0) / np.sqrt(len(means))
    assert (np.abs(means.mean(axis=0) - exact) <= 5 * standard_error).all()
    first, second = halves[:, 0] - exact, halves[:, 1] - exact
    correlation = (first * second).mean(axis=0) / np.sqrt((first**2).mean(axis=0) * (second**2).mean(axis=0))
    assert np.abs(correlation).max() < 0.2


def test_caution_gives_every_row_a_part_of_the_largest_curvature():
    problem, view, x, _, _ = looked_at(True, False)
    plain, margins, scale = view.weights.copy(), view.margins.copy(), problem.kernels.weights
    slopes = scale / (1.0 + np.exp(problem.kernels.labels * margins))
    raised = np.maximum(plain, slopes / np.maximum(np.abs(margins), 1.0))
    for steep, flat in ((1.0, 0.0), (0.25, 0.0), (0.5, 0.2), (0.0, 1.0)):
        view.evaluate(x)
        ratio = view.raise_curvatures(steep, flat)
        wanted = np.maximum(plain + steep * (raised - plain), flat * 0.25 * scale)
        np.testing.assert_allclose(view.weights, wanted, rtol=1e-9, atol=1e-15)
        assert ratio == pytest.approx(plain.sum() / wanted.sum())


def test_caution_with_several_outputs():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(200, 4)), np.arange(200) % 3
    problem, view = (problem := LinearModel(X, y, Softmax(), L2(0.0))), OutputView(problem)
    x = 4.0 * rng.normal(size=12)
    view.evaluate(x)
    scores = X @ x.reshape(4, 3)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    right = chances[np.arange(200), y]
    wrong = (right < 0.2) & (right > 1e-8)  # smaller ones have few digits: they are kept as slopes

    def hessian(shares):
        blocks = np.einsum("ik,kl->ikl", shares, np.eye(3)) - np.einsum("ik,il->ikl", shares, shares)
        return np.einsum("ij,im,ikl->jkml", X, X, blocks).reshape(12, 12) / 200

    def shown():
        return np.column_stack([view.product(unit) for unit in np.eye(12)])

    np.testing.assert_allclose(shown(), hessian(chances), atol=1e-12)
    np.testing.assert_allclose(shown(), Oracle(X, y, Softmax(), L2(0.0)).hessian(x), atol=1e-12)
    view.raise_curvatures(0.0, 0.3)
    np.testing.assert_allclose(shown(), hessian(0.7 * chances + 0.1), atol=1e-12)
    view.raise_curvatures(0.0, 1.0)  # Böhning's bound
    assert np.linalg.eigvalsh(shown() - hessian(chances))[0] > -1e-12
    assert view.raise_curvatures(1.0, 0.0) < 1.0
    raised = view._chances
    np.testing.assert_allclose(raised.sum(axis=1), 1.0)
    np.testing.assert_array_equal(raised[right > 0.5], view._probabilities[right > 0.5])
    mine = raised[np.arange(200), y][wrong]
    odds = np.log((1 - right[wrong]) / right[wrong])
    np.testing.assert_allclose(mine * (1 - mine), np.minimum((1 - right[wrong]) / np.maximum(odds, 1), 0.25), rtol=1e-6)
    np.testing.assert_allclose(shown(), hessian(raised), atol=1e-12)
    view.be_plain()
    np.testing.assert_allclose(shown(), hessian(chances), atol=1e-12)
