"""Classification: logistic regression, binary and truly multinomial, and the squared hinge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from trsvr import _check
from trsvr.engine import Result
from trsvr.inference import Summary, summary
from trsvr.problems import L2, LinearModel, Logistic, Softmax, SquaredHinge
from trsvr.problems.regularizers import smallest_strength
from trsvr.sklearn.base import (
    Array,
    LinearEstimator,
    Means,
    checked_strength,
    is_tensor,
    on_host,
    pack,
    type_of,
    unpack,
)
from trsvr.sklearn.callbacks import FitTask, with_callbacks
from trsvr.sklearn.foreign import like_logistic_regression
from trsvr.sklearn.weights import checked_weights, total_weights

LOSSES = ("log_loss", "squared_hinge")


# Whole numbers that lie this close together are counted; anything else is sorted, which takes ten times as long.
_COUNTED = 2**16


def _classes(y: Array) -> tuple[Array, Array]:
    """The labels in ascending order, and the place of every label in them."""
    if y.dtype.kind in "iu":
        low, high = int(y.min()), int(y.max())
        if high - low < _COUNTED and max(-low, high) < 2**62:
            offsets = y.astype(np.int64) - low
            present = np.bincount(offsets).nonzero()[0]
            if len(present) == present[-1] + 1:
                return (present + low).astype(y.dtype), offsets
            place_of = np.zeros(present[-1] + 1, dtype=np.intp)
            place_of[present] = np.arange(len(present))
            return (present + low).astype(y.dtype), place_of[offsets]
    elif y.dtype.kind not in "bUS":
        check_classification_targets(y)
    return np.unique(y, return_inverse=True)


class ClassifierBase(ClassifierMixin, LinearEstimator):
    """What the classifier and its cross-validated form share."""

    # ----------------------------------------------------------------------------------------------- problems

    def _encode(self, y: Array) -> Array:
        """Sets ``classes_``; returns the places 0 … K−1 of the labels in it."""
        self.classes_, places = _classes(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y must contain at least two classes, got only one class: {self.classes_.tolist()[0]!r}")
        return places

    @property
    def _outputs(self) -> int:
        """Rows of ``coef_``."""
        return len(self.classes_) if len(self.classes_) > 2 else 1

    @property
    def _value_at_zero(self) -> float:
        return 1.0 if self.loss == "squared_hinge" else math.log(len(self.classes_))

    def _problems(self, X: Any, places: Array, weights: Array | None, penalty: Any) -> list[LinearModel]:
        """One problem, or one for each class."""
        options: dict[str, Any] = {"intercept": bool(self.fit_intercept), "sample_weight": weights}
        classes = len(self.classes_)
        loss = SquaredHinge() if self.loss == "squared_hinge" else Logistic()
        if classes == 2:
            return [self._problem(X, places, loss, penalty, classes=(0, 1), **options)]
        if self.loss == "log_loss":
            return [self._problem(X, places, Softmax(), penalty, classes=np.arange(classes), **options)]
        return [self._problem(X, places == k, loss, penalty, classes=(0, 1), **options) for k in range(classes)]

    @staticmethod
    def _penalty(C: float, total: float) -> L2:
        """That of C Σ w_i ℓ_i + ½‖w‖², divided by C Σ w_i."""
        return L2(0.0 if math.isinf(C) else 1.0 / (C * total))

    def _solve(
        self,
        problems: list[LinearModel],
        start: tuple[Array, Array] | None,
        means: Means,
        task: FitTask | None = None,
        dtype: Any = np.float64,
    ) -> tuple[Array, Array, list[Result]]:
        """Coefficients, intercepts and how they were found."""
        outputs = self._outputs if len(problems) == 1 else 1
        pairs, results = [], []
        for k, problem in enumerate(problems):
            begin = None
            if start is not None:
                rows = slice(None) if len(problems) == 1 else slice(k, k + 1)
                begin = pack(start[0][rows], start[1][rows], self.fit_intercept)
            watcher = None
            if task is not None and len(problems) == 1:
                watcher = task.watcher(lambda x: self._attributes(x, outputs, dtype))
            result = self._minimize(problem, begin, means, (self._value_at_zero, 1.0), callback=watcher)
            self._warn_unless_converged(result, float(self.tol) * means.looseness)
            if smallest_strength(problem.regularizer) == 0.0:
                self._warn_if_separated(problem, result.x)
            results.append(result)
            pairs.append(self._unpack(result.x, outputs, dtype))
        coefs, intercepts = zip(*pairs, strict=True)
        return np.concatenate(coefs), np.concatenate(intercepts), results

    def _attributes(self, x: Array, outputs: int, dtype: Any) -> dict[str, Any]:
        coef, intercept = self._unpack(x, outputs, dtype)
        return {"coef_": coef, "intercept_": intercept}

    def _unpack(self, x: Array, outputs: int, dtype: Any) -> tuple[Array, Array]:
        if outputs > 1:
            # The same number may be added to all classes' weights of a column: of all such points this is the
            # smallest, the one where a penalty leads, and scikit-learn's.
            columns = x.reshape(-1, outputs)
            x = (columns - columns.mean(axis=1, keepdims=True)).ravel()
        return unpack(x, outputs, bool(self.fit_intercept), dtype)

    # -------------------------------------------------------------------------------------- form of the weights

    def sparsify(self) -> Any:
        """Keep ``coef_`` as a sparse matrix from now on; worth it where more than half of it is zero."""
        check_is_fitted(self)
        self.coef_: Any = scipy.sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Any:
        """Keep ``coef_`` as an array, which is what `fit` leaves."""
        check_is_fitted(self)
        if scipy.sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self

    # ---------------------------------------------------------------------------------------------- prediction

    def decision_function(self, X: Any) -> NDArray[np.floating[Any]]:
        """Signed distances, times ‖w‖: shape (n,) for two classes, (n, K) for more.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        """
        X = self._checked_new(X)
        if is_tensor(X):  # where it lies
            weights = X.new_tensor(self.coef_.toarray() if scipy.sparse.issparse(self.coef_) else self.coef_)
            scores = on_host(X @ weights.T) + self.intercept_
        else:
            scores = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Class of every row.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        """
        places = self._places(X)
        return self.classes_[places]

    def _places(self, X: Any) -> Array:
        """Place of every row's class in ``classes_``."""
        scores = self.decision_function(X)
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    def _has_probabilities(self) -> bool:
        if self.loss == "squared_hinge":
            raise AttributeError("loss='squared_hinge' gives no probabilities; loss='log_loss' does")
        return True

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Probability of every class, shape (n, K), in the order of ``classes_``.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return softmax(scores, axis=1)
        return np.column_stack([expit(-scores), expit(scores)])

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Logarithm of the probabilities, also where these are too small to be told from zero.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, p)
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return log_softmax(scores, axis=1)
        return np.column_stack([log_expit(-scores), log_expit(scores)])


