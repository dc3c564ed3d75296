"""Data sets by name, from a folder, the network or a generator; LIBSVM files read and written."""

from __future__ import annotations

from trsvr.datasets.catalogue import catalogue as list
from trsvr.datasets.dataset import Dataset
from trsvr.datasets.errors import ContentError, DataFileError, DataNotFoundError, DownloadError
from trsvr.datasets.generators import covtype_like, ill_scaled, separable, synthetic, text_like
from trsvr.datasets.libsvm import read_libsvm, write_libsvm
from trsvr.datasets.loading import load
from trsvr.datasets.measure import Facts, facts

__all__ = [
    "load",
    "list",
    "Dataset",
    "read_libsvm",
    "write_libsvm",
    "facts",
    "Facts",
    "synthetic",
    "covtype_like",
    "text_like",
    "separable",
    "ill_scaled",
    "DataFileError",
    "ContentError",
    "DataNotFoundError",
    "DownloadError",
]
