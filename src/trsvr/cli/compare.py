"""``trsvr compare DATASET``: several methods side by side on one problem."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from trsvr import _check, theory
from trsvr._version import __version__
from trsvr.cli import options as o
from trsvr.cli.output import as_json, check_folder, write_folder
from trsvr.cli.paper_values import STUDIES
from trsvr.cli.tables import Wanted, read_table
from trsvr.datasets import load, preprocess
from trsvr.datasets.generators import GENERATORS
from trsvr.datasets.registry import ENTRIES
from trsvr.engine import Result, Status, minimize
from trsvr.engine.stopping import Limits
from trsvr.experiments import curves, figures
from trsvr.experiments.curves import upper_median
from trsvr.experiments.references import StandsStill
from trsvr.problems import LinearModel
from trsvr.solvers import BY_NAME, LBFGS, TrustRegion

if TYPE_CHECKING:
    import pandas as pd

GAPS = (1e-3, 1e-6, 1e-9)
#: Short names for the paper's variants of TRSVR.
VARIANTS = {"trsvr-esth": "estimated", "trsvr-id": "identity", "trsvr-exact": "exact"}
METHODS = (*BY_NAME, *VARIANTS)
# A gap of so many units in the last place of f* is no gap: the run has arrived.
_ARRIVED = 64 * np.finfo(float).eps

DataSet = Annotated[
    str,
    typer.Argument(help="Name of a data set (see trsvr data list) or a file as for trsvr solve.", show_default=False),
]
Methods = Annotated[
    str,
    typer.Option(
        help=f"Methods, separated by commas: {', '.join(METHODS)}. Settings follow behind colons, "
        "as in svrg:step=0.03:batch_size=200.",
        rich_help_panel=o.METHOD,
    ),
]
Paper = Annotated[
    bool,
    typer.Option(
        "--paper",
        help="Take the paper's tuned values, objective and start for its data sets: " + ", ".join(STUDIES) + ".",
        rich_help_panel=o.METHOD,
    ),
]
Preprocess = Annotated[
    str,
    typer.Option(
        help="default, none, standardize, minmax, unit-rows or maxabs; default: as the data set asks for.",
        rich_help_panel=o.DATA,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Folder to look for data sets first; default: TRSVR_DATA_DIR, then the cache.",
        show_default=False,
        rich_help_panel=o.DATA,
    ),
]
Gamma = Annotated[
    float | None,
    typer.Option(
        help="γ of the double well (γ/d) Σ (w² − a²)²; default 0, or the paper's.",
        show_default=False,
        rich_help_panel=o.OBJECTIVE,
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        help="zero, or normal: standard normal entries, from the seed; default zero, or the paper's normal.",
        show_default=False,
        rich_help_panel=o.LIMITS,
    ),
]
Seeds = Annotated[int, typer.Option(help="Runs of each method, with seeds 0, 1, …", rich_help_panel=o.LIMITS)]
Epochs = Annotated[
    int | None,
    typer.Option(
        help="Epochs at most; default 100 with --paper.",
        show_default=False,
        rich_help_panel=o.LIMITS,
    ),
]
Passes = Annotated[
    float | None,
    typer.Option(
        help="Passes over the data at most; default 100 where no other limit is given.",
        show_default=False,
        rich_help_panel=o.LIMITS,
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(help="Seconds a run at most; default: no such limit.", show_default=False, rich_help_panel=o.LIMITS),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for figure.png, figure.svg, trace.csv and comparison.json; default: nothing is written.",
        show_default=False,
        rich_help_panel=o.OUTPUT,
    ),
]
ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Progress bars on stderr; default: if stderr is a terminal.",
        show_default=False,
        rich_help_panel=o.OUTPUT,
    ),
]


def compare(
    dataset: DataSet,
    methods: Methods = "trsvr,svrg,saga,lbfgs",
    paper: Paper = False,
    target: o.Target = None,
    format_: o.Format = "auto",
    header: o.Header = True,
    zero_based: o.ZeroBased = False,
    sep: o.Separator = "auto",
    drop: o.Drop = None,
    preprocess: Preprocess = "default",
    data_dir: DataDir = None,
    l2: o.Strength = 1e-4,
    gamma: Gamma = None,
    a: o.WellPosition = 0.5,
    intercept: o.Intercept = False,
    seeds: Seeds = 5,
    start: Start = None,
    epochs: Epochs = None,
    passes: Passes = None,
    seconds: Seconds = None,
    threads: o.Threads = None,
    out: Out = None,
    progress: ShowProgress = None,
    json: o.Json = False,
) -> None:
    """Run several methods side by side on one problem.

    Prints, for each method, the passes over the data and the seconds that it needs to come within 1e-3, 1e-6 and 1e-9
    of the smallest value (median over the seeds), and writes a figure and the traces to --out. Every method begins at
    the same point and counts by the same rules; evaluations that only draw the curve are neither counted nor timed.
    """
    wanted = parse_methods(methods)
    study = _study(dataset) if paper else None
    _check.whole("--seeds", seeds)
    begin = _check.one_of("--start", start or ("normal" if study else "zero"), ("zero", "normal"))
    if epochs is passes is seconds is None:
        epochs, passes = (100, None) if study else (None, 100.0)
    limits = Limits.checked(epochs, passes, seconds)
    well = gamma if gamma is not None else study.gamma if study else 0.0
    o.objective("logistic", l2, well, a, 1.0)  # refused before long files are read
    if out is not None:
        check_folder(out)
    wanted_table = Wanted(target, header=header, zero_based=zero_based, separator=sep, drop=drop or ())
    data = _read(dataset, wanted_table, format_, preprocess, data_dir)
    problem = o.problem_from(data.X, data.y, "logistic", l2, well, a, 1.0, intercept)
    tuned = study.methods if study else {}
    contestants = [_contestant(name, {**tuned.get(name, {}), **given}, problem) for name, given in wanted]
    _tell_apart(contestants)
    untuned = [name for name, _ in wanted if study and name not in tuned]
    if untuned:
        print(f"trsvr: the paper has no values for {', '.join(untuned)} here: defaults", file=sys.stderr)

    shown = sys.stderr.isatty() and not json if progress is None else progress
    race = Race(problem, contestants, seeds, begin, limits, threads)
    with _Bars(contestants, seeds, shown) as report:
        race.run(report)
    comparison = {
        "trsvr": __version__,
        "data": data.name,
        "source": data.source,
        "rows": problem.n_samples,
        "columns": problem.n_features,
        "objective": {"loss": "logistic", "l2": l2, "gamma": well, "a": a, "intercept": intercept},
        "start": begin,
        "seeds": seeds,
        "limits": dataclasses.asdict(limits),
        "smallest_value": race.smallest,
        "methods": [race.summary(contestant) for contestant in contestants],
    }
    if out is not None:
        writers = _writers(race, comparison)
        comparison["files"] = [str(out / name) for name in writers]
        write_folder(out, writers)
    if json:
        print(as_json(comparison))
    else:
        _show(comparison)
    raise typer.Exit(130 if race.interrupted else 0)


# ------------------------------------------------------------------------------------------------------ the methods


def parse_methods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and settings from ``name:setting=value:…,name…``."""
    found = []
    for part in text.split(","):
        name, *settings = (piece.strip() for piece in part.split(":"))
        if not name:
            raise ValueError(f"--methods must be names separated by commas, got {text!r}")
        _check.one_of("--methods", name, METHODS)
        known = [entry.name for entry in dataclasses.fields(BY_NAME["trsvr" if name in VARIANTS else name])]
        given: dict[str, Any] = {}
        for setting in settings:
            key, equals, value = (piece.strip() for piece in setting.partition("="))
            if not equals or not value:
                raise ValueError(f"--methods: a setting of {name} must be NAME=VALUE, got {setting!r}")
            _check.one_of(f"--methods: a setting of {name}", key, known)
            given[key] = _value(value)
        found.append((name, given))
    return found


