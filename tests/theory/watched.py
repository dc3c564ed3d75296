"""Runs whose every inner iterate is looked at, through the solvers' own interface."""

from __future__ import annotations

import numpy as np

from trsvr._draws import generator
from trsvr.theory import recommended_step


class Rows:
    """The rows of one epoch, one batch at a time; ``before_step`` is called between any two steps."""

    def __init__(self, seed, epoch, n_samples, before_step):
        self.rng = generator(seed, epoch)
        self.n_samples = n_samples
        self.before_step = before_step

    def slices(self, batch_size, steps):
        for _ in range(steps):
            self.before_step()
            yield self.rng.integers(self.n_samples, size=batch_size)


def squared_gradients(problem, oracle, solver, x0, epochs, seed):
    """‖∇f(x_{k,s})‖² for all k and s, shape (epochs, S), by the oracle; the largest |w_j| seen; the end."""
    solver = solver.resolve(problem, np.array(x0, dtype=float), recommended_step)
    state = solver.init(problem, np.array(x0, dtype=float))
    norms, largest = [], 0.0

    def look():
        nonlocal largest
        gradient = oracle.gradient(state.x)
        norms.append(gradient @ gradient)
        largest = max(largest, np.abs(state.x).max())

    for epoch in range(epochs):
        state.value, state.gradient = problem.value_and_gradient(state.x)
        solver.epoch(problem, state, Rows(seed, epoch, problem.n_samples, look))
    return np.array(norms).reshape(epochs, -1), largest, state.x.copy()


def steps_from(problem, solver, x, reference, count, seed):
    """Where single steps from x lead, over many batches, with the reference point fixed: array (count, d)."""
    solver = solver.resolve(problem, np.array(reference, dtype=float), recommended_step)
    state = solver.init(problem, np.array(reference, dtype=float))
    state.value, state.gradient = problem.value_and_gradient(state.x)
    reached = []

    def return_to_x():
        reached.append(state.x.copy())
        state.x[:] = x

    solver.epoch(problem, state, Rows(seed, 0, problem.n_samples, return_to_x))
    reached.append(state.x.copy())
    assert len(reached) == count + 1
    return np.array(reached[1:])
