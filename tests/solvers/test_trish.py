"""TRish: the three cases of the radius meet, and the steps are NumPy's."""

from __future__ import annotations

import loops
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import trsvr
from trsvr._draws import generator
from trsvr.parts import TRishRadius

START = np.array([0.5, -0.5, 0.3, 0.1, -0.2, 0.4])
B = 25

numbers = st.floats(1e-6, 1e6)


@st.composite
def rules(draw):
    gamma2 = draw(st.floats(1e-4, 1e4))
    return TRishRadius(draw(numbers), gamma2 * draw(st.floats(1.001, 1e4)), gamma2)


@given(rules())
def test_the_radius_is_continuous_where_its_cases_meet(rule):
    for place in (1.0 / rule.gamma1, 1.0 / rule.gamma2):
        around = [rule.radius_for(place * (1.0 + shift)) for shift in (-1e-9, 0.0, 1e-9)]
        assert_allclose(around, rule.alpha, rtol=2e-9)


@given(rules(), numbers)
def test_the_radius_is_its_three_cases(rule, norm):
    alpha, gamma1, gamma2 = rule
    if norm < 1 / gamma1:
        expected = gamma1 * alpha * norm
    elif norm <= 1 / gamma2:
        expected = alpha
    else:
        expected = gamma2 * alpha * norm
    assert rule.radius_for(norm) == pytest.approx(expected, rel=1e-12)
    assert rule.radius_for(norm) <= rule.radius_for(norm * 1.5), "a larger gradient never has a smaller radius"


def numpy_trish(oracle, x, rule, batches):
    for batch in batches:
        g = oracle.gradient(x, batch)
        x = x - rule.radius_for(np.linalg.norm(g)) * g / np.linalg.norm(g)
    return x


@pytest.mark.parametrize("gammas", [(4.0, 0.5), (1e-1, 1e-2), (500.0, 100.0), (4.0, 3.9)])
def test_without_curvature_it_is_a_loop_in_numpy(convex, gammas):
    """Small, middle and large gradients: γ₁α‖g‖, α and γ₂α‖g‖."""
    problem, oracle = convex
    solver = trsvr.TRish(0.05, *gammas, batch_size=B, hessian="none")
    x = START
    for epoch in range(2):
        x = numpy_trish(oracle, x, TRishRadius(0.05, *gammas), generator(4, epoch).integers(400, size=(16, B)))
    assert_allclose(loops.last_iterate(problem, solver, START, 2, 4), x, atol=1e-12)


@pytest.mark.parametrize("hessian", ["estimated", "exact", "identity", "none"])
def test_it_comes_near_the_minimum_and_stays_away_from_it(convex, hessian):
    """Plain gradients keep their variance, so it stagnates: that is what the paper's ablation shows."""
    problem, oracle = convex
    if hessian in ("exact", "identity"):
        problem = loops.plain(oracle)  # saves compiling
    best = scipy.optimize.minimize(oracle.value, np.zeros(6), jac=oracle.gradient, tol=1e-12).fun
    trace = trsvr.minimize(problem, trsvr.TRish(hessian=hessian, batch_size=B), max_epochs=40, tol=None).trace
    gaps = trace["value"].to_numpy() - best
    assert gaps[20:].max() < 0.1 * gaps[0]
    assert np.median(gaps[20:]) > 1e-7
    products = 0 if hessian in ("identity", "none") else trace["hessian_products"]
    assert (trace["gradient_evaluations"] == (trace["epoch"] * 16 + products) * B).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trsvr.TRish(gamma1=0.5, gamma2=0.5), "gamma1 must be larger than gamma2, got 0.5 and 0.5"),
        (lambda: trsvr.TRish(alpha=-1.0), "alpha must be a finite number > 0"),
        (lambda: trsvr.TRish(hessian="exakt"), "hessian must be one of .* did you mean 'exact'"),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
