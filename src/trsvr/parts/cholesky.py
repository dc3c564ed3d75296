"""Cholesky factors of small and middling matrices, without waiting for BLAS threads.

To 96 columns LAPACK works on one thread by itself. To 512 the factorisation is compiled here: as fast as LAPACK on one
thread, and it changes nothing in the process. Above that it is LAPACK's, with BLAS kept to one thread meanwhile.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._blas import LONE_COLUMNS, one_blas_thread
from trsvr._compile import kernel

_OWN_COLUMNS = 512


@functools.cache
def _lapack() -> Any:
    """SciPy's, which is slow to import and not needed by everybody."""
    from scipy.linalg import lapack

    return lapack


def cholesky(matrix: Matrix) -> Matrix | None:
    """The lower factor of a symmetric matrix of which the lower half is read; None if it is not positive definite."""
    d = len(matrix)
    if LONE_COLUMNS < d <= _OWN_COLUMNS:
        factor = np.zeros_like(matrix)
        return factor if _factor(matrix, factor) else None
    if d <= LONE_COLUMNS:
        return _by_lapack(matrix)
    with one_blas_thread():
        return _by_lapack(matrix)


def _by_lapack(matrix: Matrix) -> Matrix | None:
    # To LAPACK, whose matrices lie column by column, the transpose: no copy is turned around.
    factor, failed = _lapack().dpotrf(matrix.T, lower=False, clean=True)
    return None if failed else factor.T


def solve(factor: Matrix, v: Vector) -> Vector:
    """(L Lᵀ)⁻¹ v."""
    if v.size <= LONE_COLUMNS:
        found: Vector = _lapack().dpotrs(factor.T, v, lower=False)[0]
        return found
    solution = v.copy()
    _substitute(factor, solution)
    return solution


def solve_many(factor: Matrix, table: Matrix) -> Matrix:
    """(L Lᵀ)⁻¹ V of a d × K matrix V."""
    with one_blas_thread():
        return np.ascontiguousarray(_lapack().dpotrs(factor.T, table, lower=False)[0])


def solve_half(factor: Matrix, table: Matrix) -> Matrix:
    """L⁻¹ V."""
    with one_blas_thread():
        return np.ascontiguousarray(_lapack().dtrtrs(factor.T, table, lower=False, trans=1)[0])


def inverse_root(factor: Matrix) -> Matrix:
    """L⁻¹ of a matrix of few columns."""
    found: Matrix = _lapack().dtrtri(factor.T, lower=False)[0].T
    return found


def inverse(factor: Matrix) -> Matrix:
    """(L Lᵀ)⁻¹."""
    with one_blas_thread():
        return np.ascontiguousarray(_lapack().dpotrs(factor.T, np.eye(len(factor)), lower=False)[0])


def multiply(matrix: Matrix, v: Vector) -> Vector:
    """Matrix times vector."""
    if matrix.size <= LONE_COLUMNS * LONE_COLUMNS:
        return matrix @ v
    out = np.empty(len(matrix))
    _multiply(matrix, v, out)
    return out


@kernel(fastmath=True)
def _factor(matrix: Matrix, factor: Matrix) -> bool:
    """Row by row, in tiles of four by four whose sixteen inner products share their loads; whether it exists."""
    d = matrix.shape[0]
    for i in range(0, d, 4):
        rows = min(4, d - i)
        for j in range(0, i + 1, 4):
            if rows == 4:
                a, b, c, e = factor[i], factor[i + 1], factor[i + 2], factor[i + 3]
                p, q, r, s = factor[j], factor[j + 1], factor[j + 2], factor[j + 3]
                ap = aq = ar = as_ = bp = bq = br = bs = 0.0
                cp = cq = cr = cs = ep = eq = er = es = 0.0
                for k in range(j):
                    ap += a[k] * p[k]
                    aq += a[k] * q[k]
                    ar += a[k] * r[k]
                    as_ += a[k] * s[k]
                    bp += b[k] * p[k]
                    bq += b[k] * q[k]
                    br += b[k] * r[k]
                    bs += b[k] * s[k]
                    cp += c[k] * p[k]
                    cq += c[k] * q[k]
                    cr += c[k] * r[k]
                    cs += c[k] * s[k]
                    ep += e[k] * p[k]
                    eq += e[k] * q[k]
                    er += e[k] * r[k]
                    es += e[k] * s[k]
                factor[i, j], factor[i, j + 1], factor[i, j + 2], factor[i, j + 3] = ap, aq, ar, as_
                factor[i + 1, j], factor[i + 1, j + 1], factor[i + 1, j + 2], factor[i + 1, j + 3] = bp, bq, br, bs
                factor[i + 2, j], factor[i + 2, j + 1], factor[i + 2, j + 2], factor[i + 2, j + 3] = cp, cq, cr, cs
                factor[i + 3, j], factor[i + 3, j + 1], factor[i + 3, j + 2], factor[i + 3, j + 3] = ep, eq, er, es
            else:
                for row in range(i, d):
                    for column in range(j, min(j + 4, row + 1)):
                        total = 0.0
                        for k in range(j):
                            total += factor[row, k] * factor[column, k]
                        factor[row, column] = total
            # The tile itself: a factor of its own on the diagonal, below it a triangular solve.
            for row in range(i, i + rows):
                for column in range(j, min(j + 4, row + 1)):
                    left = matrix[row, column] - factor[row, column]
                    for k in range(j, column):
                        left -= factor[row, k] * factor[column, k]
                    if column < row:
                        factor[row, column] = left / factor[column, column]
                    elif left > 0.0:
                        factor[row, column] = np.sqrt(left)
                    else:
                        return False
            if j == i:
                for row in range(i, i + rows):
                    for column in range(row + 1, i + rows):
                        factor[row, column] = 0.0
    return True


@kernel(fastmath=True)
def _substitute(factor: Matrix, v: Vector) -> None:
    """Solve with L and then with Lᵀ, in place, along the rows of L both times."""
    d = v.size
    for i in range(d):
        row, known = factor[i], 0.0
        for k in range(i):
            known += row[k] * v[k]
        v[i] = (v[i] - known) / row[i]
    for back in range(d):
        i = d - 1 - back
        row = factor[i]
        v[i] /= row[i]
        for k in range(i):
            v[k] -= v[i] * row[k]


@kernel(fastmath=True)
def _multiply(matrix: Matrix, v: Vector, out: Vector) -> None:
    for i in range(matrix.shape[0]):
        row, total = matrix[i], 0.0
        for k in range(v.size):
            total += row[k] * v[k]
        out[i] = total
