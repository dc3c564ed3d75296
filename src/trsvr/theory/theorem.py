"""The theorem of the TRSVR paper (Fang, Zheng & Lavaei) as numbers.

Throughout, L is the Lipschitz constant of every component's gradient (`component_smoothness`), κ = κ_H bounds the
curvature, M = L + 2κ, and z > 0 is the free weight of Young's inequality in the proof. The proof goes

    one step       E f(x⁺) − f(x) ≤ −¼α‖g‖² + ½Mα² E‖ḡ − g‖²,  if α ≤ 1/(2M)
    variance       E‖ḡ − g‖² ≤ (L²/b)‖x − x̃‖²
    weights        λ_S = 0,  λ_s = α²L²M/(2b) + λ_{s+1}(1 + ρ),  ρ = αz + (α² + α/z) L²/b
    decreases      Λ_s = α/4 − λ_{s+1}(1 + 1/(αz)) α²
    conclusion     mean of E‖g_{k,s}‖² over K + 1 epochs of S steps  ≤  (f(x₀) − f_inf) / ((K+1) S min_s Λ_s)

and all of it is used here. Its last part, which puts closed forms in place of Λ, is not consistent with itself in
print. What is used instead ("proof"), and what is printed ("printed"):

- *S*. The proof needs (1 + ρ)^S ≤ e, that is S ≤ 1/ρ, with ρ itself for b = μ₁N^γ: ⌊1/ρ⌋. The printed
  ⌊N^{3γ/2} / (μ₀(b + μ₀L²b/(2M)))⌋ comes from the bound ρ ≤ μ₀N^{−3γ/2}(b + L²b/(2M²)) with one M lost and μ₀ in its
  place (L²/M is not even a pure number); and that bound of ρ is derived for b = N^γ, that is μ₁ = 1.
- *v₀*. The printed ¼ − μ₀L²(e−1)(μ₀b + 1)/(16M²) forces μ₀ = O(b^{−1/2}), which would spoil the rate N^{2/3}. The line
  before it in the proof has μ₀bN^{−3γ/2} in place of μ₀b; with it v₀ > 0 for all μ₀ ≤ 1 when κ = L.
- *The bound* carries 2(L + κ_H) where the proof has 2(L + 2κ_H). `Settings.bound` has both forms.
- *ρ*. Its third term is printed as μ₀L²/(4(L + κ_H)²N^{γ/2}); with z = 2M/N^{γ/2} the term (α/z)L²/b has M² there. The
  line that bounds ρ has M again.
- *The step of Φ*. In the second line of E[Φ_{s+1} − Φ_s] the factor λ_{s+1} before (1 + ρ)‖x_s − x̃‖² is missing; only
  with it the terms in ‖x_s − x̃‖² cancel by the recursion of λ_s.
- *ε*. The introduction states O(ε⁻²) iterations and O(N + N^{2/3}ε⁻²) samples, section 4 O(1/ε) and
  O(N + N^{2/3}ε⁻¹). For the paper's definition, E‖g‖² ≤ ε, it is ε⁻¹ (`complexity`); ε⁻² is for E‖g‖ ≤ ε.

Numerical statements use Λ_min, which needs none of the closed forms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.solvers.trsvr import TRSVR


@dataclass(frozen=True)
class Lyapunov:
    """Weights and guaranteed decreases within one epoch.

    Attributes
    ----------
    weights : array of length S + 1
        λ_0 … λ_S of Φ_s = f(x_s) + λ_s ‖x_s − x̃‖².
    decreases : array of length S
        Λ_0 … Λ_{S−1}: E Φ_{s+1} ≤ Φ_s − Λ_s ‖g_s‖².
    growth : float
        ρ.
    coupling : float
        z.
    """

    weights: Vector
    decreases: Vector
    growth: float
    coupling: float

    @property
    def smallest(self) -> float:
        """Λ_min; there is a guarantee if it is positive."""
        return float(self.decreases.min())


def lyapunov(
    alpha: float, batch_size: int, inner_steps: int, smoothness: float, hessian_bound: float, coupling: float
) -> Lyapunov:
    """The weights λ_s and decreases Λ_s of the proof.

    Parameters
    ----------
    alpha : float
        α.
    batch_size, inner_steps : int
        b and S.
    smoothness, hessian_bound : float
        L (that is L_max) and κ_H.
    coupling : float
        z > 0; the theorem takes 2(L + 2κ_H)/N^{γ/2}.

    Returns
    -------
    Lyapunov
        Infinite weights where they overflow: no guarantee.
    """
    alpha, z = _check.positive("alpha", alpha), _check.positive("coupling", coupling)
    b, steps = _check.whole("batch_size", batch_size), _check.whole("inner_steps", inner_steps)
    L = _check.positive("smoothness", smoothness, zero=True)
    M = L + 2.0 * _check.positive("hessian_bound", hessian_bound, zero=True)
    growth = alpha * z + (alpha**2 + alpha / z) * L**2 / b
    source = alpha**2 * L**2 * M / (2.0 * b)
    # The recursion is a geometric sum, λ_s = source · ((1 + ρ)^{S−s} − 1)/ρ.
    left = np.arange(steps, -1, -1.0)
    with np.errstate(over="ignore"):
        weights = source * np.expm1(left * math.log1p(growth)) / growth
        decreases = alpha / 4.0 - weights[1:] * (1.0 + 1.0 / (alpha * z)) * alpha**2
    return Lyapunov(weights, decreases, growth, z)


def best_lyapunov(alpha: float, batch_size: int, inner_steps: int, smoothness: float, hessian_bound: float) -> Lyapunov:
    """The same for the z that makes Λ_min largest: the most that the proof can say of these settings.

    The proof holds for every z > 0; the theorem's z suits the theorem's α, b and S only.

    Parameters
    ----------
    alpha, batch_size, inner_steps, smoothness, hessian_bound
        As for `lyapunov`.
    """
    given = (alpha, batch_size, inner_steps, smoothness, hessian_bound)
    lyapunov(alpha, batch_size, 1, smoothness, hessian_bound, coupling=1.0)  # looks at the arguments
    L = smoothness
    if inner_steps == 1 or L == 0.0:  # λ_1 is zero whatever z is
        return lyapunov(*given, coupling=1.0)

    def badness(log_z: float) -> float:
        """What Λ_min loses, up to a factor, as a logarithm: it may be too large for a number."""
        z = math.exp(log_z)
        growth = alpha * z + (alpha**2 + alpha / z) * L**2 / batch_size
        power = (inner_steps - 1) * math.log1p(growth)
        return power + math.log(-math.expm1(-power)) - math.log(growth) + math.log(alpha + 1.0 / z)

    # αz and L²α/(zb) are the two parts of ρ that z trades against each other; they are equal at L/√b.
    middle = math.log(L / math.sqrt(batch_size))
    width = 14.0
    while width > 1e-7:
        grid = middle + np.linspace(-width, width, 57)
        middle = float(grid[int(np.argmin([badness(float(point)) for point in grid]))])
        width /= 20.0
    return lyapunov(*given, coupling=math.exp(middle))


@dataclass(frozen=True)
class Settings:
    """The theorem's α, b and S for given μ₀, μ₁, γ, and what they guarantee.

    Attributes
    ----------
    alpha : float
    batch_size, inner_steps : int
        α, b and S.
    n_samples : int
    smoothness, hessian_bound : float
        L (that is L_max) and κ_H.
    mu0, mu1, gamma : float
        μ₀, the μ₁ = b/N^γ of the whole number b, and γ.
    lyapunov : Lyapunov
        At the theorem's z.
    """

    alpha: float
    batch_size: int
    inner_steps: int
    n_samples: int
    smoothness: float
    hessian_bound: float
    mu0: float
    mu1: float
    gamma: float
    lyapunov: Lyapunov

    @property
    def progress(self) -> float:
        """Λ_min: the bound on the mean squared gradient norm is (f(x₀) − f_inf) / ((K+1) S Λ_min)."""
        return self.lyapunov.smallest

    @property
    def v0(self) -> float:
        """v₀ as the proof has it: Λ_min ≥ α v₀ = μ₀μ₁v₀/(2(L + 2κ_H))."""
        return self._v0(self.mu0 * self.batch_size * self.n_samples ** (-1.5 * self.gamma))

    @property
    def v0_printed(self) -> float:
        """v₀ as the theorem prints it; often negative."""
        return self._v0(self.mu0 * self.batch_size)

    def _v0(self, extra: float) -> float:
        M = self.smoothness + 2.0 * self.hessian_bound
        return 0.25 - self.mu0 * self.smoothness**2 * (math.e - 1.0) * (extra + 1.0) / (16.0 * M**2)

    def bound(self, gap: float, epochs: int, form: str = "proof") -> float:
        """The theorem's closed-form bound on the mean of E‖∇f‖² over a run: 2M·gap / ((K+1) S μ₀ μ₁ v₀).

        It is never below `gradient_bound` with Λ_min, of which it is a simpler majorant.

        Parameters
        ----------
        gap : float
            f(x₀) − f_inf.
        epochs : int
            K + 1.
        form : {"proof", "printed"}
            M = L + 2κ_H with v₀ of the proof, or L + κ_H with v₀ as the theorem prints them.

        Returns
        -------
        float
            Infinite where v₀ is not positive: no guarantee.
        """
        gap, epochs = _check.positive("gap", gap, zero=True), _check.whole("epochs", epochs)
        printed = _check.one_of("form", form, ("proof", "printed")) == "printed"
        v0 = self.v0_printed if printed else self.v0
        scale = 2.0 * (self.smoothness + (1.0 if printed else 2.0) * self.hessian_bound)
        steps = epochs * self.inner_steps
        return scale * gap / (steps * self.mu0 * self.mu1 * v0) if v0 > 0.0 else math.inf

    def solver(self, hessian: str = "estimated") -> Any:
        """A `TRSVR` with these numbers; ``hessian`` is the curvature whose bound they were made from."""
        return TRSVR(alpha=self.alpha, batch_size=self.batch_size, inner_steps=self.inner_steps, hessian=hessian)


def theorem_settings(
    n_samples: int,
    smoothness: float,
    hessian_bound: float,
    *,
    mu0: float = 1.0,
    mu1: float = 1.0,
    gamma: float = 2.0 / 3.0,
    form: str = "proof",
) -> Settings:
    """α, b and S of the theorem.

    α = μ₀b/(2(L + 2κ_H)N^γ), b = μ₁N^γ (rounded down), S as large as allowed.

    Parameters
    ----------
    n_samples : int
        N.
    smoothness, hessian_bound : float
        L, which is L_max of `component_smoothness`, and κ_H.
    mu0, mu1, gamma : float
        μ₀, μ₁, γ in (0, 1]; γ = 2/3 gives O(N + N^{2/3}/ε) component gradients.
    form : {"proof", "printed"}
        Which bound of S: ⌊1/ρ⌋ as the proof needs it, or the one the theorem prints. See the module's description.

    Returns
    -------
    Settings
    """
    n = _check.whole("n_samples", n_samples)
    L = _check.positive("smoothness", smoothness)
    M = L + 2.0 * _check.positive("hessian_bound", hessian_bound, zero=True)
    for name, value in (("mu0", mu0), ("mu1", mu1), ("gamma", gamma)):
        if _check.positive(name, value) > 1.0:
            raise ValueError(f"{name} must be a number in (0, 1], got {value!r}")
    power = n**gamma
    b = max(1, math.floor(mu1 * power * (1.0 + 1e-12)))  # 1000^(2/3) is 99.999… in floating point
    alpha = mu0 * b / (2.0 * M * power)
    if alpha > 1.0:
        raise ValueError(
            f"the theorem wants alpha <= 1, got {alpha:.4g}: choose mu0 at most {mu0 / alpha:.4g} for these constants"
        )
    z = 2.0 * M / n ** (gamma / 2.0)
    if _check.one_of("form", form, ("proof", "printed")) == "proof":
        allowed = 1.0 / (alpha * z + (alpha**2 + alpha / z) * L**2 / b)
    else:
        allowed = n ** (1.5 * gamma) / (mu0 * (b + mu0 * L**2 * b / (2.0 * M)))
    steps = max(1, math.floor(allowed))
    proof = lyapunov(alpha, b, steps, L, hessian_bound, z)
    return Settings(alpha, b, steps, n, L, float(hessian_bound), mu0, b / power, gamma, proof)


def gradient_bound(gap: float, epochs: int, inner_steps: int, progress: float) -> float:
    """The theorem's bound on the mean of E‖∇f‖² over a run: gap / (epochs · S · Λ_min).

    Parameters
    ----------
    gap : float
        f(x₀) − f_inf. Linear models have f_inf ≥ 0, so f(x₀) will do.
    epochs, inner_steps : int
        K + 1 and S.
    progress : float
        Λ_min, of `Settings` or `Lyapunov`.

    Returns
    -------
    float
        Infinite where Λ_min is not positive: no guarantee.
    """
    gap = _check.positive("gap", gap, zero=True)
    steps = _check.whole("epochs", epochs) * _check.whole("inner_steps", inner_steps)
    return gap / (steps * progress) if progress > 0.0 else math.inf


@dataclass(frozen=True)
class Complexity:
    """What the theorem asks for to bring the mean of E‖∇f‖² below ε.

    Attributes
    ----------
    epsilon : float
    epochs, iterations : float
        Outer iterations K + 1, and all steps (K + 1)·S. Infinite without a guarantee.
    gradient_evaluations, passes : float
        Component gradients (N + 2bS per epoch; products with curvature come on top), and the same over N.
    """

    epsilon: float
    epochs: float
    iterations: float
    gradient_evaluations: float
    passes: float


def complexity(
    epsilon: float, gap: float, n_samples: int, batch_size: int, inner_steps: int, progress: float
) -> Complexity:
    """Predicted iterations and component gradients for a wanted ε.

    Parameters
    ----------
    epsilon : float
        Wanted mean of E‖∇f‖².
    gap : float
        f(x₀) − f_inf.
    n_samples, batch_size, inner_steps : int
        N, b, S.
    progress : float
        Λ_min.
    """
    epsilon, gap = _check.positive("epsilon", epsilon), _check.positive("gap", gap, zero=True)
    if not progress > 0.0:
        return Complexity(epsilon, math.inf, math.inf, math.inf, math.inf)
    epochs = max(1, math.ceil(gap / (epsilon * inner_steps * progress)))
    evaluations = epochs * (n_samples + 2 * batch_size * inner_steps)
    return Complexity(epsilon, epochs, epochs * inner_steps, evaluations, evaluations / n_samples)
