"""Poisson, Gamma, Tweedie and negative binomial regression beside scikit-learn's and statsmodels'."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.api as sm
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, RidgeCV, TweedieRegressor
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GridSearchCV, KFold

from trsvr.sklearn import TRSVRClassifier, TRSVRRegressor, TRSVRRegressorCV

rng = np.random.default_rng(2)
N, D = 300, 4
X = rng.normal(size=(N, D))
OFFSET = 0.4 * rng.normal(size=N)
MEAN = np.exp(X @ [0.4, -0.2, 0.0, 0.3] + 2.0 + OFFSET)
WEIGHTS = rng.integers(0, 4, N).astype(float)
Y = {
    "poisson": rng.poisson(MEAN).astype(float),
    "gamma": rng.gamma(2.0, MEAN / 2.0),
    "tweedie": rng.poisson(MEAN) * rng.gamma(2.0, 0.5, N),
    "negative_binomial": rng.negative_binomial(2, 2.0 / (2.0 + MEAN)).astype(float),
}
THEIRS = {
    "poisson": (PoissonRegressor, {}),
    "gamma": (GammaRegressor, {}),
    "tweedie": (TweedieRegressor, {"power": 1.7, "link": "log"}),
}


@pytest.mark.parametrize("rows", [np.asarray, scipy.sparse.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 10.0])
@pytest.mark.parametrize("loss", THEIRS)
def test_as_scikit_learn(loss, alpha, fit_intercept, rows):
    kind, options = THEIRS[loss]
    theirs = kind(alpha=alpha, fit_intercept=fit_intercept, solver="newton-cholesky", tol=1e-10, **options)
    theirs.fit(X, Y[loss], sample_weight=WEIGHTS)
    ours = TRSVRRegressor(alpha=alpha, loss=loss, power=1.7, fit_intercept=fit_intercept)
    ours.fit(rows(X), Y[loss], sample_weight=WEIGHTS)
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-7)
    assert_allclose(ours.predict(rows(X)), theirs.predict(X), rtol=1e-6)
    assert ours.score(rows(X), Y[loss], WEIGHTS) == pytest.approx(theirs.score(X, Y[loss], WEIGHTS), rel=1e-7, abs=1e-9)


def test_the_score_is_the_deviance_explained():
    model = TRSVRRegressor(alpha=0.1, loss="tweedie", power=1.5).fit(X, Y["tweedie"])
    wanted = d2_tweedie_score(Y["tweedie"], model.predict(X), power=1.5)
    assert model.score(X, Y["tweedie"]) == pytest.approx(wanted, rel=1e-12)


def test_an_offset():
    """Counts with the logarithm of an exposure are rates with the exposure as weight; and as statsmodels has it."""
    exposure, y = np.exp(OFFSET), Y["poisson"]
    counts = TRSVRRegressor(alpha=0.01, loss="poisson").fit(X, y, offset=OFFSET, sample_weight=None)
    rates = PoissonRegressor(alpha=0.01 * N / exposure.sum(), solver="newton-cholesky", tol=1e-10)
    rates.fit(X, y / exposure, sample_weight=exposure)
    assert_allclose(counts.coef_, rates.coef_, rtol=1e-6, atol=1e-8)
    assert_allclose(counts.predict(X, offset=OFFSET), exposure * counts.predict(X), rtol=1e-12)
    for loss, family in (
        ("gamma", sm.families.Gamma(sm.families.links.Log())),
        ("negative_binomial", sm.families.NegativeBinomial(alpha=0.5)),
    ):
        wanted = sm.GLM(Y[loss], sm.add_constant(X), family=family, offset=OFFSET).fit(tol=1e-13, maxiter=200)
        model = TRSVRRegressor(alpha=0.0, loss=loss, dispersion=0.5).fit(X, Y[loss], offset=OFFSET)
        assert_allclose([model.intercept_, *model.coef_], wanted.params, rtol=1e-6, atol=1e-8)
        table = model.summary(X, Y[loss], offset=OFFSET).table
        assert_allclose(table["standard error"].iloc[-1], wanted.bse[0], rtol=1e-6)


def test_squared_error_with_an_offset():
    model = TRSVRRegressor(alpha=2.0).fit(X, Y["gamma"], offset=5 * OFFSET)
    other = TRSVRRegressor(alpha=2.0).fit(X, Y["gamma"] - 5 * OFFSET)
    assert_allclose(model.coef_, other.coef_, rtol=1e-7)
    assert model.intercept_ == pytest.approx(other.intercept_, rel=1e-9)


def test_large_counts_begin_at_their_mean():
    y = 1e8 * Y["poisson"]
    model = TRSVRRegressor(alpha=0.0, loss="poisson").fit(X, y)
    small = TRSVRRegressor(alpha=0.0, loss="poisson").fit(X, Y["poisson"])
    assert_allclose(model.coef_, small.coef_, rtol=1e-6, atol=1e-8)
    assert model.n_iter_[0] <= small.n_iter_[0] + 2


def test_a_summary_by_name():
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = TRSVRRegressor(alpha=0.0, loss="poisson").fit(frame, Y["poisson"])
    found = model.summary(frame, Y["poisson"], kind="HC0")
    wanted = sm.GLM(Y["poisson"], sm.add_constant(X), family=sm.families.Poisson()).fit(cov_type="HC0", tol=1e-13)
    assert list(found.table.index) == ["a", "b", "c", "d", "(intercept)"]
    assert_allclose(found.table["standard error"], [*wanted.bse[1:], wanted.bse[0]], rtol=1e-6)
    labels = np.where(Y["poisson"] > 7, "many", "few")
    classifier = TRSVRClassifier(C=np.inf).fit(frame, labels)
    logit = sm.Logit(labels == "many", sm.add_constant(X)).fit(disp=0, tol=1e-12)
    errors = classifier.summary(frame, labels).table["standard error"]
    assert_allclose(errors, [*logit.bse[1:], logit.bse[0]], rtol=1e-6)
    with pytest.raises(ValueError, match="two classes"):
        TRSVRClassifier().fit(X, np.arange(N) % 3).summary(X, np.arange(N) % 3)


def test_separated_counts_are_told():
    level = (rng.random(N) < 0.3) * 1.0
    rows = np.column_stack([X, level])
    y = np.where(level > 0, 0.0, Y["poisson"])
    with pytest.warns(ConvergenceWarning, match="the data are separated: without a penalty 'x4' can predict"):
        model = TRSVRRegressor(alpha=0.0, loss="poisson").fit(rows, y)
    TRSVRRegressor(alpha=1e-6, loss="poisson").fit(rows, y)
    with pytest.raises(ValueError, match="the data are separated: without a penalty 'x4'"):
        model.summary(rows, y)


def test_separated_classes_are_told():
    labels = np.where(X[:, 0] > 0.0, "up", "down")
    with pytest.warns(ConvergenceWarning, match="TRSVRClassifier: the data are separated: without a penalty 'x0'"):
        TRSVRClassifier(C=np.inf).fit(X, labels)
    TRSVRClassifier(C=1e6).fit(X, labels)


def test_the_row_that_is_not_finite():
    """scikit-learn's words, and where it is."""
    for loss in Y:
        for place, words in (("X", "got nan at row 5, column 1"), ("y", "y must be finite, got nan at row 5")):
            rows, y = X.copy(), Y[loss].copy()
            if place == "X":
                rows[5, 1] = np.nan
            else:
                y[5] = np.nan
            with pytest.raises(ValueError, match="contains NaN") as caught:
                TRSVRRegressor(loss=loss).fit(rows, y)
            assert words in "".join(caught.value.__notes__)


