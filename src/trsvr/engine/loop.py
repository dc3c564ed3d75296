"""minimize() and resume(): epochs, counting, the trace, stopping, checkpoints. Every solver runs in this loop."""

from __future__ import annotations

import contextlib
import inspect
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from trsvr import _check, _threads
from trsvr._compile import is_record
from trsvr._vectors import Vector, all_finite, dot
from trsvr.engine import checkpoint as files
from trsvr.engine.checkpoint import CheckpointError, Content
from trsvr.engine.draws import RowSource
from trsvr.engine.keeper import Every, Keeper, checked_path, rows_from
from trsvr.engine.plan import Plan, checked_start, plan_from, refuse_another_run
from trsvr.engine.progress import Progress
from trsvr.engine.result import Result, Status
from trsvr.engine.signals import Stop
from trsvr.engine.stopping import GradientTest, Limits, Tolerance, why_it_stands_still
from trsvr.problems.plain import NotFinite
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

    @classmethod
    def nothing_yet(cls, x: Vector, has_value: bool) -> _Best:
        """Before anything has been evaluated."""
        return cls(x.copy(), math.nan, np.full(x.size, math.nan), has_value)

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
        if not hasattr(self.problem, "kernels"):
            NotFinite.refuse("value_and_gradient", self.state.gradient, self.state.x)
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

    def judge(self, judge: Any, report: EpochReport) -> None:
        """Let the solver judge the epoch at its new point, and count what a second look there has cost."""
        evaluations, products = report.gradient_evaluations, report.hessian_products
        judge(self.state, report)
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
            message=status.sentence(detail),
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
    tol: float | str | Tolerance | None = "auto",
    seed: int = 0,
    callback: Callable[..., None] | None = None,
    progress: bool = False,
    verbose: int = 0,
    trace_every: int = 1,
    threads: int | None = None,
    checkpoint: Any = None,
    checkpoint_every: Any = None,
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
    tol : float, "auto", Tolerance or None
        A number: stop when ‖∇f‖∞ ≤ tol. "auto": when ‖∇f‖∞ ≤ 1e-8 ‖∇f(0)‖∞, or at the rounding floor. None: never.
        `trsvr.engine.Tolerance` bounds the gradient and the decrease that is left.
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
    checkpoint : path, optional
        A file that the run is kept in. If it exists, the run in it is continued, provided that problem and
        configuration are the same; a run that was finished is returned as it was.
    checkpoint_every : int, str or timedelta, optional
        How often it is written: a number of epochs, or a time such as ``"5 min"``; by default every 30 seconds, or less
        often where writing takes long. The last epoch's end is written in any case, also when a signal ends the run.

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
    plan = Plan(
        problem,
        solver,
        checked_start(problem, solver, x0),
        Limits.checked(max_epochs, max_passes, max_seconds),
        GradientTest(tol),
        _check.whole("seed", seed, at_least=0),
        _check.whole("trace_every", trace_every),
        None if threads is None else _check.whole("threads", threads),
    )
    watchers = _Watchers(_checked_callback(callback), Progress(type(solver).__name__) if progress else None, verbose)
    if checkpoint is None:
        if checkpoint_every is not None:
            raise ValueError("checkpoint_every needs checkpoint, the file to write to")
        solver.check(problem)
        return _run(plan, watchers)
    path, every = checked_path(checkpoint), Every(checkpoint_every)
    solver.check(problem)
    found = files.newest_intact(path)
    about = plan.about(getattr(checkpoint, "note", None))
    if found is None:
        return _run(plan, watchers, Keeper(path, every, about))
    content, is_newest = found
    refuse_another_run(path, content, about)
    return _continue(plan, watchers, Keeper(path, every, about, is_newest), content)


_AS_BEFORE: Any = "as before"


