"""What the solvers of this library have in common."""

import math

import numpy as np

import trsvr
from benchopt import BaseSolver


class FiniteSumSolver(BaseSolver):
    """Runs one of this library's solvers for so many epochs, from w = 0, and says what it has counted."""

    install_cmd = "conda"
    requirements = ("pip::trsvr",)
    tol = None

    def method(self):
        """The solver, or None for the default one."""
        raise NotImplementedError

    def set_objective(self, X, y, l2):
        """Keep the problem; nothing is computed yet."""
        self.problem = trsvr.problems.logistic(X, y, l2=l2)

    def warm_up(self):
        """Compile, or load what was compiled before."""
        self.run_once(1)

    def get_next(self, previous):
        """Every epoch while they are few, then every tenth of those that were made."""
        return previous + max(1, previous // 10)

    def run(self, n_iter):
        """So many epochs; the curve is drawn by benchopt, so none is recorded here."""
        self.w, self.counts = np.zeros(self.problem.n_parameters), {"passes": 0.0, "gradient_evaluations": 0}
        if n_iter > 0:
            found = trsvr.minimize(
                self.problem, self.method(), max_epochs=n_iter, tol=self.tol, trace_every=n_iter, seed=0
            )
            self.w = found.x
            self.counts = {"passes": found.passes, "gradient_evaluations": found.gradient_evaluations}

    def get_result(self):
        """Weights and what they cost."""
        return {"w": self.w, **self.counts}


class Counted:
    """A problem's functions for solvers from elsewhere, with their cost in component gradients."""

    def __init__(self, problem):
        self.problem, self.evaluations = problem, 0

    def value_and_gradient(self, w):
        """One pass."""
        self.evaluations += self.problem.n_samples
        return self.problem.value_and_gradient(w)

    def hessian_product(self, w, v):
        """One pass."""
        self.evaluations += self.problem.n_samples
        return self.problem.hessian_product(w, None, v)

    def counts(self):
        """As the objective wants them."""
        return {"passes": self.evaluations / self.problem.n_samples, "gradient_evaluations": self.evaluations}


NOT_COUNTED = {"passes": math.nan, "gradient_evaluations": math.nan}
