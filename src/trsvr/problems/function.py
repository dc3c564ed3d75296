"""A finite sum from the user's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr.problems.base import Problem
from trsvr.problems.plain import NotFinite


class FunctionProblem(Problem):
    """f(x) = (1/N) Σ f_i(x), with f_i given by functions.

    Parameters
    ----------
    n_samples, n_parameters : int
        N, and the length of x.
    gradient : callable
        ``gradient(x, indices)`` returns the mean of ∇f_i(x) over the indices (an integer array, repeats allowed).
    value : callable, optional
        ``value(x, indices)`` returns the mean of f_i(x). Without it the trace has NaN there, and the best point is
        the one of smallest gradient norm.
    hessian_product : callable, optional
        ``hessian_product(x, indices, v)`` returns the mean of ∇²f_i(x) v. Without it curvature is estimated by
        differences of gradients.

    Examples
    --------
    >>> import numpy as np, trsvr
    >>> A = np.random.default_rng(0).normal(size=(100, 3))
    >>> problem = trsvr.problems.FunctionProblem(100, 3, lambda x, i: A[i].T @ (A[i] @ x - 1) / len(i))
    >>> result = trsvr.minimize(problem, trsvr.SVRG(step=0.1, batch_size=10, inner_steps=50))
    >>> bool(np.allclose(result.x, np.linalg.lstsq(A, np.ones(100))[0], atol=1e-6))
    True
    """

    def __init__(
        self,
        n_samples: int,
        n_parameters: int,
        gradient: Callable[[Vector, Indices], Any],
        value: Callable[[Vector, Indices], float] | None = None,
        hessian_product: Callable[[Vector, Indices, Vector], Any] | None = None,
    ) -> None:
        self.n_samples = _check.whole("n_samples", n_samples)
        self.n_parameters = _check.whole("n_parameters", n_parameters)
        for name, function in (("gradient", gradient), ("value", value), ("hessian_product", hessian_product)):
            if function is not None and not callable(function):
                raise ValueError(f"{name} must be a function, got {function!r}")
        if gradient is None:
            raise ValueError("gradient must be a function, got None")
        self._gradient = gradient
        self._value = value
        self._hessian_product = hessian_product
        self.has_value, self.has_products = value is not None, hessian_product is not None

    def _call(self, name: str, function: Callable[..., Any], x: Vector, indices: Indices, *more: Vector) -> Any:
        """Call a user's function; what it raises is told with the function's name and what it was given."""
        try:
            return function(x, indices, *more)
        except Exception as error:
            direction = ", v" if more else ""
            error.add_note(
                f"raised in {name}(x, indices{direction}), with x of length {x.size} and {indices.size} whole numbers "
                f"as indices"
            )
            raise

    def _checked(self, name: str, result: Any, x: Vector, indices: Indices) -> Vector:
        try:
            array = np.array(result, dtype=np.float64)  # a copy: the function may return the same array each time
        except (TypeError, ValueError):
            self._refuse(name, f"an array of {self.n_parameters} numbers", result)
        if array.shape != (self.n_parameters,):
            self._refuse(name, f"an array of shape ({self.n_parameters},)", result)
        NotFinite.refuse(name, array, x, indices)
        return array

    def _refuse(self, name: str, wanted: str, result: Any) -> NoReturn:
        if result is None:
            raise ValueError(f"{name} must return {wanted}, got None: is a return missing?")
        try:
            shape = np.shape(result)
        except ValueError:  # lists within lists, of different lengths
            raise ValueError(f"{name} must return {wanted}, got {type(result).__name__}") from None
        swapped = self._value is not None and (name == "value" or not shape)
        hint = "; are gradient and value in each other's place?" if swapped else ""
        raise ValueError(f"{name} must return {wanted}, got {f'shape {shape}' if shape else repr(result)}{hint}")

    def _unchanged(self, name: str, x: Vector, before: Vector) -> None:
        if not np.array_equal(x, before, equal_nan=True):
            x[:] = before
            raise ValueError(f"{name} must not change its argument x; copy it first: x = x.copy()")

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices (None: all)."""
        if self._hessian_product is None:
            raise ValueError("this FunctionProblem was given no hessian_product")
        if indices is None:
            indices = np.arange(self.n_samples)
        before = x.copy()
        product = self._call("hessian_product", self._hessian_product, x, indices, v)
        self._unchanged("hessian_product", x, before)
        return self._checked("hessian_product", product, x, indices)

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x), NaN without a value function, and ∇f(x)."""
        everything, before = np.arange(self.n_samples), x.copy()
        value = float("nan")
        if self._value is not None:
            returned = self._call("value", self._value, x, everything)
            if np.size(returned) != 1 or not np.issubdtype(np.asarray(returned).dtype, np.number):
                self._refuse("value", "one number", returned)
            value = float(np.asarray(returned).reshape(()))
            self._unchanged("value", x, before)
            NotFinite.refuse("value", value, x, everything)
        gradient = self.batch_gradient(x, everything)
        self._unchanged("gradient", x, before)
        return value, gradient

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        return self._checked("gradient", self._call("gradient", self._gradient, x, indices), x, indices)

    def gather(self, indices: Indices) -> FunctionProblem:
        """The same problem restricted to those rows."""
        chosen = _check.row_indices(indices, self.n_samples)
        value, product = self._value, self._hessian_product
        return FunctionProblem(
            len(chosen),
            self.n_parameters,
            lambda x, i: self._gradient(x, chosen[i]),
            None if value is None else lambda x, i: value(x, chosen[i]),
            None if product is None else lambda x, i, v: product(x, chosen[i], v),
        )
