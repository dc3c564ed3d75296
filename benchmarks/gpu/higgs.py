"""HIGGS-sized logistic regression on one GPU: ``python benchmarks/gpu/higgs.py --out FOLDER``.

Synthetic, 11 million × 28, float32 data, float64 sums, λ = 1e-6, eigenvalues of the covariance log-spaced over 1e4,
start 0. ``--tune`` times shapes of the full pass first.
"""

from __future__ import annotations

import argparse
import itertools

from common import DEVICE, LinearModel, about, compare, device_time, ill_conditioned, show, write

import torch

from trsvr import problems


def passes(problem) -> dict[str, float]:
    """Times of one reading of X, the fused pass, other sums, on the device."""
    sums = problem.sums
    x = problem.to_device(0.01 * torch.ones(problem.n_parameters).numpy())
    X = sums.rows.values
    times = {"read X": device_time(lambda: X.sum()), "read X (max)": device_time(lambda: X.view(-1).max())}
    times["full pass"] = device_time(lambda: sums.evaluate_tensors(x))
    times["Hessian product"] = device_time(lambda: sums.product(x, x))
    times["matrix of all rows"] = device_time(lambda: sums.matrices(x), 5)
    view = problem.curvature_view()
    view.evaluate(x.cpu().numpy())
    import numpy as np

    runs = view._spread(int(5e8 / 28**2), np.random.default_rng(0))
    times[f"matrix of {runs.size} rows"] = device_time(lambda: sums.matrices(x, False, runs))
    plain = LinearModel(X, sums.labels, problem.loss, problem.regularizer, fused=False)
    times["plain torch pass"] = device_time(lambda: plain.sums.evaluate_tensors(x), 5)
    return times


def tune(problem) -> dict[str, float]:
    """Full passes with other tiles."""
    sums, x = problem.sums, problem.to_device(torch.zeros(problem.n_parameters).numpy())
    kept, times = type(sums).shape, {}
    for shape in itertools.product((32, 64, 128, 256), (2, 4, 8), (1, 2, 3, 4), (1, 2, 3, 4, 6)):
        rows, warps, stages, programs = shape
        if rows < 16 * warps or rows > 64 * warps or rows * stages * programs > 2048:
            continue
        sums.shape = shape
        sums._programs = programs * torch.cuda.get_device_properties(0).multi_processor_count
        try:
            sums._full_sums(x)
            times[str(shape)] = device_time(lambda: sums._full_sums(x), 5)
        except Exception as error:
            print(shape, repr(error)[:100])
    sums.shape = kept
    sums._programs = kept[3] * torch.cuda.get_device_properties(0).multi_processor_count
    for shape, seconds in sorted(times.items(), key=lambda pair: pair[1])[:15]:
        print(f"  tile {shape}: {1e3 * seconds:.4f} ms")
    print(f"  now  {kept}: {1e3 * times.get(str(kept), float('nan')):.4f} ms")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=11_000_000)
    parser.add_argument("--columns", type=int, default=28)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", help="folder for the JSON and the figure")
    parser.add_argument("--tune", action="store_true")
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
    found |= compare(problem, arguments.runs)
    show(found, f"logistic regression, {arguments.rows} × {arguments.columns}")
    write(found, arguments.out, "higgs")


if __name__ == "__main__":
    main()
