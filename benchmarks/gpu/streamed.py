"""A problem in host memory, streamed through the GPU: ``python benchmarks/gpu/streamed.py --out FOLDER``.

100 million × 50, float32 (20 GB), made on the device in blocks and kept in pinned host memory. Against torch's L-BFGS
and Newton's method on the same streamed passes.
"""

from __future__ import annotations

import argparse
import time

import torch
from common import DEVICE, Watch, about, clock, evaluation, ill_conditioned, lbfgs, show, traced, write

from trsvr import problems
from trsvr.torch import LinearModel


def in_host_memory(n: int, p: int, block: int = 2_000_000):
    """Rows and labels in pinned memory."""
    pinned = DEVICE == "cuda"
    X = torch.empty(n, p, dtype=torch.float32, pin_memory=pinned)
    y = torch.empty(n, dtype=torch.int8, pin_memory=pinned)
    for k, begin in enumerate(range(0, n, block)):
        end = min(begin + block, n)
        part = ill_conditioned(end - begin, p, seed=0) if k == 0 else more_rows(end - begin, p, k)
        X[begin:end], y[begin:end] = part
    return X, y


def more_rows(n: int, p: int, seed: int):
    """Further rows of the same model: the rotation and the true weights are those of seed 0."""
    return ill_conditioned(n, p, seed=0, rows_seed=seed)


def newton(problem, watch, steps=12):
    """Newton's method on streamed passes: Hessian and gradient in two readings of X a step."""
    evaluate, strength, n = evaluation(problem), problem.regularizer.strength, problem.n_samples
    x = torch.zeros(problem.n_parameters, dtype=torch.float64, device=problem.device)
    value, gradient = evaluate(x)
    watch(x, value)
    for _ in range(steps):
        hessian = problem.sums.matrices(x)[0] / n
        hessian += strength * torch.eye(x.numel(), dtype=torch.float64, device=problem.device)
        x = x - torch.linalg.solve(hessian, gradient)
        before, (value, gradient) = value, evaluate(x)
        watch(x, value)
        if float(before - value) <= 1e-14 * abs(float(value)):
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--evaluations", type=int, default=60, help="of L-BFGS")
    parser.add_argument("--out", help="folder for the JSON and the figure")
    arguments = parser.parse_args()
    print(about())
    begun = time.perf_counter()
    X, y = in_host_memory(arguments.rows, arguments.columns)
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(1e-6), device=DEVICE, streamed=True)
    print(f"data made in {time.perf_counter() - begun:.1f} s")
    x = problem.to_device(torch.zeros(arguments.columns).numpy())
    problem.sums.evaluate(x)
    one_pass = clock(lambda: problem.sums.evaluate(x), 3)[0]
    size = X.numel() * X.element_size()
    print(f"one streamed pass: {one_pass:.3f} s, {size / one_pass / 1e9:.1f} GB/s")
    result, watch = traced(problem)
    watches = {"trsvr": watch}
    for name, rival in (("newton", newton), ("lbfgs", lambda p, w: lbfgs(p, w, arguments.evaluations))):
        watches[name] = Watch()
        rival(problem, watches[name])
    best = min(min(w.values) for w in watches.values())
    found = {
        "rows": arguments.rows,
        "columns": arguments.columns,
        "pass": one_pass,
        "bytes per second": size / one_pass,
        "minimum": best,
        "first call": watch.seconds[-1],
        "curves": {name: w.curve(best) for name, w in watches.items()},
    }
    found["trsvr"] = {
        "to gap": found["curves"]["trsvr"]["reached"] or float("nan"),
        "whole call": watch.seconds[-1],
        "gap at end": (result.value - best) / abs(best),
        "epochs": result.epochs,
        "status": result.message,
        "trace": result.rows,
    }
    show(found, f"streamed, {arguments.rows} × {arguments.columns}")
    write(found, arguments.out, "streamed")


if __name__ == "__main__":
    main()
