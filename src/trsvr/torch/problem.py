"""A model, a loss and a data set as a finite sum, for the engine's loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector
from trsvr.problems.base import Problem
from trsvr.torch.closures import call
from trsvr.torch.gauss_newton import GaussNewtonMatrix
from trsvr.torch.parameters import Flat, refuse_unsuitable
from trsvr.torch.products import Product, gauss_newton_product, hessian_product

_PRODUCTS = {"exact": hessian_product, "gauss-newton": gauss_newton_product}


class ModelProblem(Problem):
    """f(x) = (1/N) Σ loss(model_x(input_i), target_i) + (λ/2)‖x‖², x the trainable parameters of the model.

    Parameters
    ----------
    model : torch.nn.Module
        Float64 for many digits, or float32; on one device. It must be a function: dropout and batch norm in
        evaluation mode.
    loss : callable
        ``loss(outputs, target)``, the mean over a batch, such as ``torch.nn.functional.cross_entropy``.
    dataset : map-style data set, TensorDataset or tuple of tensors or NumPy arrays
        A sample is ``(input, …, target)``: all but its last part go to the model. Arrays of floats are taken in the
        model's precision.
    hessian : {"exact", "gauss-newton"}
        What `hessian_product` is.
    weight_decay : float
        λ, part of every f_i.
    rows_at_once : int
        Samples in memory at a time; sums over more are made in pieces.

    Notes
    -----
    Evaluations write to the model's parameters. The value of `trsvr.minimize` on such a problem is x; `load` puts it
    into the model.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        loss: Callable[..., Tensor],
        dataset: Any,
        *,
        hessian: str = "exact",
        weight_decay: float = 0.0,
        rows_at_once: int = 4096,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {model!r}")
        if not callable(loss) or isinstance(loss, type):
            raise ValueError(f"loss must be a function of outputs and target, or such a module, got {loss!r}")
        self.model = model
        self.loss = loss
        self.hessian = _check.one_of("hessian", hessian, _PRODUCTS)
        self.weight_decay = _check.positive("weight_decay", weight_decay, zero=True)
        self.rows_at_once = _check.whole("rows_at_once", rows_at_once)
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trainable:
            refuse_unsuitable(parameter)
        self._flat = Flat(trainable, [0] * len(trainable))
        self._rows = Samples(dataset, self._flat.device, self._flat.dtype)
        self._chosen: Indices = np.arange(len(self._rows))
        self._x: Vector | None = None  # what the parameters are at, if that is known
        self._versions: list[int] = []
        self._product: tuple[bytes, Product] | None = None  # of the last single piece, for further products there
        self._matrix: GaussNewtonMatrix | None = None
        self._refuse_what_is_no_mean()

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read, never set
        """N."""
        return len(self._chosen)

    @property
    def n_parameters(self) -> int:  # type: ignore[override]
        """Length of x."""
        return sum(self._flat.sizes)

    @property
    def dtype(self) -> torch.dtype:
        """In which the model computes."""
        return self._flat.dtype

    def start(self) -> Vector:
        """The model's present parameters as x."""
        return np.asarray(self._flat.read().double().cpu().numpy())

    def load(self, x: Vector) -> None:
        """Write x into the model."""
        # Somebody else may have written meanwhile, such as another problem with the same model.
        if self._x is None or self._versions != self._present_versions() or not np.array_equal(self._x, x):
            self.release()
            self._flat.write(self._vector(x))
            self._x, self._versions = np.array(x, dtype=np.float64), self._present_versions()

    def _present_versions(self) -> list[int]:
        return [tensor._version for tensor in self._flat.tensors]

    def release(self) -> None:
        """Forget what was kept for speed: from here on the parameters may be changed by others."""
        self._x = self._product = None

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and ∇f(x)."""
        return self._evaluate(x, np.arange(self.n_samples))

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices."""
        return self._evaluate(x, indices)[1]

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices (None: all), or of its Gauss–Newton part."""
        self.load(x)
        indices = np.arange(self.n_samples) if indices is None else indices
        twice, direction = _PRODUCTS[self.hessian], self._vector(v)
        if len(indices) <= self.rows_at_once:
            key = np.ascontiguousarray(indices).tobytes()
            if self._product is None or self._product[0] != key:
                self._product = key, twice(self._flat, call(self._closure(indices), self._flat.tensors))[1]
            return self._array(self._product[1](direction)) + self.weight_decay * v
        total = torch.zeros(self.n_parameters, dtype=torch.float64, device=self._flat.device)
        for piece in self._pieces(indices):
            product = twice(self._flat, call(self._closure(piece), self._flat.tensors))[1]
            total.add_(product(direction), alpha=len(piece))
        return self._array(total / len(indices)) + self.weight_decay * v

    def offer_matrix(self) -> None:
        """Let Gauss and Newton's matrix be the norm of steps, if it pays; `minimize` does so without a solver."""
        names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        n, d = self.n_samples, self.n_parameters
        self._matrix = GaussNewtonMatrix(self.model, names, self.loss, self._rows.take, n, d)
        self.has_matrix = self._matrix.pays()

    def curvature_matrix(self, x: Vector) -> tuple[Matrix, Vector, int]:
        """Gauss and Newton's, of some samples."""
        self.load(x)
        assert self._matrix is not None
        matrix, rows = self._matrix.matrix()
        return matrix, np.full_like(x, self.weight_decay), rows

    def gather(self, indices: Indices) -> ModelProblem:
        """The same problem restricted to those rows; the model is shared."""
        part = object.__new__(ModelProblem)
        part.__dict__.update(self.__dict__)
        part._chosen = self._chosen[_check.row_indices(indices, self.n_samples)]
        part.has_matrix = False
        part.release()
        return part

    def __repr__(self) -> str:
        return (
            f"ModelProblem({type(self.model).__name__}, {self.n_samples} samples, {self.n_parameters} parameters, "
            f"{str(self.dtype).removeprefix('torch.')})"
        )

    # ------------------------------------------------------------------------------------------------ evaluation

    def _closure(self, indices: Indices) -> Callable[[], tuple[Tensor, Any]]:
        def closure() -> tuple[Tensor, Any]:
            *inputs, target = self._rows.take(self._chosen[indices])
            outputs = self.model(*inputs)
            return self.loss(outputs, target), outputs if self.hessian == "gauss-newton" else ()

        return closure

    def _pieces(self, indices: Indices) -> Iterator[Indices]:
        for begin in range(0, len(indices), self.rows_at_once):
            yield indices[begin : begin + self.rows_at_once]

    def _evaluate(self, x: Vector, indices: Indices) -> tuple[float, Vector]:
        self.load(x)
        gradient = torch.zeros(self.n_parameters, dtype=torch.float64, device=self._flat.device)
        value = 0.0
        for piece in self._pieces(indices):
            returned = call(self._closure(piece), self._flat.tensors)
            gradient.add_(self._flat.join(self._flat.gradient(returned.loss)), alpha=len(piece))
            value += len(piece) * float(returned.loss.detach())
        penalty = 0.5 * self.weight_decay * float(x @ x)
        return value / len(indices) + penalty, self._array(gradient / len(indices)) + self.weight_decay * x

    def _vector(self, x: Vector) -> Tensor:
        return torch.as_tensor(x, dtype=self._flat.dtype).to(self._flat.device)

    @staticmethod
    def _array(vector: Tensor) -> Vector:
        return np.asarray(vector.double().cpu().numpy())

    def _refuse_what_is_no_mean(self) -> None:
        """The loss of two samples together must be the mean of their losses, each time the same."""
        if normed := names_of(self.model, mixes_samples):
            raise ValueError(
                f"model has {', '.join(normed)} in training mode, where a sample's loss depends on its neighbours: "
                "call model.eval(), or train with the optimiser trsvr.torch.TRSVR"
            )
        x = self.start()
        ends = np.array([0, self.n_samples - 1])
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="Using a target size")  # torch's, and it goes on
                together, again = (self._evaluate(x, ends)[0] for _ in range(2))
        except UserWarning as stretched:
            said = str(stretched).partition(". This will")[0]
            raise ValueError(
                f"loss would stretch outputs and targets to each other ({said}): give the targets the shape of the "
                "outputs, as by target[:, None]"
            ) from None
        except RuntimeError as error:
            parts = [f"{part.dtype} {tuple(part.shape)}" for part in self._rows.take(self._chosen[ends])]
            raise ValueError(
                f"dataset must suit model and loss; two of its samples are {' and '.join(parts)}, the parameters "
                f"{self.dtype}: {error}".replace("torch.", "")
            ) from error
        alone = 0.5 * sum(self._evaluate(x, ends[k : k + 1])[0] for k in range(2))
        self.release()
        size = max(abs(together), abs(alone))
        close = 10.0 * torch.finfo(self.dtype).eps ** 0.5 * size
        if abs(together - again) <= close and abs(together - alone) <= close:
            return
        if not np.isfinite(size):
            raise ValueError(f"loss is {together} at the model's present parameters")
        *inputs, target = self._rows.take(self._chosen[ends])
        with torch.no_grad():
            outputs = self.model(*inputs)
        hint = ""
        if isinstance(outputs, Tensor) and target.is_floating_point() and outputs.shape != target.shape:
            hint = (
                f"; if the loss stretches outputs of shape {tuple(outputs.shape)} and targets of shape "
                f"{tuple(target.shape)} to each other, give the targets that shape, as by target[:, None]"
            )
        training = names_of(self.model, lambda part: part.training)
        if training and abs(together - 2.0 * alone) > close:  # not simply a sum
            hint += f"; the model is in training mode ({', '.join(training)}): call model.eval()"
        advice = "use reduction='mean'" if abs(together - again) <= close else "something in it is random"
        raise ValueError(
            f"loss must be the mean over a batch and the same every time: two samples together have {together:.6g}, "
            f"then {again:.6g}, and their mean one by one is {alone:.6g}: {advice}{hint}"
        )


