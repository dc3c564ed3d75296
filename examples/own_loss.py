"""A loss of one's own: Poisson regression for counts, in three formulas that are compiled into the solver.

The mean of a count is exp(xᵀw), so the negative log-likelihood of the margin z is exp(z) − y z. Its curvature,
exp(z), has no bound, so no step size can be derived from theory; the default TRSVR needs none. SciPy minimises the
same function, written down a second time in NumPy, and must find the same coefficients.

    python examples/own_loss.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import trsvr
from drawing import options, save

L2 = 1e-3
TRUE = np.array([0.6, 0.9, -0.4])


class Poisson(NamedTuple):
    """exp(z) − y z, for counts y."""

    def value(self, margin: float, label: float) -> float:
        """Loss."""
        return np.exp(margin) - label * margin

    def slope(self, margin: float, label: float) -> float:
        """Derivative in the margin."""
        return np.exp(margin) - label

    def curvature(self, margin: float, label: float) -> float:
        """Second derivative."""
        return np.exp(margin)


def with_scipy(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same coefficients by another road."""

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        margins, w = X @ x[:-1] + x[-1], x[:-1]
        means = np.exp(margins)
        slopes = (means - y) / len(y)
        gradient = np.append(X.T @ slopes + L2 * w, slopes.sum())
        return float(np.mean(means - y * margins) + 0.5 * L2 * w @ w), gradient

    return scipy.optimize.minimize(
        value_and_gradient, np.zeros(X.shape[1] + 1), jac=True, options={"gtol": 1e-9, "ftol": 1e-15}, method="L-BFGS-B"
    ).x


def main() -> None:
    chosen = options(__doc__)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000 if chosen.fast else 50_000, len(TRUE)))
    y = rng.poisson(np.exp(X @ TRUE + 1.0))
    problem = trsvr.problems.LinearModel(X, y, Poisson(), trsvr.problems.L2(L2), intercept=True)
    result = trsvr.minimize(problem)
    print(result.message)
    print(f"{result.epochs} epochs, {result.passes:.1f} passes; coefficients and intercept {result.x.round(4)}")
    print(f"largest difference from SciPy: {np.abs(result.x - with_scipy(X, y)).max():.1e}")

    margins = X @ result.x[:-1] + result.x[-1]
    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    shown = rng.choice(len(y), min(len(y), 1500), replace=False)
    axes.plot(margins[shown], y[shown] + rng.uniform(-0.3, 0.3, len(shown)), ".", color="0.75", markersize=3)
    grid = np.linspace(*np.quantile(margins, [0.001, 0.995]), 100)
    axes.plot(grid, np.exp(grid), color="tab:blue", label="fitted mean, exp(z)")
    edges = np.quantile(margins, np.linspace(0, 1, 21))
    place = np.clip(np.digitize(margins, edges) - 1, 0, 19)
    centres = [margins[place == k].mean() for k in range(20)]
    axes.plot(
        centres, [y[place == k].mean() for k in range(20)], "o", color="tab:orange", label="mean count of a twentieth"
    )
    axes.set(xlabel="margin z = xᵀw + intercept", ylabel="count", ylim=(-1, float(np.quantile(y, 0.995))))
    axes.legend()
    save(figure, chosen.out, "own_loss")


if __name__ == "__main__":
    main()
