"""What an outer iteration was worth: keep the trial point or go back, and learn from it."""

from __future__ import annotations

import math

from trsvr._vectors import all_finite
from trsvr.parts.acceptance import Point, gained_nothing, is_better, is_no_part, is_rounding
from trsvr.parts.exactness import FoundStep, as_gains_were_predicted, next_tolerance
from trsvr.parts.norms import DenseNorm
from trsvr.parts.secant import learnt
from trsvr.parts.steps import shorter_part
from trsvr.solvers.adaptive.endings import escape_of, left_to_gain
from trsvr.solvers.adaptive.state import Iteration, Outcome
from trsvr.solvers.base import Progress


def judge(it: Iteration) -> Progress:
    """Keep the trial point if it is better, else go back to the reference."""
    state, own, report, outcome = it.state, it.own, it.report, it.report.outcome
    finite = all_finite(state.gradient) and not math.isinf(state.value)
    decrease = 0.5 * outcome.measured.norm.dual(state.gradient) if finite else math.inf
    before, trial = outcome.before, Point(state.x, state.value, state.gradient, decrease)
    if finite and is_better(before, trial):
        return _unless_doubtful(it, outcome, _go_on(it, outcome, trial))
    # A step that was held back says nothing; a matrix says what a whole one would have gained.
    whole = before.decrease if isinstance(outcome.measured.norm, DenseNorm) else outcome.predicted
    at_floor = finite and own.escape.direction is None and gained_nothing(before, state.value, whole)
    at_floor = at_floor or is_rounding(state.x - before.x, before.x) or is_no_part(own.radius.alpha, own.nonconvex)
    report.rejected = 1
    _be_warned(it, outcome, trial)
    state.x[:], state.value, state.gradient = before.x, before.value, before.gradient
    return Progress(own.expected_decrease, at_floor, own.nonconvex)


def _go_on(it: Iteration, outcome: Outcome, trial: Point) -> bool:
    """The trial point is the next reference: all that is remembered follows what it gained and what is left.

    Returns whether neither values nor gradients tell the two points apart any more.
    """
    state, own, rules, radius, norm, before = it.state, it.own, it.rules, it.own.radius, it.own.norm, outcome.before
    own.escape.direction = None
    refused, radius.accepted, radius.shortened = not radius.accepted, True, False
    if not refused:
        own.caution.after_a_good_step(rules.more_caution)
    disappoints = before.value - state.value < rules.disappointing * outcome.predicted
    if disappoints and own.here.prices().shared < math.inf and not own.caution.raised:
        own.caution.answers_refusal(own.here.raising, own.graded, rules.more_caution, rules.in_vain)
    radius.contraction = trial.decrease / before.decrease if before.decrease > 0.0 else 0.0
    if not outcome.taken.is_inside and not (refused and own.nonconvex):
        radius.alpha = min(rules.grow * radius.alpha, rules.unbounded)
    if radius.contraction > rules.useless and isinstance(outcome.measured.norm, DenseNorm):
        # P was of hardly any help. It may be the sample, or the curvature that has moved: start a new one.
        norm.averaged = 0
        norm.wanted_rows *= 2.0
    own.swap_views()
    left = left_to_gain(it, outcome, trial.decrease)
    radius.cg_tolerance = _next_tolerance(it, outcome, trial, left)
    if norm.rows < it.problem.n_samples and own.here.prices().factor <= rules.cheap_factor:
        norm.losses = learnt(norm.losses, outcome.measured.norm, before, trial, own.here.penalty_slopes, rules.alike)
    # With raised curvatures steps are short, and that they gain little says nothing.
    own.expected_decrease = math.inf if own.caution.raised and own.graded else left
    if own.nonconvex:
        own.expected_decrease = escape_of(it, outcome.measured)
        return False
    full = outcome.length >= 1.0 and not outcome.taken.is_cut_off and radius.contraction > rules.stuck
    nothing = full and gained_nothing(before, state.value, outcome.predicted)
    return nothing or (not trial.value < before.value and bool((trial.x == before.x).all()))


