"""L-BFGS through SciPy (Zhu, Byrd, Lu & Nocedal's L-BFGS-B): the opponent that users really have.

SciPy runs its own loop; after every iteration it reports here, so that the trace, the counts, the limits and the
callbacks are those of every other solver. An epoch is one iteration; each evaluation of the line search counts N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._vectors import Vector
from trsvr.parts.gradients import NoMemory
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.base import EpochReport, EpochRows, State


@dataclass(frozen=True)
class LBFGS:
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

    needs_reference = True

    def __post_init__(self) -> None:
        _check.whole("memory", self.memory)
        _check.whole("max_line_search", self.max_line_search)

    def check(self, problem: FiniteSum) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if not getattr(problem, "has_value", True):
            raise ValueError("solver LBFGS searches along lines by values: give the FunctionProblem a value function")

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first iteration."""
        return State(x=x, memory=NoMemory())

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """Not used: SciPy has its own loop, see `drive`."""
        raise RuntimeError("LBFGS is driven by SciPy")

    def drive(self, problem: FiniteSum, state: State, report_epoch: Callable[[EpochReport], bool]) -> None:
        """Run to the end; ``report_epoch`` says after every iteration whether to stop."""
        import scipy.optimize  # takes longer to import than the rest of this package

        evaluations = 0
        stopped_by_user: StopIteration | None = None
        known: dict[str, Any] = {"x": state.x.copy(), "value": state.value, "gradient": state.gradient}

        def evaluate(x: Vector) -> tuple[float, Vector]:
            nonlocal evaluations
            if not np.array_equal(x, known["x"]):
                evaluations += 1
                value, gradient = problem.value_and_gradient(x)
                known.update(x=x.copy(), value=value, gradient=gradient)
            return known["value"], known["gradient"].copy()

        def after_iteration(intermediate_result: Any) -> None:
            nonlocal evaluations, stopped_by_user
            count, evaluations = evaluations, 0
            evaluate(intermediate_result.x)
            state.x[:] = known["x"]
            state.value, state.gradient = known["value"], known["gradient"]
            report = EpochReport(steps=1, gradient_evaluations=count * problem.n_samples, inner_steps=1)
            report.batch_size = problem.n_samples
            evaluations = 0
            try:
                ends = report_epoch(report)
            except StopIteration as stop:  # SciPy would take the user's exception for ours
                stopped_by_user = stop
                raise
            if ends:
                raise StopIteration

        scipy.optimize.minimize(
            evaluate,
            state.x.copy(),
            jac=True,
            method="L-BFGS-B",
            callback=after_iteration,
            options={
                "maxcor": self.memory,
                "maxls": self.max_line_search,
                "ftol": 0.0,
                "gtol": 0.0,
                "maxiter": 2**31 - 1,
                "maxfun": 2**31 - 1,
            },
        )
        if stopped_by_user is not None:
            raise stopped_by_user
