"""When to stop: one honest test of the gradient, and the limits."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import ROUNDING, Vector
from trsvr._vectors import all_finite, dot
from trsvr.engine.result import Status
from trsvr.solvers.base import AUTO_DECREASE, Goal, Progress

_AUTO_RELATIVE = 1e-8
_GROWTH_IS_DIVERGENCE = 1e6
# At the rounding floor the value stands still, to its last bits, for this many epochs without a smaller gradient.
_STILL_EPOCHS = 10
_STILL_BITS = 8 * np.finfo(float).eps
# A convex run has got stuck if so many epochs together have gained no more than this part of the value, at which one
# that expects no more has converged, or no more than the last bit of the first value.
_IDLE_EPOCHS, _IDLE, _LAST_BIT = 50, AUTO_DECREASE, float(np.finfo(float).eps)
# A gradient below this part of its scale needs no further proof that a value which stands still is at its floor.
_SMALL_GRADIENT = 1e-6
# Changes of the value that are larger than this many units of its last place are not rounding.
_CLEARLY = 1e4 * np.finfo(float).eps
_TRIED_LENGTHS = 16
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Limits:
    """What a run may spend; None is no limit."""

    epochs: int | None
    passes: float | None
    seconds: float | None

    @classmethod
    def checked(cls, epochs: Any, passes: Any, seconds: Any) -> Limits:
        """Limits from the user's arguments."""
        return cls(
            None if epochs is None else _check.whole("max_epochs", epochs, at_least=0),
            None if passes is None else _check.positive("max_passes", passes),
            None if seconds is None else _check.positive("max_seconds", seconds),
        )

    def reached(self, row: dict[str, float]) -> Status | None:
        """The limit that this row of the trace has reached, if any."""
        if self.epochs is not None and row["epoch"] >= self.epochs:
            return Status.EPOCH_LIMIT
        if self.passes is not None and row["passes"] >= self.passes:
            return Status.PASS_LIMIT
        if self.seconds is not None and row["seconds"] >= self.seconds:
            return Status.TIME_LIMIT
        return None

    def fraction(self, row: dict[str, float]) -> float | None:
        """Part of the nearest limit that is used up."""
        pairs = ((row["epoch"], self.epochs), (row["passes"], self.passes), (row["seconds"], self.seconds))
        parts = [float(used / limit) for used, limit in pairs if limit]
        return max(parts) if parts else None


@dataclass(frozen=True)
class Tolerance:
    """A small gradient and, at the same time, little left to gain.

    Attributes
    ----------
    gradient : float
        ‖∇f‖∞ must not exceed this.
    decrease : float
        Nor the decrease of f that the solver still expects, where it knows one, this part of |f|.
    smallest_value : float
        What |f| counts as at least: f itself may go to zero.
    relative : bool
        Whether ``gradient`` is a part of the largest gradient seen (of a linear model: of ‖∇f(0)‖∞).
    from_start : bool
        Or of ‖∇f‖∞ at the start; ``smallest_value`` is then a part of |f| there.
    """

    gradient: float
    decrease: float
    smallest_value: float = 0.0
    relative: bool = False
    from_start: bool = False

    def __post_init__(self) -> None:
        for name in ("gradient", "decrease", "smallest_value"):
            _check.positive(f"tol's {name}", vars(self)[name], zero=True)


