"""Conjugate gradients that stay on a device: the host looks from time to time how they go."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trsvr.problems.steps import Exit, NormedStep
from trsvr.torch.linear.graphs import no_collection


class Goal(NamedTuple):
    """When conjugate gradients end."""

    radius: float
    tolerance: float  # at this relative residual
    most: int  # products
    give_up: Callable[[], bool]


class _Numbers(NamedTuple):
    """What they know beside their vectors, all on the device."""

    rr: Tensor
    zz: Tensor
    zd: Tensor
    dd: Tensor
    stiffest: Tensor
    going: Tensor  # 1 until they end
    cut: Tensor  # 1 where they ended at the boundary
    products: Tensor


class ConjugateGradients:
    """`trsvr.parts.subproblems.preconditioned_cg` for a convex model, without a word to the host after each product.

    Once they have ended, further iterations change nothing: so the host looks every few of them. All they know lies in
    the same place from beginning to end, so that an iteration can be recorded as a graph.

    Parameters
    ----------
    like : tensor
        A vector such as the gradient.
    product, solve
        v ↦ H v and v ↦ P⁻¹v.
    flat : float
        A curvature below this part of the largest is rounding.
    """

    def __init__(
        self, like: Tensor, product: Callable[[Tensor], Tensor], solve: Callable[[Tensor], Tensor], flat: float
    ) -> None:
        self._product, self._solve, self._flat = product, solve, flat
        self._step, self._curved, self._residual, self._direction = (torch.zeros_like(like) for _ in range(4))
        self._row = like.new_zeros(len(_Numbers._fields))
        self._now = _Numbers(*self._row)
        self._enough, self._bound = like.new_zeros(2)
        self._graph: Any = None

    def record(self) -> None:
        """Record an iteration as a graph: it is made once before, so that all is compiled and loaded."""
        with torch.cuda.device(self._row.device), no_collection():
            self._iterate()
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._iterate()

    def run(self, gradient: Tensor, goal: Goal, unseen: int) -> NormedStep:
        """Minimise gᵀp + ½ pᵀHp; the host looks every ``unseen`` iterations."""
        self._begin(gradient, goal)
        for iteration in range(1, goal.most + 1):
            if self._graph is None:
                self._iterate()
            else:
                self._graph.replay()
            looks = iteration % unseen == 0 or iteration == goal.most
            if looks and (not bool(self._now.going > 0.0) or goal.give_up()):
                break
        found = _Numbers(*self._row.tolist())
        exit_ = Exit.BOUNDARY if found.cut else Exit.ITERATION_LIMIT if found.going else Exit.TOLERANCE
        step, curved = self._step.cpu().numpy(), self._curved.cpu().numpy()
        return NormedStep(step, curved, math.sqrt(max(float(found.zz), 0.0)), exit_, int(found.products))

    def _begin(self, gradient: Tensor, goal: Goal) -> None:
        self._step.zero_()
        self._curved.zero_()
        self._residual.copy_(gradient)
        solved = self._solve(self._residual)
        self._direction.copy_(-solved)
        rr = self._residual @ solved
        self._enough.copy_(goal.tolerance * goal.tolerance * rr)
        self._bound.fill_(goal.radius * goal.radius)
        self._row.zero_()
        self._now.rr.copy_(rr)
        self._now.dd.copy_(rr)
        self._now.going.copy_(rr > 0.0)

    def _iterate(self) -> None:
        now, direction = self._now, self._direction
        zero, one = torch.zeros_like(now.rr), torch.ones_like(now.rr)
        along = self._product(direction)
        curvature = direction @ along
        stiffest = torch.maximum(now.stiffest, curvature.abs() / now.dd)
        # What is left of the gradient lies where H is rounding: a step there would be noise.
        curves = (curvature > self._flat * stiffest * now.dd).to(now.rr.dtype) * now.going
        length = torch.where(curves > 0.0, now.rr / curvature, zero)
        beyond = (now.zz + length * (2.0 * now.zd + length * now.dd) > self._bound).to(now.rr.dtype) * curves
        room = (self._bound - now.zz).clamp(min=0.0)
        across = now.zd + torch.sqrt(now.zd * now.zd + now.dd * room)
        length = torch.where(beyond > 0.0, room / across, length)
        self._step.add_(direction * length)
        self._curved.add_(along * length)
        self._residual.add_(along * length)
        solved = self._solve(self._residual)
        rr = self._residual @ solved
        going = curves * (1.0 - beyond) * (rr > self._enough).to(rr.dtype)
        beta = torch.where(going > 0.0, rr / now.rr, one)
        direction.copy_(torch.where(going > 0.0, beta * direction - solved, direction))
        new = _Numbers(
            torch.where(going > 0.0, rr, now.rr),
            now.zz + length * (2.0 * now.zd + length * now.dd),
            torch.where(going > 0.0, beta * (now.zd + length * now.dd), now.zd),
            torch.where(going > 0.0, rr + beta * beta * now.dd, now.dd),
            stiffest,
            going,
            torch.maximum(now.cut, beyond),
            now.products + now.going,
        )
        self._row.copy_(torch.stack(list(new)))
