"""Options of ``trsvr solve`` and ``trsvr resume`` that no other sub-command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trsvr.cli.options import CLUSTER, DATA, LIMITS, METHOD, OBJECTIVE, OUTPUT

TestSize = Annotated[
    str | None,
    typer.Option(
        help="Rows held out and only scored: a share below 1, or a number of rows; default: none.",
        metavar="NUMBER",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Column (CSV, Parquet) or array (NPZ) of the rows' weights; 2 is the row twice; default: all the same.",
        metavar="COLUMN",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Offset = Annotated[
    str | None,
    typer.Option(
        help="Column (CSV, Parquet) or array (NPZ) that is added to the rows' margins, or 'log(COLUMN)' for its "
        "logarithm, as of an exposure; default: none.",
        metavar="COLUMN",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        help="Column of categories (CSV, Parquet), made columns of 0 and 1; may be given several times; auto: all that "
        "hold text; default: none.",
        metavar="COLUMN",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
DropFirst = Annotated[
    bool, typer.Option("--drop-first", help="The first level of each has no column of its own.", rich_help_panel=DATA)
]
Standardize = Annotated[
    bool,
    typer.Option(
        "--standardize",
        help="Penalise columns in units of their standard deviation; coefficients are reported in the file's units.",
        rich_help_panel=OBJECTIVE,
    ),
]
Step = Annotated[
    str | None,
    typer.Option(
        help="Step size (svrg, saga, sarah, sgd, adam); default: the method's own.",
        metavar="NUMBER",
        show_default=False,
        rich_help_panel=METHOD,
    ),
]
More = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any other setting of the method, such as --set max_cg=50; default: the method's own.",
        metavar="NAME=VALUE",
        show_default=False,
        rich_help_panel=METHOD,
    ),
]
Dask = Annotated[
    bool,
    typer.Option("--dask", help="Read and sum in worker processes; the data need not fit.", rich_help_panel=CLUSTER),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Use the Dask cluster of this scheduler; it must see FILE under the same name; default: none.",
        metavar="ADDRESS",
        show_default=False,
        rich_help_panel=CLUSTER,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Workers of --dask; default: one per core.", show_default=False, rich_help_panel=CLUSTER),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        help="Memory of each worker of --dask, such as 2GB; default: its share of this machine's.",
        metavar="SIZE",
        show_default=False,
        rich_help_panel=CLUSTER,
    ),
]
Epochs = Annotated[int, typer.Option(help="Epochs at most.", rich_help_panel=LIMITS)]
Passes = Annotated[
    float | None,
    typer.Option(help="Passes over the data at most; default: no limit.", show_default=False, rich_help_panel=LIMITS),
]
Seconds = Annotated[
    float | None,
    typer.Option(help="Seconds at most; default: no limit.", show_default=False, rich_help_panel=LIMITS),
]
Tolerance = Annotated[
    str,
    typer.Option(
        "--tol",
        help="auto, none, or a number: stop when no entry of the gradient is larger.",
        rich_help_panel=LIMITS,
    ),
]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", rich_help_panel=LIMITS)]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for result.json, coefficients.csv, result.npz (no pickle), trace.csv and figure.png; "
        "default: nothing is written.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="File that the run is kept in; default: none. If it exists, its run goes on, as by trsvr resume FILE.",
        metavar="FILE",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
CheckpointEvery = Annotated[
    str | None,
    typer.Option(
        help="How often it is written: a number of epochs, or a time such as 5min; default: every 30 s.",
        metavar="EPOCHS|TIME",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
KeptRun = Annotated[
    Path,
    typer.Argument(help="File that trsvr solve --checkpoint has written.", metavar="CHECKPOINT", show_default=False),
]
MoreEpochs = Annotated[
    int | None,
    typer.Option("--epochs", help="Epochs at most; default: as before.", show_default=False, rich_help_panel=LIMITS),
]
MovedData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The data, if they are at another place now; default: where they were.",
        metavar="FILE",
        show_default=False,
    ),
]
Progress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="A progress bar on stderr; default: if stderr is a terminal.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
