"""Draw the README's figure and write its numbers, from what `make bench` and benchmarks/first_steps.py measured.

    python benchmarks/readme.py

The table is that of docs/figures/peers.json, which `make bench-docs` writes: λ = 1e-4, to a gap of 1e-9; the sentence
about compiling and testing that of docs/figures/first_steps.json. Nothing is measured here.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NUMBERS = ROOT / "docs" / "figures" / "peers.json"
FIRST_STEPS = ROOT / "docs" / "figures" / "first_steps.json"
FIGURE = ROOT / "docs" / "figures" / "readme.png"
README = ROOT / "README.md"
BEGIN, END = "<!-- {}: python benchmarks/readme.py -->", "<!-- end of {} -->"

SHOWN = 3  # peers that a row names, and the figure shows
L2, GOAL = 1e-4, 1e-9
SWEPT, ALONE = "trsvr", "trsvr, nothing set"
TITLES = {"covtype": "covtype standardised", "synthetic": "the paper's synthetic set", "rcv1": "rcv1 (substitute)"}
INK, OURS = "#333333", "#0072b2"
# Near Okabe and Ito's, at least 3:1 against white, one for each family of peers; the markers differ too.
COLOURS = {
    "scikit-learn": "#b97a00",
    "SciPy": "#009e73",
    "snapml": "#d55e00",
    "Cyanure": "#cc79a7",
    "LIBLINEAR": "#7a7a7a",
    "lightning": "#882255",
    "skglm": "#000000",
    "glum": "#5b3fa0",
    "scikit-learn-intelex": "#8a5a2b",
}


def entries(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each data set, from the one most is gained on to the one most is lost on."""
    goal = measured["goals"].index(GOAL)
    found = []
    for problem in measured["problems"]:
        seconds = {name: times[goal] for name, times in problem["seconds"].items() if times[goal] is not None}
        if problem["l2"] == L2 and SWEPT in seconds:
            peers = sorted(
                (time / seconds[SWEPT], name) for name, time in seconds.items() if name not in (SWEPT, ALONE)
            )
            sparse = "" if problem["storage"] == "dense" else ", sparse"
            found.append(
                {
                    "name": TITLES.get(problem["data"], problem["data"]),
                    "size": f"{problem['rows']} × {problem['columns']}{sparse}",
                    "seconds": seconds[SWEPT],
                    "alone": seconds[ALONE],
                    "peers": {name.replace(", our", " on our"): ratio for ratio, name in peers[:SHOWN]},
                }
            )
    return sorted(found, key=lambda entry: -min(entry["peers"].values()))


def table(measured: dict[str, Any]) -> str:
    """The numbers as a table in Markdown."""
    lines = [
        "| data | rows × columns | trsvr to 1e-9 | `minimize(problem)` | fastest peers, their time ÷ ours |",
        "|---|---|---|---|---|",
    ]
    for entry in entries(measured):
        peers = ", ".join(f"{name} {ratio:.2g}" for name, ratio in entry["peers"].items())
        times = f"{duration(entry['seconds'])} | {duration(entry['alone'])}"
        lines.append(f"| {entry['name']} | {entry['size']} | {times} | {peers} |")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Two digits, in the unit that suits."""
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def waits(measured: dict[str, Any]) -> str:
    """What a newcomer waits for, in sentences."""
    fit = measured["compile"]
    told = [
        f"Small data need no compiling; the first fit of any other kind compiles for {fit['seconds']:.0f} s, and later "
        f"processes load the code in {fit['again']:.1f} seconds."
    ]
    for name in ("demo", "test"):
        if name in measured:
            run = measured[name]
            told.append(f"`make {name}` takes {_minutes(run['seconds'])} on {run['cores']} cores, installing included.")
    return textwrap.fill(" ".join(told), 120, break_long_words=False, break_on_hyphens=False)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def with_numbers(text: str, measured: dict[str, Any], first_steps: dict[str, Any]) -> str:
    """The README with its numbers between their marks."""
    for name, content in (("numbers", table(measured)), ("waits", waits(first_steps))):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"the README must have the lines {begin} and {end}")
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


def draw(sets: list[dict[str, Any]], path: Path) -> None:
    """A row per data set: where its peers lie, ours at 1."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.42 * len(sets) + 1.3), layout="constrained")
    axes.axvline(1.0, color=OURS, linewidth=2, zorder=1)
    markers = dict(zip(COLOURS, "osD^vPX<>", strict=True))
    families: dict[str, Any] = {}
    for k, entry in enumerate(sets):
        ratios = entry["peers"].values()
        axes.plot([min(1.0, *ratios), max(1.0, *ratios)], [k, k], color="#dddddd", linewidth=1, zorder=0)
        for name, ratio in entry["peers"].items():
            family = name.split()[0]
            shape, colour = markers.get(family, "*"), COLOURS.get(family, INK)
            (families[family],) = axes.plot(ratio, k, shape, color=colour, markersize=7, zorder=2)
    axes.set_xscale("log")
    largest = max(ratio for entry in sets for ratio in entry["peers"].values())
    smallest = min(ratio for entry in sets for ratio in entry["peers"].values())
    axes.set_xlim(min(0.4, smallest / 1.3), 1.3 * max(largest, 2.0))
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if smallest / 1.3 <= tick <= 1.3 * largest]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(sets)), [f"{entry['name']}   {duration(entry['seconds'])}" for entry in sets])
    axes.set_ylim(len(sets) - 0.4, -0.6)
    axes.set_xlabel("time ÷ trsvr's time (right of the line trsvr is faster)", color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    handles = {"trsvr": axes.plot([], [], color=OURS, linewidth=2)[0], **dict(sorted(families.items()))}
    axes.legend(handles.values(), handles.keys(), loc="lower right", frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    measured = json.loads(NUMBERS.read_text(encoding="utf-8"))
    sets = entries(measured)
    draw(sets, FIGURE)
    first_steps = json.loads(FIRST_STEPS.read_text(encoding="utf-8"))
    README.write_text(with_numbers(README.read_text(encoding="utf-8"), measured, first_steps), encoding="utf-8")
    print(f"{FIGURE.relative_to(ROOT)} and the table of {README.name}: {len(sets)} data sets")


if __name__ == "__main__":
    main()
