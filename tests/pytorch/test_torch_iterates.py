"""On a linear model, with the same rows, the torch optimiser and the compiled solver walk the same way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import trsvr
from trsvr._draws import generator
from trsvr.engine.draws import RowSource
from trsvr.parts import Exit, steihaug_cg
from trsvr.parts.subproblems import CGWork
from trsvr.theory import recommended_step
from trsvr.torch.steihaug import trust_region_step

BATCH, STEPS, EPOCHS, SEED = 80, 12, 3, 5


class Stepwise:
    """Rows of an epoch, one batch at a time; keeps the iterate after every step."""

    def __init__(self, state, batches):
        self.state, self.batches, self.iterates = state, batches, []

    def slices(self, batch_size, steps):
        for batch in self.batches:
            yield batch
            self.iterates.append(self.state.x.copy())


def compiled_iterates(problem, solver, x0):
    """Every iterate of some epochs of the compiled solver, on the engine's rows."""
    solver = solver.resolve(problem, np.array(x0), recommended_step)
    state = solver.init(problem, np.array(x0))
    iterates = []
    for epoch in range(EPOCHS):
        state.value, state.gradient = problem.value_and_gradient(state.x)
        rows = Stepwise(state, generator(SEED, epoch).integers(problem.n_samples, size=(STEPS, BATCH)))
        solver.epoch(problem, state, rows)
        iterates += rows.iterates
    return np.array(iterates)


def torch_iterates(data, l2, x0, **options):
    """The same with tensors; the penalty is in the loss, as it is in every f_i."""
    X, y = (torch.from_numpy(array) for array in data)
    w = torch.nn.Parameter(torch.tensor(x0))
    optimizer = trsvr.torch.TRSVR([w], max_cg=500, **options)

    def loss(rows):
        margins = X[rows] @ w
        return -torch.nn.functional.logsigmoid(y[rows] * margins).mean() + 0.5 * l2 * w.dot(w), margins

    iterates, exits = [], set()
    for epoch in range(EPOCHS):
        optimizer.set_reference(loss, torch.arange(len(y)).split(150))  # unequal pieces: 150, 150, 100
        for batch in generator(SEED, epoch).integers(len(y), size=(STEPS, BATCH)):
            rows = torch.from_numpy(batch)
            optimizer.step(lambda rows=rows: loss(rows))
            iterates.append(w.detach().numpy().copy())
            exits.add(optimizer.last_step.exit)
    assert optimizer.steps == STEPS * EPOCHS
    return np.array(iterates), exits


# From SVRG (every step on the boundary) to Newton's method (none).
@pytest.mark.parametrize("alpha", [0.05, 2.0, 100.0])
@pytest.mark.parametrize(("hessian", "tolerance"), [("identity", 1e-9), ("exact", 1e-9), ("estimated", 1e-6)])
def test_the_compiled_solver_and_the_optimiser_agree(convex, data, alpha, hessian, tolerance):
    problem, _ = convex
    x0 = np.linspace(-0.3, 0.3, problem.n_parameters)
    solver = trsvr.TRSVR(alpha=alpha, batch_size=BATCH, inner_steps=STEPS, hessian=hessian)
    ours, exits = torch_iterates(data, 1e-2, x0, alpha=alpha, hessian=hessian)
    theirs = compiled_iterates(problem, solver, x0)
    assert np.abs(theirs[-1] - x0).max() > 0.1
    assert_allclose(ours, theirs, rtol=0, atol=tolerance)
    if hessian != "identity":
        assert exits == {0.05: {Exit.BOUNDARY}, 2.0: {Exit.BOUNDARY, Exit.TOLERANCE}, 100.0: {Exit.TOLERANCE}}[alpha]


def test_the_rows_are_those_that_minimize_draws(convex, data):
    """The engine's own slices are the rows used above, so a whole run can be followed."""
    problem, _ = convex
    source = RowSource(SEED, problem.n_samples)
    source.begin(1, math.inf)
    drawn = np.concatenate(list(source.slices(BATCH, STEPS)))
    assert (drawn == generator(SEED, 1).integers(problem.n_samples, size=(STEPS, BATCH)).ravel()).all()
    solver = trsvr.TRSVR(alpha=0.5, batch_size=BATCH, inner_steps=STEPS, hessian="exact")
    result = trsvr.minimize(problem, solver, max_epochs=EPOCHS, tol=None, seed=SEED, trace_every=EPOCHS)
    ours, _ = torch_iterates(data, 1e-2, np.zeros(problem.n_parameters), alpha=0.5)
    assert_allclose(ours[-1], result.x, rtol=0, atol=1e-9)


def test_gauss_newton_is_exact_on_a_linear_model_and_weight_decay_is_the_penalty(convex, data):
    problem, _ = convex
    x0 = np.linspace(-0.3, 0.3, problem.n_parameters)
    solver = trsvr.TRSVR(alpha=2.0, batch_size=BATCH, inner_steps=STEPS, hessian="exact")
    theirs = compiled_iterates(problem, solver, x0)
    for hessian in ("exact", "gauss-newton"):
        ours, _ = torch_iterates(data, 0.0, x0, alpha=2.0, hessian=hessian, weight_decay=1e-2)
        assert_allclose(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_steihaug_on_tensors_is_steihaug_on_arrays(seed):
    """The same text: same step, same exit, same number of products, also with negative curvature."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 30))
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    H = (Q * rng.uniform(-1.0 if seed % 3 == 0 else 0.05, 3.0, d)) @ Q.T
    g, radius = rng.normal(size=d), 10.0 ** rng.uniform(-2, 2)

    class Dense:
        def product(self, v, squared_norm, out):
            out[:] = H @ v
            return v @ out

    work, norm = CGWork.of_size(d), np.linalg.norm(g)
    reason, products = steihaug_cg(Dense(), g, radius, min(0.5, norm**0.5) * norm, 20, work)
    tensor = torch.from_numpy(H)
    step, exit_, spent = trust_region_step(lambda v: tensor @ v, torch.from_numpy(g), radius, 20)
    assert (exit_, spent) == (Exit(reason), products)
    assert_allclose(step.numpy(), work.step, rtol=0, atol=1e-10 * radius)
