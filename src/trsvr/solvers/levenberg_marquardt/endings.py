"""Whether a run is at a minimum, as far as can be told."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable

import numpy as np

from trsvr._arrays import ROOT_EPSILON, Matrix, Vector
from trsvr.parts.damping import DampedStep
from trsvr.problems.plain import NotFinite
from trsvr.solvers.base import AUTO_DECREASE
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.anew import leads_lower
from trsvr.solvers.levenberg_marquardt.run import Run
from trsvr.solvers.levenberg_marquardt.state import Point, Trial

_EPSILON = float(np.finfo(float).eps)
_FOURTH_ROOT = _EPSILON**0.25


def ends(run: Run, before: Point, trial: Trial, kept: bool) -> bool:
    """Whether the reference is a minimum, as far as can be told."""
    own, here, damped = run.own, run.own.here, trial.damped
    assert here is not None
    if here.value <= max(here.rounding(), rules.NOTHING * own.first_value):
        return True
    if kept and _loose_end(run, before, here, damped):
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
    proven = own.sine <= rules.CONVERGED and own.contraction <= rules.PROVEN and run.model().full_rank
    lowest = _is_minimum(run, proven)
    doubtful = not proven and (lowest or own.misses > rules.MISSES) and own.begun_anew < rules.ANEW_MOST
    return not (doubtful and leads_lower(run)) and lowest


def _loose_end(run: Run, before: Point, here: Point, damped: DampedStep) -> bool:
    """What the user has asked for, where it is less."""
    chosen = run.chosen
    largest = float(np.abs(here.sums.gradient).max(initial=0.0)) * run.problem.n_samples
    size = float(np.linalg.norm(run.scaled(here) * here.x))
    return (
        0.0 < chosen.ftol >= (before.value - here.value) / here.value
        or 0.0 < chosen.xtol * size >= damped.length
        or 0.0 < chosen.gtol >= largest
    )


def _is_minimum(run: Run, proven: bool) -> bool:
    """Whether nothing is left to gain, by the whole Hessian unless JᵀJ is proven to do, and along the softest way.

    If something is, the run goes on with that Hessian, or from where f fell.
    """
    own, here, softest, parts = run.own, run.own.here, run.model().softest, rules.ASIDE
    assert here is not None
    if not proven and _falls_by_one(run):
        return False
    if not proven and here.x.size <= rules.FEW:
        second = _second(run)
        if second is None:
            return False
        columns = here.sums.columns
        whole = run.curved_model(second, np.where(columns > 0.0, columns, 1.0))
        softest, parts = whole.softest, rules.ASIDE if whole.curvatures[0] > rules.HARDLY else rules.FAR_ASIDE
        if not whole.left() <= AUTO_DECREASE * here.value and own.looks < rules.LOOKS:
            own.looks, own.misses, own.second, own.curved = own.looks + 1, 0, second, True
            own.radius = max(own.radius, rules.ASIDE[0] * run.first_radius())
            return False
        if not whole.left() <= rules.LITTLE * here.value:
            _falls_along(run, softest(), parts)
            return False
    return not _falls_along(run, softest(), parts)


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


def _second(run: Run) -> Matrix | None:
    """S itself, from differences of J(x)ᵀℓ′(r) with r held fast; half of its digits are enough."""
    own, problem, here = run.own, run.problem, run.own.here
    assert here is not None
    d, slopes = here.x.size, problem.terms(here.residuals).slopes / problem.n_samples
    # Of an unknown that is nearly zero its own size says nothing: how far it goes until residuals feel it does.
    columns = here.sums.columns
    felt = np.divide(math.sqrt(2.0 * here.value), columns, out=np.ones(d), where=columns > 0.0)
    sizes = np.maximum(np.abs(here.x), rules.FELT * felt)
    by_differences = problem.jacobian_passes(False) > 1
    step = _FOURTH_ROOT if by_differences else ROOT_EPSILON
    pull = here.sums.gradient - problem.l2 * (here.x - problem.towards)
    second, looked = np.empty((d, d)), 0

    def row(j: int, size: float) -> Vector:
        x = here.x.copy()
        x[j] += step * size
        residuals = problem.residuals_at(x) if by_differences else here.residuals
        pulls = [rows.T @ slopes[place] for place, rows in problem.jacobian_rows(x, residuals, False)]
        return np.asarray((np.sum(pulls, axis=0) - pull) / (x[j] - here.x[j]))

    for j, own_size in enumerate(np.abs(here.x)):
        second[j], looked = row(j, sizes[j]), looked + 1
        if abs(second[j, j]) > rules.BENT * columns[j] ** 2 and 0.0 < own_size < sizes[j]:
            second[j], looked = row(j, own_size), looked + 1  # so far that J is another one there
    own.passes += looked * (problem.jacobian_passes(False) + by_differences)
    return 0.5 * (second + second.T) if np.isfinite(second).all() else None
