"""Small and middling data: whole fits beside scikit-learn's, and `minimize` beside another version of this library.

    TRSVR_DATA_DIR=... python benchmarks/small_data.py [fits] [cv] [versions --other SOURCES] [--pairs 30]

Both sides of a comparison take turns on the same quiet machine; times are medians, and a ratio is the other side's time
over ours. ``fits``: estimators with all their defaults on standardised data (StandardScaler), and 1000 × 24 generated
rows, not standardised, where each side has the largest tol of 0.1, 0.01, … that comes within 1e-9 of the smallest
objective. ``cv``: the cross-validated ones, all defaults but max_iter=1000 of LogisticRegressionCV. ``versions``: a
process for each version, SOURCES being the src folder of another checkout; l2 = 1e-4, whole runs and one iteration.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets as toy
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

SETS = ("ijcnn1", "cod-rna", "phishing", "breast_cancer")


def standardised(name: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = getattr(toy, f"load_{name}")(return_X_y=True)
    return (X / 16.0 if name == "digits" else np.ascontiguousarray(StandardScaler().fit_transform(X))), y


def credit(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers around three that depend on each other a little, as answers to questions do."""
    random = np.random.default_rng(seed)
    X = np.round(2 * random.normal(size=(1000, 24)) @ (np.eye(24) + 0.06 * random.normal(size=(24, 24)))) + 3.0
    score = X @ (0.3 * random.normal(size=24))
    score -= np.median(score)
    return X, np.where(2.0 * score / score.std() + random.logistic(size=1000) > 0.8, 1, 0)


def seconds_of(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def in_turn(ours: Callable[[], Any], theirs: Callable[[], Any], pairs: int) -> tuple[float, float]:
    """Median seconds of both."""
    ours(), theirs()
    times = [(seconds_of(ours), seconds_of(theirs)) for _ in range(pairs)]
    return statistics.median(first for first, _ in times), statistics.median(second for _, second in times)


def line(what: str, peer: str, ours: float, theirs: float) -> None:
    print(f"| {what} | {peer} | {1e3 * ours:.2f} | {1e3 * theirs:.2f} | **{theirs / ours:.2f}** |", flush=True)


def fits(pairs: int) -> None:
    from trsvr.sklearn import TRSVRClassifier

    for name in ("iris", "wine", "breast_cancer"):
        X, y = standardised(name)
        times = in_turn(lambda: TRSVRClassifier().fit(X, y), lambda: LogisticRegression().fit(X, y), pairs)  # noqa: B023
        line(f"{name}, defaults", "LogisticRegression()", *times)
    X, y = credit()

    def objective(model: Any) -> float:
        scores = X @ model.coef_[0] + model.intercept_[0]
        return float(10.0 * np.logaddexp(0.0, np.where(y == 1, -scores, scores)).sum() + 0.5 * np.sum(model.coef_**2))

    smallest = objective(TRSVRClassifier(C=10.0, tol=1e-9).fit(X, y))
    made = []
    for kind, more in ((TRSVRClassifier, {}), (LogisticRegression, {"solver": "newton-cholesky"})):
        for tol in 10.0 ** -np.arange(1, 10):
            made.append((kind, {"C": 10.0, "tol": tol, **more}))
            if objective(kind(**made[-1][1]).fit(X, y)) <= smallest * (1.0 + 1e-9):
                break
            made.pop()
    (ours, our_options), (theirs, their_options) = made
    times = in_turn(lambda: ours(**our_options).fit(X, y), lambda: theirs(**their_options).fit(X, y), pairs)
    line("1000 × 24 to 1e-9, C = 10", "newton-cholesky", *times)


def cross_validated(pairs: int) -> None:
    from trsvr.sklearn import TRSVRClassifierCV

    for name, solver in (("breast_cancer", "newton-cholesky"), ("digits", "lbfgs")):
        X, y = standardised(name)

        def peer(solver: str = solver) -> Any:
            return LogisticRegressionCV(solver=solver, max_iter=1000)

        times = in_turn(lambda: TRSVRClassifierCV().fit(X, y), lambda: peer().fit(X, y), pairs)  # noqa: B023
        line(f"{name}, `TRSVRClassifierCV()`", f'LogisticRegressionCV("{solver}")', *times)
        pairs = max(pairs // 4, 2)


# ------------------------------------------------------------------------------------------------- another version


def answer() -> None:
    """Read names of sets, and print seconds and iterations of a run on each."""
    import trsvr

    problems: dict[str, Any] = {}
    for name in map(str.strip, sys.stdin):
        if name not in problems:
            X, y = standardised(name) if name == "breast_cancer" else (
                (found := trsvr.datasets.load(name)).X, np.asarray(found.y, dtype=np.float64)
            )  # fmt: skip
            problems[name] = trsvr.problems.logistic(X, y, l2=1e-4)
            trsvr.minimize(problems[name])
        begun = time.perf_counter()
        result = trsvr.minimize(problems[name])
        print(time.perf_counter() - begun, result.epochs, flush=True)


class Version:
    """A process that works with the sources in a folder."""

    def __init__(self, sources: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "answer"],
            env={**os.environ, "PYTHONPATH": str(sources)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str) -> tuple[float, int]:
        """Seconds and iterations of a run on this set."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        seconds, iterations = self._process.stdout.readline().split()
        return float(seconds), int(iterations)

    def end(self) -> None:
        """No more questions."""
        self._process.communicate()


def versions(other: Path, pairs: int) -> None:
    sides = [Version(Path(__file__).parents[1] / "src"), Version(other)]
    for name in SETS:
        for side in sides:
            side.ask(name)
        found = [[side.ask(name) for side in sides] for _ in range(pairs)]
        (ours, rounds), (theirs, their_rounds) = (
            (statistics.median(pair[k][0] for pair in found), found[0][k][1]) for k in range(2)
        )
        line(f"{name}, `minimize`, {rounds} iterations", f"the other version, {their_rounds}", ours, theirs)
        line(f"{name}, one iteration", "the other version", ours / rounds, theirs / their_rounds)
    for side in sides:
        side.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=[], help="fits, cv, versions")
    parser.add_argument("--other", type=Path, help="the src folder of another checkout")
    parser.add_argument("--pairs", type=int, default=30)
    arguments = parser.parse_args()
    if arguments.what == ["answer"]:
        answer()
        return
    warnings.simplefilter("ignore")
    print("| what | beside | ours, ms | theirs, ms | × |\n|---|---|---:|---:|---:|")
    if not arguments.what or "fits" in arguments.what:
        fits(arguments.pairs)
    if not arguments.what or "cv" in arguments.what:
        cross_validated(max(arguments.pairs // 4, 2))
    if arguments.other is not None:
        versions(arguments.other, arguments.pairs)


if __name__ == "__main__":
    main()
