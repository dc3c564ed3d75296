"""A trust-region step with one round, where products with the Hessian are rounds and there is no matrix of it.

Conjugate gradients ask for one product after the other, each of which depends on the one before: they cannot be had in
one round. So they run here, on a model of the Hessian H made of rows that have come here to stay,

    H̃ = (1/m) Σ_{i ∈ sample} ∇²loss_i + diag(max(D − D_sample, 0)) + ∇²r,

with the exact diagonal D, which the blocks have sent with the gradient: a column that the sample hardly has keeps its
curvature. What they find is not the step but a small space for it: the directions of iterations 1, 2, 3–4, 5–8, … , so
that every one of the iterates 1, 2, 4, 8, … lies in it, and the last few steps. One round brings the products of H
itself with a basis B of that space, and the step minimises gᵀp + ½ pᵀHp over p = Bᵀc, ‖p‖_P ≤ radius, exactly. With
few parameters the sample's Hessian is a matrix, and Newton's direction on it is in the space too.

A poor sample makes the space poor and never the step wrong. On a quadratic the best point in the span of H̃⁻¹g and the
last step is that of conjugate gradients with the preconditioner H̃; this space has both, and more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trsvr._arrays import Matrix, Vector
from trsvr._draws import Draws, spread
from trsvr._vectors import dot
from trsvr.dask.rows import Here
from trsvr.parts.norms import DenseNorm, IdentityNorm
from trsvr.parts.subproblems import minimizer_in_eigenbasis, preconditioned_cg
from trsvr.problems.centring import Centring
from trsvr.problems.steps import Exit, NormedStep, Product, StepRequest, StepTaken

if TYPE_CHECKING:
    from trsvr.dask.model import LinearModel as DaskModel

# Conjugate gradients on the sample: their products cost no round.
_MOST_PRODUCTS = 64
_TOLERANCE = 0.01
_EARLIER_STEPS = 3
# A direction of which less than this part is new adds nothing but rounding.
_NEW_PART = 1e-8
# The sample is at most this part of all rows.
_SAMPLE_PART = 4
# A column is far from zero where less than this part of its second moment is about its mean; and what rounding leaves.
_FAR, _ROUNDING = 0.5, 1e-12
# The sample hardly has a column of which it has less than this part of the curvature.
_HARDLY = 0.5


class HeldRows:
    """Rows that have come here to stay; a slice more of them with every full gradient, until they are enough."""

    def __init__(self, model: DaskModel) -> None:
        self._model = model
        self._slices: list[tuple[Draws, int, Here]] = []  # by which they were drawn, and how many
        self._views: list[Any] = []
        self._at: tuple[Vector, bool] | None = None  # where the views are, and whether their curvatures are raised

    def next_slice(self, coming: Draws | None) -> Here | None:
        """The rows that should come with the full gradient before this epoch; None where there are enough."""
        coming = coming or Draws(0, 0)
        if coming.epoch == 0:  # a run begins
            self._slices, self._views = [], []
        if any(draws == coming for draws, *_ in self._slices):
            return None
        model = self._model
        held = sum(size for _, size, _ in self._slices)
        size = min(model.rows_worth, min(model.rows_at_once, model.n_samples // _SAMPLE_PART) - held)
        return self._add(coming, size) if size > 0 else None

    def _add(self, draws: Draws, size: int) -> Here:
        here = Here(self._model, spread(self._model.n_samples, size, draws.stream("held")))
        self._slices.append((draws, size, here))
        return here

    def at(self, x: Vector, raised: bool) -> SampledHessian:
        """Their curvatures at x; waits for rows that are on their way."""
        for *_, here in self._slices[len(self._views) :]:
            self._views.append(here.problem().curvature_view())
            self._at = None
        if self._at is None or self._at[1] != raised or not np.array_equal(self._at[0], x):
            self._at = x.copy(), raised
            for view in self._views:
                view.evaluate(x)
                if raised:
                    view.raise_curvatures(1.0, 0.0)
        return SampledHessian(self._views, x.size)

    def snapshot(self) -> dict[str, Any]:
        """Which rows are here, for a checkpoint."""
        if not self._slices:
            return {}
        return {
            "seed": self._slices[0][0].seed,
            "epochs": np.array([draws.epoch for draws, *_ in self._slices]),
            "sizes": np.array([size for _, size, _ in self._slices]),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The same rows again; they are sent for when they are needed."""
        self._slices, self._views = [], []
        if snapshot:
            for epoch, size in zip(snapshot["epochs"].tolist(), snapshot["sizes"].tolist(), strict=True):
                if not 0 < size <= self._model.n_samples:
                    raise ValueError(f"a sample must have 1 … {self._model.n_samples} rows, got {size}")
                self._add(Draws(int(snapshot["seed"]), epoch), size)


