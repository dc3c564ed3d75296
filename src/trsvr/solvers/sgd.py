"""SGD: descent on plain batch gradients, with momentum (Robbins & Monro 1951, Polyak 1964), as in PyTorch.

    v ← momentum · v + (1/b) Σ_{i∈I} ∇f_i(x)
    x ← x − step · factor(epochs) · v

An epoch is ⌈N/b⌉ steps, on rows drawn uniformly with replacement. With a constant step it does not converge to the
minimiser but to a neighbourhood whose size falls with the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr.parts.schedules import heavy_ball
from trsvr.solvers.momentum import Moments, Momentum, checked_schedule


def sgd_steps(
    problem: Any,
    memory: Moments,
    x: Vector,
    indices: Indices,
    batch_size: int,
    steps_per_epoch: float,
    settings: tuple[float, float, Any],
    margins: Vector,
    gradient: Vector,
) -> None:
    """Steps over consecutive batches of ``indices``."""
    step, momentum, schedule = settings
    for begin in range(0, indices.size, batch_size):
        problem.batch_gradient(x, indices[begin : begin + batch_size], margins, gradient)
        factor = schedule.factor(memory.steps[0] / steps_per_epoch)
        heavy_ball(momentum, step * factor, gradient, memory.mean, x)
        memory.steps[0] += 1.0


@dataclass(frozen=True)
class SGD(Momentum):
    """Stochastic gradient descent with momentum.

    Parameters
    ----------
    step : float
        Step size.
    momentum : float
        0 to below 1.
    batch_size : int or "auto"
        b, rows per step; "auto" is 64, or N if that is less.
    schedule : {"constant", "inverse-time", "step", "cosine"} or a schedule of `trsvr.parts`
        What the step is multiplied by as epochs go by.
    """

    step: float = 0.01
    momentum: float = 0.9
    batch_size: int | str = "auto"
    schedule: Any = "constant"

    steps = staticmethod(sgd_steps)

    def __post_init__(self) -> None:
        _check.positive("step", self.step)
        if not 0.0 <= _check.positive("momentum", self.momentum, zero=True) < 1.0:
            raise ValueError(f"momentum must be a number from 0 to below 1, got {self.momentum!r}")
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size)
        checked_schedule(self.schedule)

    def settings(self) -> tuple[float, float, Any]:
        """Step size, momentum and schedule."""
        return float(self.step), float(self.momentum), checked_schedule(self.schedule)
