"""TRSVRClassifier as a user meets it."""

from __future__ import annotations

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse
from agreement import objective
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import trsvr
from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV


@pytest.fixture(scope="module")
def three():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def two():
    X, y = load_breast_cancer(return_X_y=True)
    return np.ascontiguousarray(StandardScaler().fit_transform(X)), y


def same(one, other, tolerance=1e-7):
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=0, atol=tolerance * np.abs(other.coef_).max())
    scale = max(1.0, np.abs(other.intercept_).max())
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=0, atol=tolerance * scale)


# ------------------------------------------------------------------------------------------------------------ weights


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
@pytest.mark.parametrize("which", ["two", "three"])
def test_whole_weights_are_repeated_rows_and_zero_weights_removed_ones(which, loss, request):
    X, y = request.getfixturevalue(which)
    times = np.random.default_rng(3).integers(0, 4, len(y))
    weighted = TRSVRClassifier(loss=loss, class_weight="balanced").fit(X, y, sample_weight=times)
    repeated = TRSVRClassifier(loss=loss, class_weight="balanced").fit(X.repeat(times, axis=0), y.repeat(times))
    same(weighted, repeated)


def test_class_weights_are_sample_weights(three):
    X, y = three
    by_class = TRSVRClassifier(class_weight={"setosa": 2.0, "virginica": 0.5}).fit(X, y)
    by_row = TRSVRClassifier().fit(X, y, sample_weight=np.select([y == "setosa", y == "virginica"], [2.0, 0.5], 1.0))
    same(by_class, by_row, 1e-12)


# ------------------------------------------------------------------------------------------------------ kinds of input


def test_float32_stays_float32(two):
    X, y = two
    narrow = X.astype(np.float32)
    model = TRSVRClassifier().fit(narrow, y)
    assert model.coef_.dtype == model.intercept_.dtype == model.predict_proba(narrow).dtype == np.float32
    wide = TRSVRClassifier().fit(narrow.astype(np.float64), y)
    assert wide.coef_.dtype == np.float64
    same(model, wide, 1e-6)


