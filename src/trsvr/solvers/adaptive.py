"""TRSVR with nothing to choose: the radius, the batch, the length of the inner loop and the norm follow what is seen.

One outer iteration at the reference point x̃, with f and the full gradient g̃ there:

1. *Norm.* P ≈ ∇²f(x̃): a matrix from m sampled rows where that costs less than some tens of Hessian products (with
   several outputs a matrix for each), else the Hessian's diagonal, improved by the directions and products of
   earlier conjugate gradients, or by the largest curvatures where they have taken long. It is built anew only when
   the curvatures have moved or the last one was of little help.
2. *First step.* At x = x̃ the variance-reduced gradient is g̃ itself, without a batch: p ≈ argmin g̃ᵀp + ½ pᵀHp over
   ‖p‖_P ≤ α‖g̃‖_{P⁻¹}, by Steihaug's conjugate gradients in the norm P. H is P itself, or the whole Hessian where P is
   no good model of it.
3. *Inner steps.* The same with ḡ = g̃ + (mean change of the gradient on a batch since x̃). The batch's two halves
   differ by its noise; the loop ends when ‖noise‖² exceeds a fraction of ‖ḡ‖² (both in P⁻¹). If it ends at once, the
   next batch is twice as large; a batch that would be half of the data is not worth drawing, and then the inner loop
   is empty. So it is while the first step alone leaves less than a tenth.
4. *Judgement.* The full value and gradient at the new point are needed anyway, as the next reference. The step is
   kept if f fell (without function values: if ½(g̃ + g)ᵀ(x − x̃) < 0, which is exact for quadratics). Otherwise: back
   to x̃, a quarter of the radius, twice the rows for P, twice the batch.

With P from all rows, α ≥ 1 and no inner steps this is Newton's method; it gets there by itself where nothing less
works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trsvr import _check
from trsvr._vectors import Vector, dot
from trsvr.parts.acceptance import Point, is_better
from trsvr.parts.gradients import NoMemory
from trsvr.parts.norms import (
    BlockNorm,
    DenseNorm,
    DiagonalNorm,
    IdentityNorm,
    NystromNorm,
    QuasiNewtonNorm,
    ShiftNorm,
    largest_curvatures,
    stiffness,
)
from trsvr.parts.subproblems import Exit, NormedStep, preconditioned_cg
from trsvr.parts.variance import noise_and_signal, too_noisy
from trsvr.problems.curvature import CurvatureView
from trsvr.problems.linear import LinearModel
from trsvr.problems.output_curvature import OutputView
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.base import EpochReport, EpochRows, State, record_of, restore_to
from trsvr.solvers.costs import directions_pay, first_rows, is_elsewhere, matrix_pays, shape
from trsvr.solvers.endings import RIGHT, doubt, left_to_gain

NORMS = ("auto", "dense", "diagonal", "identity")

# With several outputs a new P costs about so many Hessian products: one that needs fewer is kept.
_PRODUCTS_PER_BLOCKS = 8
# Directions of conjugate gradients that are remembered.
_PAIRS = 20
# Where they need more products than the first of these, the largest curvatures are sought: so many of them, on a part
# of the rows, but not on fewer than some for each.
_MANY_PRODUCTS = 25
_RANK = 50
_ROWS_OF_A_SKETCH = 10
_ROWS_PER_RANK = 4
# First batch, as a part of the data, and the largest one that is worth drawing.
_FIRST_BATCH = 16
_LARGEST_BATCH = 2
_MOST_INNER_STEPS = 10
# Conjugate gradients stop at this relative residual: with a dense P as the model one product reaches it. On the whole
# Hessian they go on until the model is no better than that, but not far into the rounding of f.
_CG_TOLERANCE = 0.1
_CG_LOOSEST = 0.2
_CG_ROUNDING = 1e-18
_CG_ENOUGH = 0.3
# The radius after a step that failed, after one that ended at it, and where the model was right all the same.
_SHRINK, _GROW, _LEAP = 0.25, 2.0, 4.0
# An outer iteration that leaves more than this part of ½‖g‖²_{P⁻¹} was of little help, or of hardly any.
_HELPFUL, _POOR, _USELESS = 0.03, 0.1, 0.7
# Curvatures that have changed by less than this part in all are the same.
_MOVED = 0.1
# Raised curvatures are given up when the true ones are this part of them; where they can be raised more and less, when
# hardly anything is left of it.
_TRUSTED = 0.5
_CONVINCED = 0.99
# Part of the largest curvature that every row counts with at least, at first; the change when a step fails or not.
_FIRST_CAUTION = 1e-3
_MORE_CAUTION = 4.0
_UNBOUNDED = 1e10
_EPSILON = float(np.finfo(float).eps)
_ROOT_EPSILON = 2.0**-26


@dataclass
class _Work:
    """What an outer iteration builds, and what it leaves for the next one."""

    here: Any  # a view of the curvature at the reference, or None where the problem has none
    there: Any  # the same at the trial point
    norm: Any = None
    model: Any = None  # v ↦ H v
    exact: bool = False  # whether the model is the whole Hessian
    losses: Any = None  # curvature of the losses: a matrix, one for each output, or a diagonal
    rows: int = 0  # from which it was built
    averaged: int = 0  # samples in it: older ones are kept while that helps
    total_weight: float = math.nan
    values: Any = None  # largest curvatures in parts of the diagonal, where they were sought
    vectors: Any = None
    directions: Any = None  # of earlier conjugate gradients
    images: Any = None  # their products with the Hessian
    before: dict[str, Any] = field(default_factory=dict)
    kept: bool = True  # whether the last step was kept
    products: int = 0  # that the last step has cost
    cautious: bool = False  # whether curvatures are raised: the losses are nearly linear around here
    by_degrees: bool = False  # whether that is being given up by degrees, with P of all rows
    caution: float = _FIRST_CAUTION  # of the largest curvature, so much counts for every row then
    escape: Vector | None = None  # a direction of negative curvature at a point where the gradient vanishes
    escape_length: float = 1.0
    ahead: dict[str, Any] = field(default_factory=dict)  # a step that has been found where a run seemed to end
    convexity: float | None = None  # of the penalty, where nothing else says what a gradient is worth
    softness: float = 0.0  # by how much H is softer than P where they differ most: gains over ½‖g‖²_{P⁻¹}, of late
    left: float = 0.0  # what the last step has left of the model's decrease, where it was made in a subspace

    # Built anew by every outer iteration; all other fields are recorded in checkpoints.
    rebuilt: ClassVar[tuple[str, ...]] = ("there", "norm", "model", "convexity", "left")

    def record(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        return record_of(self, self.rebuilt)

    def restore(self, record: dict[str, Any]) -> None:
        """Take over such a record."""
        restore_to(self, record, self.rebuilt)

    def swap_views(self) -> None:
        """The trial point becomes the reference."""
        self.here, self.there = self.there, self.here

    def forget(self) -> bool:
        """Let the next norm be a diagonal again; returns whether anything had been learnt beyond that."""
        learnt = self.directions is not None or self.values is not None
        self.directions = self.images = self.values = self.vectors = None
        return learnt

    def remember(self, pairs: list[tuple[Vector, Vector]]) -> None:
        """Keep the newest directions and products whose curvatures are more than rounding."""
        pairs = [(s, y) for s, y in pairs if _is_more_than_rounding(s, y)]
        if pairs:
            directions, images = (np.array(part) for part in zip(*pairs[-_PAIRS:], strict=True))
            if self.directions is not None:
                directions = np.concatenate([self.directions, directions])[-_PAIRS:]
                images = np.concatenate([self.images, images])[-_PAIRS:]
            self.directions, self.images = directions, images


class _Draws:
    """The epoch's random numbers, made when they are first asked for: many epochs need none."""

    def __init__(self, rows: EpochRows) -> None:
        self._rows = rows
        self._generator: np.random.Generator | None = None

    def __call__(self) -> np.random.Generator:
        if self._generator is None:
            self._generator = self._rows.random()
        return self._generator


