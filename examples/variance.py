"""What variance reduction does: the error of a batch gradient stays where it is, that of SVRG's estimate vanishes.

Along a run of SVRG the mean squared error of two estimates of ∇f(x) is computed exactly, from all N component
gradients: that of the plain batch, and that of the batch's change since the reference x̃, which begins every epoch at
zero and shrinks with the distance that is left to go. This is why SGD with a constant step comes to rest above the
minimum and SVRG with the same batch does not.

    python examples/variance.py [--fast] [--out FOLDER]
"""

import numpy as np
from scipy.special import expit

import trsvr
from drawing import options, panels, save
from trsvr.datasets import synthetic

BATCH, L2, STEP = 50, 1e-2, 0.5
chosen = options(__doc__)
data = synthetic(1_000 if chosen.fast else 4_000, 10, condition=10.0, lipschitz=1.0)
problem, signs = trsvr.problems.logistic(data.X, data.y, l2=L2), np.where(data.y > 0, 1.0, -1.0)


def components(x):  # all ∇f_i(x), one per row
    return (-signs * expit(-signs * (data.X @ x)))[:, None] * data.X + L2 * x


def error(rows):  # E‖mean of b rows − mean of all‖² for b rows drawn with replacement
    return np.square(rows - rows.mean(axis=0)).sum(axis=1).mean() / BATCH


steps, epochs, rng = problem.n_samples // BATCH, 10 if chosen.fast else 6, np.random.default_rng(0)
x, seen = np.zeros(problem.n_parameters), []
for k in range(epochs * steps):
    if k % steps == 0:
        reference, at_reference, full = x.copy(), components(x), problem.value_and_gradient(x)[1]
    here, batch = components(x), rng.integers(problem.n_samples, size=BATCH)
    seen.append((error(here), error(here - at_reference), np.sum(here.mean(axis=0) ** 2)))
    x -= STEP * (problem.batch_gradient(x, batch) - problem.batch_gradient(reference, batch) + full)
plain, reduced, squared = np.array(seen).T
print(f"after {epochs} epochs: ‖∇f‖² {squared[-1]:.1e}")
print(f"mean squared error of a batch of {BATCH}: plain {plain[-1]:.1e}, variance-reduced {reduced[-1]:.1e}")

figure, (left, right) = panels(9, 3.6)
lines = (plain, "C1--", "plain batch"), (reduced, "C0", "SVRG's estimate"), (squared, "C7:", "‖∇f‖²")
for curve, style, label in lines:
    left.semilogy(np.arange(len(curve)) / steps, np.where(curve > 0, curve, np.nan), style, label=label)
best, sgd = trsvr.minimize(problem, tol=1e-14).value, trsvr.SGD(step=STEP, momentum=0.0, batch_size=BATCH)
for solver, style in ((sgd, "C1s--"), (trsvr.SVRG(step=STEP, batch_size=BATCH, inner_steps=steps), "C0o-")):
    trace = trsvr.minimize(problem, solver, max_passes=60.0 if chosen.fast else 36.0, tol=None).trace
    gap, label = trace["value"] - best, type(solver).__name__
    right.semilogy(trace["passes"], gap.where(gap > 1e-16), style, markersize=3, label=label)
    print(f"{label} after {trace['passes'].iloc[-1]:.0f} passes: gap {max(gap.iloc[-1], 0.0):.1e}")
left.set(xlabel="epochs", title="mean squared error of the estimate")
right.set(xlabel="passes (gradient evaluations / N)", title="f − f*, the same step and batch")
left.legend(fontsize="small"), right.legend()
save(figure, chosen.out, "variance")
