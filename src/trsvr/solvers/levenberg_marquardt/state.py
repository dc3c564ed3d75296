"""What a run of damped steps knows of a point, and what it remembers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr.parts.damping import DampedStep, Model, Sums
from trsvr.problems.residuals import Block
from trsvr.solvers.base import flat

_EPSILON = float(np.finfo(float).eps)
#: of the snapshots in checkpoints
_VERSION = 4
_POINTS = ("here", "there", "last", "model")


class Point(NamedTuple):
    """A point, with f, the residuals, the gradient and what is kept of J there."""

    x: Vector
    value: float
    residuals: Vector
    sums: Sums
    rows: list[Block] | None = None  # of J̃, where they are few
    bend: Matrix | float = 0.0  # what the loss's own curvature adds to J̃ᵀJ̃

    def rounding(self) -> float:
        """Half of the squared residuals that the rounding of x alone makes."""
        return 0.5 * _EPSILON**2 * float(np.sum((self.sums.columns * self.x) ** 2))


@dataclass
class Damping:
    """What a run remembers; points are computed anew from x where it continues a checkpoint."""

    radius: float = math.nan
    scaling: Vector | None = None
    longest: Vector | None = None  # that each column of J has been
    same_units: bool = False  # of all unknowns: D is one
    second: Matrix | None = None  # S
    curved: bool = False  # whether the model has it
    switched: bool = False  # whether the model has been exchanged since the last step that was kept
    looks: int = 0  # at the whole Hessian
    begun_anew: int = 0  # from doubtful ends
    first_value: float = math.inf
    sine: float = math.inf
    contraction: float = 1.0  # part of the sine that the last step left, if it was a full one of Gauss and Newton
    held: int = 0  # steps that are kept until Δ may grow again
    fine: bool = False  # whether differences are the finer ones
    orthogonal: bool = False  # whether squares have too few digits
    all_rows: bool = False  # whether some rows of J have not been enough
    began: Vector | None = None  # where the step that led here began; ``last`` is what is known there
    misses: int = 0
    ended: bool = False  # whether the reference was seen to be an end
    passes: float = 0.0  # not counted yet
    here: Point | None = None
    there: Point | None = None
    last: Point | None = None
    model: Model | None = None

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        kept = {name: entry for name, entry in vars(self).items() if name not in _POINTS}
        return flat({"version": _VERSION, **kept})

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        if snapshot.get("version") != _VERSION:
            raise ValueError(f"its snapshot of damped steps has version {snapshot.get('version')}, not {_VERSION}")
        for name in vars(self):
            if name not in _POINTS:
                entry = snapshot.get(name)
                setattr(self, name, entry.item() if isinstance(entry, np.generic) else entry)


class Trial(NamedTuple):
    """A step from the reference to a trial point."""

    damped: DampedStep
    curved: bool
