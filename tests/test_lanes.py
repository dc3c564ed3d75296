"""Eight rows at a time, against NumPy: any number of columns, both precisions, and nothing beyond a row's end."""

from __future__ import annotations

import mmap

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from trsvr._lanes import LANES, add_eight, add_narrow, eight_dots, narrow_dots

COLUMNS = [*range(1, 35), 54, 63, 64, 65, 300]


@numba.njit
def compiled_dots(values, i, w, out, k):
    eight_dots(values, i, w, out, k)


@numba.njit
def compiled_add(values, i, factors, k, out):
    add_eight(values, i, factors, k, out)


@numba.njit
def compiled_narrow_dots(values, i, w, out, k):
    narrow_dots(values, i, w, out, k)


@numba.njit
def compiled_add_narrow(values, i, count, factors, out):
    add_narrow(values, i, count, factors, out)


def rows(columns, kind, seed=0):
    return np.random.default_rng([columns, seed]).normal(size=(11, columns)).astype(kind)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("dots", "widths"),
    [
        (compiled_dots, COLUMNS),
        (eight_dots, COLUMNS),
        (compiled_narrow_dots, range(1, LANES + 1)),
        (narrow_dots, range(1, LANES + 1)),
    ],
    ids=["compiled", "plain", "narrow, compiled", "narrow, plain"],
)
def test_dots_are_those_of_numpy_and_read_nothing_else(kind, dots, widths):
    for columns in widths:
        values, random = rows(columns, kind), np.random.default_rng(columns)
        values[[0, 1, 10]] = np.nan  # rows 2 to 9 are asked for
        w = np.append(random.normal(size=columns), np.nan)  # an intercept lies behind the weights
        out = np.full(12, 7.0)
        dots(values, 2, w, out, 3)
        assert_allclose(out[3:11], values[2:10].astype(np.float64) @ w[:-1], rtol=1e-13, atol=1e-13)
        assert_array_equal(out[[0, 1, 2, 11]], 7.0)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("add", [compiled_add, add_eight], ids=["compiled", "plain"])
def test_sums_are_those_of_numpy_and_write_nothing_else(kind, add):
    for columns in COLUMNS:
        values, random = rows(columns, kind), np.random.default_rng(columns)
        values[[0, 1, 10]] = np.nan
        factors, out = random.normal(size=12), random.normal(size=columns + 3)
        factors[[0, 1, 2, 11]] = np.nan
        expected = out.copy()
        expected[:columns] += factors[3:11] @ values[2:10].astype(np.float64)
        add(values, 2, factors, 3, out)
        assert_allclose(out, expected, rtol=1e-12, atol=1e-13)
        assert_array_equal(out[columns:], expected[columns:])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("add", [compiled_add_narrow, add_narrow], ids=["compiled", "plain"])
@pytest.mark.parametrize("count", [0, 4, 8])
def test_sums_of_narrow_rows_are_those_of_numpy_and_write_nothing_else(kind, add, count):
    for columns in range(1, LANES + 1):
        values, random = rows(columns, kind), np.random.default_rng(columns)
        values[:2], values[2 + count :] = np.nan, np.nan
        factors, out = random.normal(size=12), random.normal(size=columns + 3)
        factors[count:] = np.nan
        expected = out.copy()
        expected[:columns] += factors[:count] @ values[2 : 2 + count].astype(np.float64)
        add(values, 2, count, factors, out)
        assert_allclose(out, expected, rtol=1e-12, atol=1e-13)
        assert_array_equal(out[columns:], expected[columns:])


def test_an_infinite_entry_stays_in_its_row():
    values, out = np.ones((LANES, 13)), np.zeros(LANES)
    values[3, 12] = np.inf
    compiled_dots(values, 0, np.ones(13), out, 0)
    assert out.tolist() == [13.0, 13.0, 13.0, np.inf, 13.0, 13.0, 13.0, 13.0]


@pytest.mark.parametrize("columns", [1, 5, 13, 23])
def test_the_last_rows_of_a_mapping_can_be_read(columns):
    """Behind the last page nothing may be touched."""
    size = LANES * columns
    with mmap.mmap(-1, mmap.PAGESIZE * (1 + size * 8 // mmap.PAGESIZE)) as memory:
        whole = np.frombuffer(memory, dtype=np.float64)
        values = whole[-size:].reshape(LANES, columns)
        values[:] = 1.0
        out, total = np.zeros(LANES), np.zeros(columns)
        compiled_dots(values, 0, np.ones(columns), out, 0)
        compiled_add(values, 0, np.ones(LANES), 0, total)
        assert_array_equal(out, columns)
        assert_array_equal(total, LANES)
        if columns <= LANES:
            compiled_narrow_dots(values, 0, np.ones(columns), out, 0)
            compiled_add_narrow(values, 0, LANES, np.ones(LANES), total)
            assert_array_equal(out, columns)
            assert_array_equal(total, 2 * LANES)
        del whole, values
