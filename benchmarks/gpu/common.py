"""What the GPU benchmarks share: data, rivals, timing, tables, figures."""

from __future__ import annotations

import json
import math
import platform
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import host_only  # must come before trsvr
import numpy as np
import torch

import trsvr

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def about() -> dict[str, str]:
    """Date, device and versions."""
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = "none"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else platform.processor() or "CPU",
        "trsvr": trsvr.__version__,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton_version,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": "host vectors in NumPy" if "numba" in host_only.STANDING_IN else sys.modules["numba"].__version__,
    }


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def clock(function, runs=10) -> tuple[float, list[float]]:
    """Median and all wall-clock times, in seconds, each from an idle device to an idle device."""
    times = []
    for _ in range(runs):
        wait()
        begun = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - begun)
    return statistics.median(times), times


def device_time(function, runs=20) -> float:
    """Median time on the device in seconds, between events; launches are queued ahead."""
    if DEVICE != "cuda":
        return clock(function, 3)[0]
    pairs = []
    for _ in range(runs):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        function()
        last.record()
        pairs.append((first, last))
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(last) for first, last in pairs) / 1e3


def ill_conditioned(n: int, p: int, spread: float = 1e4, seed: int = 0, rows_seed: int = 0, device: str = DEVICE):
    """Gaussian rows, eigenvalues of the covariance log-spaced over ``spread``, rotated; labels of a logistic model."""
    generator = torch.Generator(device).manual_seed(seed)
    truth = torch.randn(p, generator=generator, device=device)
    generator.manual_seed(2**32 * (rows_seed + 1) + seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(p, p)))[0]
    eigenvalues = np.logspace(0.0, -math.log10(spread), p)
    root = torch.from_numpy((rotation * np.sqrt(eigenvalues)) @ rotation.T).to(device, torch.float32)
    X = torch.empty(n, p, dtype=torch.float32, device=device)
    y = torch.empty(n, dtype=torch.int8, device=device)
    for begin in range(0, n, 2**21):
        end = min(begin + 2**21, n)
        X[begin:end] = torch.randn(end - begin, p, generator=generator, device=device) @ root
        chance = torch.sigmoid(X[begin:end] @ truth)
        y[begin:end] = torch.where(torch.rand(end - begin, generator=generator, device=device) < chance, 1, -1)
    return X, y


# ------------------------------------------------------------------------------------------------------------ rivals


def evaluation(problem):
    """Returns x ↦ f and ∇f as float64 tensors on the device, by the problem's own pass."""
    strength = problem.regularizer.strength

    def evaluate(x):
        value, gradient = problem.sums.value_and_gradient(x)
        n = problem.n_samples
        return value / n + 0.5 * strength * (x @ x), gradient / n + strength * x

    return evaluate


def newton(problem, watch, steps=25):
    """Plain Newton: the full Hessian by torch, a Cholesky solve, halved steps until f falls."""
    evaluate, X, n = evaluation(problem), problem.sums.rows.values, problem.n_samples
    strength = problem.regularizer.strength
    x = torch.zeros(problem.n_parameters, dtype=torch.float64, device=X.device)
    value, gradient = evaluate(x)
    watch(x, value)
    for _ in range(steps):
        hessian = torch.zeros(x.numel(), x.numel(), dtype=torch.float64, device=X.device)
        for begin in range(0, n, 2**20):
            block = X[begin : begin + 2**20]
            share = torch.sigmoid(block.double() @ x)
            root = torch.sqrt(share * (1.0 - share)).float()
            scaled = block * root[:, None]
            hessian += (scaled.T @ scaled).double()
        hessian = hessian / n + strength * torch.eye(x.numel(), device=X.device, dtype=torch.float64)
        step = torch.cholesky_solve(gradient[:, None], torch.linalg.cholesky(hessian))[:, 0]
        length = 1.0
        while length > 1e-4:
            trial = x - length * step
            new, slope = evaluate(trial)
            if bool(new < value):
                break
            length *= 0.5
        else:
            return
        gained = float(value - new)
        x, value, gradient = trial, new, slope
        watch(x, value)
        if gained <= 1e-15 * abs(float(value)):
            return


