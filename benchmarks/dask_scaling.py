"""Weak scaling in simulation: a model of the time per epoch, fitted to measurements on one and two workers.

With W workers, N rows of d columns in B blocks, and r rows gathered for the inner loop of S steps:

    full gradient   F = N/W · t_row  +  t_round  +  B · t_task  +  t_hop · ⌈log₈ B⌉
    gathering       G = t_first + r · bytes per row / bandwidth,  at the same time as F
    inner loop      I = r · t_inner
    epoch           max(F, G) + I

t_row is the compiled kernel on a worker, per row; t_round what a round costs however small it is; t_task what the
scheduler spends on a block's task, one after the other; t_hop a level of the tree. The first three are fitted by least
squares to times of full gradients of several N and B on one and two workers, the bandwidth to gathers of several r.
t_hop is taken to be the measured time of a round with one block over three (client, scheduler, worker and back).

``python benchmarks/dask_scaling.py measure FILE.json`` measures (about two minutes; let nothing else run).
``python benchmarks/dask_scaling.py model FILE.json FIGURE.png`` fits, extrapolates and draws.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

COLUMNS = 54
ROW_BYTES = 8 * (COLUMNS + 1)
WORKERS, TOTAL_ROWS = 64, 10**9


def _median(function, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def make_block(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Random rows, made on the worker."""
    random = np.random.default_rng(number)
    X = random.standard_normal((rows, COLUMNS))
    return X, (X @ np.cos(np.arange(COLUMNS)) + random.logistic(size=rows) > 0).astype(float)


