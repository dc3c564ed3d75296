"""Sums over all rows, or over runs of consecutive rows, in pieces that threads share.

A piece is a group of runs; its sum goes into a vector of its own, and the vectors are added in order. The pieces
depend on the data alone, so a sum has the same bits for any number of threads. Threads fetch the number of their next
piece from a shared counter: a core that is slowed by other work simply does fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trsvr import _threads
from trsvr._compile import compiled_for, kernel
from trsvr._intrinsics import fetch_add
from trsvr._vectors import Vector
from trsvr.problems.margins import Indices

Matrix = NDArray[np.float64]

# How many entries the calling thread works off before Python may look at signals: some hundredths of a second.
_ENTRIES_PER_CALL = 20_000_000


class Runs(NamedTuple):
    """Runs of rows begins[k] … ends[k]−1; piece p is the runs groups[p] … groups[p+1]−1."""

    begins: Indices
    ends: Indices
    groups: Indices

    @classmethod
    def of_pieces(cls, bounds: Indices) -> Runs:
        """One run per piece: all rows, cut at the bounds."""
        return cls(bounds[:-1].copy(), bounds[1:].copy(), np.arange(bounds.size))

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return self.groups.size - 1


# What is summed. Each takes pieces until none is left, or `most` of them; several threads call at once.


def gradient_pieces(
    kernels: Any,
    runs: Runs,
    ticket: Indices,
    totals: Vector,
    parts: Matrix,
    most: int,
    what: tuple[Vector, Vector, Vector],
) -> None:
    """Losses (in ``totals``) and their gradients at x; keeps margins and curvatures where there is room for them."""
    x, margins, weights = what
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        totals[piece] = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            totals[piece] += kernels.sum_rows(
                x, runs.begins[k], runs.ends[k], part[x.size :], margins, weights, part[: x.size]
            )


def product_pieces(
    kernels: Any, runs: Runs, ticket: Indices, totals: Vector, parts: Matrix, most: int, what: tuple[Vector, Vector]
) -> None:
    """Hessians of the losses at x, times v."""
    x, v = what
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            kernels.sum_products(x, v, runs.begins[k], runs.ends[k], part[x.size :], part[: x.size])


def weighted_pieces(
    kernels: Any, runs: Runs, ticket: Indices, totals: Vector, parts: Matrix, most: int, what: tuple[Vector, Vector]
) -> None:
    """Hessians of the losses, from kept curvatures, times v."""
    weights, v = what
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            kernels.sum_weighted(weights, v, runs.begins[k], runs.ends[k], part[: v.size])


def diagonal_pieces(
    kernels: Any, runs: Runs, ticket: Indices, totals: Vector, parts: Matrix, most: int, what: tuple[Vector, int]
) -> None:
    """Diagonals of the losses' Hessians, from kept curvatures."""
    weights, d = what
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            kernels.sum_squares(weights, runs.begins[k], runs.ends[k], part[:d])


def change_pieces(
    kernels: Any, runs: Runs, ticket: Indices, totals: Vector, parts: Matrix, most: int, what: tuple[Vector, Vector]
) -> None:
    """Gradients of the losses at x minus those at kept margins."""
    x, margins = what
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            kernels.sum_changes(x, margins, runs.begins[k], runs.ends[k], part[: x.size])


def gram_pieces(
    kernels: Any,
    runs: Runs,
    ticket: Indices,
    totals: Vector,
    parts: Matrix,
    most: int,
    what: tuple[Any, Vector, Vector, Vector, int],
) -> None:
    """Sampled curvature matrices (the upper halves, row by row), and how many rows they have, in ``totals``."""
    sample, weights, norms, offsets, d = what
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        part = parts[piece]
        part[:] = 0.0
        matrix = part[: d * d].reshape(d, d)
        block = part[d * d : d * d + 4 * d].reshape(4, d)
        totals[piece] = 0.0
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            begin, end = runs.begins[k], runs.ends[k]
            totals[piece] += kernels.sum_gram(sample, weights, norms, offsets[k], begin, end, block, matrix)


def norm_pieces(
    rows: Any, runs: Runs, ticket: Indices, totals: Vector, parts: Matrix, most: int, what: tuple[Vector]
) -> None:
    """Squared norms of the rows, each in its own place."""
    norms = what[0]
    for _ in range(most):
        piece = fetch_add(ticket)
        if piece >= totals.size:
            return
        for k in range(runs.groups[piece], runs.groups[piece + 1]):
            for i in range(runs.begins[k], runs.ends[k]):
                norms[i] = rows.squared_norm(i)


@kernel()
def add_parts(parts: Matrix, first: int, last: int, factor: float, out: Vector) -> None:
    """``factor`` times the sum of parts first … last−1, added in order, in ``out``."""
    for j in range(out.size):
        out[j] = 0.0
    for piece in range(first, last):
        for j in range(out.size):
            out[j] += parts[piece, j]
    for j in range(out.size):
        out[j] *= factor


class Passes:
    """Runs the sums above; keeps the vectors of the pieces from pass to pass."""

    def __init__(self, all_rows: Runs, length: int, entries: int) -> None:
        self.all_rows = all_rows
        # Behind each vector lie unused cache lines: threads must not write to the same line.
        self._length = (length + 23) // 8 * 8
        self._pieces_per_call = max(1, _ENTRIES_PER_CALL * all_rows.pieces // max(1, entries))
        self._spare: list[Matrix] = []

    def _borrow(self, pieces: int) -> Matrix:
        """A vector per piece; a second set is made for a second caller."""
        try:
            parts = self._spare.pop()
        except IndexError:
            parts = np.empty((0, 0))
        return parts if parts.shape[0] >= pieces else np.empty((max(pieces, self.all_rows.pieces), self._length))

    def sums(
        self,
        work: Callable[..., None],
        over: Any,
        what: tuple[Any, ...],
        use: Callable[[Vector, Matrix], Any],
        runs: Any = None,
    ) -> Any:
        """Work off all pieces, here and in the pool's threads, and return what ``use(totals, parts)`` makes of them."""
        runs = self.all_rows if runs is None else runs
        ticket = np.zeros(1, dtype=np.int64)
        totals = np.empty(runs.pieces)
        parts = self._borrow(runs.pieces)
        run = compiled_for(work, over)

        def here() -> None:
            while ticket[0] < runs.pieces:
                run(over, runs, ticket, totals, parts, self._pieces_per_call, what)

        def helper() -> None:
            run(over, runs, ticket, totals, parts, runs.pieces, what)

        def abandon() -> None:
            ticket[0] = runs.pieces

        _threads.run(here, helper, runs.pieces, abandon)
        result = use(totals, parts)
        self._spare.append(parts)
        return result

    def warm_up(self, work: Callable[..., None], over: Any, what: tuple[Any, ...]) -> None:
        """Compile (or load) a sum without adding anything."""
        nothing_left = np.full(1, self.all_rows.pieces, dtype=np.int64)
        totals, parts = np.zeros(self.all_rows.pieces), self._borrow(self.all_rows.pieces)
        compiled_for(work, over)(over, self.all_rows, nothing_left, totals, parts, 1, what)
        self._spare.append(parts)
