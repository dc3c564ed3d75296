"""Damped steps: p = argmin ½‖r̃ + J̃p‖² over ‖Dp‖ ≤ Δ, that is (J̃ᵀJ̃ + λD²)p = −J̃ᵀr̃ (Moré 1978).

What is kept of J̃ depends on its shape: its triangular factor where it is small, JᵀJ where it has many rows, and J̃
itself where unknowns outnumber residuals. Few numbers are then solved by singular values, with every λ for nothing;
many by a Cholesky factor for each λ, and by eigenvalues where λ is near rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._blas import alone
from trsvr._vectors import dot
from trsvr.parts import cholesky
from trsvr.problems.residuals import Block

_EPSILON = float(np.finfo(float).eps)
# Up to this size singular values cost less than they save.
_FEW = 100
# Rows times columns up to which a triangular factor costs nothing that is felt.
_SMALL = 2**18
# A matrix of squares whose curvatures differ by more has lost half of its digits: the triangular factor has not.
_ILL_CONDITIONED = 1e-11
# λ is found to this part of the radius, and by Cholesky factors, which cost more, to that one.
_CLOSE, _CLOSE_ENOUGH = 1e-3, 0.1
_MOST_TRIALS = 50
# Of inverse iteration: it only has to tell powers of ten apart.
_INVERSE_STEPS = 5


class DampedStep(NamedTuple):
    """A step, its length ‖Dp‖, the decrease that the model predicts, and λ: zero where the radius does not bind."""

    step: Vector
    length: float
    predicted: float
    damping: float


class Penalty(NamedTuple):
    """(μ/2)‖x − c‖² beside the rows: μ, and x − c."""

    strength: float
    away: Vector


class Sums(NamedTuple):
    """What is kept of J̃ and r̃: ``matrix`` is J̃ itself, its triangular factor, or J̃ᵀJ̃ where ``squared``."""

    matrix: Matrix
    vector: Vector  # r̃, Qᵀr̃, or J̃ᵀr̃
    gradient: Vector
    columns: Vector  # their lengths
    squared: bool
    penalty: Penalty | None = None  # where it has no rows in ``matrix``

    @classmethod
    def of_squares(cls, squares: Matrix, gradient: Vector) -> Sums:
        """From J̃ᵀJ̃ and ∇f."""
        return cls(squares, gradient, gradient, np.sqrt(np.diagonal(squares)), True)

    def gram(self) -> Matrix:
        """J̃ᵀJ̃, with the penalty."""
        gram = self.matrix if self.squared else self.matrix.T @ self.matrix
        return gram if self.penalty is None else gram + self.penalty.strength * np.eye(len(gram))

    def product(self, v: Vector) -> Vector:
        """That matrix times a vector."""
        found = self.matrix @ v if self.squared else self.matrix.T @ (self.matrix @ v)
        return found if self.penalty is None else found + self.penalty.strength * v


def sums_of(blocks: Iterable[Block], rows: int, d: int, orthogonal: bool, penalty: Penalty | None = None) -> Sums:
    """Go through the blocks once; ``orthogonal`` asks for the triangular factor whatever it costs."""
    if rows < d:
        kept = list(blocks)
        matrix = np.concatenate([block.jacobian for block in kept])
        vector = np.concatenate([block.residuals for block in kept])
        strength, away = penalty or Penalty(0.0, np.zeros(d))
        columns = np.sqrt(np.einsum("ij,ij->j", matrix, matrix) + strength)
        return Sums(matrix, vector, matrix.T @ vector + strength * away, columns, False, penalty)
    if orthogonal or rows * d <= _SMALL:
        return _triangle(blocks, d)
    squares, gradient = np.zeros((d, d)), np.zeros(d)
    for block in blocks:
        with alone(block.jacobian):
            squares += block.jacobian.T @ block.jacobian
            gradient += block.jacobian.T @ block.residuals
    return Sums.of_squares(squares, gradient)


def _triangle(blocks: Iterable[Block], d: int) -> Sums:
    """J̃ = QR, a block at a time; Q is not needed."""
    both, gradient = np.zeros((0, d + 1)), np.zeros(d)
    waiting: list[Matrix] = []
    count = 0

    def factored() -> Matrix:
        rows = np.concatenate([both, *waiting])
        waiting.clear()
        with alone(rows):
            return np.asarray(np.linalg.qr(rows, mode="r"))

    for block in blocks:
        with alone(block.jacobian):
            gradient += block.jacobian.T @ block.residuals
        waiting.append(np.column_stack([block.jacobian, block.residuals]))
        count += len(block.residuals)
        if count > 2 * d:  # with fewer new rows most of the work would be for the old ones
            both, count = factored(), 0
    both = factored()
    matrix, vector = both[:d, :d], both[:d, d]
    return Sums(matrix, vector, gradient, np.sqrt(np.einsum("ij,ij->j", matrix, matrix)), False)


def damped_model(sums: Sums, scaling: Vector) -> SingularValues | CholeskyFactors | PenalisedRows:
    """The model in the norm ‖Dp‖."""
    if sums.penalty is not None:
        return PenalisedRows(sums, sums.penalty)
    if min(sums.matrix.shape) <= _FEW:
        return SingularValues.of(sums, scaling)
    return CholeskyFactors(sums, scaling)


def radius_of(length_at: Callable[[float], tuple[float, float]], radius: float, highest: float, close: float) -> float:
    """λ > 0 with ‖q(λ)‖ ≈ radius; ``length_at`` returns that length and its derivative (Moré's iteration)."""
    low, high, damping = 0.0, highest, 1e-3 * highest
    for _ in range(_MOST_TRIALS):
        length, slope = length_at(damping)
        if abs(length - radius) <= close * radius:
            break
        low, high = (damping, high) if length > radius else (low, damping)
        # Newton's method on 1/‖q‖, which is nearly linear in λ.
        damping -= (length - radius) / radius * (length / slope) if slope < 0.0 else math.inf
        if not low < damping < high:
            damping = max(1e-3 * high, math.sqrt(low * high))
    return damping


class SingularValues:
    """J̃D⁻¹ = U S Vᵀ, with Uᵀr̃."""

    def __init__(self, values: Vector, right: Matrix, along: Vector, scaling: Vector) -> None:
        self._values, self._right, self._along, self._scaling = values, right, along, scaling
        largest = float(values.max(initial=0.0))
        self._seen = values > _EPSILON * max(right.shape) * largest
        #: whether squares have lost the smallest of them
        self.ill_conditioned = bool(values.min() ** 2 <= _ILL_CONDITIONED * largest**2)
        #: λ that squares hardly see
        self.faint = _ILL_CONDITIONED * largest**2

    @classmethod
    def of(cls, sums: Sums, scaling: Vector) -> SingularValues:
        """From whatever is kept of J̃."""
        if sums.squared:
            with alone(sums.matrix):
                squares, right = np.linalg.eigh(sums.matrix / np.outer(scaling, scaling))
            values = np.sqrt(np.maximum(squares[::-1], 0.0))
            right = right[:, ::-1]
            along = right.T @ (sums.vector / scaling)
            return cls(values, right, np.divide(along, values, out=np.zeros_like(along), where=values > 0.0), scaling)
        with alone(sums.matrix):
            left, values, right = np.linalg.svd(sums.matrix / scaling, full_matrices=False)
        return cls(values, right.T, left.T @ sums.vector, scaling)

    @property
    def full_rank(self) -> bool:
        """Whether every unknown is seen."""
        return bool(self._seen.all()) and self._right.shape[0] == self._right.shape[1]

    def left(self) -> float:
        """How far the model falls without a bound: ½ of the squared part of r̃ that J̃ can reach."""
        return 0.5 * float(np.sum(self._along[self._seen] ** 2))

    def step(self, radius: float) -> DampedStep:
        """The damped step."""
        s, u = np.where(self._seen, self._values, 0.0), self._along
        pulls, squares = s * u, np.where(self._seen, s * s, np.inf)

        def length_at(damping: float) -> tuple[float, float]:
            parts = pulls / (squares + damping)
            length = float(np.linalg.norm(parts))
            return length, -float(np.sum(parts * parts / (squares + damping))) / length if length else 0.0

        damping = 0.0
        if length_at(0.0)[0] > radius:
            damping = radius_of(length_at, radius, float(np.linalg.norm(pulls)) / radius, _CLOSE)
        parts = pulls / (squares + damping)
        left = damping / (squares + damping)
        predicted = 0.5 * float(np.sum((u * u * (1.0 - left * left))[self._seen]))
        return DampedStep(-(self._right @ parts) / self._scaling, float(np.linalg.norm(parts)), predicted, damping)

    def solve(self, gradient: Vector, damping: float) -> Vector:
        """−(J̃ᵀJ̃ + λD²)⁻¹ times a vector in the range of J̃ᵀ."""
        squares = np.where(self._seen, self._values**2, np.inf)
        return -(self._right @ ((self._right.T @ (gradient / self._scaling)) / (squares + damping))) / self._scaling

    def inverse(self, v: Vector, damping: float) -> Vector:
        """(J̃ᵀJ̃ + λD²)⁻¹ times any vector, for λ > 0."""
        v = v / self._scaling
        along = self._right.T @ v
        return (self._right @ (along / (self._values**2 + damping) - along / damping) + v / damping) / self._scaling

    def evenly(self, parts: Vector) -> Vector:
        """A direction p with ‖J̃p‖ = ‖parts‖ that goes this far along each that J̃ tells apart."""
        return self._right @ (parts / self._values) / self._scaling

    def softest(self) -> Vector:
        """The direction, of length one in the norm of D, in which the model is flattest."""
        if self._right.shape[0] > self._right.shape[1]:  # more unknowns than residuals: any that J̃ does not see
            start = np.cos(np.arange(1.0, self._right.shape[0] + 1.0))
            hidden = start - self._right @ (self._right.T @ start)
            return hidden / (np.linalg.norm(hidden) or 1.0) / self._scaling
        return self._right[:, -1] / self._scaling


class CholeskyFactors:
    """The same for many unknowns: one factor of J̃ᵀJ̃ + λD², or of J̃D⁻²J̃ᵀ + λ where that is smaller, for each λ."""

    def __init__(self, sums: Sums, scaling: Vector) -> None:
        self._sums, self._scaling = sums, scaling
        scaled = sums.matrix / scaling
        self._rows: Matrix | None = None
        with alone(scaled):
            if sums.squared:
                self._matrix, self._vector = scaled / scaling[:, None], sums.gradient / scaling
            elif scaled.shape[0] < scaled.shape[1]:
                self._rows, self._matrix, self._vector = scaled, scaled @ scaled.T, sums.vector
            else:
                self._matrix, self._vector = scaled.T @ scaled, sums.gradient / scaling
        self._exact: SingularValues | None = None
        self._left: float | None = None
        self._largest = float(np.diagonal(self._matrix).max(initial=0.0))
        self._least = 1e2 * _EPSILON * len(self._matrix) * self._largest
        #: λ from which on singular values are taken
        self.faint = 4.0 * self._least

    @cached_property
    def ill_conditioned(self) -> bool:
        """Whether squares have lost the smallest curvatures; a few steps of inverse iteration find about the least."""
        v = np.cos(np.arange(1.0, len(self._matrix) + 1.0))
        for _ in range(_INVERSE_STEPS):
            if self._nearly_exact is None:
                return True
            v = self._nearly_exact(v / np.linalg.norm(v))
        return 1.0 / float(np.linalg.norm(v)) <= self._least + _ILL_CONDITIONED * self._largest

    @property
    def full_rank(self) -> bool:
        """Whether every unknown is seen."""
        return self._rows is None and not self.ill_conditioned

    @cached_property
    def _nearly_exact(self) -> Callable[[Vector], Vector] | None:
        return self._solver(self._least)

    @property
    def _by_values(self) -> SingularValues:
        if self._exact is None:
            self._exact = SingularValues.of(self._sums, self._scaling)
        return self._exact

    def _solver(self, damping: float) -> Callable[[Vector], Vector] | None:
        """V ↦ (M + λ)⁻¹v; None where rounding does not allow it."""
        matrix = self._matrix.copy()
        matrix.reshape(-1)[:: len(matrix) + 1] += damping
        factor = cholesky.cholesky(matrix)
        return None if factor is None else lambda v: cholesky.solve(factor, v)

    def step(self, radius: float) -> DampedStep:
        """The damped step."""
        solutions: dict[float, tuple[Vector, Vector]] = {}

        def length_at(damping: float) -> tuple[float, float]:
            solve = self._solver(damping)
            if solve is None:
                return math.inf, 0.0
            solution = solve(self._vector)
            again = solve(solution)
            if self._rows is None:
                step, slope = -solution, -float(solution @ again)
                length = float(np.linalg.norm(step))
            else:
                step = -(self._rows.T @ solution)
                length, slope = float(np.linalg.norm(step)), -float(solution @ (solution - damping * again))
            solutions[damping] = step, solution
            return length, slope / length if length > 0.0 else 0.0

        length, _ = length_at(self._least)
        damping = self._least
        if length > radius:
            highest = float(np.linalg.norm(self._sums.gradient / self._scaling)) / radius
            damping = radius_of(length_at, radius, max(highest, self.faint), _CLOSE_ENOUGH)
        if damping not in solutions or damping <= self.faint:
            return self._by_values.step(radius)
        step, solution = solutions[damping]
        length = float(np.linalg.norm(step))
        if self._rows is None:
            predicted = 0.5 * (float(solution @ self._vector) + damping * length**2)
        else:
            reached = self._vector - damping * solution  # of r̃
            predicted = 0.5 * (float(reached @ self._vector) + damping * float(solution @ reached))
        return DampedStep(step / self._scaling, length, predicted, damping)

    def left(self) -> float:
        """How far the model falls without a bound, to rounding."""
        if self._left is None:
            self._left = self._fall()
        return self._left

    def _fall(self) -> float:
        solve = self._nearly_exact
        # Of squares nothing better is known; a triangular factor knows all.
        if solve is None or (self._rows is None and self.ill_conditioned and not self._sums.squared):
            return self._by_values.left()
        solution = solve(self._vector)
        if self._rows is None:
            return 0.5 * float(solution @ self._vector)
        # What J̃ cannot reach cancels, to some part of 1/100m, which would be more than an end asks for.
        reached, whole = float((self._vector - self._least * solution) @ self._vector), dot(self._vector, self._vector)
        return 0.5 * reached if reached * len(self._matrix) > whole else self._by_values.left()

    def solve(self, gradient: Vector, damping: float) -> Vector:
        """−(J̃ᵀJ̃ + λD²)⁻¹ times a vector in the range of J̃ᵀ."""
        solve, scaled = self._solver(max(damping, self._least)), gradient / self._scaling
        if solve is None:
            return self._by_values.solve(gradient, damping)
        if self._rows is None:
            return -solve(scaled) / self._scaling
        # On the range of Bᵀ: (BᵀB + λ)⁻¹ Bᵀz = Bᵀ(BBᵀ + λ)⁻¹z, and z = (BBᵀ)⁻¹B·gradient, with the same damping.
        return -(scaled - self._rows.T @ solve(self._rows @ scaled)) / max(damping, self._least) / self._scaling

    def inverse(self, v: Vector, damping: float) -> Vector:
        """(J̃ᵀJ̃ + λD²)⁻¹ times any vector, for λ > 0."""
        return -self.solve(v, damping)

    def evenly(self, parts: Vector) -> Vector:
        """A direction p with ‖J̃p‖ = ‖parts‖ that goes this far along each that J̃ tells apart."""
        return self._by_values.evenly(parts)

    def softest(self) -> Vector:
        """The direction, of length one in the norm of D, in which the model is flattest."""
        return self._by_values.softest()


class PenalisedRows:
    """Fewer residuals than unknowns, and a penalty (μ/2)‖x − c‖², with D = 1: all in the space of residuals.

    With a = x − c and κ = μ/(μ + λ) the step is p = −κa − J̃ᵀ(J̃J̃ᵀ + μ + λ)⁻¹(r̃ − κJ̃a): nothing cancels in it, however
    small μ is.
    """

    ill_conditioned, faint = False, 0.0
    full_rank = False  # S may be as large as the penalty, where that is all

    def __init__(self, sums: Sums, penalty: Penalty) -> None:
        self._rows, self._residuals, self._gradient = sums.matrix, sums.vector, sums.gradient
        self._strength, self._away = penalty
        with alone(sums.matrix):
            self._squares, self._reached = sums.matrix @ sums.matrix.T, sums.matrix @ penalty.away
        largest = float(np.diagonal(self._squares).max(initial=0.0))
        #: λ that makes up for rounding
        self._least = max(1e2 * _EPSILON * len(self._squares) * largest - self._strength, 0.0)

    def _solver(self, damping: float) -> Callable[[Vector], Vector]:
        """V ↦ (J̃J̃ᵀ + μ + λ)⁻¹v."""
        matrix = self._squares.copy()
        matrix.reshape(-1)[:: len(matrix) + 1] += self._strength + damping
        factor = cholesky.cholesky(matrix)
        assert factor is not None
        return lambda v: cholesky.solve(factor, v)

    def step(self, radius: float) -> DampedStep:
        """The damped step."""
        steps: dict[float, Vector] = {}

        def length_at(damping: float) -> tuple[float, float]:
            solve, whole = self._solver(damping), self._strength + damping
            part = self._strength / whole
            reached = solve(self._residuals - part * self._reached)
            step = steps[damping] = -part * self._away - self._rows.T @ reached
            length = float(np.linalg.norm(step))
            again = (step - self._rows.T @ solve(self._rows @ step)) / whole
            return length, -float(step @ again) / length if length > 0.0 else 0.0

        damping, length = self._least, length_at(self._least)[0]
        if length > radius:
            highest = float(np.linalg.norm(self._gradient)) / radius
            damping = radius_of(length_at, radius, max(highest, 4.0 * self._least), _CLOSE_ENOUGH)
            if damping not in steps:
                length_at(damping)
        step = steps[damping]
        length = float(np.linalg.norm(step))
        predicted = -0.5 * float(self._gradient @ step) + 0.5 * damping * length**2
        return DampedStep(step, length, predicted, damping)

    def left(self) -> float:
        """How far the model falls without a bound, to rounding."""
        return max(self.step(math.inf).predicted, 0.0)

    def solve(self, gradient: Vector, damping: float) -> Vector:
        """−(J̃ᵀJ̃ + μ + λ)⁻¹ times a vector."""
        damping = max(damping, self._least)
        known = self._rows.T @ self._solver(damping)(self._rows @ gradient)
        return (known - gradient) / (self._strength + damping)

    def inverse(self, v: Vector, damping: float) -> Vector:
        """(J̃ᵀJ̃ + μ + λ)⁻¹ times any vector."""
        return -self.solve(v, damping)

    def evenly(self, parts: Vector) -> Vector:
        """Nobody asks: only where J has full rank can steps alone prove an end."""
        raise NotImplementedError

    def softest(self) -> Vector:
        """A direction, of length one, of which J̃ sees nothing."""
        start = np.cos(np.arange(1.0, self._away.size + 1.0))
        hidden = -self.solve(start, 0.0)
        return hidden / (np.linalg.norm(hidden) or 1.0)


Model = SingularValues | CholeskyFactors | PenalisedRows
