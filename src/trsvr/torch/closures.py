"""Closures: what they may return, how large their batch is, and how the same one is evaluated twice.

Variance reduction subtracts two gradients of *the same* batch loss, at x and at the reference. So whatever a closure
sees besides the parameters must be the same both times: the random numbers of dropout and the buffers of batch norm.
`Surroundings` keeps them and puts them back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

Closure = Callable[[], Any]


class Returned(NamedTuple):
    """What a closure returned: the mean loss, and the outputs it was computed from if the closure gave them."""

    loss: Tensor
    outputs: tuple[Tensor, ...]


def call(closure: Closure, parameters: Sequence[Tensor]) -> Returned:
    """The closure's loss, with its graph; refused if the closure has called backward or if it is no scalar."""
    kept = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        with torch.enable_grad():
            returned = closure()
        called_backward = any(parameter.grad is not None for parameter in parameters)
    finally:
        for parameter, gradient in zip(parameters, kept, strict=True):
            parameter.grad = gradient
    if called_backward:
        raise ValueError(
            "closure must return the loss and not call backward(): TRSVR differentiates the loss itself, at the "
            "parameters and at the reference point; remove loss.backward() and zero_grad() from the closure"
        )
    loss: Any = returned
    outputs: tuple[Tensor, ...] = ()
    if isinstance(returned, tuple) and len(returned) == 2:
        loss, given = returned
        outputs = (given,) if isinstance(given, Tensor) else tuple(given)
        if not all(isinstance(output, Tensor) and output.requires_grad for output in outputs):
            raise ValueError("closure returned (loss, outputs): outputs must be tensors with their graph, not detached")
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise ValueError(f"closure must return the mean loss of its batch, a tensor with one number, got {got}")
    if not loss.requires_grad:
        raise ValueError(
            "closure returned a loss without a graph: do not use torch.no_grad(), inference_mode(), detach() or item() "
            "on the way from the parameters to the loss"
        )
    with torch.enable_grad():
        return Returned(loss.reshape(()), outputs)


def size_of(batch: Any, size: Callable[[Any], float] | None = None) -> float:
    """How many samples a batch has: ``size(batch)``, else the length of its first tensor."""
    if size is not None:
        number = float(size(batch))
        if not number > 0.0:
            raise ValueError(f"size must return a number > 0 for every batch, got {number}")
        return number
    tensor = _first_tensor(batch)
    if tensor is None or tensor.ndim == 0 or len(tensor) == 0:
        what = type(batch).__name__ if tensor is None else f"a first tensor of shape {tuple(tensor.shape)}"
        raise ValueError(
            f"batch size cannot be told from {what}: batches are weighted by the length of their first tensor; give "
            "size=, a function from a batch to its number of samples"
        )
    return float(len(tensor))


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((tensor for tensor in map(_first_tensor, parts) if tensor is not None), None)


class Surroundings:
    """Generator states and buffers at one moment.

    Buffers are found by themselves, unless the model is given: while the surroundings watch, every module that is
    called for the first time has its buffers copied before it runs.

    Parameters
    ----------
    device : torch.device
        Its default generator is kept beside the CPU's.
    generators : sequence of torch.Generator
        Further generators that closures use.
    model : torch.nn.Module, optional
        Owner of all buffers; nothing is watched then, so that no hook makes torch.compile compile again.
    """

    def __init__(
        self, device: torch.device, generators: Sequence[torch.Generator] = (), model: torch.nn.Module | None = None
    ) -> None:
        self._device = device
        self._model = model
        self._generators = tuple(generators)
        self._states = [torch.get_rng_state(), *(generator.get_state() for generator in self._generators)]
        self._cuda_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self._buffers: dict[tuple[int, str], _Buffer] = {}
        self._seen: dict[int, torch.nn.Module] = {}  # which also keeps them alive, so that no number is used again
        if model is not None:
            self._look(model)

    def _look(self, module: torch.nn.Module) -> None:
        for part in module.modules():
            if id(part) in self._seen:
                continue
            self._seen[id(part)] = part
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    self._buffers[id(part), name] = _Buffer.of(part, name, buffer)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the buffers of every module that is called, as they were before its first call."""
        if self._model is not None:
            yield
            return

        def look(module: torch.nn.Module, _: Any) -> None:
            if id(module) not in self._seen:
                self._look(module)

        handle = register_module_forward_pre_hook(look)
        try:
            yield
        finally:
            handle.remove()

    def restore(self) -> None:
        """Put generators and buffers back."""
        torch.set_rng_state(self._states[0])
        for generator, state in zip(self._generators, self._states[1:], strict=True):
            generator.set_state(state)
        if self._cuda_state is not None:
            torch.cuda.set_rng_state(self._cuda_state, self._device)
        self.restore_buffers()

    def restore_buffers(self) -> None:
        """Put the buffers back; random numbers go on."""
        with torch.no_grad():
            for buffer in self._buffers.values():
                buffer.restore()

    def now(self) -> Surroundings:
        """The same generators and buffers as they are now."""
        present = Surroundings(self._device, self._generators, self._model)
        present._seen = dict(self._seen)
        for key, buffer in self._buffers.items():
            tensor = buffer.module._buffers[buffer.name]
            if tensor is not None:
                present._buffers[key] = _Buffer.of(buffer.module, buffer.name, tensor)
        return present

    @contextlib.contextmanager
    def replayed(self) -> Iterator[None]:
        """An evaluation that begins here, and after which everything is here again."""
        self.restore()
        try:
            with self.watching():
                yield
        finally:
            self.restore()


class _Buffer(NamedTuple):
    """A buffer of a module: the tensor, which a module may have replaced meanwhile, and its numbers."""

    module: torch.nn.Module
    name: str
    tensor: Tensor
    numbers: Tensor

    @classmethod
    def of(cls, module: torch.nn.Module, name: str, tensor: Tensor) -> _Buffer:
        return cls(module, name, tensor, tensor.detach().clone())

    def restore(self) -> None:
        if self.module._buffers[self.name] is not self.tensor:
            self.module._buffers[self.name] = self.tensor
        self.tensor.copy_(self.numbers)  # always: batch norm does not tell, by its version, that a buffer has changed


def autocast_is_on() -> bool:
    """Whether autocast is active right here, for CPU or CUDA."""
    try:
        return bool(torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))
    except TypeError:  # before PyTorch 2.4 the device was not asked for
        return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


class AutocastSpotter(TorchFunctionMode):
    """Notices whether something inside runs under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.spotted = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look, and run the function as it is."""
        self.spotted = self.spotted or autocast_is_on()
        return func(*args, **(kwargs or {}))
