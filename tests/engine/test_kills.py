"""kill -9 at random moments of a run that is kept: whatever the moment, the run is continued to the same bits.

Children are forked from this process, which has everything compiled and loaded, so that their short lives are spent in
runs and not in imports.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import numpy as np
import pytest

import trsvr
from cases import note
from trsvr.engine import checkpoint as files

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SOLVERS = [
    trsvr.TRSVR(batch_size=20, inner_steps=6),
    trsvr.SVRG(),
    trsvr.SAGA(),
    trsvr.SDCA(),
    trsvr.LBFGS(),
    trsvr.Adam(),
    trsvr.TRSVR(alpha=0.3, batch_size=20, inner_steps=10),
    trsvr.TrustRegion(initial_radius=1e-2),
]
OPTIONS = {"max_epochs": 25, "tol": None, "threads": 1}


def start(problem, solver, path):
    """A child that begins the run, or goes on with it; returns its process number."""
    child = os.fork()
    if child == 0:
        try:
            trsvr.minimize(problem, solver, checkpoint=path, checkpoint_every=1, **OPTIONS)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return child


def seconds_of(problem, solver, folder):
    """How long a run takes that nobody kills."""
    begun = time.perf_counter()
    _, status = os.waitpid(start(problem, solver, folder / "whole.ckpt"), 0)
    assert status == 0
    return time.perf_counter() - begun


def trial(problem, solver, whole, path, moments, seconds):
    """Kill a run once at a random moment, and go on; returns the epoch it had reached on the disk, None if too late."""
    child = start(problem, solver, path)
    time.sleep(moments.uniform(0.0, seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0
    found = files.newest_intact(path)
    reached = -1 if found is None else found[0]["run"]["epoch"]
    if not os.WIFSIGNALED(status) or (found is not None and "status" in found[0]):
        return None
    result = trsvr.minimize(problem, solver, checkpoint=path, checkpoint_every=1, **OPTIONS)
    assert np.array_equal(result.x, whole.x), f"other bits after a kill in epoch {reached}"
    assert result.trace.drop(columns="seconds").equals(whole.trace.drop(columns="seconds"))
    assert {entry.name for entry in path.parent.glob(f"{path.name}*")} <= {path.name, f"{path.name}.previous"}
    return reached


def kill(problem, folder, count, seed):
    """So many kills, one solver after the other; returns the epochs on the disk at each."""
    moments = random.Random(seed)
    wholes = [trsvr.minimize(problem, solver, **OPTIONS) for solver in SOLVERS]
    lengths = [seconds_of(problem, solver, folder_of(folder, k)) for k, solver in enumerate(SOLVERS)]
    reached = []
    attempt = 0
    while len(reached) < count:
        k = attempt % len(SOLVERS)
        note(attempt=attempt, solver=SOLVERS[k], seed=seed)
        attempt += 1
        assert attempt < 20 * count, "the runs are over before they are killed"
        path = folder / f"{attempt}.ckpt"
        epoch = trial(problem, SOLVERS[k], wholes[k], path, moments, lengths[k])
        if epoch is not None:
            reached.append(epoch)
        for entry in folder.glob(f"{attempt}.ckpt*"):
            entry.unlink()
    return reached


def folder_of(folder, k):
    made = folder / str(k)
    made.mkdir()
    return made


# A fork beside other threads could meet a lock that nobody will open; here the others wait for work, holding none.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_few_kills(convex, tmp_path):
    kill(convex[0], tmp_path, 6, seed=1)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_two_hundred_kills(convex, tmp_path):
    reached = kill(convex[0], tmp_path, 200, seed=2)
    print(f"\n{len(reached)} kills, on the disk: nothing {reached.count(-1)} times, else epoch", sorted(set(reached)))
