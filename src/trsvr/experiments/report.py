"""``report.md`` and ``report.html``: the same content for a terminal and for a browser.

The page is one file: style, script, the charting library (uPlot) and all curves are inside, and it asks the network for
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import textwrap
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from trsvr._files import written_beside
from trsvr.experiments import figures
from trsvr.experiments.contents import document, settings_text
from trsvr.experiments.document import Bullets, Document, Figure, Heading, Paragraph, Table
from trsvr.experiments.results import AXES, HEIGHTS, Results, Run, StudyResults, SubjectResults, read

_DIGITS = 5


def write(folder: Path) -> list[Path]:
    """Read the results of a folder, draw the figures, write both reports; returns the files."""
    results = read(folder)
    drawn = figures.draw_all(results, folder / "figures")
    made = document(results)
    written = []
    for name, text in (("report.md", markdown(made)), ("report.html", page(made, results, folder / "figures"))):
        with written_beside(folder / name) as beside:
            beside.write_text(text, encoding="utf-8")
        written.append(folder / name)
    return [*written, *drawn]


# --------------------------------------------------------------------------------------------------------- Markdown


#: In a document that takes the tables in, everything below this line is replaced.
MARK = "<!-- below this line: trsvr paper report --into -->"
_WIDTH = 118


def write_into(folder: Path, document_path: Path) -> None:
    """Put the tables of a folder's results, without figures, below the `MARK` of an existing document."""
    text = document_path.read_text(encoding="utf-8")
    if MARK not in text:
        raise ValueError(f"--into {document_path}: it has no line {MARK!r}")
    tables = markdown(document(read(folder)), figures_too=False)
    with written_beside(document_path) as beside:
        beside.write_text(f"{text.split(MARK)[0]}{MARK}\n{checksum(tables)}\n\n{tables}", encoding="utf-8")


def checksum(tables: str) -> str:
    """The line below the `MARK`, by which a test sees that nobody has written a number by hand."""
    return f"<!-- sha256 of what follows: {hashlib.sha256(tables.encode()).hexdigest()} -->"


def markdown(made: Document, *, figures_too: bool = True) -> str:
    """The report as Markdown; without figures also without its title, to stand inside another document."""
    parts = [f"# {made.title}"] if figures_too else []
    for block in made.blocks:
        if isinstance(block, Figure) and not figures_too:
            continue
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {block.text}")
        elif isinstance(block, Paragraph):
            parts.append(_filled(f"**{block.text}**" if block.notice else block.text))
        elif isinstance(block, Bullets):
            lines = "\n".join(_filled(item, "- ") for item in block.items)
            parts.append(f"{_filled(block.summary.rstrip('.') + ':')}\n\n{lines}" if block.summary else lines)
        elif isinstance(block, Table):
            parts.append(_markdown_table(block))
        elif block.interactive:
            parts.append(f"## {block.name}\n\nInteractive curves are in `report.html`.")
        else:
            parts.append(f"![{block.caption}](figures/{block.name}.png)")
    return "\n\n".join(parts) + "\n"


def _filled(text: str, mark: str = "") -> str:
    """Short lines; none of them begins with a sign that Markdown would take for a list."""
    kept = text.replace(" + ", " +\u00a0").replace(" - ", " -\u00a0")
    return textwrap.fill(
        mark + kept, _WIDTH, subsequent_indent=" " * len(mark), break_long_words=False, break_on_hyphens=False
    )


