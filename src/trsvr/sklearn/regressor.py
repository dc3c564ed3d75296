"""Regression: least squares, its robust relative, and generalised linear models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from trsvr import _check
from trsvr.engine import Result, Status
from trsvr.inference import Summary, summary
from trsvr.problems import L2, Gamma, LinearModel, NegativeBinomial, Poisson, PseudoHuber, Squared, Tweedie
from trsvr.problems.families import check_family, mean_of, outside_domain
from trsvr.sklearn.base import Array, LinearEstimator, Means, checked_strength, pack, unpack
from trsvr.sklearn.callbacks import FitTask, with_callbacks
from trsvr.sklearn.foreign import like_ridge
from trsvr.sklearn.weights import checked_weights

#: losses whose mean is the margin, and those whose mean is its exponential
STRAIGHT, LOG_LINK = ("squared_error", "pseudo_huber"), ("poisson", "gamma", "tweedie", "negative_binomial")
LOSSES = (*STRAIGHT, *LOG_LINK)


@dataclass(frozen=True)
class Prepared:
    """A problem without its penalty, in coordinates that do not know where y's own zero is.

    ``middle`` is the intercept where all coefficients are zero. Where the mean is the margin it is taken off y; else
    ``start`` is that point.
    """

    problem: LinearModel
    middle: float
    total: float
    start: Array
    offset: Array | None

    @cached_property
    def at_start(self) -> tuple[float, float]:
        """The value there, and the largest entry of its gradient."""
        value, gradient = self.problem.value_and_gradient(self.start)
        scale = float(np.abs(gradient).max(initial=0.0))
        if not math.isfinite(value + scale):
            offset = self.offset
            far = 0 if offset is None else int(np.abs(offset - np.median(offset)).argmax())
            told = "y" if offset is None else f"offset, {offset[far]} at row {far},"
            raise ValueError(f"{told} is too far from the others: the loss is infinite where all coefficients are zero")
        return float(value), scale


class RegressorBase(RegressorMixin, LinearEstimator):
    """What the regressor and its cross-validated form share."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in LOG_LINK
        return tags

    def _loss(self) -> Any:
        _check.one_of("loss", self.loss, LOSSES)
        if self.loss == "pseudo_huber":
            return PseudoHuber(_check.positive("delta", self.delta))
        loss = {
            "squared_error": Squared(),
            "poisson": Poisson(),
            "gamma": Gamma(),
            "tweedie": Tweedie(self.power),
            "negative_binomial": NegativeBinomial(self.dispersion),
        }[self.loss]
        check_family(loss)
        return loss

    def _strength(self, alpha: float, total: float) -> float:
        """λ of the mean-loss form: alpha itself, but for the losses of Ridge."""
        return alpha if self.loss in LOG_LINK else alpha / total

    def _checked_rows(
        self, X: Any, y: Any, sample_weight: Any, offset: Any
    ) -> tuple[Any, Array, Array | None, Array | None]:
        X, y = self._checked_data(X, y, y_numeric=True)
        if y.dtype.kind not in "buif":
            raise ValueError(
                f"y must be numbers, got {y.dtype} such as {y[:1].tolist()[0]!r}; labels are for TRSVRClassifier"
            )
        weights = checked_weights(sample_weight, X.shape[0])
        found = outside_domain(self._loss(), y if weights is None else np.where(weights > 0.0, y, 0.5))
        if found is not None:
            raise ValueError(f"y must be {found[1]} for loss={self.loss!r}, got {y[found[0]]} at row {found[0]}")
        return X, y, weights, None if offset is None else _check.vector("offset", offset, X.shape[0])

    def _prepare(self, X: Any, y: Array, weights: Array | None, offset: Array | None) -> Prepared:
        middle = self._middle(y, weights, offset) if self.fit_intercept else 0.0
        straight = self.loss in STRAIGHT
        problem = self._problem(
            X,
            y - middle if straight else y,
            self._loss(),
            L2(0.0),
            intercept=bool(self.fit_intercept),
            sample_weight=weights,
            **({} if offset is None else {"offset": offset}),
        )
        start = np.zeros(problem.n_parameters)
        if self.fit_intercept and not straight:
            start[-1] = middle
        total = float(X.shape[0] if weights is None else weights.sum())
        return Prepared(problem, middle if straight else 0.0, total, start, offset)

    def _middle(self, y: Array, weights: Array | None, offset: Array | None) -> float:
        """The intercept where all coefficients are zero: exactly, or nearly where there is an offset."""
        if self.loss in STRAIGHT:
            return float(np.average(y if offset is None else y - offset, weights=weights))
        mean = float(np.average(y, weights=weights))
        if not mean > 0.0:
            raise ValueError(f"y must have a positive entry for loss={self.loss!r}, got only zeros")
        return math.log(mean) - (0.0 if offset is None else _log_mean_exp(offset, weights))

    def _solve(
        self, prepared: Prepared, alpha: float, start: Array | None, means: Means, watcher: Any = None
    ) -> Result:
        problem = prepared.problem.with_regularizer(L2(self._strength(alpha, prepared.total)))
        # A run that begins at the start finds the scales there itself, without a pass of its own.
        begin, at_start = (prepared.start, None) if start is None else (start, prepared.at_start)
        result = self._minimize(problem, begin, means, at_start, callback=watcher)
        if result.status is not Status.CONVERGED:
            self._warn_unless_converged(result, float(self.tol) * prepared.at_start[1])
        return result

    def _attributes(self, prepared: Prepared, x: Array, dtype: Any) -> dict[str, Any]:
        coef, intercept = unpack(x, 1, bool(self.fit_intercept), np.float64)
        return {
            "coef_": coef[0].astype(dtype),
            "intercept_": np.dtype(dtype).type(intercept[0] + prepared.middle),
        }

    def _point(self, prepared: Prepared, coef: Array, intercept: float) -> Array:
        """Weights of the prepared problem from coefficients in the units of X."""
        return pack(coef[None, :], np.array([intercept - prepared.middle]), self.fit_intercept)

    # ---------------------------------------------------------------------------------------------- prediction

    def predict(self, X: Any, offset: Any = None) -> Array:
        """The mean of y for the rows of X.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        offset : array of length n, optional
            Added to the margins, as in `fit`; default: zero.
        """
        return np.asarray(mean_of(self._loss(), self._margins(X, offset)))

    def _margins(self, X: Any, offset: Any) -> Array:
        X = self._checked_new(X)
        margins = np.asarray(X @ self.coef_) + self.intercept_
        return margins if offset is None else margins + _check.vector("offset", offset, X.shape[0])

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """R² of the straight losses, else D²: the part of the deviance that the model explains, at most 1.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        y : array of length n
        sample_weight : array of length n, optional
        offset : array of length n, optional
            As for `predict`. D² is against a mean that is the same for all rows.
        """
        y = np.asarray(y, dtype=np.float64).ravel()
        weights = checked_weights(sample_weight, len(y))
        mean, loss = np.average(y, weights=weights), Squared() if self.loss in STRAIGHT else self._loss()
        with np.errstate(all="ignore"):
            constant = np.full(len(y), mean if self.loss in STRAIGHT else np.log(mean))
            losses = [loss.value(margins, y) for margins in (self._margins(X, offset), constant)]
        left, spread = (float(np.average(each, weights=weights)) for each in losses)
        if spread == 0.0:
            return 1.0 if left == 0.0 else 0.0
        return 1.0 - left / spread

    def summary(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, **options: Any) -> Summary:
        """Coefficients with standard errors, and how well they fit the rows that they were fitted to.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in `fit`.
        **options
            Of `trsvr.inference.summary`: ``kind``, ``groups``, ``weights``, ``known_variance``, ``confidence``.
        """
        X = self._checked_new(X)
        weights = checked_weights(sample_weight, X.shape[0])
        total = float(X.shape[0] if weights is None else weights.sum())
        problem = LinearModel(
            X,
            y,
            self._loss(),
            L2(self._strength(self._chosen_alpha(), total)),
            intercept=bool(self.fit_intercept),
            sample_weight=weights,
            offset=offset,
        )
        problem.feature_names = self._column_names()
        return summary(problem, pack(self.coef_[None, :], np.array([self.intercept_]), self.fit_intercept), **options)

    def _chosen_alpha(self) -> float:
        return float(self.alpha)


