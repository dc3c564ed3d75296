"""``trsvr paper``: the paper's studies run, tuned and reported."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trsvr import _check, _threads
from trsvr.cli.output import check_folder, show_rows
from trsvr.datasets.preprocess import PREPROCESS
from trsvr.experiments import runner as running
from trsvr.experiments import specification, tuning
from trsvr.experiments.specification import Study

app = typer.Typer(no_args_is_help=True, help="The studies of the TRSVR paper: list, run, tune and report them.")

Studies = Annotated[
    list[str] | None,
    typer.Argument(
        help="Studies by name (see trsvr paper list), or TOML files; default: all.",
        metavar="STUDY...",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for results and report; what is in it is not run again.")]
Jobs = Annotated[
    int | None, typer.Option(help="Worker processes; default: the cores this process may use.", show_default=False)
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Send the runs to the Dask cluster of this scheduler instead; data sets that its workers do not find in "
        "their TRSVR_DATA_DIR are sent along, and studies of time run here; default: processes of this machine.",
        metavar="ADDRESS",
        show_default=False,
    ),
]
Seeds = Annotated[
    int | None, typer.Option(help="Seeds 0, 1, … of each method; default: as the study says.", show_default=False)
]
Only = Annotated[
    str | None,
    typer.Option(help="Only these data sets or methods, separated by semicolons; default: all.", show_default=False),
]
Quick = Annotated[bool, typer.Option("--quick", help="A few minutes for everything: fewer epochs, seeds and rows.")]
Nonconvex = Annotated[
    bool, typer.Option("--nonconvex", help="The truly nonconvex variant of each study, γ = 10·λ·d, instead.")
]
Alternative = Annotated[
    str | None,
    typer.Option(
        help="Run with another choice where the paper leaves one open: zero (start), minmax (scaling) or lmax (50.1 "
        "is L_max); claims are then judged under it too; default: none.",
        show_default=False,
    ),
]
Complete = Annotated[
    bool,
    typer.Option(
        "--complete",
        help="With every alternative and every grid as well: what the replication page is written from.",
    ),
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        help="How data are prepared: none, standardize, minmax, unit-rows or maxabs; default: as each set asks for.",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Folder to look for data sets first; default: TRSVR_DATA_DIR, then the cache.",
        show_default=False,
    ),
]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Whether the report is written at the end.")]
Progress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Progress on stderr; default: a bar on a terminal, else lines."),
]


@app.command("list", epilog="Example: `trsvr paper list convex ablation`")
def list_studies(studies: Studies = None) -> None:
    """List the studies, their data sets, methods and budgets."""
    rows = []
    for study in _studies(studies):
        for problem in study.problems:
            budget = f"{study.epochs} epochs" if study.epochs else f"{study.passes:g} passes"
            paper = sum(method.role == "paper" for method in problem.methods)
            rows.append(
                [
                    study.name,
                    problem.data,
                    f"{len(problem.methods)} ({paper})",
                    budget,
                    str(study.seeds),
                    str(len(problem.methods) * study.seeds),
                ]
            )
    show_rows("Studies", ["study", "data", "methods (the paper's)", "budget", "seeds", "runs"], rows)


@app.command(epilog="Example: `trsvr paper run convex --quick --out paper`")
def run(
    studies: Studies = None,
    out: Out = Path("paper"),
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    seeds: Seeds = None,
    only: Only = None,
    quick: Quick = False,
    nonconvex: Nonconvex = False,
    alternative: Alternative = None,
    complete: Complete = False,
    preprocess: Preprocess = None,
    data_dir: DataDir = None,
    report: WithReport = True,
    progress: Progress = None,
) -> None:
    """Run studies and write their report.

    Results that are already in --out are not computed again, so a run that was stopped goes on where it was.
    """
    if complete and (nonconvex or alternative is not None):
        raise ValueError("--complete has every alternative in it: give neither --alternative nor --nonconvex")
    wanted = chosen(_studies(studies), seeds, only, quick, nonconvex, preprocess, alternative)
    _look_in(data_dir)
    tuned = [study.name for study in wanted if study.grids] if complete else []
    if complete:
        wanted += [study for name in specification.ALTERNATIVES for study in _varied(wanted, name)]
    with _runner(out, jobs, scheduler, progress) as runner:
        _execute(runner, wanted, quick, tuned)
    if report:
        _write_report(out)


@app.command(epilog="Example: `trsvr paper tune convex --only mushrooms --out paper`")
def tune(
    study: Annotated[str, typer.Argument(help="A study by name, or a TOML file.", metavar="STUDY")],
    out: Out = Path("paper"),
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    seeds: Seeds = None,
    tuning_seeds: Annotated[int, typer.Option(help="Seeds for each point of a grid, none of them the study's.")] = 1,
    only: Only = None,
    quick: Quick = False,
    nonconvex: Nonconvex = False,
    alternative: Alternative = None,
    preprocess: Preprocess = None,
    data_dir: DataDir = None,
    progress: Progress = None,
) -> None:
    """Tune every method of a study on its grid, then run the chosen values on the study's own seeds.

    All methods have the same number of grid points. The paper's values run too, and the report shows both.
    """
    wanted = chosen(_studies([study]), seeds, only, quick, nonconvex, preprocess, alternative)
    _look_in(data_dir)
    _check.whole("--tuning-seeds", tuning_seeds)
    for one in wanted:
        if not one.grids:
            raise ValueError(f"STUDY: {one.name} has no grid to tune on")
    with _runner(out, jobs, scheduler, progress) as runner:
        _execute(runner, wanted, quick, [one.name for one in wanted], tuning_seeds)
    _write_report(out)


@app.command("report", epilog="Example: `trsvr paper report --out paper`")
def write_report(
    out: Out = Path("paper"),
    into: Annotated[
        Path | None,
        typer.Option(help="Put the tables into this document too, below its mark; default: none.", show_default=False),
    ] = None,
) -> None:
    """Write the report again from the results that are there."""
    _write_report(out)
    if into is not None:
        from trsvr.experiments.report import write_into

        write_into(out, into)


def _execute(
    runner: running.Runner, studies: list[Study], quick: bool, tuned: list[str], tuning_seeds: int = 1
) -> None:
    """Run studies, then the grids of those that are named; ``run.json`` says what was done."""
    begun = time.monotonic()
    plans = runner.plan(studies)
    _tell_missing(plans)
    running.record(runner.folder, plans, quick)
    before = runner.finished()
    try:
        runner.run([job for plan in plans for _, _, job in plan.jobs()])
        with_grids = [plan for plan in plans if plan.study.name in tuned]
        if with_grids:
            tuning.tune(runner, with_grids, tuning_seeds)
    finally:  # what an interrupted call has done counts too
        done = runner.finished() - before
        running.record(runner.folder, plans, quick, running.session(begun, done, runner.workers))


def _write_report(folder: Path) -> None:
    from trsvr.experiments import report as reporting
    from trsvr.experiments.claims import judge
    from trsvr.experiments.results import read

    written = reporting.write(folder)
    results = read(folder)
    verdicts = judge(results) if any(study.study["paper"] for study in results.studies.values()) else []
    for verdict in verdicts:
        held = f" ({verdict.held})" if verdict.parts else ""
        print(f"  {verdict.claim:<3}  {verdict.verdict + held:<28} {verdict.says}")
    print(f"Written: {written[0]}, {written[1]} and {len(written) - 2} figures")


# ------------------------------------------------------------------------------------------------------------ helpers


def _studies(names: list[str] | None) -> list[Study]:
    found = [specification.find(name) for name in names or specification.names()]
    twice = [study.name for study in found]
    for name in twice:
        if twice.count(name) > 1:
            raise ValueError(f"STUDY: {name} is named twice")
    return found


def chosen(
    studies: list[Study],
    seeds: int | None = None,
    only: str | None = None,
    quick: bool = False,
    nonconvex: bool = False,
    preprocess: str | None = None,
    alternative: str | None = None,
) -> list[Study]:
    """The studies as the options want them."""
    if quick:
        studies = [study.quickly() for study in studies]
    if nonconvex:
        studies = [study.nonconvex() for study in studies if study.objective.gamma_over_l2_d is None]
    if alternative is not None:
        _check.one_of("--alternative", alternative, specification.ALTERNATIVES)
        studies = _varied(studies, alternative)
    if seeds is not None:
        studies = [replace(study, seeds=_check.whole("--seeds", seeds)) for study in studies]
    if preprocess is not None:
        _check.one_of("--preprocess", preprocess, PREPROCESS)
        studies = [
            replace(study, problems=tuple(replace(problem, preprocess=preprocess) for problem in study.problems))
            for study in studies
        ]
    if only is not None:
        wanted = [name.strip() for name in only.split(";") if name.strip()]
        known = sorted(set().union(*(study.names() for study in studies)))
        for name in wanted:
            _check.one_of("--only", name, known)
        studies = [study.only(wanted) for study in studies if study.names() & set(wanted)]
        studies = [study for study in studies if study.problems]
    return studies


def _varied(studies: list[Study], alternative: str) -> list[Study]:
    """The paper's studies with another choice, where it changes them."""
    varied = [study.alternative(alternative) for study in studies if study.paper]
    return [study for study in varied if study.problems]


