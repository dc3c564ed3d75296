"""The sums of `trsvr.torch.linear.sums` in Triton: rows with products of their own, and whole passes in two launches.

Dense rows with one output and at most 64 columns are processed by `FusedSums`, which reads X once per pass. All else
runs on the plain formulas over rows whose products are hand-written; with one output the inner steps have kernels of
their own there too (`WideSums`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from trsvr._arrays import Vector
from trsvr.problems.losses import Logistic
from trsvr.torch.linear import inner_kernels, kernels
from trsvr.torch.linear.formulas import CODES
from trsvr.torch.linear.graphs import Captured
from trsvr.torch.linear.rows import DenseRows, SparseRows
from trsvr.torch.linear.sums import Runs, Sums
from trsvr.torch.linear.walks import InnerLoop

#: columns (with the intercept) up to which a tile of rows fits into registers
MOST_COLUMNS = 64
# Entries of a compressed column that one program adds up; longer ones are cut.
_PIECE = 2048
_INTERPRETED_PROGRAMS = 4
# Factors of at most 2 that are multiplied before their logarithm is taken: far from the largest float64.
_CHUNK = 512
# Programs for each multiprocessor of all kernels but the full pass.
_PROGRAMS = 4


class Shape(NamedTuple):
    """How a full pass is cut; ``benchmarks/gpu/higgs.py --tune`` times them."""

    rows: int  # of a tile
    warps: int
    stages: int  # of the pipeline
    programs: int  # for each multiprocessor


def fuse(sums: Sums) -> Sums:
    """The same sums by Triton kernels."""
    rows: Any = sums.rows
    own = FusedDenseRows(rows.values) if isinstance(rows, DenseRows) else FusedSparseRows.of(rows)
    few = isinstance(rows, DenseRows) and sums.outputs == 1 and rows.columns + sums.intercept <= MOST_COLUMNS
    kind = FusedSums if few and rows.n_rows < 2**31 - 2**16 else Sums
    return kind(own, sums.labels, sums.weights, sums.loss, sums.intercept, sums.outputs)


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return _INTERPRETED_PROGRAMS // 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


# ------------------------------------------------------------------------------------------------------------ rows


class FusedDenseRows(DenseRows):
    """Dense rows whose products read X as it is, without a widened copy."""

    def products(self, W: Tensor) -> Tensor:
        """X W, n × K."""
        K = W.shape[1]
        out = torch.empty(self.n_rows, K, dtype=torch.float64, device=self.device)
        kernels.dense_products[(triton.cdiv(self.n_rows, 64), K)](
            self.values, W.contiguous(), out, self.n_rows, self.columns, K, R=64, C=32
        )
        return out

    def transposed(self, S: Tensor) -> Tensor:
        """Xᵀ S, p × K."""
        return self._transposed(S, False)

    def squares(self, weights: Tensor) -> Tensor:
        """Σ weight_i x_ij², p × K."""
        return self._transposed(weights, True)

    def _transposed(self, S: Tensor, squared: bool) -> Tensor:
        K = S.shape[1]
        parts = min(triton.cdiv(self.n_rows, 64), 4 * _multiprocessors(self.device))
        out = torch.empty(parts, self.columns, K, dtype=torch.float64, device=self.device)
        kernels.dense_transposed[(parts, triton.cdiv(self.columns, 32), K)](
            self.values, S.contiguous(), out, self.n_rows, self.columns, K, SQUARED=squared, R=64, C=32
        )
        return out.sum(0)


class FusedSparseRows(SparseRows):
    """Compressed rows; a segment too long for one program is cut, and the pieces are added afterwards."""

    @classmethod
    def of(cls, rows: SparseRows) -> FusedSparseRows:
        """The same rows."""
        return cls(rows.data, rows.indices, rows.indptr, rows.columns)

    def __init__(self, data: Tensor, indices: Tensor, indptr: Tensor, columns: int) -> None:
        super().__init__(data, indices, indptr, columns)
        self._row_pieces: tuple[Tensor, Tensor | None] | None = None
        self._column_pieces: tuple[Tensor, Tensor | None] | None = None

    def products(self, W: Tensor) -> Tensor:
        """X W, n × K."""
        if self._row_pieces is None:
            self._row_pieces = _pieces(self.indptr)
        return _sums_of(self.data, self.indices, self._row_pieces, W, False)

    def transposed(self, S: Tensor) -> Tensor:
        """Xᵀ S, p × K."""
        return self._by_columns(S, False)

    def squares(self, weights: Tensor) -> Tensor:
        """Σ weight_i x_ij², p × K."""
        return self._by_columns(weights, True)

    def _by_columns(self, S: Tensor, squared: bool) -> Tensor:
        data, rows, begins = self.transpose
        if self._column_pieces is None:
            self._column_pieces = _pieces(begins)
        return _sums_of(data, rows, self._column_pieces, S, squared)


def _pieces(begins: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where pieces of at most `_PIECE` entries begin, and where the segments begin among the pieces."""
    counts = (begins.diff() + _PIECE - 1) // _PIECE
    if int(counts.max()) <= 1:
        return begins, None
    counts = counts.clamp(min=1)
    firsts = torch.zeros_like(begins)
    torch.cumsum(counts, 0, out=firsts[1:])
    total = int(firsts[-1])
    number = torch.arange(total, device=begins.device) - torch.repeat_interleave(firsts[:-1], counts, output_size=total)
    cuts = torch.repeat_interleave(begins[:-1], counts, output_size=total) + number * _PIECE
    return torch.cat([cuts, begins[-1:]]), firsts


