"""One measurement in a process of its own, which can be killed: most peers cannot be interrupted inside their C code.

The process is forked, so that it begins with the data in memory. The process it is forked from starts no threads,
because OpenMP's do not survive a fork: it runs no solver, but for one that compiles for ten seconds, on a few rows.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import trsvr

from . import problem
from .clock import timed
from .measure import FIRST_CALL_SECONDS, Cell, Limits, Run
from .problem import Task
from .solvers import Peer

_context = multiprocessing.get_context("fork")
Tell = Callable[[dict[str, Any]], None]


def in_a_process(work: Callable[[Tell], None], hear: Tell) -> str:
    """Run ``work(tell)`` in a fork; what it tells is heard here. Returns why it ended early, or "".

    A message ``{"at_most": seconds}`` allows so much time until the next one.
    """
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_child, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    allowed = FIRST_CALL_SECONDS
    try:
        while True:
            if not _heard(ours, allowed):
                return f"stopped after {allowed:.0f} s"
            message = ours.recv()
            if "failed" in message:
                return str(message["failed"])
            if "done" in message:
                return ""
            allowed = message.get("at_most", allowed)
            hear(message)
    except EOFError:
        process.join(5.0)
        return f"its process died (exit code {process.exitcode})"
    finally:
        if process.is_alive():
            process.kill()
        process.join()
        ours.close()


def _heard(pipe: Connection, seconds: float) -> bool:
    """Whether a message comes in time; while this process itself is suspended no time passes."""
    waited = 0.0
    while waited < seconds:
        begun = time.monotonic()
        if pipe.poll(0.25):
            return True
        waited += min(time.monotonic() - begun, 0.5)
    return False


def _child(work: Callable[[Tell], None], pipe: Connection) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # some peers print from C
        os.dup2(nowhere.fileno(), 2)
    try:
        work(pipe.send)
        pipe.send({"done": True})
    except BaseException as error:  # a peer's failure is a result too
        last = traceback.extract_tb(error.__traceback__)[-1]
        pipe.send({"failed": f"{type(error).__name__}: {str(error)[:200]} ({last.name})"})
    finally:
        pipe.close()
        os._exit(0)


_compiled: dict[tuple[str, bool], float] = {}


def _compile_once(peer: Peer, task: Task) -> float:
    """Seconds that it took, once for dense and once for sparse rows, what every forked process has from here on."""
    key = peer.name, task.data.is_sparse
    if key not in _compiled:
        few = Task(task.data.beginning(), task.l2)
        _compiled[key] = 0.0
        with contextlib.suppress(Exception):  # then it will fail in its cell, and be told there
            _compiled[key] = timed(lambda: peer.prepare(few, **peer.variants[0])(peer.ladder[0]))[0]
    return _compiled[key]


def measure(peer: Peer, task: Task, smallest: float, limits: Limits) -> dict[str, Any]:
    """Everything that was found out about a peer on a task, whether or not it came to an end."""
    refused = peer.missing() or peer.refuses(task)
    if refused:
        return {"runs": [], "warm_up": [], "note": refused}
    runs: list[dict[str, Any]] = []
    warm_up: list[dict[str, float]] = []
    floors: list[float] = []

    def hear(message: dict[str, Any]) -> None:
        if "run" in message:
            runs.append(message["run"])
        if "warm_up" in message:
            warm_up.append(message["warm_up"])
        if "floor" in message:
            floors.append(message["floor"])

    def climb(tell: Tell) -> None:
        tell({"floor": problem.floor(task.data, 5)})
        cell = Cell(peer, task, smallest, limits, tell)
        cell.climb()
        cell.refine()
        cell.repeat()
        tell({"floor": problem.floor(task.data, 5)})

    compiled = _compile_once(peer, task) if peer.compiles else 0.0
    note = in_a_process(climb, hear)
    for entry in warm_up:
        entry["first"] += compiled
    if note and runs:  # it was killed in mid-climb: what it had reached deserves its repetitions
        known = [Run(**run) for run in runs]

        def go_on(tell: Tell) -> None:
            cell = Cell(peer, task, smallest, limits, tell, known)
            cell.refine()
            cell.repeat()

        in_a_process(go_on, hear)
    return {"runs": runs, "warm_up": warm_up, "note": note, "floors": floors}


def reference(task: Task) -> dict[str, Any]:
    """The smallest value, from our two most precise methods, and the floor of this data."""
    found: dict[str, Any] = {}

    def work(tell: Tell) -> None:
        sum_over_X = problem.floor(task.data)
        model = trsvr.problems.logistic(task.X, task.y, l2=task.l2, intercept=task.data.intercept)
        default = trsvr.minimize(model)
        polished = trsvr.minimize(model, trsvr.TrustRegion(), x0=default.x, tol=1e-15, max_epochs=60)
        values = {"default": task.value(default.x), "polished": task.value(polished.x)}
        origin = np.zeros(model.n_parameters)
        passes = []
        for _ in range(20):
            begun = time.perf_counter()
            model.value_and_gradient(origin)
            passes.append(time.perf_counter() - begun)
        tell({"found": {
            "smallest": min(values.values()), "values": values, "at_zero": task.value(origin),
            "gradient_norm": float(np.linalg.norm(polished.gradient)), "epochs": default.epochs,
            "passes": default.passes, "floor": sum_over_X, "full_pass": min(passes),
        }})  # fmt: skip

    note = in_a_process(work, lambda message: found.update(message.get("found", {})))
    if not found:
        raise RuntimeError(f"{task.data.name}, λ = {task.l2:g}: no reference could be computed: {note}")
    return found
