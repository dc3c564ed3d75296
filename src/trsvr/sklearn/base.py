"""What the estimators share: checked parameters, one minimisation, an honest word about convergence."""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from trsvr import _check
from trsvr._device import linear_model
from trsvr.engine import Result, Status, Tolerance, minimize
from trsvr.inference import separation
from trsvr.problems import LinearModel, Logistic
from trsvr.problems.families import LOG_LINK
from trsvr.problems.regularizers import smallest_strength
from trsvr.sklearn import foreign
from trsvr.sklearn.callbacks import CallbackSupportMixin
from trsvr.sklearn.workers import thread_count
from trsvr.solvers import BY_NAME, solver_from

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]

# Of |f|, what a fit may leave undone: this times tol². The steps of a path are only compared with each other.
_DECREASE = 1e-4
PATH_DECREASE = 0.1
# Where a path is only scored, its fits meet so many times tol: 1e-4 by default, which is LogisticRegressionCV's.
PATH_LOOSENESS = 100.0
# f counts as at least this part of f(0): on separable data it goes to zero, and so does what can still be gained.
_SMALLEST_VALUE = 1e-9
# A certificate of this part of f says that a gradient is large in the units of its column alone.
_CERTIFIED = 1e-9
# Columns up to which a fit without a penalty is looked at for coefficients that are infinite.
_WIDE = 1000


class Means(NamedTuple):
    """What a fit may use and leave undone, decided once."""

    threads: int
    seed: int
    decrease: float = _DECREASE
    looseness: float = 1.0


