from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import preprocessing

from trsvr import datasets
from trsvr.datasets import preprocess

THEIRS = {
    "standardize": preprocessing.StandardScaler,
    "minmax": preprocessing.MinMaxScaler,
    "maxabs": preprocessing.MaxAbsScaler,
    "unit-rows": preprocessing.Normalizer,
}


@pytest.fixture
def rows():
    """Columns of different units, one constant, one of zeros; a row of zeros."""
    rng = np.random.default_rng(0)
    X = rng.normal([0, 5, -2, 1e6, 0, 0], [1, 2, 3, 1, 1, 1], size=(60, 6)) * (rng.random((60, 6)) < 0.6)
    X[:, 4], X[:, 5] = 0.1, 0.0
    X[7] = [0, 0, 0, 0, 0.1, 0]
    return X


def _ours(method, train, other):
    return preprocess.apply(method, preprocess.learn(method, train), other)


@pytest.mark.parametrize("method", THEIRS)
def test_dense_agrees_with_scikit_learn(rows, method):
    train, other = rows[:40], rows[40:]
    expected = THEIRS[method]().fit(train).transform(other)
    before = rows.copy()
    assert_allclose(_ours(method, train, other), expected, rtol=1e-12, atol=1e-9)
    assert_array_equal(rows, before)


@pytest.mark.parametrize("method", ["maxabs", "unit-rows", "standardize"])
def test_sparse_agrees_with_scikit_learn(rows, method):
    train, other = scipy.sparse.csr_array(rows[:40]), scipy.sparse.csr_array(rows[40:])
    scaler = THEIRS[method](with_mean=False) if method == "standardize" else THEIRS[method]()
    expected = scaler.fit(train).transform(other)
    got = _ours(method, train, other)
    assert scipy.sparse.issparse(got)
    # Column 4 is constant: what is left of its variance is rounding, and who calls it zero is a matter of taste.
    keep = [0, 1, 2, 3, 5] if method == "standardize" else range(6)
    assert_allclose(got.toarray()[:, keep], expected.toarray()[:, keep], rtol=1e-12)


@pytest.mark.parametrize("method", preprocess.PREPROCESS)
def test_sparse_stays_sparse(rows, method):
    X = scipy.sparse.csr_array(rows)
    got = _ours(method, X, X)
    assert_array_equal(got.indices, X.indices)
    assert_array_equal(got.indptr, X.indptr)
    if method in ("standardize", "minmax"):
        assert "so that sparse data stays sparse" in preprocess.describe(method, True)


def test_sparse_minmax_divides_by_the_range(rows):
    X = scipy.sparse.csr_array(rows)
    spread = np.ptp(rows, axis=0)
    expected = rows / np.where(spread > 0, spread, 1)
    assert_allclose(_ours("minmax", X, X).toarray(), expected, rtol=1e-12)


def test_no_division_by_zero(rows):
    for method in preprocess.PREPROCESS:
        assert np.isfinite(_ours(method, rows, rows)).all()
    assert_array_equal(_ours("standardize", rows, rows)[:, 5], 0)


def test_load_says_what_was_done():
    for method in preprocess.PREPROCESS:
        data = datasets.load("breast-cancer", preprocess=method)
        assert data.preprocess == method
        assert data.description == preprocess.describe(method, False)
    default = datasets.load("breast-cancer")
    assert default.preprocess == "standardize"
    assert_allclose(default.X.mean(axis=0), 0, atol=1e-12)
    sparse = datasets.load("text_like", n_samples=50, n_features=2000, preprocess="standardize")
    assert "not centred" in sparse.description
