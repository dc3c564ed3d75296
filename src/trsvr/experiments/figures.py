"""Figures: PNG and SVG, one style for all.

Curves are medians over the seeds with the band from 20 to 80 %. Colours are near Okabe & Ito's, which the
colour-blind can tell apart; every method also has its own dash pattern, for those who print in black and white.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trsvr._files import written_beside
from trsvr.experiments import curves, profiles
from trsvr.experiments.claims import EPSILONS, sample_costs
from trsvr.experiments.paper_figures import six_panel_name
from trsvr.experiments.results import AXES, HEIGHTS, Line, Results, StudyResults, SubjectResults

#: After Okabe & Ito, with at least 3:1 against white: orange darker, wine and grey for the pale sky blue and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#882255", "#B97A00", "#000000", "#7A7A7A")
#: Dash patterns: lengths of strokes and spaces, in points.
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (8, 2, 2, 2), (2, 2), (9, 2, 2, 2, 2, 2))
PROFILE_TARGETS = (1e-3, 1e-6)
_POINTS = 200
#: Endings after which nothing would change any more.
_AT_REST = ("rounding_floor", "converged")

Style = tuple[str, tuple[int, ...]]


def style(place: int) -> Style:
    """Colour and dash pattern of the so-many-th line of a figure."""
    return COLOURS[place % len(COLOURS)], DASHES[(place + place // len(COLOURS)) % len(DASHES)]


def styles(lines: Sequence[Line]) -> list[Style]:
    """Styles of all lines of a figure; lines of one group share a colour, and their dashes tell them apart."""
    names = list(dict.fromkeys(line.group or line.shown for line in lines))
    seen: dict[str, int] = {}
    found = []
    for line in lines:
        name = line.group or line.shown
        place = names.index(name)
        if line.group:
            found.append((COLOURS[place % len(COLOURS)], DASHES[seen.get(name, 0) % len(DASHES)]))
        else:
            found.append(style(place))
        seen[name] = seen.get(name, 0) + 1
    return found


def pen(chosen: Style) -> dict[str, Any]:
    """A style as Matplotlib's arguments."""
    colour, dashes = chosen
    return {"color": colour, "linestyle": (0, dashes) if dashes else "-", "linewidth": 1.8}


def draw_band(axis: Any, found: curves.Band, chosen: Style, label: str) -> None:
    """A median with its band."""
    axis.plot(found.x, found.middle, label=label, **pen(chosen))
    axis.fill_between(found.x, found.low, found.high, color=chosen[0], alpha=0.18, linewidth=0)


def finish_axis(axis: Any, xlabel: str) -> None:
    """What all axes have in common."""
    axis.set_yscale("log")
    axis.set_xlim(left=0)
    axis.set_xlabel(xlabel)
    axis.grid(alpha=0.3)


def legend_below(figure: Any, axis: Any) -> None:
    """One legend for all axes, below them."""
    handles, labels = axis.get_legend_handles_labels()
    columns = min(max(len(labels), 1), 5)
    # Long enough to show the dashes.
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.6)


