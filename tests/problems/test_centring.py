"""Centred coordinates: the same function, the same minimum, whatever the columns' units and origins."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import Ridge

import endings
import trsvr
from trsvr._draws import Draws
from trsvr.problems import L2, LinearModel, Logistic, Softmax
from trsvr.problems.centring import CentredView, Centring
from trsvr.problems.columns import bulk_of, centred_gram, column_squares
from trsvr.sklearn import TRSVRRegressor
from truth import Truth

#: the worst of 73 000 fits before columns were centred
FOUND = (4000298, 13001449, 9000437, 7001557, 1001111, 1002291, 559)


@pytest.mark.parametrize("number", FOUND)
def test_fits_that_once_ended_above_the_minimum(number):
    wrong, story = endings.check("scaled", number)
    assert not wrong, story


#: mostly squared hinges with rows at their kinks, where short steps gained nothing
KINKS = (1869, 12444, 19728, 34021, 38714, 46080)
#: few rows have nearly all the weight, or one row of 11107 the other label: they say how long a step should be
HEAVY = (16769, 22249)
#: kinks on columns far from zero, by compiled code
FAR = (4503, 4922, 5563, 15916, 22073, 29554, 39234, 40755, 46374, 48496)


@pytest.mark.parametrize("number", [*KINKS, *HEAVY, *(pytest.param(k, marks=pytest.mark.slow) for k in FAR)])
def test_grown_fits_that_once_ended_above_the_minimum(number):
    wrong, story = endings.check("grown", number)
    assert not set(wrong) - endings.HARMLESS, story


@pytest.mark.parametrize("family", endings.FAMILIES)
def test_endings_are_true(family):
    for number in range(40):
        if getattr(endings, family)(number).door != "dask":  # a cluster is started elsewhere
            wrong, story = endings.check(family, number)
            assert not set(wrong) - endings.HARMLESS, story


def test_separable_columns_of_any_unit_take_few_iterations():
    """Values stood still from the fiftieth of a thousand iterations on, on nine of these forty sets."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(78, 14)) * 10.0 ** rng.uniform(-4, 4, 14)
        y = (X @ rng.normal(size=(14, 2))).argmax(1)
        case = endings.Case(X, 2.0 * y - 1.0, Logistic(), 1e-4 / 78, True, None, None, "estimator", "")
        ending, truth = endings.by_estimator(case), Truth(case)
        point = truth.point(ending.x)
        lowest, doubt = truth.minimum(point)
        gap = truth.value(point) - lowest
        assert ending.epochs <= 150
        assert not ending.warned
        assert gap <= min(1e-9 * lowest, ending.bound + 1e-17 * lowest)
        assert doubt <= 1e-13 * lowest