def _sums_of(data: Tensor, indices: Tensor, pieces: tuple[Tensor, Tensor | None], W: Tensor, squared: bool) -> Tensor:
    begins, firsts = pieces
    K = W.shape[1]
    segments = begins.numel() - 1
    out = torch.empty(segments, K, dtype=torch.float64, device=data.device)
    kernels.segment_products[(triton.cdiv(segments, 16), K)](
        data, indices, begins, W.contiguous(), out, segments, K, SQUARED=squared, R=16, E=32
    )
    if firsts is None:
        return out
    segments = firsts.numel() - 1
    whole = torch.empty(segments, K, dtype=torch.float64, device=data.device)
    kernels.segment_sums[(triton.cdiv(segments, 16), K)](out, firsts, whole, segments, K, R=16, E=32)
    return whole


# ------------------------------------------------------------------------------------------------------ whole passes


class FusedSums(Sums):
    """Few dense columns, one output: value, gradient, products, matrices and inner steps with one reading of X each."""

    #: at least as many rows as threads, else margins are worked on several times; as many programs as registers allow
    shape = Shape(64, 2, 1, 8)

    draws_itself = walks = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._empty = torch.zeros(1, dtype=torch.float64, device=self.device)
        self._delta = torch.full((1,), getattr(self.loss, "delta", 1.0), dtype=torch.float64, device=self.device)
        self._loops: dict[int, InnerLoop] = {}
        d = self.n_parameters
        self.D = max(16, triton.next_power_of_2(d))
        self._common = {
            "P": self.rows.columns,
            "D": self.D,
            "LOSS": CODES[type(self.loss)],
            "WEIGHTED": self.weights is not None,
            "INTERCEPT": int(self.intercept),
        }
        assert isinstance(self.rows, DenseRows)
        self._data = (self.rows.values, self.labels, self._empty if self.weights is None else self.weights)
        # Numbers of a row that a thread reads at once: up to 16 bytes, as the rows' length allows.
        self._together = math.gcd(self.rows.columns, 16 // self._data[0].element_size())
        self._rounding = {"enable_fp_fusion": self._together > 1}
        self.cut(self.shape)

    def cut(self, shape: Shape) -> None:
        """Work in this shape from now on."""
        if self.D > 32:  # twice the numbers in a thread: half the programs, and rows are sent for ahead of time
            shape = shape._replace(programs=max(1, shape.programs // 2), stages=3)
        if self.D // self._together > 32:  # a row over two warps would send every margin through shared memory
            shape = shape._replace(rows=32, warps=1, programs=2 * shape.programs)
        self.shape = shape
        self._full_programs = shape.programs * _multiprocessors(self.device)
        self._programs = _PROGRAMS * _multiprocessors(self.device)
        self._evaluation: Captured | None = None
        self._matrices: dict[tuple[bool, tuple[int, int] | None], Captured] = {}
        self._loops = {}

    @staticmethod
    def stands_for(norm: Any) -> Any:
        """What the inner steps are to be given of P; None where they cannot be made."""
        return norm.plain_inverse()

    def room(self, *shape: int) -> Tensor:
        """Float64 numbers on the device, to be written."""
        return torch.empty(*shape, dtype=torch.float64, device=self.device)

    def inner_steps(
        self,
        at: Vector,
        x: Vector,
        gradient: Vector,
        matrix: Any,
        cubic: tuple[float, float],
        factor: float,
        sizes: tuple[int, int, int],
        key: int,
    ) -> tuple[Vector, int]:
        """All inner steps from x, with the reference ``at`` and its gradient; returns the new x and how many.

        Parameters
        ----------
        matrix : array
            What `stands_for` made of P; a step is ``factor`` times P⁻¹ḡ.
        cubic : pair of floats
            (a, c) with r'(w) = a w + c w³.
        sizes
            Runs in a batch, their length and the most steps.
        key : int
            What the runs' places depend on.
        """
        count, length, most = sizes
        loop = self._loops.get(most)
        if loop is None:
            loop = self._loops[most] = InnerLoop(self, most)
        found: tuple[Vector, int] = loop.run(
            at, x, gradient, matrix, (count, length.bit_length() - 1, key, most, factor, *cubic)
        )
        return found

    def starts(self, step: int, count: int, key: int) -> Tensor:
        """Where the runs of an inner step begin."""
        out = torch.empty(count, dtype=torch.int64, device=self.device)
        inner_kernels.list_starts[(triton.cdiv(count, 256),)](out, key, step * count, self.n_rows, count, B=256)
        return out

    def tuned(self, shape: Shape | None = None) -> dict[str, Any]:
        """How a kernel is to be launched, in the usual shape or another one."""
        rows, warps, stages = (shape or self.shape)[:3]
        sweep = max(1, warps * 32 * self._together // self.D)
        return {"R": rows, "num_warps": warps, "STAGES": stages, "FOLD": min(sweep, rows), **self._rounding}

    def _add_up(self, parts: Tensor, out: Tensor) -> Tensor:
        count, width = parts.shape[0], parts[0].numel()
        kernels.add_up[(triton.cdiv(width, 8),)](parts, out, count, width, B=256, C=8)
        return out

    def _full(self, x: Tensor, parts: Tensor, out: Tensor, raised: bool) -> None:
        multiplied = isinstance(self.loss, Logistic) and self.weights is None
        kernels.full_pass[(self._full_programs,)](
            *self._data, x, parts, self.n_rows, self._delta, **self._common, RAISED=raised,
            **self.tuned(), MULTIPLIED=multiplied, CHUNK=_CHUNK,
        )  # fmt: skip
        self._add_up(parts, out)

    def _full_sums(self, x: Tensor, raised: bool = False) -> Tensor:
        """Gradient (D), losses and curvatures, summed."""
        parts, out = self.room(self._full_programs, self.D + 2), self.room(self.D + 2)
        self._full(x, parts, out, raised)
        return out

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Σ losses and Σ their gradients."""
        return self.evaluate_tensors(x)[:2]

    def evaluate_tensors(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Σ losses, Σ gradients, Σ curvatures, left on the device."""
        out = self._full_sums(x)
        return out[self.D], out[: self.n_parameters], out[self.D + 1]

    def evaluate_host(self, x: Vector) -> tuple[float, Vector, float]:
        """The same from and to the host: one graph, one wait."""
        if self.device.type != "cuda":
            return super().evaluate_host(x)
        if self._evaluation is None:
            at, out = self.room(self.n_parameters), self.room(self.D + 2)
            parts = self.room(self._full_programs, self.D + 2)
            self._evaluation = Captured(at, out, lambda: self._full(at, parts, out, False), keep=(parts,))
        found = self._evaluation.run(x)
        return float(found[self.D]), found[: self.n_parameters].copy(), float(found[self.D + 1])

    def total_curvature(self, x: Tensor, raised: bool) -> Tensor:
        """Σ curvatures."""
        return self._full_sums(x, raised)[self.D + 1]

    def product(self, x: Tensor, v: Tensor, raised: bool = False) -> Tensor:
        """Σ Hessians of the losses at x, times v."""
        parts, out = self.room(self._programs, self.D), self.room(self.D)
        shape = Shape(128, 4, 1, _PROGRAMS) if self.D <= 32 else None
        kernels.product_pass[(self._programs,)](
            *self._data, x, v, parts, self.n_rows, self._delta, **self._common, RAISED=raised, **self.tuned(shape)
        )
        return self._add_up(parts, out)[: self.n_parameters]

    def matrices(self, x: Tensor, raised: bool = False, runs: Runs | None = None) -> Tensor:
        """Σ curvature_i (x_i, 1)(x_i, 1)ᵀ over all rows or the runs."""
        if self._data[0].dtype == torch.float64:
            return super().matrices(x, raised, runs)  # Triton has no products of float64 matrices everywhere
        D, d = self.D, self.n_parameters
        parts, out = self.room(self._programs, D, D), self.room(D, D)
        cut = None if runs is None else (runs.starts.numel(), runs.length)
        self._gram(x, raised, cut, self._empty if runs is None else runs.starts, parts, out)
        return out[None, :d, :d]

    def _gram(
        self, x: Tensor, raised: bool, cut: tuple[int, int] | None, starts: Tensor, parts: Tensor, out: Tensor
    ) -> None:
        count, length = cut or (0, 1)
        programs = min(self._programs, triton.cdiv(count * length if cut else self.n_rows, 128))
        kernels.gram_pass[(programs,)](
            *self._data, x, starts, parts, self.n_rows, count, length.bit_length() - 1, self._delta,
            **self._common, RAISED=raised, ALL=cut is None, R=128, STAGES=2, num_warps=4, **self._rounding,
        )  # fmt: skip
        self._add_up(parts[:programs], out)

    def matrix_host(self, x: Vector, raised: bool, cut: tuple[int, int] | None, key: int) -> Any:
        """Such a matrix from and to the host: one graph, one wait; None where that is not worth it.

        ``cut`` is the number of runs and their length, None for all rows; `spread` says where they begin.
        """
        if self._data[0].dtype == torch.float64:
            return None
        D, d = self.D, self.n_parameters
        graph = self._matrices.get((raised, cut))
        if graph is None:
            at, out = self.room(d + 1), self.room(D, D)
            parts = self.room(self._programs, D, D)
            starts = torch.empty(cut[0] if cut else 1, dtype=torch.int64, device=self.device)

            def launch() -> None:
                if cut is not None:
                    self._spread(starts, at[d:])
                self._gram(at, raised, cut, starts, parts, out)

            graph = self._matrices[raised, cut] = Captured(at, out, launch, keep=(parts, starts))
        return graph.run(np.append(x, float(key)))[None, :d, :d].copy()

    def _spread(self, starts: Tensor, key: Tensor) -> None:
        count = starts.numel()
        inner_kernels.list_spread[(triton.cdiv(count, 256),)](starts, key, self.n_rows, count, B=256)

    def spread(self, count: int, key: int) -> Tensor:
        """Where so many runs begin, one in each of as many equal stretches of the rows."""
        starts = torch.empty(count, dtype=torch.int64, device=self.device)
        self._spread(starts, torch.full((1,), float(key), dtype=torch.float64, device=self.device))
        return starts

    def changes(self, at: Tensor, x: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
        """Σ over the runs' halves of the gradients' changes from ``at`` to x."""
        programs = self._programs // 2 * 2
        parts = self.room(programs, self.D)
        kernels.change_pass[(programs,)](
            *self._data, at, x, runs.starts, parts, self.n_rows, runs.starts.numel(), runs.length.bit_length() - 1,
            self._delta, **self._common, **self.tuned(),
        )  # fmt: skip
        half, d = programs // 2, self.n_parameters
        first = self._add_up(parts[:half], self.room(self.D))
        second = self._add_up(parts[half:], self.room(self.D))
        return first[:d], second[:d]

    def warm_up(self, dense: bool) -> None:
        """Compile the kernels, and record the graphs, of what the adaptive mode will ask for."""
        if self.device.type != "cuda" or self._evaluation is not None:
            return
        zero = np.zeros(self.n_parameters)
        at = torch.zeros(self.n_parameters, dtype=torch.float64, device=self.device)
        self.evaluate_host(zero)
        self.total_curvature(at, True)
        self.product(at, at)
        if dense:
            runs = Runs(torch.zeros(2, dtype=torch.int64, device=self.device), 1)
            self.matrices(at, False, runs)
            self.matrices(at, False)
            self.changes(at, at, runs)
            self.inner_steps(zero, zero, zero, np.eye(zero.size), (0.0, 0.0), 1.0, (2, 1, 9), 0)
        torch.cuda.synchronize(self.device)
