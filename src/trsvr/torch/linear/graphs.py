"""Launches on a device, recorded once and replayed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trsvr._arrays import Vector


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Without Python's garbage collector: what it frees on the device would break the recording of a graph."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Captured:
    """Launches recorded once and replayed: input from the host, output to the host, one wait."""

    def __init__(self, source: Tensor, target: Tensor, launch: Any, keep: tuple[Tensor, ...]) -> None:
        self._graph: Any = None
        self._launches: Any = None
        self._done: Any = None
        self._begun = False
        self._device = source.device
        # A graph knows addresses only: what lies there must live as long. It must not keep those who own it, though:
        # a ring of references would be freed at any moment, also while another graph is recorded.
        self._kept = (source, target, *keep)
        pinned = self._device.type == "cuda"
        given = torch.zeros(source.shape, dtype=source.dtype, pin_memory=pinned)
        answer = torch.zeros(target.shape, dtype=target.dtype, pin_memory=pinned)
        self._input, self._output = given, answer
        self._in, self._out = given.numpy(), answer.numpy()

        def launches() -> None:
            source.copy_(given, non_blocking=True)
            launch()
            answer.copy_(target, non_blocking=True)

        if pinned:
            with torch.cuda.device(self._device), no_collection():
                launches()  # compiles what is not compiled yet: nothing may be loaded while a graph is recorded
                torch.cuda.synchronize()
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    launches()
                self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        else:
            self._launches = launches

    def run(self, values: Vector) -> Vector:
        """Replay with these values; what comes back is overwritten by the next run."""
        self.begin(values)
        return self.finish()

    def begin(self, values: Vector) -> None:
        """Replay without waiting: other launches may follow, which the answer does not wait for."""
        self.finish()  # an answer that nobody wanted
        self._in[...] = values
        if self._graph is None:
            self._launches()
        else:
            with torch.cuda.device(self._device):
                self._graph.replay()
                self._done.record()
        self._begun = True

    def finish(self) -> Vector:
        """The answer to what has been begun."""
        if self._begun and self._done is not None:
            self._done.synchronize()
        self._begun = False
        return self._out
