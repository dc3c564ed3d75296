"""What SGD and Adam share: plain batch gradients, and an epoch of ⌈N/b⌉ steps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import compiled_for, record
from trsvr.parts.schedules import SCHEDULES
from trsvr.problems.base import Problem
from trsvr.solvers.base import Access, EpochReport, EpochRows, State, access

# What users of deep-learning libraries know as an ordinary batch.
_AUTO_BATCH = 64


@record
class Moments(NamedTuple):
    """Running means of the gradient (and of its square), and the number of steps made."""

    mean: Vector
    square: Vector
    steps: Vector

    @classmethod
    def of_size(cls, d: int, with_square: bool) -> Moments:
        """Zero moments."""
        return cls(np.zeros(d), np.zeros(d if with_square else 0), np.zeros(1))


def checked_schedule(schedule: Any) -> Any:
    """A schedule from its name or as it is."""
    if isinstance(schedule, str):
        return SCHEDULES[_check.one_of("schedule", schedule, SCHEDULES)]()
    if isinstance(schedule, type) or "factor" not in dir(schedule):
        raise ValueError(
            f"schedule must be one of {', '.join(map(repr, SCHEDULES))} or have factor(epochs), got {schedule!r}"
        )
    return record(type(schedule)) and schedule if isinstance(schedule, tuple) else schedule


def rows_per_step(solver: Any, problem: Problem) -> int:
    """The number b."""
    return min(_AUTO_BATCH, problem.n_samples) if solver.batch_size == "auto" else int(solver.batch_size)


def draws(solver: Any, problem: Problem) -> tuple[int, int]:
    """Batch size and number of batches of an epoch."""
    b = rows_per_step(solver, problem)
    return b, math.ceil(problem.n_samples / b)


def run_epoch(
    solver: Any, steps: Any, settings: tuple[Any, ...], problem: Problem, state: State, rows: EpochRows | None
) -> EpochReport:
    """⌈N/b⌉ steps of the compiled function ``steps``; none, to compile it, without rows."""
    parts = [setting for setting in settings if not isinstance(setting, float)]
    reached = access(problem, *parts)
    run = compiled_for(steps, reached.kernels, *parts)
    b = rows_per_step(solver, problem)
    per_epoch = math.ceil(problem.n_samples / b)

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


def new_state(solver: Any, problem: Problem, x: Vector, with_square: bool) -> State:
    """State before the first epoch."""
    room = access(problem).kernels.room(rows_per_step(solver, problem))
    return State(x=x, memory=Moments.of_size(x.size, with_square), work=(np.zeros(room), np.zeros(x.size)))
