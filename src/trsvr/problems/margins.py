"""Kernels of a linear model with one output: sums over rows of functions of the margin z_i = x_iᵀw (+ intercept).

Each operation reads a row from memory once: its product with the weights gives a coefficient, and the row times that
coefficient is added to the result while the row is still in the nearest cache. The regulariser is added on vectors of
length d. Nothing is allocated. Rows of a batch are anywhere in memory, so they are asked for a few rows ahead.

The same methods, on objects instead of compiled records, are what `trsvr.problems.plain` offers for any finite sum; an
algorithm calls them without knowing which it has.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trsvr._arrays import Indices, Numbers, Vector
from trsvr._compile import jitable, jitable_loop, record
from trsvr._intrinsics import prefetch
from trsvr._vectors import is_zero
from trsvr.problems.losses import split_value
from trsvr.problems.regularizers import coordinate
from trsvr.problems.rows import BLOCK

# Rows ahead of the one at work that are asked for; four to eight measured alike.
_AHEAD = 8

# A block of rows is processed in one vector, in stretches of BLOCK numbers at fixed distances: the compiler then knows
# that they do not overlap, and uses vector registers.
LABELS, SLOPES, CURVATURES, ADDITIVES, FACTORS = BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK, 5 * BLOCK
OTHER_MARGINS = CURVATURES
SCRATCH = 6 * BLOCK


@jitable
def check_room(kernels: Any, batch: Indices, margins: Vector) -> None:
    """Refuse a short ``margins``: compiled code would write beyond its end."""
    if margins.size < kernels.room(batch.size):
        raise ValueError("margins is too short: it must hold kernels.room(batch_size) numbers")


@jitable
def _apply_loss(loss: Any, count: int, block: Vector) -> None:
    """Slopes, curvatures and the two parts of the values, from margins and labels."""
    for k in range(count):
        margin, label = block[k], block[LABELS + k]
        additive, factor = split_value(loss, margin, label)
        block[SLOPES + k] = loss.slope(margin, label)
        block[CURVATURES + k] = loss.curvature(margin, label)
        block[ADDITIVES + k] = additive
        block[FACTORS + k] = factor


@jitable
def _apply_loss_twice(loss: Any, count: int, block: Vector) -> None:
    """Changes of the slopes between two sets of margins."""
    for k in range(count):
        label = block[LABELS + k]
        block[SLOPES + k] = loss.slope(block[k], label) - loss.slope(block[OTHER_MARGINS + k], label)


@jitable_loop()
def _apply_curvature(loss: Any, count: int, block: Vector) -> None:
    """Curvatures at the margins, times how these change, which stands in the place of other margins."""
    for k in range(count):
        curvature = loss.curvature(block[k], block[LABELS + k])
        block[SLOPES + k] = curvature * block[OTHER_MARGINS + k]


@jitable_loop(fastmath=True)
def _block_value(count: int, block: Vector) -> float:
    """Sum of the losses: one logarithm for all factors, which are at most 2."""
    total = 0.0
    product = 1.0
    for k in range(count):
        total += block[ADDITIVES + k]
    for k in range(count):
        product *= block[FACTORS + k]
    return total + math.log(product)


@jitable_loop(fastmath=True)
def _total(count: int, numbers: Vector) -> float:
    """Sum of the first ones."""
    total = 0.0
    for k in range(count):
        total += numbers[k]
    return total


@jitable_loop()
def _weigh(weights: Vector, block: Vector) -> float:
    """Multiply slopes and curvatures by the weights, and return the weighted sum of the losses."""
    total = 0.0
    for k in range(weights.size):
        if weights[k] > 0.0:
            total += weights[k] * (block[ADDITIVES + k] + math.log(block[FACTORS + k]))
            block[SLOPES + k] *= weights[k]
            block[CURVATURES + k] *= weights[k]
        else:
            block[SLOPES + k] = 0.0
            block[CURVATURES + k] = 0.0
    return total


@jitable
def raised_curvature(
    loss: Any, margin: Numbers, label: Numbers, scale: Numbers, curvature: Numbers, steep: float
) -> Numbers:
    """A row's curvature, raised to |slope| / max(|z|, 1), weighted; or a part, ``steep``, of that way.

    Where a loss is nearly linear its curvature says nothing about how far to go; this lets a row ask for a step that
    brings its margin about to zero. For the logistic loss it is within a factor of two of the quadratic upper bound of
    Jaakkola and Jordan (2000).
    """
    more = scale * np.abs(loss.slope(margin, label)) / np.maximum(np.abs(margin), 1.0) - curvature
    return curvature + steep * np.maximum(more, 0.0)


def raise_weights(loss: Any, labels: Vector, scale: Vector, margins: Vector, weights: Vector, steep: float) -> None:
    """Raise kept curvatures; ``scale`` has the weights of the rows, unless it is empty."""
    for i in range(labels.size):
        of_row = scale[i] if scale.size > 0 else 1.0
        weights[i] = raised_curvature(loss, margins[i], labels[i], of_row, weights[i], steep)


@record
class WeightedRows(NamedTuple):
    """(x_i, 1) of every row and its weight: what sums are made of in which neither loss nor regulariser occurs.

    They are compiled for a kind of rows once.
    """

    rows: Any
    weights: Vector  # empty: every row has weight one
    columns: int
    intercept: bool

    def block_along(self, v: Vector, start: int, count: int, out: Vector) -> None:
        """How the margins of rows start … start+count−1 change along v, in ``out``."""
        self.rows.block_dots(start, count, v, out)
        if self.intercept:
            for k in range(count):
                out[k] += v[self.columns]

    def block_add_rows(self, start: int, count: int, factors: Vector, out: Vector) -> None:
        """Add (x_i, 1) of the same rows, each times its factor, to ``out``."""
        if self.weights.size > 0:
            for k in range(count):
                if self.weights[start + k] > 0.0:  # a row of weight zero is left out, whatever it contains
                    self.rows.add(start + k, factors[k], out)
                    if self.intercept:
                        out[self.columns] += factors[k]
            return
        self.rows.block_add(start, count, factors, out)
        if self.intercept:
            for k in range(count):
                out[self.columns] += factors[k]

    def sum_weighted(self, weights: Vector, v: Vector, begin: int, end: int, scratch: Vector, out: Vector) -> None:
        """Hessians of the losses, from curvatures that `MarginKernels.sum_rows` has kept, times v, added to ``out``."""
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            self.block_along(v, start, count, scratch)
            for k in range(count):
                scratch[k] *= weights[start + k]
            self.block_add_rows(start, count, scratch, out)

    def sum_squares(self, weights: Vector, begin: int, end: int, out: Vector) -> None:
        """Diagonals of the same Hessians, added to ``out``."""
        for i in range(begin, end):
            self.rows.add_squares(i, weights[i], out)
            if self.intercept:
                out[self.columns] += weights[i]

    def look(self, factors: Vector, begin: int, end: int, norms: Vector, out: Vector) -> None:
        """Squared norms of rows begin … end−1, in ``norms``; and the rows times factors, if any, added to ``out``."""
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            for i in range(start, start + count):
                norms[i] = self.rows.squared_norm(i)
            if factors.size > 0:
                self.block_add_rows(start, count, factors[start : start + count], out)


@record
class Sample(NamedTuple):
    """Chances of rows in a curvature sample: a share for all, and more for rows of large curvature."""

    share: float
    per_weight: float


@jitable_loop(fastmath=True)
def chance_of(sample: Sample, weights: Vector, norms: Vector, i: int) -> float:
    """The chance of row i."""
    return min(1.0, sample.share + sample.per_weight * weights[i] * norms[i])


@jitable_loop(fastmath=True)
def chances_of_eight(sample: Sample, weights: Vector, norms: Vector, i: int) -> float:
    """Sum of the chances of rows i … i+7, which a loop of unknown length would not put into one vector."""
    first = chance_of(sample, weights, norms, i) + chance_of(sample, weights, norms, i + 4)
    second = chance_of(sample, weights, norms, i + 1) + chance_of(sample, weights, norms, i + 5)
    third = chance_of(sample, weights, norms, i + 2) + chance_of(sample, weights, norms, i + 6)
    fourth = chance_of(sample, weights, norms, i + 3) + chance_of(sample, weights, norms, i + 7)
    return (first + third) + (second + fourth)


@record
class Factors(NamedTuple):
    """What rows are multiplied with in the two matrices of a fitted model's covariance."""

    observed: bool  # the first: their curvatures, or else their weights
    canonical: bool  # whether the curvature that is expected is the observed one, or else the weight
    of_slopes: int  # the second: 0, there is none; 1, slope²/weight; 2, slope²


