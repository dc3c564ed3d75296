"""SAGA: descent with a table of gradients instead of a reference point (Defazio, Bach & Lacoste-Julien 2014).

With t_i the gradient of component i when it was last drawn and a batch I of b rows:

    ḡ = (1/b) Σ_{i∈I} (∇f_i(x) − t_i) + mean of all t
    x ← x − step · ḡ,   t_i ← ∇f_i(x) for i in I

An epoch is ⌈N/b⌉ steps. For linear models the table is one number per row; see `trsvr.parts.SAGAGradient`.
"""

from __future__ import annotations

from dataclasses import dataclass

from trsvr.parts.gradients import SAGAGradient
from trsvr.solvers import lazy
from trsvr.solvers.descent import Descent


@dataclass(frozen=True)
class SAGA(Descent):
    """Incremental gradient with a table.

    Parameters
    ----------
    step : float or "auto"
        Step size; "auto" is 1/(2 L_max + min(2Nμ, L_max)), as in scikit-learn, and for batches what
        `trsvr.theory.recommended_step` says.
    batch_size : int
        b, rows per step, drawn uniformly with replacement.

    Notes
    -----
    On sparse rows with an `L2` regulariser a step costs the nonzeros of its batch and not d: untouched coordinates are
    brought up to date when a row needs them (`trsvr.solvers.lazy`). With the double well that would not be exact, so
    dense vectors are used, as they are for batches with about as many nonzeros as columns.
    """

    name = "saga"
    estimator = SAGAGradient()
    sparse_steps = staticmethod(lazy.saga_steps)
