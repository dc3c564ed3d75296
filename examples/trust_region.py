"""What a trust-region step looks like in two dimensions: the model, the region, the step; and whole runs for three α.

Left: the quadratic model at the starting point. As the radius grows, the step of Steihaug's conjugate gradients runs
along −g to the Cauchy point, then turns towards the minimiser of the model: the blue line. Middle: the same where the
Hessian has a negative eigenvalue; there is no minimiser, and every step ends on the boundary. Right: runs of TRSVR on
a logistic regression, from the same start.

    python examples/trust_region.py [--fast] [--out FOLDER]
"""

import numpy as np

import trsvr
from drawing import circle, on_grid, options, panels, save, steihaug, visited
from trsvr.datasets import synthetic

chosen, gradient, reach = options(__doc__), np.array([1.0, 0.6]), 3.2
figure, (left, middle, right) = panels(11, 3.8, 3)
for axes, hessian in ((left, np.diag([2.0, 0.25])), (middle, np.diag([1.5, -0.4]))):
    p = np.stack(np.meshgrid(*[np.linspace(-reach, reach, 161)] * 2))
    model = np.einsum("i,ijk", gradient, p) + 0.5 * np.einsum("ijk,il,ljk->jk", p, hessian, p)
    axes.contour(*p, model, levels=18, colors="0.75", linewidths=0.7)
    path = np.array([steihaug(hessian, gradient, radius) for radius in np.linspace(1e-6, 2.4, 120)])
    axes.plot(*path.T, color="C0")
    for radius in (0.4, 1.2, 2.4):
        axes.add_patch(circle(radius))
        axes.plot(*steihaug(hessian, gradient, radius), "o", color="C0", markersize=5)
    downhill = -0.75 * reach * gradient / np.linalg.norm(gradient)
    axes.annotate("−g", (0, 0), downhill, arrowprops={"arrowstyle": "<-", "color": "0.4"}, ha="right", va="top")
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
left.plot(*-np.linalg.solve(np.diag([2.0, 0.25]), gradient), "*", color="C2", markersize=11)
left.set_title("positive curvature: ★ is Newton's step", fontsize="medium")
middle.set_title("a negative eigenvalue: to the boundary", fontsize="medium")

data = synthetic(500 if chosen.fast else 4_000, 2, condition=40.0, lipschitz=1.0, seed=3)
problem = trsvr.problems.logistic(data.X, data.y, l2=1e-2)
best = trsvr.minimize(problem)
ends = [best.x[None, :]]
for alpha, style in ((0.5, "C4s:"), (5.0, "C1^--"), (100.0, "C0o-")):
    solver = trsvr.TRSVR(alpha=alpha, batch_size=200, inner_steps=1, hessian="exact")
    points, result = visited(problem, solver, np.zeros(2), max_epochs=12, tol=None)
    right.plot(*points.T, style, markersize=3, label=f"α = {alpha:g}")
    ends.append(points)
    print(f"α = {alpha:<5g} gap after 12 steps {result.value - best.value:.1e}")
low, high = np.concatenate(ends).min(axis=0), np.concatenate(ends).max(axis=0)
one, two, values = on_grid(problem, low - 0.15 * (high - low), high + 0.15 * (high - low))
levels = best.value + np.geomspace(1e-4, values.max() - best.value, 16)
right.contour(one, two, values, levels=levels, colors="0.75", linewidths=0.7)
right.plot(*best.x, "*", color="C2", markersize=11)
right.set(xticks=[], yticks=[])
right.set_title("logistic regression, twelve steps each", fontsize="medium")
right.legend(fontsize="small")
save(figure, chosen.out, "trust_region")
