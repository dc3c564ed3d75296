"""TRSVRClassifierCV beside LogisticRegressionCV, and what it must get right by itself."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import get_scorer, log_loss, make_scorer
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV

CS = [1e-2, 1.0, 1e2]


@pytest.fixture(scope="module", params=["two", "three"])
def data(request):
    X, y = (load_breast_cancer if request.param == "two" else load_iris)(return_X_y=True)
    return np.ascontiguousarray(StandardScaler().fit_transform(X)), y


def theirs(**parameters):
    if "use_legacy_attributes" not in LogisticRegressionCV().get_params():
        pytest.skip("this scikit-learn keeps the scores in dictionaries, by class")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return LogisticRegressionCV(
            Cs=CS,
            cv=3,
            tol=1e-12,
            max_iter=1000,
            solver="newton-cholesky",
            l1_ratios=(0,),
            use_legacy_attributes=False,
            **parameters,
        )


@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize(
    "parameters",
    [{"scoring": "neg_log_loss", "class_weight": "balanced"}, {"scoring": "accuracy", "fit_intercept": False}],
)
def test_it_is_logistic_regression_cv(data, parameters, refit):
    X, y = data
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    # Coefficients on the path have the digits of 100 tol where all rows are fitted in the end.
    ours = TRSVRClassifierCV(CS, cv=3, refit=refit, tol=1e-8, **parameters).fit(X, y, sample_weight=weights)
    peer = theirs(refit=refit, **parameters).fit(X, y, sample_weight=weights)
    assert pytest.approx(peer.C_) == ours.C_
    np.testing.assert_array_equal(ours.Cs_, peer.Cs_)
    np.testing.assert_allclose(ours.scores_, peer.scores_[:, 0], rtol=1e-6)
    np.testing.assert_allclose(ours.coefs_paths_, peer.coefs_paths_[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, rtol=1e-5, atol=1e-6)
    assert ours.n_iter_.shape == peer.n_iter_[:, 0].shape
    assert ours.score(X, y) == pytest.approx(peer.score(X, y), rel=1e-6)
    assert hasattr(ours, "loss_curve_") == refit


def test_the_default_tolerance_is_enough_for_scores(data):
    X, y = data
    for scoring, tolerance in (("accuracy", 0.0), ("neg_log_loss", 1e-5)):
        ours = TRSVRClassifierCV(CS, cv=3, scoring=scoring).fit(X, y)
        peer = theirs(scoring=scoring).fit(X, y)
        assert_allclose(ours.scores_, peer.scores_[:, 0], rtol=tolerance)
        assert pytest.approx(peer.C_) == ours.C_


def test_the_order_of_the_strengths_does_not_matter(data):
    X, y = data
    up, down = (TRSVRClassifierCV(Cs, cv=3).fit(X, y) for Cs in (CS, CS[::-1]))
    np.testing.assert_array_equal(up.scores_, down.scores_[:, ::-1])
    np.testing.assert_array_equal(up.coefs_paths_, down.coefs_paths_[:, ::-1])


def test_the_path_is_warm(data):
    """Neighbouring strengths: much less work than beginning anew each time."""
    X, y = data
    Cs = np.logspace(1, 2, 8)
    fold = [next(KFold(3, shuffle=True, random_state=0).split(X))]
    path = TRSVRClassifierCV(Cs, cv=fold).fit(X, y)
    alone = [TRSVRClassifier(C=C).fit(X[fold[0][0]], y[fold[0][0]]) for C in Cs]
    assert path.n_iter_.sum() < 0.8 * sum(model.n_iter_[0] for model in alone)
    np.testing.assert_allclose(path.coefs_paths_[0, -1, :, :-1], alone[-1].coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_folds_side_by_side_give_the_same_numbers(backend):
    import joblib

    X, y = load_breast_cancer(return_X_y=True)
    X = np.ascontiguousarray(StandardScaler().fit_transform(X))
    one = TRSVRClassifierCV(CS, cv=3).fit(X, y)
    with joblib.parallel_config(backend=backend):
        two = TRSVRClassifierCV(CS, cv=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.coefs_paths_, two.coefs_paths_)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_a_class_that_a_fold_lacks():
    """The rare class is in one fold only: its coefficients are there all the same."""
    X, y = load_iris(return_X_y=True)
    y = y.copy()
    rare = np.flatnonzero(y == 2)
    keep = np.concatenate([np.flatnonzero(y < 2), rare[:3]])
    X, y = X[keep], y[keep]
    model = TRSVRClassifierCV([0.1, 1.0], cv=KFold(3)).fit(X, y)
    assert model.coefs_paths_.shape == (3, 2, 3, 5)
    assert np.isfinite(model.coefs_paths_).all()
    binary = TRSVRClassifierCV([0.1, 1.0], cv=[(np.arange(50), np.arange(50, 100)), (np.arange(100), np.arange(10))])
    binary.fit(X[:100], y[:100])
    assert np.isfinite(binary.coefs_paths_).all()


def test_the_final_fit_is_the_classifiers(data):
    X, y = data
    model = TRSVRClassifierCV([0.1, 1.0], cv=3).fit(X, y)
    np.testing.assert_array_equal(model.coef_, TRSVRClassifier(C=model.C_).fit(X, y).coef_)


def test_squared_hinge(data):
    X, y = data
    model = TRSVRClassifierCV([0.1, 1.0], cv=3, loss="squared_hinge").fit(X, y)
    alone = TRSVRClassifier(C=model.C_, loss="squared_hinge").fit(X, y)
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-5, atol=1e-6)


def test_metadata_routing():
    X, y = load_iris(return_X_y=True)
    groups = np.arange(len(y)) % 4
    weights = np.linspace(0.5, 1.5, len(y))
    seen = []

    def weighted_accuracy(true, predicted, sample_weight=None):
        seen.append(sample_weight is not None)
        return np.average(true == predicted, weights=sample_weight)

    with pytest.raises(ValueError, match="only supported if enable_metadata_routing=True"):
        TRSVRClassifierCV([1.0], cv=GroupKFold(2)).fit(X, y, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(weighted_accuracy).set_score_request(sample_weight=True)
        model = TRSVRClassifierCV([1.0], cv=GroupKFold(2), scoring=scorer).set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weights, groups=groups)
        assert seen == [True, True]
        model.score(X, y, sample_weight=weights)
        assert seen == [True, True, True]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"Cs": 0}, r"Cs must be a whole number >= 1, got 0"),
        ({"Cs": []}, r"Cs must be a whole number >= 1 or an array of numbers > 0"),
        ({"Cs": [1.0, -1.0]}, r"Cs must be a finite number > 0, got -1.0"),
        ({"Cs": "many"}, r"Cs must be .*, got 'many'"),
        ({"refit": 2}, r"refit must be True or False, got 2"),
        ({"loss": "log"}, r"loss must be one of"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        TRSVRClassifierCV(**parameters).fit([[0.0], [1.0]] * 10, [0, 1] * 10)


SCORERS = ("f1", "precision", "neg_log_loss", "neg_brier_score", "roc_auc", "balanced_accuracy", "jaccard")


@pytest.mark.parametrize("scoring", SCORERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_scorers_that_need_labels_get_them(scoring):
    """Two classes with names: the second is the positive one, as in LogisticRegressionCV."""
    X, y = load_breast_cancer(return_X_y=True)
    X, named = StandardScaler().fit_transform(X), np.where(y == 1, "yes", "no")
    options = {"Cs": [0.1, 10.0], "cv": 3, "scoring": scoring}
    ours = TRSVRClassifierCV(**options).fit(X, named)
    theirs = TRSVRClassifierCV(**options).fit(X, y)  # numbers, which every scorer understands
    assert_allclose(ours.scores_, theirs.scores_)
    scorer = get_scorer(scoring)
    for fold, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
        model = LogisticRegression(C=10.0, tol=1e-8, max_iter=10_000).fit(X[train], y[train])
        assert_allclose(ours.scores_[fold, 1], scorer(model, X[test], y[test]), rtol=1e-4)
    assert ours.score(X, named) == pytest.approx(theirs.score(X, y))


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr", "f1_macro", "accuracy"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_a_fold_that_lacks_a_class_is_scored(scoring):
    X, y = load_iris(return_X_y=True)
    kept = np.r_[0:50, 50:100, 100:110]
    folds = [(np.r_[0:40, 50:90, 100:110], np.r_[40:50, 90:100]), (np.r_[10:50, 60:110], np.r_[0:10, 50:60])]
    model = TRSVRClassifierCV(Cs=[1.0], cv=folds, scoring=scoring).fit(X[kept], np.array(["a", "b", "c"])[y[kept]])
    if scoring != "roc_auc_ovr":  # not defined for a class that is not there
        assert np.isfinite(model.scores_).all()
    if scoring == "neg_log_loss":
        train, test = folds[0]
        theirs = LogisticRegression(tol=1e-8, max_iter=10_000).fit(X[kept][train], y[kept][train])
        expected = -log_loss(y[kept][test], theirs.predict_proba(X[kept][test]), labels=[0, 1, 2])
        assert_allclose(model.scores_[0, 0], expected, rtol=1e-5)