class TRSVRClassifier(ClassifierBase):
    """Linear classifier with the objective of scikit-learn's ``LogisticRegression``, and nothing to tune.

    It minimises ::

        C Σ_i w_i ℓ(y_i, x_iᵀ coef + intercept) + ½ ‖coef‖²

    over coefficients and an unpenalised intercept; w_i is the sample's weight times its class's. Divided by C Σ w_i
    this is the library's mean-loss form, Σ w_i ℓ_i / Σ w_i + (λ/2)‖coef‖² with λ = 1 / (C Σ w_i).

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty; ``numpy.inf`` is none. Without a penalty separable classes have no
        minimiser: the fit ends when the gradient has vanished.
    loss : {"log_loss", "squared_hinge"}, default="log_loss"
        ℓ = log(1 + exp(−y z)) for two classes and the cross-entropy of the softmax for more (one model, K rows of
        coefficients that sum to zero), or max(0, 1 − y z)², for more than two classes each against the rest.
    fit_intercept : bool, default=True
        Whether there is an intercept. X is not copied for it.
    tol : float, default=1e-6
        The fit has converged when no entry of the gradient of the mean-loss form is larger than tol in size. This is
        the number that LogisticRegression's ``lbfgs`` and ``newton-cg`` compare with their tol. The default solver
        goes on until the decrease it still expects is below 1e-4 tol² of the objective, too: badly scaled data have
        small gradients far from the minimiser.
    max_iter : int, default=1000
        Outer iterations at most; most fits take 5 to 30.
    warm_start : bool, default=False
        Whether `fit` begins at the last solution.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, one where not given. "balanced" is Σw / (K Σ_{y = k} w).
    random_state : int, RandomState or None, default=None
        Seed for the rows that the solver samples; the minimiser does not depend on it beyond tol. None is a fixed seed.
    n_jobs : int or None, default=None
        Threads. None is all cores, or the share of them that joblib, OMP_NUM_THREADS or TRSVR_NUM_THREADS leave.
    solver : None, str or solver, default=None
        None is `trsvr.TRSVR`, which finds its own parameters; or a name ("lbfgs", "svrg", "saga", "trust-region", …)
        or an object such as ``trsvr.SVRG(step=0.1)``.
    verbose : int, default=0
        1 prints a line per iteration.
    device : None, "cpu" or "cuda", default=None
        Where the fit runs; None is the CPU. "cuda" copies X to the GPU (`trsvr.torch.LinearModel`) and needs PyTorch.
        A tensor that is already there is used in place, and predictions for a tensor are made on its device; the
        answers are NumPy arrays.

    Attributes
    ----------
    classes_ : array of shape (K,)
    coef_ : array of shape (1, p), or (K, p) for more than two classes
        In the precision of X, float32 or float64.
    intercept_ : array of shape (1,) or (K,)
    n_iter_ : array of shape (1,), or (K,) with the squared hinge and more than two classes
        Outer iterations.
    gap_bound_ : float
        The mean-loss form is at most this much above its minimum at the solution, before this is rounded to the
        precision of X; NaN where that is not known.
    n_features_in_ : int
    feature_names_in_ : array of shape (p,)
        Where X has column names.
    loss_curve_ : array
        The mean-loss form at the start and after every iteration (a list of arrays for several models).
    trace_ : pandas.DataFrame
        The whole record: passes over the data, seconds, value, gradient, radius, …

    Notes
    -----
    There is no ``partial_fit``. Variance reduction works on a finite sum: every outer iteration needs the gradient
    over all rows at one point, and the answer is the minimiser over all of them. A stream that is seen once wants
    stochastic gradient descent (``sklearn.linear_model.SGDClassifier``). To go on with more rows, set
    ``warm_start=True`` and fit all of them.

    NaN and infinity are refused. CSR input is used as it is, except that small data (to 2¹⁷ numbers) are processed in
    a dense copy; other sparse formats become CSR.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from trsvr.sklearn import TRSVRClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TRSVRClassifier().fit(X, y)
    >>> model.predict(X[:2])
    array([0, 0])
    >>> round(model.score(X, y), 3)
    0.973
    """

    @like_logistic_regression
    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "log_loss",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        warm_start: bool = False,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        solver: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.solver = solver
        self.verbose = verbose
        self.device = device

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TRSVRClassifier:
        """Minimise.

        Parameters
        ----------
        X : array, data frame, tensor or sparse matrix of shape (n, p)
            Used without a copy if it is C-ordered float64 or float32, or CSR.
        y : array of length n
            Labels of any kind.
        sample_weight : array of length n, optional
            A whole weight k equals the row repeated k times; rows of weight zero are left out.
        """
        self._check_parameters()
        C = checked_strength("C", self.C, infinite=True)
        _check.one_of("loss", self.loss, LOSSES)
        before = self._last_solution() if self.warm_start else None
        X, y = self._checked_data(X, y)
        places = self._encode(y)
        weights = checked_weights(on_host(sample_weight), X.shape[0])
        total_weight = total_weights(self.class_weight, self.classes_, places, weights)
        penalty = self._penalty(C, float(X.shape[0] if total_weight is None else total_weight.sum()))
        start = self._checked_start(before)
        metadata = None if sample_weight is None else {"sample_weight": weights}
        task = FitTask(self, int(self.max_iter), X=X, y=y, metadata=metadata)
        self.coef_, self.intercept_, results = self._solve(
            self._problems(X, places, total_weight, penalty),
            start,
            self._means(self.n_jobs),
            task=task,
            dtype=type_of(X),
        )
        self._remember(results)
        task.finish()
        return self

    def summary(self, X: Any, y: Any, sample_weight: Any = None, **options: Any) -> Summary:
        """Coefficients with standard errors, for two classes and "log_loss".

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. Class weights are no observations: with them errors are those of kind "HC0" at best.
        **options
            Of `trsvr.inference.summary`: ``kind``, ``groups``, ``weights``, ``known_variance``, ``confidence``.
        """
        X = self._checked_new(X)
        if self._outputs > 1 or self.loss != "log_loss":
            raise ValueError("summary needs two classes and loss='log_loss'")
        weights = checked_weights(sample_weight, X.shape[0])
        places = np.searchsorted(self.classes_, np.asarray(y))
        weights = total_weights(self.class_weight, self.classes_, places, weights)
        total = float(X.shape[0] if weights is None else weights.sum())
        strength = 0.0 if math.isinf(self.C) else 1.0 / (self.C * total)
        intercept = bool(self.fit_intercept)
        known = self.classes_
        problem = LinearModel(X, y, Logistic(), L2(strength), intercept, sample_weight=weights, classes=known)
        problem.feature_names = self._column_names()
        return summary(problem, pack(self.densify().coef_, self.intercept_, intercept), **options)

    def _last_solution(self) -> tuple[Array, Array, Array] | None:
        return (self.densify().coef_, self.intercept_, self.classes_) if "coef_" in vars(self) else None

    def _checked_start(self, before: tuple[Array, Array, Array] | None) -> tuple[Array, Array] | None:
        if before is None:
            return None
        coef, intercept, classes = before
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"y must have the classes of the last fit, {classes.tolist()}, with warm_start=True, got "
                f"{self.classes_.tolist()}; clone the estimator to start over"
            )
        if coef.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X must have the {coef.shape[1]} columns of the last fit with warm_start=True, got "
                f"{self.n_features_in_}; clone the estimator to start over"
            )
        return coef, intercept
