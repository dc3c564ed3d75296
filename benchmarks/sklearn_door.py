"""The scikit-learn door beside every solver of scikit-learn's LogisticRegression, at the same objective.

    python benchmarks/sklearn_door.py                          every set: about ten minutes
    python benchmarks/sklearn_door.py --quick                  the small ones: about one minute
    python benchmarks/sklearn_door.py --sets covtype.scale,ijcnn1 [--C 1.0] [--intercept]
    python benchmarks/sklearn_door.py --what small             fixed costs: whole fits of small sets, all defaults
    python benchmarks/sklearn_door.py --what path              ten strengths, five folds: the CV estimators

Time is that of ``fit``, from arrays in memory. Each estimator gets the largest tol of 1e-2, 1e-3, … at which its
objective is within 1e-9 of the smallest known, relatively, and is then timed with it: the fastest of a few runs, with
one BLAS thread and with all. An estimator whose run takes longer than the patience is given up (–). Without an
intercept by default, since liblinear penalises it. Data sets are those of `trsvr.datasets`; set TRSVR_DATA_DIR.
"newsgroups" is scikit-learn's fetch_20newsgroups_vectorized, where it has been downloaded before; "text20" is
generated: twenty topics over a Zipf vocabulary, unit rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import logsumexp
from sklearn import datasets as toy
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from trsvr import datasets
from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV

BINARY = ("covtype.scale", "ijcnn1", "cod-rna", "phishing", "mushrooms", "madelon", "rcv1")
MULTINOMIAL = ("digits", "newsgroups", "text20")
QUICK = ("ijcnn1", "phishing", "mushrooms", "digits")
PATH = ("breast_cancer", "phishing", "digits")
SOLVERS = ("lbfgs", "newton-cholesky", "newton-cg", "liblinear", "sag", "saga")
TOLERANCES = 10.0 ** -np.arange(2, 13)
WANTED = 1e-9


def load(name: str) -> tuple[Any, np.ndarray]:
    if name in ("iris", "breast_cancer", "wine", "digits"):
        X, y = getattr(toy, f"load_{name}")(return_X_y=True)
        return (X / 16.0 if name == "digits" else np.ascontiguousarray(StandardScaler().fit_transform(X))), y
    if name == "text20":
        return text_of_topics()
    if name == "newsgroups":
        bunch = toy.fetch_20newsgroups_vectorized(download_if_missing=False)
        return bunch.data, bunch.target
    dataset = datasets.load(name)
    return dataset.X, np.asarray(dataset.y)


def text_of_topics(rows: int = 11_000, words: int = 20_000, topics: int = 20) -> tuple[Any, np.ndarray]:
    """Bags of about a hundred words: each topic likes some words ten times more than the others do."""
    rng = np.random.default_rng(0)
    frequency = 1.0 / np.arange(10, words + 10)
    likes = np.where(rng.random((topics, words)) < 0.02, 10.0, 1.0) * frequency
    likes /= likes.sum(axis=1, keepdims=True)
    y = rng.integers(0, topics, rows)
    lengths = rng.geometric(1 / 100, rows) + 10
    columns = np.concatenate([rng.choice(words, n, p=likes[topic]) for n, topic in zip(lengths, y, strict=True)])
    counts = scipy.sparse.csr_array(
        (np.ones(columns.size), (np.repeat(np.arange(rows), lengths), columns)), shape=(rows, words)
    )
    counts.data = np.log1p(counts.data)
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    unit = scipy.sparse.csr_array(scipy.sparse.diags(1.0 / norms) @ counts)
    unit.indices, unit.indptr = unit.indices.astype(np.int32), unit.indptr.astype(np.int32)  # sag wants these
    return unit, y


def objective(model: Any, X: Any, places: np.ndarray, C: float) -> float:
    scores = np.asarray(X @ model.coef_.T) + model.intercept_
    if scores.shape[1] == 1:
        losses = np.logaddexp(0.0, np.where(places == 1, -scores[:, 0], scores[:, 0]))
    else:
        losses = logsumexp(scores, axis=1) - scores[np.arange(len(places)), places]
    return float(C * losses.sum() + 0.5 * np.sum(model.coef_**2))


def estimators(
    X: Any, classes: int, C: float, intercept: bool, solvers: list[str]
) -> dict[str, Callable[[float], Any]]:
    """Name to a function of tol."""
    common: dict[str, Any] = {"C": C, "fit_intercept": intercept}
    made: dict[str, Callable[[float], Any]] = {"trsvr": lambda tol: TRSVRClassifier(tol=tol, **common)}
    for solver in solvers:
        if solver == "newton-cholesky" and X.shape[1] * (classes if classes > 2 else 1) > 2000:
            continue
        if solver == "liblinear" and (classes > 2 or intercept):
            continue
        made[solver] = lambda tol, solver=solver: LogisticRegression(
            tol=tol, solver=solver, max_iter=3000, random_state=0, **common
        )
    return made


def timed(model: Any, X: Any, y: np.ndarray) -> float:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.perf_counter() - begun


def to_the_goal(
    make: Callable[[float], Any], X: Any, y: np.ndarray, value: Callable[[Any], float], best: float, patience: float
) -> tuple[float, float]:
    """Seconds and the tol that was needed; infinite where the goal is out of reach."""
    for tol in TOLERANCES:
        model = make(tol)
        seconds = timed(model, X, y)
        if value(model) <= best * (1 + WANTED):
            for threads in (None, 1):
                with threadpool_limits(threads):
                    for _ in range(5 if seconds < 0.2 else 2 if seconds < patience / 4 else 0):
                        seconds = min(seconds, timed(make(tol), X, y))
            return seconds, float(tol)
        if seconds > patience:
            break
    return float("inf"), float("nan")


def table(names: list[str], C: float, intercept: bool, patience: float, solvers: list[str]) -> None:
    print(
        f"| set, C = {C:g} | "
        + " | ".join(("trsvr, ms (tol)", *(f"{s}, ×" for s in SOLVERS), "fastest over trsvr"))
        + " |"
    )
    print("|---|" + "---|" * (len(SOLVERS) + 2))
    for name in names:
        try:
            X, y = load(name)
        except OSError:
            print(f"<!-- {name} is not on this machine -->")
            continue
        classes, places = np.unique(y, return_inverse=True)

        def value(model: Any, X: Any = X, places: np.ndarray = places) -> float:
            return objective(model, X, places, C)

        thorough = TRSVRClassifier(C=C, fit_intercept=intercept, tol=1e-9)
        timed(thorough, X, y)  # compiles, too
        best = value(thorough)
        found = {}
        for peer, make in estimators(X, len(classes), C, intercept, solvers).items():
            allowed = patience if peer == "trsvr" else max(0.5, min(patience, 20 * found["trsvr"][0]))
            found[peer] = to_the_goal(make, X, y, value, best, allowed)
        ours, tol = found["trsvr"]
        ratios = {s: found[s][0] / ours for s in SOLVERS if s in found and np.isfinite(found[s][0])}
        cells = [f"{ratios[s]:.2f}" if s in ratios else "–" for s in SOLVERS]
        kind = "CSR" if scipy.sparse.issparse(X) else "dense"
        shape = f"{X.shape[0]} × {X.shape[1]}" + (f", {len(classes)} classes" if len(classes) > 2 else "")
        least = f"{min(ratios.values()):.2f}" if ratios else "–"
        row = [f"{name} {shape}, {kind}", f"{1e3 * ours:.1f} ({tol:.0e})", *cells, f"**{least}**"]
        print("| " + " | ".join(row) + " |", flush=True)


def small() -> None:
    """Whole fits as a user writes them, defaults only."""
    print(
        "| set | `TRSVRClassifier()`, ms | iterations | `LogisticRegression()`, × | its gap | tol 1e-6, × | its gap |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = load(name)
        times, models = [], []
        for make in (
            TRSVRClassifier,
            LogisticRegression,
            lambda: LogisticRegression(tol=1e-6, max_iter=10_000),
        ):
            timed(make(), X, y)
            models.append(make())
            times.append(min(timed(models[-1], X, y) for _ in range(9)))
        ours, *gaps = (objective(model, X, y, 1.0) for model in models)
        one, two = (f"{t / times[0]:.2f} | {gap / ours - 1:.0e}" for t, gap in zip(times[1:], gaps, strict=True))
        print(f"| {name} | {1e3 * times[0]:.1f} | {models[0].n_iter_[0]} | {one} | {two} |", flush=True)


def path(names: list[str]) -> None:
    """The search people run most."""
    print("| set | `TRSVRClassifierCV()`, s | `LogisticRegressionCV()`, × | with newton-cholesky, × |")
    print("|---|---|---|---|")
    for name in names:
        X, y = load(name)
        ours = TRSVRClassifierCV(scoring="neg_log_loss")
        timed(ours, X, y)
        seconds = min(timed(ours, X, y) for _ in range(2))
        ratios = []
        for solver in ("lbfgs", "newton-cholesky"):
            peer = LogisticRegressionCV(scoring="neg_log_loss", solver=solver, max_iter=1000)
            ratios.append(f"{timed(peer, X, y) / seconds:.1f}")
        print(f"| {name} | {seconds:.2f} | " + " | ".join(ratios) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=("table", "small", "path"), default="table")
    parser.add_argument("--sets", default="", help="names, separated by commas")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--solvers", default=",".join(SOLVERS), help="which of scikit-learn's")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--intercept", action="store_true")
    parser.add_argument("--patience", type=float, default=8.0, help="seconds after which a run is the last of its kind")
    arguments = parser.parse_args()
    if arguments.what == "small":
        small()
    elif arguments.what == "path":
        path(arguments.sets.split(",") if arguments.sets else list(PATH))
    else:
        chosen = arguments.sets.split(",") if arguments.sets else list(BINARY + MULTINOMIAL)
        names = list(QUICK) if arguments.quick else chosen
        table(names, arguments.C, arguments.intercept, arguments.patience, arguments.solvers.split(","))


if __name__ == "__main__":
    main()
