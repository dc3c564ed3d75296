"""TRSVR for benchopt's benchmark_logreg_l2: copy this file into that repository's solvers/."""

import numpy as np

import trsvr
from benchopt import BaseSolver


class Solver(BaseSolver):
    """Stochastic trust regions on variance-reduced gradients, with nothing to choose.

    That benchmark's objective is a sum of losses + (lmbd/2)‖β‖²; this library takes the mean, so λ = lmbd/N.
    """

    name = "trsvr"
    install_cmd = "conda"
    requirements = ("pip::trsvr",)
    references = ("Fang, Zheng and Lavaei: TRSVR: An Adaptive Stochastic Trust-Region Method with Variance Reduction",)

    def set_objective(self, X, y, lmbd):
        """Keep the problem; rows may be dense, CSR or CSC."""
        self.problem = trsvr.problems.logistic(X, y, l2=lmbd / X.shape[0])

    def warm_up(self):
        """Compile, or load what was compiled before."""
        self.run_once(1)

    def get_next(self, previous):
        """An epoch brings about two digits: look at each."""
        return previous + 1

    def run(self, n_iter):
        """So many epochs, or fewer if it converges before."""
        self.beta = np.zeros(self.problem.n_parameters)
        if n_iter > 0:
            self.beta = trsvr.minimize(self.problem, max_epochs=n_iter, trace_every=n_iter).x

    def get_result(self):
        """Under that benchmark's name."""
        return {"beta": self.beta}
