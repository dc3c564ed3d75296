"""Two small sets that come with scikit-learn, for use without any file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BUNDLED = ("breast-cancer", "digits-even")


def read(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows and labels 0 and 1."""
    try:
        from sklearn.datasets import load_breast_cancer, load_digits
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} comes with scikit-learn: pip install 'trsvr[sklearn]'") from error
    if name == "digits-even":
        X, digits = load_digits(return_X_y=True)
        y = digits % 2 == 0
    else:
        X, y = load_breast_cancer(return_X_y=True)
    return np.ascontiguousarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
