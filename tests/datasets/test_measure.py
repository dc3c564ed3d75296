from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from trsvr import datasets
from trsvr.datasets.measure import GRAM_COLUMNS, largest_eigenvalue


def test_against_a_dense_oracle():
    data = datasets.load("breast-cancer")
    found = datasets.facts(data, l2=0.25)
    eigenvalues = np.linalg.svd(data.X, compute_uv=False) ** 2 / data.n_samples
    assert_allclose(found.lipschitz, 0.25 * eigenvalues[0] + 0.25)
    assert_allclose(found.lipschitz_max, 0.25 * (data.X**2).sum(axis=1).max() + 0.25)
    assert_allclose(found.condition, eigenvalues[0] / eigenvalues[-1], rtol=1e-6)
    assert_allclose(found.positive, 357 / 569)
    assert (found.minimum, found.maximum) == (data.X.min(), data.X.max())
    assert found.rank == 30


def test_sparse_and_dense_agree():
    data = datasets.text_like(300, 200, words_per_row=20)
    sparse = datasets.facts(data)
    dense = datasets.facts(datasets.Dataset(**{**vars(data), "X": scipy.sparse.csr_array(data.X).toarray()}))
    for name in ("minimum", "maximum", "positive", "lipschitz", "lipschitz_max", "column_scales"):
        assert_allclose(getattr(sparse, name), getattr(dense, name), rtol=1e-12)


def test_singular_matrix_is_called_so():
    found = datasets.facts(datasets.load("digits-even"))
    assert found.condition == np.inf
    assert found.rank == 61  # three pixels are the same in every picture


def test_many_columns():
    data = datasets.text_like(200, GRAM_COLUMNS + 1)
    found = datasets.facts(data)
    assert found.condition is None
    exact = np.linalg.norm(data.X.toarray(), 2) ** 2 / 200
    assert_allclose(found.lipschitz, 0.25 * exact + 1e-4, rtol=1e-3)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_power_iteration(shape):
    X = np.random.default_rng(0).normal(size=shape)
    assert_allclose(largest_eigenvalue(X, tol=1e-12), np.linalg.norm(X, 2) ** 2 / shape[0], rtol=1e-6)
    assert largest_eigenvalue(np.zeros(shape)) == 0
