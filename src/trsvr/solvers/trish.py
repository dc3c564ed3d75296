"""TRish: a trust region on plain batch gradients with a three-case radius.

Curtis & Shi 2022, "A fully stochastic second-order trust region method" (Optimization Methods and Software): the method
that the TRSVR paper compares with. It adds curvature to the first-order method of Curtis, Scheinberg & Shi 2019 ("A
stochastic trust region algorithm based on careful step normalization"), from which the radius comes.

At each step, with a batch I of b rows:

    g = (1/b) Σ_{i∈I} ∇f_i(x)
    Δ = γ₁α‖g‖ for ‖g‖ < 1/γ₁,   α for 1/γ₁ ≤ ‖g‖ ≤ 1/γ₂,   γ₂α‖g‖ beyond
    x ← x + p,   p ≈ argmin gᵀp + ½ pᵀHp  over  ‖p‖ ≤ Δ

Without curvature (``hessian="none"``) the step is −Δ g/‖g‖: gradient descent with a normalised step in the middle case.
An epoch is ⌈N/b⌉ steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trsvr import _check
from trsvr.parts.curvature import EstimatedHessian, ExactHessian, Identity, NoCurvature
from trsvr.parts.gradients import PlainGradient
from trsvr.parts.radius import TRishRadius
from trsvr.parts.subproblems import SteihaugCG
from trsvr.solvers.base import Preset
from trsvr.solvers.trust_region_method import TrustRegionMethod

_HESSIANS = {"estimated": EstimatedHessian, "exact": ExactHessian, "identity": Identity, "none": NoCurvature}


@dataclass(frozen=True)
class TRish(Preset):
    """Trust-region-ish method.

    Parameters
    ----------
    alpha : float
        Length of a step in the middle case.
    gamma1, gamma2 : float
        Slopes of the radius for small and large gradients, gamma1 > gamma2 > 0.
    batch_size : int or "auto"
        b, rows per step, drawn uniformly with replacement; "auto" is 200, or N if that is less.
    hessian : {"estimated", "exact", "identity", "none"}
        Curvature of the batch; "none" is the first-order method.
    max_cg : int
        Conjugate-gradient iterations per step at most.
    """

    alpha: float = 0.1
    gamma1: float = 4.0
    gamma2: float = 0.5
    batch_size: int | str = "auto"
    hessian: str = "estimated"
    max_cg: int = 500

    def __post_init__(self) -> None:
        _check.positive("alpha", self.alpha)
        _check.positive("gamma2", self.gamma2)
        if _check.positive("gamma1", self.gamma1) <= self.gamma2:
            raise ValueError(f"gamma1 must be larger than gamma2, got {self.gamma1} and {self.gamma2}")
        _check.one_of("hessian", self.hessian, _HESSIANS)
        _check.whole("max_cg", self.max_cg)
        _ = self.method

    @cached_property
    def method(self) -> TrustRegionMethod:
        """The same method, as parts."""
        return TrustRegionMethod(
            gradient=PlainGradient(),
            curvature=_HESSIANS[self.hessian](),
            radius=TRishRadius(float(self.alpha), float(self.gamma1), float(self.gamma2)),
            subproblem=SteihaugCG(int(self.max_cg)),
            batch_size=self.batch_size,
            inner_steps="auto",
        )
