"""Damped Gauss–Newton steps on a sum of losses of residuals (Levenberg and Marquardt, as a trust region: Moré 1978).

At x, with residuals r, their Jacobian J and D the lengths of J's columns:

    p = argmin ½‖r + Jp‖²  over  ‖Dp‖ ≤ Δ                              `trsvr.parts.damping`
    where Δ binds, p ← p + ½a with (JᵀJ + λD²)a = −Jᵀ r″(p, p)         one more pass: the curvature of the path
    ρ = (f(x) − f(x + p)) / predicted decrease;   Δ follows ρ;   x ← x + p unless f rose

An epoch is one trial point. Its residuals are one pass, the Jacobian at a point that is kept is another; a refused step
needs none. A point where a residual is not finite is refused.

*Endings.* The sine of the angle between r and the space that J can reach, ‖P_J r‖/‖r‖, is zero at a stationary point
and has no units (MINPACK looks at the columns one by one). The run has converged where it is below 1e-10, or where the
step is below the rounding of x, and where f does not fall along the direction in which J is flattest. Near the end the
values of f no longer tell points apart: the sine judges them.

*Large residuals.* JᵀJ is the Hessian without S = Σ rᵢ∇²rᵢ. Where steps that nothing bounds leave a constant part of the
sine, S is computed once, from differences of Jᵀr, if that costs less than what is left of such steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import ROOT_EPSILON, Matrix, Vector
from trsvr.parts.damping import DampedStep, Model, Sums, damped_model, sums_of
from trsvr.parts.gradients import NoMemory
from trsvr.problems.base import Problem
from trsvr.problems.plain import NotFinite
from trsvr.problems.residuals import BLOCK, Block, ResidualProblem
from trsvr.solvers.base import EpochReport, EpochRows, Progress, Solver, State, flat

_EPSILON = float(np.finfo(float).eps)
_FOURTH_ROOT = _EPSILON**0.25
#: of the snapshots in checkpoints
_VERSION = 1

# The numbers that were tuned, on NIST's 54 runs and the problems of benchmarks/nonlinear.py.
_CONVERGED = 1e-10  # the sine
_NEAR = 1e-8  # where a step is to gain a smaller part of f, the sine judges it
_KEPT = 1e-4  # least ratio of a step that is kept
_SHRINK_MORE, _SHRINK, _GROW = 0.25, 0.5, 2.0  # of Δ after a rise, below a ratio of ¼, above ¾
_FORGET = 0.9  # columns that have become shorter count less by this factor a step
_FIRST, _FIRST_WITHOUT_UNITS = 3.0, 0.3  # Δ at the beginning, in parts of ‖Dx‖
_PROBE = 0.1  # part of the step at which the path's curvature is measured
_CURVED = 0.75  # 2‖a‖/‖p‖ up to which it is believed
_STRAIGHT = 1e-3  # below which it is not worth a pass: the next steps do without
_REST = 4  # so many of them
_FINE = 1e-5  # the sine from which on differences are fine
_SLOW = 0.1  # part of the sine that a full step leaves where S is worth thinking of
_LATE = 0.1  # not before the sine is below this: S is of one place
_POSITIVE = 0.05  # least curvature, in units of JᵀJ, of a Newton step
_ASIDE = 1e-3  # how far, in parts of ‖Dx‖, the flattest direction is looked along
_MISSES = 2  # steps that the sine refuses before this is the floor


class Point(NamedTuple):
    """A point, with f, the residuals, the gradient and what is kept of J there."""

    x: Vector
    value: float
    residuals: Vector
    sums: Sums
    rows: list[Block] | None  # of J̃, where they are few


@dataclass
class Damping:
    """What a run remembers; ``here`` is computed anew from x where it continues a checkpoint."""

    radius: float = math.nan
    scaling: Vector | None = None
    second: Matrix | None = None  # S
    sine: float = math.inf
    contraction: float = 0.0  # part of the sine that the last full step left
    full_steps: int = 0  # one after the other that nothing bounded
    rest: int = 0  # steps until the path's curvature is looked at again
    fine: bool = False  # whether differences are the finer ones
    orthogonal: bool = False  # whether squares have too few digits
    tried_second: bool = False
    misses: int = 0
    passes: int = 0  # not counted yet
    here: Point | None = None
    there: Point | None = None
    model: Model | None = None

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        kept = {name: entry for name, entry in vars(self).items() if name not in ("here", "there", "model")}
        return flat({"version": _VERSION, **kept})

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        if snapshot.get("version") != _VERSION:
            raise ValueError(f"its snapshot of damped steps has version {snapshot.get('version')}, not {_VERSION}")
        for name in vars(self):
            if name not in ("here", "there", "model"):
                setattr(self, name, snapshot.get(name))


class Trial(NamedTuple):
    """A step from the reference to a trial point."""

    damped: DampedStep
    by_newton: bool


@dataclass(frozen=True)
class LevenbergMarquardt(Solver):
    """Damped Gauss–Newton steps; `trsvr.TRSVR` runs this on `trsvr.problems.LeastSquares` by itself.

    Parameters
    ----------
    first_radius : float, optional
        Δ at the beginning, in parts of ‖Dx‖; by default 3, and 0.3 for models whose unknowns have no units.
    scaling : array-like or None
        D, where it is not to be the lengths of the columns of J: one number for every unknown.
    acceleration : bool
        Whether the path's curvature may be looked at.
    second_order : bool
        Whether S may be computed.
    ftol, xtol, gtol : float
        Looser ends, off by default: a step that lowers f by less than this part, one that is shorter than this part of
        x, ‖∇f‖∞ of the half sum of squares.
    """

    first_radius: float | None = None
    scaling: tuple[float, ...] | None = None
    acceleration: bool = True
    second_order: bool = True
    ftol: float = 0.0
    xtol: float = 0.0
    gtol: float = 0.0

    judges = True

    def __post_init__(self) -> None:
        if self.first_radius is not None:
            _check.positive("first_radius", self.first_radius)
        for name in ("ftol", "xtol", "gtol"):
            _check.positive(name, vars(self)[name], zero=True)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if the problem has no residuals."""
        if not isinstance(problem, ResidualProblem):
            raise ValueError(f"LevenbergMarquardt needs a trsvr.problems.LeastSquares, got {type(problem).__name__}")
        if self.scaling is not None and len(self.scaling) != problem.n_parameters:
            raise ValueError(f"scaling must have {problem.n_parameters} numbers, got {len(self.scaling)}")

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first step."""
        return State(x=x, memory=NoMemory(), own=Damping(), progress=Progress(math.inf, may_be_saddle=True))

    # ------------------------------------------------------------------------------------------- a trial point

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """Propose a step; `judge` sees what it was worth."""
        run = _Run(self, problem, state)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
            own, here = run.own, run.begin()
            trial = run.propose()
        state.x += trial.damped.step
        passes, own.passes = own.passes, 0
        return EpochReport(
            steps=1,
            gradient_evaluations=passes * problem.n_samples,
            batch_size=problem.n_samples,
            inner_steps=1,
            alpha=trial.damped.damping,
            radius=own.radius,
            boundary_fraction=float(trial.damped.damping > 0.0),
            curvature_rows=problem.n_samples,
            outcome=(here, trial),
        )

    def evaluate(self, problem: Problem, state: State, coming: Any) -> tuple[float, Vector]:
        """The value at x, and the gradient where x will be kept; elsewhere that of the reference."""
        run = _Run(self, problem, state)
        own = run.own
        value, residuals = run.problem.value_at(state.x)
        if own.here is None:
            if not math.isfinite(value):
                raise NotFinite("residuals are not finite")
            own.here = run.look(state.x.copy(), value, residuals)
            return value, own.here.sums.gradient
        own.there = None
        if math.isfinite(value):
            own.there = Point(state.x.copy(), value, residuals, own.here.sums, None)
        return value, own.here.sums.gradient

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the trial point or go back, and choose the next radius."""
        run = _Run(self, problem, state)
        own, (here, trial) = run.own, report.outcome
        kept = run.judge(here, trial)
        if not kept:
            report.rejected = 1
            own.there = None
        now = own.here
        assert now is not None
        state.x[:] = now.x
        state.value, state.gradient = now.value, now.sums.gradient
        ends = run.ends(here, trial, kept)
        report.gradient_evaluations += own.passes * problem.n_samples
        own.passes = 0
        left = run.model().left()
        known = ends or state.goal.decrease > 0.0
        return Progress(min(left, 0.0 if ends else math.inf) if known else math.inf, own.misses > _MISSES, True)


