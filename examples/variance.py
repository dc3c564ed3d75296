"""What variance reduction does: the error of a batch gradient stays where it is, that of SVRG's estimate vanishes.

Along a run of SVRG the mean squared error of two estimates of ∇f(x) is computed exactly, from all N component
gradients: that of the plain batch, (1/b)·mean‖∇f_i − ∇f‖², and that of the batch's change since the reference x̃. The
second is at most (L²/b)‖x − x̃‖². It begins every epoch at zero and shrinks with the distance that is left to go.
This is why SGD with a constant step comes to rest above the minimum and SVRG with the same batch does not.

    python examples/variance.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import trsvr
from drawing import options, save
from trsvr.datasets import synthetic

BATCH, L2 = 50, 1e-2


def components(X: np.ndarray, signs: np.ndarray, x: np.ndarray) -> np.ndarray:
    """All ∇f_i(x), one per row."""
    return (-signs * expit(-signs * (X @ x)))[:, None] * X + L2 * x


def mean_squared_error(rows: np.ndarray) -> float:
    """E‖mean of b rows − mean of all‖² for b rows drawn with replacement."""
    return float(np.square(rows - rows.mean(axis=0)).sum(axis=1).mean() / BATCH)


def main() -> None:
    chosen = options(__doc__)
    data = synthetic(1_000 if chosen.fast else 4_000, 10, condition=10.0, lipschitz=1.0)
    X, signs = data.X, np.where(data.y > 0, 1.0, -1.0)
    problem = trsvr.problems.logistic(X, data.y, l2=L2)
    best = trsvr.minimize(problem, tol=1e-14)
    largest = trsvr.theory.component_smoothness(problem)
    steps, epochs, step = problem.n_samples // BATCH, 10 if chosen.fast else 6, 0.5
    rng = np.random.default_rng(0)
    x = np.zeros(problem.n_parameters)
    plain, reduced, bound, squared = [], [], [], []
    for _ in range(epochs):
        reference = x.copy()
        at_reference, full = components(X, signs, reference), problem.value_and_gradient(reference)[1]
        for _ in range(steps):
            here = components(X, signs, x)
            plain.append(mean_squared_error(here))
            reduced.append(mean_squared_error(here - at_reference))
            bound.append(largest**2 / BATCH * float(np.sum((x - reference) ** 2)))
            squared.append(float(np.sum(here.mean(axis=0) ** 2)))
            batch = rng.integers(problem.n_samples, size=BATCH)
            x -= step * (problem.batch_gradient(x, batch) - problem.batch_gradient(reference, batch) + full)
    print(f"after {epochs} epochs: ‖∇f‖² {squared[-1]:.1e}")
    print(f"mean squared error of a batch of {BATCH}: plain {plain[-1]:.1e}, variance-reduced {reduced[-1]:.1e}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    numbers = np.arange(len(plain)) / steps
    left.semilogy(numbers, plain, color="tab:red", label="plain batch")
    left.semilogy(numbers, np.where(np.array(reduced) > 0, reduced, np.nan), color="tab:blue", label="SVRG's estimate")
    left.semilogy(numbers, np.where(np.array(bound) > 0, bound, np.nan), ":", color="tab:blue", label="its bound")
    left.semilogy(numbers, squared, color="0.6", label="‖∇f‖², what is estimated")
    left.set_xlabel("epochs")
    left.set_title("mean squared error of the estimate", fontsize="medium")
    left.legend(fontsize="small")
    passes = 60.0 if chosen.fast else 36.0
    for solver, label, colour in (
        (trsvr.SGD(step=step, momentum=0.0, batch_size=BATCH), "SGD", "tab:red"),
        (trsvr.SVRG(step=step, batch_size=BATCH, inner_steps=steps), "SVRG", "tab:blue"),
    ):
        trace = trsvr.minimize(problem, solver, max_passes=passes, tol=None).trace
        gap = trace["value"] - best.value
        right.semilogy(trace["passes"], gap.where(gap > 1e-16), "o-", color=colour, markersize=3, label=label)
        print(f"{label} after {trace['passes'].iloc[-1]:.0f} passes: gap {max(gap.iloc[-1], 0.0):.1e}")
    right.set_xlabel("passes (gradient evaluations / N)")
    right.set_title("f − f*, the same step and batch", fontsize="medium")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    save(figure, chosen.out, "variance")


if __name__ == "__main__":
    main()
