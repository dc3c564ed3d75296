"""Steps of SVRG, SAGA and SARAH on sparse rows that cost the nonzeros of the batch and not d.

A coordinate that no row of the batch touches still moves, because of the regulariser and of the full (or average)
gradient. With the regulariser (λ/2)w² that movement is affine: w ← a w + c with a = 1 − step·λ and c constant until the
coordinate is touched. m such steps at once are w ← aᵐ w + (1 + a + … + aᵐ⁻¹) c, so a coordinate is brought up to date
only when a row touches it, and all of them at the end of a slice of steps. The iterates are those of the dense loop, up
to rounding.

With the double well, or any regulariser that is not quadratic, the movement is not affine and there is no such
shortcut: the dense loop is used.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trsvr._arrays import Indices, Vector
from trsvr._compile import jitable, record
from trsvr.parts.gradients import Recursion, Reference, Table
from trsvr.problems.margins import MarginKernels
from trsvr.problems.regularizers import is_uniform
from trsvr.problems.rows import SparseRows

_TABLED = 4096
# Rows ahead of the one at work that are asked for: they lie anywhere in memory.
_AHEAD = 4
# Nonzeros that a slice of steps works on.
_ENTRIES_AT_ONCE = 2**21


@record
class LazyWork(NamedTuple):
    """When each coordinate was last up to date, and tabled powers and geometric sums of a."""

    current: NDArray[np.int64]
    together: NDArray[np.float64]  # room for what belongs to a coordinate
    powers: Vector
    sums: Vector
    log_a: float
    decay: float  # step · λ

    @classmethod
    def for_step(cls, d: int, step: float, strength: float) -> LazyWork:
        """Tables for one step size."""
        decay = step * strength
        steps = np.arange(_TABLED, dtype=np.float64)
        log_a = math.log1p(-decay)
        sums = steps.copy() if decay == 0.0 else -np.expm1(steps * log_a) / decay
        return cls(np.zeros(d, dtype=np.int64), np.zeros((d, 4)), np.exp(steps * log_a), sums, log_a, decay)


def applies(kernels: Any, batch_size: int, step: float) -> bool:
    """Whether the shortcut is exact here and cheaper than sweeps over vectors of length d."""
    if not isinstance(kernels, MarginKernels) or not isinstance(kernels.rows, SparseRows):
        return False
    if not is_uniform(kernels.regularizer) or step * kernels.regularizer.strength >= 1.0:
        return False
    per_row = kernels.rows.data.size / max(1, kernels.labels.size)
    return bool(4 * batch_size * per_row < kernels.columns)


def steps_at_once(kernels: Any, batch_size: int) -> int:
    """Steps between two times that all coordinates are brought up to date.

    A function of the problem alone: the clock must not decide where numbers are rounded. They take some hundredths of a
    second, and more than bringing d coordinates up to date.
    """
    per_row = max(1.0, kernels.rows.data.size / max(1, kernels.labels.size))
    return max(1, int(max(_ENTRIES_AT_ONCE, kernels.columns) / (batch_size * per_row)))


@jitable
def _power_and_sum(work: LazyWork, m: int) -> tuple[float, float]:
    """aᵐ and 1 + a + … + aᵐ⁻¹."""
    if m < _TABLED:
        return work.powers[m], work.sums[m]
    if work.decay == 0.0:
        return 1.0, float(m)
    return math.exp(m * work.log_a), -math.expm1(m * work.log_a) / work.decay


def svrg_steps(
    kernels: Any,
    memory: Reference,
    x: Vector,
    indices: Indices,
    batch_size: int,
    step: float,
    margins: Vector,
    work: Any,
) -> None:
    """The steps of SVRG: c_j = step · (λ x̃_j − g̃_j).

    What belongs to a coordinate (x_j, c_j, x̃_j, the step it is up to date with) lies side by side, in one cache line.
    """
    data, columns, indptr = kernels.rows.data, kernels.rows.indices, kernels.rows.indptr
    strength = kernels.regularizer.strength
    together = work.together
    d = kernels.columns
    for j in range(d):
        together[j, 0] = x[j]
        together[j, 1] = step * (strength * memory.point[j] - memory.gradient[j])
        together[j, 2] = memory.point[j]
        together[j, 3] = 0.0
    share = 1.0 / batch_size
    steps = indices.size // batch_size
    for t in range(steps):
        batch = indices[t * batch_size : (t + 1) * batch_size]
        for k in range(batch_size):
            kernels.touch_row(indices[min(t * batch_size + k + _AHEAD, indices.size - 1)])
            i = batch[k]
            z = 0.0
            z_reference = 0.0
            for entry in range(indptr[i], indptr[i + 1]):
                j = columns[entry]
                missed = t - int(together[j, 3])
                if missed > 0:
                    power, total = _power_and_sum(work, missed)
                    together[j, 0] = power * together[j, 0] + total * together[j, 1]
                    together[j, 3] = t
                z += data[entry] * together[j, 0]
                z_reference += data[entry] * together[j, 2]
            if kernels.intercept:
                z += x[d]
                z_reference += memory.point[d]
            z += kernels.shift(i)
            z_reference += kernels.shift(i)
            label = kernels.labels[i]
            change = kernels.loss.slope(z, label) - kernels.loss.slope(z_reference, label)
            margins[k] = share * kernels.scale(i) * change
        if kernels.intercept:
            x[d] -= step * memory.gradient[d]
        for k in range(batch_size):
            i = batch[k]
            for entry in range(indptr[i], indptr[i + 1]):
                j = columns[entry]
                if int(together[j, 3]) == t:
                    together[j, 0] = (1.0 - work.decay) * together[j, 0] + together[j, 1]
                    together[j, 3] = t + 1
                together[j, 0] -= step * margins[k] * data[entry]
            if kernels.intercept:
                x[d] -= step * margins[k]
    for j in range(d):
        power, total = _power_and_sum(work, steps - int(together[j, 3]))
        x[j] = power * together[j, 0] + total * together[j, 1]


def saga_steps(
    kernels: Any, memory: Table, x: Vector, indices: Indices, batch_size: int, step: float, margins: Vector, work: Any
) -> None:
    """The steps of SAGA: c_j = −step · average_j, which changes only where a row touches it."""
    data, columns, indptr = kernels.rows.data, kernels.rows.indices, kernels.rows.indptr
    strength = kernels.regularizer.strength
    current = work.current
    current[:] = 0
    d = kernels.columns
    share = 1.0 / batch_size
    table, average, n = memory.entries, memory.average, memory.counted
    steps = indices.size // batch_size
    for t in range(steps):
        batch = indices[t * batch_size : (t + 1) * batch_size]
        for k in range(batch_size):
            kernels.touch_row(indices[min(t * batch_size + k + _AHEAD, indices.size - 1)])
            i = batch[k]
            z = x[d] + kernels.shift(i) if kernels.intercept else kernels.shift(i)
            for entry in range(indptr[i], indptr[i + 1]):
                j = columns[entry]
                if current[j] < t:
                    power, total = _power_and_sum(work, t - current[j])
                    x[j] = power * x[j] - total * step * average[j]
                    current[j] = t
                z += data[entry] * x[j]
            margins[k] = kernels.scale(i) * kernels.loss.slope(z, kernels.labels[i])
        if kernels.intercept:
            x[d] -= step * average[d]
        for k in range(batch_size):
            i = batch[k]
            change = share * (margins[k] - table[i])
            for entry in range(indptr[i], indptr[i + 1]):
                j = columns[entry]
                if current[j] == t:
                    x[j] -= step * (strength * x[j] + average[j])
                    current[j] = t + 1
                x[j] -= step * change * data[entry]
            if kernels.intercept:
                x[d] -= step * change
        for k in range(batch_size):
            i = batch[k]
            change = (margins[k] - table[i]) / n
            table[i] = margins[k]
            for entry in range(indptr[i], indptr[i + 1]):
                average[columns[entry]] += change * data[entry]
            if kernels.intercept:
                average[d] += change
    for j in range(d):
        power, total = _power_and_sum(work, steps - current[j])
        x[j] = power * x[j] - total * step * average[j]


def sarah_steps(
    kernels: Any,
    memory: Recursion,
    x: Vector,
    indices: Indices,
    batch_size: int,
    step: float,
    margins: Vector,
    work: Any,
) -> None:
    """The steps of SARAH: an untouched coordinate has v ← a v and then x ← x − step·v.

    The point of the step before is x + step·v, so it need not be kept.
    """
    data, columns, indptr = kernels.rows.data, kernels.rows.indices, kernels.rows.indptr
    current = work.current
    current[:] = 0
    d = kernels.columns
    a = 1.0 - work.decay
    share = 1.0 / batch_size
    v, previous = memory.direction, memory.previous
    steps = indices.size // batch_size
    first = 0
    same = True
    for j in range(x.size):
        same = same and x[j] == previous[j]
    if same and steps > 0:
        # The first step of an epoch: its estimate is the full gradient, whatever the batch.
        for j in range(x.size):
            x[j] -= step * v[j]
        first = 1
        current[:] = 1
    for t in range(first, steps):
        batch = indices[t * batch_size : (t + 1) * batch_size]
        for k in range(batch_size):
            kernels.touch_row(indices[min(t * batch_size + k + _AHEAD, indices.size - 1)])
            i = batch[k]
            z = 0.0
            z_before = 0.0
            for entry in range(indptr[i], indptr[i + 1]):
                j = columns[entry]
                if current[j] < t:
                    power, total = _power_and_sum(work, t - current[j])
                    x[j] -= step * a * total * v[j]
                    v[j] *= power
                    current[j] = t
                z += data[entry] * x[j]
                z_before += data[entry] * (x[j] + step * v[j])
            if kernels.intercept:
                z += x[d]
                z_before += x[d] + step * v[d]
            z += kernels.shift(i)
            z_before += kernels.shift(i)
            label = kernels.labels[i]
            change = kernels.loss.slope(z, label) - kernels.loss.slope(z_before, label)
            margins[k] = share * kernels.scale(i) * change
        for k in range(batch_size):
            i = batch[k]
            for entry in range(indptr[i], indptr[i + 1]):
                j = columns[entry]
                if current[j] == t:
                    v[j] *= a
                    x[j] -= step * v[j]
                    current[j] = t + 1
                v[j] += margins[k] * data[entry]
                x[j] -= step * margins[k] * data[entry]
            if kernels.intercept:
                v[d] += margins[k]
        if kernels.intercept:
            x[d] -= step * v[d]
    for j in range(d):
        power, total = _power_and_sum(work, steps - current[j])
        x[j] -= step * a * total * v[j]
        v[j] *= power
    for j in range(x.size):
        previous[j] = x[j] + step * v[j]
