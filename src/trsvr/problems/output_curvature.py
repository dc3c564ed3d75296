"""What a linear model with several outputs knows of its curvature at a point where it has just been evaluated.

The Hessian of a row's softmax loss is (diag(π) − ππᵀ) ⊗ x xᵀ. Its diagonal blocks, one per output, have the weights
π_k (1 − π_k): sampled matrices of the same kind as with one output. Products are with the whole Hessian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr._draws import Draws
from trsvr.problems.certificate import GapFacts, between_outputs, linear_facts, softmax_stays_steady
from trsvr.problems.curvature import SampledMatrix
from trsvr.problems.outputs import OutputKernels
from trsvr.problems.passes import KeptDiagonalSum, KeptProductSum
from trsvr.problems.regularizers import Penalty
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising

if TYPE_CHECKING:
    from trsvr.problems.linear import LinearModel


class OutputView(CurvatureView):
    """Value, gradient and curvatures at one point."""

    raising = Raising.GRADED

    def __init__(self, problem: LinearModel) -> None:
        kernels = problem.kernels
        assert isinstance(kernels, OutputKernels)
        self.problem, self.kernels = problem, kernels
        self.n_rows, self.d, self.n_outputs = kernels.labels.size, problem.n_parameters, kernels.classes
        self._penalty = Penalty(kernels.regularizer, self.d, kernels.columns * self.n_outputs)
        self._probabilities = np.zeros((self.n_rows, self.n_outputs))
        self._gram = SampledMatrix(problem)  # of one output at a time
        self._raised: Matrix | None = None
        self._weights: Matrix | None = None
        known = Prices.of_rows(problem.n_samples, self.d // self.n_outputs, self.n_outputs, problem.n_entries)
        self._prices = known._replace(batch_row=np.inf)

    def prices(self) -> Prices:
        """What arithmetic costs; batches of several outputs are not worth their noise."""
        return self._prices

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self.be_plain()
        return self.problem.value_and_gradient(x, self._probabilities.ravel())

    def snapshot(self) -> dict[str, Matrix]:
        """What the view knows, for a checkpoint."""
        return {"probabilities": self._probabilities}

    def restore(self, snapshot: dict[str, Matrix]) -> None:
        """Take over such a snapshot."""
        if snapshot["probabilities"].shape != self._probabilities.shape:
            raise ValueError(f"probabilities must have shape {self._probabilities.shape}")
        self._probabilities = snapshot["probabilities"].copy()
        self.be_plain()

    @property
    def _chances(self) -> Matrix:
        """The probabilities that make the curvatures."""
        return self._probabilities if self._raised is None else self._raised

    def _curvatures(self) -> Matrix:
        """π_k (1 − π_k) of every row, weighted; an array for each output."""
        if self._weights is None:
            known = self._chances.T
            self._weights = np.ascontiguousarray(known * (1.0 - known))
            if self.kernels.weights.size:
                self._weights *= self.kernels.weights
        return self._weights

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return float(self._curvatures().sum())

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after.

        ``flat`` is the part of every row's probabilities that is spread over all outputs; the whole of it would be
        Böhning's bound.
        """
        self.be_plain()
        before = self.total_weight()
        self._raised = raised_chances(self._probabilities, self.kernels.labels, steep)
        self._raised *= 1.0 - flat
        self._raised += flat / self.n_outputs
        self._weights = None
        after = self.total_weight()
        return before / after if after > 0.0 else 1.0

    def be_plain(self) -> None:
        """The curvatures are those of the losses again."""
        self._raised = self._weights = None

    def lower_curvatures(self, x: Vector) -> float:
        """They follow from the probabilities, which are kept."""
        self.be_plain()
        return 0.0

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._penalty.slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self._penalty.curvatures(x)

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian blocks of the losses, each from about so many rows; and how many rows that took together."""
        found = [self._gram.matrix(weights, rows, draws, k) for k, weights in enumerate(self._curvatures())]
        return np.stack([matrix for matrix, _ in found]), sum(taken for _, taken in found)

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f."""
        return linear_facts(
            self.problem,
            x,
            value,
            self._between_intercepts(),
            softmax_stays_steady,
            squares=lambda: self.problem.column_squares,
        )

    def _between_intercepts(self) -> Matrix:
        """Mean of diag(π) − ππᵀ."""
        chances, weights = self._probabilities, self.kernels.weights
        weighted = chances * weights[:, None] if weights.size else chances
        with one_blas_thread():
            squares = weighted.T @ chances
        return between_outputs(squares) / self.problem.n_samples

    def diagonal(self) -> Vector:
        """Diagonal of the mean Hessian of the losses."""
        return self._mean(KeptDiagonalSum(self._chances, self.d))

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        return self._mean(self.product_task(v))

    def product_task(self, v: Vector) -> KeptProductSum:
        """The same as a task for `Passes`."""
        return KeptProductSum(self._chances, v)

    def _mean(self, task: Any) -> Vector:
        return self.problem.summed(task, 1.0 / self.problem.n_samples)[1]

    def warm_up(self, dense: bool) -> None:
        """Compile (or load) what will be needed, so that a clock started afterwards does not see it."""
        self.problem.warm_up()
        nothing = np.zeros((1, self.n_outputs))
        self.problem.passes.warm_up(KeptProductSum(nothing, np.zeros(self.d)), self.kernels)
        if dense:
            self._gram.warm_up()
        else:
            self.problem.passes.warm_up(KeptDiagonalSum(nothing, self.d), self.kernels)


def raised_chances(chances: Matrix, labels: Vector, steep: float) -> Matrix:
    """Probabilities between π and the label's, for rows that are on the wrong side.

    There the loss is nearly linear, and its curvature says nothing about how far to go. With z = log((1 − π_y) / π_y)
    the mixture has the curvature (1 − π_y) / max(z, 1) along the label, at most ¼: with two outputs a row asks for the
    step that brings its margin about to zero, as in `raised_curvature`. So it is with ``steep`` = 1; with
    less of it, less is mixed in.
    """
    rows, places = np.arange(len(labels)), labels.astype(np.int64)
    right = chances[rows, places]
    odds = np.log1p(-np.minimum(right, 0.5)) - np.log(np.maximum(right, np.finfo(float).eps))
    wanted = np.minimum((1.0 - right) / np.maximum(odds, 1.0), 0.25)
    share = 0.5 - np.sqrt(0.25 - wanted)
    mixed = np.where(share > right, steep * (share - right) / np.maximum(1.0 - right, 0.5), 0.0)
    raised = chances * (1.0 - mixed)[:, None]
    raised[rows, places] += mixed
    return raised
