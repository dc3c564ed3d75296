"""Several outputs of dense rows as tensors: answers of the view, conjugate gradients on the device, whole runs."""

import math

import numpy as np
import pytest
import torch

import trsvr
from oracle import Oracle, scaled_weights
from trsvr.parts.norms import DiagonalNorm, SharedNorm, ShiftNorm, correlation_factor
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.problems import L2, Softmax
from trsvr.problems import LinearModel as CompiledModel
from trsvr.problems.steps import Exit
from trsvr.torch import LinearModel
from trsvr.torch.linear import outputs
from trsvr.torch.linear.cg import ConjugateGradients, Goal
from trsvr.torch.linear.outputs import OutputTensorView

N, P, K = 300, 11, 4


def made(kind, intercept, weighted):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(N, P)).astype(kind), rng.integers(K, size=N)
    weights = rng.integers(3, size=N).astype(float) if weighted else None
    kept = slice(None) if weights is None else weights > 0
    scaled = None if weights is None else scaled_weights(weights)[kept]
    problem = LinearModel(torch.from_numpy(X), y, Softmax(), L2(0.01), intercept=intercept, sample_weight=weights)
    oracle = Oracle(X.astype(float)[kept], y[kept], Softmax(), L2(0.01), intercept=intercept, scale=scaled)
    x, v = rng.normal(size=(2, problem.n_parameters))
    return problem, oracle, 0.5 * x, v


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kept", [False, True], ids=["anew", "kept"])
def test_its_answers_are_those_of_the_oracle(kind, intercept, weighted, kept, monkeypatch):
    monkeypatch.setattr(outputs, "_HOST_BYTES", 16000)  # several blocks
    monkeypatch.setattr(outputs, "_LARGEST_TABLE", 1.5 if kept else 0.0)
    problem, oracle, x, v = made(kind, intercept, weighted)
    view, other = problem.curvature_view(), problem.curvature_view()
    assert isinstance(view, OutputTensorView)
    value, gradient = view.evaluate(x)
    other.evaluate(2.0 * x)  # takes the table
    assert value == pytest.approx(oracle.value(x), rel=1e-13)
    np.testing.assert_allclose(gradient, oracle.gradient(x), rtol=1e-10, atol=1e-13)
    curvature = oracle.hessian(x) - np.diag(view.penalty_curvatures(x))
    digits = {"rtol": 1e-9, "atol": 1e-12} if kind is np.float64 else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(view.product(v), curvature @ v, **digits)
    np.testing.assert_allclose(view.diagonal(), np.diagonal(curvature), **digits)
    blocks = np.stack([curvature[k::K, k::K] for k in range(K)])
    np.testing.assert_allclose(view.shared(), blocks.mean(axis=0), **digits)
    assert view.total_weight() == pytest.approx(np.einsum("ikk->", oracle._terms(x)[2]), rel=1e-6)


def test_raised_curvatures_are_those_of_the_plain_sums():
    problem, _, x, v = made(np.float64, True, True)
    view = problem.curvature_view()
    view.evaluate(4.0 * x)
    assert view.raise_curvatures(1.0, 0.0) < 1.0
    at = problem.to_device(4.0 * x)
    wanted = problem.sums.product(at, problem.to_device(v), raised=True).numpy() / problem.n_samples
    np.testing.assert_allclose(view.product(v), wanted, rtol=1e-6, atol=1e-8)
    assert view.total_weight() == pytest.approx(float(problem.sums.total_curvature(at, True)), rel=1e-7)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("radius", [math.inf, 0.05])
def test_conjugate_gradients_are_those_of_the_host(shared, radius):
    problem, _, x, _ = made(np.float64, True, False)
    view = problem.curvature_view()
    _, gradient = view.evaluate(x)
    penalty = view.penalty_curvatures(x)
    diagonal = view.diagonal() + penalty + 1e-8
    inner = SharedNorm(diagonal, correlation_factor(view.shared(), penalty[::K])) if shared else DiagonalNorm(diagonal)
    norm = ShiftNorm(inner, penalty, K)
    host = preconditioned_cg(lambda v: view.product(v) + penalty * v, norm, gradient, radius, 1e-6, 200)
    there, along = problem.to_device(gradient), problem.to_device(penalty)
    steps = ConjugateGradients(there, lambda v: view._product(v) + along * v, view._solver(norm), 1e-15)
    steps.run(2.0 * there, Goal(radius, 1e-3, 200, lambda: False), 2)  # what one step leaves, the next one forgets
    device = steps.run(there, Goal(radius, 1e-6, 200, lambda: False), 3)
    assert device.exit is host.exit is (Exit.TOLERANCE if radius == math.inf else Exit.BOUNDARY)
    assert device.products == host.products
    np.testing.assert_allclose(device.step, host.step, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(device.product, host.product, rtol=1e-6, atol=1e-9)
    if radius == math.inf:
        assert device.length == pytest.approx(host.length, rel=1e-6)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_run_ends_where_the_compiled_one_does(kind, weighted):
    rng = np.random.default_rng(5)
    n, d, classes = 3000, 60, 7
    y = rng.integers(classes, size=n)
    X = 0.4 * rng.normal(size=(classes, d))[y] + rng.normal(size=(n, d)) * np.geomspace(1.0, 0.03, d)
    X = np.ascontiguousarray(X @ np.linalg.qr(rng.normal(size=(d, d)))[0], dtype=kind)
    options = {"intercept": True, "sample_weight": rng.uniform(0.0, 2.0, size=n) if weighted else None}
    there = LinearModel(torch.from_numpy(X), y, Softmax(), L2(1e-4), **options)
    here = CompiledModel(X, y, Softmax(), L2(1e-4), **options)
    first, second = trsvr.minimize(there), trsvr.minimize(here)
    assert first.success
    assert second.success
    assert first.value == pytest.approx(second.value, rel=1e-11)
    again = trsvr.minimize(there)
    np.testing.assert_array_equal(first.x, again.x)
