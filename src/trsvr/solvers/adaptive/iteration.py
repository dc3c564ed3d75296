"""One outer iteration: norm, step on the full gradient, steps on batches, judgement."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._draws import Draws
from trsvr.parts.gradients import NoMemory
from trsvr.problems.base import Problem
from trsvr.problems.steps import Exit, NormedStep, StepRequest, StepTaken, WalkRequest
from trsvr.problems.views import Coming
from trsvr.solvers.adaptive.endings import escape_of
from trsvr.solvers.adaptive.judgement import judge
from trsvr.solvers.adaptive.measuring import (
    NORMS,
    Measuring,
    directions_pay,
    first_rows,
    kind_of_norm,
    rows_of_matrix,
)
from trsvr.solvers.adaptive.rules import Rules
from trsvr.solvers.adaptive.state import AdaptiveState, Caution, FoundStep, Measured, NormState, Outcome, Radius
from trsvr.solvers.adaptive.steps import conjugate_gradients, walk
from trsvr.solvers.base import EpochReport, EpochRows, Progress, Solver, State


@dataclass(frozen=True)
class AdaptiveTRSVR(Solver):
    """The mode; `trsvr.TRSVR` is its public face.

    Parameters
    ----------
    batch_size, inner_steps : int or "auto"
        A number for batch_size means rows drawn uniformly with replacement; "auto" takes runs of consecutive rows.
    norm : {"auto", "dense", "diagonal", "identity"}
        With several outputs "dense" is a matrix for each of them.
    max_cg : int or "auto"
        Conjugate-gradient iterations per step at most.
    rules : Rules
        The tuned numbers.
    """

    batch_size: int | str = "auto"
    inner_steps: int | str = "auto"
    norm: str = "auto"
    max_cg: int | str = "auto"
    rules: Rules = field(default_factory=Rules)

    judges = True

    def __post_init__(self) -> None:
        for name, value in (
            ("batch_size", self.batch_size),
            ("inner_steps", self.inner_steps),
            ("max_cg", self.max_cg),
        ):
            if value != "auto":
                _check.whole(name, value)
        _check.one_of("norm", self.norm, NORMS)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size, at_most=problem.n_samples)
        if self.norm not in ("dense", "diagonal"):
            return
        prices = problem.curvature_view().prices()
        if math.isinf(prices.diagonal):
            raise ValueError(
                f"norm {self.norm!r} needs a linear model, got {type(problem).__name__}; "
                "'identity' and 'auto' work with any problem"
            )
        if self.norm == "dense":
            if math.isinf(prices.matrix_row):
                raise ValueError("norm 'dense' with several outputs needs the rows in memory; 'diagonal' does not")
            size = 10 * 8 * problem.n_parameters**2 // problem.n_outputs
            needed = f"norm 'dense' with {problem.n_parameters} parameters"
            _check.fits_in_memory(size, needed, "'diagonal' needs no matrix")

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first outer iteration."""
        rules, n, here, there = self.rules, problem.n_samples, problem.curvature_view(), problem.curvature_view()
        d = problem.n_parameters // here.n_outputs
        kind = kind_of_norm(self.norm, here.prices(), n, d, rules)
        here.warm_up(dense=kind == "dense")
        dense = kind == "dense"
        bends_down = kind != "identity" and bool((here.penalty_curvatures(x) < 0.0).any())
        first = max(int(n * rules.first_batch), min(n, rules.smallest_batch))
        own = AdaptiveState(
            kind,
            here,
            there,
            # Only where P is near H does α = 1 stand for a Newton step.
            Radius(1.0 if dense and here.n_outputs == 1 else rules.unbounded, rules.cg_tolerance),
            NormState(float(first_rows(n, d, rules) if dense else n)),
            Caution(rules.first_caution),
            float(first if self.batch_size == "auto" else self.batch_size),
            bends_down,
        )
        return State(x=x, memory=NoMemory(), own=own, progress=Progress(own.expected_decrease, False, bends_down))

    def evaluate(self, problem: Problem, state: State, coming: Draws | None) -> tuple[float, Vector]:
        """Full value and gradient at x, keeping what the curvature there needs."""
        own = _own(state)
        rows, batch = rows_of_matrix(problem, own), int(own.batch_size)
        walks = own.kind == "dense" and rows < problem.n_samples and self._draws_batches(problem, batch)
        ahead = Coming(own.kind, rows, batch if walks and self.batch_size == "auto" else 0, own.caution.raised, coming)
        return own.there.evaluate(state.x, ahead)

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """Norm, step on the full gradient, steps on batches; `judge` sees what they were worth."""
        own = _own(state)
        if not own.begun:
            own.swap_views()  # the evaluation at the starting point is the first reference
            own.begun = True
        report = EpochReport(alpha=own.radius.alpha)
        measuring = Measuring(problem, state, own, self.rules)
        measured = measuring.measure(report, rows.draws)
        reference, gradient = state.x.copy(), state.gradient
        ahead, own.ahead = own.ahead, FoundStep()
        if own.nonconvex and not gradient.any():
            own.expected_decrease = 0.0  # nothing but the curvature can tell a minimum from a saddle point here
            own.expected_decrease = escape_of(state, own, measured, self.rules)
        if own.escape.direction is not None:
            step = own.escape.length * own.escape.direction
            product = measured.product or (lambda v: own.here.product(v) + measured.penalty * v)
            taken = StepTaken(NormedStep(step, product(step), 0.0, Exit.NEGATIVE_CURVATURE, 1), own.radius.alpha)
        elif ahead.step is not None and ahead.product is not None:
            found = NormedStep(ahead.step, ahead.product, ahead.length, Exit.TOLERANCE, 0)
            taken = StepTaken(found, own.radius.alpha, foretold=gradient + ahead.product)
        else:
            taken = self._step(problem, state, measured, report)
            if taken.found.length == 0.0 and own.norm.forget():
                # Curvatures of other places have made a norm that rounding does not survive.
                measured = measuring.measure(report, rows.draws)
                taken = self._step(problem, state, measured, report)
        size = math.sqrt(measured.norm.dual(gradient))
        state.x += taken.found.step
        report.steps += 1
        report.outcome = Outcome(
            reference,
            state.value,
            gradient,
            measured,
            taken.found,
            decrease=0.5 * size * size,
            predicted=taken.found.predicted(gradient) + taken.left,
            length=taken.found.length / size if size > 0.0 else 0.0,
            foretold=taken.foretold if own.norm.exact else None,
        )
        if own.escape.direction is None and not own.norm.exact and self._inner_steps_pay(problem, own):
            self._walk(problem, state, report, rows.draws)
        report.inner_steps = report.steps
        report.radius = own.radius.alpha * size
        report.boundary_fraction = float(taken.found.exit in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE))
        report.negative_curvature = int(taken.found.exit == Exit.NEGATIVE_CURVATURE)
        report.cg_iterations = float(taken.found.products)
        return report

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the trial point or go back, and learn from it."""
        grows = self.batch_size == "auto"
        return judge(problem, state, _own(state), report, self.rules, may_grow_batch=grows)

    # ------------------------------------------------------------------------------------------------------- the steps

    def _step(self, problem: Problem, state: State, measured: Measured, report: EpochReport) -> StepTaken:
        """One trust-region step along the full gradient: on the whole Hessian, or on P where that is the model."""
        own, rules = _own(state), self.rules
        request = self._request(state, state.gradient, math.sqrt(measured.norm.dual(state.gradient)), measured)
        if measured.product is not None:
            taken = conjugate_gradients(measured.product, request, rules)
        else:
            taken = own.here.step(request)
            own.norm.remember(taken.pairs, rules.pairs)
            report.hessian_products += taken.found.products
            report.gradient_evaluations += taken.found.products * problem.n_samples + taken.rows
        own.norm.products = taken.found.products
        own.radius.alpha = report.alpha = taken.alpha
        return taken

    def _request(self, state: State, gradient: Vector, size: float, measured: Measured) -> StepRequest:
        own, rules = _own(state), self.rules
        exact = measured.product is None
        return StepRequest(
            gradient,
            size,
            measured.norm,
            own.radius.alpha,
            measured.penalty,
            own.radius.cg_tolerance if exact else rules.cg_tolerance,
            rules.most_products if self.max_cg == "auto" else int(self.max_cg),
            own.norm.directions,
            exact and directions_pay(own.here.prices(), rules.pairs),
            state.time_is_up,
            own.radius.alpha == rules.unbounded,
            functools.partial(conjugate_gradients, rules=rules),
        )

    def _draws_batches(self, problem: Problem, batch: int) -> bool:
        """Whether a batch is no more of the data than is worth drawing; a number of the user's always is."""
        return self.batch_size != "auto" or batch <= self.rules.largest_batch * problem.n_samples

    def _inner_steps_pay(self, problem: Problem, own: AdaptiveState) -> bool:
        """Whether to make inner steps: if they were asked for, if they are cheap, or if a step alone leaves much."""
        if own.norm.rows >= problem.n_samples or not self._draws_batches(problem, int(own.batch_size)):
            return False
        asked_for = self.batch_size != "auto" or self.inner_steps != "auto"
        passes = 2.0 * own.batch_size * own.here.prices().batch_row / problem.n_samples
        left = own.radius.contraction
        return asked_for or passes < self.rules.cheap_batch or left > self.rules.inner_steps_from

    def _walk(self, problem: Problem, state: State, report: EpochReport, draws: Draws) -> None:
        """Steps on batches, from the end of the first step."""
        own, rules, outcome = _own(state), self.rules, report.outcome
        automatic = self.batch_size == "auto"

        def step(estimate: Vector, size: float) -> Vector:
            request = self._request(state, estimate, size, outcome.measured)
            taken = conjugate_gradients(outcome.measured.product, request, rules)
            own.radius.alpha = report.alpha = taken.alpha
            return taken.found.step

        taken = own.here.walk(
            WalkRequest(
                state.x,
                outcome.x,
                outcome.gradient,
                outcome.measured.norm,
                own.radius.alpha,
                int(own.batch_size),
                (rules.most_inner_steps if self.inner_steps == "auto" else int(self.inner_steps)) - 1,
                not automatic,
                rules.noise,
                rules.longest_walk * outcome.decrease if own.nonconvex else math.inf,
                draws,
                step,
                walk,
            )
        )
        state.x[:] = taken.x
        report.steps += taken.steps
        report.batch_size = taken.rows
        report.gradient_evaluations += 2 * taken.rows * taken.batches
        if taken.too_noisy and automatic:
            own.batch_size *= 2.0


def _own(state: State) -> AdaptiveState:
    assert isinstance(state.own, AdaptiveState)
    return state.own
