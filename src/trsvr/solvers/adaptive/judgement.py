"""What an outer iteration was worth: keep the trial point or go back, and learn from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr.parts.acceptance import Point, is_better
from trsvr.parts.norms import DenseNorm
from trsvr.solvers.adaptive.endings import RIGHT, doubt, left_to_gain
from trsvr.solvers.adaptive.work import CG_TOLERANCE, UNBOUNDED, Work, is_graded
from trsvr.solvers.base import EpochReport, State

# The radius after a step that failed, after one that ended at it, and where the model was right all the same.
_SHRINK, _GROW, _LEAP = 0.25, 2.0, 4.0
# An outer iteration that leaves more than this part of ½‖g‖²_{P⁻¹} was of hardly any help.
_USELESS = 0.7
# On the whole Hessian conjugate gradients go on until the model is no better than that, but not far into the rounding
# of f, nor beyond what ends the run.
_CG_LOOSEST = 0.2
_CG_ROUNDING = 1e-18
_CG_ENOUGH = 0.3
# Caution is changed by this factor when a step fails, or not.
_MORE_CAUTION = 4.0
_EPSILON = float(np.finfo(float).eps)


def judge(state: State, report: EpochReport, *, may_grow_batch: bool) -> None:
    """Keep the trial point if it is better, else go back to the reference."""
    work: Work = state.work
    before = work.before
    finite = bool(np.isfinite(state.gradient).all()) and not math.isinf(state.value)
    decrease = 0.5 * work.norm.dual(state.gradient) if finite else math.inf
    reference = Point(before["x"], before["value"], before["gradient"], before["decrease"])
    if finite and is_better(reference, Point(state.x, state.value, state.gradient, decrease)):
        _go_on(state, decrease, report)
        return
    rounding = finite and work.escape is None and _is_rounding(state)
    step = float(np.abs(state.x - before["x"]).max())
    if rounding or step <= _EPSILON * float(np.abs(before["x"]).max(initial=0.0)):
        state.scalars["at_floor"] = 1.0
    state.x[:] = before["x"]
    state.value, state.gradient = before["value"], before["gradient"]
    report.rejected = 1
    _be_warned(state, may_grow_batch)


def _go_on(state: State, decrease: float, report: EpochReport) -> None:
    """The trial point is the next reference: radius, P and tolerance follow how much it gained and what is left."""
    work: Work = state.work
    before, scalars = work.before, state.scalars
    work.escape = None
    refused, work.kept = not work.kept, True
    if work.cautious and not refused:
        work.caution /= _MORE_CAUTION
    scalars["contraction"] = decrease / before["decrease"] if before["decrease"] > 0.0 else 0.0
    if not before["inside"] and not (refused and scalars["nonconvex"]):
        right = work.exact and before["value"] - state.value >= RIGHT * before["predicted"]
        scalars["alpha"] = min((_LEAP if right else _GROW) * scalars["alpha"], UNBOUNDED)
    if scalars["contraction"] > _USELESS and isinstance(work.norm, DenseNorm):
        # P was of hardly any help. It may be the sample, or the curvature that has moved: start a new one.
        work.averaged = 0
        scalars["curvature_rows"] *= 2.0
    work.swap_views()
    left = left_to_gain(state, decrease, report)
    scalars["cg_tolerance"] = _next_tolerance(state, decrease, left)
    # With raised curvatures steps are short, and that they gain little says nothing.
    scalars["expected_decrease"] = math.inf if work.cautious and is_graded(state) else left
    if scalars["nonconvex"]:
        doubt(state)
    elif _is_full(before) and scalars["contraction"] > _USELESS and _is_rounding(state):
        scalars["at_floor"] = 1.0  # after a full step neither values nor gradients tell these points apart


def _be_warned(state: State, may_grow_batch: bool) -> None:
    """The step went wrong: a shorter one along an escape, raised curvatures, or a smaller radius and larger samples."""
    work: Work = state.work
    before, scalars = work.before, state.scalars
    work.kept = False
    if work.escape is not None:
        work.escape_length *= _SHRINK
        work.escape = work.escape if work.escape_length > _EPSILON else None
        return
    work.averaged = 0
    if work.here is not None and not work.cautious:
        # It is more often the curvature that is too small, far from the minimiser, than the sample.
        work.cautious = True
        if not scalars["nonconvex"]:
            return
    elif work.by_degrees:
        work.by_degrees = False  # it was too early
        return
    elif is_graded(state) and work.caution < 1.0:
        work.caution = min(_MORE_CAUTION * work.caution, 1.0)
        return
    scalars["alpha"] = _SHRINK * min(scalars["alpha"], before["length"] or scalars["alpha"])
    if not isinstance(work.norm, DenseNorm):
        return  # the whole Hessian was the model: it is not the sample that was wrong
    scalars["curvature_rows"] *= 2.0
    if may_grow_batch:
        scalars["batch_size"] *= 2.0


def _is_full(before: dict[str, Any]) -> bool:
    """Whether the last step was as long as the model asked for, and not short in its own scale."""
    return bool(before["length"] >= 1.0 and not before["bounded"])


def _is_rounding(state: State) -> bool:
    """Whether f has changed by no more than its rounding, and was not expected to."""
    before = state.work.before
    rounding = 64 * _EPSILON * abs(before["value"])
    return bool(abs(before["value"] - state.value) <= rounding and before["predicted"] <= rounding)


def _next_tolerance(state: State, decrease: float, left: float) -> float:
    """How exactly the next subproblem on the whole Hessian is worth solving.

    The model foretold a gradient; what came differs by a part w of the last one, in P⁻¹. That part falls with the
    gradient: w·‖g⁺‖/‖g‖ is what to expect of a quadratic error, and the half of that way is safe. No more than
    ends the run, where that is known: what is left to gain falls with the square of the residual.
    """
    before, norm = state.work.before, state.work.norm
    if before["foretold"] is None or not before["inside"] or not min(decrease, before["decrease"]) > 0.0:
        return CG_TOLERANCE
    wrong = math.sqrt(0.5 * norm.dual(state.gradient - before["foretold"]) / before["decrease"])
    expected = wrong * (decrease / before["decrease"]) ** 0.25
    rounding = math.sqrt(_CG_ROUNDING * abs(state.value) / decrease)
    largest = float(np.abs(state.gradient).max())
    part = state.wanted.decrease / left if left > 0.0 else 0.0  # the estimate may underflow
    enough = _CG_ENOUGH * min(math.sqrt(part), state.wanted.gradient / largest)
    return min(max(expected, rounding, enough), _CG_LOOSEST)