class LinearEstimator(CallbackSupportMixin, BaseEstimator):
    """A linear model fitted by `trsvr.minimize`."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---------------------------------------------------------------------------------------------- parameters

    def _check_parameters(self) -> None:
        _check.positive("tol", self.tol, zero=True)
        _check.whole("max_iter", self.max_iter, at_least=0)
        given = vars(self)  # get_params would look at the signature first, which takes as long as a small fit's step
        for name in ("fit_intercept", "warm_start", "refit"):
            value = given.get(name, False)
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {value!r}")
        if self.n_jobs is not None:
            number = isinstance(self.n_jobs, numbers.Integral) and not isinstance(self.n_jobs, bool)
            if not number or self.n_jobs == 0:
                raise ValueError(f"n_jobs must be None or a whole number other than 0, got {self.n_jobs!r}")
        linear_model(self.device)
        if isinstance(self.solver, str) and self.solver in foreign.SOLVERS:
            raise ValueError(
                f"solver={self.solver!r} is scikit-learn's; the minimiser is the same with solver=None, the default, "
                f"or one of {', '.join(map(repr, BY_NAME))}"
            )
        solver_from(self.solver)

    def _means(self, n_jobs: int | None) -> Means:
        """Threads for so many jobs; the seed of random_state, where None is a fixed one: fits can be repeated."""
        if self.random_state is None:
            seed = 0
        elif isinstance(self.random_state, numbers.Integral):
            seed = _check.whole("random_state", self.random_state, at_least=0)
        else:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Means(thread_count(n_jobs), seed)

    # ---------------------------------------------------------------------------------------------------- data

    def _checked_data(self, X: Any, y: Any, **options: Any) -> tuple[Any, Array]:
        """X as it is, or as C-ordered float64 or CSR; y as an array. Entries are looked at by `LinearModel`."""
        y = on_host(y)
        if is_tensor(X) and self.device in (None, "cpu"):
            if X.device.type != "cpu":
                raise ValueError(
                    f"X must be in the host's memory with device={self.device!r}, got a tensor on {X.device}; "
                    "device='cuda' fits it in place"
                )
            X = on_host(X)
        if is_tensor(X):
            if X.ndim != 2 or len(X) != len(y):
                raise ValueError(
                    f"X must be a matrix with a row for each of the {len(y)} labels, got shape {tuple(X.shape)}"
                )
            self.n_features_in_ = X.shape[1]
            return X, y
        if _is_plain(X, y) and not options:
            # There is nothing to convert, and nothing to say: scikit-learn would need longer than some fits.
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit, on a frame
            return X, y
        try:
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                order="C",
                ensure_all_finite=False,
                **options,
            )
        except ValueError as error:
            _note_row(error, y)
            raise
        return X, np.asarray(y)

    def _column_names(self) -> tuple[str, ...] | None:
        """Those of the frame that was fitted; a fit on anything else leaves none."""
        names = vars(self).get("feature_names_in_")
        return None if names is None else tuple(map(str, names))

    def _problem(self, X: Any, *arguments: Any, **options: Any) -> LinearModel:
        """A linear model over X; if there is NaN or infinity in it, scikit-learn says so in its own words."""
        try:
            return linear_model(self.device)(X, *arguments, **options)
        except ValueError as ours:
            if is_tensor(X):
                raise
            entries = X.data if scipy.sparse.issparse(X) else X
            try:
                assert_all_finite(entries, estimator_name=type(self).__name__, input_name="X")
            except ValueError as theirs:
                theirs.add_note(str(ours))
                raise theirs from None
            raise

    def _checked_new(self, X: Any) -> Any:
        check_is_fitted(self)
        if is_tensor(X):
            if X.ndim != 2 or X.shape[1] != self.n_features_in_:
                raise ValueError(f"X must have {self.n_features_in_} columns, got shape {tuple(X.shape)}")
            return X
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)

    # --------------------------------------------------------------------------------------------- minimisation

    def _minimize(
        self,
        problem: LinearModel,
        start: Array | None,
        means: Means,
        at_start: tuple[float, float] | None,
        callback: Callable[[Result], None] | None = None,
    ) -> Result:
        """Run the solver until the gradient is below ``tol`` times its scale and next to nothing is left to gain.

        ``at_start`` is f where all coefficients are zero and the scale of gradients; None: what the run begins with.
        """
        tol = float(self.tol) * means.looseness
        # Without a penalty there may be no minimiser: f(0) is then the scale of what is worth gaining.
        penalised = smallest_strength(problem.regularizer) > 0.0
        value, scale = (1.0, 1.0) if at_start is None else at_start
        result = minimize(
            problem,
            solver_from(self.solver),
            x0=start,
            max_epochs=int(self.max_iter),
            tol=Tolerance(
                tol * scale,
                means.decrease * tol * tol,
                (_SMALLEST_VALUE if penalised else 1.0) * value,
                from_start=at_start is None,
            ),
            seed=means.seed,
            callback=callback,
            verbose=int(self.verbose),
            threads=means.threads,
        )
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return result

    def _warn_unless_converged(self, result: Result, threshold: float) -> None:
        """A warning where the gradient is larger than was asked for, and no certificate says that its units are why."""
        largest = float(np.abs(result.gradient).max(initial=0.0))
        certified = result.gap_bound <= _CERTIFIED * abs(result.value)
        if largest <= threshold or certified or result.status is Status.CALLBACK:
            return
        found = f"the gradient's largest entry is {largest:.2g} and should be at most {threshold:.2g}"
        if result.status in (Status.ROUNDING_FLOOR, Status.NO_PROGRESS):
            why = result.message.removeprefix(result.status.value)  # in brackets, where there is a reason
            advice = (
                f"The objective cannot be lowered further in double precision{why}. Scale the "
                "columns of X (sklearn.preprocessing.StandardScaler), or accept this solution with a larger tol."
            )
        elif result.status is Status.DIVERGED:
            advice = "The solver has diverged: leave solver=None, or give it a smaller step."
        else:
            advice = (
                f"Increase max_iter (now {self.max_iter}), scale the columns of X "
                "(sklearn.preprocessing.StandardScaler), or accept this solution with a larger tol."
            )
        warnings.warn(
            f"{type(self).__name__} did not converge in {result.epochs} iterations: {found}. {advice}",
            ConvergenceWarning,
            stacklevel=_callers_level(),
        )

    def _warn_if_separated(self, problem: LinearModel, x: Array) -> None:
        """Without a penalty the best coefficients may be infinite: classes are apart, or a level has no counts."""
        may_be = isinstance(problem, LinearModel) and isinstance(problem.loss, (Logistic, *LOG_LINK))
        if not may_be or problem.n_parameters > _WIDE:
            return
        problem.feature_names = self._column_names()
        said = separation(problem, x)
        if said is not None:
            warnings.warn(f"{type(self).__name__}: {said}", ConvergenceWarning, stacklevel=_callers_level())

    # ---------------------------------------------------------------------------------------- what a fit leaves

    def _remember(self, results: list[Result]) -> None:
        self.n_iter_ = np.array([result.epochs for result in results], dtype=np.int32)
        self.gap_bound_ = largest_bound(results)
        self._traces = [result.rows for result in results]

    @property
    def loss_curve_(self) -> Any:
        """Objective, divided by the sum of the weights (and C), at the start and after every iteration."""
        check_is_fitted(self)
        curves = [np.array([row["value"] for row in rows]) for rows in self._traces]
        return curves[0] if len(curves) == 1 else curves

    @property
    def trace_(self) -> pd.DataFrame:
        """The run as `trsvr.minimize` recorded it, one row per iteration (and per class, with one model each)."""
        check_is_fitted(self)
        import pandas as pd  # only when a trace is looked at

        frames = [pd.DataFrame(rows) for rows in self._traces]
        return frames[0] if len(frames) == 1 else pd.concat(frames, keys=range(len(frames)), names=["class", None])


def largest_bound(results: list[Result]) -> float:
    """How far above its minimum any of these may be; not a number if that is not known of one."""
    bounds = [result.gap_bound for result in results]
    return math.nan if any(map(math.isnan, bounds)) else max(bounds)


def is_tensor(value: Any) -> bool:
    """Whether it is PyTorch's, which need not be installed."""
    return type(value).__module__.split(".")[0] == "torch"


