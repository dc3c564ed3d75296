"""Curvature products H v of a batch's mean loss, without a matrix.

- *exact*: ∇²f v by differentiating ∇f twice; the graph of ∇f is kept for the products of one step, and no longer.
- *gauss-newton*: Jᵀ H_ℓ J v, with J the Jacobian of the model's outputs and H_ℓ the Hessian of the loss in the outputs
  (Schraudolph 2002). Positive semidefinite where the loss is convex in the outputs.
- *estimated*: (g(x + hv) − g(x)) / h with h = √ε (1 + ‖x‖) / ‖v‖, the paper's EstH.
- *identity*: v.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trsvr.torch.closures import Closure, Returned, Surroundings, call
from trsvr.torch.parameters import Flat
from trsvr.torch.processes import Processes

Product = Callable[[Tensor], Tensor]
HESSIANS = ("exact", "estimated", "gauss-newton", "identity")


# ------------------------------------------------------------------------------------- one closure, one graph


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Say what to do where PyTorch cannot differentiate twice."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        known = ("not implemented", "double backward", "create_graph=False")  # the last two: of compiled models
        if not any(words in str(error) for words in known):
            raise
        raise RuntimeError(
            f"the model has an operation that cannot be differentiated twice ({error}); hessian='estimated' and "
            "hessian='identity' need only gradients, and a model without torch.compile may do"
        ) from error


def _grad(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor], *, create_graph: bool = False
) -> list[Tensor | None]:
    """Σ outputᵀ vector, differentiated by the inputs; outputs that do not depend on anything count as zero."""
    pairs = [(output, vector) for output, vector in zip(outputs, vectors, strict=True) if output.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    outputs, vectors = zip(*pairs, strict=True)
    with _explained():
        return list(
            torch.autograd.grad(
                outputs, inputs, vectors, retain_graph=True, create_graph=create_graph, allow_unused=True
            )
        )


def _filled(pieces: Sequence[Tensor | None], shapes: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(shape) if piece is None else piece for piece, shape in zip(pieces, shapes, strict=True)]


def hessian_product(flat: Flat, returned: Returned) -> tuple[Tensor, Product]:
    """Gradient of a loss, and v ↦ ∇²loss v."""
    with _explained():
        gradients = _filled(flat.gradient(returned.loss, create_graph=True), flat.tensors)

    def product(v: Tensor) -> Tensor:
        return flat.join(_grad(gradients, flat.tensors, flat.split(v)))

    return flat.join(gradients), product


def gauss_newton_product(flat: Flat, returned: Returned) -> tuple[Tensor, Product]:
    """Gradient of a loss, and v ↦ Jᵀ H_ℓ J v.

    J v comes from differentiating u ↦ Jᵀu, which is linear: its graph is made once per step.
    """
    loss, outputs = returned
    if not outputs:
        raise ValueError(
            "hessian='gauss-newton' needs the model's outputs: let the closure return (loss, outputs), with outputs "
            "the tensor, or tensors, that the loss was computed from"
        )
    for k, output in enumerate(outputs):
        others = outputs[:k] + outputs[k + 1 :]
        if others and any(found is not None for found in _grad([output], others, [torch.zeros_like(output)])):
            raise ValueError("outputs of the closure must not depend on one another: return the last ones only")
    slopes = _filled(list(torch.autograd.grad(loss, outputs, create_graph=True, allow_unused=True)), outputs)
    total = flat.join(flat.gradient(loss, keep=True))
    dummies = [torch.zeros_like(output, requires_grad=True) for output in outputs]
    pulled = _filled(_grad(outputs, flat.tensors, dummies, create_graph=True), flat.tensors)

    def product(v: Tensor) -> Tensor:
        pushed = _filled(_grad(pulled, dummies, flat.split(v)), outputs)
        curved = _filled(_grad(slopes, outputs, pushed), outputs)
        return flat.join(_grad(outputs, flat.tensors, curved))

    return total, product


def outside_of_outputs(flat: Flat, returned: Returned) -> float:
    """Part of the gradient that does not come through the outputs, relative to the whole: a penalty in the loss."""
    loss, outputs = returned
    slopes = _filled(list(torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True)), outputs)
    whole = flat.join(flat.gradient(loss, keep=True))
    through = flat.join(_grad(outputs, flat.tensors, slopes))
    norm = float(torch.linalg.vector_norm(whole))
    return float(torch.linalg.vector_norm(whole - through)) / norm if norm > 0.0 else 0.0


_TWICE = {"exact": hessian_product, "gauss-newton": gauss_newton_product}


# ------------------------------------------------------------------------------- a batch: one closure or several


class Evaluated(NamedTuple):
    """Mean loss and gradient of a batch."""

    loss: float
    gradient: Tensor
    weight: float  # of all processes


@dataclass(frozen=True)
class Batch:
    """The mean loss of a batch as a function of the parameters.

    A large batch comes in pieces, one closure each, whose graphs are never held at the same time: a product then
    evaluates every piece again. The graph of a single piece is kept.
    """

    flat: Flat  # the parameters
    closures: Sequence[Closure]  # the pieces
    weights: Sequence[float]  # how many samples each has
    processes: Processes  # over which losses, gradients and products are averaged
    surroundings: Surroundings  # generators and buffers as every evaluation is to find them

    def call(self, closure: Closure) -> Returned:
        """One piece at the present parameters."""
        return call(closure, self.flat.tensors)

    def _sum(self, loss: float | Tensor, gradient: Tensor) -> Evaluated:
        gradient, (loss, weight) = self.processes.sum(gradient, loss, sum(self.weights))
        return Evaluated(loss / weight, gradient / weight, weight)

    def gradient(self) -> Evaluated:
        """Loss and gradient at the present parameters, piece by piece."""
        total: Tensor | None = None
        loss: float | Tensor = 0.0
        for closure, weight in zip(self.closures, self.weights, strict=True):
            returned = self.call(closure)
            gradient = self.flat.join(self.flat.gradient(returned.loss))
            total = weight * gradient if total is None else total.add_(gradient, alpha=weight)
            loss = loss + weight * returned.loss.detach().double()
        assert total is not None
        return self._sum(loss, total)

    def gradient_and_curvature(self, hessian: str) -> tuple[Evaluated, Product]:
        """Loss and gradient at the present parameters, and v ↦ H v there."""
        if hessian in _TWICE and len(self.closures) == 1:
            returned = self.call(self.closures[0])
            gradient, local = _TWICE[hessian](self.flat, returned)
            weight = self.weights[0]
            evaluated = self._sum(weight * returned.loss.detach().double(), weight * gradient)

            def of_one_graph(v: Tensor) -> Tensor:
                return self.processes.sum(weight * local(v))[0] / evaluated.weight

            return evaluated, of_one_graph
        evaluated = self.gradient()
        if hessian == "identity":
            return evaluated, torch.clone
        if hessian == "estimated":
            return evaluated, self._differences(evaluated)

        def streamed(v: Tensor) -> Tensor:
            total = torch.zeros_like(v)
            with self.surroundings.replayed():
                for closure, weight in zip(self.closures, self.weights, strict=True):
                    total.add_(_TWICE[hessian](self.flat, self.call(closure))[1](v), alpha=weight)
            return self.processes.sum(total)[0] / evaluated.weight

        return evaluated, streamed

    def _differences(self, here: Evaluated) -> Product:
        x = self.flat.read()
        scale = torch.finfo(self.flat.dtype).eps ** 0.5 * (1.0 + float(torch.linalg.vector_norm(x)))

        def difference(v: Tensor) -> Tensor:
            h = scale / float(torch.linalg.vector_norm(v))
            with self.flat.at(x + h * v), self.surroundings.replayed():
                there = self.gradient().gradient
            return (there - here.gradient) / h

        return difference
