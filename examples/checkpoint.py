"""A run that dies and goes on: killed in the middle, continued from its checkpoint, equal to the last bit.

The first half runs in a process of its own, which ends itself without any clean-up after epoch 12, as power cuts and
out-of-memory killers do. The second process says the same line again. A third run is left alone; the two must agree
in every bit.

    python examples/checkpoint.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trsvr
from drawing import options, save
from trsvr.datasets import synthetic

KILLED_AFTER, EPOCHS = 12, 30


def solve(n_samples: int, checkpoint: Path | None, callback: object = None) -> trsvr.Result:
    data = synthetic(n_samples, 20, condition=1e3, lipschitz=1.0)
    problem = trsvr.problems.logistic(data.X, data.y, l2=1e-4)
    solver = trsvr.TRSVR(alpha=30.0, batch_size=200, inner_steps=20)
    return trsvr.minimize(
        problem,
        solver,
        max_epochs=EPOCHS,
        tol=None,
        checkpoint=checkpoint,
        checkpoint_every=None if checkpoint is None else 1,
        callback=callback,
    )


def begin_and_die(n_samples: int, checkpoint: Path) -> None:
    def power_fails(so_far: trsvr.Result) -> None:
        if so_far.epochs > KILLED_AFTER:
            os._exit(9)

    solve(n_samples, checkpoint, power_fails)


def main() -> None:
    chosen = options(__doc__)
    n_samples = 2_000 if chosen.fast else 20_000
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "run.ckpt"
        first = multiprocessing.get_context("spawn").Process(target=begin_and_die, args=(n_samples, checkpoint))
        first.start()
        first.join()
        size = checkpoint.stat().st_size
        print(f"the first process ended with exit code {first.exitcode}; its checkpoint has {size} bytes")
        seen: list[int] = []
        resumed = solve(n_samples, checkpoint, lambda so_far: seen.append(so_far.epochs))
    whole = solve(n_samples, None)
    same = np.array_equal(resumed.x, whole.x) and resumed.trace["value"].equals(whole.trace["value"])
    print(f"the second process made epochs {seen[0]} to {seen[-1]}")
    print(f"the same bits as the run that was left alone: {'yes' if same else 'no'}")

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    norms = np.sqrt(resumed.trace["gradient_norm_sq"])
    cut = seen[0] - 1
    axes.semilogy(
        whole.trace["epoch"], np.sqrt(whole.trace["gradient_norm_sq"]), color="0.8", linewidth=7, label="left alone"
    )
    axes.semilogy(resumed.trace["epoch"][: cut + 1], norms[: cut + 1], "o-", markersize=3, label="first process")
    axes.semilogy(resumed.trace["epoch"][cut:], norms[cut:], "s-", markersize=3, label="second process")
    axes.axvline(cut, color="0.5", linestyle=":")
    axes.set(xlabel="epoch", ylabel="‖∇f‖")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, chosen.out, "checkpoint")


if __name__ == "__main__":
    main()
