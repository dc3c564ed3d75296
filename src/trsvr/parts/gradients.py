"""Gradient estimators: what a step knows of ∇f(x) from a batch of rows.

An estimator is a record with four members:

- ``needs_reference``: whether an epoch begins with the full gradient;
- ``evaluations(b)``: component gradients that a step on b rows counts;
- ``memory(d)``: the arrays it keeps, as one record; they are part of the solver's state;
- ``restart(memory, x, gradient)``: called at the beginning of an epoch with the full gradient at x (if it needs one);
- ``estimate(memory, problem, x, batch, margins, out)``: the estimate, in ``out``. ``margins`` belongs to the problem's
  kernels; they keep there what the batch's curvature needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trsvr._compile import record
from trsvr._vectors import Vector, copy_into
from trsvr.problems.margins import Indices


@record
class NoMemory(NamedTuple):
    """An estimator that remembers nothing."""


@record
class Reference(NamedTuple):
    """The reference point x̃ and the full gradient g̃ there."""

    point: Vector
    gradient: Vector


@record
class PlainGradient(NamedTuple):
    """(1/b) Σ ∇f_i(x): unbiased, its variance does not fall."""

    @property
    def needs_reference(self) -> bool:
        """Whether an epoch begins with the full gradient."""
        return False

    def evaluations(self, batch_size: int) -> int:
        """Component gradients a step counts: b."""
        return batch_size

    def memory(self, d: int) -> NoMemory:
        """Nothing."""
        return NoMemory()

    def restart(self, memory: NoMemory, x: Vector, gradient: Vector) -> None:
        """Nothing to do."""

    def estimate(self, memory: NoMemory, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch."""
        problem.batch_gradient(x, batch, margins, out)


@record
class SVRGGradient(NamedTuple):
    """(1/b) Σ (∇f_i(x) − ∇f_i(x̃)) + g̃ (Johnson & Zhang 2013).

    Unbiased, with variance at most (L²/b)‖x − x̃‖²: it vanishes as x and the reference x̃ meet.
    """

    @property
    def needs_reference(self) -> bool:
        """Whether an epoch begins with the full gradient."""
        return True

    def evaluations(self, batch_size: int) -> int:
        """Component gradients a step counts: b at x and b at the reference."""
        return 2 * batch_size

    def memory(self, d: int) -> Reference:
        """Reference point and its full gradient."""
        return Reference(np.zeros(d), np.zeros(d))

    def restart(self, memory: Reference, x: Vector, gradient: Vector) -> None:
        """Take x as the new reference."""
        copy_into(x, memory.point)
        copy_into(gradient, memory.gradient)

    def estimate(
        self, memory: Reference, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector
    ) -> None:
        """Change of the batch's gradient since the reference, plus the full gradient there."""
        problem.gradient_difference(x, memory.point, batch, margins, memory.gradient, out)
