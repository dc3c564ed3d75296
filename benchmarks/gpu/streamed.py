"""A problem in host memory, streamed through the GPU: ``python benchmarks/gpu/streamed.py --out FOLDER``.

100 million × 50, float32 (20 GB), made on the device in blocks and kept in pinned host memory. Against torch's L-BFGS
and Newton's method on the same streamed passes. First with 2 GiB of rows staying on the device, as if the data were ten
times as large as its memory; then with the default, which keeps them all there if they fit.
"""

from __future__ import annotations

import argparse
import time

import torch
from common import DEVICE, Watch, about, clock, ill_conditioned, lbfgs, show, traced, write

import trsvr
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
    """Newton's method with value, gradient and Hessian from one reading of X a step: it is reading that costs."""
    strength, n, d = problem.regularizer.strength, problem.n_samples, problem.n_parameters
    diagonal = strength * torch.eye(d, dtype=torch.float64, device=problem.device)

    def look(x):
        value, gradient, hessian = problem.sums._sum(lambda part: (*part.value_and_gradient(x), part.matrices(x)[0]))
        return float(value / n + 0.5 * strength * (x @ x)), gradient / n + strength * x, hessian / n + diagonal

    x = torch.zeros(d, dtype=torch.float64, device=problem.device)
    value, gradient, hessian = look(x)
    watch(x, value)
    for _ in range(steps):
        x = x - torch.linalg.solve(hessian, gradient)
        before, (value, gradient, hessian) = value, look(x)
        watch(x, value)
        if before - value <= 1e-14 * abs(value):
            return


def solve(X, y, memory, evaluations) -> dict:
    """Trsvr and its rivals, with so many bytes of rows staying on the device."""
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(1e-6), device=DEVICE, streamed=True, memory=memory)
    sums = problem.sums
    resident = 0 if sums.resident is None else sums.resident.n_rows
    x = problem.to_device(torch.zeros(X.shape[1]).numpy())
    sums.evaluate(x)
    one_pass = clock(lambda: sums.evaluate(x), 3)[0]
    traced(problem, max_epochs=1)  # compiles
    result, watch = traced(problem)
    whole = clock(lambda: trsvr.minimize(problem), 3)
    watches = {"trsvr": watch}
    newton(problem, Watch(), 1)
    lbfgs(problem, Watch(), 2)
    for name, rival in (("newton", newton), ("lbfgs", lambda p, w: lbfgs(p, w, evaluations))):
        watches[name] = Watch()
        rival(problem, watches[name])
    best = min(min(w.values) for w in watches.values())
    found = {
        "rows": X.shape[0],
        "columns": X.shape[1],
        "resident rows": resident,
        "pass": one_pass,
        "bytes per second": (X.shape[0] - resident) * X.shape[1] * X.element_size() / one_pass,
        "minimum": best,
        "curves": {name: w.curve(best) for name, w in watches.items()},
    }
    found["trsvr"] = {
        "to gap": found["curves"]["trsvr"]["reached"] or float("nan"),
        "whole call": whole[0],
        "whole call all": whole[1],
        "gap at end": (result.value - best) / abs(best),
        "epochs": result.epochs,
        "status": result.message,
        "trace": result.rows,
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--evaluations", type=int, default=30, help="of L-BFGS")
    parser.add_argument("--memory", type=int, default=2**31, help="bytes of rows that stay on the device")
    parser.add_argument("--out", help="folder for the JSON and the figure")
    arguments = parser.parse_args()
    print(about())
    begun = time.perf_counter()
    X, y = in_host_memory(arguments.rows, arguments.columns)
    print(f"data made in {time.perf_counter() - begun:.1f} s")
    for memory, name in ((arguments.memory, "streamed"), (None, "streamed_once")):
        found = solve(X, y, memory, arguments.evaluations)
        show(found, f"{name}, {arguments.rows} × {arguments.columns}, {found['resident rows']} rows stay")
        print(f"  one pass {found['pass']:.3f} s, {found['bytes per second'] / 1e9:.1f} GB/s from the host")
        write(found, arguments.out, name)


if __name__ == "__main__":
    main()
