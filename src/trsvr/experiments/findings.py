"""What this library found beside the paper's claims; none of it judges the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trsvr.experiments.claims import good_steps
from trsvr.experiments.document import cost, plain, small
from trsvr.experiments.figures import beside_paper
from trsvr.experiments.results import Line, Results, SubjectResults


@dataclass(frozen=True)
class Finding:
    """A sentence, and the table it rests on."""

    text: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def find(results: Results) -> list[Finding]:
    """All findings whose studies were run."""
    made = (_identity_is_svrg, _estimated_is_svrg, _longer_steps, _tuned, _adaptive)
    return [finding for finding in (make(results) for make in made) if finding.rows]


def same_values(ours: Line, other: Line) -> float:
    """Largest relative difference of f between runs with the same seeds."""
    difference = 0.0
    for mine, its in zip(ours.runs, other.runs, strict=False):
        size = min(mine["objective_value"].size, its["objective_value"].size)
        a, b = mine["objective_value"][:size], its["objective_value"][:size]
        with np.errstate(invalid="ignore"):
            difference = max(difference, float(np.nanmax(np.abs(a - b) / np.abs(b))))
    return difference


def _beside_svrg(results: Results, label: str, svrg: str) -> list[tuple[str, SubjectResults, Line, float]]:
    found = []
    for study, subject in results.subjects():
        ours, other = subject.line(label, "paper"), subject.line(svrg, "extra")
        if study.study["paper"] and ours is not None and other is not None:
            found.append((study.name, subject, ours, same_values(ours, other)))
    return found


def _identity_is_svrg(results: Results) -> Finding:
    rows = tuple(
        (study, subject.title, f"{difference:.0e}")
        for study, subject, _, difference in _beside_svrg(results, "TRSVR-Id", "SVRG at Id's α")
    )
    text = "TRSVR-Id is SVRG with step α: the same rows give the same values of f."
    return Finding(text, ("study", "data", "largest relative difference of f"), rows)


def _estimated_is_svrg(results: Results) -> Finding:
    rows = tuple(
        (
            study,
            subject.title,
            f"{(ours.alpha or np.nan) * subject.facts['component_smoothness']:.2g}",
            f"{ours.mean('boundary_fraction'):.2%}",
            f"{ours.mean('cg_iterations'):.3g}",
            f"{difference:.0e}",
        )
        for study, subject, ours, difference in _beside_svrg(results, "TRSVR-EstH", "SVRG at EstH's α")
    )
    text = (
        "How far TRSVR-EstH with the paper's values is SVRG with step α. Where the first conjugate-gradient step ends "
        "on the boundary the two take the same step, and the product is spent for nothing."
    )
    head = ("study", "data", "α·L_max", "steps on the boundary", "products a step", "largest relative difference of f")
    return Finding(text, head, rows)


def _longer_steps(results: Results) -> Finding:
    study = results.study("step-size")
    rows = []
    for subject in [] if study is None else study.subjects:
        for group, count in good_steps(subject).items():
            lines = [line for line in subject.lines if line.group == group and line.runs]
            lost = [line.alpha or np.nan for line in lines if line.diverged]
            rows.append((subject.title, group, str(count), f"{min(lost):.3g}" if lost else "–"))
    text = "At how many values of α a method comes within ten times of the best gap of all methods, or to 1e-12 of f*."
    return Finding(text, ("data", "method", "values of α", "diverges from α on"), tuple(rows))


def _tuned(results: Results) -> Finding:
    rows = []
    for study, subject in results.subjects():
        for line in subject.with_roles("tuned"):
            paper = subject.line(line.label, "paper")
            times = line.alpha / paper.alpha if paper is not None and line.alpha and paper.alpha else np.nan
            rows.append((study.name, subject.title, line.label, plain(times), small(line.final("gap")), _passes(line)))
    text = "With retuned values, from the same number of grid points for every method."
    head = ("study", "data", "method", "α over the paper's", "final gap", "passes to 1e-9")
    return Finding(text, head, tuple(rows))


def _adaptive(results: Results) -> Finding:
    rows = tuple(
        (study.name, subject.title, _passes(adaptive), paper.label, _passes(paper), small(paper.final("gap")))
        for study, subject, paper, adaptive in beside_paper(results)
    )
    text = (
        "`TRSVR()` with nothing chosen, against the best of the paper's versions; a dash means not within the budget."
    )
    head = ("study", "data", "adaptive, passes to 1e-9", "the paper's", "passes to 1e-9", "its final gap")
    return Finding(text, head, rows)


def _passes(line: Line) -> str:
    return cost(line.cost("passes", 1e-9))
