"""Whether the data determine the coefficients of a linear model, and which columns are to blame if they do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._blas import one_blas_thread
from trsvr.inference.fits import Fit
from trsvr.inference.sums import column_ranges
from trsvr.problems.centring import Centring

# Eigenvalues of a matrix of unit diagonal that are rounding, times its size.
_ROUNDING = 64 * np.finfo(float).eps
# An error of a margin that says nothing.
_ENDLESS = 100.0


class SeparationError(ValueError):
    """The best coefficients are infinite."""


def inverse_of(matrix: Matrix, fit: Fit) -> Matrix:
    """Inverse of a positive definite matrix; refused, by name, where columns depend on each other.

    With an intercept the columns are centred meanwhile: those far from zero are nearly parallel to it.
    """
    from scipy.linalg import lapack  # takes long, and few need it

    if not np.isfinite(matrix).all():
        raise ValueError("result must be a point where the curvature is finite")
    d, whole = len(matrix), np.diagonal(matrix)
    frame = Centring(np.zeros(d - 1), 1)
    if fit.has_intercept and whole[-1] > 0.0:
        frame = Centring(matrix[:-1, -1] / whole[-1], 1)
    centred = frame.matrix_inside(matrix)
    squares = np.diagonal(centred)
    empty = np.flatnonzero(squares <= _ROUNDING * d * whole)
    if empty.size:
        kind = "zero" if whole[empty[0]] == 0.0 else "constant, as the intercept is"
        raise ValueError(
            f"without a penalty {fit.names[empty[0]]!r} has no standard error: its column is {kind}. Leave it "
            "out, or penalise it"
        )
    sizes = np.sqrt(squares)
    both = np.outer(sizes, sizes)
    scaled = centred / both
    with one_blas_thread():  # to wake others takes longer than a matrix of this size
        factor, failed = lapack.dpotrf(scaled.T)  # in the order of LAPACK; below its diagonal are zeros
        sure = 0.0 if failed else lapack.dpocon(factor, np.abs(scaled).sum(axis=0).max())[0]
        half = lapack.dpotri(factor, overwrite_c=True)[0] if sure > _ROUNDING * d else factor
    if sure <= _ROUNDING * d:
        _refuse_dependent(frame.outside(np.linalg.eigh(scaled)[1][:, 0] / sizes) * np.sqrt(whole), fit)
    half[np.diag_indices(d)] *= 0.5
    inverse = half + half.T
    inverse /= both
    inverse[-1] -= frame.means @ inverse[:-1]
    inverse[:, -1] -= inverse[:, :-1] @ frame.means
    return np.asarray(inverse)


def _refuse_dependent(direction: Vector, fit: Fit) -> None:
    """Name the columns along whose combination nothing changes."""
    involved = np.flatnonzero(np.abs(direction) > 1e-4 * np.abs(direction).max())
    raise ValueError(
        f"the columns {_named(involved, fit)} depend on each other linearly: without a penalty their coefficients have "
        "no standard errors. Leave one of them out (a level of a one-hot encoding, say), or penalise them"
    )


def refuse_separation(errors: Vector, fit: Fit) -> None:
    """A coefficient that grows for ever has an error that does, too, and leaves rows at the edge of their range."""
    lows, highs = zip(*fit.parts(column_ranges), strict=True)
    ranges = np.max(highs, axis=0) - np.min(lows, axis=0)
    endless = np.flatnonzero((errors[: ranges.size] * ranges > _ENDLESS) & (fit.penalty[: ranges.size] == 0.0))
    if endless.size:
        raise SeparationError(
            f"the data are separated: without a penalty {_named(endless, fit)} can predict some rows ever better, and "
            "the best coefficients are infinite. Penalise them, or leave the columns out"
        )


def _named(columns: Any, fit: Fit) -> str:
    more = f" and {columns.size - 10} more" if columns.size > 10 else ""
    return ", ".join(repr(fit.names[j]) for j in columns[:10]) + more
