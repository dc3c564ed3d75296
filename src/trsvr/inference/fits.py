"""A linear model at a point: what its statistics need to know of it, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.inference.sums import KNOWN_DISPERSION, family_of
from trsvr.problems.base import Problem
from trsvr.problems.families import is_glm
from trsvr.problems.linear import LinearModel
from trsvr.problems.regularizers import least_curvature, looped_curvatures, penalty_curvatures

INTERCEPT = "(intercept)"


def point(result: Any) -> Vector:
    """The x of a result, or x itself."""
    return _check.vector("result", result if isinstance(result, np.ndarray | list | tuple) else result.x)


@dataclass(frozen=True)
class Fit:
    """A linear model with one output, in memory or on Dask, at the point x.

    ``scale`` is the user's weights over those of the kernels, ``n`` the number of observations, ``names`` those of the
    coefficients, and ``penalty`` the diagonal of Λ.
    """

    problem: Problem
    x: Vector
    loss: Any
    precision: bool
    scale: float
    n: float
    names: tuple[str, ...]
    penalty: Vector

    @classmethod
    def of(cls, problem: Problem, x: Vector, weights: str) -> Fit:
        """Refuse what is no such model, or no point of it."""
        if problem.n_outputs > 1:
            raise ValueError(f"problem must have one output, got {problem.n_outputs}: fit a model for each class")
        if x.size != problem.n_parameters:
            raise ValueError(f"result must have {problem.n_parameters} numbers, got {x.size}")
        precision = _check.one_of("weights", weights, ("frequency", "precision")) == "precision"
        problem.on_rows(_nothing)  # what is no linear model says so
        model: Any = problem
        total, d = float(model.total_weight), model.n_features
        names = model.feature_names or tuple(f"x{j}" for j in range(d))
        takes_arrays = least_curvature(model.regularizer, d) is not None  # as all of the package's do
        curvatures = (penalty_curvatures if takes_arrays else looped_curvatures)(model.regularizer, x, d)
        return cls(
            problem,
            x,
            model.loss,
            precision,
            total / problem.n_samples,
            float(problem.n_samples) if precision else total,
            (*names, INTERCEPT) if model.intercept else names,
            total * curvatures,
        )

    @property
    def has_intercept(self) -> bool:
        """Whether the last coefficient is one."""
        return self.names[-1] == INTERCEPT

    @property
    def dispersion_is_known(self) -> bool:
        """Whether it is 1, or means nothing."""
        return isinstance(family_of(self.loss), KNOWN_DISPERSION) or not is_glm(self.loss)

    def parts(self, function: Any, *arguments: Any, per_row: Any = None) -> list[Any]:
        """What a function of `trsvr.inference.sums` finds, wherever the rows are."""
        return self.problem.on_rows(function, *arguments, per_row=per_row)


def _nothing(model: LinearModel) -> None:
    """Look at nothing."""