def _value(text: str) -> Any:
    """A whole number, a number, or the word itself."""
    try:
        return o.number("", text, "auto")
    except ValueError:
        return text


@dataclass
class Contestant:
    """A method that takes part.

    Attributes
    ----------
    label : str
        Its name in tables and figures, different for each.
    name : str
        Its name for the command line.
    settings : dict
        What was chosen, by the user or by the paper.
    solver
        The solver itself.
    results : dict
        Results by seed.
    """

    label: str
    name: str
    settings: dict[str, Any]
    solver: Any
    results: dict[int, Result] = field(default_factory=dict)


def _contestant(name: str, settings: dict[str, Any], problem: LinearModel) -> Contestant:
    kind = BY_NAME["trsvr" if name in VARIANTS else name]
    chosen = dict(settings)
    usual = next((entry.default for entry in dataclasses.fields(kind) if entry.name == "batch_size"), None)
    if isinstance(usual, int) and usual > problem.n_samples:  # a default batch is not larger than the data
        chosen.setdefault("batch_size", problem.n_samples)
    if name in VARIANTS:
        chosen.setdefault("hessian", VARIANTS[name])
        chosen.setdefault("batch_size", min(200, problem.n_samples))
        if "alpha" not in chosen:
            # With the identity TRSVR is SVRG, whose step theory knows; with curvature α = 1 is a usual choice.
            b = _check.whole(f"batch_size of {name}", chosen["batch_size"], at_most=problem.n_samples)
            chosen["alpha"] = theory.recommended_step(problem, "svrg", batch_size=b) if name == "trsvr-id" else 1.0
    try:
        solver = kind(**chosen)
        solver.check(problem)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return Contestant(name, name, settings, solver)


