"""How fast the ground floor is: full passes, inner steps, compiling, importing.

    python benchmarks/kernels.py [--markdown FILE]

Every number is a ratio of two times measured in this run, alternating, so that a noisy machine disturbs both alike. The
times themselves are the fastest of many repetitions.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import scipy.sparse

import trsvr
from trsvr import _threads
from trsvr._vectors import add_scaled
from trsvr.engine.draws import RowSource
from trsvr.problems import logistic

ROWS, COLUMNS = 500_000, 54
rng = np.random.default_rng(0)


def fastest(*functions: Callable[[], object], repetitions: int = 30) -> list[float]:
    """Fastest time of each function, run in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repetitions + 1):
        for k, function in enumerate(functions):
            begun = time.perf_counter()
            function()
            times[k].append(time.perf_counter() - begun)
    return [min(t[1:]) for t in times]


@numba.njit(nogil=True, fastmath=True)
def sum_rows(X: np.ndarray, begin: int, end: int) -> float:
    total = 0.0
    for i in range(begin, end):
        row = X[i]
        for j in range(row.size):
            total += row[j]
    return total


def full_passes(report: Callable[[str], None]) -> None:
    X = rng.normal(size=(ROWS, COLUMNS))
    y = np.sign(X[:, 0] + rng.normal(size=ROWS))
    x = 0.1 * rng.normal(size=COLUMNS)
    problem = logistic(X, y)
    single = logistic(X.astype(np.float32), y)
    threads = _threads.available()
    cuts = np.linspace(0, ROWS, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:

        def summed() -> None:
            list(pool.map(lambda k: sum_rows(X, cuts[k], cuts[k + 1]), range(threads)))

        def numpy_gradient() -> None:
            margins = y * (X @ x)
            np.logaddexp(0, -margins).mean()
            _ = X.T @ (-y / (1 + np.exp(margins))) / ROWS

        t_sum, t_full, t_product, t_single, t_numpy = fastest(
            summed,
            lambda: problem.value_and_gradient(x),
            lambda: problem.hessian_product(x, None, x),
            lambda: single.value_and_gradient(x),
            numpy_gradient,
        )
    gigabytes = X.nbytes / 1e9
    report(f"### Full pass, dense {ROWS} × {COLUMNS}, float64, {threads} threads\n")
    report("| operation | ms | GB/s | × sum over X |")
    report("|---|---|---|---|")
    for name, seconds, size in (
        ("compiled sum over X", t_sum, gigabytes),
        ("value and gradient", t_full, gigabytes),
        ("Hessian product", t_product, gigabytes),
        ("value and gradient, float32 data", t_single, gigabytes / 2),
        ("value and gradient, NumPy", t_numpy, gigabytes),
    ):
        report(f"| {name} | {1e3 * seconds:.1f} | {size / seconds:.1f} | {seconds / t_sum:.2f} |")


class Slices:
    """Rows of an epoch in one slice, drawn beforehand, so that only the steps are timed."""

    def __init__(self, indices: np.ndarray) -> None:
        self.indices = indices

    def slices(self, batch_size: int, steps: int) -> list[np.ndarray]:
        """All of them at once."""
        return [self.indices]


def inner_step(report: Callable[[str], None]) -> None:
    batch, steps = 100, 400
    X = rng.normal(size=(ROWS, COLUMNS))
    y = np.sign(X[:, 0] + rng.normal(size=ROWS))
    problem = logistic(X, y)
    # alpha below 1/λmax: every step ends at the first conjugate-gradient iteration, on the boundary.
    solver = trsvr.TRSVR(alpha=0.05, batch_size=batch, inner_steps=steps, hessian="estimated")
    solver = solver.resolve(problem, np.zeros(COLUMNS), trsvr.theory.recommended_step)
    state = solver.init(problem, np.zeros(COLUMNS))
    state.gradient = problem.value_and_gradient(state.x)[1]
    source = RowSource(0, ROWS)
    source.begin(0, 60.0)
    indices = np.concatenate(list(source.slices(batch, steps)))
    runs = np.concatenate([np.arange(s, s + batch) for s in rng.integers(ROWS - batch, size=steps)])
    reference, full = state.x.copy(), state.gradient.copy()

    def compiled(rows: np.ndarray) -> Callable[[], None]:
        def run() -> None:
            state.x[:] = 0.01
            solver.epoch(problem, state, Slices(rows))

        return run

    x0 = np.full(COLUMNS, 0.01)

    def numpy_steps() -> None:
        x = x0.copy()
        for k in range(steps):
            rows = indices[k * batch : (k + 1) * batch]
            A, t = X[rows], y[rows]
            z = A @ x
            at_x = A.T @ (-t / (1 + np.exp(t * z))) / batch + 1e-4 * x
            at_reference = A.T @ (-t / (1 + np.exp(t * (A @ reference)))) / batch + 1e-4 * reference
            g = at_x - at_reference + full
            norm = np.sqrt(g @ g)
            h = 1.5e-8 * (1 + np.sqrt(x @ x)) / norm
            moved = x - h * g
            Hd = (A.T @ (-t / (1 + np.exp(t * (A @ moved)))) / batch + 1e-4 * moved - at_x) / h
            curvature = -(g @ Hd)
            x -= min(0.05, norm * norm / curvature if curvature > 0 else np.inf) * g

    functions = [compiled(indices), compiled(runs), numpy_steps]
    names = ["trsvr, rows at random", "trsvr, rows in runs", "NumPy calls"]
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        functions.append(_torch_steps(torch, X, y, x0, reference, full, indices, batch, steps))
        names.append("PyTorch autograd")
    times = [t / steps for t in fastest(*functions, repetitions=8)]
    report(f"\n### One inner step, b = {batch}, d = {COLUMNS}, N = {ROWS}, estimated curvature, one product\n")
    report("| implementation | µs | × trsvr |")
    report("|---|---|---|")
    for name, seconds in zip(names, times, strict=True):
        report(f"| {name} | {1e6 * seconds:.1f} | {seconds / times[0]:.1f} |")


def _torch_steps(torch, X, y, x0, reference, full, indices, batch, steps):  # type: ignore[no-untyped-def]
    A_all, t_all = torch.from_numpy(X), torch.from_numpy(y)
    g_full = torch.from_numpy(full)
    x_ref = torch.from_numpy(reference).requires_grad_()
    rows_all = torch.from_numpy(indices)

    def loss(A, t, x):  # type: ignore[no-untyped-def]
        return torch.nn.functional.softplus(-t * (A @ x)).mean() + 0.5e-4 * (x @ x)

    def run() -> None:
        x = torch.from_numpy(x0.copy()).requires_grad_()
        for k in range(steps):
            rows = rows_all[k * batch : (k + 1) * batch]
            A, t = A_all[rows], t_all[rows]
            at_x = torch.autograd.grad(loss(A, t, x), x)[0]
            at_reference = torch.autograd.grad(loss(A, t, x_ref), x_ref)[0]
            g = at_x - at_reference + g_full
            norm = g.norm()
            h = 1.5e-8 * (1 + x.detach().norm()) / norm
            moved = (x.detach() - h * g).requires_grad_()
            Hd = (torch.autograd.grad(loss(A, t, moved), moved)[0] - at_x) / h
            curvature = -(g @ Hd)
            length = min(0.05, float(norm * norm / curvature) if curvature > 0 else float("inf"))
            x = (x.detach() - length * g).requires_grad_()

    return run


def sparse(report: Callable[[str], None]) -> None:
    rows, columns, per_row = 20_000, 47_000, 75
    X = scipy.sparse.random(rows, columns, density=per_row / columns, format="csr", random_state=0)
    y = np.sign(rng.normal(size=rows))
    problem = logistic(X, y)
    x = rng.normal(size=columns)
    transposed = X.T.tocsr()

    def scipy_gradient() -> None:
        margins = y * (X @ x)
        np.logaddexp(0, -margins).mean()
        _ = transposed @ (-y / (1 + np.exp(margins))) / rows + 1e-4 * x

    def one_thread() -> None:
        with _threads.limit(1):
            problem.value_and_gradient(x)

    t_two, t_one, t_scipy = fastest(lambda: problem.value_and_gradient(x), one_thread, scipy_gradient)
    report(f"\n### Sparse, {rows} × {columns}, {per_row} nonzeros a row\n")
    report("| operation | ms | × all threads |")
    report("|---|---|---|")
    report(f"| value and gradient, {_threads.available()} threads | {1e3 * t_two:.2f} | 1 |")
    report(f"| value and gradient, one thread | {1e3 * t_one:.2f} | {t_one / t_two:.2f} |")
    report(f"| SciPy, transpose stored | {1e3 * t_scipy:.2f} | {t_scipy / t_two:.2f} |")

    batch, steps = 100, 100
    solver = trsvr.TRSVR(alpha=0.05, batch_size=batch, inner_steps=steps, hessian="estimated")
    solver = solver.resolve(problem, np.zeros(columns), trsvr.theory.recommended_step)
    state = solver.init(problem, np.zeros(columns))
    state.gradient = problem.value_and_gradient(state.x)[1]
    indices = rng.integers(rows, size=batch * steps)
    a, b = np.zeros(columns), rng.normal(size=columns)

    def steps_on_rows() -> None:
        state.x[:] = 0.0
        solver.epoch(problem, state, Slices(indices))

    t_steps, t_sweep = fastest(steps_on_rows, lambda: add_scaled(1e-9, b, a), repetitions=15)
    entries = batch * per_row
    report(
        f"\nInner step, b = {batch}, estimated curvature, one product: {1e6 * t_steps / steps:.0f} µs, "
        f"{t_steps / steps / t_sweep:.1f} × one sweep `y += c·x` over d ({1e6 * t_sweep:.0f} µs). "
        f"It touches {entries} nonzeros twice and makes 8 sweeps over vectors of length d: start of the estimate, "
        "‖ḡ‖, ‖x‖ for the difference's length, start of conjugate gradients, start of the product, two at the boundary "
        "(step, residual), x ← x + p."
    )


def first_use(report: Callable[[str], None]) -> None:
    script = (
        "import time, numpy, scipy.sparse, numba, pandas; t = time.perf_counter(); import trsvr; "
        "i = time.perf_counter() - t; import numpy as np; r = np.random.default_rng(0); X = r.normal(size=(1000, 20)); "
        "y = np.sign(X[:, 0]); t = time.perf_counter(); p = trsvr.problems.logistic(X, y); "
        "trsvr.minimize(p, trsvr.TRSVR(alpha=1.0, batch_size=50, inner_steps=20), max_epochs=2); "
        "print(i, time.perf_counter() - t)"
    )
    report("\n### First use\n")
    report("| process | import beyond its dependencies, s | problem and two epochs, s |")
    report("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first on a machine (compiles)", "later"):
            environment = {**os.environ, "TRSVR_CACHE_DIR": folder}
            run = subprocess.run(
                [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
            )
            imported, used = map(float, run.stdout.split())
            report(f"| {name} | {imported:.2f} | {used:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", help="also write the tables to this file")
    arguments = parser.parse_args()
    lines: list[str] = []

    def report(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    report(f"{platform.processor() or platform.machine()}, {_threads.available()} cores, NumPy {np.__version__}, ")
    report(f"Numba {numba.__version__}, Python {platform.python_version()}\n")
    for part in (full_passes, inner_step, sparse, first_use):
        part(report)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
