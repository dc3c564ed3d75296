"""What a folder of finished jobs says: each method's runs with their gaps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trsvr._arrays import Vector
from trsvr.experiments import curves
from trsvr.experiments.runner import read_run
from trsvr.experiments.specification import rank

GAPS = (1e-3, 1e-6, 1e-9)
#: Columns that curves are drawn against, and how they are called.
AXES = {
    "epoch": "epochs",
    "passes": "passes over the data, Hessian products counted",
    "passes_without": "passes over the data, Hessian products not counted",
    "time": "seconds",
}
HEIGHTS = {"gap": "gap f − f*", "gradient_norm_sq": "squared gradient norm"}
_COLUMNS = (
    *("epoch", "passes", "time", "objective_value", "gradient_norm_sq", "boundary_fraction", "cg_iterations"),
    *("gradient_evaluations", "hessian_products", "batch_size", "curvature_rows", "negative_curvature"),
)
_OF_THE_RUN = ("status", "basin_value", "wall_time")


@dataclass(frozen=True)
class Run:
    """One finished job as arrays, one entry per recorded epoch."""

    seed: int
    columns: dict[str, Vector]
    status: str
    basin_value: float
    wall_time: float

    def __getitem__(self, name: str) -> Vector:
        return self.columns[name]

    @property
    def diverged(self) -> bool:
        """Whether it was given up."""
        return self.status == "diverged"


@dataclass
class Line:
    """A method on a problem: one line of a table, one curve of a figure."""

    label: str
    role: str
    group: str
    solver: str
    settings: dict[str, Any]
    subject: SubjectResults
    wanted: int = 0
    runs: list[Run] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """Its label, told apart from the paper's where a grid has chosen the settings."""
        return f"{self.label} (re-tuned)" if self.role == "tuned" else self.label

    @property
    def alpha(self) -> float | None:
        """The α of a trust-region method, the step of the others; None where there is none to choose."""
        value = self.settings.get("alpha", self.settings.get("step"))
        return float(value) if isinstance(value, int | float) else None

    def xs(self, axis: str) -> list[Vector]:
        """Places on an axis, run by run."""
        return [run[axis] for run in self.runs]

    def ys(self, height: str) -> list[Vector]:
        """Heights, run by run: "gap" or a column."""
        if height == "gap":
            return [run["objective_value"] - self.subject.reference for run in self.runs]
        return [run[height] for run in self.runs]

    def floor(self, height: str) -> float:
        """Below this differences are rounding."""
        return self.subject.floor if height == "gap" else 1e-40

    def final(self, height: str) -> float:
        """Median at the end of the budget, between two runs on the logarithmic scale; infinite where most diverged."""
        ends = np.array([y[-1] for y in self.ys(height)])
        middle = float(10.0 ** np.median(np.log10(curves.drawable(ends, self.floor(height)))))
        return middle if middle < curves.HIGHEST / 2 else np.inf

    def band_at_end(self, height: str) -> tuple[float, float]:
        """20 % and 80 % quantile of the last heights."""
        ends = np.log10([curves.drawable(y[-1:], self.floor(height))[0] for y in self.ys(height)])
        low, _, high = 10.0 ** np.quantile(ends, curves.BAND)
        return float(low), float(high)

    def end(self, axis: str) -> float:
        """Where on an axis half of the runs have ended."""
        return curves.upper_median(float(x[-1]) for x in self.xs(axis))

    def at(self, height: str, axis: str, place: float) -> float:
        """Median height at a place of the axis."""
        return curves.height_at(self.xs(axis), self.ys(height), place, self.floor(height))

    def mean_decades(self, height: str, axis: str, until: float) -> float:
        """Mean log10 height of the median curve."""
        return curves.mean_decades(self.xs(axis), self.ys(height), until, self.floor(height))

    def spread(self, height: str, axis: str) -> float:
        """Mean width of the 20–80 % band over the seeds, in decades."""
        return curves.spread(self.xs(axis), self.ys(height), self.floor(height))

    def cost(self, axis: str, target: float, *, relative: bool = False) -> float:
        """Median cost of a gap, or of a part of the first one; infinite where most runs never came there."""
        pairs = zip(self.xs(axis), self.ys("gap"), strict=True)
        return curves.upper_median(curves.cost_of(x, y, target * y[0] if relative else target) for x, y in pairs)

    def mean(self, column: str) -> float:
        """Mean of a column over all epochs after the first row, over all runs; NaN where the method has none."""
        numbers = np.concatenate([run[column][1:] for run in self.runs]) if self.runs else np.array([])
        numbers = numbers[np.isfinite(numbers)]
        return float(numbers.mean()) if numbers.size else np.nan

    @property
    def diverged(self) -> int:
        """How many runs were given up."""
        return sum(run.diverged for run in self.runs)


