"""The adaptive mode with rows on the workers: same path with one block, same minimiser with several, few rounds."""

from __future__ import annotations

import numpy as np
import pytest
from small import LENGTHS, classification, cut

import trsvr
import trsvr.dask
from trsvr import problems
from trsvr.problems.curvature import CurvatureView


def models(client, lengths, sparse=False, d=9, **options):
    X, y = classification(sum(lengths), d, sparse=sparse)
    there = trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), client=client, **options)
    return there, problems.LinearModel(X, y, **options)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
def test_one_block_takes_the_same_path(client, sparse):
    there, here = models(client, [7000], sparse, intercept=True)
    there.rows_worth = 7000  # all the inner steps that there are in memory
    results = [trsvr.minimize(one, seed=2) for one in (there, here)]
    assert results[1].trace["inner_steps"].max() > 1  # inner steps were made, on rows that came here
    # Near the end the run in memory may turn to products with the whole Hessian, which would be a round each there.
    traces = [result.trace.drop(columns="seconds")[:5] for result in results]
    np.testing.assert_allclose(*traces, rtol=1e-6, atol=1e-18)
    assert results[0].value == pytest.approx(results[1].value, rel=1e-11)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
@pytest.mark.parametrize("count", [3, 8])
def test_blocks_give_the_same_minimiser_in_two_rounds(client, count, sparse):
    there, here = models(client, [9 * length for length in LENGTHS[count]], sparse)
    rounds = []
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(there, callback=lambda _: rounds.append(traffic.counts().rounds))
    assert result.success
    assert rounds[0] == 1
    assert result.trace["inner_steps"].max() > 1
    assert max(np.diff(rounds)) <= 2
    assert result.value == pytest.approx(trsvr.minimize(here).value, rel=1e-11)


def test_refused_steps_and_far_starts_keep_to_two_rounds(client):
    """From afar curvatures are raised, steps refused and samples made again: each iteration still takes two rounds."""
    there, here = models(client, LENGTHS[3])
    start = np.full(9, 40.0)
    rounds = []
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(there, x0=start, callback=lambda _: rounds.append(traffic.counts().rounds))
    assert result.trace["rejected"].sum() > 0
    assert max(np.diff(rounds)) <= 2
    assert result.success
    assert result.value == pytest.approx(trsvr.minimize(here, x0=start).value, rel=1e-11)


def test_a_batch_too_large_to_travel_is_summed_where_it_lies(client):
    there, here = models(client, [9 * length for length in LENGTHS[3]])
    there.rows_worth = 0
    with trsvr.dask.Traffic(client) as traffic:
        rounds = []
        result = trsvr.minimize(there, callback=lambda _: rounds.append(traffic.counts().rounds))
        moved = traffic.counts()
    assert result.success
    assert max(np.diff(rounds)) <= 2
    assert result.trace["inner_steps"].max() == 2  # one inner step, in the second round
    assert moved.largest < 8 * 9 * 10 * 2 + 2000  # the curvature matrix is the largest thing that travels: no rows
    assert result.value == pytest.approx(trsvr.minimize(here).value, rel=1e-11)


def test_the_view_agrees_with_the_one_in_memory(client):
    """All members, at one point, against the view in memory; weights of zero included."""
    lengths = [100, 350, 250]
    X, y = classification(700, 6)
    weights = np.random.default_rng(1).integers(0, 3, size=700).astype(float)
    there = trsvr.dask.LinearModel(
        cut(X, lengths), cut(y, lengths), intercept=True, sample_weight=cut(weights, lengths), client=client
    )
    here = problems.LinearModel(X, y, intercept=True, sample_weight=weights)
    far, near = there.curvature_view(), CurvatureView(here)
    rng = np.random.default_rng(4)
    x, moved, v = rng.normal(size=(3, 7))
    assert far.evaluate(x)[0] == pytest.approx(near.evaluate(x)[0])
    for raised in (False, True):
        if raised:
            assert far.be_cautious() == pytest.approx(near.be_cautious())
        assert far.total_weight() == pytest.approx(near.total_weight())
        np.testing.assert_allclose(far.product(v), near.product(v), atol=1e-13)
        np.testing.assert_allclose(far.diagonal(), near.diagonal(), atol=1e-13)
        whole = [view.matrix(700, np.random.default_rng(0)) for view in (far, near)]
        np.testing.assert_allclose(whole[0][0], whole[1][0], atol=1e-13)
    for worth in (10**6, 0):  # rows travel; sums travel
        there.rows_worth = worth
        far.problem.pool.begin(None)
        for seed in range(4):  # some of the runs wrap around the end of the rows
            changes = [view.changes(moved, 90, np.random.default_rng(seed)) for view in (far, near)]
            assert changes[0][2] == changes[1][2]
            for half in (0, 1):
                np.testing.assert_allclose(changes[0][half], changes[1][half], atol=1e-13)
            far.problem.pool.begin(None)


def test_a_sampled_matrix_is_right_on_average(client):
    there, here = models(client, LENGTHS[3])
    view, exact = there.curvature_view(), CurvatureView(here)
    x = np.linspace(-0.5, 0.5, 9)
    view.evaluate(x)
    exact.evaluate(x)
    random = np.random.default_rng(0)
    samples = [view.matrix(200, random) for _ in range(30)]
    assert np.mean([taken for _, taken in samples]) == pytest.approx(200, rel=0.1)
    mean, spread = np.mean([s for s, _ in samples], axis=0), np.std([s for s, _ in samples], axis=0)
    true = exact.matrix(700, random)[0]
    assert np.abs(mean - true).max() < 5 * spread.max() / np.sqrt(30)


def test_diagonal_norm_and_softmax(client):
    """Where the norm is diagonal or Euclidean, products with the Hessian are rounds; the path is that in memory."""
    there, here = models(client, LENGTHS[3], True, d=60)
    results = [trsvr.minimize(one) for one in (there, here)]
    assert results[0].success
    np.testing.assert_allclose(results[0].x, results[1].x, atol=1e-9)
    assert results[0].epochs == results[1].epochs


def test_nonconvex_runs_leave_the_saddle(client):
    X, y = classification(400, 5)
    options = {"regularizer": problems.L2(0.1) + problems.DoubleWell(10 * 0.1 * 5, 0.5)}
    there = trsvr.dask.LinearModel(cut(X, [150, 250]), cut(y, [150, 250]), client=client, **options)
    results = [trsvr.minimize(one) for one in (there, problems.LinearModel(X, y, **options))]
    assert results[0].success
    assert results[0].gradient_norm < 1e-8
    assert results[0].value == pytest.approx(results[1].value, rel=1e-9)
