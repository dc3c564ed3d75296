"""How to add a gradient estimator of your own: loopless SVRG (Kovalev, Horváth & Richtárik 2020), in a trust region.

Instead of after S steps, the reference is renewed where a coin says so. The class below is compiled into the loop.
"""

from typing import NamedTuple

import numpy as np

import trsvr
from trsvr.parts import GradientRadius, SVRGGradient, record


@record
class Memory(NamedTuple):
    """What is kept from step to step: x̃, ∇f(x̃), all rows, room for their margins, the state of the coin."""

    point: np.ndarray
    full: np.ndarray
    rows: np.ndarray
    margins: np.ndarray
    coin: np.ndarray


@record
class LooplessSVRG(NamedTuple):
    """(1/b) Σ (∇f_i(x) − ∇f_i(x̃)) + ∇f(x̃), with x̃ ← x before a step with probability q."""

    n_samples: int = 1
    q: float = 0.01
    needs_reference = False  # the loop need not compute a full gradient at the beginning of an epoch

    def evaluations(self, batch_size):  # component gradients that a step counts, in the mean
        return round(2 * batch_size + self.q * self.n_samples)

    def memory(self, problem):
        n, d = problem.n_samples, problem.n_parameters
        return Memory(np.zeros(d), np.zeros(d), np.arange(n), np.zeros(problem.kernels.room(n)), np.zeros(1))

    def restart(self, memory, x, gradient): ...  # nothing to do at the beginning of an epoch

    def estimate(self, memory, problem, x, batch, margins, out):  # leaves the estimate in out
        if memory.coin[0] == 0.0 or memory.coin[0] < self.q * 2147483647.0:
            for j in range(x.size):  # compiled code allocates nothing; an array expression would
                memory.point[j] = x[j]
            problem.batch_gradient(x, memory.rows, memory.margins, memory.full)
        memory.coin[0] = (16807.0 * max(memory.coin[0], 1.0)) % 2147483647.0  # Park and Miller's generator
        problem.gradient_difference(x, memory.point, batch, margins, memory.full, out)


data = trsvr.datasets.synthetic(20_000, 20, condition=100.0, lipschitz=1.0)
problem = trsvr.problems.logistic(data.X, data.y, l2=1e-4)
best = trsvr.minimize(problem, trsvr.TrustRegion(), tol=1e-13).value
print(f"{problem}\n\n{'estimator':14}{'passes':>8}{'seconds':>9}{'gap':>10}")
for estimator in (SVRGGradient(), LooplessSVRG(problem.n_samples)):
    method = trsvr.TrustRegionMethod(gradient=estimator, radius=GradientRadius(5.0), batch_size=200, inner_steps=100)
    for passes in (6.0, 12.0, 24.0):
        run = trsvr.minimize(problem, method, max_passes=passes, tol=None)
        print(f"{type(estimator).__name__:14}{run.passes:8.1f}{run.seconds:9.3f}{max(run.value - best, 0.0):10.1e}")
