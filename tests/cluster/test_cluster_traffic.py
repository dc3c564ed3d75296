"""Rounds and bytes per epoch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small import classification, cut

import trsvr
import trsvr.dask


@pytest.fixture(scope="module")
def setting(client):
    X, y = classification(40_000, 12)
    lengths = [9_000, 11_000, 4_000, 16_000]
    return trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), client=client), X


def per_epoch(client, problem, solver, **options):
    counts = []
    with trsvr.dask.Traffic(client) as traffic:
        trsvr.minimize(problem, solver, callback=lambda _: counts.append(traffic.counts()), **options)
    return [later - earlier for earlier, later in itertools.pairwise(counts)]


def test_one_round_of_vectors_and_the_sampled_rows(client, setting):
    problem, X = setting
    b, steps, d, blocks = 10, 30, 12, 4
    epochs = per_epoch(client, problem, trsvr.TRSVR(alpha=1.0, batch_size=b, inner_steps=steps), max_epochs=5, tol=None)
    row = 8 * (d + 1)  # its entries and its label
    for k, epoch in enumerate(epochs):
        assert epoch.rounds == 1
        overhead = 1500 * blocks  # names and headers of the tasks
        assert epoch.to_workers <= blocks * 8 * d + 8 * b * steps + overhead
        assert epoch.between_workers <= blocks * (8 * d + 600)
        rows = 0 if k == 4 else b * steps  # the last epoch knows that it is the last: no rows are sent for
        assert epoch.to_caller <= rows * row + 8 * d + overhead
        assert epoch.to_caller >= 0.95 * rows * row
    assert sum(epoch.moved - epoch.blocks_copied for epoch in epochs) < 0.1 * X.nbytes
    assert sum(epoch.blocks_copied for epoch in epochs) <= 1.1 * X.nbytes  # at most once to the other worker


def test_a_second_run_with_the_same_seed_fetches_its_rows_at_once_again(client, setting):
    problem, _ = setting
    solver = trsvr.TRSVR(alpha=1.0, batch_size=10, inner_steps=300)
    for _ in range(2):
        with trsvr.dask.Traffic(client) as traffic:
            trsvr.minimize(problem, solver, max_epochs=1, tol=None)
        assert traffic.counts().rounds == 2  # the start, with the rows of the only epoch, and its end


def test_rows_that_stand_twice_travel_once(client, setting):
    problem, _ = setting
    solver = trsvr.TRSVR(alpha=1.0, batch_size=100, inner_steps=1000)  # more draws than rows
    epochs = per_epoch(client, problem, solver, max_epochs=2, tol=None)
    assert epochs[0].rounds == 1
    assert epochs[0].to_caller < 40_000 * 0.95 * 8 * 13


def test_nothing_pulls_the_whole_matrix(client, setting):
    problem, X = setting
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(problem)
        spent = traffic.counts()
    assert result.success
    assert result.trace["inner_steps"].max() > 1
    assert spent.largest < X.nbytes / 4
    assert spent.to_caller / spent.rounds < X.nbytes / 4
    assert spent.between_workers < 1e5


def test_lbfgs_takes_a_round_per_evaluation(client, setting):
    problem, _ = setting
    epochs = per_epoch(client, problem, trsvr.LBFGS(), max_epochs=8, tol=None)
    assert all(epoch.rounds >= 1 for epoch in epochs)
    assert max(epoch.moved - epoch.blocks_copied for epoch in epochs) < 20_000


def test_the_plugin_counts_what_it_should(client):
    """Against sizes that are known: a vector to the caller, one to another worker."""
    addresses = list(client.nthreads())
    with trsvr.dask.Traffic(client, prefix="counted-") as traffic:
        big = client.submit(np.zeros, 1000, key="counted-big", workers=addresses[:1], pure=False)
        client.submit(np.sum, big, key="counted-sum", workers=addresses[1:], pure=False).result()
        counts = traffic.counts()
        client.submit(np.zeros, 10**6, key="other", pure=False).result()
        assert traffic.counts() == counts
    assert counts.rounds == 2
    assert counts.tasks == 2
    assert 8000 <= counts.between_workers <= 8200
    assert 8000 <= counts.to_caller <= 8300  # the caller holds both results
    assert traffic.counts() == counts  # afterwards too
