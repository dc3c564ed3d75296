"""A second opinion before a doubtful end: damped steps from there, and from beside it, by a run that knows nothing.

A radius that has collapsed in a curved valley, S that rounding has spoilt, units that a column of J has lost: all of
them make a point look like a minimum to the run that they belong to, and to no other.
"""

from __future__ import annotations

import math

import numpy as np

from trsvr._arrays import Vector
from trsvr.parts.gradients import NoMemory
from trsvr.problems.plain import NotFinite
from trsvr.solvers.base import State
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.judgement import judge
from trsvr.solvers.levenberg_marquardt.run import Run
from trsvr.solvers.levenberg_marquardt.state import Damping, Point


def leads_lower(run: Run) -> bool:
    """Whether such a run finds lower values of f; what it knows is what the run goes on with then."""
    own, here = run.own, run.own.here
    assert here is not None
    longest = float(np.abs(here.x).max(initial=0.0)) or 1.0
    sizes = np.maximum(np.abs(here.x), rules.FELT * longest)  # zeros and nearly zeros are to move, too
    beside = sizes * np.cos(np.arange(1.0, here.x.size + 1.0))
    for part in rules.ANEW:
        try:
            found = _followed(run, here, here.x + part * beside)
        except NotFinite:
            continue
        if found is not None:
            for name in ("radius", "scaling", "same_units", "second", "curved", "switched", "held", "began", "last"):
                setattr(own, name, vars(found)[name])
            own.begun_anew += 1
            own.here, own.model, own.sine, own.contraction, own.misses = found.here, found.model, found.sine, 1.0, 0
            assert own.here is not None
            run.state.x[:] = own.here.x
            run.state.value, run.state.gradient = own.here.value, own.here.sums.gradient
            return True
    return False


def _followed(run: Run, here: Point, x: Vector) -> Damping | None:
    """Where a fresh run is as soon as f is lower than here; None if it ends before or takes too long."""
    own, target = run.own, here.value - rules.LITTLE * here.value
    damping = Damping(fine=own.fine, orthogonal=own.orthogonal, all_rows=own.all_rows, longest=own.longest)
    fresh = Run(run.chosen, run.problem, State(x=x, memory=NoMemory(), own=damping))
    try:
        own.passes += 1
        value, residuals = run.problem.value_at(x)
        if not math.isfinite(value):
            return None
        damping.here = fresh.look(x, value, residuals)
        for _ in range(rules.ANEW_TRIALS):
            before = fresh.begin()
            if damping.sine <= rules.CONVERGED or damping.misses > rules.MISSES or run.state.time_is_up():
                return None
            trial = fresh.propose()
            there = before.x + trial.damped.step
            own.passes += 1
            value, residuals = run.problem.value_at(there)
            damping.there = Point(there, value, residuals, before.sums) if math.isfinite(value) else None
            if not judge(fresh, before, trial):
                damping.radius *= rules.SHRINK  # its first radius is most likely far too large
            if damping.here.value < target:
                return damping
        return None
    finally:
        own.passes += damping.passes
