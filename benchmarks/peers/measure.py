"""What is timed in one cell: a peer on one task.

Every variant climbs the ladder of settings, three rungs at a time, until the smallest gap is reached, a single run
takes longer than the patience, or the cell's time is spent. From the rung that reached a gap it climbs down again while
the gap is still reached, so that it is the loosest setting that counts; the fastest is then run a few times more. The
time to a gap is that of the fastest of all runs that ended within it; each run is judged by its own weights, because
not all are repeatable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from .clock import timed
from .problem import Task
from .solvers import Peer, Solve

#: Relative gaps (f − f*) / f* to be reached.
GOALS = (1e-3, 1e-6, 1e-9, 1e-12)
#: Seconds that repetitions of one setting may take together, and how many there are at most.
_REPEATING, _MOST_REPETITIONS = 1.0, 7
#: Rungs that the way up leaps over.
_STRIDE = 3
#: A variant this much slower than another at the same setting, and no better, is dropped.
_HOPELESS, _LONG_ENOUGH = 3.0, 0.03
FIRST_CALL_SECONDS = 180.0


@dataclass(frozen=True)
class Limits:
    """Seconds for a single run and for all runs of a cell; what compiling takes does not count."""

    patience: float
    total: float

    @classmethod
    def from_ours(cls, seconds: float, quick: bool) -> Limits:
        """Ten times our own time, within bounds; three times that for the cell."""
        patience = float(np.clip(10 * seconds, 0.5, 4.0) if quick else np.clip(10 * seconds, 1.0, 8.0))
        return cls(patience, 3 * patience)


@dataclass(frozen=True)
class Run:
    """One finished run."""

    variant: int
    setting: float
    seconds: float
    value: float

    def as_dict(self) -> dict[str, Any]:
        """For the pipe and the file."""
        return asdict(self)


def gap(value: float, smallest: float) -> float:
    """Relative; infinite where a solver went astray."""
    return (value - smallest) / abs(smallest) if np.isfinite(value) else np.inf


def times(runs: Iterable[Run], smallest: float) -> dict[float, Run]:
    """For every goal that was reached, the fastest run that did."""
    found: dict[float, Run] = {}
    for run in runs:
        for goal in GOALS:
            if gap(run.value, smallest) <= goal and (goal not in found or run.seconds < found[goal].seconds):
                found[goal] = run
    return found


class Cell:
    """The runs of one peer on one task. ``tell`` hears of everything at once, for this process may be killed."""

    def __init__(
        self,
        peer: Peer,
        task: Task,
        smallest: float,
        limits: Limits,
        tell: Callable[[dict[str, Any]], None],
        known: Iterable[Run] = (),
    ) -> None:
        self.peer, self.task, self.smallest, self.limits, self.tell = peer, task, smallest, limits, tell
        self.solves: dict[int, Solve] = {}
        self.runs: list[Run] = list(known)
        self.begun = time.perf_counter()

    @property
    def spent(self) -> bool:
        """Whether the cell's time is over."""
        return time.perf_counter() - self.begun > self.limits.total

    def run(self, variant: int, setting: float) -> Run:
        """One run; the first of a variant is repeated, and only the second one counts."""
        with threadpool_limits(self.peer.variants[variant]["threads"]):
            if variant not in self.solves:
                self._warm_up(variant)
            self.tell({"at_most": 1.5 * self.limits.patience + 1.0})
            seconds, w = timed(lambda: self.solves[variant](setting))
        with threadpool_limits(1):  # OpenBLAS' threads spin for a while after a call, beside the next run
            value = self.task.value(w)
        made = Run(variant, setting, seconds, value)
        self.runs.append(made)
        self.tell({"run": made.as_dict()})
        return made

    def _warm_up(self, variant: int) -> None:
        """Convert what the peer wants converted, compile, load libraries: untimed, and told."""
        begun = time.perf_counter()
        self.tell({"at_most": FIRST_CALL_SECONDS})
        prepared, self.solves[variant] = timed(lambda: self.peer.prepare(self.task, **self.peer.variants[variant]))
        first = timed(lambda: self.solves[variant](self.peer.ladder[0]))[0]
        second = timed(lambda: self.solves[variant](self.peer.ladder[0]))[0] if first > 0.005 else first
        self.tell({"warm_up": {"variant": variant, "prepare": prepared, "first": first - min(first, second)}})
        self.begun += time.perf_counter() - begun

    def climb(self) -> None:
        """Up the ladder with all variants side by side, three rungs at a time."""
        alive = set(range(len(self.peer.variants)))
        ladder = self.peer.ladder
        for place in sorted({*range(min(1, len(ladder) - 1), len(ladder), _STRIDE), len(ladder) - 1}):
            step = {}
            for variant in sorted(alive):
                step[variant] = made = self.run(variant, ladder[place])
                if gap(made.value, self.smallest) <= GOALS[-1] or made.seconds > self.limits.patience:
                    alive.discard(variant)
                if self.spent:
                    return
            alive -= _hopeless(step, self.smallest)
            if not alive:
                return

    def refine(self) -> None:
        """For each goal, down again while it is still reached: the loosest setting is the fastest."""
        ladder = self.peer.ladder
        for goal in GOALS:
            while (best := times(self.runs, self.smallest).get(goal)) is not None and not self.spent:
                tried = {ladder.index(run.setting): run for run in self.runs if run.variant == best.variant}
                loosest = min(place for place, run in tried.items() if gap(run.value, self.smallest) <= goal)
                if loosest == 0 or loosest - 1 in tried:
                    break
                self.run(best.variant, ladder[loosest - 1])

    def repeat(self) -> None:
        """The fastest setting for each goal once more, and once more."""
        for choice in _choices(times(self.runs, self.smallest)):
            if choice.seconds > self.limits.patience / 2:
                return
            for _ in range(int(np.clip(_REPEATING / max(choice.seconds, 1e-6), 2, _MOST_REPETITIONS))):
                self.run(choice.variant, choice.setting)


def _hopeless(step: dict[int, Run], smallest: float) -> set[int]:
    """Variants that others beat by far."""
    dropped = set()
    for variant, run in step.items():
        for other in step.values():
            slower = run.seconds > _LONG_ENOUGH and run.seconds > _HOPELESS * other.seconds
            if slower and gap(other.value, smallest) <= 3 * max(gap(run.value, smallest), GOALS[-1]):
                dropped.add(variant)
    return dropped


def _choices(reached: dict[float, Run]) -> Iterator[Run]:
    """Distinct settings, the fastest first."""
    seen = set()
    for run in sorted(reached.values(), key=lambda run: run.seconds):
        if (run.variant, run.setting) not in seen:
            seen.add((run.variant, run.setting))
            yield run
