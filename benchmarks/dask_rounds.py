"""Rounds and bytes to a gap of 1e-8, counted by the scheduler plugin: TRSVR against L-BFGS on the same cluster.

``python benchmarks/dask_rounds.py --sets synthetic,covtype`` prints a Markdown table. The gap is f − f*, relative to
f(0) − f*, with f* from a run in memory to the rounding floor.
"""

from __future__ import annotations

import argparse
import time

import distributed
import numpy as np

import trsvr
import trsvr.dask
from trsvr.datasets import load

GAP = 1e-8


def measure(client, problem, solver, lowest: float, start: float, epochs: int) -> dict[str, float]:
    """Run until the gap is reached; the time is that of the whole run with its plugin."""
    begun = time.perf_counter()
    with trsvr.dask.Traffic(client) as traffic:

        def stop(result) -> None:
            if result.value - lowest <= GAP * (start - lowest):
                raise StopIteration

        result = trsvr.minimize(problem, solver, max_epochs=epochs, tol=None, callback=stop)
        counts = traffic.counts()
    return {
        "epochs": result.epochs,
        "rounds": counts.rounds,
        "moved": counts.moved,
        "passes": result.passes,
        "seconds": time.perf_counter() - begun,
        "reached": result.status is trsvr.Status.CALLBACK,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="synthetic,covtype")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=100.0, help="of the paper's mode")
    chosen = parser.parse_args()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50, memory_limit="4GB"
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=True) as client,
    ):
        print("| set | method | epochs | rounds | MB moved | of X | seconds |")
        print("|---|---|---|---|---|---|---|")
        for name in chosen.sets.split(","):
            data = load(name)
            n, d = data.X.shape
            X, y = np.array_split(np.asarray(data.X), chosen.blocks), np.array_split(data.y, chosen.blocks)
            size = data.X.nbytes
            here = trsvr.problems.logistic(data.X, data.y, l2=1e-4)
            lowest = trsvr.minimize(here, tol=1e-14, max_epochs=200).value
            start = here.value_and_gradient(np.zeros(d))[0]
            there = trsvr.dask.LinearModel(X, y, regularizer=trsvr.problems.L2(1e-4))
            b = n // 32
            paper = trsvr.TRSVR(alpha=chosen.alpha, batch_size=b, inner_steps=4, hessian="exact")
            worth = there.rows_worth
            for label, solver, epochs in (
                ("TRSVR()", trsvr.TRSVR(), 100),
                ("TRSVR(), rows stay on the workers", trsvr.TRSVR(), 100),
                (f"TRSVR(alpha={chosen.alpha:g}, b={b}, S=4, exact)", paper, 40),
                ("L-BFGS", trsvr.LBFGS(), 2000),
            ):
                there.rows_worth = 0 if "stay" in label else worth
                measure(client, there, solver, lowest, start, 2)  # compiles
                found = measure(client, there, solver, lowest, start, epochs)
                rounds = f"{found['rounds']:.0f}" if found["reached"] else f"> {found['rounds']:.0f}"
                print(
                    f"| {name} {n} × {d} | {label} | {found['epochs']:.0f} | {rounds} | {found['moved'] / 1e6:.2f} "
                    f"| {found['moved'] / size:.1%} | {found['seconds']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
