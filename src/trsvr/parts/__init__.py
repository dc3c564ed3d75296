"""How a step is made: gradient estimators, curvature, radius rules, subproblem solvers, schedules."""

from trsvr.parts.curvature import EstimatedHessian, ExactHessian, Identity, NoCurvature
from trsvr.parts.gradients import FullGradient, PlainGradient, SAGAGradient, SARAHGradient, SVRGGradient
from trsvr.parts.radius import GradientRadius, RatioTest, TRishRadius
from trsvr.parts.schedules import Constant, Cosine, InverseTime, StepDecay
from trsvr.parts.subproblems import DenseSubproblem, Exit, SteihaugCG, steihaug_cg

__all__ = [
    "PlainGradient",
    "SVRGGradient",
    "SARAHGradient",
    "SAGAGradient",
    "FullGradient",
    "Identity",
    "NoCurvature",
    "EstimatedHessian",
    "ExactHessian",
    "GradientRadius",
    "TRishRadius",
    "RatioTest",
    "SteihaugCG",
    "DenseSubproblem",
    "steihaug_cg",
    "Exit",
    "Constant",
    "InverseTime",
    "StepDecay",
    "Cosine",
]
