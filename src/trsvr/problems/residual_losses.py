"""Losses of residuals: ℓ(r) = ½C² ρ((r/C)²), in the form that robust regression writes them in.

A loss has a scale C and ``rho(z)``, which returns ρ and its first two derivatives at z = (r/C)² ≥ 0; the derivative at
zero is one, so that every loss is ½r² near zero. One of your own is one more such class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.problems.losses import PseudoHuber, Squared

# Where a loss bends down, or hardly up, a residual counts with this part of ρ′: what reweighting would give it.
_LEAST_CURVATURE = 0.1


class ResidualLoss(Protocol):
    """What a loss of residuals has."""

    @property
    def scale(self) -> float:
        """The number C."""

    def rho(self, z: Vector) -> tuple[Vector, Vector, Vector]:
        """ρ, ρ′ and ρ″ at z."""


@dataclass(frozen=True)
class Tukey:
    """Tukey's biweight: (c²/6)(1 − (1 − (r/c)²)³) up to |r| = c, and constant from there on: far rows do not count.

    Parameters
    ----------
    c : float
        Where it ends; 4.685 standard deviations of the noise lose five per cent of efficiency where no row is wrong.
    """

    c: float = 4.685

    def __post_init__(self) -> None:
        _check.positive("c", self.c)

    @property
    def scale(self) -> float:
        """The number c."""
        return float(self.c)

    def rho(self, z: Vector) -> tuple[Vector, Vector, Vector]:
        """ρ, ρ′ and ρ″ at z."""
        rest = np.maximum(1.0 - z, 0.0)
        # 1 − (1 − z)³ = z(3 − 3z + z²) keeps its digits for small z.
        return np.where(z < 1.0, z * (3.0 - 3.0 * z + z * z), 1.0) / 3.0, rest * rest, -2.0 * rest


@dataclass(frozen=True)
class Rho:
    """A loss from a function ρ, as SciPy takes one."""

    function: Callable[[Vector], Any]
    scale: float = 1.0

    def rho(self, z: Vector) -> tuple[Vector, Vector, Vector]:
        """ρ, ρ′ and ρ″ at z."""
        found = np.asarray(self.function(z), dtype=np.float64)
        if found.shape != (3, z.size):
            raise ValueError(f"loss must return an array of shape (3, {z.size}), got shape {found.shape}")
        return found[0], found[1], found[2]


def _squared(z: Vector) -> Any:
    return z, np.ones_like(z), np.zeros_like(z)


def _soft_l1(z: Vector) -> Any:
    root = np.sqrt(1.0 + z)
    return 2.0 * z / (1.0 + root), 1.0 / root, -0.5 / root**3


def _huber(z: Vector) -> Any:
    far = np.maximum(z, 1.0)
    root, outside = np.sqrt(far), z > 1.0
    return (
        np.where(outside, 2.0 * root - 1.0, z),
        np.where(outside, 1.0 / root, 1.0),
        np.where(outside, -0.5 / (far * root), 0.0),
    )


def _cauchy(z: Vector) -> Any:
    return np.log1p(z), 1.0 / (1.0 + z), -1.0 / (1.0 + z) ** 2


def _arctan(z: Vector) -> Any:
    square = 1.0 + z * z
    return np.arctan(z), 1.0 / square, -2.0 * z / square**2


#: SciPy's names.
BY_NAME = {"linear": _squared, "soft_l1": _soft_l1, "huber": _huber, "cauchy": _cauchy, "arctan": _arctan}


def as_residual_loss(loss: Any) -> ResidualLoss:
    """A loss of residuals; `Squared` and `PseudoHuber` are those of linear models."""
    if isinstance(loss, Squared):
        return Rho(_squared)
    if isinstance(loss, PseudoHuber):
        return Rho(_soft_l1, _check.positive("delta", loss.delta))
    if isinstance(loss, type) or not {"rho", "scale"} <= set(dir(loss)):
        raise ValueError(
            f"loss must be Squared(), PseudoHuber(), Tukey() or an object with scale and rho(z), got {loss!r}"
        )
    given: ResidualLoss = loss
    return given


class LossTerms(NamedTuple):
    """A sum's losses, and the numbers that make it a sum of squares to second order."""

    total: float
    slopes: Vector  # ℓ′(r)
    curvatures: Vector  # ℓ″(r), raised where a loss bends down
    raised: Vector  # by how much


def loss_terms(loss: ResidualLoss, residuals: Vector, weights: Vector | None) -> LossTerms:
    """ℓ, ℓ′ and ℓ″ of all residuals, each times its weight."""
    if loss == Rho(_squared):  # by far the most frequent, and ten times as quick
        ones = np.broadcast_to(1.0, residuals.shape) if weights is None else weights
        slopes = residuals if weights is None else weights * residuals
        return LossTerms(0.5 * float(slopes @ residuals), slopes, ones, np.broadcast_to(0.0, residuals.shape))
    z = (residuals / loss.scale) ** 2
    value, first, second = loss.rho(z)
    slopes, exact = first * residuals, first + 2.0 * z * second
    curvatures = np.maximum(exact, _LEAST_CURVATURE * first)
    values = (0.5 * loss.scale**2) * value
    if weights is None:
        return LossTerms(float(values.sum()), slopes, curvatures, curvatures - exact)
    return LossTerms(float(weights @ values), weights * slopes, weights * curvatures, weights * (curvatures - exact))
