"""The sums of `trsvr.torch.linear.sums` in Triton: rows with products of their own, and whole passes in two launches.

Dense rows with one output and at most 512 columns are processed by `FusedSums`, which reads X once per pass, those of
more than 64 with matrices in tiles and without inner steps (`WideFusedSums`). All else runs on the plain formulas over
rows whose products are hand-written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from trsvr._arrays import Vector
from trsvr.problems.losses import Logistic, Softmax
from trsvr.torch.linear import inner_kernels, kernels, output_kernels, wide_kernels
from trsvr.torch.linear.formulas import CODES
from trsvr.torch.linear.graphs import Captured
from trsvr.torch.linear.rows import DenseRows, SparseRows
from trsvr.torch.linear.sums import Runs, Sums
from trsvr.torch.linear.walks import InnerLoop

#: columns (with the intercept) up to which a tile of rows fits into registers, and a matrix of theirs as well
MOST_COLUMNS, NARROW = 512, 64
# Entries of a compressed column that one program adds up; longer ones are cut.
_PIECE = 2048
_INTERPRETED_PROGRAMS = 4
# Factors of at most 2 that are multiplied before their logarithm is taken: far from the largest float64.
_CHUNK = 512
# Programs for each multiprocessor of all kernels but the full pass; every number of them is a multiple of the last.
_PROGRAMS, _WHOLE = 4, 8
# Rows from which those that no longer make a whole line of phases do not matter to a sample.
_MANY_ROWS = 2**16
# A tile of a matrix: its columns, the rows of a product, and how many of these are added up in float32.
_GROUP, _GROUP_ROWS, _TOGETHER = 64, 64, 4
# Programs for each multiprocessor that make tiles of a matrix.
_GRAM_PROGRAMS = 3
# Outputs and columns that are read once with several outputs, and the numbers of a table of both at most; the rows of a
# tile, and how many columns make it half as long.
_MOST_OUTPUTS, _OUTPUT_COLUMNS, _LARGEST_TABLE, _OUTPUT_ROWS = 32, 128, 2048, 64
# Rows from which the length of a step is taken, in runs of so many.
_LINE_ROWS, _LINE_RUN = 2**17, 32


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
    columns = rows.columns + sums.intercept
    if FusedOutputSums.suits(sums):
        return FusedOutputSums(own, sums.labels, sums.weights, sums.loss, sums.intercept, sums.outputs)
    few = isinstance(rows, DenseRows) and sums.outputs == 1 and columns <= MOST_COLUMNS
    fused = FusedSums if columns <= NARROW else WideFusedSums
    kind = fused if few and rows.n_rows < 2**31 - 2**16 else Sums
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
            self.values, W.contiguous(), out, self.n_rows, self.columns, K, R=64, C=32,
            # Where Triton does not know that rows begin at multiples of 16 bytes a thread has one product of a row.
            enable_fp_fusion=self.columns % 16 == 0,
        )  # fmt: skip
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

    draws_itself = walks = looks_along = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._empty = torch.zeros(1, dtype=torch.float64, device=self.device)
        self._delta = torch.full((1,), getattr(self.loss, "delta", 1.0), dtype=torch.float64, device=self.device)
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
        # Numbers of a row that a thread reads at once: as the rows' length allows, or 16 bytes, from as many phases.
        size = 16 // self._data[0].element_size()
        self._together = math.gcd(self.rows.columns, size)
        self.phases, self._vector = 1, size
        if d + size - self._together <= self.D:
            self.phases = size // self._together
        self.cut(self.shape)

    def cut(self, shape: Shape) -> None:
        """Work in this shape from now on."""
        if self.D > 32:  # twice the numbers in a thread, and rows are sent for ahead of time
            shape = shape._replace(rows=32, warps=1, stages=3)
        self._cut(shape)

    def _cut(self, shape: Shape) -> None:
        self.shape = shape
        self._full_programs = self._whole(shape.programs)
        self._programs = self._whole(_PROGRAMS)
        self._evaluation: Captured | None = None
        self._line: Captured | None = None
        self._matrices: dict[tuple[bool, tuple[int, int] | None], Captured] = {}
        self._both: dict[tuple[int, int] | None, Captured] = {}
        self._loops: dict[tuple[int, int], InnerLoop] = {}

    def _whole(self, programs: int) -> int:
        """So many programs for each multiprocessor; a whole number for each phase."""
        return math.ceil(programs * _multiprocessors(self.device) / _WHOLE) * _WHOLE

    def phases_of(self, length: int) -> int:
        """The phases in which runs of so many rows are read."""
        return self.phases if length % self.phases == 0 and self.n_rows >= _MANY_ROWS else 1

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
        kind = most, self.phases_of(length)
        loop = self._loops.get(kind)
        if loop is None:
            loop = self._loops[kind] = InnerLoop(self, *kind)
        found: tuple[Vector, int] = loop.run(
            at, x, gradient, matrix, (count, length.bit_length() - 1, key, most, factor, *cubic)
        )
        return found

    def starts(self, step: int, count: int, length: int, key: int) -> Tensor:
        """Where the runs of an inner step begin."""
        out = torch.empty(count, dtype=torch.int64, device=self.device)
        inner_kernels.list_starts[(triton.cdiv(count, 256),)](
            out, key, step * count, self.n_rows, count, B=256, PHASES=self.phases_of(length)
        )
        return out

    def tuned(self, phases: int, shape: Shape | None = None) -> dict[str, Any]:
        """How a kernel that reads rows in phases is to be launched, in the usual shape or another one."""
        rows, warps, stages = (shape or self.shape)[:3]
        together = self._vector if phases > 1 else self._together
        sweep = max(1, warps * 32 * together // self.D)
        cut = {"R": rows, "num_warps": warps, "STAGES": stages, "FOLD": min(sweep, rows), "V": self._vector}
        return {**cut, "PHASES": phases, "enable_fp_fusion": together > 1}

    def _full(self, x: Tensor, parts: Tensor, out: Tensor, raised: bool) -> None:
        multiplied = isinstance(self.loss, Logistic) and self.weights is None
        kernels.full_pass[(self._full_programs,)](
            *self._data, x, parts, self.n_rows, self._delta, **self._common, RAISED=raised,
            **self.tuned(self.phases), MULTIPLIED=multiplied, CHUNK=_CHUNK,
        )  # fmt: skip
        _add_parts(parts, out)

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
        return self._evaluated(self._evaluation_graph().run(x))

    def _evaluation_graph(self) -> Captured:
        if self._evaluation is None:
            at, out = self.room(self.n_parameters), self.room(self.D + 2)
            parts = self.room(self._full_programs, self.D + 2)
            self._evaluation = Captured(at, out, lambda: self._full(at, parts, out, False), keep=(parts,))
        return self._evaluation

    def _evaluated(self, found: Vector) -> tuple[float, Vector, float]:
        return float(found[self.D]), found[: self.n_parameters].copy(), float(found[self.D + 1])

    def evaluate_with_matrix(
        self, x: Vector, cut: tuple[int, int] | None, key: int
    ) -> tuple[tuple[float, Vector, float], Callable[[], Any]] | None:
        """Both `evaluate_host` and `matrix_host` in one graph, with one wait; None where that is not worth it.

        The matrix is handed over when it is called for, or None if it cannot be had any more.
        """
        if self.device.type != "cuda" or self.D > NARROW or self._data[0].dtype == torch.float64:
            return None
        D, d = self.D, self.n_parameters
        graph = self._both.get(cut)
        if graph is None:
            at, out, parts = self.room(d + 1), self.room(D + 2 + D * D), self.room(self._full_programs, D + 2)
            make, matrix, kept, starts = self._matrix_at(at, False, cut)

            def launch() -> None:
                self._full(at, parts, out[: D + 2], False)
                make()
                out[D + 2 :].copy_(matrix.view(-1))

            graph = self._both[cut] = Captured(at, out, launch, keep=(parts, *kept, starts))
        found = graph.run(np.append(x, float(key)))
        matrix_found = found[D + 2 :].reshape(1, D, D)[:, :d, :d].copy()
        return self._evaluated(found), lambda: matrix_found

    def total_curvature(self, x: Tensor, raised: bool) -> Tensor:
        """Σ curvatures."""
        return self._full_sums(x, raised)[self.D + 1]

    def product(self, x: Tensor, v: Tensor, raised: bool = False) -> Tensor:
        """Σ Hessians of the losses at x, times v."""
        programs = self._full_programs if self.D > NARROW else self._programs
        parts, out = self.room(programs, self.D), self.room(self.D)
        shape = Shape(128, 4, 1, _PROGRAMS) if self.D <= 32 else None
        kernels.product_pass[(programs,)](
            *self._data, x, v, parts, self.n_rows, self._delta, **self._common, RAISED=raised,
            **self.tuned(self.phases, shape),
        )  # fmt: skip
        return _add_parts(parts, out)[: self.n_parameters]

    def matrices(
        self, x: Tensor, raised: bool = False, runs: Runs | None = None, centre: Tensor | None = None
    ) -> Tensor:
        """Σ curvature_i (x_i, 1)(x_i, 1)ᵀ over all rows or the runs."""
        if self._data[0].dtype == torch.float64 or centre is not None:
            return super().matrices(x, raised, runs, centre)  # Triton has no products of float64 matrices everywhere
        cut = None if runs is None else (runs.starts.numel(), runs.length)
        phases = self.phases if runs is None else 1
        launch, out, _ = self._gram(raised, cut, phases)
        launch(x, self._empty if runs is None else runs.starts)
        d = self.n_parameters
        return out[None, :d, :d]

    def _gram(self, raised: bool, cut: tuple[int, int] | None, phases: int) -> tuple[Any, Tensor, tuple[Tensor, ...]]:
        """What makes such a matrix at x from runs, given where they begin; the matrix, and what is kept meanwhile."""
        count, length = cut or (0, 1)
        programs = min(self._programs, triton.cdiv(count * length if cut else self.n_rows, 128 * _WHOLE) * _WHOLE)
        parts, out = self.room(programs, self.D, self.D), self.room(self.D, self.D)
        tuned = {**self.tuned(phases), "R": 128, "STAGES": 2, "num_warps": 4}
        del tuned["FOLD"]

        def launch(x: Tensor, starts: Tensor) -> None:
            kernels.gram_pass[(programs,)](
                *self._data, x, starts, parts, self.n_rows, count, length.bit_length() - 1, self._delta,
                **self._common, RAISED=raised, ALL=cut is None, **tuned,
            )  # fmt: skip
            _add_parts(parts, out)

        return launch, out, (parts,)

    def matrix_host(self, x: Vector, raised: bool, cut: tuple[int, int] | None, key: int) -> Any:
        """Such a matrix from and to the host: one graph, one wait; None where that is not worth it.

        What comes back is overwritten by the next one. ``cut`` is the number of runs and their length, None for all
        rows; `spread` says where they begin.
        """
        if self._data[0].dtype == torch.float64:
            return None
        d = self.n_parameters
        return self._matrix_graph(raised, cut).run(np.append(x, float(key)))[None, :d, :d]

    def _matrix_graph(self, raised: bool, cut: tuple[int, int] | None) -> Captured:
        graph = self._matrices.get((raised, cut))
        if graph is None:
            at = self.room(self.n_parameters + 1)
            make, out, kept, starts = self._matrix_at(at, raised, cut)
            graph = self._matrices[raised, cut] = Captured(at, out, make, keep=(*kept, starts))
        return graph

    def _matrix_at(
        self, at: Tensor, raised: bool, cut: tuple[int, int] | None
    ) -> tuple[Any, Tensor, tuple[Tensor, ...], Tensor]:
        """What makes the matrix at x and from the key that ``at`` ends with; the matrix, and what must be kept."""
        phases = self.phases if cut is None else self.phases_of(cut[1])
        make, out, kept = self._gram(raised, cut, phases)
        starts = torch.empty(cut[0] if cut else 1, dtype=torch.int64, device=self.device)

        def launch() -> None:
            if cut is not None:
                self._spread(starts, at[self.n_parameters :], phases)
            make(at, starts)

        return launch, out, kept, starts

    def warm_up_matrix(self, cut: tuple[int, int] | None) -> None:
        """Record the graph of such a matrix."""
        zero = np.zeros(self.n_parameters)
        if self.device.type == "cuda" and (False, cut) not in self._matrices:
            self.matrix_host(zero, False, cut, 0)
            self.evaluate_with_matrix(zero, cut, 0)

    def _spread(self, starts: Tensor, key: Tensor, phases: int) -> None:
        count = starts.numel()
        inner_kernels.list_spread[(triton.cdiv(count, 256),)](starts, key, self.n_rows, count, B=256, PHASES=phases)

    def spread(self, count: int, length: int, key: int) -> Tensor:
        """Where so many runs begin, one in each of as many equal stretches of the rows."""
        starts = torch.empty(count, dtype=torch.int64, device=self.device)
        at = torch.full((1,), float(key), dtype=torch.float64, device=self.device)
        self._spread(starts, at, self.phases_of(length))
        return starts

    def _simply(self) -> dict[str, Any]:
        """How a kernel is launched that reads rows one by one and keeps no sums of their columns."""
        cut = {"R": self.shape.rows, "num_warps": self.shape.warps, "STAGES": self.shape.stages}
        return {**cut, "enable_fp_fusion": self._together > 1}

    def line_host(self, x: Vector, step: Vector) -> tuple[float, float, int]:
        """Σ change of the losses' slopes along a step, Σ their curvatures at its end, over so many spread rows."""
        count = max(1, min(self.n_rows, _LINE_ROWS) // _LINE_RUN)
        if self._line is None:
            d, starts = self.n_parameters, torch.arange(count, device=self.device) * self.n_rows // count
            points, out = self.room(2 * d), self.room(2)
            parts = self.room(self._full_programs, 2)

            def launch() -> None:
                wide_kernels.line_pass[(self._full_programs,)](
                    *self._data, points, points[d:], starts, parts, self.n_rows, count, _LINE_RUN.bit_length() - 1,
                    self._delta, **self._common, **self._simply(),
                )  # fmt: skip
                _add_parts(parts, out)

            self._line = Captured(points, out, launch, keep=(starts, parts))
        slope, curvature = self._line.run(np.concatenate([x, step]))
        return float(slope), float(curvature), count * _LINE_RUN

    def changes(self, at: Tensor, x: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
        """Σ over the runs' halves of the gradients' changes from ``at`` to x."""
        programs = self._programs // 2 * 2
        parts = self.room(programs, self.D)
        tuned = self.tuned(1)
        del tuned["PHASES"]
        kernels.change_pass[(programs,)](
            *self._data, at, x, runs.starts, parts, self.n_rows, runs.starts.numel(), runs.length.bit_length() - 1,
            self._delta, **self._common, **tuned,
        )  # fmt: skip
        half, d = programs // 2, self.n_parameters
        first = _add_parts(parts[:half], self.room(self.D))
        second = _add_parts(parts[half:], self.room(self.D))
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
            self.line_host(zero, zero)
        torch.cuda.synchronize(self.device)

    def warm_up_steps(self) -> None:
        """Record the graphs of inner steps."""
        if self.walks and self.device.type == "cuda":
            zero = np.zeros(self.n_parameters)
            for length in {1, self.phases} if not self._loops else ():
                self.inner_steps(zero, zero, zero, np.eye(zero.size), (0.0, 0.0), 1.0, (2, length, 9), 0)


class WideFusedSums(FusedSums):
    """The same for up to 512 columns: matrices in tiles, and no inner steps."""

    #: of 128, 256 and 512 columns in float32: a row is as much as a thread can hold of a tile
    shapes: ClassVar[dict[int, Shape]] = {128: Shape(32, 1, 1, 8), 256: Shape(4, 1, 1, 8), 512: Shape(4, 1, 1, 8)}

    walks = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._asked_for = True  # whether the last point's matrix was wanted
        self._number = 0  # of the matrix that was begun last

    def cut(self, shape: Shape | None = None) -> None:
        """Work in this shape from now on, or in the usual one."""
        if shape is None or shape is FusedSums.shape:
            shape = self.shapes[self.D]
            if self._vector == 2:
                shape = shape._replace(rows=max(2, shape.rows // 2))
        self._cut(shape)
        groups = triton.cdiv(self.n_parameters, _GROUP)
        pairs = [(i, j) for i in range(groups) for j in range(i, groups)]
        self._pairs = torch.tensor(pairs, dtype=torch.int32, device=self.device)

    def phases_of(self, length: int) -> int:
        """Runs are read row by row."""
        return 1

    def _gram(self, raised: bool, cut: tuple[int, int] | None, phases: int) -> tuple[Any, Tensor, tuple[Tensor, ...]]:
        """What makes such a matrix at x from runs, given where they begin; the matrix, and what is kept meanwhile."""
        count, length = cut or (0, 1)
        rows, d, pairs = count * length if cut else self.n_rows, self.n_parameters, len(self._pairs)
        width, tiles = triton.cdiv(d, _GROUP) * _GROUP, triton.cdiv(rows, _GROUP_ROWS)
        splits = max(1, min(_GRAM_PROGRAMS * self._programs // (_PROGRAMS * pairs), triton.cdiv(tiles, _TOGETHER)))
        scaled = torch.empty(tiles * _GROUP_ROWS, width, dtype=torch.float32, device=self.device)
        scaled[rows:].zero_()
        parts, out = self.room(splits, pairs, _GROUP, _GROUP), self.room(d, d)

        def launch(x: Tensor, starts: Tensor) -> None:
            wide_kernels.scaled_rows[(self._full_programs,)](
                *self._data, x, starts, scaled, self.n_rows, count, length.bit_length() - 1, self._delta,
                **self._common, WIDTH=width, RAISED=raised, ALL=cut is None, **self._simply(),
            )  # fmt: skip
            wide_kernels.gram_tiles[(pairs, splits)](
                scaled, self._pairs, parts, tiles,
                WIDTH=width, B=_GROUP, R=_GROUP_ROWS, TOGETHER=_TOGETHER, STAGES=3, num_warps=4,
            )  # fmt: skip
            wide_kernels.add_tiles[(pairs, _GROUP * _GROUP // 256)](
                parts, self._pairs, out, splits, d, B=_GROUP, R=16, C=256
            )

        return launch, out, (scaled, parts, self._pairs)

    def evaluate_with_matrix(
        self, x: Vector, cut: tuple[int, int] | None, key: int
    ) -> tuple[tuple[float, Vector, float], Callable[[], Any]] | None:
        """Both, if the last matrix was wanted: the device makes it while the host thinks about the gradient."""
        if self.device.type != "cuda" or self._data[0].dtype == torch.float64 or not self._asked_for:
            return None
        evaluation, matrix = self._evaluation_graph(), self._matrix_graph(False, cut)
        evaluation.begin(x)
        matrix.begin(np.append(x, float(key)))
        self._asked_for = False
        self._number += 1
        number, d = self._number, self.n_parameters

        def hand_over() -> Any:
            if self._number != number:
                return None
            self._asked_for = True
            return matrix.finish()[None, :d, :d]

        return self._evaluated(evaluation.finish()), hand_over

    def matrix_host(self, x: Vector, raised: bool, cut: tuple[int, int] | None, key: int) -> Any:
        """Such a matrix from and to the host."""
        self._asked_for = True
        self._number += 1
        return super().matrix_host(x, raised, cut, key)

    def warm_up_matrix(self, cut: tuple[int, int] | None) -> None:
        """Record the graph of such a matrix."""
        if self.device.type == "cuda" and (False, cut) not in self._matrices:
            self.matrix_host(np.zeros(self.n_parameters), False, cut, 0)

    def changes(self, at: Tensor, x: Tensor, runs: Runs) -> tuple[Tensor, Tensor]:
        """Σ over the runs' halves of the gradients' changes from ``at`` to x."""
        return Sums.changes(self, at, x, runs)


# -------------------------------------------------------------------------------------------------- several outputs


class FusedOutputSums(Sums):
    """Few float32 columns and few classes: a pass and a product of `Softmax` with one reading of X each."""

    reads_once = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.D, self._padded = _padded(self)
        rows = _OUTPUT_ROWS if self.D <= NARROW else _OUTPUT_ROWS // 2
        self._tuned = {"R": rows, "num_warps": 4}
        self._common = {
            "P": self.rows.columns,
            "D": self.D,
            "K": self.outputs,
            "KP": self._padded,
            "WEIGHTED": self.weights is not None,
            "INTERCEPT": int(self.intercept),
        }
        self._places = self.labels.to(torch.int32)
        self._empty = torch.zeros(1, dtype=torch.float64, device=self.device)
        assert isinstance(self.rows, DenseRows)
        self._data = (self.rows.values, self._places, self._empty if self.weights is None else self.weights)
        self._pass: Captured | None = None
        self._products = 4 * _multiprocessors(self.device)

    @staticmethod
    def suits(sums: Sums) -> bool:
        """Whether a tile of rows and a table of columns and outputs fit into registers."""
        rows: Any = sums.rows
        if not (isinstance(sums.loss, Softmax) and isinstance(rows, DenseRows) and rows.values.dtype == torch.float32):
            return False
        columns = rows.columns + sums.intercept
        if columns > _OUTPUT_COLUMNS or sums.outputs > _MOST_OUTPUTS or sums.n_rows >= 2**31 - 2**16:
            return False
        return math.prod(_padded(sums)) <= _LARGEST_TABLE

    def pass_host(self, x: Vector, slopes: Tensor) -> tuple[float, Vector, float]:
        """Σ losses, Σ gradients, Σ curvatures at x; the slopes are written down."""
        D, padded, d, K = self.D, self._padded, self.n_parameters // self.outputs, self.outputs
        if self._pass is None:
            programs = 2 * _multiprocessors(self.device)
            at = torch.empty(self.n_parameters, dtype=torch.float64, device=self.device)
            parts, out = at.new_empty(programs, D * padded + 2), at.new_empty(D * padded + 2)

            def launch() -> None:
                output_kernels.softmax_pass[(programs,)](
                    *self._data, at, slopes, parts, self.n_rows, **self._common, **self._tuned, KEEP=True
                )
                _add_parts(parts, out)

            self._pass = Captured(at, out, launch, keep=(parts, slopes))
        found = self._pass.run(x)
        gradient = found[: D * padded].reshape(D, padded)[:d, :K]
        return float(found[-2]), gradient.flatten(), float(found[-1])

    def curved(self, v: Tensor, slopes: Tensor) -> Tensor:
        """Σ Hessians of the losses, from their slopes, times v."""
        D, padded, d, K = self.D, self._padded, self.n_parameters // self.outputs, self.outputs
        parts, out = v.new_empty(self._products, D * padded), v.new_empty(D * padded)
        output_kernels.softmax_product[(self._products,)](
            *self._data, v, slopes, parts, self.n_rows, **self._common, **self._tuned, PRECISION="tf32"
        )
        return _add_parts(parts, out).reshape(D, padded)[:d, :K].reshape(-1)


def _padded(sums: Sums) -> tuple[int, int]:
    """Columns and outputs, as a tile has them."""
    columns = sums.rows.columns + sums.intercept
    return max(16, triton.next_power_of_2(columns)), max(16, triton.next_power_of_2(sums.outputs))


def _add_parts(parts: Tensor, out: Tensor) -> Tensor:
    """Their sums, in order."""
    count, width = parts.shape[0], parts[0].numel()
    kernels.add_up[(triton.cdiv(width, 8),)](parts, out, count, width, B=256, C=8)
    return out
