"""One data set at one λ, and the judge of all solvers: f(w) by NumPy, with none of our kernels."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr import _threads, datasets
from trsvr.datasets.verify import content_sha256

from .clock import timed
from .text import RECIPES, generate

Vector = NDArray[np.float64]

#: The sets, small ones first, so that a run that is stopped early has the most to tell.
SETS = ("mushrooms", "phishing", "cod-rna", "ijcnn1", "madelon", "synthetic", "rcv1", "covtype.scale", "covtype")
#: Small ones that come with scikit-learn, and generated ones, only if asked for.
WITH_INTERCEPT = "+intercept"
OTHER_SETS = ("breast-cancer", "digits-even", *RECIPES, "rcv1" + WITH_INTERCEPT)
QUICK_SETS = ("mushrooms", "phishing", "cod-rna", "ijcnn1", "synthetic")


@dataclass(frozen=True, eq=False)
class Data:
    """Rows and labels in memory."""

    name: str
    X: Any
    y: Vector
    sha256: str
    preprocess: str
    intercept: bool = False

    @classmethod
    def load(cls, name: str) -> Data:
        """A data set of `trsvr.datasets`, prepared as it is by default, or one of the generated ones.

        A name that ends with "+intercept" asks for a model with one, which is not penalised.
        """
        if name.endswith(WITH_INTERCEPT):
            return replace(cls.load(name.removesuffix(WITH_INTERCEPT)), name=name, intercept=True)
        if name in RECIPES:
            X, y = generate(RECIPES[name])
            return cls(name, X, y, content_sha256(X, y), "generated")
        found = datasets.load(name)
        X = found.X
        if scipy.sparse.issparse(X):
            # LIBLINEAR and Cyanure know only the older class; the arrays are the same.
            X = scipy.sparse.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)
        else:
            X = np.ascontiguousarray(X)
        return cls(name, X, np.asarray(found.y, dtype=np.float64), found.sha256, found.preprocess)

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are CSR."""
        return bool(scipy.sparse.issparse(self.X))

    def beginning(self, rows: int = 64) -> Data:
        """A few rows of the same kind, to compile for."""
        return replace(self, X=self.X[:rows], y=self.y[:rows])

    def facts(self) -> dict[str, Any]:
        """What a report says of it."""
        rows, columns = self.X.shape
        stored = self.X.nnz if self.is_sparse else int(np.count_nonzero(self.X))
        return {
            "data": self.name, "rows": rows, "columns": columns, "storage": "CSR" if self.is_sparse else "dense",
            "density": stored / (rows * columns), "preprocess": self.preprocess, "sha256": self.sha256,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Task:
    """Data and λ."""

    data: Data
    l2: float

    @property
    def X(self) -> Any:
        """The rows."""
        return self.data.X

    @property
    def y(self) -> Vector:
        """Labels −1 and 1."""
        return self.data.y

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @cached_property
    def columns_first(self) -> Any:
        """The same numbers by columns: Fortran order, or CSC."""
        return scipy.sparse.csc_matrix(self.X) if self.data.is_sparse else np.asfortranarray(self.X)

    @cached_property
    def largest_smoothness(self) -> float:
        """L_max: the largest Lipschitz constant of a component's gradient."""
        squares = self.X.multiply(self.X).sum(axis=1) if self.data.is_sparse else np.einsum("ij,ij->i", self.X, self.X)
        return float(0.25 * np.max(squares) + self.l2)

    def weights(self, coef: Any, intercept: Any) -> Vector:
        """What a solver has found, as one vector."""
        found = np.asarray(coef, dtype=np.float64).ravel()
        return np.append(found, np.asarray(intercept, dtype=np.float64)) if self.data.intercept else found

    def value(self, weights: Vector) -> float:
        """The objective at the weights, the last of which is the intercept where there is one."""
        w = weights[: self.X.shape[1]]
        margins = self.y * (self.X @ w + weights[w.size :].sum())
        return float(np.logaddexp(0.0, -margins).mean() + 0.5 * self.l2 * (w @ w))


# --------------------------------------------------------------------------------------------------------------- floor


@numba.njit(nogil=True, fastmath=True, cache=True)
def _sum(numbers: Any) -> float:
    total = 0.0
    for k in range(numbers.size):
        total += numbers[k]
    return total


def floor(data: Data, repetitions: int = 15) -> float:
    """Seconds of one compiled sum over everything that is stored of X, on all threads: nothing reads X faster."""
    threads = _threads.available()
    arrays = [data.X.data, data.X.indices] if data.is_sparse else [data.X.reshape(-1)]
    parts = [part for array in arrays for part in np.array_split(array, threads)]
    with ThreadPoolExecutor(threads) as pool:
        summed: Callable[[], Any] = lambda: list(pool.map(_sum, parts))  # noqa: E731
        summed()
        return min(timed(summed)[0] for _ in range(repetitions))