def _markdown_table(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = ["---" if place in table.words else "---:" for place in range(len(table.head))]
    return "\n".join([line(table.head), line(rule), *map(line, table.rows)])


# ------------------------------------------------------------------------------------------------------------- HTML


def page(made: Document, results: Results, drawn: Path) -> str:
    """The report as one HTML page."""
    body = [f"<h1>{html.escape(made.title)}</h1>", _contents(made), *(_block(block, drawn) for block in made.blocks)]
    text = _asset("page.html")
    for mark, content in (
        ("TITLE", html.escape(made.title)),
        ("STYLE", _asset("uplot/uPlot.min.css") + _asset("page.css")),
        ("BODY", "\n".join(body)),
        ("CURVES", _embedded(curve_data(results))),
        ("SCRIPT", _asset("uplot/uPlot.iife.min.js") + _asset("page.js")),
    ):
        text = text.replace(f"<!--{mark}-->", content)
    return text


def _asset(name: str) -> str:
    return (resources.files("trsvr.experiments") / "page" / name).read_text(encoding="utf-8")


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _contents(made: Document) -> str:
    headings = [
        block.text if isinstance(block, Heading) else block.name
        for block in made.blocks
        if (isinstance(block, Heading) and block.level == 2) or (isinstance(block, Figure) and block.interactive)
    ]
    links = [f'<a href="#{_anchor(text)}">{html.escape(text)}</a>' for text in headings]
    return f"<nav>{''.join(links)}</nav>"


def _block(block: Any, drawn: Path) -> str:
    if isinstance(block, Heading):
        return f'<h{block.level} id="{_anchor(block.text)}">{html.escape(block.text)}</h{block.level}>'
    if isinstance(block, Paragraph):
        return f"<p{_class('notice' if block.notice else '')}>{html.escape(block.text)}</p>"
    if isinstance(block, Bullets):
        items = "".join(f"<li>{html.escape(item)}</li>" for item in block.items)
        if block.summary:
            return f"<details><summary>{html.escape(block.summary)}</summary><ul>{items}</ul></details>"
        return f"<ul>{items}</ul>"
    if isinstance(block, Table):
        return _html_table(block)
    if block.interactive:
        return f'<h2 id="{_anchor(block.name)}">{html.escape(block.name)}</h2><div id="explorer"></div>'
    return _image(block, drawn)


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


_VERDICTS = {"reproduced": "yes", "partly reproduced": "partly", "not reproduced": "no"}


def _html_table(table: Table) -> str:
    wordy = {place for place in table.words if max((len(row[place]) for row in table.rows), default=0) > 24}

    def cell(kind: str, place: int, text: str) -> str:
        classes = [] if place in table.words else ["number"]
        if table.head[place] == "verdict" and text in _VERDICTS:
            classes.append(_VERDICTS[text])
        if place in wordy:
            classes.append("wordy")
        return f"<{kind}{_class(' '.join(classes))}>{html.escape(text)}</{kind}>"

    head = "".join(cell("th", place, text) for place, text in enumerate(table.head))
    rows = "".join(
        f"<tr>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>" for row in table.rows
    )
    return f'<div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _image(figure: Figure, drawn: Path) -> str:
    """Figures of the studies are the curves above; only those that are no curves are put in."""
    path = drawn / f"{figure.name}.svg"
    no_curves = figure.name.endswith("-profiles") or figure.name.startswith(("step-size", "complexity", "adaptive"))
    if not no_curves or not path.exists():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    caption = html.escape(figure.caption)
    image = f'<img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


# ------------------------------------------------------------------------------------------------ data of the curves


def curve_data(results: Results) -> dict[str, Any]:
    """Everything that the page draws: every run of every study that has curves."""
    return {
        "axes": AXES,
        "heights": HEIGHTS,
        "studies": [
            _study_data(study)
            for study in results.studies.values()
            if not study.name.startswith(("step-size", "complexity"))
        ],
    }


def _study_data(study: StudyResults) -> dict[str, Any]:
    return {
        "name": study.name,
        "title": study.study["title"],
        "axis": "time" if study.study["timed"] else study.study["axes"][0],
        "problems": [_problem_data(study, subject) for subject in study.subjects if figures.drawn_lines(subject)],
    }


def _problem_data(study: StudyResults, subject: SubjectResults) -> dict[str, Any]:
    lines = figures.drawn_lines(subject)
    return {
        "title": subject.title,
        "floor": {"gap": subject.floor, "gradient_norm_sq": 1e-40},
        "lines": [
            {
                "label": line.shown,
                "settings": settings_text(line),
                # The adaptive mode is so far below the paper's methods that their differences would not be seen.
                "hidden": line.role == "adaptive" and study.study["paper"],
                "colour": colour,
                "dashes": list(dashes),
                "runs": [_run_data(run, gaps) for run, gaps in zip(line.runs, line.ys("gap"), strict=True)],
            }
            for line, (colour, dashes) in zip(lines, figures.styles(lines), strict=True)
        ],
    }


def _run_data(run: Run, gaps: Any) -> dict[str, Any]:
    return {
        "seed": run.seed,
        **{axis: _numbers(run[axis]) for axis in AXES},
        "gap": _numbers(gaps),
        "gradient_norm_sq": _numbers(run["gradient_norm_sq"]),
    }


def _numbers(values: Any) -> list[float | None]:
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]


def _embedded(data: Any) -> str:
    """JSON that may stand inside a script element, whatever the names in it are."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
