"""The adaptive mode, begun by coordinate ascent in the dual: what `trsvr.TRSVR` runs where rows can be seen.

Where views offer an ascent it is tried first, and goes on while it is quick. An outer iteration is then

    some epochs of the ascent from x̃, until they seem to have gained enough
    f, ∇f and the duality gap at their end, which bounds what is left to gain

and what counts is the rate at which the gap's logarithm falls, for each product's worth of work. Far from the minimum
no Newton step is as good. Where f had not far to fall, or little is left and the ascent is not quick, Newton steps go
on from there to the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from trsvr._arrays import ROUNDING, Vector
from trsvr.parts.acceptance import Point
from trsvr.problems.base import Problem
from trsvr.problems.dual import DualAscent
from trsvr.solvers.adaptive import AdaptiveTRSVR, Rules
from trsvr.solvers.adaptive.state import AdaptiveState, Choices
from trsvr.solvers.base import EpochReport, EpochRows, Progress, State, within


@dataclass(frozen=True)
class DualRules(Rules):
    """The mode's numbers, and those of the ascent."""

    #: epochs of the first outer iteration, where a view offers them; 0: none are made
    dual_epochs: int = 3
    #: and of a later one at most: a look at the point costs a pass
    most_dual_epochs: int = 24
    #: by what an epoch gains the gap is known to a factor; a look that finds too much left has cost a pass
    surely_enough: float = 0.6
    #: where f has less than this part of its minimum to fall it is nearly quadratic, and Newton steps are good
    near_start: float = 0.5
    #: or, by the first dual value, which is below the minimum, less than this part of it: then no epoch is made
    near_at_once: float = 0.15
    #: else the ascent goes on there only while log(gap) falls by more than this for each product's worth of work
    quick_near: float = 1.0
    #: else Newton steps are tried when this part of |f| is left at most: further away they are slow
    newton_from: float = 1e-3
    #: but not while log(gap) falls by more than this for each product's worth of work: they seldom come to more; and an
    #: iteration whose epochs are slower ends there
    quick_dual: float = 0.5
    #: an ascent whose first iteration is slower than this gives way to Newton steps: it will not come to more than they
    slow_start: float = 0.5
    #: one that is slower than this is given up for good, and its iteration ends
    slowest_dual: float = 0.2
    #: the rate within an iteration is that of so many of its last epochs: of fewer it may be chance
    epochs_of_rate: int = 4
    #: one slow iteration after a quick one may be chance, too: this part of the rate is kept at least
    rate_kept: float = 0.5


@dataclass
class DualPhase:
    """Whether the run is ascending in the dual, and how quickly it does."""

    active: bool = False
    first: bool = True  # whether no outer iteration has been made since it began
    enough: float = 0.0  # the part of the gap at which it ends
    gain: float = 0.0  # of the last epoch
    first_value: float = -math.inf  # where it began
    gap: float = math.inf  # what is left to gain at the reference, at most
    rate: float = 0.0  # by how much log(gap) has fallen lately, for each product's worth of work

    def is_near(self, lowest: float, part: float) -> bool:
        """Whether f has less than this part of its minimum to fall, or of a bound on that, from where the run began."""
        return self.first_value - lowest < part * lowest


