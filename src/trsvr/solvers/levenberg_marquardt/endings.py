"""Whether a run is at a minimum, as far as can be told."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr.parts.damping import DampedStep
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.problems.plain import NotFinite
from trsvr.problems.steps import Exit, NormedStep
from trsvr.solvers.base import AUTO_DECREASE
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.anew import leads_lower
from trsvr.solvers.levenberg_marquardt.bending import Bending, bending_at
from trsvr.solvers.levenberg_marquardt.run import Run
from trsvr.solvers.levenberg_marquardt.state import Point, Trial

_EPSILON = float(np.finfo(float).eps)


def ends(run: Run, before: Point, trial: Trial, kept: bool, freely: bool) -> bool:
    """Whether the reference is a minimum, as far as can be told; ``freely`` if no step was refused just before."""
    own, here, damped = run.own, run.own.here, trial.damped
    assert here is not None
    if here.value <= max(here.rounding(), rules.NOTHING * own.first_value):
        return True
    if kept and freely and _loose_end(run, before, here, damped):
        return True
    still = bool((np.abs(damped.step) <= 4.0 * _EPSILON * np.abs(here.x)).all())
    if still and not kept:
        own.misses = rules.MISSES + 1
    candidate = own.sine <= rules.CONVERGED or still or own.misses > rules.MISSES
    rough = not own.fine and run.problem.jacobian_passes(True) != run.problem.jacobian_passes(False)
    if rough and (candidate or own.sine <= rules.FINE):
        own.fine, own.misses = True, 0
        own.radius = max(own.radius, run.first_radius()) if candidate else own.radius
        own.here, own.model = run.look(here.x, here.value, here.residuals), None
        own.last = own.began = None
        own.sine = run.sine(own.here, run.model())
        return False
    if not candidate:
        return False
    if run.sharpened():
        own.misses, own.sine = 0, run.sine(here, run.model())
        return False
    sure = own.sine <= rules.CONVERGED and own.contraction <= rules.PROVEN and run.model().full_rank
    lowest = _is_minimum(run, sure)
    doubtful = not sure and (lowest or own.misses > rules.MISSES) and own.begun_anew < rules.ANEW_MOST
    return not (doubtful and leads_lower(run)) and lowest


def _loose_end(run: Run, before: Point, here: Point, damped: DampedStep) -> bool:
    """What the user has asked for, where it is less; a step that gains less than its model says proves nothing."""
    chosen = run.chosen
    largest = float(np.abs(here.sums.gradient).max(initial=0.0)) * run.problem.n_samples
    size = float(np.linalg.norm(run.scaled(here) * here.x))
    fell = before.value - here.value
    return (
        (0.0 < chosen.ftol >= fell / here.value and fell > 0.25 * damped.predicted)
        or 0.0 < chosen.xtol * size >= damped.length
        or 0.0 < chosen.gtol >= largest
    )


def _is_minimum(run: Run, sure: bool) -> bool:
    """Whether nothing is left to gain, by the whole Hessian unless JᵀJ is seen to do, and along the softest way.

    If something is, the run goes on with that Hessian, or from where f fell.
    """
    own, here, softest, parts = run.own, run.own.here, run.model().softest, rules.ASIDE
    assert here is not None
    if not sure and (_falls_by_one(run) or (here.x.size <= rules.FEW and _falls_from_zero(run))):
        return False
    bending = bending_at(run)
    if here.x.size > rules.FEW:
        if not (sure and _bends_slightly(run, bending)) and not _is_lowest_by_products(run, bending):
            return False
    elif not (sure and _bends_slightly(run, bending)):
        second = bending.whole()
        if second is None:
            return False
        whole = run.curved_model(second, _units(run, second))
        softest, parts = whole.softest, rules.ASIDE if whole.curvatures[0] > rules.HARDLY else rules.FAR_ASIDE
        if not whole.is_convex and _falls_down(run, whole.softest(), float(whole.curvatures[0])):
            return False
        left = whole.left(flat=rules.BLURRED)
        if not sure and not left <= AUTO_DECREASE * here.value and own.looks < rules.LOOKS:
            own.looks, own.misses, own.second, own.curved = own.looks + 1, 0, second, True
            own.radius = max(own.radius, rules.ASIDE[0] * run.first_radius())
            return False
        if not sure and not left <= rules.LITTLE * here.value:
            _falls_along(run, softest(), parts)
            return False
    return not _falls_along(run, softest(), parts)


def _units(run: Run, second: Matrix) -> Vector:
    """D from the Hessian's own diagonal; what that does not see counts as its row does."""
    here = run.own.here
    assert here is not None
    hessian = np.abs(here.sums.gram() + here.bend + second)
    sizes = np.maximum(np.diagonal(hessian), here.sums.columns**2)
    sizes = np.sqrt(np.where(sizes > 0.0, sizes, hessian.max(axis=1)))
    return np.where(sizes > 0.0, sizes, 1.0)


