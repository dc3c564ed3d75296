"""What one gets without tuning: nine solvers on one data set, the same start, the same counting, one plot per cost.

A pass is N evaluations of a component gradient, whoever makes them; Hessian products count as well. Every solver runs
with its own defaults, so this shows what one gets without tuning. Take it as the pattern for a comparison of your
own.

    python examples/compare_solvers.py [--data NAME] [--fast] [--out FOLDER]
"""

from threadpoolctl import threadpool_limits

import trsvr
from drawing import options, panels, save
from trsvr.experiments.figures import legend_below, pen, style

SOLVERS = {
    "TRSVR": trsvr.TRSVR(),
    "SVRG": trsvr.SVRG(),
    "SAGA": trsvr.SAGA(),
    "SARAH": trsvr.SARAH(),
    "SGD": trsvr.SGD(schedule="inverse-time"),
    "Adam": trsvr.Adam(),
    "TRish": trsvr.TRish(),
    "classic trust region": trsvr.TrustRegion(),
    "L-BFGS": trsvr.LBFGS(),
}


def main() -> None:
    chosen = options(__doc__, data=("digits-even", "a data set that `trsvr data list` knows"))
    data = trsvr.datasets.load(chosen.data)
    problem = trsvr.problems.logistic(data.X, data.y, l2=1e-4)
    lowest = trsvr.minimize(problem, tol=1e-13).value
    passes = 20.0 if chosen.fast else 300.0
    print(f"{problem}, f* = {lowest:.15g}\n\n{'solver':22}{'passes':>8}{'seconds':>9}{'gap':>10}  ended")
    figure, (left, right) = panels(10, 4)
    for place, (name, solver) in enumerate(SOLVERS.items()):
        # One thread, of ours and of BLAS: on small data a second one waits more than it works.
        with threadpool_limits(1):
            result = trsvr.minimize(problem, solver, max_epochs=None, max_passes=passes, threads=1)
        width = 3.0 if name == "TRSVR" else 1.5
        gap = (result.trace["value"] - lowest).clip(lower=1e-16)
        for axes, column in ((left, "passes"), (right, "seconds")):
            axes.semilogy(result.trace[column], gap, label=name, **pen(style(place)) | {"linewidth": width})
        above = max(result.value - lowest, 0.0)
        print(f"{name:22}{result.passes:8.1f}{result.seconds:9.3f}{above:10.1e}  {result.message}")
    left.set_xlabel("passes (gradient evaluations / N)")
    right.set_xlabel("seconds")
    right.set_xscale("log"), right.sharey(left)
    left.set_ylabel("f − f*")
    legend_below(figure, left)
    figure.suptitle(f"{chosen.data}, logistic regression, every solver with its defaults", fontsize="medium")
    save(figure, chosen.out, "compare_solvers")


if __name__ == "__main__":
    main()
