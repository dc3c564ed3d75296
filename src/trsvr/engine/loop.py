"""minimize(): epochs, counting, the trace, stopping. Every solver runs in this loop and nowhere else."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trsvr import _check, _threads
from trsvr._vectors import Vector, all_finite, dot
from trsvr.engine.draws import RowSource
from trsvr.engine.progress import Progress
from trsvr.engine.result import Result, Status
from trsvr.engine.stopping import GradientTest, Limits
from trsvr.problems.protocol import DataLostError, FiniteSum
from trsvr.solvers.base import EpochReport, Solver, State
from trsvr.solvers.trsvr import TRSVR

_SAME_VALUE = 8 * float(np.finfo(float).eps)


class _StoppedByCallback(Exception):
    """The callback has raised StopIteration."""


@dataclass
class _Best:
    """The best point seen at an epoch's end."""

    x: Vector
    value: float
    gradient: Vector
    has_value: bool

    def offer(self, x: Vector, value: float, gradient: Vector, converged: bool) -> None:
        if not all_finite(gradient):
            return
        known = all_finite(self.gradient)
        better = not known or dot(gradient, gradient) < dot(self.gradient, self.gradient)
        if self.has_value and known:
            # Values that agree to their last bits do not tell points apart; gradients do.
            slack = _SAME_VALUE * abs(self.value)
            better = value < self.value - slack or (value <= self.value + slack and better)
        if better or converged:
            self.x, self.value, self.gradient = x.copy(), value, gradient.copy()


@dataclass
class _Run:
    """Counters, clock and trace of one run."""

    problem: FiniteSum
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

    def announce(self, source: RowSource, limits: Limits) -> None:
        """Tell a problem whose rows are elsewhere what the coming epoch will draw, so that it can send for them."""
        expect = getattr(self.problem, "expect", None)
        if expect is not None and (limits.epochs is None or self.epoch < limits.epochs):
            draws = getattr(self.solver, "draws", None)
            expect(source.seed, self.epoch, None if draws is None else draws(self.problem))

    def evaluate(self) -> None:
        """Full value and gradient at x, not charged yet."""
        begun = time.perf_counter()
        evaluate = getattr(self.solver, "evaluate", None)
        if evaluate is None:
            value, gradient = self.problem.value_and_gradient(self.state.x)
        else:
            value, gradient = evaluate(self.problem, self.state)
        # A copy: a user's function may return the same array each time.
        self.state.value, self.state.gradient = float(value), np.array(gradient, dtype=np.float64)
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
        report = self.solver.epoch(self.problem, self.state, source)
        self.count(report, time.perf_counter() - begun)
        return report

    def count(self, report: EpochReport, seconds: float) -> None:
        """Add what an epoch did to the totals."""
        self.seconds += seconds
        self.epoch += 1
        self.steps += report.steps
        self.gradient_evaluations += report.gradient_evaluations
        self.hessian_products += report.hessian_products

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

    def row(self, report: EpochReport) -> dict[str, float]:
        """The present state as a row of the trace."""
        gradient = self.state.gradient
        return {
            **self.counts(),
            "value": self.state.value,
            "gradient_norm_sq": dot(gradient, gradient),
            "alpha": report.alpha,
            "batch_size": report.batch_size,
            "inner_steps": report.inner_steps,
            "radius": report.radius,
            "boundary_fraction": report.boundary_fraction,
            "cg_iterations": report.cg_iterations,
            "rejected": report.rejected,
            "curvature_rows": report.curvature_rows,
            "negative_curvature": report.negative_curvature,
        }

    def result(self, best: _Best, status: Status, detail: str = "") -> Result:
        """What the user gets."""
        return Result(
            x=best.x.copy(),
            value=best.value,
            gradient=best.gradient.copy(),
            status=status,
            message=f"{status.value} ({detail})" if detail else status.value,
            epochs=self.epoch,
            gradient_evaluations=self.gradient_evaluations,
            passes=self.gradient_evaluations / self.problem.n_samples,
            seconds=self.seconds,
            solver=self.solver,
            rows=list(self.rows),
        )


