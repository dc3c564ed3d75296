"""How a step is made: gradient estimators, curvature, radius rules, subproblem solvers."""

from trsvr.parts.curvature import EstimatedHessian, ExactHessian, Identity
from trsvr.parts.gradients import PlainGradient, SVRGGradient
from trsvr.parts.radius import GradientRadius
from trsvr.parts.subproblems import Exit, SteihaugCG, steihaug_cg

__all__ = [
    "PlainGradient",
    "SVRGGradient",
    "Identity",
    "EstimatedHessian",
    "ExactHessian",
    "GradientRadius",
    "SteihaugCG",
    "steihaug_cg",
    "Exit",
]
