"""One job, run and put into the bytes of its file: this is what a worker does. The caller writes the file."""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any

import numpy as np

from trsvr.engine import Result, minimize
from trsvr.experiments.jobs import Job
from trsvr.experiments.references import polish
from trsvr.solvers import BY_NAME

#: Columns in which two runs of the same job may differ.
TIMING_COLUMNS = ("time", "wall_time")
#: Our names of the trace's columns and benchopt's.
_BENCHOPT = {"value": "objective_value", "seconds": "time"}
_STILL_EPOCHS = 10
_STILL_BITS = 8 * np.finfo(float).eps


class AtFloor:
    """Callback that ends a run at the rounding floor.

    For ten epochs the value has been the same to its last bits and the gradient has not become smaller: what follows
    would be noise. Noise of a method that plateaus is larger than that, so it never ends a run early.
    """

    def __init__(self) -> None:
        self.values: deque[float] = deque(maxlen=_STILL_EPOCHS + 1)
        self.smallest = np.inf
        self.since = 0

    def __call__(self, result: Result) -> None:
        """Look at the newest row."""
        row = result.rows[-1]
        self.values.append(row["value"])
        self.since += 1
        if row["gradient_norm_sq"] < self.smallest:
            self.smallest, self.since = row["gradient_norm_sq"], 0
        full = len(self.values) > _STILL_EPOCHS and self.since >= _STILL_EPOCHS
        if full and max(self.values) - min(self.values) <= _STILL_BITS * abs(row["value"]) and not row["rejected"]:
            raise StopIteration


def run_job(job: Job, threads: int | None) -> tuple[bytes, float]:
    """Run a job; returns the content of its Parquet file and the seconds it took.

    Parameters
    ----------
    job : Job
    threads : int or None
        For full passes; results do not depend on it.
    """
    if job.subject.identity() != job.problem_id:
        raise ValueError(f"{job.subject.data}: its data here are not those that the study was planned with")
    begun = time.perf_counter()
    problem = job.subject.problem()
    solver = BY_NAME[job.solver](**json.loads(job.settings))
    random = np.random.default_rng(job.seed)
    result = minimize(
        problem,
        solver,
        x0=random.standard_normal(problem.n_parameters) if job.start == "normal" else None,
        max_epochs=job.epochs,
        max_passes=job.passes,
        tol=None,
        seed=job.seed,
        callback=AtFloor(),
        threads=1 if job.timed else threads,
    )
    basin = np.nan
    if not job.subject.objective.is_convex(problem.n_features) and np.isfinite(result.value):
        # Which basin has it come to? The one that a descent from here ends in.
        basin = polish(problem, result.x, threads).value
    seconds = time.perf_counter() - begun
    return _packed(job, result, basin, seconds), seconds


def _packed(job: Job, result: Result, basin: float, seconds: float) -> bytes:
    """The trace as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = result.rows
    columns: dict[str, Any] = {
        "objective_name": f"logistic[l2={job.subject.objective.l2:g}]",
        "dataset_name": job.subject.data,
        "solver_name": job.name,
        "idx_rep": job.seed,
        "sampling_strategy": "callback",
        "stop_val": [int(row["epoch"]) for row in rows],
    }
    for name in rows[0]:
        columns[_BENCHOPT.get(name, name)] = [float(row[name]) for row in rows]
    for name in ("epoch", "steps", "gradient_evaluations", "hessian_products"):
        columns[name] = [int(row[name]) for row in rows]
    columns |= {
        "basin_value": basin,
        "status": result.status.name.lower(),
        "wall_time": seconds,
        "seed": job.seed,
        "job": job.identity,
        **{f"p_solver_{key}": value for key, value in json.loads(job.settings).items()},
        "p_obj_l2": job.subject.objective.l2,
        "p_obj_gamma": job.subject.objective.strength(job.subject.dataset().n_features),
        "p_obj_a": job.subject.objective.a,
    }
    full = {name: value if isinstance(value, list) else [value] * len(rows) for name, value in columns.items()}
    table = pa.table(full).replace_schema_metadata({"trsvr.job": json.dumps(job.facts(), sort_keys=True)})
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    packed: bytes = out.getvalue().to_pybytes()
    return packed
