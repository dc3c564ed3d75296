"""SVRG, SARAH, SAGA and their trust-region cousins: linear convergence, the known minimiser, unbiased estimates."""

from __future__ import annotations

import loops
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

import trsvr
from trsvr._draws import generator
from trsvr.parts import PlainGradient, SAGAGradient, SARAHGradient, SVRGGradient
from trsvr.problems import FunctionProblem
from trsvr.problems.plain import PlainKernels

START = np.array([0.5, -0.5, 0.3, 0.1, -0.2, 0.4])
B, S = 25, 16


@pytest.fixture(scope="module")
def smallest(convex):
    """Minimiser and smallest value, by SciPy."""
    _, oracle = convex
    options = {"gtol": 1e-13}
    return scipy.optimize.minimize(
        oracle.value, np.zeros(6), jac=oracle.gradient, hess=oracle.hessian, method="trust-exact", options=options
    )


LINEAR = {
    "svrg": trsvr.SVRG(),
    "svrg, batches": trsvr.SVRG(batch_size=10),
    "sarah": trsvr.SARAH(),
    "sarah, batches": trsvr.SARAH(batch_size=10),
    "saga": trsvr.SAGA(),
    "saga, batches": trsvr.SAGA(batch_size=10),
    "trsvr": trsvr.TRSVR(alpha=20.0, batch_size=50, inner_steps=20),
    "trsvr identity": trsvr.TRSVR(alpha=0.3, batch_size=10, inner_steps=100, hessian="identity"),
    "trsvr sarah": trsvr.TRSVR(alpha=1.0, batch_size=50, inner_steps=20, gradient="sarah"),
    "trsvr saga": trsvr.TRSVR(alpha=1.0, batch_size=50, inner_steps=20, gradient="saga"),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_convergence_to_twelve_digits(convex, smallest, name):
    """log(gap) falls along a straight line down to 1e-12, with the steps that the methods choose themselves."""
    problem, _ = convex
    result = trsvr.minimize(problem, LINEAR[name], max_epochs=150, tol=None, seed=1)
    gaps = result.trace["value"].to_numpy() - smallest.fun
    assert gaps[-1] <= 1e-12
    assert_allclose(result.x, smallest.x, atol=1e-6)
    falling = gaps[: np.argmax(gaps <= 1e-12)]
    line = scipy.stats.linregress(np.arange(falling.size), np.log(falling))
    assert line.slope < 0
    assert line.rvalue**2 > 0.9, "not a straight line"


@pytest.mark.parametrize("kind", ["svrg", "sarah", "saga"])
def test_dense_steps_are_numpys_compiled_and_plain(convex, kind):
    problem, oracle = convex
    epochs = [generator(4, epoch).integers(400, size=S * B).reshape(S, B) for epoch in range(3)]
    solver = {
        "svrg": trsvr.SVRG(step=0.3, batch_size=B, inner_steps=S),
        "sarah": trsvr.SARAH(step=0.3, batch_size=B, inner_steps=S),
        "saga": trsvr.SAGA(step=0.3, batch_size=B),
    }[kind]
    for ours, whole in ((problem, False), (loops.plain(oracle), True)):
        x, table = START, loops.Saga(oracle, START, whole)
        for batches in epochs:
            x = table.steps(x, 0.3, batches) if kind == "saga" else getattr(loops, kind)(oracle, x, 0.3, batches)
        assert_allclose(loops.last_iterate(ours, solver, START, 3, 4), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_saga_finds_scikit_learns_minimiser(data, intercept):
    """SAGA() with the step it chooses; scikit-learn penalises Σ loss + ‖w‖²/(2C), so C = 1/(N·l2)."""
    X, y = data
    theirs = LogisticRegression(
        C=1 / (400 * 1e-2), solver="saga", fit_intercept=intercept, tol=1e-13, max_iter=20000, random_state=0
    ).fit(X, y)
    expected = np.append(theirs.coef_[0], theirs.intercept_ if intercept else [])
    for rows in (X, scipy.sparse.csr_array(X)):
        result = trsvr.minimize(trsvr.problems.logistic(rows, y, l2=1e-2, intercept=intercept), trsvr.SAGA())
        assert result.success
        assert_allclose(result.x, expected, atol=1e-6)


# ---------------------------------------------------------------------------------------------- what is unbiased

DRAWS, SIZE = 4000, 5


def estimates(oracle, estimator, memory, x):
    """Many estimates at one point and state, from batches of their own."""
    kernels = PlainKernels(loops.plain(oracle))
    batches = np.random.default_rng(11).integers(len(oracle.y), size=(DRAWS, SIZE))
    found = np.empty((DRAWS, x.size))
    for batch, out in zip(batches, found, strict=True):
        fresh = type(memory)(*(part.copy() if isinstance(part, np.ndarray) else part for part in memory))
        estimator.estimate(fresh, kernels, x, batch, np.empty(0), out)
    return found


def far_from(found, expected):
    """Largest deviation of the mean from what is expected, over its bound: once in a million tests above one."""
    quantile = scipy.stats.norm.isf(1e-6 / (2 * expected.size))
    bound = quantile * found.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    return (np.abs(found.mean(axis=0) - expected) / bound).max()


def moved_memory(oracle, estimator):
    """The estimator's memory after some steps away from where it began, and the point reached."""
    problem = loops.plain(oracle)
    memory, kernels, x = estimator.memory(problem), PlainKernels(problem), START.copy()
    if hasattr(estimator, "fill"):
        estimator.fill(memory, kernels, x)
    estimator.restart(memory, x, oracle.gradient(x))
    out = np.empty_like(x)
    for batch in np.random.default_rng(5).integers(len(oracle.y), size=(20, SIZE)):
        estimator.estimate(memory, kernels, x, batch, np.empty(0), out)
        x = x - 0.2 * out
    return memory, x


@pytest.mark.parametrize("estimator", [PlainGradient(), SVRGGradient(), SAGAGradient()], ids=lambda e: type(e).__name__)
def test_estimates_are_unbiased(convex, estimator):
    _, oracle = convex
    memory, x = moved_memory(oracle, estimator)
    found = estimates(oracle, estimator, memory, x)
    assert found.std(axis=0).min() > 0
    assert far_from(found, oracle.gradient(x)) < 1.0


def test_sarah_is_biased_given_its_past_and_by_how_much(convex):
    """E v = v₋ + ∇f(x) − ∇f(x₋): the error of the step before stays. The test above would have noticed."""
    _, oracle = convex
    estimator = SARAHGradient()
    memory, x = moved_memory(oracle, estimator)
    found = estimates(oracle, estimator, memory, x)
    expected = memory.direction + oracle.gradient(x) - oracle.gradient(memory.previous)
    assert far_from(found, expected) < 1.0
    assert far_from(found, oracle.gradient(x)) > 2.0


def test_the_first_estimate_of_an_epoch_is_exact(convex):
    _, oracle = convex
    for estimator in (SVRGGradient(), SARAHGradient(), SAGAGradient()):
        problem = loops.plain(oracle)
        memory, kernels, out = estimator.memory(problem), PlainKernels(problem), np.empty(6)
        if hasattr(estimator, "fill"):
            estimator.fill(memory, kernels, START)
        estimator.restart(memory, START, oracle.gradient(START))
        estimator.estimate(memory, kernels, START, np.array([3, 3, 8]), np.empty(0), out)
        assert_allclose(out, oracle.gradient(START), atol=1e-14)


# ------------------------------------------------------------------------------------------------ cost and refusals


def test_counting(convex):
    problem, _ = convex
    kwargs = {"max_epochs": 3, "tol": None}
    sarah = trsvr.minimize(problem, trsvr.SARAH(step=0.1, batch_size=B, inner_steps=S), **kwargs).trace
    assert (sarah["gradient_evaluations"] == sarah["epoch"] * (400 + 2 * B * S)).all()
    saga = trsvr.minimize(problem, trsvr.SAGA(step=0.1, batch_size=B), **kwargs).trace
    # the table's pass, then b a step: an epoch is ⌈N/b⌉ steps
    assert saga["gradient_evaluations"].tolist() == [0, 800, 1200, 1600]


def test_a_table_that_does_not_fit_is_refused_before_it_is_made():
    problem = FunctionProblem(10**9, 10**6, lambda x, i: x)
    with pytest.raises(ValueError, match=r"table of 1000000000 gradients of length 1000000 would need 7450580\.\d GiB"):
        trsvr.SAGA(step=0.1).init(problem, np.zeros(1))
