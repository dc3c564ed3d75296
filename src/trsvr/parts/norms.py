"""Norms in which a step is measured: ‖p‖_P ≤ α‖ḡ‖_{P⁻¹} instead of ‖p‖ ≤ α‖ḡ‖.

With P near the Hessian, α = 1 is a Newton step on every problem, whatever the units of its columns. A norm has
``solve(v)``, which is P⁻¹v, and ``dual(v)``, which is ‖v‖²_{P⁻¹}.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trsvr._arrays import Matrix, Vector
from trsvr._blas import LONE_COLUMNS
from trsvr._compile import kernel
from trsvr._vectors import SHORT, add_scaled, dot
from trsvr.parts import cholesky

# What P has on its diagonal at least beyond the losses' curvature, relative to that: below it is their rounding. Each
# entry is measured by itself, so that units of columns do not matter.
_FLOOR = 1e-15
# The same of correlations, which may come from products in float32.
_CORRELATION_FLOOR = 1e-6
# Less is none: what a gradient is divided by must not make its square overflow.
_NO_CURVATURE = 1e-100


def stiffness(penalty: Vector) -> Vector:
    """What a penalty adds to the diagonal of P: the size of its curvatures.

    One that bends up here and down there passes through zero between, where its curvature says nothing about how far a
    step may go: there it counts as much as it does on average.
    """
    sizes = np.abs(penalty)
    return sizes if (penalty >= 0.0).all() else np.maximum(sizes, sizes.mean())


class IdentityNorm:
    """P = I: the paper's norm."""

    def solve(self, v: Vector) -> Vector:
        """V itself."""
        return v

    def dual(self, v: Vector) -> float:
        """‖v‖²."""
        return dot(v, v)


class DiagonalNorm:
    """P = a diagonal, kept positive."""

    def __init__(self, diagonal: Vector) -> None:
        self.diagonal = np.maximum(diagonal, _NO_CURVATURE)

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        return v / self.diagonal

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""
        return dot(v, v / self.diagonal)


def _two_loops(directions: Matrix, images: Matrix, weights: Vector, inverse: Vector, v: Vector) -> None:
    """Multiply v by the inverse of the quasi-Newton matrix, in place; weights has 1/sᵀy and room for as many more."""
    pairs = directions.shape[0]
    for back in range(pairs):
        k = pairs - 1 - back
        weights[pairs + k] = weights[k] * dot(directions[k], v)
        add_scaled(-weights[pairs + k], images[k], v)
    np.multiply(v, inverse, v)
    for k in range(pairs):
        add_scaled(weights[pairs + k] - weights[k] * dot(images[k], v), directions[k], v)


_compiled_two_loops = kernel()(_two_loops)


