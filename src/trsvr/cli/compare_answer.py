"""What ``trsvr compare`` shows and writes: progress bars, the table, traces and the figure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from trsvr.cli.contestants import Contestant
from trsvr.cli.output import as_json
from trsvr.cli.race import GAPS, Race
from trsvr.experiments import curves, figures


class Bars:
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


def show(comparison: dict[str, Any]) -> None:
    """Print the table."""
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
    seeds = f"medians of {comparison['seeds']} seeds" if comparison["seeds"] > 1 else "one seed"
    print(f"Cost until the gap f − f* is that small; {seeds}; – means never.")
    if "files" in comparison:
        print(f"Written: {', '.join(comparison['files'])}")


def _power(gap: float) -> str:
    return f"{gap:.0e}".replace("e-0", "e-")


def _cost_text(cost: float, form: str) -> str:
    return form.format(cost) if np.isfinite(cost) else "–"


def _small(number: float) -> str:
    return "0" if number == 0.0 else f"{number:.1e}"


def writers_of(race: Race, comparison: dict[str, Any]) -> dict[str, Callable[[Path], None]]:
    """What goes into the folder, by name."""
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
