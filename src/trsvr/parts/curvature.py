"""Curvature of a batch, as products H v; no d × d matrix is formed.

A curvature is a record with ``rows_per_product(b)``, the component gradients that one product on b rows counts,
``spacing(x)``, a number computed once per step, and ``batch_product(at, v, squared_norm, out)``, which leaves H v in
``out`` and returns vᵀHv; ``at`` is the `BatchHessian`: the problem's kernels, x, the batch and what was kept of it.
With ``needs_hessian_product = True`` it refuses problems that have no products of their own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from trsvr._arrays import ROOT_EPSILON, Indices, Vector
from trsvr._compile import record
from trsvr._vectors import copy_into, dot


class _OfBatch(NamedTuple):
    """What most curvatures have in common."""

    @property
    def needs_hessian_product(self) -> bool:
        """Whether the problem must have products of its own."""
        return False

    def rows_per_product(self, batch_size: int) -> int:
        """Component gradients a product counts: b."""
        return batch_size

    def spacing(self, x: Vector) -> float:
        """Nothing to prepare."""
        return 0.0


@record
class Identity(_OfBatch):
    """H = I: with Δ = α‖ḡ‖ and α ≤ 1 the trust-region step is −α ḡ."""

    def rows_per_product(self, batch_size: int) -> int:
        """Component gradients a product counts: none."""
        return 0

    def batch_product(self, at: BatchHessian, v: Vector, squared_norm: float, out: Vector) -> float:
        """V itself."""
        copy_into(v, out)
        return squared_norm


@record
class NoCurvature(_OfBatch):
    """H = 0: the step goes along −ḡ to the boundary, however long the radius is."""

    def rows_per_product(self, batch_size: int) -> int:
        """Component gradients a product counts: none."""
        return 0

    def batch_product(self, at: BatchHessian, v: Vector, squared_norm: float, out: Vector) -> float:
        """Zero."""
        out[:] = 0.0
        return 0.0


@record
class ExactHessian(_OfBatch):
    """H v = (1/b) Σ ∇²f_i(x) v from the problem's own formula."""

    needs_hessian_product = True

    def batch_product(self, at: BatchHessian, v: Vector, squared_norm: float, out: Vector) -> float:
        """Analytic product."""
        return at.problem.hessian_product(at.x, at.batch, at.margins, v, out)


@record
class EstimatedHessian(_OfBatch):
    """H v ≈ (g(x + hv) − g(x)) / h with g the batch's gradient, which is known at x, and h = √ε (1 + ‖x‖) / ‖v‖.

    The paper's EstH.
    """

    def spacing(self, x: Vector) -> float:
        """√ε (1 + ‖x‖)."""
        return ROOT_EPSILON * (1.0 + math.sqrt(dot(x, x)))

    def batch_product(self, at: BatchHessian, v: Vector, squared_norm: float, out: Vector) -> float:
        """Difference of two gradients."""
        h = at.step_scale / math.sqrt(squared_norm)
        return at.problem.gradient_change(at.x, at.batch, at.margins, v, h, out)


@record
class BatchHessian(NamedTuple):
    """Curvature of one batch at one point: all that a subproblem solver needs to see."""

    kind: Any
    problem: Any
    x: Vector
    batch: Indices
    margins: Vector
    step_scale: float

    def product(self, v: Vector, squared_norm: float, out: Vector) -> float:
        """H v in ``out``; returns vᵀHv. ``squared_norm`` is ‖v‖², which the caller knows."""
        return self.kind.batch_product(self, v, squared_norm, out)
