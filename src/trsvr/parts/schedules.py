"""Step-size schedules and momentum, for the methods whose step is a plain multiple of the gradient.

A schedule is a record with ``factor(epochs)``: what the step is multiplied by after so many epochs (a fraction counts).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trsvr._arrays import Vector
from trsvr._compile import kernel, record


@record
class Constant(NamedTuple):
    """Always one."""

    def factor(self, epochs: float) -> float:
        """Factor of the step."""
        return 1.0


@record
class InverseTime(NamedTuple):
    """1 / (1 + decay · epochs): the classic choice that makes SGD converge."""

    decay: float = 1.0

    def factor(self, epochs: float) -> float:
        """Factor of the step."""
        return 1.0 / (1.0 + self.decay * epochs)


@record
class StepDecay(NamedTuple):
    """``drop`` to the power of the completed periods of ``every`` epochs."""

    drop: float = 0.1
    every: float = 30.0

    def factor(self, epochs: float) -> float:
        """Factor of the step."""
        return self.drop ** math.floor(epochs / self.every)


@record
class Cosine(NamedTuple):
    """Half a cosine from one to ``floor`` over ``total`` epochs."""

    total: float = 100.0
    floor: float = 0.0

    def factor(self, epochs: float) -> float:
        """Factor of the step."""
        done = min(epochs / self.total, 1.0)
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * done))


SCHEDULES = {"constant": Constant, "inverse-time": InverseTime, "step": StepDecay, "cosine": Cosine}


@kernel(fastmath=True)
def heavy_ball(momentum: float, step: float, gradient: Vector, velocity: Vector, x: Vector) -> None:
    """Velocity ← momentum · velocity + gradient, x ← x − step · velocity, in one sweep."""
    for j in range(x.size):
        velocity[j] = momentum * velocity[j] + gradient[j]
        x[j] -= step * velocity[j]


@kernel()
def adam_step(
    step: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    count: float,
    gradient: Vector,
    mean: Vector,
    square: Vector,
    x: Vector,
) -> None:
    """One step of Adam, with ``count`` the number of this step, in one sweep."""
    correction1 = 1.0 - beta1**count
    correction2 = math.sqrt(1.0 - beta2**count)
    for j in range(x.size):
        mean[j] = beta1 * mean[j] + (1.0 - beta1) * gradient[j]
        square[j] = beta2 * square[j] + (1.0 - beta2) * gradient[j] * gradient[j]
        x[j] -= step * (mean[j] / correction1) / (math.sqrt(square[j]) / correction2 + epsilon)
