"""least_squares(model, data): damped Gauss–Newton steps on a model's residuals; PyTorch makes the rows of J."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

import trsvr
from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector
from trsvr.problems.losses import Squared
from trsvr.problems.plain import NotFinite
from trsvr.problems.residuals import BLOCK, ResidualProblem, Squares, all_blocks
from trsvr.torch.parameters import Flat, refuse_unsuitable
from trsvr.torch.problem import Samples, mixes_samples, names_of

# Rows of J that a step does with, for each unknown at least, and how many times as many there must be: then the sample
# says what JᵀJ is to some per cent. An eighth of all rows costs about what the gradient does.
_SAMPLED, _MANY, _PART = 200, 4, 8
# Numbers of J at a time where the model is not on the CPU, 128 MB: what launches cost is little beside them.
_ON_DEVICE = 2**24
# Rows of J at a time where a model differentiates inside itself: each costs a sweep over all of them.
_FEW_ROWS = 32


class ModelResiduals(ResidualProblem):
    """f(x) = (1/N) Σ_i Σ_k ℓ(r_ik) + (λ/2)‖x‖² with r_i = scale · (model_x(input_i) − target_i), x the parameters.

    Parameters
    ----------
    model : torch.nn.Module
        On a CPU or a GPU, float64 for many digits; a function: dropout and batch norm in evaluation mode.
    dataset : map-style data set, TensorDataset or tuple of tensors
        A sample is ``(input, …, target)``.
    residuals : callable, optional
        ``residuals(outputs, target)``, rows of them; the difference by default.
    loss, weights
        As for `trsvr.problems.LeastSquares`.
    weight_decay : float
        λ.
    scale : float
        What residuals are multiplied by.
    rows_at_once : int, optional
        Samples in memory at a time; by default as many as the notes say.

    Notes
    -----
    Rows of J come from `torch.func`, as many at a time as make 16 MB, on a GPU 128. Where rows are many, JᵀJ and Jᵀr
    are summed where the model is. A model that calls `torch.autograd` inside its forward pass cannot be transformed
    so: its rows come from one backward pass for each, some at a time.
    """

    scales_columns = False

    def __init__(
        self,
        model: torch.nn.Module,
        dataset: Any,
        *,
        residuals: Callable[[Any, Any], Tensor] | None = None,
        loss: Any = None,
        weights: Any = None,
        weight_decay: float = 0.0,
        scale: float = 1.0,
        rows_at_once: int | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {model!r}")
        self._names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trainable:
            refuse_unsuitable(parameter)
        self.model, self._flat = model, Flat(trainable, [0] * len(trainable))
        self._rows = Samples(dataset, self._flat.device, self._flat.dtype)
        self._scale, self._difference = _check.positive("scale", scale), residuals
        self._set(
            len(self._rows),
            sum(self._flat.sizes),
            Squared() if loss is None else loss,
            weights,
            weight_decay,
            None,
        )
        self._transforms = True  # until it fails
        self._most_rows = None if rows_at_once is None else _check.whole("rows_at_once", rows_at_once)
        self.n_residuals = self._residuals_of_a_row() * self.n_samples

    def start(self) -> Vector:
        """The model's present parameters as x."""
        return np.asarray(self._flat.read().double().cpu().numpy())

    def load(self, x: Vector) -> None:
        """Write x into the model."""
        self._flat.write(torch.as_tensor(x, dtype=self._flat.dtype).to(self._flat.device))

    def _residual(self, outputs: Any, target: Any) -> Tensor:
        found = outputs - target if self._difference is None else self._difference(outputs, target)
        return self._scale * found

    def _forward(self, rows: Indices) -> Tensor:
        *inputs, target = self._rows.take(rows)
        return self._residual(self.model(*inputs), target)

    def _at_once(self) -> int:
        numbers = BLOCK if self._flat.device.type == "cpu" else _ON_DEVICE
        suits = max(numbers // (self._outputs() * self.n_parameters), 1)
        return suits if self._most_rows is None else min(suits, self._most_rows)

    def _forward_rows(self) -> int:
        """Samples at a time where no J is made."""
        return self._most_rows or 4 * self._at_once()

    def _residuals_of_a_row(self) -> int:
        """Their number; refuse a model that is no function of a single sample."""
        if normed := names_of(self.model, mixes_samples):
            raise ValueError(
                f"model has {', '.join(normed)} in training mode, where a sample's outputs depend on its neighbours: "
                "call model.eval()"
            )
        ends = np.array([0, self.n_samples - 1])
        *inputs, target = self._rows.take(ends)
        outputs = self.model(*inputs)
        if self._difference is None and outputs.shape != target.shape:
            raise ValueError(
                f"dataset has targets of shape {tuple(target.shape)} for outputs of shape {tuple(outputs.shape)}: "
                "give the targets the shape of the outputs, as by target[:, None]"
            )
        together, again = (self._forward(ends).detach().reshape(-1) for _ in range(2))
        alone = torch.cat([self._forward(ends[k : k + 1]).detach().reshape(-1) for k in range(2)])
        if together.shape != alone.shape or together.numel() % 2:
            raise ValueError(
                f"residuals must be rows, one for each sample: two samples together have {together.numel()} of them, "
                f"one by one {alone.numel()}"
            )
        close = torch.finfo(together.dtype).eps ** 0.5
        for other, why in ((again, "something in it is random"), (alone, "samples depend on each other")):
            if not torch.allclose(
                together, other, rtol=close, atol=close * float(together.abs().max()), equal_nan=True
            ):
                raise ValueError(f"model must be a function of a sample, but {why}: call model.eval() first")
        return together.numel() // 2

    def residuals_at(self, x: Vector) -> Vector:
        """All residuals as one vector."""
        self.load(x)
        parts = [
            self._forward(rows).detach().reshape(-1).double().cpu()
            for rows in all_blocks(self.n_samples, self._forward_rows())
        ]
        return np.asarray(torch.cat(parts).numpy())

    def jacobian_rows(self, x: Vector, residuals: Vector, fine: bool) -> Iterator[tuple[slice, Matrix]]:
        """Rows of J at x in blocks."""
        self.load(x)
        k = self._outputs()
        for rows in all_blocks(self.n_samples, self._at_once()):
            found = self._jacobian(rows).double().cpu().numpy()
            yield slice(int(rows[0]) * k, (int(rows[-1]) + 1) * k), np.asarray(found)

    def squares(self, x: Vector, residuals: Vector, fine: bool) -> Squares:
        """J̃ᵀJ̃ and ∇f, summed where the model is: of J nothing leaves the device."""
        self.load(x)
        terms, sums = self.terms(residuals), _DeviceSums(self.n_parameters, self._flat.device)
        for rows in all_blocks(self.n_samples, self._at_once()):
            places = self._places(rows)
            sums.add(self._jacobian(rows), terms.curvatures[places], terms.slopes[places])
        return self.with_penalty(x, *sums.means(self.n_samples), 1.0)

    def pulled(self, x: Vector, residuals: Vector, slopes: Vector) -> Vector:
        """J(x)ᵀ times a vector: one backward pass."""
        self.load(x)
        total = torch.zeros(self.n_parameters, dtype=torch.float64, device=self._flat.device)
        for rows in all_blocks(self.n_samples, self._forward_rows()):
            outputs = self._forward(rows).reshape(-1)
            given = torch.as_tensor(slopes[self._places(rows)]).to(outputs)
            found = torch.autograd.grad(outputs, self._flat.tensors, given, allow_unused=True)
            total += self._flat.join(found).double()
        return np.asarray(total.cpu().numpy())

    def sampled(self, x: Vector, residuals: Vector) -> Squares | None:
        """J̃ᵀJ̃ from some rows, always the same, and the gradient from all: one backward pass."""
        n, d, k = self.n_samples, self.n_parameters, self._outputs()
        if _MANY * _SAMPLED * d > n * k:
            return None
        self.load(x)
        terms, sums = self.terms(residuals), _DeviceSums(d, self._flat.device)
        gradient = self.pulled(x, residuals, terms.slopes) / n
        count = max(_SAMPLED * d // k, n // _PART)
        chosen = np.sort(np.random.default_rng(n).choice(n, count, replace=False))
        for begin in range(0, count, self._at_once()):
            rows = chosen[begin : begin + self._at_once()]
            sums.add(self._jacobian(rows), terms.curvatures[self._places(rows)])
        matrix = sums.means(count)[0]
        return self.with_penalty(x, matrix, gradient, 1.0 + count / n)

    def _outputs(self) -> int:
        """Residuals of a row."""
        return self.n_residuals // self.n_samples

    def _places(self, rows: Indices) -> Indices:
        """Where the residuals of some rows are among all."""
        k = self._outputs()
        return (rows[:, None] * k + np.arange(k)).reshape(-1)

    def _jacobian(self, rows: Indices) -> Tensor:
        if self._transforms:
            try:
                return self._by_transforms(rows)
            except RuntimeError as error:
                if "random" in str(error):  # not the same every time
                    raise
                if "functorch" not in str(error) and "vmap" not in str(error):
                    raise
                self._transforms = False
        return torch.cat([self._by_backward(rows[piece]) for piece in _pieces(len(rows))])

    def _by_transforms(self, rows: Indices) -> Tensor:
        """A row at a time, all of them at once."""
        parameters = dict(zip(self._names, (tensor.detach() for tensor in self._flat.tensors), strict=True))
        *inputs, target = self._rows.take(rows)

        def one(chosen: dict[str, Tensor], *sample: Tensor) -> Tensor:
            *given, wanted = (part.unsqueeze(0) for part in sample)
            outputs = torch.func.functional_call(self.model, chosen, tuple(given))
            return self._residual(outputs, wanted).reshape(-1)

        places = (None, *(0 for _ in range(len(inputs) + 1)))
        found = torch.func.vmap(torch.func.jacrev(one), in_dims=places)(parameters, *inputs, target)
        return torch.cat([found[name].reshape(*found[name].shape[:2], -1) for name in self._names], 2).flatten(0, 1)

    def _by_backward(self, rows: Indices) -> Tensor:
        """One backward pass for each residual, batched."""
        outputs = self._forward(rows).reshape(-1)
        units = torch.eye(outputs.numel(), dtype=outputs.dtype, device=outputs.device)
        found = torch.autograd.grad(outputs, self._flat.tensors, units, is_grads_batched=True, allow_unused=True)
        zeros = [tensor.new_zeros((outputs.numel(), tensor.numel())) for tensor in self._flat.tensors]
        return torch.cat([z if g is None else g.reshape(z.shape) for g, z in zip(found, zeros, strict=True)], dim=1)

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        self.load(x)
        residuals = np.asarray(self._forward(indices).detach().reshape(-1).double().cpu().numpy())
        NotFinite.refuse("residuals", residuals, x, indices)
        slopes = self.terms(residuals, indices).slopes / len(indices)
        return np.asarray(self._jacobian(indices).double().cpu().numpy()).T @ slopes + self.l2 * x


class _DeviceSums:
    """JᵀWJ and Jᵀs, added up in float64 where J is."""

    def __init__(self, d: int, device: torch.device) -> None:
        self._matrix = torch.zeros((d, d), dtype=torch.float64, device=device)
        self._gradient = torch.zeros(d, dtype=torch.float64, device=device)

    def add(self, jacobian: Tensor, weights: Vector, slopes: Vector | None = None) -> None:
        """Some rows, with the curvatures and the slopes of their losses."""
        rows = jacobian.double()
        weighted = rows * torch.from_numpy(weights.copy()).to(rows.device)[:, None]
        self._matrix += rows.T @ weighted
        if slopes is not None:
            self._gradient += rows.T @ torch.from_numpy(slopes.copy()).to(rows.device)

    def means(self, count: int) -> tuple[Matrix, Vector]:
        """Both over a number of rows, on the host."""
        return (self._matrix / count).cpu().numpy(), (self._gradient / count).cpu().numpy()


def _pieces(length: int) -> Iterator[slice]:
    return (slice(begin, begin + _FEW_ROWS) for begin in range(0, length, _FEW_ROWS))


class _OfUnknowns(torch.nn.Module):
    """A function of unknowns and inputs as a model."""

    def __init__(self, function: Callable[..., Tensor], x0: Any) -> None:
        super().__init__()
        start = x0.detach().clone() if isinstance(x0, Tensor) else torch.from_numpy(_check.vector("x0", x0).copy())
        self.x = torch.nn.Parameter(start)
        self._function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(self.x, *inputs)


def least_squares(
    model: torch.nn.Module | Callable[..., Tensor],
    dataset: Any,
    *,
    residuals: Callable[[Any, Any], Tensor] | None = None,
    loss: Any = None,
    weights: Any = None,
    weight_decay: float = 0.0,
    **options: Any,
) -> trsvr.Result:
    """Fit a model by nonlinear least squares, from its present parameters: damped Gauss–Newton steps.

    Parameters
    ----------
    model : torch.nn.Module or callable
        A model, or ``function(x, input, …)``: what a model would return for these inputs with the unknowns x, a tensor
        that begins as ``x0``.
    dataset, residuals, loss, weights, weight_decay
        See `ModelResiduals`.
    **options
        Those of `trsvr.minimize`: ``x0``, ``max_epochs``, ``max_passes``, ``max_seconds``, ``tol``, ``callback``, ….

    Returns
    -------
    trsvr.Result
        ``value`` is (1/N) Σ ½r². The model's parameters are afterwards those of ``result.x``.
    """
    is_function = callable(model) and not isinstance(model, torch.nn.Module)
    if is_function and options.get("x0") is None:
        raise ValueError("x0 must be given with a function: it is where its unknowns begin")
    fitted: Any = _OfUnknowns(model, options.pop("x0")) if is_function else model
    problem = ModelResiduals(
        fitted, dataset, residuals=residuals, loss=loss, weights=weights, weight_decay=weight_decay
    )
    problem.scales_columns = is_function  # unknowns of a function have units of their own, weights of a net have not
    return run(problem, None, options)


def run(problem: Any, solver: Any, options: dict[str, Any]) -> trsvr.Result:
    """Minimise, and leave the best point in the model."""
    start = problem.start()
    if options.get("x0") is None:
        options["x0"] = start
    best = start
    try:
        result = trsvr.minimize(problem, solver, **options)
        best = result.x
    finally:
        problem.load(best)
    return result
