"""Where a run of damped steps must not end: saddle points, bounds, squares without digits; and what a penalty costs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import trsvr
from trsvr.problems import LeastSquares, Tukey
from trsvr.solvers import levenberg_marquardt as package
from trsvr.solvers.base import State
from trsvr.solvers.levenberg_marquardt.bending import FromJacobians, FromResiduals
from trsvr.solvers.levenberg_marquardt.run import Run


def beside_a_line(x):
    """x₀ at its maximum, zero, where a full step solves all others at once."""
    return np.array([0.1 * x[0], x[0] ** 2 - 1, x[1] + x[2] - 1, x[1] + 1.1 * x[2] - 1])


def slopes_of_it(x):
    return np.array([[0.1, 0, 0], [2 * x[0], 0, 0], [0, 1, 1], [0, 1, 1.1]])


@pytest.mark.parametrize("jac", [None, "3-point", slopes_of_it])
@pytest.mark.parametrize("at", [0.0, 1e-18, 1e-15, 1e-9])
def test_a_full_step_proves_nothing_of_other_directions(jac, at):
    found = trsvr.least_squares(beside_a_line, [at, 0.2, 0.3], jac)
    assert found.success
    assert_allclose(found.cost, 0.5 * (0.01 * 0.995 + 0.005**2), rtol=1e-9)  # at x₀² = 1 − 0.1²/2


@pytest.mark.parametrize("by_differences", [False, True])
@pytest.mark.parametrize("at", [0.0, 1e-15, 1e-9])
def test_nor_where_unknowns_are_many(by_differences, at):
    d = 60

    def fun(x):
        return np.concatenate([[0.1 * x[0], x[0] ** 2 - 1], x[1:] - 1, [x[1] - 2]])

    def jac(x):
        rows = np.zeros((d + 2, d))
        rows[0, 0], rows[1, 0], rows[-1, 1] = 0.1, 2 * x[0], 1.0
        rows[np.arange(2, d + 1), np.arange(1, d)] = 1.0
        return rows

    found = trsvr.least_squares(fun, np.r_[at, np.full(d - 1, 0.3)], None if by_differences else jac)
    assert found.success
    assert_allclose(found.cost, 0.25 + 0.0049875, rtol=1e-9)


@pytest.mark.parametrize(("m", "by_differences"), [(210, False), (60, True)])
def test_a_saddle_point_at_zero_of_many_unknowns_is_left(m, by_differences):
    """(a·x)(b·x): at zero J vanishes as a whole."""
    random = np.random.default_rng(0)
    A, B = random.normal(size=(2, m, 70)) / np.sqrt(70)
    truth = random.normal(size=70)
    y = (A @ truth) * (B @ truth)

    def jac(x):
        return (A @ x)[:, None] * B + (B @ x)[:, None] * A

    def fun(x):
        return (A @ x) * (B @ x) - y

    found = trsvr.least_squares(fun, np.zeros(70), None if by_differences else jac)
    assert found.success
    assert found.cost < 0.9 * 0.5 * (y @ y)
    beside = found.x * (1.0 + 1e-3 * random.choice([-1.0, 1.0], 70))
    again = scipy.optimize.least_squares(fun, beside, jac, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert again.cost >= found.cost * (1.0 - 1e-8) or found.cost < 1e-20


def test_a_minimum_where_jacobians_lose_rank_is_one():
    """Fewer residuals than unknowns that cannot all vanish: there J loses rank, and S is what holds r."""
    random = np.random.default_rng(3)
    A = random.normal(size=(43, 86)) / np.sqrt(86)
    y = (A @ random.normal(size=86)) ** 2 - 0.3

    def jac(x):
        return 2.0 * (A @ x)[:, None] * A

    found = trsvr.least_squares(lambda x: (A @ x) ** 2 - y, random.normal(size=86), jac)
    assert found.success
    assert_allclose(found.cost, 0.5 * np.sum(np.minimum(y, 0.0) ** 2), rtol=1e-8)  # each residual is least alone


@pytest.mark.parametrize("jac", [None, lambda x: np.array([[2e-14 * x[0], 0], [0, 1], [0, 1]])])
def test_a_maximum_is_left_whatever_the_unit(jac):
    found = trsvr.least_squares(lambda x: [(x[0] / 1e7) ** 2 - 1, x[1] - 1, x[1] - 2], [0.0, 1.0], jac)
    assert_allclose(np.abs(found.x), [1e7, 1.5], rtol=1e-9)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-8])
def test_a_bound_that_binds_is_no_end_by_tolerances(tolerance):
    options = dict.fromkeys(("ftol", "xtol", "gtol"), tolerance)
    with pytest.raises(ValueError, match="bounds bind at position 0"):
        trsvr.least_squares(lambda x: x - np.array([-1.0, 2.0]), [1.0, 1.0], bounds=(0, np.inf), **options)
    inside = trsvr.least_squares(lambda x: x - np.array([0.5, 2.0]), [1.0, 1.0], bounds=(0, np.inf), **options)
    assert inside.success


def test_a_bound_that_binds_is_named_among_many_unknowns():
    A = np.random.default_rng(0).normal(size=(120, 60))
    b = A @ np.r_[-1.0, np.ones(59)]
    with pytest.raises(ValueError, match="bounds bind at position 0"):
        trsvr.least_squares(lambda x: A @ x - b, np.full(60, 0.5), bounds=(0, np.inf))


def test_a_wrong_jacobian_of_many_unknowns_is_no_minimum():
    random = np.random.default_rng(0)
    A, wrong, b = random.normal(size=(120, 60)), random.normal(size=(120, 60)), random.normal(size=120)
    found = trsvr.least_squares(lambda x: A @ x - b, np.zeros(60), lambda x: wrong, max_nfev=2000)
    assert not found.success


@pytest.mark.parametrize("flattest", [1e-6, 1e-9])
def test_squares_that_have_lost_their_digits_are_replaced(flattest):
    """120 unknowns and 3000 rows: JᵀJ knows curvatures to 1e-8 of the largest column, J itself to 1e-16."""
    random = np.random.default_rng(0)
    U, V = (np.linalg.qr(random.normal(size=(n, 120)))[0] for n in (3000, 120))
    A = (U * np.logspace(0, np.log10(flattest), 120)) @ V.T
    b = U.sum(axis=1) + 0.01 * random.normal(size=3000)
    found = trsvr.least_squares(lambda x: A @ x - b, np.full(120, 0.1), lambda x: A, max_nfev=100)
    known = A @ np.linalg.lstsq(A, b, rcond=None)[0] - b
    assert found.success
    assert found.cost <= 0.5 * known @ known * (1.0 + 1e-7)


@pytest.mark.parametrize("m", [40, 150])
@pytest.mark.parametrize("l2", [1e-2, 1e-6, 1e-12])
def test_a_penalty_does_not_leave_the_space_of_residuals(m, l2, monkeypatch):
    """3000 unknowns: nothing of their number squared is made, and L-BFGS-B finds nothing lower."""
    d, random = 3000, np.random.default_rng(m)
    A, b = random.normal(size=(m, d)) / np.sqrt(d), random.normal(size=m)
    problem = LeastSquares(
        m,
        d,
        lambda x, i: np.tanh(A[i] @ x) - 0.5 * b[i],
        lambda x, i: (1 - np.tanh(A[i] @ x) ** 2)[:, None] * A[i],
        l2=l2,
        towards=np.ones(d),
    )
    made = []
    monkeypatch.setattr(np, "eye", lambda n, *rest: made.append(n))
    result = trsvr.minimize(problem, x0=np.zeros(d), max_epochs=300)
    monkeypatch.undo()
    assert not made
    assert result.status is trsvr.Status.CONVERGED
    beside = result.x * (1.0 + 1e-3 * random.normal(size=d))
    options = {"maxiter": 2000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-14}
    known = scipy.optimize.minimize(problem.value_and_gradient, beside, jac=True, method="L-BFGS-B", options=options)
    assert known.fun >= result.value * (1.0 - 1e-8)


def test_steps_with_a_penalty_are_those_of_the_normal_equations():
    random = np.random.default_rng(1)
    J, r, away, strength = random.normal(size=(5, 9)), random.normal(size=5), random.normal(size=9), 0.3
    from trsvr.parts.damping import Penalty, damped_model, sums_of
    from trsvr.problems.residuals import Block

    sums = sums_of([Block(slice(0, 5), J, r)], 5, 9, False, Penalty(strength, away))
    model = damped_model(sums, np.ones(9))
    hessian, gradient = J.T @ J + strength * np.eye(9), J.T @ r + strength * away
    newton = -np.linalg.solve(hessian, gradient)
    free = model.step(10.0 * np.linalg.norm(newton))
    assert_allclose(free.step, newton, rtol=1e-10)
    assert_allclose(free.predicted, -0.5 * gradient @ newton, rtol=1e-10)
    assert_allclose(model.left(), free.predicted, rtol=1e-10)
    bound = model.step(0.3 * np.linalg.norm(newton))
    assert_allclose(bound.step, -np.linalg.solve(hessian + bound.damping * np.eye(9), gradient), rtol=1e-9)
    assert 0.25 < bound.length / np.linalg.norm(newton) < 0.35
    v = random.normal(size=9)
    assert_allclose(sums.gram(), hessian, rtol=1e-12)
    assert_allclose(sums.product(v), hessian @ v, rtol=1e-12)
    for damping in (0.0, 0.2):
        assert_allclose(model.inverse(v, damping), np.linalg.solve(hessian + damping * np.eye(9), v), rtol=1e-10)


@pytest.mark.parametrize(("derivatives", "kind"), [(True, FromJacobians), (False, FromResiduals)])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_what_the_matrix_of_squares_lacks_is_seen(derivatives, kind, in_blocks, monkeypatch):
    """JᵀJ and S against differences of the gradient; with a loss that bends down, and J kept or not."""
    t = np.linspace(0.0, 3.0, 50)
    problem = LeastSquares(
        50,
        2,
        lambda x, i: x[0] * np.exp(-x[1] * t[i]) - np.cos(7.0 * t[i]),
        (lambda x, i: np.exp(-x[1] * t[i])[:, None] * np.stack([np.ones_like(t[i]), -x[0] * t[i]], axis=1))
        if derivatives
        else None,
        Tukey(1.0),
        l2=0.1,
    )
    x = np.array([1.3, 0.4])
    state = State(x=x, memory=None, own=package.state.Damping())
    if in_blocks:
        monkeypatch.setattr(package.run, "BLOCK", 1)
    run = Run(package.LevenbergMarquardt(), problem, state)
    run.own.here = here = run.look(x, *problem.value_at(x))
    bending = kind(run)
    second = bending.whole()

    def gradient(x):
        return problem.value_and_gradient(x)[1]

    h = 1e-5 if derivatives else 1e-4
    known = np.array([(gradient(x + h * unit) - gradient(x - h * unit)) / (2 * h) for unit in np.eye(2)])
    assert_allclose(here.sums.gram() + here.bend + second, known, atol=1e-3 if not derivatives else 1e-5)
    v = np.array([0.3, -0.8])
    along = bending.beyond(v) - (0.0 if in_blocks else here.bend @ v)
    assert_allclose(along, second @ v, atol=1e-3 if not derivatives else 1e-6)


def test_after_an_end_that_nothing_asked_for_no_end_is_looked_for_again():
    t = np.linspace(0.0, 3.0, 50)
    problem = LeastSquares(50, 2, lambda x, i: x[0] * np.exp(-x[1] * t[i]) - np.cos(t[i]))
    passes = [trsvr.minimize(problem, x0=[1.0, 1.0], tol=None, max_epochs=n).passes for n in (100, 200)]
    assert passes[1] - passes[0] <= 100 * (1 + 8)  # a trial point, and J by fine differences


def test_rows_that_begin_to_count_are_no_curvature():
    """Under Tukey's loss a row enters with its whole slope: what S learns is the change of J alone."""
    A, random = np.random.default_rng(2).normal(size=(40, 3)), np.random.default_rng(3)
    b = A @ np.ones(3) + np.where(np.arange(40) % 4 == 0, 3.0, 0.0) + 0.1 * random.normal(size=40)
    problem = LeastSquares(40, 3, lambda x, i: A[i] @ x - b[i], lambda x, i: A[i], Tukey(1.0))
    state = State(x=np.zeros(3), memory=None, own=package.state.Damping())
    run = Run(package.LevenbergMarquardt(), problem, state)
    x, y = np.full(3, 0.7), np.full(3, 0.95)
    run.own.here = here = run.look(x, *problem.value_at(x))
    there = run.look(y, *problem.value_at(y))
    assert ((problem.terms(here.residuals).curvatures == 0.0) & (problem.terms(there.residuals).curvatures > 0.0)).any()
    package.judgement._learn(run, here, there)
    assert np.abs(run.own.second).max() < 1e-12  # the residuals are straight


@pytest.mark.slow
def test_bits_do_not_depend_on_the_threads_of_blas():
    code = """
import numpy as np, trsvr
from trsvr.problems import LeastSquares
random = np.random.default_rng(0)
for m, d, l2 in ((3000, 60, 0), (3000, 150, 0), (130, 300, 0), (130, 300, 1e-3)):
    A, b = random.normal(size=(m, d)) / np.sqrt(d), random.normal(size=m)
    scores = lambda x, i: (A[i] * x).sum(axis=1)
    jac = lambda x, i: (1.1 - np.tanh(scores(x, i)) ** 2)[:, None] * A[i]
    problem = LeastSquares(m, d, lambda x, i: np.tanh(scores(x, i)) + 0.1 * scores(x, i) - b[i], jac, l2=l2)
    print(trsvr.minimize(problem, max_epochs=40).x.tobytes().hex())
"""
    import os

    one, two = (
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "OPENBLAS_NUM_THREADS": n}, capture_output=True, check=True
        ).stdout
        for n in "12"
    )
    assert one == two
