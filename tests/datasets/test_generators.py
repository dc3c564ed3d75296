from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from cases import cases
from trsvr import datasets
from trsvr.datasets.generators import GENERATORS

SMALL = {
    "synthetic": {"n_samples": 300},
    "covtype_like": {"n_samples": 300},
    "text_like": {"n_samples": 100, "n_features": 3000},
    "separable": {},
    "ill_scaled": {"n_samples": 300},
}


def _same(first, second) -> bool:
    difference = first.X - second.X
    return abs(difference).max() == 0 and (first.y == second.y).all()


@pytest.mark.parametrize("name", GENERATORS)
def test_same_seed_same_data(name):
    make = GENERATORS[name]
    first, again, other = make(**SMALL[name]), make(**SMALL[name], seed=0), make(**SMALL[name], seed=1)
    assert _same(first, again)
    assert first.sha256 == again.sha256 != other.sha256
    assert set(np.unique(first.y)) == {-1, 1}
    assert first.name == name
    assert "seed=0" in first.source
    assert _same(first, datasets.load(name, **SMALL[name]))


def test_the_papers_set():
    """N = 80 000, d = 32, condition number 1e4, L = 50.1 with λ = 1e-4."""
    data = datasets.load("synthetic")
    assert data.X.shape == (80_000, 32)
    eigenvalues = np.linalg.eigvalsh(data.X.T @ data.X / 80_000)
    assert abs(0.25 * eigenvalues[-1] + 1e-4 - 50.1) < 0.01 * 50.1
    assert abs(eigenvalues[-1] / eigenvalues[0] - 1e4) < 0.1 * 1e4
    assert abs(data.X.mean(axis=0)).max() < 5 * data.X.std(axis=0).max() / np.sqrt(80_000)
    assert 0.4 < (data.y > 0).mean() < 0.6


@pytest.mark.parametrize(("condition", "lipschitz"), [(1.0, 1.0), (100.0, 0.3), (1e6, 1e3)])
def test_synthetic_hits_what_is_asked(condition, lipschitz):
    data = datasets.synthetic(20_000, 8, condition, lipschitz, seed=5)
    eigenvalues = np.linalg.eigvalsh(data.X.T @ data.X / data.n_samples)
    assert abs(0.25 * eigenvalues[-1] + 1e-4 - lipschitz) < 0.01 * lipschitz
    assert 0.85 < eigenvalues[-1] / eigenvalues[0] / condition < 1.2
    assert abs(datasets.facts(data).lipschitz / lipschitz - 1) < 0.01


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_samples": 1}, "n_samples"),
        ({"n_features": 0}, "n_features"),
        ({"condition": 0.5}, "condition"),
        ({"condition": 10, "n_features": 1}, "condition"),
        ({"lipschitz": 1e-5}, "lipschitz"),
        ({"lipschitz": np.nan}, "lipschitz"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments(options, reason):
    with pytest.raises(ValueError, match=reason):
        datasets.synthetic(**options)


def test_covtype_like_has_numbers_and_indicators():
    X = datasets.covtype_like(2000, seed=1).X
    assert X.shape == (2000, 54)
    indicators = X[:, 10:]
    assert set(np.unique(indicators)) == {0, 1}
    assert_array_equal(indicators[:, :4].sum(axis=1), 1)
    assert_array_equal(indicators[:, 4:].sum(axis=1), 1)
    assert np.count_nonzero(X[:, :10]) == 20_000


def test_text_like_is_sparse_with_unit_rows_and_a_heavy_tail():
    data = datasets.text_like(1000, 20_000)
    assert scipy.sparse.issparse(data.X)
    assert data.density < 0.01
    np.testing.assert_allclose(np.sqrt((data.X * data.X).sum(axis=1)), 1, rtol=1e-12)
    uses = np.sort(np.bincount(data.X.indices, minlength=20_000))[::-1]
    assert uses[0] > 300
    assert np.median(uses) < 10


def test_separable_is_separated():
    from scipy.optimize import linprog

    data = datasets.separable(200, 5, margin=0.5)
    # A plane with y·xᵀw >= 1 for every row exists.
    found = linprog(np.zeros(5), A_ub=-data.y[:, None] * data.X, b_ub=-np.ones(200), bounds=(None, None))
    assert found.status == 0
    assert np.linalg.norm(found.x) > 0
    # The margin was asked to be 0.5: some unit vector keeps every row that far away.
    normal = np.random.default_rng(0).standard_normal(5)
    assert (data.y * (data.X @ (normal / np.linalg.norm(normal)))).min() >= 0.5 - 1e-12


def test_ill_scaled_spans_the_decades():
    scales = datasets.ill_scaled(2000, 20, decades=8).X.std(axis=0)
    assert 7.8 < np.log10(scales.max() / scales.min()) < 8.2


def test_few_rows_still_have_two_classes():
    for seed in cases(20):
        for make in (datasets.separable, datasets.ill_scaled, datasets.text_like):
            assert set(make(2, 3, seed=seed).y) == {-1, 1}
