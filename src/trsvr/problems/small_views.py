"""Curvatures of small data: the margins or probabilities of a `SmallModel` at one point, and what follows from them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr._draws import Draws
from trsvr._vectors import dot
from trsvr.problems.certificate import (
    GapFacts,
    between_outputs,
    gap_bound,
    lowest_value,
    softmax_stays_steady,
    stays_steady,
)
from trsvr.problems.curvature import draw_runs
from trsvr.problems.lines import HingedRows, lowest_part
from trsvr.problems.losses import bend_of, curvature_bound, is_smooth, sharing
from trsvr.problems.margins import raised_curvature
from trsvr.problems.output_curvature import raised_chances
from trsvr.problems.regularizers import least_curvature
from trsvr.problems.small import FEW_COLUMNS, MOST_WORK, SmallModel, dot_of_rows
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising

# How much cheaper than elsewhere a matrix is beside a product: BLAS makes it, and calls cost as much as arithmetic. Of
# several outputs it is no cheaper: their products are of matrices, too.
_CHEAPER = 8.0
_NO_WEIGHTS = np.empty(0)


def small_view(model: SmallModel) -> CurvatureView:
    """What the adaptive mode looks at: a view of one matrix, unless several outputs make that a large one."""
    if model.outputs == 1:
        return SmallView(model)
    whole = model.outputs * model.design.shape[1]
    fits = whole <= FEW_COLUMNS and model.n * whole * whole <= 4 * MOST_WORK
    return (WholeOutputView if fits else SmallOutputView)(model)


class _View(CurvatureView):
    """What the views share."""

    def __init__(self, model: SmallModel) -> None:
        self.model, self.n_rows, self._penalty = model, model.n, model.penalty
        if type(self) not in model.prices:
            model.prices[type(self)] = self._find_prices()
        self._prices = model.prices[type(self)]
        self._facts: GapFacts | None = None  # at the view's point, once asked for

    def _find_prices(self) -> Prices:
        model = self.model
        d = model.design.shape[1] * model.outputs // self.n_outputs
        known = Prices.of_rows(model.n, d, self.n_outputs, model.design.size)
        line = 1.0 if is_smooth(model.loss) else math.inf
        cheaper = _CHEAPER if self.n_outputs == 1 else 1.0
        return known._replace(matrix_row=known.matrix_row / cheaper, line=line)

    def prices(self) -> Prices:
        """What arithmetic costs."""
        return self._prices

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._penalty.slopes(x)

    @np.errstate(all="ignore")
    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f."""
        model = self.model
        if self._facts is not None or bend_of(model.loss) is None:
            return self._facts
        spread = float(model.mean_squares.sum())
        intercepts, slope, curved = self.sizes()
        self._facts = GapFacts(
            least_curvature(model.regularizer, model.penalised),
            intercepts if model.intercept else None,
            spread,
            spread,
            slope,
            curved,
            self.steadiness(),
            self._reach(x),
            lowest_value(model.loss, model.regularizer, model.penalised),
        )
        return self._facts

    def _reach(self, x: Vector) -> float:
        """Root mean square of Σ_j |x_ij w_j| + |b|."""
        sizes, columns = np.abs(x), self.model.values.shape[1]
        if self.model.outputs > 1:
            sizes = sizes.reshape(-1, self.model.outputs).max(axis=1)
        return dot(np.sqrt(self.model.mean_squares), sizes[:columns]) + float(sizes[columns:].sum())

    @np.errstate(all="ignore")
    def gap_bound_near(self, x: Vector, value: float, gradient: Vector, step: Vector) -> float:
        """The same by the help of a step that leads to about where the minimum is: a product more, and about exact."""
        facts = self.gap_facts(x, value)
        if facts is None:
            return math.inf
        moved = self.model.margins(step)
        slopes, curvature, longest = self.follow(moved)
        known = facts._replace(
            along=math.sqrt(curvature / self.n_rows),
            steady=lambda length: facts.steady(length + longest),
            reach=facts.reach + self._reach(step),
        )
        return gap_bound(known, value, x, gradient + self.model.sums(slopes))

    def follow(self, moved: Matrix) -> tuple[Matrix, float, float]:
        """Where margins move: by what slopes change, Σ tᵀ∇²φ t, and how long the longest t is."""
        raise NotImplementedError

    def sizes(self) -> tuple[Matrix, float, float]:
        """Mean Hessian of the losses between the intercepts; root mean squares of the rows' slopes and curvatures."""
        raise NotImplementedError

    def steadiness(self) -> Callable[[float], bool]:
        """Whether curvatures stay above their half where slopes move along t: what `GapFacts` asks.

        It does not know the view, which keeps the facts: a circle would be there until Python looks for such.
        """
        raise NotImplementedError

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self._penalty.curvatures(x)

    @np.errstate(all="ignore")
    def line(self, x: Vector, gradient: Vector, step: Vector) -> tuple[float, float, int]:
        """First and second derivative of f along a step, at its end; all rows are looked at."""
        along, there = self.model.margins(step), x + step
        slope, curvature = self.line_of_losses(along)
        slope, curvature = slope / self.n_rows, curvature / self.n_rows
        slope += dot(self._penalty.slopes(there), step)
        return slope, curvature + dot(self._penalty.curvatures(there) * step, step), self.n_rows

    def line_of_losses(self, along: Matrix) -> tuple[float, float]:
        """The same of the losses' sum, where margins change by so much."""
        raise NotImplementedError


