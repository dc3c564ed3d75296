"""Threads, forks, spawned children and Ctrl-C: a solve is right wherever it runs, and stops when asked to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import trsvr

SOLVER = trsvr.TRSVR(alpha=20.0, batch_size=100, inner_steps=20)


@pytest.fixture(scope="module")
def large():
    """400 000 entries: a full pass is cut into several pieces and shared among threads."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 10))
    y = np.where(X @ rng.normal(size=10) + rng.logistic(size=40_000) > 0, 1, -1)
    return trsvr.problems.logistic(X, y, l2=1e-2)


def test_results_do_not_depend_on_the_number_of_threads(large):
    """Bit by bit: sums are cut the same way, whoever works them off."""
    one, two, four = (trsvr.minimize(large, SOLVER, max_epochs=4, tol=None, threads=threads) for threads in (1, 2, 4))
    for other in (two, four):
        assert (one.x == other.x).all()
        assert (one.gradient == other.gradient).all()
        assert (one.trace["value"] == other.trace["value"]).all()
    assert len({large.value_and_gradient(np.ones(10))[0] for _ in range(20)}) == 1


def test_two_python_threads_solve_two_problems_at_once(large, convex):
    small, _ = convex
    alone = [trsvr.minimize(problem, SOLVER, max_epochs=5, tol=None) for problem in (large, small)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            futures = [
                pool.submit(trsvr.minimize, problem, SOLVER, max_epochs=5, tol=None, threads=threads)
                for problem, threads in ((large, 2), (small, None))
            ]
            for future, expected in zip(futures, alone, strict=True):
                assert (future.result(timeout=60).x == expected.x).all()


def test_many_python_threads_share_one_problem(large):
    """Its scratch vectors are lent to one caller at a time."""
    points = np.random.default_rng(1).normal(size=(6, 10))
    alone = [large.value_and_gradient(x) for x in points]
    wrong = []
    barrier = threading.Barrier(6)

    def work(k):
        barrier.wait()
        for _ in range(30):
            value, gradient = large.value_and_gradient(points[k])
            product = large.hessian_product(points[k], None, points[k])
            if value != alone[k][0] or (gradient != alone[k][1]).any() or not np.isfinite(product).all():
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert not wrong


FIRST_USE = """
import os, sys, threading
import numba, numpy as np, trsvr
sys.setswitchinterval(1e-6)
before = numba.config.CACHE_DIR
X = np.random.default_rng(0).normal(size=(400, 6))
problem = trsvr.problems.logistic(X, np.sign(X[:, 0]), l2=1e-2)
x, barrier, answers = np.ones(6), threading.Barrier(8), []
operations = [
    lambda: problem.value_and_gradient(x)[1],
    lambda: problem.hessian_product(x, None, x),
    lambda: problem.batch_gradient(x, [0, 1]),
    lambda: problem.hessian_product(x, [0, 1], x),
]
def work(k):
    barrier.wait()
    for turn in range(4):
        answers.append(operations[(k + turn) % 4]())
workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
assert len(answers) == 32, len(answers)
assert numba.config.CACHE_DIR == before, numba.config.CACHE_DIR
assert os.listdir() == [], os.listdir()
"""


def test_the_first_use_by_many_threads_at_once(tmp_path):
    """Numba's settings are the process's: they are as before, and no compiled code lies about where we stand."""
    for _ in range(3):
        run = subprocess.run(
            [sys.executable, "-c", FIRST_USE], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
        assert run.returncode == 0, run.stderr[-2000:]


CHILDREN = """
import multiprocessing, os, sys
import numpy as np, trsvr

def solve():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 10))
    y = np.where(X @ rng.normal(size=10) + rng.logistic(size=40_000) > 0, 1, -1)
    problem = trsvr.problems.logistic(X, y, l2=1e-2)
    solver = trsvr.TRSVR(alpha=20.0, batch_size=100, inner_steps=20)
    return trsvr.minimize(problem, solver, max_epochs=3, tol=None, threads=2).x

def send(pipe):
    pipe.send(solve())

if __name__ == "__main__":
    here = solve()  # the pool of threads exists before the fork
    for method in sys.argv[1:]:
        context = multiprocessing.get_context(method)
        ours, theirs = context.Pipe(duplex=False)
        children = [context.Process(target=send, args=(theirs,)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            assert ours.poll(60), method + ": no answer"
            assert (ours.recv() == here).all(), method
        for child in children:
            child.join(30)
            assert child.exitcode == 0, (method, child.exitcode)
        assert (solve() == here).all()  # and the parent goes on
    print("all the same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_and_spawned_children_give_the_same_answer(tmp_path):
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    run = subprocess.run(
        [sys.executable, script, "fork", "spawn"], capture_output=True, text=True, timeout=150, check=False
    )
    assert (run.returncode, run.stdout) == (0, "all the same\n"), run.stderr


# --------------------------------------------------------------------------------------------- Ctrl-C

LONG_INNER_LOOP = """
X = rng.normal(size=(2000, 6))
problem = trsvr.problems.logistic(X, np.sign(X[:, 0] + rng.normal(size=2000)), l2=1e-2)
solver = trsvr.TRSVR(alpha=20.0, batch_size=100, inner_steps=10**9)
"""

LONG_FULL_PASS = """
K = 400
X = rng.standard_normal(size=(200_000, 50), dtype=np.float32)
problem = trsvr.problems.LinearModel(X, np.arange(200_000) % K, trsvr.problems.Softmax(), penalty)
solver = trsvr.SVRG(step=1e-3, batch_size=1, inner_steps=1)
"""

# Many outputs make every row dear, and the matrix no larger: here a pass may not be one single piece.
LONG_PASS_OVER_A_SMALL_MATRIX = """
K = 2500
X = rng.standard_normal(size=(20_000, 50), dtype=np.float32)
problem = trsvr.problems.LinearModel(X, np.arange(20_000) % K, trsvr.problems.Softmax(), penalty)
solver = trsvr.SVRG(step=1e-3, batch_size=1, inner_steps=1)
"""

INTERRUPTED = """
import signal, sys, time
import numpy as np, trsvr
signal.signal(signal.SIGINT, signal.default_int_handler)  # even where the parent ignores it
trsvr.engine.signals._TWICE_SECONDS = 0.0  # a second one, soon after, would raise
rng = np.random.default_rng(0)
penalty = trsvr.problems.L2(1e-2) + trsvr.problems.DoubleWell(0.3, 0.5)
BUILD
problem.warm_up()
start = np.zeros(problem.n_parameters)
solver.resolve(problem, start, trsvr.theory.recommended_step).init(problem, start)
while sys.stdin.readline() == "again\\n":
    print("started", flush=True)
    result = trsvr.minimize(problem, solver, max_epochs=None, max_seconds=60, tol=None)
    print(result.status.name, np.isfinite(result.x).all(), result.message, flush=True)
"""


@pytest.mark.parametrize(
    "build",
    [LONG_INNER_LOOP, LONG_FULL_PASS, LONG_PASS_OVER_A_SMALL_MATRIX],
    ids=["inner loop", "pass", "small matrix"],
)
def test_ctrl_c_returns_the_result_so_far_within_half_a_second(build):
    """SIGINT to a child of our own, twice, and once more if the machine was busy with something else."""
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.replace("BUILD", build)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    delays = []
    try:
        while len(delays) < 2 or (len(delays) < 3 and min(delays) >= 0.5):
            child.stdin.write("again\n")
            assert child.stdout.readline() == "started\n"
            time.sleep(0.4)
            begun = time.perf_counter()
            child.send_signal(signal.SIGINT)
            answer = child.stdout.readline()
            delays.append(time.perf_counter() - begun)
            assert answer.startswith("INTERRUPTED True interrupted"), answer
        child.stdin.close()
        assert child.wait(timeout=30) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert min(delays) < 0.5, delays
