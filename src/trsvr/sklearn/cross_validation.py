"""The strength of the penalty by cross-validation: a warm-started path over C on every fold."""

from __future__ import annotations

import copy
import inspect
import math
from functools import partial
from typing import Any

import numpy as np
import sklearn
from joblib import effective_n_jobs
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from trsvr import _check
from trsvr.problems import L2
from trsvr.sklearn.base import PATH_DECREASE, PATH_LOOSENESS, Array, Means, checked_strength, largest_bound
from trsvr.sklearn.classifier import LOSSES, ClassifierBase, TRSVRClassifier
from trsvr.sklearn.foreign import like_logistic_regression
from trsvr.sklearn.weights import checked_weights, class_weights


class TRSVRClassifierCV(ClassifierBase):
    """`TRSVRClassifier` that chooses C by cross-validation, as ``LogisticRegressionCV`` does.

    On every fold it follows the path of minimisers from the smallest C to the largest, each beginning at the one
    before, and scores them on the rows left out. The C of the best mean score is fitted on all rows, as exactly as by
    `TRSVRClassifier`. Fits on the path, which are only scored, meet 100 ``tol`` (by default 1e-4, as those of
    ``LogisticRegressionCV``) and leave at most the square of that of their objective undone. With ``refit=False`` the
    coefficients come from them, and they meet ``tol``.

    Parameters
    ----------
    Cs : int or array, default=10
        That many values from 1e-4 to 1e4, evenly in their logarithm, or the values themselves.
    cv : int, splitter or iterable, default=None
        Number of stratified folds (None is 5), or a way to split.
    scoring : str, callable or None, default=None
        How the rows left out are scored; None is the accuracy.
    refit : bool, default=True
        Whether the best C is fitted on all rows. Otherwise C and coefficients are the means, over the folds, of each
        fold's best.
    n_jobs : int or None, default=None
        Folds that run at once, in threads that share X and divide the cores between them; None is one after the
        other, each with all cores. On a GPU folds always follow one another.
    loss, fit_intercept, tol, max_iter, class_weight, random_state, solver, verbose, device
        As for `TRSVRClassifier`. "balanced" class weights are those of all rows.

    Attributes
    ----------
    C_ : float
        The chosen value.
    Cs_ : array of shape (n_cs,)
    scores_ : array of shape (n_folds, n_cs)
    coefs_paths_ : array of shape (n_folds, n_cs, 1 or K, p, plus 1 with an intercept)
        Coefficients, the intercept last. These are the shapes of LogisticRegressionCV with
        ``use_legacy_attributes=False``, without the axis of its ``l1_ratios``.
    n_iter_ : array of shape (n_folds, n_cs)
        Outer iterations (the most of the classes, with the squared hinge and more than two).
    classes_, coef_, intercept_, n_features_in_, feature_names_in_
        As for `TRSVRClassifier`.
    gap_bound_, loss_curve_, trace_
        Of the final fit; only with ``refit=True``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from trsvr.sklearn import TRSVRClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), TRSVRClassifierCV(scoring="neg_log_loss")).fit(X, y)
    >>> round(model[-1].C_, 3)
    0.359
    """

    @like_logistic_regression
    def __init__(
        self,
        Cs: Any = 10,
        *,
        cv: Any = None,
        scoring: Any = None,
        loss: str = "log_loss",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        refit: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
        solver: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.refit = refit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.solver = solver
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> TRSVRClassifierCV:
        """Follow the path on every fold, choose, and fit once more.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        y : array of length n
        sample_weight : array of length n, optional
            For the fits and, where the scorer takes it, the scores.
        **params
            For the splitter and the scorer, with scikit-learn's metadata routing enabled.
        """
        self._check_parameters()
        _check.one_of("loss", self.loss, LOSSES)
        self.Cs_ = self._strengths()
        X, y = self._checked_data(X, y)
        places = self._encode(y)
        weights = checked_weights(sample_weight, X.shape[0])
        split_params, score_params = routed(self, weights, params)
        folds = list(check_cv(self.cv, y, classifier=True).split(X, y, **split_params))
        per_class = class_weights(self.class_weight, self.classes_, places, weights)
        total = weights if per_class is None else per_class[places] * (1.0 if weights is None else weights)

        jobs = min(effective_n_jobs(self.n_jobs), len(folds)) if self.device in (None, "cpu") else 1
        means = self._means(None)
        looseness = PATH_LOOSENESS if self.refit else 1.0
        of_fold = means._replace(threads=max(1, means.threads // jobs), decrease=PATH_DECREASE, looseness=looseness)
        paths = [partial(self._path, X, y, places, total, train, test, of_fold, score_params) for train, test in folds]
        if jobs > 1:
            done = Parallel(n_jobs=jobs, prefer="threads")(delayed(path)() for path in paths)
        else:
            done = [path() for path in paths]
        coefs, scores, iterations = (np.array(part) for part in zip(*done, strict=True))
        self.coefs_paths_, self.scores_, self.n_iter_ = coefs, scores, iterations
        self._choose(X, places, total, means)
        return self

    def _strengths(self) -> Array:
        if isinstance(self.Cs, (int, np.integer)) and not isinstance(self.Cs, bool):
            return np.logspace(-4, 4, _check.whole("Cs", self.Cs))
        try:
            values = [checked_strength("Cs", value, infinite=True) for value in np.asarray(self.Cs).ravel().tolist()]
        except TypeError:
            values = []
        if not values:
            raise ValueError(f"Cs must be a whole number >= 1 or an array of numbers > 0, got {self.Cs!r}")
        return np.array(values)

    def _path(
        self,
        X: Any,
        y: Array,
        places: Array,
        weights: Array | None,
        train: Array,
        test: Array,
        means: Means,
        score_params: dict[str, Any],
    ) -> tuple[Array, Array, Array]:
        """Coefficients, scores and iterations for every C, in the order of ``Cs_``."""
        weights_here = None if weights is None else weights[train]
        problems = self._problems(X[train], places[train], weights_here, L2(0.0))
        total = float(problems[0].n_samples if weights_here is None else weights_here.sum())
        model = self._scored_model()
        X_test, y_test = X[test], y[test]
        places_test = places[test]
        params_here = {name: rows_of(value, len(y), test) for name, value in score_params.items()}
        scorer = None if self.scoring is None else _with_labels(get_scorer(self.scoring), self.classes_)
        order = np.argsort(self.Cs_, kind="stable")
        coefs: list[Any] = [None] * len(order)
        scores, iterations = np.empty(len(order)), np.empty(len(order), dtype=np.int32)
        found: list[tuple[float, Array, Array]] = []
        for k in order:
            start = next_start(found, float(self.Cs_[k]))
            penalty = self._penalty(float(self.Cs_[k]), total)
            coef, intercept, results = self._solve([one.with_regularizer(penalty) for one in problems], start, means)
            found = [*found[-2:], (float(self.Cs_[k]), coef, intercept)]
            model.C, model.coef_, model.intercept_ = float(self.Cs_[k]), coef, intercept
            if scorer is None:
                scores[k] = _accuracy(model._places(X_test) == places_test, params_here.get("sample_weight"))
            else:
                scores[k] = scorer(model, X_test, y_test, **params_here)
            iterations[k] = max(result.epochs for result in results)
            coefs[k] = np.hstack([coef, intercept[:, None]]) if self.fit_intercept else coef
        return np.array(coefs), scores, iterations

    def _scored_model(self) -> TRSVRClassifier:
        """A fitted classifier, but for its coefficients."""
        model = _Scored(loss=self.loss, fit_intercept=self.fit_intercept)
        model.classes_, model.n_features_in_ = self.classes_, self.n_features_in_
        return model

    def _choose(self, X: Any, places: Array, weights: Array | None, means: Means) -> None:
        """C_ and the final coefficients."""
        if self.refit:
            self.C_ = float(self.Cs_[self.scores_.sum(axis=0).argmax()])
            penalty = self._penalty(self.C_, float(X.shape[0] if weights is None else weights.sum()))
            # From zero, one fit more among many: the result is then TRSVRClassifier's to the last bit.
            coef, intercept, results = self._solve(self._problems(X, places, weights, penalty), None, means)
            self.gap_bound_ = largest_bound(results)
            self._traces = [result.rows for result in results]
        else:
            best_of_fold = self.scores_.argmax(axis=1)
            self.C_ = float(self.Cs_[best_of_fold].mean())
            coef = self.coefs_paths_[np.arange(len(best_of_fold)), best_of_fold].mean(axis=0)
            intercept = np.zeros(len(coef))
            if self.fit_intercept:
                coef, intercept = coef[:, :-1], coef[:, -1]
        self.coef_, self.intercept_ = coef.astype(X.dtype), intercept.astype(X.dtype)

    # ----------------------------------------------------------------------------------------- scores and routing

    def score(self, X: Any, y: Any, *, sample_weight: Any = None, **score_params: Any) -> float:
        """Score by ``scoring``: the accuracy where it is None.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        y : array of length n
        sample_weight : array of length n, optional
        **score_params
            For the scorer, with scikit-learn's metadata routing enabled.
        """
        check_is_fitted(self)
        if sample_weight is not None:
            score_params["sample_weight"] = sample_weight
        if sklearn.get_config()["enable_metadata_routing"]:
            score_params = process_routing(self, "score", **score_params).scorer.score
        scorer = _with_labels(get_scorer("accuracy" if self.scoring is None else self.scoring), self.classes_)
        return float(scorer(self, X, y, **score_params))

    def get_metadata_routing(self) -> Any:
        """Who gets which of the parameters passed to `fit` and `score`."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(
                scorer=get_scorer("accuracy" if self.scoring is None else self.scoring),
                method_mapping=MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score"),
            )
        )


class _Scored(TRSVRClassifier):
    """A classifier that is asked about rows of data that have been checked before."""

    def _checked_new(self, X: Any) -> Any:
        return X


def routed(estimator: Any, weights: Array | None, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of the splitter and of the scorer."""
    if sklearn.get_config()["enable_metadata_routing"]:
        routed = process_routing(estimator, "fit", sample_weight=weights, **params)
        return routed.splitter.split, routed.scorer.score
    if params:
        raise ValueError(
            f"fit got {', '.join(params)}, which is only supported if enable_metadata_routing=True; "
            "sklearn.set_config(enable_metadata_routing=True) sets it"
        )
    return {}, {} if weights is None else {"sample_weight": weights}


def next_start(found: list[tuple[float, Array, Array]], C: float) -> tuple[Array, Array] | None:
    """Where the next minimiser is sought: a step on from the last three, or two, in log C.

    Where the path bends it goes on with half of that: it becomes straighter with C.
    """
    if len(found) < 2:
        return found[0][1:] if found else None
    (second, *before), (third, *last) = found[-2:]
    ahead = min(_steps(second, third, C), 2.0)
    moves = [ahead * (now - then) for now, then in zip(last, before, strict=True)]
    if len(found) > 2 and ahead > 0.0:
        first, *earliest = found[-3]
        behind = _steps(second, third, second) - _steps(second, third, first)
        if behind > 0.0:
            bend = 0.5 * ahead * (1.0 + ahead) / (1.0 + behind)
            triples = zip(moves, last, before, earliest, strict=True)
            moves = [move + bend * ((now - then) - (then - once) / behind) for move, now, then, once in triples]
    coef, intercept = (now + move for now, move in zip(last, moves, strict=True))
    return coef, intercept


def _steps(begin: float, end: float, C: float) -> float:
    """How far C lies beyond ``end``, in logarithms, where the way there from ``begin`` is one; zero without a way."""
    finite = 0.0 < begin < end < math.inf and 0.0 < C < math.inf
    return math.log(C / end) / math.log(end / begin) if finite else 0.0


def _accuracy(right: Array, weights: Array | None) -> float:
    return np.count_nonzero(right) / right.size if weights is None else float(np.average(right, weights=weights))


def _with_labels(scorer: Any, classes: Array) -> Any:
    """A scorer that knows all classes, also those that a fold lacks, and which of two is the positive one.

    Only where its score function asks for them and whoever made the scorer has not said it, as in LogisticRegressionCV.
    """
    try:
        asked = inspect.signature(scorer._score_func).parameters
    except AttributeError:  # a function of the user's own
        return scorer
    known: dict[str, Any] = {"labels": classes} if "labels" in asked else {}
    if len(classes) == 2 and "pos_label" in asked and scorer._kwargs.get("average", "binary") == "binary":
        known["pos_label"] = classes[-1]
    twin = copy.copy(scorer)
    twin._kwargs = {**known, **scorer._kwargs}
    return twin


def rows_of(value: Any, n_samples: int, rows: Array) -> Any:
    """The chosen rows of something that has one entry for each, anything else as it is."""
    array = np.asarray(value)
    return array[rows] if array.ndim and len(array) == n_samples else value
