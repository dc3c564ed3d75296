"""Residuals whose Jacobian is too large to factor: conjugate gradients on JᵀJ, then on the Hessian itself.

JᵀJ is the Hessian without S = Σ rᵢ∇²rᵢ. The adaptive mode runs on it while that is a good model. Where steps are
refused again and again, or where the run would end, S may count: JᵀJ never bends down, and sees nothing where Jᵀr = 0.
From there on curvature is remembered (`RememberedCurvature`), in units of J's columns, and the Hessian's own products,
by differences of Jᵀr, say what is left.

Counting: residuals of all rows are one pass, and so is each Jacobian that is made, also for a product where it is too
large to be kept; by differences it is one for each unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from trsvr._arrays import Vector
from trsvr._draws import Draws
from trsvr.problems.base import Problem
from trsvr.problems.residuals import ResidualProblem
from trsvr.solvers.adaptive import AdaptiveTRSVR, Rules
from trsvr.solvers.adaptive.state import AdaptiveState
from trsvr.solvers.base import EpochReport, EpochRows, Progress, Solver, State
from trsvr.solvers.remembered import Remembered, RememberedCurvature


@dataclass(frozen=True)
class GaussNewtonRules(Rules):
    """The mode's numbers, and when it ends."""

    #: so many steps on JᵀJ, refused one after the other, show that it is no model: then the Hessian itself is
    most_refused: int = 3


@dataclass
class TwoModels(AdaptiveState):
    """What the mode remembers, and what the other method does once it has taken over."""

    refused: int = 0
    longest: Vector | None = None  # that each column of J has been, squared
    uncounted: float = math.nan  # sweeps over the rows by Jacobians
    whole: bool = False  # whether the Hessian itself is the model
    remembered: Remembered = field(kw_only=True)


@dataclass(frozen=True)
class GaussNewton(AdaptiveTRSVR):
    """The mode, and what follows it."""

    rules: GaussNewtonRules = field(default_factory=GaussNewtonRules)

    @property
    def _later(self) -> RememberedCurvature:
        return RememberedCurvature(self.max_cg)

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """Itself."""
        return self

    def init(self, problem: Problem, x: Vector) -> State:
        """The mode's state; where the gradient vanishes at once, nothing is known yet."""
        state = super().init(problem, x)
        remembered = self._later.init(problem, x).own
        assert isinstance(remembered, Remembered)
        state.own = TwoModels(**vars(state.own), remembered=remembered)
        state.progress = Progress(math.inf, may_be_saddle=True)
        return state

    def evaluate(self, problem: Problem, state: State, coming: Draws | None) -> tuple[float, Vector]:
        """Value and gradient; the mode keeps J."""
        return problem.value_and_gradient(state.x) if _own(state).whole else super().evaluate(problem, state, coming)

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """A step by the method at work."""
        own, residuals = _own(state), _of_residuals(problem)
        if math.isnan(own.uncounted):
            own.uncounted = residuals.jacobian_passes(False)  # at the start
        residuals.sweeps = own.uncounted
        if own.whole:
            report = self._later.epoch(problem, replace(state, own=own.remembered), rows)
        else:
            report = super().epoch(problem, state, rows)
            if own.kind == "diagonal" and own.norm.losses is not None:
                own.longest = np.maximum(own.norm.losses, 0.0 if own.longest is None else own.longest)
        return report

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """As the method at work does, and count."""
        progress, own = self._judge(problem, state, report), _own(state)
        report.gradient_evaluations += round(_of_residuals(problem).sweeps * problem.n_samples)
        own.uncounted = _of_residuals(problem).sweeps = 0.0
        return progress

    def _judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Where the first method would end, or makes no headway, the second begins."""
        own = _own(state)
        if own.whole:
            there = replace(state, own=own.remembered)
            progress = self._later.judge(problem, there, report)
            state.value, state.gradient = there.value, there.gradient
            return progress
        progress = super().judge(problem, state, report)
        own.refused = own.refused + 1 if report.rejected else 0
        little = state.goal.decrease or self.rules.little * abs(state.value)
        seems_ended = progress.at_floor or not (report.rejected or progress.expected_decrease > little)
        if seems_ended or own.refused >= self.rules.most_refused:
            self._hand_over(problem, state, report)
        return Progress(math.inf, may_be_saddle=True)

    def _hand_over(self, problem: Problem, state: State, report: EpochReport) -> None:
        """From here on the Hessian itself is the model."""
        own = _own(state)
        own.whole = True
        if own.longest is not None and own.longest.any():
            # Columns that J has never seen are taken to be as long as most.
            usual = float(np.median(own.longest[own.longest > 0.0]))
            own.remembered.units = np.where(own.longest > 0.0, own.longest, usual)
        super().close(state)

    def gap_bound(self, problem: Problem, state: State) -> float:
        """Nothing is known of one."""
        return math.nan


def _of_residuals(problem: Problem) -> ResidualProblem:
    assert isinstance(problem, ResidualProblem)
    return problem


def _own(state: State) -> TwoModels:
    assert isinstance(state.own, TwoModels)
    return state.own
