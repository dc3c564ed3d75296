"""Tuning on a grid: every method gets the same number of points, the best by final gap runs again on other seeds.

The grid runs on seeds of its own, from `FIRST_SEED` on; the study's seeds 0, 1, … , on which the chosen values run
beside the paper's, are fresh to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trsvr.experiments.curves import upper_median
from trsvr.experiments.jobs import Job, job_of
from trsvr.experiments.runner import Plan, Runner, line_of, read_run, write_run
from trsvr.experiments.specification import Method
from trsvr.experiments.subjects import Subject

FIRST_SEED = 1000


@dataclass(frozen=True)
class Point:
    """One point of a method's grid on one problem, with its jobs."""

    subject: Subject
    method: Method
    chosen: dict[str, float]
    jobs: tuple[Job, ...]


def points_of(plan: Plan, seeds: int) -> Iterator[Point]:
    """All points of all grids of a study; only the chosen ones need a clock and the whole budget."""
    shorter = plan.study.on_grid()
    for problem in plan.study.problems:
        subject = Subject.of(problem, plan.study.objective)
        if subject not in plan.facts:
            continue
        facts = plan.facts[subject]
        for method in problem.methods:
            grids = plan.study.grids.get(method.label)
            if grids is None:
                continue
            for chosen in method.on_grid(grids, facts["component_smoothness"]):
                tried = replace(method, settings={**method.settings, **chosen}, role="tuned")
                jobs = tuple(
                    job_of(shorter, subject, facts["problem"], tried, FIRST_SEED + seed) for seed in range(seeds)
                )
                yield Point(subject, tried, chosen, jobs)


def tune(runner: Runner, plans: Sequence[Plan], seeds: int) -> int:
    """Run the grids of studies, choose, run the chosen values on the studies' seeds, and put it into ``run.json``.

    Parameters
    ----------
    runner : Runner
    plans : sequence of Plan
        Of the studies.
    seeds : int
        Seeds for each point of a grid.

    Returns
    -------
    int
        How many jobs it took.
    """
    points = [list(points_of(plan, seeds)) for plan in plans]
    for plan, found in zip(plans, points, strict=True):
        if not found:
            raise ValueError(f"STUDY: {plan.study.name} has no grid to tune on")
    executed = runner.run([job for found in points for point in found for job in point.jobs])
    tuned = [_choose(runner.folder, plan, found) for plan, found in zip(plans, points, strict=True)]
    executed += runner.run([job for _, again in tuned for job in again])
    for plan, (entry, _) in zip(plans, tuned, strict=True):
        remember(runner.folder, plan.study.name, {**entry, "seeds": seeds, "epochs": plan.study.on_grid().epochs})
    return executed


def _choose(folder: Path, plan: Plan, points: list[Point]) -> tuple[dict[str, Any], list[Job]]:
    """The entry for ``run.json``, and the runs of what was chosen."""
    values = [final_value(folder, point) for point in points]
    best: dict[tuple[Subject, str], int] = {}
    for place, (point, value) in enumerate(zip(points, values, strict=True)):
        key = (point.subject, point.method.label)
        if key not in best or value < values[best[key]]:
            best[key] = place
    lines, again = [], []
    for place in best.values():
        point = points[place]
        for seed in range(plan.study.seeds):
            job = job_of(plan.study, point.subject, plan.facts[point.subject]["problem"], point.method, seed)
            again.append(job)
            lines.append(line_of(point.subject, point.method, job))
    grid = [
        {
            "problem": plan.facts[point.subject]["problem"],
            "data": point.subject.data,
            "label": point.method.label,
            "chosen": point.chosen,
            "value": value if np.isfinite(value) else None,
            "best": place in best.values(),
        }
        for place, (point, value) in enumerate(zip(points, values, strict=True))
    ]
    return {"jobs": lines, "grid": grid}, again


def final_value(folder: Path, point: Point) -> float:
    """Median value of f at the end of a point's runs; infinite where most diverged."""
    import pyarrow.parquet as pq

    ends = []
    for job in point.jobs:
        table = pq.read_table(folder / "results" / f"{job.identity}.parquet", columns=["objective_value", "status"])
        end = float(table["objective_value"][-1].as_py())
        diverged = table["status"][-1].as_py() == "diverged" or not np.isfinite(end)
        ends.append(np.inf if diverged else end)
    return upper_median(ends)


def remember(folder: Path, study: str, tuned: dict[str, Any]) -> None:
    """Put what was tuned into ``run.json``; what was tuned before on other data sets, or of other methods, stays."""
    known = read_run(folder)
    before = known["studies"][study].get("tuned", {"jobs": [], "grid": []})
    new = {(point["problem"], point["label"]) for point in tuned["grid"]}
    merged = {
        part: [entry for entry in before[part] if (entry["problem"], entry["label"]) not in new] + tuned[part]
        for part in ("jobs", "grid")
    }
    known["studies"][study]["tuned"] = {**tuned, **merged}
    write_run(folder, known)
