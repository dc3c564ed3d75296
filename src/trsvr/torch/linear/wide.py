"""One output of dense rows with hundreds of columns and more, on a device: conjugate gradients that stay there.

Their preconditioner is the Hessian's own matrix, of all rows or a sample, factored on the device: a host would take
longer for the factor than the device for everything else. It is made anew only when it has become a poor one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trsvr._arrays import Vector
from trsvr.parts.norms import DiagonalNorm
from trsvr.problems.steps import StepRequest, StepTaken
from trsvr.problems.views import NOTHING_KNOWN, Coming
from trsvr.torch.linear.cg import ConjugateGradients, Goal
from trsvr.torch.linear.outputs import fast_products
from trsvr.torch.linear.rows import DenseRows
from trsvr.torch.linear.sums import Sums
from trsvr.torch.linear.view import TensorView

# Columns from which it pays.
_WIDE = 500
# Products after which the next step has a new matrix.
_PATIENCE = 6
# rows · d² of a matrix at most: more rows are sampled.
_MOST_WORK = 1e12
# Rows of a block: their scaled copy is scratch.
_BLOCK_NUMBERS = 2**26
# What a matrix has on its diagonal beyond its own, relatively: the rounding of products on tensor cores.
_FLOOR = 1e-6
# A curvature below this part of the largest is rounding.
_FLAT = 1e-15
# Iterations between two looks of the host at how they go.
_UNSEEN = 2


def suits(sums: Sums) -> bool:
    """Whether rows are dense and wide and lie on a GPU; with an intercept the columns would have to be centred."""
    rows = sums.rows
    on_device = sums.device.type == "cuda" and sums.device == rows.device
    is_wide = isinstance(rows, DenseRows) and rows.columns > _WIDE
    return is_wide and on_device and sums.outputs == 1 and not sums.intercept


@dataclass
class Preconditioner:
    """The inverse of a matrix near the Hessian; one serves both views of a run."""

    inverse: Tensor | None = None
    made: dict[str, Any] = field(default_factory=dict)  # at which point, with which penalty and raised or not
    products: int = 0  # of the last step with it


class WideTensorView(TensorView):
    """Value, gradient and curvatures at one point."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        self._weights: Tensor | None = None
        self._values: Tensor = self.sums.rows.values
        self.sums.table = Preconditioner()  # a run begins without a matrix: the last one's would change its bits
        # The matrix is the view's own affair, and directions that improve a norm would have to travel.
        self._prices = self._prices._replace(matrix_row=math.inf, direction=math.inf, batch_row=math.inf)

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self._weights = None
        return super().evaluate(x, coming)

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures to what a bound on the losses would have; returns their sum before over after."""
        self._weights = None
        return super().raise_curvatures(steep, flat)

    @property
    def _known(self) -> Preconditioner:
        """The matrix that both views of a run share."""
        known: Preconditioner = self.sums.table
        return known

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, and where the matrix was made."""
        known = self._known
        made = {} if known.inverse is None else {**known.made, "products": known.products}
        return {**super().snapshot(), **{f"made_{name}": entry for name, entry in made.items()}}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot; the matrix is made again."""
        if "made_x" in snapshot:
            made = {name: snapshot[f"made_{name}"] for name in ("x", "penalty", "raised")}
            self.x, self._at, self._raised = made["x"], None, made["raised"]
            self._make(self.problem.to_device(made["penalty"]), made)
            self._known.products, self._weights = int(snapshot["made_products"]), None
        super().restore(snapshot)

    @property
    def weights(self) -> Tensor:
        """The rows' curvatures."""
        if self._weights is None:
            self._weights = self.sums.curvatures(self.at, self._raised)
        return self._weights

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        return self._product(self.problem.to_device(v)).cpu().numpy()

    def _product(self, v: Tensor) -> Tensor:
        return self.sums._back(self.weights * self.sums.along(v)) / self.n_rows

    def step(self, request: StepRequest) -> StepTaken:
        """Conjugate gradients on the device, without a bound; with one as everywhere."""
        if not request.is_unbounded or not isinstance(request.norm, DiagonalNorm):
            return super().step(request)
        known, penalty, rows = self._known, self.problem.to_device(request.penalty), 0
        if known.inverse is None or known.products > _PATIENCE:
            rows = self._make(penalty, {"x": self.x, "penalty": request.penalty, "raised": self._raised})
        inverse = known.inverse
        assert inverse is not None
        gradient = self.problem.to_device(request.gradient)
        steps = ConjugateGradients(gradient, lambda v: self._product(v) + penalty * v, lambda v: inverse @ v, _FLAT)
        goal = Goal(math.inf, request.tolerance, request.most_products, request.give_up)
        found = steps.run(gradient, goal, _UNSEEN)
        known.products = found.products
        found = found._replace(length=math.sqrt(float(request.norm.diagonal @ found.step**2)))
        return StepTaken(found, request.alpha, predicted_gradient=request.gradient + found.product, rows=rows)

    def _make(self, penalty: Tensor, made: dict[str, Any]) -> int:
        """(H + penalty)⁻¹ at the view's point, H from all rows or evenly spread ones, multiplied on tensor cores.

        Returns what that counts, in rows of a product.
        """
        values, p, d = self._values, self.sums.rows.columns, self.d
        every = max(1, math.ceil(self.n_rows * d * d / _MOST_WORK))
        rows, roots = values[::every], torch.sqrt(self.weights[::every]).to(values.dtype)
        matrix = torch.zeros(d, d, dtype=torch.float64, device=values.device)
        length = max(1, _BLOCK_NUMBERS // p)
        with fast_products():
            for begin in range(0, len(rows), length):
                scaled = rows[begin : begin + length] * roots[begin : begin + length]
                matrix += scaled.T @ scaled
        matrix /= len(rows)
        matrix.diagonal().add_(penalty.abs() + _FLOOR * matrix.diagonal() + np.finfo(float).tiny)
        self._known.inverse = torch.cholesky_inverse(torch.linalg.cholesky(0.5 * (matrix + matrix.T)))
        self._known.made = made
        return len(rows) * d // 4
