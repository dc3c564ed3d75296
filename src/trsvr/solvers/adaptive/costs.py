"""What pays in the adaptive mode: estimates of work, in multiplications, from the shape of the data alone."""

from __future__ import annotations

from typing import Any

# A matrix P pays while it costs less than so many Hessian products, each of which has a price even on no data.
_PRODUCTS_PER_MATRIX = 60
_FLOPS_OF_A_CALL = 2e5
_DENSE_LIMIT = 2000
# m, the rows of P: 4N/d cost about half a pass; fewer than 8d say too little about d × d numbers, and with more than
# 200d P is right to a few per cent, so that more would not be seen.
_ROWS_PER_PASS = 4.0
_ROWS_PER_COLUMN = 8
_MOST_ROWS_PER_COLUMN = 200


def is_elsewhere(problem: Any) -> bool:
    """Whether every look at the rows costs a round of messages."""
    return hasattr(problem, "fetch")


def shape(problem: Any) -> tuple[int, int]:
    """Parameters of one output, and how many outputs there are."""
    outputs = getattr(problem, "n_outputs", 1)
    return problem.n_parameters // outputs, outputs


def first_rows(n: int, d: int) -> int:
    """Rows of the first curvature sample; if it would be much of the data, all of them."""
    rows = int(min(max(_ROWS_PER_PASS * n / d, _ROWS_PER_COLUMN * d), _MOST_ROWS_PER_COLUMN * d))
    return rows if 3 * rows < n else n


def matrix_pays(problem: Any) -> bool:
    """Whether P, with its factors, costs less than `_PRODUCTS_PER_MATRIX` Hessian products."""
    d, outputs = shape(problem)
    if d > _DENSE_LIMIT:
        return False
    n = problem.n_samples
    entries = getattr(problem, "n_entries", n * d)
    per_row = min(d, entries / n + 1.0)
    matrix = outputs * (first_rows(n, d) * per_row * per_row + d**3 / 3.0)
    return bool(matrix <= _PRODUCTS_PER_MATRIX * (4.0 * outputs * entries + _FLOPS_OF_A_CALL))


def directions_pay(problem: Any, count: int) -> bool:
    """Whether so many directions cost little beside a Hessian product, which is dear without a linear model."""
    d, outputs = shape(problem)
    entries = getattr(problem, "n_entries", None)
    return entries is None or 4 * count * d * outputs <= entries * outputs + _FLOPS_OF_A_CALL
