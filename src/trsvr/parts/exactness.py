"""How exactly a subproblem is worth solving, how its region grows, and a step that is known before it is due."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trsvr._arrays import Vector
from trsvr.parts.acceptance import Point, gained
from trsvr.problems.steps import Exit, NormedStep, StepTaken


@dataclass(frozen=True)
class StepRules:
    """Numbers of a trust-region step on the whole Hessian, whoever makes it."""

    #: a radius that bounds nothing, in multiples of ‖g‖_{P⁻¹}
    unbounded: float = 1e10
    #: a refused step multiplies the radius by shrink, one that ends at it by grow; whatever else a refused step is
    #: shortened by, an escape or a try without a cubic, is the same number
    shrink: float = 0.25
    grow: float = 2.0
    #: one that is tried again, shorter, becomes at least this part of itself, and at most
    least_part: float = 0.05
    most_part: float = 0.9
    #: one whose length is looked at becomes so many times as long at least, and at most
    shortest_stretch: float = 0.25
    longest_stretch: float = 4.0
    #: a length that is right to this part stays as it is
    hardly_stretched: float = 0.05
    #: the relative residual of conjugate gradients where nothing better is known; with P as the model one product
    #: reaches it
    cg_tolerance: float = 0.1
    #: on the whole Hessian they follow how right the model was, up to this
    cg_loosest: float = 0.2
    #: and where outputs could share a matrix no finer than the last gain was wrong, if by more than this part
    cg_mistaken: float = 0.1
    #: not into the rounding of f: what is left to gain then is this part of |f|
    cg_rounding: float = 1e-18
    #: nor further than ends the run: this part of what would
    cg_enough: float = 0.3
    #: they are not cut off: each new beginning costs them what they have learnt
    most_products: int = 5000
    #: values have come to rounding only where a whole step leaves more than this part of ½‖g‖²_{P⁻¹} as well
    stuck: float = 0.7
    #: a second look at an end goes no further than to a gradient of this part, nor with more products
    finest_look: float = 1e-5
    look_products: int = 500


def next_tolerance(
    before: Point, after: Point, wrong: float, left: float, goal: tuple[float, float], rules: StepRules
) -> float:
    """The relative residual at which the next subproblem on the whole Hessian is solved well enough.

    ``wrong`` is ½‖·‖²_{P⁻¹} of the difference between the gradient and the one that the model predicted, a part w² of
    what it was before the step. That part falls with the gradient: w·‖g⁺‖/‖g‖ is what to expect of a quadratic error,
    and the half of that way is safe. No more than ends the run, where that is known (``goal``: the gradient's largest
    entry, and the decrease): what is ``left`` to gain falls with the square of the residual.
    """
    if not min(before.decrease, after.decrease) > 0.0:
        return rules.cg_tolerance
    expected = math.sqrt(wrong / before.decrease) * (after.decrease / before.decrease) ** 0.25
    rounding = math.sqrt(rules.cg_rounding * abs(after.value) / after.decrease)
    gradient, decrease = goal
    asked = [gradient / float(np.abs(after.gradient).max())] if gradient > 0.0 else []
    if decrease > 0.0 and left > 0.0:  # the estimate may underflow
        asked.append(math.sqrt(decrease / left))
    enough = rules.cg_enough * min(asked, default=0.0)
    return min(max(expected, rounding, enough), rules.cg_loosest)


def as_gains_were_predicted(before: Point, after: Point, predicted: float, rules: StepRules) -> float:
    """The residual that suits a model whose decrease was predicted as wrongly as this; 0 where it was right."""
    if not predicted > 0.0:
        return 0.0
    mistaken = abs(gained(before, after) / predicted - 1.0)
    return min(mistaken, rules.cg_loosest) if mistaken > rules.cg_mistaken else 0.0


@dataclass
class FoundStep:
    """A step that a second look has found where a run seemed to end: the next iteration takes it."""

    step: Vector | None = None
    product: Vector | None = None
    length: float = 0.0

    def taken(self, gradient: Vector, alpha: float) -> StepTaken | None:
        """It, if there is one; ``alpha`` is the radius, which stays as it is."""
        if self.step is None or self.product is None:
            return None
        found = NormedStep(self.step, self.product, self.length, Exit.TOLERANCE, 0)
        return StepTaken(found, alpha, predicted_gradient=gradient + self.product)
