"""Generalised linear models beside glum and scikit-learn, at the same objective.

    python benchmarks/glm.py                       every set at full size: about a quarter of an hour, 6 GB of memory
    python benchmarks/glm.py --part 0.05           the same with fewer rows
    python benchmarks/glm.py --sets onehot-csr,dense --families poisson

Sets: the one-hot table (600 000 rows, twelve categorical columns of 5 to 60 levels, ten numeric ones) as CSR and dense;
500 000 × 30 dense; 100 000 × 1000 sparse. Counts are Poisson with an exposure, severities are Gamma. Each estimator
gets the largest tol of 1e-2, 1e-3, … at which its objective is within 1e-9 of the smallest known, relatively, and is
then timed with it: the fastest of a few runs of ``fit`` from arrays in memory, on all allowed cores, or the one run
where it takes long; what is compiled has been compiled before. A solver that is not there yet after ``--patience``
seconds gets no smaller tol, and its time is a lower bound. "glum categorical" gets the one-hot table as a data frame
of categories, which is another matrix. scikit-learn has no offset: it gets rates with the exposure as weights, which
is the same objective. Then covariance and summary without a penalty's help, in units of one pass over the data.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import glum
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.linear_model import GammaRegressor, PoissonRegressor

import trsvr
from trsvr.inference import covariance, summary
from trsvr.problems import L2, Gamma, LinearModel, Poisson
from trsvr.sklearn import TRSVRRegressor

SETS = ("onehot-csr", "onehot-dense", "dense", "sparse")
TOLERANCES = 10.0 ** -np.arange(2, 13)
WANTED, ALPHA = 1e-9, 1e-4
# Seconds of a fit that is not repeated.
LONG = 4.0


@dataclass
class Task:
    """Data of one set and one family."""

    X: Any
    y: np.ndarray
    offset: np.ndarray | None
    family: str
    frame: pd.DataFrame | None = None


def one_hot(rows: int) -> tuple[pd.DataFrame, Any, np.ndarray, np.random.Generator]:
    """The table of the recipe: as a frame of categories, and as CSR."""
    rng = np.random.default_rng(0)
    levels = np.geomspace(5, 60.5, 12).astype(int)
    columns: dict[str, Any] = {}
    parts: list[Any] = []
    for k, count in enumerate(levels):
        shares = 1.0 / np.arange(1, count + 1)
        codes = rng.choice(count, rows, p=shares / shares.sum())
        columns[f"c{k}"] = pd.Categorical.from_codes(codes, [f"l{j}" for j in range(count)])
        ones = (np.ones(rows), codes, np.arange(rows + 1))
        parts.append(scipy.sparse.csr_array(ones, shape=(rows, count)))
    numeric = rng.normal(size=(rows, 10))
    X = scipy.sparse.csr_array(scipy.sparse.hstack([scipy.sparse.csr_array(numeric), *parts], format="csr"))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    frame = pd.DataFrame({**{f"n{k}": numeric[:, k] for k in range(10)}, **columns})
    return frame, X, 0.3 * rng.normal(size=X.shape[1]), rng


def make(name: str, family: str, part: float) -> Task:
    frame = None
    if name.startswith("onehot"):
        frame, X, coef, rng = one_hot(int(600_000 * part))
        X = X.toarray() if name.endswith("dense") else X
    else:
        rng = np.random.default_rng(1)
        n, d = (int(500_000 * part), 30) if name == "dense" else (int(100_000 * part), 1000)
        X = (
            rng.normal(size=(n, d))
            if name == "dense"
            else scipy.sparse.random_array((n, d), density=0.02, rng=rng, format="csr")
        )
        if name == "sparse":
            X = scipy.sparse.csr_array(X)
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        coef = 0.3 * rng.normal(size=d)
    margins = np.asarray(X @ coef)
    if family == "gamma":
        mean = np.exp(margins - margins.mean())
        return Task(X, rng.gamma(2.0, mean / 2.0), None, family, frame)
    exposure = rng.uniform(0.1, 1.0, len(margins))
    mean = np.exp(margins) * exposure
    mean *= 0.2 / mean.mean()
    return Task(X, rng.poisson(mean).astype(float), np.log(exposure), family, frame)


# --------------------------------------------------------------------------------------------------------- the solvers


def ours(task: Task, tol: float) -> Any:
    model = TRSVRRegressor(alpha=ALPHA, loss=task.family, tol=tol)
    return lambda: model.fit(task.X, task.y, offset=task.offset)


def glums(task: Task, tol: float, X: Any = None) -> Any:
    options = {
        "family": task.family,
        "link": "log",
        "alpha": ALPHA,
        "l1_ratio": 0,
        "gradient_tol": tol,
        "max_iter": 1000,
    }
    model = glum.GeneralizedLinearRegressor(**options)
    return lambda: model.fit(task.X if X is None else X, task.y, offset=task.offset)


def glums_categories(task: Task, tol: float) -> Any:
    return glums(task, tol, task.frame)


def scikits(solver: str) -> Callable[[Task, float], Any]:
    def make_one(task: Task, tol: float) -> Any:
        kind = PoissonRegressor if task.family == "poisson" else GammaRegressor
        if task.offset is None:
            model = kind(alpha=ALPHA, solver=solver, tol=tol, max_iter=1000)
            return lambda: model.fit(task.X, task.y)
        exposure = np.exp(task.offset)
        model = kind(alpha=ALPHA * len(exposure) / exposure.sum(), solver=solver, tol=tol, max_iter=1000)
        rates = task.y / exposure
        return lambda: model.fit(task.X, rates, sample_weight=exposure)

    return make_one


SOLVERS: dict[str, Callable[[Task, float], Any]] = {
    "trsvr": ours,
    "glum": glums,
    "glum categorical": glums_categories,
    "newton-cholesky": scikits("newton-cholesky"),
    "lbfgs": scikits("lbfgs"),
}


def objective(task: Task, model: Any) -> float:
    loss = Poisson() if task.family == "poisson" else Gamma()
    coef = np.asarray(model.coef_)
    margins = np.asarray(task.X @ coef) + model.intercept_ + (0.0 if task.offset is None else task.offset)
    return float(loss.value(margins, task.y).mean() + 0.5 * ALPHA * coef @ coef)


def seconds_of(call: Callable[[], Any], runs: int) -> tuple[float, float, Any]:
    """The fastest run: on the clock, on all processors; and what it returned."""
    best = (np.inf, np.inf)
    for _ in range(runs):
        begun, used = time.perf_counter(), time.process_time()
        found = call()
        best = min(best, (time.perf_counter() - begun, time.process_time() - used))
    return *best, found


def measure(task: Task, runs: int, patience: float) -> None:
    lowest = objective(task, ours(task, 1e-9)())
    rows = []
    for name, solver in SOLVERS.items():
        if name == "glum categorical" and task.frame is None:
            continue
        if name == "trsvr":
            solver(task, 1e-2)()  # what is compiled is compiled
        for tol in TOLERANCES:
            clock, used, model = seconds_of(solver(task, tol), 1)
            if name == "glum categorical":  # in the order of the columns
                names = [f"n{k}" for k in range(10)]
                order = {column: k for k, column in enumerate(model.feature_names_)}
                names += [f"c{k}[l{j}]" for k in range(12) for j in range(len(task.frame[f"c{k}"].cat.categories))]  # type: ignore[index]
                model.coef_ = np.array([model.coef_[order[column]] for column in names if column in order])
            gap = objective(task, model) / lowest - 1.0
            if gap <= WANTED or clock > patience:
                break
        if gap <= WANTED and clock < LONG:
            clock, used, _ = seconds_of(solver(task, tol), runs)
        rows.append((name, tol, gap, clock, used))
        first, sign = rows[0], " " if gap <= WANTED else ">"
        print(
            f"  {name:18s} tol {tol:7.0e}  gap {gap:9.1e} {sign}{clock:8.3f} s  {used:8.3f} s of processors  "
            f"{clock / first[3]:6.2f} x  {used / first[4]:6.2f} x",
            flush=True,
        )


def errors(task: Task, runs: int) -> None:
    """Covariance and summary, in passes; the one-hot table without its first levels, where nothing is penalised."""
    X = task.X
    if task.frame is not None:
        sizes = [len(task.frame[f"c{k}"].cat.categories) for k in range(12)]
        firsts = 10 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        kept = np.setdiff1d(np.arange(X.shape[1]), firsts)
        X = scipy.sparse.csr_array(X[:, kept]) if scipy.sparse.issparse(X) else np.ascontiguousarray(X[:, kept])
    loss = Poisson() if task.family == "poisson" else Gamma()
    problem = LinearModel(X, task.y, loss, L2(0.0), intercept=True, offset=task.offset)
    result = trsvr.minimize(problem)
    summary(problem, result)
    one_pass = seconds_of(lambda: problem.value_and_gradient(result.x), 7)[0]
    for name, call in (
        ("covariance", lambda: covariance(problem, result)),
        ("covariance HC1", lambda: covariance(problem, result, kind="HC1")),
        ("summary", lambda: summary(problem, result)),
    ):
        clock = seconds_of(call, max(runs, 7))[0]
        print(f"  {name:18s} {clock:8.3f} s, {clock / one_pass:5.1f} passes of {one_pass:.4f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--families", default="poisson,gamma")
    parser.add_argument("--part", type=float, default=1.0, help="part of the rows")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--patience", type=float, default=30.0, help="seconds after which a solver is given up")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # some solvers do not converge at some tol
    for name in arguments.sets.split(","):
        for family in arguments.families.split(","):
            task = make(name, family, arguments.part)
            print(f"{name}, {family}: {task.X.shape[0]} x {task.X.shape[1]}", flush=True)
            measure(task, arguments.runs, arguments.patience)
            errors(task, arguments.runs)


if __name__ == "__main__":
    main()
