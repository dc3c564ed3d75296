"""SAGA (Defazio, Bach & Lacoste-Julien 2014)."""

from benchmark_utils import FiniteSumSolver

import trsvr


class Solver(FiniteSumSolver):
    """With the step of its theory."""

    name = "SAGA"
    parameters = {"batch_size": [1]}  # noqa: RUF012

    def method(self):
        """An epoch is N steps on one row."""
        return trsvr.SAGA(batch_size=self.batch_size)
