"""Constants of a problem: how fast gradients may change, and how slowly.

For a linear model, f_i(x) = weight_i · loss(z_i, y_i) + r(w) with z_i = x_iᵀw (+ intercept). With c the supremum of
the loss's curvature and ρ_i = weight_i (‖x_i‖² + 1 if there is an intercept):

    L_i   = c ρ_i + sup r″                              every component
    L_max = c max_i ρ_i + sup r″
    L     = λ_max( c/N Σ weight_i x_i x_iᵀ + sup r″ · I )     their mean, by Lanczos iteration on the data
    μ     = inf r″,  0 with an intercept, which nobody penalises

The double well's r″ grows without end, so sup r″ is taken over the box |w_j| ≤ radius. Where r″ can be negative, L_i
and L are at least −inf r″.

Are these suprema or only bounds? L_max and L are the suprema for `Logistic`, `SquaredHinge` and `Squared` with `L2`
alone: all margins are zero at x = 0, where these losses have their largest curvature. (With an intercept L_max is an
upper bound, too large by at most the L2 strength; L is still exact.) With a double well, with `PseudoHuber` and, for L,
with `Softmax` of more than two classes they are upper bounds: the largest curvatures need not meet at one x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Vector
from trsvr._vectors import dot
from trsvr.problems.base import as_problem, hessian_at
from trsvr.problems.losses import Squared, curvature_bound
from trsvr.problems.regularizers import L2, DoubleWell, Sum

_HESSIANS = ("identity", "estimated", "exact")
_EIGENVALUE_TOLERANCE = 1e-6
_LANCZOS_STEPS = 300


def component_smoothness(problem: Any, *, radius: float | None = None) -> float:
    """L_max: the largest Lipschitz constant of a component's gradient ∇f_i.

    Parameters
    ----------
    problem : LinearModel
    radius : float, optional
        All |w_j| are at most this; needed with a double well, see `sublevel_radius`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        For problems whose components are not known, such as `FunctionProblem`, and for a double well without a radius.
    """
    bound, (low, high) = _loss_bound(problem), _penalty_range(problem, radius)
    return max(bound * float(problem.largest_squared_row) + high, -low)


def smoothness(problem: Any, *, radius: float | None = None) -> float:
    """L: the Lipschitz constant of ∇f, by Lanczos iteration on the data; no d × d matrix is made.

    Parameters
    ----------
    problem : LinearModel
    radius : float, optional
        All |w_j| are at most this; needed with a double well.

    Returns
    -------
    float
        Accurate to about six digits. Some dozens of passes over the data.

    Raises
    ------
    ValueError
        For problems that are not linear models; `local_smoothness` takes any problem.
    """
    bound, (low, high) = _loss_bound(problem), _penalty_range(problem, radius)
    # The Hessian of ½(z − y)² with one output is XᵀX/N: products with that come from the compiled, threaded passes, for
    # any kind of rows and without a copy of them.
    data = problem.with_formulas(Squared(), L2(0.0))
    origin = np.zeros(data.n_parameters)
    penalty = np.full(data.n_parameters, high)
    if problem.intercept:
        penalty[-1] = 0.0

    def product(v: Vector) -> Vector:
        return bound * data.hessian_product(origin, None, v) + penalty * v

    return max(_largest_eigenvalue(product, data.n_parameters, "LA"), -low)


def local_smoothness(problem: Any, x: Any) -> float:
    """Largest |eigenvalue| of ∇²f(x), for any problem: what L is *here*, a lower bound of what it is everywhere.

    Parameters
    ----------
    problem : FiniteSum
        Its ``hessian_product`` is used, or differences of full gradients where it has none.
    x : array
        The point.
    """
    point = _check.vector("x", x, problem.n_parameters)
    return abs(_largest_eigenvalue(hessian_at(as_problem(problem), point), point.size, "LM"))


def lowest_curvature(problem: Any) -> float:
    """A number that no eigenvalue of any ∇²f_i lies below: inf r″, since the losses are convex.

    Positive: f is strongly convex. Zero: convex. Negative: f may be nonconvex, which only a double well can bring
    about. With an intercept it is never positive: nobody penalises it, and far out the losses have no curvature.
    """
    _loss_bound(problem)
    low, _ = _penalty_range(problem, radius=0.0)
    return min(low, 0.0) if problem.intercept else low


def strong_convexity(problem: Any) -> float:
    """μ, or 0 where there is none: `lowest_curvature` without its negative part.

    The L2 strength; less 4·gamma·a²/d with a double well; 0 with an unpenalised intercept. A lower bound for `Squared`,
    whose data may add curvature of their own.
    """
    return max(0.0, lowest_curvature(problem))


def hessian_bound(problem: Any, hessian: str = "estimated", *, radius: float | None = None) -> float:
    """κ_H: a bound of ‖H‖ for a method's curvature.

    Parameters
    ----------
    problem : LinearModel
    hessian : {"estimated", "exact", "identity"}
        1 for the identity. L_max for the others: H is a mean of ∇²f_i over a batch, which may consist of the worst row
        alone; a difference of gradients over h‖v‖ is no longer than L_max, up to rounding.
    radius : float, optional
        As for `component_smoothness`.
    """
    if _check.one_of("hessian", hessian, _HESSIANS) == "identity":
        return 1.0
    return component_smoothness(problem, radius=radius)


def expected_smoothness(
    problem: Any, batch_size: int, *, replacement: bool = True, radius: float | None = None
) -> float:
    """𝓛_b: what takes L_max's place when gradients are means over batches of b rows; convex components.

    Parameters
    ----------
    problem : LinearModel
    batch_size : int
        b, from 1 to N.
    replacement : bool
        Whether rows are drawn with replacement, as the solvers here do.
    radius : float, optional
        As for `component_smoothness`.

    Returns
    -------
    float
        L_max for b = 1; near L for large b.

    Notes
    -----
    Expected smoothness is E‖∇f_B(x) − ∇f_B(y)‖² ≤ 2𝓛_b (f(x) − f(y) − ∇f(y)ᵀ(x − y)). Without replacement (Gower et al.
    2019, "SGD: general analysis and improved rates", Proposition 3.8; Sebbouh et al. 2019)

        𝓛_b = n(b−1)/(b(n−1)) · L + (n−b)/(b(n−1)) · L_max.

    With replacement the mean square of a batch mean is (1/b) E‖u_i‖² + (1 − 1/b)‖E u_i‖² for u_i = ∇f_i(x) − ∇f_i(y),
    hence 𝓛_b = (1 − 1/b) L + L_max / b: the limit of the former for n → ∞.
    """
    n = problem.n_samples
    b = _check.whole("batch_size", batch_size, at_most=n)
    largest = component_smoothness(problem, radius=radius)
    if b == 1:
        return largest
    mean = smoothness(problem, radius=radius)
    if replacement:
        return (1.0 - 1.0 / b) * mean + largest / b
    return (n * (b - 1) * mean + (n - b) * largest) / (b * (n - 1))


def sublevel_radius(problem: Any, value: float) -> float:
    """A radius such that f(x) ≤ value implies |w_j| ≤ radius for every weight.

    No loss is negative, so r(w_j) ≤ value for each coordinate: (l2/2) w² ≤ value, and (gamma/d)(w² − a²)² ≤ value.
    Infinite without a regulariser. Steps of a stochastic method may leave the level set of its starting point; this
    is the natural radius for the constants, not a proof that iterates stay inside.

    Parameters
    ----------
    problem : LinearModel
    value : float
        Such as the value at the starting point.
    """
    value = _check.positive("value", value, zero=True)
    _loss_bound(problem)
    d, largest_square = _penalised(problem), np.inf
    for part in _parts(problem.regularizer):
        if isinstance(part, L2) and np.min(part.strength) > 0.0:
            largest_square = min(largest_square, 2.0 * value / float(np.min(part.strength)))
        elif isinstance(part, DoubleWell) and part.gamma > 0.0:
            largest_square = min(largest_square, part.a**2 + float(np.sqrt(d * value / part.gamma)))
    return float(np.sqrt(largest_square))


def natural_radius(problem: Any) -> float | None:
    """`sublevel_radius` at f(0) where a double well needs one, else None."""
    _loss_bound(problem)
    if not _has_double_well(problem):
        return None
    return sublevel_radius(problem, problem.value_and_gradient(np.zeros(problem.n_parameters))[0])


@dataclass(frozen=True)
class Constants:
    """The constants of a problem in one place.

    Attributes
    ----------
    n_samples, n_parameters : int
    smoothness, component_smoothness : float
        L and L_max.
    mean_smoothness : float
        Mean of L_i.
    lowest_curvature, strong_convexity : float
        inf r″, and its positive part μ.
    radius : float or None
        The box |w_j| ≤ radius in which they hold; None: everywhere.
    """

    n_samples: int
    n_parameters: int
    smoothness: float
    component_smoothness: float
    mean_smoothness: float
    lowest_curvature: float
    strong_convexity: float
    radius: float | None

    @property
    def condition_number(self) -> float:
        """L/μ, infinite for μ = 0."""
        return self.smoothness / self.strong_convexity if self.strong_convexity > 0.0 else float("inf")


def constants(problem: Any, *, radius: float | None = None) -> Constants:
    """All constants of a problem.

    Parameters
    ----------
    problem : LinearModel
    radius : float, optional
        All |w_j| are at most this; with a double well the default is `sublevel_radius` at f(0).
    """
    bound = _loss_bound(problem)
    radius = natural_radius(problem) if radius is None else radius
    low, high = _penalty_range(problem, radius)
    return Constants(
        n_samples=problem.n_samples,
        n_parameters=problem.n_parameters,
        smoothness=smoothness(problem, radius=radius),
        component_smoothness=component_smoothness(problem, radius=radius),
        mean_smoothness=max(bound * float(problem.mean_squared_row) + high, -low),
        lowest_curvature=lowest_curvature(problem),
        strong_convexity=strong_convexity(problem),
        radius=radius if _has_double_well(problem) else None,
    )


# ------------------------------------------------------------------------------------------ what stands behind


def _loss_bound(problem: Any) -> float:
    """The supremum of the loss's curvature, or an error that says what is missing."""
    if as_problem(problem).largest_squared_row is None:
        raise ValueError(
            f"problem must be a linear model (trsvr.problems.LinearModel): the components of {type(problem).__name__} "
            "are unknown functions, and so are their Lipschitz constants; give step sizes yourself, or look at "
            "trsvr.theory.local_smoothness"
        )
    bound = curvature_bound(problem.loss)
    if bound is None:
        raise ValueError(
            f"the loss {type(problem.loss).__name__} has no curvature_bound, a supremum of its second derivative: "
            "without one there is no Lipschitz constant"
        )
    return _check.positive("curvature_bound of the loss", bound, zero=True)


