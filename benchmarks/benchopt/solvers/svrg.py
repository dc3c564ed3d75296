"""SVRG (Johnson & Zhang 2013)."""

from benchmark_utils import FiniteSumSolver

import trsvr


class Solver(FiniteSumSolver):
    """With the step of its theory, or a multiple of it."""

    name = "SVRG"
    parameters = {"times_theory": [1.0, 4.0], "batch_size": [1]}  # noqa: RUF012

    def method(self):
        """The step is computed once, by `set_objective`."""
        return trsvr.SVRG(step=self.times_theory * self.step, batch_size=self.batch_size)

    def set_objective(self, X, y, l2):
        """Keep the problem and the step for it."""
        super().set_objective(X, y, l2)
        self.step = trsvr.theory.recommended_step(self.problem, "svrg", batch_size=self.batch_size)
