"""Dense rows with several outputs, processed as products of matrices."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import trsvr
from oracle import Oracle, scaled_weights
from trsvr import _threads
from trsvr._draws import Draws
from trsvr.parts.norms import SharedNorm, correlation_factor
from trsvr.problems import L2, LinearModel, Softmax
from trsvr.problems.dense_outputs import DenseOutputView
from trsvr.problems.output_curvature import OutputView
from trsvr.solvers.dual_start import DualRules, DualStart

N, P, K = 700, 37, 5


def made(kind, intercept, weighted, scale=1.0):
    rng = np.random.default_rng(1)
    X, y = (scale * rng.normal(size=(N, P))).astype(kind), rng.integers(K, size=N)
    weights = rng.integers(3, size=N).astype(float) if weighted else None
    problem = LinearModel(X, y, Softmax(), L2(0.01), intercept=intercept, sample_weight=weights)
    vars(problem)["is_small"] = False
    kept = slice(None) if weights is None else weights > 0
    scaled = None if weights is None else scaled_weights(weights)[kept]
    oracle = Oracle(X.astype(float)[kept], y[kept], Softmax(), L2(0.01), intercept=intercept, scale=scaled)
    x, v = (rng.normal(size=problem.n_parameters) for _ in range(2))
    return problem, oracle, 0.3 * x, v


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_its_answers_are_those_of_the_oracle(kind, intercept, weighted):
    problem, oracle, x, v = made(kind, intercept, weighted)
    view = problem.curvature_view()
    assert isinstance(view, DenseOutputView)
    value, gradient = view.evaluate(x)
    assert value == pytest.approx(oracle.value(x), rel=1e-14)
    np.testing.assert_allclose(gradient, oracle.gradient(x), rtol=1e-11, atol=1e-14)
    curvature = oracle.hessian(x) - np.diag(view.penalty_curvatures(x))
    digits = {"rtol": 1e-10, "atol": 1e-13} if kind is np.float64 else {"rtol": 2e-6, "atol": 2e-7}
    np.testing.assert_allclose(view.product(v), curvature @ v, **digits)
    np.testing.assert_allclose(view.product(1e-30 * v), 1e-30 * (curvature @ v), rtol=2e-6, atol=1e-36)
    np.testing.assert_allclose(view.diagonal(), np.diagonal(curvature), **digits)
    blocks = np.stack([curvature[k::K, k::K] for k in range(K)])
    np.testing.assert_allclose(view.shared(), blocks.mean(axis=0), **digits)
    np.testing.assert_allclose(view.blocks(N, Draws(0, 0))[0], blocks, **digits)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_raised_curvatures_are_those_of_other_rows(kind):
    problem, _, x, v = made(kind, True, True)
    here, there = DenseOutputView(problem), OutputView(problem)
    # Of a probability next to zero little is left in the slope that a row keeps, and less in float32.
    rel = 1e-6 if kind is np.float64 else 5e-2
    for steep, flat in ((0.5, 0.0), (1.0, 0.01), (0.0, 1.0)):
        here.evaluate(4.0 * x), there.evaluate(4.0 * x)
        assert here.total_weight() == pytest.approx(there.total_weight())
        assert here.raise_curvatures(steep, flat) == pytest.approx(there.raise_curvatures(steep, flat), rel=rel)
        assert here.total_weight() == pytest.approx(there.total_weight(), rel=rel)
        for ours, theirs in ((here.product(v), there.product(v)), (here.diagonal(), there.diagonal())):
            np.testing.assert_allclose(ours, theirs, atol=rel * np.abs(theirs).max())


@pytest.mark.parametrize("view_of", [DenseOutputView, OutputView])
def test_curvatures_are_lowered_to_what_they_were(view_of):
    problem, _, x, v = made(np.float64, True, True)
    view = view_of(problem)
    view.evaluate(x)
    before = view.total_weight(), view.product(v), view.diagonal()
    view.raise_curvatures(1.0, 0.01)
    assert view.total_weight() != before[0]
    assert view.lower_curvatures(x) == 0.0  # no row is read for that
    for now, then in zip((view.total_weight(), view.product(v), view.diagonal()), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_step_that_disappoints_makes_the_next_one_careful():
    """Classes that can be told apart: the first step gains a third of what was predicted, and the next is too long."""
    rng = np.random.default_rng(0)
    centres, y = 0.6 * rng.standard_normal((20, 900)), rng.integers(20, size=800)
    X = 0.35 * centres[y] + rng.standard_normal((800, 900))
    X *= 3.0 / np.linalg.norm(X, axis=1, keepdims=True)
    problem = LinearModel(X, y, Softmax(), L2(1e-6))
    careful, careless = (
        trsvr.minimize(problem, DualStart(rules=replace(DualRules(), disappointing=part))) for part in (0.5, -math.inf)
    )
    assert careful.success
    assert careful.value == pytest.approx(careless.value, rel=1e-10)
    assert careful.trace.rejected.sum() < careless.trace.rejected.sum()


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_bits_do_not_depend_on_the_threads(kind):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(5000, 150)).astype(kind), rng.integers(12, size=5000)
    problem = LinearModel(X, y, Softmax(), L2(1e-3), intercept=True)
    x, v = rng.normal(size=(2, problem.n_parameters))
    seen = []
    for threads in (1, 2, 3):
        with _threads.limit(threads):
            view = problem.curvature_view()
            value, gradient = view.evaluate(0.1 * x)
            seen.append((value, *gradient, *view.product(v), *view.diagonal(), *view.shared().ravel()))
    assert seen[0] == seen[1] == seen[2]
    first, second = (trsvr.minimize(problem, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(first.x, second.x)


def test_nearly_certain_rows_keep_the_digits_of_their_curvature():
    """Of 1 − π_y = 1e-9 float32 would keep nothing; of the slope it keeps seven digits."""
    problem = made(np.float32, False, False)[0]
    labels = problem.kernels.labels.astype(int)
    X = problem.kernels.rows.values
    centres = np.zeros((P, K))
    for k in range(K):
        X[labels == k] = 0.0
        X[labels == k, k] = 1.0
        centres[k, k] = 20.0
    view = problem.curvature_view()
    view.evaluate(centres.ravel())
    others = (K - 1) * np.exp(-20.0)
    share = others / (1.0 + others)
    share_of_label, counts = share * (1.0 - share), np.bincount(labels) / N
    wanted = share_of_label * counts
    np.testing.assert_allclose(view.diagonal().reshape(P, K)[range(K), range(K)], wanted, rtol=1e-5)


def test_along_flat_directions_products_are_of_float64():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 30)).astype(np.float32)
    X[:, 1] = X[:, 0]
    X[:, 1] += np.float32(1e-6) * rng.normal(size=400).astype(np.float32)
    y = rng.integers(4, size=400)
    problem = LinearModel(X, y, Softmax(), L2(0.0))
    vars(problem)["is_small"] = False
    view, oracle = problem.curvature_view(), Oracle(X.astype(float), y, Softmax(), L2(0.0))
    x = 0.1 * rng.normal(size=120)
    view.evaluate(x)
    v = np.zeros((30, 4))
    v[0, 0], v[1, 0] = 1.0, -1.0
    wanted = v.ravel() @ oracle.hessian(x) @ v.ravel()
    assert 0.0 < wanted < 1e-12
    assert v.ravel() @ view.product(v.ravel()) == pytest.approx(wanted, rel=1e-3)


def test_rows_too_large_for_products_in_float32():
    problem, oracle, x, v = made(np.float32, False, False, scale=1e15)
    view = problem.curvature_view()
    view.evaluate(1e-15 * x)
    curvature = oracle.hessian(1e-15 * x) - np.diag(view.penalty_curvatures(x))
    np.testing.assert_allclose(view.product(v), curvature @ v, rtol=1e-5, atol=1e-5 * np.abs(curvature @ v).max())


def test_the_shared_norm_is_the_hessian_where_all_outputs_have_one_matrix():
    rng = np.random.default_rng(4)
    root, scales = rng.normal(size=(6, 6)), rng.uniform(0.5, 2.0, size=3)
    matrix = root @ root.T + np.eye(6)
    whole = np.kron(matrix, np.diag(scales))  # the outputs' entries lie side by side
    norm = SharedNorm(np.diagonal(whole).copy(), correlation_factor(matrix, np.zeros(6)))
    v = rng.normal(size=18)
    np.testing.assert_allclose(norm.solve(v), np.linalg.solve(whole, v), rtol=1e-4)
    assert norm.dual(v) == pytest.approx(v @ np.linalg.solve(whole, v), rel=1e-5)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_minimiser_is_scikit_learns(kind, weighted):
    rng = np.random.default_rng(5)
    n, d, classes = 4000, 100, 8
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    y = rng.integers(classes, size=n)
    X = 0.4 * rng.normal(size=(classes, d))[y] + rng.normal(size=(n, d)) * np.geomspace(1.0, 0.03, d)
    X = np.ascontiguousarray(X @ turn, dtype=kind)
    weights = rng.uniform(0.0, 2.0, size=n) if weighted else None
    total = n if weights is None else weights.sum()
    problem = LinearModel(X, y, Softmax(), L2(1.0 / total), intercept=True, sample_weight=weights)
    result = trsvr.minimize(problem)
    assert result.success
    theirs = LogisticRegression(tol=1e-10, max_iter=10000).fit(X.astype(float), y, weights)
    x = np.vstack([theirs.coef_.T, theirs.intercept_]).ravel()
    assert result.value <= problem.value_and_gradient(x)[0] * (1 + 1e-9)
    ours = result.x.reshape(-1, classes)
    np.testing.assert_allclose((ours - ours.mean(axis=1, keepdims=True))[:-1].T, theirs.coef_, atol=2e-4)
