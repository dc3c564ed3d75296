"""Data larger than the device: X lies in pinned host memory and passes through the device in blocks.

As many rows as memory allows stay on the device, taken from places all over the data: full passes need not send for
them, and curvature samples and batches are drawn from them. The others pass through two buffers that take turns: while
one is worked on, the next block is copied into the other, on a stream of its own. The sums over blocks are added in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from trsvr._arrays import Vector
from trsvr.torch.linear.rows import DenseRows
from trsvr.torch.linear.sums import Runs, Sums

_BLOCK_BYTES = 2**28
# Rows stay on the device from about so many places.
_PLACES = 1024
# What they take of the free memory, unless that is said.
_SHARE = 0.5

_Tensors = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


class StreamedSums(Sums):
    """Sums over rows that lie in host memory, made on a device."""

    def __init__(self, host: Sums, device: torch.device, block: int, fused: bool, memory: int) -> None:
        super().__init__(host.rows, host.labels, host.weights, host.loss, host.intercept, host.outputs, host.offset)
        assert isinstance(host.rows, DenseRows)
        self._host = host
        self._sources: _Tensors = (host.rows.values, host.labels, host.weights, host.offset)
        self.device = device
        self._fused = fused
        row = sum(t[:1].numel() * t.element_size() for t in self._sources if t is not None)
        staying, passing = _places(host.n_rows, min(host.n_rows, memory // row), block)
        self._blocks_of_pieces = _blocks(passing, block)
        self._block = max((sum(map(_length, pieces)) for pieces in self._blocks_of_pieces), default=0)
        self._buffers: list[Any] = []
        self._made: dict[tuple[int, int], Sums] = {}
        self._copies: Any = None
        self.resident = None
        if staying:
            room = self._room(sum(map(_length, staying)))
            self._fill(room, staying)
            self.resident = self._over(room)

    @classmethod
    def of(
        cls, sums: Sums, device: torch.device, streamed: bool | int, fused: bool, memory: int | None
    ) -> StreamedSums:
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
        if memory is None:
            memory = int(_SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0
        if device.type == "cuda":
            sums.rows = DenseRows(_pinned(rows.values))
            sums.labels = _pinned(sums.labels)
            sums.weights = None if sums.weights is None else _pinned(sums.weights)
            sums.offset = None if sums.offset is None else _pinned(sums.offset)
        return cls(sums, device, block, fused, memory)

    # ------------------------------------------------------------------------------------------------ the stream

    def _over(self, tensors: _Tensors) -> Sums:
        """Sums over tensors on the device."""
        values, labels, weights, offset = tensors
        part = Sums(DenseRows(values), labels, weights, self.loss, self.intercept, self.outputs, offset)
        if self._fused:
            from trsvr.torch.linear.fused import fuse

            return fuse(part)
        return part

    def _room(self, rows: int) -> _Tensors:
        """Tensors on the device for so many rows."""
        values, labels, weights, offset = (
            None if t is None else torch.empty((rows, *t.shape[1:]), dtype=t.dtype, device=self.device)
            for t in self._sources
        )
        assert values is not None
        assert labels is not None
        return values, labels, weights, offset

    def _fill(self, room: _Tensors, pieces: list[slice]) -> None:
        """Copy pieces of the data, one after another."""
        for target, source in zip(room, self._sources, strict=True):
            if target is not None and source is not None:
                begin = 0
                for piece in pieces:
                    target[begin : begin + _length(piece)].copy_(source[piece], non_blocking=True)
                    begin += _length(piece)

    def _parts(self) -> Iterator[Sums]:
        """Sums over the rows that stay, then over one block after the other, on the device."""
        blocks = self._blocks_of_pieces
        if self.device.type != "cuda":
            if self.resident is not None:
                yield self.resident
            for pieces in blocks:
                room = self._room(sum(map(_length, pieces)))
                self._fill(room, pieces)
                yield self._over(room)
            return
        if blocks and not self._buffers:
            self._copies = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            for _ in range(2):
                events = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
                self._buffers.append((self._room(self._block), *events))
        worker = torch.cuda.current_stream(self.device)
        for _, _, done in self._buffers:
            done.record(worker)

        def send(k: int) -> None:
            if k < len(blocks):
                room, copied, done = self._buffers[k % 2]
                with torch.cuda.stream(self._copies):
                    self._copies.wait_event(done)
                    self._fill(room, blocks[k])
                    copied.record(self._copies)

        send(0)
        if self.resident is not None:
            yield self.resident
        for k, pieces in enumerate(blocks):
            send(k + 1)
            _, copied, done = self._buffers[k % 2]
            worker.wait_event(copied)
            yield self._over_buffer(k % 2, sum(map(_length, pieces)))
            done.record(worker)

    def _over_buffer(self, which: int, length: int) -> Sums:
        """Sums over the beginning of a buffer, made once."""
        made = self._made.get((which, length))
        if made is None:
            values, labels, *others = self._buffers[which][0]
            weights, offset = (None if t is None else t[:length] for t in others)
            made = self._made[which, length] = self._over((values[:length], labels[:length], weights, offset))
        return made

    def _sum(self, one: Callable[[Sums], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The sums of all blocks, added in order on the device."""
        totals: tuple[Tensor, ...] | None = None
        for block in self._parts():
            found = one(block)
            totals = found if totals is None else tuple(a + b for a, b in zip(totals, found, strict=True))
        assert totals is not None
        return totals

    # ------------------------------------------------------------------------------------------------------ sums

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Σ losses and Σ their gradients."""
        value, gradient = self._sum(lambda block: block.value_and_gradient(x))
        return value, gradient

    def evaluate_tensors(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Σ losses, Σ gradients, Σ curvatures: one reading of X."""
        value, gradient, curvature = self._sum(lambda block: block.evaluate_tensors(x))
        return value, gradient, curvature

    def evaluate_host(self, x: Vector) -> tuple[float, Vector, float]:
        """The same from and to the host."""
        if self.resident is not None and not self._blocks_of_pieces:
            return self.resident.evaluate_host(x)
        return super().evaluate_host(x)

    def total_curvature(self, x: Tensor, raised: bool) -> Tensor:
        """Σ curvatures."""
        return self._sum(lambda block: (block.total_curvature(x, raised),))[0]

    def product(self, x: Tensor, v: Tensor, raised: bool = False) -> Tensor:
        """Σ Hessians of the losses at x, times v."""
        return self._sum(lambda block: (block.product(x, v, raised),))[0]

    def diagonal(self, x: Tensor, raised: bool = False) -> Tensor:
        """Diagonal of the same Hessians' sum."""
        return self._sum(lambda block: (block.diagonal(x, raised),))[0]

    def matrices(
        self, x: Tensor, raised: bool = False, runs: Runs | None = None, centre: Tensor | None = None
    ) -> Tensor:
        """Σ curvature_ik (x_i, 1)(x_i, 1)ᵀ over all rows or the runs, one matrix for each output k."""
        if runs is None:
            return self._sum(lambda block: (block.matrices(x, raised, None, centre),))[0]
        return self.take(runs.rows(self.n_rows)).matrices(x, raised, None, centre)

    def warm_up(self, dense: bool) -> None:
        """Compile what the rows that stay on the device need, which is what the others need."""
        if self.resident is not None:
            self.resident.warm_up(dense)
            if dense:
                self.resident.warm_up_steps()

    def take(self, indices: Tensor) -> Sums:
        """The same over a copy of the chosen rows, on the device."""
        part = self._host.take(indices)
        assert isinstance(part.rows, DenseRows)
        sources = (part.rows.values, part.labels, part.weights, part.offset)
        return self._over(tuple(None if t is None else t.to(self.device) for t in sources))  # type: ignore[arg-type]

    def change(self, at: Tensor, x: Tensor, runs: Runs) -> Tensor:
        """Σ over the runs of the gradients' changes from ``at`` to x."""
        part = self.take(runs.rows(self.n_rows))
        return part.value_and_gradient(x)[1] - part.value_and_gradient(at)[1]


