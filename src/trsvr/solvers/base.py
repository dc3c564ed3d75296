"""What the loop in `trsvr.engine` and the algorithms say to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._compile import compiled_for, is_record
from trsvr.problems.plain import PlainKernels
from trsvr.problems.protocol import FiniteSum


class EpochRows(Protocol):
    """The random rows of one epoch, from the loop."""

    def slices(self, batch_size: int, steps: int, at_once: int | None = None) -> Iterator[Indices]:
        """Indices of ``steps`` batches, in slices of whole batches that are short enough to interrupt between.

        ``at_once`` fixes the number of batches in a slice, where results depend on it; else it follows the clock.
        """

    def random(self) -> np.random.Generator:
        """The epoch's random numbers, for methods that draw otherwise."""

    def time_is_up(self) -> bool:
        """Whether the epoch should end as soon as it can."""


class Wanted(NamedTuple):
    """What a run may end with: the gradient's largest entry, and what is left to gain. Zero: unknown."""

    gradient: float = 0.0
    decrease: float = 0.0


@dataclass
class State:
    """What changes during a run: arrays and numbers, nothing else.

    Attributes
    ----------
    x : array
        The iterate.
    value, gradient
        f and ∇f at x, where the loop has just computed them: at the beginning of every epoch for methods with a
        reference point.
    memory : record of arrays
        What the gradient estimator remembers.
    scalars : dict
        Numbers of the solver's own.
    work
        Scratch, not part of the state, unless it has ``record()`` and ``restore(record)``: then those are.
    kept : bool
        Whether this run writes checkpoints; a solver that must remember more for that does so then.
    wanted : Wanted
        What would end the run at x, where the loop knows it: more need not be done.
    """

    x: Vector
    memory: Any
    value: float = float("nan")
    gradient: Vector = field(default_factory=lambda: np.empty(0))
    scalars: dict[str, float] = field(default_factory=dict)
    work: Any = field(default=None, repr=False)
    kept: bool = False
    wanted: Wanted = field(default_factory=Wanted)

    def record(self) -> dict[str, Any]:
        """Everything that a later process needs to go on, as a flat record of arrays and numbers."""
        parts = {"memory": self.memory._asdict(), "scalars": self.scalars}
        if hasattr(self.work, "record"):
            parts["work"] = self.work.record()
        inner = {f"{part}.{name}": entry for part, entries in parts.items() for name, entry in entries.items()}
        return {"x": self.x, "value": self.value, "gradient": self.gradient, **inner}

    def restore(self, record: dict[str, Any]) -> None:
        """Take over a record of the same solver on the same problem; raises ValueError if it does not fit."""
        put_into(self.x, record["x"], "x")
        gradient = np.zeros(self.x.size)
        put_into(gradient, record["gradient"], "gradient")
        self.value, self.gradient = float(record["value"]), gradient
        for name, entry in self.memory._asdict().items():
            if isinstance(entry, np.ndarray):
                put_into(entry, record[f"memory.{name}"], f"memory.{name}")
            elif entry != record[f"memory.{name}"]:
                raise ValueError(f"memory.{name} is {record[f'memory.{name}']}, expected {entry}")
        self.scalars.update({name: float(entry) for name, entry in within("scalars", record).items()})
        if hasattr(self.work, "restore"):
            self.work.restore(within("work", record))


def within(part: str, record: dict[str, Any]) -> dict[str, Any]:
    """The entries of a record whose names begin with ``part.``, without that."""
    return {name.removeprefix(f"{part}."): entry for name, entry in record.items() if name.startswith(f"{part}.")}


def put_into(array: NDArray[Any], entry: Any, name: str) -> None:
    """Copy a recorded array into one of the same type and shape."""
    if not isinstance(entry, np.ndarray) or entry.shape != array.shape or entry.dtype != array.dtype:
        got = f"{entry.dtype} of shape {entry.shape}" if isinstance(entry, np.ndarray) else repr(entry)
        raise ValueError(f"{name} must be {array.dtype} of shape {array.shape}, got {got}")
    array[...] = entry