class SampledHessian:
    """Mean Hessian of the sample's losses at one point; zero where there is no sample."""

    def __init__(self, views: list[Any], d: int) -> None:
        self._views, self._d = views, d
        self.n_rows = sum(view.problem.n_samples for view in views)

    def product(self, v: Vector) -> Vector:
        """Times v."""
        return self._mean(lambda view: view.product(v))

    def diagonal(self) -> Vector:
        """Its diagonal."""
        return self._mean(lambda view: view.diagonal())

    def matrix(self) -> Matrix:
        """All of it: a product for each parameter."""
        H = np.array([self.product(along) for along in np.eye(self._d)])
        return 0.5 * (H + H.T)

    def _mean(self, part: Callable[[Any], Vector]) -> Vector:
        out = np.zeros(self._d)
        for view in self._views:
            out += view.problem.n_samples / self.n_rows * part(view)
        return out


class CentredSample(SampledHessian):
    """The same in centred coordinates."""

    def __init__(self, sampled: SampledHessian, frame: Centring) -> None:
        super().__init__(sampled._views, sampled._d)
        self._frame = frame

    def product(self, v: Vector) -> Vector:
        """Times v."""
        return self._frame.gradient_inside(super().product(self._frame.outside(v)))

    def diagonal(self) -> Vector:
        """Its diagonal."""
        D, m = super().diagonal().reshape(-1, self._frame.outputs), self._frame.means[:, None]
        moments, far = about_means(D, self._frame.means)
        if far.any():
            moments = np.maximum(D[:-1] - m * (2.0 * self._mixed() - m * D[-1]), _ROUNDING * D[:-1])
        D[:-1] = moments
        return D.ravel()

    def _mixed(self) -> Matrix:
        """The entries between each output's weights and its intercept: one product with each intercept."""
        K = self._frame.outputs
        mixed = np.empty((self._frame.means.size, K))
        for k in range(K):
            along = np.zeros(self._d)
            along[k - K] = 1.0
            mixed[:, k] = super().product(along).reshape(-1, K)[:-1, k]
        return mixed


def about_means(D: Matrix, means: Vector) -> tuple[Matrix, NDArray[np.bool_]]:
    """Second moments of the columns about their means, as if curvatures did not depend on the columns.

    ``D`` has those about zero, a row for each column and one for the intercepts. Returns also where little is left of
    them: of columns far from zero, where that curvatures do depend on them makes all the difference.
    """
    m = means[:, None]
    moments = D[:-1] - m * m * D[-1]
    return np.maximum(moments, _ROUNDING * D[:-1]), moments < _FAR * D[:-1]


class Subspace:
    """The model of f within a few directions, exactly.

    Parameters
    ----------
    gradient : array
    basis : matrix
        Its rows are orthonormal in the norm P.
    images : matrix
        Their products with the whole Hessian.
    solve : callable
        v ↦ about ½ vᵀH⁻¹v, and the rows of the sample that this has looked at.
    sampled : int
        Rows of the sample that have been looked at, once for every product.
    """

    def __init__(
        self,
        gradient: Vector,
        basis: Matrix,
        images: Matrix,
        solve: Callable[[Vector], tuple[float, int]],
        sampled: int,
    ) -> None:
        self.gradient, self.basis, self.images, self._solve, self.sampled = gradient, basis, images, solve, sampled
        inner = basis @ images.T
        self._values, self._vectors = np.linalg.eigh(0.5 * (inner + inner.T))
        self._slopes = self._vectors.T @ (basis @ gradient)

    def step(self, radius: float) -> NormedStep:
        """The minimiser of the model over ‖p‖_P ≤ radius."""
        if not len(self.basis):
            nothing = np.zeros_like(self.gradient)
            return NormedStep(nothing, nothing, 0.0, Exit.TOLERANCE, 0)
        size = float(np.linalg.norm(self._slopes))
        found, inside = minimizer_in_eigenbasis(self._values, self._slopes, size, radius)
        chosen = self._vectors @ found
        bends_down = self._values[0] < 0.0
        why = Exit.TOLERANCE if inside else Exit.NEGATIVE_CURVATURE if bends_down else Exit.BOUNDARY
        return NormedStep(chosen @ self.basis, chosen @ self.images, float(np.linalg.norm(found)), why, len(self.basis))

    def left(self, taken: NormedStep) -> float:
        """How much further the model falls outside the space, as far as the sample can tell."""
        more, rows = self._solve(self.gradient + taken.product)
        self.sampled += rows
        return more