@contextmanager
def _runner(out: Path, jobs: int | None, scheduler: str | None, progress: bool | None) -> Iterator[running.Runner]:
    """Who runs the jobs: processes of this machine, or the workers of a cluster."""
    if jobs is not None:
        _check.whole("--jobs", jobs)
        if scheduler is not None:
            raise ValueError("--jobs is for processes of this machine; the cluster at --scheduler has its own workers")
    check_folder(out)
    with ExitStack() as stack:
        if scheduler is None:
            stack.enter_context(running.at_work(out))
            workers = jobs or _threads.available()
            runner = running.Runner(out, running.in_processes(workers), workers, max(1, workers // 4))
        else:
            from trsvr.cli.remote import connected, count_of_workers

            client = stack.enter_context(connected(scheduler, None, None))
            workers = count_of_workers(client, scheduler)
            stack.enter_context(running.at_work(out))
            from trsvr.dask.studies import OnCluster

            cluster = OnCluster(client)
            runner = running.Runner(out, cluster, workers, ship=cluster.ship)
        runner.report = stack.enter_context(_shown(progress))
        yield runner


def _look_in(folder: Path | None) -> None:
    """Let this process and its workers look for data there first."""
    if folder is not None:
        if not folder.is_dir():
            raise ValueError(f"--data-dir must be a folder, got {folder}")
        os.environ["TRSVR_DATA_DIR"] = str(folder.absolute())


def _tell_missing(plans: list[running.Plan]) -> None:
    told: set[str] = set()
    for plan in plans:
        for data, reason in plan.missing.items():
            if data not in told:
                told.add(data)
                print(f"trsvr: {plan.study.name} runs without {data}: {reason}", file=sys.stderr)


@contextmanager
def _shown(wanted: bool | None) -> Iterator[running.Report]:
    """A bar on a terminal, a line now and then elsewhere, nothing where it is not wanted."""
    if wanted is False:
        yield lambda done, total, left, note: None
        return
    if not sys.stderr.isatty() and wanted is None:
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}  {task.fields[note]}", markup=False),
        console=Console(stderr=True),
    )
    task = bar.add_task("", total=1, left="", note="")
    with bar:
        yield lambda done, total, left, note: bar.update(
            task, completed=done, total=total, left=_left(left), note=note[:60]
        )


class _Lines:
    """A line whenever ten seconds have gone by, and at the end."""

    every = 10.0

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, done: int, total: int, left: float | None, note: str) -> None:
        now = time.monotonic()
        if now - self.last >= self.every or done == total:
            self.last = now
            print(f"trsvr: {done} of {total} done{_left(left, ', ')}  {note}".rstrip(), file=sys.stderr, flush=True)


def _left(seconds: float | None, before: str = "") -> str:
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{before}{seconds:.0f} s left"
    return f"{before}{seconds / 60:.0f} min left"