# ------------------------------------------------------------------------------------------------------- the studies


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Write every figure into a folder; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "trsvr"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in figures_of(results):
        figure = draw()
        for suffix in ("png", "svg"):
            path = folder / f"{name}.{suffix}"
            with written_beside(path) as beside:
                # Without a date the same results give the same file.
                figure.savefig(beside, dpi=100, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
        plt.close(figure)
    return written


def figures_of(results: Results) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of the figures, and how each is drawn."""
    for study in results.studies.values():
        if not study.runs:
            continue
        if study.name.startswith("step-size"):
            yield study.name, partial(step_size_figure, study)
            continue
        if study.name.startswith("complexity"):
            yield study.name, partial(complexity_figure, study)
            continue
        if study.name.startswith("defaults"):
            yield f"{study.name}-profiles", partial(profile_figure, study)
        if study.name == "ablation":
            for height in HEIGHTS:
                for axis in ("epoch", "passes"):
                    yield six_panel_name(height, axis), partial(six_panel_figure, study, height, axis)
        for subject in study.subjects:
            if any(line.runs for line in subject.lines):
                yield f"{study.name}-{subject.data}", partial(study_figure, study, subject)
    if beside_paper(results):
        yield "adaptive", partial(adaptive_figure, results)


def drawn_lines(subject: SubjectResults) -> list[Line]:
    """Lines with runs, the paper's first."""
    order = {"paper": 0, "tuned": 1, "extra": 2, "adaptive": 3}
    return sorted((line for line in subject.lines if line.runs), key=lambda line: order[line.role])


def axes_of(study: StudyResults) -> list[str]:
    """The study's axes; passes are always drawn twice, with and without Hessian products."""
    axes = []
    for axis in study.study["axes"]:
        axes += ["passes", "passes_without"] if axis == "passes" else [axis]
    return axes


def study_figure(study: StudyResults, subject: SubjectResults) -> Any:
    """Gap and squared gradient norm against every axis of the study; the adaptive mode has a figure of its own."""
    import matplotlib.pyplot as plt

    lines = [line for line in drawn_lines(subject) if line.role != "adaptive" or not study.study["paper"]]
    columns = axes_of(study)
    figure, grid = plt.subplots(
        2, len(columns), figsize=(5.2 * len(columns), 8.2), sharey="row", layout="constrained", squeeze=False
    )
    for row, height in zip(grid, HEIGHTS, strict=True):
        for axis, column in zip(row, columns, strict=True):
            _draw_lines(axis, lines, height, column)
            finish_axis(axis, AXES[column])
        row[0].set_ylabel(HEIGHTS[height])
    legend_below(figure, grid[0][0])
    figure.suptitle(f"{study.study['title']}: {subject.title}; {_told(study, subject)}", fontsize=12)
    return figure


def _draw_lines(axis: Any, lines: Sequence[Line], height: str, column: str) -> None:
    """All lines of a panel; one whose runs ended at the rounding floor is continued with its last value."""
    right = max((line.end(column) for line in lines), default=0.0)
    for line, chosen in zip(lines, styles(lines), strict=True):
        until = right if all(run.status in _AT_REST for run in line.runs) else None
        found = curves.band(line.xs(column), line.ys(height), line.floor(height), _POINTS, until)
        draw_band(axis, found, chosen, line.shown)


def six_panel_figure(study: StudyResults, height: str, column: str) -> Any:
    """Study 5 as the paper draws it: one panel for each data set, the three methods with the paper's values."""
    import matplotlib.pyplot as plt

    rows = -(-len(study.subjects) // 3)
    figure, grid = plt.subplots(rows, 3, figsize=(13.5, 3.9 * rows), layout="constrained", squeeze=False)
    for axis in grid.flat[len(study.subjects) :]:
        axis.set_visible(False)
    for axis, subject in zip(grid.flat, study.subjects, strict=False):
        _draw_lines(axis, subject.with_roles("paper"), height, column)
        finish_axis(axis, AXES[column])
        axis.set_title(subject.title, fontsize=10)
    for row in grid:
        row[0].set_ylabel(HEIGHTS[height])
    legend_below(figure, grid[0][0])
    return figure


def _told(study: StudyResults, subject: SubjectResults) -> str:
    seeds = max((len(line.runs) for line in subject.lines), default=0)
    quick = "quick run, " if study.quick else ""
    return f"{quick}{subject.facts['rows']} × {subject.facts['columns']}, {seeds} seeds: median and 20–80 % band"


# ------------------------------------------------------------------------------------------------- beyond the paper


def step_size_figure(study: StudyResults) -> Any:
    """Final gap against α, one panel a data set."""
    import matplotlib.pyplot as plt

    count = max(len(study.subjects), 1)
    figure, axes = plt.subplots(1, count, figsize=(4.6 * count, 4.8), layout="constrained", squeeze=False)
    for axis, subject in zip(axes[0], study.subjects, strict=False):
        for place, (group, lines) in enumerate(groups(subject).items()):
            alphas = [line.alpha for line in lines]
            ends = np.array([_final_band(line) for line in lines])
            axis.plot(alphas, ends[:, 1], marker="o", markersize=3.5, label=group, **pen(style(place)))
            axis.fill_between(alphas, ends[:, 0], ends[:, 2], color=style(place)[0], alpha=0.18, linewidth=0)
        largest, mean = subject.facts["component_smoothness"], subject.facts["smoothness"]
        for value, name, height in ((1.0 / largest, "1/L_max", 0.995), (1.0 / mean, "1/L", 0.94)):
            axis.axvline(value, color="0.6", linewidth=0.9, linestyle=":")
            axis.text(value, height, name, transform=axis.get_xaxis_transform(), fontsize=8, va="top", color="0.4")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(top=1e3)
        axis.set_xlabel("α (the step of SVRG)")
        axis.set_title(subject.title, fontsize=10)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel(f"gap after {study.study['epochs']} epochs (diverged: top)")
    legend_below(figure, axes[0][0])
    figure.suptitle(f"{study.study['title']}{' (quick run)' if study.quick else ''}", fontsize=12)
    return figure


def complexity_figure(study: StudyResults) -> Any:
    """Component gradients against N, beside the theorem's power."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    for place, label in enumerate(("TRSVR-EstH", "SVRG")):
        costs = sample_costs(study.subjects, label)
        sizes = sorted(costs)
        for k, epsilon in enumerate(EPSILONS):
            heights = [costs[size][k] for size in sizes]
            told = f"{label}, ε = {epsilon:g}·‖∇f(x₀)‖²"
            axis.plot(
                sizes, heights, marker="o", markersize=8 - 4 * place, label=told, **pen((COLOURS[place], DASHES[k]))
            )
        if place == 0 and sizes:
            line = [costs[sizes[0]][0] / 2 * (size / sizes[0]) ** (2 / 3) for size in sizes]
            axis.plot(sizes, line, color="0.5", linewidth=0.9, label="N^{2/3}")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("N")
    axis.set_ylabel("component gradients, products not counted")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return figure


def groups(subject: SubjectResults) -> dict[str, list[Line]]:
    """Lines by group, in the order of α."""
    found: dict[str, list[Line]] = {}
    for line in subject.lines:
        if line.runs and line.group and line.alpha is not None:
            found.setdefault(line.group, []).append(line)
    return {name: sorted(lines, key=lambda line: line.alpha or 0.0) for name, lines in found.items()}


def _final_band(line: Line) -> Sequence[float]:
    """20, 50 and 80 % of the final gaps; a run that diverged is above everything."""
    ends = [np.inf if run.diverged else float(gap[-1]) for run, gap in zip(line.runs, line.ys("gap"), strict=True)]
    heights = np.log10(np.clip(np.nan_to_num(ends, posinf=1e4), line.floor("gap"), 1e4))
    return list(10.0 ** np.quantile(heights, curves.BAND))


def beside_paper(results: Results) -> list[tuple[StudyResults, SubjectResults, Line, Line]]:
    """Problems of the paper's studies with the best of the paper's versions of TRSVR, and the adaptive one."""
    found = []
    for study, subject in results.subjects():
        papers = [line for line in subject.with_roles("paper") if line.solver == "trsvr"]
        adaptive = subject.line("TRSVR adaptive", "adaptive")
        if study.study["paper"] and papers and adaptive is not None:
            found.append((study, subject, min(papers, key=lambda line: line.final("gap")), adaptive))
    return found


def adaptive_figure(results: Results) -> Any:
    """Gap against passes: the paper's version and the adaptive one, a panel for each problem."""
    import matplotlib.pyplot as plt

    found = beside_paper(results)
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.5 * rows), layout="constrained", squeeze=False)
    for axis in grid.flat[len(found) :]:
        axis.set_visible(False)
    for axis, (study, subject, paper, adaptive) in zip(grid.flat, found, strict=False):
        for line, place, label in ((paper, 0, "the paper's version (its best)"), (adaptive, 1, "adaptive")):
            draw_band(axis, curves.band(line.xs("passes"), line.ys("gap"), line.floor("gap")), style(place), label)
        finish_axis(axis, "passes")
        axis.set_xlim(0, 2.0 * max(adaptive.cost("passes", 64 * subject.floor), 1.0) if _arrives(adaptive) else None)
        axis.set_title(f"{study.name}: {subject.title}", fontsize=9)
    for row in grid:
        row[0].set_ylabel("gap f − f*")
    legend_below(figure, grid[0][0])
    return figure