def measure(path: Path) -> None:
    import dask
    import distributed

    import trsvr
    import trsvr.dask

    make = dask.delayed(make_block, pure=False)
    x = np.sin(np.arange(COLUMNS)) / 10
    found: dict[str, list[dict[str, float]]] = {"full": [], "gather": [], "inner": []}
    for workers in (1, 2):
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50, memory_limit="4GB"
            ) as cluster,
            distributed.Client(cluster, direct_to_workers=True) as client,
        ):
            for n in (20_000, 200_000, 1_000_000):
                for blocks in (2, 8, 32):
                    parts = [make(i, n // blocks) for i in range(blocks)]
                    problem = trsvr.dask.LinearModel(parts, client=client, persist=True)
                    problem.warm_up()
                    problem.value_and_gradient(x)
                    seconds = _median(lambda problem=problem: problem.value_and_gradient(x), 9)
                    found["full"].append({"workers": workers, "rows": n, "blocks": blocks, "seconds": seconds})
                    print(found["full"][-1], flush=True)
            for r in (1_000, 10_000, 40_000, 160_000):
                chosen = np.sort(np.random.default_rng(r).choice(problem.n_samples, r, replace=False))
                problem.gather(chosen)
                seconds = _median(lambda problem=problem, chosen=chosen: problem.gather(chosen), 5)
                found["gather"].append({"workers": workers, "rows": r, "seconds": seconds})
                print(found["gather"][-1], flush=True)
            del problem, parts
    local = trsvr.problems.logistic(*make_block(0, 200_000))
    for b in (100, 1000):
        solver = trsvr.TRSVR(alpha=10.0, batch_size=b, inner_steps=100_000 // b, hessian="exact")
        run = trsvr.minimize(local, solver, max_epochs=3, tol=None)
        full = _median(lambda: local.value_and_gradient(x), 5)
        found["inner"].append({"batch": b, "seconds_per_row": (run.seconds / 3 - full) / 100_000})
    path.write_text(json.dumps(found, indent=1) + "\n")


def fit(found: dict) -> dict[str, float]:
    full = found["full"]
    A = np.array([[m["rows"] / m["workers"], 1.0, m["blocks"]] for m in full])
    t = np.array([m["seconds"] for m in full])
    # Relative errors count: the short rounds say what a round costs, the long ones what a row does.
    t_row, t_round, t_task = np.linalg.lstsq(A / t[:, None], np.ones(t.size), rcond=None)[0]
    gather = found["gather"]
    A = np.array([[1.0, m["rows"] * ROW_BYTES] for m in gather])
    g = np.array([m["seconds"] for m in gather])
    t_first, per_byte = np.linalg.lstsq(A / g[:, None], np.ones(g.size), rcond=None)[0]
    predicted = np.array([[m["rows"] / m["workers"], 1.0, m["blocks"]] for m in full]) @ [t_row, t_round, t_task]
    return {
        "t_row": t_row,
        "t_round": t_round,
        "t_task": t_task,
        "t_hop": t_round / 3,
        "t_first": max(t_first, 0.0),
        "bandwidth": 1.0 / per_byte,
        "t_inner": float(np.median([m["seconds_per_row"] for m in found["inner"]])),
        "worst_ratio": float(np.exp(np.abs(np.log(predicted / t)).max())),
    }


def epoch(p: dict[str, float], workers: float, rows: float, gathered: float, per_worker: int = 4) -> dict[str, float]:
    blocks = per_worker * workers
    # The tree beyond one level is what two workers cannot show.
    levels = max(0, math.ceil(math.log(max(blocks, 1), 8)) - 1)
    full = rows / workers * p["t_row"] + p["t_round"] + blocks * p["t_task"] + levels * p["t_hop"]
    gather = p["t_first"] + gathered * ROW_BYTES / p["bandwidth"] if gathered else 0.0
    inner = gathered * p["t_inner"]
    return {"full": full, "gather": gather, "inner": inner, "epoch": max(full, gather) + inner}


def model(path: Path, figure: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = json.loads(path.read_text())
    p = fit(found)
    print("fitted: " + ", ".join(f"{name} {value:.3g}" for name, value in p.items()))
    per_worker = TOTAL_ROWS / WORKERS
    print("\n| workers | rows | epoch, s, 4 blocks per worker | efficiency | 1 block per worker | efficiency |")
    print("|---|---|---|---|---|---|")
    counts = [1, 2, 4, 8, 16, 32, 64]
    one = [epoch(p, 1, per_worker, 1e5, blocks)["epoch"] for blocks in (4, 1)]
    for w in counts:
        four, single = (epoch(p, w, per_worker * w, 1e5, blocks)["epoch"] for blocks in (4, 1))
        shares = f"{four:.2f} | {one[0] / four:.0%} | {single:.2f} | {one[1] / single:.0%}"
        print(f"| {w} | {per_worker * w:.2e} | {shares} |")
    full = epoch(p, WORKERS, TOTAL_ROWS, 0)["full"]
    free = (full - p["t_first"]) * p["bandwidth"] / ROW_BYTES
    print(f"\n{WORKERS} workers, {TOTAL_ROWS:.0e} rows: full gradient {full:.2f} s")
    print(f"gathering is hidden behind it up to {free:.2e} rows ({free * ROW_BYTES / 1e6:.0f} MB)")
    empty = epoch(p, WORKERS, 0, 0)["full"]  # a round in which the blocks have hardly anything to do
    for steps in (1, 10, 100):
        # Summed where they lie, the steps' batches take a round each; gathered, they take the time beyond the hiding.
        worth = (full + steps * empty - p["t_first"]) / (ROW_BYTES / p["bandwidth"] + p["t_inner"])
        visible = max(0.0, steps * empty - p["t_first"]) * p["bandwidth"] / ROW_BYTES
        print(
            f"{steps} inner steps: gathering beats a round per step up to {worth:.2e} rows when it comes with the "
            f"gradient, up to {visible:.2e} ({visible * ROW_BYTES / 1e6:.0f} MB) when it is a round of its own"
        )
    axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")[1]
    for workers, marker in ((1, "o"), (2, "s")):
        for blocks, colour in ((2, "C0"), (8, "C1"), (32, "C2")):
            these = [m for m in found["full"] if m["workers"] == workers and m["blocks"] == blocks]
            n = np.array([m["rows"] for m in these])
            label = f"{workers} worker{'s' * (workers > 1)}, {blocks} blocks"
            axes[0].loglog(n, [m["seconds"] for m in these], marker, color=colour, label=label, mfc="none")
            grid = np.geomspace(n[0], n[-1], 50)
            fitted = grid / workers * p["t_row"] + p["t_round"] + blocks * p["t_task"]
            axes[0].loglog(grid, fitted, "-" if workers == 1 else "--", color=colour, lw=1)
    axes[0].set(xlabel="rows", ylabel="full gradient, seconds", title="measured (marks) and fitted (lines)")
    axes[0].legend(fontsize=7)
    gathered = np.geomspace(1e3, 1e8, 200)
    for w, colour in ((2, "C0"), (8, "C1"), (64, "C2")):
        lines = [epoch(p, w, per_worker * w, r) for r in gathered]
        axes[1].loglog(gathered, [e["epoch"] for e in lines], color=colour, label=f"{w} workers")
    axes[1].axvline(free, color="grey", lw=1, ls=":")
    axes[1].text(free * 1.1, axes[1].get_ylim()[0] * 1.2, "no longer hidden", fontsize=8)
    axes[1].set(xlabel="rows gathered per epoch", ylabel="epoch, seconds", title=f"{per_worker:.2g} rows per worker")
    axes[1].legend()
    for ax in axes:
        ax.grid(alpha=0.3)
    plt.gcf().savefig(figure, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "model"))
    parser.add_argument("file", type=Path)
    parser.add_argument("figure", type=Path, nargs="?")
    chosen = parser.parse_args()
    if chosen.what == "measure":
        measure(chosen.file)
    else:
        model(chosen.file, chosen.figure or chosen.file.with_suffix(".png"))


if __name__ == "__main__":
    main()
