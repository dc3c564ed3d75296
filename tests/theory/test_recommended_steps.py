"""Step sizes against scikit-learn's and by running; gaps against SciPy's minimum."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model._sag import get_auto_step_size

from oracle import Oracle
from trsvr import SAGA, SARAH, SVRG, TRSVR, minimize, problems, theory


@pytest.mark.parametrize("strength", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize(("loss", "name"), [(problems.Logistic(), "log"), (problems.Squared(), "squared")])
def test_saga_step_is_scikit_learns(data, loss, name, strength):
    X, y = data
    problem = problems.LinearModel(X, y, loss, problems.L2(strength))
    theirs = get_auto_step_size((X**2).sum(axis=1).max(), strength, name, False, len(y), is_saga=True)
    assert theory.recommended_step(problem, "saga") == pytest.approx(theirs)


def test_steps_grow_with_the_batch(convex):
    problem, _ = convex
    largest, mean = theory.component_smoothness(problem), theory.smoothness(problem)
    for method, single in (("svrg", 1 / 6), ("sarah", 1 / 2), ("saga", None)):
        steps = [theory.recommended_step(problem, method, batch_size=b) for b in (1, 4, 20, 100, 400)]
        assert steps == sorted(steps)
        assert steps[-1] <= 1 / mean
        if single is not None:
            assert steps[0] == pytest.approx(single / largest)


@pytest.mark.parametrize("batch_size", [1, 20])
def test_svrg_converges_at_the_recommended_step(convex, batch_size):
    problem, oracle = convex
    best = scipy.optimize.minimize(oracle.value, np.zeros(6), jac=oracle.gradient, tol=1e-10).fun
    step = theory.recommended_step(problem, "svrg", batch_size=batch_size)
    result = minimize(problem, SVRG(step, batch_size, inner_steps=4 * 400 // batch_size), max_epochs=60, tol=None)
    assert abs(result.value - best) <= 1e-6, f"gap {result.value - best:.2e} at step {step:.3g}"


def test_double_well_has_a_natural_radius(nonconvex):
    problem, oracle = nonconvex
    radius = theory.sublevel_radius(problem, oracle.value(np.zeros(6)))
    assert theory.recommended_step(problem, "svrg") == theory.recommended_step(problem, "svrg", radius=radius)
    assert theory.recommended_step(problem, "svrg", radius=0.1) > theory.recommended_step(problem, "svrg")


def test_refused(convex):
    with pytest.raises(ValueError, match="did you mean 'svrg'"):
        theory.recommended_step(convex[0], "svr")
    with pytest.raises(ValueError, match="batch_size"):
        theory.recommended_step(convex[0], "svrg", batch_size=0)


def test_gap_bound_is_above_and_estimate_is_near(data):
    X, y = data
    for intercept in (False, True):
        problem = problems.logistic(X, y, l2=1e-2, intercept=intercept)
        oracle = Oracle(X, y, problems.Logistic(), problems.L2(1e-2), intercept=intercept)
        best = scipy.optimize.minimize(oracle.value, np.zeros(oracle.n_parameters), jac=oracle.gradient, tol=1e-12)
        x = best.x + 1e-2 * np.random.default_rng(0).normal(size=best.x.size)
        gap, gradient = oracle.value(x) - best.fun, oracle.gradient(x)
        assert theory.expected_decrease(problem, x, gradient) == pytest.approx(gap, rel=0.02)
        found = theory.estimate_gap(problem, x, gradient)
        assert found.kind == "bound"
        assert gap <= found.value == theory.gap_bound(problem, x)
    plain = problems.logistic(X, y, l2=0.0)
    x = minimize(plain).x + 1e-3
    found = theory.estimate_gap(plain, x, plain.value_and_gradient(x)[1])
    assert found.kind == "estimate"
    assert found.value < 0.1 * theory.gap_bound(plain, x)


def test_gap_where_curvature_is_negative(nonconvex):
    problem, oracle = nonconvex
    x = np.full(6, 1e-3)
    assert np.linalg.eigvalsh(oracle.hessian(x))[0] < 0
    found = theory.estimate_gap(problem, x, np.eye(6)[int(np.argmin(np.diag(oracle.hessian(x))))])
    assert (found.kind, found.value) == ("bound", problem.value_and_gradient(x)[0])  # f is not negative; no more
    assert theory.estimate_gap(problem, x, np.full(6, np.nan)).kind == "unknown"
    result = minimize(problem, TRSVR(alpha=1.0, batch_size=50, inner_steps=20), max_epochs=50)
    assert theory.estimate_gap(problem, result.x, result.gradient).value < 1e-6


def test_a_value_that_cannot_be_negative_bounds_the_gap(convex):
    problem, x = convex[0], np.full(6, 100.0)
    value, gradient = problem.value_and_gradient(x)
    found = theory.estimate_gap(problem, x, gradient)
    assert found.kind == "bound"
    assert found.value == pytest.approx(value)
    assert theory.estimate_gap(problem, x, gradient, 1e-3).value == 1e-3


@pytest.mark.parametrize("method", [SVRG(), SAGA(), SARAH(batch_size=4)], ids=repr)
def test_a_curvature_without_bound_asks_for_a_step(method):
    """Poisson regression: e^z grows along the first step; a step of one's own is taken as it is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = rng.poisson(np.exp(X @ [1.0, -1.0, 0.5] + 2.0))

    def gradient(x, i):
        return X[i].T @ (np.exp(X[i] @ x) - y[i]) / len(i)

    def value(x, i):
        return np.mean(np.exp(X[i] @ x) - y[i] * (X[i] @ x))

    problem = problems.FunctionProblem(300, 3, gradient, value)
    with pytest.raises(ValueError, match=r"curvature that grows .* give a number, such as step=1e-3"):
        minimize(problem, method)
    result = minimize(problem, dataclasses.replace(method, step=1e-5), max_epochs=3)
    assert result.value < problem.value_and_gradient(np.zeros(3))[0]
