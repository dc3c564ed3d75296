"""Small files of every kind that the command reads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file


@pytest.fixture(scope="session")
def table():
    """300 rows of three columns, and a yes or no."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3)).round(4)
    return X, np.where(X @ [1.0, -2.0, 0.5] + 0.3 + rng.logistic(size=300) > 0, "yes", "no")


@pytest.fixture(scope="session")
def files(tmp_path_factory, table):
    """The same table as CSV, Parquet, LIBSVM, and NPZ dense and compressed; and the folder they are in."""
    folder = tmp_path_factory.mktemp("files")
    X, y = table
    frame = pd.DataFrame(X, columns=["height", "weight", "age"]).assign(answer=y)
    frame.to_csv(folder / "data.csv", index=False)
    frame.to_parquet(folder / "data.parquet")
    dump_svmlight_file(X, np.where(y == "yes", 1, -1), str(folder / "data.svm"), zero_based=False)
    np.savez(folder / "dense.npz", X=X, y=y)
    rows = scipy.sparse.csr_array(X)
    parts = {name: getattr(rows, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "sparse.npz", answer=y, **parts)
    return folder
