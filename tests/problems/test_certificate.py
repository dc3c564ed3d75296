"""The certificate: a true upper bound on f − min f, in every result."""

import json
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import endings
import trsvr
from trsvr import theory
from trsvr.cli import main
from trsvr.problems import (
    L2,
    DoubleWell,
    FunctionProblem,
    LinearModel,
    Logistic,
    PseudoHuber,
    Softmax,
    Squared,
    SquaredHinge,
)
from trsvr.problems.certificate import GapFacts, gap_bound
from trsvr.sklearn import TRSVRClassifier, TRSVRRegressor
from truth import Truth

LOSSES = (Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.7), Softmax())


def case(loss, intercept=True, rows=80, strength=1e-3, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 30.0, 5.0, -1.0]
    y = endings.labels_for(X, loss, 3, False, rng)
    weights = 10.0 ** rng.uniform(-3, 3, rows) if weighted else None
    return endings.Case(X, y, loss, strength, intercept, weights, None, "minimize", "")


def problem_of(case):
    return LinearModel(case.X, case.labels, case.loss, L2(case.strength), case.intercept, case.weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_it_holds_all_along_a_run(loss, intercept, weighted):
    """At every point of a run, near the minimum and far from it; the minimum is known in extended precision."""
    made = case(loss, intercept, weighted=weighted)
    problem, truth = problem_of(made), Truth(made)
    points = []
    result = trsvr.minimize(problem, callback=lambda r: points.append(r.x), tol=1e-9)
    lowest = truth.minimum(truth.point(result.x))[0]
    rng = np.random.default_rng(5)
    near = [result.x + 10.0**-k * rng.normal(size=result.x.size) for k in (2, 4, 6, 8, 10)]
    for x in (*points, *near):
        gap, bound = float(truth.value(truth.point(x)) - lowest), problem.gap_bound(x)
        assert gap <= bound + 1e-17 * float(lowest)
    assert result.gap_bound < 1e-8 * result.value


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_with_a_step_it_holds_whatever_the_step_is_and_newtons_makes_it_sharp(loss, intercept, weighted):
    """Small data, weakly penalised: near the minimum it says little more than twice what is left."""
    made = case(loss, intercept, weighted=weighted, strength=1e-7)
    problem, truth = problem_of(made), Truth(made)
    best = trsvr.minimize(problem).x
    lowest = truth.minimum(truth.point(best))[0]
    rng, view = np.random.default_rng(6), problem.curvature_view()
    for k in (1, 2, 3, 4, 5):
        x = best + 10.0**-k * rng.normal(size=best.size) / problem.column_squares.max() ** 0.5
        gap = float(truth.value(truth.point(x)) - lowest)
        value, gradient = view.evaluate(x)
        hessian = np.stack([problem.hessian_product(x, None, v) for v in np.eye(x.size)])
        newton = -np.linalg.lstsq(hessian, gradient, rcond=1e-13)[0]
        for step in (newton, 0.9 * newton, 2.0 * newton, 1e-3 * rng.normal(size=x.size), np.zeros(x.size)):
            assert gap <= view.gap_bound_near(x, value, gradient, step) + 1e-17 * float(lowest)
        if k >= 4 and not isinstance(loss, SquaredHinge):  # rows at the kink have curvatures of two sides
            assert view.gap_bound_near(x, value, gradient, newton) <= 2.1 * gap + 1e-12 * value
            assert view.gap_bound(x, value, gradient) > 4.0 * gap


def test_near_the_minimum_it_is_sharp():
    """As far as the curvature of the columns, at most 25, is above the penalty's."""
    made = case(Logistic(), strength=0.1)
    problem, truth = problem_of(made), Truth(made)
    best = trsvr.minimize(problem).x
    lowest = truth.minimum(truth.point(best))[0]
    for size in (1e-3, 1e-5, 1e-7):
        x = best + size * np.array([1.0, 0.1, 1.0, 1.0, 1.0])
        gap = float(truth.value(truth.point(x)) - lowest)
        assert gap <= problem.gap_bound(x) <= 1e4 * gap


def test_without_an_intercept_it_is_the_duality_gap():
    """By the definition of both: the slopes are the dual point."""
    made = case(Logistic(), intercept=False)
    problem, X, y = problem_of(made), made.X, made.labels
    x = np.random.default_rng(0).normal(size=4) * [0.1, 0.01, 1.0, 0.1]
    m = y * (X @ x)
    a = 1.0 / (1.0 + np.exp(m))
    v = -(X.T @ (y * a)) / len(y)
    dual = -(a * np.log(a) + (1 - a) * np.log1p(-a)).mean() - v @ v / (2 * made.strength)
    gap = np.logaddexp(0.0, -m).mean() + 0.5 * made.strength * x @ x - dual
    facts = GapFacts(made.strength, None, 0.0, 0.0, 0.0, 0.0, lambda t: True, 0.0, -math.inf)
    assert gap_bound(facts, 1.0, x, problem.value_and_gradient(x)[1]) == pytest.approx(gap, rel=1e-10)


def test_what_is_said_where_nothing_or_little_is_known():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.choice([-1.0, 1.0], 40)
    plain = LinearModel(X, y, regularizer=L2(0.0))
    result = trsvr.minimize(plain)
    assert result.gap_bound == pytest.approx(result.value)  # no more than that f is not negative
    wells = LinearModel(X, y, regularizer=L2(1e-6) + DoubleWell(1.0, 1.0))
    assert trsvr.minimize(wells).gap_bound == pytest.approx(trsvr.minimize(wells).value)
    own = FunctionProblem(2, 2, lambda x, i: 2.0 * x, lambda x, i: float(x @ x))
    assert math.isnan(trsvr.minimize(own).gap_bound)
    assert math.isnan(theory.gap_bound(own, np.ones(2)))


@pytest.mark.parametrize("solver", [trsvr.TRSVR(), trsvr.SVRG(), trsvr.LBFGS(), trsvr.SDCA()])
def test_every_solver_has_it(solver):
    made = case(Logistic(), rows=2000)
    problem = problem_of(made)
    result = trsvr.minimize(problem, solver, max_epochs=30, tol=1e-6)
    truth = Truth(made)
    lowest = truth.minimum(truth.point(trsvr.minimize(problem).x))[0]
    assert float(truth.value(truth.point(result.x)) - lowest) <= result.gap_bound
    there = theory.gap_bound(problem, result.x)
    assert result.gap_bound <= 1.5 * there + 1e-12
    if not isinstance(solver, trsvr.TRSVR):  # whose run knows a step from there
        assert result.gap_bound == pytest.approx(there, rel=0.5, abs=1e-12)


def test_the_message_says_it():
    result = trsvr.minimize(problem_of(case(Logistic())))
    assert result.message.startswith(f"converged: at most {result.gap_bound:.1g} above the minimum")


def test_estimators_and_the_command_have_it(tmp_path, capsys):
    made = case(Logistic())
    table = tmp_path / "rows.csv"
    np.savetxt(table, np.column_stack([made.labels, made.X]), delimiter=",", header="y,a,b,c,d", comments="")
    assert 0.0 < TRSVRClassifier().fit(made.X, made.labels).gap_bound_ < 1e-9
    assert 0.0 < TRSVRRegressor().fit(made.X, made.X[:, 1]).gap_bound_ < 1e-9
    assert main(["solve", str(table), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["gap"]["kind"] == "bound"
    assert 0.0 < report["gap"]["value"] < 1e-9
    assert "above the minimum" in report["message"]


def curved_elsewhere():
    """Rows whose curvatures at zero are not those at the minimum: means weighted by them are none of the columns.

    Returns also a point whose gradient, in coordinates centred there, is the intercept's alone; and f − min f there.
    """
    n = 1000
    X = np.where(np.arange(n) < n // 10, 10.0, 0.0)[:, None] + 0.01 * np.sin(np.arange(n))[:, None]
    offset = np.where(np.arange(n) < n // 10, 0.0, 6.0)
    y = np.where(np.cos(1.7 * np.arange(n)) > 0.0, 1.0, -1.0)
    made = endings.Case(X, y, Logistic(), 1e-6, True, None, offset, "", "")
    truth = Truth(made)
    slopes = 1.0 / (1.0 + np.exp(-offset)) * (1.0 - 1.0 / (1.0 + np.exp(-offset)))
    centre = float(slopes @ X[:, 0] / slopes.sum())

    def along(w, b):
        Z = (X[:, 0] - centre) * w + b + offset
        return float((-y / (1.0 + np.exp(y * Z))) @ (X[:, 0] - centre) / n + made.strength * w)

    best = trsvr.minimize(LinearModel(X, y, Logistic(), L2(made.strength), True, offset=offset)).x
    b = best[1] + centre * best[0] + 0.05
    w = scipy.optimize.brentq(along, best[0] - 1.0, best[0] + 1.0, args=(b,), xtol=1e-15)
    x = np.array([w, b - centre * w])
    lowest = truth.minimum(truth.point(best))[0]
    return made, x, float(truth.value(truth.point(x)) - lowest)


def test_means_that_are_none_are_allowed_for_on_a_device():
    torch_linear = pytest.importorskip("trsvr.torch").LinearModel
    made, x, gap = curved_elsewhere()
    there = torch_linear(made.X, made.labels, Logistic(), L2(made.strength), intercept=True, offset=made.offset)
    assert not there.centred().frame.exact
    assert gap <= there.gap_bound(x)
    plain = torch_linear(made.X, made.labels, Logistic(), L2(made.strength), intercept=True)
    assert plain.centred().frame.exact


def test_columns_far_from_zero_without_an_intercept_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) + 1e7
    result = trsvr.minimize(LinearModel(X, rng.choice([-1.0, 1.0], 60), regularizer=L2(1e-9)))
    assert "columns far from zero cost digits" in result.message


def test_compressed_rows_and_larger_data():
    made = case(Logistic(), rows=40_000, strength=1e-5)
    sparse = scipy.sparse.csr_array(np.where(np.abs(made.X) < 1.0, 0.0, made.X))
    for X in (made.X, sparse):
        problem = LinearModel(X, made.labels, regularizer=L2(made.strength), intercept=True)
        assert not problem.is_small
        result = trsvr.minimize(problem)
        assert 0.0 < result.gap_bound < 1e-6 * result.value
        assert result.gap_bound > result.value - trsvr.minimize(problem, tol=1e-12).value


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [3, 5])
def test_what_intercepts_cost_is_found_by_a_product(classes, kind):
    """Far from the minimum in the intercepts alone: the bound is near the gap, where row lengths say very little."""
    rng = np.random.default_rng(3)
    n, p = 4000, 60
    y = rng.integers(classes, size=n)
    X = (0.3 * rng.normal(size=(classes, p))[y] + rng.normal(size=(n, p)) + 1.0).astype(kind)
    problem = LinearModel(X, y, Softmax(), L2(1e-3), intercept=True)
    lowest = trsvr.minimize(problem, tol=1e-12)
    for shift in (1e-2, 1e-4):
        for own in (problem, problem.centred()):
            x = (lowest.x if own is problem else own.frame.inside(lowest.x)).copy()
            x[-classes:] += shift * rng.normal(size=classes)
            view = own.curvature_view()
            value, gradient = view.evaluate(x)
            facts = view.gap_facts(x, value)
            assert facts.product is not None
            gap, bound = value - lowest.value, gap_bound(facts, value, x, gradient)
            crude = gap_bound(facts._replace(product=None), value, x, gradient)
            assert gap <= bound + 1e-13
            assert bound <= crude
            if own is not problem and crude > 1e-6 * value:
                assert bound < 0.2 * crude
