"""What the loop in `trsvr.engine` and the algorithms say to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import compiled_for, is_record
from trsvr._draws import Draws
from trsvr.problems.base import Problem
from trsvr.problems.plain import PlainKernels

#: With ``tol="auto"`` a run ends where this part of |f| is left to gain: the loop's rule, which solvers look ahead to.
AUTO_DECREASE = 1e-12


class EpochRows(Protocol):
    """The random rows of one epoch, from the loop."""

    @property
    def draws(self) -> Draws:
        """The epoch's random numbers, for methods that draw otherwise."""

    def slices(self, batch_size: int, steps: int, at_once: int | None = None) -> Iterator[Indices]:
        """Indices of ``steps`` batches, in slices of whole batches that are short enough to interrupt between.

        ``at_once`` fixes the number of batches in a slice, where results depend on it; else it follows the clock.
        """

    def time_is_up(self) -> bool:
        """Whether the epoch should end as soon as it can."""


class Goal(NamedTuple):
    """What a run may end with: the gradient's largest entry, and what is left to gain. Zero: unknown."""

    gradient: float = 0.0
    decrease: float = 0.0


class Progress(NamedTuple):
    """What a solver that judges its own steps knows of convergence."""

    expected_decrease: float = math.nan  # how far f is above its minimum, about; NaN where only the gradient can tell
    at_floor: bool = False  # whether values no longer tell points apart
    may_be_saddle: bool = False  # whether a point where the gradient vanishes may be none of a minimum
    gap_bound: float = math.nan  # how far f is above its minimum at most, where that was looked at
    stuck: str = ""  # why that may be no floor
    gained: float = math.nan  # how far f has fallen, by the solver's account: it measures f where there are no values


def _never() -> bool:
    return False


class Snapshots(Protocol):
    """What changes, as a flat dictionary of arrays and numbers and back."""

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot; raises ValueError if it does not fit."""


@dataclass
class State:
    """What changes during a run: arrays and numbers, nothing else.

    ``value`` and ``gradient`` are f and ∇f at x, where the loop has just computed them: at the beginning of every epoch
    for methods with a reference point.
    """

    x: Vector  # the iterate
    memory: Any  # a record of arrays: what the gradient estimator remembers
    value: float = float("nan")
    gradient: Vector = field(default_factory=lambda: np.empty(0))
    scalars: dict[str, float] = field(default_factory=dict)  # numbers of the solver's own
    work: Any = field(default=None, repr=False)  # scratch, not part of the state
    own: Snapshots | None = field(default=None, repr=False)  # what else the solver remembers from epoch to epoch
    progress: Progress | None = None  # what the solver knows of convergence at x, if it judges its steps
    checkpointed: bool = False  # whether this run writes checkpoints: a solver may have to remember more for that
    goal: Goal = field(default_factory=Goal)  # what would end the run at x, where the loop knows it
    time_is_up: Callable[[], bool] = field(default=_never, repr=False)  # the epoch should end as soon as it can

    def snapshot(self) -> dict[str, Any]:
        """Everything that a later process needs to go on, as a flat dictionary of arrays and numbers."""
        parts = {"memory": self.memory._asdict(), "scalars": self.scalars}
        if self.own is not None:
            parts["work"] = self.own.snapshot()
        inner = {f"{part}.{name}": entry for part, entries in parts.items() for name, entry in entries.items()}
        return {"x": self.x, "value": self.value, "gradient": self.gradient, **inner}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over a snapshot of the same solver on the same problem; raises ValueError if it does not fit."""
        put_into(self.x, snapshot["x"], "x")
        gradient = np.zeros(self.x.size)
        put_into(gradient, snapshot["gradient"], "gradient")
        self.value, self.gradient = float(snapshot["value"]), gradient
        for name, entry in self.memory._asdict().items():
            if isinstance(entry, np.ndarray):
                put_into(entry, snapshot[f"memory.{name}"], f"memory.{name}")
            elif entry != snapshot[f"memory.{name}"]:
                raise ValueError(f"memory.{name} is {snapshot[f'memory.{name}']}, expected {entry}")
        self.scalars.update({name: float(entry) for name, entry in within("scalars", snapshot).items()})
        if self.own is not None:
            self.own.restore(within("work", snapshot))


def within(part: str, snapshot: dict[str, Any]) -> dict[str, Any]:
    """The entries of a snapshot whose names begin with ``part.``, without that."""
    return {name.removeprefix(f"{part}."): entry for name, entry in snapshot.items() if name.startswith(f"{part}.")}


def put_into(array: NDArray[Any], entry: Any, name: str) -> None:
    """Copy a kept array into one of the same type and shape."""
    if not isinstance(entry, np.ndarray) or entry.shape != array.shape or entry.dtype != array.dtype:
        got = f"{entry.dtype} of shape {entry.shape}" if isinstance(entry, np.ndarray) else repr(entry)
        raise ValueError(f"{name} must be {array.dtype} of shape {array.shape}, got {got}")
    array[...] = entry


