"""What is refused at the door, and in which words."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from small import classification, cut

import trsvr
import trsvr.dask
from trsvr import problems

X, Y = classification(60, 3)


def damaged(row, column, value):
    bad = X.copy()
    bad[row, column] = value
    return bad


@pytest.mark.parametrize(
    ("rows", "labels", "options", "message"),
    [
        (X, Y, {}, r"X must be a dask array, a dask data frame or a list of blocks, got ndarray"),
        (da.from_array(X[:, 0]), Y, {}, r"X must be two-dimensional"),
        (da.from_array(X), None, {}, r"y must be given"),
        (da.from_array(X), Y[:-1], {}, r"y must have one entry for each of the 60 rows of X, got shape \(59,\)"),
        (da.from_array(X), da.from_array(Y[:-1]), {}, r"y must have one entry for each of the 60 rows of X, got 59"),
        (cut(X, [20, 40]), cut(Y, [40, 20]), {}, r"y must have one entry for each of the 20 rows of block 0"),
        (cut(X, [20, 40]), cut(Y, [20, 20, 20]), {}, r"y must have as many blocks as X, 2, got 3"),
        (
            cut(damaged(25, 1, np.nan), [20, 40]),
            Y,
            {},
            r"X must be finite, got nan at row 25 \(row 5 of block 1\), column 1",
        ),
        (cut(X, [20, 40]), np.where(Y, 1, 1), {}, r"y must contain at least two classes, got only the label 1"),
        (cut(X, [20, 40]), np.arange(60) % 3, {}, r"y must contain exactly two classes for this loss, got 3"),
        (cut(X, [20, 40]), np.where(np.arange(60) == 30, np.inf, Y), {}, r"y must be finite, got inf at row 30"),
        ([X[:20], X[20:, :2]], cut(Y, [20, 40]), {}, r"blocks of X must agree, got different columns: 2, 3"),
        (
            [X[:20], scipy.sparse.csr_array(X[20:])],
            cut(Y, [20, 40]),
            {},
            r"different kinds: CSR float64, dense float64",
        ),
        (cut(X, [20, 40]), Y, {"sample_weight": np.where(np.arange(60) == 59, -1.0, 1.0)}, r"got -1.0 at row 59"),
        (cut(X, [20, 40]), Y, {"sample_weight": np.zeros(60)}, r"at least one positive entry"),
        (cut(X, [20, 40]), Y, {"persist": "maybe"}, r"persist must be True, False or 'auto', got 'maybe'"),
        (cut(X, [20, 40]), Y, {"loss": problems.L2()}, r"loss must be a loss"),
    ],
)
def test_refused(client, rows, labels, options, message):
    with pytest.raises(ValueError, match=message):
        trsvr.dask.LinearModel(rows, labels, client=client, **options)


def test_without_a_client():
    with pytest.raises(ValueError, match=r"client must be given, or exist: distributed.Client\(\)"):
        trsvr.dask.LinearModel(cut(X, [20, 40]), Y)


def test_a_table_of_all_rows_is_refused(client):
    problem = trsvr.dask.LinearModel(cut(X, [20, 40]), Y, client=client)
    for solver in (trsvr.SAGA(), trsvr.TRSVR(gradient="saga")):
        with pytest.raises(ValueError, match=r"SAGAGradient keeps a table of all rows in this process"):
            trsvr.minimize(problem, solver)


def test_wrong_points_and_rows(client):
    problem = trsvr.dask.LinearModel(cut(X, [20, 40]), Y, client=client)
    with pytest.raises(ValueError, match=r"x must have shape \(3,\), got \(4,\)"):
        problem.value_and_gradient(np.zeros(4))
    with pytest.raises(ValueError, match=r"indices must lie in 0 … 59"):
        problem.gather(np.array([60]))


def test_fingerprints_tell_problems_apart(client):
    def fingerprint(rows=X, labels=Y, **options):
        return trsvr.dask.LinearModel(cut(rows, [20, 40]), labels, client=client, **options).fingerprint()

    first = fingerprint()
    assert first == fingerprint()
    others = [
        fingerprint(damaged(3, 1, 7.0)),
        fingerprint(labels=1 - Y),
        fingerprint(regularizer=problems.L2(0.5)),
        fingerprint(intercept=True),
        fingerprint(sample_weight=np.arange(60.0)),
    ]
    assert len({first, *others}) == 6


def test_empty_blocks_are_left_out(client):
    there = trsvr.dask.LinearModel(cut(X, [0, 20, 0, 40]), cut(Y, [0, 20, 0, 40]), client=client)
    assert there.n_blocks == 2
    x = np.ones(3)
    assert there.value_and_gradient(x)[0] == pytest.approx(problems.LinearModel(X, Y).value_and_gradient(x)[0])


def _square(number):
    if number == 3:
        raise ArithmeticError("three")
    return number * number


def test_jobs(client):
    answers = dict(trsvr.dask.run_jobs(_square, range(6), client, retries=0))
    failure = answers.pop(3)
    assert answers == {0: 0, 1: 1, 2: 4, 4: 16, 5: 25}
    assert isinstance(failure, ArithmeticError)
