"""Small files of every kind that the command reads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

from trsvr.cli import main


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


@pytest.fixture(scope="session")
def bad_files(files):
    """Beside them: a model, and files that it or the reader must refuse."""
    assert main(["solve", str(files / "data.csv"), "--target", "answer", "--json", "--out", str(files / "fit")]) == 0
    frame = pd.read_csv(files / "data.csv")
    frame.assign(age="old").to_csv(files / "text.csv", index=False)
    frame.rename(columns={"answer": "reply"}).to_csv(files / "unnamed.csv", index=False)
    rows = frame[["height", "weight", "age"]].to_numpy()
    np.savez(files / "flat.npz", X=rows[:4, 0], y=[0, 1, 0, 1])
    rows[1, 2] = np.nan
    np.savez(files / "nan.npz", X=rows, y=frame["answer"].to_numpy(dtype=str))
    for name, labels in (("one", ["no", "no", "no"]), ("three", [1, 2, 3])):
        pd.DataFrame({"size": [1.0, 2.0, 3.0], "label": labels}).to_csv(files / f"{name}.csv", index=False)
    pd.DataFrame({"size": [1e300, 2.0], "label": [0, 1]}).to_csv(files / "huge.csv", index=False)
    (files / "empty.csv").write_bytes(b"")
    (files / "utf16.csv").write_text("size,label\n1,0\n2,1\n", encoding="utf-16")
    (files / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    return files
