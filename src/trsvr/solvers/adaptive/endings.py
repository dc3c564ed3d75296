"""How much an adaptive run has left to gain at a new reference point, and whether to believe it."""

from __future__ import annotations

import math

import numpy as np

from trsvr._arrays import ROUNDING
from trsvr._vectors import dot
from trsvr.parts.exactness import FoundStep
from trsvr.parts.negative_curvature import negative_curvature
from trsvr.parts.norms import DenseNorm
from trsvr.parts.second_look import can_be_hidden
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.problems.steps import Exit
from trsvr.solvers.adaptive.rules import Rules
from trsvr.solvers.adaptive.state import Iteration, Measured, Outcome


def left_to_gain(it: Iteration, outcome: Outcome, decrease: float) -> float:
    """How far f is above its minimum; not a number where only the gradient can tell.

    ``decrease`` is ½‖g‖²_{P⁻¹} at the new point. An estimate that would end the run gets a second look.
    """
    state, rules = it.state, it.rules
    expected = estimate(outcome, decrease, outcome.before.value - state.value, rules)
    little = state.goal.decrease or rules.little * abs(state.value)
    if not expected <= little:
        return expected
    expected = _second_look(it, outcome.measured, expected, little)
    # Conjugate gradients that were cut short because the time is up have predicted too little.
    return math.nan if state.time_is_up() else expected


def estimate(outcome: Outcome, decrease: float, gained: float, rules: Rules) -> float:
    """½‖g‖²_{P⁻¹}, or what follows from the last step's gain where P is no model of H.

    After conjugate gradients on the whole Hessian the gain is about the gap at the old point, and gap and
    ‖g‖²_{P⁻¹} fall alike: where the model was right, so that there is a reason to believe it.
    """
    norm, predicted, before = outcome.measured.norm, outcome.predicted, outcome.before
    softness = predicted / before.decrease if before.decrease > 0.0 else 0.0  # of H, against P
    if isinstance(norm, DenseNorm) and norm.convex:
        return max(1.0, softness) * decrease
    if outcome.taken.is_cut_off:
        return math.inf  # a short step gains little, wherever it is made
    right = abs(gained - predicted) <= (1.0 - rules.right) * predicted + ROUNDING * abs(before.value)
    if right and outcome.predicted_gradient is not None and outcome.taken.is_inside:
        return max(rules.doubt * softness * decrease, rules.believed * predicted)
    return predicted


def _second_look(it: Iteration, measured: Measured, expected: float, little: float) -> float:
    """The estimate of an end, unless something speaks against it.

    If curvatures have moved since the last reference, rows may have left a hinge, and with them what P has measured by.
    Where P is no matrix, conjugate gradients may have passed by directions that only the penalty sees; without one
    nothing tells those from rounding, and the gradient must do. So it is without a norm.
    """
    state, own, rules, view = it.state, it.own, it.rules, it.own.here
    squared = dot(state.gradient, state.gradient)
    if measured.convexity is not None:
        return 0.5 * squared / measured.convexity if measured.convexity > 0.0 else math.nan
    moved = abs(view.total_weight() - own.norm.total_weight)
    ends = not own.caution.raised and expected <= rules.little * abs(state.value)
    if ends and moved > rules.unmoved_at_end * view.total_weight():
        return math.inf
    if isinstance(measured.norm, DenseNorm) or own.nonconvex:
        return expected  # without convexity nothing bounds what is hidden, and `escape_of` asks for more
    penalty = view.penalty_curvatures(state.x)
    hidden = can_be_hidden(penalty, own.norm.losses, squared)
    if hidden <= little:
        return expected
    if math.isinf(hidden):
        return math.nan
    if view.prices().wait >= rules.longest_wait:  # rather another iteration, which waits less than a look
        return math.inf
    finest = max(math.sqrt(rules.proven * little / hidden), rules.finest_look)
    look, most = (lambda v: view.product(v) + penalty * v), rules.look_products
    taken = preconditioned_cg(look, measured.norm, state.gradient, math.inf, finest, most, give_up=state.time_is_up)
    it.report.hessian_products += taken.products
    it.report.gradient_evaluations += taken.products * it.problem.n_samples
    if taken.exit is Exit.NEGATIVE_CURVATURE:
        return expected
    seen = taken.predicted(state.gradient)
    if seen > little:
        own.ahead = FoundStep(taken.step, taken.product, taken.length)
    return max(expected, seen)


def escape_of(it: Iteration, measured: Measured) -> float:
    """Without convexity a small decrease proves nothing: ask for a small gradient, then for no way further down.

    Returns what is expected then. If the Hessian has a direction of negative curvature, the next outer iteration steps
    along it.
    """
    state, own, rules = it.state, it.own, it.rules
    expected = own.expected_decrease
    if expected > rules.little * max(abs(state.value), np.finfo(float).tiny):
        return expected
    if math.sqrt(dot(state.gradient, state.gradient)) > rules.small_gradient:
        return math.inf
    penalty = own.here.penalty_curvatures(state.x)
    downwards = negative_curvature(own.here, penalty, state.gradient, isinstance(measured.norm, DenseNorm))
    if downwards is None:
        return expected
    own.escape.along(downwards, state.gradient)
    return math.inf
