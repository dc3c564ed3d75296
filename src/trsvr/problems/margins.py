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
from numpy.typing import NDArray

from trsvr._compile import record
from trsvr.problems.losses import split_value
from trsvr.problems.rows import Vector

Indices = NDArray[np.int64]

# Rows ahead of the one at work that are asked for; four to eight measured alike.
_AHEAD = 6
# Factors c ≤ 2 of the logistic loss multiplied up before one logarithm is taken: 2^512 is far from overflow.
_FACTORS = 512


@record
class MarginKernels(NamedTuple):
    """f_i(x) = weight_i · loss(x_iᵀw + intercept, y_i) + r(w), x = (w, intercept)."""

    rows: Any
    labels: Vector
    weights: Vector  # empty: every row has weight one
    loss: Any
    regularizer: Any
    columns: int
    intercept: bool

    def outputs(self) -> int:
        """Margins per row."""
        return 1

    def margin(self, i: int, x: Vector) -> float:
        """z_i at x."""
        z = self.rows.dot(i, x)
        if self.intercept:
            z += x[self.columns]
        return z

    def scale(self, i: int) -> float:
        """Weight of row i."""
        return self.weights[i] if self.weights.size > 0 else 1.0

    def add_row(self, i: int, factor: float, out: Vector) -> None:
        """Add ``factor`` times (x_i, 1) to ``out``."""
        self.rows.add(i, factor, out)
        if self.intercept:
            out[self.columns] += factor

    # ----------------------------------------------------------------------------- all rows, in pieces

    def sum_rows(self, x: Vector, begin: int, end: int, scratch: Vector, out: Vector) -> float:
        """Σ over rows begin … end−1 of the losses (returned) and of their gradients (in ``out``)."""
        out[:] = 0.0
        total = 0.0
        factors = 1.0
        waiting = 0
        weighted = self.weights.size > 0
        for i in range(begin, end):
            z = self.margin(i, x)
            label = self.labels[i]
            additive, factor = split_value(self.loss, z, label)
            coefficient = self.loss.slope(z, label)
            if weighted:
                total += self.weights[i] * (additive + math.log(factor))
                coefficient *= self.weights[i]
            else:
                total += additive
                factors *= factor
                waiting += 1
                if waiting == _FACTORS:
                    total += math.log(factors)
                    factors = 1.0
                    waiting = 0
            self.add_row(i, coefficient, out)
        return total + math.log(factors)

    def sum_products(self, x: Vector, v: Vector, begin: int, end: int, scratch: Vector, out: Vector) -> None:
        """Σ over rows begin … end−1 of the losses' Hessians at x, times v."""
        out[:] = 0.0
        for i in range(begin, end):
            z, t = self.rows.two_dots(i, x, v)
            if self.intercept:
                z += x[self.columns]
                t += v[self.columns]
            self.add_row(i, self.scale(i) * self.loss.curvature(z, self.labels[i]) * t, out)

    def add_penalty(self, x: Vector, out: Vector) -> float:
        """r(w), returned, and its gradient, added to ``out``."""
        total = 0.0
        for j in range(self.columns):
            total += self.regularizer.value(x[j], self.columns)
            out[j] += self.regularizer.slope(x[j], self.columns)
        return total

    def add_penalty_product(self, x: Vector, v: Vector, out: Vector) -> None:
        """Add the Hessian of r, times v, to ``out``."""
        for j in range(self.columns):
            out[j] += self.regularizer.curvature(x[j], self.columns) * v[j]

    # --------------------------------------------------------------------------------- a batch of rows

    def batch_gradient(self, x: Vector, batch: Indices, margins: Vector, out: Vector) -> None:
        """Mean gradient of the batch at x, in ``out``; ``margins`` keeps z for the batch's curvature."""
        d = self.columns
        for j in range(d):
            out[j] = self.regularizer.slope(x[j], d)
        if self.intercept:
            out[d] = 0.0
        share = 1.0 / batch.size
        for k in range(batch.size):
            self.rows.touch(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            z = self.margin(i, x)
            margins[k] = z
            self.add_row(i, share * self.scale(i) * self.loss.slope(z, self.labels[i]), out)

    def gradient_difference(
        self, x: Vector, y: Vector, batch: Indices, margins: Vector, start: Vector, out: Vector
    ) -> None:
        """``start`` + mean over the batch of ∇f_i(x) − ∇f_i(y), in ``out``; ``margins`` keeps z at x."""
        d = self.columns
        for j in range(d):
            out[j] = start[j] + (self.regularizer.slope(x[j], d) - self.regularizer.slope(y[j], d))
        if self.intercept:
            out[d] = start[d]
        share = 1.0 / batch.size
        for k in range(batch.size):
            self.rows.touch(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            label = self.labels[i]
            z, z_at_y = self.rows.two_dots(i, x, y)
            if self.intercept:
                z += x[d]
                z_at_y += y[d]
            margins[k] = z
            change = self.loss.slope(z, label) - self.loss.slope(z_at_y, label)
            self.add_row(i, share * self.scale(i) * change, out)

    def hessian_product(self, x: Vector, batch: Indices, margins: Vector, v: Vector, out: Vector) -> float:
        """Mean Hessian of the batch at x, times v, in ``out``; returns vᵀHv. ``margins`` are those at x."""
        d = self.columns
        along = 0.0
        for j in range(d):
            out[j] = self.regularizer.curvature(x[j], d) * v[j]
            along += out[j] * v[j]
        if self.intercept:
            out[d] = 0.0
        share = 1.0 / batch.size
        for k in range(batch.size):
            i = batch[k]
            t = self.margin(i, v)
            coefficient = share * self.scale(i) * self.loss.curvature(margins[k], self.labels[i]) * t
            along += coefficient * t
            self.add_row(i, coefficient, out)
        return along

    def gradient_change(self, x: Vector, batch: Indices, margins: Vector, v: Vector, h: float, out: Vector) -> float:
        """(g(x + hv) − g(x)) / h of the batch's mean gradient g, in ``out``; returns its product with v."""
        d = self.columns
        along = 0.0
        for j in range(d):
            out[j] = (self.regularizer.slope(x[j] + h * v[j], d) - self.regularizer.slope(x[j], d)) / h
            along += out[j] * v[j]
        if self.intercept:
            out[d] = 0.0
        share = 1.0 / batch.size
        for k in range(batch.size):
            i = batch[k]
            label = self.labels[i]
            t = self.margin(i, v)
            change = self.loss.slope(margins[k] + h * t, label) - self.loss.slope(margins[k], label)
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
        d = self.columns
        for j in range(d):
            out[j] = average[j] + self.regularizer.slope(x[j], d)
        if self.intercept:
            out[d] = average[d]
        share = 1.0 / batch.size
        for k in range(batch.size):
            self.rows.touch(batch[min(k + _AHEAD, batch.size - 1)])
            i = batch[k]
            margins[k] = self.margin(i, x)
            slope = self.scale(i) * self.loss.slope(margins[k], self.labels[i])
            self.add_row(i, share * (slope - table[i]), out)
        for k in range(batch.size):
            i = batch[k]
            slope = self.scale(i) * self.loss.slope(margins[k], self.labels[i])
            self.add_row(i, (slope - table[i]) / n, average)
            table[i] = slope
