"""Write what was measured into README.md: ``python benchmarks/gpu/record.py [FOLDER]``.

FOLDER has the JSON files that the scripts here wrote with ``--out``, and what compute-sanitizer printed as NAME.log; by
default ``results`` beside this file, into which files of another folder are copied first. Nothing in the tables is
written by hand. Needs no GPU.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, README = HERE / "results", HERE / "README.md"
BEGIN, END = "<!-- measured: written by record.py -->", "<!-- end of what was measured -->"
SOLVES = {
    "higgs": "Logistic regression, dense float32, on the device",
    "covtype_scale": "Logistic regression, one-hot and scaled columns",
    "streamed": "Logistic regression, rows streamed from host memory",
    "streamed_once": "The same, with room for all rows on the device",
}
GAPS = ("0.001", "1e-06", "1e-09")
CHECKS = {
    "check": "check.py",
    "sanitize": "check.py --sanitize (small launches) under compute-sanitizer's memcheck",
    "racecheck": "the same under its racecheck",
}


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)] + [""]


def where(about: dict[str, str]) -> str:
    """Date, device, versions."""
    names = ("torch", "cuda", "triton", "numba", "numpy", "python", "trsvr")
    versions = ", ".join(f"{name} {about[name]}" for name in names if name in about)
    return f"{about['date']}, {about['device']}; {versions}"


def milliseconds(seconds: float | None) -> str:
    """Or a word where the gap was never reached."""
    return "not reached" if seconds is None or seconds != seconds else f"{1e3 * seconds:.4g} ms"


def solve(name: str, found: dict) -> list[str]:
    """One problem: methods, and single passes where they were timed."""
    mine = found["trsvr"]
    lines = [f"### {SOLVES[name]}: {found['rows']:,} × {found['columns']}", "", where(found["about"]) + ".", ""]
    if "resident rows" in found:
        lines += [f"{found['resident rows']:,} rows stay on the device; copying them there once is not counted.", ""]
    if "source" in found:
        lines += [f"Data: {found['source']}.", ""]
    runs = len(mine.get("whole call all", [0]))
    spread = [*mine.get("whole call all", []), mine["whole call"]]
    rows = [
        [
            "`trsvr.minimize(problem)`",
            milliseconds(mine["whole call"]) + (f", median of {runs}" if runs > 1 else ", one run"),
            f"{mine['gap at end']:.1e}",
            f"{mine['epochs']} epochs; {milliseconds(min(spread))} to {milliseconds(max(spread))}",
        ]
    ]
    if "to gap all" in mine:
        rows.append(
            [
                "the same, stopped by a callback at 1e-9",
                f"{milliseconds(mine['to gap'])}, median of {len(mine['to gap all'])}",
                "1e-9",
                f"{milliseconds(min(mine['to gap all']))} to {milliseconds(max(mine['to gap all']))}",
            ]
        )
    for rival, title in (("newton", "Newton, full Hessian"), ("lbfgs", "torch.optim.LBFGS, the same pass")):
        if rival in found["curves"]:
            curve = found["curves"][rival]
            rows.append(
                [
                    title,
                    milliseconds(curve["reached"]) + " to 1e-9",
                    f"{curve['gaps'][-1]:.1e}",
                    f"{curve['evaluations']} evaluations",
                ]
            )
    lines += table(["method", "time", "relative gap at the end", "note"], rows)
    if "first call" in found:
        first = found["first call"]
        lines += [f"First call, which compiles what is not compiled yet and records graphs: {first:.2f} s.", ""]
    if "passes" in found:
        read = found["passes"]["read X"]
        lines += table(
            ["one pass", "time", "× reading X"],
            [[what, milliseconds(seconds), f"{seconds / read:.2f}"] for what, seconds in found["passes"].items()],
        )
    if found.get("tiles"):
        best, seconds = min(found["tiles"].items(), key=lambda pair: pair[1])
        lines += [f"Fastest of {len(found['tiles'])} shapes of the full pass: {best}, {milliseconds(seconds)}.", ""]
    if "bytes per second" in found:
        rate = found["bytes per second"] / 1e9
        source = f"{rate:.1f} GB/s from the host" if rate else "nothing of it from the host"
        lines += [f"One pass: {milliseconds(found['pass'])}, {source}.", ""]
    if (RESULTS / f"{name}.png").exists():
        lines += [f"![Relative gap against time](results/{name}.png)", ""]
    return lines


def probe(found: dict) -> list[str]:
    """Widths with one output, and the linear probe."""
    lines = ["### The linear probe, and one output at many widths (`probe.py`)", "", where(found["about"]) + ".", ""]
    reached = [[milliseconds(row["reached"][name]) for name in ("newton", "lbfgs")] for row in found["one output"]]
    rows = [
        [
            f"{row['rows']:,} × {row['columns']}",
            milliseconds(row["trsvr"]["to gap"]),
            f"{milliseconds(row['trsvr']['whole call'])}, {row['trsvr']['epochs']} epochs",
            *rivals,
        ]
        for row, rivals in zip(found["one output"], reached, strict=True)
    ]
    head = ["logistic, λ = 1e-5", "trsvr to 1e-9", "its whole call", "Newton to 1e-9", "L-BFGS to 1e-9"]
    lines += table(head, rows)
    rows = [
        [
            f"{row['rows']:,} × {row['columns']} × {row['classes']}, λ = {row['l2']:g}",
            *(", ".join(milliseconds(row["to gap"][name][gap]) for gap in GAPS) for name in ("trsvr", "lbfgs")),
            f"{row['GiB']:.2f} GiB, {row['memory over X']:.1f} × X",
            row["date"],
        ]
        for row in found["softmax"]
    ]
    head = ["softmax", "trsvr to " + ", ".join(GAPS), "L-BFGS in float32", "most memory, X included", "when"]
    return lines + table(head, rows)


def measured() -> list[str]:
    """All tables."""
    lines = ["## Checks", ""]
    rows = []
    for name, title in CHECKS.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            rows.append([title, "not recorded", "", ""])
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        failed = ", ".join(found["failed"]) or "none"
        options = found["options"]
        if "--match" in options:
            title += f", those named “{options[options.index('--match') + 1]}”"
        if "sanitizer" in found:
            failed += "; compute-sanitizer: " + "; ".join(found["sanitizer"])
        rows.append([title, f"{found['passed']} passed, {found['not begun']} not begun", failed, where(found["about"])])
    lines += [*table(["checks", "outcome", "failed", "when and where"], rows), "## Times", ""]
    for name, title in SOLVES.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            lines += solve(name, json.loads(path.read_text(encoding="utf-8")))
        else:
            lines += [f"### {title}", "", f"Not measured yet (`{name}.py`).", ""]
    path = RESULTS / "probe.json"
    return lines + (probe(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else [])


def draw_missing() -> None:
    """Figures for runs on machines without matplotlib."""
    for name in SOLVES:
        path = RESULTS / f"{name}.json"
        if path.exists() and not path.with_suffix(".png").exists():
            from common import draw

            draw(json.loads(path.read_text(encoding="utf-8")), path.with_suffix(".png"), name)


def note_sanitizer(path: Path, log: Path) -> None:
    """Keep what compute-sanitizer said at its end beside what the checks under it found."""
    if path.exists() and log.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        found["sanitizer"] = re.findall(r"SUMMARY: (.+)", log.read_text(encoding="utf-8"))
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    if len(sys.argv) > 1:
        RESULTS.mkdir(exist_ok=True)
        for name in (*SOLVES, *CHECKS, "probe"):
            for ending in (".json", ".png"):
                source = Path(sys.argv[1]) / (name + ending)
                if source.exists():
                    shutil.copyfile(source, RESULTS / source.name)
        for name in CHECKS:
            note_sanitizer(RESULTS / f"{name}.json", Path(sys.argv[1]) / f"{name}.log")
    draw_missing()
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    temporary = README.with_suffix(".part")
    temporary.write_text("\n".join([before + BEGIN, "", *measured()]) + END + after, encoding="utf-8")
    temporary.replace(README)


if __name__ == "__main__":
    main()
