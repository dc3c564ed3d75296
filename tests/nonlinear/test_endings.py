"""Problems made of functions end truly: domains, saddle points, units, and the step at negative curvature."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from certified import regression
from numpy.testing import assert_allclose

import trsvr
from cases import cases
from trsvr.parts.norms import IdentityNorm
from trsvr.parts.subproblems import preconditioned_cg
from trsvr.problems import FunctionProblem
from trsvr.problems.base import hessian_at

SOLVERS = [trsvr.TRSVR(), trsvr.TrustRegion()]


def single(value, gradient, d, product=None):
    products = None if product is None else lambda x, i, v: product(x, v)
    return FunctionProblem(1, d, lambda x, i: gradient(x), lambda x, i: value(x), products)


@pytest.mark.parametrize("solver", SOLVERS, ids=["adaptive", "classic"])
def test_a_trial_point_outside_the_domain_is_refused_and_zero_may_be_outside(solver):
    def value(x):
        with np.errstate(all="ignore"):
            return float(np.sum(x - 3.0 * np.log(x)))

    problem = single(value, lambda x: 1.0 - 3.0 / x, 2)
    result = trsvr.minimize(problem, solver, x0=[0.01, 40.0], max_epochs=300)
    assert result.success, result.message
    assert_allclose(result.x, 3.0, rtol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS, ids=["adaptive", "classic"])
@pytest.mark.parametrize("start", [[0.0, 0.0], [2.0, 0.0]], ids=["at it", "along its stable side"])
@pytest.mark.parametrize("with_products", [True, False])
def test_a_saddle_point_is_left(solver, start, with_products):
    """x² − y²/2 + y⁴/4: a saddle at zero, minima at y = ±1."""
    problem = single(
        lambda x: x[0] ** 2 - 0.5 * x[1] ** 2 + 0.25 * x[1] ** 4,
        lambda x: np.array([2.0 * x[0], x[1] ** 3 - x[1]]),
        2,
        (lambda x, v: np.array([2.0 * v[0], (3.0 * x[1] ** 2 - 1.0) * v[1]])) if with_products else None,
    )
    result = trsvr.minimize(problem, solver, x0=start)
    assert result.success, result.message
    assert_allclose(np.abs(result.x), [0.0, 1.0], atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS, ids=["adaptive", "classic"])
@pytest.mark.parametrize("with_products", [True, False])
@pytest.mark.parametrize("at_saddle", [100, 40], ids=["of all", "of some"])
def test_a_saddle_point_that_the_gradient_does_not_show_is_left(solver, at_saddle, with_products):
    """Σ (xᵢ² − 1)²/4 in more unknowns than the Hessian is formed for, some of them or all at xᵢ = 0."""
    problem = single(
        lambda x: float(np.sum((x * x - 1.0) ** 2)) / 4.0,
        lambda x: (x * x - 1.0) * x,
        100,
        (lambda x, v: (3.0 * x * x - 1.0) * v) if with_products else None,
    )
    start = np.full(100, 0.3)
    start[:at_saddle] = 0.0
    result = trsvr.minimize(problem, solver, x0=start, max_epochs=300)
    assert result.success, result.message
    assert_allclose(np.abs(result.x), 1.0, atol=1e-4)


def by_functions(known, with_products):
    """A certified regression of which only values, gradients and products are known."""
    n = known.y.size

    def gradient(x, i):
        return known.jacobian(x).T @ known.residuals(x) / n

    def product(x, i, v):
        h = 1e-5 / float(np.abs(v / x).max() or 1.0)
        return (gradient(x + h * v, i) - gradient(x - h * v, i)) / (2.0 * h)

    def value(x, i):
        return 0.5 * float(np.mean(known.residuals(x) ** 2))

    return FunctionProblem(n, known.certified.size, gradient, value, product if with_products else None)


@pytest.mark.parametrize("solver", SOLVERS, ids=["adaptive", "classic"])
@pytest.mark.parametrize("with_products", [True, False])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", ["BoxBOD", "Bennett5", "Kirby2", "MGH10", "Misra1a", "Misra1c", "Thurber"])
def test_what_has_ended_well_is_a_minimum_whatever_the_units(solver, with_products, start, name):
    known = regression(name)
    n, problem = known.y.size, by_functions(known, with_products)
    with np.errstate(all="ignore"):
        result = trsvr.minimize(problem, solver, x0=known.starts[start], max_epochs=300)
        if not result.success:
            return
        for aside in (0.0, 0.001):
            beside = result.x * (1.0 + aside * np.random.default_rng(0).choice([-1.0, 1.0], result.x.size))
            again = scipy.optimize.least_squares(known.residuals, beside, known.jacobian, x_scale="jac")
            assert again.cost / n >= result.value * (1.0 - 1e-8)


def test_a_short_step_down_a_faint_hill_is_no_rounding_floor():
    """MGH17 comes to a plateau that bends down by 1e-8 of its other curvatures: the gradient, and so the radius, is
    tiny there, and the first steps along the hill gain less than the last bit of f."""
    known = regression("MGH17")
    with np.errstate(all="ignore"):
        result = trsvr.minimize(by_functions(known, True), x0=known.starts[0], max_epochs=None, max_passes=4000)
    assert result.status is trsvr.Status.CONVERGED, result.message
    assert_allclose(result.x, known.certified, rtol=1e-6)


def test_an_unknown_far_smaller_than_the_others_has_the_curvature_of_its_own_size():
    """(1e40·a + 1e-5·b)²/2 + (1e40·a)⁴ by a: a step that suits b would see nothing but the fourth power."""

    def gradient(x, i):
        both = 1e40 * x[0] + x[1] * 1e-5
        return np.array([1e40 * both + 4e160 * x[0] ** 3, 1e-5 * both])

    def value(x, i):
        return 0.5 * (1e40 * x[0] + x[1] * 1e-5) ** 2 + (1e40 * x[0]) ** 4

    problem, x = FunctionProblem(1, 2, gradient, value), np.array([1e-40, 1e5])
    seen = hessian_at(problem, x, gradient(x, None), value(x, None))(np.array([1.0, 0.0]))
    assert_allclose(seen, [13e80, 1e35], rtol=1e-4)


@pytest.mark.parametrize("with_products", [True, False])
@pytest.mark.parametrize("d", [4, 40])
def test_without_values_a_small_gradient_is_no_end_where_units_differ(d, with_products):
    """Σ log cosh(s_j x_j), s_j from 1e-9 to 1: the flattest unknown's gradient is small from the first."""
    units = 10.0 ** np.linspace(-9.0, 0.0, d)

    def product(x, i, v):
        return units**2 * v / np.cosh(units * x) ** 2

    problem = FunctionProblem(
        1, d, lambda x, i: units * np.tanh(units * x), hessian_product=product if with_products else None
    )
    result = trsvr.minimize(problem, x0=2.0 / units, max_epochs=1000)
    assert result.status is trsvr.Status.CONVERGED or d > 4
    assert not result.success or np.abs(units * result.x).max() < 1e-5  # of f, a part of 1e-10


