"""The Jacobian of residuals from their differences: one more evaluation for each unknown, or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trsvr._arrays import ROOT_EPSILON, Matrix, Vector

_STEPS = {"2-point": ROOT_EPSILON, "3-point": float(np.finfo(float).eps) ** (1.0 / 3.0), "5-point": 1e-4}
_NO_ROUNDING = 1e-30  # a complex step cancels nothing

KINDS = ("2-point", "3-point", "cs")


def jacobian_by_differences(
    residuals: Callable[[Any], Vector], x: Vector, at_x: Vector, kind: str, size: Vector | None = None
) -> Matrix:
    """∂r/∂x, m × d.

    Parameters
    ----------
    residuals : callable
        x ↦ r(x).
    x, at_x : array
        The point, and r there.
    kind : {"2-point", "3-point", "5-point", "cs"}
        Forward differences with half of the digits, central ones with two thirds, those of fourth order with three
        quarters, or complex steps with all of them.
    size : array, optional
        What an entry of x that is zero counts as; one by default.

    Notes
    -----
    A step that leaves the domain of a function is made to the other side.
    """
    matrix = np.empty((at_x.size, x.size), order="F")
    lengths = np.where(x != 0.0, np.abs(x), 1.0 if size is None else size)
    for j in range(x.size):
        if kind == "cs":
            shifted = x.astype(np.complex128)
            shifted[j] += 1j * (_NO_ROUNDING * lengths[j])
            matrix[:, j] = np.imag(residuals(shifted)) / (_NO_ROUNDING * lengths[j])
            continue
        wanted = _STEPS[kind] * float(lengths[j])
        if kind == "5-point":
            near, far = (_central(residuals, x, j, times * wanted) for times in (1.0, 2.0))
            matrix[:, j] = (4.0 * near - far) / 3.0
            if np.isfinite(matrix[:, j]).all():
                continue
        ahead, forward = _shifted(residuals, x, j, wanted)
        back, backward = at_x, 0.0
        if kind != "2-point" or not np.isfinite(ahead).all():
            back, backward = _shifted(residuals, x, j, -wanted)
            if not np.isfinite(back).all():
                back, backward = at_x, 0.0
            elif not np.isfinite(ahead).all():
                ahead, forward = at_x, 0.0
        matrix[:, j] = (ahead - back) / (forward - backward) if forward != backward else np.nan
    return matrix


def _central(residuals: Callable[[Any], Vector], x: Vector, j: int, by: float) -> Vector:
    (ahead, forward), (back, backward) = _shifted(residuals, x, j, by), _shifted(residuals, x, j, -by)
    return (ahead - back) / (forward - backward)


def _shifted(residuals: Callable[[Any], Vector], x: Vector, j: int, by: float) -> tuple[Vector, float]:
    """R with entry j of x moved, and by how much it was, exactly."""
    moved = x.copy()
    moved[j] += by
    return residuals(moved), float(moved[j] - x[j])


def evaluations(kind: str, d: int) -> int:
    """Sweeps over the residuals that this takes."""
    return {"3-point": 2, "5-point": 4}.get(kind, 1) * d
