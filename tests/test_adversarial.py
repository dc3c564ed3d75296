"""Problems that were made to break solvers: every run ends, in a status that is true, at a finite point."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import trsvr
from oracle import Oracle
from trsvr import Status
from trsvr.problems import L2, Binomial, Gamma, LinearModel, Logistic, NegativeBinomial, Poisson, Tweedie

RANDOM = np.random.default_rng(3)
N, D = 120, 5
X = RANDOM.normal(size=(N, D))
Y = np.where(X @ [1.0, -2.0, 0.5, 0.0, 1.0] + RANDOM.logistic(size=N) > 0, 1.0, -1.0)

SOLVERS = {
    "adaptive": trsvr.TRSVR(),
    "trsvr": trsvr.TRSVR(alpha=0.5, batch_size=1, inner_steps=20),
    "svrg": trsvr.SVRG(),
    "saga": trsvr.SAGA(),
    "sarah": trsvr.SARAH(),
    "sgd": trsvr.SGD(batch_size=1),
    "adam": trsvr.Adam(batch_size=1),
    "trust-region": trsvr.TrustRegion(),
    "trish": trsvr.TRish(batch_size=1),
    "lbfgs": trsvr.LBFGS(),
}
#: Methods that look at the value before they keep a step.
DESCENDING = ("adaptive", "trust-region", "lbfgs")


def scaled(factor: float) -> np.ndarray:
    matrix = X.copy()
    matrix[:, 1] *= factor
    return matrix


def with_column(column: np.ndarray) -> np.ndarray:
    return np.column_stack([X, column])


SEPARABLE = np.where(X[:, 0] > 0, 1.0, -1.0)
WEIGHTS = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)

#: rows, labels, λ, further arguments, and whether a minimiser exists that can be computed
PROBLEMS = {
    "separable, no penalty": (X, SEPARABLE, 0.0, {}, False),
    "duplicated columns, no penalty": (with_column(X[:, 0]), Y, 0.0, {}, True),
    "constant column and intercept": (with_column(np.ones(N)), Y, 1e-3, {"intercept": True}, True),
    "zero column, no penalty": (with_column(np.zeros(N)), Y, 0.0, {}, True),
    "column of 1e150": (scaled(1e150), Y, 1e-3, {}, False),
    "column of 1e-150": (scaled(1e-150), Y, 1e-3, {}, True),
    "all of 1e150": (X * 1e150, Y, 1e-3, {}, False),
    "all of 1e-150": (X * 1e-150, Y, 1e-3, {}, True),
    "all of 1e200": (X * 1e200, Y, 1e-3, {}, False),
    "denormals": (X * 1e-310, Y, 1e-3, {}, True),
    "denormals, no penalty": (X * 1e-310, Y, 0.0, {}, False),
    "two samples": (X[:2], np.array([1.0, -1.0]), 1e-2, {}, True),
    "one column": (X[:, :1], Y, 1e-3, {}, True),
    "zero rows": (np.where(np.arange(N)[:, None] % 2 == 0, 0.0, X), Y, 1e-3, {}, True),
    "only zero rows": (np.zeros((N, D)), Y, 1e-3, {}, True),
    "only zero rows, no penalty": (np.zeros((N, D)), Y, 0.0, {}, True),
    "weights of zero": (X, Y, 1e-3, {"sample_weight": WEIGHTS}, True),
    "a tiny weight": (X, Y, 1e-3, {"sample_weight": np.where(np.arange(N) == 7, 1e-300, 1.0)}, True),
    "a huge penalty": (X, Y, 1e150, {}, True),
}


@pytest.fixture(scope="module", params=PROBLEMS)
def hostile(request):
    rows, labels, strength, more, solvable = PROBLEMS[request.param]
    problem = LinearModel(rows, labels, Logistic(), L2(strength), **more)
    weights = more.get("sample_weight")
    kept = slice(None) if weights is None else weights > 0
    scale = None if weights is None else weights[kept] * np.count_nonzero(weights) / weights.sum()
    oracle = Oracle(rows[kept], labels[kept], Logistic(), L2(strength), more.get("intercept", False), scale)
    return problem, oracle, solvable


@pytest.mark.parametrize("name", SOLVERS)
def test_every_run_ends_with_a_true_status(hostile, name):
    problem, oracle, solvable = hostile
    solver = SOLVERS[name]
    if (
        getattr(solver, "step", None) == "auto"
        and not 0.0 < problem.mean_squared_row + problem.regularizer.strength < np.inf
    ):
        with pytest.raises(ValueError, match="no curvature, or one that is not finite"):
            trsvr.minimize(problem, solver)
        return
    result = trsvr.minimize(problem, solver, max_epochs=60, max_seconds=20)
    assert np.isfinite(result.x).all()
    assert np.isfinite(result.value)
    start = np.zeros(problem.n_parameters)
    with np.errstate(over="ignore"):
        value, gradient = oracle.value(result.x), oracle.gradient(result.x)
        at_zero = np.abs(oracle.gradient(start)).max()
    assert result.value <= oracle.value(start) * (1 + 1e-12)
    assert abs(result.value - value) <= 1e-9 * (1.0 + abs(value))
    if result.status is Status.CONVERGED and solvable:
        best = _minimum(oracle)
        small = np.abs(gradient).max() <= 1.01e-8 * at_zero
        assert small or value - best <= 1e-9 * (abs(best) + 1e-300), (value, best)
    if result.status is Status.ROUNDING_FLOOR and solvable:
        assert value - _minimum(oracle) <= 1e-7 * (abs(value) + 1e-300)
    if name in DESCENDING and solvable:
        assert result.success, result.message
    if name in DESCENDING:
        assert result.status is not Status.DIVERGED or "scale the columns" in result.message, result.message


def _minimum(oracle: Oracle) -> float:
    """f* by Newton's method on the dense oracle, with a line search and a pseudo-inverse: slow and plain."""
    x = np.zeros(oracle.n_parameters)
    for _ in range(200):
        gradient, hessian = oracle.gradient(x), oracle.hessian(x)
        step = -np.linalg.lstsq(hessian, gradient, rcond=1e-14)[0]
        length, value = 1.0, oracle.value(x)
        while length > 1e-12 and not oracle.value(x + length * step) < value:
            length *= 0.5
        if length <= 1e-12:
            break
        x = x + length * step
    return float(oracle.value(x))