def step_in_subspace(
    request: StepRequest, sampled: SampledHessian, diagonal: Vector, products: Callable[[Matrix], Matrix]
) -> StepTaken:
    """The step that was asked for, from one round of products."""
    space = build_subspace(request, sampled, diagonal, products)
    alpha, found = request.alpha, space.step(request.alpha * request.size)
    if found.exit is Exit.NEGATIVE_CURVATURE and request.is_unbounded:
        # Without a bound the model has no minimum: begin with a step as long as the gradient.
        alpha, found = 1.0, space.step(request.size)
    left = space.left(found)
    pairs = [(found.step, found.product)] if dot(found.step, found.product) > 0.0 else []
    return StepTaken(found, alpha, pairs, None, left, space.sampled)


def build_subspace(
    request: StepRequest, sampled: SampledHessian, diagonal: Vector, products: Callable[[Matrix], Matrix]
) -> Subspace:
    """Directions from the sample, their true products in one round, and the model within them.

    Parameters
    ----------
    request : StepRequest
        Its norm is the identity or a diagonal.
    sampled : SampledHessian
    diagonal : array
        Of the mean Hessian of the losses, all rows.
    products : callable
        Products of the mean Hessian of the losses, all rows, with the rows of a matrix.
    """
    gradient, norm, penalty = request.gradient, request.norm, request.penalty
    own = sampled.diagonal()
    lack = np.maximum(diagonal - own, 0.0)
    few = 0 < gradient.size <= _MOST_PRODUCTS and sampled.n_rows > 0
    losses = sampled.matrix() if few else None

    def model(v: Vector) -> Vector:
        return (sampled.product(v) if losses is None else losses @ v) + (lack + penalty) * v

    # Along some directions there may be nothing but the penalty: with the matrix at hand they are found at once. What
    # the sample lacks would hide them, so it is added only to columns that the sample hardly has.
    exact = None
    if losses is not None:
        exact = DenseNorm(losses + np.diag(np.where(own < _HARDLY * diagonal, lack, 0.0)), penalty)

    def solve(v: Vector) -> tuple[float, int]:
        if exact is not None:
            return 0.5 * exact.dual(v), 0
        found = preconditioned_cg(model, norm, v, math.inf, 10 * _TOLERANCE, _MOST_PRODUCTS)
        falls = found.predicted(v) if found.exit is not Exit.NEGATIVE_CURVATURE else 0.0
        return max(falls, 0.0), found.products * sampled.n_rows

    directions, count = _directions(model, norm, gradient)
    if exact is not None:
        directions.append(exact.solve(gradient))
        count = gradient.size
    if request.earlier is not None:
        directions += list(request.earlier[-_EARLIER_STEPS:])
    basis = _orthonormal(directions, np.ones_like(gradient) if isinstance(norm, IdentityNorm) else norm.diagonal)
    images = products(basis) + penalty * basis if len(basis) else basis
    return Subspace(gradient, basis, images, solve, count * sampled.n_rows)


def _directions(model: Product, norm: Any, gradient: Vector) -> tuple[list[Vector], int]:
    """What conjugate gradients add to their iterate in iterations 1, 2, 3–4, 5–8, …; and how many there were."""
    pairs: list[tuple[Vector, Vector]] = []
    found = preconditioned_cg(model, norm, gradient, math.inf, _TOLERANCE, _MOST_PRODUCTS, pairs)
    groups: list[Vector] = []
    for number, (direction, image) in enumerate(pairs):
        move = -(direction @ gradient) / (direction @ image) * direction
        if number & (number - 1):  # not the first of its group
            groups[-1] = groups[-1] + move
        else:
            groups.append(move)
    if found.exit is Exit.NEGATIVE_CURVATURE:
        groups.append(found.step)
    return groups, found.products


def _orthonormal(directions: list[Vector], metric: Vector) -> Matrix:
    """Rows that span the directions, orthonormal in the norm P = diag(metric)."""
    root = np.sqrt(metric)
    scaled = [root * direction for direction in directions]
    lengths = [float(np.linalg.norm(one)) for one in scaled]
    usable = [one / length for one, length in zip(scaled, lengths, strict=True) if 0.0 < length < math.inf]
    if not usable:
        return np.empty((0, metric.size))
    Q, R = np.linalg.qr(np.array(usable).T)
    new = np.abs(np.diagonal(R)) > _NEW_PART
    return np.ascontiguousarray(Q[:, new].T / root)
