"""Triton kernels of a linear model with one output and few columns: each reads a row once.

A program works off tiles of rows, one after another, and keeps its sums in registers; at the end it writes them to a
place of its own, and a second, small kernel adds those in a fixed order. So the same input gives the same bits. Rows
may be float32; every product and sum is float64. An intercept is a column of ones that exists in registers only.

A margin ends in every thread that holds a part of the row, and one of them writes it down where it is needed elsewhere.
All of them must have the same bits then. Adding a neighbour's sum to one's own does that, but not if one's own is a
single product that is rounded together with the sum: such launches say ``enable_fp_fusion=False``.

A thread reads V numbers of a row at once, 16 bytes, where rows begin at multiples of that. Where their length is none,
every PHASES-th row begins at the same place between two: a program works off rows of one such phase only, from the
last multiple of V before them. What it reads of the rows before and after is multiplied by zero, or left out.
"""

# ruff: noqa: D103  # kernels are described where they are launched
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _terms(z, y, delta, LOSS: tl.constexpr):
    """Loss, slope and curvature; the formulas are those of `trsvr.problems.losses`."""
    if LOSS == 0:
        m = z * y
        small = tl.exp(-tl.abs(m))
        share = 1.0 / (1.0 + small)
        value = tl.maximum(-m, 0.0) + tl.log(1.0 + small)
        slope = -y * tl.where(m > 0.0, small, 1.0) * share
        curvature = small * share * share
    elif LOSS == 1:
        gap = tl.maximum(1.0 - z * y, 0.0)
        value = gap * gap
        slope = -2.0 * y * gap
        curvature = tl.where(z * y < 1.0, 2.0, 0.0).to(tl.float64)
    elif LOSS == 2:
        residual = z - y
        value = 0.5 * residual * residual
        slope = residual
        curvature = tl.full(z.shape, 1.0, tl.float64)
    else:
        residual = z - y
        ratio = residual / delta
        square = 1.0 + ratio * ratio
        root = tl.sqrt(square)
        value = residual * residual / (1.0 + root)
        slope = residual / root
        curvature = 1.0 / (square * root)
    return value, slope, curvature


@triton.jit
def _split_terms(z, y):
    """`_terms` of the logistic loss, which is the first plus the logarithm of the last."""
    m = z * y
    small = tl.exp(-tl.abs(m))
    factor = 1.0 + small
    share = 1.0 / factor
    return tl.maximum(-m, 0.0), -y * tl.where(m > 0.0, small, 1.0) * share, small * share * share, factor


@triton.jit
def _raise(z, slope, curvature, RAISED: tl.constexpr):
    if RAISED:
        curvature = tl.maximum(curvature, tl.abs(slope) / tl.maximum(tl.abs(z), 1.0))
    return curvature


@triton.jit
def _columns(phase, P: tl.constexpr, D: tl.constexpr, PHASES: tl.constexpr, V: tl.constexpr):
    """Which column lies where in a tile; negative: of the row before."""
    cols = tl.arange(0, D)
    if PHASES > 1:
        cols -= (phase * P) % V
    return cols


@triton.jit
def _vector(AT, cols, P: tl.constexpr, INTERCEPT: tl.constexpr):
    return tl.load(AT + cols, mask=(cols >= 0) & (cols < P + INTERCEPT), other=0.0)


@triton.jit
def _put(OUT, numbers, cols, P: tl.constexpr, D: tl.constexpr, INTERCEPT: tl.constexpr):
    """Write down D numbers: those of the columns, and zeros."""
    inside = (cols >= 0) & (cols < P + INTERCEPT)
    tl.store(OUT + tl.where(cols < 0, cols + D, cols), tl.where(inside, numbers, 0.0))


