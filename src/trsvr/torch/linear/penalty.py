"""A separable regulariser on vectors of the host: the parameters are few, and decisions are made there."""

from __future__ import annotations

from typing import Any

import numpy as np

from trsvr._arrays import Vector
from trsvr.problems.regularizers import L2, DoubleWell, Sum, is_uniform


class Penalty:
    """r(w) of x = (w, intercepts), and its derivatives.

    Parameters
    ----------
    regularizer
        Formulas of one coordinate.
    penalised : int
        Length of w, which the formulas are given as ``d``.
    """

    def __init__(self, regularizer: Any, penalised: int) -> None:
        self._penalised = penalised
        self._formulas = {name: _on_vectors(regularizer, name) for name in ("value", "slope", "curvature")}
        #: (a, c) with r'(w) = a w + c w³, or None where it is something else
        self.cubic = _cubic(regularizer, penalised)

    def _apply(self, name: str, x: Vector) -> Vector:
        out = np.zeros_like(x)
        out[: self._penalised] = self._formulas[name](x[: self._penalised], self._penalised)
        return out

    def value(self, x: Vector) -> float:
        """r(w)."""
        return float(self._apply("value", x).sum())

    def slopes(self, x: Vector) -> Vector:
        """∇r."""
        return self._apply("slope", x)

    def curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r."""
        return self._apply("curvature", x)


def _on_vectors(regularizer: Any, name: str) -> Any:
    formula = getattr(regularizer, name)
    if _is_ours(regularizer):
        return formula  # arithmetic alone: it takes vectors as they are
    return np.vectorize(formula, otypes=[np.float64], excluded={1})


def _is_ours(regularizer: Any) -> bool:
    return all(map(_is_ours, regularizer)) if isinstance(regularizer, Sum) else isinstance(regularizer, L2 | DoubleWell)


def _cubic(regularizer: Any, d: int) -> tuple[float, float] | None:
    """Coefficients of r'(w) = a w + c w³; None where they differ from coordinate to coordinate."""
    if is_uniform(regularizer):
        return regularizer.strength, 0.0
    if isinstance(regularizer, DoubleWell):
        factor = 4.0 * regularizer.gamma / d
        return -factor * regularizer.a**2, factor
    if isinstance(regularizer, Sum):
        first, second = _cubic(regularizer.first, d), _cubic(regularizer.second, d)
        if first is not None and second is not None:
            return first[0] + second[0], first[1] + second[1]
    return None
