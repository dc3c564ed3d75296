"""The strength of a regressor's penalty by cross-validation: a warm-started path over alpha on every fold."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.parallel import Parallel, delayed

from trsvr import _check
from trsvr.sklearn.base import PATH_DECREASE, Array, Means, checked_strength
from trsvr.sklearn.cross_validation import next_start, routed, rows_of
from trsvr.sklearn.foreign import like_ridge
from trsvr.sklearn.regressor import RegressorBase, TRSVRRegressor


class TRSVRRegressorCV(RegressorBase):
    """`TRSVRRegressor` that chooses alpha by cross-validation, as ``RidgeCV`` does.

    On every fold it follows the path of minimisers from the largest alpha to the smallest, each beginning at the one
    before, and scores them on the rows left out. The alpha of the best mean score is fitted on all rows.

    Parameters
    ----------
    alphas : int or array, default=10
        That many values from 1e-4 to 1e4, evenly in their logarithm, or the values themselves.
    cv : int, splitter or iterable, default=None
        Number of folds (None is 5), or a way to split.
    scoring : str, callable or None, default=None
        How the rows left out are scored; None is `score`: R², or D² with the offset.
    n_jobs : int or None, default=None
        Folds that run at once, in threads that share X and divide the cores between them; None is one after the
        other, each with all cores.
    loss, delta, power, dispersion, fit_intercept, tol, max_iter, random_state, solver, verbose, device
        As for `TRSVRRegressor`.

    Attributes
    ----------
    alpha_ : float
        The chosen value.
    best_score_ : float
        Its mean score.
    alphas_ : array of shape (n_alphas,)
    scores_ : array of shape (n_folds, n_alphas)
    coefs_paths_ : array of shape (n_folds, n_alphas, p, plus 1 with an intercept)
        Coefficients, the intercept last.
    n_iter_ : array of shape (n_folds, n_alphas)
    coef_, intercept_, n_features_in_, feature_names_in_, loss_curve_, trace_
        As for `TRSVRRegressor`, of the final fit.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from trsvr.sklearn import TRSVRRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = TRSVRRegressorCV(alphas=[0.01, 0.1, 1.0], loss="poisson").fit(X * 20, y)
    >>> model.alpha_
    1.0
    """

    @like_ridge
    def __init__(
        self,
        alphas: Any = 10,
        *,
        cv: Any = None,
        scoring: Any = None,
        loss: str = "squared_error",
        delta: float = 1.0,
        power: float = 1.5,
        dispersion: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: Any = None,
        n_jobs: int | None = None,
        solver: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.loss = loss
        self.delta = delta
        self.power = power
        self.dispersion = dispersion
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.solver = solver
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, **params: Any) -> TRSVRRegressorCV:
        """Follow the path on every fold, choose, and fit once more.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        y : array of length n
        sample_weight : array of length n, optional
            For the fits and, where the scorer takes it, the scores.
        offset : array of length n, optional
            For the fits and the default score; a scorer of your own predicts without it.
        **params
            For the splitter and the scorer, with scikit-learn's metadata routing enabled.
        """
        self._check_parameters()
        self._loss()
        self.alphas_ = self._strengths()
        X, y, weights, shift = self._checked_rows(X, y, sample_weight, offset)
        split_params, score_params = routed(self, weights, params)
        folds = list(check_cv(self.cv, y, classifier=False).split(X, y, **split_params))
        jobs = min(effective_n_jobs(self.n_jobs), len(folds)) if self.device in (None, "cpu") else 1
        means = self._means(None)
        of_fold = means._replace(threads=max(1, means.threads // jobs), decrease=PATH_DECREASE)
        rows = X, y, weights, shift
        paths = [partial(self._path, *rows, train, test, of_fold, score_params) for train, test in folds]
        if jobs > 1:
            done = Parallel(n_jobs=jobs, prefer="threads")(delayed(path)() for path in paths)
        else:
            done = [path() for path in paths]
        self.coefs_paths_, self.scores_, self.n_iter_ = (np.array(part) for part in zip(*done, strict=True))
        mean_scores = self.scores_.mean(axis=0)
        best = int(mean_scores.argmax())
        self.alpha_, self.best_score_ = float(self.alphas_[best]), float(mean_scores[best])
        # From the beginning, one fit more among many: the result is then TRSVRRegressor's to the last bit.
        prepared = self._prepare(X, y, weights, shift)
        result = self._solve(prepared, self.alpha_, None, means)
        for name, value in self._attributes(prepared, result.x, X.dtype).items():
            setattr(self, name, value)
        self._traces = [result.rows]
        return self

    def _strengths(self) -> Array:
        if isinstance(self.alphas, (int, np.integer)) and not isinstance(self.alphas, bool):
            return np.logspace(-4, 4, _check.whole("alphas", self.alphas))
        try:
            values = [
                checked_strength("alphas", value, zero=True) for value in np.asarray(self.alphas).ravel().tolist()
            ]
        except TypeError:
            values = []
        if not values:
            raise ValueError(f"alphas must be a whole number >= 1 or an array of numbers >= 0, got {self.alphas!r}")
        return np.array(values)

    def _path(
        self,
        X: Any,
        y: Array,
        weights: Array | None,
        offset: Array | None,
        train: Array,
        test: Array,
        means: Means,
        score_params: dict[str, Any],
    ) -> tuple[Array, Array, Array]:
        """Coefficients, scores and iterations for every alpha, in the order of ``alphas_``."""

        def some(vector: Array | None, rows: Array) -> Array | None:
            return None if vector is None else vector[rows]

        prepared = self._prepare(X[train], y[train], some(weights, train), some(offset, train))
        model = _Scored(loss=self.loss, delta=self.delta, power=self.power, dispersion=self.dispersion)
        model.n_features_in_ = self.n_features_in_
        here = {name: rows_of(value, len(y), test) for name, value in score_params.items()}
        scorer = None if self.scoring is None else get_scorer(self.scoring)
        coefs: list[Any] = [None] * self.alphas_.size
        scores, iterations = np.empty(self.alphas_.size), np.empty(self.alphas_.size, dtype=np.int32)
        found: list[tuple[float, Array, Array]] = []
        for k in np.argsort(-self.alphas_, kind="stable"):
            alpha = float(self.alphas_[k])
            inverse = 1.0 / alpha if alpha > 0.0 else math.inf
            start = next_start(found, inverse)
            result = self._solve(prepared, alpha, None if start is None else start[0], means)
            found = [*found[-2:], (inverse, result.x, np.zeros(1))]
            attributes = self._attributes(prepared, result.x, np.float64)
            model.coef_, model.intercept_ = attributes["coef_"], attributes["intercept_"]
            if scorer is None:
                scores[k] = model.score(X[test], y[test], here.get("sample_weight"), some(offset, test))
            else:
                scores[k] = scorer(model, X[test], y[test], **here)
            iterations[k] = result.epochs
            coefs[k] = np.append(model.coef_, model.intercept_) if self.fit_intercept else model.coef_
        return np.array(coefs), scores, iterations

    def _chosen_alpha(self) -> float:
        return self.alpha_

    # ----------------------------------------------------------------------------------------------------- routing

    def get_metadata_routing(self) -> Any:
        """Who gets which of the parameters passed to `fit`."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(
                scorer=get_scorer("r2" if self.scoring is None else self.scoring),
                method_mapping=MethodMapping().add(caller="fit", callee="score"),
            )
        )


class _Scored(TRSVRRegressor):
    """A regressor that is asked about rows of data that have been checked before."""

    def _checked_new(self, X: Any) -> Any:
        return X
