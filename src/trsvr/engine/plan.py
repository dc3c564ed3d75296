"""What a run is to do, and whether a checkpoint belongs to it."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trsvr import _check, _threads
from trsvr._arrays import Vector
from trsvr._version import __version__
from trsvr.engine import fingerprint
from trsvr.engine.checkpoint import CheckpointError, Content
from trsvr.engine.keeper import difference
from trsvr.engine.stopping import GradientTest, Limits
from trsvr.problems.base import Problem
from trsvr.solvers.base import Solver, as_solver

_log = logging.getLogger("trsvr")


@dataclass(frozen=True)
class RunPlan:
    """What a run is to do; checked."""

    problem: Problem
    solver: Any
    start: Vector
    limits: Limits
    test: GradientTest
    seed: int
    trace_every: int
    threads: int | None

    def __post_init__(self) -> None:
        _ = self.method  # refuses what is no solver

    @cached_property
    def method(self) -> Solver:
        """The solver, with the members that a user's own may lack."""
        return as_solver(self.solver)

    def about(self, note: Content | None) -> Content:
        """What a checkpoint says of it."""
        with _threads.limit(self.threads):
            print_of_problem = self.problem.fingerprint()
        return {
            "configuration": {
                "solver": fingerprint.of_solver(self.solver),
                "limits": asdict(self.limits),
                "tol": fingerprint.of_solver(self.test.tol),
                "seed": self.seed,
                "trace_every": self.trace_every,
            },
            "start": self.start,
            "fingerprint": print_of_problem,
            "problem": repr(self.problem),
            "note": note,
        }


def plan_from(path: Path, content: Content, problem: Problem, solver: Any, threads: int | None) -> RunPlan:
    """The plan of a run, from its checkpoint."""
    try:
        kept = content["configuration"]
        made = fingerprint.solver_from(kept["solver"]) if solver is None else solver
        if made is None:
            raise ValueError(f"checkpoint {path}: its solver contains {kept['solver']['class']}; pass it as solver=…")
        return RunPlan(
            problem,
            made,
            checked_start(problem, content["start"]),
            Limits.checked(**kept["limits"]),
            GradientTest(fingerprint.solver_from(kept["tol"])),
            _check.whole("seed", kept["seed"], at_least=0),
            _check.whole("trace_every", kept["trace_every"]),
            None if threads is None else _check.whole("threads", threads),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a whole checkpoint: {error!r}") from None


def refuse_another_run(path: Path, content: Content, about: Content, except_limits: bool = False) -> None:
    """Raise CheckpointError unless a checkpoint belongs to this problem and configuration."""
    if content.get("fingerprint") != about["fingerprint"]:
        raise CheckpointError(
            f"the checkpoint {path} belongs to another problem: {_what_differs(content.get('problem'), about)}. "
            "Choose another file, or remove it to start over"
        )
    kept, wanted = dict(content.get("configuration") or {}), dict(about["configuration"])
    if except_limits:
        kept.pop("limits", None), wanted.pop("limits")
    found = difference(kept, wanted)
    if found is None and not np.array_equal(content.get("start"), about["start"]):  # type: ignore[arg-type]
        found = "x0 is another one"
    if found is not None:
        raise CheckpointError(
            f"the checkpoint {path} belongs to a run with another configuration: {found}. "
            "trsvr.resume continues it, also with new limits; choose another file, or remove it to start over"
        )
    if content.get("trsvr") != __version__:
        _log.warning(
            "%s was written by trsvr %s; this is %s: the run goes on, but its last digits may differ",
            *(path, content.get("trsvr"), __version__),
        )


def _what_differs(kept: Any, about: Content) -> str:
    """What is known of two problems that are not the same."""
    if not isinstance(kept, str):  # from a version that did not keep it
        return "data, loss, regulariser or weights differ"
    if kept == about["problem"]:
        return f"{kept} over other entries, labels or weights"
    return f"it was {kept}, this is {about['problem']}"


def checked_start(problem: Problem, x0: Any) -> Vector:
    """The starting point."""
    if x0 is None:
        return np.zeros(problem.n_parameters)
    return _check.vector("x0", x0, problem.n_parameters)