def test_an_offset_beyond_all_bounds():
    far = np.where(np.arange(N) == 7, 1e4, 0.0)
    with pytest.raises(ValueError, match=r"offset, 10000\.0 at row 7, is too far from the others"):
        TRSVRRegressor(loss="gamma").fit(X, Y["gamma"], offset=far)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"loss": "poisson"}, -1.0, "y must be >= 0 for loss='poisson', got -1.0 at row 5"),
        ({"loss": "gamma"}, 0.0, "y must be > 0 for loss='gamma', got 0.0 at row 5"),
        ({"loss": "tweedie", "power": 2.5}, 1.0, "power must be a number from 1"),
        ({"loss": "negative_binomial", "dispersion": 0.0}, 1.0, "dispersion must be a finite number > 0"),
        ({"loss": "binomial"}, 1.0, "loss must be one of"),
    ],
)
def test_bad_responses_and_parameters(options, y, message):
    labels = np.ones(N)
    labels[5] = y
    with pytest.raises(ValueError, match=message):
        TRSVRRegressor(**options).fit(X, labels)


def test_only_zeros():
    with pytest.raises(ValueError, match="y must have a positive entry for loss='poisson', got only zeros"):
        TRSVRRegressor(loss="poisson").fit(X, np.zeros(N))
    with pytest.raises(ValueError, match="offset must have length 300, got 3"):
        TRSVRRegressor(loss="poisson").fit(X, Y["poisson"], offset=np.zeros(3))


