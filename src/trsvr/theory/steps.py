"""Step sizes that the methods' own theory recommends, from L_max (and, for batches, from L)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import ROOT_EPSILON, Vector
from trsvr.theory.constants import (
    component_smoothness,
    expected_smoothness,
    local_smoothness,
    natural_radius,
    strong_convexity,
)

_METHODS = ("svrg", "sarah", "saga")
# Components of a problem without formulas that are looked at, products for each, and the factor for all the others.
_LOOKED_AT, _PRODUCTS, _SAFETY = 32, 5, 2.0
# Curvature that grows by more than this along one step down the gradient is not known from where it began.
_GROWS = 10.0


def recommended_step(
    problem: Any, method: str, *, batch_size: int = 1, radius: float | None = None, x: Any = None
) -> float:
    """A step size that is safe by theory and usable in practice.

    Parameters
    ----------
    problem : FiniteSum
        For a `LinearModel` the constants are known; for others they are estimated, see the notes.
    method : {"svrg", "sarah", "saga"}
    batch_size : int
        b, rows per step, drawn with replacement. One row is answered from L_max alone; for more, L is computed too.
    radius : float, optional
        All |w_j| are at most this; with a double well the default is `sublevel_radius` at f(0).
    x : array, optional
        Where the curvature of a problem without formulas is looked at; default zeros.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there is no curvature to derive a step from, or it has no bound near x.

    Notes
    -----
    The theory is that of convex components. With 𝓛 the `expected_smoothness` of batches of b rows and ℓ = L_max/b, the
    share of it that is noise:

    - SVRG, 1/(2(𝓛 + 2ℓ)): Sebbouh et al. 2019 ("Towards closing the gap between the theory and practice of SVRG"), for
      inner loops of any length. For b = 1 this is 1/(6 L_max), also the step of loopless SVRG, whose reference is an
      iterate as ours is (Kovalev et al. 2020). Johnson & Zhang 2013 want less than 1/(4 L_max) and inner loops of many
      L_max/μ steps; Xiao & Zhang 2014 propose 0.1/L_max for that analysis.
    - SARAH, 1/(2𝓛): Nguyen et al. 2017 prove convergence of the inner loop for steps below 2/L and of the outer for
      steps below 1/L, and recommend 1/(2L), L being L_max. Their proof uses co-coercivity of ∇f_i within an
      expectation, where a batch satisfies it with 𝓛.
    - SAGA, 1/(2 L_max + min(2Nμ, L_max)): Defazio et al. 2014 have 1/(3 L_max), which adapts to μ by itself, and
      1/(2(L_max + Nμ)); this takes the larger, as scikit-learn does. For batches, if larger, 1/(4 max(𝓛, ℓ + Nμ/(4b))),
      Gazagnadou et al. 2019 ("Optimal mini-batch and step sizes for SAGA").

    Where the components are the user's own functions, or a loss does not tell its ``curvature_bound``, L_max is taken
    to be twice the largest curvature of 32 random components at x, L twice that of f there, and μ zero: a usable
    default and not a guarantee. Where these curvatures grow tenfold along a step down the gradient, as those of an
    exponential do, no number is returned: a step must be given.
    """
    method = _check.one_of("method", method, _METHODS)
    n = problem.n_samples
    b = _check.whole("batch_size", batch_size, at_most=n)
    if _has_formulas(problem):
        radius = natural_radius(problem) if radius is None else radius
        largest, mu = component_smoothness(problem, radius=radius), strong_convexity(problem)
        expected = expected_smoothness(problem, b, radius=radius)
    else:
        point = np.zeros(problem.n_parameters) if x is None else _check.vector("x", x, problem.n_parameters)
        largest, mu = _SAFETY * _largest_local_curvature(problem, point), 0.0
        _refuse_growing_curvature(problem, point, largest)
        mean = float(np.minimum(largest, _SAFETY * local_smoothness(problem, point))) if b > 1 else largest
        expected = (1.0 - 1.0 / b) * mean + largest / b
    if not (0.0 < largest < math.inf and expected < math.inf):
        raise ValueError(
            "problem has no curvature, or one that is not finite, from which a step size could be derived; "
            "give a number, such as step=0.1"
        )
    noise = largest / b
    if method == "svrg":
        return 1.0 / (2.0 * (expected + 2.0 * noise))
    if method == "sarah":
        return 1.0 / (2.0 * expected)
    single = 1.0 / (2.0 * largest + min(2.0 * n * mu, largest))
    return max(single, 1.0 / (4.0 * max(expected, noise + n * mu / (4.0 * b))))


def _has_formulas(problem: Any) -> bool:
    """Whether the constants of the components are known; a loss or regulariser from outside may not tell them."""
    try:
        component_smoothness(problem, radius=0.0)
    except ValueError:
        return False
    return True


def _refuse_growing_curvature(problem: Any, x: Vector, largest: float) -> None:
    """Look at the components once more, a step down the gradient further."""
    if not 0.0 < largest < math.inf:
        return
    gradient = np.asarray(problem.value_and_gradient(x)[1], dtype=np.float64)
    length = float(np.linalg.norm(gradient))
    if not 0.0 < length < math.inf:
        return
    down = x - gradient / max(local_smoothness(problem, x), length * ROOT_EPSILON)
    there = _SAFETY * _largest_local_curvature(problem, down)
    if not there <= _GROWS * largest:
        raise ValueError(
            f"problem has a curvature that grows from {largest / _SAFETY:.2g} to {there / _SAFETY:.2g} along one step: "
            "no step size can be derived from it; give a number, such as step=1e-3, or take TRSVR or LBFGS"
        )


def _largest_local_curvature(problem: Any, x: Vector) -> float:
    """Largest ‖∇²f_i(x)‖ of some components, by power iteration on differences of their gradients."""
    random = np.random.default_rng(0)
    h = ROOT_EPSILON * (1.0 + float(np.linalg.norm(x)))
    largest = 0.0
    for i in random.choice(problem.n_samples, min(problem.n_samples, _LOOKED_AT), replace=False):
        component = np.array([i])
        here = np.array(problem.batch_gradient(x, component), dtype=np.float64)
        direction = random.standard_normal(x.size)
        for _ in range(_PRODUCTS):
            direction /= np.linalg.norm(direction)
            direction = (np.asarray(problem.batch_gradient(x + h * direction, component)) - here) / h
            curvature = float(np.linalg.norm(direction))
            largest = max(largest, curvature)
            if not 0.0 < curvature < math.inf:
                break
    return largest