def resume(
    checkpoint: Any,
    problem: FiniteSum,
    callback: Callable[..., None] | None = None,
    *,
    solver: Solver | None = None,
    max_epochs: int | None = _AS_BEFORE,
    max_passes: float | None = _AS_BEFORE,
    max_seconds: float | None = _AS_BEFORE,
    checkpoint_every: Any = None,
    progress: bool = False,
    verbose: int = 0,
    threads: int | None = None,
) -> Result:
    """Continue a run from its checkpoint, to the bits of a run that was never interrupted.

    Parameters
    ----------
    checkpoint : path
        The file that ``minimize(..., checkpoint=...)`` has written. If it is damaged, the one before it,
        ``<checkpoint>.previous``, is taken, and that is said in the log.
    problem : FiniteSum
        The same problem: data, loss, regulariser and weights are compared.
    callback : callable, optional
        As for `minimize`.
    solver : optional
        Needed only where it contains classes of your own: nothing from outside the package is built from a file.
    max_epochs, max_passes, max_seconds : optional
        New limits, which count from the beginning of the run; by default those it had. With new limits a run that had
        ended by a limit, or by its callback, goes on.
    checkpoint_every, progress, verbose, threads
        As for `minimize`.

    Returns
    -------
    Result
        Of the whole run. A finished run is returned as it was.

    Raises
    ------
    CheckpointError
        A ValueError: the file is damaged, of another format, or belongs to another problem.
    """
    path, every = checked_path(checkpoint), Every(checkpoint_every)
    found = files.newest_intact(path)
    if found is None:
        raise FileNotFoundError(f"there is no checkpoint {path}")
    content, is_newest = found
    plan = plan_from(path, content, problem, solver, threads)
    given = {"epochs": max_epochs, "passes": max_passes, "seconds": max_seconds}
    new = {name: limit for name, limit in given.items() if limit is not _AS_BEFORE}
    if new:
        plan = replace(plan, limits=Limits.checked(**{**asdict(plan.limits), **new}))
    plan.solver.check(problem)
    about = plan.about(content.get("note"))
    refuse_another_run(path, content, about, except_limits=bool(new))
    if new and content.get("status") in _MAY_GO_ON:
        del content["status"]
    bar = Progress(type(plan.solver).__name__) if progress else None
    watchers = _Watchers(_checked_callback(callback), bar, verbose)
    return _continue(plan, watchers, Keeper(path, every, about, is_newest), content)


_MAY_GO_ON = (Status.EPOCH_LIMIT.name, Status.PASS_LIMIT.name, Status.TIME_LIMIT.name, Status.CALLBACK.name)


def _checked_callback(callback: Any) -> Any:
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function, got {callback!r}")
    return callback


def _continue(plan: Plan, watchers: _Watchers, keeper: Keeper, content: Content) -> Result:
    """Go on from a checkpoint that belongs to this plan."""
    try:
        if "status" in content:
            return _finished(plan, content)
        counted = content.get("run")
        if isinstance(counted, dict) and counted.get("epoch") == 0:
            return _run(plan, watchers, keeper)  # nothing has been done yet
        return _run(plan, watchers, keeper, content)
    except _DoesNotFit as error:
        raise CheckpointError(f"{keeper.path} does not fit this problem and solver: {error}") from None


class _DoesNotFit(Exception):
    """A checkpoint's arrays are not those of the run it claims to be of."""


def _finished(plan: Plan, content: Content) -> Result:
    """The result of a run that was finished."""
    run = _Run(plan.problem, plan.solver, State(plan.start, None), True)
    best = _Best.nothing_yet(plan.start, True)
    _restore(run, best, plan.test, content)
    status = Status.__members__.get(str(content["status"]))
    if status is None:
        raise _DoesNotFit(f"its status is {content['status']!r}")
    return replace(run.result(best, status), message=str(content.get("message", status.value)))


