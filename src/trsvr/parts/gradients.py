"""Gradient estimators: what a step knows of ∇f(x) from a batch of rows.

An estimator is a record with these members:

- ``needs_reference``: whether an epoch begins with the full gradient;
- ``evaluations(b)``: component gradients that a step on b rows counts;
- ``memory(problem)``: the arrays it keeps, as one record; they are part of the solver's state;
- ``restart(memory, x, gradient)``: called at the beginning of an epoch with the full gradient at x (if it needs one);
- ``estimate(memory, problem, x, batch, margins, out)``: the estimate, in ``out``. ``margins`` belongs to the problem's
  kernels; they keep there what the batch's curvature needs, ``kernels.room(b)`` numbers for a batch of b rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import record
from trsvr._vectors import copy_into


@record
class NoMemory(NamedTuple):
    """An estimator that remembers nothing."""


@record
class Reference(NamedTuple):
    """The reference point x̃ and the full gradient g̃ there."""

    point: Vector
    gradient: Vector


class _OfBatch(NamedTuple):
    """What some estimators have in common."""

    @property
    def needs_reference(self) -> bool:
        """Whether an epoch begins with the full gradient."""
        return False

    def evaluations(self, batch_size: int) -> int:
        """Component gradients a step counts: b."""
        return batch_size

    def memory(self, problem: Any) -> Any:
        """Nothing."""
        return NoMemory()

    def restart(self, memory: Any, x: Vector, gradient: Vector) -> None:
        """Nothing to do."""


class _Differences(_OfBatch):
    """What those have in common that add the change of a batch's gradient to an estimate at another point."""

    needs_reference = True

    def evaluations(self, batch_size: int) -> int:
        """Component gradients a step counts: b at x and b at the other point."""
        return 2 * batch_size


@record
class PlainGradient(_OfBatch):
    """(1/b) Σ ∇f_i(x): unbiased, its variance does not fall."""

    def estimate(self, memory: NoMemory, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch."""
        problem.batch_gradient(x, batch, margins, out)


@record
class SVRGGradient(_Differences):
    """(1/b) Σ (∇f_i(x) − ∇f_i(x̃)) + g̃ (Johnson & Zhang 2013).

    Unbiased, with variance at most (L²/b)‖x − x̃‖²: it vanishes as x and the reference x̃ meet.
    """

    def memory(self, problem: Any) -> Reference:
        """Reference point and its full gradient."""
        return Reference(np.zeros(problem.n_parameters), np.zeros(problem.n_parameters))

    def restart(self, memory: Reference, x: Vector, gradient: Vector) -> None:
        """Take x as the new reference."""
        copy_into(x, memory.point)
        copy_into(gradient, memory.gradient)

    def estimate(
        self, memory: Reference, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector
    ) -> None:
        """Change of the batch's gradient since the reference, plus the full gradient there."""
        problem.gradient_difference(x, memory.point, batch, margins, memory.gradient, out)


@record
class Recursion(NamedTuple):
    """The point of the step before and the estimate made there."""

    previous: Vector
    direction: Vector


@record
class SARAHGradient(_Differences):
    """v = (1/b) Σ (∇f_i(x) − ∇f_i(x₋)) + v₋, with x₋ and v₋ from the step before (Nguyen et al. 2017).

    An epoch begins with v₋ the full gradient and x₋ = x, so its first estimate is exact. Within an epoch v is biased
    given the past, but its error comes from the last steps only and not from the distance to a reference.
    """

    def memory(self, problem: Any) -> Recursion:
        """Point and estimate of the step before."""
        return Recursion(np.zeros(problem.n_parameters), np.zeros(problem.n_parameters))

    def restart(self, memory: Recursion, x: Vector, gradient: Vector) -> None:
        """Begin the recursion with the full gradient."""
        copy_into(x, memory.previous)
        copy_into(gradient, memory.direction)

    def estimate(
        self, memory: Recursion, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector
    ) -> None:
        """Change of the batch's gradient since the step before, plus the estimate made there."""
        problem.gradient_difference(x, memory.previous, batch, margins, memory.direction, out)
        copy_into(x, memory.previous)
        copy_into(out, memory.direction)


@record
class Table(NamedTuple):
    """The newest gradient of every component, and their average."""

    entries: Vector  # linear models: a slope per row and output; other problems: a gradient per component
    average: Vector
    filled: Vector  # one number: whether the table has been filled
    counted: int  # N


@record
class SAGAGradient(_OfBatch):
    """(1/b) Σ (∇f_i(x) − t_i) + mean of all t, with t_i the gradient of component i when it was last drawn.

    Unbiased (Defazio, Bach & Lacoste-Julien 2014). For linear models t_i is one slope per output, since the gradient of
    a loss is that slope times the row; the regulariser is not tabled but exact. Other problems need N × d numbers. The
    table begins with one counted pass at the starting point.
    """

    def memory(self, problem: Any) -> Table:
        """An empty table; refused with its size if it would not fit into memory."""
        n, d = problem.n_samples, problem.n_parameters
        kernels = problem.kernels
        length = n * d if kernels is None else kernels.labels.size * problem.n_outputs
        table = f"SAGA's table of {n} gradients of length {d}"
        _check.fits_in_memory(8 * length, table, "SVRG and SARAH need no table")
        return Table(np.zeros(length), np.zeros(d), np.zeros(1), n)

    def fill(self, memory: Table, problem: Any, x: Vector) -> None:
        """The counted pass before the first step."""
        problem.fill_table(x, memory.counted, memory.entries, memory.average)
        memory.filled[0] = 1.0

    def estimate(self, memory: Table, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Change of the batch's gradients against the table, plus the table's average."""
        problem.table_difference(x, memory.counted, batch, margins, memory.entries, memory.average, out)


@record
class FullGradient(_OfBatch):
    """∇f(x) itself, one pass per step: what the classic trust region uses, with `RatioTest`."""

    needs_reference = True

    def evaluations(self, batch_size: int) -> int:
        """Component gradients a step counts beyond the full gradient: none."""
        return 0

    def estimate(self, memory: NoMemory, problem: Any, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch, which is all rows."""
        problem.batch_gradient(x, batch, margins, out)