def flat(entry: Any, name: str = "") -> dict[str, Any]:
    """A dataclass of numbers, arrays, None, further dataclasses and what has a snapshot, as a flat dictionary.

    Any other kind raises TypeError: it would be lost in a checkpoint.
    """
    if entry is None:
        return {}
    if isinstance(entry, bool | int | float | np.ndarray | np.generic):
        return {name: entry.item() if isinstance(entry, np.generic) else entry}
    if is_dataclass(entry):
        inner = {known.name: vars(entry)[known.name] for known in fields(entry)}
    elif isinstance(entry, dict):
        inner = entry
    else:
        raise TypeError(f"{name}: {type(entry).__name__} cannot be kept in a checkpoint")
    prefix = f"{name}." if name else ""
    return {key: found for part, value in inner.items() for key, found in flat(value, prefix + part).items()}


def refill(kept: Any, snapshot: dict[str, Any], but: tuple[str, ...] = ()) -> None:
    """Put what `flat` has made of a dataclass back into a fresh one, except some of its fields."""
    for name, present in vars(kept).items():
        if is_dataclass(present):
            refill(present, within(name, snapshot))
        elif name not in but:
            setattr(kept, name, snapshot.get(name))


def refuse_other_version(snapshot: dict[str, Any], version: int) -> None:
    """Raise ValueError if a snapshot of the adaptive mode is of a release that went other ways."""
    if snapshot.get("version") != version:
        raise ValueError(
            f"its snapshot of the adaptive mode has version {snapshot.get('version', 1)}, of a release with "
            f"other coordinates or random numbers, or that kept other things; this one reads version {version}. "
            "Begin the run anew, in another file"
        )


@dataclass
class EpochReport:
    """What one epoch did; ``outcome`` is what `Solver.judge` needs to know of it."""

    steps: int = 0
    gradient_evaluations: int = 0
    hessian_products: int = 0
    alpha: float = float("nan")
    batch_size: int = 0
    inner_steps: int = 0
    radius: float = float("nan")
    boundary_fraction: float = float("nan")
    cg_iterations: float = float("nan")
    negative_curvature: int = 0
    rejected: int = 0
    curvature_rows: int = 0
    outcome: Any = None


class Solver:
    """An algorithm: a frozen configuration; what changes is in the `State`.

    A solver has `check`, `init` and `epoch`; all else has a default. What changes from epoch to epoch is in the state's
    x, memory, scalars or ``own``: only that is in a checkpoint.
    """

    judges: ClassVar[bool] = False  # whether `judge` may go back to where an epoch began
    drives: ClassVar[bool] = False  # whether its loop is not ours: `drive`
    centres: ClassVar[bool] = False  # whether it works with centred columns

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""
        return True

    @property
    def estimates_curvature(self) -> bool:
        """Whether it takes differences of gradients for products with the Hessian."""
        return False

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this solver cannot run on this problem."""

    def warm_up(self, problem: Problem, state: State) -> None:
        """Compile (or load) what full passes and epochs need, so that a clock started afterwards does not see it."""
        problem.warm_up()

    def begins_at_once(self, problem: Problem) -> bool:
        """Whether nothing is compiled before the first epoch, so that nobody need wait for it."""
        return not problem.compiles

    def lasts_long(self, problem: Problem) -> bool:
        """Whether a compiled call may last too long to wait for when a signal comes."""
        return problem.lasts_long

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """The solver that runs: a preset is one of its parts, and "auto" the number that theory recommends from x."""
        return self

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first epoch."""
        raise NotImplementedError

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """One epoch: changes the state."""
        raise NotImplementedError

    def draws(self, problem: Problem) -> tuple[int, int] | None:
        """Batch size and number of batches that an epoch will take from the loop's rows, where that is known."""
        return None

    def evaluate(self, problem: Problem, state: State, coming: Draws | None) -> tuple[float, Vector]:
        """Full value and gradient at x; ``coming`` are the draws of the next epoch, if there may be one."""
        return problem.value_and_gradient(state.x)

    def judge(self, problem: Problem, state: State, report: EpochReport) -> Progress:
        """Keep the epoch's point or go back, now that value and gradient there are known."""
        raise NotImplementedError

    def gap_bound(self, problem: Problem, state: State) -> float:
        """How far f is above its minimum at the state's point, at most; not a number where nothing is known."""
        # Where rows are elsewhere it would be one more round.
        return math.nan if problem.is_elsewhere else problem.gap_bound(problem.frame.outside(state.x))

    def close(self, state: State) -> None:
        """The run has ended by itself, and its state is not needed any more."""

    def drive(self, problem: Problem, state: State, report_epoch: Callable[[EpochReport], bool]) -> None:
        """Run to the end; ``report_epoch`` says after every iteration whether to stop."""
        raise NotImplementedError


