"""What α does: the paper's TRSVR from SVRG (small α) to Newton's method on sampled rows (large α).

The radius of a step is α‖ḡ‖. Up to α = 1/λmax(H) every step ends on the boundary, along −ḡ, and is a step of SVRG;
from α = 1/λmin(H) on the boundary is never met, and the step is Newton's. In between, directions of large curvature get
Newton's step and flat ones SVRG's. SVRG itself, with α as its step, diverges a little beyond 2/λmax.

    python examples/alpha.py [--fast] [--out FOLDER]
"""

import numpy as np
from scipy.special import expit

import trsvr
from drawing import options, panels, save
from trsvr.datasets import synthetic

BATCH, L2 = 200, 1e-3
chosen = options(__doc__)
data = synthetic(4_000 if chosen.fast else 20_000, 10, condition=1e3, lipschitz=1.0)
problem = trsvr.problems.logistic(data.X, data.y, l2=L2)
best = trsvr.minimize(problem, tol=1e-14)  # closer than by default: it is what the gaps are measured from
probability = expit(data.X @ best.x)
hessian = (data.X.T * (probability * (1.0 - probability))) @ data.X / len(data.X) + L2 * np.eye(10)
lowest, highest = np.linalg.eigvalsh(hessian)[[0, -1]]

epochs, rows = 5 if chosen.fast else 15, []
settings = {"batch_size": BATCH, "inner_steps": problem.n_samples // BATCH}
print(f"1/λmax = {1 / highest:.3g}, 1/λmin = {1 / lowest:.3g}; after {epochs} epochs:\n")
print(f"{'α':>9}{'TRSVR gap':>12}{'SVRG gap':>12}{'on the boundary':>18}{'products a step':>18}")
for alpha in np.geomspace(0.05 / highest, 20.0 / lowest, 7 if chosen.fast else 22):
    gaps = []
    for solver in (trsvr.SVRG(step=alpha, **settings), trsvr.TRSVR(alpha=alpha, hessian="exact", **settings)):
        result = trsvr.minimize(problem, solver, max_epochs=epochs, tol=None)
        last = result.trace.iloc[-1]
        diverged = result.status is trsvr.Status.DIVERGED or not last["value"] < 10.0 * best.value
        gaps.append(np.nan if diverged else max(last["value"] - best.value, 1e-16))
    rows.append((alpha, gaps[1], gaps[0], last["boundary_fraction"], last["cg_iterations"]))
    print("{:9.3g}{:12.1e}{:12.1e}{:18.2f}{:18.1f}".format(*rows[-1]))

alphas, ours, theirs, boundary, _ = np.array(rows).T
figure, (left, right) = panels(9, 3.6)
left.loglog(alphas, theirs, "s--", color="C1", markersize=7, fillstyle="none", label="SVRG, step α")
left.loglog(alphas, ours, "o-", color="C0", markersize=4, label="TRSVR")
left.set(ylabel=f"f − f* after {epochs} epochs", xlabel="α", title="how far it gets")
left.legend()
right.semilogx(alphas, boundary, "o-", color="C0", markersize=4)
right.set(ylabel="steps that end on the boundary", xlabel="α", title="SVRG on the left, Newton on the right")
for place, name, height in ((1.0 / highest, "1/λmax", 0.02), (1.0 / lowest, "1/λmin", 0.5)):
    left.axvline(place, color="0.6", linestyle=":")
    right.axvline(place, color="0.6", linestyle=":")
    right.text(1.15 * place, height, name, color="0.4")
save(figure, chosen.out, "alpha")
