"""What the adaptive mode may ask of a problem at a point where it has just been evaluated: one protocol for all.

A backend (rows in memory, on a cluster, on a device, or functions of the user's) is one class that answers it. What
it cannot do costs infinitely much (`Prices`): the solver reasons about costs and never about who answers.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._draws import Draws
from trsvr.problems.certificate import GapFacts, gap_bound
from trsvr.problems.steps import StepRequest, StepTaken, WalkRequest, WalkTaken

if TYPE_CHECKING:
    from trsvr.problems.dual import DualAscent

#: What a sum over the rows costs even on no data, in multiplications.
FLOPS_OF_A_CALL = 2e5
# Columns of a matrix that several outputs may share: its memory.
_WIDEST_SHARED = 8192


class Prices(NamedTuple):
    """What answers cost, in products with the Hessian of all rows. Infinite: the view has no such answer.

    They depend on the shape of the data alone, never on a clock, so that a run is the same each time.
    """

    matrix_row: float = math.inf  # one more row in the matrices of `blocks`
    factor: float = math.inf  # their factorisation
    diagonal: float = math.inf  # `diagonal`
    shared: float = math.inf  # `shared`, and its factorisation
    direction: float = 0.0  # one more direction that improves the norm, each time this is applied
    batch_row: float = math.inf  # a row of a batch, beside one in a sum over all; nothing where it comes with that
    dual: float = math.inf  # an epoch of `ascent`
    line: float = math.inf  # `line`
    wait: float = 0.0  # waiting for an answer, beyond its arithmetic

    @classmethod
    def of_rows(cls, rows: int, d: int, outputs: int, entries: int) -> Prices:
        """Of rows with so many entries in all, and d parameters for each output: what arithmetic costs."""
        product = 4.0 * outputs * entries + FLOPS_OF_A_CALL
        per_row = min(d, entries / rows + 1.0)
        return cls(
            matrix_row=outputs * per_row * per_row / product,
            factor=outputs * d**3 / 3.0 / product,
            diagonal=1.0,
            direction=4.0 * d * outputs / (entries * outputs + FLOPS_OF_A_CALL),
            batch_row=1.0,
        )

    def with_shared(self, rows: int, d: int, outputs: int) -> Prices:
        """The same where outputs can share one matrix of all rows, unless its memory forbids it."""
        whole = (rows * self.matrix_row + self.factor) / outputs
        return self._replace(shared=whole if d <= _WIDEST_SHARED else math.inf, batch_row=math.inf)

    def of_matrix(self, rows: int) -> float:
        """Matrices from so many rows, and their factors."""
        return rows * self.matrix_row + self.factor

    def bear_directions(self, count: int, at_most: float) -> bool:
        """Whether so many directions in the norm cost at most this part of a product."""
        return count * self.direction <= at_most


class Coming(NamedTuple):
    """What the next outer iteration is likely to ask of a view: its answers may come with the evaluation."""

    norm: str = "identity"  # or "dense", "diagonal"
    rows: int = 0  # of `blocks`
    batch_size: int = 0  # rows of a batch; 0 where no walk is made
    raised: bool = False  # whether curvatures are raised
    draws: Draws | None = None  # its random numbers; None where no iteration comes


#: Nothing is expected.
NOTHING_KNOWN = Coming()


def _has_no(answer: str) -> NoReturn:
    raise NotImplementedError(f"this view has no {answer}, and its price says so: it is infinite")


class Raising(enum.Enum):
    """How curvatures can be raised: not at all, to a bound, or by degrees."""

    NOT = "not at all"
    WHOLE = "to a bound on the losses"
    GRADED = "by degrees"


class CurvatureView(Protocol):
    """The losses' curvature at the point of the last `evaluate`; the penalty is separable and known apart."""

    n_rows: int  # those of weight zero included
    n_outputs: int = 1  # the number K; the entries of x belong to the outputs in turn
    raising: Raising = Raising.NOT  # whether `raise_curvatures` has degrees

    def prices(self) -> Prices:
        """What the answers below cost."""
        ...

    def warm_up(self, dense: bool) -> None:
        """Compile (or load) what will be needed, so that a clock started afterwards does not see it."""
        return

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x, and its curvatures are those of the losses."""
        ...

    def total_weight(self) -> float:
        """Sum of the rows' curvatures: how far they have moved. Not a number where nothing is known."""
        return math.nan

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures towards what a bound on the losses would have; returns their sum before over after.

        ``steep``: how far for rows on the wrong side, where a loss is nearly linear. ``flat``: part of the largest
        curvature of its loss that every row gets at least; rows that are flat here may not be so elsewhere, and hold a
        step back with it. Without degrees both are ignored.
        """
        _has_no("raise_curvatures")

    def lower_curvatures(self, x: Vector) -> float:
        """The curvatures at x, the view's point, are those of the losses again; returns what that cost, in passes."""
        self.evaluate(x)
        return 1.0

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return np.zeros_like(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return np.zeros_like(x)

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        ...

    def diagonal(self) -> Vector:
        """Its diagonal."""
        _has_no("diagonal")

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Its K diagonal blocks, K × d × d, each from about so many rows; and how many rows that took together."""
        _has_no("blocks")

    def shared(self) -> Matrix:
        """The mean of these blocks, d × d, from all rows."""
        _has_no("shared")

    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int] | None:
        """Mean change of the losses' gradients from the view's point to x, on the two halves of batch ``number``.

        Returns them and the rows drawn; None where no more batches can be had in this iteration.
        """
        _has_no("changes")

    def step(self, request: StepRequest) -> StepTaken:
        """A trust-region step on the whole Hessian."""
        return request.usual(lambda v: self.product(v) + request.penalty * v, request)

    def line(self, x: Vector, gradient: Vector, step: Vector) -> tuple[float, float, int]:
        """First and second derivative of t ↦ f(x + t·step) at t = 1, about, and from how many rows.

        The view's point is x, where f has this gradient.
        """
        _has_no("line")

    def lowest_part(self, there: Any, x: Vector, gradient: Vector, step: Vector) -> float:
        """Which part of a step leads to where f is lowest on its way, at a hinge; else not a number.

        The view's point is x, where f has this gradient; ``there`` is a view of x + step. No row is read again.
        """
        return math.nan

    def walk(self, request: WalkRequest) -> WalkTaken:
        """Steps on batches."""
        return request.usual(self, request)

    def ascent(self) -> DualAscent:
        """Coordinate ascent in the dual, not begun yet."""
        _has_no("ascent")

    def start_ascent(self, ascent: DualAscent, x: Vector, gradient: Vector) -> None:
        """Let it begin at the view's point x, where f has this gradient; x is then the point of the dual one."""
        _has_no("ascent")

    def centred_matrix(self, means: Vector) -> Matrix | None:
        """Mean Hessian of the losses of the rows minus these means, all rows; None where it is not to be had."""
        return None

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f at the view's point x; None where nothing does."""
        return None

    def gap_bound(self, x: Vector, value: float, gradient: Vector) -> float:
        """How far f is above its minimum at the view's point x, at most; not a number where nothing is known."""
        facts = self.gap_facts(x, value)
        return math.nan if facts is None else gap_bound(facts, value, x, gradient)

    def gap_bound_near(self, x: Vector, value: float, gradient: Vector, step: Vector) -> float:
        """The same by the help of a step that leads to about where the minimum is; infinite where it does not help."""
        return math.inf

    def close(self) -> None:
        """The run is over: nobody will look again."""
        return

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
