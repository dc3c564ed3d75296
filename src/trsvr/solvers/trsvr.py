"""TRSVR: trust regions on variance-reduced gradients (Fang, Zheng & Lavaei, Algorithm 1).

Outer iteration k: reference x̃ = x, full gradient g̃. Then S times, with a batch I of b rows:

    ḡ = (1/b) Σ_{i∈I} (∇f_i(x) − ∇f_i(x̃)) + g̃
    Δ = α‖ḡ‖
    x ← x + p,   p ≈ argmin ḡᵀp + ½ pᵀHp  over  ‖p‖ ≤ Δ   (Steihaug's conjugate gradients)

No function value is needed, no step is refused. α is a knob between two known methods: while α ≤ 1/λmax(H) the first
conjugate-gradient step already hits the boundary and TRSVR *is* SVRG with step α; when α ≥ 1/λmin(H) the constraint
never binds and it *is* a sub-sampled Newton method on a variance-reduced gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trsvr import _check
from trsvr._vectors import Vector
from trsvr.parts.curvature import EstimatedHessian, ExactHessian, Identity
from trsvr.parts.gradients import PlainGradient, SAGAGradient, SARAHGradient, SVRGGradient
from trsvr.parts.radius import GradientRadius
from trsvr.parts.subproblems import SteihaugCG
from trsvr.problems.protocol import FiniteSum
from trsvr.solvers.base import EpochReport, EpochRows, State
from trsvr.solvers.trust_region_method import TrustRegionMethod

_HESSIANS = {"identity": Identity, "estimated": EstimatedHessian, "exact": ExactHessian}
_GRADIENTS = {"svrg": SVRGGradient, "sarah": SARAHGradient, "saga": SAGAGradient, "plain": PlainGradient}


@dataclass(frozen=True)
class TRSVR:
    """Trust-region method with stochastic variance reduction.

    Parameters
    ----------
    alpha : float
        Radius over gradient norm.
    batch_size : int
        b, rows per step, drawn uniformly with replacement.
    inner_steps : int
        S, steps per outer iteration.
    hessian : {"estimated", "exact", "identity"}
        Finite differences of the batch's gradient (the paper's EstH), analytic products, or H = I (the paper's Id,
        which for α ≤ 1 is SVRG).
    max_cg : int
        Conjugate-gradient iterations per step at most.
    gradient : {"svrg", "sarah", "saga", "plain"}
        Gradient estimator; the paper's is "svrg".
    """

    alpha: float = 1.0
    batch_size: int = 200
    inner_steps: int = 200
    hessian: str = "estimated"
    max_cg: int = 500
    gradient: str = "svrg"

    def __post_init__(self) -> None:
        _check.positive("alpha", self.alpha)
        _check.one_of("hessian", self.hessian, _HESSIANS)
        _check.whole("max_cg", self.max_cg)
        _check.one_of("gradient", self.gradient, _GRADIENTS)
        _ = self.method

    @cached_property
    def method(self) -> TrustRegionMethod:
        """The same method, as parts."""
        return TrustRegionMethod(
            gradient=_GRADIENTS[self.gradient](),
            curvature=_HESSIANS[self.hessian](),
            radius=GradientRadius(float(self.alpha)),
            subproblem=SteihaugCG(int(self.max_cg)),
            batch_size=self.batch_size,
            inner_steps=self.inner_steps,
        )

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""
        return self.method.needs_reference

    def check(self, problem: FiniteSum) -> None:
        """Raise ValueError if this cannot run on the problem."""
        self.method.check(problem)

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first epoch."""
        return self.method.init(problem, x)

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """One outer iteration."""
        return self.method.epoch(problem, state, rows)
