"""How to write your own loss: Poisson regression for counts, in three formulas that are compiled into the solver.

The mean of a count is exp(xᵀw), so the negative log-likelihood of the margin z is exp(z) − y z. Its curvature,
exp(z), has no bound, so no step size can be derived from theory; the default TRSVR needs none. SciPy minimises the
same function, written down a second time in NumPy, and must find the same coefficients.

    python examples/own_loss.py [--fast] [--out FOLDER]
"""

from typing import NamedTuple

import numpy as np
import scipy.optimize

import trsvr
from drawing import options, panels, save


class Poisson(NamedTuple):
    """exp(z) − y z, for counts y, and its two derivatives in z."""

    def value(self, margin, label):
        return np.exp(margin) - label * margin

    def slope(self, margin, label):
        return np.exp(margin) - label

    def curvature(self, margin, label):
        return np.exp(margin)


chosen, rng = options(__doc__), np.random.default_rng(0)
X = rng.normal(size=(2_000 if chosen.fast else 50_000, 3))
y = rng.poisson(np.exp(X @ [0.6, 0.9, -0.4] + 1.0))
problem = trsvr.problems.LinearModel(X, y, Poisson(), trsvr.problems.L2(1e-3), intercept=True)
result = trsvr.minimize(problem)
print(f"{result.message}\n{result.epochs} epochs, {result.passes:.1f} passes; coefficients {result.x.round(4)}")


def in_numpy(x):
    margins, penalised = X @ x[:-1] + x[-1], np.append(x[:-1], 0.0)
    slopes = (np.exp(margins) - y) / len(y)
    value = np.mean(np.exp(margins) - y * margins) + 0.5e-3 * penalised @ penalised
    return value, np.append(X.T @ slopes, slopes.sum()) + 1e-3 * penalised


theirs = scipy.optimize.minimize(in_numpy, np.zeros(4), jac=True, tol=1e-15, method="L-BFGS-B")
print(f"largest difference from SciPy: {np.abs(result.x - theirs.x).max():.1e}")

figure, (axes,) = panels(6, 3.8, 1)
margins, shown = problem.decision(result.x), rng.choice(len(y), min(len(y), 1500), replace=False)
axes.plot(margins[shown], y[shown] + rng.uniform(-0.3, 0.3, len(shown)), ".", color="0.75", markersize=3)
grid, parts = np.linspace(*np.quantile(margins, [0.001, 0.995]), 100), np.array_split(np.argsort(margins), 20)
axes.plot(grid, np.exp(grid), color="C0", label="fitted mean, exp(z)")
middle, counts = np.array([(margins[rows].mean(), y[rows].mean()) for rows in parts]).T
axes.plot(middle, counts, "o", color="C1", label="mean count of a twentieth")
axes.set(xlabel="margin z = xᵀw + intercept", ylabel="count", ylim=(-1, float(np.quantile(y, 0.995))))
axes.legend(), save(figure, chosen.out, "own_loss")
