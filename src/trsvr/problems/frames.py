"""Coordinates: a problem may be solved in others than the user's."""

from __future__ import annotations

from trsvr._arrays import Vector


class Frame:
    """The coordinates of a problem, beside those of the problem it was made from; here they are the same."""

    def inside(self, x: Vector) -> Vector:
        """The point for one of the user's."""
        return x.copy()

    def outside(self, x: Vector) -> Vector:
        """The user's point for one of this problem's."""
        return x

    def gradient_outside(self, gradient: Vector) -> Vector:
        """The user's gradient for one of this problem's."""
        return gradient
