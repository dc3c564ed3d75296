"""P and H at the reference: built, kept or improved, as the last iterations have shown it to pay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._draws import Draws
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
from trsvr.problems.base import Problem
from trsvr.problems.views import Coming, Prices, Raising
from trsvr.solvers.adaptive.rules import Rules
from trsvr.solvers.adaptive.state import AdaptiveState, Measured
from trsvr.solvers.base import EpochReport, State

NORMS = ("auto", "dense", "diagonal", "identity")


def kind_of_norm(asked_for: str, prices: Prices, n: int, d: int, rules: Rules) -> str:
    """The norm that was asked for, or the one that pays."""
    if asked_for != "auto":
        return asked_for
    matrix = first_rows(n, d, rules) * prices.matrix_row + prices.factor
    if d <= rules.widest_matrix and matrix <= rules.products_per_matrix:
        return "dense"
    return "diagonal" if prices.diagonal < math.inf else "identity"


def first_rows(n: int, d: int, rules: Rules) -> int:
    """Rows of the first curvature sample; if it would be much of the data, all of them."""
    fewest, most = rules.rows_per_column * d, rules.most_rows_per_column * d
    rows = int(min(max(rules.rows_per_pass * n / d, fewest), most))
    return rows if rows < rules.nearly_all_rows * n else n


def directions_pay(prices: Prices, count: int) -> bool:
    """Whether so many directions in the norm cost little beside a Hessian product."""
    return count * prices.direction <= 1.0


class Measuring:
    """One outer iteration's look at the curvature."""

    def __init__(self, problem: Problem, state: State, own: AdaptiveState, rules: Rules) -> None:
        self.problem, self.state, self.own, self.rules = problem, state, own, rules
        self.view = own.here
        self.prices = own.here.prices()

    def measure(self, report: EpochReport, draws: Draws) -> Measured:
        """P, of that kind, and H at the reference."""
        penalty = self.view.penalty_curvatures(self.state.x)
        if self.own.kind == "identity":
            report.curvature_rows = self.problem.n_samples
            self.own.norm.exact = True
            known = self.prices.diagonal < math.inf
            return Measured(self._with_pairs(None), penalty, convexity=float(penalty.min()) if known else None)
        self.own.nonconvex = self.own.nonconvex or bool((penalty < 0.0).any())
        moved = self._moved(report)
        if self.own.kind == "diagonal":
            norm = self._diagonal(penalty, moved, report, draws)
        else:
            norm = self._matrix(penalty, moved, report, draws)
        if self.view.n_outputs > 1:
            norm = ShiftNorm(norm, penalty, self.view.n_outputs)
        return Measured(norm, penalty, None if self.own.norm.exact else norm.product)

    def _moved(self, report: EpochReport) -> float:
        """By which part the curvatures have changed, after they are raised as far as caution asks for."""
        view, caution, norm, rules = self.view, self.own.caution, self.own.norm, self.rules
        if caution.raised and self._raise_curvatures() and self.own.radius.accepted:
            caution.raised = False  # the raised curvatures are hardly more than the true ones: back among ordinary rows
            view.evaluate(self.state.x, Coming())
            report.gradient_evaluations += self.problem.n_samples
        weight = view.total_weight()
        moved = abs(weight - norm.total_weight) / weight if weight > 0.0 else 0.0
        norm.total_weight = weight
        moved = math.inf if math.isnan(moved) or not self.own.radius.accepted else moved
        if caution.raised and moved <= rules.moved and self._is_held_back():
            caution.give_up_by_degrees(rules)
        return moved

    def _raise_curvatures(self) -> bool:
        """Raise them; returns whether that was hardly any more than the true ones."""
        rules, level = self.rules, self.own.caution.level
        if not self.own.graded:
            return self.view.raise_curvatures(1.0, 0.0) > rules.trusted
        return self.view.raise_curvatures(min(level / rules.first_caution, 1.0), level) > rules.convinced

    def _is_held_back(self) -> bool:
        """Whether the last step left much, although P is of all rows: then it is the raised curvatures."""
        own = self.own
        whole = self.view.raising is Raising.GRADED and own.norm.rows >= self.view.n_rows and not own.nonconvex
        return whole and not own.graded and own.radius.contraction > self.rules.held_back

    def _diagonal(self, penalty: Vector, moved: float, report: EpochReport, draws: Draws) -> Any:
        norm, rules = self.own.norm, self.rules
        anew = norm.losses is None or moved > rules.moved
        if norm.losses is None or anew:
            norm.losses = self.view.diagonal()
            report.gradient_evaluations += self.problem.n_samples
        report.curvature_rows = self.problem.n_samples
        norm.exact = True
        found = DiagonalNorm(norm.losses + stiffness(penalty))
        if self.prices.sketch < math.inf and directions_pay(self.prices, rules.rank):
            self._sketch(found.diagonal, report, draws, anew)
        if norm.values is not None and norm.vectors is not None:
            return NystromNorm(found.diagonal, norm.values, norm.vectors)
        return self._with_pairs(found)

    def _sketch(self, diagonal: Vector, report: EpochReport, draws: Draws, anew: bool) -> None:
        """The largest curvatures, once conjugate gradients have needed many products, and then with every diagonal."""
        norm, rules = self.own.norm, self.rules
        if not (anew if norm.values is not None else norm.products > rules.many_products):
            return
        n, rank = self.problem.n_samples, min(rules.rank, self.problem.n_parameters)
        rows = min(max(int(rules.sketched_part * n), rules.rows_per_rank * rank), n)

        def product(directions: Matrix) -> Matrix:
            images, taken = self.view.sketch(directions, rows, draws)
            report.gradient_evaluations += taken * rank
            return images

        norm.values, norm.vectors = largest_curvatures(diagonal, product, rank, draws.stream("directions"))

    def _matrix(self, penalty: Vector, moved: float, report: EpochReport, draws: Draws) -> Any:
        norm, rules, outputs = self.own.norm, self.rules, self.view.n_outputs
        losses = self._sample(moved, report, draws)
        # Where the curvatures stand still and the steps are poor all the same, P is no good model of the Hessian.
        still = moved <= rules.moved and norm.rows < self.problem.n_samples and self.prices.wait < rules.longest_wait
        norm.exact = outputs > 1 or (still and (norm.exact or self.own.radius.contraction > rules.poor_model))
        return BlockNorm(losses, penalty) if outputs > 1 else DenseNorm(losses[0], penalty)

    def _sample(self, moved: float, report: EpochReport, draws: Draws) -> Matrix:
        """The sampled matrices of P, unless the old ones will do."""
        norm, radius, rules, outputs = self.own.norm, self.own.radius, self.rules, self.view.n_outputs
        d = self.problem.n_parameters // outputs
        # An older sample is worth keeping while the curvatures have moved less than a sample is wrong.
        still = moved <= rules.averaged * math.sqrt(d / max(norm.rows, 1)) and norm.rows < self.problem.n_samples
        report.curvature_rows = norm.rows
        if norm.losses is not None:
            if norm.averaged and still and radius.contraction <= rules.helpful:
                return norm.losses
            if outputs > 1 and radius.accepted and norm.products < rules.products_per_blocks:
                return norm.losses
        sampled, taken = self.view.blocks(rows_of_matrix(self.problem, self.own), draws)
        report.gradient_evaluations += taken * d // 4
        report.curvature_rows = norm.rows = taken // outputs
        if norm.losses is not None and norm.averaged and still:
            norm.averaged += 1
            norm.losses = norm.losses + (sampled - norm.losses) / norm.averaged
        else:
            norm.losses, norm.averaged = sampled, 1
        return norm.losses

    def _with_pairs(self, norm: DiagonalNorm | None) -> Any:
        """A diagonal or the identity, improved by what earlier conjugate gradients have seen, where that pays."""
        directions, images = self.own.norm.directions, self.own.norm.images
        if directions is None or images is None or not directions_pay(self.prices, self.rules.pairs):
            return IdentityNorm() if norm is None else norm
        if norm is not None:
            return QuasiNewtonNorm(norm.diagonal, directions, images)
        newest, image = directions[-1], images[-1]
        return QuasiNewtonNorm(np.full_like(newest, dot(image, image) / dot(newest, image)), directions, images)


def rows_of_matrix(problem: Problem, own: AdaptiveState) -> int:
    """Rows that P is made of next; if all of them count, those of weight zero come along."""
    rows = own.norm.wanted_rows
    return int(rows) if rows < problem.n_samples else own.there.n_rows