class Preset(Solver):
    """Another solver, its ``method``, under a name and with settings of its own."""

    @property
    def method(self) -> Solver:
        """The solver that runs."""
        raise NotImplementedError

    @property
    def estimates_curvature(self) -> bool:
        """Whether it takes differences of gradients for products with the Hessian."""
        return self.method.estimates_curvature

    def begins_at_once(self, problem: Problem) -> bool:
        """Whether nothing is compiled before the first epoch."""
        return self.method.begins_at_once(problem)

    def lasts_long(self, problem: Problem) -> bool:
        """Whether a compiled call may last too long to wait for."""
        return self.method.lasts_long(problem)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        self.method.check(problem)

    def resolve(self, problem: Problem, x: Vector, recommended_step: Callable[..., float]) -> Solver:
        """That solver."""
        return self.method


class OwnSolver(Solver):
    """A user's object with `check`, `init` and `epoch`, and perhaps ``needs_reference``."""

    def __init__(self, given: Any) -> None:
        self._reference = bool(getattr(given, "needs_reference", True))  # a foreign object need not say
        self.check, self.init, self.epoch = given.check, given.init, given.epoch  # type: ignore[method-assign]

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""
        return self._reference


def as_solver(given: Any) -> Solver:
    """The solver itself, or a user's object as one; raises ValueError for anything else."""
    if isinstance(given, Solver):
        return given
    # A user's object need not be of any class of ours.
    if isinstance(given, type) or not all(hasattr(given, name) for name in ("check", "init", "epoch")):
        raise ValueError(f"solver must be a solver such as trsvr.TRSVR(), got {given!r}")
    return OwnSolver(given)


class Access(NamedTuple):
    """How an algorithm reaches a problem: its kernels, and the rows that indices stand for."""

    kernels: Any
    problem: Any

    def memory(self, estimator: Any) -> Any:
        """What an estimator remembers; over plain kernels a linear model is a problem like any other."""
        return estimator.memory(self.problem if is_record(self.kernels) else self.kernels)

    def rows(self, indices: Indices) -> Indices:
        """Indices as the kernels want them."""
        return self.problem.rows_of(indices) if is_record(self.kernels) else indices

    def warm_up_table(self, estimator: Any, state: State) -> None:
        """Compile the pass that a table of gradients begins with, on no rows."""
        if keeps_table(estimator) and is_record(self.kernels) and is_record(estimator):
            no_rows = self.kernels._replace(labels=self.kernels.labels[:0])
            compiled_for(_fill, no_rows, estimator)(no_rows, estimator, state.memory, state.x)
            state.memory.filled[0] = 0.0

    def fill_table(self, estimator: Any, state: State) -> bool:
        """That pass, which is counted; returns whether it was due."""
        if not keeps_table(estimator) or state.memory.filled[0]:
            return False
        compiled_for(_fill, self.kernels, estimator)(self.kernels, estimator, state.memory, state.x)
        return True

    def pieces(self, indices: Indices, batch_size: int) -> Iterator[tuple[Access, Indices]]:
        """Whole batches of indices, each with the kernels over memory in which these rows lie."""
        if not self.problem.is_elsewhere:
            yield self, self.rows(indices)
            return
        for here, numbers in self.problem.fetch(indices, batch_size):
            yield Access(here.kernels if is_record(self.kernels) else PlainKernels(here), here), numbers


def access(problem: Problem, *parts: object) -> Access:
    """Compiled kernels, where the problem has them and every part can be compiled; plain ones otherwise."""
    if is_record(problem.kernels) and all(map(is_record, parts)):
        return Access(problem.kernels, problem)
    return Access(PlainKernels(problem), problem)


def keeps_table(estimator: Any) -> bool:
    """Whether an estimator, which may be a user's, keeps a gradient of every row."""
    return hasattr(estimator, "fill")  # a user's estimator need not know of tables


def check_table(problem: Problem, estimator: Any) -> None:
    """Refuse a table of gradients, one of every row, for rows that are elsewhere."""
    if keeps_table(estimator) and problem.is_elsewhere:
        raise ValueError(
            f"gradient {type(estimator).__name__} keeps a table of all rows in this process, and the rows of "
            f"{type(problem).__name__} are elsewhere; SVRG, SARAH and TRSVR need no table"
        )


def check_batch(problem: Problem, batch_size: Any) -> None:
    """Refuse a batch larger than the problem."""
    _check.whole("batch_size", batch_size, at_most=problem.n_samples)


def _fill(kernels: Any, estimator: Any, memory: Any, x: Vector) -> None:
    estimator.fill(memory, kernels, x)
