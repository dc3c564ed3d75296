"""What a problem is: anything with these members can be minimised."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from trsvr._arrays import Indices, Vector


class DataLostError(RuntimeError):
    """A part of the data can no longer be reached: the run ends with the best point so far."""


@runtime_checkable
class FiniteSum(Protocol):
    """f(x) = (1/N) Σ f_i(x), i = 0 … N−1.

    A problem may also have ``hessian_product(x, indices, v)``, the mean of ∇²f_i(x) v over the indices. Without it
    curvature is estimated by differences of gradients.

    A problem whose rows are elsewhere has ``fetch(indices, batch_size)``, which yields problems in this process's
    memory with the rows' numbers there, and may have ``expect(seed, epoch, draws)``: which rows the coming epoch will
    ask for. It raises `DataLostError` when it cannot go on.
    """

    @property
    def n_samples(self) -> int:
        """N."""

    @property
    def n_parameters(self) -> int:
        """Length of x."""

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x), NaN where the problem has no values, and ∇f(x)."""

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""

    def gather(self, indices: Indices) -> Any:
        """The same problem restricted to those rows, in this process's memory."""
