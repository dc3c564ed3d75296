"""TRSVR as in the paper: Algorithm 1, Δ = α‖ḡ‖."""

from benchmark_utils import FiniteSumSolver

import trsvr


class Solver(FiniteSumSolver):
    """Euclidean norm, no acceptance test. Small α is SVRG, large α a sub-sampled Newton method."""

    name = "TRSVR-paper"
    parameters = {  # noqa: RUF012
        "alpha": [0.1, 1.0, 10.0],
        "batch_size": [200],
        "hessian": ["estimated"],
    }

    def method(self):
        """A number for α means the paper's algorithm."""
        batch_size = min(self.batch_size, self.problem.n_samples)
        return trsvr.TRSVR(alpha=self.alpha, batch_size=batch_size, hessian=self.hessian)