class SmallView(_View):
    """One output: margins and curvatures of the rows at one point, as `trsvr.problems.curvature.MarginView`."""

    def __init__(self, model: SmallModel) -> None:
        super().__init__(model)
        self.margins = self.weights = np.zeros(model.n)
        # As they are without being raised; None where the view comes from a checkpoint.
        self._slopes_and_weights: tuple[Vector, Vector] | None = None
        bound = curvature_bound(model.loss)
        self.raising = Raising.WHOLE if bound is None else Raising.GRADED
        self._bound = 0.0 if bound is None else bound

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self._facts = None
        value, gradient, self.margins, self.weights, slopes = self.model.evaluate(x)
        self._slopes_and_weights = slopes, self.weights
        return value, gradient

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return {"margins": self.margins, "weights": self.weights}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        self._facts = None
        for name, known in self.snapshot().items():
            if snapshot[name].shape != known.shape or snapshot[name].dtype != known.dtype:
                raise ValueError(f"{name} must have {known.size} numbers, got shape {snapshot[name].shape}")
        self.margins, self.weights = snapshot["margins"].copy(), snapshot["weights"].copy()
        self._slopes_and_weights = None

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return float(self.weights.sum())

    @np.errstate(all="ignore")
    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after."""
        before, model = float(self.weights.sum()), self.model
        scale: Any = 1.0 if model.scale is None else model.scale
        self.weights = raised_curvature(model.loss, self.margins, model.labels, scale, self.weights, steep)
        if flat > 0.0:
            np.maximum(self.weights, flat * self._bound * scale, out=self.weights)
        after = float(self.weights.sum())
        return before / after if after > 0.0 else 1.0

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses times v."""
        return self.model.product(self.weights, v)

    def line_of_losses(self, along: Matrix) -> tuple[float, float]:
        """Σ φ' t and Σ φ'' t², where margins change by t."""
        model, there, weighted = self.model, self.margins + along, self.model.weighted(along)
        loss = sharing(model.loss, there)
        slopes, curvatures = loss.slope(there, model.labels), loss.curvature(there, model.labels)
        return dot_of_rows(slopes, weighted), dot_of_rows(curvatures * along, weighted)

    def lowest_part(self, there: Any, x: Vector, gradient: Vector, step: Vector) -> float:
        """Which part of a step leads to where f is lowest on its way, at a hinge."""
        model = self.model
        if is_smooth(model.loss):
            return math.nan
        weights = 1.0 if model.scale is None else model.scale
        rows = HingedRows(model.loss, model.labels, weights, self.margins, there.margins, self.n_rows)
        return lowest_part(rows, self, x, gradient, step)

    def _known(self) -> tuple[Vector, Vector]:
        """Slopes of the rows, and their curvatures without being raised."""
        if self._slopes_and_weights is None:
            slopes = self.model.loss.slope(self.margins, self.model.labels)
            self._slopes_and_weights = slopes, self.model.bent(self.model.loss, self.margins)
        return self._slopes_and_weights

    def follow(self, moved: Matrix) -> tuple[Matrix, float, float]:
        """Where margins move: by what weighted slopes change, Σ t φ'' t, and how long the longest t is."""
        slopes = self._known()[1] * moved
        return slopes, dot_of_rows(slopes, moved), float(np.abs(moved).max())

    def sizes(self) -> tuple[Matrix, float, float]:
        """Mean curvature, as it is without being raised; root mean squares of the rows' slopes and curvatures."""
        model, n = self.model, self.n_rows
        slopes, weights = self._known()
        curvatures = weights if model.scale is None else weights / model.scale
        mean, slope = float(weights.sum()) / n, dot_of_rows(model.weighted(slopes), slopes) / n
        return np.array([[mean]]), math.sqrt(slope), math.sqrt(dot_of_rows(weights, curvatures) / n)

    def steadiness(self) -> Callable[[float], bool]:
        """Whether curvatures stay above their half where slopes move by t times them."""
        return functools.partial(stays_steady, self.model.loss, self.margins, self.model.labels, _NO_WEIGHTS)

    @np.errstate(all="ignore")
    def diagonal(self) -> Vector:
        """Its diagonal."""
        return np.einsum("ij,ij,i->j", self.model.design, self.model.design, self.weights) / self.n_rows

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses from about so many rows, half of them drawn for their curvature; and how many."""
        if rows >= self.n_rows:
            return self.model.gram(self.weights)[None], self.n_rows
        matrix, taken = self.model.sampled_gram(self.weights, rows, draws)
        return matrix[None], taken

    @np.errstate(all="ignore")
    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int]:
        """Mean change of the losses' gradients from the view's point to x, on the two halves of a batch of runs."""
        begins, length = draw_runs(self.n_rows, batch_size, draws.stream("batch", number), scattered)
        chosen = (begins[:, None] + np.arange(length)) % self.n_rows  # runs wrap around at the end
        half = begins.size // 2
        return self._change(x, chosen[:half].ravel()), self._change(x, chosen[half:].ravel()), chosen.size

    def _change(self, x: Vector, chosen: Indices) -> Vector:
        model, rows, labels = self.model, self.model.design[chosen], self.model.labels[chosen]
        there = _apart(rows, x) + (0.0 if model.offset is None else model.offset[chosen])
        slopes = model.loss.slope(there, labels) - model.loss.slope(self.margins[chosen], labels)
        slopes *= 1.0 if model.scale is None else model.scale[chosen]
        return np.einsum("ij,i->j", rows, slopes) / chosen.size


def _apart(rows: Matrix, x: Vector) -> Vector:
    return np.einsum("ij,j->i", rows, x)


class SmallOutputView(_View):
    """Several outputs: probabilities of the rows, K × n, as `trsvr.problems.output_curvature.OutputView`."""

    raising = Raising.GRADED

    def __init__(self, model: SmallModel) -> None:
        self.n_outputs = model.outputs
        super().__init__(model)
        self._probabilities = self._chances = np.zeros((model.outputs, model.n))

    def _find_prices(self) -> Prices:
        return super()._find_prices()._replace(batch_row=math.inf)

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self._facts = None
        value, gradient, self._probabilities, *_ = self.model.evaluate(x)
        self._chances = self._probabilities
        return value, gradient

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return {"probabilities": self._probabilities}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        self._facts = None
        if snapshot["probabilities"].shape != self._probabilities.shape:
            raise ValueError(f"probabilities must have shape {self._probabilities.shape}")
        self._probabilities = self._chances = snapshot["probabilities"].copy()

    def _curvatures(self) -> Matrix:
        """π_k (1 − π_k) of every row, weighted."""
        return self.model.weighted(self._chances * (1.0 - self._chances))

    def sizes(self) -> tuple[Matrix, float, float]:
        """Mean of diag(π) − ππᵀ; root mean squares of the rows' slopes and, as it has at most its trace, of that."""
        model, chances = self.model, self._probabilities
        weighted = model.weighted(chances)
        between = between_outputs(np.einsum("ki,li->kl", weighted, chances)) / self.n_rows
        slopes = chances.copy()
        slopes[model.labels, np.arange(self.n_rows)] -= 1.0
        squares = (slopes * slopes).sum(axis=0), (chances * (1.0 - chances)).sum(axis=0) ** 2
        slope, curved = (float(model.weighted(one).sum()) / self.n_rows for one in squares)
        return between, math.sqrt(slope), math.sqrt(curved)

    def follow(self, moved: Matrix) -> tuple[Matrix, float, float]:
        """Where margins move: by what weighted slopes change, Σ tᵀ(diag(π) − ππᵀ)t, and how long the longest t is."""
        slopes = moved.copy()
        self.model.loss.probability_product(self._probabilities, slopes)
        slopes = self.model.weighted(slopes)
        curvature = max(float((slopes * moved).sum()), 0.0)
        return slopes, curvature, math.sqrt(float((moved * moved).sum(axis=0).max()))

    def steadiness(self) -> Callable[[float], bool]:
        """Whether probabilities stay positive where slopes move along t."""
        return softmax_stays_steady

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return float(self._curvatures().sum())

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures; returns their sum before over after."""
        self._chances = self._probabilities
        before = self.total_weight()
        raised = raised_chances(self._probabilities.T, self.model.labels, steep) * (1.0 - flat)
        self._chances = np.ascontiguousarray(raised.T) + flat / self.model.outputs
        after = self.total_weight()
        return before / after if after > 0.0 else 1.0

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses times v."""
        return self.model.product(self._chances, v)

    def line_of_losses(self, along: Matrix) -> tuple[float, float]:
        """Σ (π − e)ᵀt and Σ tᵀ(diag(π) − ππᵀ)t, where margins change by t."""
        chances = self._probabilities * np.exp(along - along.max(axis=0))
        chances /= chances.sum(axis=0)
        moved = chances * along
        mean = moved.sum(axis=0)
        slopes = mean - along[self.model.labels, np.arange(self.n_rows)]
        curvatures = (moved * along).sum(axis=0) - mean * mean
        return float(self.model.weighted(slopes).sum()), float(self.model.weighted(curvatures).sum())

    @np.errstate(all="ignore")
    def diagonal(self) -> Vector:
        """Its diagonal."""
        squares = np.einsum("ij,ij,ki->jk", self.model.design, self.model.design, self._curvatures())
        return squares.ravel() / self.n_rows

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian blocks of the losses, one for each output; and how many rows that took together."""
        if rows >= self.n_rows:
            return self.model.gram(self._curvatures()), self.n_outputs * self.n_rows
        found = [self.model.sampled_gram(of_one, rows, draws, k) for k, of_one in enumerate(self._curvatures())]
        return np.stack([matrix for matrix, _ in found]), sum(taken for _, taken in found)


class WholeOutputView(SmallOutputView):
    """Several outputs and few columns: the whole Hessian is one small matrix."""

    def __init__(self, model: SmallModel) -> None:
        super().__init__(model)
        self.n_outputs = 1

    def _find_prices(self) -> Prices:
        self.n_outputs = 1
        return super()._find_prices()

    @np.errstate(all="ignore")
    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses, (diag(π) − ππᵀ) ⊗ x xᵀ of every row.

        Nothing is subtracted, and digits stay where a class is all but sure: 1 − π_k is the sum of the others.
        """
        model, outputs, d = self.model, self.model.outputs, self.model.design.shape[1]
        # An output's columns lie together until the end: so there are fewer and longer loops.
        spread = (self._chances[:, None, :] * model.columns).reshape(-1, self.n_rows)
        weighted = spread if model.scale is None else spread * model.scale
        with one_blas_thread():
            together = -(weighted @ spread.T)
        blocks, own = together.reshape(outputs, d, outputs, d), np.arange(outputs)
        blocks[own, :, own] = 0.0
        blocks[own, :, own] = -blocks.sum(axis=2)
        matrix = blocks.transpose(1, 0, 3, 2).reshape(together.shape) / self.n_rows
        if d * outputs > model.penalised:
            # What all intercepts have in common the losses do not see: it stays where it is, and rounding out of it.
            matrix[-outputs:, -outputs:] += np.trace(matrix[-outputs:, -outputs:]) / outputs
        return matrix[None], self.n_rows
