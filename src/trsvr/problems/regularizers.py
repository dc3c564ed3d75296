"""Separable regularisers r(w) = Σ_j r_j(w_j), as formulas of one coordinate.

``d``, the number of penalised coordinates, is an argument because the paper's double well is divided by it. Add two
regularisers with ``+``. The kernels over rows never see them: they act on vectors of length d only.

A strength for each coordinate makes r_j differ: `coordinate` has the regulariser of one of them. Plain formulas take
the whole vector w, and a vector of strengths with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from trsvr import _check
from trsvr._arrays import Numbers, Vector
from trsvr._compile import compiled_for, record
from trsvr._linking import PART


@record
class L2(NamedTuple):
    """(strength / 2) w².

    The strength is one number, or an array with one for each coefficient: zero is no penalty. (For each column of X; of
    several outputs all have the same then, unless there is a strength for each of them too.)
    """

    strength: Any = 1e-4

    def __repr__(self) -> str:
        if np.size(self.strength) <= 8:
            return f"L2(strength={self.strength!r})"
        return f"L2({np.size(self.strength)} strengths from {np.min(self.strength)} to {np.max(self.strength)})"

    def value(self, w: Numbers, d: int) -> Numbers:
        """Penalty of one coordinate."""
        return 0.5 * self.strength * w * w

    def slope(self, w: Numbers, d: int) -> Numbers:
        """First derivative."""
        return self.strength * w

    def curvature(self, w: Numbers, d: int) -> Numbers:
        """Second derivative."""
        return self.strength

    def __add__(self, other: Any) -> Any:  # a sum of penalties, not of tuples
        return Sum(self, other)


@record
class DoubleWell(NamedTuple):
    """(gamma / d) (w² − a²)²: minima at w = ±a, negative curvature for |w| < a/√3."""

    gamma: float = 1e-4
    a: float = 0.5

    def value(self, w: Numbers, d: int) -> Numbers:
        """Penalty of one coordinate."""
        well = w * w - self.a * self.a
        return self.gamma / d * well * well

    def slope(self, w: Numbers, d: int) -> Numbers:
        """First derivative."""
        return 4.0 * self.gamma / d * w * (w * w - self.a * self.a)

    def curvature(self, w: Numbers, d: int) -> Numbers:
        """Second derivative."""
        return 4.0 * self.gamma / d * (3.0 * w * w - self.a * self.a)

    def __add__(self, other: Any) -> Any:  # a sum of penalties, not of tuples
        return Sum(self, other)


@record
class Sum(NamedTuple):
    """Two regularisers together, made by ``first + second``."""

    first: Any
    second: Any

    def value(self, w: Numbers, d: int) -> Numbers:
        """Penalty of one coordinate."""
        return self.first.value(w, d) + self.second.value(w, d)

    def slope(self, w: Numbers, d: int) -> Numbers:
        """First derivative."""
        return self.first.slope(w, d) + self.second.slope(w, d)

    def curvature(self, w: Numbers, d: int) -> Numbers:
        """Second derivative."""
        return self.first.curvature(w, d) + self.second.curvature(w, d)

    def __add__(self, other: Any) -> Any:
        return Sum(self, other)


def least_curvature(regularizer: Any, d: int) -> Any:
    """What the curvature of a coordinate is at least, wherever it is; None where that is not known."""
    if isinstance(regularizer, L2):
        return regularizer.strength
    if isinstance(regularizer, DoubleWell):
        return -4.0 * regularizer.gamma * regularizer.a**2 / d
    if isinstance(regularizer, Sum):
        parts = [least_curvature(part, d) for part in regularizer]
        return None if any(part is None for part in parts) else parts[0] + parts[1]
    return None


# Steps that are too long overflow here: they are refused, or the run says that it diverged.


@np.errstate(over="ignore", invalid="ignore")
def penalty_slopes(regularizer: Any, x: Vector, penalised: int) -> Vector:
    """∇r(x), where the first so many coordinates are penalised; plain formulas."""
    out = np.zeros(x.size)
    out[:penalised] = regularizer.slope(x[:penalised], penalised)
    return out


@np.errstate(over="ignore", invalid="ignore")
def penalty_curvatures(regularizer: Any, x: Vector, penalised: int) -> Vector:
    """Diagonal of ∇²r(x), in the same way."""
    out = np.zeros(x.size)
    out[:penalised] = regularizer.curvature(x[:penalised], penalised)
    return out


Regularizer = L2 | DoubleWell | Sum


def coordinate(regularizer: Any, j: int) -> Any:
    """The regulariser of coordinate j."""
    if isinstance(regularizer, Sum):
        return Sum(coordinate(regularizer.first, j), coordinate(regularizer.second, j))
    if isinstance(regularizer, L2) and np.ndim(regularizer.strength):
        return L2(regularizer.strength[j])
    return regularizer


@overload(coordinate, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_coordinate(regularizer: Any, j: Any) -> Any:
    kind = regularizer.instance_class
    if kind is Sum:
        return lambda regularizer, j: Sum(coordinate(regularizer.first, j), coordinate(regularizer.second, j))
    if kind is L2 and isinstance(regularizer.types[0], types.Array):
        return lambda regularizer, j: L2(regularizer.strength[j])
    return lambda regularizer, j: regularizer


# Compiled for a regulariser, whatever the rows and the loss are; w are the first d entries of x.


def add_penalty(regularizer: Any, x: Vector, d: int, out: Vector) -> float:
    """r(w), returned, and its gradient, added to ``out``."""
    return compiled_for(_add_penalty, regularizer)(regularizer, x, d, out)


def add_penalty_product(regularizer: Any, x: Vector, d: int, v: Vector, out: Vector) -> None:
    """Add the Hessian of r, times v, to ``out``."""
    compiled_for(_add_product, regularizer)(regularizer, x, d, v, out)


def looped_slopes(regularizer: Any, x: Vector, d: int) -> Vector:
    """As `penalty_slopes`, of formulas that may take numbers only."""
    out = np.zeros(x.size)
    compiled_for(_put_slopes, regularizer)(regularizer, x, d, out)
    return out


def looped_curvatures(regularizer: Any, x: Vector, d: int) -> Vector:
    """As `penalty_curvatures`, of formulas that may take numbers only."""
    out = np.zeros(x.size)
    compiled_for(_put_curvatures, regularizer)(regularizer, x, d, out)
    return out


class Penalty:
    """∇r and the diagonal of ∇²r as vectors: what views say of a regulariser. Answers are not to be written to."""

    def __init__(self, regularizer: Any, n_parameters: int, penalised: int) -> None:
        self._regularizer, self._penalised = regularizer, penalised
        # Compiled calls cost ten times as much on few columns; formulas of the user's may take numbers only.
        takes_arrays = least_curvature(regularizer, penalised) is not None
        self._slopes = penalty_slopes if takes_arrays else looped_slopes
        self._curvatures = penalty_curvatures if takes_arrays else looped_curvatures
        self._same: Vector | None = None  # the curvatures, where they are the same everywhere
        if isinstance(regularizer, L2):
            self._same = penalty_curvatures(regularizer, np.zeros(n_parameters), penalised)
            self._same.flags.writeable = False

    def slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._slopes(self._regularizer, x, self._penalised) if self._same is None else self._same * x

    def curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self._curvatures(self._regularizer, x, self._penalised) if self._same is None else self._same


def _add_penalty(regularizer: Any, x: Vector, d: int, out: Vector) -> float:
    total = 0.0
    for j in range(d):
        total += coordinate(regularizer, j).value(x[j], d)
        out[j] += coordinate(regularizer, j).slope(x[j], d)
    return total


def _add_product(regularizer: Any, x: Vector, d: int, v: Vector, out: Vector) -> None:
    for j in range(d):
        out[j] += coordinate(regularizer, j).curvature(x[j], d) * v[j]


def _put_slopes(regularizer: Any, x: Vector, d: int, out: Vector) -> None:
    for j in range(d):
        out[j] = coordinate(regularizer, j).slope(x[j], d)


def _put_curvatures(regularizer: Any, x: Vector, d: int, out: Vector) -> None:
    for j in range(d):
        out[j] = coordinate(regularizer, j).curvature(x[j], d)


def check_strength(strength: Any) -> None:
    """Refuse a strength that is neither a number >= 0 nor a vector of them."""
    if not np.ndim(strength):
        _check.positive("regularizer strength", strength, zero=True)
        return
    strengths = _check.vector("regularizer strength", strength)
    if (strengths < 0.0).any():
        place = int(np.flatnonzero(strengths < 0.0)[0])
        raise ValueError(f"regularizer strength must be >= 0, got {strengths[place]} at position {place}")


def fitted(regularizer: Any, columns: int, outputs: int) -> Any:
    """The same for so many columns and outputs: a vector of strengths has one for each coefficient."""
    if isinstance(regularizer, Sum):
        return Sum(*(fitted(part, columns, outputs) for part in regularizer))
    if not isinstance(regularizer, L2) or not np.ndim(regularizer.strength):
        return regularizer
    strengths = _check.vector("regularizer strength", regularizer.strength)
    if strengths.size == columns * outputs:
        return L2(strengths)
    if strengths.size == columns:
        return L2(np.repeat(strengths, outputs))
    wanted = f"{columns}" if outputs == 1 else f"{columns} (or {columns * outputs}, for each output apart)"
    raise ValueError(
        f"regularizer strength must be one number or one for each column, {wanted}, got {strengths.size}; "
        "the intercept is not penalised"
    )


def is_uniform(regularizer: Any) -> bool:
    """Whether it is L2 with one strength for all coordinates."""
    return isinstance(regularizer, L2) and not np.ndim(regularizer.strength)


def smallest_strength(regularizer: Any) -> float:
    """Of the quadratic part: positive where every coefficient is penalised."""
    if isinstance(regularizer, Sum):
        return max(map(smallest_strength, regularizer))
    if isinstance(regularizer, L2):
        return float(np.min(regularizer.strength) if np.ndim(regularizer.strength) else regularizer.strength)
    return 0.0