def test_at_negative_curvature_the_lower_end_of_the_chord_is_taken():
    """Against both ends, from the vectors: a case in which the farther one is lower."""
    random = np.random.default_rng(0)
    lower = 0
    for _ in cases(300, seed=0):
        Q = np.linalg.qr(random.normal(size=(3, 3)))[0]
        H = (Q * [3.0, 0.5, -2.0]) @ Q.T
        g = Q @ (random.normal(size=3) * [1.0, 1.0, 0.05])
        taken = preconditioned_cg(lambda v, H=H: H @ v, IdentityNorm(), g, 1.5, 1e-10, 50)
        if taken.exit.name != "NEGATIVE_CURVATURE" or taken.products < 2:
            continue
        before = preconditioned_cg(lambda v, H=H: H @ v, IdentityNorm(), g, 1e9, 0.0, taken.products - 1).step
        along = taken.step - before
        # The other end of the same chord.
        t = -2.0 * (before @ along) / (along @ along) - 1.0
        other = before + t * along
        assert_allclose(np.linalg.norm(other), 1.5, rtol=1e-8)

        def model(p, H=H, g=g):
            return g @ p + 0.5 * p @ H @ p

        assert model(taken.step) <= model(other) + 1e-10
        lower += bool(t > 0.0 or abs(t) < 1.0)
    assert lower
