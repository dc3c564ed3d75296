"""The Jacobian of residuals from their differences: one more evaluation for each unknown, or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trsvr._arrays import ROOT_EPSILON, Matrix, Vector

_STEPS = {"2-point": ROOT_EPSILON, "3-point": float(np.finfo(float).eps) ** (1.0 / 3.0), "5-point": 1e-4}
_NO_ROUNDING = 1e-30  # a complex step cancels nothing

# Below this part of the largest entry of x one is nearly zero; a change of less than that part of r is rounding.
_NEARLY_ZERO, _ROUNDING, _LONGER, _TINY = 1e-8, 1e-13, 1e3, 1e-30

# Parts of a step of fourth order, tried where the whole one leaves the domain.
_NEARER, _WELL_INSIDE = (1.0, 0.1, 1e-2, 1e-3), 1.0 / 30.0

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
    A step that leaves the domain of a function is made to the other side; one of fourth order is made shorter first.
    """
    matrix = np.empty((at_x.size, x.size), order="F")
    lengths = np.where(x != 0.0, np.abs(x), 1.0 if size is None else size)
    longest, rounding = max(1.0, float(np.abs(x).max(initial=0.0))), _ROUNDING * float(np.abs(at_x).max(initial=0.0))
    for j in range(x.size):
        # An entry that is nearly zero may be no measure of itself: its steps grow until the residuals feel them.
        doubtful = kind != "cs" and lengths[j] < _NEARLY_ZERO * longest
        while doubtful and lengths[j] < longest:
            felt = np.abs(_shifted(residuals, x, j, _STEPS[kind] * float(lengths[j]))[0] - at_x)
            if not felt.max(initial=0.0) <= rounding:
                break
            lengths[j] = max(_LONGER * lengths[j], _TINY)
        if kind == "cs":
            shifted = x.astype(np.complex128)
            shifted[j] += 1j * (_NO_ROUNDING * lengths[j])
            matrix[:, j] = np.imag(residuals(shifted)) / (_NO_ROUNDING * lengths[j])
            continue
        wanted = _STEPS[kind] * float(lengths[j])
        if kind == "5-point":
            found = _of_fourth_order(residuals, x, at_x, j, wanted)
            if found is not None:
                matrix[:, j] = found
                continue
            wanted = _STEPS["2-point"] * float(lengths[j])
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


def _of_fourth_order(
    residuals: Callable[[Any], Vector], x: Vector, at_x: Vector, j: int, wanted: float
) -> Vector | None:
    """∂r/∂xⱼ from both sides, nearer where an edge of the domain is near; at an edge from one side alone."""
    for part in _NEARER:
        # Where a function has an edge it often bends there without end: well inside, then.
        for nearer in (1.0,) if part == 1.0 else (1.0, _WELL_INSIDE):
            near, far = (_central(residuals, x, j, times * nearer * part * wanted) for times in (1.0, 2.0))
            found = (4.0 * near - far) / 3.0
            if not np.isfinite(found).all():
                break
        else:
            return found
    for part in _NEARER:
        for signed in (part * wanted, -part * wanted):
            moved = [_shifted(residuals, x, j, times * signed) for times in range(1, 5)]
            weights = np.array([48.0, -36.0, 16.0, -3.0]) / 12.0
            found = np.sum([w * (there - at_x) for w, (there, _) in zip(weights, moved, strict=True)], axis=0)
            if np.isfinite(found).all():
                return found / (moved[-1][1] / 4.0)
    return None


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