def _bends_slightly(run: Run, bending: Bending) -> bool:
    """Whether S is small beside JᵀJ: a direction that goes evenly along all that J tells apart shows how large it is.

    A full step shows that along its own direction alone.
    """
    here, model = run.own.here, run.model()
    assert here is not None
    parts = np.random.default_rng(0).uniform(0.5, 1.5, (2, here.x.size))
    even = model.evenly(np.copysign(parts[0], parts[1] - 1.0))
    bent = bending.beyond(even)
    return math.sqrt(max(-float(bent @ model.solve(bent, 0.0)), 0.0)) <= rules.SLIGHT


def _is_lowest_by_products(run: Run, bending: Bending) -> bool:
    """Whether nothing is left to gain by the whole Hessian, by conjugate gradients in units of JᵀJ; if so go there.

    Along the gradient, unless JᵀJ, which at a minimum with large residuals may be nearly singular, says so itself; and
    from a start without preference, which shows where f bends down.
    """
    here, model = run.own.here, run.model()
    assert here is not None
    scaling, little = run.scaled(here), rules.LITTLE * here.value
    damping = rules.SEEN * float(np.max((here.sums.columns / scaling) ** 2, initial=0.0)) or 1.0
    inverse = _Inverse(lambda v: model.inverse(v, damping))

    def found_from(start: Vector) -> NormedStep:
        return preconditioned_cg(
            lambda v: here.sums.product(v) + bending.beyond(v),
            inverse,
            start,
            math.inf,
            rules.PROBED,
            rules.PROBES,
            give_up=run.state.time_is_up,
        )

    if not model.left() <= little:
        gradient = here.sums.gradient
        found = found_from(gradient)
        if found.exit is Exit.NEGATIVE_CURVATURE:
            _falls_down(run, found.step, float(found.step @ found.product))
            return False
        if found.exit is Exit.ITERATION_LIMIT or not found.predicted(gradient) <= little:
            _goes_lower(run, [here.x + found.step])
            return False
    found = found_from(scaling * np.cos(np.arange(1.0, here.x.size + 1.0)))
    downwards = found.exit is Exit.NEGATIVE_CURVATURE
    return not (downwards and _falls_down(run, found.step, float(found.step @ found.product)))


class _Inverse(NamedTuple):
    """A norm of which only P⁻¹v is needed."""

    solve: Callable[[Vector], Vector]


def _falls_by_one(run: Run) -> bool:
    """Whether f falls where one unknown alone goes a part of the way that J shows it; if so go there.

    Where columns of J differ by many powers of ten, a radius may have collapsed far from any minimum.
    """
    own, here = run.own, run.own.here
    assert here is not None
    columns, gradient = here.sums.columns, here.sums.gradient
    pulls = np.divide(np.abs(gradient), columns, out=np.zeros_like(columns), where=columns > 0.0)
    most = int(pulls.argmax())
    if not pulls[most] > rules.PULLED * math.sqrt(2.0 * here.value):
        return False
    x = here.x.copy()
    x[most] -= rules.ASIDE[0] * gradient[most] / columns[most] ** 2
    if not _goes_lower(run, [x]):
        return False
    own.radius = max(own.radius, columns[most] * abs(x[most] - here.x[most]))
    return True


def _falls_from_zero(run: Run) -> bool:
    """Whether f falls along an unknown that is zero and that J does not see, so that powers of ten must be tried."""
    here = run.own.here
    assert here is not None
    unseen = np.eye(here.x.size)[(here.x == 0.0) & (here.sums.columns == 0.0)]
    sizes = [sign * 10.0**power for power in rules.POWERS for sign in (1.0, -1.0)]
    return _goes_lower(run, (here.x + size * unit for unit in unseen for size in sizes))


def _falls_down(run: Run, direction: Vector, curvature: float) -> bool:
    """Whether f falls along a direction in which the whole Hessian bends down; if so go there.

    How far is told by that curvature and by f, and not by units.
    """
    here = run.own.here
    assert here is not None
    if not curvature < 0.0:
        return False
    reach = math.sqrt(2.0 * here.value / -curvature) * direction
    return _goes_lower(run, (here.x + sign * part * reach for part in rules.DOWN for sign in (1.0, -1.0)))


def _falls_along(run: Run, direction: Vector, parts: tuple[float, ...]) -> bool:
    """Whether f falls along a direction, so far that some unknown changes by these parts; if so go there."""
    here = run.own.here
    assert here is not None
    sizes = np.where(here.x != 0.0, np.abs(here.x), float(np.abs(here.x).max(initial=0.0)) or 1.0)
    aside = direction / float(np.abs(direction / sizes).max())
    return _goes_lower(run, (here.x + sign * part * aside for part in parts for sign in (1.0, -1.0)))


def _goes_lower(run: Run, points: Iterable[Vector]) -> bool:
    """Whether f is lower at one of these points, which is the reference then."""
    own, problem, here = run.own, run.problem, run.own.here
    assert here is not None
    for x in points:
        own.passes += 1
        value, residuals = problem.value_at(x)
        if value < here.value - rules.LITTLE * here.value:
            with contextlib.suppress(NotFinite):
                own.here, own.model, own.second = run.look(x, value, residuals), None, None
                own.sine, own.misses, own.contraction = run.sine(own.here, run.model()), 0, 1.0
                run.state.x[:] = x
                run.state.value, run.state.gradient = value, own.here.sums.gradient
                return True
    return False
