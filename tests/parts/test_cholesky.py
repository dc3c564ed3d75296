"""Factors without BLAS threads: right at every size, the same bits for any number of threads, nothing left changed."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from trsvr._blas import one_blas_thread
from trsvr.parts import cholesky
from trsvr.parts.norms import BlockNorm, DenseNorm

SIZES = (1, 5, 96, 97, 98, 99, 100, 301, 512, 513)


def positive(d):
    rows = np.random.default_rng(d).normal(size=(d + 20, d))
    return rows.T @ rows / d + 0.1 * np.eye(d)


@pytest.mark.parametrize("d", SIZES)
def test_factor_and_solution(d):
    matrix, v = positive(d), np.random.default_rng(0).normal(size=d)
    before = matrix.copy()
    factor = cholesky.cholesky(matrix)
    np.testing.assert_array_equal(matrix, before)
    assert factor.flags.c_contiguous
    np.testing.assert_allclose(factor, scipy.linalg.cholesky(matrix, lower=True), atol=1e-12)
    np.testing.assert_allclose(cholesky.solve(factor, v), scipy.linalg.solve(matrix, v), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(cholesky.multiply(matrix, v), matrix @ v, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(cholesky.inverse(factor) @ matrix, np.eye(d), atol=1e-9)


@pytest.mark.parametrize("d", SIZES)
def test_only_the_lower_half_is_read(d):
    matrix = positive(d)
    upper = np.triu(np.full((d, d), np.nan), 1)
    np.testing.assert_array_equal(cholesky.cholesky(np.tril(matrix) + upper), cholesky.cholesky(matrix))


@pytest.mark.parametrize("d", [2, 100, 300, 600])
@pytest.mark.parametrize("place", [0, -1])
def test_a_matrix_that_is_not_positive_has_none(d, place):
    matrix = positive(d)
    matrix[place, place] = -1.0
    assert cholesky.cholesky(matrix) is None


def test_a_norm_of_several_blocks():
    blocks, penalty = np.stack([positive(7), 2.0 * positive(7), positive(7) + 1.0]), np.full(21, 0.3)
    whole = np.zeros((21, 21))
    for k in range(3):
        whole[k::3, k::3] = blocks[k] + 0.3 * np.eye(7)
    v = np.random.default_rng(1).normal(size=21)
    norm = BlockNorm(blocks, penalty)
    np.testing.assert_allclose(norm.solve(v), np.linalg.solve(whole, v), rtol=1e-9)
    assert norm.dual(v) == pytest.approx(v @ np.linalg.solve(whole, v))


def threads():
    scipy.linalg.cholesky(np.eye(2))  # SciPy's BLAS is there to be found
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    """Whatever the environment says."""
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.usefixtures("two_threads")
def test_the_guard_puts_back_what_was_set_whoever_comes_at_once():
    before, inside = threads(), []

    def work():
        for _ in range(20):
            with one_blas_thread():
                inside.append(threads())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert inside == [[1] * len(before)] * 80
    assert threads() == before
    with pytest.raises(RuntimeError), one_blas_thread(), one_blas_thread():
        raise RuntimeError
    assert threads() == before


def test_the_guard_works_in_another_thread_than_the_first_that_changed_the_setting():
    """Which is the only one whom threadpoolctl 3.8 obeys."""
    before, inside = threads(), []
    with one_blas_thread():
        pass

    def work():
        with one_blas_thread():
            inside.append(threads())
        inside.append(threads())

    worker = threading.Thread(target=work)
    worker.start()
    worker.join(60)
    assert inside == [[1] * len(before), before]
    with one_blas_thread():
        assert threads() == [1] * len(before)
    assert threads() == before


BITS = """
import numpy as np, trsvr
from threadpoolctl import threadpool_info, threadpool_limits
rng = np.random.default_rng(0)
# OpenBLAS before NumPy 2 shares out even the small products of small data.
small = () if np.__version__.startswith("1.") else ((500, 90),)
for n, d in (*small, (1500, 200), (1500, 600)):
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + rng.logistic(size=n) > 0
    result = trsvr.minimize(trsvr.problems.logistic(X, y, l2=1e-3))
    print(result.x.tobytes().hex())
"""


def test_bits_do_not_depend_on_the_number_of_blas_threads():
    said = []
    for count in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        done = subprocess.run(
            [sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]
    assert len(said[0].split()) >= 2


def test_a_dense_norm_survives_a_matrix_without_full_rank():
    rows = np.random.default_rng(2).normal(size=(40, 120))
    norm = DenseNorm(rows.T @ rows, np.zeros(120))
    assert norm.dual(np.ones(120)) > 0.0


@pytest.mark.usefixtures("two_threads")
def test_the_guard_works_from_any_thread_and_leaves_the_setting_to_others():
    """Whoever has used it before, and whoever limits BLAS around it."""
    with one_blas_thread():
        pass
    seen, before = [], threads()

    def work():
        with one_blas_thread():
            seen.append(threads())
        seen.append(threads())

    def in_a_thread():
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(60)

    in_a_thread()
    with threadpool_limits(3, user_api="blas"):
        limited = threads()
        in_a_thread()
    one = [1] * len(before)
    assert before == [2] * len(before)
    assert seen == [one, before, one, limited]
    assert threads() == before