def names_of(model: torch.nn.Module, wanted: Callable[[torch.nn.Module], bool]) -> list[str]:
    """The kinds of its parts that are so."""
    return sorted({type(part).__name__ for part in model.modules() if wanted(part)})


def mixes_samples(module: torch.nn.Module) -> bool:
    """Whether it normalises by the statistics of the batch."""
    return module.training and isinstance(module, torch.nn.modules.batchnorm._BatchNorm)


class Samples:
    """Rows of a data set by their indices, collated, on the model's device."""

    def __init__(self, dataset: Any, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._tensors: Sequence[Tensor] | None = None
        if isinstance(dataset, TensorDataset):
            dataset = dataset.tensors
        if isinstance(dataset, tuple | list):
            dataset = [_as_tensor(part, dtype) if isinstance(part, np.ndarray) else part for part in dataset]
        if isinstance(dataset, tuple | list) and all(isinstance(part, Tensor) for part in dataset):
            lengths = {len(part) for part in dataset}
            if len(dataset) < 2 or len(lengths) != 1:
                shapes = [tuple(part.shape) for part in dataset]
                raise ValueError(f"dataset must be tensors (input, …, target) of the same length, got shapes {shapes}")
            self._tensors = [part.to(device) for part in dataset]
            self._length = lengths.pop()
        else:
            if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
                raise ValueError(
                    f"dataset must have a length and items (input, …, target), got {type(dataset).__name__}; a stream "
                    "has no full gradient"
                )
            if isinstance(dataset, list) and all(isinstance(part, list) for part in dataset):
                raise ValueError("dataset must be tensors or arrays (input, …, target), got lists")
            self._dataset = dataset
            self._length = len(dataset)
        if self._length == 0:
            raise ValueError("dataset is empty")

    def __len__(self) -> int:
        return self._length

    def take(self, indices: Indices) -> list[Tensor]:
        """Those rows of every part."""
        if self._tensors is not None:
            chosen = torch.from_numpy(np.ascontiguousarray(indices)).to(self._device)
            return [part[chosen] for part in self._tensors]
        batch = default_collate([self._dataset[int(i)] for i in indices])
        if not isinstance(batch, list | tuple) or len(batch) < 2:
            raise ValueError(f"dataset must have items (input, …, target), got batches of type {type(batch).__name__}")
        return [part.to(self._device) for part in batch]


def _as_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A NumPy array; floats in the model's precision."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"dataset must be tensors or arrays of numbers, got an array of {array.dtype}")
    tensor = torch.as_tensor(np.ascontiguousarray(array))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
