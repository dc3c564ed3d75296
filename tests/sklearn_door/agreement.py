"""An independent word on a fit: the objective in NumPy, scikit-learn's best minimiser, and Newton steps beyond it."""

from __future__ import annotations

import functools
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import logsumexp, softmax
from sklearn import datasets as toy
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from trsvr import datasets
from trsvr.sklearn import TRSVRClassifier

TOY = {
    "iris": toy.load_iris,
    "wine": toy.load_wine,
    "breast_cancer": toy.load_breast_cancer,
    "digits": toy.load_digits,
}
# A Hessian up to this condition decides the coefficients to 1e-6.
CONDITION = 1e8


@functools.cache
def load(name: str, scaling: str = "raw") -> tuple[Any, np.ndarray]:
    """X and y; "standardised" leaves columns that never change at zero."""
    if name in TOY:
        X, y = TOY[name](return_X_y=True)
    else:
        dataset = datasets.load(name, preprocess="none")
        X, y = dataset.X, np.asarray(dataset.y)
    if scaling == "standardised":
        if scipy.sparse.issparse(X):
            X = StandardScaler(with_mean=False).fit_transform(X)
        else:
            X = np.ascontiguousarray(StandardScaler().fit_transform(X))
    return X, y


def uneven_weights(n: int) -> np.ndarray:
    """Weights between 0 and 3, some of them zero."""
    weights = np.random.default_rng(7).uniform(0.1, 3.0, n)
    weights[::11] = 0.0
    return weights


def margins_of(coef: np.ndarray, intercept: np.ndarray, X: Any) -> np.ndarray:
    """Two columns or more: z_k − z_0 decides."""
    scores = np.asarray(X @ coef.T) + intercept
    return np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores


def objective(coef: np.ndarray, intercept: np.ndarray, X: Any, places: np.ndarray, C: float, weights: Any) -> float:
    """C Σ w_i ℓ_i + ½‖coef‖²; small losses keep their digits: log(1 + Σ_{k≠y} exp(z_k − z_y))."""
    scores = margins_of(coef, intercept, X)
    rows = np.arange(len(places))
    scores = scores - scores[rows, places][:, None]
    scores[rows, places] = -np.inf
    losses = np.logaddexp(0.0, logsumexp(scores, axis=1))
    return float(C * np.dot(weights, losses) + 0.5 * np.sum(coef**2))


