"""Numerical trouble ends in a status that names it, at the best point; never in a silent NaN or an endless run."""

from __future__ import annotations

import re

import numpy as np
import pytest

import endings
import trsvr
from trsvr import Status
from trsvr.engine.stopping import GradientTest
from trsvr.parts.norms import DenseNorm
from trsvr.problems import FunctionProblem
from trsvr.solvers.base import Progress

A = np.random.default_rng(0).normal(size=(60, 4))
B = A @ np.ones(4)


def gradient(x, i):
    return A[i].T @ (A[i] @ x - B[i]) / len(i)


def value(x, i):
    return 0.5 * np.mean((A[i] @ x - B[i]) ** 2)


def product(x, i, v):
    return A[i].T @ (A[i] @ v) / len(i)


SOLVERS = [
    trsvr.TRSVR(),
    trsvr.TRSVR(alpha=0.3, batch_size=5, inner_steps=10),
    trsvr.TRSVR(alpha=0.3, batch_size=5, inner_steps=10, hessian="exact"),
    trsvr.SVRG(step=0.05, batch_size=5, inner_steps=20),
    trsvr.SAGA(step=0.02),
    trsvr.SARAH(step=0.05, batch_size=5, inner_steps=20),
    trsvr.SGD(step=0.01),
    trsvr.Adam(step=0.01),
    trsvr.TRish(),
    trsvr.TrustRegion(),
    trsvr.LBFGS(),
]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)


def poisoned(function, after):
    """The function, with NaN from a certain call on."""
    calls = []

    def call(x, i, *more):
        calls.append(1)
        answer = function(x, i, *more)
        return answer * np.nan if len(calls) > after else answer

    return call


@each_solver
@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_gradient_that_becomes_nan_is_named_with_its_rows(solver, after):
    problem = FunctionProblem(60, 4, poisoned(gradient, after), value, product)
    result = trsvr.minimize(problem, solver, max_epochs=50, tol=None)
    assert result.status is Status.NOT_FINITE, result.message
    assert "gradient returned NaN at position 0 for the rows" in result.message
    assert not result.success
    assert np.isfinite(result.x).all()
    if after:
        assert np.isfinite(result.value)


@each_solver
def test_a_value_that_is_nan_is_named(solver):
    problem = FunctionProblem(60, 4, gradient, poisoned(value, 1), product)
    result = trsvr.minimize(problem, solver, max_epochs=50, tol=None)
    assert result.status is Status.NOT_FINITE, result.message
    # A method that refuses steps makes shorter ones, and gives up when no step is short enough.
    place = r"value returned NaN for the rows 0, 1, 2, 3, 4, 5, 6, 7, … \(60 in all\) in epoch (1|31)\)"
    assert re.search(place, result.message)
    assert (result.x == 0).all()


@pytest.mark.parametrize("solver", [SOLVERS[0], SOLVERS[2], trsvr.TrustRegion()], ids=["adaptive", "exact", "classic"])
def test_a_product_that_is_nan_is_named(solver):
    problem = FunctionProblem(60, 4, gradient, value, poisoned(product, 2))
    result = trsvr.minimize(problem, solver, max_epochs=50, tol=None)
    assert result.status is Status.NOT_FINITE
    assert "hessian_product returned NaN" in result.message


def test_a_problem_of_the_users_own_class():
    class Mine:
        n_samples, n_parameters = 60, 4

        def value_and_gradient(self, x):
            return value(x, slice(None)), self.batch_gradient(x, np.arange(60))

        def batch_gradient(self, x, i):
            return np.full(4, np.nan) if len(i) == 5 and 17 in i else gradient(x, i)

        def gather(self, i):
            raise NotImplementedError

    result = trsvr.minimize(Mine(), trsvr.SVRG(step=0.01, batch_size=5, inner_steps=20))
    assert result.status is Status.NOT_FINITE
    assert "batch_gradient returned NaN" in result.message
    assert "17" in result.message.split("rows")[1]


@each_solver
def test_a_gradient_of_zero_ends_the_run(solver):
    flat = FunctionProblem(60, 4, lambda x, i: np.zeros(4), lambda x, i: 1.0, lambda x, i, v: np.zeros(4))
    result = trsvr.minimize(flat, solver, max_epochs=3)
    assert result.status is Status.CONVERGED
    assert result.epochs <= 1  # a method that leaves saddle points asks the Hessian first
    result = trsvr.minimize(flat, solver, max_epochs=3, tol=None)  # no wish to stop: nothing happens, three times
    assert result.status in (Status.EPOCH_LIMIT, Status.ROUNDING_FLOOR)
    assert (result.x == 0).all()


