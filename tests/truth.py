"""Linear models in extended precision: values to nineteen digits, and minima by Newton's method.

The columns are standardised first, so that the method sees no units. The code shares nothing with the package.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse

from trsvr.problems import (
    Binomial,
    Gamma,
    Logistic,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
    Tweedie,
)

Long = np.longdouble


def losses(loss: Any, Z: np.ndarray, y: np.ndarray, slack: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses (n), slopes (n, K) and curvatures (n, K, K) at margins Z; a hinge bends to ``slack`` beyond its kink."""
    if isinstance(loss, Softmax):
        return _softmax(Z, y)
    value, slope, curvature = _of_one_margin(loss, Z[:, 0], y.astype(Long), slack)
    return value, slope[:, None], curvature[:, None, None]


def _softmax(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, own = np.arange(len(y)), y.astype(int)
    lower = Z - Z[rows, own][:, None]
    lower[rows, own] = -np.inf
    E = np.exp(np.minimum(lower, 8000))
    P = E / (1 + E.sum(1))[:, None]
    P[rows, own] = 1 / (1 + E.sum(1))
    slopes = P.copy()
    slopes[rows, own] = -(E.sum(1) / (1 + E.sum(1)))
    return np.log1p(E.sum(1)), slopes, P[:, :, None] * (np.eye(Z.shape[1]) - P[:, None, :])


@np.errstate(all="ignore")
def _of_one_margin(loss: Any, z: np.ndarray, y: np.ndarray, slack: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    e = np.exp(-np.abs(z))
    if isinstance(loss, Logistic):
        value = np.maximum(-y * z, 0) + np.log1p(e)
        return value, -y * np.where(y * z > 0, e, 1) / (1 + e), e / (1 + e) ** 2
    if isinstance(loss, Binomial):  # y is a share
        value = np.where(z > 0, 1 - y, -y) * z + np.log1p(e) + _times_log(y) + _times_log(1 - y)
        slope = ((1 - y) * np.where(z > 0, 1, e) - y * np.where(z > 0, e, 1)) / (1 + e)
        near = np.abs(slope) < np.minimum(y, 1 - y) / 8  # where nearly all of that cancels
        u, v = (np.where(near, part, 0.5) for part in (slope, y))
        value = np.where(near, -v * np.log1p(u / v) - (1 - v) * np.log1p(-u / (1 - v)), value)
        return value, slope, e / (1 + e) ** 2
    if isinstance(loss, SquaredHinge):
        gap = np.maximum(1 - y * z, 0)
        return gap**2, -2 * y * gap, 2 * (1 - y * z > -slack).astype(Long)
    if isinstance(loss, Squared):
        return (z - y) ** 2 / 2, z - y, np.ones_like(z)
    if isinstance(loss, Poisson | Tweedie | Gamma):
        return _of_a_mean({Poisson: 1, Gamma: 2}.get(type(loss)) or Long(loss.power), z, y)
    delta = Long(loss.delta)  # pseudo-Huber
    root = np.sqrt(1 + ((z - y) / delta) ** 2)
    return (z - y) ** 2 / (1 + root), (z - y) / root, root**-3


def _of_a_mean(power: Any, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Half the unit deviance of a variance μᵖ, μ = exp(z); its digits are kept where μ is near y."""
    c, e, some = 2 - power, 1 - power, y > 0
    t = z - np.log(np.where(some, y, 1))
    parts = [np.expm1(k * t) / k if k else t for k in (c, e)]
    rising, falling = np.exp(c * z), np.where(some, y * np.exp(e * z), 0)
    value = np.where(some, np.where(some, y, 1) ** c * (parts[0] - parts[1]), rising / c if c else 0)
    return value, rising - falling, c * rising - e * falling


def _times_log(a: np.ndarray) -> np.ndarray:
    return a * np.log(np.where(a > 0, a, 1))


class Truth:
    """f of a case of `endings`, at points of the package and at its minimum."""

    def __init__(self, case: Any) -> None:
        dense = case.X.toarray() if scipy.sparse.issparse(case.X) else np.asarray(case.X)
        X, n = dense.astype(np.float64), len(dense)
        self.loss, self.labels, self.intercept, self.n = case.loss, case.labels, case.intercept, n
        weights = np.ones(n) if case.weights is None else case.weights
        self.scale = weights.astype(Long) * n / weights.astype(Long).sum()
        # Where the exact shift lies does not matter: differences from it are exact.
        self.means = X.mean(0) if case.intercept else np.zeros(X.shape[1])
        centred = X.astype(Long) - self.means.astype(Long)
        deviations = np.sqrt((centred**2).mean(0))
        self.units = np.where(deviations > 0, deviations, Long(1))
        self.columns = X.shape[1]
        self.A = centred / self.units
        if case.intercept:
            self.A = np.hstack([self.A, np.ones((n, 1), Long)])
        self.K = int(case.labels.max()) + 1 if isinstance(case.loss, Softmax) else 1
        self.offset = np.zeros((n, self.K)) if case.offset is None else case.offset.reshape(n, self.K)
        self.penalty = np.zeros((self.A.shape[1], self.K), Long)
        self.penalty[: self.columns] = (Long(case.strength) / self.units**2)[:, None]

    def losses(self, U: np.ndarray, slack: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of all rows, with slopes and curvatures."""
        return losses(self.loss, self.A @ U + self.offset, self.labels, slack)

    def value(self, U: np.ndarray) -> Any:
        """The value f."""
        return (self.scale * self.losses(U)[0]).mean() + (self.penalty * U * U).sum() / 2

    def point(self, x: np.ndarray) -> np.ndarray:
        """The package's x in these coordinates; its intercept is put together exactly."""
        W = np.asarray(x, dtype=np.float64).reshape(-1, self.K)
        U = np.zeros((self.A.shape[1], self.K), Long)
        U[: self.columns] = W[: self.columns].astype(Long) * self.units[:, None]
        if self.intercept:
            for k in range(self.K):
                parts = (Fraction(float(m)) * Fraction(float(w)) for m, w in zip(self.means, W[:-1, k], strict=True))
                total = sum(parts, Fraction(float(W[-1, k])))
                high = float(total)
                U[-1, k] = Long(high) + Long(float(total - Fraction(high)))
        return U

    def minimum(self, start: np.ndarray) -> tuple[Any, float]:
        """The smallest value of f, by Newton's method with halving; and how far above it that may be.

        That is what a last step would still gain, or the duality gap where kinks make that too much.
        """
        U, value, falls, dual, slack = start, self.value(start), Long(0), Long(0), 0.0
        for _ in range(300):
            _, slopes, curvatures = self.losses(U, slack)
            gradient = self.A.T @ (self.scale[:, None] * slopes) / self.n + self.penalty * U
            weighted = self.scale[:, None, None] * curvatures / self.n
            H = np.zeros((*U.shape, *U.shape), Long)
            for k, m in itertools.product(range(self.K), repeat=2):
                H[:, k, :, m] = (self.A.T * weighted[:, k, m]) @ self.A
            if self.intercept and self.K > 1:  # softmax does not see what all intercepts have in common
                H[-1, :, -1, :] += np.trace(H[-1, :, -1, :])
            H = H.reshape(U.size, U.size) + np.diag(self.penalty.ravel())
            step = -_solve(H, gradient.ravel()).reshape(U.shape)
            falls, part = -(gradient * step).sum(), Long(1)
            dual = (gradient[: self.columns] ** 2 / self.penalty[: self.columns]).sum()
            if self.intercept:
                dual += 2 * (gradient[-1] ** 2 / np.maximum(np.diag(H).reshape(U.shape)[-1], 1e-300)).sum()
            if falls < 2e-19 * abs(value):  # values do not tell any more
                break
            while part > 1e-12:
                trial = self.value(U + part * step)
                if trial <= value - Long(1e-4) * part * falls:
                    break
                part /= 2
            else:  # rows at their kink have a curvature on one side: of more and more of them it is counted
                if slack > 1e-3 or not isinstance(self.loss, SquaredHinge):
                    break
                slack = max(1e3 * slack, 1e-15)
                continue
            U, value, slack = U + part * step, trial, 0.0
        return value, float(min(falls, dual)) / 2


def _solve(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """H⁻¹g by Cholesky's method; directions that H does not see are held."""
    d = len(g)
    diagonal = np.diag(H).copy()
    root = np.sqrt(np.where(diagonal > 0, diagonal, 1))
    M = H / root / root[:, None] + Long(1e-18) * np.eye(d, dtype=Long)
    L = np.zeros((d, d), Long)
    for j in range(d):
        pivot = M[j, j] - L[j, :j] @ L[j, :j]
        L[j, j] = np.sqrt(max(pivot, Long(1e-18)))
        L[j + 1 :, j] = (M[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    y = g / root
    for j in range(d):
        y[j] = (y[j] - L[j, :j] @ y[:j]) / L[j, j]
    for j in reversed(range(d)):
        y[j] = (y[j] - L[j + 1 :, j] @ y[j + 1 :]) / L[j, j]
    return y / root
