"""Functions that only compiled code calls are parts of what is called from Python: no machine code of their own."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary
from numpy.testing import assert_allclose, assert_array_equal

from trsvr._compile import compiled_for, jitable, jitable_loop, kernel
from trsvr._intrinsics import matrix_in, whole_numbers_in
from trsvr.problems import L2, LinearModel, Logistic, Poisson, Squared
from trsvr.problems.margins import WeightedRows
from trsvr.problems.passes import WeightedSum, work_off


@jitable
def _checked(x):
    if x < 0.0:
        raise ValueError("x must be at least 0")
    return x


@jitable_loop(fastmath=True)
def _sum_of_roots(numbers):
    total = 0.0
    for k in range(numbers.size):
        total += np.sqrt(_checked(numbers[k]))
    return total


def test_a_tree_of_calls_becomes_machine_code_once(monkeypatch):
    made = []
    translate = JITCodeLibrary._finalize_specific
    monkeypatch.setattr(JITCodeLibrary, "_finalize_specific", lambda self: (made.append(self.name), translate(self)))

    def whole(numbers):
        return 2.0 * _sum_of_roots(numbers)

    assert kernel()(whole)(np.array([1.0, 4.0, 9.0])) == 12.0
    ours = [name for name in made if name != "nrt"]  # Numba's own run time, once in a process
    assert len(ours) == 1
    assert "whole" in ours[0]


def test_an_error_in_a_part_reaches_the_caller():
    def whole(numbers):
        return _sum_of_roots(numbers)

    with pytest.raises(ValueError, match="x must be at least 0"):
        kernel()(whole)(np.array([1.0, -1.0]))


@jitable
def _say(x):
    print("at", x)
    return x


def test_a_part_may_print(capfd):
    """Printing needs what Numba calls the function's environment."""

    def whole(x):
        return _say(x) + 1.0

    assert kernel()(whole)(2.5) == 3.5
    assert "at 2.5" in capfd.readouterr().out


def test_a_matrix_in_a_vector_is_no_copy():
    def fill(vector, rows, columns):
        matrix = matrix_in(vector[1:], rows, columns)
        for i in range(matrix.shape[0]):
            for j in range(matrix.shape[1]):
                matrix[i, j] = 10 * i + j

    for run in (fill, kernel()(fill)):
        vector = np.full(8, -1.0)
        run(vector, 2, 3)
        assert_array_equal(vector, [-1, 0, 1, 2, 10, 11, 12, -1])


def test_whole_numbers_in_a_vector_are_no_copy():
    def fill(vector):
        numbers = whole_numbers_in(vector)
        for k in range(numbers.size):
            numbers[k] = k

    for run in (fill, kernel()(fill)):
        vector = np.empty(3)
        run(vector)
        assert_array_equal(vector.view(np.uint32), np.arange(6))


def test_sums_without_a_loss_are_compiled_once_for_all_losses():
    random = np.random.default_rng(0)
    X = random.normal(size=(30_000, 5))
    v, products = random.normal(size=5), []
    for loss in (Logistic(), Squared(), Poisson()):
        y = np.sign(X[:, 0]) if isinstance(loss, Logistic) else np.abs(np.round(X[:, 0]))
        model = LinearModel(X, y, loss, L2(0.1))
        assert not model.is_small
        products.append(model.summed(WeightedSum(np.ones(30_000), v), 1.0 / 30_000)[1])
    assert_allclose(products, [X.T @ (X @ v) / 30_000] * 3, rtol=1e-12)
    dispatcher = compiled_for(work_off, model.kernels, WeightedSum(v, v))
    over = [kinds[0] for kinds in dispatcher.signatures if kinds[1].instance_class is WeightedSum]
    dense = [kind for kind in over if str(kind.types[0]).startswith("DenseRows(array(float64")]
    assert len(dense) == 1
    assert dense[0].instance_class is WeightedRows


def test_column_means_are_found_with_the_norms_and_leave_out_rows_of_weight_zero():
    random = np.random.default_rng(1)
    X = random.normal(size=(30_000, 5)) + 3.0
    weights = random.integers(0, 3, 30_000) * 1.0
    for kind in (np.float64, np.float32):
        data = X.astype(kind)
        model = LinearModel(data, X[:, 0], Squared(), L2(0.1), True, sample_weight=weights)
        assert_allclose(model.column_means, np.average(data, axis=0, weights=weights), rtol=1e-6)
        assert_allclose(model.squared_rows, (data.astype(float) ** 2).sum(axis=1) + 1.0, rtol=1e-12)
