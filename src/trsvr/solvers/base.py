"""What the loop in `trsvr.engine` and the algorithms say to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from trsvr import _check
from trsvr._compile import compiled_for, is_record
from trsvr._vectors import Vector
from trsvr.problems.margins import Indices
from trsvr.problems.plain import PlainKernels
from trsvr.problems.protocol import FiniteSum


class EpochRows(Protocol):
    """The random rows of one epoch, from the loop."""

    def slices(self, batch_size: int, steps: int) -> Iterator[Indices]:
        """Indices of ``steps`` batches, in slices of whole batches that are short enough to interrupt between."""

    def random(self) -> np.random.Generator:
        """The epoch's random numbers, for methods that draw otherwise."""


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
        Scratch; not part of the state.
    """

    x: Vector
    memory: Any
    value: float = float("nan")
    gradient: Vector = field(default_factory=lambda: np.empty(0))
    scalars: dict[str, float] = field(default_factory=dict)
    work: Any = field(default=None, repr=False)

    def record(self) -> dict[str, Any]:
        """Everything that a later process needs to go on, as a flat record."""
        arrays = {f"memory.{name}": array for name, array in self.memory._asdict().items()}
        return {"x": self.x, "value": self.value, "gradient": self.gradient, **arrays, **self.scalars}


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