def _log_mean_exp(offset: Array, weights: Array | None) -> float:
    largest = float(offset.max())
    return largest + math.log(float(np.average(np.exp(offset - largest), weights=weights)))


class TRSVRRegressor(RegressorBase):
    """Linear regression with the objective of scikit-learn's ``Ridge``, a robust one, or that of its GLMs.

    It minimises ::

        Σ_i w_i ℓ(y_i, z_i) + (alpha/2) ‖coef‖²                 squared_error, pseudo_huber
        Σ_i w_i ℓ(y_i, z_i) / Σ_i w_i + (alpha/2) ‖coef‖²       poisson, gamma, tweedie, negative_binomial

    over coefficients and an unpenalised intercept, with z_i = x_iᵀ coef + intercept + offset_i. So alpha means for each
    loss what it means in scikit-learn:

    =====================  ==========================================  ============================================
    loss                   ℓ, with μ = exp(z)                          the same minimiser as
    =====================  ==========================================  ============================================
    "squared_error"        (z − y)²/2                                  ``Ridge(alpha)``
    "pseudo_huber"         δ² (√(1 + ((z − y)/δ)²) − 1)                (none; alpha as in Ridge)
    "poisson"              μ − y + y log(y/μ), y ≥ 0                   ``PoissonRegressor(alpha)``
    "gamma"                y/μ − 1 − log(y/μ), y > 0                   ``GammaRegressor(alpha)``
    "tweedie"              half the unit deviance of μᵖ, 1 ≤ p ≤ 2     ``TweedieRegressor(power=p, alpha, link="log")``
    "negative_binomial"    half the unit deviance of μ + αμ²           (none; alpha as in the GLMs)
    =====================  ==========================================  ============================================

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, >= 0.
    loss : str, default="squared_error"
        One of the table.
    delta : float, default=1.0
        δ of "pseudo_huber", in the units of y.
    power : float, default=1.5
        The p of "tweedie", from 1 (Poisson) to 2 (Gamma).
    dispersion : float, default=1.0
        The α of "negative_binomial", > 0: y has the variance μ + αμ². It is not estimated.
    fit_intercept : bool, default=True
    tol : float, default=1e-6
        The fit has converged when no entry of the gradient is larger than tol times the largest one at coef = 0 (and
        the intercept that is best there): the units of y do not matter. The default solver goes on until the decrease
        it still expects is below 1e-4 tol² of the objective, too.
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
    Counts of units that were watched for different times, or policies of different exposure, are a Poisson model with
    ``offset=np.log(exposure)`` and the counts as y; that is the fit of the rates with the exposure as sample weights.

    There is no ``partial_fit``, for the reason that `TRSVRClassifier` gives, and y is one column: several targets are
    several fits (``sklearn.multioutput.MultiOutputRegressor``).

    Examples
    --------
    >>> import numpy as np
    >>> from trsvr.sklearn import TRSVRRegressor
    >>> X, counts = np.array([[0.0], [0], [1], [1], [2], [2]]), [1, 0, 2, 4, 9, 12]
    >>> model = TRSVRRegressor(alpha=0.0, loss="poisson").fit(X, counts)
    >>> model.predict(np.array([[0.0], [2.0]])).round(2)
    array([ 0.82, 10.41])
    >>> model.summary(X, counts).table["standard error"].round(3).to_dict()
    {'x0': 0.335, '(intercept)': 0.578}
    """

    @like_ridge
    def __init__(
        self,
        alpha: float = 1.0,
        *,
        loss: str = "squared_error",
        delta: float = 1.0,
        power: float = 1.5,
        dispersion: float = 1.0,
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
        self.power = power
        self.dispersion = dispersion
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
    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> TRSVRRegressor:
        """Minimise.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
            Used without a copy if it is C-ordered float64 or float32, or CSR.
        y : array of length n
        sample_weight : array of length n, optional
            A whole weight k equals the row repeated k times; rows of weight zero are left out.
        offset : array of length n, optional
            A number for each row that is added to its margin: the logarithm of an exposure, say.
        """
        self._check_parameters()
        alpha = checked_strength("alpha", self.alpha, zero=True)
        self._loss()
        before = (self.coef_, self.intercept_) if self.warm_start and "coef_" in vars(self) else None
        X, y, weights, shift = self._checked_rows(X, y, sample_weight, offset)
        prepared = self._prepare(X, y, weights, shift)
        start = None
        if before is not None:
            if before[0].size != self.n_features_in_:
                raise ValueError(
                    f"X must have the {before[0].size} columns of the last fit with warm_start=True, got "
                    f"{self.n_features_in_}; clone the estimator to start over"
                )
            start = self._point(prepared, before[0], float(before[1]))

        def attributes(x: Array) -> dict[str, Any]:
            return self._attributes(prepared, x, X.dtype)

        given = {"sample_weight": weights, "offset": shift}
        metadata = {name: value for name, value in given.items() if value is not None} or None
        task = FitTask(self, int(self.max_iter), X=X, y=y, metadata=metadata)
        result = self._solve(prepared, alpha, start, self._means(self.n_jobs), task.watcher(attributes))
        if alpha == 0.0:
            self._warn_if_separated(prepared.problem, result.x)
        for name, value in attributes(result.x).items():
            setattr(self, name, value)
        self._remember([result])
        task.finish()
        return self
