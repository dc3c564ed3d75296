"""Data larger than one machine: linear models over the blocks of a Dask cluster.

>>> import dask.array as da, distributed, trsvr.dask
>>> client = distributed.Client(address)                                      # doctest: +SKIP
>>> problem = trsvr.dask.LinearModel(X, y, regularizer=trsvr.problems.L2(1e-4))  # doctest: +SKIP
>>> result = trsvr.minimize(problem)                                          # doctest: +SKIP
"""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("trsvr.dask needs Dask: pip install 'trsvr[dask]'") from error

from trsvr.dask.jobs import run_jobs
from trsvr.dask.model import LinearModel
from trsvr.dask.readers import read_libsvm, read_npy_stack, read_parquet, read_zarr
from trsvr.dask.traffic import Counts, Traffic

__all__ = [
    "LinearModel",
    "read_parquet",
    "read_zarr",
    "read_npy_stack",
    "read_libsvm",
    "Traffic",
    "Counts",
    "run_jobs",
]
