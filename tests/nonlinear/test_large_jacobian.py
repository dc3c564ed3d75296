"""More than 3000 unknowns and residuals: conjugate gradients on JᵀJ, then on the Hessian itself."""

import numpy as np
import pytest
import scipy.optimize

import trsvr
from trsvr.problems import LeastSquares

M, D = 3300, 3100


def in_columns(columns, entries):
    """Rows with one entry each."""
    rows = np.zeros((len(columns), D))
    rows[np.arange(len(columns)), columns] = entries
    return rows


@pytest.fixture
def wells():
    """r = x² − 1: where x = 0, a row of J vanishes and f has a maximum."""
    return LeastSquares(M, D, lambda x, i: x[i % D] ** 2 - 1.0, lambda x, i: in_columns(i % D, 2.0 * x[i % D]))


@pytest.fixture
def far():
    """r = sin x + 2: at the minimum r = 1 and J vanishes; the rows that begin again add parabolas of residuals."""

    def residuals(x, i):
        z = x[i % D]
        return np.where(i < D, np.sin(z) + 2.0, 0.3 * z * z - 1.0)

    def jacobian(x, i):
        z = x[i % D]
        return in_columns(i % D, np.where(i < D, np.cos(z), 0.6 * z))

    return LeastSquares(M, D, residuals, jacobian)


@pytest.mark.parametrize("saddles", [D, 1000])
def test_a_saddle_point_of_many_unknowns_is_left(wells, saddles):
    x = np.full(D, 0.5)
    x[:saddles] = 0.0
    result = trsvr.minimize(wells, x0=x, max_epochs=1000)
    assert result.status is trsvr.Status.CONVERGED
    assert result.value < 1e-20
    np.testing.assert_allclose(np.abs(result.x), 1.0, rtol=1e-9)


def test_large_residuals_end_at_a_minimum(far):
    start = np.random.default_rng(0).normal(size=D)
    result = trsvr.minimize(far, x0=start, max_epochs=1000)
    assert result.status is trsvr.Status.CONVERGED
    beside = result.x + 1e-3 * np.random.default_rng(1).normal(size=D)
    found = scipy.optimize.minimize(
        far.value_and_gradient, beside, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12}
    )
    assert found.fun >= result.value - 1e-10


@pytest.mark.parametrize("epochs", [3, 20])
def test_each_of_its_methods_goes_on_from_a_checkpoint(wells, tmp_path, epochs):
    start = np.full(D, 0.5)
    start[:1000] = 0.0
    whole = trsvr.minimize(wells, x0=start, max_epochs=40)
    trsvr.minimize(wells, x0=start, max_epochs=epochs, checkpoint=tmp_path / "run")
    resumed = trsvr.resume(tmp_path / "run", wells, max_epochs=40)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.passes == whole.passes
    assert whole.value < 0.01, "the second method has begun"


def test_every_sweep_over_the_rows_is_counted():
    """J is too large to be kept: each product makes it again."""
    swept = {"residuals": 0.0, "jacobian": 0.0}

    def residuals(x, i):
        swept["residuals"] += len(i) / M
        return x[i % D] ** 2 - 1.0

    def jacobian(x, i):
        swept["jacobian"] += len(i) / M
        return in_columns(i % D, 2.0 * x[i % D])

    result = trsvr.minimize(LeastSquares(M, D, residuals, jacobian), x0=np.full(D, 0.5), max_epochs=60)
    assert result.passes == pytest.approx(sum(swept.values()), abs=2.0)