def lbfgs(problem, watch, evaluations=400):
    """torch.optim.LBFGS with strong Wolfe line search on the same pass."""
    evaluate = evaluation(problem)
    x = torch.zeros(problem.n_parameters, dtype=torch.float64, device=problem.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [x],
        lr=1.0,
        max_iter=evaluations,
        max_eval=evaluations,
        history_size=20,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        value, x.grad = evaluate(x.detach())
        watch(x.detach(), value)
        return value

    optimizer.step(closure)


class Watch:
    """Wall-clock seconds and values of a run; the device is waited for at each look, as any stopping rule must."""

    def __init__(self):
        wait()
        self.begun, self.seconds, self.values = time.perf_counter(), [], []

    def __call__(self, x, value):
        """Note the value."""
        self.values.append(float(value))
        self.seconds.append(time.perf_counter() - self.begun)

    def curve(self, best, tol=1e-9):
        """Curve of relative gaps, and the time at which ``tol`` was reached."""
        gaps = [(value - best) / abs(best) for value in self.values]
        reached = next((s for s, gap in zip(self.seconds, gaps, strict=True) if gap <= tol), None)
        return {"seconds": self.seconds, "gaps": gaps, "reached": reached, "evaluations": len(gaps)}


def traced(problem, **options):
    """One run of trsvr with the wall-clock of every epoch."""
    watch = Watch()

    def callback(result):
        watch.values.append(result.rows[-1]["value"])
        watch.seconds.append(time.perf_counter() - watch.begun)

    result = trsvr.minimize(problem, callback=callback, **options)
    return result, watch


def compare(problem, runs=10, rivals=("newton", "lbfgs"), tol=1e-9):
    """Trsvr (median of some runs, to ``tol``) and its rivals on one problem."""
    begun = time.perf_counter()
    exact = trsvr.minimize(problem, seed=1)  # compiles, records graphs
    first = time.perf_counter() - begun
    finds = {"newton": newton, "lbfgs": lbfgs}
    for name in rivals:
        finds[name](problem, Watch(), 3)  # the same favour
    watches = {}
    for name in rivals:
        watches[name] = Watch()
        finds[name](problem, watches[name])
    result, watches["trsvr"] = traced(problem)
    best = min([exact.value, result.value] + [min(watch.values) for watch in watches.values()])
    curves = {name: watch.curve(best, tol) for name, watch in watches.items()}
    # The whole call, to its own stopping rule (an expected decrease of 1e-12 |f|) ...
    median, times = clock(lambda: trsvr.minimize(problem), runs)
    # ... and stopped at the gap itself, which a user does not know.
    target = best + tol * abs(best)

    def stop(result):
        if result.rows[-1]["value"] <= target:
            raise StopIteration

    to_gap, gap_times = clock(lambda: trsvr.minimize(problem, callback=stop), runs)
    return {
        "minimum": best,
        "first call": first,
        "trsvr": {
            "to gap": to_gap,
            "to gap all": gap_times,
            "whole call": median,
            "whole call all": times,
            "gap at end": (result.value - best) / abs(best),
            "epochs": result.epochs,
            "status": result.message,
            "trace": result.rows,
        },
        "curves": curves,
    }


# ------------------------------------------------------------------------------------------------------------ output


def show(found: dict, title: str) -> None:
    mine = found["trsvr"]
    print(f"\n{title}: minimum {found['minimum']:.15g}")
    if "first call" in found:
        print(f"  first call, with compilation: {found['first call']:.2f} s")
    print(f"  trsvr   {1e3 * mine['to gap']:9.2f} ms to 1e-9 (median), {1e3 * mine['whole call']:.2f} ms whole call, "
          f"{mine['epochs']} epochs, gap at end {mine['gap at end']:.1e}, {mine['status']}")  # fmt: skip
    for name, curve in found["curves"].items():
        if name != "trsvr":
            reached = "never" if curve["reached"] is None else f"{1e3 * curve['reached']:9.2f} ms"
            print(f"  {name:7} {reached} to 1e-9, {curve['evaluations']} evaluations, last gap {curve['gaps'][-1]:.1e}")
    for row in mine["trace"]:
        print(
            f"    epoch {row['epoch']:2.0f} {1e3 * row['seconds']:8.3f} ms f {row['value']:.15g} "
            f"inner {row['inner_steps']:.0f} b {row['batch_size']:.0f} rows {row['curvature_rows']:.0f} "
            f"alpha {row['alpha']:.2g} rejected {row['rejected']:.0f} cg {row['cg_iterations']:.0f}"
        )


def write(found: dict, out: str | None, name: str) -> None:
    """JSON, and a figure where matplotlib is installed."""
    if out is None:
        return
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{name}.json.part"
    temporary.write_text(json.dumps({"about": about(), **found}, indent=1, default=float) + "\n")
    temporary.rename(folder / f"{name}.json")
    try:
        import matplotlib
    except ImportError:
        print("no figure: matplotlib is not installed here; record.py draws it from the JSON")
        return
    if "curves" not in found:
        return
    matplotlib.use("Agg")
    draw(found, folder / f"{name}.png", name)


def draw(found: dict, path: Path, title: str) -> None:
    """Relative gap against time."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    for name, curve in found["curves"].items():
        gaps = [max(gap, 1e-16) for gap in curve["gaps"]]
        axes.loglog([max(1e3 * s, 1e-2) for s in curve["seconds"]], gaps, marker=".", label=name)
    axes.axhline(1e-9, color="0.7", linewidth=1)
    axes.set(xlabel="milliseconds", ylabel="(f − min f) / |min f|", title=title)
    axes.legend()
    figure.savefig(path, dpi=130)
    plt.close(figure)
