"""What ``trsvr solve`` and ``trsvr resume`` tell about a run, and the files they write."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trsvr.cli.models import Model, save_model
from trsvr.cli.output import as_json, write_folder
from trsvr.engine import Result
from trsvr.theory import Gap


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


def lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The report for a reader: what, and its value in words."""
    settings = ", ".join(f"{name} {value}" for name, value in report["settings"].items())
    gap = report["gap"]
    told = [
        ("status", report["message"]),
        ("data", f"{report['rows']} rows × {report['columns']} columns"),
        ("settings", settings),
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


def _draw(path: Path, result: Result) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    result.plot(y="gradient_norm_sq", ax=left)
    result.plot(y="gap", ax=right)
    left.set_ylabel("squared gradient norm")
    right.set_ylabel("value − best value of this run")
    figure.savefig(path, dpi=120)
    plt.close(figure)
