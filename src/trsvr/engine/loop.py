"""Epochs until something ends the run: judged, recorded, shown, kept. Every solver runs in this loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.engine.draws import RowSource
from trsvr.engine.keeper import Keeper
from trsvr.engine.plan import RunPlan
from trsvr.engine.result import Result, Status
from trsvr.engine.run import Best, Run
from trsvr.engine.signals import Stop
from trsvr.engine.stopping import GradientTest, why_it_stands_still
from trsvr.engine.watchers import StoppedByCallback, Watchers
from trsvr.problems.plain import NotFinite
from trsvr.problems.protocol import DataLostError
from trsvr.solvers.base import EpochReport

# A bound beyond this part of f wants an explanation, unless the user has said how small a gradient is enough.
_FEW_DIGITS = 1e-6


@dataclass
class Loop:
    """One run of one plan."""

    plan: RunPlan
    work: Run
    best: Best
    source: RowSource
    watchers: Watchers
    stop: Stop
    keeper: Keeper | None
    is_large: bool
    #: why the run has ended, once that is decided: a signal that comes later changes nothing
    final: tuple[Status, str] | None = None
    #: where the run is, for messages
    place: str = "at the start"

    def run(self, begun: bool) -> Result:
        """Epochs until something ends the run; ``begun`` says that it continues a checkpoint."""
        try:
            goes_on = self._may_go_on() if begun else self._first_look()
            if goes_on and self.work.method.drives:
                goes_on = self._driven()
            while goes_on:
                goes_on = self.look(self._next_epoch())
        except StoppedByCallback:
            return self.ended(Status.CALLBACK)
        except NotFinite as error:
            return self.ended(Status.NOT_FINITE, f"{error} {self.place}")
        except FloatingPointError as error:
            return self.ended(Status.DIVERGED, str(error))
        except DataLostError as loss:
            return self.ended(Status.DATA_LOST, str(loss))
        assert self.final is not None
        return self.ended(*self.final)

    def ended(self, status: Status, detail: str = "") -> Result:
        """The result, and the last checkpoint."""
        if status is Status.INTERRUPTED:
            detail = "" if self.stop.by is None else f"by {self.stop.by}"
            status, detail = self.final or (status, detail)
        interrupted = status is Status.INTERRUPTED
        lost = interrupted or status in (Status.NOT_FINITE, Status.DIVERGED, Status.DATA_LOST)
        bound = math.nan if lost else self.work.gap_bound(self.best)
        # Where as many digits were wanted as there are, or f could not be lowered any more.
        digits = status in (Status.ROUNDING_FLOOR, Status.NO_PROGRESS) or (
            status is Status.CONVERGED and self.plan.test.is_relative
        )
        if digits and not bound <= _FEW_DIGITS * abs(self.best.value):
            detail = "; ".join(part for part in (detail, self.plan.problem.why_few_digits()) if part)
        result = self.work.result(self.best, status, detail, bound)
        if self.keeper is not None:
            self.keeper.finish(None if interrupted else status, result.message, bound)
            if self.keeper.trouble is not None:
                result = replace(result, message=f"{result.message}; {self.keeper.trouble}")
        return result

    def _first_look(self) -> bool:
        run, test = self.work, self.plan.test
        run.announce(self.source, self.plan.limits)
        self.compute(run.evaluate)
        if run.problem.has_value is None and math.isnan(run.state.value):
            run.has_value = self.best.has_value = False
        gradient = run.gradient
        test.start(run.state.value, gradient, self.compute(lambda: _gradient_at_zero(run, test, gradient)))
        return self.look(EpochReport())

    def _may_go_on(self) -> bool:
        """Where limits have changed, one of them may have been reached already."""
        reached = self.plan.limits.reached(self.work.counts())
        self.final = None if reached is None else (reached, "")
        return reached is None

    def compute(self, call: Callable[[], Any]) -> Any:
        """Something that a signal may end."""
        return self.stop.compute(call, self.is_large)

    def look(self, report: EpochReport) -> bool:
        """At an epoch's end, with value and gradient known: judge, record, show; returns whether to go on."""
        return self.stop.hold(lambda: self._look(report))

    def _look(self, report: EpochReport) -> bool:
        run, test, state, gradient = self.work, self.plan.test, self.work.state, self.work.gradient
        size = dot(gradient, gradient)
        status = test.judge(state.value, gradient, run.has_value, state.progress, size)
        if status is not None and status.success and run.method.needs_reference and run.epoch:
            run.charge_evaluation()
        self.best.offer(state.x, run.problem.frame, state.value, gradient, size, status is Status.CONVERGED)
        row = run.row(report, size)
        status = status or self.plan.limits.reached(row)
        if status is not None:
            doubtful = status in (Status.ROUNDING_FLOOR, Status.NO_PROGRESS)
            self.final = self.compute(self._doubted_floor) if doubtful else (status, test.why)
        recorded = status is not None or run.epoch % self.plan.trace_every == 0
        if recorded:
            run.rows.append(row)
        self._keep()
        if recorded:
            self.watchers.show(run, self.best, self.plan.limits, status, self.stop)
        return status is None

    def _keep(self) -> None:
        if self.keeper is not None:
            self.keeper.take(self.work, self.best, self.plan.test, self.final)

    def _next_epoch(self) -> EpochReport:
        """Epochs up to the next one that is looked at, and the full gradient there."""
        run, solver, limits = self.work, self.work.method, self.plan.limits
        if solver.needs_reference:
            run.charge_evaluation()
        while True:
            self.place = f"in epoch {run.epoch + 1}"
            self.source.begin(run.epoch, math.inf if limits.seconds is None else limits.seconds - run.seconds)
            run.announce(self.source, limits)
            report = self.compute(lambda: run.run_epoch(self.source))
            # Methods that need no full gradient get one only for a row of the trace.
            if solver.needs_reference or run.epoch % self.plan.trace_every == 0 or limits.reached(run.counts()):
                break
            self.stop.hold(self._keep)
        run.announce(self.source, limits)
        self.compute(lambda: self._evaluated(report))
        return report

    def _evaluated(self, report: EpochReport) -> None:
        """Full value and gradient at the epoch's end, and the solver's judgement of both."""
        run, solver, test = self.work, self.work.method, self.plan.test
        run.evaluate()
        if solver.judges or (test.active and not solver.needs_reference):
            run.charge_evaluation()
        if solver.judges:
            run.state.goal = test.goal(run.state.value)
            run.judge(report)

    def _driven(self) -> bool:
        """A solver with a loop of its own, which reports after every iteration."""
        run = self.work
        run.charge_evaluation()
        self.place = f"in epoch {run.epoch + 1}"
        begun = time.perf_counter()

        def report_epoch(report: EpochReport) -> bool:
            nonlocal begun
            run.count(report, time.perf_counter() - begun)
            goes_on = self.look(report)
            self.place = f"in epoch {run.epoch + 1}"
            begun = time.perf_counter()
            return not goes_on

        with self.stop.armed():
            run.method.drive(run.problem, run.state, report_epoch)
        if self.final is None:
            # It ended by itself: no step could be found that still lowers the value.
            self.final = self.compute(self._doubted_floor)
        return False

    def _doubted_floor(self) -> tuple[Status, str]:
        """A value that stands still is the floor only if there is nothing left to gain along the gradient."""
        if not self.work.has_value:
            return Status.ROUNDING_FLOOR, ""
        best = self.best
        try:
            why = why_it_stands_still(self.plan.problem, best.x, best.value, best.gradient, self.plan.test.scale)
        except NotFinite:  # beside it, or at zero, is no value: nothing speaks against the floor
            why = None
        test = self.plan.test
        if why is None and test.why and not test.is_lost_in_rounding(self.work.gap_bound(best)):
            why = test.why
        return (Status.ROUNDING_FLOOR, "") if why is None else (Status.NO_PROGRESS, why)


def _gradient_at_zero(run: Run, test: GradientTest, gradient: Vector) -> Vector | None:
    """∇f(0), where a problem has it for sure; one more evaluation, not counted, unless the start is zero."""
    if not run.problem.defined_at_zero:
        return None
    if not test.is_relative or not run.state.x.any():
        return gradient
    return run.problem.frame.gradient_outside(run.problem.value_and_gradient(np.zeros_like(run.state.x))[1])
