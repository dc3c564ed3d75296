"""TRSVR with nothing to choose."""

from benchmark_utils import FiniteSumSolver


class Solver(FiniteSumSolver):
    """``trsvr.minimize(problem)``, ended after so many epochs or by its own tolerance."""

    name = "TRSVR"
    tol = "auto"

    def method(self):
        """The default."""
        return
