"""SARAH: descent along a recursive gradient estimate (Nguyen, Liu, Scheinberg & Takáč 2017).

Outer iteration: v = ∇f(x), x ← x − step · v. Then, with a batch I of b rows and x₋ the point before x:

    v ← (1/b) Σ_{i∈I} (∇f_i(x) − ∇f_i(x₋)) + v
    x ← x − step · v

Every step counts 2b, the first one too.
"""

from __future__ import annotations

from dataclasses import dataclass

from trsvr.parts.gradients import SARAHGradient
from trsvr.solvers import lazy
from trsvr.solvers.descent import InnerLoopDescent


@dataclass(frozen=True)
class SARAH(InnerLoopDescent):
    """Stochastic recursive gradient.

    Parameters
    ----------
    step : float or "auto"
        Step size; "auto" is the one of `trsvr.theory.recommended_step` for this batch size.
    batch_size : int
        b, rows per step, drawn uniformly with replacement.
    inner_steps : int or "auto"
        S, steps per outer iteration; "auto" is ⌈N/b⌉.

    Notes
    -----
    On sparse rows with an `L2` regulariser a step costs the nonzeros of its batch and not d: untouched coordinates are
    brought up to date when a row needs them (`trsvr.solvers.lazy`). With the double well that would not be exact, so
    dense vectors are used, as they are for batches with about as many nonzeros as columns.
    """

    name = "sarah"
    estimator = SARAHGradient()
    sparse_steps = staticmethod(lazy.sarah_steps)
    rounds = 1
