"""Derivatives of f along a step, at its end, against differences of f and of its gradient."""

import numpy as np
import pytest

import trsvr
from trsvr.problems import L2, LinearModel, Logistic, Poisson, PseudoHuber, Softmax, SquaredHinge
from trsvr.problems.curvature import MarginView

LOSSES = (Logistic(), SquaredHinge(), PseudoHuber(0.7), Poisson(), Softmax())


def problem_of(loss, rng, n=60, weighted=True):
    X = rng.normal(size=(n, 4))
    y = {"Poisson": rng.poisson(2.0, n), "PseudoHuber": rng.normal(size=n)}.get(type(loss).__name__)
    y = np.arange(n) % (3 if isinstance(loss, Softmax) else 2) if y is None else y
    weights = rng.integers(0, 3, n) if weighted else None
    return LinearModel(X, y, loss, L2(0.3), intercept=True, sample_weight=weights)


def by_differences(problem, x, step, small=1e-6):
    slopes = [problem.value_and_gradient(x + t * step)[1] @ step for t in (1.0 - small, 1.0, 1.0 + small)]
    return slopes[1], (slopes[2] - slopes[0]) / (2.0 * small)


def check(view, problem, frame, x, step):
    _, gradient = view.evaluate(frame.inside(x))
    slope, curvature, rows = view.line(frame.inside(x), gradient, frame.inside(step))
    assert rows <= view.n_rows
    np.testing.assert_allclose((slope, curvature), by_differences(problem, x, step), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_small_views(loss, weighted):
    rng = np.random.default_rng(1)
    problem = problem_of(loss, rng, weighted=weighted)
    x, step = 0.3 * rng.normal(size=(2, problem.n_parameters))
    assert problem.is_small
    centred = problem.centred()
    check(centred.curvature_view(), problem, centred.frame, x, step)


@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_view(weighted):
    rng = np.random.default_rng(2)
    problem = problem_of(Logistic(), rng, weighted=weighted)
    x, step = 0.3 * rng.normal(size=(2, problem.n_parameters))
    check(MarginView(problem), problem, problem.frame, x, step)


def test_a_hinge_says_nothing_about_lengths():
    for loss, price in ((SquaredHinge(), np.inf), (Logistic(), 1.0)):
        problem = problem_of(loss, np.random.default_rng(5))
        assert problem.curvature_view().prices().line == price
        assert np.isinf(MarginView(problem).prices().line) == np.isinf(price)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_lowest_point_on_the_way_at_a_hinge(weighted, compiled):
    rng = np.random.default_rng(6)
    problem = problem_of(SquaredHinge(), rng, weighted=weighted)
    vars(problem)["is_small"] = not compiled
    centred = problem.centred()
    here, there, inside = centred.curvature_view(), centred.curvature_view(), centred.frame.inside
    for size in (0.1, 3.0, 1e3, 1e9):
        x = rng.normal(size=problem.n_parameters)
        step = -size * problem.value_and_gradient(x)[1]
        _, gradient = here.evaluate(inside(x))
        there.evaluate(inside(x + step))
        part = here.lowest_part(there, inside(x), gradient, inside(step))
        slope_at_end = problem.value_and_gradient(x + step)[1] @ step
        if slope_at_end <= 0.0:
            assert np.isnan(part)
            continue
        # The derivative rises along the way: where it vanishes, by bisection, f is lowest.
        low, high = 0.0, 1.0
        while high - low > 1e-15 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if problem.value_and_gradient(x + middle * step)[1] @ step < 0 else (low, middle)
        np.testing.assert_allclose(part, high, rtol=1e-9)


def test_no_lowest_point_is_told_where_losses_are_smooth_or_overflow():
    rng = np.random.default_rng(7)
    for loss, size in ((Logistic(), 1.0), (SquaredHinge(), 1e308)):
        problem = problem_of(loss, rng)
        here, there = problem.curvature_view(), problem.curvature_view()
        x, step = np.zeros(problem.n_parameters), np.full(problem.n_parameters, size)
        _, gradient = here.evaluate(x)
        there.evaluate(x + step)
        assert np.isnan(here.lowest_part(there, x, gradient, step))


def test_few_rows_say_it_about_right():
    rng = np.random.default_rng(3)
    problem = problem_of(Logistic(), rng, n=40_000, weighted=False)
    view, x = MarginView(problem), np.zeros(problem.n_parameters)
    step = rng.normal(size=x.size)
    _, gradient = view.evaluate(x)
    slope, curvature, rows = view.line(x, gradient, step)
    assert rows == 500
    np.testing.assert_allclose((slope, curvature), by_differences(problem, x, step), rtol=0.2, atol=0.05)


@pytest.mark.parametrize("rows", [200, 20_000])
def test_steps_of_the_right_length_save_iterations(rows):
    """Labels that a plane nearly divides: every step of Newton's method is too short there."""
    from dataclasses import replace

    from trsvr.solvers.adaptive.method import AdaptiveTRSVR, Rules

    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 8))
    y = X @ rng.normal(size=8) + 0.05 * rng.logistic(size=rows) > 0.0
    problem = LinearModel(X, y, Logistic(), L2(1e-6))
    as_they_are = AdaptiveTRSVR(rules=replace(Rules(), shortest_stretch=1.0, longest_stretch=1.0))
    plain, longer = trsvr.minimize(problem, as_they_are), trsvr.minimize(problem)
    assert plain.success
    assert longer.success
    assert longer.epochs < plain.epochs
    np.testing.assert_allclose(longer.value, plain.value, rtol=1e-11)
