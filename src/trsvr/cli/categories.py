"""``--categorical``: columns of categories as columns of 0 and 1, in training data and in files to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trsvr.datasets.errors import DataFileError

if TYPE_CHECKING:
    import pandas as pd

#: the word for all columns that hold text
AUTO = "auto"
_MOST_LEVELS = 10_000

#: levels of each column that is encoded; the first one has no column of its own where it was dropped
Levels = Mapping[str, Sequence[str]]


def is_text(column: pd.Series[Any]) -> bool:
    """Whether a column holds neither numbers nor truth values."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return isinstance(column.dtype, _categorical()) or not (is_numeric_dtype(column) or is_bool_dtype(column))


def _categorical() -> Any:
    import pandas as pd

    return pd.CategoricalDtype


def levels_in(path: Path, frame: pd.DataFrame, names: Sequence[str], wanted: Sequence[str]) -> dict[str, list[str]]:
    """The levels of the columns that are to be encoded, in order."""
    chosen = [name for name in names if name in wanted or (AUTO in wanted and is_text(frame[name]))]
    found = {name: sorted(set(_texts(path, frame[name], name))) for name in chosen}
    for name, levels in found.items():
        if len(levels) > _MOST_LEVELS:
            raise DataFileError(path, None, f"column {name!r} has {len(levels)} levels; --drop it, or join some")
    return found


def _texts(path: Path, column: pd.Series[Any], name: str) -> list[str]:
    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise DataFileError(path, None, f"column {name!r} has no value in row {missing[0] + 1}")
    return [str(value) for value in column]


def encoded_names(names: Sequence[str], levels: Levels, drop_first: bool) -> list[str]:
    """Names of the columns after encoding: ``region=north``."""
    return [
        full
        for name in names
        for full in ([f"{name}={level}" for level in levels[name][int(drop_first) :]] if name in levels else [name])
    ]


def encode(
    path: Path, frame: pd.DataFrame, names: Sequence[str], levels: Levels, drop_first: bool, numbers: Any
) -> scipy.sparse.csr_array:
    """The columns as CSR; ``numbers(column, name)`` reads those that are not encoded."""
    parts: list[Any] = []
    for name in names:
        if name not in levels:
            parts.append(scipy.sparse.csc_array(numbers(path, frame[name], name)[:, None]))
            continue
        texts = np.array(_texts(path, frame[name], name))
        known = np.array(levels[name])
        places: NDArray[np.int64] = np.searchsorted(known, texts)
        strange = np.flatnonzero(known.take(places, mode="clip") != texts)
        if strange.size:
            level = str(texts[strange[0]])
            raise DataFileError(path, None, f"column {name!r} has the level {level!r}, which the model does not know")
        rows = np.flatnonzero(places >= int(drop_first))
        shape = len(frame), len(known) - int(drop_first)
        parts.append(
            scipy.sparse.coo_array((np.ones(rows.size), (rows, places[rows] - int(drop_first))), shape=shape).tocsc()
        )
    return scipy.sparse.csr_array(scipy.sparse.hstack(parts, format="csr"))
