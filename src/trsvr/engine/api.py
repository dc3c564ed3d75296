"""minimize() and resume(): what is asked for is checked, a checkpoint found, and the loop set going."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from trsvr import _check, _threads
from trsvr._blas import one_blas_thread
from trsvr.engine import checkpoint as files
from trsvr.engine.checkpoint import CheckpointError, Content
from trsvr.engine.draws import RowSource
from trsvr.engine.keeper import Every, Keeper, NotedPath, checked_path, rows_from
from trsvr.engine.loop import Loop
from trsvr.engine.plan import RunPlan, checked_start, plan_from, refuse_another_run
from trsvr.engine.progress import ProgressBar
from trsvr.engine.result import Result, Status
from trsvr.engine.run import Best, Run
from trsvr.engine.signals import Stop
from trsvr.engine.stopping import GradientTest, Limits, Tolerance
from trsvr.engine.watchers import Watchers
from trsvr.problems.base import as_problem
from trsvr.problems.plain import NotFinite
from trsvr.problems.protocol import DataLostError, FiniteSum
from trsvr.solvers import solver_from
from trsvr.solvers.base import Solver, State
from trsvr.theory import recommended_step

_AS_BEFORE: Any = "as before"
# Runs that ended so go on with new limits.
_MAY_GO_ON = (Status.EPOCH_LIMIT.name, Status.PASS_LIMIT.name, Status.TIME_LIMIT.name, Status.CALLBACK.name)


def minimize(
    problem: FiniteSum,
    solver: Solver | str | None = None,
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
        Such as ``trsvr.TRSVR(alpha=0.1)`` or ``trsvr.SVRG()``, or a name: "trsvr", "svrg", "saga", "sarah", "sgd",
        "adam", "trust-region", "trish", "sdca" or "lbfgs". Default `TRSVR`.
    x0 : array, optional
        Starting point; default zeros.
    max_epochs, max_passes, max_seconds : optional
        Limits, looked at after every epoch (the time also within one, so an epoch may go beyond a limit of passes).
        None is no limit.
    tol : float, "auto", Tolerance or None
        A number: stop when ‖∇f‖∞, the largest entry of the gradient, is at most tol. "auto": when no more than
        1e-12 |f| is left to gain; only the default solver can tell, the others stop when ‖∇f‖∞ is 1e-8 of what it is
        at zero (of the largest one seen, for your own functions). With either, a run also ends at the rounding floor,
        where f no longer changes within its precision. None: never.
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
        Always, with the best point seen; only bad input raises, and a second Ctrl-C.

    Notes
    -----
    Counting is the same for every method: a full gradient counts N component gradients, a step what its estimator
    evaluates, a curvature product on b rows b. Full gradients that a method does not need itself, made only to draw the
    curve, are neither counted nor timed. The gradient at the end of an epoch is the next epoch's reference gradient and
    is charged when that epoch begins, or when it is the one that ends the run by ``tol``. Of `LeastSquares` the
    residuals of all rows are N and their Jacobian is N; by differences it is N for each unknown, or 4 N at the end.
    """
    problem, solver = as_problem(problem), solver_from(solver)
    plan = RunPlan(
        problem,
        solver,
        checked_start(problem, x0),
        Limits.checked(max_epochs, max_passes, max_seconds),
        GradientTest(tol),
        _check.whole("seed", seed, at_least=0),
        _check.whole("trace_every", trace_every),
        None if threads is None else _check.whole("threads", threads),
    )
    watchers = _watchers(solver, callback, progress, verbose)
    if checkpoint is None:
        if checkpoint_every is not None:
            raise ValueError("checkpoint_every needs checkpoint, the file to write to")
        plan.method.check(problem)
        return _run(plan, watchers)
    path, every = checked_path(checkpoint), Every(checkpoint_every)
    plan.method.check(problem)
    found = files.newest_intact(path)
    about = plan.about(checkpoint.note if isinstance(checkpoint, NotedPath) else None)
    if found is None:
        return _run(plan, watchers, Keeper(path, every, about))
    content, is_newest = found
    refuse_another_run(path, content, about)
    return _continue(plan, watchers, Keeper(path, every, about, is_newest), content)


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
    problem = as_problem(problem)
    plan = plan_from(path, content, problem, solver, threads)
    given = {"epochs": max_epochs, "passes": max_passes, "seconds": max_seconds}
    new = {name: limit for name, limit in given.items() if limit is not _AS_BEFORE}
    if new:
        plan = replace(plan, limits=Limits.checked(**{**asdict(plan.limits), **new}))
    plan.method.check(problem)
    about = plan.about(content.get("note"))
    refuse_another_run(path, content, about, except_limits=bool(new))
    if new and content.get("status") in _MAY_GO_ON:
        del content["status"]
    watchers = _watchers(plan.solver, callback, progress, verbose)
    return _continue(plan, watchers, Keeper(path, every, about, is_newest), content)


