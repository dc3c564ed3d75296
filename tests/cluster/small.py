"""Small clusters of worker processes on this machine, and data for them."""

from __future__ import annotations

import contextlib
import warnings

import distributed
import numpy as np
import scipy.sparse

#: bytes that a worker with little memory may use, its own interpreter included
LIMIT = 500_000_000


@contextlib.contextmanager
def small_cluster(workers: int, **options):
    """A cluster of worker processes; Dask's own chatter while it comes and goes is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=False,  # it would silence the handlers with which pytest listens, too
            **{"memory_limit": "1GB", **options},
        )
        try:
            with distributed.Client(cluster, set_as_default=False) as client:
                yield client
        finally:
            with contextlib.suppress(KeyError):  # LocalCluster stumbles over workers that have been killed
                cluster.close()


def classification(n: int, d: int, seed: int = 3, sparse: bool = False):
    """Noisy labels 0 and 1 of a linear model, columns of uneven scale."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.3, 2.0, d)
    if sparse:
        X = np.where(np.abs(X) > 0.8, X, 0.0)
    y = (X @ rng.normal(size=d) + rng.logistic(size=n) > 0).astype(int)
    return (scipy.sparse.csr_array(X) if sparse else X), y


def cut(values, lengths):
    """Blocks of these lengths."""
    ends = np.cumsum(lengths)
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


#: one, three and eight blocks of unequal size, 700 rows in all
LENGTHS = {1: [700], 3: [100, 350, 250], 8: [1, 99, 200, 50, 150, 7, 93, 100]}
