"""The linear probe on one GPU: ``python benchmarks/gpu/probe.py [--sets softmax,one] --out FOLDER``.

Softmax on generated embeddings (`benchmarks/probe.py` says how they are made), float32 on the device:
1 million × 50 × 10, 200 000 × 512 × 100, and 1 281 167 × 1024 × 1000, the shape of an ImageNet probe, beside torch's
L-BFGS in float32 on the same blocks of rows. And logistic regression with one output at 27 to 2000 columns beside plain
Newton and L-BFGS.

Times are wall clock from an idle device to an idle device, to relative gaps; memory is the most that torch has held,
X included, over the size of X.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import DEVICE, Watch, about, compare, ill_conditioned, wait, write  # isort: skip  # before trsvr

import torch

import trsvr
from trsvr import problems
from trsvr.torch import LinearModel

SOFTMAX = ((1_000_000, 50, 10, 1e-5), (200_000, 512, 100, 1e-5), (1_281_167, 1024, 1000, 1e-6))
WIDTHS = (
    (11_000_000, 27), (11_000_000, 28), (4_000_000, 54), (2_000_000, 100), (500_000, 300), (200_000, 1000),
    (100_000, 2000),
)  # fmt: skip
GAPS = (1e-3, 1e-6, 1e-9)


def embeddings(n, d, classes, seed=0):
    """Rows and labels, on the device."""
    random = torch.Generator(DEVICE).manual_seed(seed)
    centres = 0.35 * 0.6 * torch.randn(classes, d, generator=random, device=DEVICE)
    y = torch.randint(classes, (n,), generator=random, device=DEVICE)
    X = torch.empty(n, d, device=DEVICE)
    for begin in range(0, n, 2**16):
        piece = slice(begin, min(begin + 2**16, n))
        X[piece] = centres[y[piece]] + torch.randn(X[piece].shape, generator=random, device=DEVICE)
        X[piece] *= 0.1 * d**0.5 / X[piece].norm(dim=1, keepdim=True)
    return X, y


def lbfgs(X, y, classes, strength, watch, seconds, evaluations=2000):
    """torch.optim.LBFGS in float32, gradients by blocks of rows."""
    W = torch.zeros(X.shape[1], classes, device=X.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [W], max_iter=evaluations, max_eval=evaluations, history_size=10, tolerance_grad=0.0, tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    class TimeIsUpError(Exception):
        pass

    def closure():
        with torch.no_grad():
            value, W.grad = torch.zeros((), dtype=torch.float64, device=X.device), torch.zeros_like(W)
            for begin in range(0, len(y), 2**15):
                rows, labels = X[begin : begin + 2**15], y[begin : begin + 2**15, None]
                logs = torch.log_softmax(rows @ W, 1)
                value -= logs.gather(1, labels).sum(dtype=torch.float64)
                slopes = logs.exp_().scatter_add_(1, labels, -torch.ones_like(logs[:, :1]))
                W.grad += rows.T @ slopes
            W.grad /= len(y)
            W.grad += strength * W
            value = value / len(y) + 0.5 * strength * (W.double() ** 2).sum()
            watch(W, value)
        if watch.seconds[-1] > seconds:
            raise TimeIsUpError
        return value.float()

    with contextlib.suppress(TimeIsUpError):
        optimizer.step(closure)


def softmax(n, d, classes, strength, seconds, rival):
    """One set."""
    X, y = embeddings(n, d, classes)
    size = X.numel() * X.element_size()
    torch.cuda.reset_peak_memory_stats() if DEVICE == "cuda" else None
    problem = LinearModel(X, y, problems.Softmax(), problems.L2(strength))
    trsvr.minimize(problem, max_epochs=2)  # libraries are loaded, kernels chosen
    runs = []
    for _ in range(3 if n * d * classes < 1e11 else 1):
        watch = Watch()

        def note(result, watch=watch):
            watch(None, result.rows[-1]["value"])

        result = trsvr.minimize(problem, callback=note, max_seconds=seconds)
        wait()
        runs.append((time.perf_counter() - watch.begun, watch))
    whole, watch = min(runs, key=lambda run: run[0])
    found = {
        "rows": n, "columns": d, "classes": classes, "l2": strength, "whole call": whole, "status": result.message,
        "products": result.rows[-1]["hessian_products"], "passes": result.rows[-1]["passes"], "date": about()["date"],
        "memory over X": torch.cuda.max_memory_allocated() / size if DEVICE == "cuda" else None,
        "GiB": torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else None,
    }  # fmt: skip
    best, curves = result.value, {"trsvr": watch}
    if rival:
        del problem
        curves["lbfgs"] = Watch()
        lbfgs(X, y, classes, strength, curves["lbfgs"], min(seconds, 20 * whole + 1))
    found["minimum"] = best
    found["to gap"] = {
        name: {f"{gap:g}": curve.curve(best, gap)["reached"] for gap in GAPS} for name, curve in curves.items()
    }
    print(f"\nsoftmax {n} × {d} × {classes}, λ = {strength:g}: {whole:.3f} s, {found['products']} products, "
          f"{found['memory over X']} × X, {found['GiB']} GiB, {result.message}")  # fmt: skip
    for name, reached in found["to gap"].items():
        print(f"  {name}: {reached}")
    for row in result.rows:
        print(f"    {row['seconds']:.3f} s f {row['value']:.12g} gap {row['value'] / best - 1:.1e} "
              f"cg {row['cg_iterations']:.0f} rejected {row['rejected']}")  # fmt: skip
    sys.stdout.flush()
    return found


def one_output(n, d, runs):
    """Logistic regression beside plain Newton and L-BFGS."""
    X, y = ill_conditioned(n, d, 1e3)
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(1e-5))
    found = compare(problem, runs)
    shown = {name: curve["reached"] for name, curve in found["curves"].items()}
    ours = found["trsvr"]
    others = ", ".join(f"{name} {1e3 * reached:.2f}" if reached else f"{name} never" for name, reached in shown.items())
    print(f"one output {n} × {d}: trsvr {1e3 * ours['to gap']:.2f} ms to 1e-9, {1e3 * ours['whole call']:.2f} whole, "
          f"{ours['epochs']} epochs; {others}", flush=True)  # fmt: skip
    ours.pop("trace")
    return {"rows": n, "columns": d, "minimum": found["minimum"], "trsvr": ours, "reached": shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="softmax,one")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows: less for a quick look")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a run on many classes")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--only", type=int, nargs="*", help="which of the sets, by their number")
    parser.add_argument("--out", help="folder for the JSON; sets that are not run again stay in it")
    arguments = parser.parse_args()
    print(about())
    found = {"softmax": [], "one output": []}
    kept = Path(arguments.out or "", "probe.json")
    if arguments.out and kept.exists():
        found |= {kind: json.loads(kept.read_text())[kind] for kind in found}
    for kind, sets in (("softmax", SOFTMAX), ("one", WIDTHS)):
        if kind not in arguments.sets.split(","):
            continue
        found["softmax" if kind == "softmax" else "one output"] = []
        for place, (n, *shape) in enumerate(sets):
            if arguments.only and place not in arguments.only:
                continue
            n = int(n * arguments.scale)
            if kind == "softmax":
                found["softmax"].append(softmax(n, *shape, arguments.seconds, not arguments.no_rival))
            else:
                found["one output"].append(one_output(n, *shape, arguments.runs))
            gc.collect()
            torch.cuda.empty_cache() if DEVICE == "cuda" else None
            write(found, arguments.out, "probe")


if __name__ == "__main__":
    main()
