"""``trsvr predict MODEL FILE``: labels or numbers for new rows."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from numpy.typing import NDArray

from trsvr._files import written_beside
from trsvr.cli import options as o
from trsvr.cli.models import Model, load_model, scores, text_of, why_not_scored
from trsvr.cli.output import as_json, check_file
from trsvr.cli.tables import Wanted, format_of, read_table

ModelPath = Annotated[
    Path,
    typer.Argument(
        help="Folder that trsvr solve --out has written, or its result.npz.", metavar="MODEL", show_default=False
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="CSV file for the predictions; default: stdout.", show_default=False, rich_help_panel=o.OUTPUT),
]
Offset = Annotated[
    str | None,
    typer.Option(
        help="Column or array that is added to the rows' margins, or 'log(COLUMN)'; default: the model's own.",
        metavar="COLUMN",
        show_default=False,
        rich_help_panel=o.DATA,
    ),
]
Probabilities = Annotated[
    bool,
    typer.Option("--probabilities", help="Add a column per class (logistic, softmax).", rich_help_panel=o.OUTPUT),
]


def predict(
    model: ModelPath,
    file: o.File,
    target: o.Target = None,
    format_: o.Format = "auto",
    header: o.Header = True,
    sep: o.Separator = "auto",
    offset: Offset = None,
    out: Out = None,
    probabilities: Probabilities = False,
    json: o.Json = False,
) -> None:
    """Predict with a model that trsvr solve has written.

    Predictions come as CSV, one line per row. Where FILE has the target too, the score is printed on stderr; labels
    that the model does not know are not scored.
    """
    if out is not None:
        check_file(out)
    loaded = load_model(model)
    kind = format_of(file, format_)
    table = read_table(file, _wanted(loaded, kind, target, header, sep, offset), kind)
    if table.offset is None and loaded.facts.get("offset") is not None:
        print(f"{file.name}: no {loaded.facts['offset']!r}: predicted with an offset of 0", file=sys.stderr)
    predicted = loaded.predict(table.X, table.offset)
    found = None if table.y is None else scores(table.y, predicted, loaded.classes, None, loaded.loss)
    reason = None if table.y is None else why_not_scored(table.y, loaded.classes)
    columns: dict[str, NDArray[Any]] = {"prediction": predicted}
    if probabilities:
        shares = loaded.probabilities(table.X)
        for k, label in enumerate(loaded.classes if loaded.classes is not None else []):
            columns[f"probability of {text_of(label)}"] = shares[:, k]
    if out is not None:
        with written_beside(out) as path, path.open("w", encoding="utf-8", newline="") as stream:
            _write(stream, columns)
    if json:
        told: dict[str, Any] = {"rows": len(predicted), "scores": found, "not_scored": reason}
        told |= {"file": str(out)} if out is not None else columns
        print(as_json(told))
        return
    if out is None:
        _write(sys.stdout, columns)
    if found is not None:
        told_scores = ", ".join(f"{name} {value:.6g}" for name, value in found.items())
        print(f"{file.name}: {told_scores} ({len(predicted)} rows)", file=sys.stderr)
    if reason is not None:
        print(f"{file.name}: no score: {reason}", file=sys.stderr)


def _wanted(model: Model, kind: str, target: str | None, header: bool, separator: str, offset: str | None) -> Wanted:
    columns = model.facts.get("raw_columns") or model.facts["columns"]
    asked_for = target is not None
    if target is None and columns is not None and kind in ("csv", "parquet"):
        target = model.facts["target"]
    return Wanted(
        target=target,
        target_needed=asked_for,
        columns=columns,
        n_features=model.facts["n_features"],
        header=header,
        zero_based=model.facts["zero_based"],
        separator=separator,
        offset=offset or model.facts.get("offset"),
        offset_needed=offset is not None,
        drop_first=model.facts.get("drop_first", False),
        levels=model.facts.get("levels", {}),
    )


def _write(stream: TextIO, columns: dict[str, NDArray[Any]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([text_of(value) for value in row] for row in zip(*columns.values(), strict=True))
