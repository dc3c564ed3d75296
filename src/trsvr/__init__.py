"""Finite sums minimised to many digits: stochastic trust regions with variance-reduced gradients."""

from trsvr import parts, problems, theory
from trsvr._version import __version__
from trsvr.engine import Result, Status, minimize
from trsvr.solvers import LBFGS, SAGA, SARAH, SGD, SVRG, TRSVR, Adam, TRish, TrustRegion, TrustRegionMethod

__all__ = [
    "minimize",
    "problems",
    "parts",
    "theory",
    "TRSVR",
    "SVRG",
    "SAGA",
    "SARAH",
    "SGD",
    "Adam",
    "TrustRegion",
    "TRish",
    "LBFGS",
    "TrustRegionMethod",
    "Result",
    "Status",
    "__version__",
]
