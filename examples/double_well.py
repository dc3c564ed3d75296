"""A nonconvex sum and its negative curvature: who leaves a saddle point, and where the others stay.

Logistic regression with a double well on each of two coordinates. Every row comes once with either label, so the
gradient at zero is exactly zero although the Hessian has negative eigenvalues there: zero is no minimum, but a method
that looks at gradients alone cannot know. TRSVR, started there, finds the eigenvector and leaves; SVRG and L-BFGS
report convergence.

    python examples/double_well.py [--fast] [--out FOLDER]
"""

import numpy as np
from scipy.special import expit

import trsvr
from drawing import on_grid, options, panels, save, visited

L2, GAMMA, A = 1e-3, 0.5, 1.0
chosen, rng = options(__doc__), np.random.default_rng(1)
half = rng.normal(size=(200 if chosen.fast else 2_000, 2)) * np.array([1.0, 0.5])
half[:, 1] += 0.4 * half[:, 0]
X, y = np.repeat(half, 2, axis=0), np.tile([-1, 1], len(half))
problem = trsvr.problems.double_well_logistic(X, y, l2=L2, gamma=GAMMA, a=A)


def lowest_eigenvalue(x):  # of the Hessian at x, from its definition
    probability = expit(X @ x)
    hessian = (X.T * (probability * (1 - probability))) @ X / len(X)
    return np.linalg.eigvalsh(hessian + np.diag(L2 + 4.0 * GAMMA / x.size * (3.0 * x**2 - A**2)))[0]


print(f"from the saddle at zero, where the lowest eigenvalue is {lowest_eigenvalue(np.zeros(2)):.2f}:\n")
print(f"{'method':10}{'value':>12}{'‖∇f‖':>10}{'lowest eigenvalue':>20}  ended")
for solver in (trsvr.SVRG(step=0.1), trsvr.LBFGS(), trsvr.TRSVR()):
    result = trsvr.minimize(problem, solver, max_epochs=200)
    told = f"{result.value:12.8f}{result.gradient_norm:10.1e}{lowest_eigenvalue(result.x):20.3f}"
    print(f"{type(solver).__name__:10}{told}  {result.message}")

figure, (axes,) = panels(5.4, 4.6, 1)
one, two, values = on_grid(problem, (-1.6, -1.6), (1.6, 1.6))
axes.contourf(one, two, np.log10(values - values.min() + 1e-3), levels=24, cmap="Greys_r", alpha=0.6)
starts, minima = [np.zeros(2), *rng.uniform(-1.4, 1.4, size=(4 if chosen.fast else 12, 2))], set()
for k, start in enumerate(starts):
    points, result = visited(problem, trsvr.TRSVR(), start)
    minima.add(tuple(result.x.round(4) + 0.0))
    axes.plot(*points.T, "o-", color="C0" if k else "C4", markersize=3, zorder=2 if k else 3)
    axes.plot(*result.x, "*", color="C2", markersize=12, zorder=4)
axes.plot(0, 0, "X", color="C4", markersize=9, label="from the saddle point at zero")
axes.plot([], [], "o-", color="C0", markersize=3, label="from other points")
axes.plot([], [], "*", color="C2", linestyle="none", markersize=12, label="minima")
axes.set(xlabel="w₁", ylabel="w₂", xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
figure.legend(loc="outside upper center", ncols=3, fontsize="x-small")
print(f"\n{len(starts)} starts end in {len(minima)} minima")
save(figure, chosen.out, "double_well")