@dataclass
class SubjectResults:
    """A problem of a study with its lines."""

    facts: dict[str, Any]
    lines: list[Line] = field(default_factory=list)

    @property
    def data(self) -> str:
        """The data set that was asked for."""
        return str(self.facts["data"])

    @property
    def title(self) -> str:
        """The data set as it must be called: a substitute is named as one."""
        name = self.facts["name"]
        stands_in = "" if name == self.data else f" (substitute: {name})"
        part = f", {self.facts['rows']} rows drawn" if "random rows of" in self.facts["source"] else ""
        return f"{self.data}{stands_in}{part}"

    @functools.cached_property
    def reference(self) -> float:
        """f*, or for a nonconvex objective the best value that any run found, or came down to."""
        if self.facts["value"] is not None:
            return float(self.facts["value"])
        found = [float(np.nanmin(run["objective_value"])) for line in self.lines for run in line.runs]
        found += [run.basin_value for line in self.lines for run in line.runs if np.isfinite(run.basin_value)]
        return min(found, default=np.nan)

    @property
    def floor(self) -> float:
        """A gap below this is rounding of f*."""
        return float(np.finfo(float).eps * max(abs(self.reference), np.finfo(float).tiny))

    def other_basins(self) -> tuple[int, int]:
        """How many runs ended in another basin than the best one, and of how many."""
        ends = [run.basin_value for line in self.lines for run in line.runs if np.isfinite(run.basin_value)]
        slack = 1e-9 * max(1.0, abs(self.reference))
        return sum(end > self.reference + slack for end in ends), len(ends)

    def line(self, label: str, role: str | None = None) -> Line | None:
        """The line of this label that has runs, if there is one."""
        found = (line for line in self.lines if line.label == label and line.runs and role in (None, line.role))
        return next(found, None)

    def with_roles(self, *roles: str) -> list[Line]:
        """Lines with these roles that have runs."""
        return [line for line in self.lines if line.role in roles and line.runs]


@dataclass
class StudyResults:
    """A study with its problems."""

    name: str
    study: dict[str, Any]
    quick: bool
    missing: dict[str, str]
    subjects: list[SubjectResults]
    grid: list[dict[str, Any]]
    grid_seeds: int = 1
    grid_epochs: int | None = None  # of a point of the grid; None is the study's budget

    @property
    def runs(self) -> int:
        """Finished jobs."""
        return sum(len(line.runs) for subject in self.subjects for line in subject.lines)

    @property
    def wanted(self) -> int:
        """Jobs that were asked for."""
        return sum(line.wanted for subject in self.subjects for line in subject.lines)

    @property
    def wall_time(self) -> float:
        """Seconds of all its jobs together."""
        return sum(run.wall_time for subject in self.subjects for line in subject.lines for run in line.runs)

    def subject(self, data: str) -> SubjectResults | None:
        """The problem on a data set, if it was run."""
        return next((subject for subject in self.subjects if subject.data == data), None)


@dataclass
class Results:
    """All studies of a folder."""

    studies: dict[str, StudyResults]
    machine: dict[str, str]
    sessions: list[dict[str, Any]]

    def study(self, name: str) -> StudyResults | None:
        """A study, if it was run."""
        return self.studies.get(name)

    def variant(self, suffix: str) -> Results:
        """The studies that were run with another choice, under the names of those that they vary."""
        end = f"-{suffix}"
        studies = {name.removesuffix(end): study for name, study in self.studies.items() if name.endswith(end)}
        return Results(studies, self.machine, self.sessions)

    def subjects(self) -> Iterator[tuple[StudyResults, SubjectResults]]:
        """All problems of all studies."""
        for study in self.studies.values():
            for subject in study.subjects:
                yield study, subject


def read(folder: Path) -> Results:
    """Everything that is finished in a folder.

    Raises
    ------
    ValueError
        If no study was ever begun there.
    """
    known = read_run(folder)
    if not known["studies"]:
        raise ValueError(f"--out {folder}: nothing was run there yet (trsvr paper run)")
    load = _loader(folder / "results")
    entries = sorted(known["studies"].items(), key=lambda pair: rank(pair[0]))
    studies = {name: _study(name, entry, load) for name, entry in entries}
    return Results(studies, known.get("machine", {}), known["sessions"])


def _study(name: str, entry: dict[str, Any], load: Callable[[str, int, int], Run | None]) -> StudyResults:
    subjects = {identity: SubjectResults(facts) for identity, facts in entry["problems"].items()}
    lines: dict[tuple[str, str, str], Line] = {}
    tuned = entry.get("tuned", {"jobs": [], "grid": []})
    for job in [*entry["jobs"], *tuned["jobs"]]:
        if job["problem"] not in subjects:
            continue
        key = (job["problem"], job["label"], job["role"])
        if key not in lines:
            subject = subjects[job["problem"]]
            made = Line(job["label"], job["role"], job["group"], job["solver"], job["settings"], subject)
            lines[key] = made
            subject.lines.append(made)
        lines[key].wanted += 1
        run = load(job["job"], job["seed"], subjects[job["problem"]].facts["rows"])
        if run is not None:
            lines[key].runs.append(run)
    grid = [point for point in tuned["grid"] if point["problem"] in subjects]
    found = list(subjects.values())
    budget = (tuned.get("seeds", 1), tuned.get("epochs"))
    return StudyResults(name, entry["study"], entry["quick"], entry["missing"], found, grid, *budget)


def _loader(folder: Path) -> Callable[[str, int, int], Run | None]:
    import pyarrow.parquet as pq

    @functools.cache
    def load(identity: str, seed: int, n_samples: int) -> Run | None:
        path = folder / f"{identity}.parquet"
        if not path.exists():
            return None
        table = pq.read_table(path, columns=[*_COLUMNS, *_OF_THE_RUN])
        columns = {name: np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64) for name in _COLUMNS}
        columns["passes_without"] = without_products(columns, n_samples)
        return Run(seed, columns, *(table[name][-1].as_py() for name in _OF_THE_RUN))

    return load


def without_products(columns: dict[str, Vector], n_samples: int) -> Vector:
    """Passes if products with the Hessian were free.

    A product is counted on the rows of its batch: those of the curvature in the adaptive mode, else those of the step.
    """
    rows = np.where(columns["curvature_rows"] > 0, columns["curvature_rows"], columns["batch_size"])
    spent = np.cumsum(np.diff(columns["hessian_products"], prepend=0.0) * rows)
    return (columns["gradient_evaluations"] - spent) / n_samples
