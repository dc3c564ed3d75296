"""A trust region in two dimensions: the model, the region, the step; and whole runs for three values of α.

Left: the quadratic model at the starting point. As the radius grows, the step of Steihaug's conjugate gradients runs
along −g to the Cauchy point, then turns towards the minimiser of the model: the blue line. Middle: the same where the
Hessian has a negative eigenvalue; there is no minimiser, and every step ends on the boundary. Right: runs of TRSVR on
a logistic regression, from the same start.

    python examples/trust_region.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import trsvr
from drawing import options, save
from trsvr.datasets import synthetic
from trsvr.parts.subproblems import CGWork

L2 = 1e-2


class Matrix:
    """A Hessian as conjugate gradients want it: a product, and vᵀHv with it."""

    def __init__(self, entries: np.ndarray) -> None:
        self.entries = entries

    def product(self, v: np.ndarray, squared_norm: float, out: np.ndarray) -> float:
        """Leave H v in ``out``; return vᵀHv."""
        out[:] = self.entries @ v
        return float(v @ out)


def step(hessian: np.ndarray, gradient: np.ndarray, radius: float) -> np.ndarray:
    """The step of Steihaug's method, to a tight tolerance."""
    work = CGWork.of_size(gradient.size)
    trsvr.parts.steihaug_cg(Matrix(hessian), gradient, radius, 1e-12, 10, work)
    return work.step.copy()


def draw_model(axes: Axes, hessian: np.ndarray, gradient: np.ndarray, radii: np.ndarray, reach: float) -> None:
    """Contours of gᵀp + ½ pᵀHp, three regions, and the steps for all radii."""
    one, two = np.meshgrid(np.linspace(-reach, reach, 161), np.linspace(-reach, reach, 161))
    p = np.stack([one, two])
    model = np.einsum("i,ijk", gradient, p) + 0.5 * np.einsum("ijk,il,ljk->jk", p, hessian, p)
    axes.contour(one, two, model, levels=18, colors="0.75", linewidths=0.7)
    path = np.array([step(hessian, gradient, radius) for radius in np.linspace(1e-6, radii[-1], 120)])
    axes.plot(*path.T, color="tab:blue")
    for radius in radii:
        axes.add_patch(plt.Circle((0, 0), radius, fill=False, color="tab:orange", linestyle="--"))
        end = step(hessian, gradient, radius)
        axes.plot(*end, "o", color="tab:blue", markersize=5)
    axes.plot(0, 0, "k+", markersize=9)
    downhill = -0.75 * reach * gradient / np.linalg.norm(gradient)
    axes.annotate("−g", (0, 0), downhill, arrowprops={"arrowstyle": "<-", "color": "0.4"}, ha="right", va="top")
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])


def main() -> None:
    chosen = options(__doc__)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
    gradient = np.array([1.0, 0.6])
    bowl = np.diag([2.0, 0.25])
    saddle = np.diag([1.5, -0.4])
    reach = 3.2
    draw_model(left, bowl, gradient, np.array([0.4, 1.2, 2.4]), reach)
    newton = -np.linalg.solve(bowl, gradient)
    left.plot(*newton, "*", color="tab:green", markersize=11)
    left.set_title("positive curvature: ★ is Newton's step", fontsize="medium")
    draw_model(middle, saddle, gradient, np.array([0.4, 1.2, 2.4]), reach)
    middle.set_title("a negative eigenvalue: to the boundary", fontsize="medium")

    data = synthetic(500 if chosen.fast else 4_000, 2, condition=40.0, lipschitz=1.0, seed=3)
    problem = trsvr.problems.logistic(data.X, data.y, l2=L2)
    best = trsvr.minimize(problem)
    ends = [best.x]
    for alpha, colour in ((0.5, "tab:red"), (5.0, "tab:orange"), (100.0, "tab:blue")):
        points = [np.zeros(2)]
        solver = trsvr.TRSVR(alpha=alpha, batch_size=200, inner_steps=1, hessian="exact")
        result = trsvr.minimize(
            problem, solver, max_epochs=12, tol=None,
            callback=lambda so_far, points=points: points.append(so_far.x.copy()),
        )  # fmt: skip
        right.plot(*np.array(points).T, "o-", color=colour, markersize=3, label=f"α = {alpha:g}")
        ends += points
        print(f"α = {alpha:<5g} gap after 12 steps {result.value - best.value:.1e}")
    low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    low, high = low - 0.15 * (high - low), high + 0.15 * (high - low)
    one, two = np.meshgrid(np.linspace(low[0], high[0], 60), np.linspace(low[1], high[1], 60))
    values = [problem.value_and_gradient(np.array(point))[0] for point in zip(one.ravel(), two.ravel(), strict=True)]
    levels = best.value + np.geomspace(1e-4, max(values) - best.value, 16)
    right.contour(one, two, np.reshape(values, one.shape), levels=levels, colors="0.75", linewidths=0.7)
    right.plot(*best.x, "*", color="tab:green", markersize=11)
    right.set(xticks=[], yticks=[])
    right.set_title("logistic regression, twelve steps each", fontsize="medium")
    right.legend(fontsize="small")
    save(figure, chosen.out, "trust_region")


if __name__ == "__main__":
    main()
