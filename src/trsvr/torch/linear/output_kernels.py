"""Triton kernels of `Softmax` on few columns and few outputs: a pass, and a product with the Hessian, read X once.

Margins are products of a tile of rows with the p × K weights, gradients products of its transpose with the slopes; in
float64 both are made by the device's tensor cores, as the products of a Hessian are in TF32. An intercept is a column
of ones. `trsvr.torch.linear.outputs` has the formulas.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _rows(X, rows, valid, cols, P: tl.constexpr, INTERCEPT: tl.constexpr):
    places = rows.to(tl.int64)[:, None] * P + cols[None, :]
    x = tl.load(X + places, mask=valid[:, None] & (cols[None, :] < P), other=0.0)
    if INTERCEPT:
        x = tl.where(cols[None, :] == P, 1.0, x)
    return x


@triton.jit
def _table(AT, cols, outputs, P: tl.constexpr, K: tl.constexpr, INTERCEPT: tl.constexpr):
    inside = (cols[:, None] < P + INTERCEPT) & (outputs[None, :] < K)
    return tl.load(AT + cols[:, None] * K + outputs[None, :], mask=inside, other=0.0)


@triton.jit(do_not_specialize=["n"])
def softmax_pass(
    X, PLACES, WEIGHTS, AT, SLOPES, OUT, n,
    P: tl.constexpr, D: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, R: tl.constexpr,
    WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Gradients (D × KP), losses and curvatures, summed; KEEP: slopes are written down."""
    cols = tl.arange(0, D)
    outputs = tl.arange(0, KP)
    known = outputs[None, :] < K
    w = _table(AT, cols, outputs, P, K, INTERCEPT)
    gradient = tl.zeros([D, KP], tl.float64)
    values = tl.zeros([R], tl.float64)
    curvatures = tl.zeros([R], tl.float64)
    for tile in range(tl.program_id(0), tl.cdiv(n, R), tl.num_programs(0)):
        rows = tile * R + tl.arange(0, R)
        valid = rows < n
        x = _rows(X, rows, valid, cols, P, INTERCEPT).to(tl.float64)
        right = tl.load(PLACES + rows, mask=valid, other=0)[:, None] == outputs[None, :]
        z = tl.dot(x, w, out_dtype=tl.float64)
        z = tl.where(known, z - tl.sum(tl.where(right, z, 0.0), 1)[:, None], float("-inf"))
        top = tl.max(z, 1)  # at least the label's, which is zero
        others = tl.where(right, 0.0, tl.exp(z - top[:, None]))
        total = tl.sum(others, 1)
        small = tl.exp(-top)
        share = 1.0 / (total + small)
        slopes = tl.where(right, -(total * share)[:, None], others * share[:, None])
        sizes = tl.abs(slopes)
        weight = tl.where(valid, 1.0, 0.0).to(tl.float64)
        if WEIGHTED:
            weight = tl.load(WEIGHTS + rows, mask=valid, other=0.0)
        # The loss is the logarithm of 1 + Σ exp over the other outputs: near one a sum loses what is small.
        above = total + small - 1.0
        whole = 1.0 + total
        exact = tl.log(whole) + (total - (whole - 1.0)) / whole
        values += weight * tl.where(top == 0.0, exact, top + tl.log(1.0 + above))
        curvatures += weight * tl.sum(sizes * (1.0 - sizes), 1)
        if KEEP:
            places = rows.to(tl.int64)[:, None] * K + outputs[None, :]
            tl.store(SLOPES + places, slopes.to(tl.float32), mask=valid[:, None] & known)
        gradient += tl.dot(tl.trans(x), slopes * weight[:, None], out_dtype=tl.float64)
    OUT += tl.program_id(0) * (D * KP + 2)
    tl.store(OUT + cols[:, None] * KP + outputs[None, :], gradient)
    tl.store(OUT + D * KP, tl.sum(values, 0))
    tl.store(OUT + D * KP + 1, tl.sum(curvatures, 0))


@triton.jit(do_not_specialize=["n"])
def softmax_product(
    X, PLACES, WEIGHTS, ALONG, SLOPES, OUT, n,
    P: tl.constexpr, D: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, R: tl.constexpr,
    WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The Hessian, from the slopes, times a p × K table."""
    cols = tl.arange(0, D)
    outputs = tl.arange(0, KP)
    v = _table(ALONG, cols, outputs, P, K, INTERCEPT).to(tl.float32)
    total = tl.zeros([D, KP], tl.float64)
    for tile in range(tl.program_id(0), tl.cdiv(n, R), tl.num_programs(0)):
        rows = tile * R + tl.arange(0, R)
        valid = rows < n
        x = _rows(X, rows, valid, cols, P, INTERCEPT)
        places = rows.to(tl.int64)[:, None] * K + outputs[None, :]
        slopes = tl.load(SLOPES + places, mask=valid[:, None] & (outputs[None, :] < K), other=0.0)
        right = tl.load(PLACES + rows, mask=valid, other=0)[:, None] == outputs[None, :]
        t = tl.dot(x, v, input_precision=PRECISION)
        t -= tl.sum(tl.where(right, t, 0.0), 1)[:, None]
        mean = tl.sum(slopes * t, 1)[:, None]
        t = slopes * (t - mean) - tl.where(right, mean, 0.0)
        if WEIGHTED:
            t *= tl.load(WEIGHTS + rows, mask=valid, other=0.0).to(tl.float32)[:, None]
        total += tl.dot(tl.trans(x), t, input_precision=PRECISION).to(tl.float64)
    tl.store(OUT + tl.program_id(0) * D * KP + cols[:, None] * KP + outputs[None, :], total)
