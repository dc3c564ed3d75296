"""``trsvr solve FILE``: minimise over the user's own data; ``trsvr resume CHECKPOINT``: go on with that."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._device import linear_model
from trsvr._version import __version__
from trsvr.cli import options as o
from trsvr.cli import solve_answer as answer
from trsvr.cli import solve_options as own
from trsvr.cli.models import Model, scores
from trsvr.cli.output import as_json, check_folder, show_pairs
from trsvr.cli.remote import connected, remote_format, remote_problem
from trsvr.cli.scaling import Scaling
from trsvr.cli.tables import Table, Wanted, read_table
from trsvr.engine import Result, Status, minimize
from trsvr.engine import resume as resume_run
from trsvr.engine.checkpoint import newest_intact
from trsvr.engine.keeper import Every, NotedPath
from trsvr.solvers import BY_NAME
from trsvr.theory import Gap, estimate_gap

# Address of a scheduler, number of workers, memory of each.
_Cluster = tuple[str | None, int | None, str | None]
_OBJECTIVE = ("loss", "l2", "gamma", "a", "delta", "intercept", "standardize")
_NO_GAP = Gap(float("nan"), "unknown", "the data can no longer be reached")


def solve(
    file: o.File,
    target: o.Target = None,
    format_: o.Format = "auto",
    header: o.Header = True,
    zero_based: o.ZeroBased = False,
    sep: o.Separator = "auto",
    drop: o.Drop = None,
    weights: own.Weights = None,
    test_size: own.TestSize = None,
    loss: o.Loss = "logistic",
    l2: o.Strength = 1e-4,
    gamma: o.Gamma = 0.0,
    a: o.WellPosition = 0.5,
    delta: o.Delta = 1.0,
    intercept: o.Intercept = True,
    standardize: own.Standardize = False,
    method: o.Method = "trsvr",
    alpha: o.Alpha = None,
    step: own.Step = None,
    batch_size: o.BatchSize = None,
    inner_steps: o.InnerSteps = None,
    hessian: o.Hessian = None,
    more: own.More = None,
    epochs: own.Epochs = 100,
    passes: own.Passes = None,
    seconds: own.Seconds = None,
    tol: own.Tolerance = "auto",
    seed: own.Seed = 0,
    threads: o.Threads = None,
    device: o.Device = "cpu",
    dask: own.Dask = False,
    scheduler: own.Scheduler = None,
    workers: own.Workers = None,
    memory_limit: own.MemoryLimit = None,
    out: own.Out = None,
    checkpoint: own.CheckpointFile = None,
    checkpoint_every: own.CheckpointEvery = None,
    progress: own.Progress = None,
    json: o.Json = False,
) -> None:
    """Minimise a linear model over your own data.

    The regularised loss, averaged over the rows of FILE, is minimised to many digits. Exit status 0: converged (or,
    with --tol none, the limit reached); 1: a limit came first, or the run diverged; 130: interrupted. In all these
    cases the best point is written to --out. With --dask or --scheduler FILE is LIBSVM text, Parquet (a file or a
    folder), a Zarr group with X and y, or a folder with the NPY stacks X and y, and may be larger than memory.
    """
    given = {"alpha": alpha, "step": step, "batch_size": batch_size, "inner_steps": inner_steps, "hessian": hessian}
    task = _Task(
        file=str(file),
        target=target,
        format=format_,
        header=header,
        zero_based=zero_based,
        sep=sep,
        drop=tuple(drop or ()),
        weights=weights,
        test_size=test_size,
        loss=loss,
        l2=l2,
        gamma=gamma,
        a=a,
        delta=delta,
        intercept=intercept,
        standardize=standardize,
        method=method,
        tol=tol,
        seed=seed,
        device=device,
    )
    tolerance = o.number("--tol", tol, "auto", "none")
    o.objective(loss, l2, gamma, a, delta)  # refused before a long file is read
    linear_model(device)
    kind, settings = _method(method, given, more or [])
    if checkpoint_every is not None and checkpoint is None:
        raise ValueError("--checkpoint-every needs --checkpoint, the file to write to")
    every = _every(checkpoint_every)

    def run(problem: Any, shown: bool) -> Result:
        place = None
        if checkpoint is not None:
            place = NotedPath(checkpoint)
            place.note = {**dataclasses.asdict(task), "file": os.path.abspath(file)}
        return minimize(
            problem,
            _solver(kind, settings, problem.n_samples),
            max_epochs=epochs,
            max_passes=passes,
            max_seconds=seconds,
            tol=None if tolerance == "none" else tolerance,
            seed=seed,
            progress=shown,
            threads=threads,
            checkpoint=place,
            checkpoint_every=every,
        )

    _carry_out(task, run, out, progress, json, _cluster(dask, scheduler, workers, memory_limit, task.device))


def resume(
    checkpoint: own.KeptRun,
    data: own.MovedData = None,
    epochs: own.MoreEpochs = None,
    passes: own.Passes = None,
    seconds: own.Seconds = None,
    threads: o.Threads = None,
    dask: own.Dask = False,
    scheduler: own.Scheduler = None,
    workers: own.Workers = None,
    memory_limit: own.MemoryLimit = None,
    out: own.Out = None,
    checkpoint_every: own.CheckpointEvery = None,
    progress: own.Progress = None,
    json: o.Json = False,
) -> None:
    """Continue a run of trsvr solve --checkpoint.

    The data are read again and compared with those the run was begun on. The result has the same bits as that of a run
    that was never interrupted. A run that was finished is told again; with new limits, which count from its beginning,
    one that had ended by a limit goes on.
    """
    kept = newest_intact(checkpoint, quiet=True)  # what is to be said about it, the run itself will say
    if kept is None:
        raise FileNotFoundError(f"there is no checkpoint {checkpoint}")
    task = _Task.from_note(checkpoint, kept[0].get("note"))
    if data is not None:
        task = dataclasses.replace(task, file=str(data))
    every = _every(checkpoint_every)
    given = {"max_epochs": epochs, "max_passes": passes, "max_seconds": seconds}
    limits: dict[str, Any] = {name: limit for name, limit in given.items() if limit is not None}

    def run(problem: Any, shown: bool) -> Result:
        return resume_run(checkpoint, problem, progress=shown, threads=threads, checkpoint_every=every, **limits)

    _carry_out(task, run, out, progress, json, _cluster(dask, scheduler, workers, memory_limit, task.device))


@dataclasses.dataclass(frozen=True)
class _Task:
    """Data and objective, as they were asked for; a checkpoint keeps them so that a run can be continued."""

    file: str
    target: str | None
    format: str
    header: bool
    zero_based: bool
    test_size: str | None
    loss: str
    l2: float
    gamma: float
    a: float
    delta: float
    intercept: bool
    method: str
    tol: str
    seed: int
    device: str
    sep: str = "auto"
    drop: tuple[str, ...] = ()
    weights: str | None = None
    standardize: bool = False

    @classmethod
    def from_note(cls, path: Path, note: Any) -> _Task:
        """The task in a checkpoint's note, which anybody may have written."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        needed = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
        if not isinstance(note, dict) or not needed <= set(note) <= set(fields):
            raise ValueError(f"{path} was not written by trsvr solve: trsvr.resume continues it from Python")
        kinds = {"str": str, "bool": bool, "int": int, "float": int | float, "str | None": str | None}
        for name, entry in note.items():
            kind = str(fields[name].type)
            of_texts = isinstance(entry, list) and all(isinstance(text, str) for text in entry)
            if not (of_texts if kind not in kinds else isinstance(entry, kinds[kind])):
                raise ValueError(f"{path}: {name} must be {kind}, got {entry!r}")
        return cls(**{**note, "drop": tuple(note.get("drop", ()))})

    @property
    def wanted(self) -> Wanted:
        """What is expected of the file."""
        return Wanted(
            self.target,
            header=self.header,
            zero_based=self.zero_based,
            separator=self.sep,
            weights=self.weights,
            drop=self.drop,
        )


