"""The mode with nothing to choose, against SciPy's minimisers."""

import time

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import sklearn.datasets

import trsvr
from cases import cases
from oracle import Oracle
from trsvr.engine import Tolerance
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
    double_well_logistic,
    logistic,
)


def smallest_value(problem, x0):
    """The smallest value SciPy finds from two starts."""
    values = []
    for start in (x0, np.zeros(problem.n_parameters)):
        found = scipy.optimize.minimize(
            problem.value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"gtol": 1e-12, "ftol": 0, "maxiter": 5000},
        )
        values.append(found.fun)
    return min(values)


def assert_minimises(problem, **options):
    result = trsvr.minimize(problem, **options)
    assert result.success, result
    best = smallest_value(problem, result.x)
    at_zero = problem.value_and_gradient(np.zeros(problem.n_parameters))[0]
    assert result.value - best <= 1e-10 * abs(best) + 64 * np.finfo(float).eps * at_zero, result
    return result


def data(rows=3000, d=12, decades=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d)) * np.logspace(0, -decades, d)
    margins = X @ (rng.normal(size=d) * np.logspace(0, decades, d))
    return X, np.where(margins + rng.normal(size=rows) > 0, 1, -1), margins


@pytest.mark.parametrize("l2", [1e-4, 1e-8])
@pytest.mark.parametrize("decades", [0.0, 3.0])
def test_logistic_whatever_the_units(l2, decades):
    X, y, _ = data(decades=decades)
    result = assert_minimises(logistic(X, y, l2=l2))
    assert result.epochs < 30


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_any_start(scale):
    X, y, _ = data()
    start = scale * np.random.default_rng(1).normal(size=12)
    assert_minimises(logistic(X, y), x0=start, max_epochs=300)


@pytest.mark.parametrize("loss", [Squared(), PseudoHuber(0.5), SquaredHinge()])
def test_other_losses(loss):
    X, y, margins = data()
    target = y if isinstance(loss, SquaredHinge) else margins + np.random.default_rng(2).normal(size=len(y))
    assert_minimises(LinearModel(X, target, loss, L2(1e-3)), max_epochs=200)


def test_sparse_rows_intercept_and_weights():
    X, y, _ = data(rows=2000, d=30)
    X = scipy.sparse.csr_array(X * (np.random.default_rng(3).random(X.shape) < 0.2))
    weights = np.random.default_rng(4).integers(0, 4, size=len(y))
    assert_minimises(logistic(X, y, intercept=True, sample_weight=weights))


