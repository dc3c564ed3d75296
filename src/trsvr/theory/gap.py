"""How far a value is from the smallest one: a bound where there is one, an estimate elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.problems.base import as_problem, hessian_at

# A bound of nearly f says no more than that f is not negative.
_ALL = 0.999


def gap_bound(problem: Any, x: Any) -> float:
    """A true upper bound on f(x) − min f; not a number where none is known. At most one pass over the data.

    For convex linear models with a penalty it is the duality gap, with the rounding of its sums (a result has it as
    ``gap_bound``); for others f itself, where f is not negative. `trsvr.problems.certificate` says how.

    Parameters
    ----------
    problem : FiniteSum
    x : array
    """
    return as_problem(problem).gap_bound(_check.vector("x", x, problem.n_parameters))


def expected_decrease(problem: Any, x: Any, gradient: Any, max_products: int = 100) -> float:
    """½ gᵀH⁻¹g with H = ∇²f(x): what a Newton step would gain, by conjugate gradients on all rows.

    Near a minimum this is f(x) − min f up to higher order. It is no bound: an early end makes it too small.

    Parameters
    ----------
    problem : FiniteSum
    x, gradient : array
        A point and ∇f there.
    max_products : int
        Products with H at most, each a pass over the data.

    Returns
    -------
    float
        NaN where the curvature is negative along the way: x is not near a minimum.
    """
    point = _check.vector("x", x, problem.n_parameters)
    residual = _check.vector("gradient", gradient, problem.n_parameters)
    _check.whole("max_products", max_products)
    product = hessian_at(as_problem(problem), point)
    direction: Vector = -residual
    squared = float(residual @ residual)
    wanted, decrease = 1e-6 * squared, 0.0
    for _ in range(min(max_products, 2 * residual.size)):
        if squared <= wanted or squared == 0.0:
            break
        curved = product(direction)
        curvature = float(direction @ curved)
        if not curvature > 0.0:
            # rounding, once the gradient is as small as the rounding errors of its own products
            return math.nan if curvature < 0.0 or decrease == 0.0 else decrease
        length = squared / curvature
        decrease += 0.5 * length * squared
        residual = residual + length * curved
        before, squared = squared, float(residual @ residual)
        direction = (squared / before) * direction - residual
    return decrease


@dataclass(frozen=True)
class Gap:
    """What is known of f(x) − min f.

    Attributes
    ----------
    value : float
        NaN where nothing can be said.
    kind : {"bound", "estimate", "unknown"}
    sentence : str
        Where it comes from.
    """

    value: float
    kind: str
    sentence: str


def estimate_gap(problem: Any, x: Any, gradient: Any, bound: float | None = None) -> Gap:
    """The bound where it says more than that f is not negative, else the expected decrease.

    Parameters
    ----------
    problem : FiniteSum
    x, gradient : array
        A point and ∇f there.
    bound : float, optional
        `gap_bound` there, where it is known already.
    """
    if not np.isfinite(gradient).all():
        return Gap(math.nan, "unknown", "the gradient is not finite")
    known = gap_bound(problem, x) if bound is None else bound
    if known < _ALL * float(problem.value_and_gradient(x)[0]):
        return Gap(known, "bound", "at most: the duality gap")
    decrease = expected_decrease(problem, x, gradient)
    if not decrease < known and not math.isnan(known):
        return Gap(known, "bound", "at most f itself, since f ≥ 0; the gradient is too large to say more")
    if math.isnan(decrease):
        return Gap(decrease, "unknown", "negative curvature here: not near a minimum")
    return Gap(decrease, "estimate", "about ½ gᵀH⁻¹g, what a Newton step would gain; no bound is known")
