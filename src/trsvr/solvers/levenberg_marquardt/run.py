"""Steps: what is known at the reference, and the trial point that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._blas import alone, one_blas_thread
from trsvr.parts.damping import DampedStep, Model, Penalty, SingularValues, Sums, damped_model, sums_of
from trsvr.parts.second_order import CurvedModel
from trsvr.problems.base import Problem
from trsvr.problems.residuals import BLOCK, Block, ResidualProblem
from trsvr.solvers.base import State
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.state import Damping, Point, Trial

if TYPE_CHECKING:
    from trsvr.solvers.levenberg_marquardt.method import LevenbergMarquardt


class Run:
    """One epoch's view of the solver, the problem and the state."""

    def __init__(self, chosen: LevenbergMarquardt, problem: Problem, state: State) -> None:
        assert isinstance(problem, ResidualProblem)
        assert isinstance(state.own, Damping)
        self.chosen, self.problem, self.state, self.own = chosen, problem, state, state.own

    # ------------------------------------------------------------------------------------------------- at a point

    def look(self, x: Vector, value: float, residuals: Vector) -> Point:
        """The Jacobian at a point."""
        own, problem = self.own, self.problem
        penalty = self._penalty_apart(x)
        rows = residuals.size + (x.size if problem.l2 > 0.0 and penalty is None else 0)
        is_small = rows * x.size <= BLOCK
        squares = None if own.all_rows else problem.sampled(x, residuals)
        if squares is None and not is_small and rows >= x.size and not own.orthogonal:
            squares = problem.squares(x, residuals, own.fine)
        if squares is not None:
            own.passes += squares.passes
            return Point(x, value, residuals, Sums.of_squares(squares.matrix, squares.gradient))
        own.passes += problem.jacobian_passes(own.fine)
        blocks: Iterable[Block] = problem.linearized(x, residuals, own.fine)
        kept = list(blocks) if is_small else None
        with_penalty = blocks if kept is None else kept
        if penalty is None:
            with_penalty = problem.penalised(x, with_penalty)
        sums = sums_of(with_penalty, rows, x.size, own.orthogonal, penalty)
        return Point(x, value, residuals, sums, kept, self._bend(residuals, kept))

    def _penalty_apart(self, x: Vector) -> Penalty | None:
        """The penalty, where unknowns outnumber residuals and rows for it would make them as many."""
        problem = self.problem
        if not problem.l2 > 0.0 or not problem.n_residuals < x.size or self.chosen.scaling is not None:
            return None
        return Penalty(problem.l2, x - problem.towards)

    def _bend(self, residuals: Vector, rows: list[Block] | None) -> Matrix | float:
        """What is to be taken from J̃ᵀJ̃ where curvatures of the loss were raised."""
        if rows is None:
            return 0.0
        terms = self.problem.terms(residuals)
        if not terms.raised.any():
            return 0.0
        part = np.divide(terms.raised, terms.curvatures, out=np.zeros_like(terms.raised), where=terms.curvatures > 0.0)
        with one_blas_thread():
            return -np.sum([b.jacobian.T @ (part[b.rows, None] * b.jacobian) for b in rows], axis=0)

    def model(self) -> Model:
        """The damped model at the reference."""
        own = self.own
        assert own.here is not None
        if own.model is None:
            own.model = damped_model(own.here.sums, self.scaled(own.here))
            if isinstance(own.model, SingularValues):  # of more unknowns as soon as a step needs it
                self.sharpened()
        return own.model

    def sharpened(self) -> bool:
        """Whether squares have lost digits; then the triangular factor is taken from here on."""
        own = self.own
        assert own.here is not None
        assert own.model is not None
        if not (own.here.sums.squared and own.model.ill_conditioned):
            return False
        own.orthogonal = own.all_rows = True
        own.here = self.look(own.here.x, own.here.value, own.here.residuals)
        own.model = damped_model(own.here.sums, self.scaled(own.here))
        return True

    def curved_model(self, second: Matrix, scaling: Vector | None = None) -> CurvedModel:
        """The same with S."""
        here = self.own.here
        assert here is not None
        scaling = self.scaled(here) if scaling is None else scaling
        return CurvedModel(here.sums.gram() + here.bend + second, here.sums.gradient, scaling)

    def scaled(self, point: Point) -> Vector:
        """D: of columns that have become shorter it forgets slowly."""
        own, columns = self.own, point.sums.columns
        if self.chosen.scaling is not None:
            return np.array(self.chosen.scaling, dtype=np.float64)
        if own.scaling is None:
            own.scaling = self.remembered(columns, np.ones_like(columns))
            alike = columns.size >= rules.MANY and own.scaling.max() <= rules.ALIKE * own.scaling.min()
            # Unknowns that one penalty draws to zero have the same units, too.
            own.same_units = alike or not self.problem.scales_columns or point.sums.penalty is not None
        return np.ones_like(columns) if own.same_units else own.scaling

    def remembered(self, columns: Vector, before: Vector) -> Vector:
        """D with these columns: those that have become shorter count less and less, but never for nothing."""
        own = self.own
        own.longest = columns if own.longest is None else np.maximum(own.longest, columns)
        seen = np.where(columns > 0.0, columns, before)
        return np.maximum(seen, rules.FAINT * own.longest)

    def begin(self) -> Point:
        """The reference, computed again after a checkpoint; the first radius."""
        own, state = self.own, self.state
        if own.here is None:
            own.here = self.look(state.x.copy(), *self.problem.value_at(state.x))
            own.last = None if own.began is None else self.look(own.began, *self.problem.value_at(own.began))
            own.passes = 0.0
        model = self.model()
        if math.isnan(own.radius):
            own.radius, own.first_value = self.first_radius(), own.here.value
            own.sine = self.sine(own.here, model)
        return own.here

    def first_radius(self) -> float:
        """Δ where nothing else is known."""
        here = self.own.here
        assert here is not None
        size = float(np.linalg.norm(self.scaled(here) * here.x)) or 1.0
        return size * (self.chosen.first_radius or (rules.FIRST_OF_SAME_UNITS if self.own.same_units else rules.FIRST))

    def sine(self, point: Point, model: Model) -> float:
        """Of the angle between r and the space that J can reach."""
        return math.sqrt(min(model.left() / point.value, 1.0)) if point.value > 0.0 else 0.0

    # ------------------------------------------------------------------------------------------------------- steps

    def propose(self) -> Trial:
        """The damped step, corrected for the path's curvature; or one with S, where that has shown what it is worth."""
        own, model = self.own, self.model()
        if own.curved and own.second is not None:
            return Trial(self.curved_model(own.second).step(own.radius), True)
        damped = model.step(own.radius)
        if damped.damping <= model.faint and self.sharpened():
            model = self.model()
            damped = model.step(own.radius)
        if self.chosen.acceleration:
            damped = self._accelerated(model, damped)
        return Trial(damped, False)

    def _accelerated(self, model: Model, damped: DampedStep) -> DampedStep:
        """Half of the second derivative along the path is added, if it is not too large (Transtrum & Sethna 2012)."""
        own = self.own
        assert own.here is not None
        pull = self._curvature(damped.step)
        if pull is None:
            return damped
        bend = model.solve(pull, damped.damping)
        if not 2.0 * float(np.linalg.norm(self.scaled(own.here) * bend)) <= rules.CURVED * damped.length:
            return damped
        return damped._replace(step=damped.step + 0.5 * bend)

    def _curvature(self, step: Vector) -> Vector | None:
        """J̃ᵀr̃″(p, p), as far as the last step s shows it; None where p leads elsewhere.

        J has changed by r″(s, ·). With p = cs + e that is r″(p, p) = c r″(s, 2p − cs) + r″(e, e), of which only the
        last, small term is missing.
        """
        here, last = self.own.here, self.own.last
        assert here is not None
        if here.rows is None or last is None or last.rows is None:
            return None
        scaling, before = self.scaled(here), here.x - last.x
        old, new = scaling * before, scaling * step
        size = float(old @ old)
        along = float(old @ new) / size if size > 0.0 else 0.0
        if not float(np.linalg.norm(new - along * old)) <= rules.ASTRAY * float(np.linalg.norm(new)):
            return None
        twice = 2.0 * step - along * before
        now, then = (np.sqrt(self.problem.terms(point.residuals).curvatures) for point in (here, last))
        weights = along * np.divide(now, then, out=np.zeros_like(now), where=then > 0.0)
        pull = np.zeros_like(here.x)
        for block, earlier in zip(here.rows, last.rows, strict=True):
            with alone(block.jacobian):
                changed = block.jacobian @ (along * twice) - weights[block.rows] * (earlier.jacobian @ twice)
                # Of a row that did not count before no change is known.
                pull += block.jacobian.T @ np.where(then[block.rows] > 0.0, changed, 0.0)
        return pull
