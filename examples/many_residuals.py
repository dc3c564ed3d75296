"""How to fit two million residuals without ever storing the Jacobian: five peaks on a line, seventeen unknowns.

The Jacobian would have 34 million numbers (270 MB); it is computed in blocks of 1 MB, of which only JᵀJ is kept.

    python examples/many_residuals.py [--fast]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import trsvr
from trsvr.problems import LeastSquares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="a hundred times fewer: only to see it run")
    n = 20_000 if parser.parse_args().fast else 2_000_000
    random = np.random.default_rng(0)
    t = np.linspace(0.0, 10.0, n)
    heights, places, widths = 1.0 + random.random(5), np.arange(1.0, 10.0, 2.0), 0.3 + 0.3 * random.random(5)
    truth = np.concatenate([np.column_stack([heights, places, widths]).ravel(), [0.5, 0.1]])

    def model(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        s = t[rows]
        peaks = (x[k] * np.exp(-0.5 * ((s - x[k + 1]) / x[k + 2]) ** 2) for k in range(0, 15, 3))
        return sum(peaks, x[15] + x[16] * s)

    def jacobian(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        s = t[rows]
        J = np.empty((s.size, 17))
        for k in range(0, 15, 3):
            z = (s - x[k + 1]) / x[k + 2]
            J[:, k] = np.exp(-0.5 * z * z)
            J[:, k + 1] = x[k] * J[:, k] * z / x[k + 2]
            J[:, k + 2] = J[:, k + 1] * z
        J[:, 15], J[:, 16] = 1.0, s
        return J

    y = model(truth, np.arange(n)) + 0.05 * random.normal(size=n)
    problem = LeastSquares(n, 17, lambda x, i: model(x, i) - y[i], jacobian)
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = truth * (1.0 + 0.1 * np.random.default_rng(1).normal(size=17))
    result = trsvr.minimize(problem, x0=start)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(result.message)
    print(f"{n} residuals: {result.passes:.0f} passes, {time.process_time() - begun:.1f} s, {memory:.0f} MB more")
    errors = trsvr.inference.covariance(problem, result).standard_errors
    print(f"largest error of an unknown: {np.abs((result.x - truth) / errors).max():.1f} standard errors")


if __name__ == "__main__":
    main()
