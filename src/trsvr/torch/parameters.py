"""The trainable parameters of an optimiser as one vector, and the parameters that are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

_ACCEPTED = (torch.float32, torch.float64)


def refuse_unsuitable(parameter: Tensor) -> None:
    """Raise ValueError for a parameter on which a variance-reduced trust region cannot be right."""
    kinds = {base.__name__ for base in type(parameter).__mro__}
    # FSDP keeps its mark on the tensor: the class of a flat parameter is that of every parameter.
    if "DTensor" in kinds or "FlatParameter" in kinds or hasattr(parameter, "_is_flat_param"):
        raise ValueError(
            f"params has a sharded parameter ({type(parameter).__name__}): every process must hold all parameters, "
            "because step norms and inner products are taken over all of them; DistributedDataParallel works, FSDP and "
            "tensor parallelism do not"
        )
    if torch.nn.parameter.is_lazy(parameter):
        raise ValueError("params has a lazy parameter without a shape: run the model on one batch first")
    if parameter.dtype not in _ACCEPTED:
        raise ValueError(
            f"params must be float32 or float64, got {parameter.dtype}: the differences of gradients that variance "
            "reduction lives on are lost in half precision; keep float32 parameters and use autocast in the closure"
        )
    if parameter.layout is not torch.strided:
        raise ValueError(f"params must be dense tensors, got layout {parameter.layout}")


class Flat:
    """Tensors seen as one vector x.

    Parameters
    ----------
    tensors : sequence of Tensor
        Parameters that require gradients. Shared parameters are one tensor and count once.
    groups : sequence of int
        For each tensor, the number of its parameter group.
    """

    def __init__(self, tensors: Sequence[Tensor], groups: Sequence[int]) -> None:
        if not tensors:
            raise ValueError("params has no parameter that requires a gradient: there is nothing to minimise")
        self.tensors = list(tensors)
        self.groups = list(groups)
        devices = {tensor.device for tensor in tensors}
        if len(devices) > 1:
            names = " and ".join(sorted(map(str, devices)))
            raise ValueError(f"params must lie on one device, got {names}")
        self.device = next(iter(devices))
        self.dtype = torch.float32 if all(t.dtype == torch.float32 for t in tensors) else torch.float64
        self.sizes = [tensor.numel() for tensor in tensors]

    def join(self, pieces: Sequence[Tensor | None]) -> Tensor:
        """Tensors of the parameters' shapes as one vector; None is zero."""
        return torch.cat(
            [
                torch.zeros(size, dtype=self.dtype, device=self.device)
                if piece is None
                else piece.detach().reshape(-1).to(self.dtype)
                for piece, size in zip(pieces, self.sizes, strict=True)
            ]
        )

    def split(self, vector: Tensor) -> list[Tensor]:
        """The vector as tensors of the parameters' shapes and dtypes (views where the dtype is the same)."""
        return [
            piece.view(tensor.shape).to(tensor.dtype)
            for piece, tensor in zip(torch.split(vector, self.sizes), self.tensors, strict=True)
        ]

    def read(self) -> Tensor:
        """A copy of x."""
        return self.join(self.tensors)

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Change the parameters, in place: views of them stay views."""
        for tensor, piece in zip(self.tensors, self.split(vector), strict=True):
            tensor.copy_(piece)

    @contextlib.contextmanager
    def at(self, point: Tensor) -> Iterator[None]:
        """The parameters are ``point`` for a while, and afterwards what they were, to the bit."""
        here = self.read()
        self.write(point)
        try:
            yield
        finally:
            self.write(here)

    def spread(self, values: Sequence[float]) -> float | Tensor:
        """A number per group as a factor for vectors: a number if they are all the same, else a vector."""
        present = {values[group] for group in self.groups}
        if len(present) == 1:
            return present.pop()
        return torch.cat(
            [
                torch.full((size,), values[group], dtype=self.dtype, device=self.device)
                for size, group in zip(self.sizes, self.groups, strict=True)
            ]
        )

    def gradient(self, loss: Tensor, *, keep: bool = False, create_graph: bool = False) -> list[Tensor | None]:
        """∂loss/∂parameter of every parameter; None for those that the loss does not see.

        ``keep`` keeps the graph for a further use; ``create_graph`` makes one of the gradient itself.
        """
        found: Sequence[Any] = torch.autograd.grad(
            loss, self.tensors, retain_graph=keep or create_graph, create_graph=create_graph, allow_unused=True
        )
        if all(gradient is None for gradient in found):
            raise ValueError("closure returned a loss that does not depend on any parameter of this optimiser")
        if any(gradient is not None and gradient.layout is not torch.strided for gradient in found):
            raise ValueError("a parameter has sparse gradients: build the embedding with sparse=False")
        return list(found)
