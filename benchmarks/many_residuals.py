"""Millions of residuals of five peaks on a line (17 unknowns), beside SciPy: seconds, memory, and how good the end is.

    python benchmarks/many_residuals.py [--rows 2000000] [--autodiff-rows 200000]

Every run is a process of its own on one thread. Memory is the largest resident size beyond what the process had before
the data were made. `analytic`: derivatives by hand, given to `trsvr.problems.LeastSquares` by rows, to SciPy whole.
`autodiff`: the model is a module of PyTorch's; SciPy gets its Jacobian from `torch.func` in pieces of 16 MB. SciPy runs
with ``x_scale="jac"`` and ``ftol`` = 1e-12.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
METHODS = ("trsvr", "SciPy trf", "SciPy lm")


def data(n, seed):
    import numpy as np

    g = np.random.default_rng(0)
    t = np.linspace(0, 10, n)
    truth = np.concatenate(
        [np.column_stack([1 + g.random(5), np.arange(1, 10, 2), 0.3 + 0.3 * g.random(5)]).ravel(), [0.5, 0.1]]
    )
    y = model(truth, t) + 0.05 * g.normal(size=n)
    return t, y, truth * (1 + 0.1 * np.random.default_rng(seed + 1).normal(size=17))


def model(x, t):
    import numpy as np

    line = x[15] + x[16] * t
    for k in range(0, 15, 3):
        line += x[k] * np.exp(-0.5 * ((t - x[k + 1]) / x[k + 2]) ** 2)
    return line


def derivatives(x, t):
    import numpy as np

    J = np.empty((t.size, 17))
    for k in range(0, 15, 3):
        z = (t - x[k + 1]) / x[k + 2]
        J[:, k] = np.exp(-0.5 * z * z)
        J[:, k + 1] = x[k] * J[:, k] * z / x[k + 2]
        J[:, k + 2] = J[:, k + 1] * z
    J[:, 15], J[:, 16] = 1.0, t
    return J


def by_scipy(method, residuals, jacobian, start):
    import scipy.optimize

    options = {"x_scale": "jac", "ftol": 1e-12, "xtol": 1e-15, "gtol": 1e-15}
    found = scipy.optimize.least_squares(residuals, start, jacobian, method=method.split()[1], **options)
    return found.x, found.nfev


def analytic(method, n, seed):
    import trsvr

    t, y, start = data(n, seed)
    begun = time.perf_counter()
    if method == "trsvr":
        problem = trsvr.problems.LeastSquares(
            n, 17, lambda x, i: model(x, t[i]) - y[i], lambda x, i: derivatives(x, t[i])
        )
        result = trsvr.minimize(problem, x0=start)
        x, points = result.x, result.passes
    else:
        x, points = by_scipy(method, lambda x: model(x, t) - y, lambda x: derivatives(x, t), start)
    seconds = time.perf_counter() - begun
    return seconds, points, float(((model(x, t) - y) ** 2).sum())


def autodiff(method, n, seed):
    import numpy as np
    import torch

    import trsvr.torch

    torch.set_num_threads(1)
    t, y, start = data(n, seed)

    class Peaks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.x = torch.nn.Parameter(torch.from_numpy(start.copy()))

        def forward(self, t):
            x = self.x
            peaks = [x[k] * torch.exp(-0.5 * ((t - x[k + 1]) / x[k + 2]) ** 2) for k in range(0, 15, 3)]
            return sum(peaks) + x[15] + x[16] * t

    module, times, heights = Peaks(), torch.from_numpy(t), torch.from_numpy(y)
    # The first transformation imports much of PyTorch, whoever makes it.
    torch.func.vmap(torch.func.jacrev(torch.sin))(times[:2])
    begun = time.perf_counter()
    if method == "trsvr":
        result = trsvr.torch.least_squares(module, (times, heights))
        x, points = result.x, result.passes
    else:
        one = torch.func.jacrev(lambda x, t: torch.func.functional_call(module, {"x": x}, (t,)))
        rows = torch.func.vmap(one, in_dims=(None, 0), chunk_size=2**21 // 17)

        def residuals(x):
            with torch.no_grad():
                return (torch.func.functional_call(module, {"x": torch.from_numpy(x)}, (times,)) - heights).numpy()

        x, points = by_scipy(method, residuals, lambda x: rows(torch.from_numpy(x), times).numpy(), start)
    seconds = time.perf_counter() - begun
    return seconds, points, float(np.sum((model(x, t) - y) ** 2))


def child(kind, method, n, seed):
    """One run; prints seconds, points, squares and megabytes."""
    import trsvr

    if kind == "autodiff":
        import trsvr.torch
    else:
        import scipy.optimize
    assert trsvr, scipy.optimize if kind == "analytic" else trsvr.torch
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, points, squares = {"analytic": analytic, "autodiff": autodiff}[kind](method, n, seed)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps([seconds, points, squares, memory]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--autodiff-rows", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--child", nargs=4)
    chosen = parser.parse_args()
    if chosen.child:
        kind, method, n, seed = chosen.child
        child(kind, method, int(n), int(seed))
        return
    for kind, n in (("analytic", chosen.rows), ("autodiff", chosen.autodiff_rows)):
        print(f"\n{kind}, {n} residuals: seconds, passes or evaluations, megabytes, part of the squares above the best")
        for seed in range(chosen.seeds if n else 0):
            runs = {}
            for method in METHODS:
                command = [sys.executable, __file__, "--child", kind, method, str(n), str(seed)]
                done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
                if done.returncode:
                    print(f"  {method:12} failed: {done.stderr.strip().splitlines()[-1]}")
                    continue
                runs[method] = json.loads(done.stdout.splitlines()[-1])
            best = min(run[2] for run in runs.values())
            for method, (seconds, points, squares, memory) in runs.items():
                above = squares / best - 1.0
                print(f"  {method:12} seed {seed} {seconds:8.2f} {points:8.0f} {memory:8.0f} {above:10.1e}", flush=True)


if __name__ == "__main__":
    main()
