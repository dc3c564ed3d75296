"""One outer iteration: norm, first step, inner steps."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.parts.gradients import NoMemory
from trsvr.parts.subproblems import Exit, NormedStep, preconditioned_cg
from trsvr.parts.variance import noise_and_signal, too_noisy
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.adaptive.costs import directions_pay, first_rows, is_elsewhere, matrix_pays, shape
from trsvr.solvers.adaptive.endings import doubt
from trsvr.solvers.adaptive.judgement import judge
from trsvr.solvers.adaptive.measuring import has_view, measure, rows_of_matrix, view_of
from trsvr.solvers.adaptive.work import CG_TOLERANCE, PAIRS, POOR, UNBOUNDED, Draws, Work
from trsvr.solvers.base import EpochReport, EpochRows, State

NORMS = ("auto", "dense", "diagonal", "identity")

# First batch, as a part of the data, and the largest one that is worth drawing.
_FIRST_BATCH = 16
_LARGEST_BATCH = 2
_MOST_INNER_STEPS = 10
_MOST_PRODUCTS = 5000


@dataclass(frozen=True)
class AdaptiveTRSVR:
    """The rules; `trsvr.TRSVR` is its public face.

    Parameters
    ----------
    batch_size, inner_steps : int or "auto"
        A number for batch_size means rows drawn uniformly with replacement; "auto" takes runs of consecutive rows.
    norm : {"auto", "dense", "diagonal", "identity"}
        With several outputs "dense" is a matrix for each of them.
    max_cg : int or "auto"
        Conjugate-gradient iterations per step at most.
    """

    batch_size: int | str = "auto"
    inner_steps: int | str = "auto"
    norm: str = "auto"
    max_cg: int | str = "auto"

    needs_reference = True

    def __post_init__(self) -> None:
        for name in ("batch_size", "inner_steps", "max_cg"):
            value = getattr(self, name)
            if value != "auto":
                _check.whole(name, value)
        _check.one_of("norm", self.norm, NORMS)

    def check(self, problem: FiniteSum) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size, at_most=problem.n_samples)
        if self.norm in ("dense", "diagonal") and not has_view(problem):
            raise ValueError(
                f"norm {self.norm!r} needs a linear model, got {type(problem).__name__}; "
                "'identity' and 'auto' work with any problem"
            )
        if self.norm == "dense":
            d, outputs = shape(problem)
            if outputs > 1 and is_elsewhere(problem):
                raise ValueError("norm 'dense' with several outputs needs the rows in memory; 'diagonal' does not")
            size = 10 * 8 * outputs * d * d
            _check.fits_in_memory(
                size, f"norm 'dense' with {problem.n_parameters} parameters", "'diagonal' needs no matrix"
            )

    def _kind(self, problem: FiniteSum) -> str:
        if self.norm != "auto":
            return self.norm
        if not has_view(problem):
            return "identity"
        several_elsewhere = shape(problem)[1] > 1 and is_elsewhere(problem)
        return "dense" if matrix_pays(problem) and not several_elsewhere else "diagonal"

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first outer iteration."""
        n = problem.n_samples
        kind = self._kind(problem)
        views: tuple[Any, Any] = (None, None)
        bends_down = False
        if has_view(problem):
            views = view_of(problem), view_of(problem)
            views[0].warm_up(dense=kind == "dense")
            bends_down = kind != "identity" and bool((views[0].penalty_curvatures(x) < 0.0).any())
        batch = max(n // _FIRST_BATCH, min(n, 256)) if self.batch_size == "auto" else int(self.batch_size)
        rows = first_rows(n, shape(problem)[0]) if kind == "dense" else n
        return State(
            x=x,
            memory=NoMemory(),
            scalars={
                # Only where P is near H does α = 1 stand for a Newton step.
                "alpha": 1.0 if kind == "dense" and shape(problem)[1] == 1 else UNBOUNDED,
                "batch_size": float(batch),
                "curvature_rows": float(rows),
                "contraction": 0.0,
                "cg_tolerance": CG_TOLERANCE,
                "expected_decrease": math.inf,
                "at_floor": 0.0,
                "nonconvex": float(bends_down),
            },
            work=Work(*views),
        )

    def evaluate(self, problem: FiniteSum, state: State) -> tuple[float, Vector]:
        """Full value and gradient at x, keeping what the curvature there needs."""
        view = state.work.there
        if hasattr(view, "expect"):
            view.expect(*self._plan(problem, state))
        return problem.value_and_gradient(state.x) if view is None else view.evaluate(state.x)

    def _plan(self, problem: FiniteSum, state: State) -> tuple[str, int, int, bool]:
        """What the next outer iteration is likely to ask of a view whose rows are elsewhere.

        The norm, the rows of P, the rows of a batch (0: no inner loop), and whether curvatures are raised.
        """
        n, scalars = problem.n_samples, state.scalars
        kind, rows, batch = self._kind(problem), rows_of_matrix(problem, state), int(scalars["batch_size"])
        inner = kind == "dense" and rows < n and self.batch_size == "auto" and batch * _LARGEST_BATCH <= n
        return kind, rows, batch if inner else 0, state.work.cautious

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """Norm, first step, inner steps; `judge` sees what they were worth."""
        work: Work = state.work
        random, kind = Draws(rows), self._kind(problem)
        work.time_is_up = rows.time_is_up
        if not work.before:
            work.swap_views()  # the evaluation at the starting point is the first reference
        report = EpochReport(alpha=state.scalars["alpha"])
        measure(problem, state, report, random, kind)
        ahead, work.ahead, work.left = work.ahead, {}, 0.0
        reference, gradient = state.x.copy(), state.gradient
        if state.scalars["nonconvex"] and not gradient.any():
            state.scalars["expected_decrease"] = 0.0
            doubt(state)  # nothing but the curvature can tell a minimum from a saddle point here
        size = math.sqrt(work.norm.dual(gradient))
        if work.escape is not None:
            step = work.escape_length * work.escape
            taken = NormedStep(step, work.model(step), 0.0, Exit.NEGATIVE_CURVATURE, 1)
            state.x += step
            report.steps += 1
        elif ahead:
            taken = NormedStep(ahead["step"], ahead["product"], ahead["length"], Exit.TOLERANCE, 0)
            state.x += taken.step
            report.steps += 1
        else:
            taken = self._step(problem, state, gradient, size, report)
            if taken.length == 0.0 and work.forget():
                # Curvatures of other places have made a norm that rounding does not survive.
                measure(problem, state, report, random, kind)
                size = math.sqrt(work.norm.dual(gradient))
                taken = self._step(problem, state, gradient, size, report)
        work.before = {
            "x": reference,
            "value": state.value,
            "gradient": gradient,
            "decrease": 0.5 * size * size,
            "predicted": taken.predicted(gradient) + work.left,
            "length": taken.length / size if size > 0.0 else 0.0,
            "inside": taken.exit == Exit.TOLERANCE,
            "bounded": taken.exit == Exit.BOUNDARY,
            "foretold": gradient + taken.product if work.exact and not is_elsewhere(problem) else None,
        }
        if work.escape is None and not work.exact and self._inner_steps_pay(problem, state):
            self._inner_loop(problem, state, reference, gradient, report, random)
        report.inner_steps = report.steps
        report.radius = state.scalars["alpha"] * size
        report.boundary_fraction = float(taken.exit in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE))
        report.negative_curvature = int(taken.exit == Exit.NEGATIVE_CURVATURE)
        report.cg_iterations = float(taken.products)
        return report

    def _step(self, problem: FiniteSum, state: State, gradient: Vector, size: float, report: EpochReport) -> NormedStep:
        """One trust-region step along ``gradient``, of P⁻¹-norm ``size``."""
        work: Work = state.work
        if work.exact and hasattr(work.here, "subspace"):
            return self._step_in_subspace(problem, state, gradient, size, report)
        radius = state.scalars["alpha"] * size
        pairs: list[tuple[Vector, Vector]] | None = [] if work.exact and directions_pay(problem, PAIRS) else None
        tolerance = state.scalars["cg_tolerance"] if work.exact else CG_TOLERANCE
        most = _MOST_PRODUCTS if self.max_cg == "auto" else int(self.max_cg)
        solve = functools.partial(preconditioned_cg, work.model, work.norm, gradient, give_up=work.time_is_up)
        taken = solve(radius, tolerance, most, pairs)
        if taken.exit is Exit.NEGATIVE_CURVATURE and state.scalars["alpha"] == UNBOUNDED:
            # Without a bound the model has no minimum: begin with a step as long as the gradient.
            state.scalars["alpha"] = report.alpha = 1.0
            taken = solve(size, CG_TOLERANCE, most)
        state.x += taken.step
        report.steps += 1
        work.products = taken.products
        if pairs is not None:
            work.remember(pairs)
        if work.exact:
            report.hessian_products += taken.products
            report.gradient_evaluations += taken.products * problem.n_samples
        return taken

    @staticmethod
    def _step_in_subspace(
        problem: FiniteSum, state: State, gradient: Vector, size: float, report: EpochReport
    ) -> NormedStep:
        """The same where every product with the Hessian is a round of messages: one round for a few directions."""
        work: Work = state.work
        space = work.here.subspace(gradient, work.norm, work.directions)
        taken: NormedStep = space.step(state.scalars["alpha"] * size)
        if taken.exit is Exit.NEGATIVE_CURVATURE and state.scalars["alpha"] == UNBOUNDED:
            state.scalars["alpha"] = report.alpha = 1.0
            taken = space.step(size)
        state.x += taken.step
        report.steps += 1
        work.left = space.left(taken)
        if dot(taken.step, taken.product) > 0.0:
            work.remember([(taken.step, taken.product)])
        report.hessian_products += taken.products
        report.gradient_evaluations += taken.products * problem.n_samples + space.sampled
        return taken

    def _inner_steps_pay(self, problem: FiniteSum, state: State) -> bool:
        """Whether to make inner steps: if they were asked for, if they are cheap, or if a step alone leaves much.

        A batch costs an eighth of a pass or more. While P is so good that a step on the full gradient leaves less than
        a tenth, another such step is the better use of the rows. Rows that are brought anyway, or stay on a device,
        cost next to nothing.
        """
        asked_for = self.batch_size != "auto" or self.inner_steps != "auto"
        cheap = is_elsewhere(problem) or hasattr(state.work.here, "inner_steps")
        return asked_for or cheap or state.scalars["contraction"] > POOR

    def _inner_loop(
        self,
        problem: FiniteSum,
        state: State,
        reference: Vector,
        gradient: Vector,
        report: EpochReport,
        random: Draws,
    ) -> None:
        """Steps on batches, until their noise is as large as what is left."""
        work: Work = state.work
        view = work.here
        batch = int(state.scalars["batch_size"])
        automatic = self.batch_size == "auto"
        most = _MOST_INNER_STEPS if self.inner_steps == "auto" else int(self.inner_steps)
        if work.rows >= problem.n_samples or (automatic and batch * _LARGEST_BATCH > problem.n_samples):
            return
        if automatic and hasattr(view, "inner_steps"):
            made = view.inner_steps(state.x, gradient, work.norm, state.scalars["alpha"], batch, most - 1, random())
            if made is not None:
                state.x[:], steps, drawn = made
                report.steps += steps
                report.batch_size = drawn
                report.gradient_evaluations += 2 * drawn * min(steps + 1, most - 1)
                if not steps:
                    state.scalars["batch_size"] = float(2 * batch)
                return
        slopes = view.penalty_slopes(reference)
        for s in range(1, most):
            changes = view.changes(state.x, batch, random(), not automatic)
            if changes is None:  # the rows are elsewhere, and no more of them come in this iteration
                return
            first, second, drawn = changes
            report.gradient_evaluations += 2 * drawn
            report.batch_size = drawn
            estimate = gradient + 0.5 * (first + second) + (view.penalty_slopes(state.x) - slopes)
            noise, signal = noise_and_signal(work.norm, first, second, estimate)
            if too_noisy(noise, signal):
                if s == 1 and automatic:
                    state.scalars["batch_size"] = float(2 * batch)
                return
            if state.scalars["nonconvex"] and signal > 2.0 * work.before["decrease"]:
                return  # longer than the reference's: the model no longer holds, and steps as long would run away
            self._step(problem, state, estimate, math.sqrt(signal), report)

    def judge(self, state: State, report: EpochReport) -> None:
        """Keep the trial point or go back, and learn from it."""
        judge(state, report, may_grow_batch=self.batch_size == "auto")
