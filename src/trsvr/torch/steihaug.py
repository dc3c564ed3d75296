"""Steihaug's conjugate gradients on tensors: the text of `trsvr.parts.steihaug_cg`, with vectors on any device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from trsvr.parts import Exit, steihaug_cg


class TensorWork(NamedTuple):
    """The vectors of a conjugate-gradient run, as tensors: the members of `trsvr.parts.subproblems.CGWork`."""

    step: Tensor
    residual: Tensor
    direction: Tensor
    curved: Tensor

    @classmethod
    def like(cls, vector: Tensor) -> TensorWork:
        """New vectors like this one."""
        return cls(*(torch.empty_like(vector) for _ in cls._fields))

    def begin(self, gradient: Tensor) -> float:
        """From p = 0: residual ḡ, direction −ḡ; returns ‖ḡ‖²."""
        self.step.zero_()
        self.residual.copy_(gradient)
        torch.neg(gradient, out=self.direction)
        return float(torch.dot(gradient, gradient))

    def advance(self, length: float) -> tuple[float, ...]:
        """Move step and residual along the direction; returns rᵀr, zᵀz, zᵀr, zᵀd and rᵀd, in one transfer."""
        z, r, d = self.step, self.residual, self.direction
        z.add_(d, alpha=length)
        r.add_(self.curved, alpha=length)
        return tuple(torch.stack([r.dot(r), z.dot(z), z.dot(r), z.dot(d), r.dot(d)]).tolist())

    def end(self, length: float) -> None:
        """The last move, after which no inner product is wanted."""
        self.step.add_(self.direction, alpha=length)
        self.residual.add_(self.curved, alpha=length)

    def turn(self, beta: float) -> None:
        """The next direction: β times the old one minus the residual."""
        self.direction.mul_(beta).sub_(self.residual)


class TensorHessian:
    """H as Steihaug's text wants it: a product into a given tensor."""

    def __init__(self, product: Callable[[Tensor], Tensor]) -> None:
        self._product = product

    def product(self, v: Tensor, squared_norm: float, out: Tensor) -> float:
        """H v in ``out``; returns vᵀHv."""
        out.copy_(self._product(v))
        return float(torch.dot(v, out))


def trust_region_step(
    product: Callable[[Tensor], Tensor], gradient: Tensor, radius: float, max_iterations: int
) -> tuple[Tensor, Exit, int]:
    """The step p ≈ argmin ḡᵀp + ½ pᵀHp over ‖p‖ ≤ radius, why it ended and the number of products."""
    norm = float(torch.linalg.vector_norm(gradient))
    tolerance = min(0.5, math.sqrt(norm)) * norm  # as `trsvr.parts.SteihaugCG`
    work = TensorWork.like(gradient)
    reason, products = steihaug_cg(TensorHessian(product), gradient, radius, tolerance, max_iterations, work)  # type: ignore[arg-type]  # tensors for arrays
    return work.step, Exit(reason), products
