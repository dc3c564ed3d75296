"""Losses of generalised linear models, and penalties with a strength for each coefficient."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import trsvr
from oracle import Oracle, loss_terms
from trsvr._compile import compiled_for
from trsvr.problems import (
    L2,
    Binomial,
    DoubleWell,
    Gamma,
    LinearModel,
    NegativeBinomial,
    Poisson,
    Softmax,
    Squared,
    Tweedie,
)

FAMILIES = [Poisson(), Gamma(), Tweedie(1.5), Tweedie(1.03), NegativeBinomial(0.6), NegativeBinomial(1e-4), Binomial()]
NAMES = [repr(loss) for loss in FAMILIES]
rng = np.random.default_rng(0)


def responses(loss, size):
    """Of a family, zeros included where it has them, and around them margins near and far from the best ones."""
    y = 10.0 ** rng.uniform(-2, 6, size)
    y[rng.random(size) < 0.2] = 0.0
    if isinstance(loss, Gamma):
        y = np.maximum(y, 1e-3)
    if isinstance(loss, Binomial):
        y = rng.choice([0.0, 0.25, 0.7, 1.0], size)
    best = np.zeros(size) if isinstance(loss, Binomial) else np.log(np.maximum(y, 0.1))
    return best + rng.choice([1e-3, 0.3, 3.0, 20.0], size) * rng.normal(size=size), y


def three(loss, z, y):
    return loss.value(z, y), loss.slope(z, y), loss.curvature(z, y)


@pytest.mark.parametrize("loss", FAMILIES, ids=NAMES)
def test_formulas(loss):
    z, y = responses(loss, 2000)
    wanted = [part.ravel() for part in loss_terms(loss, z[:, None], y)]
    plain = three(loss, z, y)
    run = compiled_for(three, loss)
    compiled = np.array([run(loss, *pair) for pair in zip(z[:200].tolist(), y[:200].tolist(), strict=True)]).T
    # The oracle's longest numbers have lost some of theirs, too.
    sizes = np.abs(wanted[0]) + 2e-8 * y, np.abs(wanted[1]) + wanted[2] + 1e-3 * y, wanted[2]
    for found, machine, true, size in zip(plain, compiled, wanted, sizes, strict=True):
        assert (np.abs(found - true) <= 1e-9 * size + 1e-14).all()
        assert_allclose(machine, found[:200], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("loss", [*FAMILIES, Tweedie(1.0), Tweedie(2.0)], ids=repr)
def test_never_not_a_number(loss):
    y = np.array([5e-324, 1e-12, 1.0, 1e9])
    if isinstance(loss, Binomial):
        y = np.array([0.0, 1e-300, 0.5, 1.0])
    elif not isinstance(loss, Gamma) and loss != Tweedie(2.0):
        y = np.append(y, 0.0)
    run = compiled_for(three, loss)
    for z in (-1e4, -800.0, -1.0, 0.0, 800.0, 1e4):
        with np.errstate(all="ignore"):
            found = np.array([np.broadcast_to(part, y.shape) for part in three(loss, np.full(y.shape, z), y)])
        machine = np.array([run(loss, z, label) for label in y.tolist()]).T
        assert not np.isnan(found).any()
        assert not np.isnan(machine).any()
        assert (found[0] >= -1e-250).all()
        assert (found[2] >= 0.0).all()
        assert_allclose(machine, found, rtol=1e-11, atol=1e-12)
    if not isinstance(loss, Binomial | NegativeBinomial):
        with np.errstate(all="ignore"):
            assert np.isinf(loss.value(np.array([-1e4, 1e4]), np.ones(2))).any()


def test_the_ends_of_tweedie_are_poisson_and_gamma():
    z, y = rng.normal(size=50), rng.gamma(1.0, 1.0, 50)
    for power, other in ((1.0, Poisson()), (2.0, Gamma())):
        for found, wanted in zip(three(Tweedie(power), z, y), three(other, z, y), strict=True):
            assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("loss", [Poisson(), Gamma(), NegativeBinomial(0.6), Binomial()], ids=repr)
def test_conjugates(loss):
    """φ*(φ′(z)) = z φ′(z) − φ(z), φ*(u) ≥ uz − φ(z) elsewhere, and infinite outside its domain."""
    y = np.array([0.2, 0.9]) if isinstance(loss, Binomial) else np.array([0.5, 7.0])
    for z in (-2.0, 0.3, 2.0):
        slopes = loss.slope(np.full(2, z), y)
        assert_allclose(loss.conjugate(slopes, y), z * slopes - loss.value(np.full(2, z), y), atol=1e-12)
        assert (loss.conjugate(slopes, y) >= (z + 1.0) * slopes - loss.value(np.full(2, z + 1.0), y)).all()
    outside = np.array([1.5, 1.5]) if isinstance(loss, Gamma) else -y - 0.1
    assert np.isinf(loss.conjugate(outside, y)).all()


# ------------------------------------------------------------------------------------------------------------ the door

X = rng.normal(size=(60, 3))


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (Poisson(), -1.0, "y must be >= 0 for Poisson, got -1.0 at row 7"),
        (NegativeBinomial(1.0), -2.0, "y must be >= 0 for NegativeBinomial, got -2.0 at row 7"),
        (Tweedie(1.5), -1.0, "y must be >= 0 for Tweedie, got -1.0 at row 7"),
        (Tweedie(2.0), 0.0, "y must be > 0 for Tweedie, got 0.0 at row 7"),
        (Gamma(), 0.0, "y must be > 0 for Gamma, got 0.0 at row 7"),
        (Binomial(), 1.5, "y must be shares of successes.* got 1.5 at row 7"),
    ],
)
def test_the_row_of_a_response_that_cannot_be(loss, y, message):
    labels = np.full(60, 0.5)
    labels[7] = y
    with pytest.raises(ValueError, match=message):
        LinearModel(X, labels, loss)
    weights = np.ones(60)
    weights[7] = 0.0
    LinearModel(X, labels, loss, sample_weight=weights)  # a row of weight zero may hold anything


@pytest.mark.parametrize("power", [0.99, 2.01, 0, 3, np.nan, "1.5", True])
def test_powers_outside(power):
    with pytest.raises(ValueError, match=r"power must be a number from 1 \(Poisson\) to 2 \(Gamma\), got"):
        LinearModel(X, np.ones(60), Tweedie(power))


@pytest.mark.parametrize("dispersion", [0.0, -1.0, np.inf, np.nan, "1"])
def test_dispersions_that_are_none(dispersion):
    with pytest.raises(ValueError, match="dispersion must be a finite number > 0, got"):
        LinearModel(X, np.ones(60), NegativeBinomial(dispersion))


def test_successes_and_failures():
    successes, trials = rng.integers(0, 5, 60), rng.integers(5, 9, 60)
    trials[3] = successes[3] = 0
    counts = LinearModel(X, np.column_stack([successes, trials - successes]), Binomial(), intercept=True)
    shares = successes / np.maximum(trials, 1)
    ratios = LinearModel(X, shares, Binomial(), intercept=True, sample_weight=trials)
    x = rng.normal(size=4)
    assert counts.value_and_gradient(x)[0] == ratios.value_and_gradient(x)[0]
    assert counts.total_weight == trials.sum()
    assert counts.n_samples == 59  # a row without trials does not count
    with pytest.raises(ValueError, match=r"y must be counts >= 0, got -1\.0 at row 2, column 1"):
        LinearModel(X, np.where(np.arange(120).reshape(60, 2) == 5, -1, 1), Binomial())


def test_predictions_are_on_the_scale_of_y():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    problem = LinearModel(frame, np.ones(60), Poisson(), intercept=True, offset=np.full(60, 0.5))
    assert problem.feature_names == ("a", "b", "c")
    x = np.array([0.1, -0.2, 0.3, 1.0])
    assert_allclose(problem.predict(x), np.exp(X @ x[:3] + 1.5))
    assert_allclose(problem.predict(x, X[:5]), np.exp(X[:5] @ x[:3] + 1.0))
    assert_allclose(LinearModel(X, np.ones(60) / 2, Binomial()).predict(x[:3]), 1.0 / (1.0 + np.exp(-X @ x[:3])))


@pytest.mark.parametrize("loss", FAMILIES, ids=NAMES)
def test_passes_batches_and_products(loss):
    """Small data in NumPy, the same rows compiled, and the oracle agree."""
    _, y = responses(loss, 60)
    y = np.minimum(y, 50.0)
    weights, offset = rng.integers(0, 3, 60).astype(float), 0.1 * rng.normal(size=60)
    problem = LinearModel(X, y, loss, L2([0.0, 0.1, 0.2]), intercept=True, sample_weight=weights, offset=offset)
    kept = weights > 0.0
    scale = weights[kept] * kept.sum() / weights.sum()
    oracle = Oracle(X[kept], y[kept], loss, L2(np.array([0.0, 0.1, 0.2])), True, scale, offset[kept])
    x, v = 0.3 * rng.normal(size=4), rng.normal(size=4)
    value, gradient = problem.value_and_gradient(x)
    assert value == pytest.approx(oracle.value(x), rel=1e-12)
    assert_allclose(gradient, oracle.gradient(x), rtol=1e-10, atol=1e-12)
    assert_allclose(problem.hessian_product(x, None, v), oracle.hessian(x) @ v, rtol=1e-10)


@pytest.mark.parametrize(
    "rows", [np.asarray, pytest.param(scipy.sparse.csr_array, marks=pytest.mark.slow)], ids=["dense", "CSR"]
)
def test_compiled_passes(rows):
    y, loss, strengths = rng.poisson(2.0, 60).astype(float), Poisson(), np.array([0.0, 0.1, 2.0])
    problem = LinearModel(rows(X), y, loss, L2(strengths), intercept=True)
    vars(problem)["is_small"] = False
    oracle = Oracle(X, y, loss, L2(strengths), True)
    x, some = 0.3 * rng.normal(size=4), np.array([3, 3, 17])
    value, gradient = problem.value_and_gradient(x)
    assert value == pytest.approx(oracle.value(x), rel=1e-12)
    assert_allclose(gradient, oracle.gradient(x), rtol=1e-11)
    assert_allclose(problem.batch_gradient(x, some), oracle.gradient(x, some), rtol=1e-11)
    view = problem.curvature_view()
    assert_allclose(view.penalty_curvatures(x), [*strengths, 0.0])
    assert_allclose(view.penalty_slopes(x), [*(strengths * x[:3]), 0.0])


# ------------------------------------------------------------------------------------------- a strength for each


def test_a_strength_for_each_coefficient():
    y, strengths = rng.normal(size=60), np.array([0.0, 0.5, 3.0])
    problem = LinearModel(X, y, Squared(), L2(strengths))
    wanted = np.linalg.solve(X.T @ X / 60 + np.diag(strengths), X.T @ y / 60)
    assert_allclose(trsvr.minimize(problem, tol=1e-12).x, wanted, rtol=1e-9)
    other = LinearModel(X, y, Squared(), L2(0.1)).with_regularizer(L2(strengths.tolist()))
    assert_allclose(trsvr.minimize(other, tol=1e-12).x, wanted, rtol=1e-9)
    assert problem.fingerprint() != LinearModel(X, y, Squared(), L2(strengths + 1.0)).fingerprint()
    both = LinearModel(X, y, Squared(), L2(strengths) + DoubleWell(0.3, 0.5))
    oracle = Oracle(X, y, Squared(), L2(strengths) + DoubleWell(0.3, 0.5))
    assert_allclose(both.value_and_gradient(wanted)[1], oracle.gradient(wanted), rtol=1e-12)
    assert trsvr.theory.strong_convexity(LinearModel(X, y, Squared(), L2(strengths + 1.0))) == 1.0


def test_of_several_outputs():
    y, strengths = rng.integers(0, 3, 60), np.array([0.1, 0.5, 3.0])
    x = rng.normal(size=9)
    for given, full in ((strengths, np.repeat(strengths, 3)), (np.arange(9.0), np.arange(9.0))):
        problem = LinearModel(X, y, Softmax(), L2(given))
        oracle = Oracle(X, y.astype(float), Softmax(), L2(full))
        assert_allclose(problem.value_and_gradient(x)[1], oracle.gradient(x), rtol=1e-12)


@pytest.mark.slow
def test_of_several_outputs_compiled():
    y, strengths, x = rng.integers(0, 3, 60), np.arange(9.0), rng.normal(size=9)
    problem, oracle = LinearModel(X, y, Softmax(), L2(strengths)), Oracle(X, y.astype(float), Softmax(), L2(strengths))
    vars(problem)["is_small"] = False
    assert_allclose(problem.value_and_gradient(x)[1], oracle.gradient(x), rtol=1e-12)
    assert_allclose(problem.batch_gradient(x, np.arange(60)), oracle.gradient(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("strength", "message"),
    [
        ([1.0, 2.0], "one for each column, 3, got 2"),
        (np.ones(4), "got 4; the intercept is not penalised"),
        ([1.0, -1.0, 0.0], "strength must be >= 0, got -1.0 at position 1"),
        ([1.0, np.nan, 0.0], "must be finite, got nan at position 1"),
        (-1.0, "a finite number >= 0, got -1.0"),
    ],
)
def test_strengths_that_are_none(strength, message):
    with pytest.raises(ValueError, match=message):
        LinearModel(X, np.ones(60), Poisson(), L2(strength), intercept=True)


def test_the_dual_wants_one_strength():
    problem = LinearModel(X, rng.normal(size=60), Squared(), L2(np.ones(3)))
    with pytest.raises(ValueError, match="one strength > 0 for all coefficients"):
        trsvr.minimize(problem, trsvr.SDCA())
