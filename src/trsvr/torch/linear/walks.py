"""The inner steps of an epoch as one graph: the host sends the plan, waits once, and gets the new point."""

from __future__ import annotations

from typing import Any

import numpy as np

from trsvr._arrays import Vector
from trsvr.torch.linear import inner_kernels
from trsvr.torch.linear.graphs import Captured
from trsvr.torch.linear.sums import NOISE


class InnerLoop:
    """The inner steps of `FusedSums`, up to a number, as one graph; runs are read in so many phases."""

    def __init__(self, sums: Any, most: int, phases: int) -> None:
        D = sums.D
        self._D, self._d = D, sums.n_parameters
        # x, the plan, and the state's flag and count: see `inner_kernels`
        self._sent = np.zeros(3 * D + D * D + 9)
        self._sent[-2] = 1.0
        sent, state = sums.room(self._sent.size), sums.room(D + 2)
        programs, tuned = sums._programs, sums.tuned(phases)
        parts = sums.room(programs, D)
        plan = sent[D:]

        def launch() -> None:
            state[:D].copy_(sent[:D])
            state[D:].copy_(sent[-2:])
            for step in range(most):
                inner_kernels.inner_changes[(programs,)](
                    *sums._data, plan, state, parts, sums.n_rows, step, sums._delta, **sums._common, **tuned
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
