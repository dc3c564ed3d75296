"""Gauss and Newton's matrix of a model and a loss: JᵀH_ℓJ, J the derivatives of the outputs, H_ℓ the loss's Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from trsvr._arrays import Indices, Matrix
from trsvr.parts.norm_choice import NormRules, first_rows, price_of_matrix
from trsvr.problems.residuals import BLOCK
from trsvr.problems.views import Prices

# What a product costs for each sample and parameter: forwards, backwards, and both once more; and what it and the
# matrix cost even on no data. In multiplications.
_PRODUCT, _CALL, _CALL_OF_MATRIX = 12.0, 3e6, 2.5e7
# The matrix pays up to so many products, about what a step saves with it; where unknowns are few, up to this part of
# their number.
_RULES, _PART = NormRules(products_per_matrix=7.0), 1 / 8
# Part of the largest curvature of a loss that rounding makes negative, in units of the last place.
_ROUNDING = 64.0


class GaussNewtonMatrix:
    """The mean of JᵀH_ℓJ over some samples, always the same ones.

    Parameters
    ----------
    model, names, loss
        The model, its trainable parameters' names in order, and ``loss(outputs, target)``.
    take : callable
        ``take(indices)`` returns those samples' tensors.
    n, d : int
        Samples and parameters.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        names: list[str],
        loss: Callable[..., Tensor],
        take: Callable[[Indices], list[Tensor]],
        n: int,
        d: int,
    ) -> None:
        self._model, self._names, self._loss, self._take, self._n, self._d = model, names, loss, take, n, d
        self._rows = np.arange(n)
        count = first_rows(n, d, _RULES)
        if count < n:
            self._rows = np.sort(np.random.default_rng(n).choice(n, count, replace=False))
        self._outputs = 1

    def pays(self) -> bool:
        """Whether it costs less than the products it saves, can be computed, and is positive where the run begins."""
        *inputs, _ = self._take(self._rows[:1])
        outputs = self._model(*inputs)
        if not isinstance(outputs, Tensor):
            return False
        self._outputs, n, d = outputs.numel(), self._n, self._d
        product = _PRODUCT * n * d + _CALL
        row, rest = self._outputs * (2.0 * d + _PRODUCT) * d, d**3 / 3.0 + _CALL_OF_MATRIX
        prices = Prices(matrix_row=row / product, factor=rest / product)
        if price_of_matrix(prices, n, d, _RULES) > min(_RULES.products_per_matrix, _PART * d):
            return False
        try:
            bends = torch.linalg.eigvalsh(self._of(self._rows[: self._at_once()])[1].double())
        except RuntimeError:  # what works by itself, but not in `torch.func`
            return False
        largest = float(bends.abs().max())
        return 0.0 < largest < np.inf and float(bends.min()) >= -_ROUNDING * torch.finfo(outputs.dtype).eps * largest

    def matrix(self) -> tuple[Matrix, int]:
        """It, where the model's parameters are, and the number of samples."""
        total: Tensor | float = 0.0
        for begin in range(0, len(self._rows), self._at_once()):
            jacobian, bends = self._of(self._rows[begin : begin + self._at_once()])
            total = total + jacobian.flatten(0, 1).T @ (bends @ jacobian).flatten(0, 1)
        assert isinstance(total, Tensor)
        return np.asarray(total.double().cpu().numpy()) / len(self._rows), len(self._rows)

    def _at_once(self) -> int:
        return max(BLOCK // (self._outputs * self._d), 1)

    def _of(self, rows: Indices) -> tuple[Tensor, Tensor]:
        """Derivatives of some samples' outputs, and the Hessians of their losses in these."""
        parameters = dict(self._model.named_parameters())
        trainable = {name: parameters[name].detach() for name in self._names}

        def outputs_of(chosen: dict[str, Tensor], *inputs: Tensor) -> tuple[Tensor, Tensor]:
            outputs = functional_call(self._model, chosen, inputs)
            return outputs.reshape(-1), outputs

        def one(chosen: dict[str, Tensor], *sample: Tensor) -> tuple[Any, Tensor]:
            *inputs, target = (part.unsqueeze(0) for part in sample)
            jacobian, outputs = jacrev(outputs_of, has_aux=True)(chosen, *inputs)
            bends = jacrev(jacrev(lambda flat: self._loss(flat.reshape(outputs.shape), target)))(outputs.flatten())
            return jacobian, bends

        samples = self._take(rows)
        found, bends = vmap(one, in_dims=(None, *(0 for _ in samples)))(trainable, *samples)
        return torch.cat([found[name].reshape(*found[name].shape[:2], -1) for name in self._names], dim=2), bends
