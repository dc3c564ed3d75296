"""Whether an outer step is kept: the full gradient at its end is known anyway, as the next reference."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trsvr._arrays import ROUNDING, Vector
from trsvr._vectors import dot

# Values that differ by less than this, relatively, do not say which is smaller.
_SAME = 8.0 * float(np.finfo(float).eps)
# Nor do these where next to nothing is left to gain: a small f is a mean of losses at large margins and has their
# rounding.
_SAME_AT_THE_END = 1e-11
_THE_END = 1e-9
_EPSILON = float(np.finfo(float).eps)


class Point(NamedTuple):
    """A point, with f (NaN where the problem has no values), ∇f and ½‖∇f‖²_{P⁻¹} there."""

    x: Vector
    value: float
    gradient: Vector
    decrease: float


def is_better(before: Point, after: Point) -> bool:
    """Whether f fell from one point to the other.

    Without function values, and where they agree in nearly all digits: by the trapezoid rule,
    ½ (∇f + ∇f⁺)ᵀ(x⁺ − x) < 0, which is exact for quadratics and keeps its digits near a minimiser. There a gradient
    that is smaller in P⁻¹ is welcome too.
    """
    fell, size = before.value - after.value, abs(before.value)
    same = _SAME_AT_THE_END if before.decrease <= _THE_END * size else _SAME
    if math.isnan(after.value) or abs(fell) <= same * size:
        along = dot(before.gradient + after.gradient, after.x - before.x)
        return along < 0.0 or (not math.isnan(after.value) and after.decrease < before.decrease)
    return fell > 0.0


def gained(before: Point, after: Point) -> float:
    """How far f has fallen; by the trapezoid rule where values do not tell."""
    fell = before.value - after.value
    if math.isnan(fell) or abs(fell) <= ROUNDING * abs(before.value):
        return -0.5 * dot(before.gradient + after.gradient, after.x - before.x)
    return fell


def gained_nothing(before: Point, value: float, predicted: float) -> bool:
    """Whether f has changed by no more than its rounding, and was not expected to."""
    rounding = ROUNDING * abs(before.value)
    return bool(abs(before.value - value) <= rounding and predicted <= rounding)


def is_rounding(step: Vector, x: Vector) -> bool:
    """Whether no entry of x moves by more than its rounding: each has units of its own."""
    sizes = np.abs(x)
    return bool((np.abs(step) <= _EPSILON * np.where(sizes > 0.0, sizes, _EPSILON * sizes.max(initial=0.0))).all())


def is_no_part(alpha: float, nonconvex: bool) -> bool:
    """Whether a refused step was so short a part of the model's own that no shorter one will gain anything: a kink."""
    return alpha <= _EPSILON and not nonconvex
