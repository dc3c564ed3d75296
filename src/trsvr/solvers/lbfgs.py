"""L-BFGS through SciPy (Zhu, Byrd, Lu & Nocedal's L-BFGS-B): the opponent that users really have.

SciPy runs its own loop; after every iteration it reports here, so that the trace, the counts, the limits and the
callbacks are those of every other solver. An epoch is one iteration; each evaluation of the line search counts N.

SciPy cannot be stopped and continued later. So a run that writes checkpoints remembers the values and gradients that
SciPy was given; a later process hands them to it again, without touching the data, and goes on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.parts.gradients import NoMemory
from trsvr.problems.base import Problem
from trsvr.solvers.base import EpochReport, Solver, State


@dataclass
class _History:
    """What SciPy was told so far, and at which points."""

    start: Vector | None = None
    points: list[bytes] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    gradients: list[Vector] = field(default_factory=list)
    iterations: int = 0

    def add(self, x: Vector, value: float, gradient: Vector) -> None:
        self.points.append(_mark(x))
        self.values.append(value)
        self.gradients.append(gradient.copy())

    def told(self, number: int, x: Vector) -> tuple[float, Vector]:
        """The answer that evaluation ``number`` was given, which must have been at x."""
        if self.points[number] != _mark(x):
            raise ValueError(
                "SciPy's L-BFGS-B takes other steps than when the checkpoint was written (is it another version?), "
                "so this run cannot be continued"
            )
        return self.values[number], self.gradients[number]

    def snapshot(self) -> dict[str, Any]:
        if self.start is None:
            return {"iterations": 0}
        size = sum(gradient.nbytes for gradient in self.gradients)
        _check.fits_in_memory(size, f"{len(self.gradients)} gradients that L-BFGS must keep", "no checkpoint is made")
        return {
            "start": self.start,
            "points": np.frombuffer(b"".join(self.points), dtype=np.uint8).reshape(-1, _MARK_BYTES),
            "values": np.array(self.values),
            "gradients": np.array(self.gradients),
            "iterations": self.iterations,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.iterations = int(snapshot["iterations"])
        if "start" in snapshot:
            self.start = snapshot["start"]
            self.points = [bytes(mark) for mark in snapshot["points"]]
            self.values = snapshot["values"].tolist()
            self.gradients = list(snapshot["gradients"])
            if not len(self.points) == len(self.values) == len(self.gradients):
                raise ValueError("the evaluations of L-BFGS are not complete")


_MARK_BYTES = 16


def _mark(x: Vector) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=_MARK_BYTES).digest()


@dataclass(frozen=True)
class LBFGS(Solver):
    """Limited-memory quasi-Newton method of SciPy.

    Parameters
    ----------
    memory : int
        Pairs of vectors that are remembered.
    max_line_search : int
        Evaluations per line search at most.
    """

    memory: int = 10
    max_line_search: int = 50

    drives = True

    def __post_init__(self) -> None:
        _check.whole("memory", self.memory)
        _check.whole("max_line_search", self.max_line_search)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if problem.has_value is False:
            raise ValueError("solver LBFGS searches along lines by values: give the FunctionProblem a value function")

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first iteration."""
        return State(x=x, memory=NoMemory(), own=_History())

    def drive(self, problem: Problem, state: State, report_epoch: Callable[[EpochReport], bool]) -> None:
        """Run to the end; ``report_epoch`` says after every iteration whether to stop."""
        import scipy.optimize  # takes longer to import than the rest of this package

        history: Any = state.own
        replayed = len(history.points)
        evaluations = total = iterations = 0
        stopped_by_user: StopIteration | None = None
        known: dict[str, Any] = {}
        users: Any = np.geterr()

        def evaluate(x: Vector) -> tuple[float, Vector]:
            nonlocal evaluations, total
            if known and np.array_equal(x, known["x"]):
                return known["value"], known["gradient"].copy()
            evaluations += 1
            if total < replayed:
                value, gradient = history.told(total, x)
            else:
                with np.errstate(**users):
                    value, gradient = (state.value, state.gradient) if total == 0 else problem.value_and_gradient(x)
                if state.checkpointed:
                    history.add(x, value, gradient)
            total += 1
            known.update(x=x.copy(), value=value, gradient=gradient)
            return value, gradient.copy()

        def after_iteration(intermediate_result: Any) -> None:
            nonlocal evaluations, iterations, stopped_by_user
            count, evaluations = evaluations, 0
            evaluate(intermediate_result.x)
            evaluations = 0
            iterations += 1
            if iterations <= history.iterations:
                return  # reported by the process that was interrupted
            history.iterations = iterations
            state.x[:] = known["x"]
            state.value, state.gradient = known["value"], known["gradient"]
            report = EpochReport(steps=1, gradient_evaluations=count * problem.n_samples, inner_steps=1)
            report.batch_size = problem.n_samples
            try:
                ends = report_epoch(report)
            except StopIteration as stop:  # SciPy would take the user's exception for ours
                stopped_by_user = stop
                raise
            if ends:
                raise StopIteration

        start = state.x.copy() if history.start is None else history.start
        if state.checkpointed:
            history.start = start
        evaluate(start)
        evaluations = 0  # the value and gradient at the start are the loop's
        options = {
            "maxcor": self.memory,
            "maxls": self.max_line_search,
            "ftol": 0.0,
            "gtol": 0.0,
            "maxiter": 2**31 - 1,
            "maxfun": 2**31 - 1,
        }
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # in SciPy's curvatures, which nobody reads
            scipy.optimize.minimize(
                evaluate, start.copy(), jac=True, method="L-BFGS-B", callback=after_iteration, options=options
            )
        if stopped_by_user is not None:
            raise stopped_by_user
