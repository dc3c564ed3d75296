"""A true upper bound on f(x) − min f for convex linear models, from what the last full pass has at hand.

With weights s_i, losses φ_i of the margins z_i and a penalty r whose curvature is at least λ_j in each coordinate, any
u with Σ s_i u_i = 0 (where there is an intercept) bounds min f from below, by −(1/N) Σ s_i φ_i*(u_i) − r*(−v) with
v = (1/N) Σ s_i u_i x_i. The slopes at x are such a u, but for an intercept whose gradient g_b is not zero yet: that is
put right by u_i = φ_i'(z_i) − tᵀ∇²φ_i, with H t = g_b for H = (1/N) Σ s_i ∇²φ_i. Nearly everything cancels (Fenchel's
equality), and what is left is

    f(x) − min f  ≤  tᵀH t  +  (‖g_w / √λ‖ + q / √λ)² / 2,      q = ‖(1/N) Σ s_i (∇²φ_i t) x_iᵀ‖ ≤ ‖t‖ h √V,

with h² the mean of s_i‖∇²φ_i‖² and V that of s_i‖x_i − m‖², for any m: centred columns make it sharp. The first term
needs curvatures that do not fall below half on the way from φ_i' to u_i. They do not for |t| ≤ 1/(2M) where a curvature
changes by no more than M of itself for a unit of the margin (M = 1 for the logistic and softmax losses and all with a
logarithmic link), and for a squared hinge while no row reaches the kink. Rounding of the gradient is added, of sums
over the rows as they are stored: a bound must not become true by chance.

Where λ is small, that is large long after a Newton step p has nothing left to gain. Slopes that follow it,
u_i = φ_i'(z_i) + ∇²φ_i x_iᵀp (and the same correction for the intercept), turn ∇f into m = ∇f + ∇²L p, L the mean loss,
which is −λp for an exact step on L2, and the bound into

    f(x) − min f  ≤  (√(pᵀ∇²L p) + √(tᵀH t))²  +  (‖m_w / √λ‖ + q / √λ)² / 2,      H t = m_b,

about twice what is left, as long as curvatures stay above their half for |x_iᵀp| + |t|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trsvr._arrays import Matrix, Vector
from trsvr._vectors import all_finite, dot
from trsvr.problems.losses import BENDS, bend_of, curvature_bound
from trsvr.problems.regularizers import least_curvature

# Errors of the sums that make a gradient, in units of their last place: several times what has been seen.
_UNITS = 8.0 * float(np.finfo(float).eps)
# A bound beyond this part of f, most of it rounding, is worth a closer look at what margins are rounded by.
_LARGE = 1e-10
# With several outputs an outer iteration takes many products, and a bound beyond this part of f is worth one: how far
# moving the slopes moves the gradient of the weights. It may be wrong by that part of what it is at most: slopes may be
# kept in float32.
_WORTH_A_PRODUCT, _DIGITS = 1e-6, 1e-6


class GapFacts(NamedTuple):
    """What is known at a point."""

    strengths: Any  # λ_j > 0, a number for all or one for each weight; None: the penalty has no such bound
    intercepts: Matrix | None  # H, K × K; None: there is no intercept
    spread: float  # V
    rows: float  # the same for the rows as they are summed: what gradients are rounded by
    slope: float  # root mean square of the slopes, at most
    curved: float  # h, at most
    steady: Callable[[float], bool]  # whether curvatures stay above their half for every t of this length
    reach: float  # root mean square of Σ_j |x_ij w_j| + |b|: what margins are rounded by
    lowest: float = 0.0  # what f is at least
    closer: Callable[[], float] | None = None  # a sharper reach, where ``reach`` is a crude one
    product: Callable[[Vector], Vector] | None = None  # with the losses' Hessian, where one is worth it
    along: float = 0.0  # √(pᵀ∇²L p), where the slopes follow a step p and the gradient is ∇f + ∇²L p


@np.errstate(all="ignore")
def gap_bound(facts: GapFacts, value: float, x: Vector, gradient: Vector) -> float:
    """f(x) − min f at most; not a number where nothing is known."""
    sizes = _sizes(facts, value, x, gradient)
    if sizes is None:
        return math.nan
    bound, crossed = _bound(facts, sizes, value), math.inf
    if facts.product is not None and facts.intercepts is not None and bound > _WORTH_A_PRODUCT * abs(value):
        crossed = _crossed(facts, facts.intercepts, facts.product, sizes, x.size)
        bound = _bound(facts, sizes, value, crossed)
    if facts.closer is None or not bound > _LARGE * abs(value):
        return bound
    if not bound > 2.0 * _bound(facts._replace(reach=0.0), sizes, value, crossed):
        return bound
    return _bound(facts._replace(reach=float(np.fmin(facts.reach, facts.closer()))), sizes, value, crossed)


class _Sizes(NamedTuple):
    """What a bound needs of x and the gradient."""

    slopes: float  # ‖g_w / √λ‖
    penalised: float  # ‖λ w‖
    intercepts: Vector  # g_b
    root: float  # the smallest √λ


def _sizes(facts: GapFacts, value: float, x: Vector, gradient: Vector) -> _Sizes | None:
    """None where value or gradient is not finite."""
    weights = gradient.size - (0 if facts.intercepts is None else len(facts.intercepts))
    g_w, g_b, strengths = gradient[:weights], gradient[weights:], facts.strengths
    if not (math.isfinite(value) and all_finite(gradient)):
        return None
    length = _length(g_w)
    if not isinstance(strengths, np.ndarray):
        root = 0.0 if strengths is None else math.sqrt(max(strengths, 0.0))
        slopes = length / root if root > 0.0 else math.inf
        return _Sizes(slopes, root * root * _length(x[:weights]), g_b, root)
    roots = np.sqrt(strengths)
    return _Sizes(_length(g_w / roots), _length(strengths * x[:weights]), g_b, float(np.min(roots)))


def _crossed(
    facts: GapFacts, intercepts: Matrix, product: Callable[[Vector], Vector], sizes: _Sizes, size: int
) -> float:
    """‖(1/N) Σ s_i (∇²φ_i t) x_iᵀ‖ at most, by a product with the Hessian."""
    found = _moved(intercepts, sizes.intercepts, _UNITS * (facts.slope + facts.curved * facts.reach))
    if found.t is None:
        return math.inf
    along = np.zeros(size)
    along[-len(found.t) :] = found.t
    crossed = _length(product(along)[: -len(found.t)])
    found_at_most = crossed + (found.error + _DIGITS * found.length) * facts.curved * math.sqrt(facts.spread)
    return found_at_most if math.isfinite(found_at_most) else math.inf


def _bound(facts: GapFacts, sizes: _Sizes, value: float, crossed: float = math.inf) -> float:
    # A value that rounding has brought below what it is at least says nothing.
    known = value - facts.lowest if -math.inf < facts.lowest <= value else math.nan
    if not sizes.root > 0.0:
        return known
    per_row = facts.slope + facts.curved * facts.reach
    shift = length = 0.0
    if facts.intercepts is not None:
        shift, length = _moved(facts.intercepts, sizes.intercepts, _UNITS * per_row)[:2]
    follows = facts.intercepts is not None or facts.along > 0.0
    if follows and not (math.isfinite(shift + facts.along) and facts.steady(length)):
        return known
    shift = (math.sqrt(shift) + facts.along) ** 2
    # Errors of slopes are the same in all sums, and so of centred rows; those of the sums themselves are not.
    slopes, sums = facts.curved * facts.reach * math.sqrt(facts.spread), facts.slope * math.sqrt(facts.rows)
    rounding = _UNITS * (slopes + sums + sizes.penalised)
    moved = min(length * facts.curved * math.sqrt(facts.spread), crossed) + rounding
    residual = sizes.slopes + moved / sizes.root
    if not math.isfinite(residual):
        return known
    return float(min(shift + 0.5 * residual * residual, math.inf if math.isnan(known) else known))


def _length(v: Vector) -> float:
    return math.sqrt(dot(v, v))


class _Moved(NamedTuple):
    """Upper bounds of tᵀHt and ‖t‖, t itself, and how far it may be wrong."""

    shift: float
    length: float
    t: Vector | None = None
    error: float = 0.0


def _moved(H: Matrix, g_b: Vector, error: float) -> _Moved:
    """Of t with Ht = g_b, where each entry of g_b may be wrong by ``error``."""
    K = len(g_b)
    if K == 1:
        curvature, size = float(H[0, 0]), abs(float(g_b[0])) + error
        if not 0.0 < curvature < math.inf:
            return _Moved(math.inf, math.inf)
        return _Moved(size * (size / curvature), size / curvature, g_b / curvature, error / curvature)
    # Softmax does not see what all intercepts have in common: g_b has none of it.
    H, g_b = H + np.trace(H) / K, g_b - g_b.mean()
    if not np.isfinite(H).all():
        return _Moved(math.inf, math.inf)
    curvatures, directions = np.linalg.eigh(H)
    known, wrong = directions.T @ g_b, error * math.sqrt(K)
    along = np.abs(known) + wrong
    if not curvatures[0] > 0.0:
        return _Moved(math.inf, math.inf)
    t, exact = along / curvatures, directions @ (known / curvatures)
    return _Moved(float(along @ t), float(np.linalg.norm(t)), exact, wrong / float(curvatures[0]))


# --------------------------------------------------------------------------------------------- what linear models know


def linear_facts(
    problem: Any,
    x: Vector,
    value: float,
    intercepts: Matrix,
    steady: Any,
    curved: float | None = None,
    slope: float | None = None,
    squares: Callable[[], Vector] | None = None,
    product: Callable[[Vector], Vector] | None = None,
) -> GapFacts | None:
    """What is known of a linear model from the numbers that it keeps of its rows.

    ``squares`` finds the mean squares of the columns: units that differ make a reach by the rows' lengths a crude one.
    ``product`` multiplies by the losses' Hessian: between weights and intercepts much cancels in its sums.
    """
    bound = curvature_bound(problem.loss)
    if bend_of(problem.loss) is None or (bound is None and (curved is None or slope is None)):
        return None
    weights = problem.n_features * problem.n_outputs
    rows = max(problem.mean_squared_row - float(problem.intercept), 0.0)
    shift = max(map(abs, x[weights:].tolist()), default=0.0)

    def closer() -> float:
        assert squares is not None
        return dot(np.sqrt(squares()), np.abs(x[:weights].reshape(-1, problem.n_outputs)).max(axis=1)) + shift

    return GapFacts(
        least_curvature(problem.regularizer, weights),
        intercepts if problem.intercept else None,
        rows,
        rows,
        # φ'² ≤ 2Bφ for losses that are not negative.
        math.sqrt(2.0 * (bound or 0.0) * max(value, 0.0)) if slope is None else slope,
        math.sqrt((bound or 0.0) * float(np.trace(intercepts))) if curved is None else curved,
        steady,
        math.sqrt(rows) * _length(x[:weights]) + shift,
        lowest_value(problem.loss, problem.regularizer, weights),
        None if squares is None else closer,
        product,
    )


def between_outputs(products: Matrix) -> Matrix:
    """A sum of diag(π) − ππᵀ from that of ππᵀ: π adds up to one, so that nothing need be subtracted."""
    found = -products
    np.fill_diagonal(found, 0.0)
    np.fill_diagonal(found, -found.sum(axis=1))
    return found


def lowest_value(loss: Any, regularizer: Any, weights: int) -> float:
    """The losses and penalties of the package are not negative; of others nothing is known."""
    return 0.0 if type(loss) in BENDS and least_curvature(regularizer, weights) is not None else -math.inf


def stays_steady(loss: Any, margins: Vector, labels: Vector, weights: Vector, t: float) -> bool:
    """Whether the curvatures stay above their half where each slope moves by t times its row's curvature."""
    if bend_of(loss) != math.inf:
        return steady_by_bend(loss, t)
    gaps = 1.0 - margins * labels  # a squared hinge
    active = gaps > 0.0 if not weights.size else (gaps > 0.0) & (weights > 0.0)
    return bool((gaps[active] > abs(t)).all())


def steady_by_bend(loss: Any, t: float) -> bool:
    """The same from the loss alone."""
    bend = bend_of(loss)
    return bend is not None and bend * abs(t) <= 0.5


def softmax_stays_steady(length: float) -> bool:
    """Whether probabilities stay positive, and curvatures above their half, where slopes move along such a t."""
    return 2.0 * length <= 0.5
