"""Regression: least squares and its robust relative."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import RegressorMixin

from trsvr import _check
from trsvr.problems import L2, PseudoHuber, Squared
from trsvr.sklearn.base import Array, LinearEstimator, checked_strength, pack, unpack
from trsvr.sklearn.callbacks import FitTask, with_callbacks
from trsvr.sklearn.foreign import like_ridge
from trsvr.sklearn.weights import checked_weights

LOSSES = ("squared_error", "pseudo_huber")

# Columns whose mean is so many standard deviations from zero are centred: beyond, sums over them lose their digits.
_FAR, _LOOKED_AT = 1e3, 1000


def _far_means(X: Any) -> Array | None:
    """Means of the columns where some of them lie far from zero, as timestamps do; None elsewhere, and for CSR."""
    if scipy.sparse.issparse(X):
        return None
    some = X[:: max(1, len(X) // _LOOKED_AT)]
    with np.errstate(all="ignore"):
        far = np.abs(some.mean(axis=0, dtype=np.float64)) > _FAR * some.std(axis=0, dtype=np.float64)
        varies = some.min(axis=0) < some.max(axis=0)
        return X.mean(axis=0, dtype=np.float64) if (far & varies).any() else None


class TRSVRRegressor(RegressorMixin, LinearEstimator):
    """Linear regression with the objective of scikit-learn's ``Ridge``, or a robust one.

    It minimises ::

        Σ_i w_i ℓ(y_i − x_iᵀ coef − intercept) + (alpha/2) ‖coef‖²

    over coefficients and an unpenalised intercept. Divided by Σ w_i this is the library's mean-loss form, with
    λ = alpha / Σ w_i.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, >= 0.
    loss : {"squared_error", "pseudo_huber"}, default="squared_error"
        ℓ(r) = r²/2 (half of Ridge's objective, so the same minimiser for the same alpha), or
        δ²(√(1 + (r/δ)²) − 1), which is r²/2 for small residuals and δ|r| for large ones.
    delta : float, default=1.0
        δ of "pseudo_huber", in the units of y.
    fit_intercept : bool, default=True
    tol : float, default=1e-6
        The fit has converged when no entry of the gradient is larger than tol times the largest one at coef = 0 (and
        the mean of y for an intercept): the units of y do not matter. The default solver goes on until the decrease it
        still expects is below 1e-4 tol² of the objective, too.
    max_iter : int, default=1000
        Outer iterations at most.
    warm_start : bool, default=False
        Whether `fit` begins at the last solution.
    random_state, n_jobs, solver, verbose, device
        As for `TRSVRClassifier`.

    Attributes
    ----------
    coef_ : array of shape (p,)
        In the precision of X, float32 or float64.
    intercept_ : float
    n_iter_ : array of shape (1,)
    gap_bound_, n_features_in_, feature_names_in_, loss_curve_, trace_
        As for `TRSVRClassifier`.

    Notes
    -----
    Dense columns whose mean is more than 1000 standard deviations from zero are centred, on a copy, where there is an
    intercept; the solution is the same.

    There is no ``partial_fit``, for the reason that `TRSVRClassifier` gives, and y is one column: several targets are
    several fits (``sklearn.multioutput.MultiOutputRegressor``).
    """

    @like_ridge
    def __init__(
        self,
        alpha: float = 1.0,
        *,
        loss: str = "squared_error",
        delta: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        solver: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.alpha = alpha
        self.loss = loss
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.solver = solver
        self.verbose = verbose
        self.device = device

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TRSVRRegressor:
        """Minimise.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
            Used where it lies if it is C-ordered float64 or float32, or CSR.
        y : array of length n
        sample_weight : array of length n, optional
            A whole weight k equals the row repeated k times; rows of weight zero are left out.
        """
        self._check_parameters()
        alpha = checked_strength("alpha", self.alpha, zero=True)
        _check.one_of("loss", self.loss, LOSSES)
        loss = Squared() if self.loss == "squared_error" else PseudoHuber(_check.positive("delta", self.delta))
        before = (self.coef_, self.intercept_) if self.warm_start and hasattr(self, "coef_") else None
        X, y = self._checked_data(X, y, y_numeric=True)
        if y.dtype.kind not in "buif":
            raise ValueError(f"y must be numbers, got {y.dtype} such as {y[0]!r}; labels are for TRSVRClassifier")
        weights = checked_weights(sample_weight, X.shape[0])
        # Around its mean y has a gradient at zero that does not know where y's own zero is.
        middle = float(np.average(y, weights=weights)) if self.fit_intercept else 0.0
        centred = y - middle
        centres = _far_means(X) if self.fit_intercept else None
        total = float(X.shape[0] if weights is None else weights.sum())
        problem = self._problem(
            X if centres is None else X - centres,
            centred,
            loss,
            L2(alpha / total),
            intercept=bool(self.fit_intercept),
            sample_weight=weights,
        )
        start = None
        if before is not None:
            if before[0].size != self.n_features_in_:
                raise ValueError(
                    f"X must have the {before[0].size} columns of the last fit with warm_start=True, got "
                    f"{self.n_features_in_}; clone the estimator to begin anew"
                )
            offset = 0.0 if centres is None else float(before[0] @ centres)
            start = pack(before[0][None, :], np.array([before[1] - middle + offset]), self.fit_intercept)

        def attributes(x: Array) -> dict[str, Any]:
            coef, intercept = unpack(x, 1, bool(self.fit_intercept), np.float64)
            offset = 0.0 if centres is None else float(coef[0] @ centres)
            return {"coef_": coef[0].astype(X.dtype), "intercept_": X.dtype.type(intercept[0] + middle - offset)}

        task = FitTask(
            self, int(self.max_iter), X=X, y=y, metadata=None if weights is None else {"sample_weight": weights}
        )
        at_zero = problem.value_and_gradient(np.zeros(problem.n_parameters))
        means = self._means(self.n_jobs)
        result = self._minimize(problem, start, means, at_zero[0], relative=True, callback=task.watcher(attributes))
        self._warn_unless_converged(result, float(self.tol) * float(np.abs(at_zero[1]).max(initial=0.0)))
        for name, value in attributes(result.x).items():
            setattr(self, name, value)
        self._remember([result])
        task.finish()
        return self

    def predict(self, X: Any) -> Array:
        """Numbers for the rows of X.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        """
        X = self._checked_new(X)
        return np.asarray(X @ self.coef_) + self.intercept_
