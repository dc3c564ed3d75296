"""Several outputs of dense rows on a device: products of matrices, and conjugate gradients that stay there.

Values and gradients are computed in float64. Products with the Hessian of float32 rows are multiplied in TF32 where the
device has it: they direct steps, and how far a step was wrong is seen at the next gradient. What a row's curvature
needs are its slopes r = π − e_y, n × K numbers in the type of X; one table of them serves both views, and is made anew
where it is of another point. `trsvr.problems.dense_outputs` has the formulas.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trsvr._arrays import Matrix, Vector
from trsvr.parts.norms import DiagonalNorm, SharedNorm, ShiftNorm
from trsvr.problems.steps import StepRequest, StepTaken
from trsvr.problems.views import NOTHING_KNOWN, Coming
from trsvr.torch.linear.cg import ConjugateGradients, Goal
from trsvr.torch.linear.rows import DenseRows
from trsvr.torch.linear.sums import Sums
from trsvr.torch.linear.view import TensorView

# A block of rows takes scratch of this part of X, in float64 copies or in tables of its outputs; on a CPU less.
_SCRATCH = 0.5
_HOST_BYTES = 2**23
# Slopes are kept where they take at most so many times as much memory as X.
_LARGEST_TABLE = 1.5
# Iterations of conjugate gradients between two looks of the host at how they go, where a product is a short one: so
# many multiplications at most.
_UNSEEN = 4
_SHORT_PRODUCT = 5e9
# A curvature below this part of the largest is rounding, of float32 and of float64.
_FLAT = {torch.float32: 1e-7, torch.float64: 1e-15}
# What matrices for single outputs cost beyond arithmetic, in products: they are made one after the other.
_ONE_BY_ONE = 50.0


class Table:
    """The slopes of all rows at one point; one serves all views of the same rows."""

    def __init__(self, sums: Sums) -> None:
        self.values: Tensor | None = None
        self.owner: Any = None  # a view and its point
        self.inverse: tuple[Matrix, Tensor] | None = None
        self.recorded: dict[bool, _Recorded] = {}  # conjugate gradients as graphs, with a shared matrix and without
        rows: Any = sums.rows
        self.kept = sums.outputs <= _LARGEST_TABLE * sums.rows.columns
        self.shape, self.type, self.device = (sums.n_rows, sums.outputs), rows.values.dtype, sums.device

    def room(self) -> Tensor:
        """Where they are kept."""
        if self.values is None:
            self.values = torch.empty(self.shape, dtype=self.type, device=self.device)
        return self.values


def suits(sums: Sums) -> bool:
    """Whether rows are dense, on the device, and have several outputs."""
    return sums.outputs > 1 and isinstance(sums.rows, DenseRows) and sums.device == sums.rows.device


class OutputTensorView(TensorView):
    """Value, gradient and curvatures at one point."""

    def __init__(self, problem: Any) -> None:
        super().__init__(problem)
        sums = self.sums
        self._values: Tensor = sums.rows.values
        self._columns, self._places = sums.rows.columns, sums.labels.long()[:, None]
        room = _SCRATCH * self._values.numel() * self._values.element_size()
        if sums.device.type == "cpu":
            room = min(room, _HOST_BYTES)
        self._wide = max(16, int(room / (8 * (self._columns + 4 * self.n_outputs))))
        self._narrow = max(16, int(room / (3 * self._values.element_size() * self.n_outputs)))
        work = self.n_rows * self._columns * self.n_outputs
        self._unseen = _UNSEEN if work < _SHORT_PRODUCT else 1
        if sums.table is None:
            sums.table = Table(sums)
        self._table: Table = sums.table
        self._reads_once = sums.reads_once and self._table.kept
        known = self._prices.with_shared(self.n_rows, self.d // self.n_outputs, self.n_outputs)
        # Directions that improve a norm would have to travel.
        self._prices = known._replace(direction=math.inf, factor=known.factor + _ONE_BY_ONE)

    def _blocks(self, length: int) -> Iterator[tuple[slice, Tensor]]:
        for begin in range(0, self.n_rows, length):
            piece = slice(begin, min(begin + length, self.n_rows))
            yield piece, self._values[piece]

    def _apart(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The p × K weights and K intercepts in x."""
        W = x.reshape(-1, self.n_outputs)
        return W[: self._columns], W[-1] if self.sums.intercept else None

    def _whole(self, weights: Tensor, intercepts: Tensor) -> Tensor:
        """A vector like x, as a mean over the rows."""
        parts = [weights, intercepts[None]] if self.sums.intercept else [weights]
        return torch.cat(parts).reshape(-1) / self.n_rows

    def _sums_at(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Room for the sums of a pass."""
        return torch.zeros(W.shape, dtype=torch.float64, device=W.device), W.new_zeros(W.shape[1], dtype=torch.float64)

    # ---------------------------------------------------------------------------------------------- slopes of rows

    def _slopes(self, block: Tensor, piece: slice, W: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor]:
        """Losses and slopes of a block of rows in float64."""
        Z, place = block @ W, self._places[piece]
        if shift is not None:
            Z += shift
        if self.sums.offset is not None:
            Z += self.sums.offset[piece]
        Z -= Z.gather(1, place)  # the loss is the logarithm of 1 + Σ exp over the other outputs
        top = Z.amax(1, keepdim=True)
        Z.sub_(top).exp_()
        Z.scatter_(1, place, 0.0)
        others, right = Z.sum(1, keepdim=True), torch.exp(-top)
        losses = torch.where(top == 0.0, torch.log1p(others), top + torch.log(right + others))
        Z /= others + right
        Z.scatter_(1, place, -others / (others + right))
        return losses, Z

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x."""
        self.x, self._at, self._raised = x.copy(), None, False
        if self._reads_once:
            return self._evaluate_once()
        W, shift = self._apart(self.at)
        back, intercepts = self._sums_at(W)
        value, total = (torch.zeros((), device=W.device, dtype=torch.float64) for _ in range(2))
        keep = self._table.room() if self._table.kept else None
        for piece, block in self._blocks(self._wide):
            wide = block.double()
            losses, S = self._slopes(wide, piece, W, shift)
            if keep is not None:
                keep[piece] = S
            spread = (S.abs() * (1.0 - S.abs())).sum(1)
            if self.sums.weights is not None:
                weights = self.sums.weights[piece]
                losses, spread, S = losses[:, 0] * weights, spread * weights, S * weights[:, None]
            value += losses.sum()
            total += spread.sum()
            back.addmm_(wide.T, S)
            intercepts += S.sum(0)
        self._table.owner = (self, self.x) if keep is not None else None
        numbers = torch.cat([value[None], total[None], self._whole(back, intercepts)]).cpu().numpy()
        self._total = float(numbers[1])
        penalty = self.problem.penalty
        return float(numbers[0]) / self.n_rows + penalty.value(x), numbers[2:] + penalty.slopes(x)

    def _evaluate_once(self) -> tuple[float, Vector]:
        """The same with one reading of X."""
        value, gradient, self._total = self.sums.pass_host(self.x, self._table.room())
        self._table.owner = self, self.x
        penalty = self.problem.penalty
        return value / self.n_rows + penalty.value(self.x), gradient / self.n_rows + penalty.slopes(self.x)

    def _fill_table(self) -> None:
        """Let the table be of this view's point."""
        if not self._is_known:
            self.sums.pass_host(self.x, self._table.room())
            self._table.owner = self, self.x

    @property
    def _is_known(self) -> bool:
        """Whether the table is of this view's point."""
        owner = self._table.owner
        return owner is not None and owner[0] is self and owner[1] is self.x

    def _curved(self, wide: bool = False) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Blocks of rows, and the slopes that make their curvatures, in the type of X; ``wide``: rows are copied."""
        table, known = self._table, self._is_known
        W, shift = self._apart(self.at)
        for piece, block in self._blocks(self._narrow if known and not wide else self._wide):
            if known:
                S = table.room()[piece]
            else:
                S = self._slopes(block.double(), piece, W, shift)[1].to(block.dtype)
                if table.kept:
                    table.room()[piece] = S
            yield piece, block, self._mixed(S, piece)
        table.owner = (self, self.x) if table.kept else None

    def _mixed(self, S: Tensor, piece: slice) -> Tensor:
        """The slopes, nearer to the label's for rows on the wrong side where curvatures are raised."""
        if not self._raised:
            return S
        right = 1.0 + S.gather(1, self._places[piece]).double()
        odds = torch.log1p(-right.clamp(max=0.5)) - torch.log(right.clamp(min=torch.finfo(torch.float64).eps))
        wanted = ((1.0 - right) / odds.clamp(min=1.0)).clamp(max=0.25)
        share = 0.5 - torch.sqrt(0.25 - wanted)
        mixed = torch.where(share > right, (share - right) / (1.0 - right).clamp(min=0.5), 0.0)
        return S * (1.0 - mixed).to(S.dtype)

    def _weighed_spread(self, S: Tensor, piece: slice) -> Tensor:
        """π (1 − π), weighted."""
        shares = S.abs()
        spread = shares * (1.0 - shares)
        return spread if self.sums.weights is None else spread * self.sums.weights[piece, None].to(S.dtype)

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures to what a bound on the losses would have; returns their sum before over after."""
        before, self._raised = self._total, True
        total = sum(self._weighed_spread(S, piece).sum(dtype=torch.float64) for piece, _, S in self._curved())
        self._total = float(total)
        return before / self._total if self._total > 0.0 else 1.0

    # -------------------------------------------------------------------------------------------------- the Hessian

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        return self._product(self.problem.to_device(v)).cpu().numpy()

    def _product(self, v: Tensor) -> Tensor:
        if self._reads_once and not self._raised:
            self._fill_table()
            return scaled_product(self.sums, v, self._table.room()) / self.n_rows
        size = v.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)
        V, shift = self._apart(v / size)
        V = V.to(self._values.dtype).contiguous()
        shift = None if shift is None else shift.to(V.dtype)
        back, intercepts = self._sums_at(V)
        with fast_products():
            for piece, block, S in self._curved():
                T, place = block @ V, self._places[piece]
                if shift is not None:
                    T += shift
                T -= T.gather(1, place)
                mean = (S * T).sum(1, keepdim=True)
                T.sub_(mean).mul_(S)
                T.scatter_add_(1, place, -mean)
                if self.sums.weights is not None:
                    T *= self.sums.weights[piece, None].to(T.dtype)
                back += block.T @ T
                intercepts += T.sum(0)
        return self._whole(back, intercepts) * size

    def diagonal(self) -> Vector:
        """Its diagonal."""
        back, intercepts = self._sums_at(self._apart(self.at)[0])
        for piece, block, S in self._curved(wide=True):
            spread = self._weighed_spread(S, piece)
            back += (block * block).T @ spread
            intercepts += spread.sum(0)
        return self._whole(back, intercepts).cpu().numpy()

    def shared(self) -> Matrix:
        """The mean over the outputs of its K diagonal blocks."""
        d = self._columns + int(self.sums.intercept)
        matrix = torch.zeros(d, d, dtype=torch.float64, device=self._values.device)
        for piece, block, S in self._curved(wide=True):
            spread = self._weighed_spread(S, piece).sum(1, keepdim=True)
            scaled = block * spread
            matrix[: self._columns, : self._columns] += block.T @ scaled
            if self.sums.intercept:
                matrix[-1, :-1] += scaled.sum(0)
                matrix[-1, -1] += spread.sum()
        if self.sums.intercept:
            matrix[:-1, -1] = matrix[-1, :-1]
        return (0.5 * (matrix + matrix.T) / (self.n_rows * self.n_outputs)).cpu().numpy()

    # ------------------------------------------------------------------------------------------------------- a step

    def step(self, request: StepRequest) -> StepTaken:
        """Conjugate gradients on the device; the host looks every few iterations at how they go."""
        norm = request.norm
        if not isinstance(norm, ShiftNorm) or not isinstance(norm.norm, DiagonalNorm | SharedNorm):
            return super().step(request)
        penalty, gradient = self.problem.to_device(request.penalty), self.problem.to_device(request.gradient)
        goal = Goal(request.alpha * request.size, request.tolerance, request.most_products, request.give_up)
        solver, flat = self._solver(norm), _FLAT[self._values.dtype]
        if self._reads_once and not self._raised and self._values.device.type == "cuda":
            self._fill_table()
            kind = solver.inverse is not None
            if kind not in self._table.recorded:
                self._table.recorded[kind] = _Recorded(self.sums, self._table.room(), solver, flat)
            found = self._table.recorded[kind].run(gradient, penalty, solver, goal)
        else:
            steps = ConjugateGradients(gradient, lambda v: self._product(v) + penalty * v, solver, flat)
            found = steps.run(gradient, goal, self._unseen)
        return StepTaken(found, request.alpha, predicted_gradient=request.gradient + found.product)

    def _solver(self, norm: ShiftNorm) -> _Solver:
        """P⁻¹ of such a norm, on the device."""
        send, inner, inverse = self.problem.to_device, norm.norm, None
        if isinstance(inner, SharedNorm):
            if self._table.inverse is None or self._table.inverse[0] is not inner.factor:
                factor = torch.from_numpy(np.ascontiguousarray(inner.factor)).to(self._values.device)
                self._table.inverse = inner.factor, torch.cholesky_inverse(factor)
            inverse, scale = self._table.inverse[1], send(1.0 / inner.root)
        else:
            assert isinstance(inner, DiagonalNorm)
            scale = send(1.0 / inner.diagonal)
        return _Solver(send(norm.inverse)[:, None], scale.reshape(-1, self.n_outputs), inverse)


class _Solver:
    """P⁻¹ of a `ShiftNorm`: of a diagonal, or of correlations that all outputs share."""

    def __init__(self, shifted: Tensor, scale: Tensor, inverse: Tensor | None) -> None:
        self.shifted, self.scale, self.inverse = shifted, scale, inverse

    def __call__(self, v: Tensor) -> Tensor:
        """P⁻¹v."""
        R = v.reshape(self.scale.shape)
        means = R.mean(1, keepdim=True)
        Z = (R - means) * self.scale
        if self.inverse is not None:
            Z = (self.inverse @ Z) * self.scale
        Z += means * self.shifted - Z.mean(1, keepdim=True)
        return Z.reshape(-1)

    def like(self) -> _Solver:
        """Another one of the same kind, with room of its own."""
        return _Solver(*(None if t is None else t.clone() for t in self._parts))  # type: ignore[arg-type]

    def take(self, other: _Solver) -> None:
        """Become the other one."""
        for mine, its in zip(self._parts, other._parts, strict=True):
            if mine is not None and its is not None:
                mine.copy_(its)

    @property
    def _parts(self) -> tuple[Tensor | None, ...]:
        return self.shifted, self.scale, self.inverse


class _Recorded:
    """Conjugate gradients of sums that read X once: an iteration is a graph, and what differs is copied into it."""

    def __init__(self, sums: Any, slopes: Tensor, solver: _Solver, flat: float) -> None:
        self._penalty = slopes.new_zeros(sums.n_parameters, dtype=torch.float64)
        self._solver = solver.like()
        penalty, n = self._penalty, sums.n_rows
        self._steps = ConjugateGradients(
            penalty, lambda v: scaled_product(sums, v, slopes) / n + penalty * v, self._solver, flat
        )
        self._steps.record()

    def run(self, gradient: Tensor, penalty: Tensor, solver: _Solver, goal: Goal) -> Any:
        """A step with these."""
        self._penalty.copy_(penalty)
        self._solver.take(solver)
        return self._steps.run(gradient, goal, 1)


def scaled_product(sums: Any, v: Tensor, slopes: Tensor) -> Tensor:
    """Σ Hessians of the losses times v, multiplied in numbers of about one."""
    size = v.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)
    product: Tensor = sums.curved(v / size, slopes)
    return product * size


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """Products of float32 matrices on tensor cores."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
