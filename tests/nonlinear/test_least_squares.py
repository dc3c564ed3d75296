"""Nonlinear least squares: NIST's certified values, SciPy, finite differences, and functions that misbehave."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from certified import MODELS, regression
from numpy.testing import assert_allclose

import trsvr
from trsvr.problems import LeastSquares, PseudoHuber, Squared, Tukey
from trsvr.problems.differences import jacobian_by_differences
from trsvr.problems.residual_losses import BY_NAME, as_residual_loss, loss_terms

RUNS = [(name, start) for name in MODELS for start in (0, 1)]
T = np.linspace(0.0, 4.0, 60)
NOISY = 3.0 * np.exp(-1.5 * T) + 0.5 + 0.05 * np.cos(17.0 * T)


def decay(x, i):
    return x[0] * np.exp(-x[1] * T[i]) + x[2] - NOISY[i]


def slopes(x, i):
    e = np.exp(-x[1] * T[i])
    return np.stack([e, -x[0] * T[i] * e, np.ones_like(e)], axis=1)


# ------------------------------------------------------------------------------------------------ certified values


@pytest.mark.parametrize(("name", "start"), RUNS)
def test_curve_fit_with_defaults_has_the_certified_digits(name, start):
    """Six digits of every parameter and four of their standard errors, with nothing but data, model and start."""
    known = regression(name)
    with np.errstate(all="ignore"):
        found, matrix = trsvr.curve_fit(lambda x, *b: known.model(b, x), known.x, known.y, known.starts[start])
    assert known.digits(found) >= 6.0
    # The residuals of Lanczos1 are rounding errors.
    assert_allclose(np.sqrt(np.diagonal(matrix)), known.deviations, rtol=1e-2 if name == "Lanczos1" else 1e-4)


def test_by_differences_nearly_all_have_nine_digits():
    digits = []
    for name, start in RUNS:
        known = regression(name)
        with np.errstate(all="ignore"):
            digits.append(known.digits(trsvr.least_squares(known.residuals, known.starts[start]).x))
    assert min(digits) >= 6.0
    assert sum(each >= 9.0 for each in digits) >= 48


@pytest.mark.parametrize(("name", "start"), RUNS)
def test_with_a_jacobian_it_has_nine_digits_and_ends_truly(name, start):
    known = regression(name)
    found = trsvr.least_squares(known.residuals, known.starts[start], known.jacobian)
    assert found.success, found.message
    assert known.digits(found.x) >= 9.0
    assert_allclose(found.cost, 0.5 * np.sum(found.fun**2), rtol=1e-12)
    assert gained(known, found) <= 1e-8 or name == "Lanczos1"


@pytest.mark.parametrize(("name", "start"), RUNS)
def test_by_differences_it_ends_truly(name, start):
    known = regression(name)
    found = trsvr.least_squares(known.residuals, known.starts[start])
    assert found.success, found.message
    assert gained(known, found) <= 1e-8 or name == "Lanczos1"


def gained(known, found):
    """Part of the cost that another solver gains there, or from a point nearby, each unknown to its own side."""
    random, most = np.random.default_rng(0), 0.0
    for aside in (0.0, 1e-3):
        with np.errstate(all="ignore"):
            x = found.x * (1.0 + aside * random.choice([-1.0, 1.0], found.x.size))
            again = scipy.optimize.least_squares(
                known.residuals, x, known.jacobian, x_scale="jac", ftol=1e-15, xtol=1e-15, gtol=1e-15
            )
        most = max(most, 1.0 - again.cost / found.cost)
    return most


def test_it_needs_no_more_passes_than_others():
    """Until the certified sum of squares is met to six digits; SciPy needs 14 and 15, on average 111 and 123."""
    needed = []
    for name, start in RUNS:
        known, calls = regression(name), []
        goal = 1e-19 if name == "Lanczos1" else known.sum_of_squares * (1.0 + 1e-6)

        def residuals(x, known=known, calls=calls):
            found = known.residuals(x)
            calls.append(float(found @ found))
            return found

        def jacobian(x, known=known, calls=calls):
            calls.append(np.inf)
            return known.jacobian(x)

        with np.errstate(all="ignore"):
            trsvr.least_squares(residuals, known.starts[start], jacobian)
        needed.append(1 + next(k for k, squares in enumerate(calls) if squares <= goal))
    assert np.median(needed) <= 14.0
    assert np.mean(needed) <= 40.0


@pytest.mark.parametrize("seed", range(10))
def test_the_rounding_of_f_does_not_end_it(seed):
    """Residuals of 1e-6 beside data of one: f is known to ten digits, and which of them are right decides nothing."""
    known = regression("Lanczos2")
    moved = 1.0 + 2e-15 * np.random.default_rng(seed).standard_normal(known.certified.size)
    found = trsvr.least_squares(known.residuals, moved * known.starts[0], known.jacobian)
    assert known.digits(found.x) >= 9.0
    assert found.nfev < 50


def test_same_call_same_bits():
    known = regression("MGH17")
    first, second = (trsvr.least_squares(known.residuals, known.starts[0]) for _ in range(2))
    assert np.array_equal(first.x, second.x)
    assert first.nfev == second.nfev


# ------------------------------------------------------------------------------------------------- SciPy's call


@pytest.mark.parametrize("loss", [*BY_NAME, lambda z: np.stack([z, np.ones_like(z), np.zeros_like(z)])])
def test_it_finds_scipys_minimum_under_every_loss(loss):
    y = NOISY.copy()
    y[::7] += 2.0

    def residuals(x, data, scale=1.0):
        return scale * (x[0] * np.exp(-x[1] * T) + x[2] - data)

    options = {"loss": loss, "f_scale": 0.1, "args": (y,), "kwargs": {"scale": 0.5}}
    found = trsvr.least_squares(residuals, [1.0, 1.0, 0.0], **options)
    known = scipy.optimize.least_squares(residuals, [1.0, 1.0, 0.0], **options, ftol=1e-15, xtol=1e-15, gtol=1e-15)
    assert found.success, found.message
    assert found.cost <= known.cost * (1.0 + 1e-9)
    assert found["cost"] == found.cost
    assert set(known) - {"method"} <= set(found)
    assert_allclose(found.grad, known.grad, atol=1e-6)
    assert_allclose(found.jac, known.jac, rtol=1e-5, atol=1e-7)


def test_curve_fit_returns_what_scipys_returns():
    def model(t, a, b, c):
        return a * np.exp(-b * t) + c

    sigma = 0.1 + 0.05 * T
    for options in ({}, {"sigma": sigma}, {"sigma": sigma, "absolute_sigma": True}, {"sigma": np.diag(sigma**2)}):
        ours = trsvr.curve_fit(model, T, NOISY, **options)
        theirs = scipy.optimize.curve_fit(model, T, NOISY, ftol=1e-14, xtol=1e-14, **options)
        for mine, known in zip(ours, theirs, strict=True):
            assert_allclose(mine, known, rtol=1e-5)
    assert len(trsvr.curve_fit(model, T, NOISY, full_output=True)) == 5
    with pytest.raises(RuntimeError, match="Optimal parameters not found"):
        trsvr.curve_fit(model, T, NOISY, max_nfev=1)
    with pytest.warns(scipy.optimize.OptimizeWarning, match="could not be estimated"):
        trsvr.curve_fit(lambda t, a, b: (a + b) * t, T, NOISY)


@pytest.mark.parametrize("name", ["2-point", "3-point", "cs", "array", "sparse", "operator"])
def test_every_kind_of_jacobian_that_scipy_takes(name):
    import scipy.sparse

    kinds = {
        "array": lambda x: slopes(x, slice(None)),
        "sparse": lambda x: scipy.sparse.csr_matrix(slopes(x, slice(None))),
        "operator": lambda x: scipy.sparse.linalg.aslinearoperator(slopes(x, slice(None))),
    }
    found = trsvr.least_squares(lambda x: decay(x, slice(None)), [1.0, 1.0, 0.0], kinds.get(name, name))
    known = scipy.optimize.least_squares(lambda x: decay(x, slice(None)), [1.0, 1.0, 0.0], xtol=1e-15, ftol=1e-15)
    assert found.success
    assert_allclose(found.x, known.x, rtol=1e-6)


def test_evaluations_are_limited_and_none_is_made_twice():
    calls, places = [], []

    def fun(x):
        calls.append(tuple(x))
        return decay(x, slice(None))

    def jac(x):
        places.append(tuple(x))
        return slopes(x, slice(None))

    found = trsvr.least_squares(fun, [1.0, 1.0, 0.0], jac, max_nfev=3)
    assert (found.status, found.success, found.nfev) == (0, False, 3)
    assert calls.count((1.0, 1.0, 0.0)) == 1
    places.clear()
    found = trsvr.least_squares(fun, [1.0, 1.0, 0.0], jac)
    assert found.njev == len(places)
    assert all(before != after for before, after in itertools.pairwise(places))


def test_callbacks_of_both_kinds_see_the_run_and_may_end_it():
    seen = []
    residuals, start = (lambda x: decay(x, slice(None))), [1.0, 1.0, 0.0]
    trsvr.least_squares(residuals, start, callback=lambda x: seen.append(x.copy()))
    assert not np.array_equal(seen[0], start)
    assert len(seen) > 2

    def enough(intermediate_result):
        if intermediate_result.nit == 2:
            raise StopIteration

    stopped = trsvr.least_squares(residuals, start, callback=enough)
    assert (stopped.status, stopped.success, stopped.nfev) == (-2, False, 3)


def test_curve_fit_reads_the_parameters_and_takes_minpacks_options():
    from functools import partial

    def model(t, a, b, c):
        return a * np.exp(-b * t) + c

    known = scipy.optimize.curve_fit(partial(model, c=0.5), T, NOISY)
    for mine, theirs in zip(trsvr.curve_fit(partial(model, c=0.5), T, NOISY), known, strict=True):
        assert_allclose(mine, theirs, rtol=1e-5)
    robust = {"method": "trf", "loss": "soft_l1", "f_scale": 0.05}
    known = scipy.optimize.curve_fit(model, T, NOISY, ftol=1e-14, xtol=1e-14, **robust)
    for mine, theirs in zip(trsvr.curve_fit(model, T, NOISY, **robust), known, strict=True):
        assert_allclose(mine, theirs, rtol=1e-4)
    hints = {"epsfcn": 1e-8, "factor": 10.0, "diag": [1.0, 1.0, 1.0], "maxfev": 500}
    assert_allclose(trsvr.curve_fit(model, T, NOISY, **hints)[0], trsvr.curve_fit(model, T, NOISY)[0], rtol=1e-7)
    with pytest.raises(ValueError, match="col_deriv"):
        trsvr.curve_fit(model, T, NOISY, col_deriv=1)
    with pytest.raises(ValueError, match="args must be left out"):
        trsvr.curve_fit(model, T, NOISY, args=(1.0,))
    # A single number in ydata is for all of f's, one in sigma for all of ydata.
    less = trsvr.curve_fit(lambda t, a, b, c: model(t, a, b, c) - NOISY, T, 0.0)
    for mine, theirs in zip(less, trsvr.curve_fit(model, T, NOISY), strict=True):
        assert_allclose(mine, theirs, rtol=1e-6)
    gaps = np.where(np.arange(T.size) % 7 == 3, np.nan, NOISY)
    known = trsvr.curve_fit(model, T[~np.isnan(gaps)], gaps[~np.isnan(gaps)], sigma=0.1)
    for mine, theirs in zip(trsvr.curve_fit(model, T, gaps, sigma=0.1, nan_policy="omit"), known, strict=True):
        assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x0": [1.0, 1.0j, 0.0]}, "x0 must be real"),
        ({"x_scale": "columns"}, "x_scale must be 'jac'"),
        ({"jac": "4-point"}, "jac must be a function"),
        ({"loss": "hubert"}, "did you mean 'huber'"),
        ({"method": "newton"}, "method must be one of"),
        ({"bounds": ([0, 0], [1, 1])}, "bounds must be"),
        ({"bounds": ([0.0], [3.0, 3.0, 3.0])}, "bounds must be"),
        ({"bounds": (0.0, 1.0, 2.0)}, "bounds must be"),
        ({"bounds": (2.0, 3.0)}, "x0 must lie within bounds"),
        ({"tr_solver": "best"}, "tr_solver must be one of"),
        ({"jac": lambda x: slopes(x, slice(None))[:, None]}, "jac must return a matrix"),
        ({"x_scale": [1.0, -1.0, 1.0]}, "x_scale must be positive"),
        ({"max_nfev": 0}, "max_nfev must be"),
        ({"x0": [1.0, np.nan, 0.0]}, "x0 must be finite"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    options = {"fun": lambda x: decay(x, slice(None)), "x0": [1.0, 1.0, 0.0], **options}
    with pytest.raises(ValueError, match=message):
        trsvr.least_squares(**options)


def test_bounds_that_do_not_bind_are_kept_and_those_that_do_are_named():
    def fun(x):
        assert (x >= 0.0).all(), "outside the bounds"
        return decay(x, slice(None))

    found = trsvr.least_squares(fun, [1.0, 1.0, 0.1], bounds=(0.0, np.inf))
    assert_allclose(found.x, trsvr.least_squares(lambda x: decay(x, slice(None)), [1.0, 1.0, 0.1]).x, rtol=1e-7)
    small = trsvr.least_squares(lambda x: 1e12 * (x - 3e-10), [1e-9], bounds=(0.0, np.inf))
    assert_allclose(small.x, 3e-10, rtol=1e-9)  # near a bound in our units, not in its own
    with pytest.raises(ValueError, match=r"bounds bind.*scipy.optimize.least_squares"):
        trsvr.least_squares(fun, [1.0, 1.0, 0.1], bounds=(0.0, [np.inf, 1.2, np.inf]))


def test_a_start_on_a_bound_may_end_a_run_early():
    def fun(x):
        return x - np.array([0.5, 2.0])

    assert trsvr.least_squares(fun, [0.0, 1.0], bounds=(0.0, np.inf), max_nfev=1).status == 0
    assert_allclose(trsvr.least_squares(fun, [0.0, 1.0], bounds=(0.0, np.inf)).x, [0.5, 2.0], rtol=1e-9)


def test_curve_fit_starts_where_scipy_does():
    def model(t, a, b, c, **unused):
        return a * np.exp(-b * t) + c

    bounds = ([2.0, -np.inf, -3.0], [5.0, 4.0, np.inf])
    seen = []

    def watched(t, a, b, c):
        seen.append((a, b, c))
        return model(t, a, b, c)

    found = trsvr.curve_fit(watched, T, NOISY, bounds=bounds)[0]
    ours, _ = seen[0], seen.clear()
    known = scipy.optimize.curve_fit(watched, T, NOISY, bounds=bounds, ftol=1e-14, xtol=1e-14)[0]
    assert ours == seen[0]
    assert_allclose(found, known, rtol=1e-6)
    assert_allclose(trsvr.curve_fit(model, T, NOISY)[0], known, rtol=1e-6)


def test_callbacks_see_what_scipys_see():
    seen, last = [], []

    def watch(intermediate_result):
        seen.append(intermediate_result)

    for solve in (trsvr.least_squares, scipy.optimize.least_squares):
        solve(lambda x: decay(x, slice(None)), [1.0, 1.0, 0.0], callback=watch)
        last.append(seen[-1])
    ours, theirs = last
    assert set(ours) == set(theirs)
    assert_allclose(ours.fun, decay(ours.x, slice(None)), rtol=1e-12)
    assert_allclose(ours.cost, 0.5 * ours.fun @ ours.fun, rtol=1e-12)
    assert_allclose(ours.cost, theirs.cost, rtol=1e-6)


@pytest.mark.parametrize(
    ("later", "message"),
    [(None, "got None"), (["a", "b"], "must return numbers"), ([1.0j, 1.0], "real"), ([1.0], "fun must return 2")],
)
@pytest.mark.parametrize("at", [1, 4])
def test_what_is_no_residual_is_named(later, message, at):
    calls = []

    def fun(x):
        calls.append(1)
        return later if len(calls) >= at else np.array([x[0] ** 2 - 2.0, x[1] - x[0]])

    if at == 1 and later == [1.0]:
        return
    with pytest.raises(ValueError, match=message):
        trsvr.least_squares(fun, [1.0, 1.0])


def test_a_function_may_write_into_one_array_again_and_again():
    room = np.empty(2)

    def fun(x):
        room[:] = [x[0] ** 2 - 2.0, x[1] * x[0] - 1.0]
        return room

    found, known = trsvr.least_squares(fun, [1.0, 3.0]), trsvr.least_squares(lambda x: fun(x).copy(), [1.0, 3.0])
    assert np.array_equal(found.x, known.x)
    assert np.array_equal(found.fun, known.fun)


def test_scipys_hints_are_taken():
    hints = {"jac_sparsity": scipy.sparse.eye(3), "tr_solver": "lsmr", "tr_options": {"damp": 1}, "diff_step": 1e-3}
    found = trsvr.least_squares(lambda x: x - 2.0, np.ones(3), **hints)
    assert_allclose(found.x, 2.0, rtol=1e-12)


@pytest.mark.parametrize("start", [[1.0, 1.0, 1.0, 1.0], [0.37, 2.1, 0.9, 3.3]])
def test_bounds_at_zero_that_bind_are_named(start):
    """On the way there x has no size that it would be near to: runs had ended well, or at the limit."""
    rows = np.random.default_rng(0).normal(size=(30, 4))
    y = rows @ np.array([1.0, -0.7, 2.0, 0.5])
    for fun in (lambda x: rows @ x - y, lambda x: np.concatenate([rows @ x - y, 0.1 * np.exp(x)])):
        with pytest.raises(ValueError, match="bounds bind at position 1"):
            trsvr.least_squares(fun, start, bounds=(0.0, np.inf))


# -------------------------------------------------------------------------------------------------- the problem


def test_it_is_a_finite_sum_with_the_derivatives_of_its_value():
    weights = np.arange(60.0)
    problem = LeastSquares(60, 3, decay, slopes, PseudoHuber(0.1), weights=weights, l2=0.3, towards=[1.0, 2.0, 3.0])
    x = np.array([2.0, 1.2, 0.4])
    value, gradient = problem.value_and_gradient(x)
    r, w = decay(x, np.arange(60)), weights * 60 / weights.sum()
    expected = np.mean(w * 0.01 * (np.sqrt(1 + (r / 0.1) ** 2) - 1)) + 0.15 * np.sum((x - [1, 2, 3]) ** 2)
    assert value == pytest.approx(expected, rel=1e-12)
    known = scipy.optimize.approx_fprime(x, lambda p: problem.value_and_gradient(p)[0], 1e-7)
    assert_allclose(gradient, known, rtol=1e-5, atol=1e-6)
    rows = np.arange(60)
    assert_allclose(problem.batch_gradient(x, rows), gradient, rtol=1e-12)
    part = problem.gather(np.arange(10, 30))
    assert_allclose(part.batch_gradient(x, np.array([0, 5])), problem.batch_gradient(x, np.array([10, 15])), rtol=1e-12)
    v = np.array([0.3, -1.0, 2.0])
    curvatures = w * (1 + (r / 0.1) ** 2) ** -1.5
    J = slopes(x, rows)
    reference = J.T @ (np.maximum(curvatures, 0.1 * w / np.sqrt(1 + (r / 0.1) ** 2)) * (J @ v)) / 60 + 0.3 * v
    assert_allclose(problem.hessian_product(x, None, v), reference, rtol=1e-10)
    view = problem.curvature_view()
    view.evaluate(x)
    assert_allclose(view.product(v) + view.penalty_curvatures(x) * v, reference, rtol=1e-10)
    assert_allclose(view.diagonal(), np.diagonal(view.blocks(60, None)[0][0]), rtol=1e-12)


@pytest.mark.parametrize("kind", ["2-point", "3-point", "5-point", "cs"])
def test_differences_have_their_digits(kind):
    x = np.array([2.0, 1.2, 0.0])
    rows = np.arange(60)
    found = jacobian_by_differences(lambda p: decay(p, rows), x, decay(x, rows), kind)
    digits = {"2-point": 1e-7, "3-point": 1e-9, "5-point": 1e-11, "cs": 1e-14}[kind]
    assert_allclose(found, slopes(x, rows), atol=4 * digits)


def test_differences_stay_inside_the_domain():
    def roots(p):
        return np.where(p[0] <= 1.0, np.sqrt(np.maximum(1.0 - p[0], 0.0)), np.nan) * np.ones(2)

    x = np.array([1.0 - 1e-9])
    found = jacobian_by_differences(roots, x, roots(x), "2-point")
    assert np.isfinite(found).all()


@pytest.mark.parametrize("inside", [5e-5, 1e-5, 1e-6])
def test_fine_differences_are_fine_between_two_edges(inside):
    """log(x − 1) and √(1.0001 − x) bend without end at both edges of a narrow domain."""

    def edges(p):
        with np.errstate(all="ignore"):
            return np.array([np.log(p[0] - 1.0), np.sqrt(1.0001 - p[0]), p[1] ** 3])

    x = np.array([1.0 + inside, 2.0])
    found = jacobian_by_differences(edges, x, edges(x), "5-point")
    known = np.array([[1.0 / (x[0] - 1.0), 0.0], [-0.5 / np.sqrt(1.0001 - x[0]), 0.0], [0.0, 12.0]])
    assert_allclose(found, known, rtol=2e-6)


@pytest.mark.parametrize("inside", [0.0, 1e-12, 1e-9, 1e-6, 1e-4])
def test_fine_differences_are_fine_at_a_bound(inside):
    x = np.array([1.0 - inside])
    found = jacobian_by_differences(lambda p: np.where(p <= 1.0, np.exp(p), np.nan), x, np.exp(x), "5-point")
    assert_allclose(found, [np.exp(x)], rtol=1e-8)


@pytest.mark.parametrize("loss", [Squared(), PseudoHuber(0.7), Tukey(2.0)], ids=lambda loss: type(loss).__name__)
def test_losses_of_residuals_have_the_derivatives_of_their_values(loss):
    known, r = as_residual_loss(loss), np.array([-3.0, -1.9, -0.4, 1e-9, 0.3, 1.0, 1.7, 5.0])

    def value(each):
        return loss_terms(known, np.array([each]), None).total

    h = 1e-6
    for each, slope in zip(r, loss_terms(known, r, None).slopes, strict=True):
        assert slope == pytest.approx((value(each + h) - value(each - h)) / (2 * h), abs=1e-8)
    if isinstance(loss, Tukey):
        assert value(5.0) == value(-9.0) == pytest.approx(4.0 / 6.0)


def test_a_robust_loss_does_not_see_rows_that_are_wrong():
    y = NOISY.copy()
    y[::5] += 40.0
    problem = LeastSquares(60, 3, lambda x, i: decay(x, i) + NOISY[i] - y[i], slopes, Tukey(0.5))
    clean = LeastSquares(48, 3, lambda x, i: decay(x, KEPT[i]), lambda x, i: slopes(x, KEPT[i]), Tukey(0.5))
    first, second = (trsvr.minimize(each, x0=[2.5, 1.2, 0.4]) for each in (problem, clean))
    assert first.success
    assert_allclose(first.x, second.x, rtol=1e-8)


KEPT = np.flatnonzero(np.arange(60) % 5)


def test_weights_are_repeated_rows_and_several_outputs_are_rows_too():
    repeated = np.repeat(np.arange(60), 1 + np.arange(60) % 3)
    one = trsvr.minimize(LeastSquares(60, 3, decay, slopes, weights=1.0 + np.arange(60) % 3), x0=[1.0, 1.0, 0.0])
    other = LeastSquares(len(repeated), 3, lambda x, i: decay(x, repeated[i]), lambda x, i: slopes(x, repeated[i]))
    assert_allclose(one.x, trsvr.minimize(other, x0=[1.0, 1.0, 0.0]).x, rtol=1e-9)
    pairs = LeastSquares(
        30,
        3,
        lambda x, i: np.stack([decay(x, 2 * i), decay(x, 2 * i + 1)], axis=1),
        lambda x, i: np.stack([slopes(x, 2 * i), slopes(x, 2 * i + 1)], axis=1),
    )
    plain = trsvr.minimize(LeastSquares(60, 3, decay, slopes), x0=[1.0, 1.0, 0.0])
    assert_allclose(trsvr.minimize(pairs, x0=[1.0, 1.0, 0.0]).x, plain.x, rtol=1e-9)


def test_blocks_of_rows_give_the_same_fit_as_all_at_once():
    whole = trsvr.minimize(LeastSquares(60, 3, decay, slopes), x0=[1.0, 1.0, 0.0])
    pieces = trsvr.minimize(LeastSquares(60, 3, decay, slopes, rows_at_once=7), x0=[1.0, 1.0, 0.0])
    assert_allclose(pieces.x, whole.x, rtol=1e-10)


def test_many_unknowns_and_many_residuals_agree_with_scipy():
    """Both sides of the Cholesky factors: more residuals than unknowns, and fewer."""
    random = np.random.default_rng(3)
    for m, d in ((700, 120), (130, 260)):
        A, b = random.normal(size=(m, d)) / np.sqrt(d), random.normal(size=m)

        def residuals(x, i, A=A, b=b):
            return np.tanh(A[i] @ x) + 0.1 * (A[i] @ x) - b[i]

        def jacobian(x, i, A=A):
            return (1.1 - np.tanh(A[i] @ x) ** 2)[:, None] * A[i]

        problem = LeastSquares(m, d, residuals, jacobian, l2=1e-3)
        found = trsvr.minimize(problem, x0=np.zeros(d), max_epochs=300)
        assert found.success, found.message
        known = scipy.optimize.minimize(problem.value_and_gradient, found.x, jac=True, method="L-BFGS-B")
        assert known.fun >= found.value * (1.0 - 1e-8)
        assert np.abs(found.gradient).max() <= 1e-9


# -------------------------------------------------------------------------------------------- misbehaving functions


def test_a_step_outside_the_domain_is_refused():
    found = trsvr.least_squares(lambda x: np.log(x) - np.log([2.0, 2.0]), [30.0, 0.01], lambda x: np.diag(1.0 / x))
    assert found.success
    assert_allclose(found.x, 2.0, rtol=1e-9)


def test_a_start_outside_the_domain_is_named():
    with pytest.raises(ValueError, match="residuals are not finite at x0"), np.errstate(all="ignore"):
        trsvr.least_squares(lambda x: np.log(x), [-1.0])
    with np.errstate(all="ignore"):
        result = trsvr.minimize(LeastSquares(1, 1, lambda x, i: np.log(x)), x0=[-1.0])
    assert result.status is trsvr.Status.NOT_FINITE


def test_an_exception_of_the_user_arrives_as_it_was():
    def fun(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trsvr.least_squares(fun, [1.0])


def test_residuals_that_change_their_length_are_refused():
    calls = []

    def fun(x, i):
        calls.append(1)
        return np.ones(60 if len(calls) < 3 else 59) * x[0]

    with pytest.raises(ValueError, match="residuals must return an array of shape"):
        trsvr.minimize(LeastSquares(60, 3, fun, slopes), x0=np.ones(3))
    with pytest.raises(ValueError, match="jacobian must return an array of shape"):
        trsvr.minimize(LeastSquares(60, 3, decay, lambda x, i: slopes(x, i)[:, :2]), x0=np.ones(3))


def test_functions_that_write_into_x_do_no_harm():
    def spoils(x, i):
        answer = decay(x, i)
        x[:] = np.nan
        return answer

    result = trsvr.minimize(LeastSquares(60, 3, spoils, slopes), x0=[1.0, 1.0, 0.0])
    assert np.array_equal(result.x, trsvr.minimize(LeastSquares(60, 3, decay, slopes), x0=[1.0, 1.0, 0.0]).x)


def test_rank_deficient_and_short_problems_end_truly():
    same = trsvr.least_squares(lambda x: (x[0] + x[1]) * T - NOISY, [1.0, 1.0])
    assert same.success
    known = np.linalg.lstsq(T[:, None], NOISY, rcond=None)[0]
    assert_allclose(same.x.sum(), known[0], rtol=1e-9)
    assert trsvr.inference.covariance(LeastSquares(60, 2, lambda x, i: (x[0] + x[1]) * T[i]), np.ones(2)).rank == 1
    one = trsvr.least_squares(lambda x: x[0] ** 2 - 2.0, [1.0])
    assert_allclose(one.x, np.sqrt(2.0), rtol=1e-12)
    more = trsvr.least_squares(lambda x: [x[0] * x[1] - 1.0, x[2] - x[3] ** 2], [2.0, 2.0, 1.0, 3.0])
    assert more.success
    assert more.cost < 1e-25
    nothing = trsvr.least_squares(lambda x: 0.0 * x, [1.0, 2.0])
    assert nothing.success
    assert nothing.cost == 0.0


def test_a_saddle_point_is_left():
    """At zero the Jacobian of squares vanishes, and f is not at its minimum."""
    A = np.random.default_rng(0).normal(size=(40, 4))
    b = (A @ np.ones(4)) ** 2
    found = trsvr.least_squares(lambda x: (A @ x) ** 2 - b, np.zeros(4), lambda x: 2.0 * (A @ x)[:, None] * A)
    assert found.success
    assert found.cost < 1e-20


def test_a_run_is_resumed_to_the_same_bits(tmp_path):
    known = regression("MGH09")
    problem = LeastSquares(known.y.size, 4, lambda x, i: known.residuals(x)[i], lambda x, i: known.jacobian(x)[i])
    whole = trsvr.minimize(problem, x0=known.starts[0], max_epochs=500)
    trsvr.minimize(problem, x0=known.starts[0], max_epochs=20, checkpoint=tmp_path / "run")
    resumed = trsvr.resume(tmp_path / "run", problem, max_epochs=500)
    assert np.array_equal(resumed.x, whole.x)
    assert resumed.passes == whole.passes


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_resumed_run_has_checkpoints_again(tmp_path, at):
    """What comes out of a file goes into the next one, whatever its type has become."""
    problem, path, options = LeastSquares(60, 3, decay, slopes), tmp_path / "run", {"x0": [1.0, 1.0, 0.0]}
    whole = trsvr.minimize(problem, **options)
    trsvr.minimize(problem, max_epochs=at, checkpoint=path, **options)
    for more in (1, 2, 300):
        resumed = trsvr.resume(path, problem, max_epochs=at + more, checkpoint_every=1)
    assert np.array_equal(resumed.x, whole.x)
    assert resumed.passes == whole.passes


def test_a_problem_whose_domain_is_small_has_checkpoints(tmp_path):
    """Problems are told apart by their answers at a point, which may be outside."""

    def residuals(x, i):
        return np.log(x[0] * T[i] + 1.0) + np.sqrt(x[1]) - np.log(3.0 * T[i] + 1.0) - 2.0 + 0.0 * np.sqrt(x[0] - 0.9)

    problem, path = LeastSquares(T.size, 2, residuals), tmp_path / "run"
    with np.errstate(all="ignore"):
        whole = trsvr.minimize(problem, x0=[1.0, 1.0])
        trsvr.minimize(problem, x0=[1.0, 1.0], max_epochs=2, checkpoint=path)
        again = trsvr.resume(path, problem, max_epochs=100)
    assert_allclose(whole.x, [3.0, 4.0], rtol=1e-9)
    assert np.array_equal(again.x, whole.x)


def test_looser_tolerances_end_earlier():
    known = regression("ENSO")
    tight, loose = (
        trsvr.least_squares(known.residuals, known.starts[0], known.jacobian, ftol=tol) for tol in (None, 1e-4)
    )
    assert loose.nfev < tight.nfev
    assert loose.cost <= 1.01 * tight.cost


@pytest.mark.slow
def test_thousands_of_unknowns_and_residuals_take_conjugate_gradients():
    """Beyond what is factored: each residual sees five of 3100 unknowns; SciPy's minimum by sparse steps."""
    random, m, d = np.random.default_rng(0), 3300, 3100
    places = np.minimum(np.arange(m) * d // m, d - 5)[:, None] + np.arange(5)
    A, every = random.normal(size=(m, 5)), np.arange(m)

    def scores(x, i):
        return (A[i] * x[places[i]]).sum(axis=1)

    y = scores(random.normal(size=d), every)
    y = y + 0.3 * np.tanh(y) + 0.05 * random.normal(size=m)

    def residuals(x, i):
        z = scores(x, i)
        return z + 0.3 * np.tanh(z) - y[i]

    def entries(x, i):
        return A[i] * (1.0 + 0.3 / np.cosh(scores(x, i)) ** 2)[:, None]

    def jacobian(x, i):
        rows = np.zeros((len(i), d))
        np.put_along_axis(rows, places[i], entries(x, i), 1)
        return rows

    result = trsvr.minimize(LeastSquares(m, d, residuals, jacobian, l2=1e-4))
    assert result.status is trsvr.Status.CONVERGED
    assert result.trace.hessian_products.sum() > 0
    root = np.sqrt(1e-4 * m)

    def sparse(x):
        rows = scipy.sparse.csr_matrix((entries(x, every).ravel(), places.ravel(), np.arange(0, 5 * m + 1, 5)), (m, d))
        return scipy.sparse.vstack([rows, root * scipy.sparse.eye(d)]).tocsr()

    known = scipy.optimize.least_squares(
        lambda x: np.concatenate([residuals(x, every), root * x]), np.zeros(d), sparse,
        tr_solver="lsmr", xtol=1e-15, ftol=1e-15, gtol=1e-13, max_nfev=300,
    )  # fmt: skip
    assert result.value == pytest.approx(known.cost / m, rel=1e-11)
