"""A trust region whose norm is remembered curvature: for sums of which only gradients and products are known.

At x, with f and the full gradient g, P agrees with the Hessian along the last steps and the directions of earlier
conjugate gradients (limited-memory BFGS). An epoch is one step:

    p = −min(α, 1) P⁻¹g                                    no product: so are up to sixty steps in a row
    p ≈ argmin gᵀp + ½ pᵀHp  over  ‖p‖_P ≤ α‖g‖_{P⁻¹}      else: conjugate gradients in P, and H's own products
    x ← x + p if f fell;  α follows the ratio of actual to predicted decrease

The first step needs one product: what is learnt at the start is soon out of date. A refused step without products is
tried again along the same line, where values and slopes at both ends have f lowest; the next one is a full one again.

An estimate in a norm without units proves nothing. So where a run would end the Hessian itself is asked
(`second_look`): what it finds is the next step, and a saddle point is left along negative curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from trsvr._arrays import Vector
from trsvr._vectors import all_finite
from trsvr.parts.acceptance import Point, gained, gained_nothing, is_better, is_rounding
from trsvr.parts.exactness import FoundStep, StepRules, next_tolerance
from trsvr.parts.gradients import NoMemory
from trsvr.parts.negative_curvature import Escape
from trsvr.parts.norms import DiagonalNorm
from trsvr.parts.pairs import Pairs
from trsvr.parts.second_look import FEW, second_look
from trsvr.parts.steps import conjugate_gradients, newton_step, shorter_part
from trsvr.problems.base import Problem, hessian_at
from trsvr.problems.steps import Exit, Norm, StepRequest, StepTaken
from trsvr.solvers.base import (
    AUTO_DECREASE,
    EpochReport,
    EpochRows,
    Progress,
    Solver,
    State,
    flat,
    refill,
    refuse_other_version,
)

# Of the snapshots in checkpoints.
_VERSION = 5


@dataclass(frozen=True)
class RememberedRules(StepRules):
    """The tuned numbers."""

    #: steps without products, one after the other, before one with them
    free_steps: int = 60
    #: a refused step counts as so many of them: what is remembered is wrong here
    refused_counts: int = 20
    #: none are made with so few unknowns: conjugate gradients cost no more than learning from steps would
    few_unknowns: int = 10
    #: pairs that are kept; and so many where every step is on the Hessian itself
    most_pairs: int = 50
    fewer_pairs: int = 20
    #: a floor that the Hessian denies is left so often; if no step leads away from it then, it is one
    doubts: int = 2
    #: the Hessian denies it where it sees more than this part of |f|: rounding alone does not leave so much
    doubtful: float = 1e-8
    #: the radius shrinks below the first ratio of actual to predicted decrease and grows above the second
    poor_ratio: float = 0.25
    good_ratio: float = 0.75
    #: f is quadratic where the Hessian predicts a decrease to this part: its products are worth more than steps there
    quadratic: float = 1e-2
    #: a run may end where this part of |f| is expected: the loop's own rule
    little: float = AUTO_DECREASE


@dataclass
class Remembered:
    """What is carried from one step to the next."""

    alpha: float  # the radius over ‖g‖_{P⁻¹}
    cg_tolerance: float
    free: int = 0  # steps since the last one with products
    doubted: int = 0  # how often the Hessian has denied that this point is a floor
    expected: float = math.inf  # what is left to gain
    gained: float = 0.0  # since the run began
    units: Vector | None = None  # squared, of the unknowns, where they are known
    pairs: Pairs = field(default_factory=Pairs)
    escape: Escape = field(default_factory=Escape)
    ahead: FoundStep = field(default_factory=FoundStep)

    def norm(self) -> Norm:
        """P, of what is remembered."""
        return self.pairs.improve(None if self.units is None else DiagonalNorm(self.units))

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        return flat({"version": _VERSION, **vars(self)})

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        refuse_other_version(snapshot, _VERSION)
        refill(self, snapshot)


class _Tried(NamedTuple):
    """A step, and where it began."""

    before: Point
    norm: Norm
    taken: StepTaken
    predicted: float  # decrease of the model
    length: float  # of the step, over ‖g‖_{P⁻¹}


@dataclass(frozen=True)
class RememberedCurvature(Solver):
    """The method; `trsvr.TRSVR` takes it where a problem shows nothing but gradients and products.

    Parameters
    ----------
    max_cg : int or "auto"
        Conjugate-gradient iterations per step at most.
    rules : RememberedRules
        The tuned numbers.
    """

    max_cg: int | str = "auto"
    rules: RememberedRules = field(default_factory=RememberedRules)

    judges = True

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first step."""
        own = Remembered(self.rules.unbounded, self.rules.cg_tolerance)
        return State(x=x, memory=NoMemory(), own=own, progress=Progress(math.inf, may_be_saddle=True))

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """One step; `judge` sees what it was worth."""
        own, report = _own(state), EpochReport(steps=1, inner_steps=1, curvature_rows=problem.n_samples)
        norm = self.norm(problem, state, report)
        if not state.gradient.any():
            own.expected = 0.0  # nothing but the curvature can tell a minimum from a saddle point here
            own.expected = self._second_look(problem, state, report, norm)
        taken = self._step(problem, state, report, norm)
        if taken.found.length == 0.0 and own.escape.direction is None and own.pairs.forget():
            # Curvatures of other places have made a norm that rounding does not survive.
            norm = self.norm(problem, state, report)
            taken = self._step(problem, state, report, norm)
        size = math.sqrt(norm.dual(state.gradient))
        report.outcome = _Tried(
            Point(state.x.copy(), state.value, state.gradient, 0.5 * size * size),
            norm,
            taken,
            taken.found.predicted(state.gradient) + taken.left,
            taken.found.length / size if size > 0.0 else 0.0,
        )
        state.x += taken.found.step
        report.alpha, report.radius = own.alpha, own.alpha * size
        report.boundary_fraction = float(taken.found.exit in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE))
        report.negative_curvature = int(taken.found.exit is Exit.NEGATIVE_CURVATURE)
        report.cg_iterations = float(taken.found.products)
        return report

    def norm(self, problem: Problem, state: State, report: EpochReport) -> Norm:
        """P at x."""
        return _own(state).norm()

    def _learns(self, problem: Problem) -> bool:
        """Whether steps without products are made, and the change of the gradient along every step is remembered."""
        return problem.n_parameters > self.rules.few_unknowns

    def _step(self, problem: Problem, state: State, report: EpochReport, norm: Norm) -> StepTaken:
        """Along an escape, one that a second look has found, by memory alone, or on the Hessian."""
        own, rules, gradient = _own(state), self.rules, state.gradient
        ahead, own.ahead = own.ahead, FoundStep()
        product = hessian_at(problem, state.x, gradient)
        if own.escape.direction is not None:
            return own.escape.step(product, own.alpha)
        known = ahead.taken(gradient, own.alpha)
        if known is not None:
            return known
        request = StepRequest(
            gradient,
            math.sqrt(norm.dual(gradient)),
            norm,
            own.alpha,
            np.zeros_like(gradient),
            own.cg_tolerance,
            rules.cg_tolerance,
            self._most_products(problem, own),
            own.pairs.directions,
            True,
            state.time_is_up,
            own.alpha == rules.unbounded,
            conjugate_gradients,
        )
        if self._learns(problem) and own.pairs.directions is not None and own.free < rules.free_steps:
            own.free += 1
            return newton_step(gradient, norm.solve(gradient), request.size, own.alpha)
        own.free = 0
        taken = conjugate_gradients(product, request)
        own.pairs.remember(taken.pairs, rules.most_pairs if self._learns(problem) else rules.fewer_pairs)
        self._charge(problem, report, taken.found.products)
        own.alpha = taken.alpha
        return taken

    def _most_products(self, problem: Problem, own: Remembered) -> int:
        if self.max_cg != "auto":
            return int(self.max_cg)
        return 1 if self._learns(problem) and own.pairs.directions is None else self.rules.most_products

    def _charge(self, problem: Problem, report: EpochReport, products: int) -> None:
        report.hessian_products += products
        report.gradient_evaluations += products * problem.n_samples

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the trial point if f fell, else go back; the radius follows the ratio of decreases."""
        own, rules, tried = _own(state), self.rules, report.outcome
        before: Point = tried.before
        finite = all_finite(state.gradient) and not math.isinf(state.value)
        decrease = 0.5 * tried.norm.dual(state.gradient) if finite else math.inf
        after = Point(state.x, state.value, state.gradient, decrease)
        better = finite and is_better(before, after)
        by_memory = self._learns(problem) and not tried.taken.found.products and own.escape.direction is None
        if self._learns(problem) and finite and (better or not by_memory):
            # The step has shown a curvature. Where it is tried again on the same line, that line's P stays.
            own.pairs.remember([(state.x - before.x, state.gradient - before.gradient)], rules.most_pairs)
        if better:
            at_floor = self._go_on(problem, state, report, after)
            return Progress(own.expected, at_floor, may_be_saddle=True, gained=own.gained)
        at_floor = finite and own.escape.direction is None and gained_nothing(before, state.value, tried.predicted)
        at_floor = at_floor or is_rounding(state.x - before.x, before.x)
        if at_floor and self._learns(problem) and not tried.taken.found.products:
            at_floor, own.free = False, rules.free_steps  # the Hessian itself has not been asked
            own.pairs.forget()
        part = rules.shrink
        if by_memory and finite:
            found = shorter_part(before, after, state.x - before.x, rules)
            part = found if math.isfinite(found) else part
        state.x[:], state.value, state.gradient = before.x, before.value, before.gradient
        report.rejected = 1
        if own.escape.direction is not None:
            own.escape.shorten(rules.shrink)
        else:
            own.free += rules.refused_counts
            own.alpha = part * min(own.alpha, tried.length or own.alpha)
        if at_floor and own.escape.direction is None and state.x.size <= FEW and own.doubted < rules.doubts:
            # Short steps gain nothing, whatever is left, where unknowns have units of their own.
            own.expected = 0.0
            own.expected = self._second_look(problem, state, report, tried.norm)
            if own.expected > rules.doubtful * self._measure(state):
                at_floor, own.alpha, own.doubted = False, 1.0, own.doubted + 1
        return Progress(own.expected, at_floor, may_be_saddle=True, gained=own.gained)

    def _go_on(self, problem: Problem, state: State, report: EpochReport, after: Point) -> bool:
        """The trial point is the next x; returns whether neither values nor gradients tell it from the last one."""
        own, rules, tried = _own(state), self.rules, report.outcome
        before, found = tried.before, tried.taken.found
        own.escape.direction, own.doubted = None, 0
        fallen = gained(before, after)
        own.gained += fallen
        ratio = fallen / tried.predicted if tried.predicted > 0.0 else 0.0
        if found.products and abs(ratio - 1.0) <= rules.quadratic:
            own.free = rules.free_steps
        if self._learns(problem) and not found.products:
            own.alpha = 1.0  # the pair that the step has shown is in the next one
        elif ratio < rules.poor_ratio:
            own.alpha = rules.shrink * min(own.alpha, tried.length or own.alpha)
        elif ratio > rules.good_ratio and not found.is_inside:
            own.alpha = min(rules.grow * own.alpha, rules.unbounded)
        own.expected = math.inf if found.is_cut_off else max(tried.predicted, after.decrease)
        if own.expected <= self._little(state):
            own.expected = self._second_look(problem, state, report, tried.norm)
            if state.time_is_up():
                own.expected = math.nan  # conjugate gradients that were cut short have predicted too little
        own.cg_tolerance = rules.cg_tolerance
        if tried.taken.predicted_gradient is not None and found.is_inside:
            wrong = 0.5 * tried.norm.dual(state.gradient - tried.taken.predicted_gradient)
            own.cg_tolerance = next_tolerance(before, after, wrong, own.expected, state.goal, rules)
        left = after.decrease / before.decrease if before.decrease > 0.0 else 0.0
        # Where the Hessian bends down a step is as long as its radius lets it, and there may be a way out.
        full = tried.length >= 1.0 and not found.is_cut_off and found.exit is not Exit.NEGATIVE_CURVATURE
        nothing = full and left > rules.stuck and gained_nothing(before, state.value, tried.predicted)
        return nothing and own.escape.direction is None

    def _little(self, state: State) -> float:
        """What may be left where the run ends."""
        return state.goal.decrease or self.rules.little * self._measure(state)

    def _measure(self, state: State) -> float:
        """What is small beside this is little: |f|, or what has been gained where there are no values."""
        return abs(_own(state).gained if math.isnan(state.value) else state.value)

    def _second_look(self, problem: Problem, state: State, report: EpochReport, norm: Norm) -> float:
        """What is left to gain at x by the Hessian's own answer; prepares the step to it, or out of a saddle."""
        own, rules = _own(state), self.rules
        little = self._little(state)
        seen = second_look(
            hessian_at(problem, state.x, state.gradient, state.value),
            norm,
            state.gradient,
            problem.has_products and problem.products_are_exact,
            rules.finest_look,
            rules.look_products,
            little,
            state.time_is_up,
        )
        self._charge(problem, report, seen.products)
        if seen.downwards is not None:
            own.escape.along(np.ascontiguousarray(seen.downwards), state.gradient)
            return math.inf
        if seen.expected > little:
            own.ahead = FoundStep(seen.step, seen.product, math.sqrt(norm.dual(seen.product)))
        return max(own.expected, seen.expected)


def _own(state: State) -> Remembered:
    assert isinstance(state.own, Remembered)
    return state.own
