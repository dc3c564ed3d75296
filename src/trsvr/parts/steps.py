"""The adaptive mode's two kinds of steps: one on the full gradient, a walk on batches. Views may know better ways."""

from __future__ import annotations

import functools
import math

from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.parts.acceptance import Point
from trsvr.parts.exactness import StepRules
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.parts.variance import noise_and_signal, too_noisy
from trsvr.problems.steps import Exit, NormedStep, Product, StepRequest, StepTaken, WalkRequest, WalkTaken
from trsvr.problems.views import CurvatureView


def conjugate_gradients(product: Product, request: StepRequest) -> StepTaken:
    """Steihaug's, in the norm P, on the Hessian that ``product`` multiplies by."""
    pairs: list[tuple[Vector, Vector]] | None = [] if request.keeps_pairs else None
    solve = functools.partial(
        preconditioned_cg,
        product,
        request.norm,
        request.gradient,
        max_iterations=request.most_products,
        give_up=request.give_up,
    )
    alpha = request.alpha
    found = solve(alpha * request.size, request.tolerance, keep=pairs)
    if found.exit is Exit.NEGATIVE_CURVATURE and request.is_unbounded:
        # Without a bound the model has no minimum: begin with a step as long as the gradient.
        alpha, found = 1.0, solve(request.size, request.rough_tolerance)
    return StepTaken(found, alpha, pairs or (), request.gradient + found.product)


def newton_step(gradient: Vector, solved: Vector, size: float, alpha: float) -> StepTaken:
    """Newton's step with P for H: no product at all, where P is the model or has learnt enough from earlier steps.

    ``solved`` is P⁻¹g, ``size`` ‖g‖_{P⁻¹}, and ``alpha`` the radius over that.
    """
    part = min(alpha, 1.0)
    step, product = -part * solved, -part * gradient
    found = NormedStep(step, product, part * size, Exit.BOUNDARY if part < 1.0 else Exit.TOLERANCE, 0)
    return StepTaken(found, alpha, (), gradient + product)


def better_length(start: float, slope: float, curvature: float, rules: StepRules) -> float:
    """How many times as long a step should be: one step of Newton's method for that, from its end.

    ``start`` and ``slope`` are f's derivatives along it at both ends, ``curvature`` its second one at the far end. Far
    from the minimiser the losses' curvatures fall along a step, which then ends too early. Where it ends too late the
    secant says how much: curvatures at its end may have fallen to nothing.
    """
    if not (math.isfinite(slope) and 0.0 < curvature < math.inf):
        return 1.0
    times = start / (start - slope) if slope > 0.0 else 1.0 - slope / curvature
    times = min(max(times, rules.shortest_stretch), rules.longest_stretch)
    return times if abs(times - 1.0) > rules.hardly_stretched else 1.0


def shorter_part(before: Point, trial: Point, step: Vector, rules: StepRules) -> float:
    """Which part of a refused step ends where the cubic through values and slopes at both its ends is lowest.

    Not a number where f does not fall at its beginning and rise at its end.
    """
    falls, rises, risen = dot(before.gradient, step), dot(trial.gradient, step), trial.value - before.value
    if not (falls < 0.0 < rises and math.isfinite(risen)):
        return math.nan
    bend = falls + rises - 3.0 * risen
    root = math.sqrt(max(bend * bend - falls * rises, 0.0))
    part = 1.0 - (rises + root - bend) / (rises - falls + 2.0 * root)
    return min(max(part, rules.least_part), rules.most_part)


def walk(view: CurvatureView, request: WalkRequest) -> WalkTaken:
    """Steps on batches, until their noise is as large as what is left."""
    x, steps, rows = request.x.copy(), 0, 0
    slopes = view.penalty_slopes(request.reference)
    while steps < request.most:
        changes = view.changes(x, request.batch_size, request.scattered, request.draws, steps)
        if changes is None:
            return WalkTaken(x, steps, steps, rows, False)
        first, second, rows = changes
        estimate = request.gradient + 0.5 * (first + second) + (view.penalty_slopes(x) - slopes)
        noise, signal = noise_and_signal(request.norm, first, second, estimate)
        noisy = too_noisy(noise, signal, request.noise)
        if noisy or signal > request.longest:
            return WalkTaken(x, steps, steps + 1, rows, noisy and steps == 0)
        x += request.step(estimate, math.sqrt(signal))
        steps += 1
    return WalkTaken(x, steps, steps, rows, False)
