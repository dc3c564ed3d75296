"""scikit-learn's own checks, all of them, without an expected failure."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV, TRSVRRegressor, TRSVRRegressorCV

ESTIMATORS = [
    TRSVRClassifier(),
    TRSVRClassifier(loss="squared_hinge"),
    TRSVRClassifierCV(Cs=3, cv=3),
    TRSVRRegressor(),
    TRSVRRegressor(loss="pseudo_huber"),
    TRSVRRegressor(loss="poisson"),
    TRSVRRegressor(loss="gamma"),
    TRSVRRegressor(loss="tweedie"),
    TRSVRRegressor(loss="negative_binomial"),
    TRSVRRegressorCV(alphas=3, cv=3),
    TRSVRRegressorCV(alphas=3, cv=3, loss="poisson"),
]


# Some checks give shapes, names or targets on purpose that scikit-learn itself warns about.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