def _watchers(solver: Any, callback: Any, progress: bool, verbose: int) -> Watchers:
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function, got {callback!r}")
    return Watchers(callback, ProgressBar(type(solver).__name__) if progress else None, verbose)


def _continue(plan: RunPlan, watchers: Watchers, keeper: Keeper, content: Content) -> Result:
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


def _finished(plan: RunPlan, content: Content) -> Result:
    """The result of a run that was finished."""
    run = Run(plan.problem, plan.solver, State(plan.start, None), True)
    best = Best.nothing_yet(plan.start, True)
    _restore(run, best, plan.test, content)
    status = Status.__members__.get(str(content["status"]))
    if status is None:
        raise _DoesNotFit(f"its status is {content['status']!r}")
    bound = content.get("gap_bound")  # lacking where the process was killed at its very end
    known = plan.problem.gap_bound(best.x) if bound is None else float(bound)
    sentence = status.sentence(gap_bound=known, value=best.value)
    message = str(content.get("message", status.value)).replace(status.value, sentence, 1)
    return replace(run.result(best, status, gap_bound=known), message=message)


@contextlib.contextmanager
def _fitting() -> Iterator[None]:
    """What does not fit is the checkpoint's fault."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _DoesNotFit(str(error)) from None


def _restore(run: Run, best: Best, test: GradientTest, content: Content) -> None:
    """Counters, best point and trace."""
    with _fitting():
        for name in run.COUNTED:
            setattr(run, name, _check.same_kind(content["run"][name], vars(run)[name], name))
        run.rows = rows_from(content["rows"])
        best.x, best.gradient = (_check.same_shape(content["best"][name], best.x) for name in ("x", "gradient"))
        best.value, best.has_value = float(content["best"]["value"]), run.has_value
        test.restore(content["test"])


# Kinds of runs that have been prepared in this process: the next of the same kind compiles nothing.
_compiled_before: set[Any] = set()


def _kind(plan: RunPlan) -> Any:
    """What decides what is compiled for a run; None where nothing is, or that is not known."""
    problem = plan.problem
    if plan.method.begins_at_once(problem) or problem.kind is None:
        return None
    return repr(plan.solver), problem.kind, int(problem.n_samples).bit_length(), int(problem.n_parameters).bit_length()


def _run(plan: RunPlan, watchers: Watchers, keeper: Keeper | None = None, content: Content | None = None) -> Result:
    """Run from the start, or from a checkpoint."""
    problem, solver = plan.problem.for_run(), plan.solver
    run = Run(problem, solver, State(plan.start, None), problem.has_value is not False)
    best = Best.nothing_yet(plan.start, run.has_value)
    source = RowSource(plan.seed, problem.n_samples)
    if content is not None:
        _restore(run, best, plan.test, content)

    kind = _kind(plan)

    def prepare() -> State:
        is_new = kind is None or kind not in _compiled_before
        run.method = plan.method.resolve(problem, plan.start, recommended_step)
        if run.method.centres:
            run.problem = problem.centred()
        state = run.method.init(run.problem, run.problem.frame.inside(plan.start))
        if is_new:
            run.method.warm_up(run.problem, state)
        if kind is not None:
            _compiled_before.add(kind)
        return state

    # Small data ask BLAS often, and briefly; a callback is the user's, and has the threads that it expects.
    guard = one_blas_thread() if problem.is_small and watchers.callback is None else contextlib.nullcontext()
    with Stop().listening() as stop, _threads.limit(plan.threads or _threads.current()), guard:
        loop = Loop(plan, run, best, source, watchers, stop, keeper, plan.method.lasts_long(problem))
        try:
            at_once = kind in _compiled_before or plan.method.begins_at_once(problem)
            run.state = stop.compute(prepare, lasts=not at_once)
            run.state.checkpointed, run.state.time_is_up = keeper is not None, source.time_is_up
            if content is not None:
                with _fitting():
                    run.state.restore(content["state"])
            result = loop.run(begun=content is not None)
            run.method.close(run.state)
            return result
        except NotFinite as error:  # already while the method was set up
            return loop.ended(Status.NOT_FINITE, str(error))
        except DataLostError as loss:
            return loop.ended(Status.DATA_LOST, str(loss))
        except KeyboardInterrupt:
            source.abandoned = True
            result = loop.ended(Status.INTERRUPTED)
            if stop.insisted:
                raise
            return result
        except BaseException:
            if keeper is not None:
                keeper.finish(None)
            raise
        finally:
            watchers.close()