@dataclass(frozen=True)
class AdaptiveTRSVR:
    """The rules; `trsvr.TRSVR` is its public face.

    Parameters
    ----------
    batch_size, inner_steps : int or "auto"
        A number for batch_size means rows drawn uniformly with replacement; "auto" takes runs of consecutive rows.
    norm : {"auto", "dense", "diagonal", "identity"}
        With several outputs "dense" is a matrix for each of them.
    max_cg : int
        Conjugate-gradient iterations per step at most.
    """

    batch_size: int | str = "auto"
    inner_steps: int | str = "auto"
    norm: str = "auto"
    max_cg: int = 500

    needs_reference = True

    def __post_init__(self) -> None:
        for name, value in (("batch_size", self.batch_size), ("inner_steps", self.inner_steps)):
            if value != "auto":
                _check.whole(name, value)
        _check.one_of("norm", self.norm, NORMS)
        _check.whole("max_cg", self.max_cg)

    def check(self, problem: FiniteSum) -> None:
        """Raise ValueError if this cannot run on the problem."""
        if self.batch_size != "auto":
            _check.whole("batch_size", self.batch_size, at_most=problem.n_samples)
        if self.norm in ("dense", "diagonal") and not _has_view(problem):
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
        if not _has_view(problem):
            return "identity"
        several_elsewhere = shape(problem)[1] > 1 and is_elsewhere(problem)
        return "dense" if matrix_pays(problem) and not several_elsewhere else "diagonal"

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first outer iteration."""
        n = problem.n_samples
        kind = self._kind(problem)
        views: tuple[Any, Any] = (None, None)
        bends_down = False
        if _has_view(problem):
            views = _view_of(problem), _view_of(problem)
            views[0].warm_up(dense=kind == "dense")
            bends_down = kind != "identity" and bool((views[0].penalty_curvatures(x) < 0.0).any())
        batch = max(n // _FIRST_BATCH, min(n, 256)) if self.batch_size == "auto" else int(self.batch_size)
        rows = first_rows(n, shape(problem)[0]) if kind == "dense" else n
        return State(
            x=x,
            memory=NoMemory(),
            scalars={
                # Only where P is near H does α = 1 stand for a Newton step.
                "alpha": 1.0 if kind == "dense" and shape(problem)[1] == 1 else _UNBOUNDED,
                "batch_size": float(batch),
                "curvature_rows": float(rows),
                "contraction": 0.0,
                "cg_tolerance": _CG_TOLERANCE,
                "expected_decrease": math.inf,
                "at_floor": 0.0,
                "nonconvex": float(bends_down),
            },
            work=_Work(*views),
        )

    # ------------------------------------------------------------------------------------------ one outer iteration

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
        kind, rows, batch = self._kind(problem), _rows_of_matrix(problem, state), int(scalars["batch_size"])
        inner = kind == "dense" and rows < n and self.batch_size == "auto" and batch * _LARGEST_BATCH <= n
        return kind, rows, batch if inner else 0, state.work.cautious

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """Norm, first step, inner steps; `judge` sees what they were worth."""
        work: _Work = state.work
        random = _Draws(rows)
        if not work.before:
            work.swap_views()  # the evaluation at the starting point is the first reference
        report = EpochReport(alpha=state.scalars["alpha"])
        self._measure(problem, state, report, random)
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
                self._measure(problem, state, report, random)
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

    def _measure(self, problem: FiniteSum, state: State, report: EpochReport, random: _Draws) -> None:
        """P and H at the reference."""
        work: _Work = state.work
        view = work.here
        kind = self._kind(problem)
        if kind == "identity":
            work.norm = IdentityNorm() if is_elsewhere(problem) else _with_pairs(IdentityNorm(), work)
            work.model, work.exact = _full_product(problem, state), True
            work.convexity = None if view is None else float(view.penalty_curvatures(state.x).min())
            report.curvature_rows = problem.n_samples
            return
        penalty = view.penalty_curvatures(state.x)
        if (penalty < 0.0).any():
            state.scalars["nonconvex"] = 1.0
        if work.cautious and self._raise_curvatures(state) and work.kept:
            work.cautious = False  # the raised curvatures are hardly more than the true ones: back among ordinary rows
            view.evaluate(state.x)
            report.gradient_evaluations += problem.n_samples
        weight = view.total_weight()
        moved = abs(weight - work.total_weight) / weight if weight > 0.0 else 0.0
        work.total_weight = weight
        moved = math.inf if math.isnan(moved) or not work.kept else moved
        if work.cautious and moved <= _MOVED and self._is_held_back(state):
            work.by_degrees, work.caution = True, _FIRST_CAUTION
        if kind == "diagonal":
            anew = work.losses is None or moved > _MOVED
            if anew:
                work.losses = view.diagonal()
                report.gradient_evaluations += problem.n_samples
            report.curvature_rows = problem.n_samples
            work.norm = DiagonalNorm(work.losses + stiffness(penalty))
            if hasattr(view, "sketch") and directions_pay(problem, _RANK):
                self._sketch(problem, state, report, random, anew)
            if work.values is not None:
                work.norm = NystromNorm(work.norm.diagonal, work.values, work.vectors)
            elif directions_pay(problem, _PAIRS) and not is_elsewhere(problem):
                work.norm = _with_pairs(work.norm, work)
            work.exact = True
        else:
            self._sample(problem, state, report, random, moved)
            several = work.losses.ndim == 3
            work.norm = (BlockNorm if several else DenseNorm)(work.losses, penalty)
            # Where the curvatures stand still and the steps are poor all the same, P is no good model of the Hessian.
            still = moved <= _MOVED and work.rows < problem.n_samples and not is_elsewhere(problem)
            work.exact = several or (still and (work.exact or state.scalars["contraction"] > _POOR))
        outputs = shape(problem)[1]
        if outputs > 1:
            work.norm = ShiftNorm(work.norm, penalty, outputs)
        work.model = (lambda v: view.product(v) + penalty * v) if work.exact else work.norm.product

    @staticmethod
    def _is_held_back(state: State) -> bool:
        """Whether the last step left much, although P is of all rows: then it is the raised curvatures."""
        work, scalars = state.work, state.scalars
        whole = getattr(work.here, "graded", False) and work.rows >= work.here.n_rows and not scalars["nonconvex"]
        return bool(whole and not _is_graded(state) and scalars["contraction"] > _POOR)

    @staticmethod
    def _raise_curvatures(state: State) -> bool:
        """Raise them as far as caution asks for; returns whether that was hardly any more than the true ones."""
        work: _Work = state.work
        if not _is_graded(state):
            return bool(work.here.be_cautious() > _TRUSTED)
        return bool(work.here.be_cautious(min(work.caution / _FIRST_CAUTION, 1.0), work.caution) > _CONVINCED)

    def _sketch(self, problem: FiniteSum, state: State, report: EpochReport, random: _Draws, anew: bool) -> None:
        """The largest curvatures, once conjugate gradients have needed many products, and then with every diagonal."""
        work: _Work = state.work
        if not (anew if work.values is not None else work.products > _MANY_PRODUCTS):
            return
        rank = min(_RANK, problem.n_parameters)
        rows = min(max(problem.n_samples // _ROWS_OF_A_SKETCH, _ROWS_PER_RANK * rank), problem.n_samples)

        def product(directions: Any) -> Any:
            images, taken = work.here.sketch(directions, rows, random())
            report.gradient_evaluations += taken * rank
            return images

        work.values, work.vectors = largest_curvatures(work.norm.diagonal, product, rank, random())

    def _sample(self, problem: FiniteSum, state: State, report: EpochReport, random: _Draws, moved: float) -> None:
        """The sampled matrices of P, unless the old ones will do."""
        work: _Work = state.work
        d, outputs = shape(problem)
        # An older sample is worth keeping while the curvatures have moved less than a sample is wrong.
        still = moved <= 0.3 * math.sqrt(d / max(work.rows, 1)) and work.rows < problem.n_samples
        report.curvature_rows = work.rows
        if work.losses is not None and work.averaged and still and state.scalars["contraction"] <= _HELPFUL:
            return
        if work.losses is not None and outputs > 1 and work.kept and work.products < _PRODUCTS_PER_BLOCKS:
            return
        rows = _rows_of_matrix(problem, state)
        sampled, taken = work.here.matrix(rows, random()) if outputs == 1 else work.here.matrices(rows, random())
        report.gradient_evaluations += taken * d // 4
        report.curvature_rows = work.rows = taken // outputs
        if work.losses is not None and work.averaged and still:
            work.averaged += 1
            work.losses = work.losses + (sampled - work.losses) / work.averaged
        else:
            work.losses, work.averaged = sampled, 1

    def _step(self, problem: FiniteSum, state: State, gradient: Vector, size: float, report: EpochReport) -> NormedStep:
        """One trust-region step along ``gradient``, of P⁻¹-norm ``size``."""
        work: _Work = state.work
        if work.exact and hasattr(work.here, "subspace"):
            return self._step_in_subspace(problem, state, gradient, size, report)
        radius = state.scalars["alpha"] * size
        pairs: list[tuple[Vector, Vector]] | None = [] if work.exact and directions_pay(problem, _PAIRS) else None
        tolerance = state.scalars["cg_tolerance"] if work.exact else _CG_TOLERANCE
        taken = preconditioned_cg(work.model, work.norm, gradient, radius, tolerance, self.max_cg, pairs)
        if taken.exit is Exit.NEGATIVE_CURVATURE and state.scalars["alpha"] == _UNBOUNDED:
            # Without a bound the model has no minimum: begin with a step as long as the gradient.
            state.scalars["alpha"] = report.alpha = 1.0
            taken = preconditioned_cg(work.model, work.norm, gradient, size, _CG_TOLERANCE, self.max_cg)
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
        work: _Work = state.work
        space = work.here.subspace(gradient, work.norm, work.directions)
        taken: NormedStep = space.step(state.scalars["alpha"] * size)
        if taken.exit is Exit.NEGATIVE_CURVATURE and state.scalars["alpha"] == _UNBOUNDED:
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
        return asked_for or cheap or state.scalars["contraction"] > _POOR

    def _inner_loop(
        self,
        problem: FiniteSum,
        state: State,
        reference: Vector,
        gradient: Vector,
        report: EpochReport,
        random: _Draws,
    ) -> None:
        work: _Work = state.work
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

    # ------------------------------------------------------------------------------------------------- judgement

    def judge(self, state: State, report: EpochReport) -> None:
        """Keep the trial point or go back, and learn from it."""
        work: _Work = state.work
        before = work.before
        scalars = state.scalars
        finite = bool(np.isfinite(state.gradient).all()) and not math.isinf(state.value)
        decrease = 0.5 * work.norm.dual(state.gradient) if finite else math.inf
        reference = Point(before["x"], before["value"], before["gradient"], before["decrease"])
        if finite and is_better(reference, Point(state.x, state.value, state.gradient, decrease)):
            work.escape = None
            refused, work.kept = not work.kept, True
            if work.cautious and not refused:
                work.caution /= _MORE_CAUTION
            scalars["contraction"] = decrease / before["decrease"] if before["decrease"] > 0.0 else 0.0
            if not before["inside"] and not (refused and scalars["nonconvex"]):
                right = work.exact and before["value"] - state.value >= RIGHT * before["predicted"]
                scalars["alpha"] = min((_LEAP if right else _GROW) * scalars["alpha"], _UNBOUNDED)
            if scalars["contraction"] > _USELESS and isinstance(work.norm, DenseNorm):
                # P was of hardly any help. It may be the sample, or the curvature that has moved: start a new one.
                work.averaged = 0
                scalars["curvature_rows"] *= 2.0
            work.swap_views()
            left = left_to_gain(state, decrease, report)
            scalars["cg_tolerance"] = self._next_tolerance(state, decrease, left)
            # With raised curvatures steps are short, and that they gain little says nothing.
            scalars["expected_decrease"] = math.inf if work.cautious and _is_graded(state) else left
            if scalars["nonconvex"]:
                doubt(state)
            elif before["length"] >= 1.0 and scalars["contraction"] > _USELESS and self._is_rounding(state):
                scalars["at_floor"] = 1.0  # after a full step neither values nor gradients tell these points apart
            return
        rounding = work.escape is None and self._is_rounding(state)
        step = float(np.abs(state.x - before["x"]).max())
        tiny = step <= _EPSILON * float(np.abs(before["x"]).max(initial=0.0))
        if tiny or (finite and rounding):
            scalars["at_floor"] = 1.0
        state.x[:] = before["x"]
        state.value, state.gradient = before["value"], before["gradient"]
        report.rejected = 1
        work.kept = False
        if work.escape is not None:
            work.escape_length *= _SHRINK
            work.escape = work.escape if work.escape_length > _EPSILON else None
            return
        work.averaged = 0
        if work.here is not None and not work.cautious:
            # It is more often the curvature that is too small, far from the minimiser, than the sample.
            work.cautious = True
            if not scalars["nonconvex"]:
                return
        elif work.by_degrees:
            work.by_degrees = False  # it was too early
            return
        elif _is_graded(state) and work.caution < 1.0:
            work.caution = min(_MORE_CAUTION * work.caution, 1.0)
            return
        scalars["alpha"] = _SHRINK * min(scalars["alpha"], before["length"] or scalars["alpha"])
        if not isinstance(work.norm, DenseNorm):
            return  # the whole Hessian was the model: it is not the sample that was wrong
        scalars["curvature_rows"] *= 2.0
        scalars["batch_size"] *= 2.0 if self.batch_size == "auto" else 1.0

    @staticmethod
    def _is_rounding(state: State) -> bool:
        """Whether f has changed by no more than its rounding, and was not expected to."""
        before = state.work.before
        rounding = 64 * _EPSILON * abs(before["value"])
        return bool(abs(before["value"] - state.value) <= rounding and before["predicted"] <= rounding)

    @staticmethod
    def _next_tolerance(state: State, decrease: float, left: float) -> float:
        """How exactly the next subproblem on the whole Hessian is worth solving.

        The model foretold a gradient; what came differs by a part w of the last one, in P⁻¹. That part falls with the
        gradient: w·‖g⁺‖/‖g‖ is what to expect of a quadratic error, and the half of that way is safe. No more than
        ends the run, where that is known: what is left to gain falls with the square of the residual.
        """
        before, norm = state.work.before, state.work.norm
        if before["foretold"] is None or not before["inside"] or not min(decrease, before["decrease"]) > 0.0:
            return _CG_TOLERANCE
        wrong = math.sqrt(0.5 * norm.dual(state.gradient - before["foretold"]) / before["decrease"])
        expected = wrong * (decrease / before["decrease"]) ** 0.25
        rounding = math.sqrt(_CG_ROUNDING * abs(state.value) / decrease)
        largest = float(np.abs(state.gradient).max())
        part = state.wanted.decrease / left if left > 0.0 else 0.0  # the estimate may underflow
        enough = _CG_ENOUGH * min(math.sqrt(part), state.wanted.gradient / largest)
        return min(max(expected, rounding, enough), _CG_LOOSEST)


def _has_view(problem: Any) -> bool:
    return hasattr(problem, "curvature_view") or isinstance(problem, LinearModel)


def _view_of(problem: Any) -> Any:
    if hasattr(problem, "curvature_view"):
        return problem.curvature_view()
    return CurvatureView(problem) if problem.n_outputs == 1 else OutputView(problem)


def _is_graded(state: State) -> bool:
    """Whether caution has degrees: a step on the whole Hessian can fail only because curvatures change on its way."""
    work: _Work = state.work
    return (work.exact or work.by_degrees) and not state.scalars["nonconvex"] and getattr(work.here, "graded", False)


def _rows_of_matrix(problem: FiniteSum, state: State) -> int:
    """Rows that P is made of next; if all of them count, those of weight zero come along."""
    rows = state.scalars["curvature_rows"]
    return int(rows if rows < problem.n_samples else state.work.there.n_rows)


def _is_more_than_rounding(direction: Vector, image: Vector) -> bool:
    """Whether sᵀHs has a digit that is right, and is large enough to divide by."""
    sizes = dot(np.abs(direction), np.abs(image))
    tiny = float(np.finfo(float).tiny)
    return bool(dot(direction, image) > max(16.0 * _EPSILON * sizes, tiny) and dot(image, image) > tiny)


def _with_pairs(norm: Any, work: _Work) -> Any:
    """The norm, improved by what earlier conjugate gradients have seen."""
    if work.directions is None:
        return norm
    diagonal = getattr(norm, "diagonal", None)
    if diagonal is None:
        newest, image = work.directions[-1], work.images[-1]
        diagonal = np.full_like(newest, dot(image, image) / dot(newest, image))
    return QuasiNewtonNorm(diagonal, work.directions, work.images)


def _full_product(problem: Any, state: State) -> Any:
    """V ↦ H v over all rows: the problem's own product, or a difference of full gradients."""
    x = state.x.copy()
    if hasattr(problem, "hessian_product"):
        return lambda v: problem.hessian_product(x, None, v)
    gradient = state.gradient
    scale = _ROOT_EPSILON * (1.0 + float(np.linalg.norm(x)))

    def difference(v: Vector) -> Vector:
        h = scale / float(np.linalg.norm(v))
        return np.asarray((problem.value_and_gradient(x + h * v)[1] - gradient) / h)

    return difference