def record_of(work: Any, rebuilt: Iterable[str]) -> dict[str, Any]:
    """The fields of a dataclass as a flat record, except those that every epoch builds anew.

    A field may be None, a number, an array, a dict of those, or have a record of its own. Any other kind raises
    TypeError: it would be lost in a checkpoint.
    """
    found: dict[str, Any] = {}

    def add(name: str, entry: Any) -> None:
        if hasattr(entry, "record"):
            entry = entry.record()
        if isinstance(entry, dict):
            for inner, value in entry.items():
                add(f"{name}.{inner}", value)
        elif isinstance(entry, bool | int | float | np.ndarray | np.number):
            found[name] = entry
        elif entry is not None:
            raise TypeError(f"{name}: {type(entry).__name__} is neither recorded nor built anew by every epoch")

    for known in fields(work):
        if known.name not in rebuilt:
            add(known.name, getattr(work, known.name))
    return found


def restore_to(work: Any, record: dict[str, Any], rebuilt: Iterable[str]) -> None:
    """Put a record of `record_of` back into the fields of a fresh dataclass."""
    for known in fields(work):
        if known.name in rebuilt:
            continue
        present, inner = getattr(work, known.name), within(known.name, record)
        if hasattr(present, "restore"):
            present.restore(inner)
        elif isinstance(present, dict):
            present.update(inner)
        else:
            setattr(work, known.name, record.get(known.name))


@dataclass
class EpochReport:
    """What one epoch did."""

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


class Solver(Protocol):
    """An algorithm: a frozen configuration; what changes is in the `State`.

    A solver may also have ``judge(state, report)``, called when value and gradient at the epoch's end are known, which
    may go back to where the epoch began; ``evaluate(problem, state)``, if it keeps more of a full pass than value and
    gradient; ``drive(problem, state, report_epoch)``, if its loop is not ours; or ``draws(problem)``, the batch size
    and the number of batches that an epoch will take from the loop's rows. It may say in the state's scalars
    what it knows of convergence: ``expected_decrease`` of f, and ``at_floor`` when values no longer tell points apart.

    What changes from epoch to epoch is in the state's x, memory and scalars, or in a ``work`` that has a record: only
    that is in a checkpoint.
    """

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""

    def check(self, problem: FiniteSum) -> None:
        """Raise ValueError if this solver cannot run on this problem."""

    def init(self, problem: FiniteSum, x: Vector) -> State:
        """State before the first epoch."""

    def epoch(self, problem: FiniteSum, state: State, rows: EpochRows) -> EpochReport:
        """One epoch: changes the state."""


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

    def pieces(self, indices: Indices, batch_size: int) -> Iterator[tuple[Access, Indices]]:
        """Whole batches of indices, each with the kernels over memory in which these rows lie."""
        fetch = getattr(self.problem, "fetch", None)
        if fetch is None:
            yield self, self.rows(indices)
            return
        for here, numbers in fetch(indices, batch_size):
            yield Access(here.kernels if is_record(self.kernels) else PlainKernels(here), here), numbers


def access(problem: Any, *parts: object) -> Access:
    """Compiled kernels, where the problem has them and every part can be compiled; plain ones otherwise."""
    kernels = getattr(problem, "kernels", None)
    if is_record(kernels) and all(map(is_record, parts)):
        return Access(kernels, problem)
    return Access(PlainKernels(problem), problem)


def check_table(problem: FiniteSum, estimator: Any) -> None:
    """Refuse a table of gradients, one of every row, for rows that are elsewhere."""
    if hasattr(estimator, "fill") and hasattr(problem, "fetch"):
        raise ValueError(
            f"gradient {type(estimator).__name__} keeps a table of all rows in this process, and the rows of "
            f"{type(problem).__name__} are elsewhere; SVRG, SARAH and TRSVR need no table"
        )


def check_batch(problem: FiniteSum, batch_size: Any) -> None:
    """Refuse a batch larger than the problem."""
    _check.whole("batch_size", batch_size, at_most=problem.n_samples)


def _fill(kernels: Any, estimator: Any, memory: Any, x: Vector) -> None:
    estimator.fill(memory, kernels, x)


def warm_up_table(kernels: Any, estimator: Any, state: State) -> None:
    """Compile that pass, on no rows."""
    if hasattr(estimator, "fill") and is_record(kernels) and is_record(estimator):
        no_rows = kernels._replace(labels=kernels.labels[:0])
        compiled_for(_fill, no_rows, estimator)(no_rows, estimator, state.memory, state.x)
        state.memory.filled[0] = 0.0


def fill_table(kernels: Any, estimator: Any, state: State) -> bool:
    """The counted pass that a table of gradients begins with; returns whether it was due."""
    if not hasattr(estimator, "fill") or state.memory.filled[0]:
        return False
    compiled_for(_fill, kernels, estimator)(kernels, estimator, state.memory, state.x)
    return True