def _every(text: str | None) -> Any:
    """Epochs or a time, refused before a long file is read."""
    wish = int(text) if text is not None and text.strip().isdigit() else text
    Every(wish)
    return wish


def _cluster(
    dask: bool, scheduler: str | None, workers: int | None, memory_limit: str | None, device: str
) -> _Cluster | None:
    """Where the rows are to be, if not in this process."""
    if dask or scheduler is not None:
        if device != "cpu":
            raise ValueError("--device is for data in this process; workers of a cluster use their processors")
        return scheduler, workers, memory_limit
    if workers is not None or memory_limit is not None:
        raise ValueError("--workers and --memory-limit go with --dask")
    return None


def _carry_out(
    task: _Task,
    run: Callable[[Any, bool], Result],
    out: Path | None,
    progress: bool | None,
    json: bool,
    cluster: _Cluster | None,
) -> None:
    """Read the data, run, tell and write; ends the command."""
    if out is not None:
        check_folder(out)
    file = Path(task.file)
    objective = o.objective(task.loss, task.l2, task.gamma, task.a, task.delta)
    opened = _in_memory(task, file) if cluster is None else _on_cluster(task, file, objective, *cluster)
    with opened as data:
        problem = data.problem
        result = run(problem, sys.stderr.isatty() and not json if progress is None else progress)
        facts = {
            "loss": task.loss,
            "intercept": task.intercept,
            "n_features": problem.n_features,
            "n_outputs": problem.n_outputs,
            "columns": data.columns,
            "target": data.target,
            "zero_based": task.zero_based,
        }
        model = Model(data.in_file_units(result.x), problem.classes, facts)
        lost = result.status is Status.DATA_LOST
        report = {
            "trsvr": __version__,
            "file": task.file,
            "rows": problem.n_samples,
            "columns": problem.n_features,
            "left_out": data.left_out,
            "objective": {name: getattr(task, name) for name in _OBJECTIVE},
            "classes": problem.classes,
            "column_names": data.columns,
            **answer.weights(model),
            "method": task.method,
            "settings": dataclasses.asdict(result.solver),
            "seed": task.seed,
            "device": task.device,
            **answer.outcome(
                result, _NO_GAP if lost else estimate_gap(problem, result.x, result.gradient, result.gap_bound)
            ),
            "train": None if lost else data.train_scores(model),
            "held_out": data.held_out_scores(model),
            "held_out_rows": data.held_out_rows,
        }
    if out is not None:
        report["files"] = [str(path) for path in answer.write(out, report, result, model)]
    if json:
        print(as_json(report))
    else:
        show_pairs(f"{file.name}: {task.loss}, {task.method}", answer.lines(report, model))
    raise typer.Exit(_exit_status(result.status, o.number("--tol", task.tol, "auto", "none")))


