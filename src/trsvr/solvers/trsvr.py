"""TRSVR: trust regions on variance-reduced gradients (Fang, Zheng & Lavaei, Algorithm 1).

Outer iteration k: reference x̃ = x, full gradient g̃. Then S times, with a batch I of b rows:

    ḡ = (1/b) Σ_{i∈I} (∇f_i(x) − ∇f_i(x̃)) + g̃
    Δ = α‖ḡ‖
    x ← x + p,   p ≈ argmin ḡᵀp + ½ pᵀHp  over  ‖p‖ ≤ Δ   (Steihaug's conjugate gradients)

No function value is needed, no step is refused. α is a knob between two known methods: while α ≤ 1/λmax(H) the first
conjugate-gradient step already hits the boundary and TRSVR *is* SVRG with step α; when α ≥ 1/λmin(H) the constraint
never binds and it *is* a sub-sampled Newton method on a variance-reduced gradient.

With ``alpha="auto"``, the default, nothing is left to choose: `trsvr.solvers.adaptive`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.parts.curvature import EstimatedHessian, ExactHessian, Identity
from trsvr.parts.gradients import PlainGradient, SAGAGradient, SARAHGradient, SVRGGradient
from trsvr.parts.norm_choice import NORMS
from trsvr.parts.radius import GradientRadius
from trsvr.parts.subproblems import SteihaugCG
from trsvr.problems.base import Problem
from trsvr.problems.residuals import ResidualProblem
from trsvr.solvers.adaptive import AdaptiveTRSVR
from trsvr.solvers.base import Preset, Solver
from trsvr.solvers.dual_start import DualStart
from trsvr.solvers.gauss_newton import GaussNewton
from trsvr.solvers.levenberg_marquardt import LevenbergMarquardt
from trsvr.solvers.trust_region_method import TrustRegionMethod

_HESSIANS = {"auto": EstimatedHessian, "identity": Identity, "estimated": EstimatedHessian, "exact": ExactHessian}
_MAX_CG = 500
# Residuals or unknowns, whichever are fewer, up to which their matrix is factored at every step.
_LARGEST_FACTOR = 3000
_GRADIENTS = {"svrg": SVRGGradient, "sarah": SARAHGradient, "saga": SAGAGradient, "plain": PlainGradient}


@dataclass(frozen=True)
class TRSVR(Preset):
    """Trust-region method with stochastic variance reduction.

    Parameters
    ----------
    alpha : float or "auto"
        Radius over gradient norm. A number is the paper's algorithm: Euclidean norm, no acceptance test. "auto" lets
        the method find everything by itself; see `trsvr.solvers.adaptive` for the rules. With a gradient or a hessian
        of your choice "auto" is the paper's algorithm with the step that theory recommends for SVRG.
    batch_size : int or "auto"
        b, rows per step. A number means rows drawn uniformly with replacement. "auto" is 200 (or N) with a numeric
        alpha.
    inner_steps : int or "auto"
        S, steps per outer iteration. "auto" is ⌈N/b⌉ with a numeric alpha.
    hessian : {"auto", "estimated", "exact", "identity"}
        Finite differences of the batch's gradient (the paper's EstH, and "auto" with a numeric alpha), analytic
        products, or H = I (the paper's Id, which for α ≤ 1 is SVRG). The adaptive mode has its own curvature.
    norm : {"auto", "dense", "diagonal", "identity"}
        Norm of the adaptive mode: a factored matrix, the Hessian's diagonal, or the Euclidean norm.
    max_cg : int or "auto"
        Conjugate-gradient iterations per step at most; "auto" is 500 with a numeric alpha. In the adaptive mode it is
        5000: they end by themselves, and each new beginning would cost them what they have learnt.
    gradient : {"svrg", "sarah", "saga", "plain"}
        Gradient estimator; the paper's, and the adaptive mode's, is "svrg".
    """

    alpha: float | str = "auto"
    batch_size: int | str = "auto"
    inner_steps: int | str = "auto"
    hessian: str = "auto"
    norm: str = "auto"
    max_cg: int | str = "auto"
    gradient: str = "svrg"

    def __post_init__(self) -> None:
        _check.one_of("hessian", self.hessian, _HESSIANS)
        _check.one_of("norm", self.norm, NORMS)
        if self.max_cg != "auto":
            _check.whole("max_cg", self.max_cg)
        _check.one_of("gradient", self.gradient, _GRADIENTS)
        if self.alpha != "auto":
            _check.positive("alpha", self.alpha)
            if self.norm not in ("auto", "identity"):
                raise ValueError(f"norm must be 'auto' or 'identity' with a numeric alpha, got {self.norm!r}")
        _ = self.method

    @property
    def is_adaptive(self) -> bool:
        """Whether the adaptive mode runs: it has an estimator and a curvature of its own."""
        return self.alpha == "auto" and self.gradient == "svrg" and self.hessian == "auto"

    @cached_property
    def method(self) -> TrustRegionMethod | AdaptiveTRSVR:
        """The same method: as parts, or the adaptive one."""
        if self.is_adaptive:
            return DualStart(self.batch_size, self.inner_steps, self.norm, self.max_cg)
        return self._with(1.0 if self.alpha == "auto" else float(self.alpha))

    def _with(self, alpha: float) -> TrustRegionMethod:
        return TrustRegionMethod(
            gradient=_GRADIENTS[self.gradient](),
            curvature=_HESSIANS[self.hessian](),
            radius=GradientRadius(alpha),
            subproblem=SteihaugCG(_MAX_CG if self.max_cg == "auto" else int(self.max_cg)),
            batch_size=self.batch_size,
            inner_steps=self.inner_steps,
        )

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """Damped steps for residuals, the adaptive mode, or the parts.

        Without a number, the paper's algorithm takes the α that SVRG would.
        """
        method = self.method
        if isinstance(problem, ResidualProblem) and self.is_adaptive:
            smaller = min(problem.n_residuals, problem.n_parameters)
            chosen = self.batch_size, self.inner_steps, self.norm, self.max_cg
            factors = self == TRSVR() and smaller <= _LARGEST_FACTOR
            return LevenbergMarquardt() if factors else GaussNewton(*chosen)
        if isinstance(method, AdaptiveTRSVR):
            return method.resolve(problem, x, recommended_step)
        if self.alpha != "auto":
            return method
        rows = method.rows_per_step(problem)
        return self._with(recommended_step(problem, "svrg", batch_size=rows, x=x))
