"""A gradient estimator from outside the package: loopless SVRG (Kovalev, Horváth & Richtárik 2020), in a trust region.

SVRG renews its reference point after S steps. Loopless SVRG tosses a coin before every step and renews it with
probability q, so there is no inner loop whose length one would have to choose. An estimator is a class with the five
members below; marked as a record it is compiled into the loop, as fast as those of the package.

    python examples/own_estimator.py
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import trsvr
from trsvr.datasets import synthetic
from trsvr.parts import GradientRadius, SVRGGradient, record


@record
class Memory(NamedTuple):
    """What the estimator keeps: x̃, ∇f(x̃), all rows and room for their margins, and the state of the coin."""

    point: np.ndarray
    full_gradient: np.ndarray
    all_rows: np.ndarray
    all_margins: np.ndarray
    coin: np.ndarray


@record
class LooplessSVRG(NamedTuple):
    """(1/b) Σ (∇f_i(x) − ∇f_i(x̃)) + ∇f(x̃), with x̃ ← x before a step with probability q."""

    q: float = 0.01
    n_samples: int = 1
    needs_reference = False  # the loop need not compute a full gradient at the beginning of an epoch

    def evaluations(self, batch_size: int) -> int:
        """Component gradients that a step counts, in the mean."""
        return round(2 * batch_size + self.q * self.n_samples)

    def memory(self, problem: Any) -> Memory:
        """What is kept from step to step."""
        n, d = problem.n_samples, problem.n_parameters
        return Memory(np.zeros(d), np.zeros(d), np.arange(n), np.zeros(problem.kernels.room(n)), np.zeros(1))

    def restart(self, memory: Memory, x: np.ndarray, gradient: np.ndarray) -> None:
        """Nothing to do at the beginning of an epoch."""

    def estimate(
        self, memory: Memory, problem: Any, x: np.ndarray, batch: np.ndarray, margins: np.ndarray, out: np.ndarray
    ) -> None:
        """Leave the estimate in ``out``."""
        if memory.coin[0] == 0.0 or memory.coin[0] < self.q * 2147483647.0:
            for j in range(x.size):  # compiled code allocates nothing; an array expression would
                memory.point[j] = x[j]
            problem.batch_gradient(x, memory.all_rows, memory.all_margins, memory.full_gradient)
        # Park and Miller's generator: the coin is part of the state, so the same run gives the same numbers.
        memory.coin[0] = (16807.0 * max(memory.coin[0], 1.0)) % 2147483647.0
        problem.gradient_difference(x, memory.point, batch, margins, memory.full_gradient, out)


def main() -> None:
    data = synthetic(20_000, 20, condition=100.0, lipschitz=1.0)
    problem = trsvr.problems.logistic(data.X, data.y, l2=1e-4)
    best = trsvr.minimize(problem, trsvr.TrustRegion(), tol=1e-13).value
    lines = []
    for estimator in (SVRGGradient(), LooplessSVRG(q=0.01, n_samples=problem.n_samples)):
        method = trsvr.TrustRegionMethod(
            gradient=estimator, radius=GradientRadius(5.0), batch_size=200, inner_steps=100
        )
        for passes in (6.0, 12.0, 24.0):
            result = trsvr.minimize(problem, method, max_passes=passes, tol=None)
            gap = max(result.value - best, 0.0)
            lines.append(f"{type(estimator).__name__:14}{result.passes:8.1f}{result.seconds:9.3f}{gap:10.1e}")
    print(f"{problem}\n\n{'estimator':14}{'passes':>8}{'seconds':>9}{'gap':>10}", *lines, sep="\n")


if __name__ == "__main__":
    main()
