"""The adaptive mode as a solver: what may be chosen, how it begins, what it keeps of a full pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._draws import Draws
from trsvr.parts.caution import Caution
from trsvr.parts.gradients import NoMemory
from trsvr.parts.norm_choice import NORMS, first_rows, kind_of_norm, may_be_matrix, price_of_matrix
from trsvr.problems.base import Problem
from trsvr.problems.views import Coming
from trsvr.solvers.adaptive.iteration import outer_iteration
from trsvr.solvers.adaptive.judgement import judge
from trsvr.solvers.adaptive.measuring import rows_of_matrix
from trsvr.solvers.adaptive.rules import Rules
from trsvr.solvers.adaptive.state import AdaptiveState, Choices, Iteration, NormState, Radius, own_state
from trsvr.solvers.base import EpochReport, EpochRows, Progress, Solver, State
from trsvr.solvers.matrix_norm import MatrixNorm
from trsvr.solvers.remembered import RememberedCurvature


@dataclass(frozen=True)
class AdaptiveTRSVR(Solver):
    """The mode; `trsvr.TRSVR`, its public face, explains what may be chosen. ``rules`` are the tuned numbers."""

    batch_size: int | str = "auto"
    inner_steps: int | str = "auto"
    norm: str = "auto"
    max_cg: int | str = "auto"
    rules: Rules = field(default_factory=Rules)

    judges = centres = True
    remembers: ClassVar[type[AdaptiveState]] = AdaptiveState

    def __post_init__(self) -> None:
        for name in ("batch_size", "inner_steps", "max_cg"):
            if vars(self)[name] != "auto":
                _check.whole(name, vars(self)[name])
        _check.one_of("norm", self.norm, NORMS)

    def begins_at_once(self, problem: Problem) -> bool:
        """On small data nothing is compiled."""
        return problem.is_small or super().begins_at_once(problem)

    def lasts_long(self, problem: Problem) -> bool:
        """Where no matrix is made, Python sees every pass, and large ones in parts."""
        no_matrix = self.norm != "dense" and not may_be_matrix(problem.n_parameters, self.rules)
        return problem.lasts_long and not (no_matrix and problem.n_outputs == 1)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size, at_most=problem.n_samples)
        if self.norm not in ("dense", "diagonal"):
            return
        if not problem.has_view:
            raise ValueError(
                f"norm {self.norm!r} needs a linear model, got {type(problem).__name__}; "
                "'identity' and 'auto' work with any problem"
            )
        if self.norm == "dense":
            if math.isinf(problem.curvature_view().prices().matrix_row):
                raise ValueError("norm 'dense' with several outputs needs the rows in memory; 'diagonal' does not")
            size, d = 80 * problem.n_parameters**2 // problem.n_outputs, problem.n_parameters
            _check.fits_in_memory(size, f"norm 'dense' with {d} parameters", "'diagonal' needs no matrix")

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """Where nothing is known but gradients and products, what steps and products have shown must do."""
        if problem.has_view:
            return self
        return MatrixNorm(self.max_cg) if problem.has_matrix else RememberedCurvature(self.max_cg)

    @cached_property
    def _choices(self) -> Choices:
        """What the user has fixed."""
        chosen = (self.batch_size, self.inner_steps, self.max_cg, self.norm)
        return Choices(*(None if choice == "auto" else choice for choice in chosen))  # type: ignore[arg-type]

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first outer iteration."""
        rules, n, here, there = self.rules, problem.n_samples, problem.curvature_view(), problem.curvature_view()
        d = problem.n_parameters // here.n_outputs
        kind = kind_of_norm(self.norm, here.prices(), n, d, rules)
        # Steps on batches that were asked for go with a sampled P; so nothing is as cheap then.
        cheap = self._choices[:2] == (None, None) and n * here.prices().matrix_row <= rules.cheap_matrix
        bends_down = kind != "identity" and bool((here.penalty_curvatures(x) < 0.0).any())
        # Only where P is near H does α = 1 stand for a Newton step.
        alpha = 1.0 if kind == "dense" and here.n_outputs == 1 else rules.unbounded
        radius, norm = Radius(alpha, rules.cg_tolerance), NormState(float(n if cheap else first_rows(n, d, rules)))
        batch = float(self._choices.batch_size or max(int(n * rules.first_batch), 1))
        own = self.remembers(kind, here, there, radius, norm, Caution(rules.first_caution), batch, bends_down)
        own.price = price_of_matrix(here.prices(), n, d, rules)
        return State(x=x, memory=NoMemory(), own=own, progress=Progress(own.expected_decrease, False, bends_down))

    def warm_up(self, problem: Problem, state: State) -> None:
        """Compile (or load) what the views need; rows that are elsewhere are read there."""
        own = own_state(state)
        if problem.is_elsewhere:
            problem.warm_up()
        own.here.warm_up(own.kind == "dense")

    def evaluate(self, problem: Problem, state: State, coming: Draws | None) -> tuple[float, Vector]:
        """Full value and gradient at x, keeping what the curvature there needs."""
        own = own_state(state)
        rows, batch, n = rows_of_matrix(problem, own), int(own.batch_size), problem.n_samples
        walks = own.kind == "dense" and rows < n and self.batch_size == "auto" and batch <= self.rules.largest_batch * n
        return own.there.evaluate(state.x, Coming(own.kind, rows, batch if walks else 0, own.caution.raised, coming))

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """Norm, step on the full gradient, steps on batches; `judge` sees what they were worth."""
        own = own_state(state)
        report = EpochReport(alpha=own.radius.alpha)
        outer_iteration(Iteration(problem, state, own, self.rules, self._choices, report), rows.draws)
        return report

    def gap_bound(self, problem: Problem, state: State) -> float:
        """From what the view at hand knows, unless its curvatures are raised."""
        own = own_state(state)
        view = own.here if own.begun else own.there
        known = view.gap_bound(state.x, state.value, state.gradient)
        return super().gap_bound(problem, state) if math.isnan(known) else known

    def close(self, state: State) -> None:
        """The views are not needed any more."""
        for view in (own_state(state).here, own_state(state).there):
            view.close()

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the trial point or go back, and learn from it."""
        return judge(Iteration(problem, state, own_state(state), self.rules, self._choices, report))
