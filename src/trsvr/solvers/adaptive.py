"""TRSVR with nothing to choose: the radius, the batch, the length of the inner loop and the norm follow what is seen.

One outer iteration at the reference point x̃, with f and the full gradient g̃ there:

1. *Norm.* P ≈ ∇²f(x̃): a matrix from m sampled rows where d is small against N, else the Hessian's diagonal.
2. *First step.* At x = x̃ the variance-reduced gradient is g̃ itself, without a batch: p ≈ argmin g̃ᵀp + ½ pᵀHp over
   ‖p‖_P ≤ α‖g̃‖_{P⁻¹}, by Steihaug's conjugate gradients in the norm P.
3. *Inner steps.* The same with ḡ = g̃ + (mean change of the gradient on a batch since x̃). The batch's two halves
   differ by its noise; the loop ends when ‖noise‖² exceeds a fraction of ‖ḡ‖² (both in P⁻¹). If it ends at once, the
   next batch is twice as large; a batch that would be half of the data is not worth drawing, and then the inner loop
   is empty.
4. *Judgement.* The full value and gradient at the new point are needed anyway, as the next reference. The step is
   kept if f fell (without function values: if ½(g̃ + g)ᵀ(x − x̃) < 0, which is exact for quadratics). Otherwise: back
   to x̃, a quarter of the radius, twice the rows for P, twice the batch.

With P from all rows, α ≥ 1 and no inner steps this is Newton's method; it gets there by itself where nothing less
works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._vectors import Vector, dot
from trsvr.parts.gradients import NoMemory
from trsvr.parts.norms import DenseNorm, DiagonalNorm, IdentityNorm
from trsvr.parts.subproblems import Exit, NormedStep, preconditioned_cg
from trsvr.problems.curvature import CurvatureView
from trsvr.problems.linear import LinearModel
from trsvr.problems.margins import MarginKernels
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.base import EpochReport, EpochRows, State

NORMS = ("auto", "dense", "diagonal", "identity")

# A dense P pays while it is small and the data are tall.
_DENSE_LIMIT = 1000
_DENSE_ROWS_PER_COLUMN = 20
# m, the rows of P: 4N/d cost about half a pass; fewer than 8d say too little about d × d numbers.
_ROWS_PER_PASS = 4.0
_ROWS_PER_COLUMN = 8
# First batch, as a part of the data, and the largest one that is worth drawing.
_FIRST_BATCH = 16
_LARGEST_BATCH = 2
_MOST_INNER_STEPS = 10
# The inner loop ends when the noise exceeds this part of the signal.
_NOISE = 0.3
# Conjugate gradients stop at this relative residual: with a dense P one product reaches it.
_CG_TOLERANCE = 0.1
_SHRINK, _GROW = 0.25, 2.0
# Raised curvatures are given up when the true ones are this part of them.
_TRUSTED = 0.5
_UNBOUNDED = 1e10
# A nonconvex run ends where the gradient is below this and no curvature is more negative than that, relatively.
_NEARLY = 1e-12
_SMALL_GRADIENT = 1e-9
_FLAT = 1e-7
_EPSILON = float(np.finfo(float).eps)
_ROOT_EPSILON = 2.0**-26


@dataclass
class _Work:
    """What an outer iteration builds; all of it can be rebuilt from the state."""

    here: Any  # a `CurvatureView`, or None: margins and curvatures at the reference
    there: Any  # the same at the trial point
    norm: Any = None
    model: Any = None  # v ↦ H v
    losses: Any = None  # the sampled curvature matrix, averaged over outer iterations while that helps
    averaged: int = 0
    mean_weight: float = math.nan
    before: dict[str, Any] = field(default_factory=dict)
    kept: bool = True  # whether the last step was kept
    cautious: bool = False  # whether curvatures are raised: the losses are nearly linear around here
    escape: Vector | None = None  # a direction of negative curvature at a point where the gradient vanishes
    escape_length: float = 1.0

    def swap_views(self) -> None:
        """The trial point becomes the reference."""
        self.here, self.there = self.there, self.here


@dataclass(frozen=True)
class AdaptiveTRSVR:
    """The rules; `trsvr.TRSVR` is its public face.

    Parameters
    ----------
    batch_size, inner_steps : int or "auto"
    norm : {"auto", "dense", "diagonal", "identity"}
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
                f"norm {self.norm!r} needs a linear model with one output, got {type(problem).__name__}; "
                "'identity' and 'auto' work with any problem"
            )
        if self.norm == "dense":
            d = problem.n_parameters
            _check.fits_in_memory(10 * 8 * d * d, f"norm 'dense' with {d} parameters", "'diagonal' needs no matrix")

    def _kind(self, problem: FiniteSum) -> str:
        if self.norm != "auto":
            return self.norm
        if not _has_view(problem):
            return "identity"
        d, n = problem.n_parameters, problem.n_samples
        return "dense" if d <= _DENSE_LIMIT and n >= _DENSE_ROWS_PER_COLUMN * d else "diagonal"

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first outer iteration."""
        n, d = problem.n_samples, problem.n_parameters
        kind = self._kind(problem)
        views: tuple[Any, Any] = (None, None)
        if _has_view(problem):
            view = _view_of(problem)
            view.warm_up(dense=kind == "dense")
            views = (view, _view_of(problem))
        batch = max(n // _FIRST_BATCH, min(n, 256)) if self.batch_size == "auto" else int(self.batch_size)
        rows = min(n, max(int(_ROWS_PER_PASS * n / d), _ROWS_PER_COLUMN * d)) if kind == "dense" else n
        return State(
            x=x,
            memory=NoMemory(),
            scalars={
                "alpha": 1.0 if kind == "dense" else _UNBOUNDED,
                "batch_size": float(batch),
                "curvature_rows": float(rows),
                "expected_decrease": math.inf,
                "at_floor": 0.0,
                "nonconvex": 0.0,
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
        kind, rows, batch = self._kind(problem), int(scalars["curvature_rows"]), int(scalars["batch_size"])
        inner = kind == "dense" and rows < n and (self.batch_size != "auto" or batch * _LARGEST_BATCH <= n)
        return kind, rows, batch if inner else 0, state.work.cautious

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """Norm, first step, inner steps; `judge` sees what they were worth."""
        work: _Work = state.work
        random = rows.random()
        if not work.before:
            work.swap_views()  # the evaluation at the starting point is the first reference
        report = EpochReport(alpha=state.scalars["alpha"])
        self._measure(problem, state, report, random)
        reference, gradient = state.x.copy(), state.gradient
        size = math.sqrt(work.norm.dual(gradient))
        if work.escape is None:
            taken = self._step(state, gradient, size, report)
        else:
            step = work.escape_length * work.escape
            taken = NormedStep(step, work.model(step), 0.0, Exit.NEGATIVE_CURVATURE, 1)
            state.x += step
            report.steps += 1
        work.before = {
            "x": reference,
            "value": state.value,
            "gradient": gradient,
            "decrease": 0.5 * size * size,
            "predicted": taken.predicted(gradient),
            "length": taken.length / size if size > 0.0 else 0.0,
            "exit": taken.exit,
        }
        if work.escape is None and isinstance(work.norm, DenseNorm) and report.curvature_rows < problem.n_samples:
            self._inner_loop(problem, state, reference, gradient, report, random)
        report.inner_steps = report.steps
        report.radius = state.scalars["alpha"] * size
        report.boundary_fraction = float(taken.exit in (Exit.BOUNDARY, Exit.NEGATIVE_CURVATURE))
        report.negative_curvature = int(taken.exit == Exit.NEGATIVE_CURVATURE)
        report.cg_iterations = float(taken.products)
        return report

    def _measure(self, problem: FiniteSum, state: State, report: EpochReport, random: np.random.Generator) -> None:
        """P and H at the reference."""
        work: _Work = state.work
        kind = self._kind(problem)
        n, d = problem.n_samples, problem.n_parameters
        report.curvature_rows = n
        if kind == "identity":
            work.norm = IdentityNorm()
            work.model = _full_product(problem, state)
            return
        view = work.here
        assert view is not None
        penalty = view.penalty_curvatures(state.x)
        if (penalty < 0.0).any():
            state.scalars["nonconvex"] = 1.0
        if work.cautious and view.be_cautious() > _TRUSTED and work.kept:
            work.cautious = False  # the raised curvatures are hardly more than the true ones: back among ordinary rows
            view.evaluate(state.x)
            report.gradient_evaluations += n
        if kind == "dense":
            sampled, taken = view.matrix(int(state.scalars["curvature_rows"]), random)
            report.curvature_rows = taken
            report.gradient_evaluations += taken * d // 4
            weight = view.total_weight()
            # An older sample is worth keeping while the curvatures have moved less than a sample is wrong.
            still = abs(weight - work.mean_weight) <= 0.3 * weight * math.sqrt(d / max(taken, 1))
            work.mean_weight = weight
            if work.losses is not None and work.averaged and still and taken < n:
                work.averaged += 1
                work.losses += (sampled - work.losses) / work.averaged
            else:
                work.losses, work.averaged = sampled, 1
            work.norm = DenseNorm(work.losses, penalty)
            work.model = work.norm.product
            return
        diagonal = view.diagonal()
        report.gradient_evaluations += n
        work.norm = DiagonalNorm(diagonal + np.abs(penalty))
        work.model = lambda v: view.product(v) + penalty * v

    def _step(self, state: State, gradient: Vector, size: float, report: EpochReport) -> NormedStep:
        """One trust-region step along ``gradient``, of P⁻¹-norm ``size``."""
        work: _Work = state.work
        radius = state.scalars["alpha"] * size
        taken = preconditioned_cg(work.model, work.norm, gradient, radius, _CG_TOLERANCE, self.max_cg)
        if taken.exit is Exit.NEGATIVE_CURVATURE and state.scalars["alpha"] == _UNBOUNDED:
            # Without a bound the model has no minimum: begin with a step as long as the gradient.
            state.scalars["alpha"] = report.alpha = 1.0
            taken = preconditioned_cg(work.model, work.norm, gradient, size, _CG_TOLERANCE, self.max_cg)
        state.x += taken.step
        report.steps += 1
        if not isinstance(work.norm, DenseNorm):
            report.hessian_products += taken.products
            report.gradient_evaluations += taken.products * report.curvature_rows
        return taken

    def _inner_loop(
        self,
        problem: FiniteSum,
        state: State,
        reference: Vector,
        gradient: Vector,
        report: EpochReport,
        random: np.random.Generator,
    ) -> None:
        work: _Work = state.work
        view = work.here
        assert view is not None
        batch = int(state.scalars["batch_size"])
        automatic = self.batch_size == "auto"
        most = _MOST_INNER_STEPS if self.inner_steps == "auto" else int(self.inner_steps)
        if automatic and batch * _LARGEST_BATCH > problem.n_samples:
            return
        slopes = view.penalty_slopes(reference)
        for s in range(1, most):
            changes = view.changes(state.x, batch, random)
            if changes is None:  # the rows are elsewhere, and no more of them come in this iteration
                return
            first, second, drawn = changes
            report.gradient_evaluations += 2 * drawn
            report.batch_size = drawn
            estimate = gradient + 0.5 * (first + second) + (view.penalty_slopes(state.x) - slopes)
            signal = work.norm.dual(estimate)
            noise = work.norm.dual(0.5 * (first - second))
            if not noise <= _NOISE * signal:
                if s == 1 and automatic:
                    state.scalars["batch_size"] = float(2 * batch)
                return
            self._step(state, estimate, math.sqrt(signal), report)

    # ------------------------------------------------------------------------------------------------- judgement

    def judge(self, state: State, report: EpochReport) -> None:
        """Keep the trial point or go back, and learn from it."""
        work: _Work = state.work
        before = work.before
        scalars = state.scalars
        finite = bool(np.isfinite(state.gradient).all()) and not math.isinf(state.value)
        decrease = 0.5 * work.norm.dual(state.gradient) if finite else math.inf
        if finite and self._is_better(state, before, decrease):
            work.escape = None
            work.kept = True
            contraction = decrease / before["decrease"] if before["decrease"] > 0.0 else 0.0
            if before["exit"] != Exit.TOLERANCE:
                scalars["alpha"] = min(_GROW * scalars["alpha"], _UNBOUNDED)
            if contraction > 0.3:
                # P was of little help. It may be the sample, or the curvature that has moved: start a new one.
                work.averaged = 0
                if isinstance(work.norm, DenseNorm) and contraction > 0.7:
                    scalars["curvature_rows"] *= 2.0
            work.swap_views()
            exact = isinstance(work.norm, DenseNorm) and work.norm.convex
            scalars["expected_decrease"] = decrease if exact else before["predicted"]
            if scalars["nonconvex"]:
                self._doubt(state)
            return
        rounding = work.escape is None and abs(before["value"] - state.value) <= 64 * _EPSILON * abs(before["value"])
        step = float(np.abs(state.x - before["x"]).max())
        tiny = step <= _EPSILON * float(np.abs(before["x"]).max(initial=0.0))
        if tiny or (finite and rounding and before["predicted"] <= 64 * _EPSILON * abs(before["value"])):
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
            return
        scalars["alpha"] = _SHRINK * min(scalars["alpha"], before["length"] or scalars["alpha"])
        scalars["curvature_rows"] *= 2.0
        scalars["batch_size"] *= 2.0 if self.batch_size == "auto" else 1.0

    def _doubt(self, state: State) -> None:
        """Without convexity a small decrease proves nothing: ask for a small gradient, then for no way further down.

        If the Hessian has a direction of negative curvature, the next outer iteration steps along it.
        """
        work, scalars = state.work, state.scalars
        if scalars["expected_decrease"] > _NEARLY * max(abs(state.value), np.finfo(float).tiny):
            return
        if math.sqrt(dot(state.gradient, state.gradient)) > _SMALL_GRADIENT:
            scalars["expected_decrease"] = math.inf
            return
        penalty = work.here.penalty_curvatures(state.x)
        if (penalty >= 0.0).all():
            return
        downwards = _negative_curvature(work.here, penalty, dense=isinstance(work.norm, DenseNorm))
        if downwards is not None:
            scalars["expected_decrease"] = math.inf
            work.escape = downwards if dot(downwards, state.gradient) <= 0.0 else -downwards
            work.escape_length = 1.0

    @staticmethod
    def _is_better(state: State, before: dict[str, Any], decrease: float) -> bool:
        if math.isnan(state.value):
            # No function values: the trapezoid rule along the step.
            return dot(before["gradient"] + state.gradient, state.x - before["x"]) < 0.0
        fell = before["value"] - state.value
        if abs(fell) <= 8 * _EPSILON * abs(before["value"]):
            return decrease < before["decrease"]
        return bool(fell > 0.0)


def _has_view(problem: Any) -> bool:
    return (hasattr(problem, "curvature_view") or isinstance(problem, LinearModel)) and isinstance(
        problem.kernels, MarginKernels
    )


def _view_of(problem: Any) -> Any:
    return problem.curvature_view() if hasattr(problem, "curvature_view") else CurvatureView(problem)


def _negative_curvature(view: Any, penalty: Vector, dense: bool) -> Vector | None:
    """A unit vector v with vᵀHv clearly negative; None if none is found.

    With a dense norm the answer is exact, from the eigenvalues of the full Hessian. Otherwise the coordinates are
    tried, and conjugate gradients from a fixed start, which meet negative curvature if their Krylov space contains it.
    """
    limit = -_FLAT * float(np.abs(penalty).max())
    if dense:
        matrix = view.matrix(view.n_rows, np.random.default_rng(0))[0] + np.diag(penalty)
        values, vectors = np.linalg.eigh(matrix)
        return np.ascontiguousarray(vectors[:, 0]) if values[0] < limit else None
    diagonal = view.diagonal() + penalty
    lowest = int(diagonal.argmin())
    if diagonal[lowest] < limit:
        unit = np.zeros_like(penalty)
        unit[lowest] = 1.0
        return unit
    start = np.cos(np.arange(1.0, penalty.size + 1.0))
    norm = DiagonalNorm(np.abs(diagonal))
    found = preconditioned_cg(lambda v: view.product(v) + penalty * v, norm, start, math.inf, 1e-8, 200)
    if found.exit is not Exit.NEGATIVE_CURVATURE:
        return None
    return found.step / math.sqrt(dot(found.step, found.step))


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
