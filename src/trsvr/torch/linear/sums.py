"""Sums over the rows of a linear model, in plain torch: what the view of its curvature is made of.

Every sum is a function of the point alone; nothing is kept between calls. `trsvr.torch.linear.fused` has the same
methods in one launch each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trsvr._arrays import Vector
from trsvr.solvers.adaptive import Rules
from trsvr.torch.linear import formulas
from trsvr.torch.linear.rows import Rows

#: The noise at which a walk that is recorded on a device ends.
NOISE = Rules().noise


@dataclass(frozen=True)
class Runs:
    """Stretches of consecutive rows; they wrap around at the end of the data."""

    starts: Tensor
    length: int

    @property
    def size(self) -> int:
        """Rows in all."""
        return self.starts.numel() * self.length

    def rows(self, n_rows: int) -> Tensor:
        """Their numbers."""
        offsets = torch.arange(self.length, device=self.starts.device)
        return ((self.starts[:, None] + offsets) % n_rows).reshape(-1)


class Sums:
    """Sums of losses, slopes and curvatures over rows.

    The labels, one for each row, are of whatever number type holds them exactly; without weights every row has weight
    one; ``offset``, n × K, is added to the margins; the loss is one of `trsvr.torch.linear.formulas.KNOWN`; x is the
    flattened (p + intercept) × K matrix, with K ``outputs``.
    """

    walks = False  # whether it has `inner_steps`
    looks_along = False  # whether it has `line_host`
    reads_once = False  # whether it has `pass_host` and `curved` for several outputs
    draws_itself = False  # whether `matrix_host` is handed a key, from which it draws its rows
    resident: Sums | None = None  # of streamed rows, those that stay on the device
    table: Any = None  # of several outputs, what their views share

    def __init__(
        self,
        rows: Rows,
        labels: Tensor,
        weights: Tensor | None,
        loss: Any,
        intercept: bool,
        outputs: int,
        offset: Tensor | None = None,
    ) -> None:
        self.rows, self.labels, self.weights, self.offset = rows, labels, weights, offset
        self.loss, self.intercept, self.outputs = loss, intercept, outputs
        self.n_rows, self.device = rows.n_rows, rows.device
        self.n_parameters = (rows.columns + intercept) * outputs

    def take(self, indices: Tensor) -> Sums:
        """The same over a copy of the chosen rows."""
        weights = None if self.weights is None else self.weights[indices]
        rows = self.rows.take(indices)
        offset = None if self.offset is None else self.offset[indices]
        return Sums(rows, self.labels[indices], weights, self.loss, self.intercept, self.outputs, offset)

    # ------------------------------------------------------------------------------------------------- pieces

    def margins(self, x: Tensor) -> Tensor:
        """Z = X W + intercepts + offset, n × K."""
        Z = self.along(x)
        return Z if self.offset is None else Z + self.offset

    def along(self, x: Tensor) -> Tensor:
        """X W + intercepts: how margins change along a direction."""
        W = x.reshape(-1, self.outputs)
        p = self.rows.columns
        Z = self.rows.products(W[:p].contiguous())
        return Z + W[p] if self.intercept else Z

    def _back(self, S: Tensor) -> Tensor:
        """Σ s_i (x_i, 1), flattened."""
        out = self.rows.transposed(S)
        return torch.cat([out, S.sum(0, keepdim=True)]).reshape(-1) if self.intercept else out.reshape(-1)

    def _weighed(self, T: Tensor) -> Tensor:
        """Each row times its weight."""
        if self.weights is None:
            return T
        return T * (self.weights if T.ndim == 1 else self.weights[:, None])

    def mean_squared_row(self) -> float:
        """Mean of weight_i ‖x_i‖²."""
        return float(self._weighed(self.rows.squared_norms()).sum()) / self.n_rows

    def curvatures(self, x: Tensor, raised: bool = False) -> Tensor:
        """Weighted second derivatives, n × K; ``raised`` as `raise_curvatures` wants them."""
        find = formulas.raised_curvatures if raised else formulas.curvatures
        return self._weighed(find(self.loss, self.margins(x), self.labels.double()))

    # --------------------------------------------------------------------------------------------------- sums

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Σ losses and Σ their gradients."""
        values, slopes = formulas.values_and_slopes(self.loss, self.margins(x), self.labels.double())
        return self._weighed(values).sum(), self._back(self._weighed(slopes))

    def evaluate_tensors(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Σ losses, Σ gradients, Σ curvatures, left on the device."""
        Z, y = self.margins(x), self.labels.double()
        values, slopes = formulas.values_and_slopes(self.loss, Z, y)
        total = self._weighed(formulas.curvatures(self.loss, Z, y)).sum()
        return self._weighed(values).sum(), self._back(self._weighed(slopes)), total

    def evaluate(self, x: Tensor) -> tuple[float, Tensor, float]:
        """Σ losses, Σ gradients, Σ curvatures."""
        value, gradient, total = self.evaluate_tensors(x)
        return float(value), gradient, float(total)

    def evaluate_host(self, x: Vector) -> tuple[float, Vector, float]:
        """The same from and to the host."""
        value, gradient, total = self.evaluate(torch.from_numpy(x).to(self.device))
        return value, gradient.cpu().numpy(), total

    def warm_up(self, dense: bool) -> None:
        """Nothing is compiled."""

    def warm_up_steps(self) -> None:
        """Nothing is compiled."""

    def total_curvature(self, x: Tensor, raised: bool) -> Tensor:
        """Σ curvatures."""
        return self.curvatures(x, raised).sum()

    def product(self, x: Tensor, v: Tensor, raised: bool = False) -> Tensor:
        """Σ Hessians of the losses at x, times v."""
        Z, y = self.margins(x), self.labels.double()
        return self._back(self._weighed(formulas.curvature_times(self.loss, Z, y, self.along(v), raised)))

    def diagonal(self, x: Tensor, raised: bool = False) -> Tensor:
        """Diagonal of the same Hessians' sum."""
        weights = self.curvatures(x, raised)
        out = self.rows.squares(weights)
        return torch.cat([out, weights.sum(0, keepdim=True)]).reshape(-1) if self.intercept else out.reshape(-1)

    def matrices(
        self, x: Tensor, raised: bool = False, runs: Runs | None = None, centre: Tensor | None = None
    ) -> Tensor:
        """Σ curvature_ik (x_i, 1)(x_i, 1)ᵀ over all rows or the runs, one matrix for each output k.

        With a centre, which is subtracted from every row, they are made in float64 whatever the rows are.
        """
        part = self if runs is None else self.take(runs.rows(self.n_rows))
        weights = part.curvatures(x, raised)
        p = self.rows.columns
        d = p + self.intercept
        out = torch.empty(self.outputs, d, d, dtype=torch.float64, device=self.device)
        for k in range(self.outputs):
            out[k, :p, :p] = part.rows.gram(weights[:, k], centre)
        if self.intercept:
            border, total = part.rows.transposed(weights).T, weights.sum(0)
            if centre is not None:
                border = border - total[:, None] * centre
            out[:, :p, p] = border
            out[:, p, :p] = border
            out[:, p, p] = total
        return out

    def matrix_host(self, x: Vector, raised: bool, cut: tuple[int, int] | None, key: int) -> Any:
        """Such matrices from and to the host in one call; None where that is not worth it."""
        return None

    def evaluate_with_matrix(self, x: Vector, cut: tuple[int, int] | None, key: int) -> Any:
        """Both `evaluate_host` and `matrix_host` in one call; None where that is not worth it."""
        return None

    def warm_up_matrix(self, cut: tuple[int, int] | None) -> None:
        """Nothing is recorded."""

    def change(self, at: Tensor, x: Tensor, runs: Runs) -> Tensor:
        """Σ over the runs of the gradients' changes from ``at`` to x."""
        part = self.take(runs.rows(self.n_rows))
        y = part.labels.double()
        change = formulas.slopes_of(self.loss, part.margins(x), y) - formulas.slopes_of(self.loss, part.margins(at), y)
        return part._back(part._weighed(change))

    def changes(self, at: Tensor, x: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
        """The same for the two halves of the runs."""
        half = runs.starts.numel() // 2
        return (
            self.change(at, x, Runs(runs.starts[:half], runs.length)),
            self.change(at, x, Runs(runs.starts[half:], runs.length)),
        )

    def batch_gradient(self, x: Tensor, indices: Tensor) -> Tensor:
        """Σ over these rows of the losses' gradients."""
        return self.take(indices).value_and_gradient(x)[1]

    def batch_product(self, x: Tensor, indices: Tensor, v: Tensor) -> Tensor:
        """Σ over these rows of the losses' Hessians, times v."""
        return self.take(indices).product(x, v)