def _length(piece: slice) -> int:
    return int(piece.stop - piece.start)


def _places(n: int, staying: int, block: int) -> tuple[list[slice], list[slice]]:
    """Rows that stay on the device, and those that pass: the beginning and the rest of each of equal stretches."""
    count = max(1, min(_PLACES, n), -(-n // block))
    bounds = [k * n // count for k in range(count + 1)]
    ends = [k * staying // count for k in range(count + 1)]
    kept, others = [], []
    for k in range(count):
        cut = min(bounds[k] + ends[k + 1] - ends[k], bounds[k + 1])
        kept.append(slice(bounds[k], cut))
        others.append(slice(cut, bounds[k + 1]))
    return [piece for piece in kept if _length(piece)], [piece for piece in others if _length(piece)]


def _blocks(pieces: list[slice], block: int) -> list[list[slice]]:
    """The pieces, of at most ``block`` rows each, in groups of at most as many; neighbours are one piece."""
    groups: list[list[slice]] = []
    size = block
    for piece in pieces:
        if size + _length(piece) > block:
            groups.append([])
            size = 0
        group = groups[-1]
        size += _length(piece)
        if group and group[-1].stop == piece.start:
            group[-1] = slice(group[-1].start, piece.stop)
        else:
            group.append(piece)
    return groups


def _pinned(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_pinned() else tensor.pin_memory()
