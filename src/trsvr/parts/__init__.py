"""How a step is made: gradient estimators, curvature, radius rules, subproblem solvers, schedules.

A part of your own is any object with the methods that its module describes. If it is a NamedTuple class marked with
``@trsvr.parts.record``, it is compiled into the loop like those here (see ``examples/own_estimator.py``).
"""

from trsvr._compile import record
from trsvr.parts.curvature import EstimatedHessian, ExactHessian, Identity, NoCurvature
from trsvr.parts.gradients import FullGradient, PlainGradient, SAGAGradient, SARAHGradient, SVRGGradient
from trsvr.parts.radius import GradientRadius, RatioTest, TRishRadius
from trsvr.parts.schedules import Constant, Cosine, InverseTime, StepDecay
from trsvr.parts.subproblems import DenseSubproblem, SteihaugCG, steihaug_cg
from trsvr.problems.steps import Exit

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
    "record",
]
