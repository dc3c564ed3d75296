"""The mode with nothing to choose: how sure, and what each of its rules is worth.

    python benchmarks/adaptive.py sure  [--sets mushrooms,phishing] [--seeds 5]      every case must reach its minimiser
    python benchmarks/adaptive.py ablation [--sets …]                                each rule switched off in turn

Data sets are those of `trsvr.datasets`; set TRSVR_DATA_DIR. How fast it is beside other solvers: `make bench`.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any
from unittest import mock

import numpy as np

import trsvr
from trsvr import datasets
from trsvr.problems import double_well_logistic, logistic
from trsvr.solvers import adaptive

SETS = ("synthetic", "mushrooms", "phishing", "madelon", "cod-rna", "ijcnn1", "covtype", "covtype.scale", "rcv1")
EPSILON = float(np.finfo(float).eps)


def load(name: str, preprocess: str = "default") -> tuple[Any, np.ndarray]:
    dataset = datasets.load(name) if name == "synthetic" else datasets.load(name, preprocess=preprocess)
    return dataset.X, np.asarray(dataset.y, dtype=np.float64)


# ---------------------------------------------------------------------------------------------------------------- sure


def sure(sets: list[str], seeds: int) -> None:
    failures = cases = 0
    print("| set | preprocessing | λ | objective | epochs | rejected | passes | seconds | gap over limit or |g| |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in sets:
        for preprocess in ("none",) if name in ("synthetic", "rcv1") else ("none", "standardize", "minmax"):
            X, y = load(name, preprocess)
            for l2 in (1e-4, 1e-6, 1e-8):
                for objective in ("logistic", "double well", "nonconvex"):
                    gamma = 10 * l2 * X.shape[1] if objective == "nonconvex" else l2
                    problem = (
                        logistic(X, y, l2=l2)
                        if objective == "logistic"
                        else double_well_logistic(X, y, l2=l2, gamma=gamma)
                    )
                    runs = [trsvr.minimize(problem, seed=seed, max_epochs=500) for seed in range(seeds)]
                    good, worst = judge(problem, runs, objective == "nonconvex")
                    failures += not good
                    cases += 1
                    middle = runs[len(runs) // 2]
                    print(
                        f"| {name} | {preprocess} | {l2:.0e} | {objective} | {middle.epochs} | "
                        f"{int(middle.trace['rejected'].sum())} | {middle.passes:.0f} | {middle.seconds:.3f} | "
                        f"{worst:.1e}{'' if good else ' **missed**'} |",
                        flush=True,
                    )
    print(f"\n{cases} cases, {seeds} seeds each, {failures} missed")


def judge(problem: Any, runs: list[trsvr.Result], nonconvex: bool) -> tuple[bool, float]:
    if nonconvex:
        worst = max(run.gradient_norm for run in runs)
        return worst <= 1e-9 and all(run.success for run in runs), worst
    polished = trsvr.minimize(problem, trsvr.TrustRegion(), x0=runs[0].x, tol=1e-15, max_epochs=60)
    smallest = min(polished.value, *(run.value for run in runs))
    at_zero = problem.value_and_gradient(np.zeros(problem.n_parameters))[0]
    limit = 1e-10 * abs(smallest) + 64 * EPSILON * at_zero
    worst = max((run.value - smallest) / limit for run in runs)
    return worst <= 1.0 and all(run.success for run in runs), worst


# ------------------------------------------------------------------------------------------------------------- ablation

RULES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no inner steps": {"_MOST_INNER_STEPS": 1},
    "a quarter of the rows for P": {"_ROWS_PER_PASS": 1.0},
    "all rows for P": {"_ROWS_PER_PASS": 1e9},
    "looser conjugate gradients": {"_CG_TOLERANCE": 0.5},
}


def ablation(sets: list[str], l2: float) -> None:
    print("| set | " + " | ".join(RULES) + " |")
    print("|---|" + "---|" * len(RULES))
    for name in sets:
        X, y = load(name)
        problem = logistic(X, y, l2=l2)
        cells = []
        for changes in RULES.values():
            with contextlib.ExitStack() as stack:
                for constant, value in changes.items():
                    stack.enter_context(mock.patch.object(adaptive, constant, value))
                trsvr.minimize(problem)
                runs = [trsvr.minimize(problem, max_epochs=500) for _ in range(5)]
            best = min(runs, key=lambda run: run.seconds)
            cells.append(f"{1e3 * best.seconds:.1f} ms, {best.epochs} epochs")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sure", "ablation"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--l2", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    sets = arguments.sets.split(",")
    if arguments.what == "sure":
        sure(sets, arguments.seeds)
    else:
        ablation(sets, arguments.l2)


if __name__ == "__main__":
    main()
