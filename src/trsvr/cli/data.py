"""``trsvr data``: which data sets there are, where they are, what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import numpy
import typer

from trsvr import datasets
from trsvr.datasets import loading, search
from trsvr.datasets.measure import GRAM_COLUMNS

app = typer.Typer(no_args_is_help=True, help="Data sets: list them, fetch them, look at them.")

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Folder to look into first; default: TRSVR_DATA_DIR, then the cache.", show_default=False
    ),
]
Split = Annotated[str, typer.Option(help="train or test.")]


@app.command("list", epilog="Example: `trsvr data list --data-dir ~/data`")
def list_sets(data_dir: DataDir = None) -> None:
    """List the data sets, and where each would come from."""
    table = datasets.list(data_dir)
    rows = [
        [
            str(name),
            f"{row['rows']} × {row['columns']}",
            "–" if row["density"] != row["density"] else f"{row['density']:.2g}",
            row["labels"],
            row["preprocess"],
            row["where"],
        ]
        for name, row in table.iterrows()
    ]
    _print_table(["name", "rows × columns", "density", "labels", "default", "where"], rows)


@app.command(epilog="Example: `trsvr data fetch mushrooms ijcnn1 --split train`")
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names of data sets.", show_default=False)],
    split: Split = "train",
    data_dir: DataDir = None,
) -> None:
    """Make sure that the files of data sets are here and hold what they should; download what is missing."""
    for name in names:
        raw = loading.fetch(name, split=split, data_dir=data_dir)
        if raw is None:
            typer.echo(f"{name}: needs no file")
        else:
            typer.echo(f"{raw.entry.name}: {raw.source}")


@app.command(epilog="Example: `trsvr data info breast-cancer --preprocess standardize`")
def info(
    name: Annotated[str, typer.Argument(help="Name of a data set.", show_default=False)],
    split: Split = "train",
    preprocess: Annotated[
        str, typer.Option(help="default, none, standardize, minmax, unit-rows or maxabs.")
    ] = "default",
    data_dir: DataDir = None,
) -> None:
    """Describe a data set as the solvers would see it."""
    try:
        data = datasets.load(name, preprocess=preprocess, split=split, data_dir=data_dir)
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from error
    facts = datasets.facts(data)
    labels = ", ".join(
        f"{label:g} → {sign:+d} ({share:.1%})"
        for (label, sign), share in zip(data.label_map.items(), (1 - facts.positive, facts.positive), strict=True)
    )
    if facts.condition is None:
        condition = f"not computed: more than {GRAM_COLUMNS} columns"
    elif facts.rank != data.n_features:
        condition = f"singular, rank {facts.rank} of {data.n_features}"
    else:
        condition = f"{facts.condition:.4g}"
    _print_pairs(
        [
            ("name", data.name),
            ("source", data.source),
            ("split", data.split),
            ("rows", data.n_samples),
            ("columns", data.n_features),
            ("density", f"{data.density:.4g} ({data.nonzeros} nonzeros)"),
            ("kept as", f"{'dense' if isinstance(data.X, numpy.ndarray) else 'CSR'} {data.X.dtype}"),
            ("preprocess", f"{data.preprocess} ({data.description})"),
            ("labels", labels),
            ("values", f"{facts.minimum:.6g} … {facts.maximum:.6g}"),
            ("column scales", "{:.4g} … {:.4g} (root mean square)".format(*facts.column_scales)),
            ("condition", f"{condition} (of XᵀX/N)"),
            ("L", f"{facts.lipschitz:.6g} (logistic, l2 = {facts.l2:g})"),
            ("L_max", f"{facts.lipschitz_max:.6g}"),
            ("sha256", data.sha256),
        ]
    )


@app.command(epilog="Example: `cp mushrooms.bz2 $(trsvr data path)`")
def path() -> None:
    """Print the folder that receives downloaded files; files may also be put there by hand."""
    folder = search.own_folder()
    if folder is None:
        raise OSError("there is no folder to keep data in; set TRSVR_CACHE_DIR to one that can be written")
    folder.mkdir(exist_ok=True)
    typer.echo(str(folder))


def _print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    for what, value in pairs:
        typer.echo(f"{what:14}{value}")


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
