"""What the loop and the solvers may ask of a problem beyond `FiniteSum`, with the answers of one that says nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trsvr._arrays import ROOT_EPSILON, Indices, Vector
from trsvr._draws import Draws
from trsvr.problems.plain import NotFinite
from trsvr.problems.protocol import FiniteSum
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices

_MEMBERS = ("n_samples", "n_parameters", "value_and_gradient", "batch_gradient", "gather")


class Problem:
    """A finite sum; every kind of problem in the package is one, and `as_problem` makes one of a user's.

    Attributes
    ----------
    n_samples, n_parameters : int
        N, and the length of x.
    n_outputs : int
        Numbers that a row is mapped to.
    has_value : bool or None
        Whether function values are known; None: the first one tells.
    has_products : bool
        Whether there is a `hessian_product`.
    kernels
        Compiled kernels, or None.
    is_elsewhere : bool
        Whether rows must be fetched before a step can be made on them.
    compiles, lasts_long : bool
        Whether the first evaluation compiles, and whether one may last too long to wait for when a signal comes.
    largest_squared_row : float or None
        Of a linear model: max over i of weight_i ‖x_i‖².
    """

    n_samples: int
    n_parameters: int
    n_outputs: int = 1
    has_value: bool | None = True
    has_products: bool = True
    kernels: Any = None
    is_elsewhere: bool = False
    compiles: bool = False
    lasts_long: bool = False
    largest_squared_row: float | None = None

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x), NaN where the problem has no values, and ∇f(x): one pass."""
        raise NotImplementedError

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        raise NotImplementedError

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices; over all rows for ``indices=None``."""
        raise NotImplementedError

    def gather(self, indices: Indices) -> Any:
        """The same problem restricted to those rows, in this process's memory."""
        raise NotImplementedError

    def rows_of(self, indices: Any) -> Indices:
        """Indices 0 … N−1 as the kernels want them."""
        return np.asarray(indices)

    def warm_up(self, products: bool = False) -> None:
        """Compile (or load) what full passes need, so that a clock started afterwards does not see it."""

    def for_run(self) -> Problem:
        """The problem as one run sees it: one whose rows travel keeps there what is on its way."""
        return self

    def expect(self, draws: Draws, batches: tuple[int, int] | None) -> None:
        """Learn what the coming epoch will draw: batch size and number of batches, where they are known."""

    def fetch(self, indices: Indices, batch_size: int) -> Iterator[tuple[Any, Indices]]:
        """Problems in this process's memory with these rows, in whole batches, and the rows' numbers in them."""
        yield self, self.rows_of(indices)

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at; a run has two of them, at the reference and at the trial point."""
        return PlainView(self)

    def with_formulas(self, loss: Any, regularizer: Any) -> Problem:
        """The same rows under another loss and regulariser: linear models only."""
        raise ValueError(f"problem must be a trsvr.problems.LinearModel, got {type(self).__name__}")

    def fingerprint(self) -> str:
        """What tells it from another problem: here its answers at a point that no problem was made for."""
        digest = hashlib.blake2b(digest_size=32)
        digest.update(f"{self._name()} {self.n_samples} {self.n_parameters}\n".encode())
        value, gradient = self.value_and_gradient(np.sin(np.arange(1.0, self.n_parameters + 1.0)))
        digest.update(np.array([value, *np.ravel(gradient)], dtype="<f8").tobytes())
        return digest.hexdigest()

    def _name(self) -> str:
        return type(self).__name__


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
        raise ValueError(f"problem must be a finite sum (trsvr.problems); {type(given).__name__} lacks {lacking}")
    return OwnProblem(given)


def gradient_difference(problem: Problem, x: Vector, gradient: Vector, v: Vector, length: float) -> Vector:
    """∇²f(x) v from a difference of full gradients; ``gradient`` is ∇f(x), ``length`` is ‖v‖."""
    h = ROOT_EPSILON * (1.0 + float(np.linalg.norm(x))) / length
    return np.asarray((problem.value_and_gradient(x + h * v)[1] - gradient) / h, dtype=np.float64)


def hessian_at(problem: Problem, x: Vector, gradient: Vector) -> Callable[[Vector], Vector]:
    """Products with ∇²f(x) over all rows, analytic where the problem has them, else from differences of gradients."""
    if problem.has_products:
        return lambda v: np.asarray(problem.hessian_product(x, None, v), dtype=np.float64)

    def difference(v: Vector) -> Vector:
        length = float(np.linalg.norm(v))
        return gradient_difference(problem, x, gradient, v, length) if length > 0.0 else np.zeros_like(v)

    return difference


class PlainView(CurvatureView):
    """A finite sum of which nothing is known but gradients and products with its Hessian, penalty included."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self.n_rows = problem, problem.n_samples
        self._x = self._gradient = np.full(problem.n_parameters, np.nan)

    def prices(self) -> Prices:
        """No rows to look at: no matrix, no diagonal, no batches; and products that cost much beside a vector."""
        return Prices()

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x."""
        value, gradient = self._problem.value_and_gradient(x)
        self._x, self._gradient = x.copy(), np.array(gradient, dtype=np.float64)
        return value, gradient

    def product(self, v: Vector) -> Vector:
        """∇²f times v."""
        return hessian_at(self._problem, self._x, self._gradient)(v)

    def snapshot(self) -> dict[str, Any]:
        """Its point, and the gradient there."""
        return {"x": self._x, "gradient": self._gradient}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        for name in ("x", "gradient"):
            if snapshot[name].shape != self._x.shape:
                raise ValueError(f"{name} must have {self._x.size} numbers, got shape {snapshot[name].shape}")
        self._x, self._gradient = snapshot["x"].copy(), snapshot["gradient"].copy()
