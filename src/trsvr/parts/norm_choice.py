"""Which norm pays, a matrix, a diagonal or none, and from how many rows its matrix is made: by prices alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trsvr.problems.views import Prices

NORMS = ("auto", "dense", "diagonal", "identity")


@dataclass(frozen=True)
class NormRules:
    """Numbers of the choice."""

    #: a matrix P pays while it costs less than so many Hessian products, all rows for P would cost hundreds; one that
    #: costs more is made in time, is kept, and only preconditions
    products_per_matrix: float = 20.0
    #: so many where each of several outputs has one, and all could share one: they are no model of H, only a norm
    products_per_blocks: float = 2.0
    #: columns beyond which no matrix is made, whatever it costs: its memory
    widest_matrix: int = 2000
    #: rows of P: so many times N/d cost about half a pass
    rows_per_pass: float = 4.0
    #: fewer rows per column say too little about d × d numbers
    rows_per_column: float = 8.0
    #: with more rows per column P is right to a few per cent, so that more would not be seen
    most_rows_per_column: float = 400.0
    #: a sample of more than this part of the rows becomes all of them: no sampling error for little more work
    nearly_all_rows: float = 1 / 3


def kind_of_norm(asked_for: str, prices: Prices, n: int, d: int, rules: NormRules) -> str:
    """The norm that was asked for, or the one that pays."""
    if asked_for != "auto":
        return asked_for
    most = rules.products_per_matrix if math.isinf(prices.shared) else rules.products_per_blocks
    if price_of_matrix(prices, n, d, rules) <= most:
        return "dense"
    return "diagonal" if prices.diagonal < math.inf else "identity"


def price_of_matrix(prices: Prices, n: int, d: int, rules: NormRules) -> float:
    """What the first P would cost as a matrix, in products."""
    return prices.of_matrix(first_rows(n, d, rules)) if may_be_matrix(d, rules) else math.inf


def may_be_matrix(d: int, rules: NormRules) -> bool:
    """Whether P may be a matrix of so many columns, now or in time."""
    return d <= rules.widest_matrix


def first_rows(n: int, d: int, rules: NormRules) -> int:
    """Rows of the first curvature sample; if it would be much of the data, all of them."""
    fewest, most = rules.rows_per_column * d, rules.most_rows_per_column * d
    rows = int(min(max(rules.rows_per_pass * n / d, fewest), most))
    return rows if rows < rules.nearly_all_rows * n else n
