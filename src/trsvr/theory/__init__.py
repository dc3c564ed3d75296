"""The paper's constants and guarantees as code: L, L_max, μ, κ_H; α, b, S; the bound of the theorem; step sizes.

Letters of the paper and names here:

========  =======================================================================================
L_max     `component_smoothness`: every ∇f_i is L_max-Lipschitz. This is the L of the paper's Assumption 1.
L         `smoothness`: ∇f is L-Lipschitz; L ≤ L_max, and often far smaller.
μ         `strong_convexity`, or 0.
κ_H       `hessian_bound`: ‖H‖ ≤ κ_H for the curvature that a method uses.
α, b, S   `theorem_settings`, the theorem's choice; `check` judges any other.
λ_s, Λ_s  `lyapunov`.
========  =======================================================================================
"""

from trsvr.theory.constants import (
    Constants,
    component_smoothness,
    constants,
    expected_smoothness,
    hessian_bound,
    local_smoothness,
    lowest_curvature,
    smoothness,
    strong_convexity,
    sublevel_radius,
)
from trsvr.theory.gap import Gap, estimate_gap, expected_decrease, gap_bound
from trsvr.theory.report import Report, Statement, check
from trsvr.theory.steps import recommended_step
from trsvr.theory.theorem import (
    Complexity,
    Lyapunov,
    Settings,
    best_lyapunov,
    complexity,
    gradient_bound,
    lyapunov,
    theorem_settings,
)

__all__ = [
    "component_smoothness",
    "smoothness",
    "local_smoothness",
    "lowest_curvature",
    "strong_convexity",
    "hessian_bound",
    "expected_smoothness",
    "sublevel_radius",
    "Constants",
    "constants",
    "theorem_settings",
    "Settings",
    "lyapunov",
    "best_lyapunov",
    "Lyapunov",
    "gradient_bound",
    "complexity",
    "Complexity",
    "recommended_step",
    "check",
    "Report",
    "Statement",
    "gap_bound",
    "expected_decrease",
    "estimate_gap",
    "Gap",
]