def minimize(
    problem: FiniteSum,
    solver: Solver | None = None,
    *,
    x0: Any = None,
    max_epochs: int | None = 100,
    max_passes: float | None = None,
    max_seconds: float | None = None,
    tol: float | str | None = "auto",
    seed: int = 0,
    callback: Callable[..., None] | None = None,
    progress: bool = False,
    verbose: int = 0,
    trace_every: int = 1,
    threads: int | None = None,
) -> Result:
    """Minimise a finite sum.

    Parameters
    ----------
    problem : FiniteSum
        Such as ``trsvr.problems.logistic(X, y)``.
    solver : optional
        Such as ``trsvr.TRSVR(alpha=0.1)`` or ``trsvr.SVRG()``; default `TRSVR`.
    x0 : array, optional
        Starting point; default zeros.
    max_epochs, max_passes, max_seconds : optional
        Limits, looked at after every epoch (the time also within one). None is no limit.
    tol : float, "auto" or None
        A number: stop when ‖∇f‖∞ ≤ tol. "auto": when ‖∇f‖∞ ≤ 1e-8 ‖∇f(0)‖∞, or at the rounding floor. None: never.
        Methods without a reference point are charged for the full gradients that this takes.
    seed : int
        Same seed, same rows, same result.
    callback : callable, optional
        Called after every recorded epoch with the result so far, as SciPy does (by keyword if its parameter is
        named ``intermediate_result``); raising StopIteration ends the run.
    progress : bool
        Show a progress bar on stderr.
    verbose : int
        1 prints a line per recorded epoch.
    trace_every : int
        Record every so many epochs; the last one always.
    threads : int, optional
        Threads for full passes; default: the cores this process may use.

    Returns
    -------
    Result
        Always, with the best point seen; only bad input raises.

    Notes
    -----
    Counting is the same for every method: a full gradient counts N component gradients, a step what its estimator
    evaluates, a curvature product on b rows b. Full gradients that a method does not need itself, made only to draw the
    curve, are neither counted nor timed. The gradient at the end of an epoch is the next epoch's reference gradient and
    is charged when that epoch begins, or when it is the one that ends the run by ``tol``.
    """
    solver = TRSVR() if solver is None else solver
    x = _checked_start(problem, solver, x0)
    limits = Limits.checked(max_epochs, max_passes, max_seconds)
    test = GradientTest(tol)
    _check.whole("seed", seed, at_least=0)
    _check.whole("trace_every", trace_every)
    if threads is not None:
        _check.whole("threads", threads)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function, got {callback!r}")
    solver.check(problem)

    watchers = _Watchers(callback, Progress(type(solver).__name__) if progress else None, verbose)
    with _threads.limit(threads):
        if hasattr(problem, "warm_up"):
            problem.warm_up()
        run = _Run(problem, solver, solver.init(problem, x), getattr(problem, "has_value", True))
        try:
            return _loop(run, limits, test, RowSource(seed, problem.n_samples), watchers, trace_every)
        finally:
            watchers.close()


def _checked_start(problem: Any, solver: Any, x0: Any) -> Vector:
    """The starting point, after a look at problem and solver themselves."""
    if not isinstance(problem, FiniteSum):
        needed = ("n_samples", "n_parameters", "value_and_gradient", "batch_gradient", "gather")
        lacking = ", ".join(name for name in needed if not hasattr(problem, name))
        raise ValueError(f"problem must be a finite sum (trsvr.problems); {type(problem).__name__} lacks {lacking}")
    if isinstance(solver, type) or not all(hasattr(solver, name) for name in ("init", "epoch", "check")):
        raise ValueError(f"solver must be a solver such as trsvr.TRSVR(), got {solver!r}")
    if x0 is None:
        return np.zeros(problem.n_parameters)
    return _check.vector("x0", x0, problem.n_parameters)


@dataclass
class _Watchers:
    """Those who look at every recorded epoch: callback, progress bar, printed lines."""

    callback: Callable[..., None] | None
    bar: Progress | None
    verbose: int

    def show(self, run: _Run, best: _Best, limits: Limits, status: Status | None) -> None:
        """Show the newest row."""
        row = run.rows[-1]
        if self.bar is not None:
            self.bar.update(row, limits.fraction(row), force=status is not None)
        if self.verbose:
            print(_line(row), flush=True)
        if self.callback is not None:
            so_far = run.result(best, Status.RUNNING)
            try:
                if "intermediate_result" in inspect.signature(self.callback).parameters:
                    self.callback(intermediate_result=so_far)
                else:
                    self.callback(so_far)
            except StopIteration:
                if status is None:  # a run that has ended keeps its own reason
                    raise _StoppedByCallback from None

    def close(self) -> None:
        """End the progress bar's line."""
        if self.bar is not None:
            self.bar.close()


