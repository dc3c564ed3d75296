"""Generalised linear models with rows on the workers: the same coefficients, and the same standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small import cut

import trsvr
import trsvr.dask
from trsvr.inference import summary
from trsvr.problems import L2, LinearModel, Poisson

LENGTHS = [400, 150, 250]
N = sum(LENGTHS)


@pytest.mark.slow
def test_the_same_numbers_on_workers(client):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    offset = 0.3 * rng.normal(size=N)
    y = rng.poisson(np.exp(X @ [0.3, -0.2, 0.1] + 0.5 + offset)).astype(float)
    weights, groups = rng.integers(0, 3, N).astype(float), rng.integers(0, 9, N)
    here = LinearModel(X, y, Poisson(), L2([0.0, 0.1, 0.0]), intercept=True, sample_weight=weights, offset=offset)
    parts = {"sample_weight": cut(weights, LENGTHS), "offset": cut(offset, LENGTHS)}
    blocks = cut(X, LENGTHS), cut(y, LENGTHS)
    there = trsvr.dask.LinearModel(*blocks, Poisson(), L2([0.0, 0.1, 0.0]), True, client=client, **parts)
    result = trsvr.minimize(there, tol=1e-10)
    assert_allclose(result.x, trsvr.minimize(here, tol=1e-10).x, rtol=1e-7)
    for options in ({}, {"kind": "HC1"}, {"kind": "cluster", "groups": groups}):
        far, near = (summary(problem, result, **options) for problem in (there, here))
        assert_allclose(far.table, near.table, rtol=1e-9)
        assert_allclose(list(far.facts().values()), list(near.facts().values()), rtol=1e-9)
    assert there.scores(result.x)["r2"] > 0.0
    with pytest.raises(ValueError, match="one for each column, 3, got 2"):
        trsvr.dask.LinearModel(*blocks, regularizer=L2([1.0, 2.0]), client=client, loss=Poisson())
    y[LENGTHS[0] + 7] = -1.0
    weights[LENGTHS[0] + 7] = 1.0
    with pytest.raises(ValueError, match=rf"y must be >= 0 for Poisson, got -1.0 at row {LENGTHS[0] + 7} "):
        trsvr.dask.LinearModel(cut(X, LENGTHS), cut(y, LENGTHS), Poisson(), client=client, **parts)
