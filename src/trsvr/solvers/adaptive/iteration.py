"""One outer iteration: norm, step on the full gradient, steps on batches. `judgement` says what they were worth."""

from __future__ import annotations

import math

from trsvr._arrays import Vector
from trsvr._draws import Draws
from trsvr._vectors import dot
from trsvr.parts.acceptance import Point
from trsvr.parts.exactness import FoundStep
from trsvr.parts.norms import DenseNorm
from trsvr.parts.steps import better_length, conjugate_gradients, newton_step, walk
from trsvr.problems.steps import Exit, NormedStep, StepRequest, StepTaken, WalkRequest
from trsvr.solvers.adaptive.endings import escape_of
from trsvr.solvers.adaptive.measuring import measure
from trsvr.solvers.adaptive.state import Iteration, Measured, Outcome


def outer_iteration(it: Iteration, draws: Draws) -> None:
    """From the reference x̃ to a trial point; fills in the report."""
    state, own, report = it.state, it.own, it.report
    own.begin()
    measured, taken, size = _first_step(it, draws)
    report.outcome = Outcome(
        Point(state.x.copy(), state.value, state.gradient, 0.5 * size * size),
        measured,
        taken.found,
        predicted=taken.found.predicted(state.gradient) + taken.left,
        length=taken.found.length / size if size > 0.0 else 0.0,
        predicted_gradient=taken.predicted_gradient if own.norm.exact else None,
    )
    state.x += _stretch(it, measured, taken.found) * taken.found.step
    report.steps += 1
    if own.escape.direction is None and not own.norm.exact and _inner_steps_pay(it):
        _inner_steps(it, report.outcome, draws)
    report.inner_steps = report.steps
    report.radius = own.radius.alpha * size
    report.boundary_fraction = float(taken.found.exit in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE))
    report.negative_curvature = int(taken.found.exit == Exit.NEGATIVE_CURVATURE)
    report.cg_iterations = float(taken.found.products)


def _first_step(it: Iteration, draws: Draws) -> tuple[Measured, StepTaken, float]:
    """P and H at the reference, the step (along an escape, one that has been found already, or new), and ‖g‖_{P⁻¹}."""
    own, gradient = it.own, it.state.gradient
    measured, ahead, own.ahead = measure(it, draws), own.ahead, FoundStep()
    if own.nonconvex and not gradient.any():
        own.expected_decrease = 0.0  # nothing but the curvature can tell a minimum from a saddle point here
        own.expected_decrease = escape_of(it, measured)
    known = ahead.taken(gradient, own.radius.alpha)
    if own.escape.direction is not None:
        product = measured.product or (lambda v: own.here.product(v) + measured.penalty * v)
        known = own.escape.step(product, own.radius.alpha)
    if known is not None:
        return measured, known, math.sqrt(measured.norm.dual(gradient))
    taken, size = _step(it, measured)
    if taken.found.length == 0.0 and own.norm.pairs.forget():
        # Curvatures of other places have made a norm that rounding does not survive.
        measured = measure(it, draws)
        taken, size = _step(it, measured)
    return measured, taken, size


def _step(it: Iteration, measured: Measured) -> tuple[StepTaken, float]:
    """A trust-region step along the full gradient: on the whole Hessian, or on P where that is the model; its size."""
    own, report, gradient = it.own, it.report, it.state.gradient
    if measured.product is not None:
        return _on_model(it, measured, gradient)
    size = math.sqrt(measured.norm.dual(gradient))
    request = _request(it, measured, gradient, size)
    taken = own.here.step(request)
    own.norm.pairs.remember(taken.pairs, it.rules.most_pairs)
    report.hessian_products += taken.found.products
    report.gradient_evaluations += taken.found.products * it.problem.n_samples + taken.rows
    own.norm.products += taken.found.products
    own.radius.alpha = report.alpha = taken.alpha
    return taken, size


