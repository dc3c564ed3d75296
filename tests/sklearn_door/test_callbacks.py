"""scikit-learn's callbacks: every iteration is a task, with a usable estimator, and may be the last."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from trsvr.sklearn import TRSVRClassifier, TRSVRRegressor

pytest.importorskip("sklearn.callback")


class Watcher:
    """Writes down what happens; asks to stop after so many iterations."""

    def __init__(self, stop_after=None):
        self.events = []
        self.scores = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        self.events.append(("setup", context.task_name))

    def on_fit_task_begin(self, estimator, context, *, X, y):
        self.events.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.events.append(("end", context.task_name))
        if context.parent is not None and fitted_estimator is not None:
            self.scores.append(fitted_estimator.score(X, y))
            return self.stop_after is not None and len(self.scores) >= self.stop_after
        return None

    def teardown(self, estimator, context):
        self.events.append(("teardown", context.task_name))


@pytest.mark.parametrize("make", [TRSVRClassifier, lambda: TRSVRRegressor(loss="pseudo_huber")])
def test_every_iteration_is_a_task(make):
    X, y = load_iris(return_X_y=True)
    watcher = Watcher()
    model = make().set_callbacks(watcher).fit(X, y)
    assert watcher.events[:2] == [("setup", "fit"), ("begin", "fit")]
    assert watcher.events[-2:] == [("end", "fit"), ("teardown", "fit")]
    names = [event[0] for event in watcher.events]
    assert names.count("begin") == names.count("end")
    assert len(watcher.scores) == model.n_iter_[0]
    assert watcher.scores[-1] == pytest.approx(model.score(X, y))
    plain = make().fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)


def test_a_callback_may_stop_the_fit_without_a_warning():
    X, y = load_iris(return_X_y=True)
    model = TRSVRClassifier().set_callbacks(Watcher(stop_after=2)).fit(X, y)
    assert model.n_iter_[0] == 2
    assert model.score(X, y) > 0.8
    names = [event[0] for event in model._skl_callbacks[0].events]
    assert names.count("begin") == names.count("end")


def test_several_models_and_a_search():
    from sklearn.callback import ProgressBar
    from sklearn.model_selection import GridSearchCV

    X, y = load_iris(return_X_y=True)
    watcher = Watcher()
    TRSVRClassifier(loss="squared_hinge").set_callbacks(watcher).fit(X, y)
    assert watcher.events[-1] == ("teardown", "fit")
    search = GridSearchCV(TRSVRClassifier(), {"C": [0.1, 1.0]}, cv=2).set_callbacks(ProgressBar())
    search.fit(X, y)
    assert search.best_score_ > 0.9
