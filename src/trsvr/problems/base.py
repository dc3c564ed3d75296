"""What the loop and the solvers may ask of a problem beyond `FiniteSum`, with the answers of one that says nothing."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _html
from trsvr._arrays import ROOT_EPSILON, Indices, Matrix, Vector
from trsvr._draws import Draws
from trsvr.problems.families import mean_of
from trsvr.problems.frames import Frame
from trsvr.problems.matrix import rows_to_predict
from trsvr.problems.plain import NotFinite
from trsvr.problems.protocol import FiniteSum
from trsvr.problems.views import CurvatureView

_MEMBERS = ("n_samples", "n_parameters", "value_and_gradient", "batch_gradient", "gather")


class Problem:
    """A finite sum; every kind of problem in the package is one, and `as_problem` makes one of a user's."""

    n_samples: int  # N
    n_parameters: int  # the length of x
    n_outputs: int = 1  # numbers that a row is mapped to
    has_value: bool | None = True  # whether function values are known; None: the first one tells
    has_products: bool = True  # whether there is a `hessian_product`
    products_are_exact: bool = True  # whether that is the Hessian's own, and not Gauss and Newton's
    kernels: Any = None  # compiled ones, or None
    is_elsewhere: bool = False  # whether rows must be fetched before a step can be made on them
    compiles: bool = False  # whether the first evaluation compiles
    lasts_long: bool = False  # whether one may last too long to wait for when a signal comes
    is_small: bool = False  # whether the default mode needs nothing compiled for it
    kind: Any = None  # what decides, beside the solver, what is compiled for it; None: unknown
    defined_at_zero: bool = False  # whether f is finite at zero for sure: its gradient there is a scale for others
    largest_squared_row: float | None = None  # of a linear model: max over i of weight_i ‖x_i‖²
    frame: Frame = Frame()  # its coordinates
    certifies: bool = False  # whether its views may know a bound on f − min f
    has_view: bool = False  # whether there is a `curvature_view`: more is known than gradients and products
    has_matrix: bool = False  # whether there is a `curvature_matrix`, and it pays

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x), NaN where the problem has no values, and ∇f(x): one pass."""
        raise NotImplementedError

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        raise NotImplementedError

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices; over all rows for ``indices=None``."""
        raise NotImplementedError

    def curvature_matrix(self, x: Vector) -> tuple[Matrix, Vector, int]:
        """Positive semidefinite, near the losses' mean Hessian at x; the penalty's diagonal; rows looked at."""
        raise NotImplementedError

    def gather(self, indices: Indices) -> Any:
        """The same problem restricted to those rows, in this process's memory."""
        raise NotImplementedError

    def _point(self, name: str, x: Any) -> Vector:
        point = np.ascontiguousarray(x, dtype=np.float64)
        if point.shape != (self.n_parameters,):
            raise ValueError(f"{name} must have shape ({self.n_parameters},), got {point.shape}")
        return point

    def rows_of(self, indices: Any) -> Indices:
        """Indices 0 … N−1 as the kernels want them."""
        return np.asarray(indices)

    def warm_up(self, products: bool = False) -> None:
        """Compile (or load) what full passes need, so that a clock started afterwards does not see it."""

    def for_run(self) -> Problem:
        """The problem as one run sees it: one whose rows travel keeps there what is on its way."""
        return self

    def centred(self) -> Problem:
        """The same problem in coordinates in which columns of data are centred, where it has an intercept."""
        return self

    def gap_bound(self, x: Vector) -> float:
        """How far f(x) is above its minimum at most; not a number where nothing is known. One pass, or none."""
        if not self.certifies:
            return math.nan
        problem = self.centred()
        view, at = problem.curvature_view(), problem.frame.inside(x)
        return view.gap_bound(at, *view.evaluate(at))

    def why_few_digits(self) -> str:
        """What in the data may keep a bound from being small, and what to do about it; "" where nothing is known."""
        return ""

    def expect(self, draws: Draws, batches: tuple[int, int] | None) -> None:
        """Learn what the coming epoch will draw: batch size and number of batches, where they are known."""

    def fetch(self, indices: Indices, batch_size: int) -> Iterator[tuple[Any, Indices]]:
        """Problems in this process's memory with these rows, in whole batches, and the rows' numbers in them."""
        yield self, self.rows_of(indices)

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at; a run has two of them, at the reference and at the trial point."""
        raise NotImplementedError

    def on_rows(self, function: Callable[..., Any], *arguments: Any, per_row: Any = None) -> list[Any]:
        """``function(part, *arguments)`` on linear models in memory that make up this one, where their rows lie.

        ``per_row`` is a vector with an entry for each row; a part gets its own entries of it, last.
        """
        raise ValueError(
            f"problem must be a linear model in memory or on Dask, got {type(self).__name__} "
            "(trsvr.problems.LinearModel, trsvr.dask.LinearModel)"
        )

    def with_formulas(self, loss: Any, regularizer: Any) -> Problem:
        """The same rows under another loss and regulariser: linear models only."""
        raise ValueError(f"problem must be a trsvr.problems.LinearModel, got {type(self).__name__}")

    def fingerprint(self) -> str:
        """What tells it from another problem: here its answers at a point that no problem was made for."""
        digest = hashlib.blake2b(digest_size=32)
        digest.update(f"{self._name()} {self.n_samples} {self.n_parameters}\n".encode())
        point = np.sin(np.arange(1.0, self.n_parameters + 1.0))
        for x in (point, 1.0 + np.abs(point)):
            with contextlib.suppress(NotFinite):  # outside the domain of logarithms and roots; the other may be inside
                value, gradient = self.value_and_gradient(x)
                digest.update(np.array([value, *np.ravel(gradient)], dtype="<f8").tobytes())
                break
        return digest.hexdigest()

    def _name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"{self._name()}({self.n_samples} components, {self.n_parameters} parameters)"

    def _repr_html_(self) -> str:
        sizes = [("components N", self.n_samples), ("parameters", self.n_parameters)]
        return _html.table(self._name(), [*sizes, ("in full", repr(self))])


class LinearProblem(Problem):
    """What a linear model with rows in this process, or on its device, predicts."""

    certifies = has_view = True

    n_features: int
    intercept: bool
    classes: NDArray[Any] | None
    loss: Any

    def _times(self, W: Matrix) -> Matrix:
        """The problem's own rows times the weights, p × K, plus their offset."""
        raise NotImplementedError

    def decision(self, x: Vector, X: Any = None) -> NDArray[np.float64]:
        """Margins of the rows of X (default: the problem's own), shape (N,) or (N, K)."""
        W = np.asarray(x, dtype=np.float64).reshape(-1, self.n_outputs)
        weights = W[: self.n_features]
        margins = self._times(weights) if X is None else np.asarray(rows_to_predict(X, self.n_features) @ weights)
        if self.intercept:
            margins = margins + W[-1]
        return margins if self.n_outputs > 1 else margins[:, 0]

    def predict(self, x: Vector, X: Any = None) -> NDArray[Any]:
        """Labels (in the user's own terms) or, for regression, numbers on the scale of y, at the weights x."""
        margins = self.decision(x, X)
        if self.classes is None:
            return np.asarray(mean_of(self.loss, margins))
        places = margins.argmax(axis=1) if self.n_outputs > 1 else (margins > 0).astype(int)
        return self.classes[places]