def _tell_apart(contestants: list[Contestant]) -> None:
    """Give methods that take part twice the settings in which they differ as part of their names."""
    for contestant in contestants:
        others = [other for other in contestants if other.name == contestant.name and other is not contestant]
        different = [
            f"{key}={value}"
            for key, value in contestant.settings.items()
            if any(other.settings.get(key) != value for other in others)
        ]
        contestant.label = " ".join([contestant.name, *different])
    labels = [contestant.label for contestant in contestants]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"--methods names {label} twice with the same settings")


def _study(dataset: str) -> Any:
    if dataset not in STUDIES:
        raise ValueError(f"--paper has values for {', '.join(STUDIES)}, not for {dataset}")
    return STUDIES[dataset]


# --------------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class _Data:
    X: Any
    y: NDArray[Any]
    name: str
    source: str


def _read(dataset: str, wanted: Wanted, format_: str, method: str, data_dir: Path | None) -> _Data:
    names = [*ENTRIES, *(name for name in GENERATORS if name not in ENTRIES)]
    path = Path(dataset)
    if dataset in names and not path.is_file():
        if wanted != Wanted(header=wanted.header, zero_based=wanted.zero_based) or format_ != "auto":
            raise ValueError("--target, --format, --sep and --drop are for files, not for data sets known by name")
        data = load(dataset, preprocess=method, data_dir=data_dir)
        return _Data(data.X, data.y, data.name, data.source)
    if not path.exists() and not path.suffix and path.name == dataset:  # a misspelt name, more likely than a file
        _check.one_of("DATASET (there is no such file)", dataset, names)
    _check.one_of("--preprocess", method, ("default", *preprocess.PREPROCESS))
    table = read_table(path, wanted, format_)
    assert table.y is not None, "a table with a target was asked for"
    method = "none" if method == "default" else method
    X = preprocess.apply(method, preprocess.learn(method, table.X), table.X)
    return _Data(X, table.y, path.name, str(path))


# --------------------------------------------------------------------------------------------------------- the race


