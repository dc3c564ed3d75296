"""What ``trsvr solve`` and ``trsvr resume`` tell about a run, and the files they write."""

from __future__ import annotations

import csv
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from trsvr.cli.models import Model, save_model
from trsvr.cli.output import as_json, write_folder
from trsvr.engine import Result
from trsvr.solvers import BY_NAME
from trsvr.theory import Gap

# Coefficients that the table shows; coefficients.csv has all.
_SHOWN = 8


def outcome(result: Result, gap: Gap) -> dict[str, Any]:
    """How the run ended, for the report."""
    return {
        "status": result.status.name.lower(),
        "message": result.message,
        "success": result.success,
        "value": result.value,
        "gradient_norm": result.gradient_norm,
        "gap": {"value": gap.value, "kind": gap.kind, "meaning": gap.sentence},
        "epochs": result.epochs,
        "gradient_evaluations": result.gradient_evaluations,
        "passes": result.passes,
        "seconds": result.seconds,
    }


def weights(model: Model) -> dict[str, Any]:
    """Intercept and, where the columns have names, the coefficients, for the report."""
    several = len(model.outputs) > 1

    def entry(row: Any) -> Any:
        return dict(zip(model.outputs, row.tolist(), strict=True)) if several else float(row[0])

    named = model.facts["columns"] is not None
    return {
        "intercept": None if model.intercepts is None else entry(model.intercepts),
        "coefficients": {name: entry(row) for name, row in zip(model.names, model.coefficients, strict=True)}
        if named
        else None,
    }


def _objective(goal: dict[str, Any]) -> str:
    parts = [f"λ = {goal['l2']:g}"]
    if goal["gamma"]:
        parts.append(f"γ = {goal['gamma']:g}, a = {goal['a']:g}")
    if goal["loss"] == "pseudo-huber":
        parts.append(f"δ = {goal['delta']:g}")
    for name, sign, of in (("power", "p", "tweedie"), ("dispersion", "α", "negative-binomial")):
        if goal["loss"] == of:
            parts.append(f"{sign} = {goal[name]:g}")
    if goal["offset"]:
        parts.append(f"offset {goal['offset']}")
    parts.append("with an intercept" if goal["intercept"] else "without an intercept")
    if goal["standardize"]:
        parts.append("columns standardised")
    return f"{goal['loss']}, {', '.join(parts)}"


def _largest(model: Model) -> str:
    """The largest coefficients, by name."""
    order = np.argsort(-np.abs(model.coefficients).max(axis=1), kind="stable")
    shown = [
        f"{model.names[k]} {' / '.join(f'{number:.4g}' for number in model.coefficients[k])}" for k in order[:_SHOWN]
    ]
    rest = f", … ({len(order)} in all)" if len(order) > _SHOWN else ""
    classes = f"for {' / '.join(model.outputs)}: " if len(model.outputs) > 1 else ""
    return classes + ", ".join(shown) + rest


def lines(report: dict[str, Any], model: Model) -> list[tuple[str, str]]:
    """The report for a reader: what, and its value in words."""
    usual = dataclasses.asdict(BY_NAME[report["method"]]())
    chosen = [f"{name} {value}" for name, value in report["settings"].items() if value != usual[name]]
    gap = report["gap"]
    without = f", without {report['left_out']!r}, which counts the rows" if report["left_out"] else ""
    told = [
        ("status", report["message"]),
        ("data", f"{report['rows']} rows × {report['columns']} columns{without}"),
        ("objective", _objective(report["objective"])),
        *([("settings", ", ".join(chosen))] if chosen else []),
        ("coefficients", _largest(model)),
        *([] if model.intercepts is None else [("intercept", " / ".join(f"{b:.6g}" for b in model.intercepts))]),
        ("value", f"{report['value']:.12g}"),
        ("gradient norm", f"{report['gradient_norm']:.3g}"),
        ("gap", f"{gap['value']:.2g} ({gap['meaning']})" if gap["kind"] != "unknown" else gap["meaning"]),
        ("epochs", str(report["epochs"])),
        ("passes", f"{report['passes']:.4g}"),
        ("seconds", f"{report['seconds']:.3g}"),
    ]
    for name, found in (("train", report["train"]), (f"held out ({report['held_out_rows']})", report["held_out"])):
        if found is not None:
            told.append((name, ", ".join(f"{what} {number:.6g}" for what, number in found.items())))
    if "files" in report:
        told.append(("written", ", ".join(report["files"])))
    return told


def write(out: Path, report: dict[str, Any], result: Result, model: Model) -> list[Path]:
    """Report, model, trace and, where matplotlib is there, a figure; returns their places."""
    writers: dict[str, Any] = {
        "result.json": lambda path: path.write_text(as_json(report) + "\n", encoding="utf-8"),
        "coefficients.csv": lambda path: _write_coefficients(path, model),
        "result.npz": lambda path: save_model(path, model, gradient=result.gradient),
        "trace.csv": lambda path: result.trace.to_csv(path, index=False),
    }
    try:
        import matplotlib
    except ImportError:
        print("trsvr: no figure is drawn: that needs matplotlib (pip install 'trsvr[plot]')", file=sys.stderr)
    else:
        matplotlib.use("Agg")
        writers["figure.png"] = lambda path: _draw(path, result)
    return write_folder(out, writers)


def _write_coefficients(path: Path, model: Model) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["column", *model.outputs])
        writer.writerows([name, *row] for name, row in zip(model.names, model.coefficients.tolist(), strict=True))
        if model.intercepts is not None:
            writer.writerow(["(intercept)", *model.intercepts.tolist()])


def _draw(path: Path, result: Result) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    result.plot(y="gradient_norm_sq", ax=left)
    result.plot(y="gap", ax=right)
    left.set_ylabel("squared gradient norm")
    right.set_ylabel("value − best value of this run")
    figure.savefig(path, dpi=120)
    plt.close(figure)