@contextlib.contextmanager
def _fitting() -> Iterator[None]:
    """What does not fit is the checkpoint's fault."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _DoesNotFit(str(error)) from None


def _restore(run: _Run, best: _Best, test: GradientTest, content: Content) -> None:
    """Counters, best point and trace."""
    with _fitting():
        for name in run.COUNTED:
            setattr(run, name, _check.same_kind(content["run"][name], getattr(run, name), name))
        run.rows = rows_from(content["rows"])
        best.x, best.gradient = (_check.same_shape(content["best"][name], best.x) for name in ("x", "gradient"))
        best.value, best.has_value = float(content["best"]["value"]), run.has_value
        test.restore(content["test"])


def _run(plan: Plan, watchers: _Watchers, keeper: Keeper | None = None, content: Content | None = None) -> Result:
    """Run from the start, or from a checkpoint."""
    problem, solver = plan.problem, plan.solver
    run = _Run(problem, solver, State(plan.start, None), getattr(problem, "has_value", True))
    best = _Best.nothing_yet(plan.start, run.has_value)
    source = RowSource(plan.seed, problem.n_samples)
    compiled = is_record(getattr(problem, "kernels", None))
    if content is not None:
        _restore(run, best, plan.test, content)

    def prepare() -> State:
        if hasattr(problem, "warm_up"):
            problem.warm_up()
        return solver.init(problem, plan.start.copy())

    with Stop().listening() as stop, _threads.limit(plan.threads):
        loop = _Loop(plan, run, best, source, watchers, stop, keeper, compiled and _is_large(problem))
        try:
            run.state = stop.compute(prepare, lasts=compiled)
            run.state.kept = keeper is not None
            if content is not None:
                with _fitting():
                    run.state.restore(content["state"])
            return loop.run(begun=content is not None)
        except NotFinite as error:  # already while the method was set up
            return loop.ended(Status.NOT_FINITE, str(error))
        except KeyboardInterrupt:
            source.abandoned = True
            return loop.ended(Status.INTERRUPTED)
        except BaseException:
            if keeper is not None:
                keeper.finish(None)
            raise
        finally:
            watchers.close()


# From this many numbers on, an epoch's native calls may last too long to wait for before a signal is obeyed.
_LARGE = 2**24
_LARGE_MATRIX = 2**20


def _is_large(problem: Any) -> bool:
    rows = getattr(problem.kernels, "rows", ())
    entries = max((array.size for array in rows if isinstance(array, np.ndarray)), default=0)
    return bool(entries * getattr(problem, "n_outputs", 1) > _LARGE or problem.n_parameters**2 > _LARGE_MATRIX)


@dataclass
class _Watchers:
    """Those who look at every recorded epoch: callback, progress bar, printed lines."""

    callback: Callable[..., None] | None
    bar: Progress | None
    verbose: int

    def show(self, run: _Run, best: _Best, limits: Limits, status: Status | None, stop: Stop) -> None:
        """Show the newest row."""
        row = run.rows[-1]
        if self.bar is not None:
            self.bar.update(row, limits.fraction(row), force=status is not None)
        if self.verbose:
            print(_line(row), flush=True)
        if self.callback is not None:
            so_far = run.result(best, Status.RUNNING)
            try:
                with stop.armed():
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


@dataclass
class _Loop:
    """One run of one plan."""

    plan: Plan
    work: _Run
    best: _Best
    source: RowSource
    watchers: _Watchers
    stop: Stop
    keeper: Keeper | None
    is_large: bool
    #: why the run has ended, once that is decided: a signal that comes later changes nothing
    final: tuple[Status, str] | None = None
    #: where the run is, for messages
    place: str = "at the start"

    def run(self, begun: bool) -> Result:
        """Epochs until something ends the run; ``begun`` says that it continues a checkpoint."""
        solver = self.plan.solver
        try:
            goes_on = self._may_go_on() if begun else self._first_look()
            if goes_on and hasattr(solver, "drive"):
                goes_on = self._driven()
            while goes_on:
                goes_on = self.look(self._next_epoch())
        except _StoppedByCallback:
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
        result = self.work.result(self.best, status, detail)
        if self.keeper is not None:
            self.keeper.finish(None if interrupted else status, result.message)
            if self.keeper.trouble is not None:
                result = replace(result, message=f"{result.message}; {self.keeper.trouble}")
        return result

    def _first_look(self) -> bool:
        run, test = self.work, self.plan.test
        run.announce(self.source, self.plan.limits)
        self.compute(run.evaluate)
        if not hasattr(run.problem, "has_value") and math.isnan(run.state.value):
            run.has_value = self.best.has_value = False
        test.start(run.state.value, run.state.gradient, self.compute(lambda: _gradient_at_zero(run, test)))
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
        run, test, state = self.work, self.plan.test, self.work.state
        with self.stop.held():
            status = test.judge(state.value, state.gradient, run.has_value, state.scalars)
            if status is not None and status.success and run.solver.needs_reference and run.epoch:
                run.charge_evaluation()
            self.best.offer(state.x, state.value, state.gradient, status is Status.CONVERGED)
            row = run.row(report)
            status = status or self.plan.limits.reached(row)
            if status is not None:
                doubtful = status is Status.ROUNDING_FLOOR
                self.final = self.compute(self._doubted_floor) if doubtful else (status, "")
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
        run, solver, limits = self.work, self.plan.solver, self.plan.limits
        judge = getattr(solver, "judge", None)
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
            with self.stop.held():
                self._keep()
        run.announce(self.source, limits)
        self.compute(run.evaluate)
        if judge is not None or (self.plan.test.active and not solver.needs_reference):
            run.charge_evaluation()
        if judge is not None:
            run.state.wanted = self.plan.test.wanted(run.state.value)
            self.compute(lambda: run.judge(judge, report))
        return report

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
            run.solver.drive(run.problem, run.state, report_epoch)  # type: ignore[attr-defined]  # an optional member
        if self.final is None:
            # It ended by itself: no step could be found that still lowers the value.
            self.final = self.compute(self._doubted_floor)
        return False

    def _doubted_floor(self) -> tuple[Status, str]:
        """A value that stands still is the floor only if there is nothing left to gain along the gradient."""
        if not self.work.has_value:
            return Status.ROUNDING_FLOOR, ""
        best = self.best
        why = why_it_stands_still(self.work.problem, best.x, best.value, best.gradient, self.plan.test.scale)
        return (Status.ROUNDING_FLOOR, "") if why is None else (Status.NO_PROGRESS, why)


def _gradient_at_zero(run: _Run, test: GradientTest) -> Vector:
    """∇f(0), the scale of the automatic tolerance; one more evaluation, not counted, unless the start is zero."""
    if not test.is_relative or not run.state.x.any():
        return run.state.gradient
    return run.problem.value_and_gradient(np.zeros_like(run.state.x))[1]
