"""Adam: steps scaled by running means of the gradient and of its square (Kingma & Ba 2015), as in PyTorch.

    g = (1/b) Σ_{i∈I} ∇f_i(x)
    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
    x ← x − step · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

An epoch is ⌈N/b⌉ steps, on rows drawn uniformly with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr.parts.schedules import adam_step
from trsvr.problems.base import Problem
from trsvr.solvers.base import EpochReport, EpochRows, Solver, State, check_batch
from trsvr.solvers.momentum import Moments, draws, new_state, rows_per_step, run_epoch


def adam_steps(
    problem: Any,
    memory: Moments,
    x: Vector,
    indices: Indices,
    batch_size: int,
    steps_per_epoch: float,
    settings: tuple[float, float, float, float],
    margins: Vector,
    gradient: Vector,
) -> None:
    """Steps over consecutive batches of ``indices``."""
    step, beta1, beta2, eps = settings
    for begin in range(0, indices.size, batch_size):
        problem.batch_gradient(x, indices[begin : begin + batch_size], margins, gradient)
        memory.steps[0] += 1.0
        adam_step(step, beta1, beta2, eps, memory.steps[0], gradient, memory.mean, memory.square, x)


@dataclass(frozen=True)
class Adam(Solver):
    """Adaptive moments.

    Parameters
    ----------
    step : float
        Step size.
    beta1, beta2 : float
        Memory of the two running means, 0 to below 1.
    eps : float
        Keeps the quotient finite.
    batch_size : int or "auto"
        b, rows per step; "auto" is 64, or N if that is less.
    """

    step: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    batch_size: int | str = "auto"

    needs_reference = False

    def __post_init__(self) -> None:
        _check.positive("step", self.step)
        _check.positive("eps", self.eps)
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0.0 <= _check.positive(name, beta, zero=True) < 1.0:
                raise ValueError(f"{name} must be a number from 0 to below 1, got {beta!r}")
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size)

    def draws(self, problem: Problem) -> tuple[int, int]:
        """Batch size and number of batches of an epoch."""
        return draws(self, problem)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        check_batch(problem, rows_per_step(self, problem))

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first epoch."""
        state = new_state(self, problem, x, with_square=True)
        self._run(problem, state, None)  # no step: compiles before the clock starts
        return state

    def _run(self, problem: Problem, state: State, rows: EpochRows | None) -> EpochReport:
        settings = (float(self.step), float(self.beta1), float(self.beta2), float(self.eps))
        return run_epoch(self, adam_steps, settings, problem, state, rows)

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """⌈N/b⌉ steps."""
        return self._run(problem, state, rows)
