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

from trsvr._vectors import Vector
from trsvr.torch.sums import Runs

Matrix = NDArray[np.float64]

# A device multiplies matrices so fast that a curvature sample may have more rows than on a CPU: rows · d² up to the
# first of these; all rows, if that is below the second.
_SAMPLED_WORK = 5e8
_ALL_WORK = 2e9
_LONGEST_RUN = 64


class TensorView:
    """Value, gradient and curvatures at one point, for one output or several."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.sums = problem, problem.sums
        self.n_rows, self.d, self.outputs = problem.n_samples, problem.n_parameters, problem.n_outputs
        self.x = np.zeros(self.d)
        self._at: torch.Tensor | None = None
        self._raised = False
        self._total = math.nan
        self._walks = hasattr(self.sums, "inner_steps") and problem.penalty.cubic is not None

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
        if self.outputs > 1:
            return 1.0
        before = self._total
        self._raised = True
        self._total = self.sums.total_curvature(self.at, raised=True)
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
        d = self.d // self.outputs
        if self.problem.device.type == "cuda" and self.sums.device == self.sums.rows.device:
            work = self.n_rows * d * d * self.outputs
            rows = self.n_rows if work <= _ALL_WORK else max(rows, int(_SAMPLED_WORK / (d * d * self.outputs)))
        if rows >= self.n_rows:
            found, taken = self.sums.matrices(self.at, self._raised), self.n_rows
        else:
            runs = self._spread(rows, random)
            found, taken = self.sums.matrices(self.at, self._raised, runs), runs.size
        return found.cpu().numpy() / taken, taken * self.outputs

    def _spread(self, rows: int, random: np.random.Generator) -> Runs:
        """Runs spread over all rows: a random start in each of equal stretches, so every row is as likely."""
        length = _power_of_two(rows // 512)
        count = math.ceil(rows / length)
        starts = (np.arange(count) + random.random(count)) * (self.n_rows / count)
        return Runs(self._sent(np.minimum(starts.astype(np.int64), self.n_rows - 1)), length)

    def _sent(self, starts: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(starts).to(self.sums.rows.device)

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
        length = 1 if scattered else _power_of_two(batch_size // 32)
        count = max(2, math.ceil(batch_size / length / 2) * 2)
        runs = Runs(self._sent(random.integers(self.n_rows, size=count)), length)
        halves = self.sums.changes(self.at, self.problem.to_device(x), runs)
        per_half = count // 2 * length
        return halves[0].cpu().numpy() / per_half, halves[1].cpu().numpy() / per_half, count * length

    def inner_steps(
        self, x: Vector, gradient: Vector, norm: Any, alpha: float, batch: int, most: int, random: np.random.Generator
    ) -> tuple[Vector, int, int] | None:
        """All inner steps of an epoch on the device, without a word to the host in between.

        Returns the new x, the steps made and the rows drawn by each; None where the norm is none that a matrix on
        the device can stand for.
        """
        inverse = norm.plain_inverse() if self._walks and hasattr(norm, "plain_inverse") else None
        if inverse is None:
            return None
        length = _power_of_two(batch // 32)
        count = max(2, math.ceil(batch / length / 2) * 2)
        key = int(random.integers(2**31))
        found, steps = self.sums.inner_steps(
            self.x, x, gradient, inverse, self.problem.penalty.cubic, min(1.0, alpha), Sizes(count, length, most), key
        )
        return found, steps, count * length

    def warm_up(self, dense: bool) -> None:
        """Compile what will be needed, so that a clock started afterwards does not see it."""
        self.sums.warm_up(dense)


class Sizes(tuple[int, int, int]):
    """Runs in a batch, their length, and the most steps."""

    __slots__ = ()

    def __new__(cls, count: int, length: int, steps: int) -> Sizes:  # noqa: D102  # the class says it
        return super().__new__(cls, (count, length, steps))


def _power_of_two(rows: int) -> int:
    """The largest power of two up to so many rows, within 1 … 64."""
    return 1 << (max(1, min(rows, _LONGEST_RUN)).bit_length() - 1)
