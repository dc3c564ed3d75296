"""An offset is a column of X whose weight is one: every answer is compared with that of such a model."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import trsvr
from oracle import loss_terms
from trsvr.problems import L2, LinearModel, Logistic, PseudoHuber, Softmax, Squared, SquaredHinge

LOSSES = (Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.7), Softmax())
SMALL, LARGE = 60, 3000


def data(loss, rows, columns=6, seed=0):
    """X, y, an offset and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    outputs = 3 if isinstance(loss, Softmax) else 1
    offset = rng.normal(size=(rows, outputs))
    Z = X @ rng.normal(size=(columns, outputs)) + offset + rng.normal(size=(rows, outputs))
    y = Z.argmax(1) if outputs > 1 else (Z[:, 0] if isinstance(loss, Squared | PseudoHuber) else np.sign(Z[:, 0]))
    weights = rng.uniform(0.0, 2.0, rows)
    weights[::7] = 0.0
    return X, y, offset if outputs > 1 else offset[:, 0], weights


def pair(loss, rows, sparse, weighted):
    """A model with an offset, the one with more columns, and the latter's point and places for a point of the former.

    With K outputs the columns are K, and their weights the identity.
    """
    X, y, offset, weights = data(loss, rows)
    more = np.hstack([X, offset.reshape(rows, -1)])
    if sparse:
        X, more = scipy.sparse.csr_array(X), scipy.sparse.csr_array(more)
    kwargs = {"loss": loss, "intercept": True, "sample_weight": weights if weighted else None}
    model = LinearModel(X, y, regularizer=L2(0.0), offset=offset, **kwargs)
    other = LinearModel(more, y, regularizer=L2(0.0), **kwargs)
    p, K = X.shape[1], model.n_outputs

    def lift(x, corner=1.0):
        W = x.reshape(p + 1, K)
        return np.vstack([W[:p], corner * np.eye(K), W[p:]]).ravel()

    def lower(g):
        W = g.reshape(p + 1 + K, K)
        return np.vstack([W[:p], W[p + K :]]).ravel()

    return model, other, lift, lower


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("loss", "rows"),
    [*((loss, SMALL) for loss in LOSSES), (Logistic(), 8 * LARGE), (Softmax(), 8 * LARGE)],
    ids=lambda value: str(value).split("(")[0],
)
def test_answers_are_those_of_a_column_of_weight_one(loss, rows, sparse, weighted):
    model, other, lift, lower = pair(loss, rows, sparse, weighted)
    assert model.is_small == (rows == SMALL)
    rng = np.random.default_rng(1)
    x, v = rng.normal(size=(2, model.n_parameters))
    value, gradient = model.value_and_gradient(x)
    wanted, theirs = other.value_and_gradient(lift(x))
    assert value == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(gradient, lower(theirs), atol=1e-12)
    batch = rng.integers(model.n_samples, size=17)
    np.testing.assert_allclose(model.batch_gradient(x, batch), lower(other.batch_gradient(lift(x), batch)), atol=1e-12)
    for indices in (None, batch):
        ours = model.hessian_product(x, indices, v)
        np.testing.assert_allclose(ours, lower(other.hessian_product(lift(x), indices, lift(v, 0.0))), atol=1e-11)
    np.testing.assert_allclose(model.decision(x), other.decision(lift(x)), atol=1e-12)
    view, twin = model.curvature_view(), other.curvature_view()
    view.evaluate(x), twin.evaluate(lift(x))
    np.testing.assert_allclose(view.product(v), lower(twin.product(lift(v, 0.0))), atol=1e-11)
    np.testing.assert_allclose(view.diagonal(), lower(twin.diagonal()), atol=1e-11)


SOLVERS = [
    trsvr.TRSVR(),
    trsvr.TRSVR(batch_size=40, inner_steps=5),
    trsvr.SDCA(),
    trsvr.SVRG(),
    trsvr.SAGA(),
    trsvr.SARAH(),
    trsvr.TrustRegion(),
    trsvr.LBFGS(),
]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_every_solver_finds_the_minimum(solver, sparse):
    X, y, offset, _ = data(Logistic(), LARGE, seed=2)
    strength = 1e-2

    def f(x):
        values, slopes, _ = loss_terms(Logistic(), (X @ x[:-1] + x[-1] + offset)[:, None], y)
        gradient = np.append(X.T @ slopes[:, 0], slopes.sum()) / LARGE
        gradient[:-1] += strength * x[:-1]
        return values.mean() + 0.5 * strength * x[:-1] @ x[:-1], gradient

    best = scipy.optimize.minimize(f, np.zeros(7), jac=True, method="BFGS", options={"gtol": 1e-11})
    rows = scipy.sparse.csr_array(X) if sparse else X
    model = LinearModel(rows, y, regularizer=L2(strength), intercept=True, offset=offset)
    result = trsvr.minimize(model, solver, max_epochs=400, max_seconds=60, tol=1e-7)
    np.testing.assert_allclose(result.x, best.x, atol=2e-5)
    assert f(result.x)[0] == pytest.approx(result.value, rel=1e-13)


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (np.zeros(5), "one number for each of the 60 rows of X, got shape \\(5,\\)"),
        (np.zeros((60, 2)), "got shape \\(60, 2\\)"),
        (np.where(np.arange(60) == 7, np.nan, 0.0), "finite, got nan at row 7"),
        (["a"] * 60, "offset must be numbers"),
    ],
)
def test_a_wrong_offset_is_refused(offset, message):
    X, y, _, _ = data(Logistic(), SMALL)
    with pytest.raises(ValueError, match=message):
        LinearModel(X, y, offset=offset)


def test_rows_that_are_gathered_bring_theirs():
    X, y, offset, _ = data(Softmax(), SMALL)
    model = LinearModel(X, y, Softmax(), intercept=True, offset=offset)
    x = np.random.default_rng(3).normal(size=model.n_parameters)
    some = np.array([3, 50, 3, 9])
    np.testing.assert_allclose(model.gather(some).value_and_gradient(x)[1], model.batch_gradient(x, some), atol=1e-13)


def test_it_is_part_of_the_fingerprint():
    X, y, offset, _ = data(Logistic(), SMALL)
    prints = {LinearModel(X, y, offset=one).fingerprint() for one in (None, offset, offset + 1.0)}
    assert len(prints) == 3
