"""Finite sums minimised to many digits: stochastic trust regions with variance-reduced gradients."""

from typing import Any

from trsvr import inference, parts, problems, theory
from trsvr._version import __version__
from trsvr.engine import CheckpointError, Result, Status, minimize, resume
from trsvr.fitting import LeastSquaresResult, curve_fit, least_squares
from trsvr.solvers import LBFGS, SAGA, SARAH, SDCA, SGD, SVRG, TRSVR, Adam, TRish, TrustRegion, TrustRegionMethod

__all__ = [
    "minimize",
    "resume",
    "least_squares",
    "curve_fit",
    "problems",
    "parts",
    "theory",
    "inference",
    "datasets",
    "TRSVR",
    "SVRG",
    "SAGA",
    "SARAH",
    "SDCA",
    "SGD",
    "Adam",
    "TrustRegion",
    "TRish",
    "LBFGS",
    "TrustRegionMethod",
    "Result",
    "LeastSquaresResult",
    "Status",
    "CheckpointError",
    "__version__",
]


def __dir__() -> list[str]:
    """Also what is imported when it is first asked for."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the data sets and the front doors when they are first asked for."""
    if name in ("datasets", "sklearn", "torch", "dask"):
        import importlib

        return importlib.import_module(f"trsvr.{name}")
    raise AttributeError(f"module 'trsvr' has no attribute {name!r}")
