"""What this library found beside the paper's claims; none of it judges the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trsvr.experiments.claims import good_steps
from trsvr.experiments.figures import beside_paper
from trsvr.experiments.results import Line, Results, SubjectResults


@dataclass(frozen=True)
class Finding:
    """A sentence, and the numbers it rests on."""

    text: str
    numbers: tuple[str, ...]


def find(results: Results) -> list[Finding]:
    """All findings whose studies were run."""
    made = (_identity_is_svrg, _estimated_is_svrg, _longer_steps, _tuned, _adaptive)
    return [finding for finding in (make(results) for make in made) if finding.numbers]


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
    numbers = tuple(
        f"{study}, {subject.title}: f differs by {difference:.0e} (relative) at most"
        for study, subject, _, difference in _beside_svrg(results, "TRSVR-Id", "SVRG at Id's α")
    )
    return Finding("TRSVR-Id is SVRG with step α: the same rows give the same values of f.", numbers)


def _estimated_is_svrg(results: Results) -> Finding:
    numbers = tuple(
        f"{study}, {subject.title}: α·L_max = {(ours.alpha or np.nan) * subject.facts['component_smoothness']:.2g}, "
        f"{ours.mean('boundary_fraction'):.4%} of the steps end on the boundary, {ours.mean('cg_iterations'):.3g} "
        f"products a step; f differs from SVRG's by {difference:.0e} (relative) at most"
        for study, subject, ours, difference in _beside_svrg(results, "TRSVR-EstH", "SVRG at EstH's α")
    )
    return Finding(
        "How far TRSVR-EstH with the paper's values is SVRG with step α: where the first conjugate-gradient step ends "
        "on the boundary, the two take the same steps, and the products are spent for nothing.",
        numbers,
    )


def _longer_steps(results: Results) -> Finding:
    study = results.study("step-size")
    numbers = []
    for subject in [] if study is None else study.subjects:
        told = []
        for group, count in good_steps(subject).items():
            alphas = [
                (line.alpha or np.nan, line.diverged) for line in subject.lines if line.group == group and line.runs
            ]
            lost = [alpha for alpha, diverged in alphas if diverged]
            told.append(f"{group} {count}{f', diverges from {min(lost):.3g} on' if lost else ''}")
        numbers.append(f"{subject.title}: {'; '.join(told)}")
    return Finding("At how many values of α a method comes within ten times of the best gap of all.", tuple(numbers))


def _tuned(results: Results) -> Finding:
    numbers = []
    for study, subject in results.subjects():
        ours, paper = subject.line("TRSVR-EstH", "tuned"), subject.line("TRSVR-EstH", "paper")
        if ours is None or paper is None or not ours.alpha or not paper.alpha:
            continue
        rivals = [line for line in subject.with_roles("tuned") if line.label != "TRSVR-EstH"]
        told = ", ".join(f"{line.label} {line.final('gap'):.1e} ({_passes(line)})" for line in (ours, *rivals))
        numbers.append(
            f"{study.name}, {subject.title}: α {ours.alpha:.3g}, {ours.alpha / paper.alpha:.2g} times the paper's; "
            f"final gap (passes to 1e-9): {told}"
        )
    return Finding("With values tuned anew, the same number of grid points for every method.", tuple(numbers))


def _adaptive(results: Results) -> Finding:
    numbers = tuple(
        f"{study.name}, {subject.title}: {_passes(adaptive)} to 1e-9; {paper.label} {_passes(paper)}, final gap "
        f"{paper.final('gap'):.1e}"
        for study, subject, paper, adaptive in beside_paper(results)
    )
    return Finding("`TRSVR()` with nothing chosen, beside the best of the paper's versions.", numbers)


def _passes(line: Line) -> str:
    found = line.cost("passes", 1e-9)
    return f"{found:.3g} passes" if np.isfinite(found) else "never"
