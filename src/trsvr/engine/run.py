"""One run: its counters, clock and trace, and the best point so far."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from trsvr._arrays import Vector
from trsvr._draws import Draws
from trsvr._vectors import all_finite, dot
from trsvr.engine.draws import RowSource
from trsvr.engine.result import TRACE_COLUMNS, Result, Status
from trsvr.engine.stopping import Limits
from trsvr.problems.base import Problem
from trsvr.problems.frames import Frame
from trsvr.problems.plain import NotFinite
from trsvr.solvers.base import EpochReport, Solver, State

_USERS = Frame()
# Steps become shorter by a factor of two to four: after so many the domain would be a point.
_MOST_OUTSIDE = 30
_SAME_VALUE = 8 * float(np.finfo(float).eps)
# Columns of the trace that say what an epoch did; those before them are counted here, or belong to the point.
_OF_THE_REPORT = TRACE_COLUMNS[8:]


class Best:
    """The best point seen at an epoch's end."""

    def __init__(self, x: Vector, value: float, gradient: Vector, has_value: bool) -> None:
        self._point, self._frame = x, _USERS
        self.value, self.gradient, self.has_value = value, gradient, has_value

    @property
    def x(self) -> Vector:
        """The point, in the user's coordinates: it is carried there once somebody asks for it."""
        self._point, self._frame = self._frame.outside(self._point), _USERS
        return self._point

    @x.setter
    def x(self, x: Vector) -> None:
        self._point, self._frame = x, _USERS

    def is_at(self, point: Vector, frame: Frame) -> bool:
        """Whether it is this point of this frame."""
        here = point if self._frame is frame else frame.outside(point)
        return bool((here == (self._point if self._frame is frame else self.x)).all())

    @classmethod
    def nothing_yet(cls, x: Vector, has_value: bool) -> Best:
        """Before anything has been evaluated."""
        return cls(x.copy(), math.nan, np.full(x.size, math.nan), has_value)

    def offer(self, point: Vector, frame: Frame, value: float, gradient: Vector, size: float, converged: bool) -> None:
        """Take over a point of this frame if it is better, or the one that a run ends with; ``size`` is ‖∇f‖² there."""
        if not (math.isfinite(size) or all_finite(gradient)):
            return
        # Values that agree to their last bits do not tell points apart; gradients do.
        slack = _SAME_VALUE * abs(self.value)
        if converged or (self.has_value and value < self.value - slack) or self._is_steeper(size, value, slack):
            self._point, self._frame = point.copy(), frame
            self.value, self.gradient = value, gradient.copy()

    def _is_steeper(self, size: float, value: float, slack: float) -> bool:
        """Whether the gradient is larger here than at another point, which is not worse; nothing yet is so, too."""
        before = dot(self.gradient, self.gradient)
        if not (math.isfinite(before) or all_finite(self.gradient)):
            return True
        return size < before and (not self.has_value or value <= self.value + slack)