def test_sparse_rows_are_not_made_dense():
    """A dense copy would be 80 GB."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, 20_000, 20_000), rng.integers(0, 500_000, 20_000)
    X = scipy.sparse.coo_array((rng.random(20_000), places), shape=(20_000, 500_000)).tocsr()
    y = rng.integers(0, 2, 20_000)
    model = TRSVRClassifier(C=0.1).fit(X, y)
    assert model.coef_.shape == (1, 500_000)
    assert model.predict(X).shape == (20_000,)


def test_the_users_data_are_neither_copied_nor_changed(two, monkeypatch):
    X, y = two
    X = X.copy()
    X.flags.writeable = False
    seen = []
    original = trsvr.problems.LinearModel.__init__

    def spy(self, X, *arguments, **options):
        original(self, X, *arguments, **options)
        seen.append(np.shares_memory(self.kernels.rows.values, kept))

    kept = X
    monkeypatch.setattr(trsvr.problems.LinearModel, "__init__", spy)
    TRSVRClassifier().fit(X, y)
    assert seen == [True]


def test_frames_in_a_pipeline(three):
    X, y = three
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    pipeline = make_pipeline(StandardScaler(), TRSVRClassifier()).set_output(transform="pandas")
    pipeline.fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names"):
        pipeline[-1].predict(frame.rename(columns={"a": "z"}))
    same(
        pipeline[-1], LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(StandardScaler().fit_transform(X), y)
    )


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 7], dtype=np.int8),
        np.array([-120, 120], dtype=np.int8),
        np.array([2**40, 2**41]),
        np.array([2**63 + 1, 2**63 + 5], dtype=np.uint64),
        np.array([False, True]),
        np.array([0.0, 1.0]),
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([5, 1000, 70000]),
        np.array([1, 2, 9]),
    ],
    ids=lambda labels: f"{labels.dtype} {labels.tolist()}",
)
def test_labels_of_any_kind(labels):
    rng = np.random.default_rng(2)
    places = rng.integers(0, len(labels), 80)
    X = rng.normal(size=(80, 2)) + 3.0 * np.stack([places, -places], axis=1)
    model = TRSVRClassifier().fit(X, labels[places])
    assert model.classes_.tolist() == labels.tolist()
    assert model.classes_.dtype == labels.dtype
    assert (model.predict(X) == labels[places]).mean() > 0.9


# --------------------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("which", ["two", "three"])
def test_predictions_are_logistic_regressions(which, request):
    X, y = request.getfixturevalue(which)
    ours, theirs = TRSVRClassifier().fit(X, y), LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(X, y)
    for method in ("decision_function", "predict_proba", "predict_log_proba"):
        np.testing.assert_allclose(getattr(ours, method)(X), getattr(theirs, method)(X), rtol=1e-5, atol=1e-8)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.coef_.shape == theirs.coef_.shape
    assert ours.intercept_.shape == theirs.intercept_.shape
    assert ours.n_iter_.shape == (1,)
    assert ours.n_iter_.dtype == np.int32


def test_logarithms_of_tiny_probabilities():
    model = TRSVRClassifier(C=1e4).fit([[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1])
    logs = model.predict_log_proba([[1e5]])
    assert logs[0, 0] < -1e5
    assert logs[0, 1] == 0.0


# --------------------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("C", [1e-2, 10.0])
@pytest.mark.parametrize("which", ["two", "three"])
def test_squared_hinge_is_linear_svc(which, C, request):
    """Without an intercept, which LinearSVC penalises and we do not."""
    X, y = request.getfixturevalue(which)
    ours = TRSVRClassifier(C=C, loss="squared_hinge", fit_intercept=False).fit(X, y)
    theirs = LinearSVC(C=C, fit_intercept=False, dual=False, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-7)
    assert ours.n_iter_.shape == ((1,) if which == "two" else (3,))
    assert not hasattr(ours, "predict_proba")


def test_squared_hinge_with_an_unpenalised_intercept(two):
    X, y = two
    sign = np.where(y == 1, 1.0, -1.0)

    def value(x):
        gaps = np.maximum(0.0, 1.0 - sign * (X @ x[:-1] + x[-1]))
        slopes = -2.0 * gaps * sign
        return gaps @ gaps + 0.5 * x[:-1] @ x[:-1], np.append(X.T @ slopes + x[:-1], slopes.sum())

    best = scipy.optimize.minimize(
        value, np.zeros(31), jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-9, "maxiter": 20000}
    )
    model = TRSVRClassifier(loss="squared_hinge").fit(X, y)
    ours = value(np.append(model.coef_, model.intercept_))[0]
    assert ours <= best.fun * (1 + 1e-11)


# ---------------------------------------------------------------------------------------------- without a penalty


def test_without_a_penalty(three):
    """Three noisy classes have a minimiser; its coefficients are those that sum to zero."""
    X, y = three
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < 0.3, rng.permutation(y), y)
    ours = TRSVRClassifier(C=np.inf).fit(X, y)
    theirs = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-5)
    np.testing.assert_allclose(ours.coef_.sum(axis=0), 0.0, atol=1e-12)
    assert abs(ours.intercept_.sum()) < 1e-10


def test_separable_classes_without_a_penalty_end_with_a_word():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    with pytest.warns(ConvergenceWarning, match="the data are separated"):
        model = TRSVRClassifier(C=np.inf).fit(X, [0, 0, 1, 1])
    assert model.score(X, [0, 0, 1, 1]) == 1.0
    assert model.n_iter_[0] < 60
    assert np.isfinite(model.coef_).all()


# ---------------------------------------------------------------------------------------------------------- warm start


@pytest.mark.parametrize("which", ["two", "three"])
def test_warm_start_continues(which, request):
    X, y = request.getfixturevalue(which)
    model = TRSVRClassifier(warm_start=True, C=100.0).fit(X, y)
    first, n_first = model.coef_.copy(), model.n_iter_[0]
    model.fit(X, y)
    assert model.n_iter_[0] <= 2 < n_first
    np.testing.assert_allclose(model.coef_, first, rtol=1e-6)
    model.set_params(C=110.0).fit(X, y)
    assert model.n_iter_[0] < n_first
    same(model, TRSVRClassifier(C=110.0).fit(X, y), 1e-6)


def test_warm_start_refuses_other_data(three):
    X, y = three
    model = TRSVRClassifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"X must have the 4 columns of the last fit.*got 2"):
        model.fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"y must have the classes of the last fit"):
        model.fit(X, np.where(y == "setosa", "else", y))


# --------------------------------------------------------------------------------------------------------- convergence


def test_the_warning_is_true_and_says_what_to_do(two):
    X, y = two
    with pytest.warns(
        ConvergenceWarning, match=r"largest entry is .* at most 1e-06.*Increase max_iter \(now 2\)"
    ) as told:
        model = TRSVRClassifier(max_iter=2).fit(X, y)
    assert told[0].filename == __file__  # where the user called, not where we did
    gradient = X.T @ (model.predict_proba(X)[:, 1] - y) / len(y) + model.coef_[0] / len(y)
    assert np.abs(gradient).max() > 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TRSVRClassifier().fit(X, y)
    gradient = X.T @ (model.predict_proba(X)[:, 1] - y) / len(y) + model.coef_[0] / len(y)
    assert np.abs(gradient).max() <= 1e-6


def test_a_limit_that_comes_after_the_criterion_is_met_is_no_reason_to_warn(two):
    X, y = two
    needed = TRSVRClassifier().fit(X, y).n_iter_[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TRSVRClassifier(max_iter=int(needed) - 1).fit(X, y)


def test_curve_and_trace(two, three):
    X, y = two
    model = TRSVRClassifier(C=2.0).fit(X, y)
    curve = model.loss_curve_
    assert len(curve) == len(model.trace_) == model.n_iter_[0] + 1
    assert curve[0] == pytest.approx(np.log(2.0))
    assert (np.diff(curve) <= 1e-15).all()
    expected = objective(model.coef_, model.intercept_, X, y, 2.0, np.ones(len(y))) / (2.0 * len(y))
    assert curve[-1] == pytest.approx(expected, rel=1e-13)
    several = TRSVRClassifier(loss="squared_hinge").fit(*three)
    assert [len(curve) for curve in several.loss_curve_] == (several.n_iter_ + 1).tolist()
    assert several.trace_.index.names[0] == "class"
    with pytest.raises(NotFittedError):
        _ = TRSVRClassifier().loss_curve_


@pytest.mark.parametrize("solver", ["lbfgs", "trust-region", trsvr.TRSVR(norm="diagonal"), trsvr.SAGA()])
def test_other_solvers(two, solver):
    X, y = two
    model = TRSVRClassifier(C=0.01, solver=solver, tol=1e-5, max_iter=3000).fit(X, y)
    same(model, TRSVRClassifier(C=0.01).fit(X, y), 1e-2)


# ----------------------------------------------------------------------------------------------------- odds and ends


def test_repeatable_clonable_picklable(two):
    X, y = two
    model = TRSVRClassifier(C=3.0, solver=trsvr.TRSVR(max_cg=100)).fit(X, y)
    again = clone(model).fit(X, y)
    assert (again.coef_ == model.coef_).all()
    other = pickle.loads(pickle.dumps(model))
    assert (other.predict_proba(X) == model.predict_proba(X)).all()
    assert (other.loss_curve_ == model.loss_curve_).all()
    one = TRSVRClassifier(random_state=np.random.RandomState(1)).fit(X, y)
    same(one, TRSVRClassifier(random_state=5).fit(X, y))


def test_there_is_no_partial_fit_and_the_docstring_says_why():
    assert not hasattr(TRSVRClassifier, "partial_fit")
    assert "no ``partial_fit``" in TRSVRClassifier.__doc__


def test_an_interrupt_is_not_swallowed(two, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    X, y = two
    monkeypatch.setattr(trsvr.engine.run.Run, "run_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        TRSVRClassifier().fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, r"C must be a finite number > 0, got 0.0; numpy.inf is no penalty"),
        ({"C": "1"}, r"C must be .*, got '1'"),
        (
            {"loss": "log_los"},
            r"loss must be one of 'log_loss', 'squared_hinge', got 'log_los'; did you mean 'log_loss'",
        ),
        ({"tol": -1.0}, r"tol must be a finite number >= 0, got -1.0"),
        ({"max_iter": 1.5}, r"max_iter must be a whole number >= 0, got 1.5"),
        ({"fit_intercept": "yes"}, r"fit_intercept must be True or False, got 'yes'"),
        ({"n_jobs": 0}, r"n_jobs must be None or a whole number other than 0, got 0"),
        ({"solver": "lbgfs"}, r"solver must be one of .*, got 'lbgfs'; did you mean 'lbfgs'"),
        ({"solver": 3}, r"solver must be a solver such as trsvr.TRSVR\(\), got 3"),
        ({"class_weight": "balance"}, r"class_weight must be a dict, 'balanced' or None, got 'balance'"),
        (
            {"class_weight": {2: 1.0}},
            r"class_weight has a weight for 2, which is not a class; the classes are \[0, 1\]",
        ),
        ({"class_weight": {0: -1.0}}, r"class_weight must be finite numbers >= 0"),
        ({"random_state": -1}, r"random_state must be a whole number >= 0, got -1"),
    ],
)
def test_bad_parameters(two, parameters, message):
    with pytest.raises(ValueError, match=message):
        TRSVRClassifier(**parameters).fit(*two)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"sample_weight must have one entry for each of the 569 rows, got 2"),
        ([-1.0] * 569, r"sample_weight must be >= 0, got -1.0"),
        ([np.nan] * 569, r"sample_weight must be finite"),
        ([0.0] * 569, r"sample_weight must have at least one positive entry"),
        (["a"] * 569, r"sample_weight must be numbers"),
    ],
)
def test_bad_weights(two, weights, message):
    with pytest.raises(ValueError, match=message):
        TRSVRClassifier().fit(*two, sample_weight=weights)


def test_bad_data(two):
    X, y = two
    with pytest.raises(ValueError, match=r"Input X contains NaN"):
        TRSVRClassifier().fit(np.where(X > 5, np.nan, X), y)
    sparse = scipy.sparse.csr_array(np.where(X > 5, np.inf, X))
    with pytest.raises(ValueError, match=r"contains infinity"):
        TRSVRClassifier().fit(sparse, y)
    with pytest.raises(ValueError, match=r"at least two classes, got only one class: 1"):
        TRSVRClassifier().fit(X, np.ones(len(y), dtype=int))
    with pytest.raises(ValueError, match=r"Unknown label type: continuous"):
        TRSVRClassifier().fit(X, X[:, 0])
    with pytest.raises(NotFittedError):
        TRSVRClassifier().predict(X)
    with pytest.raises(AttributeError) as raised:
        TRSVRClassifier(loss="squared_hinge").fit(X, y).predict_proba(X)
    assert "loss='squared_hinge' gives no probabilities" in str(raised.value.__cause__)


@pytest.mark.parametrize("parameter", ["penalty", "l1_ratio", "dual", "intercept_scaling", "multi_class"])
def test_parameters_of_logistic_regression_that_are_not_ours_get_an_answer(parameter):
    for kind in (TRSVRClassifier, TRSVRClassifierCV):
        with pytest.raises(TypeError, match=rf"{kind.__name__} has no parameter '{parameter}': .*"):
            kind(**{parameter: None})
    with pytest.raises(TypeError, match=r"C=numpy\.inf is no penalty"):
        TRSVRClassifier(penalty=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'strength'"):
        TRSVRClassifier(strength=3)
    assert "penalty" not in TRSVRClassifier().get_params()


@pytest.mark.parametrize("solver", ["newton-cholesky", "liblinear", "newton-cg"])
def test_solvers_of_scikit_learn_that_are_not_ours_get_an_answer(two, solver):
    with pytest.raises(ValueError, match=f"solver='{solver}' is scikit-learn's; .* solver=None"):
        TRSVRClassifier(solver=solver).fit(*two)


@pytest.mark.parametrize("which", ["two", "three"])
def test_sparse_coefficients(which, request):
    X, y = request.getfixturevalue(which)
    model = TRSVRClassifier(warm_start=True).fit(X, y)
    expected, coef = model.predict_proba(X), model.coef_.copy()
    assert model.sparsify() is model
    assert scipy.sparse.issparse(model.coef_)
    assert_allclose(model.predict_proba(X), expected, rtol=1e-12)
    assert_allclose(model.predict_proba(scipy.sparse.csr_array(X)), expected, rtol=1e-12)
    assert (model.densify().coef_ == coef).all()
    assert isinstance(model.sparsify().fit(X, y).coef_, np.ndarray)


@pytest.mark.parametrize(("rows", "columns", "far"), [(60, 3, 1e7), (20_000, 30, 1e8)], ids=["small", "compiled"])
def test_columns_far_from_zero_without_an_intercept_are_named_in_the_warning(rows, columns, far):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, columns)) + far
    y = (X[:, 0] + random.normal(size=rows) > far).astype(int)
    with pytest.warns(ConvergenceWarning, match="columns far from zero cost digits: centre them, or add an intercept"):
        TRSVRClassifier(fit_intercept=False, C=1e6, tol=1e-9).fit(X, y)


def test_a_bound_that_is_unknown_of_one_run_is_unknown_of_all():
    model = TRSVRClassifier()
    model._remember([SimpleNamespace(epochs=1, gap_bound=bound, rows=[]) for bound in (1e-9, np.nan, 1e-3)])
    assert np.isnan(model.gap_bound_)
