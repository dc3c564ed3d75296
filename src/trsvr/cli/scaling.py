"""``--standardize``: columns in units of their own spread while the solver works, the file's units in the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from trsvr._arrays import Vector


@dataclass(frozen=True)
class Scaling:
    """Columns minus their means, over their standard deviations.

    Attributes
    ----------
    means : array
        Zeros where nothing is subtracted: in sparse rows, which would become dense, and without an intercept, which
        would no longer be none. With an intercept the minimiser is the same either way.
    scales : array
        Standard deviations; one for a constant column.
    """

    means: Vector
    scales: Vector

    @classmethod
    def of(cls, X: Any, intercept: bool) -> Scaling:
        """Learn them from rows."""
        if scipy.sparse.issparse(X):
            means = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
            squares = np.asarray(X.multiply(X).mean(axis=0), dtype=np.float64).ravel()
            spread, shift = np.sqrt(np.maximum(squares - means**2, 0.0)), np.zeros_like(means)
        else:
            spread = X.std(axis=0, dtype=np.float64)
            shift = X.mean(axis=0, dtype=np.float64) if intercept else np.zeros(X.shape[1])
        return cls(shift, np.where(spread > 0.0, spread, 1.0))

    def apply(self, X: Any) -> Any:
        """The rows in the new units, as a copy."""
        if scipy.sparse.issparse(X):
            return scipy.sparse.csr_array((X.data / self.scales[X.indices], X.indices, X.indptr), shape=X.shape)
        return np.ascontiguousarray((X - self.means) / self.scales)

    def undo(self, x: Vector, outputs: int, intercept: bool) -> Vector:
        """Weights for the rows as they are in the file, from those for the rows in the new units."""
        weights = x.reshape(-1, outputs).copy()
        weights[: len(self.scales)] /= self.scales[:, None]
        if intercept:
            weights[-1] -= self.means @ weights[: len(self.scales)]
        return weights.ravel()
