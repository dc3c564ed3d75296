"""What is minimised: finite sums and how to evaluate them."""

from __future__ import annotations

from typing import Any

from trsvr import _check
from trsvr._compile import record
from trsvr.problems.families import Binomial, Gamma, NegativeBinomial, Poisson, Tweedie
from trsvr.problems.function import FunctionProblem
from trsvr.problems.least_squares import LeastSquares
from trsvr.problems.linear import LinearModel
from trsvr.problems.losses import Logistic, PseudoHuber, Softmax, Squared, SquaredHinge
from trsvr.problems.protocol import DataLostError, FiniteSum
from trsvr.problems.regularizers import L2, DoubleWell
from trsvr.problems.residual_losses import Tukey

__all__ = [
    "FiniteSum",
    "LinearModel",
    "FunctionProblem",
    "LeastSquares",
    "DataLostError",
    "logistic",
    "double_well_logistic",
    "Logistic",
    "SquaredHinge",
    "Squared",
    "PseudoHuber",
    "Tukey",
    "Softmax",
    "Poisson",
    "Gamma",
    "Tweedie",
    "NegativeBinomial",
    "Binomial",
    "L2",
    "DoubleWell",
    "record",
]


def logistic(X: Any, y: Any, l2: float = 1e-4, **options: Any) -> LinearModel:
    """Logistic regression, (1/N) Σ log(1 + exp(−y_i x_iᵀw)) + (l2/2)‖w‖².

    Parameters
    ----------
    X, y
        Data matrix and two labels, as for `LinearModel`.
    l2 : float
        Strength of the regulariser, >= 0.
    **options
        ``intercept`` and ``sample_weight`` of `LinearModel`.
    """
    return LinearModel(X, y, Logistic(), L2(_check.positive("l2", l2, zero=True)), **options)


def double_well_logistic(
    X: Any, y: Any, l2: float = 1e-4, gamma: float = 1e-4, a: float = 0.5, **options: Any
) -> LinearModel:
    """Logistic regression with the paper's double well, + (l2/2)‖w‖² + (gamma/d) Σ (w_j² − a²)².

    The sum of the two regularisers has curvature l2 + (gamma/d)(12w² − 4a²), so for l2 = gamma and a = 0.5 the
    objective is strongly convex. It is truly nonconvex for, say, gamma = 10·l2·d.

    Parameters
    ----------
    X, y
        Data matrix and two labels, as for `LinearModel`.
    l2, gamma, a : float
        Strengths and the position of the wells, >= 0.
    **options
        ``intercept`` and ``sample_weight`` of `LinearModel`.
    """
    penalty = L2(_check.positive("l2", l2, zero=True)) + DoubleWell(
        _check.positive("gamma", gamma, zero=True), _check.positive("a", a, zero=True)
    )
    return LinearModel(X, y, Logistic(), penalty, **options)
