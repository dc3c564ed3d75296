"""Checks at the door: a bad argument is refused with its name, what was got and what is accepted."""

from __future__ import annotations

import difflib
import math
import numbers
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def positive(name: str, value: Any, *, zero: bool = False) -> float:
    """A finite number above zero (or zero, where allowed)."""
    wanted = "a finite number >= 0" if zero else "a finite number > 0"
    # Most values are Python's own numbers: to ask an abstract class takes longer than all else here.
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return number


def whole(name: str, value: Any, *, at_least: int = 1, at_most: int | None = None) -> int:
    """A whole number within limits."""
    limits = f">= {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
        raise ValueError(f"{name} must be a whole number {limits}, got {value!r}")
    number = int(value)
    if number < at_least or (at_most is not None and number > at_most):
        raise ValueError(f"{name} must be a whole number {limits}, got {number}")
    return number


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """One of the known names; an error proposes the nearest one."""
    known = list(known)
    if isinstance(value, str) and value in known:
        return value
    raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}{nearest(value, known)}")


def nearest(value: Any, known: Iterable[str]) -> str:
    """A question for a message, whether the known name nearest to ``value`` was meant; empty where none is near."""
    spelt = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(str(value).casefold(), spelt, 1)
    return f"; did you mean {spelt[near[0]]!r}?" if near else ""


def finite(name: str, array: NDArray[Any]) -> None:
    """No NaN and no infinity; an error gives the first position."""
    if array.size and not np.isfinite(array).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        where = place[0] if len(place) == 1 else place
        raise ValueError(f"{name} must be finite, got {array[place]} at position {where}")


def vector(name: str, value: Any, length: int | None = None) -> NDArray[np.float64]:
    """A finite float64 vector of the wanted length, as a new array."""
    try:
        if np.iscomplexobj(value):
            raise ValueError("its entries are complex")
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a vector of numbers: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if length is not None and array.size != length:
        raise ValueError(f"{name} must have length {length}, got {array.size}")
    finite(name, array)
    return array


def same_shape(value: Any, like: NDArray[Any]) -> NDArray[Any]:
    """An array of the shape and type of another one; NaN is allowed."""
    if not isinstance(value, np.ndarray) or value.shape != like.shape or value.dtype != like.dtype:
        raise ValueError(f"an array of shape {like.shape} is missing")
    return value


def same_kind(value: Any, like: Any, name: str) -> Any:
    """A number of the same kind as another one; where that is None, a number or None."""
    kinds: tuple[type, ...] = (float, type(None)) if like is None else (type(like),)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, got {value!r}")
    return value


def row_indices(indices: Any, n: int) -> NDArray[np.int64]:
    """Whole numbers from 0 to n − 1; masks and fractions are refused."""
    given = np.asarray(indices)
    if given.ndim != 1 or given.size == 0:
        raise ValueError(f"indices must be a vector with at least one entry, got shape {given.shape}")
    if given.dtype.kind not in "iu":
        raise ValueError(f"indices must be whole numbers, got dtype {given.dtype}")
    if given.min() < 0 or given.max() >= n:
        raise ValueError(f"indices must lie in 0 … {n - 1}, got {given.min()} … {given.max()}")
    return np.ascontiguousarray(given, dtype=np.int64)


def free_memory() -> int:
    """Bytes that this process could still get: of the machine, and of the container it runs in."""
    found = [_available(), _left_in_container()]
    return min((size for size in found if size is not None), default=8 * 2**30)


def _available() -> int | None:
    """What the system could give without swapping; pages that only cache files count."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _left_in_container() -> int | None:
    """What the control group (version 2) of this process leaves; None where it sets no limit."""
    try:
        folder = "/sys/fs/cgroup"
        with open(f"{folder}/memory.max", encoding="ascii") as limit, open(f"{folder}/memory.current") as used:
            return max(0, int(limit.read()) - int(used.read()))
    except (OSError, ValueError):  # "max" is no number
        return None


# Bytes that are not worth asking the system for.
_SURELY_THERE = 2**24


class TooLarge(ValueError, MemoryError):
    """Something that would not fit into memory; nothing has been allocated."""


def fits_in_memory(size: int, what: str, instead: str) -> None:
    """Refuse, before anything is allocated, what would not fit."""
    if size > _SURELY_THERE and size > 0.8 * free_memory():
        raise TooLarge(
            f"{what} would need {size / 2**30:.1f} GiB, and {free_memory() / 2**30:.1f} GiB are available; {instead}"
        )
