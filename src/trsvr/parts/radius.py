"""Radius rules: how far a step may go.

A rule is a record with ``radius_for(norm)``, the radius Δ for a gradient estimate of this norm.
"""

from __future__ import annotations

from typing import NamedTuple

from trsvr._compile import record


@record
class GradientRadius(NamedTuple):
    """Δ = α‖ḡ‖, the paper's rule.

    While α ≤ 1/λmax(H) every step ends on the boundary along −ḡ: SVRG with step α. For α ≥ 1/λmin(H) the constraint
    never binds: a sub-sampled Newton method.
    """

    alpha: float = 0.1

    def radius_for(self, norm: float) -> float:
        """Δ."""
        return self.alpha * norm


@record
class TRishRadius(NamedTuple):
    """Three cases of Δ (Curtis, Scheinberg & Shi 2019; with curvature Curtis & Shi 2022).

    γ₁α‖ḡ‖ for ‖ḡ‖ < 1/γ₁, then α up to ‖ḡ‖ = 1/γ₂, then γ₂α‖ḡ‖: a step of constant length in between, continuous in
    ‖ḡ‖.
    """

    alpha: float = 0.1
    gamma1: float = 4.0
    gamma2: float = 0.5

    def radius_for(self, norm: float) -> float:
        """Δ."""
        if norm * self.gamma1 < 1.0:
            return self.gamma1 * self.alpha * norm
        if norm * self.gamma2 <= 1.0:
            return self.alpha
        return self.gamma2 * self.alpha * norm


@record
class RatioTest(NamedTuple):
    """Δ follows the ratio of actual to predicted decrease (Nocedal & Wright, Algorithm 4.1).

    Below 1/4 the radius shrinks to a quarter; above 3/4, if the step ended on the boundary, it doubles, up to
    ``max_radius``. The step is taken if the ratio exceeds ``eta``. It needs values and full gradients, so it goes with
    `FullGradient` only.
    """

    initial_radius: float = 1.0
    max_radius: float = 1e6
    eta: float = 0.1

    def next_radius(self, current: float, ratio: float, on_boundary: bool) -> float:
        """Radius of the next iteration."""
        if not ratio >= 0.25:
            return 0.25 * current
        if ratio > 0.75 and on_boundary:
            return min(2.0 * current, self.max_radius)
        return current

    def accepts(self, ratio: float) -> bool:
        """Whether the step is taken."""
        return ratio > self.eta
