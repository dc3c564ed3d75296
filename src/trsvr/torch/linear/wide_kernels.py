"""Triton kernels of wide rows: a matrix in tiles of its columns, and f along a line.

Rows are scaled and copied first, so that they begin at multiples of 16 bytes and end in zeros. A program multiplies two
groups of B columns over some of them; each is read as often as there are groups, mostly from the cache. Products are
float32 proper, as fast as the device multiplies outside its tensor cores, which would keep three digits; every few
tiles are added up in float64.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from trsvr.torch.linear.kernels import _label, _raise, _terms, _tile, _vector, _weight, run_lines


@triton.jit(do_not_specialize=["n", "count", "shift"])
def scaled_rows(
    X, Y, WEIGHTS, AT, STARTS, OUT, n, count, shift, DELTA,
    P: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr,
    WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr, RAISED: tl.constexpr, ALL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All rows, or those in ``count`` runs of 2^shift, times the roots of their curvatures; with zeros to WIDTH."""
    delta = tl.load(DELTA)
    cols = tl.arange(0, D)
    w = _vector(AT, cols, P, INTERCEPT)
    size = n if ALL else count << shift
    for tile in tl.range(tl.program_id(0), tl.cdiv(size, R), tl.num_programs(0), num_stages=STAGES):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        rows = place if ALL else run_lines(STARTS, place, valid, shift, n, 1)
        x = _tile(X, rows, valid, cols, 0, n, P, D, INTERCEPT, 1, 1)
        y = _label(Y, rows, valid)
        z = tl.sum(x * w[None, :], 1)
        _, slope, curvature = _terms(z, y, delta, LOSS)
        weight = _weight(WEIGHTS, rows, valid, WEIGHTED) * _raise(z, slope, curvature, RAISED)
        scaled = (x * tl.sqrt(weight)[:, None]).to(tl.float32)
        there = valid[:, None] & (cols[None, :] < WIDTH)
        tl.store(OUT + place.to(tl.int64)[:, None] * WIDTH + cols[None, :], scaled, mask=there)


@triton.jit(do_not_specialize=["tiles"])
def gram_tiles(
    Z, PAIRS, OUT, tiles,
    WIDTH: tl.constexpr, B: tl.constexpr, R: tl.constexpr, TOGETHER: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """ZᵀZ of one pair of groups of columns over one part of the rows; TOGETHER tiles are added up in float32."""
    pair = tl.program_id(0)
    first = tl.load(PAIRS + 2 * pair) * B + tl.arange(0, B)
    second = tl.load(PAIRS + 2 * pair + 1) * B + tl.arange(0, B)
    total = tl.zeros([B, B], tl.float64)
    mine = tl.cdiv(tiles, tl.num_programs(1))
    end = tl.minimum((tl.program_id(1) + 1) * mine, tiles)
    for begin in range(tl.program_id(1) * mine, end, TOGETHER):
        part = tl.zeros([B, B], tl.float32)
        for tile in tl.range(begin, tl.minimum(begin + TOGETHER, end), num_stages=STAGES):
            lines = (tile * R + tl.arange(0, R)).to(tl.int64)[:, None] * WIDTH
            a = tl.load(Z + lines + first[None, :])
            b = tl.load(Z + lines + second[None, :])
            part = tl.dot(tl.trans(a), b, part, input_precision="ieee")
        total += part.to(tl.float64)
    place = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(OUT + (tl.program_id(1) * tl.num_programs(0) + pair).to(tl.int64) * B * B + place, total)


@triton.jit(do_not_specialize=["parts", "d"])
def add_tiles(PARTS, PAIRS, OUT, parts, d, B: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """The d × d matrix from its tiles' parts, in order; what lies below the diagonal mirrors what lies above."""
    pair = tl.program_id(0)
    place = tl.program_id(1) * C + tl.arange(0, C)
    total = tl.zeros([R, C], tl.float64)
    for begin in range(0, parts, R):
        part = begin + tl.arange(0, R)
        spots = (part[:, None] * tl.num_programs(0) + pair).to(tl.int64) * (B * B) + place[None, :]
        total += tl.load(PARTS + spots, mask=part[:, None] < parts, other=0.0)
    first, second = tl.load(PAIRS + 2 * pair), tl.load(PAIRS + 2 * pair + 1)
    row, column = first * B + place // B, second * B + place % B
    inside = (row < d) & (column < d)
    found = tl.sum(total, 0)
    tl.store(OUT + row * d + column, found, mask=inside)
    tl.store(OUT + column * d + row, found, mask=inside & (first != second))


@triton.jit(do_not_specialize=["n", "count", "shift"])
def line_pass(
    X, Y, WEIGHTS, AT, STEP, STARTS, OUT, n, count, shift, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """How slopes along a step change from its beginning to its end, and curvatures along it there, over the runs."""
    delta = tl.load(DELTA)
    cols = tl.arange(0, D)
    w = _vector(AT, cols, P, INTERCEPT)
    v = _vector(STEP, cols, P, INTERCEPT)
    slopes = tl.zeros([R], tl.float64)
    curvatures = tl.zeros([R], tl.float64)
    size = count << shift
    for tile in tl.range(tl.program_id(0), tl.cdiv(size, R), tl.num_programs(0), num_stages=STAGES):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        rows = run_lines(STARTS, place, valid, shift, n, 1)
        x = _tile(X, rows, valid, cols, 0, n, P, D, INTERCEPT, 1, 1)
        y = _label(Y, rows, valid)
        weight = _weight(WEIGHTS, rows, valid, WEIGHTED)
        before = tl.sum(x * w[None, :], 1)
        along = tl.sum(x * v[None, :], 1)
        _, old, _ = _terms(before, y, delta, LOSS)
        _, new, curvature = _terms(before + along, y, delta, LOSS)
        slopes += weight * (new - old) * along
        curvatures += weight * curvature * along * along
    tl.store(OUT + 2 * tl.program_id(0), tl.sum(slopes, 0))
    tl.store(OUT + 2 * tl.program_id(0) + 1, tl.sum(curvatures, 0))
