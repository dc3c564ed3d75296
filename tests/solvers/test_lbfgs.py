"""L-BFGS: SciPy's iterates with our trace, counts, limits and callbacks."""

from __future__ import annotations

import loops
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import trsvr
from trsvr.problems import FunctionProblem

START = np.array([0.5, -0.5, 0.3, 0.1, -0.2, 0.4])


def scipys(oracle, **options):
    settings = {"maxcor": 10, "maxls": 50, "ftol": 0.0, "gtol": 0.0, **options}
    return scipy.optimize.minimize(oracle.value, START, jac=oracle.gradient, method="L-BFGS-B", options=settings)


@pytest.mark.parametrize("iterations", [1, 3, 8])
def test_the_iterates_and_counts_are_scipys(convex, iterations):
    _, oracle = convex
    known = scipys(oracle, maxiter=iterations)
    result = trsvr.minimize(loops.plain(oracle), trsvr.LBFGS(), x0=START, max_epochs=iterations, tol=None)
    assert result.status is trsvr.Status.EPOCH_LIMIT
    assert_allclose(result.x, known.x, rtol=0, atol=1e-13)
    assert result.passes == known.nfev
    assert result.epochs == known.nit == iterations


def test_it_converges_and_says_so(convex):
    problem, oracle = convex
    result = trsvr.minimize(problem, trsvr.LBFGS(), x0=START)
    assert result.status is trsvr.Status.CONVERGED
    assert np.abs(oracle.gradient(result.x)).max() <= 1e-8 * np.abs(oracle.gradient(np.zeros(6))).max() * (1 + 1e-6)
    trace = result.trace
    assert (np.diff(trace["value"]) <= 0).all()
    assert (np.diff(trace["passes"]) >= 1).all()
    assert (np.diff(trace["seconds"]) > 0).all()


def test_at_the_rounding_floor_it_ends_by_itself(convex):
    problem, oracle = convex
    result = trsvr.minimize(problem, trsvr.LBFGS(), tol=None, max_epochs=1000)
    assert result.status is trsvr.Status.ROUNDING_FLOOR
    assert np.abs(oracle.gradient(result.x)).max() < 1e-8


def test_limits_and_callbacks_are_obeyed(convex):
    problem, _ = convex
    assert trsvr.minimize(problem, trsvr.LBFGS(), max_passes=4.0, tol=None).status is trsvr.Status.PASS_LIMIT
    seen = []

    def stop_at_three(result):
        seen.append(result.epochs)
        if result.epochs == 3:
            raise StopIteration

    result = trsvr.minimize(problem, trsvr.LBFGS(), callback=stop_at_three)
    assert result.status is trsvr.Status.CALLBACK
    assert seen == [0, 1, 2, 3]


def test_it_needs_values():
    with pytest.raises(ValueError, match="LBFGS searches along lines by values: give the FunctionProblem a value"):
        trsvr.minimize(FunctionProblem(3, 2, lambda x, i: x), trsvr.LBFGS())
