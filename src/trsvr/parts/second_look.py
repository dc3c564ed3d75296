"""Whether a point where a run would end is a minimum: the Hessian's own answer, which does not depend on units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.parts.norms import DiagonalNorm
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.problems.steps import Exit, Norm, NormedStep, Product

# Up to so many unknowns the Hessian is formed: a product for each.
FEW = 50
# A curvature counts as negative, and as one at all, from this part of the largest; with differences of gradients those
# below that one are measured once more.
_FLAT, _ROUGHLY_FLAT = 1e-11, 1e-6
# A direction downwards is looked for to this part of a start's residual, by so many products at most.
_PROBED, _PROBES = 1e-4, 100
_ROUNDING = 64 * float(np.finfo(float).eps)


class SecondLook(NamedTuple):
    """What was seen: how far the quadratic model falls, its step, or a direction in which it falls for ever."""

    expected: float
    step: Vector
    product: Vector
    downwards: Vector | None
    products: int


def second_look(
    product: Product,
    norm: Norm,
    gradient: Vector,
    exact: bool,
    tolerance: float,
    most_products: int,
    little: float,
    give_up: Callable[[], bool],
) -> SecondLook:
    """Minimise gᵀp + ½ pᵀHp without a bound: by eigenvalues for few unknowns, else by conjugate gradients.

    ``little`` is what may be left where a run ends: where no more is expected, a direction downwards is looked for too.
    """
    flat = _FLAT if exact else _ROUGHLY_FLAT
    if gradient.size <= FEW:
        return _by_eigenvalues(product, gradient, flat)
    found = preconditioned_cg(product, norm, gradient, math.inf, tolerance, most_products, give_up=give_up)
    products, falls = found.products, found.exit is Exit.NEGATIVE_CURVATURE
    if not falls and found.predicted(gradient) <= little and not give_up():
        elsewhere, probes = _elsewhere(product, norm, gradient.size, flat, give_up)
        products, falls, found = products + probes, elsewhere is not None, elsewhere or found
    if not falls:
        return SecondLook(found.predicted(gradient), found.step, found.product, None, products)
    downwards = found.step / (float(np.abs(found.step).max()) or 1.0)
    return SecondLook(math.inf, found.step, found.product, downwards, products)


def _elsewhere(
    product: Product, norm: Norm, size: int, flat: float, give_up: Callable[[], bool]
) -> tuple[NormedStep | None, int]:
    """Negative curvature where the gradient does not lead, from a fixed start; None if there is none, and the products.

    A gradient that vanishes, or has no part along some unknowns, shows nothing of the curvature there.
    """
    start = np.cos(np.arange(1.0, size + 1.0))
    found = preconditioned_cg(product, norm, start, math.inf, _PROBED, _PROBES, give_up=give_up)
    if found.exit is not Exit.NEGATIVE_CURVATURE:
        return None, found.products
    # What curvatures are like, in units of the norm: less than a part of that is rounding.
    usual = math.sqrt(norm.dual(product(norm.solve(start))) / norm.dual(start))
    clearly = dot(found.step, found.product) < -flat * usual * found.length**2
    return (found if clearly else None), found.products + 1


def _by_eigenvalues(product: Product, gradient: Vector, flat: float) -> SecondLook:
    d = gradient.size
    matrix = np.array([product(unit) for unit in np.eye(d)])
    matrix = 0.5 * (matrix + matrix.T)
    # In units of the diagonal every entry is a number without them.
    sizes = np.abs(np.diagonal(matrix))
    scale = 1.0 / np.sqrt(DiagonalNorm(np.where(sizes > 0.0, sizes, np.abs(matrix).max(axis=1))).diagonal)
    values, vectors = np.linalg.eigh(matrix * np.outer(scale, scale))
    # What the whole matrix cannot tell from rounding, a product along its own direction can.
    doubtful = np.flatnonzero(values <= flat * float(np.abs(values).max(initial=0.0)))
    for k in doubtful:
        direction = scale * vectors[:, k]
        values[k] = dot(direction, product(direction))
    products, limit = d + len(doubtful), _FLAT * float(np.abs(values).max(initial=0.0))
    lowest = int(values.argmin())
    if values[lowest] < -limit:
        downwards = scale * vectors[:, lowest]
        downwards /= float(np.abs(downwards).max())
        return SecondLook(math.inf, downwards, matrix @ downwards, downwards, products)
    seen = values > limit
    along = vectors.T @ (scale * gradient)
    step = -scale * (vectors[:, seen] @ (along[seen] / values[seen]))
    # Along what rounding hides, the gradient may still mean something.
    hidden = 0.5 * dot(along[~seen], along[~seen]) / limit if limit > 0.0 and not seen.all() else 0.0
    return SecondLook(-0.5 * dot(gradient, step) + hidden, step, matrix @ step, None, products)


def can_be_hidden(penalty: Vector, losses: Vector | None, squared: float) -> float:
    """What conjugate gradients may have passed by, ½‖g‖²/λ at most; infinite where the penalty says nothing.

    Dependent columns leave directions with no curvature but the penalty's λ, and their part of the gradient is so
    small that nothing is seen of it before the rest is as small. An intercept, which is not penalised, counts as if it
    were.
    """
    smallest = float(penalty[penalty > 0.0].min(initial=math.inf))
    largest = 0.0 if losses is None else float(losses.max(initial=0.0))
    # Below the rounding of the other curvatures λ is not seen in a product: steps along it would be noise.
    if math.isinf(smallest) or smallest <= _ROUNDING * largest:
        return math.inf
    return 0.5 * squared / smallest
