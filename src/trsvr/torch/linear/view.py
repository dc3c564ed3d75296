"""What a linear model on a device knows of its curvature at a point: the tensors' answer to `CurvatureView`.

The view remembers the point and two numbers. Margins and curvatures are computed anew, on the rows that are asked for:
on a device that is cheaper than writing one of them per row in each pass and reading it back.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trsvr._arrays import Matrix, Vector
from trsvr.torch.linear.sums import Runs

# A device multiplies matrices so fast that a curvature sample may have more rows than on a CPU: rows · d² up to the
# first of these; all rows, if that is below the second.
_SAMPLED_WORK = 5e8
_ALL_WORK = 2e9
_LONGEST_RUN = 64
# A batch is at most this part of rows that are themselves a sample.
_PART_OF_RESIDENT = 4


class TensorView:
    """Value, gradient and curvatures at one point, for one output or several.

    Samples and batches are drawn from all rows; where these are streamed, from those that stay on the device, which
    are spread over all of them.
    """

    def __init__(self, problem: Any) -> None:
        self.problem, self.sums = problem, problem.sums
        self.n_rows, self.d, self.outputs = problem.n_samples, problem.n_parameters, problem.n_outputs
        self.x = np.zeros(self.d)
        self._at: torch.Tensor | None = None
        self._raised = False
        self._total = math.nan
        resident = getattr(self.sums, "resident", None)
        self._drawn = self.sums if resident is None else resident
        self._walks = hasattr(self._drawn, "inner_steps") and problem.penalty.cubic is not None

    def evaluate(self, x: Vector) -> tuple[float, Vector]:
        """F and ∇f at x; the view is then of x."""
        self.x = x.copy()
        self._at = None
        self._raised = False
        value, gradient, self._total = self.sums.evaluate_host(self.x)
        n, penalty = self.n_rows, self.problem.penalty
        return value / n + penalty.value(x), gradient / n + penalty.slopes(x)

    @property
    def at(self) -> torch.Tensor:
        """The point, on the device."""
        if self._at is None:
            self._at = self.problem.to_device(self.x)
        return self._at

    def record(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint."""
        return {"x": self.x, "raised": self._raised, "total": self._total}

    def restore(self, record: dict[str, Any]) -> None:
        """Take over such a record."""
        x = np.asarray(record["x"])
        if x.shape != self.x.shape or x.dtype != self.x.dtype:
            raise ValueError(f"x must have {self.d} numbers, got {x.dtype} of shape {x.shape}")
        self.x, self._at = x.copy(), None
        self._raised, self._total = bool(record["raised"]), float(record["total"])

    def be_cautious(self) -> float:
        """Raise the curvatures to what a bound on the losses would have; returns their sum before over after."""
        before = self._total
        self._raised = True
        self._total = float(self.sums.total_curvature(self.at, raised=True))
        return before / self._total if self._total > 0.0 else 1.0

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return self._total

    # ------------------------------------------------------------------------------------------------ penalty

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self.problem.penalty.slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self.problem.penalty.curvatures(x)

    # ---------------------------------------------------------------------------------------------- the losses

    def matrix(self, rows: int, random: np.random.Generator) -> tuple[Matrix, int]:
        """Mean Hessian of the losses from about so many rows (on a device often more); and how many."""
        found, taken = self.matrices(rows, random)
        return found[0], taken

    def matrices(self, rows: int, random: np.random.Generator) -> tuple[Matrix, int]:
        """The same for each output: its diagonal block; the rows are counted once for each."""
        rows = self._worthwhile(rows)
        beyond = rows >= self.n_rows > self._drawn.n_rows  # more than the rows that stay on the device
        source = self.sums if beyond else self._drawn
        cut = None if rows >= source.n_rows else _cut(rows, 512)
        taken = source.n_rows if cut is None else cut[0] * cut[1]
        found = None
        if hasattr(source, "matrix_host"):
            found = source.matrix_host(self.x, self._raised, cut, 0 if cut is None else int(random.integers(2**31)))
        if found is None:
            runs = None if cut is None else self._spread(*cut, random)
            found = source.matrices(self.at, self._raised, runs).cpu().numpy()
        else:
            found = found[None]
        return found / taken, taken * self.outputs

    def _worthwhile(self, rows: int) -> int:
        """How many rows a curvature sample is to have, if so many are asked for."""
        if self.problem.device.type != "cuda" or self._drawn.device != self._drawn.rows.device:
            return rows
        d = self.d // self.outputs
        if self._drawn.n_rows == self.n_rows and self.n_rows * d * d * self.outputs <= _ALL_WORK:
            return self.n_rows
        return max(rows, int(_SAMPLED_WORK / (d * d * self.outputs)))

    def _spread(self, count: int, length: int, random: np.random.Generator) -> Runs:
        """Runs spread over all rows: a random start in each of equal stretches, so every row is as likely."""
        n = self._drawn.n_rows
        starts = (np.arange(count) + random.random(count)) * (n / count)
        return Runs(self._sent(np.minimum(starts.astype(np.int64), n - 1), self._drawn), length)

    @staticmethod
    def _sent(starts: NDArray[np.int64], sums: Any) -> torch.Tensor:
        return torch.from_numpy(starts).to(sums.rows.device)

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v."""
        total = self.sums.product(self.at, self.problem.to_device(v), self._raised)
        return total.cpu().numpy() / self.n_rows

    def diagonal(self) -> Vector:
        """Diagonal of the mean Hessian of the losses."""
        return self.sums.diagonal(self.at, self._raised).cpu().numpy() / self.n_rows

    def changes(
        self, x: Vector, batch_size: int, random: np.random.Generator, scattered: bool = False
    ) -> tuple[Vector, Vector, int]:
        """Mean change of the losses' gradients between this view's point and x, on two independent halves of a batch.

        The batch is runs of consecutive rows from random places, or ``scattered``: single rows. Returns the two
        halves' means and the number of rows.
        """
        source = self.sums if scattered else self._drawn
        count, length = (_even(batch_size), 1) if scattered else self._batch(batch_size)
        runs = Runs(self._sent(random.integers(source.n_rows, size=count), source), length)
        halves = source.changes(self.at, self.problem.to_device(x), runs)
        per_half = count // 2 * length
        return halves[0].cpu().numpy() / per_half, halves[1].cpu().numpy() / per_half, count * length

    def _batch(self, rows: int) -> tuple[int, int]:
        """Runs of a batch of about so many rows, and their length.

        The rows that stay on the device have an error of their own, which the two halves of a batch do not show: a
        batch is a small part of them.
        """
        if self._drawn.n_rows < self.n_rows:
            rows = max(2, min(rows, self._drawn.n_rows // _PART_OF_RESIDENT))
        count, length = _cut(rows, 32)
        return _even(count), length

    def inner_steps(
        self, x: Vector, gradient: Vector, norm: Any, alpha: float, batch: int, most: int, random: np.random.Generator
    ) -> tuple[Vector, int, int] | None:
        """All inner steps of an epoch on the device, without a word to the host in between.

        Returns the new x, the steps made and the rows drawn by each; None where the norm is none that a matrix on
        the device can stand for.
        """
        walks = self._walks and hasattr(norm, "plain_inverse")
        matrix = self._drawn.stands_for(norm) if walks else None
        if matrix is None:
            return None
        count, length = self._batch(batch)
        key = int(random.integers(2**31))
        found, steps = self._drawn.inner_steps(
            self.x, x, gradient, matrix, self.problem.penalty.cubic, min(1.0, alpha), (count, length, most), key
        )
        return found, steps, count * length

    def warm_up(self, dense: bool) -> None:
        """Compile what will be needed, so that a clock started afterwards does not see it."""
        self.sums.warm_up(dense)
        if dense and hasattr(self._drawn, "matrix_host"):
            rows = self._worthwhile(1)
            self._drawn.matrix_host(self.x, False, None if rows >= self._drawn.n_rows else _cut(rows, 512), 0)


def _cut(rows: int, runs: int) -> tuple[int, int]:
    """So many rows as runs, at least the given number of them where there are enough: how many, and their length.

    A length is a power of two up to `_LONGEST_RUN`.
    """
    length = 1 << (max(1, min(rows // runs, _LONGEST_RUN)).bit_length() - 1)
    return math.ceil(rows / length), length


def _even(count: int) -> int:
    return max(2, math.ceil(count / 2) * 2)
