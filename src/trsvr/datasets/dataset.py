"""What `load` and the generators return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr import _check

# Below this share of nonzeros a matrix is kept as CSR, from it on as a dense array. CSR takes less memory up to 2/3,
# but a mini-batch gradient is faster on dense rows from about 0.2 on (`benchmarks/datasets.py --storage`), and there
# the dense array is at most 3.4 times as large.
DENSE_FROM = 0.2


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows and labels of one data set, ready for a problem.

    Attributes
    ----------
    X : ndarray or scipy.sparse.csr_array of shape (n_samples, n_features)
        The rows, prepared; CSR where fewer than a fifth of the entries are nonzero. May be a read-only memory map.
    y : ndarray of float64
        Labels −1 and 1.
    name : str
        What it is. Where a stand-in was loaded, the name of the stand-in.
    source : str
        Where it came from and how its content was checked.
    preprocess : str
        How it was prepared, one of the names that `load` takes (never "default").
    label_map : dict
        The labels of the source and what became of them, for example ``{1.0: -1, 2.0: 1}``.
    sha256 : str
        Hash of what was read, before it was prepared: shape, nonzero entries and labels of the source. It is the same
        on every machine and for every way of compressing the file.
    nonzeros : int
        Number of nonzero entries of the source, before it was prepared.
    description : str
        In words, how it was prepared.
    split : str
        "train" or "test".
    """

    X: Any
    y: NDArray[np.float64]
    name: str
    source: str
    preprocess: str
    label_map: dict[float, int]
    sha256: str
    nonzeros: int
    description: str = ""
    split: str = "train"

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def density(self) -> float:
        """Share of entries that are not zero in the source, before it was prepared."""
        return self.nonzeros / (self.n_samples * self.n_features)

    def __repr__(self) -> str:
        form = "CSR" if scipy.sparse.issparse(self.X) else "dense"
        return (
            f"<{self.name} ({self.split}): {self.n_samples} × {self.n_features}, {form} {self.X.dtype}, "
            f"density {self.density:.2g}, preprocess {self.preprocess}>"
        )


def best_form(X: Any) -> Any:
    """Dense or CSR, whichever suits the share of nonzeros."""
    return dense_copy(X) if X.nnz >= DENSE_FROM * X.shape[0] * X.shape[1] else X


def dense_copy(X: Any) -> Any:
    """A sparse matrix as an array; refused with its size where it would not fit into memory."""
    rows, columns = X.shape
    _check.fits_in_memory(rows * columns * X.dtype.itemsize, f"{rows} x {columns} dense numbers", "use the rows as CSR")
    return X.toarray()


def signs(labels: NDArray[np.float64], what: str) -> tuple[NDArray[np.float64], dict[float, int]]:
    """Labels −1 and 1, the smaller of the two becoming −1, and which became which."""
    kinds = np.unique(labels)
    if kinds.size != 2:
        shown = ", ".join(f"{kind:g}" for kind in kinds[:5])
        raise ValueError(f"{what} must have exactly two classes, got {kinds.size}: {shown}")
    return np.where(labels == kinds[1], 1.0, -1.0), {float(kinds[0]): -1, float(kinds[1]): 1}
