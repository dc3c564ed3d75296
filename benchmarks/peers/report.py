"""What was measured, as Markdown, as a page, as figures, and as a small file of data for other figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from trsvr._files import written_beside
from trsvr.experiments import profiles, results
from trsvr.experiments.document import Bullets, Document, Figure, Heading, Paragraph, Table
from trsvr.experiments.figures import COLOURS, DASHES, Style, pen
from trsvr.experiments.report import markdown, page

from .measure import GOALS
from .results import Entry, Results, Subject, power, read
from .solvers import ALONE, OURS
from .store import Store

_HEADLINE = 1e-9
_PROFILED = (1e-3, 1e-6, 1e-9, 1e-12)

HOW = (
    "Logistic regression, mean loss + (λ/2)‖w‖², no intercept, from w = 0. A time is wall-clock from arrays in memory "
    "to the weights, in milliseconds; the gap is (f − f\\*)/f\\*, where f is evaluated by NumPy for everybody and f\\* "
    "is the smallest value that anybody found. Every solver, ours included, is swept over its own tolerance "
    "(lightning: epochs; one step of the sweep is a factor of ten, or of 1.5 in epochs) and the fastest run that ends "
    "within the gap counts, best of several. Solvers that use BLAS or threads of their own are run with one thread "
    "and with all cores, lightning with two step sizes, and the better one counts. Conversions that a solver wants "
    "beforehand (column order, its own format) and the first call's compiling and loading are not in the times: they "
    "are the column “warm-up”, in seconds. A single run may take ten times our own (here {least:.2g} to {most:.2g} "
    "seconds), all runs of a solver on a problem three times that; – means that the gap was not reached by then."
)
TWO_OF_US = (
    "“trsvr” is `trsvr.minimize(problem, tol=…)`, the default mode swept like the others; “trsvr, nothing set” is "
    "`trsvr.minimize(problem)` as it stops by itself, whose one time stands under every gap. Ratios are the other "
    "solver's time over that of “trsvr”: above 1 ours is faster."
)


def write(folder: Path, docs: Path | None) -> list[Path]:
    """Write all into the folder of the results, and what the documentation shows into that of the documentation."""
    found = read(Store(folder / "cells.jsonl"))
    made = document(found)
    data = json.dumps(summary(found), ensure_ascii=False, allow_nan=False) + "\n"
    written = []
    for place in [folder] if docs is None else [folder, docs]:
        (place / "figures").mkdir(parents=True, exist_ok=True)
        written += draw(found, place / "figures", ("png", "svg") if place == folder else ("png",))
        written.append(_put(place / "figures" / "peers.json", data))
        written.append(_put(place / ("benchmarks.md" if place == docs else "report.md"), markdown(made)))
    nothing = results.Results({}, {}, [])  # the page's explorer of curves stays away
    written.append(_put(folder / "report.html", page(made, nothing, folder / "figures")))
    return written


def _put(path: Path, text: str) -> Path:
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------- content


def document(found: Results) -> Document:
    """The report."""
    limits = [e.record["limits"]["patience"] for s in found.subjects for e in s.entries if e.peer != ALONE] or [np.nan]
    made = Document("TRSVR beside the solvers people use")
    made.add(
        Paragraph("Written by `make bench`; `make bench BENCH=--quick` takes five minutes."),
        Paragraph(HOW.format(least=min(limits), most=max(limits))),
        Paragraph(TWO_OF_US),
        Heading(f"Time to a gap of {power(_HEADLINE)}"),
        _headline(found),
        Paragraph(_won(found)),
        Heading("Performance profiles"),
        Paragraph(
            "Share of the problems (data and λ) that a solver brings to the gap within τ times the fastest solver's "
            "time (Dolan & Moré 2002). At τ = 1: how often it is the fastest; far right: how often it gets there."
        ),
        Figure("peers-profiles", "Performance profiles for four gaps"),
        _profile_table(found),
        Heading("Floor"),
        Paragraph(
            "Nothing can be faster than reading X. “Sum” is one compiled sum over all that is stored of X, on all "
            "threads; the times beside it are in units of it."
        ),
        _floors(found),
        Heading("Every set"),
    )
    for subject in found.subjects:
        made.add(Heading(subject.title, 3), _table(subject))
        notes = [f"{e.peer}: {e.record['note']}" for e in subject.entries if e.record["note"]]
        if notes:
            made.add(Bullets(notes, "Not measured to the end"))
    made.add(Heading("Machine"), Bullets(_machine(found)))
    return made


def _headline(found: Results) -> Table:
    rows = []
    for subject in found.subjects:
        t, ours = subject.task, subject.ours(_HEADLINE)
        best = subject.rivals(_HEADLINE)[:3]
        told = ", ".join(f"{entry.peer} {entry.seconds(_HEADLINE) / ours:.2g}×" for entry in best)
        rows.append(
            [
                f"{t['data']}, {t['rows']} × {t['columns']}, {t['storage']}",
                power(t["l2"]),
                _ms(ours),
                _ms(subject.ours(_HEADLINE, ALONE)),
                told or "nobody else got there",
            ]
        )
    return Table(["data", "λ", "trsvr, ms", "nothing set, ms", "fastest others"], rows, words=(0, 1, 4))


def _won(found: Results) -> str:
    """The score, in words that may also be bad news."""
    parts = []
    for goal in GOALS:
        ratios = [
            (rivals[0].seconds(goal) if (rivals := subject.rivals(goal)) else np.inf) / subject.ours(goal)
            for subject in found.subjects
            if np.isfinite(subject.ours(goal))
        ]
        finite = [ratio for ratio in ratios if np.isfinite(ratio)]
        middle = f"{np.exp(np.mean(np.log(finite))):.2g}" if finite else "–"
        parts.append(f"{power(goal)}: fastest on {sum(r > 1 for r in ratios)} of {len(found.subjects)}, ratio {middle}")
    return (
        "Problems on which trsvr is the fastest, and the geometric mean of the fastest other solver's time over its "
        "time, at each gap. " + "; ".join(parts) + "."
    )


def _profile_table(found: Results) -> Table:
    taus = np.array([1.0, 2.0, 5.0, 10.0])
    shares = profiles.profile(found.costs(_HEADLINE), taus)
    reached = np.isfinite(found.costs(_HEADLINE)).sum(axis=1)
    order = np.lexsort((-reached, -shares[:, 1], -shares[:, 3]))
    rows = [
        [found.peers[k], *(f"{100 * share:.0f} %" for share in shares[k]), f"{reached[k]} of {len(found.subjects)}"]
        for k in order
    ]
    return Table([f"to {power(_HEADLINE)}", "fastest", "within 2×", "within 5×", "within 10×", "reached"], rows)


def _floors(found: Results) -> Table:
    rows = []
    for subject in found.subjects:
        t = subject.task
        unit = t["floor"]
        rows.append(
            [
                f"{t['data']}, λ = {power(t['l2'])}",
                f"{1e3 * unit:.3g}",
                f"{t['full_pass'] / unit:.2f}",
                _times(subject.ours(_HEADLINE) / unit),
                _times(subject.ours(_HEADLINE, ALONE) / unit),
                f"{t['epochs']}",
                f"{t['passes']:.1f}",
            ]
        )
    head = ["data", "sum, ms", "value and gradient", "trsvr to 1e-9", "nothing set", "its epochs", "its passes counted"]
    return Table(head, rows)


def _table(subject: Subject) -> Table:
    def key(entry: Entry) -> tuple[float, ...]:
        return tuple(entry.seconds(goal) for goal in (_HEADLINE, 1e-6, 1e-3))

    rows = []
    ours = subject.ours(_HEADLINE)
    for entry in sorted(subject.entries, key=key):
        name = f"▸ {entry.peer}" if entry.peer in (OURS, ALONE) else entry.peer
        rows.append(
            [
                name,
                *(_ms(entry.seconds(goal)) for goal in GOALS),
                _times(entry.seconds(_HEADLINE) / ours),
                f"{entry.warm_up:.2f}" if np.isfinite(entry.warm_up) else "–",
                entry.setting(_HEADLINE),
            ]
        )
    head = ["solver", *map(power, GOALS), "× at 1e-9", "warm-up, s", "setting at 1e-9"]
    return Table(head, rows, words=(0, len(head) - 1))


def _machine(found: Results) -> list[str]:
    a = found.about
    versions = {
        _family(entry.peer): entry.record["version"]
        for subject in found.subjects
        for entry in subject.entries
        if entry.record["version"]
    }
    absent = {e.peer: e.record["note"] for s in found.subjects for e in s.entries if not e.record["version"]}
    middle, high = found.unrest()
    return [
        f"{a['processor']}, {a['cores']} cores, {a['memory']}, {a['system']}; BLAS: {a['blas']}",
        f"Python {a['python']}, NumPy {a['numpy']}, Numba {a['numba']}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"measured from {min(s.task['when'] for s in found.subjects)} on, load {a['load']:.1f} at the beginning; "
        f"the sum over X, taken beside every cell, was {middle:.2f} times its best in the median, {high:.2f} at the "
        "95th percentile: how quiet the machine was",
        *(f"{peer}: {why}" for peer, why in absent.items()),
    ]


def _ms(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "–"
    return f"{1e3 * seconds:.1f}" if seconds < 0.1 else f"{1e3 * seconds:.0f}"


def _times(ratio: float) -> str:
    if not np.isfinite(ratio):
        return "–"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


# ------------------------------------------------------------------------------------------------------- data, figures


def summary(found: Results) -> dict[str, Any]:
    """For other figures: times in seconds, null where a gap was not reached."""
    return {
        "about": {key: found.about[key] for key in ("processor", "cores", "memory", "system", "python", "when")},
        "goals": list(GOALS),
        "problems": [
            {
                **{key: subject.task[key] for key in ("data", "rows", "columns", "storage", "l2", "floor")},
                "seconds": {entry.peer: _seconds(entry) for entry in subject.entries},
            }
            for subject in found.subjects
        ],
    }


def _seconds(entry: Entry) -> list[float | None]:
    return [float(f"{entry.seconds(g):.4g}") if g in entry.reached else None for g in GOALS]


def _family(peer: str) -> str:
    return peer.split(" ")[0].strip(",")


def _style(peers: list[str], peer: str) -> Style:
    """A colour for each package, dashes for its solvers."""
    families = list(dict.fromkeys(map(_family, peers)))
    relatives = [other for other in peers if _family(other) == _family(peer)]
    dashes = {OURS: (), ALONE: DASHES[1]}.get(peer, DASHES[relatives.index(peer) % len(DASHES)])
    return COLOURS[families.index(_family(peer)) % len(COLOURS)], dashes


def draw(found: Results, folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The performance profiles."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "trsvr"
    figure, grid = plt.subplots(2, 2, figsize=(10.5, 9), sharex=True, sharey=True, layout="constrained")
    taus = np.geomspace(1.0, 100.0, 400)
    for axis, goal in zip(grid.flat, _PROFILED, strict=True):
        for peer, heights in zip(found.peers, profiles.profile(found.costs(goal), taus), strict=True):
            front = peer in (OURS, ALONE)
            drawn = {**pen(_style(found.peers, peer)), "linewidth": 3.0 if front else 1.4, "zorder": 3 if front else 2}
            axis.step(taus, heights, where="post", label=peer, **drawn)
        axis.set(xscale="log", ylim=(-0.02, 1.02), title=f"relative gap {power(goal)}")
        axis.grid(alpha=0.3)
    for axis in grid[1]:
        axis.set_xlabel("τ: seconds over those of the fastest solver")
    for axis in grid[:, 0]:
        axis.set_ylabel(f"share of {len(found.subjects)} problems")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    written = []
    for suffix in suffixes:
        path = folder / f"peers-profiles.{suffix}"
        with written_beside(path) as beside:
            figure.savefig(beside, dpi=85, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
        written.append(path)
    plt.close(figure)
    return written
