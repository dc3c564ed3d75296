"""The table of data sets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trsvr.datasets import bundled, search
from trsvr.datasets.registry import ENTRIES, Entry

if TYPE_CHECKING:
    import pandas


def catalogue(data_dir: str | os.PathLike[str] | None = None) -> pandas.DataFrame:
    """Describe the data sets that `load` knows by name.

    Parameters
    ----------
    data_dir : str or path, optional
        Folder to look into first, as for `load`.

    Returns
    -------
    pandas.DataFrame
        One row a set: rows, columns, density and label counts of the training split, rows of the test split (0: none),
        the default way of preparing it, where it would come from, and what it is. Of generators the shape is that of
        their default arguments.
    """
    import pandas

    table = [_described(entry, data_dir) for entry in ENTRIES.values()]
    return pandas.DataFrame(table).set_index("name")


# Rows, columns, nonzeros and labels of the sets that are no files; a test compares them with what `load` returns.
_SHAPES = {
    "synthetic": (80_000, 32, 2_560_000, ""),
    "breast-cancer": (569, 30, 16_992, "0: 212, 1: 357"),
    "digits-even": (1797, 64, 58_736, "0: 906, 1: 891"),
}


def _described(entry: Entry, data_dir: str | os.PathLike[str] | None) -> dict[str, object]:
    file = entry.train
    if file is None:
        rows, columns, nonzeros, labels = _SHAPES[entry.name]
    else:
        rows, columns, nonzeros = file.rows, file.columns, file.nonzeros
        labels = ", ".join(f"{label:g}: {count}" if count else f"{label:g}" for label, count in file.labels)
    return {
        "name": entry.name,
        "rows": rows,
        "columns": columns,
        "density": nonzeros / (rows * columns) if nonzeros else float("nan"),
        "labels": labels,
        "test_rows": 0 if entry.test is None else entry.test.rows,
        "preprocess": entry.preprocess,
        "where": _where(entry, data_dir),
        "about": entry.about,
    }


def _where(entry: Entry, data_dir: str | os.PathLike[str] | None) -> str:
    if entry.train is None:
        return "scikit-learn" if entry.name in bundled.BUNDLED else "generator"
    found = next(search.candidates(entry, "train", data_dir), None)
    if found is None:
        return "download" if entry.train.downloadable else "not found"
    return f"{found[1]}" if found[0] is entry else f"{found[1]} (substitute)"
