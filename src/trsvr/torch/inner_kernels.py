"""Triton kernels of the inner steps, which never wait for the host: a flag on the device ends them.

PLAN, sent once: reference (D), gradient (D), P⁻¹ (D × D), then count, shift, key, steps at most, step factor and the
penalty's a and c (r'(w) = a w + c w³). STATE, kept on the device: x (D), then whether steps go on, and steps made. With
many or sparse columns the plan lies in pieces, and the step itself is made by torch: see `trsvr.torch.walks`.
"""

# ruff: noqa: D103  # kernels are described where they are launched
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from trsvr.torch.kernels import _folded, _label, _terms, _tile, _weight


@triton.jit
def random_starts(key, run, n):
    """Row numbers that depend on the key and the run alone."""
    bits = tl.randint(key, run).to(tl.uint32, bitcast=True).to(tl.uint64)
    return ((bits * n.to(tl.uint64)) >> 32).to(tl.int32)


@triton.jit(do_not_specialize=["key", "first", "n", "count"])
def list_starts(OUT, key, first, n, count, B: tl.constexpr):
    run = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(OUT + run, random_starts(key, first + run, n).to(tl.int64), mask=run < count)


@triton.jit(do_not_specialize=["n", "count"])
def list_spread(OUT, KEY, n, count, B: tl.constexpr):
    """A random start in each of ``count`` equal stretches; the key lies on the device."""
    run = tl.program_id(0) * B + tl.arange(0, B)
    bits = tl.randint(tl.load(KEY).to(tl.int32), run).to(tl.uint32, bitcast=True).to(tl.float64)
    start = (run.to(tl.float64) + bits / 4294967296.0) * (n.to(tl.float64) / count.to(tl.float64))
    tl.store(OUT + run, tl.minimum(start.to(tl.int64), n - 1), mask=run < count)


# ---------------------------------------------------------------------------------------------- few dense columns


