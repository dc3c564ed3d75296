"""Triton kernels of the inner steps, which never wait for the host: a flag on the device ends them.

PLAN, sent once: reference (D), gradient (D), P⁻¹ (D × D), then count, shift, key, steps at most, step factor and the
penalty's a and c (r'(w) = a w + c w³). STATE, kept on the device: x (D), then whether steps go on, and steps made.
"""

# ruff: noqa: D103  # kernels are described where they are launched
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from trsvr.torch.linear.kernels import _change, _columns, _folded, _put, _tile, _vector


@triton.jit
def random_starts(key, run, n):
    """Row numbers that depend on the key and the run alone."""
    bits = tl.randint(key, run).to(tl.uint32, bitcast=True).to(tl.uint64)
    return ((bits * n.to(tl.uint64)) >> 32).to(tl.int32)


@triton.jit(do_not_specialize=["key", "first", "n", "count"])
def list_starts(OUT, key, first, n, count, B: tl.constexpr, PHASES: tl.constexpr):
    run = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(OUT + run, PHASES * random_starts(key, first + run, n // PHASES).to(tl.int64), mask=run < count)


@triton.jit(do_not_specialize=["n", "count"])
def list_spread(OUT, KEY, n, count, B: tl.constexpr, PHASES: tl.constexpr):
    """A random start in each of ``count`` equal stretches, at a row of the first phase; the key is on the device."""
    run = tl.program_id(0) * B + tl.arange(0, B)
    bits = tl.randint(tl.load(KEY).to(tl.int32), run).to(tl.uint32, bitcast=True).to(tl.float64)
    start = (run.to(tl.float64) + bits / 4294967296.0) * (n.to(tl.float64) / count.to(tl.float64))
    tl.store(OUT + run, tl.minimum(start.to(tl.int64), n - 1) // PHASES * PHASES, mask=run < count)


@triton.jit
def _batch(scalars, going):
    """Count of runs, logarithm of their length, the key, and the rows of half a batch: none once steps have ended."""
    count = tl.load(scalars).to(tl.int32)
    shift = tl.load(scalars + 1).to(tl.int32)
    key = tl.load(scalars + 2).to(tl.int32)
    return count, shift, key, tl.where(going != 0.0, (count // 2) << shift, 0)


@triton.jit
def _lines_at(place, half, key, step, count, shift, n, PHASES: tl.constexpr):
    """Lines of one phase at such places of one half of the step's batch: the runs begin anywhere and wrap around."""
    short = shift - PHASES // 2
    run = (place >> short) + half * (count // 2)
    return (random_starts(key, step * count + run, n // PHASES) + (place & ((1 << short) - 1))) % (n // PHASES)


@triton.jit(do_not_specialize=["n", "step"])
def inner_changes(
    X, Y, WEIGHTS, PLAN, STATE, OUT, n, step, DELTA,
    P: tl.constexpr, D: tl.constexpr, R: tl.constexpr, LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    INTERCEPT: tl.constexpr, STAGES: tl.constexpr, FOLD: tl.constexpr, PHASES: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """`change_pass` on runs from places of its own choice; nothing is done once the steps have ended."""
    delta = tl.load(DELTA)
    programs = tl.num_programs(0) // 2
    half = tl.program_id(0) // programs
    program = tl.program_id(0) % programs
    phase = program % PHASES
    cols = _columns(phase, P, D, PHASES, V)
    w = _vector(PLAN, cols, P, INTERCEPT)
    v = _vector(STATE, cols, P, INTERCEPT)
    count, shift, key, size = _batch(PLAN + 2 * D + D * D, tl.load(STATE + D))
    size = size // PHASES
    total = tl.zeros([FOLD, D], tl.float64)
    for tile in tl.range(program // PHASES, tl.cdiv(size, R), programs // PHASES, num_stages=STAGES):
        place = tile * R + tl.arange(0, R)
        valid = place < size
        lines = _lines_at(place, half, key, step, count, shift, n, PHASES)
        rows = lines * PHASES + phase
        x = _tile(X, lines, valid, cols, phase, n, P, D, INTERCEPT, PHASES, V)
        before = tl.sum(x * w[None, :], 1)
        after = tl.sum(x * v[None, :], 1)
        change = _change(before, after, Y, WEIGHTS, rows, valid, delta, LOSS, WEIGHTED)
        total += _folded(x * change[:, None], R, FOLD, D)
    _put(OUT + tl.program_id(0) * D, tl.sum(total, 0), cols, P, D, INTERCEPT)


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
