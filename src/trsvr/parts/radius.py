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