@triton.jit(do_not_specialize=["n", "step"])
def inner_changes(
    X, Y, WEIGHTS, PLAN, STATE, OUT, n, step, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, STAGES: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    """`change_pass` on runs from places of its own choice; nothing is done once the steps have ended."""
    program = tl.program_id(0)
    delta = tl.load(DELTA)
    programs = tl.num_programs(0) // 2
    half = program // programs
    cols = tl.arange(0, D)
    w = tl.load(PLAN + cols)
    v = tl.load(STATE + cols)
    count = tl.load(PLAN + 2 * D + D * D).to(tl.int32)
    shift = tl.load(PLAN + 2 * D + D * D + 1).to(tl.int32)
    key = tl.load(PLAN + 2 * D + D * D + 2).to(tl.int32)
    total = tl.zeros([FOLD, D], tl.float64)
    size = tl.where(tl.load(STATE + D) != 0.0, (count // 2) << shift, 0)
    for tile in tl.range(program % programs, tl.cdiv(size, R), programs, num_stages=STAGES):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        run = (place >> shift) + half * (count // 2)
        rows = (random_starts(key, step * count + run, n) + (place & ((1 << shift) - 1))) % n
        x = _tile(X, rows, valid, cols, P, INTERCEPT)
        y = _label(Y, rows, valid)
        _, before, _ = _terms(tl.sum(x * w[None, :], 1), y, delta, LOSS)
        _, after, _ = _terms(tl.sum(x * v[None, :], 1), y, delta, LOSS)
        change = _weight(WEIGHTS, rows, valid, WEIGHTED) * (after - before)
        total += _folded(x * change[:, None], R, FOLD, D)
    tl.store(OUT + program * D + cols, tl.sum(total, 0))


@triton.jit(do_not_specialize=["parts", "step"])
def inner_update(
    PARTS, PLAN, STATE, parts, step, noise_limit, P: tl.constexpr, D: tl.constexpr, INTERCEPT: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """One step from the sums of the two halves, unless they differ too much."""
    going = tl.load(STATE + D) != 0.0
    cols = tl.arange(0, D)
    scalars = PLAN + 2 * D + D * D
    count = tl.load(scalars).to(tl.int32)
    shift = tl.load(scalars + 1).to(tl.int32)
    most = tl.load(scalars + 3).to(tl.int32)
    factor = tl.load(scalars + 4)
    linear = tl.load(scalars + 5)
    cubic = tl.load(scalars + 6)
    first = tl.zeros([B, D], tl.float64)
    second = tl.zeros([B, D], tl.float64)
    for begin in range(0, parts // 2, B):
        rows = begin + tl.arange(0, B)
        mask = (rows[:, None] < parts // 2) & (cols[None, :] < D)
        first += tl.load(PARTS + rows[:, None] * D + cols[None, :], mask=mask, other=0.0)
        second += tl.load(PARTS + (rows + parts // 2)[:, None] * D + cols[None, :], mask=mask, other=0.0)
    per_half = 1.0 / ((count // 2) << shift).to(tl.float64)
    one = tl.sum(first, 0) * per_half
    two = tl.sum(second, 0) * per_half
    at = tl.load(PLAN + cols)
    x = tl.load(STATE + cols)
    penalised = cols < P
    change = linear * (x - at) + cubic * (x * x * x - at * at * at)
    estimate = tl.load(PLAN + D + cols) + 0.5 * (one + two) + tl.where(penalised, change, 0.0)
    error = 0.5 * (one - two)
    inverse = tl.load(PLAN + 2 * D + cols[:, None] * D + cols[None, :])
    solved = tl.sum(inverse * estimate[None, :], 1)
    signal = tl.sum(solved * estimate, 0)
    noise = tl.sum(tl.sum(inverse * error[None, :], 1) * error, 0)
    going = going & (noise <= noise_limit * signal) & (step < most)
    tl.store(STATE + cols, tl.where(going, x - factor * solved, x))
    tl.store(STATE + D + 1, tl.load(STATE + D + 1) + tl.where(going, 1.0, 0.0))
    tl.store(STATE + D, tl.where(going, 1.0, 0.0))


# ------------------------------------------------------------------------------------- many dense, or sparse columns
#
# A program adds to a part of OUT that is its own. The barriers order what one of its threads writes and another reads.


@triton.jit(do_not_specialize=["n", "step", "d"])
def wide_changes(
    X, Y, WEIGHTS, AT, STATE, SCALARS, OUT, n, step, DELTA, p, d,
    LOSS: tl.constexpr, WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """`inner_changes` for any number of dense columns: a tile of rows is read for its margins and once more for Xᵀs."""
    program = tl.program_id(0)
    delta = tl.load(DELTA)
    programs = tl.num_programs(0) // 2
    half = program // programs
    count = tl.load(SCALARS).to(tl.int32)
    shift = tl.load(SCALARS + 1).to(tl.int32)
    key = tl.load(SCALARS + 2).to(tl.int32)
    size = tl.where(tl.load(STATE + d) != 0.0, (count // 2) << shift, 0)
    own = OUT + program.to(tl.int64) * d
    for begin in range(0, d, C):
        cols = begin + tl.arange(0, C)
        tl.store(own + cols, tl.zeros([C], tl.float64), mask=cols < d)
    tl.debug_barrier()
    total = tl.zeros([R], tl.float64)
    for tile in range(program % programs, tl.cdiv(size, R), programs):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        run = (place >> shift) + half * (count // 2)
        rows = (random_starts(key, step * count + run, n) + (place & ((1 << shift) - 1))) % n
        before = tl.zeros([R], tl.float64)
        after = tl.zeros([R], tl.float64)
        if INTERCEPT:
            before += tl.load(AT + p)
            after += tl.load(STATE + p)
        for begin in range(0, p, C):
            cols = begin + tl.arange(0, C)
            x = _wide_tile(X, rows, valid, cols, p)
            before += tl.sum(x * tl.load(AT + cols, mask=cols < p, other=0.0)[None, :], 1)
            after += tl.sum(x * tl.load(STATE + cols, mask=cols < p, other=0.0)[None, :], 1)
        y = _label(Y, rows, valid)
        _, old, _ = _terms(before, y, delta, LOSS)
        _, new, _ = _terms(after, y, delta, LOSS)
        change = _weight(WEIGHTS, rows, valid, WEIGHTED) * (new - old)
        total += change
        for begin in range(0, p, C):
            cols = begin + tl.arange(0, C)
            x = _wide_tile(X, rows, valid, cols, p)
            sums = tl.load(own + cols, mask=cols < p, other=0.0) + tl.sum(x * change[:, None], 0)
            tl.store(own + cols, sums, mask=cols < p)
        tl.debug_barrier()
    if INTERCEPT:
        tl.store(own + p, tl.sum(total, 0))


@triton.jit
def _wide_tile(X, rows, valid, cols, p):
    places = rows.to(tl.int64)[:, None] * p + cols[None, :]
    return tl.load(X + places, mask=valid[:, None] & (cols[None, :] < p), other=0.0).to(tl.float64)


@triton.jit(do_not_specialize=["n", "step", "p", "d"])
def sparse_changes(
    DATA, INDICES, BEGINS, Y, WEIGHTS, AT, STATE, SCALARS, OUT, n, step, DELTA, p, d,
    LOSS: tl.constexpr, WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr, C: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """`inner_changes` for compressed rows: one row at a time, whose columns are all different."""
    program = tl.program_id(0)
    delta = tl.load(DELTA)
    programs = tl.num_programs(0) // 2
    half = program // programs
    count = tl.load(SCALARS).to(tl.int32)
    shift = tl.load(SCALARS + 1).to(tl.int32)
    key = tl.load(SCALARS + 2).to(tl.int32)
    size = tl.where(tl.load(STATE + d) != 0.0, (count // 2) << shift, 0)
    own = OUT + program.to(tl.int64) * d
    for begin in range(0, d, C):
        cols = begin + tl.arange(0, C)
        tl.store(own + cols, tl.zeros([C], tl.float64), mask=cols < d)
    tl.debug_barrier()
    total = tl.zeros([1], tl.float64)
    for number in range(program % programs, size, programs):
        place = number + tl.arange(0, 1)
        run = (place >> shift) + half * (count // 2)
        row = (random_starts(key, step * count + run, n) + (place & ((1 << shift) - 1))) % n
        first = tl.load(BEGINS + row)
        last = tl.load(BEGINS + row + 1)
        before = tl.zeros([1], tl.float64)
        after = tl.zeros([1], tl.float64)
        if INTERCEPT:
            before += tl.load(AT + p)
            after += tl.load(STATE + p)
        entries = tl.max(last - first, 0)
        for offset in range(0, entries, E):
            places = first[:, None] + offset + tl.arange(0, E)[None, :]
            mask = places < last[:, None]
            x = tl.load(DATA + places, mask=mask, other=0.0).to(tl.float64)
            cols = tl.load(INDICES + places, mask=mask, other=0)
            before += tl.sum(x * tl.load(AT + cols, mask=mask, other=0.0), 1)
            after += tl.sum(x * tl.load(STATE + cols, mask=mask, other=0.0), 1)
        known = place < size
        y = _label(Y, row, known)
        _, old, _ = _terms(before, y, delta, LOSS)
        _, new, _ = _terms(after, y, delta, LOSS)
        change = _weight(WEIGHTS, row, known, WEIGHTED) * (new - old)
        total += change
        for offset in range(0, entries, E):
            places = first[:, None] + offset + tl.arange(0, E)[None, :]
            mask = places < last[:, None]
            x = tl.load(DATA + places, mask=mask, other=0.0).to(tl.float64)
            cols = tl.load(INDICES + places, mask=mask, other=0)
            sums = tl.load(own + cols, mask=mask, other=0.0) + x * change[:, None]
            tl.store(own + cols, sums, mask=mask)
        tl.debug_barrier()
    if INTERCEPT:
        tl.store(own + p, tl.sum(total, 0))
