"""SVRG: descent on variance-reduced gradients (Johnson & Zhang 2013), last iterate as the next reference.

Outer iteration: reference x̃ = x, full gradient g̃. Then S times, with a batch I of b rows:

    ḡ = (1/b) Σ_{i∈I} (∇f_i(x) − ∇f_i(x̃)) + g̃
    x ← x − step · ḡ
"""

from __future__ import annotations

from dataclasses import dataclass

from trsvr.parts.gradients import SVRGGradient
from trsvr.solvers import lazy
from trsvr.solvers.descent import InnerLoopDescent


@dataclass(frozen=True)
class SVRG(InnerLoopDescent):
    """Stochastic variance-reduced gradient.

    Parameters
    ----------
    step : float or "auto"
        Step size; "auto" is the one of `trsvr.theory.recommended_step` for this batch size.
    batch_size : int
        b, rows per step, drawn uniformly with replacement.
    inner_steps : int or "auto"
        S, steps per outer iteration; "auto" is ⌈2N/b⌉, as the paper recommends for convex problems.

    Notes
    -----
    On sparse rows with an `L2` regulariser a step costs the nonzeros of its batch and not d: untouched coordinates are
    brought up to date when a row needs them (`trsvr.solvers.lazy`). With the double well that would not be exact, so
    dense vectors are used, as they are for batches with about as many nonzeros as columns.
    """

    name = "svrg"
    estimator = SVRGGradient()
    sparse_steps = staticmethod(lazy.svrg_steps)
    rounds = 2