def _exit_status(status: Status, tolerance: Any) -> int:
    if status is Status.INTERRUPTED:
        return 130
    asked_for = (Status.EPOCH_LIMIT, Status.PASS_LIMIT, Status.TIME_LIMIT)
    return 0 if status.success or (tolerance == "none" and status in asked_for) else 1


# ------------------------------------------------------------------------------------------------------- the method


def _method(method: str, given: dict[str, str | None], more: list[str]) -> tuple[Any, dict[str, Any]]:
    """The solver's class and the settings that were given."""
    kind = BY_NAME[_check.one_of("--method", method, BY_NAME)]
    settings: dict[str, Any] = {}
    for name, text in given.items():
        if text is not None:
            settings[name] = text if name == "hessian" else o.number(f"--{name.replace('_', '-')}", text, "auto")
    for entry in more:
        name, equals, text = entry.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, got {entry!r}")
        try:
            settings[name.strip()] = o.number(name, text, "auto")
        except ValueError:
            settings[name.strip()] = text.strip()
    known = [field.name for field in dataclasses.fields(kind)]
    for name in settings:
        if name not in known:
            raise ValueError(f"the method {method} has no setting {name!r}; it has {', '.join(known)}")
    kind(**settings)  # refuses bad numbers before a long file is read
    return kind, settings