def huge_entries(size, door):
    """Two of 300 entries of a column; the others are about 50."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) + np.array([0.0, 50.0, 0.0])
    y = np.where(X @ [1.0, 0.5, -1.0] - 25.0 + rng.normal(size=300) > 0.0, 1.0, -1.0)
    X[[7, 80], 1] = size
    return endings.Case(X, y, Logistic(), 1e-3, True, None, None, door, "")


@pytest.mark.parametrize("door", ["minimize", "compiled"])
@pytest.mark.parametrize("size", [1e10, 1e13])
def test_a_few_huge_entries_hide_no_minimum(size, door):
    """A mean far from all rows but one would cost the digits that centring is for.

    And until a step has left the two rows behind, the model sees 1e-13 of f to gain, where a tenth of it is left.
    """
    case = huge_entries(size, door)
    ending, truth = endings.DOORS[door](case), Truth(huge_entries(1e8, door))
    # The two rows are far on their right side: how far makes no difference.
    lowest = float(truth.minimum(0 * truth.point(ending.x))[0])
    gap = LinearModel(case.X, case.labels, Logistic(), L2(1e-3), True).value_and_gradient(ending.x)[0] - lowest
    assert ending.status == "CONVERGED"
    assert abs(gap) <= 1e-12 * lowest
    assert ending.bound >= gap


def test_where_no_digit_of_f_shows_the_way_nothing_is_called_converged():
    ending = endings.by_minimize(huge_entries(1e15, "minimize"))
    assert ending.status == "ROUNDING_FLOOR"
    assert ending.bound > 0.04


def model(rows, loss=None, sparse=False, weighted=False, far=1e3):
    rng = np.random.default_rng(rows)
    X = rng.normal(size=(rows, 5)) * 10.0 ** np.arange(-2, 3) + far * 10.0 ** np.arange(-2, 3)
    loss = Logistic() if loss is None else loss
    y = rng.integers(3 if isinstance(loss, Softmax) else 2, size=rows)
    weights = rng.integers(0, 3, size=rows).astype(float) if weighted else None
    X = scipy.sparse.csr_array(X) if sparse else X
    return LinearModel(X, y, loss, L2(1e-3), intercept=True, sample_weight=weights)


KINDS = pytest.mark.parametrize(
    ("rows", "loss", "sparse"),
    [(60, Logistic(), False), (60, Softmax(), False), (60, Logistic(), True), (30_000, Logistic(), False)],
    ids=["small", "small softmax", "small CSR", "compiled"],
)


@KINDS
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_function_in_other_coordinates(rows, loss, sparse, weighted):
    problem = model(rows, loss, sparse, weighted, far=10.0)
    centred = problem.centred()
    rng = np.random.default_rng(1)
    x, v = rng.normal(size=(2, problem.n_parameters))
    frame = centred.frame
    z = frame.inside(x)
    np.testing.assert_allclose(frame.outside(z), x, rtol=1e-12)
    value, gradient = problem.value_and_gradient(x)
    there, inner = centred.value_and_gradient(z)
    assert there == pytest.approx(value, rel=1e-11)
    np.testing.assert_allclose(frame.gradient_outside(inner), gradient, atol=1e-9 * np.abs(gradient).max())
    # Along the intercept both gradients say the same: a change of z there is one of b.
    np.testing.assert_allclose(inner[-problem.n_outputs :], gradient[-problem.n_outputs :], atol=1e-9)
    h = problem.hessian_product(x, None, frame.outside(v))
    np.testing.assert_allclose(
        centred.hessian_product(z, None, v), frame.gradient_inside(h), atol=1e-9 * np.abs(h).max()
    )


@pytest.mark.parametrize("rows", [60, 30_000])
def test_columns_are_centred_in_the_curvature(rows):
    """At zero all curvatures are alike, and centred columns are orthogonal to the intercept."""
    problem = model(rows)
    view = problem.centred().curvature_view()
    view.evaluate(np.zeros(6))
    H = view.blocks(rows, Draws(0, 0))[0][0]
    wanted = 0.25 * np.cov(problem.kernels.rows.values.T, bias=True)
    root = np.sqrt([*wanted.diagonal(), 0.25])
    units = np.outer(root, root)
    np.testing.assert_allclose(H[:5, :5] / units[:5, :5], wanted / units[:5, :5], atol=1e-6)
    assert np.abs(H[:5, 5] / units[:5, 5]).max() < 1e-6
    np.testing.assert_allclose(view.diagonal(), [*wanted.diagonal(), 0.25], rtol=1e-5)
    columns = np.array([view.product(e) for e in np.eye(6)])
    np.testing.assert_allclose(columns / units, H / units, atol=1e-5)


def test_a_matrix_there_and_back():
    rng = np.random.default_rng(0)
    frame, H = Centring(rng.normal(size=4), 1), rng.normal(size=(2, 5, 5))
    T = np.eye(5)
    T[4, :4] = -frame.means
    np.testing.assert_allclose(frame.matrix_inside(H), T.T @ H @ T, atol=1e-14)
    np.testing.assert_allclose(frame.matrix_outside(frame.matrix_inside(H)), H, atol=1e-13)


def test_sums_of_columns_far_from_zero():
    """Against extended precision: squares that are 10¹² of what is left of them, and rows that do not count."""
    rng = np.random.default_rng(4)
    X, weights = rng.normal(size=(3000, 4)) + 1e6, rng.uniform(size=3000)
    X[5], weights[5] = np.nan, 0.0
    found = centred_gram(X, np.full(4, 1e6), weights)
    Z = np.delete(np.column_stack([X.astype(np.longdouble) - 1e6, np.ones(3000)]), 5, axis=0)
    wanted = (Z.T * np.delete(weights, 5)) @ Z
    np.testing.assert_allclose(found, wanted.astype(float), rtol=1e-12, atol=1e-10)
    squares = column_squares(scipy.sparse.csr_array(Z[:, :4].astype(float)), np.delete(weights, 5))
    np.testing.assert_allclose(squares, np.diag(wanted)[:4].astype(float) / weights.sum(), rtol=1e-12)


def test_where_the_bulk_of_a_column_is():
    rows = np.random.default_rng(0).normal(size=(31, 3)) + np.array([0.0, 1e5, 0.0])
    means = rows.mean(0) + np.array([0.0, 0.0, 1e9])  # of all rows, of which some are huge
    found = bulk_of(means, rows)
    np.testing.assert_array_equal(found.middles[:2], means[:2])
    assert abs(found.middles[2]) < 1.0
    assert found.is_far
    assert not bulk_of(means[:1], rows[:, :1]).is_far
    assert not bulk_of(np.array([7.0]), np.full((31, 1), 7.0)).is_far  # a constant has no digits to lose


def test_without_an_intercept_nothing_is_centred():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    problem = LinearModel(X, X[:, 0] > 0)
    assert problem.centred() is problem
    assert isinstance(model(30_000).centred().curvature_view(), CentredView)


@pytest.mark.parametrize("rows", [200, 30_000])
def test_the_regressor_agrees_with_ridge_far_from_the_origin(rows):
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(rows, 5))
    y = Z @ rng.normal(size=5) + rng.normal(size=rows)
    X = Z + 1e6
    ours, theirs = TRSVRRegressor(alpha=1.0).fit(X, y), Ridge(alpha=1.0).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.predict(X[:9]), theirs.predict(X[:9]), atol=1e-6)


def test_a_run_goes_on_in_the_users_coordinates(tmp_path):
    """The trace, the callback and a checkpoint's best point are the user's, and a run goes on to the same bits."""
    problem, seen = model(30_000), []
    whole = trsvr.minimize(problem, callback=seen.append)
    for result in (*seen, whole):
        value, gradient = problem.value_and_gradient(result.x)
        assert result.value == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(result.gradient, gradient, atol=1e-6 * np.abs(seen[0].gradient).max())
    half = tmp_path / "half.ckpt"
    trsvr.minimize(problem, max_epochs=3, checkpoint=half)
    resumed = trsvr.resume(half, problem, max_epochs=None)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.gap_bound == whole.gap_bound
    again = trsvr.resume(half, problem)
    np.testing.assert_array_equal(again.x, whole.x)
    assert again.gap_bound == whole.gap_bound
