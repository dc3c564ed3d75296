"""What conjugate gradients have seen of the Hessian, and a norm that knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._vectors import dot
from trsvr.parts.norms import DiagonalNorm, IdentityNorm, QuasiNewtonNorm

_EPSILON = float(np.finfo(float).eps)
_TINY = float(np.finfo(float).tiny)


@dataclass
class Pairs:
    """Directions s of earlier conjugate gradients, and their products Hs; the newest last."""

    directions: Matrix | None = None
    images: Matrix | None = None

    def forget(self) -> bool:
        """Drop them; returns whether there were any."""
        known = self.directions is not None
        self.directions = self.images = None
        return known

    def remember(self, seen: Sequence[tuple[Vector, Vector]], most: int) -> None:
        """Keep the newest ones whose curvatures are more than rounding."""
        seen = [(s, y) for s, y in seen if _is_more_than_rounding(s, y)]
        if seen and most:
            self.directions = _newest(self.directions, [s for s, _ in seen], most)
            self.images = _newest(self.images, [y for _, y in seen], most)

    def improve(self, norm: DiagonalNorm | None = None) -> QuasiNewtonNorm | DiagonalNorm | IdentityNorm:
        """A diagonal norm, or a multiple of the identity, that agrees with H along these directions."""
        if self.directions is None or self.images is None:
            return IdentityNorm() if norm is None else norm
        newest, image = self.directions[-1], self.images[-1]
        scale = np.full_like(newest, dot(image, image) / dot(newest, image)) if norm is None else norm.diagonal
        return QuasiNewtonNorm(scale, self.directions, self.images)


def _newest(known: Matrix | None, seen: Sequence[Vector], most: int) -> Matrix:
    """The last rows of both; a norm may still look at the old ones."""
    vectors = [*(() if known is None else known), *seen][-most:]
    rows = np.empty((len(vectors), vectors[0].size))
    for row, vector in zip(rows, vectors, strict=True):
        row[:] = vector
    return rows


def _is_more_than_rounding(direction: Vector, image: Vector) -> bool:
    """Whether sᵀHs has a digit that is right, and is large enough to divide by."""
    sizes = dot(np.abs(direction), np.abs(image))
    return bool(dot(direction, image) > max(16.0 * _EPSILON * sizes, _TINY) and dot(image, image) > _TINY)
