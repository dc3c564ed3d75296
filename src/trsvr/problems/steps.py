"""What a view is asked for, and what it answers: a trust-region step, and a walk of steps on batches."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from trsvr._arrays import Matrix, Vector
from trsvr._draws import Draws
from trsvr._vectors import dot


class Exit(enum.IntEnum):
    """Why a subproblem solver stopped."""

    TOLERANCE = 0  #: inside the region, the residual is small
    BOUNDARY = 1  #: the next iterate would leave the region
    NEGATIVE_CURVATURE = 2  #: a direction along which the model falls without end
    ITERATION_LIMIT = 3


class Norm(Protocol):
    """The norm P in which a step is measured."""

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""


class NormedStep(NamedTuple):
    """A step p, H p, the P-norm of p, why the solver stopped and after how many products."""

    step: Vector
    product: Vector
    length: float
    exit: Exit
    products: int

    @property
    def is_inside(self) -> bool:
        """Whether it ended inside the region."""
        return self.exit is Exit.TOLERANCE

    @property
    def is_cut_off(self) -> bool:
        """Whether its radius has cut it off."""
        return self.exit is Exit.BOUNDARY

    def predicted(self, gradient: Vector) -> float:
        """Decrease of the model, −ḡᵀp − ½ pᵀHp."""
        return -dot(gradient, self.step) - 0.5 * dot(self.step, self.product)


Product = Callable[[Vector], Vector]


@dataclass(frozen=True)
class StepRequest:
    """Minimise gᵀp + ½ pᵀHp over ‖p‖_P ≤ alpha·size, approximately."""

    gradient: Vector  # g
    size: float  # ‖g‖_{P⁻¹}
    norm: Any  # a `Norm`
    alpha: float  # radius over size
    penalty: Vector  # diagonal of the penalty's Hessian; the view's own is that of the losses
    tolerance: float  # when to stop: at this relative residual,
    rough_tolerance: float  # at this one where the step begins anew,
    most_products: int  # or after so many products
    earlier: Matrix | None  # earlier steps, or directions of conjugate gradients, the newest last
    keeps_pairs: bool  # whether directions and their products are worth remembering
    give_up: Callable[[], bool]  # whether the time is up
    is_unbounded: bool  # whether alpha bounds nothing
    #: conjugate gradients with a product: what a view does that knows no better
    usual: Callable[[Product, StepRequest], StepTaken]


class StepTaken(NamedTuple):
    """The step that was found."""

    found: NormedStep
    alpha: float  # as asked for, or less where without a bound the model has no minimum
    pairs: Sequence[tuple[Vector, Vector]] = ()  # directions to remember, with their products
    predicted_gradient: Vector | None = None  # the model's; None: it was minimised in a subspace only
    left: float = 0.0  # how much further the model falls, as far as that is known
    rows: int = 0  # rows looked at beyond the products with all of them


@dataclass(frozen=True)
class WalkRequest:
    """Steps on batches from x, with ḡ = g̃ + the mean change of the gradient on the batch, until noise ends them."""

    x: Vector  # where the walk begins
    reference: Vector  # the view's point
    gradient: Vector  # the full gradient g̃ there
    norm: Any  # a `Norm`
    alpha: float  # radius over ‖ḡ‖_{P⁻¹}
    batch_size: int
    most: int  # steps at most
    scattered: bool  # whether a batch is single rows, drawn uniformly, instead of runs of consecutive ones
    noise: float  # the walk ends when the noise of ḡ exceeds this part of it, both squared in P⁻¹
    longest: float  # it also ends where ‖ḡ‖²_{P⁻¹} exceeds this
    draws: Draws
    step: Callable[[Vector, float], Vector]  # ḡ and its size ↦ the step
    #: the walk, in terms of the view's `changes`: what a view does that knows no better
    usual: Callable[[Any, WalkRequest], WalkTaken]


class WalkTaken(NamedTuple):
    """Where a walk has led: x, its steps, the batches drawn, the rows of each, and whether noise ended it at once."""

    x: Vector
    steps: int
    batches: int
    rows: int
    too_noisy: bool
