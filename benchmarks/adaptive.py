"""The mode with nothing to choose: how sure, and what each of its rules is worth.

    python benchmarks/adaptive.py sure  [--sets mushrooms,phishing] [--seeds 5]      every case must reach its minimiser
    python benchmarks/adaptive.py ablation --seeds 3 --docs docs/adaptive.md         each rule switched off in turn

Data sets are those of `trsvr.datasets`; set TRSVR_DATA_DIR. How fast it is beside other solvers: `make bench`.
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse.linalg

import trsvr
from trsvr import datasets
from trsvr.problems import double_well_logistic, logistic
from trsvr.solvers.dual_start import DualRules, DualStart

SETS = ("synthetic", "mushrooms", "phishing", "madelon", "cod-rna", "ijcnn1", "covtype", "covtype.scale", "rcv1")
EPSILON = float(np.finfo(float).eps)


def load(name: str, preprocess: str = "default") -> tuple[Any, np.ndarray]:
    dataset = datasets.load(name) if name == "synthetic" else datasets.load(name, preprocess=preprocess)
    return dataset.X, np.asarray(dataset.y, dtype=np.float64)


# ---------------------------------------------------------------------------------------------------------------- sure


def sure(sets: list[str], seeds: int, jobs: int) -> None:
    scalings = {
        name: ("none",) if name in ("synthetic", "rcv1") else ("none", "standardize", "minmax") for name in sets
    }
    tasks = [
        (name, preprocess, l2, objective, seeds)
        for name in reversed(sets)
        for preprocess in scalings[name]
        for l2 in (1e-4, 1e-6, 1e-8)
        for objective in ("logistic", "double well", "nonconvex")
    ]
    print("| set | preprocessing | λ | objective | epochs | rejected | passes | seconds | gap over limit or |g| |")
    print("|---|---|---|---|---|---|---|---|---|")
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for line in pool.map(certain, tasks):
            missed += "missed" in line
            print(line, flush=True)
    print(f"\n{len(tasks)} cases, {seeds} seeds each, {missed} missed")


def certain(task: tuple[str, str, float, str, int]) -> str:
    """A line of the table: whether every seed came to its minimiser."""
    name, preprocess, l2, objective, seeds = task
    X, y = load(name, preprocess)
    gamma = 10 * l2 * X.shape[1] if objective == "nonconvex" else l2
    problem = logistic(X, y, l2=l2) if objective == "logistic" else double_well_logistic(X, y, l2=l2, gamma=gamma)
    runs = [trsvr.minimize(problem, seed=seed, max_epochs=500) for seed in range(seeds)]
    good, worst = judge(problem, runs, objective == "nonconvex")
    middle = runs[len(runs) // 2]
    return (
        f"| {name} | {preprocess} | {l2:.0e} | {objective} | {middle.epochs} | "
        f"{int(middle.trace['rejected'].sum())} | {middle.passes:.0f} | {middle.seconds:.3f} | "
        f"{worst:.1e}{'' if good else ' **missed**'} |"
    )


def judge(problem: Any, runs: list[trsvr.Result], nonconvex: bool) -> tuple[bool, float]:
    if nonconvex:
        worst = max(run.gradient_norm for run in runs)
        at_a_minimum = smallest_curvature(problem, runs[-1].x) >= -1e-9
        return worst <= 1e-9 and at_a_minimum and all(run.success for run in runs), worst
    polished = trsvr.minimize(problem, trsvr.TrustRegion(), x0=runs[0].x, tol=1e-15, max_seconds=20)
    smallest = min(polished.value, *(run.value for run in runs))
    at_zero = problem.value_and_gradient(np.zeros(problem.n_parameters))[0]
    limit = 1e-10 * abs(smallest) + 64 * EPSILON * at_zero
    worst = max((run.value - smallest) / limit for run in runs)
    return worst <= 1.0 and all(run.success for run in runs), worst


def smallest_curvature(problem: Any, x: np.ndarray) -> float:
    """Smallest eigenvalue of the Hessian at x, from products."""
    d = problem.n_parameters
    if d <= 1000:
        columns = [problem.hessian_product(x, None, unit) for unit in np.eye(d)]
        return float(np.linalg.eigvalsh(np.stack(columns))[0])
    operator = scipy.sparse.linalg.LinearOperator((d, d), lambda v: problem.hessian_product(x, None, v.ravel()))
    return float(scipy.sparse.linalg.eigsh(operator, k=1, which="SA", tol=1e-3, return_eigenvectors=False)[0])


# ------------------------------------------------------------------------------------------------------------- ablation


#: What a rule is replaced by when it is switched off.
OFF: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no ascent in the dual": {"dual_epochs": 0},
    "the ascent to its end": {"quick_dual": 0.0, "near_start": 0.0},
    "no inner steps": {"most_inner_steps": 1},
    "inner steps always": {"cheap_batch": math.inf},
    "a quarter of the rows for P": {"rows_per_pass": 1.0},
    "all rows for P": {"rows_per_pass": 1e9},
    "samples not averaged": {"worth_keeping": -1.0},
    "P anew each time": {"helpful": -1.0},
    "P does not learn from steps": {"cheap_factor": -1.0},
    "steps are not stretched": {"hardly_stretched": math.inf},
    "stretched near the minimiser, too": {"stretched_from": 0.0, "stretched_sampled": 0.0},
    "stretched after useless steps, too": {"stretched_to": math.inf},
    "P is always the model": {"poor_model": math.inf},
    "P never begins anew": {"useless": math.inf},
    "CG to 0.1": {"cg_rounding": math.inf, "cg_loosest": 0.1},
    "a step to confirm the end": {"believed": 1.0},
    "moved curvatures may end": {"unmoved_at_end": math.inf},
    "the end is not proven": {"proven": math.inf, "finest_look": math.inf},
    "nothing remembered": {"most_pairs": 0},
    "no matrix after many products": {"patience": math.inf},
    "the certificate is not asked": {"certified": math.inf, "certified_small": math.inf},
    "slow Newton steps may end": {"slow_newton": math.inf},
    "no caution": {"most_in_vain": 0},
    "caution has no degrees": {"more_caution": 1.0},
    "caution is not given up by degrees": {"held_back": math.inf},
}
NORMS = ("diagonal", "identity")


def cell(task: tuple[str, str, float, int]) -> str:
    """Passes to the default tolerance, the mean over seeds; they do not depend on the machine."""
    variant, name, l2, seeds = task
    problem = logistic(*load(name), l2=l2)
    if variant in OFF:
        solver = DualStart(rules=replace(DualRules(), **OFF[variant]))
    else:
        solver = DualStart(norm=variant.removeprefix("norm "))
    runs = [trsvr.minimize(problem, solver, seed=seed, max_passes=3000) for seed in range(seeds)]
    passes = f"{np.mean([run.passes for run in runs]):.0f}"
    return passes if all(run.success for run in runs) else f"> {passes}"


def ablation(sets: list[str], l2: float, seeds: int, jobs: int) -> str:
    """Each rule switched off in turn: a table of passes."""
    variants = [*OFF, *(f"norm {norm}" for norm in NORMS)]
    tasks = [(variant, name, l2, seeds) for name in sets for variant in variants]
    with ProcessPoolExecutor(jobs) as pool:
        cells = dict(zip(tasks, pool.map(cell, tasks), strict=True))
    lines = [f"| λ = {l2:g} | " + " | ".join(sets) + " |", "|---|" + "---:|" * len(sets)]
    lines += [
        f"| {variant} | " + " | ".join(cells[variant, name, l2, seeds] for name in sets) + " |" for variant in variants
    ]
    return "\n".join(lines)


def write_between(page: Path, mark: str, text: str) -> None:
    """Put a table into a page, between two comments."""
    begin, end = f"<!-- {mark} -->\n", f"\n<!-- end of {mark} -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(before + begin + text + end + rest.split(end, 1)[1], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sure", "ablation"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--l2", type=float, nargs="+", default=[1e-4, 1e-6])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--docs", type=Path, help="page that the ablation's tables are written into")
    arguments = parser.parse_args()
    sets = arguments.sets.split(",")
    if arguments.what == "sure":
        sure(sets, arguments.seeds, arguments.jobs)
    else:
        for l2 in arguments.l2:
            table = ablation(sets, l2, arguments.seeds, arguments.jobs)
            print(table, flush=True)
            if arguments.docs:
                write_between(arguments.docs, f"ablation {l2:g}", table)


if __name__ == "__main__":
    main()
