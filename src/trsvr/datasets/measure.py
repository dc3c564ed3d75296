"""What a user wants to know of a data set before minimising on it: balance, ranges, conditioning, smoothness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr.datasets.dataset import Dataset
from trsvr.datasets.preprocess import row_squares

# A Gram matrix of more columns than this is not formed.
GRAM_COLUMNS = 1000
_PAPER_L2 = 1e-4


@dataclass(frozen=True)
class Facts:
    """Numbers about a data set as it was prepared.

    Attributes
    ----------
    minimum, maximum : float
        Smallest and largest entry, zeros included.
    column_scales : tuple of float
        Smallest and largest root mean square of a column that is not zero.
    positive : float
        Share of rows with label 1.
    lipschitz : float
        L = ¼·λmax(XᵀX/N) + l2: Lipschitz constant of the gradient of logistic loss + (l2/2)‖w‖².
    lipschitz_max : float
        L_max = ¼·max ‖x_i‖² + l2: the same for the worst single row.
    condition : float or None
        λmax / λmin of XᵀX/N; infinite where it is singular, None where there are too many columns to form it.
    rank : int or None
        Number of eigenvalues of XᵀX/N that are not zero to working precision.
    l2 : float
        The regulariser's strength in L and L_max.
    """

    minimum: float
    maximum: float
    column_scales: tuple[float, float]
    positive: float
    lipschitz: float
    lipschitz_max: float
    condition: float | None
    rank: int | None
    l2: float


def facts(data: Dataset, l2: float = _PAPER_L2) -> Facts:
    """Look at every row of a data set.

    Parameters
    ----------
    data : Dataset
        What to look at.
    l2 : float
        Strength of the regulariser in L and L_max; the paper's by default.
    """
    X = data.X
    rows, columns = X.shape
    squares = _column_squares(X) / rows
    used = np.sqrt(squares[squares > 0])
    condition, rank = None, None
    if columns > GRAM_COLUMNS:
        largest = largest_eigenvalue(X)
    else:
        eigenvalues = np.linalg.eigvalsh(_gram(X))
        largest = float(eigenvalues[-1])
        zero = largest * columns * np.finfo(np.float64).eps
        rank = int((eigenvalues > zero).sum())
        condition = largest / float(eigenvalues[0]) if rank == columns else float("inf")
    return Facts(
        minimum=float(X.min()),
        maximum=float(X.max()),
        column_scales=(float(used.min()), float(used.max())) if used.size else (0.0, 0.0),
        positive=float((data.y > 0).mean()),
        lipschitz=0.25 * largest + l2,
        lipschitz_max=0.25 * float(row_squares(X).max()) + l2,
        condition=condition,
        rank=rank,
        l2=l2,
    )


def largest_eigenvalue(X: Any, tol: float = 1e-6, max_iterations: int = 1000) -> float:
    """λmax(XᵀX/N) by power iteration; an estimate from below, whose relative change has fallen under ``tol``."""
    rows, columns = X.shape
    vector = np.random.default_rng(0).standard_normal(columns)
    vector /= np.linalg.norm(vector)
    value = 0.0
    for _ in range(max_iterations):
        product = X.T @ (X @ vector) / rows
        length = float(np.linalg.norm(product))
        if length == 0:
            return 0.0
        vector = product / length
        if abs(length - value) <= tol * length:
            return length
        value = length
    return value


def _gram(X: Any) -> NDArray[np.float64]:
    if scipy.sparse.issparse(X):
        return np.asarray((X.T @ X).toarray(), dtype=np.float64) / X.shape[0]
    gram = np.zeros((X.shape[1], X.shape[1]))
    for begin in range(0, X.shape[0], 16384):
        piece = np.asarray(X[begin : begin + 16384], dtype=np.float64)
        gram += piece.T @ piece
    return gram / X.shape[0]


def _column_squares(X: Any) -> NDArray[np.float64]:
    if scipy.sparse.issparse(X):
        return np.asarray(np.bincount(X.indices, X.data.astype(np.float64) ** 2, X.shape[1]), dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->j", X, X, dtype=np.float64))
