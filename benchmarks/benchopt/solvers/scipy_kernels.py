"""SciPy's methods on this library's compiled passes."""

import warnings

import numpy as np
import scipy.optimize
from benchmark_utils import Counted

import trsvr
from benchopt import BaseSolver


class Solver(BaseSolver):
    """L-BFGS-B and trust-ncg; every evaluation and every Hessian product is one pass."""

    name = "SciPy"
    install_cmd = "conda"
    requirements = ("scipy", "pip::trsvr")
    parameters = {"solver": ["L-BFGS-B", "trust-ncg"]}  # noqa: RUF012

    def set_objective(self, X, y, l2):
        """Keep the problem."""
        self.problem = trsvr.problems.logistic(X, y, l2=l2)

    def warm_up(self):
        """Compile, or load what was compiled before."""
        self.run_once(1)

    def run(self, n_iter):
        """So many iterations."""
        self.counted, self.w = Counted(self.problem), np.zeros(self.problem.n_parameters)
        if n_iter == 0:
            return
        options = {"maxiter": n_iter, "gtol": 1e-14}
        more = {"hessp": self.counted.hessian_product}
        if self.solver == "L-BFGS-B":
            options, more = {**options, "ftol": 0.0, "maxfun": 100 * n_iter}, {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = scipy.optimize.minimize(
                self.counted.value_and_gradient, self.w, jac=True, method=self.solver, options=options, **more
            )
        self.w = found.x

    def get_result(self):
        """Weights and passes."""
        return {"w": self.w, **self.counted.counts()}