def _parts(regularizer: Any) -> list[Any]:
    """The terms of a sum of regularisers."""
    if isinstance(regularizer, Sum):
        return _parts(regularizer.first) + _parts(regularizer.second)
    return [regularizer]


def _has_double_well(problem: Any) -> bool:
    return any(isinstance(part, DoubleWell) and part.gamma > 0.0 for part in _parts(problem.regularizer))


def _penalised(problem: Any) -> int:
    """Number of penalised coordinates, the d of the double well."""
    return int(problem.n_features * problem.n_outputs)


def _penalty_range(problem: Any, radius: float | None) -> tuple[float, float]:
    """Infimum and supremum of r″ over |w| ≤ radius."""
    d, low, high = _penalised(problem), 0.0, 0.0
    for part in _parts(problem.regularizer):
        if isinstance(part, L2):
            low, high = low + float(np.min(part.strength)), high + float(np.max(part.strength))
        elif isinstance(part, DoubleWell):
            if part.gamma == 0.0:
                continue
            if radius is None:
                raise ValueError(
                    "radius must be given: the gradient of a double well has no Lipschitz constant on the whole space, "
                    "only where all |w_j| <= radius (trsvr.theory.sublevel_radius proposes one)"
                )
            # r″ = (4γ/d)(3w² − a²) is smallest at 0 and largest at the edge
            low += part.curvature(0.0, d)
            high += part.curvature(_check.positive("radius", radius, zero=True), d)
        else:
            raise ValueError(
                f"regularizer must be L2, DoubleWell or a sum of them, got {type(part).__name__}: "
                "the range of its curvature is not known"
            )
    return low, high


