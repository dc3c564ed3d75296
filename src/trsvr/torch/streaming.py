"""Data larger than the device: X stays in pinned host memory and passes through the device in blocks.

Two buffers on the device take turns: while one is worked on, the next block is copied into the other, on a stream of
its own. The sums over blocks are added in order. Curvature samples and batches are gathered on the host, since they
are a small part of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from trsvr.torch.rows import DenseRows
from trsvr.torch.sums import Runs, Sums

_BLOCK_BYTES = 2**28


class StreamedSums(Sums):
    """Sums over rows that lie in host memory, made on a device."""

    def __init__(self, host: Sums, device: torch.device, block: int, fused: bool) -> None:
        super().__init__(host.rows, host.labels, host.weights, host.loss, host.intercept, host.outputs)
        self._host = host
        self.device = device
        self._fused = fused
        self._pieces = [slice(begin, min(begin + block, host.n_rows)) for begin in range(0, host.n_rows, block)]
        self._block = min(block, host.n_rows)
        self._buffers: list[Any] = []
        self._copies: Any = None

    @classmethod
    def of(cls, sums: Sums, device: torch.device, streamed: bool | int, fused: bool) -> StreamedSums:
        """The same sums, streamed; X is pinned, so that copies run beside the arithmetic."""
        rows = sums.rows
        if not isinstance(rows, DenseRows):
            raise ValueError("streamed needs dense X, got a sparse matrix; sparse rows must fit on the device")
        if streamed is True:
            block = max(1, _BLOCK_BYTES // (rows.columns * rows.values.element_size()))
        elif streamed > 0:
            block = int(streamed)
        else:
            raise ValueError(f"streamed must be True, False or a number of rows >= 1, got {streamed!r}")
        if device.type == "cuda":
            sums.rows = DenseRows(_pinned(rows.values))
            sums.labels = _pinned(sums.labels)
            sums.weights = None if sums.weights is None else _pinned(sums.weights)
        return cls(sums, device, block, fused)

    # ------------------------------------------------------------------------------------------------ the stream

    def _over(self, tensors: tuple[Tensor, Tensor, Tensor | None]) -> Sums:
        """Sums over tensors on the device."""
        values, labels, weights = tensors
        part = Sums(DenseRows(values), labels, weights, self.loss, self.intercept, self.outputs)
        if self._fused:
            from trsvr.torch.fused import fuse

            return fuse(part)
        return part

    def _blocks(self) -> Iterator[Sums]:
        """Sums over one block after the other, on the device."""
        host = self._host
        assert isinstance(host.rows, DenseRows)
        sources = (host.rows.values, host.labels, host.weights)
        if self.device.type != "cuda":
            for piece in self._pieces:
                yield self._over(tuple(None if t is None else t[piece] for t in sources))  # type: ignore[arg-type]
            return
        if not self._buffers:
            self._copies = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            for _ in range(2):
                room = tuple(
                    None if t is None else torch.empty((self._block, *t.shape[1:]), dtype=t.dtype, device=self.device)
                    for t in sources
                )
                events = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
                self._buffers.append((room, *events))
        worker = torch.cuda.current_stream(self.device)
        for _, _, done in self._buffers:
            done.record(worker)

        def send(k: int) -> None:
            room, copied, done = self._buffers[k % 2]
            piece = self._pieces[k]
            with torch.cuda.stream(self._copies):
                self._copies.wait_event(done)
                for target, source in zip(room, sources, strict=True):
                    if target is not None and source is not None:
                        target[: piece.stop - piece.start].copy_(source[piece], non_blocking=True)
                copied.record(self._copies)

        send(0)
        for k, piece in enumerate(self._pieces):
            if k + 1 < len(self._pieces):
                send(k + 1)
            room, copied, done = self._buffers[k % 2]
            worker.wait_event(copied)
            length = piece.stop - piece.start
            yield self._over(tuple(None if t is None else t[:length] for t in room))  # type: ignore[arg-type]
            done.record(worker)

    def _sum(self, one: Callable[[Sums], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The sums of all blocks, added in order on the device."""
        totals: tuple[Tensor, ...] | None = None
        for block in self._blocks():
            found = one(block)
            totals = found if totals is None else tuple(a + b for a, b in zip(totals, found, strict=True))
        assert totals is not None
        return totals

    # ------------------------------------------------------------------------------------------------------ sums

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Σ losses and Σ their gradients."""
        value, gradient = self._sum(lambda block: block.value_and_gradient(x))
        return value, gradient

    def evaluate(self, x: Tensor) -> tuple[float, Tensor, float]:
        """Σ losses, Σ gradients, Σ curvatures: one reading of X."""
        value, gradient, curvature = self._sum(lambda block: block.evaluate_tensors(x))
        return float(value), gradient, float(curvature)

    def total_curvature(self, x: Tensor, raised: bool) -> float:
        """Σ curvatures."""
        return float(self._sum(lambda block: (torch.tensor(block.total_curvature(x, raised)),))[0])

    def product(self, x: Tensor, v: Tensor, raised: bool = False) -> Tensor:
        """Σ Hessians of the losses at x, times v."""
        return self._sum(lambda block: (block.product(x, v, raised),))[0]

    def diagonal(self, x: Tensor, raised: bool = False) -> Tensor:
        """Diagonal of the same Hessians' sum."""
        return self._sum(lambda block: (block.diagonal(x, raised),))[0]

    def matrices(self, x: Tensor, raised: bool = False, runs: Runs | None = None) -> Tensor:
        """Σ curvature_ik (x_i, 1)(x_i, 1)ᵀ over all rows or the runs, one matrix for each output k."""
        if runs is None:
            return self._sum(lambda block: (block.matrices(x, raised),))[0]
        return self.take(runs.rows(self.n_rows)).matrices(x, raised)

    def take(self, indices: Tensor) -> Sums:
        """The same over a copy of the chosen rows, on the device."""
        part = self._host.take(indices)
        assert isinstance(part.rows, DenseRows)
        sources = (part.rows.values, part.labels, part.weights)
        return self._over(tuple(None if t is None else t.to(self.device) for t in sources))  # type: ignore[arg-type]

    def batch_gradient(self, x: Tensor, indices: Tensor) -> Tensor:
        """Σ over these rows of the losses' gradients."""
        return self.take(indices).value_and_gradient(x)[1]

    def change(self, at: Tensor, x: Tensor, runs: Runs) -> Tensor:
        """Σ over the runs of the gradients' changes from ``at`` to x."""
        part = self.take(runs.rows(self.n_rows))
        return part.value_and_gradient(x)[1] - part.value_and_gradient(at)[1]


def _pinned(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_pinned() else tensor.pin_memory()
