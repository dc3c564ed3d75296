"""A nonconvex sum and its negative curvature: who leaves a saddle point, and where the others stay.

Logistic regression with a double well on each of two coordinates. Every row comes once with either label, so the
gradient at zero is exactly zero although the Hessian has negative eigenvalues there: zero is no minimum, but a method
that looks at gradients alone cannot know. TRSVR, started there, finds the eigenvector and leaves; SVRG and L-BFGS
report convergence.

    python examples/double_well.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import trsvr
from drawing import options, save

L2, GAMMA, A = 1e-3, 0.5, 1.0


def lowest_eigenvalue(X: np.ndarray, x: np.ndarray) -> float:
    """Of the Hessian at x, from its definition."""
    probability = expit(X @ x)
    hessian = (X.T * (probability * (1 - probability))) @ X / len(X)
    hessian += np.diag(L2 + 4.0 * GAMMA / x.size * (3.0 * x**2 - A**2))
    return float(np.linalg.eigvalsh(hessian)[0])


def main() -> None:
    chosen = options(__doc__)
    rng = np.random.default_rng(1)
    half = rng.normal(size=(200 if chosen.fast else 2_000, 2)) * np.array([1.0, 0.5])
    half[:, 1] += 0.4 * half[:, 0]
    X, y = np.repeat(half, 2, axis=0), np.tile([-1, 1], len(half))
    problem = trsvr.problems.double_well_logistic(X, y, l2=L2, gamma=GAMMA, a=A)

    print(f"from the saddle at zero, where the lowest eigenvalue is {lowest_eigenvalue(X, np.zeros(2)):.2f}:\n")
    print(f"{'method':10}{'value':>12}{'‖∇f‖':>10}{'lowest eigenvalue':>20}  ended")
    for solver in (trsvr.SVRG(step=0.1), trsvr.LBFGS(), trsvr.TRSVR()):
        result = trsvr.minimize(problem, solver, max_epochs=200)
        eigenvalue = lowest_eigenvalue(X, result.x)
        name, end = type(solver).__name__, result.message
        print(f"{name:10}{result.value:12.8f}{result.gradient_norm:10.1e}{eigenvalue:20.3f}  {end}")

    figure, axes = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
    one, two = np.meshgrid(np.linspace(-1.6, 1.6, 61), np.linspace(-1.6, 1.6, 61))
    values = [problem.value_and_gradient(np.array(point))[0] for point in zip(one.ravel(), two.ravel(), strict=True)]
    axes.contourf(
        one, two, np.log10(np.reshape(values, one.shape) - min(values) + 1e-3), levels=24, cmap="Greys_r", alpha=0.6
    )
    starts = [np.zeros(2), *rng.uniform(-1.4, 1.4, size=(4 if chosen.fast else 12, 2))]
    minima = set()
    for start in starts:
        points = [start]
        result = trsvr.minimize(
            problem, x0=start, callback=lambda so_far, points=points: points.append(so_far.x.copy())
        )
        minima.add(tuple(result.x.round(4) + 0.0))
        saddle = start is starts[0]
        axes.plot(
            *np.array(points).T,
            "o-",
            color="tab:red" if saddle else "tab:blue",
            markersize=3,
            zorder=3 if saddle else 2,
        )
        axes.plot(*result.x, "*", color="tab:green", markersize=12, zorder=4)
    axes.plot(0, 0, "X", color="tab:red", markersize=9, label="from the saddle point at zero")
    axes.plot([], [], "o-", color="tab:blue", markersize=3, label="from other points")
    axes.plot([], [], "*", color="tab:green", linestyle="none", markersize=12, label="minima")
    axes.set(xlabel="w₁", ylabel="w₂", xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
    figure.legend(loc="outside upper center", ncols=3, fontsize="x-small")
    print(f"\n{len(starts)} starts end in {len(minima)} minima")
    save(figure, chosen.out, "double_well")


if __name__ == "__main__":
    main()
