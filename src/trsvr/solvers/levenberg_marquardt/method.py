"""The solver: one epoch is one trial point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.parts.gradients import NoMemory
from trsvr.problems.base import Problem
from trsvr.problems.plain import NotFinite
from trsvr.problems.residuals import ResidualProblem
from trsvr.solvers.base import EpochReport, EpochRows, Progress, Solver, State
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.endings import ends
from trsvr.solvers.levenberg_marquardt.judgement import judge
from trsvr.solvers.levenberg_marquardt.run import Run
from trsvr.solvers.levenberg_marquardt.state import Damping, Point


@dataclass(frozen=True)
class LevenbergMarquardt(Solver):
    """Damped Gauss–Newton steps; `trsvr.TRSVR` runs this on `trsvr.problems.LeastSquares` by itself.

    Parameters
    ----------
    first_radius : float, optional
        Δ at the beginning, in parts of ‖Dx‖; by default 1, and 0.3 where all unknowns have the same units: those of
        models in PyTorch, and thirty or more whose columns of J are alike.
    scaling : array-like or None
        D, where it is not to be the lengths of the columns of J: one number for every unknown.
    acceleration : bool
        Whether the path's curvature may be looked at.
    second_order : bool
        Whether S may be learnt from steps.
    ftol, xtol, gtol : float
        Looser ends, off by default: a step that lowers f by less than this part, one that is shorter than this part of
        x, ‖∇f‖∞ of the half sum of squares.
    """

    first_radius: float | None = None
    scaling: tuple[float, ...] | None = None
    acceleration: bool = True
    second_order: bool = True
    ftol: float = 0.0
    xtol: float = 0.0
    gtol: float = 0.0

    judges = True

    def __post_init__(self) -> None:
        if self.first_radius is not None:
            _check.positive("first_radius", self.first_radius)
        for name in ("ftol", "xtol", "gtol"):
            _check.positive(name, vars(self)[name], zero=True)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if the problem has no residuals."""
        if not isinstance(problem, ResidualProblem):
            raise ValueError(f"LevenbergMarquardt needs a trsvr.problems.LeastSquares, got {type(problem).__name__}")
        if self.scaling is not None and len(self.scaling) != problem.n_parameters:
            raise ValueError(f"scaling must have {problem.n_parameters} numbers, got {len(self.scaling)}")

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first step."""
        return State(x=x, memory=NoMemory(), own=Damping(), progress=Progress(math.inf, may_be_saddle=True))

    # ------------------------------------------------------------------------------------------- a trial point

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """Propose a step; `judge` sees what it was worth."""
        run = Run(self, problem, state)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
            own, here = run.own, run.begin()
            trial = run.propose()
        state.x += trial.damped.step
        passes, own.passes = own.passes, 0.0
        return EpochReport(
            steps=1,
            gradient_evaluations=round(passes * problem.n_samples),
            batch_size=problem.n_samples,
            inner_steps=1,
            alpha=trial.damped.damping,
            radius=own.radius,
            boundary_fraction=float(trial.damped.damping > 0.0),
            curvature_rows=problem.n_samples,
            outcome=(here, trial),
        )

    def evaluate(self, problem: Problem, state: State, coming: Any) -> tuple[float, Vector]:
        """The value at x, and the gradient where x will be kept; elsewhere that of the reference."""
        run = Run(self, problem, state)
        own = run.own
        value, residuals = run.problem.value_at(state.x)
        if own.here is None:
            if not math.isfinite(value):
                raise NotFinite("residuals are not finite")
            own.here = run.look(state.x.copy(), value, residuals)
            return value, own.here.sums.gradient
        own.there = None
        if math.isfinite(value):
            own.there = Point(state.x.copy(), value, residuals, own.here.sums, None)
        return value, own.here.sums.gradient

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the trial point or go back, and choose the next radius."""
        run = Run(self, problem, state)
        own, (here, trial) = run.own, report.outcome
        freely, kept = own.held == 0, judge(run, here, trial)
        if not kept:
            report.rejected = 1
            own.there = None
        now = own.here
        assert now is not None
        state.x[:] = now.x
        state.value, state.gradient = now.value, now.sums.gradient
        # Where nothing ends the run, a point that was seen to be an end is one.
        at_end = own.ended = (own.ended and not kept) or ends(run, here, trial, kept, freely)
        report.gradient_evaluations += round(own.passes * problem.n_samples)
        own.passes = 0.0
        left = math.inf  # nothing is believed before an end, unless the user has said how much may be left
        if at_end or state.goal.decrease > 0.0:
            left = 0.0 if at_end else run.model().left()
        # Residuals that are so small have few digits, and so has what the curvature says of them.
        known = now.value > rules.FEW_DIGITS * own.first_value
        stuck = "curvature says that more is left to gain" if known and not at_end else ""
        return Progress(left, own.misses > rules.MISSES, may_be_saddle=True, stuck=stuck)
