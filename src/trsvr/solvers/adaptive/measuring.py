"""P and H at the reference: built, kept or improved, as the last iterations have shown it to pay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._draws import Draws
from trsvr.parts import norms
from trsvr.parts.pairs import Pairs
from trsvr.problems.base import Problem
from trsvr.problems.views import Raising
from trsvr.solvers.adaptive.state import AdaptiveState, Iteration, Measured, NormState


def rows_of_matrix(problem: Problem, own: AdaptiveState) -> int:
    """Rows that P is made of next; if all of them count, those of weight zero come along."""
    return int(own.norm.wanted_rows) if own.norm.wanted_rows < problem.n_samples else own.there.n_rows


def measure(it: Iteration, draws: Draws) -> Measured:
    """P and H at the reference."""
    own, rules, view = it.own, it.rules, it.own.here
    penalty = view.penalty_curvatures(it.state.x)
    if own.kind == "identity":
        it.report.curvature_rows, own.norm.exact = it.problem.n_samples, True
        return Measured(_improved(it, None), penalty, convexity=float(penalty.min()))
    own.nonconvex = own.nonconvex or bool(penalty.min() < 0.0)
    may_change = own.kind == "diagonal" and it.chosen.norm is None and math.isinf(view.prices().shared)
    if may_change and _matrix_is_due(it):
        own.kind, own.norm, own.radius.alpha = "dense", NormState(own.norm.wanted_rows), rules.unbounded
        view.warm_up(True)
    norm = (_matrix if own.kind == "dense" else _diagonal)(it, penalty, _moved(it), draws)
    if view.n_outputs > 1:
        norm = norms.ShiftNorm(norm, penalty, view.n_outputs)
    return Measured(norm, penalty, None if own.norm.exact else norm.product)


def _matrix_is_due(it: Iteration) -> bool:
    """Whether products with the whole Hessian have cost as much as a matrix would, since the last one was made.

    So no more is spent than three times the cheaper of both, without knowing how many products are still to come.
    """
    return it.own.norm.products >= it.rules.patience * it.own.price


def _moved(it: Iteration) -> float:
    """By which part the curvatures have changed, after they are raised as far as caution asks for."""
    own, rules, view, caution = it.own, it.rules, it.own.here, it.own.caution
    enough = rules.convinced if own.graded else rules.trusted
    if caution.raised and caution.apply(view, own.graded, rules.first_caution) > enough and own.radius.accepted:
        caution.give_up()
        it.report.gradient_evaluations += int(view.lower_curvatures(it.state.x) * it.problem.n_samples)
    weight = view.total_weight()
    moved = abs(weight - own.norm.total_weight) / weight if weight > 0.0 else 0.0
    own.norm.total_weight = weight
    if math.isnan(moved) or not own.radius.accepted:
        return math.inf
    # P is of all rows, and the last step left much all the same: it is the raised curvatures that hold steps back.
    whole = view.raising is Raising.GRADED and own.norm.rows >= view.n_rows and not own.nonconvex and not own.graded
    if caution.raised and moved <= rules.moved and whole and own.radius.contraction > rules.held_back:
        caution.give_up_by_degrees(rules.first_caution)
    return moved


def _diagonal(it: Iteration, penalty: Vector, moved: float, draws: Draws) -> Any:
    """The Hessian's diagonal, improved by what is known of other directions."""
    kept, rules, view = it.own.norm, it.rules, it.own.here
    if kept.losses is None or moved > rules.moved:
        kept.losses = view.diagonal()
        it.report.gradient_evaluations += it.problem.n_samples
    it.report.curvature_rows = it.problem.n_samples
    kept.exact = True
    norm = norms.DiagonalNorm(kept.losses + norms.stiffness(penalty))
    if it.chosen.norm is None and kept.products >= rules.shared_patience * view.prices().shared:
        _correlate(it, penalty)
    if kept.correlations is not None:
        return norms.SharedNorm(norm.diagonal, kept.correlations)
    return _improved(it, norm)


def _correlate(it: Iteration, penalty: Vector) -> None:
    """Correlations of the columns from the mean of all outputs' matrices: products have cost as much."""
    kept, view = it.own.norm, it.own.here
    shared = np.abs(penalty).reshape(-1, view.n_outputs).mean(axis=1)
    kept.correlations, kept.products = norms.correlation_factor(view.shared(), shared), 0
    # A row of the matrix is d² multiplications, one of a gradient 4 d for each output.
    it.report.gradient_evaluations += it.problem.n_samples * shared.size // (4 * view.n_outputs)


def _improved(it: Iteration, norm: norms.DiagonalNorm | None) -> Any:
    """A diagonal or the identity, improved by what earlier conjugate gradients have seen, where that pays."""
    pays = it.own.here.prices().bear_directions(it.rules.pairs, it.rules.cheap_pairs)
    return (it.own.norm.pairs if pays else Pairs()).improve(norm)


def _matrix(it: Iteration, penalty: Vector, moved: float, draws: Draws) -> Any:
    """A matrix from sampled rows, with several outputs one for each."""
    kept, rules, view, n = it.own.norm, it.rules, it.own.here, it.problem.n_samples
    # A matrix that costs much is kept as long as it helps; blocks are no model of several outputs.
    whole = view.n_outputs > 1 or it.own.price > rules.products_per_matrix
    losses = _sampled(it, moved, whole, draws)
    # Where the curvatures stand still and the steps are poor all the same, P is no good model of the Hessian.
    still = moved <= rules.moved and kept.rows < n and view.prices().wait < rules.longest_wait
    kept.exact = whole or (still and (kept.exact or it.own.radius.contraction > rules.poor_model))
    it.own.factored = norms.factored(losses, penalty, it.own.factored)
    return it.own.factored.norm


def _sampled(it: Iteration, moved: float, whole: bool, draws: Draws) -> Matrix:
    """The matrices of the losses, new ones unless the old will do."""
    kept, rules, radius, report, outputs = it.own.norm, it.rules, it.own.radius, it.report, it.own.here.n_outputs
    d = it.problem.n_parameters // outputs
    # An older sample is worth keeping while the curvatures have moved less than a sample is wrong.
    still = moved <= rules.averaged * math.sqrt(d / max(kept.rows, 1)) and kept.rows < it.problem.n_samples
    report.curvature_rows = kept.rows
    helps = kept.averaged and still and radius.contraction <= rules.helpful
    if kept.losses is not None and (helps or (whole and radius.accepted and not _matrix_is_due(it))):
        return kept.losses
    sampled, taken = it.own.here.blocks(rows_of_matrix(it.problem, it.own), draws)
    report.gradient_evaluations += taken * d // 4
    report.curvature_rows = kept.rows = taken // outputs
    if kept.losses is not None and kept.averaged and still:
        sampled = kept.losses + (sampled - kept.losses) / (kept.averaged + 1)
    else:
        kept.averaged = 0
    kept.losses, kept.averaged, kept.products = sampled, kept.averaged + 1, 0
    return sampled
