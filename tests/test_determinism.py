"""Same seed, same bits: in every process, on any number of threads, however fast the clock goes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

import trsvr
from trsvr.engine import draws

SCRIPT = """
import hashlib, sys
import numpy as np, scipy.sparse, trsvr
random = np.random.default_rng(4)
X = random.normal(size=(30_000, 12))
S = scipy.sparse.random(3_000, 2_000, density=0.004, random_state=random, format="csr")
problems = [
    trsvr.problems.logistic(X, X[:, 0] + random.logistic(size=30_000) > 0),
    trsvr.problems.logistic(S, np.arange(3_000) % 2, l2=1e-3),
]
digest = hashlib.sha256()
for problem in problems:
    for solver in (trsvr.TRSVR(), trsvr.SVRG(), trsvr.SAGA(), trsvr.LBFGS()):
        result = trsvr.minimize(problem, solver, max_epochs=3, threads=int(sys.argv[1]))
        digest.update(result.x.tobytes() + result.trace.drop(columns="seconds").to_numpy().tobytes())
print(digest.hexdigest())
"""


def test_processes_and_threads():
    """1, 2 and 4 threads, each in a process of its own, with hashes of strings that differ."""
    answers = set()
    for threads in (1, 2, 4):
        child = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(threads)],
            env={**os.environ, "PYTHONHASHSEED": str(threads), "TRSVR_QUIET": "1"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=500,
            check=True,
        )
        answers.add(child.stdout)
    assert len(answers) == 1


@pytest.mark.parametrize("solver", [trsvr.SVRG(), trsvr.SAGA(), trsvr.SARAH(batch_size=3)], ids=lambda s: s.name)
def test_the_clock_does_not_decide_where_sparse_steps_are_rounded(monkeypatch, solver):
    """Untouched coordinates move by powers: cut elsewhere, the same powers round differently."""
    random = np.random.default_rng(1)
    S = scipy.sparse.random(600, 500, density=0.01, random_state=random, format="csr")
    problem = trsvr.problems.logistic(S, np.arange(600) % 2, l2=1e-3)
    found = []
    for seconds in (0.05, 0.0, 1e9):
        monkeypatch.setattr(draws, "_SLICE_SECONDS", seconds)
        found.append(trsvr.minimize(problem, solver, max_epochs=3, tol=None).x)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("strength", [5.702261677477436e-06, 0.0123])
def test_automatic_steps_where_the_krylov_space_ends_early(strength):
    """An eigenvalue method that then goes on with random numbers of its own gave other bits every fifth time."""
    problem = trsvr.problems.LinearModel(
        np.zeros((2, 5)), [-1.0, 1.0], trsvr.problems.SquaredHinge(), trsvr.problems.L2(strength)
    )
    steps = {trsvr.theory.recommended_step(problem, "sarah", batch_size=2) for _ in range(200)}
    assert len(steps) == 1
    assert steps.pop() == pytest.approx(0.5 / strength, rel=1e-12)