@pytest.mark.parametrize("solver", [trsvr.TRSVR(), trsvr.TrustRegion(), trsvr.LBFGS()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("start", [None, np.full(4, 3.0)])
def test_a_gradient_of_the_wrong_sign_is_not_called_the_rounding_floor(solver, start):
    """No step along −g lowers the value: α, radius and line search collapse, and the reason is told."""
    wrong = FunctionProblem(60, 4, lambda x, i: -gradient(x, i), value, product)
    result = trsvr.minimize(wrong, solver, x0=start, max_epochs=3000)
    assert result.status is Status.NO_PROGRESS, result.message
    assert "values and gradients disagree" in result.message
    assert not result.success
    assert result.epochs < 2000


def test_steps_that_are_too_short_are_not_called_the_rounding_floor(convex):
    result = trsvr.minimize(convex[0], trsvr.SVRG(step=1e-30, batch_size=20, inner_steps=5))
    assert result.status is Status.NO_PROGRESS
    assert "steps are too short" in result.message


def test_a_convex_run_that_has_got_stuck_ends():
    """With λ = 1e-12 rounding let a radius shrink and grow to the last iteration."""
    assert trsvr.minimize(endings._model(endings.odd(202654)), max_epochs=1000).epochs < 200
    for may_be_saddle, ends in ((False, True), (True, False)):  # beside a saddle point a value may stand still
        test = GradientTest("auto")
        test.start(1.0, np.ones(2), np.ones(2))
        known = Progress(1e-3, False, may_be_saddle)
        found = [test.judge(0.5 - 1e-15 * k, np.full(2, 0.1), True, known) for k in range(60)]
        assert (Status.NO_PROGRESS in found) is ends
        assert set(found[:50]) == {None}
        slow = [test.judge(0.4 - 1e-12 * k, np.full(2, 0.1), True, known) for k in range(60)]
        assert set(slow) == {None}  # it still gains more than a run that expects no more would end at
    assert GradientTest("auto").judge(0.5, np.full(2, 0.1), True, Progress(1e-3, False, False)) is None


def test_a_run_that_is_slow_but_goes_on_is_not_ended():
    """A tenth of what is left an iteration: the last twelve digits take 150 of them."""
    assert trsvr.minimize(endings._model(endings.odd(203624)), max_epochs=1000).status is Status.ROUNDING_FLOOR


def test_a_run_that_has_got_stuck_in_the_last_bits_of_its_first_value_is_at_the_floor():
    result = trsvr.minimize(endings._model(endings.odd(202654)))
    assert result.status is Status.ROUNDING_FLOOR
    assert result.gap_bound < 1e-16  # of a first value of 0.7
    test = GradientTest("auto")
    test.start(2.0, np.ones(2), np.ones(2))
    assert test.is_lost_in_rounding(1e-14)
    assert not test.is_lost_in_rounding(1e-13)
    assert not test.is_lost_in_rounding(np.nan)


@pytest.mark.parametrize("solver", [trsvr.SVRG(step=1e3, batch_size=5), trsvr.SGD(step=1e6), trsvr.Adam(step=1e200)])
def test_overflow_of_the_loss_is_divergence_at_the_best_point(solver):
    problem = trsvr.problems.LinearModel(A, B, trsvr.problems.Squared(), trsvr.problems.L2(0.0))
    result = trsvr.minimize(problem, solver, max_epochs=200)
    assert result.status is Status.DIVERGED
    assert np.isfinite(result.x).all()
    assert np.isfinite(result.value)


def test_curvature_that_overflows_is_refused_and_not_factored_for_ever():
    with pytest.raises(FloatingPointError, match="scale the columns"):
        DenseNorm(np.full((2, 2), np.inf), np.zeros(2))
    with pytest.raises(FloatingPointError, match="scale the columns"):
        DenseNorm(np.eye(2), np.array([np.nan, 1.0]))


@each_solver
@pytest.mark.parametrize("threads", [2, 4])
def test_the_same_bits_on_any_number_of_threads(convex, solver, threads):
    one = trsvr.minimize(convex[0], solver, max_epochs=4, threads=1)
    other = trsvr.minimize(convex[0], solver, max_epochs=4, threads=threads)
    assert np.array_equal(one.x, other.x)
    assert one.trace.drop(columns="seconds").equals(other.trace.drop(columns="seconds"))
