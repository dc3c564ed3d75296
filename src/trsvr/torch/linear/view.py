"""What a linear model on a device knows of its curvature at a point: tensors answer the view's questions.

The view remembers the point and two numbers. Margins and curvatures are computed anew, on the rows that are asked for:
on a device that is cheaper than writing one of them per row in each pass and reading it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trsvr._arrays import Matrix, Vector
from trsvr._draws import Draws, spread
from trsvr._vectors import dot
from trsvr.parts.norms import DenseNorm
from trsvr.problems.centring import CentredView
from trsvr.problems.certificate import GapFacts, linear_facts, steady_by_bend
from trsvr.problems.losses import bend_of
from trsvr.problems.steps import WalkRequest, WalkTaken
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising
from trsvr.torch.linear.sums import NOISE, Runs

# A device multiplies matrices so fast that a curvature sample may have more rows than on a CPU: rows · d² up to the
# first of these, and all rows, if that is below the second: in one reading of narrow rows, in tiles of wider ones, and
# where columns are so many that their matrix is the library's fastest product.
_SAMPLED_WORK = {64: 5e8, 128: 4e9, 512: 8e9, math.inf: 5e8}
_ALL_WORK = {64: 2e9, 500: 1.2e10, math.inf: 1e12}
_LONGEST_RUN = 64
# What a look along a step costs, in products: a sample of rows, and a wait.
_LINE = 0.1
# A batch is at most this part of rows that are themselves a sample.
_PART_OF_RESIDENT = 4


class TensorView(CurvatureView):
    """Value, gradient and curvatures at one point, for one output or several.

    Samples and batches are drawn from all rows; where these are streamed, from those that stay on the device, which
    are spread over all of them.
    """

    raising = Raising.WHOLE

    def __init__(self, problem: Any) -> None:
        self.problem, self.sums = problem, problem.sums
        self.n_rows, self.d, self.n_outputs = problem.n_samples, problem.n_parameters, problem.n_outputs
        self.x = np.zeros(self.d)
        self._at: torch.Tensor | None = None
        self._raised = False
        self._total = math.nan
        # A matrix that comes with the evaluation: cut, key, and what hands it over, unless it is there no more.
        self._ahead: tuple[Any, int, Callable[[], Any]] | None = None
        self._drawn = self.sums.resident or self.sums
        # Batches earn something only where a pass sends for rows: else the length of a step does as much for less.
        self._walks = self._drawn.walks and problem.penalty.cubic is not None and self._drawn is not self.sums
        known = Prices.of_rows(self.n_rows, self.d // self.n_outputs, self.n_outputs, problem.n_entries)
        # Steps on batches cost next to nothing where they stay on the device; with waits in between they do not pay.
        self._prices = known._replace(
            batch_row=0.0 if self._walks else math.inf, line=_LINE if self.sums.looks_along else math.inf
        )

    def prices(self) -> Prices:
        """What arithmetic costs; steps on batches are made without a word to the host."""
        return self._prices

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self.x = x.copy()
        self._at = None
        self._raised = False
        value, gradient, self._total = self._evaluated(coming)
        n, penalty = self.n_rows, self.problem.penalty
        return value / n + penalty.value(x), gradient / n + penalty.slopes(x)

    def _evaluated(self, coming: Coming) -> tuple[float, Vector, float]:
        """Sums of losses, gradients and curvatures, and in the same call the matrix that will be asked for."""
        self._ahead = None
        if coming.norm == "dense" and coming.draws is not None and not coming.raised and self._drawn is self.sums:
            asked = self._asked(coming.rows, self.sums, coming.draws)
            both = self.sums.evaluate_with_matrix(self.x, *asked)
            if both is not None:
                self._ahead = *asked, both[1]
                found: tuple[float, Vector, float] = both[0]
                return found
        return self.sums.evaluate_host(self.x)

    @property
    def at(self) -> torch.Tensor:
        """The point, on the device."""
        if self._at is None:
            self._at = self.problem.to_device(self.x)
        return self._at

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return {"x": self.x, "raised": self._raised, "total": self._total}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        x = np.asarray(snapshot["x"])
        if x.shape != self.x.shape or x.dtype != self.x.dtype:
            raise ValueError(f"x must have {self.d} numbers, got {x.dtype} of shape {x.shape}")
        self.x, self._at, self._ahead = x.copy(), None, None
        self._raised, self._total = bool(snapshot["raised"]), float(snapshot["total"])

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures to what a bound on the losses would have; returns their sum before over after."""
        before = self._total
        self._raised = True
        self._total = float(self.sums.total_curvature(self.at, raised=True))
        return before / self._total if self._total > 0.0 else 1.0

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f; between several intercepts the curvature is not known here."""
        problem = self.problem
        if problem.intercept and (self.n_outputs > 1 or self._raised or bend_of(problem.loss) == math.inf):
            return None
        total = np.array([[self._total / self.n_rows]])
        return linear_facts(problem, x, value, total, lambda t: steady_by_bend(problem.loss, t))

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return self._total

    # ------------------------------------------------------------------------------------------------ penalty

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self.problem.penalty.slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self.problem.penalty.curvatures(x)

    # ---------------------------------------------------------------------------------------------- the losses

    def blocks(self, rows: int, draws: Draws, centre: Vector | None = None) -> tuple[Matrix, int]:
        """Mean Hessian blocks from about so many rows (on a device often more); they are counted once for each.

        With a centre, which is subtracted from every row, products are of float64 numbers.
        """
        rows = self._worthwhile(rows)
        beyond = rows >= self.n_rows > self._drawn.n_rows  # more than the rows that stay on the device
        source = self.sums if beyond else self._drawn
        cut, key = self._asked(rows, source, draws)
        taken = source.n_rows if cut is None else cut[0] * cut[1]
        ahead = self._ahead
        found = ahead[2]() if ahead is not None and ahead[:2] == (cut, key) and not self._raised else None
        if found is None and centre is None:
            found = source.matrix_host(self.x, self._raised, cut, key)
        if found is None:
            runs = None if cut is None else self._spread(*cut, draws.stream("matrix"))
            middle = None if centre is None else self.problem.to_device(centre)
            found = source.matrices(self.at, self._raised, runs, middle).cpu().numpy()
        return found / taken, taken * self.n_outputs

    def _asked(self, rows: int, source: Any, draws: Draws) -> tuple[tuple[int, int] | None, int]:
        """The runs of a sample of at least so many rows (all of them: None), and the key to where they begin."""
        rows = self._worthwhile(rows)
        cut = None if rows >= source.n_rows else _cut(rows, 512)
        return cut, 0 if cut is None or not source.draws_itself else draws.key("matrix")

    def _worthwhile(self, rows: int) -> int:
        """How many rows a curvature sample is to have, if so many are asked for."""
        if self.problem.device.type != "cuda" or self._drawn.device != self._drawn.rows.device:
            return rows
        d = self.d // self.n_outputs
        wide = d if self.n_outputs == 1 else 0
        per_row = d * d * self.n_outputs
        if self._drawn.n_rows == self.n_rows and self.n_rows * per_row <= _work(_ALL_WORK, wide):
            return self.n_rows
        return max(rows, int(_work(_SAMPLED_WORK, wide) / per_row))

    def _spread(self, count: int, length: int, random: np.random.Generator) -> Runs:
        """Runs spread over all rows: a random start in each of equal stretches, so every row is as likely."""
        return Runs(self._sent(spread(self._drawn.n_rows, count, random), self._drawn), length)

    @staticmethod
    def _sent(starts: NDArray[np.int64], sums: Any) -> torch.Tensor:
        return torch.from_numpy(starts).to(sums.rows.device)

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        total = self.sums.product(self.at, self.problem.to_device(v), self._raised)
        return total.cpu().numpy() / self.n_rows

    def diagonal(self) -> Vector:
        """Diagonal of the mean Hessian of the losses."""
        return self.sums.diagonal(self.at, self._raised).cpu().numpy() / self.n_rows

    def line(self, x: Vector, gradient: Vector, step: Vector) -> tuple[float, float, int]:
        """First and second derivative along a step, at its end: how they change, from rows at equal distances."""
        penalty, there = self.problem.penalty, x + step
        slope, curvature, rows = self.sums.line_host(x, step)
        slope = slope / rows + dot(gradient + penalty.slopes(there) - penalty.slopes(x), step)
        return slope, curvature / rows + dot(penalty.curvatures(there) * step, step), rows

    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int]:
        """Mean change of the losses' gradients between this view's point and x, on two independent halves of a batch.

        The batch is runs of consecutive rows from random places, or ``scattered``: single rows. Returns the two
        halves' means and the number of rows.
        """
        source = self.sums if scattered else self._drawn
        count, length = (_even(batch_size), 1) if scattered else self._batch(batch_size)
        starts = draws.stream("batch", number).integers(source.n_rows, size=count)
        runs = Runs(self._sent(starts, source), length)
        halves = source.changes(self.at, self.problem.to_device(x), runs)
        per_half = count // 2 * length
        return halves[0].cpu().numpy() / per_half, halves[1].cpu().numpy() / per_half, count * length

    def _batch(self, rows: int) -> tuple[int, int]:
        """Runs of a batch of about so many rows, and their length.

        The rows that stay on the device have an error of their own, which the two halves of a batch do not show: a
        batch is a small part of them.
        """
        if self._drawn.n_rows < self.n_rows:
            rows = max(2, min(rows, self._drawn.n_rows // _PART_OF_RESIDENT))
        count, length = _cut(rows, 32)
        return _even(count), length

    def walk(self, request: WalkRequest) -> WalkTaken:
        """All steps on the device, without a word to the host in between, where a matrix there can stand for P."""
        norm = request.norm
        usable = self._walks and not request.scattered and isinstance(norm, DenseNorm) and request.noise == NOISE
        matrix = self._drawn.stands_for(norm) if usable else None
        if matrix is None:
            return request.usual(self, request)
        count, length = self._batch(request.batch_size)
        key = request.draws.key("batch")
        factor, cut = min(1.0, request.alpha), (count, length, request.most)
        x, steps = self._drawn.inner_steps(
            self.x, request.x, request.gradient, matrix, self.problem.penalty.cubic, factor, cut, key
        )
        return WalkTaken(x, steps, min(steps + 1, request.most), count * length, steps == 0)

    def warm_up(self, dense: bool) -> None:
        """Compile what will be needed, so that a clock started afterwards does not see it."""
        self.sums.warm_up(dense)
        if dense:
            rows = self._worthwhile(1)
            self._drawn.warm_up_matrix(None if rows >= self._drawn.n_rows else _cut(rows, 512))


class CentredTensorView(CentredView):
    """Such a view in centred coordinates; a walk on the device is made in those of the rows.

    Far from zero products of float32 rows have no digit of what is left when their means are taken out: there the rows
    of a matrix are centred first, and no step is made in their coordinates.
    """

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and its gradient at x; the view is then of x."""
        return super().evaluate(x, NOTHING_KNOWN if self.frame.is_far else coming)

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Diagonal blocks of the Hessian."""
        if self.frame.is_far and isinstance(self.view, TensorView):
            return self.view.blocks(rows, draws, self.frame.means)
        return super().blocks(rows, draws)

    def walk(self, request: WalkRequest) -> WalkTaken:
        """Steps on batches: what they are does not depend on coordinates."""
        frame, norm = self.frame, request.norm
        if frame.is_far or not isinstance(norm, DenseNorm):
            return super().walk(request)
        there = replace(
            request,
            x=frame.outside(request.x),
            reference=frame.outside(request.reference),
            gradient=frame.gradient_outside(request.gradient),
            norm=DenseNorm(frame.matrix_outside(norm.losses), norm.penalty),
            step=lambda gradient, size: frame.outside(request.step(frame.gradient_inside(gradient), size)),
        )
        taken = self.view.walk(there)
        return taken._replace(x=frame.inside(taken.x))


def _work(table: dict[float, float], columns: int) -> float:
    """What such a table has for so many columns."""
    return next(work for most, work in table.items() if columns <= most)


def _cut(rows: int, runs: int) -> tuple[int, int]:
    """So many rows as runs, at least the given number of them where there are enough: how many, and their length.

    A length is a power of two up to `_LONGEST_RUN`.
    """
    length = 1 << (max(1, min(rows // runs, _LONGEST_RUN)).bit_length() - 1)
    return math.ceil(rows / length), length


def _even(count: int) -> int:
    return max(2, math.ceil(count / 2) * 2)
