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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trsvr._arrays import Matrix, Vector
from trsvr.parts.norms import DiagonalNorm, SharedNorm, ShiftNorm
from trsvr.problems.steps import Exit, NormedStep, StepRequest, StepTaken
from trsvr.problems.views import NOTHING_KNOWN, Coming
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
        size = v.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)
        if self._reads_once and not self._raised:
            if not self._is_known:
                self.sums.pass_host(self.x, self._table.room())
                self._table.owner = self, self.x
            return self.sums.curved(v / size, self._table.room()) * (size / self.n_rows)
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
        penalty = self.problem.to_device(request.penalty)
        found = conjugate_gradients(
            lambda v: self._product(v) + penalty * v, self._solver(norm), self.problem.to_device(request.gradient),
            request.alpha * request.size, request.tolerance, request.most_products, _FLAT[self._values.dtype],
            request.give_up, self._unseen,
        )  # fmt: skip
        return StepTaken(found, request.alpha, predicted_gradient=request.gradient + found.product)

    def _solver(self, norm: ShiftNorm) -> Any:
        """P⁻¹ of such a norm, on the device."""
        send, K, inner = self.problem.to_device, self.n_outputs, norm.norm
        shifted = send(norm.inverse)[:, None]
        if isinstance(inner, SharedNorm):
            if self._table.inverse is None or self._table.inverse[0] is not inner.factor:
                factor = torch.from_numpy(np.ascontiguousarray(inner.factor)).to(self._values.device)
                self._table.inverse = inner.factor, torch.cholesky_inverse(factor)
            inverse, scale = self._table.inverse[1], send(1.0 / inner.root).reshape(-1, K)
        else:
            assert isinstance(inner, DiagonalNorm)
            inverse, scale = None, send(1.0 / inner.diagonal).reshape(-1, K)

        def solve(v: Tensor) -> Tensor:
            R = v.reshape(-1, K)
            means = R.mean(1, keepdim=True)
            Z = (R - means) * scale
            if inverse is not None:
                Z = (inverse @ Z) * scale
            Z += means * shifted - Z.mean(1, keepdim=True)
            return Z.reshape(-1)

        return solve


class _Numbers(NamedTuple):
    """What conjugate gradients know beside their vectors, all on the device."""

    rr: Tensor
    zz: Tensor
    zd: Tensor
    dd: Tensor
    stiffest: Tensor
    going: Tensor  # 1 until they end
    cut: Tensor  # 1 where they ended at the boundary
    products: Tensor


def conjugate_gradients(
    product: Any,
    solve: Any,
    gradient: Tensor,
    radius: float,
    tolerance: float,
    most: int,
    flat: float,
    give_up: Any,
    unseen: int,
) -> NormedStep:
    """`trsvr.parts.subproblems.preconditioned_cg` for a convex model, without a word to the host after each product.

    Once they have ended, further iterations change nothing: so the host looks every few of them.
    """
    step, curved, residual = torch.zeros_like(gradient), torch.zeros_like(gradient), gradient.clone()
    solved = solve(residual)
    direction, rr = -solved, residual @ solved
    zero, one = torch.zeros_like(rr), torch.ones_like(rr)
    enough, bound = tolerance * tolerance * rr, radius * radius
    now = _Numbers(rr, zero, zero, rr, zero, (rr > 0.0).to(rr.dtype), zero, zero)
    for iteration in range(1, most + 1):
        along = product(direction)
        curvature = direction @ along
        stiffest = torch.maximum(now.stiffest, curvature.abs() / now.dd)
        # What is left of the gradient lies where H is rounding: a step there would be noise.
        curves = (curvature > flat * stiffest * now.dd).to(rr.dtype) * now.going
        length = torch.where(curves > 0.0, now.rr / curvature, zero)
        beyond = (now.zz + length * (2.0 * now.zd + length * now.dd) > bound).to(rr.dtype) * curves
        room = (bound - now.zz).clamp(min=0.0)
        across = now.zd + torch.sqrt(now.zd * now.zd + now.dd * room)
        length = torch.where(beyond > 0.0, room / across, length)
        step.add_(direction * length)
        curved.add_(along * length)
        residual.add_(along * length)
        solved = solve(residual)
        rr = residual @ solved
        going = curves * (1.0 - beyond) * (rr > enough).to(rr.dtype)
        beta = torch.where(going > 0.0, rr / now.rr, one)
        direction = torch.where(going > 0.0, beta * direction - solved, direction)
        now = _Numbers(
            torch.where(going > 0.0, rr, now.rr),
            now.zz + length * (2.0 * now.zd + length * now.dd),
            torch.where(going > 0.0, beta * (now.zd + length * now.dd), now.zd),
            torch.where(going > 0.0, rr + beta * beta * now.dd, now.dd),
            stiffest,
            going,
            torch.maximum(now.cut, beyond),
            now.products + now.going,
        )
        if (iteration % unseen == 0 or iteration == most) and (not bool(now.going > 0.0) or give_up()):
            break
    zz, cut, going, products = torch.stack([now.zz, now.cut, now.going, now.products]).tolist()
    exit_ = Exit.BOUNDARY if cut else Exit.ITERATION_LIMIT if going else Exit.TOLERANCE
    return NormedStep(step.cpu().numpy(), curved.cpu().numpy(), math.sqrt(max(zz, 0.0)), exit_, int(products))


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """Products of float32 matrices on tensor cores."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
