"""A matrix of sampled rows that learns from the steps made with it, as in quasi-Newton methods.

Both gradients of a step s are of all rows and known anyway. Their change y is what the Hessian, averaged along the
step, says of s; the BFGS update makes the matrix say the same, M s = y, and otherwise changes it as little as it can.
So the error of the sample is put right where steps go, at the price of no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._blas import LONE_COLUMNS
from trsvr._compile import kernel
from trsvr._vectors import dot
from trsvr.parts.acceptance import Point
from trsvr.parts.norms import DenseNorm

# Gradients of points that differ by less than this part of f differ by rounding.
_ROUNDING = 1e-12


def learnt(
    losses: Matrix | None,
    norm: Any,
    before: Point,
    after: Point,
    penalty_slopes: Callable[[Vector], Vector],
    alike: float,
) -> Matrix | None:
    """The losses' matrix (1 × d × d) of the norm P, after a step; of other norms as it was.

    Where cos² of the angle between the step and P⁻¹y, in the norm P, is below ``alike``, P is not what it has gone by.
    """
    if losses is None or not isinstance(norm, DenseNorm):
        return losses
    step, change = after.x - before.x, after.gradient - before.gradient
    image, along = norm.product(step), dot(step, change)
    by_norm = along * along >= alike * dot(step, image) * norm.dual(change)
    if not (by_norm and along > _ROUNDING * abs(before.value)):
        return losses
    image -= norm.penalty * step
    change -= penalty_slopes(after.x) - penalty_slopes(before.x)
    known, seen = dot(step, image), dot(step, change)
    if not (known > 0.0 and seen > 0.0):
        return losses
    if step.size <= LONE_COLUMNS:
        return losses + (np.outer(change, change / seen) - np.outer(image, image / known))
    # With plain NumPy a middling matrix is written five times into new memory, which costs as much as its factor.
    found = np.empty_like(losses)
    _replace(losses[0], change, change / seen, image, image / known, found[0])
    return found


@kernel(fused=False)
def _replace(matrix: Matrix, new: Vector, new_part: Vector, old: Vector, old_part: Vector, out: Matrix) -> None:
    """One matrix of rank one instead of another, with the same bits as above."""
    for i in range(new.size):
        a, b = new[i], old[i]
        for j in range(new.size):
            out[i, j] = matrix[i, j] + (a * new_part[j] - b * old_part[j])
