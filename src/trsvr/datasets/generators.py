"""Data made up from a seed: the paper's synthetic set, and others for benchmarks.

Every generator returns a `Dataset`; the same arguments give the same data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.datasets.dataset import Dataset, best_form
from trsvr.datasets.verify import content_sha256

_PAPER_L2 = 1e-4


def synthetic(
    n_samples: int = 80_000, n_features: int = 32, condition: float = 1e4, lipschitz: float = 50.1, seed: int = 0
) -> Dataset:
    """Gaussian rows whose covariance has a given condition number, scaled to a given Lipschitz constant.

    Rows are x = c·Q·diag(s)^½·z with z standard normal, Q a random rotation and s spaced evenly on a log scale from 1
    down to 1/condition, so that the covariance has exactly this condition number. The factor c is chosen such that

        L = ¼·λmax(XᵀX/N) + 1e-4,

    the Lipschitz constant of the gradient of logistic loss + (1e-4/2)‖w‖², is ``lipschitz``. Labels are drawn from the
    logistic model at w* with standard normal entries.

    Parameters
    ----------
    n_samples, n_features : int
        Shape; the paper's by default.
    condition : float
        Condition number of the covariance, >= 1; with one column it can only be 1.
    lipschitz : float
        L, above 1e-4.
    seed : int
        Seed of all random numbers, >= 0.
    """
    rows, columns = _check.whole("n_samples", n_samples, at_least=2), _check.whole("n_features", n_features)
    condition = _check.positive("condition", condition)
    if condition < 1 or (columns == 1 and condition != 1):
        raise ValueError(f"condition must be >= 1 (and 1 for a single column), got {condition!r}")
    lipschitz = _check.positive("lipschitz", lipschitz)
    if lipschitz <= _PAPER_L2:
        raise ValueError(f"lipschitz must be above {_PAPER_L2}, the share of the regulariser, got {lipschitz!r}")
    random = _random(seed)
    rotation, triangle = np.linalg.qr(random.standard_normal((columns, columns)))
    rotation *= np.sign(np.diag(triangle))  # without this the rotation would not be uniform
    spectrum = np.geomspace(1.0, 1.0 / condition, columns)
    X = random.standard_normal((rows, columns)) @ (np.sqrt(spectrum)[:, None] * rotation.T)
    largest = float(np.linalg.eigvalsh(X.T @ X / rows)[-1])
    X *= np.sqrt(4.0 * (lipschitz - _PAPER_L2) / largest)
    y = _logistic_labels(random, X @ random.standard_normal(columns))
    arguments = f"{rows}, {columns}, condition={condition:g}, lipschitz={lipschitz:g}, seed={seed}"
    return _generated("synthetic", arguments, X, y)


def covtype_like(n_samples: int = 581_012, seed: int = 0) -> Dataset:
    """Tall data as in forest cover: ten numeric columns and two groups of 4 and 40 indicators, in 54 columns.

    Numeric columns are correlated and standard normal; every row has one indicator of each group, drawn with
    frequencies that fall like 1/rank.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    seed : int
        Seed of all random numbers, >= 0.
    """
    rows = _check.whole("n_samples", n_samples, at_least=2)
    random = _random(seed)
    numeric, groups = 10, (4, 40)
    X = np.zeros((rows, numeric + sum(groups)))
    mixing = np.eye(numeric) + 0.5 * random.standard_normal((numeric, numeric))
    mixing /= np.linalg.norm(mixing, axis=0)
    X[:, :numeric] = random.standard_normal((rows, numeric)) @ mixing
    begin = numeric
    for size in groups:
        frequencies = 1.0 / np.arange(1, size + 1)
        X[np.arange(rows), begin + random.choice(size, rows, p=frequencies / frequencies.sum())] = 1.0
        begin += size
    y = _logistic_labels(random, X @ random.standard_normal(X.shape[1]))
    return _generated("covtype_like", f"{rows}, seed={seed}", X, y)


def text_like(
    n_samples: int = 20_000, n_features: int = 47_000, words_per_row: float = 100.0, seed: int = 0
) -> Dataset:
    """Sparse rows of unit length as in bags of words, with a few columns in most rows and most columns in few.

    The frequency of a column falls like a power of its rank.
    Entries are (1 + log count)·log(n_samples / rows that have the column), then every row is scaled to length one.

    Parameters
    ----------
    n_samples, n_features : int
        Shape.
    words_per_row : float
        Mean number of words drawn for a row; frequent ones are drawn several times and fill one entry.
    seed : int
        Seed of all random numbers, >= 0.
    """
    rows, columns = _check.whole("n_samples", n_samples, at_least=2), _check.whole("n_features", n_features)
    mean = _check.positive("words_per_row", words_per_row)
    random = _random(seed)
    lengths = np.maximum(1, random.lognormal(np.log(mean) - 0.125, 0.5, rows)).astype(np.int64)
    ranks = np.cumsum((np.arange(columns) + 10.0) ** -1.1)
    # Columns are shuffled, so that neighbouring indices are not equally frequent.
    words = random.permutation(columns)[np.searchsorted(ranks / ranks[-1], random.random(lengths.sum()), side="right")]
    places, counts = np.unique(np.repeat(np.arange(rows), lengths) * columns + words, return_counts=True)
    row, column = places // columns, places % columns
    document_counts = np.bincount(column, minlength=columns)
    # One added: a column that every row has keeps a weight.
    values = (1.0 + np.log(counts)) * np.log((rows + 1.0) / document_counts[column])
    values /= np.sqrt(np.bincount(row, values**2, rows))[row]
    X = scipy.sparse.csr_array((values, (row, column)), shape=(rows, columns))
    y = _logistic_labels(random, 4.0 * (X @ random.standard_normal(columns)))
    return _generated("text_like", f"{rows}, {columns}, words_per_row={mean:g}, seed={seed}", X, y)


def separable(n_samples: int = 1000, n_features: int = 20, margin: float = 1.0, seed: int = 0) -> Dataset:
    """Two classes that a plane through the origin separates, every row at least ``margin`` away from it.

    Without regulariser logistic loss has no minimiser on such data.

    Parameters
    ----------
    n_samples, n_features : int
        Shape.
    margin : float
        Least distance from the plane, > 0.
    seed : int
        Seed of all random numbers, >= 0.
    """
    rows, columns = _check.whole("n_samples", n_samples, at_least=2), _check.whole("n_features", n_features)
    margin = _check.positive("margin", margin)
    random = _random(seed)
    normal = random.standard_normal(columns)
    normal /= np.linalg.norm(normal)
    X = random.standard_normal((rows, columns))
    y = _both_classes(np.where(X @ normal >= 0, 1.0, -1.0))
    # Put every row on the side of its label, then away from the plane.
    X += np.outer(np.where(y * (X @ normal) < 0, -2.0, 0.0) * (X @ normal), normal)
    X += margin * np.outer(y, normal)
    return _generated("separable", f"{rows}, {columns}, margin={margin:g}, seed={seed}", X, y)


def ill_scaled(n_samples: int = 10_000, n_features: int = 50, decades: float = 6.0, seed: int = 0) -> Dataset:
    """Independent columns in very different units: their standard deviations span ``decades`` powers of ten.

    Labels are drawn from the logistic model in which every column, whatever its unit, matters alike.

    Parameters
    ----------
    n_samples, n_features : int
        Shape.
    decades : float
        log10 of the ratio of the largest and the smallest unit, >= 0.
    seed : int
        Seed of all random numbers, >= 0.
    """
    rows, columns = _check.whole("n_samples", n_samples, at_least=2), _check.whole("n_features", n_features)
    decades = _check.positive("decades", decades, zero=True)
    random = _random(seed)
    units = random.permutation(np.logspace(-decades / 2, decades / 2, columns))
    X = random.standard_normal((rows, columns))
    y = _logistic_labels(random, X @ random.standard_normal(columns) / np.sqrt(columns) * 2.0)
    X *= units
    return _generated("ill_scaled", f"{rows}, {columns}, decades={decades:g}, seed={seed}", X, y)


GENERATORS: dict[str, Callable[..., Dataset]] = {
    "synthetic": synthetic,
    "covtype_like": covtype_like,
    "text_like": text_like,
    "separable": separable,
    "ill_scaled": ill_scaled,
}


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(_check.whole("seed", seed, at_least=0))


def _logistic_labels(random: np.random.Generator, margins: Vector) -> Vector:
    """Labels drawn with probability 1/(1 + exp(−margin)) of being 1."""
    return _both_classes(np.where(random.logistic(size=margins.size) < margins, 1.0, -1.0))


def _both_classes(y: Vector) -> Vector:
    """Turn one label round where a handful of rows happen to be all of one class."""
    if abs(y.sum()) == y.size:
        y[0] = -y[0]
    return y


def _generated(name: str, arguments: str, X: Any, y: Vector) -> Dataset:
    compressed = X if scipy.sparse.issparse(X) else None
    nonzeros = int(np.count_nonzero(X) if compressed is None else compressed.nnz)
    return Dataset(
        X=X if compressed is None else best_form(compressed),
        y=y,
        name=name,
        source=f"generated by trsvr.datasets.{name}({arguments})",
        preprocess="none",
        label_map={-1.0: -1, 1.0: 1},
        sha256=content_sha256(X, y),
        nonzeros=nonzeros,
        description="as generated",
    )
