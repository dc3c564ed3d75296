"""``trsvr summary FIT``: standard errors and goodness of fit of a model that ``trsvr solve --out`` has written."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from trsvr import inference
from trsvr._files import written_beside
from trsvr.cli import options as o
from trsvr.cli.models import load_model
from trsvr.cli.output import as_json, check_file, show_pairs, show_rows
from trsvr.cli.solve_options import MovedData
from trsvr.cli.tasks import Task, training_rows
from trsvr.datasets.errors import DataFileError
from trsvr.problems import L2

Fit = Annotated[
    Path, typer.Argument(help="Folder that trsvr solve --out has written.", metavar="FIT", show_default=False)
]
Kind = Annotated[
    str,
    typer.Option(
        "--kind",
        help="Covariance: model, HC0, HC1, or cluster with --groups.",
        metavar="model|HC0|HC1|cluster",
        rich_help_panel=o.OBJECTIVE,
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="Column whose values name groups of rows that may depend on each other; default: none.",
        metavar="COLUMN",
        show_default=False,
        rich_help_panel=o.DATA,
    ),
]
Precision = Annotated[
    bool,
    typer.Option(
        "--precision", help="Weights are precisions or trials, not numbers of rows.", rich_help_panel=o.OBJECTIVE
    ),
]
Confidence = Annotated[float, typer.Option(help="Level of the confidence limits.", rich_help_panel=o.OUTPUT)]
Out = Annotated[
    Path | None,
    typer.Option(help="CSV file for the table; default: stdout only.", show_default=False, rich_help_panel=o.OUTPUT),
]


def summary(
    fit: Fit,
    data: MovedData = None,
    kind: Kind = "model",
    groups: Groups = None,
    precision: Precision = False,
    confidence: Confidence = 0.95,
    out: Out = None,
    json: o.Json = False,
) -> None:
    """Show coefficients with standard errors, and how well they fit.

    The rows that the model was fitted to are read again: rows that were held out stay out. Losses with one output:
    logistic, squared, and the families of generalised linear models.
    """
    if out is not None:
        check_file(out)
    model = load_model(fit)
    task = _task_of(fit)
    if data is not None:
        task = task.at(data)
    if groups is not None and kind == "model":
        kind = "cluster"
    rows = training_rows(task, model, groups)
    loss, regularizer = task.objective
    if rows.scaling is not None:
        if task.gamma:
            raise ValueError("trsvr summary knows no double well on standardised columns")
        regularizer = L2(task.l2 * rows.scaling.scales**2)  # the same penalty, in the file's units
    problem = o.model_of(rows.X, rows.y, loss, regularizer, task.intercept, "cpu", rows.weights, rows.offset)
    problem.feature_names = tuple(model.names)
    weights = "precision" if precision else "frequency"
    found = inference.summary(
        problem, model.x, kind=kind, groups=rows.groups, weights=weights, confidence=float(confidence)
    )
    if out is not None:
        with written_beside(out) as path:
            found.table.to_csv(path, index_label="column")
    if json:
        table = {str(name): row.to_dict() for name, row in found.table.iterrows()}
        print(as_json({"kind": found.kind, "coefficients": table, **found.facts()}))
        return
    head = ["", "coefficient", "error", "z", "p", "lower", "upper"]
    digits = (5, 4, 3, 2, 4, 4)
    body = [
        [str(name), *(f"{number:.{count}g}" for number, count in zip(row, digits, strict=True))]
        for name, row in found.table.iterrows()
    ]
    show_rows(f"{fit}: {task.loss}, standard errors: {found.kind}", head, body)
    show_pairs("fit", [(name.replace("_", " "), f"{value:.10g}") for name, value in found.facts().items()])


def _task_of(fit: Path) -> Task:
    """What trsvr solve was asked for, from the report beside the model."""
    report = (fit if fit.is_dir() else fit.parent) / "result.json"
    try:
        told: Any = json_text.loads(report.read_text(encoding="utf-8"))
        note = told["task"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataFileError(report, None, "is not a report that trsvr solve --out has written") from None
    return Task.from_note(report, note)
