"""A trust region on the Hessian's products, in the norm of a matrix that is near the Hessian.

At x, with f, the full gradient g and a factored matrix P, Gauss and Newton's of a model in PyTorch:

    p ≈ argmin gᵀp + ½ pᵀHp  over  ‖p‖_P ≤ α‖g‖_{P⁻¹}      conjugate gradients in P, on H's own products
    x ← x + p if f fell;  α follows the ratio of actual to predicted decrease

α = 1 is as far as Gauss and Newton's own step goes. P has no negative curvature, and leaves out what H has beyond it:
the products do not, so that conjugate gradients take few, converge quadratically, and tell a true end
(`trsvr.solvers.remembered`, of which this is another norm).

Where P is no model, as where losses go to zero and their curvatures with them, α becomes small: then P is given up for
the norm that steps and products have shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from trsvr._arrays import Vector
from trsvr.parts.norms import DenseNorm
from trsvr.problems.base import Problem
from trsvr.solvers.base import EpochReport, EpochRows, Progress, State
from trsvr.solvers.remembered import Remembered, RememberedCurvature, RememberedRules


@dataclass(frozen=True)
class MatrixRules(RememberedRules):
    """The numbers of the other method, and those of P."""

    #: P is the norm, so that nothing is remembered
    fewer_pairs: int = 0
    #: what P has on its diagonal at least, as part of the mean: weights that no row feels may be felt by H
    floor: float = 1e-6
    #: α below which P is no model of H: of losses that go nowhere near zero it has not been so small
    no_model: float = 0.01


@dataclass
class Normed(Remembered):
    """The same, and P, which is factored anew where a run continues a checkpoint."""

    factored: DenseNorm | None = None
    point: Vector | None = None  # where
    given_up: bool = False

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        return Remembered.snapshot(replace(self, factored=None))


@dataclass(frozen=True)
class MatrixNorm(RememberedCurvature):
    """The method; `trsvr.torch.minimize` takes it where the matrix costs less than the products that it saves."""

    rules: MatrixRules = field(default_factory=MatrixRules)

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first step."""
        state = super().init(problem, x)
        state.own = Normed(1.0, self.rules.cg_tolerance)
        return state

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """One step."""
        if _own(state).given_up:
            return self._by_memory.epoch(problem, state, rows)
        return super().epoch(problem, state, rows)

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the trial point or go back; give P up where it is no model."""
        own = _own(state)
        if own.given_up:
            return self._by_memory.judge(problem, state, report)
        progress = super().judge(problem, state, report)
        if own.alpha < self.rules.no_model:
            own.given_up, own.factored, own.alpha = True, None, self.rules.unbounded
        return progress

    @cached_property
    def _by_memory(self) -> RememberedCurvature:
        return RememberedCurvature(self.max_cg)

    def _learns(self, problem: Problem) -> bool:
        return False

    def norm(self, problem: Problem, state: State, report: EpochReport) -> DenseNorm:
        """P at x; after a refused step it is known."""
        own = _own(state)
        is_new = own.point is None or not np.array_equal(own.point, state.x)
        if is_new or own.factored is None:
            losses, penalty, rows = problem.curvature_matrix(state.x)
            own.factored = DenseNorm(losses, penalty + self.rules.floor * float(np.diagonal(losses).mean()))
            own.point = state.x.copy()
            report.gradient_evaluations += rows if is_new else 0
        return own.factored


def _own(state: State) -> Normed:
    assert isinstance(state.own, Normed)
    return state.own