def test_all_rows_that_count_are_all_rows():
    """26 rows of weight one among 35, fewer than columns, no penalty: of a P from some of them x became 6e10 long."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((35, 108)), np.where(rng.random(35) < 0.5, 1.0, -1.0)
    weights = np.ones(35)
    weights[rng.choice(35, 9, replace=False)] = 0.0
    rows = weights > 0.0
    result = trsvr.minimize(LinearModel(X, y, sample_weight=weights), max_epochs=3, tol=0.0)
    alone = trsvr.minimize(LinearModel(X[rows], y[rows]), max_epochs=3, tol=0.0)
    np.testing.assert_allclose(result.x, alone.x, rtol=1e-6, atol=1e-8)
    assert np.abs(result.x).max() < 10.0


def test_more_columns_than_a_dense_norm_is_good_for():
    rng = np.random.default_rng(5)
    X = scipy.sparse.random(600, 1500, density=0.02, random_state=5, format="csr")
    y = np.where(rng.random(600) < 0.5, 1, -1)
    result = assert_minimises(logistic(X, y, l2=1e-4))
    assert result.trace["steps"].iloc[-1] >= 600, "a step for every row, in the dual"
    result = assert_minimises(logistic(X, y, l2=1e-4), solver=trsvr.TRSVR(norm="diagonal"))
    assert result.trace["hessian_products"].iloc[-1] > 0


def test_several_outputs():
    X, _, margins = data(rows=800, d=6)
    classes = np.digitize(margins, np.quantile(margins, [0.3, 0.7]))
    assert_minimises(LinearModel(X, classes, Softmax(), L2(1e-3), intercept=True))


@pytest.mark.parametrize("with_value", [True, False])
def test_functions_without_products(with_value):
    X, y, _ = data(rows=500, d=5)
    truth = logistic(X, y, l2=1e-3)

    def value(x, i):
        return np.logaddexp(0, -y[i] * (X[i] @ x)).mean() + 0.5e-3 * x @ x

    problem = FunctionProblem(500, 5, truth.batch_gradient, value if with_value else None)
    result = trsvr.minimize(problem)
    assert result.success
    assert np.abs(truth.value_and_gradient(result.x)[1]).max() < 1e-7


@pytest.mark.parametrize("norm", ["dense", "diagonal", "identity"])
def test_every_norm_reaches_the_minimiser(norm):
    X, y, _ = data(rows=1000)
    assert_minimises(logistic(X, y, l2=1e-3), solver=trsvr.TRSVR(norm=norm))


def test_several_outputs_in_unlike_units_are_not_left_too_early():
    """Softmax does not see a shift of all outputs; what lies along it, only the penalty says."""
    X, y = sklearn.datasets.load_wine(return_X_y=True)
    problem = LinearModel(X, y, Softmax(), L2(0.01 / len(X)))
    result = trsvr.minimize(problem)
    assert result.status is trsvr.Status.CONVERGED
    oracle = Oracle(X, y, Softmax(), problem.regularizer)
    gradient = oracle.gradient(result.x)
    assert 0.5 * gradient @ np.linalg.solve(oracle.hessian(result.x), gradient) <= 1e-10 * result.value


@pytest.mark.parametrize("scale", [0.0, 100.0])
def test_raised_curvatures_do_not_hold_a_run_back_for_ever(scale):
    """Residuals far beyond δ never come near it: steps on raised curvatures are those of reweighted least squares."""
    random = np.random.default_rng(7)
    X = random.normal(size=(225, 18))
    y = X @ random.normal(size=18) + 10.0 * random.normal(size=225)
    problem = LinearModel(X, y, PseudoHuber(0.7), L2(1e-8))
    result = assert_minimises(problem, x0=scale * random.normal(size=18))
    assert result.epochs < 40  # it was 252 and 297


def test_rows_that_are_flat_hold_a_step_back():
    """Standardised pixels, hardly a penalty: a step that ignores saturated rows puts them on the wrong side."""
    X, y = sklearn.datasets.load_digits(return_X_y=True)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    problem = LinearModel(X, y, Softmax(), L2(1e-4 / len(X)))
    result = trsvr.minimize(problem)
    assert result.status is trsvr.Status.CONVERGED
    assert result.epochs < 80  # it was 781
    gradient = Oracle(X, y, Softmax(), problem.regularizer).gradient(result.x)
    assert np.abs(gradient).max() < 1e-9


@pytest.mark.parametrize(("l2", "norm"), [(1e-6, "identity"), (1e-8, "diagonal")])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_without_a_scale_the_end_is_not_called_too_early(seed, l2, norm):
    """Five rows, 89 columns, hardly a penalty: most of what is left lies where conjugate gradients see little."""
    rng = np.random.default_rng(seed)
    X = scipy.sparse.random(5, 89, density=0.3, random_state=seed).toarray()
    X[X != 0.0] = rng.standard_normal(np.count_nonzero(X))
    y = np.where(X @ rng.standard_normal(89) + rng.standard_normal(5) > 0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    problem = LinearModel(scipy.sparse.csr_array(X), y, SquaredHinge(), L2(l2))
    result = trsvr.minimize(problem, trsvr.TRSVR(norm=norm))
    _, gradient = problem.value_and_gradient(result.x)
    if result.success:  # f is l2-strongly convex
        assert gradient @ gradient / (2 * l2) <= 1e-10 * result.value, result


def dependent(seed, loss, l2, intercept):
    """Columns that are multiples and sums of others: the penalty alone says how to share among them."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(50, 400)), int(rng.integers(8, 30))
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d))
    factor = (1.0, 0.5, 3.0, 30.0)[seed % 4]
    X[:, 0], X[:, 1], X[:, 2] = factor * X[:, -1], factor * X[:, -2], factor * (X[:, -3] + X[:, -4])
    margins = X @ rng.normal(size=d)
    noisy = margins / margins.std() + rng.normal(size=n)
    y = np.where(noisy > 0.0, 1.0, -1.0) if isinstance(loss, Logistic) else margins + rng.normal(size=n)
    return LinearModel(X, y, loss, L2(l2), intercept=intercept), Oracle(X, y, loss, L2(l2), intercept)


def polished(oracle, x):
    """The smallest value after some steps of Newton's method with the dense Hessian."""
    smallest = oracle.value(x)
    for _ in range(20):
        x = x - np.linalg.lstsq(oracle.hessian(x), oracle.gradient(x), rcond=None)[0]
        smallest = min(smallest, oracle.value(x))
    return smallest