def _on_model(it: Iteration, measured: Measured, gradient: Vector) -> tuple[StepTaken, float]:
    """Newton's step where P is the model's Hessian, factored; conjugate gradients where P is another matrix."""
    radius, norm = it.own.radius, measured.norm
    if isinstance(norm, DenseNorm) and norm.is_hessian:
        solved = norm.solve(gradient)
        size = math.sqrt(dot(gradient, solved))
        taken = newton_step(gradient, solved, size, radius.alpha)
    else:
        assert measured.product is not None
        size = math.sqrt(norm.dual(gradient))
        taken = conjugate_gradients(measured.product, _request(it, measured, gradient, size))
    radius.alpha = it.report.alpha = taken.alpha
    return taken, size


def _stretch(it: Iteration, measured: Measured, found: NormedStep) -> float:
    """How many times as long the step should be."""
    own, rules = it.own, it.rules
    every, left = own.norm.rows >= it.problem.n_samples, own.radius.contraction
    pays = rules.stretched_from < left <= rules.stretched_to if every else left > rules.stretched_sampled
    has_model = measured.product is not None and not own.nonconvex
    if not (found.is_inside and has_model and (pays or left == 0.0) and own.here.prices().line < math.inf):
        return 1.0
    slope, curvature, rows = own.here.line(it.state.x, it.state.gradient, found.step)
    it.report.gradient_evaluations += rows
    return better_length(dot(it.state.gradient, found.step), slope, curvature, rules)


def _request(it: Iteration, measured: Measured, gradient: Vector, size: float) -> StepRequest:
    own, rules, exact = it.own, it.rules, measured.product is None
    return StepRequest(
        gradient,
        size,
        measured.norm,
        own.radius.alpha,
        measured.penalty,
        own.radius.cg_tolerance if exact else rules.cg_tolerance,
        rules.cg_tolerance,
        it.chosen.max_cg or rules.most_products,
        own.norm.pairs.directions,
        exact and own.here.prices().bear_directions(rules.most_pairs, rules.cheap_pairs),
        it.state.time_is_up,
        own.radius.alpha == rules.unbounded,
        conjugate_gradients,
    )


def _inner_steps_pay(it: Iteration) -> bool:
    """Whether to make inner steps: if they were asked for, if they are cheap, or if a step alone leaves much."""
    own, rules, chosen, n = it.own, it.rules, it.chosen, it.problem.n_samples
    if own.norm.rows >= n or (chosen.batch_size is None and int(own.batch_size) > rules.largest_batch * n):
        return False
    asked_for = chosen.batch_size is not None or chosen.inner_steps is not None
    passes = 2.0 * own.batch_size * own.here.prices().batch_row / n
    pays = passes < rules.cheap_batch or own.radius.contraction > rules.inner_steps_from
    return asked_for or (pays and passes < math.inf)


def _inner_steps(it: Iteration, outcome: Outcome, draws: Draws) -> None:
    """Steps on batches, from the end of the first step."""
    state, own, rules, report, measured = it.state, it.own, it.rules, it.report, outcome.measured
    assert measured.product is not None  # on the whole Hessian no batch is drawn

    def step(estimate: Vector, size: float) -> Vector:
        return _on_model(it, measured, estimate)[0].found.step

    request = WalkRequest(
        state.x,
        outcome.before.x,
        outcome.before.gradient,
        measured.norm,
        own.radius.alpha,
        int(own.batch_size),
        (it.chosen.inner_steps or rules.most_inner_steps) - 1,
        it.chosen.batch_size is not None,
        rules.noise,
        rules.longest_walk * outcome.before.decrease if own.nonconvex else math.inf,
        draws,
        step,
        walk,
    )
    taken = own.here.walk(request)
    state.x[:] = taken.x
    report.steps += taken.steps
    report.batch_size = taken.rows
    report.gradient_evaluations += 2 * taken.rows * taken.batches
    if taken.too_noisy and it.chosen.batch_size is None:
        own.batch_size *= rules.more_rows