class QuasiNewtonNorm:
    """P = the limited-memory BFGS matrix from pairs (s, Hs), over a diagonal.

    The pairs are the directions of earlier conjugate gradients and their products, which cost nothing more: what was
    learnt of the Hessian there need not be learnt again (Morales and Nocedal, 2000).
    """

    def __init__(self, diagonal: Vector, directions: Matrix, images: Matrix) -> None:
        self._inverse = 1.0 / diagonal
        self._directions, self._images = directions, images
        curvatures = np.array([dot(s, y) for s, y in zip(directions, images, strict=True)])
        self._last_first = 1.0 / curvatures[::-1]
        self._weights = np.concatenate([1.0 / curvatures, np.empty_like(curvatures)])

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        solution = v.copy()
        loops = _two_loops if v.size <= SHORT else _compiled_two_loops
        loops(self._directions, self._images, self._weights, self._inverse, solution)
        return solution

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}, as the sum of squares that it is: rounding cannot make it negative."""
        rest, squares = v.copy(), 0.0
        for direction, image, weight in zip(self._directions[::-1], self._images[::-1], self._last_first, strict=True):
            along = dot(direction, rest)
            squares += weight * along * along
            rest -= (weight * along) * image
        return float(squares + dot(rest, self._inverse * rest))


class BlockNorm:
    """P = one dense block for each of K outputs; the entries of x belong to them in turn."""

    def __init__(self, losses: NDArray[np.float64], penalty: Vector) -> None:
        outputs = losses.shape[0]
        self._blocks = [DenseNorm(losses[k], np.ascontiguousarray(penalty[k::outputs])) for k in range(outputs)]
        # Of small blocks the factors' inverses, so that one call solves with all of them.
        self._roots: NDArray[np.float64] | None = None
        if losses.shape[1] <= LONE_COLUMNS:
            self._roots = np.stack([block.inverse_root() for block in self._blocks])

    @np.errstate(all="ignore")
    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        outputs = len(self._blocks)
        if self._roots is not None:
            halves = self._roots @ v.reshape(-1, outputs).T[:, :, None]
            return (self._roots.swapaxes(1, 2) @ halves)[:, :, 0].T.ravel()
        solution = np.empty_like(v)
        for k, block in enumerate(self._blocks):
            solution[k::outputs] = block.solve(np.ascontiguousarray(v[k::outputs]))
        return solution

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""
        return dot(v, self.solve(v))


class Factored(NamedTuple):
    """A norm, and the matrices of the losses and the penalty that it is made of."""

    losses: Matrix
    penalty: Vector
    norm: Any


def factored(losses: Matrix, penalty: Vector, before: Factored | None) -> Factored:
    """The matrices, with several outputs one for each, as a norm: the one before, while both are the same."""
    same = before is not None and before.losses is losses
    if before is not None and same and (before.penalty is penalty or np.array_equal(before.penalty, penalty)):
        return before
    norm = BlockNorm(losses, penalty) if len(losses) > 1 else DenseNorm(losses[0], penalty)
    return Factored(losses, penalty, norm)


class SharedNorm:
    """P = D^½ (R ⊗ 1) D^½ for K outputs: D the Hessian's diagonal, R correlations of the columns, which all share."""

    def __init__(self, diagonal: Vector, factor: Matrix) -> None:
        self.root, self.factor = np.sqrt(diagonal), factor

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        table = (v / self.root).reshape(len(self.factor), -1)
        return cholesky.solve_many(self.factor, table).ravel() / self.root

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""
        half = cholesky.solve_half(self.factor, (v / self.root).reshape(len(self.factor), -1)).ravel()
        return dot(half, half)


def correlation_factor(matrix: Matrix, penalty: Vector) -> Matrix:
    """The lower Cholesky factor of the correlations of M + diag(penalty)."""
    stiff = np.maximum(np.diagonal(matrix) + penalty, _NO_CURVATURE)
    correlations = matrix / np.sqrt(stiff) / np.sqrt(stiff)[:, None]
    on_diagonal, more = correlations.reshape(-1)[:: len(matrix) + 1], _CORRELATION_FLOOR
    while True:
        on_diagonal[:] = 1.0 + more
        factor = cholesky.cholesky(correlations)
        if factor is not None:
            return factor
        more *= 10.0


@kernel()
def _take_means(v: Vector, outputs: int, free: Vector, means: Vector) -> None:
    """The mean over the outputs, and v without it."""
    for j in range(means.size):
        total = 0.0
        for k in range(outputs):
            total += v[j * outputs + k]
        means[j] = total / outputs
        for k in range(outputs):
            free[j * outputs + k] = v[j * outputs + k] - means[j]


@kernel()
def _give_means(means: Vector, outputs: int, v: Vector) -> None:
    """Give v these means over the outputs, instead of its own; in place."""
    for j in range(means.size):
        total = 0.0
        for k in range(outputs):
            total += v[j * outputs + k]
        shift = means[j] - total / outputs
        for k in range(outputs):
            v[j * outputs + k] += shift


@kernel()
def _solve_apart(diagonal: Vector, inverse: Vector, outputs: int, v: Vector, out: Vector) -> None:
    """The same around a division by a diagonal, each column read once."""
    for j in range(inverse.size):
        column = slice(j * outputs, (j + 1) * outputs)
        mine, solution, scale = v[column], out[column], diagonal[column]
        total = 0.0
        for k in range(outputs):
            total += mine[k]
        mean = total / outputs
        total = 0.0
        for k in range(outputs):
            solution[k] = (mine[k] - mean) / scale[k]
            total += solution[k]
        shift = mean * inverse[j] - total / outputs
        for k in range(outputs):
            solution[k] += shift


