"""HIGGS-sized logistic regression on one GPU: ``python benchmarks/gpu/higgs.py --out FOLDER``.

Synthetic, 11 million × 28, float32 data, float64 sums, λ = 1e-6, eigenvalues of the covariance log-spaced over 1e4,
start 0. ``--tune`` times shapes of the full pass first, and compares what they find.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import torch
from common import DEVICE, about, compare, device_time, ill_conditioned, show, write  # must come before trsvr

from trsvr import problems
from trsvr.torch import LinearModel
from trsvr.torch.linear.sums import Runs


def passes(problem) -> dict[str, float]:
    """Times of one reading of X, the fused pass, other sums, on the device."""
    sums = problem.sums
    x = problem.to_device(0.01 * torch.ones(problem.n_parameters).numpy())
    X = sums.rows.values
    times = {"read X": device_time(lambda: X.sum()), "read X (max)": device_time(lambda: X.view(-1).max())}
    times["full pass"] = device_time(lambda: sums.evaluate_tensors(x))
    times["Hessian product"] = device_time(lambda: sums.product(x, x))
    times["matrix of all rows"] = device_time(lambda: sums.matrices(x), 5)
    runs = Runs(sums.spread(int(5e8 / 28**2) // 64, 64, 0), 64)
    times[f"matrix of {runs.size} rows"] = device_time(lambda: sums.matrices(x, False, runs))
    plain = LinearModel(X, sums.labels, problem.loss, problem.regularizer, fused=False)
    times["plain torch pass"] = device_time(lambda: plain.sums.evaluate_tensors(x), 5)
    return times


def variants():
    """Shapes worth timing; more programs than registers allow run in two waves, which shows."""
    from trsvr.torch.linear.fused import Shape

    for rows, warps, counts in ((64, 2, (4, 5, 6, 7, 8)), (32, 1, (10, 12, 14, 16)), (128, 4, (2, 3, 4))):
        for stages, programs in itertools.product((1, 3, 4), counts):
            yield Shape(rows, warps, stages, programs)


def tune(problem) -> dict[str, float]:
    """Full passes in other shapes; a shape that finds another sum is left out, aloud."""
    sums, x = problem.sums, problem.to_device(0.01 * np.ones(problem.n_parameters))
    kept, times = sums.shape, {}
    wanted = sums._full_sums(x).clone()
    for shape in (kept, *variants()):
        sums.cut(shape)
        try:
            error = float((sums._full_sums(x) - wanted).abs().max() / wanted.abs().max())
            if not error < 1e-11:
                print(f"  WRONG {tuple(shape)}: deviation {error:.1e}")
                continue
            times[str(tuple(shape))] = device_time(lambda: sums._full_sums(x), 9)
        except Exception as error:
            print("  failed", tuple(shape), repr(error)[:200])
    sums.cut(kept)
    for shape, seconds in sorted(times.items(), key=lambda pair: pair[1])[:20]:
        print(f"  (rows, warps, stages, programs) {shape}: {1e3 * seconds:.4f} ms")
    print(f"  now {tuple(kept)}: {1e3 * times.get(str(tuple(kept)), float('nan')):.4f} ms")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=11_000_000)
    parser.add_argument("--columns", type=int, default=28)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", help="folder for the JSON and the figure")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--passes-only", action="store_true", help="no solves")
    arguments = parser.parse_args()
    print(about())
    X, y = ill_conditioned(arguments.rows, arguments.columns)
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(1e-6))
    found = {"rows": arguments.rows, "columns": arguments.columns}
    if DEVICE == "cuda":
        found["passes"] = passes(problem)
        for name, seconds in found["passes"].items():
            print(f"  {name:24} {1e3 * seconds:8.4f} ms")
        if arguments.tune:
            found["tiles"] = tune(problem)
    if arguments.passes_only:
        return
    found |= compare(problem, arguments.runs)
    show(found, f"logistic regression, {arguments.rows} × {arguments.columns}")
    write(found, arguments.out, "higgs")


if __name__ == "__main__":
    main()
