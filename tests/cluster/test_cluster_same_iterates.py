"""The same seed gives the same iterates as in memory, however the rows are cut."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from small import LENGTHS, classification, cut

import trsvr
import trsvr.dask
from trsvr import problems

TOLERANCE = {"identity": 1e-10, "exact": 1e-10, "estimated": 1e-6}


def both(client, count: int, sparse: bool, **options):
    X, y = classification(700, 9, sparse=sparse)
    lengths = LENGTHS[count]
    there = trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), client=client, **options)
    return there, problems.LinearModel(X, y, **options)


def same_path(there, here, solver, tolerance, epochs=4, **options) -> None:
    points = {}
    for name, problem in (("there", there), ("here", here)):
        points[name] = []
        trsvr.minimize(
            problem,
            solver,
            max_epochs=epochs,
            tol=None,
            seed=5,
            callback=lambda result, name=name: points[name].append((result.x, result.value)),
            **options,
        )
    assert len(points["there"]) == len(points["here"]) == epochs + 1
    for (x, value), (x_here, value_here) in zip(points["there"], points["here"], strict=True):
        np.testing.assert_allclose(x, x_here, rtol=0, atol=tolerance)
        assert value == pytest.approx(value_here, abs=1e-12 + tolerance)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_paper_mode(client, count, sparse):
    there, here = both(client, count, sparse, intercept=True)
    for hessian, tolerance in TOLERANCE.items():
        same_path(there, here, trsvr.TRSVR(alpha=2.0, batch_size=20, inner_steps=15, hessian=hessian), tolerance)


def test_one_worker(client, single):
    for sparse in (False, True):
        there, here = both(single, 3, sparse)
        for hessian, tolerance in TOLERANCE.items():
            solver = trsvr.TRSVR(alpha=2.0, batch_size=20, inner_steps=15, hessian=hessian)
            same_path(there, here, solver, tolerance, epochs=2)
        two, _ = both(client, 3, sparse)
        x = np.linspace(-1, 1, 9)
        first, second = there.value_and_gradient(x), two.value_and_gradient(x)
        assert first[0] == second[0]
        assert np.array_equal(first[1], second[1])


def test_rows_in_parts(client):
    """Rows that do not fit at once come in parts; slices of the loop and parts do not meet at the same places."""
    there, here = both(client, 3, False, intercept=False)
    solver = trsvr.TRSVR(alpha=2.0, batch_size=7, inner_steps=40, hessian="exact")
    there.rows_at_once = 50
    same_path(there, here, solver, 1e-10, epochs=3)


@pytest.mark.parametrize(
    "solver",
    [
        trsvr.SVRG(step=0.05, batch_size=4, inner_steps=60),
        trsvr.SARAH(step=0.05, batch_size=3, inner_steps=50),
        trsvr.SGD(step=0.02),
        trsvr.Adam(),
        trsvr.TRish(hessian="exact"),
        trsvr.TrustRegion(hessian="exact"),
        trsvr.LBFGS(),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_other_methods(client, solver):
    there, here = both(client, 3, True)
    same_path(there, here, solver, 1e-9, epochs=3)


def test_automatic_steps_follow_the_data(client):
    there, here = both(client, 3, False, intercept=True)
    for batch_size in (1, 10):
        for_both = [trsvr.theory.recommended_step(one, "svrg", batch_size=batch_size) for one in (there, here)]
        assert for_both[0] == pytest.approx(for_both[1], rel=1e-6)
    same_path(there, here, trsvr.SVRG(batch_size=10, inner_steps=20), 1e-8, epochs=2)


def test_epochs_that_are_not_recorded(client):
    """Between two rows of the trace a method without reference has no full gradient that rows could come with."""
    there, here = both(client, 3, False)
    results = [trsvr.minimize(one, trsvr.SGD(), max_epochs=4, tol=None, trace_every=4) for one in (there, here)]
    np.testing.assert_allclose(results[0].x, results[1].x, rtol=0, atol=1e-12)


def test_an_estimator_that_is_not_compiled(client):
    class Mean:
        """A plain object: the run is not compiled."""

        needs_reference = False

        def evaluations(self, b):
            return b

        def memory(self, problem):
            return trsvr.parts.gradients.NoMemory()

        def restart(self, memory, x, gradient):
            pass

        def estimate(self, memory, problem, x, batch, margins, out):
            problem.batch_gradient(x, batch, margins, out)

    there, here = both(client, 3, False)
    solver = trsvr.TrustRegionMethod(gradient=Mean(), batch_size=10, inner_steps=5)
    same_path(there, here, solver, 1e-8, epochs=2)


@pytest.mark.parametrize(
    ("loss", "regularizer"),
    [
        (problems.Squared(), problems.L2(1e-2)),
        (problems.SquaredHinge(), problems.L2(1e-3) + problems.DoubleWell(0.1, 0.5)),
        (problems.Softmax(), problems.L2(1e-2)),
    ],
    ids=["Squared", "SquaredHinge+well", "Softmax"],
)
def test_losses_weights_and_gathering(client, loss, regularizer):
    X, y = classification(300, 5)
    rng = np.random.default_rng(0)
    if isinstance(loss, problems.Softmax):
        y = np.array(["a", "b", "c"])[rng.integers(3, size=300)]
    weights = rng.integers(0, 3, size=300).astype(float)
    weights[100:140] = 0.0  # a block with no row that counts
    lengths = [100, 40, 160]
    there = trsvr.dask.LinearModel(
        cut(X, lengths), cut(y, lengths), loss, regularizer, True, cut(weights, lengths), client=client
    )
    here = problems.LinearModel(X, y, loss, regularizer, True, weights)
    assert (there.n_samples, there.n_parameters) == (here.n_samples, here.n_parameters)
    assert there.largest_squared_row == pytest.approx(here.largest_squared_row)
    assert there.mean_squared_row == pytest.approx(here.mean_squared_row)
    x, v = rng.normal(size=(2, here.n_parameters))
    value, gradient = there.value_and_gradient(x)
    expected = here.value_and_gradient(x)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(there.hessian_product(x, None, v), here.hessian_product(x, None, v), atol=1e-12)
    some = rng.integers(here.n_samples, size=30)  # repeated, in no order
    np.testing.assert_allclose(there.batch_gradient(x, some), here.batch_gradient(x, some), atol=1e-13)
    np.testing.assert_allclose(there.hessian_product(x, some, v), here.hessian_product(x, some, v), atol=1e-13)
    near, far = here.gather(some), there.gather(some)
    assert np.array_equal(near.kernels.labels, far.kernels.labels)
    assert np.array_equal(near.kernels.rows.values, far.kernels.rows.values)
    np.testing.assert_allclose(near.kernels.weights, far.kernels.weights, rtol=1e-14)
    same_path(there, here, trsvr.SVRG(step=0.05, batch_size=10, inner_steps=10), 1e-10, epochs=2)


def test_many_columns_send_the_point_once(client):
    rng = np.random.default_rng(2)
    X = scipy.sparse.csr_array(scipy.sparse.random(60, 9000, density=0.01, format="csr", random_state=rng))
    y = np.tile([0, 1], 30)
    there = trsvr.dask.LinearModel(cut(X, [20, 40]), cut(y, [20, 40]), client=client)
    x = rng.normal(size=9000)
    expected = problems.LinearModel(X, y).value_and_gradient(x)
    with trsvr.dask.Traffic(client) as traffic:
        value, gradient = there.value_and_gradient(x)
        sent = traffic.counts().to_workers
    assert value == pytest.approx(expected[0])
    np.testing.assert_allclose(gradient, expected[1], atol=1e-14)
    assert 2 * x.nbytes <= sent <= 2 * x.nbytes + 10_000  # once to each of the two workers


def test_dask_arrays_and_float32(client):
    X, y = classification(400, 6)
    X = X.astype(np.float32)
    here = problems.LinearModel(X, y)
    x = np.linspace(-1, 1, 6)
    array = da.from_array(X, chunks=(150, 4))  # columns are split: put together
    for labels in (y, da.from_array(y, chunks=130), y[:, None]):
        there = trsvr.dask.LinearModel(array, labels, client=client)
        assert there.n_blocks == 3
        np.testing.assert_allclose(there.value_and_gradient(x)[1], here.value_and_gradient(x)[1], atol=1e-14)
