"""How long an epoch of our SAGA and SVRG takes, beside scikit-learn's saga and lightning's SVRG.

    python benchmarks/baselines.py [--markdown FILE] [--small] [--lightning PYTHON]

An epoch is N steps on one row each; SVRG's also has the full gradient at its reference point. Every ratio is of two
times measured in this run, in turn, so that a noisy machine disturbs both alike; times are the fastest of several.
Theirs is the difference of two fits with different numbers of epochs, so that checks and copies of the data do not
count; ours is the time between two rows of the trace, where the evaluation for the curve does not count.

lightning needs older tools to build, so it is looked for in an interpreter of its own, given by ``--lightning``.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.sparse
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import trsvr
import trsvr.theory
from trsvr.datasets import covtype_like, synthetic, text_like

L2 = 1e-4

# Runs in lightning's interpreter: seconds of an epoch of N inner steps and a full gradient.
LIGHTNING = """
import json, sys, time
import numpy as np, scipy.sparse
from lightning.classification import SVRGClassifier
folder, l2, few, many, repetitions = sys.argv[1], *map(float, sys.argv[2:])
y = np.load(folder + "/y.npy")
try:
    X = np.load(folder + "/X.npy")
except OSError:
    X = scipy.sparse.load_npz(folder + "/X.npz")
    X = scipy.sparse.csr_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)
step = float(np.load(folder + "/step.npy"))
def fit(epochs):
    solver = SVRGClassifier(loss="log", alpha=l2, eta=step, n_inner=1.0, max_iter=int(epochs), tol=0.0, random_state=0)
    begun = time.perf_counter()
    solver.fit(X, y)
    return time.perf_counter() - begun
short, long = [], []
for _ in range(int(repetitions)):
    short.append(fit(few))
    long.append(fit(many))
print(json.dumps((min(long) - min(short)) / (many - few)))
"""


def sets(small: bool) -> list[tuple[str, Any, Any]]:
    """Name, rows and labels of the data sets; scikit-learn takes compressed rows with 32-bit indices only."""
    divisor = 10 if small else 1
    tall, text = covtype_like(581_012 // divisor), text_like(20_000 // divisor, 47_000)
    square = synthetic(80_000 // divisor)
    found = [("synthetic, dense", square.X, square.y), ("covtype-like, dense", tall.X, tall.y)]
    for name, X, y in (
        ("covtype-like, CSR", scipy.sparse.csr_array(tall.X), tall.y),
        ("text-like, CSR", text.X, text.y),
    ):
        parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
        found.append((name, scipy.sparse.csr_array(parts, X.shape), y))
    return found


def ours(problem: Any, solver: Any, epochs: int) -> float:
    """Seconds of the fastest epoch but the first, which fills SAGA's table."""
    trace = trsvr.minimize(problem, solver, max_epochs=epochs + 1, tol=None).trace
    return float(np.diff(trace["seconds"])[1:].min())


def scikit_learn(X: Any, y: Any, epochs: int) -> float:
    """Seconds of a fit with so many epochs."""
    model = LogisticRegression(
        C=1.0 / (L2 * len(y)), solver="saga", max_iter=epochs, tol=0.0, fit_intercept=False, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        begun = time.perf_counter()
        model.fit(X, y)
        return time.perf_counter() - begun


def lightning(python: str, X: Any, y: Any, step: float, few: int, many: int, repetitions: int) -> float | None:
    """Seconds of an epoch of lightning's SVRG, or None where it does not run."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "y.npy", y)
        np.save(Path(folder) / "step.npy", step)
        if scipy.sparse.issparse(X):
            scipy.sparse.save_npz(Path(folder) / "X.npz", X)
        else:
            np.save(Path(folder) / "X.npy", X)
        numbers = map(str, (L2, few, many, repetitions))
        done = subprocess.run([python, "-c", LIGHTNING, folder, *numbers], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-500:])
        return None
    return float(json.loads(done.stdout))


def measure(report: Callable[[str], None], small: bool, python: str | None) -> None:
    few, many, repetitions = 2, 6, 5
    report("| data | rows × columns | ours SAGA, ms | ours SVRG, ms | scikit-learn saga, ms | lightning SVRG, ms ", "")
    report("| saga ÷ SAGA | saga ÷ SVRG | lightning ÷ SVRG |")
    report("|---|---|---|---|---|---|---|---|---|")
    for name, X, y in sets(small):
        problem = trsvr.problems.logistic(X, y, l2=L2)
        svrg = trsvr.SVRG(inner_steps=problem.n_samples)
        times: dict[str, list[float]] = {"saga": [], "svrg": [], "few": [], "many": []}
        for _ in range(repetitions):
            times["saga"].append(ours(problem, trsvr.SAGA(), many - few))
            times["svrg"].append(ours(problem, svrg, many - few))
            times["few"].append(scikit_learn(X, y, few))
            times["many"].append(scikit_learn(X, y, many))
        saga, svrg_time = min(times["saga"]), min(times["svrg"])
        theirs = (min(times["many"]) - min(times["few"])) / (many - few)
        step = trsvr.theory.recommended_step(problem, "svrg")
        other = None if python is None else lightning(python, X, y, step, few, many, repetitions)
        shown = "–" if other is None else f"{1e3 * other:.1f}"
        ratio = "–" if other is None else f"{other / svrg_time:.2f}"
        report(
            f"| {name} | {X.shape[0]} × {X.shape[1]} | {1e3 * saga:.1f} | {1e3 * svrg_time:.1f} | {1e3 * theirs:.1f} "
            f"| {shown} | {theirs / saga:.2f} | {theirs / svrg_time:.2f} | {ratio} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", help="also write the table to this file")
    parser.add_argument("--small", action="store_true", help="a tenth of the rows, for a quick look")
    parser.add_argument("--lightning", metavar="PYTHON", help="an interpreter that has sklearn-contrib-lightning")
    arguments = parser.parse_args()
    lines: list[str] = []

    def report(line: str, end: str = "\n") -> None:
        print(line, end=end, flush=True)
        lines.append(line + end)

    report(f"{platform.processor() or platform.machine()}, NumPy {np.__version__}, Numba {numba.__version__}, ", "")
    report(f"scikit-learn {sklearn.__version__}, Python {platform.python_version()}. Milliseconds an epoch.\n")
    measure(report, arguments.small, arguments.lightning)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write("".join(lines))


if __name__ == "__main__":
    main()
