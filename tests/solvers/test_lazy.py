"""Steps on sparse rows that cost the nonzeros of a batch: the same iterates as NumPy's dense loops, and as ours."""

from __future__ import annotations

import loops
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import trsvr
from oracle import Oracle, scaled_weights
from trsvr._draws import generator
from trsvr.problems import L2, LinearModel, Logistic
from trsvr.solvers import lazy
from trsvr.solvers.descent import DescentWork

N, D = 60, 90
METHODS = [trsvr.SVRG, trsvr.SARAH, trsvr.SAGA]


def sparse_rows(n=N, d=D):
    """Rows of 0 … 4 nonzeros, one of them empty; the last columns are never touched, the first one often."""
    rng = np.random.default_rng(3)
    X = np.zeros((n, d))
    for i in range(1, n):
        X[i, rng.choice(d - 5, size=rng.integers(1, 5), replace=False)] = rng.normal(size=1) + 1.0
        X[i, 0] = 0.5
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return X, y


def is_lazy(problem, solver):
    return not isinstance(solver.init(problem, np.zeros(problem.n_parameters)).work, DescentWork)


def numpy_epochs(kind, oracle, x, step, epochs, b, steps, seed):
    table = loops.Saga(oracle, x) if kind is trsvr.SAGA else None
    for epoch in range(epochs):
        batches = generator(seed, epoch).integers(len(oracle.y), size=steps * b).reshape(steps, b)
        if table is not None:
            x = table.steps(x, step, batches)
        else:
            x = (loops.svrg if kind is trsvr.SVRG else loops.sarah)(oracle, x, step, batches)
    return x


@pytest.mark.parametrize("strength", [0.0, 1e-2, 0.3])
@pytest.mark.parametrize("extras", ["bare", "intercept", "intercept and weights"])
@pytest.mark.parametrize("b", [1, 5])
@pytest.mark.parametrize("kind", METHODS)
def test_lazy_steps_are_the_dense_loop(kind, b, extras, strength):
    X, y = sparse_rows()
    weights = np.linspace(0.2, 3.0, N) if "weights" in extras else None
    intercept = "intercept" in extras
    options = {"intercept": intercept, "sample_weight": weights}
    sparse = LinearModel(scipy.sparse.csr_array(X), y, Logistic(), L2(strength), **options)
    dense = LinearModel(X, y, Logistic(), L2(strength), **options)
    solver = kind(step=0.2, batch_size=b)
    assert is_lazy(sparse, solver)
    assert not is_lazy(dense, solver)

    x0 = np.random.default_rng(7).normal(size=sparse.n_parameters)
    found = loops.last_iterate(sparse, solver, x0, 2, seed=5)
    assert_allclose(found, loops.last_iterate(dense, solver, x0, 2, seed=5), rtol=0, atol=1e-10)

    scale = None if weights is None else scaled_weights(weights)
    oracle = Oracle(X, y, Logistic(), L2(strength), intercept=intercept, scale=scale)
    truth = numpy_epochs(kind, oracle, x0, 0.2, 2, b, solver.steps_per_epoch(sparse), 5)
    assert_allclose(found, truth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", METHODS)
def test_rows_of_weight_zero_are_not_drawn(kind):
    X, y = sparse_rows()
    weights = np.where(np.arange(N) % 3 == 0, 0.0, np.linspace(0.2, 3.0, N))
    kept = weights > 0
    problem = LinearModel(scipy.sparse.csr_array(X), y, Logistic(), L2(1e-2), sample_weight=weights)
    solver = kind(step=0.2, batch_size=2)
    assert is_lazy(problem, solver)
    oracle = Oracle(X[kept], y[kept], Logistic(), L2(1e-2), scale=scaled_weights(weights)[kept])
    x0 = np.random.default_rng(7).normal(size=D)
    truth = numpy_epochs(kind, oracle, x0, 0.2, 2, 2, solver.steps_per_epoch(problem), 5)
    assert_allclose(loops.last_iterate(problem, solver, x0, 2, seed=5), truth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("strength", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("kind", METHODS)
def test_coordinates_that_wait_longer_than_the_tables(kind, strength):
    """A slice of more steps than powers are tabled, with columns that no row touches, or one rare row does."""
    X, y = sparse_rows()
    X[:, 5:12] = 0.0
    X[-1, 5:12] = 1.0  # this row is drawn once, near the end
    steps = lazy._TABLED + 1500
    indices = np.random.default_rng(2).integers(N - 1, size=steps)
    indices[-40] = N - 1
    x0 = np.random.default_rng(7).normal(size=D)
    iterates = []
    for rows in (scipy.sparse.csr_array(X), X):
        problem = LinearModel(rows, y, Logistic(), L2(strength))
        solver = kind(step=0.05) if kind is trsvr.SAGA else kind(step=0.05, inner_steps=steps)
        state = solver.init(problem, x0.copy())
        state.value, state.gradient = problem.value_and_gradient(state.x)
        if kind is trsvr.SAGA:  # an epoch of SAGA has N steps, so the long slice is handed to the steps themselves
            solver.epoch(problem, state, loops.Whole(indices))
            solver._run(trsvr.solvers.base.access(problem), state, indices)
        else:
            solver.epoch(problem, state, loops.Whole(indices))
        iterates.append(state.x)
    assert_allclose(iterates[0], iterates[1], rtol=0, atol=1e-10)
    assert np.abs(iterates[0] - x0).max() > 0.1


@pytest.mark.parametrize("kind", METHODS)
def test_how_an_epoch_is_sliced_does_not_matter(kind):
    X, y = sparse_rows()
    problem = LinearModel(scipy.sparse.csr_array(X), y, Logistic(), L2(1e-2), intercept=True)
    solver = kind(step=0.2, batch_size=3)
    indices = generator(0, 0).integers(N, size=3 * solver.steps_per_epoch(problem))
    ends = []
    for slicing in ("whole", "stepwise"):
        state = solver.init(problem, np.full(D + 1, 0.3))
        state.value, state.gradient = problem.value_and_gradient(state.x)
        solver.epoch(problem, state, loops.Whole(indices) if slicing == "whole" else loops.Stepwise(state, indices))
        ends.append(state.x)
    assert_allclose(*ends, rtol=0, atol=1e-12)


def test_where_there_is_no_shortcut_dense_vectors_are_used():
    X, y = sparse_rows()
    rows = scipy.sparse.csr_array(X)
    assert is_lazy(LinearModel(rows, y, Logistic(), L2(0.1)), trsvr.SVRG(step=0.2))
    double_well = trsvr.problems.double_well_logistic(rows, y)
    assert not is_lazy(double_well, trsvr.SVRG(step=0.2))
    assert not is_lazy(LinearModel(rows, y, Logistic(), L2(0.1)), trsvr.SVRG(step=0.2, batch_size=20))  # many rows
    assert not is_lazy(LinearModel(rows, y, Logistic(), L2(5.0)), trsvr.SVRG(step=0.2))  # 1 − step·λ is not positive