def on_host(value: Any) -> Any:
    """A tensor as an array; all else as it is."""
    return value.detach().cpu().numpy() if is_tensor(value) else value


def type_of(X: Any) -> Any:
    """NumPy's type for coefficients that belong to X."""
    return np.dtype(np.float32 if "float32" in str(X.dtype) else np.float64) if is_tensor(X) else X.dtype


def _is_plain(X: Any, y: Any) -> bool:
    """Whether the data are arrays as fits want them, with labels that have no NaN."""
    return (
        type(X) is type(y) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and y.dtype.kind in "biuUS"
        and X.ndim == 2
        and y.ndim == 1
        and len(X) == len(y)
        and X.size > 0
        and X.flags.c_contiguous
        and X.flags.aligned
    )


def _note_row(error: ValueError, y: Any) -> None:
    """Which entry of y is not finite, where that is what was refused."""
    numbers = np.asarray(y)
    if numbers.dtype.kind != "f" or numbers.ndim != 1:
        return
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        error.add_note(f"y must be finite, got {numbers[bad[0]]} at row {bad[0]}")


def _callers_level() -> int:
    """How far up the user's own call is: past our frames and scikit-learn's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("trsvr", "sklearn"):
        level, frame = level + 1, frame.f_back
    return level


def checked_strength(name: str, value: Any, *, zero: bool = False, infinite: bool = False) -> float:
    """A positive number; zero or infinity where there is a meaning for it."""
    if infinite and isinstance(value, numbers.Real) and float(value) == math.inf:
        return math.inf
    try:
        return _check.positive(name, value, zero=zero)
    except ValueError as error:
        raise ValueError(f"{error}; numpy.inf is no penalty at all" if infinite else str(error)) from None


def pack(coef: Array, intercept: Array, fit_intercept: bool) -> Array:
    """Weights of the problem, in its order, from K rows of coefficients and K intercepts."""
    columns = np.asarray(coef, dtype=np.float64).T
    if fit_intercept:
        columns = np.vstack([columns, np.atleast_1d(np.asarray(intercept, dtype=np.float64))])
    return np.ascontiguousarray(columns).ravel()


def unpack(x: Array, outputs: int, fit_intercept: bool, dtype: Any) -> tuple[Array, Array]:
    """K rows of coefficients and K intercepts from the problem's weights."""
    columns = x.reshape(-1, outputs)
    intercept = columns[-1] if fit_intercept else np.zeros(outputs)
    coef = columns[:-1] if fit_intercept else columns
    return np.ascontiguousarray(coef.T, dtype=dtype), intercept.astype(dtype)
