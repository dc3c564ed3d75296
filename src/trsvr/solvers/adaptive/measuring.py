"""P and H at the reference: built, kept or improved, as the last iterations have shown it to pay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr._arrays import ROOT_EPSILON, Vector
from trsvr._vectors import dot
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
from trsvr.problems.curvature import CurvatureView
from trsvr.problems.linear import LinearModel
from trsvr.problems.output_curvature import OutputView
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.adaptive.costs import directions_pay, is_elsewhere, shape
from trsvr.solvers.adaptive.work import FIRST_CAUTION, PAIRS, POOR, Draws, Work, is_graded
from trsvr.solvers.base import EpochReport, State

# With several outputs a new P costs about so many Hessian products: one that needs fewer is kept.
_PRODUCTS_PER_BLOCKS = 8
# Where conjugate gradients need more products than the first of these, the largest curvatures are sought: so many of
# them, on a part of the rows, but not on fewer than some for each.
_MANY_PRODUCTS = 25
_RANK = 50
_ROWS_OF_A_SKETCH = 10
_ROWS_PER_RANK = 4
# A sample of P is kept while outer iterations leave less than this part of ½‖g‖²_{P⁻¹}.
_HELPFUL = 0.03
# Curvatures that have changed by less than this part in all are the same.
_MOVED = 0.1
# Raised curvatures are given up when the true ones are this part of them; where they can be raised more and less, when
# hardly anything is left of it.
_TRUSTED = 0.5
_CONVINCED = 0.99


def measure(problem: FiniteSum, state: State, report: EpochReport, random: Draws, kind: str) -> None:
    """P, of that kind, and H at the reference."""
    work: Work = state.work
    view = work.here
    if kind == "identity":
        work.norm = IdentityNorm() if is_elsewhere(problem) else _with_pairs(IdentityNorm(), work)
        work.model, work.exact = _full_product(problem, state), True
        work.convexity = None if view is None else float(view.penalty_curvatures(state.x).min())
        report.curvature_rows = problem.n_samples
        return
    penalty = view.penalty_curvatures(state.x)
    if (penalty < 0.0).any():
        state.scalars["nonconvex"] = 1.0
    if work.cautious and _raise_curvatures(state) and work.kept:
        work.cautious = False  # the raised curvatures are hardly more than the true ones: back among ordinary rows
        view.evaluate(state.x)
        report.gradient_evaluations += problem.n_samples
    weight = view.total_weight()
    moved = abs(weight - work.total_weight) / weight if weight > 0.0 else 0.0
    work.total_weight = weight
    moved = math.inf if math.isnan(moved) or not work.kept else moved
    if work.cautious and moved <= _MOVED and _is_held_back(state):
        work.by_degrees, work.caution = True, FIRST_CAUTION
    if kind == "diagonal":
        anew = work.losses is None or moved > _MOVED
        if anew:
            work.losses = view.diagonal()
            report.gradient_evaluations += problem.n_samples
        report.curvature_rows = problem.n_samples
        work.norm = DiagonalNorm(work.losses + stiffness(penalty))
        if hasattr(view, "sketch") and directions_pay(problem, _RANK):
            _sketch(problem, state, report, random, anew)
        if work.values is not None:
            work.norm = NystromNorm(work.norm.diagonal, work.values, work.vectors)
        elif directions_pay(problem, PAIRS) and not is_elsewhere(problem):
            work.norm = _with_pairs(work.norm, work)
        work.exact = True
    else:
        _sample(problem, state, report, random, moved)
        several = work.losses.ndim == 3
        work.norm = (BlockNorm if several else DenseNorm)(work.losses, penalty)
        # Where the curvatures stand still and the steps are poor all the same, P is no good model of the Hessian.
        still = moved <= _MOVED and work.rows < problem.n_samples and not is_elsewhere(problem)
        work.exact = several or (still and (work.exact or state.scalars["contraction"] > POOR))
    outputs = shape(problem)[1]
    if outputs > 1:
        work.norm = ShiftNorm(work.norm, penalty, outputs)
    work.model = (lambda v: view.product(v) + penalty * v) if work.exact else work.norm.product


def _is_held_back(state: State) -> bool:
    """Whether the last step left much, although P is of all rows: then it is the raised curvatures."""
    work, scalars = state.work, state.scalars
    whole = getattr(work.here, "graded", False) and work.rows >= work.here.n_rows and not scalars["nonconvex"]
    return bool(whole and not is_graded(state) and scalars["contraction"] > POOR)


def _raise_curvatures(state: State) -> bool:
    """Raise them as far as caution asks for; returns whether that was hardly any more than the true ones."""
    work: Work = state.work
    if not is_graded(state):
        return bool(work.here.be_cautious() > _TRUSTED)
    return bool(work.here.be_cautious(min(work.caution / FIRST_CAUTION, 1.0), work.caution) > _CONVINCED)


def _sketch(problem: FiniteSum, state: State, report: EpochReport, random: Draws, anew: bool) -> None:
    """The largest curvatures, once conjugate gradients have needed many products, and then with every diagonal."""
    work: Work = state.work
    if not (anew if work.values is not None else work.products > _MANY_PRODUCTS):
        return
    rank = min(_RANK, problem.n_parameters)
    rows = min(max(problem.n_samples // _ROWS_OF_A_SKETCH, _ROWS_PER_RANK * rank), problem.n_samples)

    def product(directions: Any) -> Any:
        images, taken = work.here.sketch(directions, rows, random())
        report.gradient_evaluations += taken * rank
        return images

    work.values, work.vectors = largest_curvatures(work.norm.diagonal, product, rank, random())


def _sample(problem: FiniteSum, state: State, report: EpochReport, random: Draws, moved: float) -> None:
    """The sampled matrices of P, unless the old ones will do."""
    work: Work = state.work
    d, outputs = shape(problem)
    # An older sample is worth keeping while the curvatures have moved less than a sample is wrong.
    still = moved <= 0.3 * math.sqrt(d / max(work.rows, 1)) and work.rows < problem.n_samples
    report.curvature_rows = work.rows
    if work.losses is not None and work.averaged and still and state.scalars["contraction"] <= _HELPFUL:
        return
    if work.losses is not None and outputs > 1 and work.kept and work.products < _PRODUCTS_PER_BLOCKS:
        return
    rows = rows_of_matrix(problem, state)
    sampled, taken = work.here.matrix(rows, random()) if outputs == 1 else work.here.matrices(rows, random())
    report.gradient_evaluations += taken * d // 4
    report.curvature_rows = work.rows = taken // outputs
    if work.losses is not None and work.averaged and still:
        work.averaged += 1
        work.losses = work.losses + (sampled - work.losses) / work.averaged
    else:
        work.losses, work.averaged = sampled, 1


def _with_pairs(norm: Any, work: Work) -> Any:
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
    scale = ROOT_EPSILON * (1.0 + float(np.linalg.norm(x)))

    def difference(v: Vector) -> Vector:
        h = scale / float(np.linalg.norm(v))
        return np.asarray((problem.value_and_gradient(x + h * v)[1] - gradient) / h)

    return difference


def rows_of_matrix(problem: FiniteSum, state: State) -> int:
    """Rows that P is made of next; if all of them count, those of weight zero come along."""
    rows = state.scalars["curvature_rows"]
    return int(rows if rows < problem.n_samples else state.work.there.n_rows)


def has_view(problem: Any) -> bool:
    """Whether more is known of the curvature than products with the Hessian."""
    return hasattr(problem, "curvature_view") or isinstance(problem, LinearModel)


def view_of(problem: Any) -> Any:
    """The curvature at a point: of the problem's own, or of a linear model with one output or several."""
    if hasattr(problem, "curvature_view"):
        return problem.curvature_view()
    return CurvatureView(problem) if problem.n_outputs == 1 else OutputView(problem)
