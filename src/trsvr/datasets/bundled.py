"""Two small sets that come with scikit-learn, for use without any file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def _breast_cancer() -> tuple[NDArray[Any], NDArray[Any]]:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return X, y


def _digits_even() -> tuple[NDArray[Any], NDArray[Any]]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, y % 2 == 0


BUNDLED = {"breast-cancer": _breast_cancer, "digits-even": _digits_even}


def read(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows and labels 0 and 1."""
    try:
        X, y = BUNDLED[name]()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} comes with scikit-learn: pip install 'trsvr[sklearn]'") from error
    return np.ascontiguousarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
