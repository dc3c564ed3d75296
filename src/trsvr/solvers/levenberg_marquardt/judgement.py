"""What a trial point was worth: whether it is kept, the next radius, and what the step has shown of S."""

from __future__ import annotations

import math

import numpy as np

from trsvr._blas import one_blas_thread
from trsvr.parts.second_order import updated
from trsvr.problems.plain import NotFinite
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.run import Run
from trsvr.solvers.levenberg_marquardt.state import Point, Trial


def judge(run: Run, here: Point, trial: Trial) -> bool:
    """Whether the trial point is kept; it is the reference then."""
    own, there, damped = run.own, run.own.there, trial.damped
    own.there = None
    fell = here.value - (there.value if there is not None else math.inf)
    ratio = fell / damped.predicted if damped.predicted > 0.0 else -math.inf
    # f itself is not known better: residuals that rounding makes change it by 2√(f · theirs).
    blur = max(rules.NEAR * here.value, 2.0 * math.sqrt(here.value * here.rounding()))
    near = damped.predicted <= blur and abs(fell) <= blur
    kept = there is not None and (near or ratio > rules.KEPT)
    if kept and there is not None:
        try:
            kept = _move(run, there, near, trial)
        except NotFinite:
            kept, near, ratio = False, False, -math.inf
    if damped.length == 0.0:  # a stationary point: only looking around can tell more
        own.misses += 1
    elif near:
        own.misses = 0 if kept else own.misses + 1
        if not kept:
            own.radius = rules.SHRINK * damped.length
    elif not kept and math.isfinite(fell) and _other_model_knew(run, here, trial, fell):
        own.curved, own.switched = not own.curved, True
    elif ratio < 0.25:
        own.radius = rules.SHRINK * damped.length
    elif own.held > 0 and damped.damping > 0.0:
        own.held -= 1
    elif ratio > 0.75 or damped.damping == 0.0:
        own.radius = max(own.radius, rules.GROW * damped.length)
    if not kept:
        own.held = rules.HOLD
    return kept


def _other_model_knew(run: Run, here: Point, trial: Trial, fell: float) -> bool:
    """Whether f's rise was no surprise to the model that did not make the step."""
    own, step = run.own, trial.damped.step
    if own.second is None or own.switched or not _may_curve(run):
        return False
    plain = -float(here.sums.gradient @ step) - 0.5 * float(step @ here.sums.product(step))
    curved = plain - 0.5 * float(step @ (own.second + here.bend) @ step)
    mine, other = (curved, plain) if trial.curved else (plain, curved)
    return other < 0.25 * mine and abs(fell - other) < abs(fell - mine)


def _may_curve(run: Run) -> bool:
    return run.problem.n_parameters <= rules.LEARNT or run.own.sine <= rules.LATE


def _move(run: Run, there: Point, near: bool, trial: Trial) -> bool:
    """Look at the Jacobian of the trial point; where values are near each other the smaller sine is kept."""
    own, before = run.own, (run.own.here, run.own.model, run.own.scaling)
    here = own.here
    assert here is not None
    whole = run.curved_model(own.second) if near and trial.curved and own.second is not None else None
    there = run.look(there.x, there.value, there.residuals)
    if own.scaling is not None:
        own.scaling = np.maximum(rules.FORGET * own.scaling, run.remembered(there.sums.columns, own.scaling))
    own.here, own.model = there, None
    sine = run.sine(there, run.model())
    nearer = sine < own.sine if whole is None else whole.left(there.sums.gradient) < whole.left()
    if near and not nearer:
        own.here, own.model, own.scaling = before
        return False
    full = trial.damped.damping == 0.0 and not trial.curved
    own.contraction = sine / own.sine if full and own.sine > 0.0 else 1.0
    own.all_rows = own.all_rows or (full and own.contraction > rules.PROVEN and own.sine <= rules.CLOSE)
    own.sine = sine
    if here.rows is not None:
        own.last, own.began = here, here.x
    _learn(run, here, there)
    return True


def _learn(run: Run, here: Point, there: Point) -> None:
    """S from a step, and whether the model with it would have predicted the gradient better."""
    own, problem = run.own, run.problem
    if not run.chosen.second_order or here.rows is None or there.x.size > 2 * rules.FEW:
        return
    step, change = there.x - here.x, there.sums.gradient - here.sums.gradient
    if own.second is None:
        own.second = np.zeros((step.size, step.size))
    scaling = run.scaled(there)
    wrong = change - here.sums.product(step)
    missed = (float(np.linalg.norm(w / scaling)) for w in (wrong, wrong - (own.second + here.bend) @ step))
    plain, curved = missed
    own.curved, own.switched = curved < rules.BETTER * plain and _may_curve(run), False
    terms, before = problem.terms(there.residuals), problem.terms(here.residuals)
    roots = np.sqrt(before.curvatures * problem.n_samples)
    slopes = np.divide(terms.slopes, roots, out=np.zeros_like(roots), where=roots > 0.0)
    new = there.sums.gradient - problem.l2 * (there.x - problem.towards)
    with one_blas_thread():
        old = np.sum([b.jacobian.T @ slopes[b.rows] for b in here.rows], axis=0)
        entered = roots == 0.0  # rows of which the old J̃ knows nothing
        if entered.any() and there.rows is not None:
            new = new - np.sum([b.jacobian.T @ (entered[b.rows] * b.residuals) for b in there.rows], axis=0)
    own.second = updated(own.second, step, new - old, change)