class ShiftNorm:
    """Another norm where outputs differ, the penalty alone where they move together.

    Softmax does not see a shift that is common to all outputs: along it the Hessian is the penalty's. A norm made of
    each output's own curvature does not know that, and the smaller the penalty the more products it costs. With
    Π the mean over the outputs, P⁻¹ is here (1 − Π) N⁻¹ (1 − Π) + Π D⁻¹ Π; where nothing is penalised a shift changes
    nothing, and none is made.
    """

    def __init__(
        self, norm: BlockNorm | SharedNorm | DiagonalNorm | QuasiNewtonNorm, penalty: Vector, outputs: int
    ) -> None:
        self.norm, self._outputs = norm, outputs
        if isinstance(norm, DiagonalNorm):
            self.diagonal = norm.diagonal
        shared = np.abs(penalty).reshape(-1, outputs).mean(axis=1)
        self.inverse = np.divide(1.0, shared, out=np.zeros_like(shared), where=shared > np.finfo(float).tiny)

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        if isinstance(self.norm, DiagonalNorm) and v.size > SHORT:
            solution = np.empty_like(v)
            _solve_apart(self.diagonal, self.inverse, self._outputs, v, solution)
            return solution
        free, means = self._apart(v)
        solution = self.norm.solve(free)
        means *= self.inverse
        if v.size <= SHORT:
            table = solution.reshape(-1, self._outputs)
            table += (means - table.sum(axis=1) / self._outputs)[:, None]
        else:
            _give_means(means, self._outputs, solution)
        return solution

    @np.errstate(all="ignore")
    def _apart(self, v: Vector) -> tuple[Vector, Vector]:
        """The vector without its means over the outputs, and the means."""
        if v.size <= SHORT:
            table = v.reshape(-1, self._outputs)
            means = table.sum(axis=1) / self._outputs
            return (table - means[:, None]).ravel(), means
        free, means = np.empty_like(v), np.empty_like(self.inverse)
        _take_means(v, self._outputs, free, means)
        return free, means

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}, as a sum of squares: rounding would make it negative where v is hardly more than a shift."""
        free, means = self._apart(v)
        return self.norm.dual(free) + self._outputs * dot(means, self.inverse * means)


class DenseNorm:
    """P = M + diag(max(penalty, floor)), factored; H = M + diag(penalty) is the model's Hessian.

    M is the losses' curvature and positive semidefinite; the penalty's curvature may be negative.
    """

    @np.errstate(all="ignore")
    def __init__(self, losses: Matrix, penalty: Vector) -> None:
        self.losses = losses
        self.penalty = penalty
        self.convex = float(penalty.min()) >= 0.0
        matrix = losses.copy()
        on_diagonal = matrix.reshape(-1)[:: len(matrix) + 1]
        own = on_diagonal.copy()
        floor = np.maximum(_FLOOR * own, _NO_CURVATURE)
        # Where the penalty bends down, P takes its size: a step along such a coordinate is then of the right scale.
        shift = np.maximum(penalty if self.convex else np.abs(penalty), floor)
        #: whether P is the model's Hessian itself
        self.is_hessian = self.convex or bool((shift - penalty <= floor).all())
        while True:
            np.add(own, shift, out=on_diagonal)
            # No entry of a positive semidefinite matrix is larger, and what is no number has no factor.
            if not on_diagonal.max() < math.inf:
                raise FloatingPointError(
                    "the curvature is too large for floating-point numbers: scale the columns of X"
                )
            factor = cholesky.cholesky(matrix)
            if factor is not None:
                break
            shift = np.maximum(10.0 * shift, 10.0 * floor)
            self.is_hessian = False
        self._factor = factor

    def solve(self, v: Vector) -> Vector:
        """P⁻¹v."""
        return cholesky.solve(self._factor, v)

    def dual(self, v: Vector) -> float:
        """‖v‖²_{P⁻¹}."""
        return dot(v, self.solve(v))

    def inverse_root(self) -> Matrix:
        """L⁻¹, where P = L Lᵀ."""
        return cholesky.inverse_root(self._factor)

    def plain_inverse(self) -> Matrix | None:
        """P⁻¹ as a matrix, where P is the model's Hessian itself; None where P was changed to be positive."""
        return cholesky.inverse(self._factor) if self.is_hessian else None

    def product(self, v: Vector) -> Vector:
        """H v."""
        return cholesky.multiply(self.losses, v) + self.penalty * v
