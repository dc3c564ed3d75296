"""Any finite sum, with the methods that algorithms call on kernels.

The compiled kernels work in place; a user's problem returns arrays. This adapter stands between, so that an algorithm
is written once. What a compiled batch keeps as margins, it keeps as the gradient of the last batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trsvr._arrays import Indices, Vector
from trsvr._vectors import dot
from trsvr.problems.protocol import FiniteSum


class NotFinite(ArithmeticError):
    """A function of the user's has returned NaN at a finite point."""

    @classmethod
    def refuse(cls, call: str, answer: Any, x: Vector, indices: Indices | None = None) -> None:
        """Raise if there is NaN in the answer, and none in x: says which call, on which rows."""
        numbers = np.atleast_1d(answer)
        if not np.isnan(numbers).any() or not np.isfinite(x).all():
            return
        place = int(np.flatnonzero(np.isnan(numbers))[0])
        where = f" at position {place}" if np.ndim(answer) else ""
        rows = "" if indices is None else f" for {_listed(indices)}"
        raise cls(f"{call} returned NaN{where}{rows}")


def _listed(indices: Indices) -> str:
    """Rows for a message: not too many."""
    shown = ", ".join(str(i) for i in indices[:8])
    return f"the rows {shown}" + (f", … ({len(indices)} in all)" if len(indices) > 8 else "")


class PlainKernels:
    """In-place batch operations over a `FiniteSum`."""

    kernels = None  # to an estimator's memory a problem like any other

    def __init__(self, problem: FiniteSum) -> None:
        self.problem = problem
        self.n_samples = problem.n_samples
        self.n_parameters = problem.n_parameters
        self._at_x: Vector | None = None

    def room(self, batch_size: int) -> int:
        """Numbers that ``margins`` must hold: none."""
        return 0

    def touch_row(self, i: int) -> None:
        """Nothing to do: the memory is not ours."""

    def _gradient(self, x: Vector, batch: Indices) -> Vector:
        gradient = np.asarray(self.problem.batch_gradient(x, batch), dtype=np.float64)
        NotFinite.refuse("batch_gradient", gradient, x, batch)
        return gradient

    def batch_gradient(self, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch at x."""
        self._at_x = self._gradient(x, batch)
        out[:] = self._at_x

    def gradient_difference(
        self, x: Vector, y: Vector, batch: Indices, margins: Vector, start: Vector, out: Vector
    ) -> None:
        """``start`` + mean over the batch of ∇f_i(x) − ∇f_i(y)."""
        self._at_x = self._gradient(x, batch)
        out[:] = start + (self._at_x - self._gradient(y, batch))

    def hessian_product(self, x: Vector, batch: Indices, margins: Vector, v: Vector, out: Vector) -> float:
        """Mean Hessian of the batch at x, times v; returns vᵀHv."""
        product: Any = self.problem.hessian_product(x, batch, v)  # type: ignore[attr-defined]  # optional member
        NotFinite.refuse("hessian_product", product, x, batch)
        out[:] = product
        return dot(v, out)

    def gradient_change(self, x: Vector, batch: Indices, margins: Vector, v: Vector, h: float, out: Vector) -> float:
        """(g(x + hv) − g(x)) / h of the batch's mean gradient g; returns its product with v.

        g(x) is the gradient that an estimator asked for just before, at the same x and batch.
        """
        assert self._at_x is not None, "curvature follows a gradient of the same batch"
        out[:] = (self._gradient(x + h * v, batch) - self._at_x) / h
        return dot(v, out)

    def fill_table(self, x: Vector, n: int, table: Vector, average: Vector) -> None:
        """∇f_i(x) of every i, in the rows of ``table``, and their mean, in ``average``."""
        gradients = table.reshape(n, -1)
        for i in range(n):
            gradients[i] = self._gradient(x, np.array([i]))
        average[:] = gradients.mean(axis=0)

    def table_difference(
        self, x: Vector, n: int, batch: Indices, margins: Vector, table: Vector, average: Vector, out: Vector
    ) -> None:
        """``average`` + mean over the batch of ∇f_i(x) minus the tabled gradients; then the table is renewed."""
        gradients = table.reshape(n, -1)
        distinct, counts = np.unique(batch, return_counts=True)
        new = np.array([self._gradient(x, np.array([i])) for i in distinct])
        shares = counts / batch.size
        self._at_x = shares @ new
        change = new - gradients[distinct]
        out[:] = average + shares @ change
        average += change.sum(axis=0) / n
        gradients[distinct] = new