class OwnProblem(Problem):
    """A user's object with the five members of `FiniteSum`, and perhaps ``hessian_product`` and ``has_value``."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.n_samples, self.n_parameters = given.n_samples, given.n_parameters
        # The one place where a foreign object is asked what it can do.
        self.has_products = hasattr(given, "hessian_product")
        self.has_value = getattr(given, "has_value", None)

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and ∇f(x)."""
        value, gradient = self._given.value_and_gradient(x)
        NotFinite.refuse("value_and_gradient", gradient, x)
        return value, gradient

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        gradient: Vector = self._given.batch_gradient(x, indices)
        return gradient

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices."""
        product: Vector = self._given.hessian_product(x, indices, v)
        return product

    def gather(self, indices: Indices) -> Any:
        """The same problem restricted to those rows."""
        return as_problem(self._given.gather(indices))

    def _name(self) -> str:
        return type(self._given).__name__


def as_problem(given: Any) -> Problem:
    """The problem itself, or a user's object as one; raises ValueError if it is no finite sum."""
    if isinstance(given, Problem):
        return given
    if isinstance(given, type) or not isinstance(given, FiniteSum):
        lacking = ", ".join(name for name in _MEMBERS if name not in dir(given))
        made = "such as trsvr.problems.logistic(X, y), or a FunctionProblem of your own functions"
        raise ValueError(f"problem must be a finite sum, {made}; {type(given).__name__} lacks {lacking}")
    return OwnProblem(given)


def gradient_difference(
    problem: Problem, x: Vector, gradient: Vector, v: Vector, length: float, value: float = math.nan
) -> Vector:
    """∇²f(x) v from a difference of full gradients; ``gradient`` is ∇f(x), ``length`` is ‖v‖.

    Where f(x) is given too, an unknown that is much smaller than others is not moved so far that f feels it.
    """
    h = ROOT_EPSILON * (1.0 + float(np.linalg.norm(x))) / length
    parts = np.divide(np.abs(v), np.abs(x), out=np.zeros_like(x), where=x != 0.0)
    shortest = _LEAST_PART / (float(parts.max(initial=0.0)) or math.inf)
    while True:
        try:
            there = problem.value_and_gradient(x + h * v)[1]
        except NotFinite:  # outside the domain: to the other side
            h = -h
            there = problem.value_and_gradient(x + h * v)[1]
        change = there - gradient
        if not (abs(h * float(change @ v)) > _FELT * abs(value) and abs(h) > shortest > 0.0):
            return np.asarray(change / h, dtype=np.float64)
        h = math.copysign(max(shortest, 1e-4 * abs(h)), h)


# A difference may change f by this part of itself; shorter ones are tried down to that part of some unknown.
_FELT, _LEAST_PART = 1e-6, 1e-6


def hessian_at(
    problem: Problem, x: Vector, gradient: Vector | None = None, value: float = math.nan
) -> Callable[[Vector], Vector]:
    """Products with ∇²f(x) over all rows, analytic where the problem has them, else from differences of gradients."""
    if problem.has_products and problem.products_are_exact:
        return lambda v: np.asarray(problem.hessian_product(x, None, v), dtype=np.float64)
    here = problem.value_and_gradient(x)[1] if gradient is None else gradient

    def difference(v: Vector) -> Vector:
        length = float(np.linalg.norm(v))
        return gradient_difference(problem, x, here, v, length, value) if length > 0.0 else np.zeros_like(v)

    return difference
