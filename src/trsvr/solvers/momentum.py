"""What SGD and Adam share: plain batch gradients, and an epoch of ⌈N/b⌉ steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import compiled_for, record
from trsvr.parts.schedules import SCHEDULES
from trsvr.problems.base import Problem
from trsvr.solvers.base import Access, EpochReport, EpochRows, Solver, State, access, check_batch

# What users of deep-learning libraries know as an ordinary batch.
_AUTO_BATCH = 64


@record
class Moments(NamedTuple):
    """Running means of the gradient (and of its square), and the number of steps made."""

    mean: Vector
    square: Vector
    steps: Vector


def checked_schedule(schedule: Any) -> Any:
    """A schedule from its name or as it is."""
    if isinstance(schedule, str):
        return SCHEDULES[_check.one_of("schedule", schedule, SCHEDULES)]()
    if isinstance(schedule, type) or "factor" not in dir(schedule):
        raise ValueError(
            f"schedule must be one of {', '.join(map(repr, SCHEDULES))} or have factor(epochs), got {schedule!r}"
        )
    return record(type(schedule)) and schedule if isinstance(schedule, tuple) else schedule


class Momentum(Solver):
    """The loop of both; each has its steps, the settings that they are given, and perhaps a mean of squares."""

    batch_size: int | str
    needs_reference = False
    #: compiled steps over consecutive batches
    steps: ClassVar[Callable[..., None]]
    with_square: ClassVar[bool] = False

    def settings(self) -> tuple[Any, ...]:
        """What a step needs to know."""
        raise NotImplementedError

    def draws(self, problem: Problem) -> tuple[int, int]:
        """Batch size and number of batches of an epoch."""
        b = min(_AUTO_BATCH, problem.n_samples) if self.batch_size == "auto" else int(self.batch_size)
        return b, math.ceil(problem.n_samples / b)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        check_batch(problem, self.draws(problem)[0])

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first epoch."""
        d, room = x.size, access(problem).kernels.room(self.draws(problem)[0])
        memory = Moments(np.zeros(d), np.zeros(d if self.with_square else 0), np.zeros(1))
        state = State(x=x, memory=memory, work=(np.zeros(room), np.zeros(d)))
        self.epoch(problem, state, None)  # no step: compiles before the clock starts
        return state

    def epoch(self, problem: Problem, state: State, rows: EpochRows | None) -> EpochReport:
        """⌈N/b⌉ steps; none, to compile them, without rows."""
        settings = self.settings()
        parts = [setting for setting in settings if not isinstance(setting, float)]
        reached = access(problem, *parts)
        run = compiled_for(type(self).steps, reached.kernels, *parts)
        b, per_epoch = self.draws(problem)

        def go(here: Access, indices: Indices) -> None:
            run(here.kernels, state.memory, state.x, indices, b, float(per_epoch), settings, *state.work)

        if rows is None:
            go(reached, np.empty(0, dtype=np.int64))
            return EpochReport()
        done = 0
        for indices in rows.slices(b, per_epoch):
            for here, numbers in reached.pieces(indices, b):
                go(here, numbers)
            done += indices.size // b
        return EpochReport(steps=done, gradient_evaluations=done * b, batch_size=b, inner_steps=done)
