"""Workers that die, data that is lost, answers that come twice."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import dask
import numpy as np
import pytest
from small import classification, cut, small_cluster

import trsvr
import trsvr.dask
from trsvr.dask.blocks import add
from trsvr.problems import DataLostError

LENGTHS = [300, 500, 200, 400]
STUDY = """
name = "small"
epochs = 3
seeds = 8

[objective]
l2 = 0.1

[[problem]]
data = "synthetic"
parameters = { n_samples = 200, n_features = 4 }

[[problem.method]]
label = "SVRG"
solver = "svrg"
settings = { step = 0.1, batch_size = 10, inner_steps = 20 }
"""


def kill(client, number: int) -> None:
    """Kill one worker process of this test's own cluster."""
    pids = sorted(client.run(os.getpid, on_error="ignore").values())
    os.kill(pids[number % len(pids)], signal.SIGKILL)


def slow_block(X, y, seconds):
    time.sleep(seconds)
    return X, y


@pytest.fixture(scope="module")
def start():
    """Starts a cluster, which ends with the last test."""
    with contextlib.ExitStack() as running:
        yield lambda: running.enter_context(small_cluster(2))


@pytest.fixture(scope="module")
def mortal(start):
    return [start()]


@pytest.fixture
def own(mortal, start):
    """The workers that a test before has killed are there again; where one stays away, there is another cluster."""
    try:
        mortal[-1].wait_for_workers(2, timeout=30)
    except TimeoutError:
        mortal.append(start())
    return mortal[-1]


def blocks(seconds=0.0):
    X, y = classification(sum(LENGTHS), 7)
    make = dask.delayed(slow_block, pure=False)
    return [make(a, b, seconds) for a, b in zip(cut(X, LENGTHS), cut(y, LENGTHS), strict=True)]


@pytest.mark.parametrize(
    ("solver", "persist", "deaths"),
    [(trsvr.TRSVR(alpha=1.0, batch_size=10, inner_steps=20), True, [1, 3]), (trsvr.TRSVR(), False, [2])],
    ids=["paper, persisted", "adaptive, read anew"],
)
def test_workers_die_twice_and_nothing_changes(own, solver, persist, deaths):
    problem = trsvr.dask.LinearModel(blocks(), client=own, persist=persist)
    calm = trsvr.minimize(problem, solver, max_epochs=5)
    killed = []

    def murder(result) -> None:
        if result.epochs in deaths:
            kill(own, result.epochs)
            killed.append(result.epochs)

    result = trsvr.minimize(problem, solver, max_epochs=5, callback=murder)
    assert killed == deaths
    assert result.status is calm.status
    assert np.array_equal(result.x, calm.x)
    assert result.value == calm.value


def test_a_worker_dies_in_the_middle_of_a_round(own):
    """The blocks are slow to read, so the worker is killed while it sums or gathers."""
    problem = trsvr.dask.LinearModel(blocks(0.3), client=own, persist=False)
    calm = trsvr.dask.LinearModel(blocks(), client=own, persist=False)
    solver = trsvr.TRSVR(alpha=1.0, batch_size=10, inner_steps=20)
    expected = trsvr.minimize(calm, solver, max_epochs=2, tol=None)
    problem.warm_up()
    timer = threading.Timer(0.5, kill, (own, 0))
    timer.start()
    result = trsvr.minimize(problem, solver, max_epochs=2, tol=None)
    timer.join()
    assert np.array_equal(result.x, expected.x)


def test_jobs_of_a_study_survive_the_death_of_their_worker(own, tmp_path):
    from trsvr.dask.studies import OnCluster
    from trsvr.experiments import runner as running
    from trsvr.experiments import specification

    study = specification.parse(STUDY, "small.toml")
    cluster = OnCluster(own)
    runner = running.Runner(tmp_path, cluster, 2, ship=cluster.ship)
    plans = runner.plan([study])
    killed = []

    def murder(done, total, left, note) -> None:
        if done == 1 and not killed:
            kill(own, done)
            killed.append(done)

    runner.report = murder
    jobs = [job for plan in plans for _, _, job in plan.jobs()]
    assert runner.run(jobs) == len(jobs) == 8
    assert killed == [1]
    assert len(list((tmp_path / "results").glob("*.parquet"))) == 8


def test_data_lost_for_good_ends_with_the_best_point(own):
    """Scattered blocks have no recipe: when one of their workers dies some of them are gone."""
    X, y = classification(sum(LENGTHS), 7)
    pairs = list(zip(cut(X, LENGTHS), cut(y, LENGTHS), strict=True))
    problem = trsvr.dask.LinearModel(own.scatter(pairs), client=own)
    points = []

    def murder(result) -> None:
        points.append((result.value, result.x))
        if result.epochs == 2:
            kill(own, 0)

    result = trsvr.minimize(
        problem, trsvr.TRSVR(alpha=1.0, batch_size=10, inner_steps=20), max_epochs=20, tol=None, callback=murder
    )
    assert result.status is trsvr.Status.DATA_LOST
    assert not result.success
    assert "data lost" in result.message
    best = min(points, key=lambda point: point[0])
    assert result.value == best[0]
    assert np.array_equal(result.x, best[1])
    assert 2 <= result.epochs < 20


def test_data_lost_before_the_first_epoch_ends_too(client, monkeypatch):
    """While the columns' means, or few rows, are sent for."""

    def lose(*_):
        raise DataLostError("nobody there")

    X, y = classification(sum(LENGTHS), 7)
    problem = trsvr.dask.LinearModel(cut(X, LENGTHS), cut(y, LENGTHS), intercept=True, client=client)
    monkeypatch.setattr(trsvr.dask.LinearModel, "hessian_product", lose)
    result = trsvr.minimize(problem)
    assert result.status is trsvr.Status.DATA_LOST
    assert "nobody there" in result.message
    assert result.epochs == 0


def test_adding_up_leaves_the_answers_alone():
    """A task of the tree may run twice on the same answers: after a failure, or because its result was late."""
    rng = np.random.default_rng(0)
    answers = [{"gradient": rng.normal(size=5), "value": rng.normal(size=1)} for _ in range(4)]
    before = [{name: array.copy() for name, array in answer.items()} for answer in answers]
    first, second = add(answers), add(answers)
    for name in first:
        assert np.array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], sum(answer[name] for answer in before), atol=1e-14)
        assert all(np.array_equal(one[name], two[name]) for one, two in zip(answers, before, strict=True))


def test_answers_that_come_in_another_order_give_the_same_bits(client):
    """Blocks of different slowness, read anew: whoever is first, the sum is the same."""
    X, y = classification(sum(LENGTHS), 7)
    make = dask.delayed(slow_block, pure=False)
    x = np.linspace(-1, 1, 7)
    answers = []
    for delays in ((0.0, 0.0, 0.0, 0.0), (0.3, 0.0, 0.1, 0.0), (0.0, 0.2, 0.0, 0.3)):
        parts = zip(cut(X, LENGTHS), cut(y, LENGTHS), delays, strict=True)
        problem = trsvr.dask.LinearModel([make(*part) for part in parts], client=client, persist=False)
        answers.append(problem.value_and_gradient(x))
    assert all(value == answers[0][0] and np.array_equal(g, answers[0][1]) for value, g in answers)
