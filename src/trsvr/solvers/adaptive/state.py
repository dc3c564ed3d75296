"""What the adaptive mode remembers from one outer iteration to the next, grouped by who writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from trsvr._arrays import Matrix, Vector
from trsvr.parts.acceptance import Point
from trsvr.parts.caution import Caution
from trsvr.parts.exactness import FoundStep
from trsvr.parts.negative_curvature import Escape
from trsvr.parts.norms import Factored
from trsvr.parts.pairs import Pairs
from trsvr.problems.base import Problem
from trsvr.problems.steps import NormedStep, Product
from trsvr.problems.views import CurvatureView, Raising
from trsvr.solvers.adaptive.rules import Rules
from trsvr.solvers.base import EpochReport, State, flat, refill, refuse_other_version, within

_VERSION = 6  # of the snapshots in checkpoints


@dataclass
class Radius:
    """Written by judgement."""

    alpha: float  # over ‖g‖_{P⁻¹}
    cg_tolerance: float
    contraction: float = 0.0  # the part of ½‖g‖²_{P⁻¹} that the last step left
    accepted: bool = True  # whether the last step was kept, or is tried again, shorter
    shortened: bool = False  # whether it was the one before, once more and shorter


@dataclass
class NormState:
    """Written by measuring, except the pairs and products, which steps leave, and the rows that judgement asks for."""

    wanted_rows: float  # of the next matrices
    losses: Matrix | None = None  # curvature of the losses: a matrix for each output, or a diagonal
    correlations: Matrix | None = None  # factor of those that all outputs share, where a diagonal alone is too little
    rows: int = 0  # from which they were built
    averaged: int = 0  # samples in them: older ones are kept while that helps
    total_weight: float = math.nan
    exact: bool = False  # whether the model is the whole Hessian
    pairs: Pairs = field(default_factory=Pairs)  # that steps have left
    products: int = 0  # with the whole Hessian, since the matrices were built


class Measured(NamedTuple):
    """P and H at the reference, rebuilt by every outer iteration.

    ``product`` is v ↦ H v where H is P's own model, and None where it is the whole Hessian; ``convexity`` is the
    penalty's, where nothing else says what a gradient is worth.
    """

    norm: Any
    penalty: Vector
    product: Product | None = None
    convexity: float | None = None


class Outcome(NamedTuple):
    """What an outer iteration did: the reference it began at, and the step it made there."""

    before: Point
    measured: Measured
    taken: NormedStep
    predicted: float  # the model's decrease
    length: float  # of the step, over ‖g‖_{P⁻¹}
    predicted_gradient: Vector | None  # the model's at the step's end, where it has one


@dataclass
class AdaptiveState:
    """All of it. The views are of the reference and of the trial point; only the first is needed later."""

    kind: str  # of the norm: "dense", "diagonal" or "identity"
    here: CurvatureView
    there: CurvatureView
    radius: Radius
    norm: NormState
    caution: Caution
    batch_size: float
    nonconvex: bool
    begun: bool = False  # whether an outer iteration has been made
    expected_decrease: float = math.inf  # at the reference
    bound: float = math.inf  # what the certificate said where the run seemed to end
    escape: Escape = field(default_factory=Escape)
    ahead: FoundStep = field(default_factory=FoundStep)
    factored: Factored | None = None  # the last matrix P
    price: float = math.inf  # what the first matrix costs, in products

    #: fields that are no numbers, arrays or dataclasses of such, or known from the beginning
    not_plain: ClassVar[tuple[str, ...]] = ("kind", "here", "there", "factored", "price")

    def begin(self) -> None:
        """The evaluation at the starting point is the first reference."""
        if not self.begun:
            self.swap_views()
            self.begun = True

    def swap_views(self) -> None:
        """The trial point becomes the reference."""
        self.here, self.there = self.there, self.here

    @property
    def graded(self) -> bool:
        """Whether caution has degrees: a step on the whole Hessian fails only because curvatures change on its way."""
        whole = self.norm.exact or self.caution.by_degrees
        return whole and not self.nonconvex and self.here.raising is Raising.GRADED

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        kept = {name: entry for name, entry in vars(self).items() if name not in self.not_plain}
        return flat({"version": _VERSION, "dense": self.kind == "dense", "here": self.here.snapshot(), **kept})

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        refuse_other_version(snapshot, _VERSION)
        self.kind = "dense" if snapshot["dense"] else self.kind
        self.here.restore(within("here", snapshot))
        refill(self, snapshot, but=self.not_plain)


def own_state(state: State) -> AdaptiveState:
    """The adaptive mode's part of a run's state."""
    assert isinstance(state.own, AdaptiveState)
    return state.own


class Choices(NamedTuple):
    """What the user has fixed; None is left to the mode."""

    batch_size: int | None
    inner_steps: int | None
    max_cg: int | None
    norm: str | None


class Iteration(NamedTuple):
    """What the parts of one outer iteration share."""

    problem: Problem
    state: State
    own: AdaptiveState
    rules: Rules
    chosen: Choices
    report: EpochReport