@dataclass
class Run:
    """Counters, clock and trace of one run."""

    problem: Problem
    solver: Solver
    state: State
    has_value: bool
    gradient_evaluations: int = 0
    hessian_products: int = 0
    steps: int = 0
    seconds: float = 0.0
    epoch: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    uncharged_seconds: float | None = None
    method: Solver = field(init=False)  # the solver that runs: a preset's parts
    coming: Draws | None = None  # of the next epoch
    outside: int = 0  # trial points in a row where a function was not finite

    #: what a checkpoint keeps of it
    COUNTED: ClassVar[tuple[str, ...]] = (
        "has_value",
        "gradient_evaluations",
        "hessian_products",
        "steps",
        "seconds",
        "epoch",
        "uncharged_seconds",
    )

    @property
    def x(self) -> Vector:
        """Where the run is, in the user's coordinates."""
        return self.problem.frame.outside(self.state.x)

    @property
    def gradient(self) -> Vector:
        """∇f there, in the same."""
        return self.problem.frame.gradient_outside(self.state.gradient)

    def announce(self, source: RowSource, limits: Limits) -> None:
        """Tell a problem whose rows are elsewhere what the coming epoch will draw, so that it can send for them."""
        if limits.epochs is None or self.epoch < limits.epochs:
            self.coming = Draws(source.seed, self.epoch)
            if self.problem.is_elsewhere:
                self.problem.expect(self.coming, self.method.draws(self.problem))

    def evaluate(self) -> None:
        """Full value and gradient at x, not charged yet."""
        begun = time.perf_counter()
        try:
            value, found = self.method.evaluate(self.problem, self.state, self.coming)
            # A copy: a user's function may return the same array each time.
            gradient = np.array(found, dtype=np.float64)
            if not self.problem.compiles:
                NotFinite.refuse("value_and_gradient", gradient, self.state.x)
                if self.has_value and self.epoch:
                    NotFinite.refuse("value_and_gradient", value, self.state.x)
            self.outside = 0
        except NotFinite:
            self.outside += 1
            if not self.method.judges or self.epoch == 0 or self.outside > _MOST_OUTSIDE:
                raise
            value, gradient = math.inf, self.state.gradient  # a trial point outside the domain: it is refused
        self.state.value, self.state.gradient = float(value), gradient
        self.uncharged_seconds = time.perf_counter() - begun

    def charge_evaluation(self) -> None:
        """The method itself needs the last full gradient: it counts, once."""
        if self.uncharged_seconds is not None:
            self.gradient_evaluations += self.problem.n_samples
            self.seconds += self.uncharged_seconds
            self.uncharged_seconds = None

    def run_epoch(self, source: RowSource) -> EpochReport:
        """One epoch of the solver, timed and counted."""
        begun = time.perf_counter()
        report = self.method.epoch(self.problem, self.state, source)
        self.count(report, time.perf_counter() - begun)
        return report

    def count(self, report: EpochReport, seconds: float) -> None:
        """Add what an epoch did to the totals."""
        self.seconds += seconds
        self.epoch += 1
        self.steps += report.steps
        self.gradient_evaluations += report.gradient_evaluations
        self.hessian_products += report.hessian_products

    def judge(self, report: EpochReport) -> None:
        """Let the solver judge the epoch at its new point, and count what a second look there has cost."""
        evaluations, products = report.gradient_evaluations, report.hessian_products
        begun = time.perf_counter()
        self.state.progress = self.method.judge(self.problem, self.state, report)
        self.seconds += time.perf_counter() - begun
        self.gradient_evaluations += report.gradient_evaluations - evaluations
        self.hessian_products += report.hessian_products - products

    def counts(self) -> dict[str, float]:
        """What has been spent."""
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "gradient_evaluations": self.gradient_evaluations,
            "hessian_products": self.hessian_products,
            "passes": self.gradient_evaluations / self.problem.n_samples,
            "seconds": self.seconds,
        }

    def row(self, report: EpochReport, size: float) -> dict[str, float]:
        """The present state, where the user's gradient has this squared length, as a row of the trace."""
        known = vars(report)
        row = {**self.counts(), "value": self.state.value, "gradient_norm_sq": size}
        for name in _OF_THE_REPORT:
            row[name] = known[name]
        return row

    def gap_bound(self, best: Best) -> float:
        """How far the best value is above the minimum at most: what is known where the run is, and how they differ."""
        if not (best.has_value and math.isfinite(best.value) and all_finite(self.state.gradient)):
            return math.nan
        known, lower = self.state.progress, self.state.value - best.value
        bound = math.nan if known is None else known.gap_bound
        if math.isnan(bound):
            bound = self.method.gap_bound(self.problem, self.state)
        if best.is_at(self.state.x, self.problem.frame):
            return bound
        return max(bound - lower, 0.0) + _SAME_VALUE * abs(best.value)

    def result(self, best: Best, status: Status, detail: str = "", gap_bound: float = math.nan) -> Result:
        """What the user gets."""
        return Result(
            x=best.x.copy(),
            value=best.value,
            gradient=best.gradient.copy(),
            status=status,
            message=status.sentence(detail, gap_bound, best.value),
            epochs=self.epoch,
            gradient_evaluations=self.gradient_evaluations,
            passes=self.gradient_evaluations / self.problem.n_samples,
            seconds=self.seconds,
            solver=self.solver,
            rows=list(self.rows),
            gap_bound=gap_bound,
        )