@pytest.mark.parametrize("batch", [1, N])
@pytest.mark.parametrize(
    "method", [trsvr.TRSVR, trsvr.SVRG, trsvr.SAGA, trsvr.SARAH, trsvr.SGD, trsvr.Adam, trsvr.TRish]
)
def test_batches_of_one_row_and_of_all_rows(method, batch):
    problem = trsvr.problems.logistic(X, Y, l2=1e-2)
    more = {"alpha": 0.5} if method is trsvr.TRSVR else {}
    result = trsvr.minimize(problem, method(batch_size=batch, **more), max_epochs=30)
    known = scipy.optimize.minimize(lambda x: problem.value_and_gradient(x)[0], np.zeros(D))
    assert result.value < np.log(2)
    assert result.value >= known.fun - 1e-7
    assert result.status in (Status.CONVERGED, Status.ROUNDING_FLOOR, Status.EPOCH_LIMIT)


@pytest.mark.parametrize("loss", [trsvr.problems.Logistic(), trsvr.problems.SquaredHinge(), trsvr.problems.Softmax()])
def test_labels_that_are_all_equal_are_refused(loss):
    with pytest.raises(ValueError, match="y must contain at least two classes, got only the label 1"):
        LinearModel(X, np.ones(N), loss)


def test_one_sample():
    """A regression on one row: the minimiser is known."""
    row = np.array([[3.0, 4.0]])
    problem = LinearModel(row, [10.0], trsvr.problems.Squared(), L2(0.5))
    for solver in (trsvr.TRSVR(), trsvr.LBFGS(), trsvr.TrustRegion(), trsvr.SVRG(), trsvr.SAGA()):
        result = trsvr.minimize(problem, solver, max_epochs=300)
        assert result.success, (solver, result.message)
        np.testing.assert_allclose(result.x, row[0] * 10.0 / (25.0 + 0.5), rtol=1e-6)


FAMILY_LABELS = {
    "counts of 1e9": (Poisson(), 1e9 * np.exp(0.1 * X[:, 0])),
    "one count of 1e9": (Poisson(), np.where(np.arange(N) == 0, 1e9, 1.0)),
    "nearly only zeros": (Poisson(), np.where(np.arange(N) == 0, 1.0, 0.0)),
    "amounts from 1e-12 to 1e12": (Gamma(), 10.0 ** RANDOM.uniform(-12, 12, N)),
    "amounts of 1e-300": (Gamma(), np.full(N, 1e-300)),
    "amounts, mostly zero": (Tweedie(1.9), np.where(np.arange(N) % 7 == 0, 1e6, 0.0)),
    "large and overdispersed": (NegativeBinomial(50.0), np.where(np.arange(N) % 3 == 0, 1e9, 0.0)),
    "hardly overdispersed": (NegativeBinomial(1e-9), RANDOM.poisson(5.0, N).astype(float)),
    "shares at the edge": (Binomial(), (X[:, 0] > 0).astype(float)),
}


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
@pytest.mark.parametrize("name", FAMILY_LABELS)
def test_families_end_truly(name, penalty):
    """Also from a start whose margins are 1e4, where most of them overflow."""
    loss, y = FAMILY_LABELS[name]
    weights = np.where(np.arange(N) % 5 == 1, 0.0, 1.0)
    problem = LinearModel(X, y, loss, L2(penalty), intercept=True, sample_weight=weights)
    begin = np.zeros(D + 1)
    begin[-1] = 0.0 if isinstance(loss, Binomial) else np.log(y[weights > 0].mean())
    result = trsvr.minimize(problem, x0=begin, max_epochs=300)
    assert np.isfinite(result.x).all()
    assert result.status in (Status.CONVERGED, Status.ROUNDING_FLOOR, Status.EPOCH_LIMIT)
    assert result.value <= problem.value_and_gradient(begin)[0]
    if penalty:
        assert result.status is not Status.EPOCH_LIMIT
        assert np.abs(result.gradient).max() <= 1e-5 * max(1.0, float(np.abs(y).max()))
    for far in (-1e4, 1e4):
        begin[-1] = far
        value = problem.value_and_gradient(begin)[0]
        assert not np.isnan(value)
        end = trsvr.minimize(problem, x0=begin, max_epochs=20)
        assert np.isfinite(end.x).all()
        assert np.isinf(value) or end.value <= value