@dataclass
class Race:
    """All runs, and the smallest value that anything has found."""

    problem: LinearModel
    contestants: list[Contestant]
    seeds: int
    start: str
    limits: Limits
    threads: int | None
    smallest: float = np.inf
    interrupted: bool = False

    def run(self, report: Callable[[Contestant | None, float, float], None]) -> None:
        """Run everybody; ``report(contestant, runs done, gap)`` is called along the way."""
        self._find_reference(lambda: report(None, 0.0, np.nan))
        # Seed by seed, so that an interrupted comparison still has all methods.
        for seed in range(self.seeds):
            for contestant in self.contestants:
                if self.interrupted:
                    return
                contestant.results[seed] = self._run_one(contestant, seed, report)
                self._look(contestant.results[seed])

    def _find_reference(self, tell: Callable[[], None]) -> None:
        """The smallest value: a trust region to the rounding floor, then L-BFGS from there."""
        tell()
        x = None
        for solver in (TrustRegion(), LBFGS()):
            watch = StandsStill()
            result = minimize(
                self.problem, solver, x0=x, max_epochs=300, tol=None, callback=watch, threads=self.threads
            )
            x = result.x
            self._look(result)
            if self.interrupted:
                return

    def _look(self, result: Result) -> None:
        self.smallest = min(self.smallest, result.value)
        self.interrupted = self.interrupted or result.status is Status.INTERRUPTED

    def _run_one(self, contestant: Contestant, seed: int, report: Callable[..., None]) -> Result:
        def watch(so_far: Result) -> None:
            row = so_far.rows[-1]
            gap = row["value"] - self.smallest
            report(contestant, seed + (self.limits.fraction(row) or 0.0), gap)
            if abs(gap) <= _ARRIVED * abs(self.smallest):
                raise StopIteration

        x0 = np.random.default_rng(seed).normal(size=self.problem.n_parameters) if self.start == "normal" else None
        result = minimize(
            self.problem,
            contestant.solver,
            x0=x0,
            max_epochs=self.limits.epochs,
            max_passes=self.limits.passes,
            max_seconds=self.limits.seconds,
            tol=None,
            seed=seed,
            callback=watch,
            threads=self.threads,
        )
        report(contestant, seed + 1.0, result.rows[-1]["value"] - self.smallest)
        return result

    def trace(self) -> pd.DataFrame:
        """All traces under one another, with the method, the seed and the gap in front."""
        import pandas as pd

        parts = []
        for contestant in self.contestants:
            for seed, result in contestant.results.items():
                part = result.trace.copy()
                part.insert(0, "method", contestant.label)
                part.insert(1, "seed", seed)
                part.insert(2, "gap", part["value"] - self.smallest)
                parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def summary(self, contestant: Contestant) -> dict[str, Any]:
        """What the table says of one method: medians over the seeds, infinite where most runs never came there."""
        results = list(contestant.results.values())
        last = [result.rows[-1] for result in results]
        return {
            "method": contestant.label,
            "settings": dataclasses.asdict(contestant.solver),
            "passes_to": {
                f"{gap:g}": upper_median(self._cost(result, gap, "passes") for result in results) for gap in GAPS
            },
            "seconds_to": {
                f"{gap:g}": upper_median(self._cost(result, gap, "seconds") for result in results) for gap in GAPS
            },
            "final_gap": upper_median(row["value"] - self.smallest for row in last),
            "final_gradient_norm_sq": upper_median(row["gradient_norm_sq"] for row in last),
            "epochs": upper_median(row["epoch"] for row in last),
            "diverged": sum(result.status is Status.DIVERGED for result in results),
            "runs": len(results),
        }

    def _cost(self, result: Result, gap: float, column: str) -> float:
        """Passes or seconds until a run first had this gap; infinite if never."""
        return next((row[column] for row in result.rows if row["value"] - self.smallest <= gap), np.inf)


# ----------------------------------------------------------------------------------------------------- what is shown


class _Bars:
    """One bar a method and one for everything, on stderr; nothing where it is not wanted."""

    def __init__(self, contestants: list[Contestant], seeds: int, shown: bool) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not shown,
        )
        self.tasks = {
            contestant.label: self.progress.add_task(contestant.label, total=seeds, note="", start=False)
            for contestant in contestants
        }
        self.all = self.progress.add_task("all runs", total=seeds * len(contestants), note="smallest value …")

    def __enter__(self) -> Callable[[Contestant | None, float, float], None]:
        self.progress.start()  # does nothing where it is disabled
        return self.report

    def __exit__(self, *_: object) -> None:
        if not self.progress.disable:  # older versions of rich end even a bar that is not shown with a new line
            self.progress.stop()

    def report(self, contestant: Contestant | None, done: float, gap: float) -> None:
        """Move the bar of a method."""
        if contestant is None:
            return
        task = self.tasks[contestant.label]
        self.progress.start_task(task)
        self.progress.update(task, completed=done, note=f"gap {max(gap, 0.0):.1e}")
        moved = sum(known.completed for known in self.progress.tasks if known.id != self.all)
        self.progress.update(self.all, completed=moved, note="")


