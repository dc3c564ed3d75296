"""The classic trust region (Nocedal & Wright, Algorithm 4.1): full gradients, acceptance by the ratio of decreases.

    p ≈ argmin m(p) = gᵀp + ½ pᵀHp  over  ‖p‖ ≤ Δ          (Steihaug's conjugate gradients on all rows)
    ρ = (f(x) − f(x + p)) / (m(0) − m(p))
    Δ follows ρ;  x ← x + p if ρ > eta

An epoch is one iteration: one value and gradient at the trial point, N, and N per product.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.parts.gradients import NoMemory
from trsvr.parts.norms import IdentityNorm
from trsvr.parts.radius import RatioTest
from trsvr.parts.second_look import FEW, second_look
from trsvr.parts.subproblems import CGWork, SteihaugCG
from trsvr.problems.base import Problem, gradient_difference, hessian_at
from trsvr.problems.plain import NotFinite
from trsvr.problems.steps import Exit
from trsvr.solvers.base import AUTO_DECREASE, EpochReport, EpochRows, Progress, Solver, State

_HESSIANS = ("auto", "exact", "estimated")
# Below this relative size of the predicted decrease the values' last digits decide, and the model is believed instead.
_FINEST = 1e-8  # of the second look's conjugate gradients
_ROUNDING = 10 * np.finfo(float).eps


class FullHessian(NamedTuple):
    """Curvature of all rows at x."""

    problem: Any
    x: Vector
    gradient: Vector
    exact: bool

    def product(self, v: Vector, squared_norm: float, out: Vector) -> float:
        """H v in ``out``; returns vᵀHv."""
        if self.exact:
            out[:] = self.problem.hessian_product(self.x, None, v)
        else:
            out[:] = gradient_difference(self.problem, self.x, self.gradient, v, math.sqrt(squared_norm))
        return dot(v, out)


class _Proposal(NamedTuple):
    """A step: where it began, f and ∇f there, what the model predicts, and whether it ended on the boundary."""

    x: Vector
    value: float
    gradient: Vector
    predicted: float
    on_boundary: bool


@dataclass(frozen=True)
class TrustRegion(Solver):
    """Trust-region Newton-CG on all rows.

    Parameters
    ----------
    initial_radius, max_radius : float
        Δ at the beginning, and at most.
    eta : float
        A step is taken if actual over predicted decrease exceeds it; 0 to below 1/4.
    hessian : {"auto", "exact", "estimated"}
        Analytic products, or differences of full gradients; "auto" is the former where the problem has them.
    max_cg : int
        Conjugate-gradient iterations at most.
    """

    initial_radius: float = 1.0
    max_radius: float = 1e6
    eta: float = 0.1
    hessian: str = "auto"
    max_cg: int = 500

    judges = True

    def __post_init__(self) -> None:
        _check.positive("initial_radius", self.initial_radius)
        if _check.positive("max_radius", self.max_radius) < self.initial_radius:
            raise ValueError(f"max_radius must be at least initial_radius, got {self.max_radius}")
        if not 0.0 <= _check.positive("eta", self.eta, zero=True) < 0.25:
            raise ValueError(f"eta must be a number from 0 to below 0.25, got {self.eta!r}")
        _check.one_of("hessian", self.hessian, _HESSIANS)
        _check.whole("max_cg", self.max_cg)

    @property
    def estimates_curvature(self) -> bool:
        """Whether it takes differences of gradients for products with the Hessian."""
        return self.hessian == "estimated"

    @cached_property
    def test(self) -> RatioTest:
        """The radius rule."""
        return RatioTest(float(self.initial_radius), float(self.max_radius), float(self.eta))

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if problem.has_value is False:
            raise ValueError("solver TrustRegion compares function values: give the FunctionProblem a value function")
        if self.hessian == "exact" and not problem.has_products:
            raise ValueError(
                f"hessian 'exact' needs a problem with hessian_product, which {type(problem).__name__} has not; "
                "'estimated' works without"
            )

    def _takes_products(self, problem: Problem) -> bool:
        return problem.has_products if self.hessian == "auto" else self.hessian == "exact"

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first iteration."""
        if self._takes_products(problem):
            problem.warm_up(products=True)  # compiles before the clock starts
        return State(
            x=x,
            memory=NoMemory(),
            scalars={"radius": float(self.initial_radius)},
            work=CGWork.of_size(x.size),
            progress=Progress() if problem.defined_at_zero else Progress(math.inf, may_be_saddle=True),
        )

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """Propose a step; `judge` sees what it was worth."""
        work: CGWork = state.work
        radius = state.scalars["radius"]
        hessian = FullHessian(problem, state.x, state.gradient, self._takes_products(problem))
        norm = math.sqrt(dot(state.gradient, state.gradient))
        reason, products = SteihaugCG(self.max_cg).solve(hessian, state.gradient, norm, radius, work)
        before = _Proposal(
            state.x.copy(),
            state.value,
            state.gradient,
            -0.5 * (dot(work.step, state.gradient) + dot(work.step, work.residual)),
            reason in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE),
        )
        state.x += work.step
        return EpochReport(
            steps=1,
            gradient_evaluations=products * problem.n_samples,
            hessian_products=products,
            batch_size=problem.n_samples,
            inner_steps=1,
            radius=radius,
            boundary_fraction=float(before.on_boundary),
            cg_iterations=products,
            negative_curvature=int(reason == Exit.NEGATIVE_CURVATURE),
            outcome=before,
        )

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Accept or refuse the step, now that value and gradient at the trial point are known."""
        before: _Proposal = report.outcome
        at_floor = False
        actual, predicted, rounding = before.value - state.value, before.predicted, _ROUNDING * abs(before.value)
        if predicted <= rounding and abs(actual) <= 4 * rounding:
            ratio = 1.0
            # Values no longer tell the points apart. Gradients may; when they do not fall either, this is the end.
            at_floor = bool(dot(state.gradient, state.gradient) >= 0.25 * dot(before.gradient, before.gradient))
        else:
            ratio = actual / predicted if predicted > 0.0 else -math.inf
        state.scalars["radius"] = self.test.next_radius(state.scalars["radius"], ratio, before.on_boundary)
        if not self.test.accepts(ratio):
            state.x[:] = before.x
            state.value, state.gradient = before.value, before.gradient
            report.rejected = 1
            smallest = np.finfo(float).eps * (1.0 + float(np.abs(state.x).max(initial=0.0)))
            # A model that predicts a rise is none: with estimated products conjugate gradients can go that far astray.
            at_floor = at_floor or bool(abs(predicted) <= rounding or state.scalars["radius"] <= smallest)
        if problem.defined_at_zero:
            return Progress(at_floor=at_floor)
        inside = not before.on_boundary and not report.rejected and predicted >= 0.0
        # Short steps gain nothing, whatever is left, where unknowns have units of their own.
        doubtful = at_floor and state.x.size <= FEW
        if not doubtful and (not inside or predicted > AUTO_DECREASE * abs(state.value)):
            return Progress(math.inf, at_floor, may_be_saddle=True)
        value = state.value
        expected = self._second_look(problem, state, report)
        return Progress(expected, at_floor and state.value == value, may_be_saddle=True)

    def _second_look(self, problem: Problem, state: State, report: EpochReport) -> float:
        """What is left to gain where a run would end; where f falls along what the Hessian shows, go there."""
        hessian = hessian_at(problem, state.x, state.gradient, state.value)
        exact = self._takes_products(problem) and problem.products_are_exact
        gradient, little = state.gradient, AUTO_DECREASE * abs(state.value)
        seen = second_look(hessian, IdentityNorm(), gradient, exact, _FINEST, self.max_cg, little, state.time_is_up)
        report.hessian_products += seen.products
        report.gradient_evaluations += seen.products * problem.n_samples
        if not seen.expected > little:
            return seen.expected
        direction, length, ways = seen.step, 1.0, [1.0]
        if seen.downwards is not None:
            # As far as the radius, or until some unknown has changed by a tenth.
            sizes = np.where(state.x != 0.0, np.abs(state.x), math.inf)
            direction, tenth = seen.downwards, 0.1 / (float(np.abs(seen.downwards / sizes).max()) or math.inf)
            length, ways = max(state.scalars["radius"], tenth), [1.0, -1.0]
        while length > np.finfo(float).eps:
            for x in (state.x + way * length * direction for way in ways):
                report.gradient_evaluations += problem.n_samples
                value, gradient = math.inf, state.gradient
                with contextlib.suppress(NotFinite):
                    value, gradient = problem.value_and_gradient(x)
                if value < state.value - _ROUNDING * abs(state.value):
                    state.x[:], state.value, state.gradient = x, float(value), np.array(gradient, dtype=np.float64)
                    state.scalars["radius"] = max(state.scalars["radius"], length * float(np.linalg.norm(direction)))
                    return math.inf
            length *= 0.25
        return seen.expected
