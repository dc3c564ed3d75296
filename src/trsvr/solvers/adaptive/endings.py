"""How much an adaptive run has left to gain at a new reference point, and whether to believe it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr._vectors import dot
from trsvr.parts.negative_curvature import negative_curvature
from trsvr.parts.norms import DenseNorm
from trsvr.parts.subproblems import Exit, preconditioned_cg
from trsvr.solvers.base import EpochReport, State

#: A model is right where f fell by at least this part of what it foretold.
RIGHT = 0.8
# What is left to gain is estimated to a factor of about this; that one step has left less than that part is not
# believed: what is left may lie where the curvature is small, and ‖g‖²_{P⁻¹} hardly sees it. How much softer H was
# than P is forgotten slowly: a step of few products does not see it.
_DOUBT = 4.0
_BELIEVED = 1e-6
_FORGET = 0.5
# A model that foretells less than this part of ½‖g‖²_{P⁻¹} was not solved in its own scale.
_SCALED = 1e-3
# A run may end where so little is expected, relatively: if the curvatures have changed by less than that part.
_NEARLY = 1e-12
_STOOD_STILL = 1e-3
# Before that conjugate gradients look once more, until what they may have passed by is this part of what is expected
# at most, but not further than to a gradient of this part.
_PROVEN = 0.5
_FINEST_LOOK = 1e-5
_MOST_PRODUCTS = 500
# A nonconvex run ends with a gradient so small, if no curvature is negative.
_SMALL_GRADIENT = 1e-9
_ROUNDING = 64 * float(np.finfo(float).eps)


def left_to_gain(state: State, decrease: float, report: EpochReport) -> float:
    """How far f is above its minimum; not a number where only the gradient can tell.

    ``decrease`` is ½‖g‖²_{P⁻¹}. An estimate that would end the run gets a second look.
    """
    expected = _estimate(state.work, decrease, state.work.before["value"] - state.value)
    little = state.wanted.decrease or _NEARLY * abs(state.value)
    if not expected <= little:
        return expected
    looked = _second_look(state, expected, little, report)
    # Conjugate gradients that were cut short because the time is up have foretold too little.
    return math.nan if state.work.time_is_up is not None and state.work.time_is_up() else looked


def _estimate(work: Any, decrease: float, gained: float) -> float:
    """½‖g‖²_{P⁻¹}, or what follows from the last step's gain where P is no model of H.

    After conjugate gradients on the whole Hessian the gain is about the gap at the old point, and gap and
    ‖g‖²_{P⁻¹} fall alike: where the model was right, so that there is a reason to believe it.
    """
    before = work.before
    predicted = float(before["predicted"])
    if before["decrease"] > 0.0:
        work.softness = max(predicted / before["decrease"], _FORGET * work.softness)
    if isinstance(work.norm, DenseNorm) and work.norm.convex:
        return max(1.0, work.softness) * decrease
    if before["bounded"]:
        return math.inf  # a short step gains little, wherever it is made
    right = abs(gained - predicted) <= (1.0 - RIGHT) * predicted + _ROUNDING * abs(before["value"])
    # Without a scale for the parameters, or with a wrong one, conjugate gradients may stop too early to know.
    knows = work.here is not None and predicted >= _SCALED * before["decrease"]
    if right and before["foretold"] is not None and before["inside"] and knows:
        return max(_DOUBT * work.softness * decrease, _BELIEVED * predicted)
    return predicted if knows else max(predicted, decrease)


def _second_look(state: State, expected: float, little: float, report: EpochReport) -> float:
    """The estimate of an end, unless something speaks against it.

    P is of the last reference: if the curvatures of the losses have moved since, rows may have left a hinge, and
    with them what P has measured by. Where P is no matrix it is no more than a norm for conjugate gradients, and they
    may have passed by directions that only the penalty sees; without a penalty nothing tells those from rounding, and
    the gradient must do. So it is without a norm, where nothing is known but the gradient and the penalty's convexity.
    """
    work, view = state.work, state.work.here
    if view is None:
        return expected
    if work.convexity is not None:
        return 0.5 * dot(state.gradient, state.gradient) / work.convexity if work.convexity > 0.0 else math.nan
    moved = abs(view.total_weight() - work.total_weight)
    if not work.cautious and expected <= _NEARLY * abs(state.value) and moved > _STOOD_STILL * view.total_weight():
        return math.inf
    if isinstance(work.norm, DenseNorm):
        return expected
    if state.scalars["nonconvex"]:
        return expected  # nothing bounds what is hidden, and `doubt` asks for more
    hidden = _can_be_hidden(state)
    if hidden <= little:
        return expected
    if math.isinf(hidden):
        return math.nan
    if hasattr(view, "subspace"):  # every product is a round of messages: rather another iteration, of two of them
        return math.inf
    return max(expected, _seen(state, little, hidden, report))


def _can_be_hidden(state: State) -> float:
    """What conjugate gradients may have passed by, ½‖g‖²/λ at most; infinite where the penalty says nothing.

    Dependent columns leave directions with no curvature but the penalty's λ, and their part of the gradient is so
    small that nothing is seen of it before the rest is as small. An intercept, which is not penalised, counts as if it
    were.
    """
    penalty = state.work.here.penalty_curvatures(state.x)
    smallest = float(penalty[penalty > 0.0].min(initial=math.inf))
    largest = float(state.work.losses.max(initial=0.0))
    # Below the rounding of the other curvatures λ is not seen in a product: steps along it would be noise.
    if math.isinf(smallest) or smallest <= _ROUNDING * largest:
        return math.inf
    return 0.5 * dot(state.gradient, state.gradient) / smallest


def _seen(state: State, little: float, hidden: float, report: EpochReport) -> float:
    """What conjugate gradients see to gain from here, when they go on until next to nothing can be hidden."""
    work, view = state.work, state.work.here
    penalty = view.penalty_curvatures(state.x)
    finest = max(math.sqrt(_PROVEN * little / hidden), _FINEST_LOOK)
    taken = preconditioned_cg(
        lambda v: view.product(v) + penalty * v,
        work.norm,
        state.gradient,
        math.inf,
        finest,
        _MOST_PRODUCTS,
        give_up=work.time_is_up,
    )
    report.hessian_products += taken.products
    report.gradient_evaluations += taken.products * view.problem.n_samples
    if taken.exit is Exit.NEGATIVE_CURVATURE:
        return 0.0
    seen = taken.predicted(state.gradient)
    if seen > little:
        work.ahead = {"step": taken.step, "product": taken.product, "length": taken.length}
    return seen


def doubt(state: State) -> None:
    """Without convexity a small decrease proves nothing: ask for a small gradient, then for no way further down.

    If the Hessian has a direction of negative curvature, the next outer iteration steps along it.
    """
    work, scalars = state.work, state.scalars
    if scalars["expected_decrease"] > _NEARLY * max(abs(state.value), np.finfo(float).tiny):
        return
    if math.sqrt(dot(state.gradient, state.gradient)) > _SMALL_GRADIENT:
        scalars["expected_decrease"] = math.inf
        return
    penalty = work.here.penalty_curvatures(state.x)
    if (penalty >= 0.0).all():
        return
    downwards = negative_curvature(work.here, penalty, state.gradient, dense=isinstance(work.norm, DenseNorm))
    if downwards is not None:
        scalars["expected_decrease"] = math.inf
        work.escape = downwards if dot(downwards, state.gradient) <= 0.0 else -downwards
        work.escape_length = 1.0
