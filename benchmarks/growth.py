"""Time, passes and memory of `trsvr.minimize` against the number of rows.

    python benchmarks/growth.py [--most 10000000] [--figure docs/figures/growth.png]

The rows are like Covertype's: ten correlated numbers in unlike units and forty-four columns of zeros and ones, of which
each row has two; labels from a logistic model with noise. Each size runs in a process of its own, so that its peak
memory is its own: what the process had before the call is the data and the libraries; the rest is what the run took.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import trsvr

COLUMNS, NUMBERS, SOILS, AREAS = 54, 10, 40, 4


def covtype_like(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """X with rows × 54 float64, scaled to [0, 1] as in covtype.scale, and y in {−1, 1}; made in slices."""
    random = np.random.default_rng(seed)
    mix = random.normal(size=(NUMBERS, NUMBERS)) * np.geomspace(1.0, 0.05, NUMBERS)
    weights = random.normal(size=COLUMNS) * 2.0
    X, y = np.zeros((rows, COLUMNS)), np.empty(rows)
    popular = 1.0 / np.arange(1.0, SOILS + 1.0)
    for begin in range(0, rows, 100_000):
        part = X[begin : begin + 100_000]
        count = len(part)
        part[:, :NUMBERS] = 1.0 / (1.0 + np.exp(-random.normal(size=(count, NUMBERS)) @ mix))
        part[np.arange(count), NUMBERS + random.integers(AREAS, size=count)] = 1.0
        part[np.arange(count), NUMBERS + AREAS + random.choice(SOILS, size=count, p=popular / popular.sum())] = 1.0
        margins = part @ weights
        y[begin : begin + count] = np.where(margins - margins.mean() + random.logistic(size=count) > 0.0, 1.0, -1.0)
    return X, y


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one(rows: int, repeats: int) -> dict[str, float]:
    """One size, in this process."""
    small = trsvr.problems.logistic(*covtype_like(2000), l2=1e-6)
    trsvr.minimize(small)  # compiled kernels are not this measurement's business
    X, y = covtype_like(rows)
    before = peak_bytes()
    problem = trsvr.problems.logistic(X, y, l2=1e-6)
    seconds, result = float("inf"), None
    for seed in range(repeats):
        begun = time.perf_counter()
        result = trsvr.minimize(problem, seed=seed)
        seconds = min(seconds, time.perf_counter() - begun)
    assert result is not None
    assert result.success, result
    grown = peak_bytes() - before
    zero = np.zeros(problem.n_parameters)
    passes = []
    for _ in range(5):
        begun = time.perf_counter()
        problem.value_and_gradient(zero)
        passes.append(time.perf_counter() - begun)
    return {
        "rows": rows,
        "seconds": seconds,
        "passes": result.passes,
        "epochs": result.epochs,
        "pass_seconds": min(passes),
        "data_bytes": X.nbytes,
        "memory_over_data": (X.nbytes + grown) / X.nbytes,
    }


def draw(found: list[dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row["rows"] for row in found]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    left.loglog(rows, [row["seconds"] for row in found], "o-", color="#0072B2", label="minimize")
    left.loglog(rows, [row["pass_seconds"] for row in found], "s-", color="#7A7A7A", label="one value and gradient")
    straight = [found[-1]["seconds"] * n / rows[-1] for n in rows]
    left.loglog(rows, straight, "--", color="black", linewidth=0.8, label="proportional to rows")
    left.set(xlabel="rows", ylabel="seconds")
    left.legend(frameon=False, fontsize=8)
    right.semilogx(rows, [row["passes"] for row in found], "o-", color="#0072B2")
    right.set(xlabel="rows", ylabel="passes over the data", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10_000_000)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one, 5 if arguments.one <= 1_000_000 else 2)))
        return
    found = []
    print("| rows | seconds | passes | epochs | one pass, ms | time over a pass | peak memory over data |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    size = 10_000
    while size <= arguments.most:
        command = [sys.executable, __file__, "--one", str(size)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        found.append(row)
        print(
            f"| {size} | {row['seconds']:.3g} | {row['passes']:.1f} | {row['epochs']} "
            f"| {1e3 * row['pass_seconds']:.3g} "
            f"| {row['seconds'] / row['pass_seconds']:.0f} | {row['memory_over_data']:.2f} |",
            flush=True,
        )
        size *= 10
    if arguments.figure:
        draw(found, arguments.figure)


if __name__ == "__main__":
    main()
