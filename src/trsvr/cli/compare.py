"""``trsvr compare DATASET``: several methods side by side on one problem."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from trsvr import _check
from trsvr._version import __version__
from trsvr.cli import options as o
from trsvr.cli.compare_answer import Bars, show, writers_of
from trsvr.cli.contestants import METHODS, contestant, parse_methods, tell_apart
from trsvr.cli.output import as_json, check_folder, write_folder
from trsvr.cli.paper_values import STUDIES
from trsvr.cli.race import Race
from trsvr.cli.tables import Wanted, read_table
from trsvr.datasets import load, preprocess
from trsvr.datasets.generators import GENERATORS
from trsvr.datasets.registry import ENTRIES
from trsvr.engine.stopping import Limits

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
    typer.Option(help="Seconds a run at most; default: no limit.", show_default=False, rich_help_panel=o.LIMITS),
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
    contestants = [contestant(name, {**tuned.get(name, {}), **given}, problem) for name, given in wanted]
    tell_apart(contestants)
    untuned = [name for name, _ in wanted if study and name not in tuned]
    if untuned:
        print(f"trsvr: the paper has no values for {', '.join(untuned)} here: defaults", file=sys.stderr)

    shown = sys.stderr.isatty() and not json if progress is None else progress
    race = Race(problem, contestants, seeds, begin, limits, threads)
    with Bars(contestants, seeds, shown) as report:
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
        "methods": [race.summary(one) for one in contestants],
    }
    if out is not None:
        writers = writers_of(race, comparison)
        comparison["files"] = [str(out / name) for name in writers]
        write_folder(out, writers)
    if json:
        print(as_json(comparison))
    else:
        show(comparison)
    raise typer.Exit(130 if race.interrupted else 0)


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
