"""Products of blocks of rows in vector registers, beside NumPy's: all heights and widths of tiles, and what is left."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trsvr._compile import kernel
from trsvr._tiles import add_turned, packed, padded, times_packed


@kernel()
def both_ways(rows, weights, table, sums):
    """Rows times weights, and their transpose times that."""
    times_packed(rows, weights, table)
    add_turned(rows, table, sums)


@pytest.mark.parametrize("outputs", [2, 16, 17, 40, 50, 100])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("sums_in", [np.float32, np.float64])
def test_products_are_numpys(outputs, kind, sums_in):
    if kind is np.float64 and sums_in is np.float32:
        pytest.skip("sums are at least as long as what they add")
    rng = np.random.default_rng(0)
    width = padded(outputs, kind)
    for count, columns in ((1, 3), (7, 16), (48, 37), (53, 64)):
        rows, weights = rng.normal(size=(count, columns)).astype(kind), rng.normal(size=(columns, outputs))
        table, before = np.full((count, width), np.nan, kind), rng.normal(size=(columns, width)).astype(sums_in)
        sums = before.copy()
        both_ways(rows, packed(weights, kind), table, sums)
        digits = 2e-5 if np.float32 in (kind, sums_in) else 1e-12
        assert_allclose(table[:, :outputs], rows @ weights, rtol=digits, atol=digits)
        assert not table[:, outputs:].any()
        assert_allclose(sums, before + rows.T @ table, rtol=digits, atol=10 * digits)
        plain_table, plain_sums = np.empty_like(table), before.copy()
        times_packed(rows, packed(weights, kind), plain_table)
        add_turned(rows, plain_table, plain_sums)
        assert_allclose(plain_table, table, rtol=digits, atol=digits)
        assert_allclose(plain_sums, sums, rtol=digits, atol=10 * digits)
