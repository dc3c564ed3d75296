"""The inner steps of an epoch as one graph: the host sends the plan, waits once, and gets the new point."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trsvr._arrays import Vector
from trsvr.torch.linear import inner_kernels
from trsvr.torch.linear.graphs import Captured
from trsvr.torch.linear.sums import NOISE


class InnerLoop:
    """The inner steps of `FusedSums`, up to a number, as one graph."""

    def __init__(self, sums: Any, most: int) -> None:
        D = sums.D
        self._D, self._d = D, sums.n_parameters
        # x, the plan, and the state's flag and count: see `inner_kernels`
        self._sent = np.zeros(3 * D + D * D + 9)
        self._sent[-2] = 1.0
        sent, state = sums.room(self._sent.size), sums.room(D + 2)
        programs = sums._programs // 2 * 2
        parts = sums.room(programs, D)
        plan = sent[D:]

        def launch() -> None:
            state[:D].copy_(sent[:D])
            state[D:].copy_(sent[-2:])
            for step in range(most):
                inner_kernels.inner_changes[(programs,)](
                    *sums._data, plan, state, parts, sums.n_rows, step, sums._delta, **sums._common, **sums.tuned()
                )
                inner_kernels.inner_update[(1,)](
                    parts, plan, state, programs, step, NOISE,
                    P=sums.rows.columns, D=D, INTERCEPT=int(sums.intercept), B=4096 // D,
                    num_warps=8, enable_fp_fusion=False,
                )  # fmt: skip

        self._captured = Captured(sent, state, launch, keep=(parts,))

    def run(
        self, at: Vector, x: Vector, gradient: Vector, inverse: Any, scalars: tuple[float, ...]
    ) -> tuple[Vector, int]:
        """New x and the number of steps."""
        D, d, sent = self._D, self._d, self._sent
        sent[:d] = x
        sent[D : D + d] = at
        sent[2 * D : 2 * D + d] = gradient
        sent[3 * D : 3 * D + D * D].reshape(D, D)[:d, :d] = inverse
        sent[-9:-2] = scalars
        out = self._captured.run(sent)
        return out[:d].copy(), int(out[D + 1])


class WideLoop:
    """The same for `WideSums`: kernels for the rows' share of a step, and torch for the vectors' share.

    The plan has P's Cholesky factor instead of its inverse, which the device makes faster than the host.
    """

    def __init__(self, sums: Any, most: int) -> None:
        d = self._d = sums.n_parameters
        # x, reference, gradient; count, shift, key, steps at most, step factor, the penalty's a and c, rows of a half;
        # the state's flag and count
        self._sent = np.zeros(3 * d + 10)
        self._sent[-2] = 1.0
        sent, state = sums.room(self._sent.size), sums.room(d + 2)
        at, gradient, scalars = sent[d : 2 * d], sent[2 * d : 3 * d], sent[3 * d : -2]
        penalised = torch.ones_like(at)
        penalised[sums.rows.columns :] = 0.0
        parts = sums.room(sums.programs, d)
        inverse = self._inverse = sums.room(d, d).zero_()

        def launch() -> None:
            state[:d].copy_(sent[:d])
            state[d:].copy_(sent[-2:])
            for step in range(most):
                sums.add_changes(at, state, scalars, parts, step)
                _step(parts, at, gradient, inverse, penalised, scalars, state, step)

        self._captured = Captured(sent, state, launch, keep=(parts, inverse, penalised))

    def run(
        self, at: Vector, x: Vector, gradient: Vector, factor: Any, scalars: tuple[float, ...]
    ) -> tuple[Vector, int]:
        """New x and the number of steps."""
        d, sent = self._d, self._sent
        self._inverse.copy_(torch.cholesky_inverse(torch.from_numpy(factor).to(self._inverse.device)))
        sent[:d], sent[d : 2 * d], sent[2 * d : 3 * d] = x, at, gradient
        count, shift = int(scalars[0]), int(scalars[1])
        sent[3 * d : -2] = (*scalars, count // 2 << shift)
        out = self._captured.run(sent)
        return out[:d].copy(), int(out[d + 1])


def _step(
    parts: Tensor,
    at: Tensor,
    gradient: Tensor,
    inverse: Tensor,
    penalised: Tensor,
    scalars: Tensor,
    state: Tensor,
    step: int,
) -> None:
    """One step from the sums of the two halves, unless they differ too much: `inner_kernels.inner_update` in torch."""
    d = at.numel()
    most, factor, linear, cubic, rows = scalars[3:]
    one, two = parts.view(2, -1, d).sum(1) / rows
    x = state[:d]
    change = penalised * (linear * (x - at) + cubic * (x * x * x - at * at * at))
    both = torch.stack([gradient + 0.5 * (one + two) + change, 0.5 * (one - two)])
    solved = both @ inverse
    signal, noise = (both * solved).sum(1)
    going = (state[d] != 0.0) & (noise <= NOISE * signal) & (most > step)
    x.sub_(torch.where(going, factor * solved[0], 0.0))
    state[d].copy_(going)
    state[d + 1].add_(going)
