"""The methods once more, as NumPy loops over an oracle, and ways to look at a solver between its steps."""

from __future__ import annotations

import math

import numpy as np

from oracle import penalty_terms
from trsvr.engine.draws import RowSource
from trsvr.problems import FunctionProblem
from trsvr.theory import recommended_step


def plain(oracle, *, product=True):
    """The oracle as a problem of its own: runs the uncompiled text."""
    return FunctionProblem(
        len(oracle.y),
        oracle.n_parameters,
        lambda x, i: oracle.gradient(x, i),
        lambda x, i: oracle.value(x),
        (lambda x, i, v: oracle.hessian(x, i) @ v) if product else None,
    )


class Stepwise:
    """Rows of an epoch, one batch at a time; keeps the iterate after every step."""

    def __init__(self, state, indices):
        self.state, self.indices, self.iterates = state, indices, []

    def slices(self, batch_size, steps, at_once=None):
        for batch in self.indices[: steps * batch_size].reshape(steps, batch_size):
            yield batch
            self.iterates.append(self.state.x.copy())


class Whole:
    """Rows of an epoch in a single slice."""

    def __init__(self, indices):
        self.indices = indices

    def slices(self, batch_size, steps, at_once=None):
        yield self.indices[: steps * batch_size]


def last_iterate(problem, solver, x0, epochs, seed):
    """Where a solver is after some epochs of the usual slices (`minimize` returns the best point instead)."""
    solver = solver.resolve(problem, np.array(x0, dtype=float), recommended_step)
    state = solver.init(problem, np.array(x0, dtype=float))
    source = RowSource(seed, problem.n_samples)
    for epoch in range(epochs):
        source.begin(epoch, math.inf)
        state.value, state.gradient = problem.value_and_gradient(state.x)
        solver.epoch(problem, state, source)
    return state.x


def svrg(oracle, x, step, batches):
    reference, full = x, oracle.gradient(x)
    for batch in batches:
        x = x - step * (oracle.gradient(x, batch) - oracle.gradient(reference, batch) + full)
    return x


def sarah(oracle, x, step, batches):
    before, v = x, oracle.gradient(x)
    for batch in batches:
        v = oracle.gradient(x, batch) - oracle.gradient(before, batch) + v
        before, x = x, x - step * v
    return x


class Saga:
    """SAGA with a table of gradients: those of the losses, the regulariser being exact, or of the whole components."""

    def __init__(self, oracle, x, whole=False):
        self.oracle, self.whole = oracle, whole
        self.table = self.tabled(x)

    def penalty(self, x):
        gradient = np.zeros_like(x)
        if not self.whole:
            penalised = self.oracle.X.shape[1] * self.oracle.outputs
            gradient[:penalised] = penalty_terms(self.oracle.regularizer, x[:penalised])[1]
        return gradient

    def tabled(self, x):
        return self.oracle.component_gradients(x) - self.penalty(x)

    def steps(self, x, step, batches):
        for batch in batches:
            new = self.tabled(x)
            estimate = (new[batch] - self.table[batch]).mean(axis=0) + self.table.mean(axis=0)
            self.table[batch] = new[batch]
            x = x - step * (estimate + self.penalty(x))
        return x