@dataclass
class DualState(AdaptiveState):
    """What the mode remembers, and the ascent."""

    dual: DualPhase = field(default_factory=DualPhase)
    ascent: DualAscent | None = None

    not_plain: ClassVar[tuple[str, ...]] = (*AdaptiveState.not_plain, "ascent")

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        ascent = {} if self.ascent is None else self.ascent.snapshot()
        return super().snapshot() | {f"ascent.{name}": kept for name, kept in ascent.items()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        super().restore(snapshot)
        if self.ascent is not None:
            self.ascent.restore(within("ascent", snapshot))


@dataclass(frozen=True)
class DualStart(AdaptiveTRSVR):
    """The mode, and what `trsvr.TRSVR` runs. With any choice but "auto" nothing is ascended."""

    rules: DualRules = field(default_factory=DualRules)

    remembers = DualState

    def init(self, problem: Problem, x: Vector) -> State:
        """The mode's state, and an ascent where that is what to begin with."""
        state = super().init(problem, x)
        own = _own(state)
        offered = own.kind == "diagonal" and own.here.prices().dual < math.inf
        if offered and self._choices == Choices(None, None, None, None) and self.rules.dual_epochs > 0:
            own.dual, own.ascent = DualPhase(True), own.here.ascent()
        return state

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """Some epochs of the ascent, from the reference on, or the mode's own steps."""
        own = _own(state)
        if not own.dual.active:
            return super().epoch(problem, state, rows)
        own.begin()
        report, phase, ascent = EpochReport(alpha=own.radius.alpha, batch_size=1), own.dual, own.ascent
        assert ascent is not None
        report.outcome = Point(state.x.copy(), state.value, state.gradient, phase.gap)
        if not ascent.begun:
            own.here.start_ascent(ascent, state.x, state.gradient)
            phase.gap = ascent.gap(state.x, state.value)
            phase.first_value = state.value
            if phase.is_near(state.value - phase.gap, self.rules.near_at_once):
                phase.active = False
                state.x[:] = report.outcome.x
                return super().epoch(problem, state, rows)
        gains: list[float] = []
        most = self.rules.dual_epochs if phase.first else self.rules.most_dual_epochs
        while not gains or not (len(gains) >= most or state.time_is_up() or self._seems_enough(state, gains)):
            report.steps += ascent.epoch(state.x, rows.draws, len(gains), state.time_is_up)
            gains.append(ascent.gain)
        phase.gain = gains[-1]
        report.gradient_evaluations = report.inner_steps = report.steps
        return report

    def _seems_enough(self, state: State, gains: list[float]) -> bool:
        """Whether a look at the point is due: what epochs gain falls like the gap, and says where that has come to."""
        own, rules, phase = _own(state), self.rules, _own(state).dual
        if not phase.gain > 0.0:
            return False
        left, rate, last = gains[-1] / phase.gain, math.inf, gains[-rules.epochs_of_rate :]
        if len(last) == rules.epochs_of_rate and min(last[0], last[-1]) > 0.0:
            rate = math.log(last[0] / last[-1]) / ((len(last) - 1.0) * own.here.prices().dual)
        late = left * phase.gap <= rules.newton_from * abs(state.value)
        return left <= phase.enough or rate < (rules.quick_dual if late else rules.slowest_dual)

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Whether the ascent goes on, or what the mode's own step was worth."""
        if _own(state).dual.active:
            return self._judge_ascent(problem, state, report)
        return super().judge(problem, state, report)

    def _judge_ascent(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Go on with it, or hand over to Newton steps, from the better of the two points."""
        own, rules, phase, ascent, before = (
            _own(state),
            self.rules,
            _own(state).dual,
            _own(state).ascent,
            report.outcome,
        )
        assert ascent is not None
        finite = math.isfinite(state.value) and bool(np.isfinite(state.gradient).all())
        floor = ROUNDING * abs(before.value)
        gap = max(ascent.gap(state.x, state.value), floor) if finite else math.inf
        fallen = math.log(max(phase.gap, floor) / gap) if finite else -math.inf
        epochs = max(report.steps / problem.n_samples, 1.0)
        rate = fallen / (epochs * own.here.prices().dual + 1.0)
        phase.rate = max(rate, rules.rate_kept * phase.rate)
        lowest = state.value - gap
        near = phase.is_near(lowest, rules.near_start)
        early = not near and gap > rules.newton_from * abs(state.value)
        quick = phase.rate > (rules.quick_near if near else rules.quick_dual)
        slowest = rules.slow_start if phase.first else rules.slowest_dual
        phase.active = gap > floor and phase.rate > slowest and (early or quick)
        if not phase.active and not state.value <= before.value:
            state.x[:], state.value, state.gradient = before.x, before.value, before.gradient
            report.rejected = 1
            return Progress(own.expected_decrease, False, own.nonconvex)
        phase.gap = own.expected_decrease = gap
        phase.first, phase.enough = False, self._enough(state, gap)
        own.swap_views()
        return Progress(gap, False, own.nonconvex)

    def _enough(self, state: State, gap: float) -> float:
        """The part of the gap that may be left."""
        goal = state.goal
        enough = (goal.decrease or self.rules.little * abs(state.value)) / gap
        if goal.gradient > 0.0:  # it falls like the root of the gap
            by_gradient = (goal.gradient / max(float(np.abs(state.gradient).max()), goal.gradient)) ** 2
            enough = min(enough, by_gradient) if goal.decrease else by_gradient
        return self.rules.surely_enough * enough


def _own(state: State) -> DualState:
    assert isinstance(state.own, DualState)
    return state.own