def _largest_eigenvalue(product: Callable[[Vector], Vector], size: int, which: str) -> float:
    """Largest eigenvalue ("LA") or the one of largest modulus ("LM") of a symmetric operator, by Lanczos iteration.

    ARPACK would begin anew with random numbers of its own wherever a Krylov space ends early, and give other bits in
    every run. An extreme eigenvalue needs no orthogonalisation: what is lost are copies of it (Paige 1980).
    """
    from scipy.linalg import eigh_tridiagonal  # takes long, and few need it

    before, v = np.zeros(size), np.random.default_rng(0).normal(size=size)
    v /= math.sqrt(dot(v, v))
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        w = np.array(product(v), dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # of columns that are too large; the answer is NaN then
            if beside:
                w -= beside[-1] * before
            diagonal.append(dot(v, w))
            w -= diagonal[-1] * v
        coupling = math.sqrt(dot(w, w))
        if not math.isfinite(coupling):
            return math.nan
        values, vectors = eigh_tridiagonal(diagonal, beside)
        found = int(np.argmax(values if which == "LA" else np.abs(values)))
        largest = float(values[found])
        residual = coupling * abs(vectors[-1, found])
        if residual <= _EIGENVALUE_TOLERANCE * abs(largest) or len(diagonal) == _LANCZOS_STEPS:
            return largest
        beside.append(coupling)
        before, v = v, w / coupling