@record
class MarginKernels(NamedTuple):
    """f_i(x) = weight_i · loss(x_iᵀw + intercept + offset_i, y_i) + r(w), x = (w, intercept)."""

    rows: Any
    labels: Vector
    weights: Vector  # empty: every row has weight one
    offset: Vector  # empty: zero
    loss: Any
    regularizer: Any
    columns: int
    intercept: bool

    def room(self, batch_size: int) -> int:
        """Numbers that ``margins`` must hold for a batch of this size: z and the slope of each row."""
        return 2 * batch_size

    def pass_room(self) -> int:
        """Numbers that ``scratch`` must hold in a pass over all rows; behind a block's the sum of the curvatures."""
        return SCRATCH + 1

    def margin(self, i: int, x: Vector) -> float:
        """z_i at x."""
        return self.along(i, x) + self.shift(i)

    def along(self, i: int, v: Vector) -> float:
        """How z_i changes along v."""
        t = self.rows.dot(i, v)
        if self.intercept:
            t += v[self.columns]
        return t

    def shift(self, i: int) -> float:
        """Offset of row i."""
        return self.offset[i] if self.offset.size > 0 else 0.0

    def scale(self, i: int) -> float:
        """Weight of row i."""
        return self.weights[i] if self.weights.size > 0 else 1.0

    def penalty_of(self, j: int) -> Any:
        """Regulariser of weight j."""
        return coordinate(self.regularizer, j)

    def weighted_rows(self) -> WeightedRows:
        """The same without loss and regulariser."""
        return WeightedRows(self.rows, self.weights, self.columns, self.intercept)

    def touch_row(self, i: int) -> None:
        """Ask the memory for all that belongs to row i."""
        self.rows.touch(i)
        prefetch(self.labels, i)
        if self.weights.size > 0:
            prefetch(self.weights, i)
        if self.offset.size > 0:
            prefetch(self.offset, i)

    def add_row(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times (x_i, 1) to ``out``."""
        self.rows.add(i, factor, out)
        if self.intercept:
            out[self.columns] += factor

    # ----------------------------------------------------------------------------- all rows, in pieces

    def block_margins(self, x: Vector, start: int, count: int, out: Vector) -> None:
        """Margins of rows start … start+count−1 at x, in ``out``."""
        self.weighted_rows().block_along(x, start, count, out)
        if self.offset.size > 0:
            for k in range(count):
                out[k] += self.offset[start + k]

    def sum_rows(
        self, x: Vector, begin: int, end: int, scratch: Vector, margins: Vector, weights: Vector, out: Vector
    ) -> float:
        """Losses of rows begin … end−1, summed, and their gradients, added to ``out``.

        ``margins`` keeps z_i and ``weights`` the weighted curvature at z_i, unless they are empty; the sum of these is
        added to the last number of ``scratch``.
        """
        total = 0.0
        block = self.rows.block()
        begins = is_zero(x)  # as runs do: the margins are known then, and half of the work is spared
        for start in range(begin, end, block):
            count = min(block, end - start)
            if begins:
                for k in range(count):
                    scratch[k] = self.shift(start + k)
            else:
                self.block_margins(x, start, count, scratch)
            total += self.block_losses(start, count, scratch)
            if margins.size > 0:
                for k in range(count):
                    margins[start + k] = scratch[k]
                for k in range(count):
                    weights[start + k] = scratch[CURVATURES + k]
                scratch[SCRATCH] += _total(count, scratch[CURVATURES:])
            self.weighted_rows().block_add_rows(start, count, scratch[SLOPES:], out)
        return total

    def block_at(self, x: Vector, start: int, count: int, scratch: Vector) -> float:
        """Losses of rows start … start+count−1 at x, summed; margins, weighted slopes and curvatures in ``scratch``."""
        self.block_margins(x, start, count, scratch)
        return self.block_losses(start, count, scratch)

    def block_losses(self, start: int, count: int, scratch: Vector) -> float:
        """Losses of rows start … start+count−1, summed, from their margins; weighted slopes and curvatures beside."""
        for k in range(count):
            scratch[LABELS + k] = self.labels[start + k]
        _apply_loss(self.loss, count, scratch)
        if self.weights.size > 0:
            return _weigh(self.weights[start : start + count], scratch)
        return _block_value(count, scratch)

    def sum_margins(
        self, x: Vector, begin: int, end: int, scratch: Vector, margins: Vector, slopes: Vector, weights: Vector
    ) -> float:
        """Losses of rows begin … end−1, summed; keeps z_i and the weighted slopes and curvatures at z_i."""
        total = 0.0
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            total += self.block_at(x, start, count, scratch)
            for k in range(count):
                margins[start + k] = scratch[k]
            for k in range(count):
                slopes[start + k] = scratch[SLOPES + k]
            for k in range(count):
                weights[start + k] = scratch[CURVATURES + k]
        return total

    def sum_constant(self, constant: float, begin: int, end: int, scratch: Vector, out: Vector) -> float:
        """Losses of rows begin … end−1 where a constant and the offset are the margin, summed.

        Their weighted slopes and curvatures are added to the first two entries of ``out``.
        """
        total, slopes, curvatures = 0.0, 0.0, 0.0
        for start in range(begin, end, BLOCK):
            count = min(BLOCK, end - start)
            for k in range(count):
                scratch[k] = constant + self.shift(start + k)
            total += self.block_losses(start, count, scratch)
            for k in range(count):
                slopes += scratch[SLOPES + k]
                curvatures += scratch[CURVATURES + k]
        out[0] += slopes
        out[1] += curvatures
        return total

    def sum_information(
        self,
        x: Vector,
        factors: Factors,
        level: float,
        begin: int,
        end: int,
        scratch: Vector,
        block: Any,
        out: Any,
        other_block: Any,
        other: Any,
    ) -> float:
        """Losses of rows begin … end−1 at x, summed; and their outer squares times factors, added to the matrices.

        Behind the scratch Pearson's statistic is added up, Σ slope²/(expected curvature), and how many rows have less
        curvature than ``level`` times their weight.
        """
        total, pearson, flat = 0.0, 0.0, 0
        filled, other_filled = 0, 0
        intercept = self.columns if self.intercept else -1
        together = self.rows.block()
        for start in range(begin, end, together):
            count = min(together, end - start)
            total += self.block_at(x, start, count, scratch)
            for k in range(count):
                self.rows.touch(min(start + k + together, end - 1))
                slope, curvature, weight = scratch[SLOPES + k], scratch[CURVATURES + k], self.scale(start + k)
                factor = curvature if factors.observed else weight
                expected = curvature if factors.canonical else weight
                flat += curvature < level * weight
                if expected > 0.0:
                    pearson += slope * (slope / expected)
                if factor > 0.0:
                    filled = self.rows.add_outer_square(start + k, factor, intercept, block, filled, out)
                if factors.of_slopes > 0 and slope != 0.0:
                    square = slope * (slope / weight) if factors.of_slopes == 1 else slope * slope
                    other_filled = self.rows.add_outer_square(
                        start + k, square, intercept, other_block, other_filled, other
                    )
        self.rows.finish_squares(block, filled, out)
        if factors.of_slopes > 0:
            self.rows.finish_squares(other_block, other_filled, other)
        scratch[SCRATCH] += pearson
        scratch[SCRATCH + 1] += flat
        return total

    def sum_products(self, x: Vector, v: Vector, begin: int, end: int, scratch: Vector, out: Vector) -> None:
        """Hessians of the losses of rows begin … end−1 at x, times v, added to ``out``."""
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            self.block_margins(x, start, count, scratch)
            self.weighted_rows().block_along(v, start, count, scratch[OTHER_MARGINS:])
            for k in range(count):
                scratch[LABELS + k] = self.labels[start + k]
            _apply_curvature(self.loss, count, scratch)
            if self.weights.size > 0:
                for k in range(count):
                    scratch[SLOPES + k] *= self.weights[start + k]
            self.weighted_rows().block_add_rows(start, count, scratch[SLOPES:], out)

    def sum_changes(self, x: Vector, margins: Vector, begin: int, end: int, scratch: Vector, out: Vector) -> None:
        """Gradients of the losses of rows begin … end−1 at x minus those at the kept margins, added to ``out``."""
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            self.block_margins(x, start, count, scratch)
            for k in range(count):
                scratch[LABELS + k] = self.labels[start + k]
            for k in range(count):
                scratch[OTHER_MARGINS + k] = margins[start + k]
            _apply_loss_twice(self.loss, count, scratch)
            if self.weights.size > 0:
                for k in range(count):
                    scratch[SLOPES + k] *= self.weights[start + k]
            self.weighted_rows().block_add_rows(start, count, scratch[SLOPES:], out)

    # --------------------------------------------------------------------------------- a batch of rows

    def batch_gradient(self, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch at x, in ``out``; ``margins`` keeps z and slopes for the batch's curvature."""
        check_room(self, batch, margins)
        d = self.columns
        for j in range(d):
            out[j] = self.penalty_of(j).slope(x[j], d)
        if self.intercept:
            out[d] = 0.0
        share = 1.0 / batch.size
        for k in range(batch.size):
            self.touch_row(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            z = self.margin(i, x)
            slope = self.loss.slope(z, self.labels[i])
            margins[k] = z
            margins[batch.size + k] = slope
            self.add_row(i, share * self.scale(i) * slope, out)

    def gradient_difference(
        self, x: Vector, y: Vector, batch: Indices, margins: Vector, start: Vector, out: Vector
    ) -> None:
        """``start`` + mean over the batch of ∇f_i(x) − ∇f_i(y), in ``out``; ``margins`` keeps z and slopes at x."""
        check_room(self, batch, margins)
        d = self.columns
        for j in range(d):
            out[j] = start[j] + (self.penalty_of(j).slope(x[j], d) - self.penalty_of(j).slope(y[j], d))
        if self.intercept:
            out[d] = start[d]
        share = 1.0 / batch.size
        for k in range(min(_AHEAD, batch.size)):
            self.touch_row(batch[k])
        for k in range(batch.size):
            self.touch_row(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            label = self.labels[i]
            z, z_at_y = self.rows.two_dots(i, x, y)
            if self.intercept:
                z += x[d]
                z_at_y += y[d]
            z += self.shift(i)
            z_at_y += self.shift(i)
            slope = self.loss.slope(z, label)
            margins[k] = z
            margins[batch.size + k] = slope
            self.add_row(i, share * self.scale(i) * (slope - self.loss.slope(z_at_y, label)), out)

    def hessian_product(self, x: Vector, batch: Indices, margins: Vector, v: Vector, out: Vector) -> float:
        """Mean Hessian of the batch at x, times v, in ``out``; returns vᵀHv. ``margins`` are those at x."""
        d = self.columns
        along = 0.0
        for j in range(d):
            out[j] = self.penalty_of(j).curvature(x[j], d) * v[j]
            along += out[j] * v[j]
        if self.intercept:
            out[d] = 0.0
        share = 1.0 / batch.size
        for k in range(batch.size):
            i = batch[k]
            t = self.along(i, v)
            coefficient = share * self.scale(i) * self.loss.curvature(margins[k], self.labels[i]) * t
            along += coefficient * t
            self.add_row(i, coefficient, out)
        return along

    def gradient_change(self, x: Vector, batch: Indices, margins: Vector, v: Vector, h: float, out: Vector) -> float:
        """(g(x + hv) − g(x)) / h of the batch's mean gradient g, in ``out``; returns its product with v."""
        d = self.columns
        along = 0.0
        for j in range(d):
            out[j] = (self.penalty_of(j).slope(x[j] + h * v[j], d) - self.penalty_of(j).slope(x[j], d)) / h
            along += out[j] * v[j]
        if self.intercept:
            out[d] = 0.0
        share = 1.0 / batch.size
        for k in range(batch.size):
            i = batch[k]
            t = self.along(i, v)
            change = self.loss.slope(margins[k] + h * t, self.labels[i]) - margins[batch.size + k]
            coefficient = share * self.scale(i) * change / h
            along += coefficient * t
            self.add_row(i, coefficient, out)
        return along

    # ---------------------------------------------------------------------------- a table of slopes, one per row

    def fill_table(self, x: Vector, n: int, table: Vector, average: Vector) -> None:
        """Slope of every row at x, in ``table``, and the mean gradient of the losses, in ``average``."""
        average[:] = 0.0
        for i in range(self.labels.size):
            slope = self.scale(i) * self.loss.slope(self.margin(i, x), self.labels[i])
            table[i] = slope
            self.add_row(i, slope / n, average)

    def table_difference(
        self, x: Vector, n: int, batch: Indices, margins: Vector, table: Vector, average: Vector, out: Vector
    ) -> None:
        """``average`` + mean over the batch of new minus tabled loss gradients + ∇r(x), in ``out``.

        Then the new slopes take their places in the table and its average. A row that stands twice in the batch
        changes them once.
        """
        check_room(self, batch, margins)
        d = self.columns
        for j in range(d):
            out[j] = average[j] + self.penalty_of(j).slope(x[j], d)
        if self.intercept:
            out[d] = average[d]
        share = 1.0 / batch.size
        for k in range(batch.size):
            self.touch_row(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            margins[k] = self.margin(i, x)
            margins[batch.size + k] = self.loss.slope(margins[k], self.labels[i])
            self.add_row(i, share * (self.scale(i) * margins[batch.size + k] - table[i]), out)
        for k in range(batch.size):
            i = batch[k]
            slope = self.scale(i) * margins[batch.size + k]
            self.add_row(i, (slope - table[i]) / n, average)
            table[i] = slope
