"""Sweeps over vectors of length d, compiled, in place; plain and compiled algorithms use the same ones."""

from __future__ import annotations

import numpy as np

from trsvr._arrays import Vector
from trsvr._compile import kernel


@kernel(fastmath=True)
def dot(a: Vector, b: Vector) -> float:
    """Σ a_j b_j."""
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@kernel(fastmath=True)
def add_scaled(factor: float, a: Vector, out: Vector) -> None:
    """Add ``factor`` times a to ``out``."""
    for j in range(a.size):
        out[j] += factor * a[j]


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
def all_finite(a: Vector) -> bool:
    """Whether no entry is NaN or infinite."""
    for j in range(a.size):
        if not np.isfinite(a[j]):
            return False
    return True
