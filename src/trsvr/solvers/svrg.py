"""SVRG: gradient descent on variance-reduced gradients (Johnson & Zhang 2013), last iterate as the next reference.

Outer iteration: reference x̃ = x, full gradient g̃. Then S times, with a batch I of b rows:

    ḡ = (1/b) Σ_{i∈I} (∇f_i(x) − ∇f_i(x̃)) + g̃
    x ← x − step · ḡ
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._compile import compiled_for
from trsvr._vectors import Vector, add_scaled
from trsvr.parts.gradients import Reference, SVRGGradient
from trsvr.problems.margins import Indices
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.base import Access, EpochReport, EpochRows, State, access, check_batch


def inner_loop(
    problem: Any,
    estimator: SVRGGradient,
    memory: Reference,
    x: Vector,
    indices: Indices,
    batch_size: int,
    step: float,
    margins: Vector,
    gradient: Vector,
) -> None:
    """Steps over consecutive batches of ``indices``; changes x."""
    for begin in range(0, indices.size, batch_size):
        batch = indices[begin : begin + batch_size]
        estimator.estimate(memory, problem, x, batch, margins, gradient)
        add_scaled(-step, gradient, x)


@dataclass(frozen=True)
class SVRG:
    """Stochastic variance-reduced gradient.

    Parameters
    ----------
    step : float
        Step size.
    batch_size : int
        b, rows per step, drawn uniformly with replacement.
    inner_steps : int
        S, steps per outer iteration.
    """

    step: float = 0.1
    batch_size: int = 200
    inner_steps: int = 200

    needs_reference = True

    def __post_init__(self) -> None:
        _check.positive("step", self.step)
        _check.whole("batch_size", self.batch_size)
        _check.whole("inner_steps", self.inner_steps)

    def check(self, problem: FiniteSum) -> None:
        """Raise ValueError if this cannot run on the problem."""
        check_batch(problem, self.batch_size)

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first epoch."""
        reached = access(problem)
        room = (self.batch_size + 2) * reached.kernels.outputs()
        state = State(x=x, memory=SVRGGradient().memory(x.size), work=(np.zeros(room), np.zeros(x.size)))
        self._run(reached, state, np.empty(0, dtype=np.int64))  # no step: compiles before the clock starts
        return state

    def _run(self, reached: Access, state: State, indices: Indices) -> None:
        run = compiled_for(inner_loop, reached.kernels)
        kernels, step = reached.kernels, float(self.step)
        run(kernels, SVRGGradient(), state.memory, state.x, indices, self.batch_size, step, *state.work)

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """One outer iteration."""
        reached = access(problem)
        SVRGGradient().restart(state.memory, state.x, state.gradient)
        steps = 0
        for indices in rows.slices(self.batch_size, self.inner_steps):
            self._run(reached, state, reached.rows(indices))
            steps += indices.size // self.batch_size
        return EpochReport(
            steps=steps,
            gradient_evaluations=steps * SVRGGradient().evaluations(self.batch_size),
            batch_size=self.batch_size,
            inner_steps=steps,
        )