def _solver(kind: Any, settings: dict[str, Any], n_samples: int) -> Any:
    """The solver; a default batch is not larger than the data."""
    usual = next((field.default for field in dataclasses.fields(kind) if field.name == "batch_size"), None)
    if "batch_size" not in settings and isinstance(usual, int) and usual > n_samples:
        settings = {**settings, "batch_size": n_samples}
    return kind(**settings)


# --------------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class _Data:
    """What is learnt from, wherever it is."""

    problem: Any
    columns: tuple[str, ...] | None
    target: str | None
    train_scores: Callable[[Model], dict[str, float] | None]
    held_out_scores: Callable[[Model], dict[str, float] | None] = lambda model: None
    held_out_rows: int = 0
    in_file_units: Callable[[Vector], Vector] = lambda x: x
    left_out: str | None = None


@contextlib.contextmanager
def _in_memory(task: _Task, file: Path) -> Iterator[_Data]:
    table = read_table(file, task.wanted, task.format)
    train, held_out = _split(table, task.test_size, task.seed)
    X, y, weights = _rows(table, train)
    scaling = Scaling.of(X, task.intercept) if task.standardize else None
    rows = X if scaling is None else scaling.apply(X)
    goal = task.loss, task.l2, task.gamma, task.a, task.delta, task.intercept
    problem = o.problem_from(rows, y, *goal, task.device, weights)

    def in_file_units(x: Vector) -> Vector:
        return x if scaling is None else scaling.undo(x, problem.n_outputs, task.intercept)

    yield _Data(
        problem,
        table.columns,
        table.target,
        lambda model: scores(y, model.predict(X), model.classes, weights),
        lambda model: _held_out_scores(model, table, held_out),
        held_out.size,
        in_file_units,
        table.left_out,
    )


@contextlib.contextmanager
def _on_cluster(
    task: _Task,
    file: Path,
    objective: tuple[Any, Any],
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> Iterator[_Data]:
    if task.test_size is not None:
        raise ValueError("--test-size is for data in memory; with --dask and --scheduler split the file beforehand")
    for option, given in (("--weights", task.weights), ("--drop", task.drop), ("--standardize", task.standardize)):
        if given:
            raise ValueError(f"{option} is for data in memory, not for --dask and --scheduler")
    kind = remote_format(file, task.format)
    with connected(scheduler, workers, memory_limit) as client:
        problem, source = remote_problem(client, file, kind, task.target, task.zero_based, objective, task.intercept)
        yield _Data(problem, source.columns, source.target, lambda model: problem.scores(model.x))


def _split(table: Table, test_size: str | None, seed: int) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Rows to learn from (None: all) and rows held out, both in order."""
    n = table.X.shape[0]
    if test_size is None:
        return None, np.empty(0, dtype=np.int64)
    size = o.number("--test-size", test_size)
    count = round(size * n) if 0 < size < 1 else size
    if isinstance(count, float) or not 1 <= count < n:
        raise ValueError(f"--test-size must be a share below 1 or a number of rows below {n}, got {test_size}")
    order = np.random.default_rng(_check.whole("--seed", seed, at_least=0)).permutation(n)
    return np.sort(order[count:]), np.sort(order[:count])


def _rows(table: Table, chosen: NDArray[np.int64] | None) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
    assert table.y is not None, "a table with a target was asked for"
    X, y, weights = table.X, table.y, table.weights
    if weights is not None and weights.shape != y.shape:
        raise ValueError(f"--weights must have one number for each of the {len(y)} rows, got shape {weights.shape}")
    if chosen is None:
        return X, y, weights
    return X[chosen], y[chosen], None if weights is None else weights[chosen]


def _held_out_scores(model: Model, table: Table, held_out: NDArray[np.int64]) -> dict[str, float] | None:
    if not held_out.size:
        return None
    X, y, weights = _rows(table, held_out)
    return scores(y, model.predict(X), model.classes, weights)
