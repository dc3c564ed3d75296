"""What an outer iteration of the adaptive mode builds, and what it leaves for the next one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.solvers.base import EpochRows, State, record_of, restore_to

#: A radius that bounds nothing.
UNBOUNDED = 1e10
#: Conjugate gradients stop at this relative residual: with a dense P as the model one product reaches it.
CG_TOLERANCE = 0.1
#: An outer iteration that leaves more than this part of ½‖g‖²_{P⁻¹} was of little help.
POOR = 0.1
#: Directions of conjugate gradients that are remembered.
PAIRS = 20
#: Part of the largest curvature that every row counts with at least, at first, while curvatures are raised.
FIRST_CAUTION = 1e-3
_EPSILON = float(np.finfo(float).eps)


@dataclass
class Work:
    """What an outer iteration builds, and what it leaves for the next one."""

    here: Any  # a view of the curvature at the reference, or None where the problem has none
    there: Any  # the same at the trial point
    norm: Any = None
    model: Any = None  # v ↦ H v
    exact: bool = False  # whether the model is the whole Hessian
    losses: Any = None  # curvature of the losses: a matrix, one for each output, or a diagonal
    rows: int = 0  # from which it was built
    averaged: int = 0  # samples in it: older ones are kept while that helps
    total_weight: float = math.nan
    values: Any = None  # largest curvatures in parts of the diagonal, where they were sought
    vectors: Any = None
    directions: Any = None  # of earlier conjugate gradients
    images: Any = None  # their products with the Hessian
    before: dict[str, Any] = field(default_factory=dict)
    kept: bool = True  # whether the last step was kept
    products: int = 0  # that the last step has cost
    cautious: bool = False  # whether curvatures are raised: the losses are nearly linear around here
    by_degrees: bool = False  # whether that is being given up by degrees, with P of all rows
    caution: float = FIRST_CAUTION  # of the largest curvature, so much counts for every row then
    escape: Vector | None = None  # a direction of negative curvature at a point where the gradient vanishes
    escape_length: float = 1.0
    ahead: dict[str, Any] = field(default_factory=dict)  # a step that has been found where a run seemed to end
    convexity: float | None = None  # of the penalty, where nothing else says what a gradient is worth
    softness: float = 0.0  # by how much H is softer than P where they differ most: gains over ½‖g‖²_{P⁻¹}, of late
    time_is_up: Callable[[], bool] | None = None  # whether the epoch should end now
    left: float = 0.0  # what the last step has left of the model's decrease, where it was made in a subspace

    # Built anew by every outer iteration; all other fields are recorded in checkpoints.
    rebuilt: ClassVar[tuple[str, ...]] = ("there", "norm", "model", "convexity", "time_is_up", "left")

    def record(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        return record_of(self, self.rebuilt)

    def restore(self, record: dict[str, Any]) -> None:
        """Take over such a record."""
        restore_to(self, record, self.rebuilt)

    def swap_views(self) -> None:
        """The trial point becomes the reference."""
        self.here, self.there = self.there, self.here

    def forget(self) -> bool:
        """Let the next norm be a diagonal again; returns whether anything had been learnt beyond that."""
        learnt = self.directions is not None or self.values is not None
        self.directions = self.images = self.values = self.vectors = None
        return learnt

    def remember(self, pairs: list[tuple[Vector, Vector]]) -> None:
        """Keep the newest directions and products whose curvatures are more than rounding."""
        pairs = [(s, y) for s, y in pairs if _is_more_than_rounding(s, y)]
        if pairs:
            directions, images = (np.array(part) for part in zip(*pairs[-PAIRS:], strict=True))
            if self.directions is not None:
                directions = np.concatenate([self.directions, directions])[-PAIRS:]
                images = np.concatenate([self.images, images])[-PAIRS:]
            self.directions, self.images = directions, images


class Draws:
    """The epoch's random numbers, made when they are first asked for: many epochs need none."""

    def __init__(self, rows: EpochRows) -> None:
        self._rows = rows
        self._generator: np.random.Generator | None = None

    def __call__(self) -> np.random.Generator:
        """The generator."""
        if self._generator is None:
            self._generator = self._rows.random()
        return self._generator


def is_graded(state: State) -> bool:
    """Whether caution has degrees: a step on the whole Hessian can fail only because curvatures change on its way."""
    work: Work = state.work
    return (work.exact or work.by_degrees) and not state.scalars["nonconvex"] and getattr(work.here, "graded", False)


def _is_more_than_rounding(direction: Vector, image: Vector) -> bool:
    """Whether sᵀHs has a digit that is right, and is large enough to divide by."""
    sizes = dot(np.abs(direction), np.abs(image))
    tiny = float(np.finfo(float).tiny)
    return bool(dot(direction, image) > max(16.0 * _EPSILON * sizes, tiny) and dot(image, image) > tiny)
