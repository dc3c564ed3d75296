"""How to survive a crash: a run killed in the middle, continued from its checkpoint, equal to the last bit.

The first half runs in a process of its own, which ends itself without any clean-up after epoch 12, as power cuts and
out-of-memory killers do. The second process says the same line again. A third run is left alone; the two must agree
in every bit.

    python examples/checkpoint.py [--fast] [--out FOLDER]
"""

import multiprocessing
import os
import tempfile
from pathlib import Path

import numpy as np

import trsvr
from drawing import options, panels, save
from trsvr.datasets import synthetic


def solve(n_samples, callback=None, **kept):
    data = synthetic(n_samples, 20, condition=1e3, lipschitz=1.0)
    problem = trsvr.problems.logistic(data.X, data.y, l2=1e-4)
    solver = trsvr.TRSVR(alpha=30.0, batch_size=200, inner_steps=20)
    return trsvr.minimize(problem, solver, max_epochs=30, tol=None, callback=callback, **kept).trace


def power_fails(so_far):
    if so_far.epochs > 12:
        os._exit(9)


if __name__ == "__main__":
    chosen, seen = options(__doc__), []
    n_samples = 2_000 if chosen.fast else 20_000
    with tempfile.TemporaryDirectory() as folder:
        kept = {"checkpoint": Path(folder) / "run.ckpt", "checkpoint_every": 1}
        first = multiprocessing.get_context("spawn").Process(target=solve, args=(n_samples, power_fails), kwargs=kept)
        first.start(), first.join()
        size = kept["checkpoint"].stat().st_size
        print(f"the first process ended with exit code {first.exitcode}; its checkpoint has {size} bytes")
        resumed = solve(n_samples, lambda so_far: seen.append(so_far.epochs), **kept)
    whole = solve(n_samples)
    print(f"the second process made epochs {seen[0]} to {seen[-1]}")
    same = resumed.drop(columns="seconds").equals(whole.drop(columns="seconds"))
    print(f"the same bits as the run that was left alone: {'yes' if same else 'no'}")

    figure, (axes,) = panels(6, 3.6, 1)
    cut, epochs, norms = seen[0] - 1, resumed["epoch"], np.sqrt(resumed["gradient_norm_sq"])
    axes.semilogy(epochs, np.sqrt(whole["gradient_norm_sq"]), color="0.8", linewidth=7, label="left alone")
    axes.semilogy(epochs[: cut + 1], norms[: cut + 1], "o-", markersize=3, label="first process")
    axes.semilogy(epochs[cut:], norms[cut:], "s-", markersize=3, label="second process")
    axes.axvline(cut, color="0.5", linestyle=":")
    axes.set(xlabel="epoch", ylabel="‖∇f‖")
    axes.legend()
    save(figure, chosen.out, "checkpoint")
