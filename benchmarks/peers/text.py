"""Generated bags of words, and sparse tables of few columns: sets that no solver was tuned on.

Lengths of rows are log-normal; the frequency of a column falls like a power of its rank; entries are (1 + log count)
times the inverse document frequency, rows have unit length. Labels are drawn from the logistic model at random weights,
with margins of standard deviation 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse

_SPREAD = 0.6  # of the logarithm of a row's length
_FEWEST, _MOST = 8, 600  # words in a row
_DEVIATION = 4.0  # of the margins


class Recipe(NamedTuple):
    """Rows, columns, mean number of words in a row, and whether the file is sorted by label."""

    rows: int
    columns: int
    words: float = 75.0
    by_label: bool = False


RECIPES = {
    "text-8000x8000": Recipe(8000, 8000),
    "text-15000x60000": Recipe(15_000, 60_000),
    "text-8000x8000-by-label": Recipe(8000, 8000, by_label=True),
    "text-15000x60000-by-label": Recipe(15_000, 60_000, by_label=True),
    "table-30000x120": Recipe(30_000, 120, 14.0),
    "table-50000x300": Recipe(50_000, 300, 14.0),
}


def generate(recipe: Recipe, seed: int = 0) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Rows and labels −1 and 1; the same every time."""
    random, (n, d, words, by_label) = np.random.default_rng(seed), recipe
    lengths = random.lognormal(np.log(words) - 0.5 * _SPREAD**2, _SPREAD, n).clip(_FEWEST, _MOST).astype(np.int64)
    chances = np.cumsum(1.0 / (np.arange(d) + 20.0) ** 1.05)
    drawn = np.searchsorted(chances / chances[-1], random.random(lengths.sum()), side="right").clip(max=d - 1)
    places, counts = np.unique(np.repeat(np.arange(n), lengths) * d + random.permutation(d)[drawn], return_counts=True)
    row, column = places // d, places % d
    entries = (1.0 + np.log(counts)) * np.log((n + 1.0) / np.bincount(column, minlength=d)[column])
    entries /= np.sqrt(np.bincount(row, entries**2, n))[row]
    X = scipy.sparse.csr_matrix((entries, (row, column)), shape=(n, d))
    margins = X @ random.standard_normal(d)
    y = np.where(random.logistic(size=n) < margins * (_DEVIATION / margins.std()), 1.0, -1.0)
    order = np.argsort(y, kind="stable") if by_label else np.arange(n)
    return X[order], y[order]