@pytest.mark.parametrize("start", ["zero", "elsewhere"])
@pytest.mark.parametrize("intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", [Logistic(), PseudoHuber(), Squared()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("l2", [1e-6, 1e-8])
def test_what_only_the_penalty_sees_is_not_left_undone(l2, loss, intercept, start):
    """Directions without any curvature of the losses; their part of the gradient is λ times a moderate number.

    A diagonal norm is no model of them, and a run that believed its own estimate was up to 1e-5 from the minimum.
    """
    for seed in cases(6):
        problem, oracle = dependent(seed, loss, l2, intercept)
        x0 = None if start == "zero" else np.random.default_rng(seed).normal(size=problem.n_parameters)
        result = trsvr.minimize(problem, trsvr.TRSVR(norm="diagonal"), x0=x0)
        assert result.success, result
        smallest = polished(oracle, result.x)
        assert oracle.value(result.x) - smallest <= 1e-11 * smallest, (seed, result)


def test_an_end_that_the_penalty_proves_costs_nothing():
    """½‖g‖²/λ bounds what is left: where that is little, conjugate gradients need not look again."""
    X, y, _ = data()
    result = trsvr.minimize(logistic(X, y, 1e-2), trsvr.TRSVR(norm="diagonal"))
    assert result.status is trsvr.Status.CONVERGED
    assert result.gradient_norm**2 / 2e-2 <= 1e-12 * result.value
    assert result.trace["hessian_products"].iloc[-1] == result.trace["cg_iterations"].sum()


def test_conjugate_gradients_do_no_more_than_was_asked_for():
    X, y, _ = data(decades=1.0)
    problem = logistic(X, y, 1e-4)
    solver = trsvr.TRSVR(norm="diagonal")
    smallest = polished(Oracle(X, np.asarray(y, dtype=float), Logistic(), problem.regularizer), np.zeros(12))
    products = []
    for decrease in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        result = trsvr.minimize(problem, solver, tol=Tolerance(1.0, decrease))
        assert result.status is trsvr.Status.CONVERGED
        assert result.value - smallest <= decrease * smallest
        products.append(int(result.trace["hessian_products"].iloc[-1]))
    assert np.diff(products).min() >= -1  # the certificate may ask for one product more
    assert products[0] < products[2] < products[-1]


def test_the_run_is_monotone_at_reference_points_and_the_trace_says_what_it_did():
    X, y, _ = data(decades=2.0)
    result = trsvr.minimize(logistic(X, y, l2=1e-6))
    values = result.trace["value"].to_numpy()
    assert (np.diff(values) <= 8 * np.finfo(float).eps * values[:-1]).all()
    assert (result.trace["curvature_rows"].iloc[1:] > 0).all()
    assert result.trace["alpha"].iloc[1] == 1.0


def test_truly_nonconvex_ends_at_a_minimum():
    X, y, _ = data(rows=2000, d=10)
    X[:, 3] = 0.0  # at zero this coordinate sits on top of the well's hill: no gradient, negative curvature
    d, l2 = 10, 1e-4
    problem = double_well_logistic(X, y, l2=l2, gamma=10 * l2 * d)
    result = trsvr.minimize(problem, max_epochs=200)
    assert result.success
    assert result.gradient_norm <= 1e-9
    hessian = np.array([problem.hessian_product(result.x, None, unit) for unit in np.eye(d)])
    assert np.linalg.eigvalsh(hessian)[0] > 0
    assert result.trace["negative_curvature"].sum() > 0
    assert abs(result.x[3]) > 0.1


def two_wells():
    """Every row has both labels, so the gradient at zero is zero; the wells make it a maximum along some direction."""
    half = np.random.default_rng(1).normal(size=(2000, 2)) @ np.array([[1.0, 0.4], [0.0, 0.5]])
    X, y = np.repeat(half, 2, axis=0), np.tile([-1.0, 1.0], len(half))
    problem = double_well_logistic(X, y, l2=1e-3, gamma=0.5, a=1.0)
    return problem, Oracle(X, y, Logistic(), problem.regularizer)


@pytest.mark.parametrize("start", [0.0, 1e-12, 1e-9, 1e-3])
def test_a_run_that_begins_at_a_saddle_point_leaves_it(start):
    problem, oracle = two_wells()
    x0 = np.full(2, start)
    assert np.linalg.eigvalsh(oracle.hessian(x0))[0] < -0.5
    result = trsvr.minimize(problem, x0=x0)
    assert result.success
    assert oracle.value(result.x) < oracle.value(x0) - 0.1
    assert np.linalg.norm(oracle.gradient(result.x)) < 1e-8
    assert np.linalg.eigvalsh(oracle.hessian(result.x))[0] > 0


def test_a_stationary_start_that_is_a_minimum_ends_at_once():
    convex = logistic(np.repeat(np.eye(3), 2, axis=0), np.tile([-1, 1], 3))
    assert trsvr.minimize(convex).epochs == 0
    # The penalty bends down at zero, but the losses bend up more: a saddle point is suspected, and none is found.
    steep = double_well_logistic(30.0 * np.repeat(np.eye(2), 2, axis=0), np.tile([-1, 1], 2), gamma=0.5, a=1.0)
    result = trsvr.minimize(steep)
    assert result.success
    assert not result.x.any()
    assert result.epochs == 1


def test_inner_steps_on_a_quartic_do_not_run_away():
    """Far from the wells the gradient grows like a cube: steps as long as a gradient that has grown would overflow."""
    problem, _ = two_wells()
    for start in np.random.default_rng(2).uniform(-1.4, 1.4, size=(30, 2)):
        result = trsvr.minimize(problem, x0=start)  # warnings are errors
        assert result.success
        values = result.trace["value"].to_numpy()
        assert (np.diff(values) <= 8 * np.finfo(float).eps * values[:-1]).all()


def test_nonconvex_with_many_columns():
    rng = np.random.default_rng(7)
    X = scipy.sparse.random(300, 400, density=0.05, random_state=7, format="csr")
    y = np.where(rng.random(300) < 0.5, 1, -1)
    problem = LinearModel(X, y, Logistic(), L2(1e-3) + DoubleWell(10 * 1e-3 * 400, 0.5))
    result = trsvr.minimize(problem, max_epochs=300)
    assert result.success
    assert result.gradient_norm <= 1e-9
    hessian = np.array([problem.hessian_product(result.x, None, unit) for unit in np.eye(400)])
    assert np.linalg.eigvalsh(hessian)[0] > -1e-8


def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads():
    X, y, _ = data(rows=20_000, d=20)
    problem = logistic(X, y)
    results = [trsvr.minimize(problem, threads=threads) for threads in (1, 2, 4)]
    for other in results[1:]:
        assert np.array_equal(results[0].x, other.x)
        assert results[0].trace["passes"].tolist() == other.trace["passes"].tolist()


@pytest.mark.data
@pytest.mark.parametrize("name", ["mushrooms", "ijcnn1", "cod-rna"])
@pytest.mark.parametrize("l2", [1e-4, 1e-8])
def test_real_data(data_folder, name, l2):
    dataset = trsvr.datasets.load(name, data_dir=data_folder)
    problem = logistic(dataset.X, dataset.y, l2=l2)
    result = trsvr.minimize(problem)
    assert result.success
    reference = trsvr.minimize(problem, trsvr.TrustRegion(), x0=result.x, tol=1e-14, max_epochs=50)
    assert result.value - reference.value <= 1e-10 * reference.value + 64 * np.finfo(float).eps


@pytest.mark.parametrize("settings", [{"gradient": "saga"}, {"hessian": "exact"}])
def test_a_chosen_part_without_alpha_is_the_papers_algorithm_with_svrgs_step(settings):
    X, y, _ = data(rows=1000)
    problem = logistic(X, y, l2=1e-2)
    result = trsvr.minimize(problem, trsvr.TRSVR(**settings), max_epochs=30, tol=None)
    b = 200
    assert result.trace["alpha"].iloc[-1] == trsvr.theory.recommended_step(problem, "svrg", batch_size=b)
    assert result.value - smallest_value(problem, result.x) < 1e-3


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="norm must be 'auto' or 'identity' with a numeric alpha"):
        trsvr.TRSVR(alpha=0.1, norm="dense")
    with pytest.raises(ValueError, match="norm 'dense' needs a linear model"):
        trsvr.minimize(FunctionProblem(3, 1, lambda x, i: x), trsvr.TRSVR(norm="dense"))


def test_a_time_limit_ends_conjugate_gradients_and_proves_nothing():
    random = np.random.default_rng(5)
    basis = np.linalg.qr(random.normal(size=(80, 80)))[0]
    matrix, b = (basis * 10.0 ** np.linspace(0.0, -8.0, 80)) @ basis.T, random.normal(size=80)
    pause = 0.0

    def product(x, rows, v):
        time.sleep(pause)
        return matrix @ v

    quadratic = FunctionProblem(
        1, 80, lambda x, rows: matrix @ x - b, lambda x, rows: 0.5 * x @ matrix @ x - b @ x, product
    )
    free = trsvr.minimize(quadratic, max_epochs=2, tol=None)
    assert free.trace["hessian_products"].iloc[-1] > 40
    pause = 0.02
    result = trsvr.minimize(quadratic, max_seconds=0.2, max_epochs=None)
    assert result.status is trsvr.Status.TIME_LIMIT
    assert result.trace["hessian_products"].iloc[-1] <= 12
    assert result.value < 0.0