class GradientTest:
    """Converged, at the rounding floor, diverged, or neither.

    A number for ``tol`` is absolute: ‖∇f‖∞ ≤ tol. "auto" is relative: an expected decrease below 1e-12 |f| (without
    values, of what has been gained) where the solver knows one (½ gᵀP⁻¹g), else a gradient of 1e-8 of the largest one
    seen. For linear models that is ∇f(0), so that a warm start ends as a cold one does; other functions need not be
    defined at zero. A `Tolerance` asks for both. None never stops.
    ``why`` says, once the test has ended a run, what it has seen.
    """

    def __init__(self, tol: Any) -> None:
        if isinstance(tol, str) and tol != "auto":
            raise ValueError(f"tol must be a number >= 0, 'auto' or None, got {tol!r}")
        if not (tol is None or tol == "auto" or isinstance(tol, Tolerance)):
            tol = _check.positive("tol", tol, zero=True)
        self.tol = tol
        self._is_auto = isinstance(tol, str)
        self.why = ""
        self.threshold = 0.0
        self.scale = 0.0  # the largest entry of a gradient so far, and of that at zero
        self._grows = False  # whether the threshold follows the scale
        self._first_norm_sq = math.nan
        self._first_value = math.nan
        self._values: deque[float] = deque(maxlen=_IDLE_EPOCHS + 1)
        self._smallest = math.inf
        self._since_smallest = 0

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to judge on."""
        return {
            "threshold": self.threshold,
            "scale": self.scale,
            "grows": self._grows,
            "first_norm_sq": self._first_norm_sq,
            "first_value": self._first_value,
            "values": list(self._values),
            "smallest": self._smallest,
            "since_smallest": self._since_smallest,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        self.threshold = float(snapshot["threshold"])
        self.scale, self._grows = float(snapshot["scale"]), bool(snapshot["grows"])
        self._first_norm_sq = float(snapshot["first_norm_sq"])
        self._first_value = float(snapshot["first_value"])
        self._values.clear()
        self._values.extend(float(value) for value in snapshot["values"])
        self._smallest = float(snapshot["smallest"])
        self._since_smallest = int(snapshot["since_smallest"])

    @property
    def active(self) -> bool:
        """Whether full gradients are taken for the sake of this test."""
        return self.tol is not None

    @property
    def is_relative(self) -> bool:
        """Whether it is relative to other gradients."""
        return self.tol.relative if isinstance(self.tol, Tolerance) else self._is_auto

    def start(self, value: float, gradient: Vector, gradient_at_zero: Vector | None) -> None:
        """Fix the scales; without a gradient at zero they follow the largest one seen."""
        self._first_value, self._first_norm_sq = value, dot(gradient, gradient)
        self.scale = float(np.abs(gradient).max(initial=0.0))
        at_zero = self.scale
        if gradient_at_zero is not None and gradient_at_zero is not gradient:
            at_zero = float(np.abs(gradient_at_zero).max(initial=0.0))
            self.scale = max(self.scale, at_zero)
        self._grows = gradient_at_zero is None
        self._set_threshold(at_zero)

    def _set_threshold(self, scale: float) -> None:
        if self._is_auto:
            self.threshold = _AUTO_RELATIVE * scale
        elif isinstance(self.tol, Tolerance):
            self.threshold = self.tol.gradient * (scale if self.tol.relative or self.tol.from_start else 1.0)
        elif self.tol is not None:
            self.threshold = float(self.tol)

    def goal(self, value: float) -> Goal:
        """What a run that has come to ``value`` may end with, where the user has said how much may be left."""
        if not isinstance(self.tol, Tolerance) or not math.isfinite(value):
            return Goal(0.0 if self._is_auto else self.threshold)
        least = self.tol.smallest_value * (abs(self._first_value) if self.tol.from_start else 1.0)
        return Goal(self.threshold, self.tol.decrease * max(abs(value), least))

    def judge(
        self,
        value: float,
        gradient: Vector,
        has_value: bool,
        known: Progress | None = None,
        size: float | None = None,
    ) -> Status | None:
        """Status at a new full gradient, if it ends the run.

        ``known`` is what the solver knows of convergence, ``size`` the gradient's squared length where it is known.
        """
        norm_sq = dot(gradient, gradient) if size is None else size
        finite = math.isfinite(norm_sq) or all_finite(gradient)
        if not finite or (has_value and not math.isfinite(value)):
            return Status.DIVERGED
        grown = norm_sq > _GROWTH_IS_DIVERGENCE * max(self._first_norm_sq, _TINY)
        # Gradients also grow where a run leaves a saddle point or meets a hinge: then steps are refused, or f is small.
        if grown and not (known is not None or (has_value and abs(value) <= abs(self._first_value))):
            return Status.DIVERGED
        if not self.active:
            return None
        largest = float(np.abs(gradient).max(initial=0.0))
        if self._grows and largest > self.scale:
            self.scale = largest
            self._set_threshold(largest)
        expected = math.nan if known is None else known.expected_decrease  # not a number: the solver does not know
        measure = known.gained if known is not None and math.isnan(value) else value
        if self._is_auto and not math.isnan(expected) and math.isfinite(measure):
            stationary = largest == 0.0 and not (known is not None and known.may_be_saddle)  # the solver will see
            enough = AUTO_DECREASE * max(abs(measure), _TINY)
            if stationary or expected <= enough:
                self.why = "the gradient is zero" if stationary else _compared("left to gain", expected, enough)
                return Status.CONVERGED
        elif largest <= self.threshold and (largest == 0.0 or self._little_left(value, expected)):
            self.why = _compared("largest entry of the gradient", largest, self.threshold)
            return Status.CONVERGED
        self._values.append(value)
        if known is not None:  # a solver that refuses steps knows best why a value stands still
            if not known.at_floor:
                return self._stuck(value, known)
            self.why = known.stuck
            return Status.ROUNDING_FLOOR
        if self._stands_still(value, largest):
            return Status.ROUNDING_FLOOR
        return None

    def _stuck(self, value: float, known: Progress) -> Status | None:
        gained = self._values[0] - value
        little = max(_IDLE * abs(value), _LAST_BIT * abs(self._first_value))
        if known.may_be_saddle or len(self._values) <= _IDLE_EPOCHS or not abs(gained) <= little:
            return None
        self.why = f"the last {_IDLE_EPOCHS} iterations have gained {max(gained, 0.0):.1e}"
        return Status.NO_PROGRESS

    def is_lost_in_rounding(self, gap_bound: float) -> bool:
        """Whether what is left to gain, at most, is in the last bits of the value at the start."""
        return gap_bound <= ROUNDING * abs(self._first_value)

    def _little_left(self, value: float, expected: float) -> bool:
        if not isinstance(self.tol, Tolerance) or not math.isfinite(value) or math.isnan(expected):
            return True
        return expected <= self.goal(value).decrease

    def _stands_still(self, value: float, largest: float) -> bool:
        self._since_smallest += 1
        if largest < self._smallest:
            self._smallest, self._since_smallest = largest, 0
        if len(self._values) <= _STILL_EPOCHS or self._since_smallest < _STILL_EPOCHS:
            return False
        last = list(self._values)[-_STILL_EPOCHS - 1 :]
        return bool(max(last) - min(last) <= _STILL_BITS * abs(value))


def _compared(what: str, found: float, asked: float) -> str:
    return f"{what}: {found:.1e}, asked for: {asked:.1e}"


def why_it_stands_still(problem: Any, x: Vector, value: float, gradient: Vector, scale: float) -> str | None:
    """Why a value no longer falls, if rounding is not the reason; None if it is.

    Where the gradient is small against ``scale``, its size at the beginning, rounding is. Elsewhere the value is
    computed a little down the gradient: if it falls clearly there, the run has made steps that were too short; if it
    does not follow the gradient at all, values and gradients do not belong together.
    """
    size, largest = dot(gradient, gradient), float(np.abs(gradient).max(initial=0.0))
    if not math.isfinite(value) or not 0.0 < size < math.inf or largest <= _SMALL_GRADIENT * scale:
        return None
    clearly = _CLEARLY * max(abs(value), np.finfo(float).tiny)
    length = clearly / size
    downhill, beyond = problem.value_and_gradient(x - length * gradient)
    uphill, behind = problem.value_and_gradient(x + length * gradient)
    downhill, uphill = float(downhill), float(uphill)
    rounding = _STILL_BITS * max(abs(uphill), abs(downhill))
    if abs(uphill - downhill - 2.0 * clearly) > clearly + rounding:
        # Where the slope turns on so short a way, at a hinge for example, nothing that is clear can be gained on it;
        # and where it bends, values do not follow the gradient at x.
        ahead, back = dot(beyond, gradient), dot(behind, gradient)
        if ahead < 0.0 or _is_nothing(problem, x, gradient):
            return None
        if not (ahead < 0.5 * size or back > 1.5 * size):
            return "values and gradients disagree"
    for _ in range(_TRIED_LENGTHS):
        if downhill < value - 0.25 * length * size:
            return f"a step of {length:.1e} times the gradient lowers it by {value - downhill:.1e}: steps are too short"
        length *= 8.0
        downhill = float(problem.value_and_gradient(x - length * gradient)[0])
    return None


def _is_nothing(problem: Any, x: Vector, gradient: Vector) -> bool:
    """Whether even a step as long as x, or as one, would change f by less than the rounding of f(0).

    Losses may vanish at x, and their values with them.
    """
    at_zero = abs(float(problem.value_and_gradient(np.zeros_like(x))[0]))
    change = math.sqrt(dot(gradient, gradient)) * max(math.sqrt(dot(x, x)), 1.0)
    return math.isfinite(at_zero) and change <= float(np.finfo(float).eps) * at_zero