class _Run:
    """One epoch's view of the solver, the problem and the state."""

    def __init__(self, chosen: LevenbergMarquardt, problem: Problem, state: State) -> None:
        assert isinstance(problem, ResidualProblem)
        assert isinstance(state.own, Damping)
        self.chosen, self.problem, self.state, self.own = chosen, problem, state, state.own

    # ------------------------------------------------------------------------------------------------- at a point

    def look(self, x: Vector, value: float, residuals: Vector) -> Point:
        """The Jacobian at a point."""
        own, problem = self.own, self.problem
        own.passes += problem.jacobian_passes(own.fine)
        rows = residuals.size + (x.size if problem.l2 > 0.0 else 0)
        blocks: Iterable[Block] = problem.linearized(x, residuals, own.fine)
        kept = list(blocks) if rows * x.size <= BLOCK else None
        sums = sums_of(blocks if kept is None else kept, rows, x.size, own.orthogonal)
        return Point(x, value, residuals, sums, kept)

    def model(self) -> Model:
        """The damped model at the reference."""
        own = self.own
        assert own.here is not None
        if own.model is None:
            own.model = damped_model(own.here.sums, self._scaled(own.here))
            if own.here.sums.squared and own.model.ill_conditioned and not own.orthogonal:
                own.orthogonal = True
                own.here = self.look(own.here.x, own.here.value, own.here.residuals)
                own.model = damped_model(own.here.sums, self._scaled(own.here))
        return own.model

    def _scaled(self, point: Point) -> Vector:
        """D: of columns that have become shorter it forgets slowly."""
        own, columns = self.own, point.sums.columns
        if self.chosen.scaling is not None:
            return np.array(self.chosen.scaling, dtype=np.float64)
        if not self.problem.scales_columns:
            return np.ones_like(columns)
        if own.scaling is None:
            own.scaling = np.where(columns > 0.0, columns, 1.0)
        return own.scaling

    def begin(self) -> Point:
        """The reference, computed again after a checkpoint; the first radius."""
        own, state = self.own, self.state
        if own.here is None:
            own.here = self.look(state.x.copy(), *self.problem.value_at(state.x))
            own.passes = 0
        model = self.model()
        if math.isnan(own.radius):
            size = float(np.linalg.norm(self._scaled(own.here) * own.here.x))
            own.radius = self._first_radius() * (size or 1.0)
            own.sine = self._sine(own.here, model)
        return own.here

    def _first_radius(self) -> float:
        return self.chosen.first_radius or (_FIRST if self.problem.scales_columns else _FIRST_WITHOUT_UNITS)

    def _sine(self, point: Point, model: Model) -> float:
        """Of the angle between r and the space that J can reach."""
        return math.sqrt(min(model.left() / point.value, 1.0)) if point.value > 0.0 else 0.0

    # ------------------------------------------------------------------------------------------------------- steps

    def propose(self) -> Trial:
        """The damped step, corrected for the path's curvature; or Newton's where S is known."""
        own, model = self.own, self.model()
        damped = model.step(own.radius)
        if damped.damping == 0.0:
            newton = self._newton(model)
            if newton is not None and newton.length <= own.radius:
                return Trial(newton, True)
        elif self.chosen.acceleration:
            return Trial(self._accelerated(model, damped), False)
        return Trial(damped, False)

    def _accelerated(self, model: Model, damped: DampedStep) -> DampedStep:
        """Half of the second derivative along the path is added, if it is not too large (Transtrum & Sethna 2012)."""
        own, problem, here = self.own, self.problem, self.own.here
        assert here is not None
        if here.rows is None or own.rest > 0:
            own.rest -= own.rest > 0
            return damped
        own.passes += 1
        aside = problem.residuals_at(here.x + _PROBE * damped.step)
        if not np.isfinite(aside).all():
            return damped
        pull = np.zeros_like(here.x)
        roots = np.sqrt(problem.terms(here.residuals).curvatures / problem.n_samples)
        for block in here.rows:
            if block.rows.stop:  # not the penalty, which is no curve
                change = (aside[block.rows] - here.residuals[block.rows]) * roots[block.rows] / _PROBE
                pull += block.jacobian.T @ (2.0 / _PROBE * (change - block.jacobian @ damped.step))
        bend = model.solve(pull, damped.damping)
        part = 2.0 * float(np.linalg.norm(self._scaled(here) * bend)) / damped.length
        if not part <= _CURVED:
            return damped
        if part < _STRAIGHT:
            own.rest = _REST
        return damped._replace(step=damped.step + 0.5 * bend)

    def _newton(self, model: Model) -> DampedStep | None:
        """Newton's step, where S is known or worth knowing."""
        own = self.own
        if own.second is None and self._second_order_pays(model):
            own.second, own.tried_second = self._second(), True
        if own.second is None:
            return None
        found = model.with_second_order(own.second)
        return found[1] if found is not None and found[0] > _POSITIVE else None

    def _second_order_pays(self, model: Model) -> bool:
        """Whether S costs less than the steps without it that are left."""
        own, d = self.own, self.problem.n_parameters
        if not self.chosen.second_order or own.tried_second or own.full_steps < 3 or own.sine > _LATE:
            return False
        if not model.full_rank:
            return False
        if not _SLOW < own.contraction < 1.0 or own.sine <= _CONVERGED:
            return own.contraction >= 1.0
        steps = math.log(_CONVERGED / own.sine) / math.log(own.contraction)
        return (1.0 + self.problem.jacobian_passes(own.fine)) * steps > d * self.problem.jacobian_passes(own.fine)

    def _second(self) -> Matrix | None:
        """S = Σ ℓ′(rᵢ)∇²rᵢ/N, from differences of J(x)ᵀℓ′(r) with r held fast; half of its digits are enough."""
        own, problem, here = self.own, self.problem, self.own.here
        assert here is not None
        d, slopes = here.x.size, problem.terms(here.residuals).slopes / problem.n_samples
        sizes = np.where(here.x != 0.0, np.abs(here.x), 1.0)
        by_differences = problem.jacobian_passes(own.fine) > 1
        step = _FOURTH_ROOT if by_differences else ROOT_EPSILON
        pull = here.sums.gradient - problem.l2 * (here.x - problem.towards)
        second = np.empty((d, d))
        for j in range(d):
            x = here.x.copy()
            x[j] += step * sizes[j]
            residuals = problem.residuals_at(x) if by_differences else here.residuals
            pulls = [rows.T @ slopes[place] for place, rows in problem.jacobian_rows(x, residuals, own.fine)]
            second[j] = (np.sum(pulls, axis=0) - pull) / (x[j] - here.x[j])
        own.passes += d * (problem.jacobian_passes(own.fine) + by_differences)
        return 0.5 * (second + second.T) if np.isfinite(second).all() else None

    # --------------------------------------------------------------------------------------------------- judgement

    def judge(self, here: Point, trial: Trial) -> bool:
        """Whether the trial point is kept; it is the reference then."""
        own, there, damped = self.own, self.own.there, trial.damped
        own.there = None
        fell = here.value - (there.value if there is not None else math.inf)
        ratio = fell / damped.predicted if damped.predicted > 0.0 else -math.inf
        near = damped.predicted <= _NEAR * here.value and abs(fell) <= _NEAR * here.value
        kept = there is not None and (near or ratio > _KEPT)
        if kept and there is not None:
            try:
                kept = self._move(there, near, trial)
            except NotFinite:
                kept, near, ratio = False, False, -math.inf
        if damped.length == 0.0:  # a stationary point: only looking around can tell more
            own.misses += 1
        elif near:
            own.misses = 0 if kept else own.misses + 1
            if not kept:
                own.radius = _SHRINK_MORE * damped.length
                own.second = None  # it was of another place
        elif ratio < 0.25:
            own.radius = (_SHRINK if ratio > 0.0 else _SHRINK_MORE) * damped.length
            own.rest = 0
        elif ratio > 0.75 or damped.damping == 0.0:
            own.radius = max(own.radius, _GROW * damped.length)
        return kept

    def _move(self, there: Point, near: bool, trial: Trial) -> bool:
        """Look at the Jacobian of the trial point; where values are near each other the smaller sine is kept."""
        own, before = self.own, (self.own.here, self.own.model, self.own.scaling)
        there = self.look(there.x, there.value, there.residuals)
        if own.scaling is not None:
            columns = np.where(there.sums.columns > 0.0, there.sums.columns, own.scaling)
            own.scaling = np.maximum(_FORGET * own.scaling, columns)
        own.here, own.model = there, None
        sine = self._sine(there, self.model())
        if near and not sine < own.sine:
            own.here, own.model, own.scaling = before
            return False
        full = trial.damped.damping == 0.0
        own.full_steps = own.full_steps + 1 if full else 0
        own.contraction = sine / own.sine if full and own.sine > 0.0 else 0.0
        own.sine = sine
        if trial.by_newton and own.contraction > 0.5:
            own.second, own.tried_second, own.full_steps = None, False, 0  # S was of another place
        return True

    def ends(self, before: Point, trial: Trial, kept: bool) -> bool:
        """Whether the reference is a minimum, as far as can be told."""
        own, here, damped = self.own, self.own.here, trial.damped
        assert here is not None
        size = float(np.linalg.norm(self._scaled(here) * here.x))
        if here.value == 0.0 or (kept and self._loose_end(before, here, damped, size)):
            return True
        if not (own.sine <= _CONVERGED or damped.length <= 4.0 * _EPSILON * size or own.misses > _MISSES):
            if own.sine <= _FINE and not own.fine:
                own.fine, own.sine = True, math.inf  # which is not to be compared with sines of finer differences
            return False
        if not own.fine and self.problem.jacobian_passes(True) != self.problem.jacobian_passes(False):
            own.fine, own.misses, own.radius = True, 0, self._first_radius() * size
            own.here, own.model = self.look(here.x, here.value, here.residuals), None
            own.sine = self._sine(own.here, self.model())
            return own.sine <= _CONVERGED and self._is_minimum(size)
        return self._is_minimum(size) and own.misses <= _MISSES

    def _loose_end(self, before: Point, here: Point, damped: DampedStep, size: float) -> bool:
        """What the user has asked for, where it is less."""
        chosen = self.chosen
        largest = float(np.abs(here.sums.gradient).max(initial=0.0)) * self.problem.n_samples
        return (
            0.0 < chosen.ftol >= (before.value - here.value) / here.value
            or 0.0 < chosen.xtol * size >= damped.length
            or 0.0 < chosen.gtol >= largest
        )

    def _is_minimum(self, size: float) -> bool:
        """Whether f rises on both sides along the flattest direction; if not, go where it fell."""
        own, problem, here = self.own, self.problem, self.own.here
        assert here is not None
        aside = _ASIDE * (size or 1.0) * self.model().softest()
        for x in (here.x + aside, here.x - aside):
            own.passes += 1
            value, residuals = problem.value_at(x)
            if value < here.value - 1e-8 * here.value:
                own.here, own.model, own.second = self.look(x, value, residuals), None, None
                own.sine, own.misses, own.full_steps = self._sine(own.here, self.model()), 0, 0
                self.state.x[:] = x
                self.state.value, self.state.gradient = value, own.here.sums.gradient
                return False
        return True
