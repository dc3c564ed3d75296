"""SDCA: dual coordinate ascent (Shalev-Shwartz & Zhang 2013; for the logistic loss Yu, Huang & Lin 2011).

Every row has a dual variable u_i, and w = −(1/(λN)) Σ s_i u_i x_i throughout (s_i: weights). A step on row i changes
u_i so that the dual is as large as it can be by that alone:

    z = x_iᵀw
    u₊ = φ'(z₊) with z₊ = z − q (u₊ − u_i),   q = s_i ‖x_i‖² / (λN)
    w ← w − s_i (u₊ − u_i) x_i / (λN),   u_i ← u₊

It is a variance-reduced method without a reference point and without a step size: −s_i u_i x_i is what it remembers of
row i, as SAGA's table does, and at the solution no step moves anything. A step costs the nonzeros of its row. An epoch
is one step on every row, in shuffled buckets of consecutive rows. `trsvr.problems.dual` has the steps, the treatment of
an intercept, and how threads share an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from trsvr import _check
from trsvr._arrays import Vector
from trsvr.parts.gradients import NoMemory
from trsvr.problems.base import Problem
from trsvr.problems.dual import BUCKET, DualAscent, why_no_dual
from trsvr.solvers.base import EpochReport, EpochRows, Solver, State


@dataclass(frozen=True)
class SDCA(Solver):
    """Stochastic dual coordinate ascent, for linear models with one output and the penalty `L2`.

    Parameters
    ----------
    bucket_size : int
        Consecutive rows that are processed together, at most; the buckets' order is random, and new in each epoch.

    Notes
    -----
    The dual point is made from x0: the slopes there, times what makes the dual largest. From x0 = 0 that is a good
    beginning, from the minimiser it stays there. The number of epochs grows like 1 + ‖x_i‖²/(λN): where λN is tiny,
    or the columns are few, Newton steps (`TRSVR`) are better.
    """

    bucket_size: int = BUCKET

    def __post_init__(self) -> None:
        _check.whole("bucket_size", self.bucket_size)

    @property
    def needs_reference(self) -> bool:
        """Whether every epoch begins with a full gradient."""
        return False

    def lasts_long(self, problem: Problem) -> bool:
        """Python sees every epoch, and large ones in parts."""
        return False

    def check(self, problem: Problem) -> None:
        """Raise ValueError if this cannot run on the problem."""
        why = why_no_dual(problem)
        if why:
            raise ValueError(f"solver SDCA needs {why}")

    def init(self, problem: Problem, x: Vector) -> State:
        """State before the first epoch."""
        ascent = DualAscent(problem, self.bucket_size)
        ascent.warm_up()
        return State(x=x, memory=NoMemory(), own=ascent)

    def epoch(self, problem: Problem, state: State, rows: EpochRows) -> EpochReport:
        """A step on every row."""
        ascent = state.own
        assert isinstance(ascent, DualAscent)
        report = EpochReport(batch_size=1)
        if not ascent.begun:
            ascent.begin(state.x)
            report.gradient_evaluations = problem.n_samples
        report.steps = report.inner_steps = ascent.epoch(state.x, rows.draws, 0, rows.time_is_up)
        report.gradient_evaluations += report.steps
        return report
