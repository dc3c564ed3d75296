"""The trust-region subproblem: minimise m(p) = ḡᵀp + ½ pᵀHp over ‖p‖ ≤ Δ, approximately."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trsvr._arrays import Vector
from trsvr._compile import jitable, kernel, record
from trsvr._vectors import add_scaled, dot, turn
from trsvr.problems.steps import Exit, NormedStep

_TOLERANCE = int(Exit.TOLERANCE)
_BOUNDARY = int(Exit.BOUNDARY)
_NEGATIVE_CURVATURE = int(Exit.NEGATIVE_CURVATURE)
_ITERATION_LIMIT = int(Exit.ITERATION_LIMIT)
# A curvature below this part of another one, both measured in P, is rounding.
_FLAT = 4.0 * float(np.finfo(float).eps)
# With H = P and α = 1 Newton's step ends on the boundary, and rounding must not decide whether it does.
_ON_BOUNDARY = 1.0 - 1e-12


@kernel()
def _begin(gradient: Vector, step: Vector, residual: Vector, direction: Vector) -> None:
    for j in range(gradient.size):
        step[j] = 0.0
        residual[j] = gradient[j]
        direction[j] = -gradient[j]


@kernel(fastmath=True)
def _advance(
    length: float, direction: Vector, product: Vector, step: Vector, residual: Vector
) -> tuple[float, float, float, float, float]:
    """Move step and residual along direction and product, and take five inner products, in one sweep."""
    rr = zz = zr = zd = rd = 0.0
    for j in range(step.size):
        z = step[j] + length * direction[j]
        r = residual[j] + length * product[j]
        step[j] = z
        residual[j] = r
        rr += r * r
        zz += z * z
        zr += z * r
        zd += z * direction[j]
        rd += r * direction[j]
    return rr, zz, zr, zd, rd


@record
class CGWork(NamedTuple):
    """The vectors of a conjugate-gradient run; ``step`` has the answer."""

    step: Vector
    residual: Vector
    direction: Vector
    curved: Vector  # H · direction

    @classmethod
    def of_size(cls, d: int) -> CGWork:
        """New vectors of length d."""
        return cls(np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d))

    def begin(self, gradient: Vector) -> float:
        """From p = 0: residual ḡ, direction −ḡ; returns ‖ḡ‖²."""
        _begin(gradient, self.step, self.residual, self.direction)
        return dot(gradient, gradient)

    def advance(self, length: float) -> tuple[float, float, float, float, float]:
        """Move step and residual along the direction; returns rᵀr, zᵀz, zᵀr, zᵀd and rᵀd of r, z and d."""
        return _advance(length, self.direction, self.curved, self.step, self.residual)

    def end(self, length: float) -> None:
        """The last move, after which no inner product is wanted."""
        add_scaled(length, self.direction, self.step)
        add_scaled(length, self.curved, self.residual)

    def turn(self, beta: float) -> None:
        """The next direction: β times the old one minus the residual."""
        turn(beta, self.residual, self.direction)


@jitable
def _length_to_boundary(zz: float, zd: float, dd: float, radius: float) -> float:
    """τ ≥ 0 with ‖z + τd‖ = radius, in the form that does not cancel for zᵀd ≥ 0."""
    room = max(radius * radius - zz, 0.0)
    across = zd + math.sqrt(zd * zd + dd * room)
    return room / across if across > 0.0 else 0.0  # products of very small numbers may vanish


@jitable
def _lower_end(zz: float, zd: float, dd: float, radius: float, slope: float, curvature: float) -> float:
    """The τ of the two with ‖z + τd‖ = radius at which τ·slope + ½τ²·curvature is smaller (Nocedal & Wright 7.2).

    Along a direction of negative curvature both ends of the chord fall; the nearer one is not always the lower.
    """
    ahead = _length_to_boundary(zz, zd, dd, radius)
    behind = -(zd + math.sqrt(zd * zd + dd * max(radius * radius - zz, 0.0))) / dd
    if behind * (slope + 0.5 * behind * curvature) < ahead * (slope + 0.5 * ahead * curvature):
        return behind
    return ahead


@jitable
def steihaug_cg(
    hessian: Any, gradient: Vector, radius: float, tolerance: float, max_iterations: int, work: CGWork
) -> tuple[int, int]:
    """Steihaug's conjugate gradients (Nocedal & Wright, Algorithm 7.2).

    Parameters
    ----------
    hessian
        Has ``product(v, squared_norm, out)``, which leaves H v in ``out`` and returns vᵀHv.
    gradient : array
        ḡ.
    radius : float
        Δ.
    tolerance : float
        Stops inside the region when ‖ḡ + Hp‖ ≤ tolerance.
    max_iterations : int
        Products at most.
    work : CGWork
        The vectors (any object with the members of `CGWork`, so that they may be tensors). ``work.step`` receives p.
        ``work.residual`` receives ḡ + Hp, at the boundary too: so H p is known without another product, and
        m(p) = ½ pᵀ(ḡ + residual).

    Returns
    -------
    exit, iterations : int
        An `Exit`, and the number of products.

    Notes
    -----
    The first iterate is the Cauchy point and every later one lies lower, so the step has at least the Cauchy decrease.
    Norms and inner products are computed from the vectors, not by recurrence: with estimated products the recurrences
    drift, and the step would leave the region. A product that is NaN counts as negative curvature: the step stays in
    the region, and the solver sees at its next full gradient what happened.
    """
    rr = work.begin(gradient)
    if math.sqrt(rr) <= tolerance:
        return _TOLERANCE, 0
    zz, zd, dd = 0.0, 0.0, rr
    for iteration in range(1, max_iterations + 1):
        curvature = hessian.product(work.direction, dd, work.curved)
        falls_forever = not curvature > 0.0
        length = 0.0 if falls_forever else rr / curvature
        if falls_forever or zz + length * (2.0 * zd + length * dd) >= radius * radius:
            slope = -rr  # of the model along the direction
            work.end(
                _lower_end(zz, zd, dd, radius, slope, curvature)
                if falls_forever
                else _length_to_boundary(zz, zd, dd, radius)
            )
            return (_BOUNDARY if curvature >= 0.0 else _NEGATIVE_CURVATURE), iteration
        rr_before = rr
        rr, zz, zr, zd, rd = work.advance(length)
        if math.sqrt(rr) <= tolerance:
            return _TOLERANCE, iteration
        beta = rr / rr_before
        work.turn(beta)
        zd = beta * zd - zr
        dd = rr - 2.0 * beta * rd + beta * beta * dd
    return _ITERATION_LIMIT, max_iterations


@record
class SteihaugCG(NamedTuple):
    """`steihaug_cg` to the tolerance min(½, √‖ḡ‖)·‖ḡ‖, at most ``max_iterations`` products."""

    max_iterations: int = 500

    def solve(self, hessian: Any, gradient: Vector, norm: float, radius: float, work: CGWork) -> tuple[int, int]:
        """Leave the step in ``work.step``; returns the `Exit` and the number of products."""
        tolerance = min(0.5, math.sqrt(norm)) * norm
        return steihaug_cg(hessian, gradient, radius, tolerance, self.max_iterations, work)


class DenseSubproblem:
    """The global minimiser over the region, for small d (Moré & Sorensen 1983).

    Forms H by d products and takes its eigenvalues λ and eigenvectors Q: p = −(H + νI)⁻¹ḡ with the smallest ν ≥ 0 that
    makes H + νI positive semidefinite and ‖p‖ ≤ Δ. Not compiled: algorithms with it run in plain Python.
    """

    def __init__(self, largest: int = 500) -> None:
        self.largest = largest

    def solve(self, hessian: Any, gradient: Vector, norm: float, radius: float, work: CGWork) -> tuple[int, int]:
        """Leave the step in ``work.step``; returns the `Exit` and the number of products."""
        d = gradient.size
        if d > self.largest:
            raise ValueError(
                f"subproblem DenseSubproblem forms a {d} x {d} matrix, at most {self.largest}; SteihaugCG needs none"
            )
        matrix = np.empty((d, d))
        for j in range(d):
            unit = np.zeros(d)
            unit[j] = 1.0
            hessian.product(unit, 1.0, matrix[j])
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        step, inside = minimizer_in_eigenbasis(values, vectors.T @ gradient, norm, radius)
        work.step[:] = vectors @ step
        work.residual[:] = gradient + matrix.T @ work.step
        if inside:
            return _TOLERANCE, d
        return (_NEGATIVE_CURVATURE if values[0] < 0.0 else _BOUNDARY), d


def minimizer_in_eigenbasis(values: Vector, g: Vector, norm: float, radius: float) -> tuple[Vector, bool]:
    """The minimiser over the region in the basis of the eigenvectors, and whether it lies inside (Moré & Sorensen).

    ``values`` ascend, ``g`` is the gradient in that basis, ``norm`` its length.
    """
    if norm == 0.0 and values[0] >= 0.0:
        return np.zeros_like(g), True
    if values[0] > 0.0:
        newton = -g / values
        if np.linalg.norm(newton) <= radius:
            return newton, True
    lowest = max(0.0, -values[0])

    def length(shift: float) -> float:
        return float(np.linalg.norm(g / (values + shift)))

    # The hard case: ḡ has no part along the lowest eigenvectors, and the step at the lowest shift ends inside.
    singular = values + lowest <= 1e-14 * max(abs(values[0]), abs(values[-1]), 1e-300)
    if not np.abs(g[singular]).max(initial=0.0) > 1e-14 * norm:
        step = np.where(singular, 0.0, -g / np.where(singular, 1.0, values + lowest))
        if np.linalg.norm(step) <= radius:
            step[0] += np.sqrt(max(radius**2 - float(step @ step), 0.0))
            return step, False
    low, high = lowest, lowest + norm / radius
    while length(high) > radius:
        high = lowest + 2.0 * (high - lowest)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if length(middle) > radius:
            low = middle
        else:
            high = middle
    return -g / (values + high), False


def preconditioned_cg(
    product: Callable[[Vector], Vector],
    norm: Any,
    gradient: Vector,
    radius: float,
    tolerance: float,
    max_iterations: int,
    keep: list[tuple[Vector, Vector]] | None = None,
    give_up: Callable[[], bool] | None = None,
) -> NormedStep:
    """Steihaug's conjugate gradients in the norm P: minimise ḡᵀp + ½ pᵀHp over ‖p‖_P ≤ radius, approximately.

    Parameters
    ----------
    product : callable
        H v.
    norm
        Has ``solve(v)``, P⁻¹v.
    gradient : array
        ḡ.
    radius : float
        Bound on ‖p‖_P.
    tolerance : float
        Stops inside the region when ‖ḡ + Hp‖_{P⁻¹} ≤ tolerance · ‖ḡ‖_{P⁻¹}.
    max_iterations : int
        Products at most.
    keep : list, optional
        Receives the directions of positive curvature and their products.
    give_up : callable, optional
        Asked after every product; where it says so, the step so far is returned as at the limit of iterations.

    Notes
    -----
    With an infinite radius a direction of negative curvature is itself the step. P itself is never
    needed: ‖z‖²_P, zᵀPd and ‖d‖²_P follow from the recurrences of the method.
    """
    step, curved = np.zeros_like(gradient), np.zeros_like(gradient)
    residual = gradient.copy()
    solved = norm.solve(residual)
    direction = -solved
    rr = dot(residual, solved)
    zz, zd, dd = 0.0, 0.0, rr
    enough = tolerance * tolerance * rr
    stiffest = 0.0
    if not rr > 0.0:
        return NormedStep(step, curved, 0.0, Exit.TOLERANCE, 0)
    for iteration in range(1, max_iterations + 1):
        along = product(direction)
        curvature = dot(direction, along)
        stiffest = max(stiffest, abs(curvature) / dd)
        if abs(curvature) <= _FLAT * stiffest * dd:
            # What is left of the gradient lies where H is rounding: a step there would be noise, however long.
            return NormedStep(step, curved, math.sqrt(max(zz, 0.0)), Exit.TOLERANCE, iteration)
        falls_forever = not curvature > 0.0
        length = 0.0 if falls_forever else rr / curvature
        if keep is not None and not falls_forever:
            keep.append((direction.copy(), along))
        if falls_forever and math.isinf(radius):
            return NormedStep(direction, along, math.sqrt(dd), Exit.NEGATIVE_CURVATURE, iteration)
        if falls_forever or zz + length * (2.0 * zd + length * dd) > _ON_BOUNDARY * radius * radius:
            length = _length_to_boundary(zz, zd, dd, radius)
            if falls_forever:
                length = _lower_end(zz, zd, dd, radius, -rr, curvature)
            add_scaled(length, direction, step)
            add_scaled(length, along, curved)
            why = Exit.NEGATIVE_CURVATURE if falls_forever else Exit.BOUNDARY
            return NormedStep(step, curved, radius, why, iteration)
        add_scaled(length, direction, step)
        add_scaled(length, along, curved)
        add_scaled(length, along, residual)
        zz += length * (2.0 * zd + length * dd)
        solved = norm.solve(residual)
        rr_before, rr = rr, dot(residual, solved)
        if not rr > enough:
            return NormedStep(step, curved, math.sqrt(max(zz, 0.0)), Exit.TOLERANCE, iteration)
        if give_up is not None and give_up():
            return NormedStep(step, curved, math.sqrt(max(zz, 0.0)), Exit.ITERATION_LIMIT, iteration)
        beta = rr / rr_before
        turn(beta, solved, direction)
        zd = beta * (zd + length * dd)
        dd = rr + beta * beta * dd
    return NormedStep(step, curved, math.sqrt(max(zz, 0.0)), Exit.ITERATION_LIMIT, max_iterations)
