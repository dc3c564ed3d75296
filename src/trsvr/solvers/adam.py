"""Adam: steps scaled by running means of the gradient and of its square (Kingma & Ba 2015), as in PyTorch.

    g = (1/b) Σ_{i∈I} ∇f_i(x)
    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
    x ← x − step · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

An epoch is ⌈N/b⌉ steps, on rows drawn uniformly with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr.parts.schedules import adam_step
from trsvr.solvers.momentum import Moments, Momentum


def adam_steps(
    problem: Any,
    memory: Moments,
    x: Vector,
    indices: Indices,
    batch_size: int,
    steps_per_epoch: float,
    settings: tuple[float, float, float, float],
    margins: Vector,
    gradient: Vector,
) -> None:
    """Steps over consecutive batches of ``indices``."""
    step, beta1, beta2, eps = settings
    for begin in range(0, indices.size, batch_size):
        problem.batch_gradient(x, indices[begin : begin + batch_size], margins, gradient)
        memory.steps[0] += 1.0
        adam_step(step, beta1, beta2, eps, memory.steps[0], gradient, memory.mean, memory.square, x)


@dataclass(frozen=True)
class Adam(Momentum):
    """Adaptive moments.

    Parameters
    ----------
    step : float
        Step size.
    beta1, beta2 : float
        Memory of the two running means, 0 to below 1.
    eps : float
        Keeps the quotient finite.
    batch_size : int or "auto"
        b, rows per step; "auto" is 64, or N if that is less.
    """

    step: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    batch_size: int | str = "auto"

    steps = staticmethod(adam_steps)
    with_square = True

    def __post_init__(self) -> None:
        _check.positive("step", self.step)
        _check.positive("eps", self.eps)
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0.0 <= _check.positive(name, beta, zero=True) < 1.0:
                raise ValueError(f"{name} must be a number from 0 to below 1, got {beta!r}")
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size)

    def settings(self) -> tuple[float, float, float, float]:
        """The numbers of a step."""
        return float(self.step), float(self.beta1), float(self.beta2), float(self.eps)
