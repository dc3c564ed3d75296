"""TRSVRRegressor beside Ridge, least squares and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from numpy.testing import assert_allclose
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from trsvr.sklearn import TRSVRRegressor


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-6, 1.0, 1e3])
def test_squared_error_is_ridge(diabetes, alpha, fit_intercept):
    X, y = diabetes
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    theirs = Ridge(alpha=alpha, fit_intercept=fit_intercept, solver="cholesky").fit(X, y, sample_weight=weights)
    for rows in (X, scipy.sparse.csr_array(X)):
        ours = TRSVRRegressor(alpha=alpha, fit_intercept=fit_intercept).fit(rows, y, sample_weight=weights)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-6 * np.abs(theirs.coef_).max())
        assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8)
        assert ours.score(rows, y) == pytest.approx(theirs.score(X, y), abs=1e-8)


def test_badly_scaled_columns_far_from_zero():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 6)) * 10.0 ** np.arange(-3, 3) + 10.0 ** np.arange(6)
    y = 1e6 + X @ (rng.normal(size=6) / 10.0 ** np.arange(-3, 3)) + rng.normal(size=500)
    ours, theirs = TRSVRRegressor(alpha=0.1).fit(X, y), Ridge(alpha=0.1, solver="svd").fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-9)


def test_without_a_penalty_it_is_least_squares(diabetes):
    X, y = diabetes
    A = np.column_stack([X, np.ones(len(y))])
    exact = np.linalg.lstsq(A, y, rcond=None)[0]
    model = TRSVRRegressor(alpha=0.0).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact[:-1], rtol=1e-6)
    assert model.intercept_ == pytest.approx(exact[-1], rel=1e-8)


@pytest.mark.parametrize("delta", [0.5, 30.0])
def test_pseudo_huber(diabetes, delta):
    X, y = diabetes
    X, y = X / X.std(axis=0), y.copy()
    y[::17] += 1e4  # what the loss is for

    def value(x):
        residual = X @ x[:-1] + x[-1] - y
        root = np.sqrt(1.0 + (residual / delta) ** 2)
        slopes = residual / root
        return delta**2 * (root - 1.0).sum() + x[:-1] @ x[:-1], np.append(X.T @ slopes + 2 * x[:-1], slopes.sum())

    model = TRSVRRegressor(alpha=2.0, loss="pseudo_huber", delta=delta).fit(X, y)
    found = np.append(model.coef_, model.intercept_)
    best = scipy.optimize.minimize(value, found, jac=True, method="BFGS", options={"gtol": 1e-6})
    assert value(found)[0] <= best.fun * (1 + 1e-12)
    assert np.abs(value(found)[1]).max() <= 1e-5 * np.abs(value(np.zeros(11))[1]).max()


def test_units_of_y_do_not_matter(diabetes):
    X, y = diabetes
    small, large = TRSVRRegressor().fit(X, y), TRSVRRegressor().fit(X, 1e6 * y + 1e9)
    np.testing.assert_allclose(large.coef_, 1e6 * small.coef_, rtol=1e-6)
    assert small.n_iter_[0] == large.n_iter_[0]


def test_whole_weights_are_repeated_rows(diabetes):
    X, y = diabetes
    times = np.random.default_rng(5).integers(0, 4, len(y))
    for loss in ("squared_error", "pseudo_huber"):
        weighted = TRSVRRegressor(loss=loss, delta=50.0).fit(X, y, sample_weight=times)
        repeated = TRSVRRegressor(loss=loss, delta=50.0).fit(X.repeat(times, axis=0), y.repeat(times))
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)


def test_warm_start_and_float32(diabetes):
    X, y = diabetes
    model = TRSVRRegressor(loss="pseudo_huber", warm_start=True).fit(X, y)
    first, before = model.coef_.copy(), model.n_iter_[0]
    model.fit(X, y)
    assert model.n_iter_[0] <= 2 < before
    np.testing.assert_allclose(model.coef_, first, rtol=0, atol=1e-6 * np.abs(first).max())
    with pytest.raises(ValueError, match=r"X must have the 10 columns of the last fit"):
        model.fit(X[:, :3], y)
    narrow = TRSVRRegressor().fit(X.astype(np.float32), y)
    assert narrow.coef_.dtype == narrow.predict(X.astype(np.float32)).dtype == np.float32


def test_bad_parameters(diabetes):
    X, y = diabetes
    with pytest.raises(ValueError, match=r"alpha must be a finite number >= 0, got -1"):
        TRSVRRegressor(alpha=-1).fit(X, y)
    with pytest.raises(ValueError, match=r"loss must be one of 'squared_error', 'pseudo_huber', .*got 'huber'"):
        TRSVRRegressor(loss="huber").fit(X, y)
    with pytest.raises(ValueError, match=r"delta must be a finite number > 0, got 0"):
        TRSVRRegressor(loss="pseudo_huber", delta=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="TRSVRRegressor did not converge in 1 iterations"):
        TRSVRRegressor(loss="pseudo_huber", max_iter=1).fit(X, y)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e8])
def test_columns_far_from_zero_are_as_good_as_others(offset):
    """Ridge centres; sums over such columns would lose the digits that tell rows apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = X @ [1.0, 2.0, 3.0, 4.0] + rng.normal(size=200)
    weights = rng.uniform(size=200)
    ours = TRSVRRegressor(alpha=3.0).fit(X + offset, y, sample_weight=weights)
    theirs = Ridge(alpha=3.0).fit(X + offset, y, sample_weight=weights)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6)
    assert_allclose(ours.predict(X + offset), theirs.predict(X + offset), atol=1e-5)
    again = TRSVRRegressor(alpha=3.0, warm_start=True).fit(X + offset, y).fit(X + offset, y)
    assert again.n_iter_[0] <= 1


def test_text_is_refused_in_words(diabetes):
    X, y = diabetes
    with pytest.raises(ValueError, match=r"y must be numbers, got <U\d+ such as .*; labels are for TRSVRClassifier"):
        TRSVRRegressor().fit(X, y.astype(str))


@pytest.mark.parametrize("parameter", ["l1_ratio", "positive", "copy_X"])
def test_parameters_of_ridge_that_are_not_ours_get_an_answer(parameter):
    with pytest.raises(TypeError, match=rf"TRSVRRegressor has no parameter '{parameter}': .*"):
        TRSVRRegressor(**{parameter: True})
