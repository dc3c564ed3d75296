"""Dual coordinate ascent: in one piece on one thread, and as it is on several; and what the default mode gains by it.

    python benchmarks/sdca.py [--sets text-8000x8000 rcv1 …] [--l2 1e-4 1e-5] [--threads 2] [--cpu]
    python benchmarks/sdca.py --beside snapml

Times are the best of three, to a relative gap of 1e-9 for the ascent and to the default tolerance for the default mode.
``--cpu`` counts CPU time, for a machine that does other work as well. ``--beside`` compares with snapml's solvers
instead: everybody in turn, fifteen times, at the loosest tolerance that reaches a relative gap of 1e-3, or of 1e-9.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers.problem import Data, Task

import trsvr
from trsvr import _threads
from trsvr._draws import Draws
from trsvr.problems.dual import DualAscent
from trsvr.solvers.dual_start import DualRules, DualStart

GOAL, MOST_EPOCHS = 1e-9, 300
TOLERANCES, LONGEST_SECONDS = tuple(10.0**-k for k in range(1, 10)), 1.5


def ascend(problem: trsvr.problems.LinearModel, smallest: float, alone: bool, clock: Callable[[], float]) -> str:
    """Milliseconds and epochs; looks at f are not timed."""
    best, epochs = np.inf, 0
    for _ in range(3):
        ascent, x, seconds = DualAscent(problem), np.zeros(problem.n_parameters), 0.0
        if alone:
            ascent.pieces = ascent.rounds = 1
        ascent.begin(x)
        for epoch in range(MOST_EPOCHS):
            begun = clock()
            ascent.epoch(x, Draws(0, epoch), 0, lambda: False)
            seconds += clock() - begun
            if problem.value_and_gradient(x)[0] - smallest <= GOAL * smallest:
                break
        best, epochs = min(best, seconds), epoch + 1
    return f"{1e3 * best:7.1f} ms, {epochs:3d} epochs"


def default(problem: trsvr.problems.LinearModel, rules: DualRules, clock: Callable[[], float]) -> str:
    """Milliseconds, passes and outer iterations."""
    best = np.inf
    for _ in range(3):
        begun = clock()
        result = trsvr.minimize(problem, DualStart(rules=rules))
        best = min(best, clock() - begun)
    return f"{1e3 * best:7.1f} ms, {result.passes:4.0f} passes, {result.epochs} iterations"


def beside(data: Data, l2: float, threads: int) -> str:
    """Milliseconds of the default, with nothing set and to two gaps, and of snapml to the same."""
    import snapml

    task = Task(data, l2)
    smallest = trsvr.minimize(trsvr.problems.logistic(data.X, data.y, l2=l2)).value

    def ours(tol: float | str) -> Callable[[], np.ndarray]:
        return lambda: trsvr.minimize(trsvr.problems.logistic(data.X, data.y, l2=l2), tol=tol, threads=threads).x

    def theirs(dual: bool, tol: float) -> Callable[[], np.ndarray]:
        options = {"fit_intercept": False, "random_state": 0, "max_iter": 2000, "generate_training_history": None}
        model = snapml.LogisticRegression(dual=dual, regularizer=l2 * task.n, tol=tol, n_jobs=threads, **options)
        return lambda: np.asarray(model.fit(data.X, data.y).coef_, dtype=np.float64).ravel()

    runs = {"default": ours("auto")}
    makers: dict[str, Callable[[float], Callable[[], np.ndarray]]] = {
        "to": ours, "snapml dual": partial(theirs, True), "snapml primal": partial(theirs, False)
    }  # fmt: skip
    for name, make in makers.items():
        for tol in TOLERANCES:
            begun = time.perf_counter()
            gap = task.value(make(tol)()) / smallest - 1.0
            for goal in (1e-3, GOAL):
                if gap <= goal:
                    runs.setdefault(f"{name} {goal:g}", make(tol))
            if gap <= GOAL or time.perf_counter() - begun > LONGEST_SECONDS:
                break
    best = dict.fromkeys(runs, np.inf)
    for _ in range(15):
        for name, run in runs.items():
            begun = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begun)
    return ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in best.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["text-8000x8000", "text-15000x60000", "rcv1"])
    parser.add_argument("--l2", nargs="+", type=float, default=[1e-4, 1e-5, 1e-6])
    parser.add_argument("--threads", type=int, default=_threads.available())
    parser.add_argument("--intercept", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--beside", choices=["snapml"])
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    for name in given.sets:
        data = Data.load(name)
        for l2 in given.l2:
            if given.beside:
                print(f"{name}, λ = {l2:g}: {beside(data, l2, given.threads)}", flush=True)
                continue
            problem = trsvr.problems.LinearModel(
                data.X, data.y, regularizer=trsvr.problems.L2(l2), intercept=given.intercept
            )
            smallest = trsvr.minimize(problem).value
            print(f"{name}, λ = {l2:g}")
            with _threads.limit(1):
                print(f"  one piece, one thread     {ascend(problem, smallest, True, clock)}")
            with _threads.limit(given.threads):
                print(f"  SDCA, {given.threads} threads           {ascend(problem, smallest, False, clock)}")
                print(f"  default                   {default(problem, DualRules(), clock)}")
                print(
                    f"  default, no dual phase    {default(problem, replace(DualRules(), dual_epochs=0), clock)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