def derivatives(
    coef: np.ndarray, intercept: np.ndarray, X: Any, places: np.ndarray, C: float, weights: Any, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian of the objective in (coef, intercept), class by class; dense."""
    A = X.toarray() if scipy.sparse.issparse(X) else X
    A = np.hstack([A, np.ones((len(A), 1))]) if fit_intercept else A
    p = softmax(margins_of(coef, intercept, X), axis=1)
    errors = p.copy()
    errors[np.arange(len(places)), places] -= 1.0
    outputs, d = len(coef), A.shape[1]
    first = 1 if outputs == 1 else 0  # two classes have one row of coefficients, the second's
    w = C * np.asarray(weights)
    gradient = (errors[:, first:] * w[:, None]).T @ A
    hessian = np.block(
        [
            [A.T @ (A * (w * p[:, j] * ((j == k) - p[:, k]))[:, None]) for k in range(first, first + outputs)]
            for j in range(first, first + outputs)
        ]
    )
    penalised = np.ones((outputs, d))
    gradient[:, : coef.shape[1]] += coef
    if fit_intercept:
        penalised[:, -1] = 0.0
    return gradient.ravel(), hessian + np.diag(penalised.ravel())


def polished(
    coef: np.ndarray, intercept: np.ndarray, X: Any, places: np.ndarray, C: float, weights: Any, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Two full Newton steps further, in NumPy, and the Hessian's condition.

    With several classes their intercepts may move together: that direction is left out.
    """
    ratio = np.nan
    for _ in range(2):
        gradient, hessian = derivatives(coef, intercept, X, places, C, weights, fit_intercept)
        values, vectors = np.linalg.eigh(hessian)
        flat = int(len(coef) > 1 and fit_intercept)
        values, vectors = values[flat:], vectors[:, flat:]
        ratio = float(values[-1] / max(values[0], np.finfo(float).tiny))
        step = (vectors @ ((vectors.T @ gradient) / values)).reshape(len(coef), -1)
        coef = coef - step[:, : coef.shape[1]]
        intercept = intercept - step[:, -1] if fit_intercept else intercept
    return coef, intercept, ratio


class Verdict(NamedTuple):
    """What came of a comparison."""

    excess: float  # objective over scikit-learn's best, relative
    difference: float  # of the coefficients from the polished ones, relative
    condition: float
    iterations: int
    seconds: float
    reference_seconds: float


def reference(
    X: Any, y: np.ndarray, C: float, fit_intercept: bool, class_weight: Any, weights: Any, thorough: bool
) -> list[Any]:
    """scikit-learn's minimisers at tol 1e-12."""
    outputs = len(np.unique(y))
    wide = X.shape[1] * (outputs if outputs > 2 else 1) > 1500
    solvers = ("lbfgs", "newton-cg") if wide else ("newton-cholesky", "lbfgs") if thorough else ("newton-cholesky",)
    fitted = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for solver in solvers:
            model = LogisticRegression(
                C=C, tol=1e-12, max_iter=10000, solver=solver, fit_intercept=fit_intercept, class_weight=class_weight
            )
            fitted.append(model.fit(X, y, sample_weight=weights))
    return fitted


def compare(
    name: str,
    scaling: str = "raw",
    C: float = 1.0,
    fit_intercept: bool = True,
    weighting: str = "none",
    layout: str = "as it is",
    thorough: bool = False,
) -> Verdict:
    """Fit with nothing chosen, and look at it with scikit-learn's and NumPy's eyes. Warnings are the caller's."""
    X, y = load(name, scaling)
    if layout == "csr":
        X = scipy.sparse.csr_array(X)
    elif layout == "dense" and scipy.sparse.issparse(X):
        X = X.toarray()
    sample_weight = uneven_weights(len(y)) if weighting == "sample" else None
    class_weight = "balanced" if weighting == "class" else None
    classes, places = np.unique(y, return_inverse=True)
    total = np.ones(len(y)) if sample_weight is None else sample_weight
    if class_weight is not None:
        total = total * (len(y) / (len(classes) * np.bincount(places)))[places]

    begun = time.perf_counter()
    model = TRSVRClassifier(C=C, fit_intercept=fit_intercept, class_weight=class_weight)
    model.fit(X, y, sample_weight=sample_weight)
    between = time.perf_counter()
    peers = reference(X, y, C, fit_intercept, class_weight, sample_weight, thorough)
    after = time.perf_counter()
    points = [(peer.coef_, peer.intercept_) for peer in peers]
    values = [objective(*point, X, places, C, total) for point in points]
    truth, ratio = points[int(np.argmin(values))], np.nan
    if truth[0].size <= 1500:
        *truth, ratio = polished(*truth, X, places, C, total, fit_intercept)
    ours = objective(model.coef_, model.intercept_, X, places, C, total)
    theirs = np.hstack([truth[0], truth[1][:, None]])
    mine = np.hstack([model.coef_, model.intercept_[:, None]])
    return Verdict(
        ours / min(values) - 1.0,
        float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)),
        ratio,
        int(model.n_iter_.max()),
        between - begun,
        after - between,
    )


def complaint(verdict: Verdict) -> str:
    """What is wrong with it; empty if nothing."""
    if not verdict.excess <= 1e-12:
        return f"the objective is {verdict.excess:.1e} above scikit-learn's best"
    if verdict.condition <= CONDITION and not verdict.difference <= 1e-6:
        return f"coefficients differ by {verdict.difference:.1e} at condition {verdict.condition:.1e}"
    return ""