def _line(row: dict[str, float]) -> str:
    parts = [
        f"epoch {row['epoch']:4.0f}",
        f"passes {row['passes']:8.2f}",
        f"{row['seconds']:8.3f} s",
        f"f {row['value']:.10g}",
        f"|g|^2 {row['gradient_norm_sq']:.2e}",
    ]
    if row["batch_size"]:
        parts.append(f"b {row['batch_size']:.0f} S {row['inner_steps']:.0f}")
    if not math.isnan(row["boundary_fraction"]):
        parts.append(f"alpha {row['alpha']:.3g} boundary {row['boundary_fraction']:.0%} cg {row['cg_iterations']:.1f}")
    if row["rejected"]:
        parts.append("rejected")
    return "  ".join(parts)


def _loop(
    run: _Run, limits: Limits, test: GradientTest, source: RowSource, watchers: _Watchers, trace_every: int
) -> Result:
    state, solver = run.state, run.solver
    best = _Best(state.x.copy(), math.nan, np.full(state.x.size, math.nan), run.has_value)

    def look(report: EpochReport) -> Status | None:
        """At an epoch's end, with value and gradient known: judge, record, show; returns why to stop, if so."""
        status = test.judge(state.value, state.gradient, run.has_value, state.scalars)
        if status is not None and status.success and solver.needs_reference and run.epoch:
            run.charge_evaluation()
        best.offer(state.x, state.value, state.gradient, status is Status.CONVERGED)
        row = run.row(report)
        status = status or limits.reached(row)
        if status is not None or run.epoch % trace_every == 0:
            run.rows.append(row)
            watchers.show(run, best, limits, status)
        return status

    status: Status | None = None
    detail = ""
    try:
        run.announce(source, limits)
        run.evaluate()
        if not hasattr(run.problem, "has_value") and math.isnan(state.value):
            run.has_value = best.has_value = False
        test.start(state.gradient, _gradient_at_zero(run, test))
        status = look(EpochReport())
        if status is None and hasattr(solver, "drive"):
            status = _driven(run, look)
        while status is None:
            status = look(_next_epoch(run, limits, test, source, trace_every))
    except _StoppedByCallback:
        status = Status.CALLBACK
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except DataLostError as loss:
        status, detail = Status.DATA_LOST, str(loss)
    return run.result(best, status, detail)


def _next_epoch(run: _Run, limits: Limits, test: GradientTest, source: RowSource, trace_every: int) -> EpochReport:
    """Epochs up to the next one that is looked at, and the full gradient there."""
    solver = run.solver
    judge = getattr(solver, "judge", None)
    if solver.needs_reference:
        run.charge_evaluation()
    while True:
        source.begin(run.epoch, math.inf if limits.seconds is None else limits.seconds - run.seconds)
        run.announce(source, limits)
        report = run.run_epoch(source)
        # Methods that need no full gradient get one only for a row of the trace.
        if solver.needs_reference or run.epoch % trace_every == 0 or limits.reached(run.counts()):
            break
    run.announce(source, limits)
    run.evaluate()
    if judge is not None or (test.active and not solver.needs_reference):
        run.charge_evaluation()
    if judge is not None:
        judge(run.state, report)
    return report


def _driven(run: _Run, look: Callable[[EpochReport], Status | None]) -> Status:
    """A solver with a loop of its own, which reports after every iteration."""
    run.charge_evaluation()
    status: Status | None = None
    begun = time.perf_counter()

    def report_epoch(report: EpochReport) -> bool:
        nonlocal status, begun
        run.count(report, time.perf_counter() - begun)
        status = look(report)
        begun = time.perf_counter()
        return status is not None

    run.solver.drive(run.problem, run.state, report_epoch)  # type: ignore[attr-defined]  # an optional member
    # It ended by itself: no step could be found that still lowers the value.
    return status or Status.ROUNDING_FLOOR


def _gradient_at_zero(run: _Run, test: GradientTest) -> Vector:
    """∇f(0), the scale of the automatic tolerance; one more evaluation, not counted, unless the start is zero."""
    if test.tol != "auto" or not run.state.x.any():
        return run.state.gradient
    return run.problem.value_and_gradient(np.zeros_like(run.state.x))[1]
