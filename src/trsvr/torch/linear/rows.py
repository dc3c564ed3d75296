"""Rows of X as tensors, and their products in float64: the reference for every device.

Dense float32 rows are widened in blocks, so that no second copy of X is ever held. Compressed rows have products of
their own: a row's entries lie side by side, so X·W is a sum over segments; for Xᵀ·S the transpose is kept as well.
Nothing is added in an order that chance decides: same input, same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Numbers that are widened at a time: what a cache of the host holds, or what keeps a device busy, but no more than this
# part of X there.
_BLOCK = 2**22
_DEVICE_BLOCK = 2**25
_PART = 8


class DenseRows:
    """X as an n × p tensor, float32 or float64."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.n_rows, self.columns = values.shape
        self.n_entries = values.numel()
        self.device = values.device

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        most = _BLOCK if self.device.type == "cpu" else min(_DEVICE_BLOCK, max(_BLOCK, self.n_entries // _PART))
        length = max(1, most // self.columns)
        for begin in range(0, self.n_rows, length):
            piece = slice(begin, min(begin + length, self.n_rows))
            yield piece, self.values[piece].double()

    def products(self, W: Tensor) -> Tensor:
        """X W, n × K."""
        out = torch.empty(self.n_rows, W.shape[1], dtype=torch.float64, device=self.device)
        for piece, block in self._blocks():
            torch.mm(block, W, out=out[piece])
        return out

    def transposed(self, S: Tensor) -> Tensor:
        """Xᵀ S, p × K."""
        out = torch.zeros(self.columns, S.shape[1], dtype=torch.float64, device=self.device)
        for piece, block in self._blocks():
            out += block.T @ S[piece]
        return out

    def squares(self, weights: Tensor) -> Tensor:
        """Σ weight_i x_ij², p × K."""
        out = torch.zeros(self.columns, weights.shape[1], dtype=torch.float64, device=self.device)
        for piece, block in self._blocks():
            out += (block * block).T @ weights[piece]
        return out

    def gram(self, weights: Tensor, centre: Tensor | None = None) -> Tensor:
        """Σ weight_i x_i x_iᵀ, p × p; of the rows minus a centre, if there is one."""
        out = torch.zeros(self.columns, self.columns, dtype=torch.float64, device=self.device)
        for piece, block in self._blocks():
            centred = block if centre is None else block - centre
            out += centred.T @ (centred * weights[piece, None])
        return out

    def squared_norms(self) -> Tensor:
        """‖x_i‖² of every row."""
        out = torch.empty(self.n_rows, dtype=torch.float64, device=self.device)
        for piece, block in self._blocks():
            out[piece] = (block * block).sum(1)
        return out

    def take(self, indices: Tensor) -> DenseRows:
        """A copy of the chosen rows."""
        return type(self)(self.values[indices])

    def first_bad(self) -> tuple[int, int, float] | None:
        """Row, column and value of the first entry that is not finite."""
        for piece, block in self._blocks():
            bad = ~torch.isfinite(block)
            if bool(bad.any()):
                i, j = (int(k) for k in bad.nonzero()[0])
                return piece.start + i, j, float(block[i, j])
        return None


class SparseRows:
    """X in compressed rows: entries, their columns, and where each row begins; its transpose as well."""

    def __init__(self, data: Tensor, indices: Tensor, indptr: Tensor, columns: int) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.n_rows, self.columns = indptr.numel() - 1, columns
        self.n_entries = data.numel()
        self.device = data.device
        self._transpose: tuple[Tensor, Tensor, Tensor] | None = None

    def row_numbers(self) -> Tensor:
        """Row of each entry."""
        return torch.repeat_interleave(
            torch.arange(self.n_rows, device=self.device), self.indptr.diff(), output_size=self.n_entries
        )

    @property
    def transpose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Entries column by column, their rows, and where each column begins."""
        if self._transpose is None:
            order = torch.argsort(self.indices, stable=True)
            counts = torch.bincount(self.indices, minlength=self.columns)
            begins = torch.zeros(self.columns + 1, dtype=torch.int64, device=self.device)
            torch.cumsum(counts, 0, out=begins[1:])
            self._transpose = self.data[order], self.row_numbers()[order], begins
        return self._transpose

    def products(self, W: Tensor) -> Tensor:
        """X W, n × K."""
        return _segment_sums(self.data.double()[:, None] * W[self.indices], self.indptr)

    def transposed(self, S: Tensor) -> Tensor:
        """Xᵀ S, p × K."""
        data, rows, begins = self.transpose
        return _segment_sums(data.double()[:, None] * S[rows], begins)

    def squares(self, weights: Tensor) -> Tensor:
        """Σ weight_i x_ij², p × K."""
        data, rows, begins = self.transpose
        return _segment_sums(data.double()[:, None] ** 2 * weights[rows], begins)

    def gram(self, weights: Tensor, centre: Tensor | None = None) -> Tensor:
        """Σ weight_i x_i x_iᵀ, p × p: over blocks of rows, made dense; sparse rows are not centred."""
        assert centre is None
        length = max(1, _BLOCK // self.columns)
        out = torch.zeros(self.columns, self.columns, dtype=torch.float64, device=self.device)
        for begin in range(0, self.n_rows, length):
            end = min(begin + length, self.n_rows)
            first, last = int(self.indptr[begin]), int(self.indptr[end])
            block = torch.zeros(end - begin, self.columns, dtype=torch.float64, device=self.device)
            rows = torch.repeat_interleave(
                torch.arange(end - begin, device=self.device), self.indptr[begin : end + 1].diff()
            )
            block[rows, self.indices[first:last]] = self.data[first:last].double()
            out += block.T @ (block * weights[begin:end, None])
        return out

    def squared_norms(self) -> Tensor:
        """‖x_i‖² of every row."""
        return _segment_sums(self.data.double()[:, None] ** 2, self.indptr)[:, 0]

    def take(self, indices: Tensor) -> SparseRows:
        """A copy of the chosen rows."""
        lengths = self.indptr.diff()[indices]
        indptr = torch.zeros(indices.numel() + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(lengths, 0, out=indptr[1:])
        total = int(indptr[-1])
        shifts = torch.repeat_interleave(self.indptr[indices] - indptr[:-1], lengths, output_size=total)
        places = shifts + torch.arange(total, device=self.device)
        return type(self)(self.data[places], self.indices[places], indptr, self.columns)

    def first_bad(self) -> tuple[int, int, float] | None:
        """Row, column and value of the first entry that is not finite."""
        bad = ~torch.isfinite(self.data)
        if not bool(bad.any()):
            return None
        k = int(bad.nonzero()[0])
        row = int(torch.searchsorted(self.indptr, torch.tensor([k], device=self.device), right=True)[0]) - 1
        return row, int(self.indices[k]), float(self.data[k])


Rows = DenseRows | SparseRows


def _segment_sums(entries: Tensor, begins: Tensor) -> Tensor:
    """Sums of entries[begins_k : begins_{k+1}], in order."""
    if entries.shape[0] == 0:
        return torch.zeros(begins.numel() - 1, entries.shape[1], dtype=entries.dtype, device=entries.device)
    return torch.segment_reduce(entries.contiguous(), "sum", offsets=begins, axis=0, initial=0.0)
