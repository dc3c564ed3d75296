"""Sums of outer products beside NumPy's: dense rows, rows with few entries, and both in one matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from trsvr._draws import NO_EPOCH
from trsvr.problems import L2, LinearModel, Squared
from trsvr.problems import gram as kernels
from trsvr.problems.curvature import SampledMatrix
from trsvr.problems.rows import DenseRows, FullRows, SparseRows

rng = np.random.default_rng(0)


def one_hot(n, numbers, levels):
    """Numeric columns beside categories: dense rows, most of whose entries are zero."""
    codes = np.column_stack([rng.integers(0, count, n) for count in levels])
    parts = [np.eye(count)[codes[:, k]] for k, count in enumerate(levels)]
    return np.hstack([rng.normal(size=(n, numbers)), *parts])


TABLES = {
    "one column": rng.normal(size=(150, 1)),
    "dense": rng.normal(size=(150, 19)),
    "wide and dense": rng.normal(size=(150, 300)),
    "one-hot": one_hot(150, 10, [5, 9, 30]),
    "eight numbers last": one_hot(150, 8, [5, 40])[:, ::-1].copy(),
    "few entries": rng.normal(size=(150, 70)) * (rng.random((150, 70)) < 0.05),
    "some rows dense": rng.normal(size=(150, 40))
    * ((np.arange(150) % 3 == 0)[:, None] | (rng.random((150, 40)) < 0.1)),
    "some rows with few entries": rng.normal(size=(150, 40))
    * ((np.arange(150) % 3 > 0)[:, None] | (rng.random((150, 40)) < 0.1)),
    "zeros": np.zeros((150, 40)),
}
# Those of whose rows most entries are zero, so that each row is looked at.
SPARSE = {"one-hot", "eight numbers last", "few entries", "some rows dense", "zeros"}


@pytest.mark.parametrize("rows", [np.asarray, scipy.sparse.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("precision", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TABLES)
def test_all_rows(name, precision, rows):
    X = TABLES[name].astype(precision)
    for intercept in (True, False):
        problem = LinearModel(rows(X), rng.normal(size=150), Squared(), L2(0.0), intercept=intercept)
        weights = rng.random(150)
        A = np.column_stack([X, np.ones(150)]) if intercept else X
        wanted = A.T.astype(float) @ (A * weights[:, None]) / 150
        found, taken = SampledMatrix(problem).matrix(weights, 150, NO_EPOCH)
        assert taken == 150
        assert_allclose(found, wanted, rtol=1e-12, atol=1e-14 * np.abs(wanted).max())
        assert np.array_equal(found, found.T)


@pytest.mark.parametrize("name", TABLES)
def test_only_rows_with_many_zeros_are_looked_at(name):
    problem = LinearModel(TABLES[name], rng.normal(size=150), Squared(), L2(0.0))
    assert isinstance(SampledMatrix(problem).rows, DenseRows if name in SPARSE else FullRows)
    compressed = LinearModel(scipy.sparse.csr_array(TABLES[name]), rng.normal(size=150), Squared(), L2(0.0))
    assert isinstance(SampledMatrix(compressed).rows, SparseRows)


def test_tiles_and_runs_as_numpy_says():
    """The machine code beside the same in NumPy."""
    block, size = rng.normal(size=(10, 32)), 32
    for count in (1, 7):
        plain = np.zeros((size, size))
        for row in range(0, size, 8):
            for column in range(row, size, 8):
                kernels.add_tile(block, count, row, column, 0.5 if column == row else 1.0, plain)
        compiled, squares = np.zeros((size, size)), np.empty((size, size))
        kernels.add_dense(block, count, compiled)
        assert_allclose(compiled, plain, rtol=1e-13, atol=1e-14)
        kernels.folded(compiled, squares)
        assert_allclose(squares, block[:count].T @ block[:count], rtol=1e-12, atol=1e-13)
    entries, columns = rng.normal(size=12), np.array([1, *range(5, 13), 20, 25, 31], dtype=np.uint32)
    row = np.zeros(size)
    row[columns], row[30] = entries, 1.0
    compiled = np.zeros((size, size))
    kernels.add_sparse(entries, columns, 0.3, 30, compiled)
    kernels.folded(compiled, squares)
    assert_allclose(squares, 0.3 * np.outer(row, row), rtol=1e-13, atol=1e-15)
    half = np.zeros((size, size))
    kernels.add_run(0.3, entries, columns, 1, 9, 12, half)
    assert_allclose(half[np.ix_(columns[9:], columns[1:9])], 0.3 * np.outer(entries[9:], entries[1:9]), rtol=1e-13)
