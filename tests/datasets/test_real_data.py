"""The files of the studies, against the table that came with them; skipped where the folder is absent."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from trsvr import datasets
from trsvr.datasets.registry import ENTRIES

# name, split, rows, columns, nonzeros, labels of the file: copied from the folder's README
TABLE = [
    ("mushrooms", "train", 8124, 112, 170604, {1: 3916, 2: 4208}),
    ("phishing", "train", 11055, 68, 331650, {0: 4898, 1: 6157}),
    ("madelon", "train", 2000, 500, 999999, {-1: 1000, 1: 1000}),
    ("madelon", "test", 600, 500, 300000, {-1: 300, 1: 300}),
    ("cod-rna", "train", 59535, 8, 476222, {-1: 39690, 1: 19845}),
    ("cod-rna", "test", 271617, 8, 2172614, None),
    ("ijcnn1", "train", 49990, 22, 649869, {-1: 45137, 1: 4853}),
    ("ijcnn1", "test", 91701, 22, 1192101, None),
    ("covtype", "train", 581012, 54, 6901775, {1: 283301, 2: 297711}),
    ("covtype.scale", "train", 581012, 54, 6940438, {1: 283301, 2: 297711}),
    ("rcv1", "train", 23749, 47236, 1783774, {-1: 11920, 1: 11829}),
]

pytestmark = pytest.mark.data


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """One cache for this file: unpacking the large sets takes seconds each."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def folder(data_folder, alone, shared_cache, monkeypatch):
    monkeypatch.setenv("TRSVR_DATA_DIR", str(data_folder))
    monkeypatch.setenv("TRSVR_CACHE_DIR", str(shared_cache))
    return data_folder


@pytest.mark.parametrize(
    ("name", "split", "rows", "columns", "nonzeros", "labels"),
    [pytest.param(*line, marks=pytest.mark.slow) if line[0].startswith("covtype") else line for line in TABLE],
)
def test_every_file_holds_what_its_table_says(name, split, rows, columns, nonzeros, labels):
    begin = time.process_time()  # what other processes do is not counted
    first = datasets.load(name, split=split, preprocess="none")
    middle = time.process_time()
    again = datasets.load(name, split=split, preprocess="none")
    end = time.process_time()
    X = again.X
    assert X.shape == (rows, columns) == (first.n_samples, first.n_features)
    assert np.count_nonzero(X) == nonzeros if isinstance(X, np.ndarray) else X.nnz == nonzeros
    assert again.density == nonzeros / (rows * columns)
    assert "content hash known and equal" in again.source
    if labels is not None:
        assert {label: int((again.y == sign).sum()) for label, sign in again.label_map.items()} == labels
    assert set(np.unique(again.y)) == {-1, 1}
    assert scipy.sparse.issparse(X) == (again.density < 0.2)
    # Small files are read so fast that opening the cache is a good part of it.
    if middle - begin > 0.5:
        assert middle - begin > 20 * (end - middle)


@pytest.mark.slow
def test_second_load_of_covtype_takes_a_moment():
    datasets.load("covtype")
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        data = datasets.load("covtype")
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.3
    assert data.preprocess == "standardize"
    assert abs(data.X[::7].mean(axis=0)).max() < 0.05


def test_table_of_the_registry_is_that_of_the_folder(folder):
    """Rows, columns and nonzeros as they stand in the folder's own table."""
    readme = folder / "README.md"
    if not readme.is_file():
        pytest.skip(f"no table: {readme} is not here")
    text = re.sub(r"(?<=\d)[   ](?=\d)", "", readme.read_text(encoding="utf-8"))
    for name, split, rows, columns, nonzeros, _ in TABLE:
        if name == "rcv1":
            name = "rcv1-subset-union"
        file = ENTRIES[name].file(split)
        assert (file.rows, file.columns, file.nonzeros) == (rows, columns, nonzeros)
        line = next(line for line in text.splitlines() if file.local in line)
        assert f"{rows} × {columns}" in line
        assert str(nonzeros) in line


def test_rcv1_is_named_as_the_substitute():
    data = datasets.load("rcv1")
    assert data.name == "rcv1-subset-union"
    assert data.source.startswith("substitute for rcv1_train.binary: ")
    lengths = np.sqrt(np.asarray(data.X.multiply(data.X).sum(axis=1)).ravel())
    assert abs(lengths - 1).max() < 1e-2


def test_test_rows_are_prepared_with_what_the_training_rows_taught():
    train = datasets.load("cod-rna", preprocess="none")
    test = datasets.load("cod-rna", split="test", preprocess="none")
    prepared = datasets.load("cod-rna", split="test")
    expected = (test.X[:1000] - train.X.mean(axis=0)) / train.X.std(axis=0)
    np.testing.assert_allclose(prepared.X[:1000], expected, rtol=1e-9, atol=1e-9)
    assert_array_equal(prepared.y, test.y)
    assert prepared.sha256 == test.sha256
