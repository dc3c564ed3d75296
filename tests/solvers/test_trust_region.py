"""The classic trust region: SciPy's minimiser, acceptance, the radius, and what it counts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import trsvr
from trsvr.parts import EstimatedHessian, ExactHessian, FullGradient, RatioTest, SteihaugCG
from trsvr.problems import FunctionProblem

START = np.array([0.5, -0.5, 0.3, 0.1, -0.2, 0.4])


@pytest.mark.parametrize("hessian", ["exact", "estimated"])
def test_it_reaches_the_minimiser_of_scipys_trust_ncg(convex, hessian):
    problem, oracle = convex
    known = scipy.optimize.minimize(
        oracle.value, START, jac=oracle.gradient, hess=oracle.hessian, method="trust-ncg", options={"gtol": 1e-9}
    )
    result = trsvr.minimize(problem, trsvr.TrustRegion(hessian=hessian), x0=START, tol=1e-9)
    assert result.status is trsvr.Status.CONVERGED
    assert result.epochs < 30
    assert_allclose(result.x, known.x, atol=1e-7)
    assert result.value == pytest.approx(known.fun, rel=1e-14)


def test_it_leaves_a_saddle_for_a_minimum(nonconvex):
    problem, oracle = nonconvex
    start = 0.02 * START
    assert np.linalg.eigvalsh(oracle.hessian(start))[0] < 0
    result = trsvr.minimize(problem, trsvr.TrustRegion(), x0=start)
    assert result.success
    assert result.trace["negative_curvature"].sum() > 0
    assert np.linalg.eigvalsh(oracle.hessian(result.x))[0] > 0
    assert (np.diff(result.trace["value"]) <= 0).all()


def rosenbrock(product=True):
    """Two components: (1 − a)² and 100 (b − a²)², each twice, so that the mean is Rosenbrock's function."""
    options = scipy.optimize
    return FunctionProblem(
        1,
        2,
        lambda x, i: options.rosen_der(x),
        lambda x, i: options.rosen(x),
        (lambda x, i, v: options.rosen_hess_prod(x, v)) if product else None,
    )


def test_steps_that_raise_the_value_are_refused_and_shrink_the_radius():
    solver = trsvr.TrustRegion(initial_radius=2.0)
    result = trsvr.minimize(rosenbrock(), solver, x0=[-1.2, 1.0], tol=1e-9)
    assert result.success
    assert_allclose(result.x, [1.0, 1.0], atol=1e-8)
    trace = result.trace
    refused = trace["rejected"][1:].to_numpy() == 1
    assert refused.any()
    values = trace["value"].to_numpy()
    assert (values[1:][refused] == values[:-1][refused]).all(), "a refused step leaves x where it was"
    assert (np.diff(values)[~refused] < 0).all()
    radius = trace["radius"].to_numpy()[1:]
    assert (radius[1:][refused[:-1]] == radius[:-1][refused[:-1]] / 4).all()
    ratios = radius[1:] / radius[:-1]
    assert np.isin(ratios, [0.25, 1.0, 2.0]).all()


def test_the_radius_has_a_ceiling():
    trace = trsvr.minimize(rosenbrock(), trsvr.TrustRegion(0.1, max_radius=0.15), x0=[-1.2, 1.0], max_epochs=10).trace
    assert trace["radius"].max() == 0.15


def test_counting(convex):
    """An iteration is a value and gradient at the trial point, N, and N a product."""
    problem, _ = convex
    for hessian in ("exact", "estimated"):
        result = trsvr.minimize(problem, trsvr.TrustRegion(hessian=hessian), max_epochs=5, tol=None)
        trace = result.trace
        assert (trace["passes"][1:] == 1 + trace["epoch"][1:] + trace["hessian_products"][1:]).all()
        assert (np.diff(trace["hessian_products"]) == trace["cg_iterations"][1:]).all()


def test_the_same_from_parts(convex):
    problem, _ = convex
    for curvature, hessian in ((ExactHessian(), "exact"), (EstimatedHessian(), "estimated")):
        parts = trsvr.TrustRegionMethod(
            gradient=FullGradient(), curvature=curvature, radius=RatioTest(0.3), subproblem=SteihaugCG(7)
        )
        preset = trsvr.TrustRegion(0.3, hessian=hessian, max_cg=7)
        results = [trsvr.minimize(problem, solver, max_epochs=6, tol=None) for solver in (parts, preset)]
        assert (results[0].x == results[1].x).all()
        assert (results[0].trace["radius"][1:] == results[1].trace["radius"][1:]).all()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: trsvr.TrustRegion(initial_radius=2.0, max_radius=1.0), "max_radius must be at least initial_radius"),
        (lambda: trsvr.TrustRegion(eta=0.25), "eta must be a number from 0 to below 0.25"),
        (lambda: trsvr.TrustRegion(hessian="identity"), "hessian must be one of 'auto', 'exact', 'estimated'"),
        (
            lambda: trsvr.minimize(FunctionProblem(3, 2, lambda x, i: x), trsvr.TrustRegion()),
            "TrustRegion compares function values: give the FunctionProblem a value function",
        ),
        (
            lambda: trsvr.minimize(rosenbrock(product=False), trsvr.TrustRegion(hessian="exact")),
            "hessian 'exact' needs a problem with hessian_product, which FunctionProblem has not; 'estimated' works",
        ),
    ],
)
def test_refused(run, message):
    with pytest.raises(ValueError, match=message):
        run()


@pytest.mark.parametrize("hessian", ["auto", "estimated"])
def test_estimated_products_need_no_formula(hessian):
    solver = trsvr.TrustRegion(hessian=hessian)
    result = trsvr.minimize(rosenbrock(product=False), solver, x0=[-1.2, 1.0], tol=1e-8)
    assert result.success
    assert_allclose(result.x, [1.0, 1.0], atol=1e-7)
