"""The same objectives a second time: dense NumPy, one row at a time in the reader's head, no shared code.

Everything is a function of the margins Z (N × K) and of the rows A = (X, 1). With K = 1 a "matrix of curvatures" is a
1 × 1 matrix, so one text serves softmax and the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp, softmax

from trsvr.problems import (
    L2,
    Binomial,
    DoubleWell,
    Gamma,
    Logistic,
    NegativeBinomial,
    Poisson,
    PseudoHuber,
    Softmax,
    Squared,
    SquaredHinge,
    Tweedie,
)


def _logistic(z, y):
    return np.logaddexp(0.0, -y * z), -y * expit(-y * z), expit(z) * expit(-z)


def _squared_hinge(z, y):
    gap = np.maximum(0.0, 1.0 - y * z)
    return gap**2, -2.0 * y * gap, 2.0 * (y * z < 1.0)


def _squared(z, y):
    return 0.5 * (z - y) ** 2, z - y, np.ones_like(z)


def _pseudo_huber(z, y, delta):
    root = np.hypot(1.0, (z - y) / delta)
    return delta**2 * (root - 1.0), (z - y) / root, root**-3.0


def _long(*numbers):
    """In the processor's longest numbers: half deviances of large counts are small differences."""
    return tuple(np.asarray(each, dtype=np.longdouble) for each in numbers)


def _times_log(y):
    return np.where(y > 0.0, y * np.log(np.where(y > 0.0, y, 1.0)), 0.0)


def _poisson(z, y):
    z, y = _long(z, y)
    return np.exp(z) - y - y * z + _times_log(y), np.exp(z) - y, np.exp(z)


def _gamma(z, y):
    ratio = y * np.exp(-z)
    return ratio - 1.0 - np.log(y) + z, 1.0 - ratio, ratio


def _tweedie(z, y, p):
    z, y, p = _long(z, y, p)
    rising, falling = np.exp((2.0 - p) * z), y * np.exp((1.0 - p) * z)
    value = y ** (2.0 - p) / ((1.0 - p) * (2.0 - p)) - falling / (1.0 - p) + rising / (2.0 - p)
    return value, rising - falling, (2.0 - p) * rising + (p - 1.0) * falling


def _negative_binomial(z, y, alpha):
    z, y, alpha = _long(z, y, alpha)
    a = z + np.log(alpha)
    softplus, share, rest = np.logaddexp(0.0, a), 1.0 / (1.0 + np.exp(-a)), 1.0 / (1.0 + np.exp(a))
    value = _times_log(y) - y * z + (y + 1.0 / alpha) * (softplus - np.log1p(alpha * y))
    # (y + 1/α) share − y, without the cancelling of counts of 10⁹.
    return value, share / alpha - y * rest, (y + 1.0 / alpha) * share * rest


def _binomial(z, y):
    value = _times_log(y) + _times_log(1.0 - y) + np.logaddexp(0.0, z) - y * z
    return value, expit(z) - y, expit(z) * expit(-z)


def _softmax(Z, y):
    chosen = np.eye(Z.shape[1])[y.astype(int)]
    P = softmax(Z, axis=1)
    losses = logsumexp(Z, axis=1) - (Z * chosen).sum(axis=1)
    curvatures = P[:, :, None] * np.eye(Z.shape[1]) - P[:, :, None] * P[:, None, :]
    return losses, P - chosen, curvatures


