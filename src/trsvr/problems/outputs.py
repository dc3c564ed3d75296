"""Kernels of a linear model with K outputs per row: `trsvr.problems.margins` for the softmax loss.

The weights are the flattened p × K matrix, followed by K intercepts where there are any: the K weights of a column lie
side by side, which suits dense and compressed rows alike. Behind the batch's margins, ``margins`` has room that serves
as scratch for the slopes of one row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from trsvr._arrays import Indices, Vector
from trsvr._compile import record
from trsvr._intrinsics import matrix_in
from trsvr._vectors import copy_into, dot, scale_by
from trsvr.problems.margins import _AHEAD, check_room
from trsvr.problems.regularizers import coordinate
from trsvr.problems.rows import BLOCK


@record
class OutputKernels(NamedTuple):
    """f_i(x) = weight_i · loss(Wᵀx_i + intercepts + offset_i, y_i) + r(W), x = (W, intercepts)."""

    rows: Any
    labels: Vector
    weights: Vector  # empty: every row has weight one
    offset: Vector  # K of each row, empty: zero
    loss: Any
    regularizer: Any
    columns: int
    intercept: bool
    classes: int

    def room(self, batch_size: int) -> int:
        """Numbers that ``margins`` must hold for a batch of this size: K of each row, and scratch for two rows."""
        return (batch_size + 2) * self.classes

    def row_margins(self, i: int, x: Vector, out: Vector) -> None:
        """The K margins of row i at x."""
        self.row_along(i, x, out)
        if self.offset.size > 0:
            for k in range(self.classes):
                out[k] += self.offset[i * self.classes + k]

    def row_along(self, i: int, v: Vector, out: Vector) -> None:
        """How they change along v."""
        if self.intercept:
            copy_into(v[self.columns * self.classes :], out)
        else:
            out[:] = 0.0
        self.rows.dots(i, v, out)

    def scale(self, i: int) -> float:
        """Weight of row i."""
        return self.weights[i] if self.weights.size > 0 else 1.0

    def penalty_of(self, j: int) -> Any:
        """Regulariser of weight j."""
        return coordinate(self.regularizer, j)

    def touch_row(self, i: int) -> None:
        """Ask the memory for row i."""
        self.rows.touch(i)

    def add_row(self, i: int, factors: Vector, out: Vector) -> None:
        """Add the outer product of (x_i, 1) and the ``factors`` to ``out``."""
        self.rows.add_outer(i, factors, out)
        if self.intercept:
            begin = self.columns * self.classes
            for k in range(self.classes):
                out[begin + k] += factors[k]

    # ----------------------------------------------------------------------------- all rows, in pieces

    def pass_room(self) -> int:
        """Numbers that ``scratch`` must hold below: three matrices in the rows' order, two blocks, and one output's."""
        return 3 * self.rows.turned_size(self.classes) + (2 * self.classes + 1) * BLOCK

    def block_outputs_of(self, start: int, count: int, x: Vector, turned: Vector, one: Vector, out: Vector) -> None:
        """The K margins of each of the rows start … start+count−1 at x."""
        self.block_outputs_along(start, count, x, turned, one, out)
        if self.offset.size > 0:
            for k in range(count * self.classes):
                out[k] += self.offset[start * self.classes + k]

    def block_outputs_along(self, start: int, count: int, v: Vector, turned: Vector, one: Vector, out: Vector) -> None:
        """How they change along v."""
        self.rows.block_outputs(start, count, v, turned, self.classes, one, out)
        if self.intercept:
            begin = self.columns * self.classes
            for i in range(count):
                for k in range(self.classes):
                    out[i * self.classes + k] += v[begin + k]

    def block_add_outer(
        self, start: int, count: int, factors: Vector, one: Vector, turned: Vector, out: Vector
    ) -> None:
        """Add the outer products of (x_i, 1) and the factors of the same rows, weighted."""
        outputs = self.classes
        if self.weights.size > 0:
            for i in range(count):
                if self.weights[start + i] > 0.0:  # a row of weight zero is left out, whatever it contains
                    mine = factors[i * outputs : (i + 1) * outputs]
                    scale_by(self.weights[start + i], mine)
                    self.add_row(start + i, mine, out)
            return
        self.rows.block_add_outputs(start, count, factors, outputs, one, turned, out)
        if self.intercept:
            begin = self.columns * outputs
            for i in range(count):
                for k in range(outputs):
                    out[begin + k] += factors[i * outputs + k]

    def sum_rows(
        self, x: Vector, begin: int, end: int, scratch: Vector, margins: Vector, weights: Vector, out: Vector
    ) -> float:
        """Losses of rows begin … end−1, summed, and their gradients, added to ``out``.

        ``margins`` keeps the K probabilities of each row, unless it is empty.
        """
        outputs, size = self.classes, self.rows.turned_size(self.classes)
        at_x, sums, one = scratch[:size], scratch[size : 2 * size], scratch[2 * size : 2 * size + BLOCK]
        table = scratch[2 * size + BLOCK :]
        self.rows.turn_weights(x, outputs, at_x)
        sums[:] = 0.0
        total = 0.0
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            self.block_outputs_of(start, count, x, at_x, one, table)
            for i in range(count):
                slopes = table[i * outputs : (i + 1) * outputs]
                value = self.loss.value_and_slopes(slopes, self.labels[start + i])
                if margins.size > 0:
                    mine = margins[(start + i) * outputs : (start + i + 1) * outputs]
                    copy_into(slopes, mine)
                    mine[int(self.labels[start + i])] += 1.0
                if self.scale(start + i) > 0.0:
                    total += self.scale(start + i) * value
            self.block_add_outer(start, count, table, one, sums, out)
        self.rows.add_turned(sums, outputs, out)
        return total

    def sum_products(self, x: Vector, v: Vector, begin: int, end: int, scratch: Vector, out: Vector) -> None:
        """Hessians of the losses of rows begin … end−1 at x, times v, added to ``out``."""
        outputs, size = self.classes, self.rows.turned_size(self.classes)
        at_x, at_v, sums = scratch[:size], scratch[size : 2 * size], scratch[2 * size : 3 * size]
        one, tables = scratch[3 * size : 3 * size + BLOCK], scratch[3 * size + BLOCK :]
        margins, directions = tables[: BLOCK * outputs], tables[BLOCK * outputs :]
        self.rows.turn_weights(x, outputs, at_x)
        self.rows.turn_weights(v, outputs, at_v)
        sums[:] = 0.0
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            self.block_outputs_of(start, count, x, at_x, one, margins)
            self.block_outputs_along(start, count, v, at_v, one, directions)
            for i in range(count):
                mine = slice(i * outputs, (i + 1) * outputs)
                self.loss.curvature_product(margins[mine], self.labels[start + i], directions[mine])
            self.block_add_outer(start, count, directions, one, sums, out)
        self.rows.add_turned(sums, outputs, out)

    def sum_kept_products(
        self, probabilities: Any, v: Vector, begin: int, end: int, scratch: Vector, out: Vector
    ) -> None:
        """The same from probabilities that are known."""
        outputs, size = self.classes, self.rows.turned_size(self.classes)
        at_v, sums, one = scratch[:size], scratch[size : 2 * size], scratch[2 * size : 2 * size + BLOCK]
        directions = scratch[2 * size + BLOCK :]
        self.rows.turn_weights(v, outputs, at_v)
        sums[:] = 0.0
        block = self.rows.block()
        for start in range(begin, end, block):
            count = min(block, end - start)
            self.block_outputs_along(start, count, v, at_v, one, directions)
            for i in range(count):
                self.loss.probability_product(probabilities[start + i], directions[i * outputs : (i + 1) * outputs])
            self.block_add_outer(start, count, directions, one, sums, out)
        self.rows.add_turned(sums, outputs, out)

    def sum_kept_squares(self, probabilities: Any, begin: int, end: int, scratch: Vector, out: Vector) -> None:
        """Diagonals of the same Hessians, added to ``out``."""
        factors, intercepts = scratch[: self.classes], out[self.columns * self.classes :]
        for i in range(begin, end):
            for k in range(self.classes):
                factors[k] = self.scale(i) * (probabilities[i, k] * (1.0 - probabilities[i, k]))
            self.rows.add_outer_squares(i, factors, out)
            if self.intercept:
                for k in range(self.classes):
                    intercepts[k] += factors[k]

    # --------------------------------------------------------------------------------- a batch of rows

    def batch_gradient(self, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch at x, in ``out``; ``margins`` keeps z for the batch's curvature."""
        check_room(self, batch, margins)
        d = self.columns * self.classes
        out[d:] = 0.0
        for j in range(d):
            out[j] = self.penalty_of(j).slope(x[j], d)
        table = matrix_in(margins, batch.size + 2, self.classes)
        slopes = table[batch.size]
        for k in range(batch.size):
            self.touch_row(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            self.row_margins(i, x, table[k])
            copy_into(table[k], slopes)
            self.loss.value_and_slopes(slopes, self.labels[i])
            scale_by(self.scale(i) / batch.size, slopes)
            self.add_row(i, slopes, out)

    def gradient_difference(
        self, x: Vector, y: Vector, batch: Indices, margins: Vector, start: Vector, out: Vector
    ) -> None:
        """``start`` + mean over the batch of ∇f_i(x) − ∇f_i(y), in ``out``; ``margins`` keeps z at x."""
        check_room(self, batch, margins)
        d = self.columns * self.classes
        copy_into(start[d:], out[d:])
        for j in range(d):
            out[j] = start[j] + (self.penalty_of(j).slope(x[j], d) - self.penalty_of(j).slope(y[j], d))
        table = matrix_in(margins, batch.size + 2, self.classes)
        slopes = table[batch.size]
        slopes_at_y = table[batch.size + 1]
        for k in range(batch.size):
            self.touch_row(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            self.row_margins(i, x, table[k])
            self.row_margins(i, y, slopes_at_y)
            copy_into(table[k], slopes)
            self.loss.value_and_slopes(slopes, self.labels[i])
            self.loss.value_and_slopes(slopes_at_y, self.labels[i])
            for c in range(self.classes):
                slopes[c] = (slopes[c] - slopes_at_y[c]) * (self.scale(i) / batch.size)
            self.add_row(i, slopes, out)

    def hessian_product(self, x: Vector, batch: Indices, margins: Vector, v: Vector, out: Vector) -> float:
        """Mean Hessian of the batch at x, times v, in ``out``; returns vᵀHv. ``margins`` are those at x."""
        d = self.columns * self.classes
        out[d:] = 0.0
        for j in range(d):
            out[j] = self.penalty_of(j).curvature(x[j], d) * v[j]
        table = matrix_in(margins, batch.size + 2, self.classes)
        directions = table[batch.size]
        scratch = table[batch.size + 1]
        for k in range(batch.size):
            i = batch[k]
            self.row_along(i, v, directions)
            copy_into(table[k], scratch)
            self.loss.curvature_product(scratch, self.labels[i], directions)
            scale_by(self.scale(i) / batch.size, directions)
            self.add_row(i, directions, out)
        return dot(v, out)

    def gradient_change(self, x: Vector, batch: Indices, margins: Vector, v: Vector, h: float, out: Vector) -> float:
        """(g(x + hv) − g(x)) / h of the batch's mean gradient g, in ``out``; returns its product with v."""
        d = self.columns * self.classes
        out[d:] = 0.0
        for j in range(d):
            out[j] = (self.penalty_of(j).slope(x[j] + h * v[j], d) - self.penalty_of(j).slope(x[j], d)) / h
        table = matrix_in(margins, batch.size + 2, self.classes)
        slopes = table[batch.size]
        slopes_before = table[batch.size + 1]
        for k in range(batch.size):
            i = batch[k]
            self.row_along(i, v, slopes)
            copy_into(table[k], slopes_before)
            for c in range(self.classes):
                slopes[c] = table[k, c] + h * slopes[c]
            self.loss.value_and_slopes(slopes, self.labels[i])
            self.loss.value_and_slopes(slopes_before, self.labels[i])
            for c in range(self.classes):
                slopes[c] = (slopes[c] - slopes_before[c]) * (self.scale(i) / (batch.size * h))
            self.add_row(i, slopes, out)
        return dot(v, out)

    # ---------------------------------------------------------------------------- a table of slopes, K per row

    def row_slopes(self, i: int, margins: Vector, out: Vector) -> None:
        """Weighted slopes of row i from its margins."""
        copy_into(margins, out)
        self.loss.value_and_slopes(out, self.labels[i])
        scale_by(self.scale(i), out)

    def fill_table(self, x: Vector, n: int, table: Vector, average: Vector) -> None:
        """Slopes of every row at x, in ``table``, and the mean gradient of the losses, in ``average``."""
        average[:] = 0.0
        slopes_of = table.reshape(-1, self.classes)
        for i in range(self.labels.size):
            slopes = slopes_of[i]
            self.row_margins(i, x, slopes)
            self.loss.value_and_slopes(slopes, self.labels[i])
            scale_by(self.scale(i), slopes)
            self.add_row(i, slopes, average)
        for j in range(average.size):
            average[j] /= n

    def table_difference(
        self, x: Vector, n: int, batch: Indices, margins: Vector, table: Vector, average: Vector, out: Vector
    ) -> None:
        """``average`` + mean over the batch of new minus tabled loss gradients + ∇r(x), in ``out``.

        Then the new slopes take their places in the table and its average. A row that stands twice in the batch
        changes them once.
        """
        check_room(self, batch, margins)
        d = self.columns * self.classes
        copy_into(average, out)
        for j in range(d):
            out[j] += self.penalty_of(j).slope(x[j], d)
        rows_of = matrix_in(margins, batch.size + 2, self.classes)
        slopes = rows_of[batch.size]
        slopes_of = table.reshape(-1, self.classes)
        for k in range(batch.size):
            self.touch_row(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            self.row_margins(i, x, rows_of[k])
            self.row_slopes(i, rows_of[k], slopes)
            for c in range(self.classes):
                slopes[c] = (slopes[c] - slopes_of[i, c]) / batch.size
            self.add_row(i, slopes, out)
        for k in range(batch.size):
            i = batch[k]
            self.row_slopes(i, rows_of[k], slopes)
            for c in range(self.classes):
                new = slopes[c]
                slopes[c] = (new - slopes_of[i, c]) / n
                slopes_of[i, c] = new
            self.add_row(i, slopes, average)