def _show(comparison: dict[str, Any]) -> None:
    goal = comparison["objective"]
    wells = f", γ = {goal['gamma']:g}, a = {goal['a']:g}" if goal["gamma"] else ""
    title = (
        f"{comparison['data']}: {comparison['rows']} × {comparison['columns']}, logistic, λ = {goal['l2']:g}{wells}; "
        f"start {comparison['start']}; smallest value {comparison['smallest_value']:.12g}"
    )
    # Narrow columns: the table has to fit into eighty characters.
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method\n", style="cyan", overflow="fold", min_width=7)
    for name in (*(f"passes\n≤{_power(gap)}" for gap in GAPS), *(f"secs\n≤{_power(gap)}" for gap in GAPS)):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    for name in ("final\ngap", "final\n‖∇f‖²", "\nepochs"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in comparison["methods"]:
        gap = "diverged" if 2 * line["diverged"] > line["runs"] else _small(line["final_gap"])
        table.add_row(
            Text(line["method"]),
            *(_cost_text(cost, "{:.1f}") for cost in line["passes_to"].values()),
            *(_cost_text(cost, "{:.3g}") for cost in line["seconds_to"].values()),
            gap,
            _small(line["final_gradient_norm_sq"]),
            f"{line['epochs']:.0f}",
        )
    console = Console()
    console.print(Text(title, style="bold"))
    console.print(table)
    print(f"Until the gap f − f* was so small; medians of {comparison['seeds']} seeds; – is never.")
    if "files" in comparison:
        print(f"Written: {', '.join(comparison['files'])}")


def _power(gap: float) -> str:
    return f"{gap:.0e}".replace("e-0", "e-")


def _cost_text(cost: float, form: str) -> str:
    return form.format(cost) if np.isfinite(cost) else "–"


def _small(number: float) -> str:
    return "0" if number == 0.0 else f"{number:.1e}"


# -------------------------------------------------------------------------------------------------- what is written


def _writers(race: Race, comparison: dict[str, Any]) -> dict[str, Callable[[Path], None]]:
    writers: dict[str, Callable[[Path], None]] = {
        "comparison.json": lambda path: _write_text(path, as_json(comparison) + "\n"),
        "trace.csv": lambda path: race.trace().to_csv(path, index=False),
    }
    try:
        import matplotlib
    except ImportError:
        print("trsvr: no figure is drawn: that needs matplotlib (pip install 'trsvr[plot]')", file=sys.stderr)
        return writers
    matplotlib.use("Agg")
    for name in ("figure.png", "figure.svg"):
        writers[name] = lambda path: _draw(path, race, comparison)
    return writers


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _draw(path: Path, race: Race, comparison: dict[str, Any]) -> None:
    """Gap against passes and against seconds: the median over the seeds and the band from 20 to 80 %."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    floor = np.finfo(float).eps * max(abs(race.smallest), np.finfo(float).tiny)
    for axis, column, label in (
        (axes[0], "passes", "passes over the data (component gradients / N)"),
        (axes[1], "seconds", "seconds"),
    ):
        for k, contestant in enumerate(race.contestants):
            traces = [result.trace for result in contestant.results.values()]
            if traces:
                gaps = [trace["value"].to_numpy() - race.smallest for trace in traces]
                places = [trace[column].to_numpy() for trace in traces]
                figures.draw_band(axis, curves.band(places, gaps, floor), figures.style(k), contestant.label)
        figures.finish_axis(axis, label)
    axes[0].set_ylabel("gap f − f*")
    figures.legend_below(figure, axes[0])
    goal = comparison["objective"]
    wells = f" + double well (γ = {goal['gamma']:g})" if goal["gamma"] else ""
    seeds = f"{race.seeds} seeds: median and 20–80 % band" if race.seeds > 1 else "one seed"
    figure.suptitle(
        f"{comparison['data']}, {comparison['rows']} × {comparison['columns']}: logistic, λ = {goal['l2']:g}{wells}; "
        f"{seeds}",
        fontsize=11,
    )
    figure.savefig(path, dpi=130, format=path.suffix[1:])
    plt.close(figure)
