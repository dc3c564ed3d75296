"""Checkpoints of runs whose rows are on the workers: killed and resumed, they end with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from small import LENGTHS, classification, cut

import trsvr
import trsvr.dask
from trsvr import problems
from trsvr.engine import checkpoint as files

LONG = [9 * length for length in LENGTHS[3]]


class Crash(Exception):
    """Stands for the end of the process: nothing after it is written."""


def linear(client, d=9):
    X, y = classification(sum(LONG), d)
    return trsvr.dask.LinearModel(cut(X, LONG), cut(y, LONG), client=client)


def softmax(client, rows_at_once=500):
    X, _ = classification(700, 5)
    y = (X[:, :3] + np.random.default_rng(0).gumbel(size=(700, 3))).argmax(axis=1)
    options = {"rows_at_once": rows_at_once, "client": client}
    return trsvr.dask.LinearModel(cut(X, LENGTHS[3]), cut(y, LENGTHS[3]), problems.Softmax(), **options)


def few_rows(client):
    return softmax(client, None)


@pytest.mark.parametrize(
    ("make", "solver", "options"),
    [
        (linear, trsvr.TRSVR(alpha=2.0, batch_size=20, inner_steps=15), {"max_epochs": 5, "tol": None}),
        (linear, trsvr.TRSVR(), {}),
        (linear, trsvr.TRSVR(), {"x0": np.full(9, 40.0)}),
        (linear, trsvr.TRSVR(norm="diagonal"), {}),
        (linear, trsvr.TRSVR(norm="diagonal"), {"x0": np.full(9, 10.0)}),
        (softmax, trsvr.TRSVR(), {}),
        (few_rows, trsvr.TRSVR(), {"x0": np.full(15, 5.0) * np.arange(15)}),
    ],
    ids=["paper", "dense", "dense, refused steps", "diagonal", "diagonal, refused steps", "softmax", "few rows"],
)
def test_crashes_after_every_epoch_change_nothing(client, tmp_path, make, solver, options):
    """A new problem object, and so new names of tasks, after every crash; the trace is compared to the last bit."""
    whole = trsvr.minimize(make(client), solver, **options)
    kept = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1, **options}
    crashes = 0

    def crash(result) -> None:
        nonlocal crashes
        if result.epochs in (1, 3) and crashes < result.epochs < whole.epochs:
            crashes = result.epochs
            raise Crash

    while True:
        try:
            result = trsvr.minimize(make(client), solver, callback=crash, **kept)
            break
        except Crash:
            continue
    assert crashes == 3
    assert result.status is whole.status
    assert np.array_equal(result.x, whole.x)
    timeless = [one.trace.drop(columns="seconds") for one in (result, whole)]
    np.testing.assert_array_equal(*timeless)


CHILD = """
import sys, time
import dask.array as da
import distributed
import trsvr, trsvr.dask

folder, address = sys.argv[1:]
client = distributed.Client(address)
problem = trsvr.dask.LinearModel(*trsvr.dask.read_npy_stack(folder + "/X", folder + "/y"), client=client)
trsvr.minimize(
    problem, checkpoint=folder + "/run.ckpt", checkpoint_every=1, callback=lambda result: time.sleep(1.0)
)
"""


def test_a_killed_process_is_continued_by_another(client, tmp_path):
    """SIGKILL, and the same files read again; the fingerprint is made where the rows are."""
    import dask.array as da

    X, y = classification(6300, 9)
    da.to_npy_stack(tmp_path / "X", da.from_array(X, chunks=(1500, -1)))
    da.to_npy_stack(tmp_path / "y", da.from_array(y, chunks=1500))
    path = tmp_path / "run.ckpt"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), client.scheduler.address],
        env={**os.environ, "TRSVR_QUIET": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    epoch = 0
    while epoch < 2 and child.poll() is None and time.monotonic() < deadline:
        found = files.newest_intact(path, quiet=True)
        epoch = 0 if found is None else found[0]["run"]["epoch"]
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(20)
    assert epoch >= 2
    stacks = trsvr.dask.read_npy_stack(tmp_path / "X", tmp_path / "y")
    problem = trsvr.dask.LinearModel(*stacks, client=client)
    with trsvr.dask.Traffic(client) as traffic:
        problem.fingerprint()
        counts = traffic.counts()
    assert counts.rounds == 1
    assert counts.to_caller < 5 * 200
    assert counts.between_workers == 0
    assert counts.blocks_copied == 0
    result = trsvr.resume(path, problem)
    whole = trsvr.minimize(problem)
    assert result.epochs > epoch
    assert np.array_equal(result.x, whole.x)
    np.testing.assert_array_equal(*[one.trace.drop(columns="seconds") for one in (result, whole)])
    # Other rows, or the same rows cut elsewhere, are another problem: the order of summing would differ.
    other = trsvr.dask.LinearModel(stacks[0].rechunk((2100, -1)), stacks[1], client=client)
    with pytest.raises(files.CheckpointError, match="problem"):
        trsvr.resume(path, other)