# --------------------------------------------------------------------------------------------------- cross-validation


def test_the_chosen_alpha_is_scikit_learns():
    alphas = [1e-3, 0.1, 1.0, 10.0]
    folds = KFold(4, shuffle=True, random_state=0)
    ours = TRSVRRegressorCV(alphas, loss="poisson", cv=folds).fit(X, Y["poisson"])
    search = GridSearchCV(PoissonRegressor(tol=1e-8, max_iter=1000), {"alpha": alphas}, cv=folds).fit(X, Y["poisson"])
    assert ours.alpha_ == search.best_params_["alpha"]
    assert ours.best_score_ == pytest.approx(search.best_score_, abs=1e-6)
    assert_allclose(ours.scores_.mean(axis=0), search.cv_results_["mean_test_score"], atol=1e-6)
    plain = TRSVRRegressor(ours.alpha_, loss="poisson").fit(X, Y["poisson"])
    assert np.array_equal(plain.coef_, ours.coef_)
    assert ours.coefs_paths_.shape == (4, 4, D + 1)


def test_squared_error_chooses_as_ridge():
    y = np.log(MEAN) + rng.normal(size=N)
    ours = TRSVRRegressorCV(8, cv=5, n_jobs=2, scoring="neg_mean_squared_error").fit(scipy.sparse.csr_array(X), y)
    theirs = RidgeCV(ours.alphas_, cv=5, scoring="neg_mean_squared_error").fit(X, y)
    assert ours.alpha_ == theirs.alpha_
    assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6)
    assert ours.summary(X, y).effective_coefficients < D + 1


def test_cross_validation_with_weights_and_offset():
    exposure, y = np.exp(OFFSET), Y["poisson"]
    model = TRSVRRegressorCV([0.0, 0.1], loss="poisson", cv=3).fit(X, y, sample_weight=WEIGHTS, offset=OFFSET)
    final = TRSVRRegressor(model.alpha_, loss="poisson").fit(X, y, sample_weight=WEIGHTS, offset=OFFSET)
    assert_allclose(model.predict(X, offset=OFFSET), exposure * final.predict(X), rtol=1e-12)
    with pytest.raises(ValueError, match="alphas must be a whole number >= 1 or an array of numbers >= 0"):
        TRSVRRegressorCV([]).fit(X, y)


def test_a_classifier_without_penalty_is_logistic_regression():
    labels = Y["poisson"] > 7
    errors = TRSVRClassifier(C=1.0).fit(X, labels)
    theirs = LogisticRegression(C=1.0, tol=1e-10).fit(X, labels)
    assert_allclose(errors.coef_, theirs.coef_, rtol=1e-5)
    assert errors.summary(X, labels).effective_coefficients < D + 1
