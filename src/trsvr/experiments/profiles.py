"""Performance profiles (Dolan & Moré 2002, "Benchmarking optimization software with performance profiles").

With c(s, p) the cost of solver s on problem p, and r(s, p) = c(s, p) / min over solvers c(·, p), the profile of s is

    ρ_s(τ) = share of the problems with r(s, p) ≤ τ.

At τ = 1 it says how often a solver is the cheapest, far right how often it gets there at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trsvr._arrays import Vector
from trsvr.experiments.curves import cost_of
from trsvr.experiments.results import Line, StudyResults


def ratios(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """r(s, p) from costs, one row a solver, one column a problem; infinite where a solver never got there.

    Problems that nobody solved say nothing and are left out.
    """
    solved = np.isfinite(costs).any(axis=0)
    found = costs[:, solved]
    return np.asarray(found / found.min(axis=0, initial=np.inf))


def profile(costs: NDArray[np.float64], taus: Vector) -> NDArray[np.float64]:
    """ρ_s(τ), one row a solver, one column a τ."""
    r = ratios(costs)
    if r.shape[1] == 0:
        return np.zeros((costs.shape[0], taus.size))
    return np.asarray((r[:, :, None] <= taus[None, None, :]).mean(axis=1))


def costs(study: StudyResults, axis: str, target: float) -> tuple[list[str], NDArray[np.float64]]:
    """Labels, and what each method needs on each problem and seed to bring the gap to ``target`` times the first."""
    labels = list(dict.fromkeys(line.label for subject in study.subjects for line in subject.lines if line.runs))
    columns = []
    for subject in study.subjects:
        lines = {line.label: line for line in subject.lines if line.runs}
        seeds = sorted({run.seed for line in lines.values() for run in line.runs})
        columns += [[_cost(lines.get(label), seed, axis, target) for label in labels] for seed in seeds]
    return labels, np.array(columns).T if columns else np.empty((len(labels), 0))


def _cost(line: Line | None, seed: int, axis: str, target: float) -> float:
    if line is None:
        return np.inf
    for run, gaps in zip(line.runs, line.ys("gap"), strict=True):
        if run.seed == seed:
            return cost_of(run[axis], gaps, target * gaps[0])
    return np.inf
