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

import typer

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._device import linear_model
from trsvr._version import __version__
from trsvr.cli import options as o
from trsvr.cli import solve_answer as answer
from trsvr.cli import solve_options as own
from trsvr.cli.models import Model
from trsvr.cli.output import as_json, check_folder, show_pairs
from trsvr.cli.remote import connected, remote_format, remote_problem
from trsvr.cli.scaling import Scaling
from trsvr.cli.tables import NO_TARGET, Table, read_table
from trsvr.cli.tasks import Rows, Task, check_responses, split
from trsvr.engine import Result, Status, minimize
from trsvr.engine import resume as resume_run
from trsvr.engine.checkpoint import newest_intact
from trsvr.engine.keeper import Every, NotedPath
from trsvr.inference import separation
from trsvr.problems.families import is_glm
from trsvr.solvers import BY_NAME
from trsvr.theory import Gap, estimate_gap

# Address of a scheduler, number of workers, memory of each.
_Cluster = tuple[str | None, int | None, str | None]
_OBJECTIVE = ("loss", "l2", "gamma", "a", "delta", "power", "dispersion", "intercept", "standardize", "offset")
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
    offset: own.Offset = None,
    categorical: own.Categorical = None,
    drop_first: own.DropFirst = False,
    test_size: own.TestSize = None,
    loss: o.Loss = "logistic",
    l2: o.Strength = 1e-4,
    gamma: o.Gamma = 0.0,
    a: o.WellPosition = 0.5,
    delta: o.Delta = 1.0,
    power: o.Power = 1.5,
    dispersion: o.Dispersion = 1.0,
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
    task = Task(
        file=str(file),
        target=target,
        format=format_,
        header=header,
        zero_based=zero_based,
        sep=sep,
        drop=tuple(drop or ()),
        weights=weights,
        offset=offset,
        categorical=tuple(categorical or ()),
        drop_first=drop_first,
        test_size=test_size,
        loss=loss,
        l2=l2,
        gamma=gamma,
        a=a,
        delta=delta,
        power=power,
        dispersion=dispersion,
        intercept=intercept,
        standardize=standardize,
        method=method,
        tol=tol,
        seed=seed,
        device=device,
    )
    tolerance = o.number("--tol", tol, "auto", "none")
    _ = task.objective  # refused before a long file is read
    linear_model(device)
    kind, settings = _method(method, given, more or [])
    if drop_first and not categorical:
        raise ValueError("--drop-first needs --categorical, the columns whose first level is left out")
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
    that was never interrupted. A finished run is reported again; with new limits, which count from its beginning,
    one that had ended by a limit goes on.
    """
    kept = newest_intact(checkpoint, quiet=True)  # what is to be said about it, the run itself will say
    if kept is None:
        raise FileNotFoundError(f"there is no checkpoint {checkpoint}")
    task = Task.from_note(checkpoint, kept[0].get("note"))
    if data is not None:
        task = task.at(data)
    every = _every(checkpoint_every)
    given = {"max_epochs": epochs, "max_passes": passes, "max_seconds": seconds}
    limits: dict[str, Any] = {name: limit for name, limit in given.items() if limit is not None}

    def run(problem: Any, shown: bool) -> Result:
        return resume_run(checkpoint, problem, progress=shown, threads=threads, checkpoint_every=every, **limits)

    _carry_out(task, run, out, progress, json, _cluster(dask, scheduler, workers, memory_limit, task.device))


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
    task: Task,
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
    opened = _in_memory(task, file) if cluster is None else _on_cluster(task, file, task.objective, *cluster)
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
            **data.more_facts,
        }
        model = Model(data.in_file_units(result.x), problem.classes, facts)
        lost = result.status is Status.DATA_LOST
        told = dataclasses.asdict(task)
        report = {
            "trsvr": __version__,
            "file": task.file,
            "rows": problem.n_samples,
            "columns": problem.n_features,
            "left_out": data.left_out,
            "objective": {name: told[name] for name in _OBJECTIVE},
            "classes": problem.classes,
            "column_names": data.columns,
            **answer.weights(model),
            "task": {**told, "file": os.path.abspath(file)},
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
    if task.l2 == task.gamma == 0.0 and cluster is None and task.device == "cpu" and problem.n_outputs == 1:
        problem.feature_names = data.columns
        said = separation(problem, result.x) if is_glm(problem.loss) and not lost else None
        if said is not None:
            print(f"trsvr: {said}", file=sys.stderr)
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
    more_facts: dict[str, Any] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def _in_memory(task: Task, file: Path) -> Iterator[_Data]:
    table = read_table(file, task.wanted, task.format)
    check_responses(table, task.objective[0], task.loss)
    train, held_out = split(table, task.test_size, task.seed)
    rows = Rows.of(table, train)
    scaling = Scaling.of(rows.X, task.intercept) if task.standardize else None
    X = rows.X if scaling is None else scaling.apply(rows.X)
    goal = *task.objective, task.intercept, task.device
    problem = o.model_of(X, rows.y, *goal, rows.weights, rows.offset)

    def in_file_units(x: Vector) -> Vector:
        return x if scaling is None else scaling.undo(x, problem.n_outputs, task.intercept)

    yield _Data(
        problem,
        table.columns,
        table.target,
        rows.scores,
        lambda model: Rows.of(table, held_out).scores(model) if held_out.size else None,
        held_out.size,
        in_file_units,
        table.left_out,
        _more_facts(task, table),
    )


def _more_facts(task: Task, table: Table) -> dict[str, Any]:
    """What a prediction needs to know where the model is not of the usual kind."""
    more: dict[str, Any] = {}
    if task.loss in ("tweedie", "negative-binomial"):
        more |= {"power": task.power, "dispersion": task.dispersion}
    if task.offset is not None:
        more["offset"] = task.offset
    if table.levels:
        levels = {name: list(known) for name, known in table.levels.items()}
        more |= {"raw_columns": table.raw_columns, "levels": levels, "drop_first": task.drop_first}
    return more


@contextlib.contextmanager
def _on_cluster(
    task: Task,
    file: Path,
    objective: tuple[Any, Any],
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> Iterator[_Data]:
    if task.test_size is not None:
        raise ValueError("--test-size is for data in memory; with --dask and --scheduler split the file beforehand")
    told = dataclasses.asdict(task)
    for option in ("weights", "drop", "standardize", "offset", "categorical"):
        if told[option]:
            raise ValueError(f"--{option} is for data in memory, not for --dask and --scheduler")
    kind = remote_format(file, task.format)
    if kind == "libsvm" and task.target is not None:
        raise ValueError(NO_TARGET)
    with connected(scheduler, workers, memory_limit) as client:
        problem, source = remote_problem(client, file, kind, task.target, task.zero_based, objective, task.intercept)
        yield _Data(problem, source.columns, source.target, lambda model: problem.scores(model.x))
