"""Whether an outer step is kept: the full gradient at its end is known anyway, as the next reference."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trsvr._vectors import Vector, dot

_EPSILON = float(np.finfo(float).eps)
# Values that differ by less than this, relatively, do not say which is smaller.
_SAME = 8.0


class Point(NamedTuple):
    """A point, with f (NaN where the problem has no values), ∇f and ½‖∇f‖²_{P⁻¹} there."""

    x: Vector
    value: float
    gradient: Vector
    decrease: float


def is_better(before: Point, after: Point) -> bool:
    """Whether f fell from one point to the other.

    Without function values: by the trapezoid rule, ½ (∇f + ∇f⁺)ᵀ(x⁺ − x) < 0, which is exact for quadratics. Where the
    values agree in nearly all digits the smaller gradient is better, in the norm P⁻¹.
    """
    if math.isnan(after.value):
        return dot(before.gradient + after.gradient, after.x - before.x) < 0.0
    fell = before.value - after.value
    if abs(fell) <= _SAME * _EPSILON * abs(before.value):
        return after.decrease < before.decrease
    return fell > 0.0
