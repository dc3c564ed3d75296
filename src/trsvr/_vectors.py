"""Sweeps over vectors of length d, in place; plain and compiled algorithms use the same ones.

Called from Python, short vectors are left to NumPy: nothing is compiled for them, and they are too short for BLAS to
wake its threads. Long ones, and calls from compiled code, take the compiled sweeps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import overload

from trsvr._arrays import Vector
from trsvr._compile import kernel
from trsvr._linking import PART

# Up to here. OpenBLAS divides an inner product among threads from ten thousand numbers on.
SHORT = 2048
# A run that diverges overflows: its status says so.
_silent = np.errstate(all="ignore")


@kernel(fastmath=True)
def _dot(a: Vector, b: Vector) -> float:
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


def dot(a: Vector, b: Vector) -> float:
    """Σ a_j b_j."""
    return float(np.vdot(a, b)) if a.size <= SHORT else _dot(a, b)


@kernel(fastmath=True)
def _moments(a: Vector) -> tuple[float, float]:
    total = squares = 0.0
    for j in range(a.size):
        total += a[j]
        squares += a[j] * a[j]
    return total, squares


def moments(a: Vector) -> tuple[float, float]:
    """Σ a_j and Σ a_j²."""
    return (float(a.sum()), dot(a, a)) if a.size <= SHORT else _moments(a)


@kernel(fastmath=True)
def _add_scaled(factor: float, a: Vector, out: Vector) -> None:
    for j in range(a.size):
        out[j] += factor * a[j]


@_silent
def add_scaled(factor: float, a: Vector, out: Vector) -> None:
    """Add ``factor`` times a to ``out``."""
    if a.size <= SHORT:
        out += factor * a
    else:
        _add_scaled(factor, a, out)


@kernel(fastmath=True)
def _turn(beta: float, residual: Vector, direction: Vector) -> None:
    for j in range(residual.size):
        direction[j] = beta * direction[j] - residual[j]


@_silent
def turn(beta: float, residual: Vector, direction: Vector) -> None:
    """``direction`` becomes β times itself minus the residual."""
    if residual.size <= SHORT:
        direction *= beta
        direction -= residual
    else:
        _turn(beta, residual, direction)


@overload(dot, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_dot(a: Any, b: Any) -> Any:
    return lambda a, b: _dot(a, b)


@overload(add_scaled, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_scaled(factor: Any, a: Any, out: Any) -> Any:
    return lambda factor, a, out: _add_scaled(factor, a, out)


@overload(turn, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_turn(beta: Any, residual: Any, direction: Any) -> Any:
    return lambda beta, residual, direction: _turn(beta, residual, direction)


@kernel()
def copy_into(a: Vector, out: Vector) -> None:
    """Copy a into ``out``."""
    for j in range(a.size):
        out[j] = a[j]


@kernel()
def scale_by(factor: float, out: Vector) -> None:
    """Multiply ``out`` by a factor."""
    for j in range(out.size):
        out[j] *= factor


@kernel()
def is_zero(a: Vector) -> bool:
    """Whether all entries are zero."""
    for j in range(a.size):
        if a[j] != 0.0:
            return False
    return True


def all_finite(a: Vector) -> bool:
    """Whether no entry is NaN or infinite."""
    return math.isfinite(dot(a, a)) or bool(np.isfinite(a).all())
