"""Where f is lowest between two points whose margins are known: at a hinge curvatures do not say how far to go."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trsvr._arrays import Vector
from trsvr._vectors import dot

_MOST_ITERATIONS = 100


class HingedRows(NamedTuple):
    """Rows of a linear model and their margins at both ends of a step."""

    loss: Any
    labels: Vector
    weights: Any  # one number, or one for each row
    start: Vector
    end: Vector
    total: int  # by which their sum is divided


@np.errstate(all="ignore")
def lowest_part(rows: HingedRows, view: Any, x: Vector, gradient: Vector, step: Vector) -> float:
    """The t between 0 and 1 where f(x + t·step) is lowest; not a number if it falls all the way, or overflows.

    Newton's method for f'(t) = 0, from the far end, where rows have met their hinge: the pieces of f' are straight, so
    that it ends after a few. Where it leaves what is known to hold the place, the middle is next.
    """
    loss, labels, along = rows.loss, rows.labels, rows.end - rows.start
    scaled = rows.weights * along / rows.total
    here = loss.slope(rows.start, labels)
    first = dot(gradient - view.penalty_slopes(x), step)  # of the losses: what follows is how it changes
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(_MOST_ITERATIONS):
        margins, there = rows.start + t * along, x + t * step
        slope = first + float(((loss.slope(margins, labels) - here) * scaled).sum())
        slope += dot(view.penalty_slopes(there), step)
        curvature = float((loss.curvature(margins, labels) * along * scaled).sum())
        curvature += dot(view.penalty_curvatures(there) * step, step)
        if not math.isfinite(slope) or (t == 1.0 and slope <= 0.0):
            return math.nan
        low, high = (low, t) if slope > 0.0 else (t, high)
        following = t - slope / curvature
        if following == t or slope == 0.0:
            break
        t = following if low < following < high else 0.5 * (low + high)
    return t
