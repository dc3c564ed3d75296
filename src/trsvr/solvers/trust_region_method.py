"""The laboratory: a stochastic trust-region method from exchangeable parts.

At each step, with a batch I of b rows at the point x:

    ḡ  = gradient estimate                                    `trsvr.parts.gradients`
    Δ  = radius(‖ḡ‖)                                          `trsvr.parts.radius`
    p ≈ argmin ḡᵀp + ½ pᵀHp  over  ‖p‖ ≤ Δ                    `trsvr.parts.curvature`, `trsvr.parts.subproblems`
    x ← x + p

With the SVRG estimator, estimated curvature and Δ = α‖ḡ‖ this is Algorithm 1 of the TRSVR paper (Fang, Zheng &
Lavaei); the line numbers in the code are that algorithm's. `TRSVR` and `TRish` are presets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import compiled_for, record
from trsvr._vectors import add_scaled, dot
from trsvr.parts.curvature import BatchHessian, EstimatedHessian, ExactHessian
from trsvr.parts.gradients import FullGradient, SVRGGradient
from trsvr.parts.radius import GradientRadius, RatioTest
from trsvr.parts.subproblems import CGWork, SteihaugCG
from trsvr.problems.base import Problem
from trsvr.problems.steps import Exit
from trsvr.solvers.base import Access, EpochReport, EpochRows, Solver, State, access, check_batch, check_table
from trsvr.solvers.trust_region import TrustRegion

# Rows per step where nothing else is said; the paper's studies use 20 to 200.
_AUTO_BATCH = 200
_BOUNDARY = int(Exit.BOUNDARY)
_NEGATIVE_CURVATURE = int(Exit.NEGATIVE_CURVATURE)


@record
class StepWork(NamedTuple):
    """Vectors and counts of the inner loop, allocated once per run."""

    gradient: Vector
    margins: Vector
    cg: CGWork
    tally: Vector  # products, steps on the boundary, steps of negative curvature, sum of the radii

    @classmethod
    def of_size(cls, d: int, room: int) -> StepWork:
        """New vectors for d parameters, with so much room for what a batch keeps."""
        return cls(np.zeros(d), np.zeros(room), CGWork.of_size(d), np.zeros(4))


@record
class Parts(NamedTuple):
    """The four exchangeable parts."""

    estimator: Any
    hessian: Any
    rule: Any
    subproblem: Any


def inner_loop(
    problem: Any, parts: Parts, memory: Any, x: Vector, indices: Indices, batch_size: int, work: StepWork
) -> None:
    """Steps over consecutive batches of ``indices``; changes x, the memory and the tally."""
    tally = work.tally
    for begin in range(0, indices.size, batch_size):
        batch = indices[begin : begin + batch_size]  # line 6
        parts.estimator.estimate(memory, problem, x, batch, work.margins, work.gradient)  # line 7
        norm = math.sqrt(dot(work.gradient, work.gradient))
        radius = parts.rule.radius_for(norm)  # line 8
        step_scale = parts.hessian.spacing(x)
        hessian = BatchHessian(parts.hessian, problem, x, batch, work.margins, step_scale)
        reason, products = parts.subproblem.solve(hessian, work.gradient, norm, radius, work.cg)  # line 9
        add_scaled(1.0, work.cg.step, x)  # line 10
        tally[0] += products
        tally[1] += reason == _BOUNDARY or reason == _NEGATIVE_CURVATURE
        tally[2] += reason == _NEGATIVE_CURVATURE
        tally[3] += radius


@dataclass(frozen=True)
class TrustRegionMethod(Solver):
    """Gradient estimator × curvature × radius rule × subproblem solver.

    Parameters
    ----------
    gradient : SVRGGradient, SARAHGradient, SAGAGradient, PlainGradient or an estimator of your own
    curvature : EstimatedHessian, ExactHessian, Identity, NoCurvature or one of your own
    radius : GradientRadius, TRishRadius or a rule of your own
    subproblem : SteihaugCG, DenseSubproblem or a solver of your own
    batch_size : int or "auto"
        b, rows per step, drawn uniformly with replacement. "auto" is 200, or N if that is less.
    inner_steps : int or "auto"
        S, steps per epoch; an epoch begins with a full gradient if the estimator needs one. "auto" is ⌈N/b⌉.

    Notes
    -----
    `RatioTest` compares function values of whole steps, so it goes with `FullGradient`, and both go together: that is
    the classic method, `trsvr.TrustRegion`, which this class then runs.
    """

    gradient: Any = field(default_factory=SVRGGradient)
    curvature: Any = field(default_factory=EstimatedHessian)
    radius: Any = field(default_factory=GradientRadius)
    subproblem: Any = field(default_factory=SteihaugCG)
    batch_size: int | str = 200
    inner_steps: int | str = 200

    def __post_init__(self) -> None:
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size)
        if self.inner_steps != "auto":
            _check.whole("inner_steps", self.inner_steps)
        for name, part, member in (
            ("gradient", self.gradient, "estimate"),
            ("curvature", self.curvature, "batch_product"),
            ("radius", self.radius, "accepts" if isinstance(self.radius, RatioTest) else "radius_for"),
            ("subproblem", self.subproblem, "solve"),
        ):
            if isinstance(part, type) or member not in dir(part):
                raise ValueError(f"{name} must be a part with a method {member!r}, got {part!r}")
        if not math.isnan(self.alpha):
            _check.positive("alpha", self.alpha)
        if isinstance(self.subproblem, SteihaugCG):
            _check.whole("max_iterations", self.subproblem.max_iterations)
        if isinstance(self.radius, RatioTest) != isinstance(self.gradient, FullGradient):
            raise ValueError(
                f"radius {type(self.radius).__name__} and gradient {type(self.gradient).__name__} do not go together: "
                "RatioTest needs the full gradient and value of every trial point, which only FullGradient gives, and "
                "FullGradient has no use for a batch; PlainGradient with batch_size=N takes any other radius"
            )

    @cached_property
    def classic(self) -> TrustRegion | None:
        """The classic method, if that is what the parts make."""
        if not isinstance(self.radius, RatioTest):
            return None
        kinds = {ExactHessian: "exact", EstimatedHessian: "estimated"}
        if type(self.curvature) not in kinds or not isinstance(self.subproblem, SteihaugCG):
            raise ValueError(
                "radius RatioTest needs curvature ExactHessian or EstimatedHessian and subproblem SteihaugCG, "
                f"got {self.curvature!r} and {self.subproblem!r}"
            )
        return TrustRegion(*self.radius, hessian=kinds[type(self.curvature)], max_cg=self.subproblem.max_iterations)

    @property
    def alpha(self) -> float:
        """The radius rule's α; not a number where it has none."""
        return getattr(self.radius, "alpha", math.nan)  # a user's rule need not have one

    @property
    def estimates_curvature(self) -> bool:
        """Whether it takes differences of gradients for products with the Hessian."""
        return isinstance(self.curvature, EstimatedHessian)

    def steps_per_epoch(self, problem: Problem) -> int:
        """S."""
        if self.inner_steps == "auto":
            return math.ceil(problem.n_samples / self.rows_per_step(problem))
        return int(self.inner_steps)

    def rows_per_step(self, problem: Problem) -> int:
        """The number b."""
        return min(_AUTO_BATCH, problem.n_samples) if self.batch_size == "auto" else int(self.batch_size)

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""
        return bool(self.gradient.needs_reference)

    @property
    def parts(self) -> Parts:
        """The four parts as one record."""
        return Parts(self.gradient, self.curvature, self.radius, self.subproblem)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if the problem lacks something that a part needs."""
        if self.classic is not None:
            self.classic.check(problem)
            return
        check_batch(problem, self.rows_per_step(problem))
        check_table(problem, self.gradient)
        # A curvature of the user's need not say whether it needs products.
        needs = getattr(self.curvature, "needs_hessian_product", False)  # a user's curvature need not say
        if needs and not problem.has_products:
            raise ValueError(
                f"curvature {type(self.curvature).__name__} needs a problem with hessian_product, which "
                f"{type(problem).__name__} has not; EstimatedHessian works without"
            )

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """The classic method, if that is what the parts make."""
        return self if self.classic is None else self.classic

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first epoch."""
        reached = access(problem, *self.parts)
        work = StepWork.of_size(x.size, reached.kernels.room(self.rows_per_step(problem)))
        state = State(x=x, memory=reached.memory(self.gradient), work=work)
        self._run(reached, state, np.empty(0, dtype=np.int64), 1)  # no step: compiles before the clock starts
        reached.warm_up_table(self.gradient, state)
        return state

    def draws(self, problem: Problem) -> tuple[int, int] | None:
        """Batch size and number of batches of an epoch."""
        return self.rows_per_step(problem), self.steps_per_epoch(problem)

    def _run(self, reached: Access, state: State, indices: Indices, batch_size: int) -> None:
        run = compiled_for(inner_loop, reached.kernels, *self.parts)
        run(reached.kernels, self.parts, state.memory, state.x, indices, batch_size, state.work)

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """One outer iteration."""
        reached = access(problem, *self.parts)
        tally = state.work.tally
        tally[:] = 0.0
        filled = reached.fill_table(self.gradient, state)
        self.gradient.restart(state.memory, state.x, state.gradient)  # lines 3 and 4
        steps = 0
        batch_size = self.rows_per_step(problem)
        for indices in rows.slices(batch_size, self.steps_per_epoch(problem)):  # line 5
            for here, numbers in reached.pieces(indices, batch_size):
                self._run(here, state, numbers, batch_size)
            steps += indices.size // batch_size
        report = self._report(steps, batch_size, tally)
        report.gradient_evaluations += problem.n_samples if filled else 0
        return report

    def _report(self, steps: int, batch_size: int, tally: Vector) -> EpochReport:
        iterations, boundary, negative, radii = tally
        per_product = self.curvature.rows_per_product(batch_size)
        products = int(iterations) if per_product else 0
        return EpochReport(
            steps=steps,
            gradient_evaluations=steps * self.gradient.evaluations(batch_size) + products * per_product,
            hessian_products=products,
            alpha=self.alpha,
            batch_size=batch_size,
            inner_steps=steps,
            radius=radii / max(steps, 1),
            boundary_fraction=boundary / max(steps, 1),
            cg_iterations=iterations / max(steps, 1),
            negative_curvature=int(negative),
        )
