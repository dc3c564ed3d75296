"""In other people's parallel loops: right results, and no more threads than cores."""

from __future__ import annotations

import threading

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trsvr import _threads
from trsvr.sklearn import TRSVRClassifier
from trsvr.sklearn.workers import thread_count


def threads_in_use(model, X, y):
    """A scorer that says how many threads the fit just made could use, and how many this process has of ours."""
    assert model[-1].n_iter_[0] > 0
    return thread_count(None)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_workers_divide_the_cores(backend):
    X, y = load_breast_cancer(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TRSVRClassifier()),
        {"trsvrclassifier__C": [0.1, 1.0]},
        scoring=threads_in_use,
        cv=2,
        n_jobs=2,
        refit=False,
    )
    with joblib.parallel_config(backend=backend):
        search.fit(X, y)
    most = 1 if backend == "threading" else max(1, joblib.cpu_count() // 2)
    used = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(2)])
    assert ((used >= 1) & (used <= most)).all()


def test_a_search_finds_what_scikit_learns_estimator_finds():
    X, y = load_breast_cancer(return_X_y=True)
    grid = [1e-3, 1e-1, 10.0]

    def search(estimator):
        pipeline = make_pipeline(StandardScaler(), estimator)
        return GridSearchCV(pipeline, {f"{pipeline.steps[-1][0]}__C": grid}, scoring="neg_log_loss", cv=3, n_jobs=2)

    ours, theirs = search(TRSVRClassifier()).fit(X, y), search(LogisticRegression(tol=1e-8, max_iter=5000)).fit(X, y)
    assert list(ours.best_params_.values()) == list(theirs.best_params_.values())
    for name in ("split0_test_score", "split2_test_score"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-5)
    scores = cross_val_score(make_pipeline(StandardScaler(), TRSVRClassifier()), X, y, cv=3, n_jobs=2)
    assert scores.mean() > 0.95


def test_how_many_threads(monkeypatch):
    for name in ("OMP_NUM_THREADS", "TRSVR_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_threads, "available", lambda: 8)
    assert thread_count(None) == 8
    assert thread_count(3) == 3
    assert thread_count(-1) == 8
    assert thread_count(-3) == 6
    assert thread_count(-20) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert thread_count(None) == 2
    assert thread_count(3) == 3
    monkeypatch.setenv("TRSVR_NUM_THREADS", "5")
    assert thread_count(None) == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "200")
    monkeypatch.delenv("TRSVR_NUM_THREADS")
    assert thread_count(None) == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")  # nested levels, as OpenMP allows
    assert thread_count(None) == 4


def test_fits_in_many_threads_at_once():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    expected = TRSVRClassifier().fit(X, y).coef_
    found = joblib.Parallel(n_jobs=4, backend="threading")(
        joblib.delayed(lambda: TRSVRClassifier().fit(X, y).coef_)() for _ in range(12)
    )
    assert all((coef == expected).all() for coef in found)
    assert threading.active_count() < 50
