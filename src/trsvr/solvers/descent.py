"""Descent along a gradient estimate: the loop that SVRG, SARAH and SAGA share.

    x ← x − step · estimate

What tells them apart is the estimator, and each one's file says what that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import compiled_for, record
from trsvr._vectors import add_scaled
from trsvr.problems.base import Problem
from trsvr.solvers import lazy
from trsvr.solvers.base import Access, EpochReport, EpochRows, Solver, State, access, check_batch, check_table

# Rows ahead of the one at work that are asked for. Batches of more rows do so themselves.
_AHEAD = 6


@record
class DescentWork(NamedTuple):
    """Scratch of the loop."""

    margins: Vector
    gradient: Vector


def descent_steps(
    problem: Any,
    estimator: Any,
    memory: Any,
    x: Vector,
    indices: Indices,
    batch_size: int,
    step: float,
    work: DescentWork,
) -> None:
    """Steps over consecutive batches of ``indices``; changes x and the memory."""
    for begin in range(0, indices.size, batch_size):
        if batch_size < _AHEAD:
            for k in range(begin + _AHEAD, min(begin + _AHEAD + batch_size, indices.size)):
                problem.touch_row(indices[k])
        batch = indices[begin : begin + batch_size]
        estimator.estimate(memory, problem, x, batch, work.margins, work.gradient)
        add_scaled(-step, work.gradient, x)


@dataclass(frozen=True)
class Descent(Solver):
    """What the three methods have in common."""

    step: float | str = "auto"
    batch_size: int = 1

    #: the estimator, and the steps on sparse rows that are its own
    estimator: ClassVar[Any]
    sparse_steps: ClassVar[Callable[..., None]]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.step != "auto":
            _check.positive("step", self.step)
        _check.whole("batch_size", self.batch_size)

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""
        return bool(self.estimator.needs_reference)

    def steps_per_epoch(self, problem: Problem) -> int:
        """⌈N/b⌉, unless the method has an inner loop of its own length."""
        return math.ceil(problem.n_samples / self.batch_size)

    def draws(self, problem: Problem) -> tuple[int, int]:
        """Batch size and number of batches of an epoch."""
        return self.batch_size, self.steps_per_epoch(problem)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        check_batch(problem, self.batch_size)
        check_table(problem, self.estimator)

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """The same method with the step that theory recommends, where none was given."""
        if self.step != "auto":
            return self
        return replace(self, step=recommended_step(problem, self.name, batch_size=self.batch_size, x=x))

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first epoch."""
        step = float(self.step)
        reached = access(problem)
        margins = np.zeros(reached.kernels.room(self.batch_size))
        work: Any = DescentWork(margins, np.zeros(x.size))
        if lazy.applies(reached.kernels, self.batch_size, step):
            work = (margins, lazy.LazyWork.for_step(x.size, step, reached.kernels.regularizer.strength))
        state = State(x=x, memory=reached.memory(self.estimator), scalars={"step": step}, work=work)
        self._run(reached, state, np.empty(0, dtype=np.int64))  # no step: compiles before the clock starts
        reached.warm_up_table(self.estimator, state)
        return state

    def _run(self, reached: Access, state: State, indices: Indices) -> None:
        kernels, step = reached.kernels, state.scalars["step"]
        if isinstance(state.work, DescentWork):
            run = compiled_for(descent_steps, kernels)
            run(kernels, self.estimator, state.memory, state.x, indices, self.batch_size, step, state.work)
        else:
            run = compiled_for(type(self).sparse_steps, kernels)
            run(kernels, state.memory, state.x, indices, self.batch_size, step, *state.work)

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """One epoch."""
        reached = access(problem)
        report = EpochReport(alpha=state.scalars["step"], batch_size=self.batch_size)
        if reached.fill_table(self.estimator, state):
            report.gradient_evaluations += problem.n_samples
        self.estimator.restart(state.memory, state.x, state.gradient)
        # On sparse rows untouched coordinates are brought up to date at the end of a slice, which shows in last digits.
        fixed = {}
        if not isinstance(state.work, DescentWork):
            fixed["at_once"] = lazy.steps_at_once(reached.kernels, self.batch_size)
        for indices in rows.slices(self.batch_size, self.steps_per_epoch(problem), **fixed):
            for here, numbers in reached.pieces(indices, self.batch_size):
                self._run(here, state, numbers)
            report.steps += indices.size // self.batch_size
        report.gradient_evaluations += report.steps * self.estimator.evaluations(self.batch_size)
        report.inner_steps = report.steps
        return report


@dataclass(frozen=True)
class InnerLoopDescent(Descent):
    """A method with a reference point, whose inner loop has a length of its own."""

    inner_steps: int | str = "auto"

    #: rows that an automatic inner loop draws, over N
    rounds: ClassVar[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner_steps != "auto":
            _check.whole("inner_steps", self.inner_steps)

    def steps_per_epoch(self, problem: Problem) -> int:
        """The number S."""
        if self.inner_steps == "auto":
            return math.ceil(self.rounds * problem.n_samples / self.batch_size)
        return int(self.inner_steps)
