"""What α does: the paper's TRSVR from SVRG (small α) to Newton's method on sampled rows (large α).

The radius of a step is α‖ḡ‖. Up to α = 1/λmax(H) every step ends on the boundary, along −ḡ, and is a step of SVRG;
from α = 1/λmin(H) on the boundary is never met, and the step is Newton's. In between, directions of large curvature get
Newton's step and flat ones SVRG's. SVRG itself, with α as its step, diverges a little beyond 2/λmax.

    python examples/alpha.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import trsvr
from drawing import options, save
from trsvr.datasets import synthetic

BATCH, L2 = 200, 1e-3


def curvatures(X: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """λmin and λmax of the Hessian at x, from its definition."""
    probability = expit(X @ x)
    hessian = (X.T * (probability * (1.0 - probability))) @ X / len(X) + L2 * np.eye(X.shape[1])
    return tuple(np.linalg.eigvalsh(hessian)[[0, -1]])


def main() -> None:
    chosen = options(__doc__)
    data = synthetic(4_000 if chosen.fast else 20_000, 10, condition=1e3, lipschitz=1.0)
    problem = trsvr.problems.logistic(data.X, data.y, l2=L2)
    best = trsvr.minimize(problem, tol=1e-14)  # closer than by default: it is what the gaps are measured from
    lowest, highest = curvatures(data.X, best.x)
    alphas = np.geomspace(0.05 / highest, 20.0 / lowest, 7 if chosen.fast else 22)
    epochs = 5 if chosen.fast else 15
    settings = {"batch_size": BATCH, "inner_steps": problem.n_samples // BATCH}
    gaps: dict[str, list[float]] = {"TRSVR": [], "SVRG": []}
    boundary, products = [], []
    print(f"1/λmax = {1 / highest:.3g}, 1/λmin = {1 / lowest:.3g}; after {epochs} epochs:\n")
    print(f"{'α':>9}{'TRSVR gap':>12}{'SVRG gap':>12}{'on the boundary':>18}{'products a step':>18}")
    for alpha in alphas:
        for name, solver in (
            ("TRSVR", trsvr.TRSVR(alpha=alpha, hessian="exact", **settings)),
            ("SVRG", trsvr.SVRG(step=alpha, **settings)),
        ):
            result = trsvr.minimize(problem, solver, max_epochs=epochs, tol=None)
            last = result.trace.iloc[-1]
            diverged = result.status is trsvr.Status.DIVERGED or not last["value"] < 10.0 * best.value
            gaps[name].append(np.nan if diverged else max(last["value"] - best.value, 1e-16))
            if name == "TRSVR":
                boundary.append(last["boundary_fraction"])
                products.append(last["cg_iterations"])
        print(f"{alpha:9.3g}{gaps['TRSVR'][-1]:12.1e}{gaps['SVRG'][-1]:12.1e}{boundary[-1]:18.2f}{products[-1]:18.1f}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.loglog(alphas, gaps["SVRG"], "s--", color="tab:orange", markersize=7, fillstyle="none", label="SVRG, step α")
    left.loglog(alphas, gaps["TRSVR"], "o-", color="tab:blue", markersize=4, label="TRSVR")
    left.set_ylabel(f"f − f* after {epochs} epochs")
    left.legend()
    right.semilogx(alphas, boundary, "o-", color="tab:blue", markersize=4)
    right.set_ylabel("steps that end on the boundary")
    for axes in (left, right):
        axes.set_xlabel("α")
        axes.axvline(1.0 / highest, color="0.6", linestyle=":")
        axes.axvline(1.0 / lowest, color="0.6", linestyle=":")
        axes.grid(alpha=0.3)
    right.text(1.15 / highest, 0.02, "1/λmax", color="0.4")
    right.text(1.15 / lowest, 0.5, "1/λmin", color="0.4")
    left.set_title("how far it gets", fontsize="medium")
    right.set_title("SVRG on the left, Newton on the right", fontsize="medium")
    save(figure, chosen.out, "alpha")


if __name__ == "__main__":
    main()