def loss_terms(loss: Any, Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses (N), slopes (N, K) and curvatures (N, K, K) at the margins Z."""
    if isinstance(loss, Softmax):
        return _softmax(Z, y)
    z = Z[:, 0]
    if isinstance(loss, Logistic):
        value, slope, curvature = _logistic(z, y)
    elif isinstance(loss, SquaredHinge):
        value, slope, curvature = _squared_hinge(z, y)
    elif isinstance(loss, Squared):
        value, slope, curvature = _squared(z, y)
    elif isinstance(loss, PseudoHuber):
        value, slope, curvature = _pseudo_huber(z, y, loss.delta)
    elif isinstance(loss, Poisson):
        value, slope, curvature = _poisson(z, y)
    elif isinstance(loss, Gamma):
        value, slope, curvature = _gamma(z, y)
    elif isinstance(loss, Tweedie):
        value, slope, curvature = _tweedie(z, y, loss.power)
    elif isinstance(loss, NegativeBinomial):
        value, slope, curvature = _negative_binomial(z, y, loss.dispersion)
    elif isinstance(loss, Binomial):
        value, slope, curvature = _binomial(z, y)
    else:
        raise TypeError(f"the oracle does not know {loss!r}")
    value, slope, curvature = (np.asarray(each, dtype=np.float64) for each in (value, slope, curvature))
    return value, slope[:, None], curvature[:, None, None]


def penalty_terms(regularizer: Any, w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Value, gradient and diagonal of the Hessian of the penalty at the weights w."""
    if isinstance(regularizer, L2):
        strength = regularizer.strength
        return 0.5 * w @ (strength * w), strength * w, np.full(w.size, strength)
    if isinstance(regularizer, DoubleWell):
        factor, a = regularizer.gamma / w.size, regularizer.a
        return (
            factor * np.sum((w**2 - a**2) ** 2),
            factor * 4.0 * (w**3 - a**2 * w),
            factor * (12.0 * w**2 - 4.0 * a**2),
        )
    first, second = (penalty_terms(part, w) for part in regularizer)
    return tuple(a + b for a, b in zip(first, second, strict=True))


@dataclass(frozen=True)
class Oracle:
    """(1/N) Σ scale_i · loss_i + r, with numeric labels y: ±1, 0 … K−1, or real."""

    X: np.ndarray
    y: np.ndarray
    loss: Any
    regularizer: Any
    intercept: bool = False
    scale: np.ndarray | None = None
    offset: np.ndarray | float = 0.0

    @property
    def outputs(self) -> int:
        return int(self.y.max()) + 1 if isinstance(self.loss, Softmax) else 1

    @property
    def A(self) -> np.ndarray:
        X = np.asarray(self.X, dtype=np.float64)
        return np.column_stack([X, np.ones(len(X))]) if self.intercept else X

    @property
    def n_parameters(self) -> int:
        return self.A.shape[1] * self.outputs

    def _terms(self, x):
        Z = self.A @ x.reshape(-1, self.outputs) + np.reshape(self.offset, (-1, 1))
        scale = np.ones(len(self.y)) if self.scale is None else self.scale
        losses, slopes, curvatures = loss_terms(self.loss, Z, self.y)
        return scale * losses, scale[:, None] * slopes, scale[:, None, None] * curvatures

    def _penalty(self, x):
        penalised = self.X.shape[1] * self.outputs
        value, gradient, diagonal = penalty_terms(self.regularizer, x[:penalised])
        rest = np.zeros(x.size - penalised)
        return value, np.concatenate([gradient, rest]), np.concatenate([diagonal, rest])

    def value(self, x):
        return self._terms(x)[0].mean() + self._penalty(x)[0]

    def component_gradients(self, x):
        """∇f_i(x), one row each: the regulariser is inside every f_i."""
        slopes = self._terms(x)[1]
        return np.einsum("ij,ik->ijk", self.A, slopes).reshape(len(self.y), -1) + self._penalty(x)[1]

    def gradient(self, x, rows=slice(None)):
        return self.component_gradients(x)[rows].mean(axis=0)

    def hessian(self, x, rows=slice(None)):
        curvatures, A = self._terms(x)[2][rows], self.A[rows]
        blocks = np.einsum("ij,ikl,im->jkml", A, curvatures, A) / len(A)
        return blocks.reshape(x.size, x.size) + np.diag(self._penalty(x)[2])

    def repeated(self, counts):
        """The same sum with row i written down counts[i] times."""
        return replace(self, X=np.repeat(self.X, counts, axis=0), y=np.repeat(self.y, counts))


def scaled_weights(weights):
    """n·w/Σw over the rows of positive weight."""
    weights = np.asarray(weights, dtype=float)
    return weights * np.count_nonzero(weights) / weights.sum()