def _unless_doubtful(it: Iteration, outcome: Outcome, at_floor: bool) -> Progress:
    """What is expected to be left, or what the certificate says where that is much more, and falls or may be true."""
    state, own, rules, little = it.state, it.own, it.rules, it.rules.little * abs(it.state.value)
    if not own.expected_decrease <= (state.goal.decrease or little):
        return Progress(own.expected_decrease, at_floor, own.nonconvex)
    before, own.bound = own.bound, own.here.gap_bound(state.x, state.value, state.gradient)
    cheap = it.problem.n_samples * own.here.prices().matrix_row <= rules.cheap_iteration
    part, least = (rules.certified_small, 0.0) if cheap else (rules.certified, state.goal.decrease)
    enough = max(part * abs(state.value), least)
    newton = own.kind == "dense" and own.norm.rows >= own.here.n_rows and not (own.norm.exact or own.nonconvex)
    if newton and own.bound > enough:
        step = -outcome.measured.norm.solve(state.gradient)
        own.bound = min(own.bound, own.here.gap_bound_near(state.x, state.value, state.gradient, step))
    slow = newton and own.radius.contraction > rules.slow_newton
    slow = slow and own.expected_decrease <= little and own.bound > enough
    noise = slow and outcome.before.value - state.value < rules.noisy * outcome.predicted
    doubtful = slow or (own.bound > enough and own.bound < rules.falls * before)
    return Progress(own.bound if doubtful else own.expected_decrease, at_floor or noise, own.nonconvex, own.bound)


def _be_warned(it: Iteration, outcome: Outcome, trial: Point) -> None:
    """The step went wrong: a shorter one along an escape, raised curvatures, or a smaller radius and larger samples."""
    own, rules, radius, norm = it.own, it.rules, it.own.radius, it.own.norm
    radius.accepted = False
    if own.escape.direction is not None:
        own.escape.shorten(rules.shrink)
        return
    shorter = _shorten(it, outcome, trial)
    if shorter and own.here.prices().shared == math.inf:
        return
    # It is more often the curvature that is too small, far from the minimiser, than the sample.
    more = own.caution.answers_refusal(own.here.raising, own.graded, rules.more_caution, rules.in_vain)
    if shorter:
        return
    norm.averaged = 0
    if more and not own.nonconvex:
        return
    radius.alpha = rules.shrink * min(radius.alpha, outcome.length or radius.alpha)
    if not isinstance(outcome.measured.norm, DenseNorm):
        return  # the whole Hessian was the model: it is not the sample that was wrong
    norm.wanted_rows *= 2.0
    if it.chosen.batch_size is None:
        own.batch_size *= 2.0


def _shorten(it: Iteration, outcome: Outcome, trial: Point) -> bool:
    """Try the same step once more, shorter: it costs no product; returns whether that is worth it."""
    own, step, before = it.own, outcome.taken, outcome.before
    if own.radius.shortened or own.nonconvex or it.report.steps > 1:
        return False
    part = own.here.lowest_part(own.there, before.x, before.gradient, step.step)
    if own.norm.exact and own.here.prices().shared < math.inf:
        part = shorter_part(before, trial, step.step, it.rules)
    if part > 0.0:  # the norm is as good as it was: the step counts as accepted there
        own.radius.shortened = own.radius.accepted = True
        own.ahead = FoundStep(part * step.step, part * step.product, part * step.length)
    return part > 0.0


def _next_tolerance(it: Iteration, outcome: Outcome, trial: Point, left: float) -> float:
    """How exactly the next subproblem on the whole Hessian is worth solving."""
    rules, before = it.rules, outcome.before
    # Where outputs could share a matrix, a first step may end where the gradient is small and the model wrong.
    shared = it.own.here.prices().shared < math.inf
    loosest = as_gains_were_predicted(before, trial, outcome.predicted, rules) if shared else 0.0
    if outcome.predicted_gradient is None or not outcome.taken.is_inside:
        return max(rules.cg_tolerance, loosest)
    wrong = 0.5 * outcome.measured.norm.dual(trial.gradient - outcome.predicted_gradient)
    gradient, decrease = it.state.goal
    decrease = decrease if gradient > 0.0 else rules.little * abs(trial.value)
    return max(next_tolerance(before, trial, wrong, left, (gradient, decrease), rules), loosest)