@triton.jit
def _tile(
    X, lines, valid, cols, phase, n,
    P: tl.constexpr, D: tl.constexpr, INTERCEPT: tl.constexpr, PHASES: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Rows ``lines * PHASES + phase`` as a tile of float64, with the column of ones."""
    if PHASES == 1:
        x = _wide_tile(X, lines, valid, cols, P)
    else:
        # No number is read beyond the 16 bytes that hold the last one of X.
        raw = tl.arange(0, D)
        begin = tl.multiple_of(phase * P - (phase * P) % V, V)
        starts = lines.to(tl.int64)[:, None] * (PHASES * P)
        there = starts + (begin + raw // V * V)[None, :] < n.to(tl.int64) * P
        x = tl.load(X + starts + (begin + raw)[None, :], mask=valid[:, None] & there, other=0.0).to(tl.float64)
    if INTERCEPT:
        x = tl.where(cols[None, :] == P, 1.0, x)
    return x


@triton.jit
def _wide_tile(X, rows, valid, cols, p):
    places = rows.to(tl.int64)[:, None] * p + cols[None, :]
    return tl.load(X + places, mask=valid[:, None] & (cols[None, :] < p), other=0.0).to(tl.float64)


@triton.jit
def _label(Y, rows, valid):
    return tl.load(Y + rows, mask=valid, other=0).to(tl.float64)


@triton.jit
def _weight(WEIGHTS, rows, valid, WEIGHTED: tl.constexpr):
    if WEIGHTED:
        weight = tl.load(WEIGHTS + rows, mask=valid, other=0.0)
    else:
        weight = tl.where(valid, 1.0, 0.0).to(tl.float64)
    return weight


@triton.jit
def _change(before, after, Y, WEIGHTS, rows, valid, delta, LOSS: tl.constexpr, WEIGHTED: tl.constexpr):
    """Change of the rows' slopes between two margins."""
    y = _label(Y, rows, valid)
    _, old, _ = _terms(before, y, delta, LOSS)
    _, new, _ = _terms(after, y, delta, LOSS)
    return _weight(WEIGHTS, rows, valid, WEIGHTED) * (new - old)


@triton.jit
def _folded(x, R: tl.constexpr, FOLD: tl.constexpr, D: tl.constexpr):
    """Sums of the rows that are FOLD apart.

    They lie in the same thread, so adding them up is as good as keeping R sums, and frees the registers that keep
    further warps from running.
    """
    if FOLD != R:
        x = tl.sum(tl.reshape(x, [R // FOLD, FOLD, D]), 0)
    return x


@triton.jit(do_not_specialize=["n"])
def full_pass(
    X, Y, WEIGHTS, AT, OUT, n, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, RAISED: tl.constexpr, STAGES: tl.constexpr, MULTIPLIED: tl.constexpr,
    CHUNK: tl.constexpr, FOLD: tl.constexpr, PHASES: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Value, gradient and curvature. MULTIPLIED: one logarithm for CHUNK rows. FOLD: see `_folded`."""
    program = tl.program_id(0) // PHASES
    programs = tl.num_programs(0) // PHASES
    phase = tl.program_id(0) % PHASES
    mine = (n - phase + PHASES - 1) // PHASES
    tiles = tl.cdiv(mine, R)
    delta = tl.load(DELTA)
    cols = _columns(phase, P, D, PHASES, V)
    w = _vector(AT, cols, P, INTERCEPT)
    gradient = tl.zeros([FOLD, D], tl.float64)
    values = tl.zeros([R], tl.float64)
    curvatures = tl.zeros([R], tl.float64)
    for begin in range(program, tiles, CHUNK * programs):
        factors = tl.full([R], 1.0, tl.float64)
        for tile in tl.range(begin, tl.minimum(begin + CHUNK * programs, tiles), programs, num_stages=STAGES):
            lines = tile * R + tl.arange(0, R)
            rows, valid = lines * PHASES + phase, lines < mine
            x = _tile(X, lines, valid, cols, phase, n, P, D, INTERCEPT, PHASES, V)
            y = _label(Y, rows, valid)
            z = tl.sum(x * w[None, :], 1)
            weight = _weight(WEIGHTS, rows, valid, WEIGHTED)
            if MULTIPLIED:
                value, slope, curvature, factor = _split_terms(z, y)
                factors *= tl.where(valid, factor, 1.0)
            else:
                value, slope, curvature = _terms(z, y, delta, LOSS)
            values += weight * value
            curvatures += weight * _raise(z, slope, curvature, RAISED)
            gradient += _folded(x * (weight * slope)[:, None], R, FOLD, D)
        if MULTIPLIED:
            values += tl.log(factors)
    OUT += tl.program_id(0) * (D + 2)
    _put(OUT, tl.sum(gradient, 0), cols, P, D, INTERCEPT)
    tl.store(OUT + D, tl.sum(values, 0))
    tl.store(OUT + D + 1, tl.sum(curvatures, 0))


@triton.jit(do_not_specialize=["n"])
def product_pass(
    X, Y, WEIGHTS, AT, ALONG, OUT, n, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, RAISED: tl.constexpr, STAGES: tl.constexpr, FOLD: tl.constexpr,
    PHASES: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    phase = tl.program_id(0) % PHASES
    mine = (n - phase + PHASES - 1) // PHASES
    delta = tl.load(DELTA)
    cols = _columns(phase, P, D, PHASES, V)
    w = _vector(AT, cols, P, INTERCEPT)
    v = _vector(ALONG, cols, P, INTERCEPT)
    total = tl.zeros([FOLD, D], tl.float64)
    for tile in tl.range(tl.program_id(0) // PHASES, tl.cdiv(mine, R), tl.num_programs(0) // PHASES, num_stages=STAGES):
        lines = tile * R + tl.arange(0, R)
        rows, valid = lines * PHASES + phase, lines < mine
        x = _tile(X, lines, valid, cols, phase, n, P, D, INTERCEPT, PHASES, V)
        y = _label(Y, rows, valid)
        z = tl.sum(x * w[None, :], 1)
        t = tl.sum(x * v[None, :], 1)
        _, slope, curvature = _terms(z, y, delta, LOSS)
        weight = _weight(WEIGHTS, rows, valid, WEIGHTED)
        change = weight * _raise(z, slope, curvature, RAISED) * t
        total += _folded(x * change[:, None], R, FOLD, D)
    _put(OUT + tl.program_id(0) * D, tl.sum(total, 0), cols, P, D, INTERCEPT)


@triton.jit
def run_lines(STARTS, place, valid, shift, n, PHASES: tl.constexpr):
    """Lines of one phase at such places of runs of 2^shift rows: they wrap around at the end of the data.

    With several phases runs begin at a row of the first.
    """
    short = shift - PHASES // 2
    first = tl.load(STARTS + (place >> short), mask=valid, other=0).to(tl.int32) // PHASES
    return (first + (place & ((1 << short) - 1))) % (n // PHASES)


@triton.jit(do_not_specialize=["n", "count", "shift"])
def gram_pass(
    X, Y, WEIGHTS, AT, STARTS, OUT, n, count, shift, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, RAISED: tl.constexpr, ALL: tl.constexpr, STAGES: tl.constexpr,
    PHASES: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Over all rows, or over ``count`` runs of 2^shift rows; for float32 rows."""
    phase = tl.program_id(0) % PHASES
    delta = tl.load(DELTA)
    cols = _columns(phase, P, D, PHASES, V)
    w = _vector(AT, cols, P, INTERCEPT)
    total = tl.zeros([D, D], tl.float64)
    size = (n - phase + PHASES - 1) // PHASES if ALL else (count << shift) // PHASES
    for tile in tl.range(tl.program_id(0) // PHASES, tl.cdiv(size, R), tl.num_programs(0) // PHASES, num_stages=STAGES):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        lines = place if ALL else run_lines(STARTS, place, valid, shift, n, PHASES)
        rows = lines * PHASES + phase
        x = _tile(X, lines, valid, cols, phase, n, P, D, INTERCEPT, PHASES, V)
        y = _label(Y, rows, valid)
        z = tl.sum(x * w[None, :], 1)
        _, slope, curvature = _terms(z, y, delta, LOSS)
        weight = _weight(WEIGHTS, rows, valid, WEIGHTED) * _raise(z, slope, curvature, RAISED)
        # The root on both sides keeps the result symmetric.
        x = (x * tl.sqrt(weight)[:, None]).to(tl.float32)
        # Products of a tile in float32 proper, which is faster here than three products of tensor cores; sums over
        # tiles are float64 again.
        total += tl.dot(tl.trans(x), x, input_precision="ieee").to(tl.float64)
    inside = (cols >= 0) & (cols < P + INTERCEPT)
    around = tl.where(cols < 0, cols + D, cols)
    places = tl.program_id(0) * D * D + around[:, None] * D + around[None, :]
    tl.store(OUT + places, tl.where(inside[:, None] & inside[None, :], total, 0.0))


@triton.jit(do_not_specialize=["n", "count", "shift"])
def change_pass(
    X, Y, WEIGHTS, AT, TO, STARTS, OUT, n, count, shift, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, STAGES: tl.constexpr, FOLD: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """The first half of the programs sums over the first half of the runs, the second over the second."""
    program = tl.program_id(0)
    delta = tl.load(DELTA)
    programs = tl.num_programs(0) // 2
    half = program // programs
    cols = tl.arange(0, D)
    w = _vector(AT, cols, P, INTERCEPT)
    v = _vector(TO, cols, P, INTERCEPT)
    total = tl.zeros([FOLD, D], tl.float64)
    size = (count // 2) << shift
    for tile in tl.range(program % programs, tl.cdiv(size, R), programs, num_stages=STAGES):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        run = (place >> shift) + half * (count // 2)
        rows = (tl.load(STARTS + run, mask=valid, other=0).to(tl.int32) + (place & ((1 << shift) - 1))) % n
        x = _tile(X, rows, valid, cols, 0, n, P, D, INTERCEPT, 1, V)
        before = tl.sum(x * w[None, :], 1)
        after = tl.sum(x * v[None, :], 1)
        change = _change(before, after, Y, WEIGHTS, rows, valid, delta, LOSS, WEIGHTED)
        total += _folded(x * change[:, None], R, FOLD, D)
    tl.store(OUT + program * D + cols, tl.sum(total, 0))


@triton.jit(do_not_specialize=["parts", "width"])
def add_up(PARTS, OUT, parts, width, B: tl.constexpr, C: tl.constexpr):
    """Column sums of the parts, in order."""
    cols = tl.program_id(0) * C + tl.arange(0, C)
    total = tl.zeros([B, C], tl.float64)
    for begin in range(0, parts, B):
        rows = begin + tl.arange(0, B)
        mask = (rows[:, None] < parts) & (cols[None, :] < width)
        total += tl.load(PARTS + rows[:, None] * width + cols[None, :], mask=mask, other=0.0)
    tl.store(OUT + cols, tl.sum(total, 0), mask=cols < width)


# ------------------------------------------------------------------------------------- products for any shape


@triton.jit(do_not_specialize=["n", "K"])
def dense_products(X, W, OUT, n, p, K, R: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0) * R + tl.arange(0, R)
    k = tl.program_id(1)
    valid = rows < n
    total = tl.zeros([R], tl.float64)
    for begin in range(0, p, C):
        cols = begin + tl.arange(0, C)
        x = _wide_tile(X, rows, valid, cols, p)
        w = tl.load(W + cols * K + k, mask=cols < p, other=0.0)
        total += tl.sum(x * w[None, :], 1)
    tl.store(OUT + rows.to(tl.int64) * K + k, total, mask=valid)


@triton.jit(do_not_specialize=["n", "K"])
def dense_transposed(X, S, OUT, n, p, K, SQUARED: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """A part for each program along the rows: OUT is parts × p × K."""
    cols = tl.program_id(1) * C + tl.arange(0, C)
    k = tl.program_id(2)
    total = tl.zeros([R, C], tl.float64)
    for tile in range(tl.program_id(0), tl.cdiv(n, R), tl.num_programs(0)):
        rows = tile * R + tl.arange(0, R)
        valid = rows < n
        x = _wide_tile(X, rows, valid, cols, p)
        s = tl.load(S + rows.to(tl.int64) * K + k, mask=valid, other=0.0)
        total += (x * x if SQUARED else x) * s[:, None]
    tl.store(OUT + (tl.program_id(0).to(tl.int64) * p + cols) * K + k, tl.sum(total, 0), mask=cols < p)


@triton.jit(do_not_specialize=["segments", "K"])
def segment_products(
    DATA, INDICES, BEGINS, W, OUT, segments, K, SQUARED: tl.constexpr, R: tl.constexpr, E: tl.constexpr
):
    """Σ data_e w[index_e] over each segment of entries."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    k = tl.program_id(1)
    valid = rows < segments
    begin = tl.load(BEGINS + rows, mask=valid, other=0)
    end = tl.load(BEGINS + rows + 1, mask=valid, other=0)
    total = tl.zeros([R], tl.float64)
    longest = tl.max(end - begin, 0)
    for offset in range(0, longest, E):
        places = begin[:, None] + offset + tl.arange(0, E)[None, :]
        mask = places < end[:, None]
        x = tl.load(DATA + places, mask=mask, other=0.0).to(tl.float64)
        w = tl.load(W + tl.load(INDICES + places, mask=mask, other=0) * K + k, mask=mask, other=0.0)
        total += tl.sum((x * x if SQUARED else x) * w, 1)
    tl.store(OUT + rows.to(tl.int64) * K + k, total, mask=valid)


@triton.jit(do_not_specialize=["segments", "K"])
def segment_sums(ENTRIES, BEGINS, OUT, segments, K, R: tl.constexpr, E: tl.constexpr):
    """Sums of the entries (segments of rows of K numbers)."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    k = tl.program_id(1)
    valid = rows < segments
    begin = tl.load(BEGINS + rows, mask=valid, other=0)
    end = tl.load(BEGINS + rows + 1, mask=valid, other=0)
    total = tl.zeros([R], tl.float64)
    longest = tl.max(end - begin, 0)
    for offset in range(0, longest, E):
        places = begin[:, None] + offset + tl.arange(0, E)[None, :]
        mask = places < end[:, None]
        total += tl.sum(tl.load(ENTRIES + places * K + k, mask=mask, other=0.0), 1)
    tl.store(OUT + rows.to(tl.int64) * K + k, total, mask=valid)
