"""Nonlinear least squares from the user's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector
from trsvr.problems.differences import KINDS, evaluations, jacobian_by_differences
from trsvr.problems.losses import Squared
from trsvr.problems.plain import NotFinite
from trsvr.problems.residual_losses import LossTerms
from trsvr.problems.residuals import BLOCK, NEAR, ResidualProblem, all_blocks


class LeastSquares(ResidualProblem):
    """f(x) = (1/N) Σ_i w_i Σ_k ℓ(r_ik(x)) + (l2/2)‖x − towards‖², with ℓ(r) = r²/2 unless another loss is chosen.

    Parameters
    ----------
    n_samples, n_parameters : int
        N, and the length of x.
    residuals : callable
        ``residuals(x, indices)`` returns the residuals of these rows, of shape (b,) or (b, k). Where a function is
        outside its domain they may be NaN or infinite: a step that leads there is refused.
    jacobian : callable or str, optional
        ``jacobian(x, indices)`` returns their derivatives, of shape (b, d) or (b, k, d). Left out: differences of
        residuals, forward ones at first and those of fourth order at the end. "2-point", "3-point" or "cs" fixes
        their kind.
    loss : Squared, PseudoHuber, Tukey or one of your own
        See `trsvr.problems.residual_losses`.
    weights : array, optional
        One for each row, >= 0; scaled to have mean one.
    l2, towards : float, array
        A penalty that draws x to a point, zero by default.
    rows_at_once : int, optional
        Rows of J in memory at a time; by default J is whole up to 16 MB, and else made in blocks of 1 MB.

    Notes
    -----
    Products with the Hessian are Gauss–Newton's, Jᵀ ℓ″ J v. `trsvr.minimize` makes damped steps on such a problem
    (`trsvr.solvers.levenberg_marquardt`) as long as the smaller of N·k and d allows a factorisation.

    Examples
    --------
    >>> import numpy as np, trsvr
    >>> t = np.linspace(0.0, 4.0, 50)
    >>> y = 3.0 * np.exp(-1.5 * t)
    >>> problem = trsvr.problems.LeastSquares(50, 2, lambda x, i: x[0] * np.exp(-x[1] * t[i]) - y[i])
    >>> trsvr.minimize(problem, x0=[1.0, 1.0]).x.round(6)
    array([3. , 1.5])
    """

    def __init__(
        self,
        n_samples: int,
        n_parameters: int,
        residuals: Callable[[Vector, Indices], Any],
        jacobian: Callable[[Vector, Indices], Any] | str | None = None,
        loss: Any = None,
        *,
        weights: Any = None,
        l2: float = 0.0,
        towards: Any = None,
        rows_at_once: int | None = None,
    ) -> None:
        n, d = _check.whole("n_samples", n_samples), _check.whole("n_parameters", n_parameters)
        if not callable(residuals):
            raise ValueError(f"residuals must be a function of x and indices, got {residuals!r}")
        if isinstance(jacobian, str):
            _check.one_of("jacobian", jacobian, KINDS)
        elif jacobian is not None and not callable(jacobian):
            raise ValueError(f"jacobian must be a function of x and indices, or left out, got {jacobian!r}")
        self._set(n, d, Squared() if loss is None else loss, weights, l2, towards)
        self._residuals, self._jacobian = residuals, jacobian
        self._at_once = None if rows_at_once is None else _check.whole("rows_at_once", rows_at_once)
        self._outputs: int | None = None  # k, known after the first call

    @property
    def n_outputs(self) -> int:  # type: ignore[override]  # read, never set
        """The number k."""
        return self._outputs or 1

    @property
    def n_residuals(self) -> int:  # type: ignore[override]
        """N·k."""
        return self.n_samples * self.n_outputs

    def _of_rows(self, x: Any, indices: Indices) -> Vector:
        """Residuals of these rows, flat."""
        with np.errstate(all="ignore"):  # outside its domain a function may well overflow: the step is refused
            given = np.asarray(self._residuals(x.copy(), indices))
        if given.dtype.kind == "c" and x.dtype.kind != "c":
            raise ValueError("residuals must be real numbers: write complex ones as pairs, real and imaginary part")
        found = np.array(given, dtype=given.dtype if x.dtype.kind == "c" else np.float64)
        k = self._outputs
        if found.ndim not in (1, 2) or len(found) != len(indices) or (k is not None and found.size != k * len(indices)):
            wanted = f"({len(indices)},) or ({len(indices)}, k)" if k is None else f"({len(indices)}, {k})"
            raise ValueError(f"residuals must return an array of shape {wanted}, got shape {found.shape}")
        self._outputs = found.size // len(indices)
        return found.reshape(-1)

    def _per_block(self) -> int:
        if self._at_once is not None:
            return self._at_once
        whole = self.n_residuals * self.n_parameters <= BLOCK
        return self.n_samples if whole else max(NEAR // (self.n_outputs * self.n_parameters), 1)

    def residuals_at(self, x: Vector) -> Vector:
        """All residuals as one vector."""
        parts = [self._of_rows(x, rows) for rows in all_blocks(self.n_samples, self._at_once or NEAR)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _derivatives(self, x: Vector, indices: Indices, residuals: Vector, fine: bool) -> Matrix:
        """Rows of J."""
        d = self.n_parameters
        if not callable(self._jacobian):
            return jacobian_by_differences(lambda at: self._of_rows(at, indices), x, residuals, self._kind(fine))
        given = self._jacobian(x.copy(), indices)
        if not isinstance(given, np.ndarray):
            if "toarray" in dir(given):  # a sparse matrix
                given = given.toarray()
            elif "matmat" in dir(given):  # an operator of SciPy's
                given = given.matmat(np.eye(d))
        found = np.asarray(given, dtype=np.float64)
        if found.size != residuals.size * d or found.shape[-1:] != (d,):
            wanted = (len(indices), d) if self.n_outputs == 1 else (len(indices), self.n_outputs, d)
            raise ValueError(f"jacobian must return an array of shape {wanted}, got shape {found.shape}")
        return found.reshape(-1, d)

    def _kind(self, fine: bool) -> str:
        return self._jacobian if isinstance(self._jacobian, str) else "5-point" if fine else "2-point"

    def jacobian_rows(self, x: Vector, residuals: Vector, fine: bool) -> Iterator[tuple[slice, Matrix]]:
        """Rows of J at x in blocks."""
        k = self.n_outputs
        for rows in all_blocks(self.n_samples, self._per_block()):
            place = slice(int(rows[0]) * k, (int(rows[-1]) + 1) * k)
            yield place, self._derivatives(x, rows, residuals[place], fine)

    def jacobian_passes(self, fine: bool) -> int:
        """Sweeps over the rows that J takes."""
        return 1 if callable(self._jacobian) else evaluations(self._kind(fine), self.n_parameters)

    # ------------------------------------------------------------------------------------- as any other finite sum

    def _batch(self, x: Vector, indices: Indices) -> tuple[Matrix, LossTerms]:
        """J of these rows, and their losses."""
        residuals = self._of_rows(x, indices)
        NotFinite.refuse("residuals", residuals, x, indices)
        return self._derivatives(x, indices, residuals, False), self.terms(residuals, indices)

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        jacobian, terms = self._batch(x, indices)
        return jacobian.T @ terms.slopes / len(indices) + self.l2 * (x - self.towards)

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean over the indices (None: all) of Gauss–Newton's ∇r ℓ″ ∇rᵀ, times v."""
        product, total = np.zeros_like(v), self.n_samples if indices is None else len(indices)
        pieces = all_blocks(self.n_samples, self._per_block()) if indices is None else iter([indices])
        for piece in pieces:
            jacobian, terms = self._batch(x, piece)
            product += jacobian.T @ (terms.curvatures * (jacobian @ v))
        return product / total + self.l2 * v

    def gather(self, indices: Indices) -> LeastSquares:
        """The same problem restricted to those rows."""
        chosen = _check.row_indices(indices, self.n_samples)
        derivatives = self._jacobian
        part = LeastSquares(
            len(chosen),
            self.n_parameters,
            lambda x, i: self._residuals(x, chosen[i]),
            (lambda x, i: derivatives(x, chosen[i])) if callable(derivatives) else derivatives,
            self.loss,
            l2=self.l2,
            towards=self.towards,
        )
        part.weights, part.weight_scale = None if self.weights is None else self.weights[chosen], self.weight_scale
        return part