def _arrives(line: Line) -> bool:
    return bool(np.isfinite(line.cost("passes", 64 * line.subject.floor)))


def profile_figure(study: StudyResults) -> Any:
    """Dolan & Moré's profiles, in passes and in seconds, for two precisions."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        len(PROFILE_TARGETS), 2, figsize=(11, 8.6), sharey=True, layout="constrained", squeeze=False
    )
    taus = np.geomspace(1.0, 1e3, 400)
    for row, target in zip(grid, PROFILE_TARGETS, strict=True):
        for axis, column in zip(row, ("passes", "time"), strict=True):
            labels, costs = profiles.costs(study, column, target)
            for place, (label, heights) in enumerate(zip(labels, profiles.profile(costs, taus), strict=True)):
                axis.step(taus, heights, where="post", label=label, **pen(style(place)))
            axis.set_xscale("log")
            axis.set_ylim(-0.02, 1.02)
            axis.set_xlabel(f"τ: {'passes' if column == 'passes' else 'seconds'}, over the best method's")
            axis.set_title(f"gap down to {target:g} of the first", fontsize=10)
            axis.grid(alpha=0.3)
        row[0].set_ylabel("share of problems and seeds")
    legend_below(figure, grid[0][0])
    sets = textwrap.fill("; ".join(subject.title for subject in study.subjects), 110)
    figure.suptitle(f"Performance profiles, every method with its defaults\n{sets}", fontsize=10)
    return figure
