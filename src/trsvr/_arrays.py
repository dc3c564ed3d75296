"""The types of arrays that the package speaks of, and the numbers that belong to their precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]
Numbers = Any  # a number where code is compiled, plain an array as well

# The step of a finite difference of gradients, relative: the root of machine epsilon.
ROOT_EPSILON = 2.0**-26
# A change of a sum over rows by this part of it, or less, is rounding.
ROUNDING = 64.0 * float(np.finfo(float).eps)


def as_array(values: Any) -> NDArray[Any]:
    """An array of what users have: arrays, lists, columns and frames."""
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def raw_bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array that is not empty."""
    view: Any = array.reshape(-1)
    return memoryview(view).cast("B")
