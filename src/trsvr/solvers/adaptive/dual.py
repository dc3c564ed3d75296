"""Coordinate ascent in the dual, where it is cheap: a run begins with it, and goes on with it while nothing is quicker.

The duality gap bounds what is left to gain, and the rate at which its logarithm falls, for each product's worth of
work, is what counts. Far from the minimum no Newton step is as good. Where f had not far to fall, or little is left and
the ascent is not quick, one is tried, and the quicker of the two goes on. The ascent can take over anywhere: a dual
point made from x costs it an epoch.
"""

from __future__ import annotations

import math

import numpy as np

from trsvr._draws import Draws
from trsvr.parts.acceptance import Point
from trsvr.solvers.adaptive.state import Iteration
from trsvr.solvers.base import Progress

_ROUNDING = 64 * float(np.finfo(float).eps)


def ascend(it: Iteration, draws: Draws) -> None:
    """Some epochs from the reference on."""
    state, own, report, phase, ascent = it.state, it.own, it.report, it.own.dual, it.own.ascent
    assert ascent is not None
    report.outcome = Point(state.x.copy(), state.value, state.gradient, phase.gap)
    if not ascent.begun:
        own.here.start_ascent(ascent, state.x, state.gradient)
        phase.gap = ascent.gap(state.x, state.value)
        phase.first_value = max(phase.first_value, state.value)
        phase.epochs, phase.gain = it.rules.dual_epochs, 0.0
    gains: list[float] = []
    while not gains or not (len(gains) >= phase.epochs or state.time_is_up() or _seems_enough(it, gains)):
        report.steps += ascent.epoch(state.x, draws, len(gains), state.time_is_up)
        gains.append(ascent.gain)
    phase.gain = gains[-1]
    report.gradient_evaluations += report.steps
    report.inner_steps, report.batch_size = report.steps, 1


def _seems_enough(it: Iteration, gains: list[float]) -> bool:
    """Whether a look at the point is due: what epochs gain falls like the gap, and says where that has come to."""
    rules, phase = it.rules, it.own.dual
    if not phase.gain > 0.0:
        return False
    left = gains[-1] / phase.gain
    late = left * phase.gap <= rules.newton_from * abs(it.state.value)
    return left <= phase.enough or _recent_rate(it, gains) < (rules.quick_dual if late else rules.slowest_dual)


def _recent_rate(it: Iteration, gains: list[float]) -> float:
    """How quickly the gap falls by the last three epochs; infinite where there were not as many before."""
    if len(gains) < 4 or not min(gains[-4], gains[-1]) > 0.0:
        return math.inf
    return math.log(gains[-4] / gains[-1]) / (3.0 * it.own.here.prices().dual)


def judge_ascent(it: Iteration) -> Progress:
    """Go on with it, or hand over to Newton steps, from the better of the two points."""
    state, own, rules, phase, ascent, before = it.state, it.own, it.rules, it.own.dual, it.own.ascent, it.report.outcome
    assert ascent is not None
    finite = math.isfinite(state.value) and bool(np.isfinite(state.gradient).all())
    floor = _ROUNDING * abs(before.value)
    gap = max(ascent.gap(state.x, state.value), floor) if finite else math.inf
    fallen = math.log(max(phase.gap, floor) / gap) if finite else -math.inf
    epochs = max(it.report.steps / it.problem.n_samples, 1.0)
    rate = fallen / (epochs * own.here.prices().dual + 1.0)
    phase.rate = max(rate, 0.5 * phase.rate)  # one slow iteration after a quick one may be chance
    lowest = state.value - gap
    near = phase.first_value - lowest < rules.near_start * lowest
    early = not near and gap > rules.newton_from * abs(state.value)
    quick = phase.rate > min(math.inf if near else rules.quick_dual, phase.newton_rate)
    slowest = rules.slow_start if phase.epochs == rules.dual_epochs else rules.slowest_dual
    phase.active = gap > floor and phase.rate > slowest and (early or quick)
    if not phase.active and not state.value <= before.value:
        state.x[:], state.value, state.gradient = before.x, before.value, before.gradient
        it.report.rejected = 1
        return Progress(own.expected_decrease, False, own.nonconvex)
    phase.gap = own.expected_decrease = gap
    phase.epochs, phase.enough = rules.most_dual_epochs, _enough(it, gap)
    own.swap_views()
    return Progress(gap, False, own.nonconvex)


def _enough(it: Iteration, gap: float) -> float:
    """The part of the gap that may be left."""
    state, goal = it.state, it.state.goal
    enough = (goal.decrease or it.rules.little * abs(state.value)) / gap
    if goal.gradient > 0.0:  # it falls like the root of the gap
        by_gradient = (goal.gradient / max(float(np.abs(state.gradient).max()), goal.gradient)) ** 2
        enough = min(enough, by_gradient) if goal.decrease else by_gradient
    return it.rules.surely_enough * enough


def may_take_over(it: Iteration, contraction: float) -> None:
    """After a Newton step that has left this part of ½‖g‖²: the ascent goes on if that is much slower than it was."""
    phase, passes = it.own.dual, it.report.gradient_evaluations / it.problem.n_samples + 1.0
    phase.newton_rate = -math.log(contraction) / passes if contraction > 0.0 else math.inf
    late = phase.gap <= it.rules.newton_from * abs(it.state.value) and phase.rate > it.rules.slowest_dual
    if it.own.ascent is not None and late and phase.newton_rate < it.rules.slower_newton * phase.rate:
        phase.active, it.own.ascent.begun = True, False
