"""LogisticRegression replaced by TRSVRClassifier: the same coefficients, in a pipeline, without a warning.

Raw breast_cancer is badly scaled: its columns' sizes differ by a factor of a hundred thousand. LogisticRegression gives
up on it with a ConvergenceWarning; TRSVRClassifier reaches the minimiser by default. Then the search people run most:
the strength of the penalty by cross-validation.

    python examples/scikit_learn.py
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV


def objective(model: LogisticRegression | TRSVRClassifier, X: np.ndarray, y: np.ndarray) -> float:
    """C Σ log(1 + exp(−y z)) + ½‖coef‖², with C = 1."""
    margins = np.where(y == 1, 1.0, -1.0) * model.decision_function(X)
    return float(np.logaddexp(0.0, -margins).sum() + 0.5 * np.sum(model.coef_**2))


def raw_features(X: np.ndarray, y: np.ndarray) -> None:
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(X, y)
    print("raw features           objective     from the minimiser   warned")
    for model in (LogisticRegression(), TRSVRClassifier()):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        warned = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        off = np.linalg.norm(model.coef_ - exact.coef_) / np.linalg.norm(exact.coef_)
        print(f"{type(model).__name__:<20} {objective(model, X, y):11.6f} {off:17.0e} {'yes' if warned else 'no':>13}")


def a_search(X: np.ndarray, y: np.ndarray) -> None:
    pipeline = make_pipeline(StandardScaler(), TRSVRClassifier())
    grid = {"trsvrclassifier__C": np.logspace(-4, 4, 10)}
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=5).fit(X, y)
    path = make_pipeline(StandardScaler(), TRSVRClassifierCV(scoring="neg_log_loss", cv=5)).fit(X, y)
    print(f"\ngrid search            C = {search.best_params_['trsvrclassifier__C']:.3f}")
    print(f"TRSVRClassifierCV      C = {path[-1].C_:.3f}, {path[-1].n_iter_.sum()} iterations for 50 fits")


if __name__ == "__main__":
    cancer = load_breast_cancer()
    raw_features(cancer.data, cancer.target)
    a_search(cancer.data, cancer.target)
