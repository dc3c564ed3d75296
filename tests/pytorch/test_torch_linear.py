"""Linear models on tensors, on a CPU: against a dense NumPy oracle, and against the compiled problem and solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import trsvr
from oracle import Oracle, scaled_weights
from trsvr import problems
from trsvr._draws import Draws
from trsvr.problems.output_curvature import OutputView
from trsvr.torch import LinearModel
from trsvr.torch.linear import wide

PENALTY = problems.L2(1e-2) + problems.DoubleWell(0.3, 0.7)
LOSSES = [
    problems.Logistic(),
    problems.SquaredHinge(),
    problems.Squared(),
    problems.PseudoHuber(0.7),
    problems.Softmax(),
]
BY_NAME = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
# The kinds of compiled problem that other tests compile too, one for each loss and more.
COMPILED = pytest.mark.parametrize(
    ("loss", "regularizer", "kind", "dtype"),
    [
        (problems.Logistic(), problems.L2(1e-2), "dense", np.float64),
        (problems.Logistic(), problems.L2(1e-2) + problems.DoubleWell(0.3, 0.5), "csr", np.float64),
        (problems.SquaredHinge(), problems.DoubleWell(0.3, 0.5), "dense", np.float32),
        (problems.Squared(), problems.L2(1e-2), "csr", np.float32),
        (problems.PseudoHuber(0.7), problems.DoubleWell(0.3, 0.5) + problems.L2(0.1), "dense", np.float64),
        (problems.Softmax(), problems.L2(1e-2) + problems.DoubleWell(0.3, 0.5), "dense", np.float32),
    ],
    ids=["Logistic", "Logistic-csr", "SquaredHinge", "Squared-csr", "PseudoHuber", "Softmax"],
)
N, P = 90, 6


def data(loss, n=N, p=P, seed=0):
    """Rows with zeros, an empty row and an empty column, and labels that suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.6)
    X[3], X[:, 2] = 0.0, 0.0
    score = X @ rng.normal(size=p) + 0.3 * rng.logistic(size=n)
    if isinstance(loss, problems.Softmax):
        y = np.digitize(score, np.quantile(score, [0.3, 0.7])).astype(float)
    elif isinstance(loss, problems.Squared | problems.PseudoHuber):
        y = score
    else:
        y = np.where(score > 0, 1.0, -1.0)
    return X, y, rng


def stored(X, kind, dtype=np.float64):
    X = X.astype(dtype)
    return scipy.sparse.csr_array(X) if kind == "csr" else X


def close(found, wanted, tolerance=1e-12):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=tolerance * max(1.0, np.abs(wanted).max(initial=0.0)))


# ----------------------------------------------------------------------------------------------------- the protocol


@BY_NAME
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "dtype"), [("dense", np.float64), ("dense", np.float32), ("csr", np.float64)])
def test_protocol_against_the_oracle(loss, intercept, weighted, kind, dtype):
    X, y, rng = data(loss)
    weights = rng.integers(0, 3, N).astype(float) if weighted else None
    counted = np.ones(N, dtype=bool) if weights is None else weights > 0
    scale = None if weights is None else scaled_weights(weights[counted])
    X = X.astype(dtype)
    problem = LinearModel(stored(X, kind, dtype), y, loss, PENALTY, intercept=intercept, sample_weight=weights)
    oracle = Oracle(X[counted], y[counted], loss, PENALTY, intercept, scale)
    assert (problem.n_samples, problem.n_parameters) == (counted.sum(), oracle.n_parameters)
    x, v = rng.normal(size=(2, problem.n_parameters))
    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    batch = rng.integers(problem.n_samples, size=17)
    close(problem.batch_gradient(x, batch), oracle.gradient(x, batch))
    close(problem.hessian_product(x, None, v), oracle.hessian(x) @ v)
    close(problem.hessian_product(x, batch, v), oracle.hessian(x, batch) @ v)
    part = problem.gather(batch)
    close(part.value_and_gradient(x)[1], oracle.gradient(x, batch))
    close(part.hessian_product(x, None, v), oracle.hessian(x, batch) @ v)


@COMPILED
def test_protocol_and_predictions_are_those_of_the_compiled_problem(loss, regularizer, kind, dtype):
    X, y, rng = data(loss)
    options = {"intercept": True, "sample_weight": rng.integers(0, 3, N).astype(float)}
    X = stored(X, kind, dtype)
    tensors = LinearModel(X, y, loss, regularizer, **options)
    compiled = problems.LinearModel(X, y, loss, regularizer, **options)
    x, v = rng.normal(size=(2, compiled.n_parameters))
    batch = rng.integers(compiled.n_samples, size=17)
    for found, wanted in zip(tensors.value_and_gradient(x), compiled.value_and_gradient(x), strict=True):
        close(found, wanted)
    close(tensors.batch_gradient(x, batch), compiled.batch_gradient(x, batch))
    close(tensors.hessian_product(x, None, v), compiled.hessian_product(x, None, v))
    close(tensors.gather(batch).value_and_gradient(x)[1], compiled.gather(batch).value_and_gradient(x)[1])
    close(tensors.predict(x, X), compiled.predict(x, X))


def test_margins_far_out():
    X, y = np.array([[800.0], [-800.0], [1.0]]), np.array([1, 1, -1])
    found = LinearModel(X, y, problems.Logistic(), problems.L2(0.0)).value_and_gradient(np.array([1.0]))
    assert found[0] == pytest.approx((800.0 + np.log1p(np.e)) / 3, rel=1e-14)
    assert np.isfinite(found[1]).all()


def test_tensors_of_every_kind_are_taken():
    X, y, rng = data(problems.Logistic())
    x = rng.normal(size=P)
    wanted = LinearModel(X, y).value_and_gradient(x)
    with pytest.warns(UserWarning, match="Sparse"):  # PyTorch's word about its own CSR tensors
        compressed = torch.from_numpy(X).to_sparse_csr()
    for tensor in (torch.from_numpy(X), torch.from_numpy(X).T.contiguous().T, compressed):
        found = LinearModel(tensor, torch.from_numpy(y)).value_and_gradient(x)
        close(found[0], wanted[0])
        close(found[1], wanted[1])
    values = torch.from_numpy(X)
    assert LinearModel(values, y).sums.rows.values.data_ptr() == values.data_ptr(), "X was copied"


def test_another_regularizer_and_missing_classes():
    X, y, rng = data(problems.Softmax())
    kept = y < 2
    problem = LinearModel(X[kept], y[kept], problems.Softmax(), problems.L2(1.0), classes=[0.0, 1.0, 2.0])
    assert problem.n_parameters == 3 * P
    other = problem.with_regularizer(problems.L2(3.0))
    x = rng.normal(size=3 * P)
    close(other.value_and_gradient(x)[1] - problem.value_and_gradient(x)[1], 2.0 * x)
    assert other.sums is problem.sums


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.array([[1.0], [np.nan]])}, "X must be finite, got nan at row 1, column 0"),
        ({"X": np.empty((0, 3)), "y": []}, "at least one row"),
        ({"X": torch.zeros(2)}, "two-dimensional"),
        ({"X": torch.zeros(2, 1, dtype=torch.complex64)}, "real numbers"),
        ({"y": [1, 2, 3]}, "one label for each of the 2 rows"),
        ({"device": "abacus"}, "device must be one that torch knows"),
        ({"device": "mps"}, "float64"),
        ({"streamed": -1}, "streamed must be True, False or a number of rows"),
        ({"streamed": True, "memory": -1}, "memory must be a whole number >= 0, got -1"),
        ({"memory": 10}, "memory is a bound for streamed rows"),
        ({"X": scipy.sparse.csr_array(np.eye(2)), "streamed": True}, "streamed needs dense X"),
        ({"loss": problems.L2(1.0)}, "loss must be"),
    ],
)
def test_bad_input(change, message):
    arguments = {"X": np.ones((2, 1)), "y": [0, 1]} | change
    with pytest.raises(ValueError, match=message):
        LinearModel(**arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        LinearModel(np.ones((2, 1)), [0, 1], device="cuda")


# --------------------------------------------------------------------------------------------------------- the view


@BY_NAME
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_view_against_the_oracle(loss, kind):
    X, y, rng = data(loss)
    problem = LinearModel(stored(X, kind), y, loss, problems.L2(1e-2), intercept=True)
    oracle = Oracle(X, y, loss, problems.L2(1e-2), True)
    x, there, v = 0.5 * rng.normal(size=(3, problem.n_parameters))
    view = problem.curvature_view()
    view.evaluate(x)
    penalty = view.penalty_curvatures(x)
    wanted = oracle.hessian(x) - np.diag(penalty)
    close(view.product(v), wanted @ v)
    close(view.diagonal(), np.diag(wanted))
    matrices, counted = view.blocks(N, Draws(0, 0))
    assert counted == N * problem.n_outputs
    for k in range(problem.n_outputs):
        close(matrices[k], wanted[k :: problem.n_outputs, k :: problem.n_outputs])
    assert view.total_weight() == pytest.approx(sum(oracle._terms(x)[2][:, k, k].sum() for k in range(oracle.outputs)))
    first, second, rows = view.changes(there, 4 * N, False, Draws(5, 0), 2)
    drawn = Draws(5, 0).stream("batch", 2)
    length = rows // len(starts := drawn.integers(N, size=_runs_of(4 * N)))
    chosen = (starts[:, None] + np.arange(length)) % N
    for found, runs in ((first, chosen[: len(starts) // 2]), (second, chosen[len(starts) // 2 :])):
        change = oracle.gradient(there, runs.ravel()) - oracle.gradient(x, runs.ravel())
        close(found, change - (view.penalty_slopes(there) - view.penalty_slopes(x)))


def _runs_of(batch):
    length = 1 << (max(1, min(batch // 32, 64)).bit_length() - 1)
    return max(2, -(-batch // length // 2) * 2)


def test_sampled_matrix_is_unbiased_and_counts_its_rows():
    X, y, rng = data(problems.Logistic(), n=400)
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(0.0))
    x = rng.normal(size=P)
    view = problem.curvature_view()
    view.evaluate(x)
    wanted = Oracle(X, y, problems.Logistic(), problems.L2(0.0)).hessian(x)
    samples = [view.blocks(40, Draws(seed, 0)) for seed in range(300)]
    assert all(40 <= rows < 120 for _, rows in samples)
    mean = np.mean([matrix for (matrix,), _ in samples], axis=0)
    spread = np.std([matrix for (matrix,), _ in samples], axis=0) / np.sqrt(300)
    assert (np.abs(mean - wanted) <= 5.0 * spread + 1e-12).all()


@pytest.mark.parametrize("loss", LOSSES[:4], ids=lambda loss: type(loss).__name__)
def test_cautious_curvatures(loss):
    X, y, rng = data(loss)
    x = 3.0 * rng.normal(size=P)
    view = LinearModel(X, y, loss, problems.L2(0.0)).curvature_view()
    view.evaluate(x)
    before = view.total_weight()
    oracle = Oracle(X, y, loss, problems.L2(0.0))
    _, slopes, curvatures = oracle._terms(x)
    raised = np.maximum(curvatures[:, 0, 0], np.abs(slopes[:, 0]) / np.maximum(np.abs(X @ x), 1.0))
    assert view.raise_curvatures(1.0, 0.0) == pytest.approx(before / raised.sum(), rel=1e-12)
    close(view.blocks(N, Draws(0, 0))[0][0], (X * raised[:, None]).T @ X / N)


def test_cautious_curvatures_with_several_outputs():
    X, y, rng = data(problems.Softmax())
    weights = rng.uniform(0.5, 2.0, size=N)
    x, v = 1.5 * rng.normal(size=(2, 3 * P))
    here = OutputView(problems.LinearModel(X, y, problems.Softmax(), problems.L2(0.0), sample_weight=weights))
    there = LinearModel(X, y, problems.Softmax(), problems.L2(0.0), sample_weight=weights).curvature_view()
    for view in (here, there):
        view.evaluate(x)
    assert here.raise_curvatures(1.0, 0.0) == pytest.approx(there.raise_curvatures(1.0, 0.0), rel=1e-6)
    assert here.total_weight() == pytest.approx(there.total_weight(), rel=1e-6)
    close(there.product(v), here.product(v), 1e-6)
    close(there.diagonal(), here.diagonal(), 1e-6)
    close(there.blocks(N, Draws(0, 0))[0], here.blocks(N, Draws(0, 0))[0], 1e-6)


def test_view_is_recorded_for_checkpoints():
    X, y, rng = data(problems.Logistic())
    problem = LinearModel(X, y)
    x, v = 3.0 * rng.normal(size=(2, P))
    view, other = problem.curvature_view(), problem.curvature_view()
    view.evaluate(x)
    view.raise_curvatures(1.0, 0.0)
    other.evaluate(v)
    other.restore(view.snapshot())
    assert other.total_weight() == view.total_weight()
    assert np.array_equal(other.product(v), view.product(v))
    with pytest.raises(ValueError, match="x must have 6 numbers"):
        other.restore(view.snapshot() | {"x": np.zeros(7)})


# ---------------------------------------------------------------------------------------------------- whole solves


@COMPILED
def test_same_seed_same_iterates_as_the_compiled_solver(loss, regularizer, kind, dtype):
    X, y, _ = data(loss)
    X = stored(X, kind, dtype)
    for hessian in ("identity", "exact"):
        solver = trsvr.TRSVR(alpha=0.1, batch_size=15, inner_steps=5, hessian=hessian)
        found, wanted = (
            trsvr.minimize(model(X, y, loss, regularizer, intercept=True), solver, max_epochs=4, tol=None, seed=7)
            for model in (LinearModel, problems.LinearModel)
        )
        assert found.epochs == wanted.epochs == 4
        assert np.abs(wanted.x).max() > 1e-3
        close(found.x, wanted.x, 1e-9)


@BY_NAME
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_adaptive_mode_finds_the_minimum(loss, kind):
    X, y, _ = data(loss, n=300)
    found = trsvr.minimize(LinearModel(stored(X, kind), y, loss, problems.L2(1e-2), intercept=True))
    assert found.success, found.message
    oracle = Oracle(X, y, loss, problems.L2(1e-2), True)
    x = np.zeros(oracle.n_parameters)
    for _ in range(
        60
    ):  # Newton, damped where it must be; the least-squares solution, as softmax intercepts may be shifted
        step = np.linalg.lstsq(oracle.hessian(x), oracle.gradient(x), rcond=1e-10)[0]
        length = next(t for t in 0.5 ** np.arange(40) if oracle.value(x - t * step) <= oracle.value(x) + 1e-15)
        x = x - length * step
    assert found.value == pytest.approx(oracle.value(x), rel=1e-11)
    assert np.abs(oracle.gradient(found.x)).max() < 1e-5


def test_adaptive_mode_agrees_with_the_compiled_one():
    X, y, _ = data(problems.Logistic(), n=300)
    found, wanted = (trsvr.minimize(model(X, y)) for model in (LinearModel, problems.LinearModel))
    assert found.success, found.message
    assert found.value == pytest.approx(wanted.value, rel=1e-11)
    close(found.x, wanted.x, 1e-5)


@pytest.mark.parametrize("loss", [problems.Logistic(), problems.Softmax()], ids=["Logistic", "Softmax"])
def test_streamed_is_not_streamed(loss):
    X, y, rng = data(loss, n=500)
    X = X.astype(np.float32)
    weights = rng.uniform(0.5, 2.0, 500)
    whole, parts = (
        LinearModel(X, y, loss, PENALTY, intercept=True, sample_weight=weights, streamed=rows) for rows in (False, 130)
    )
    x, v = rng.normal(size=(2, whole.n_parameters))
    batch = rng.integers(500, size=20)
    for a, b in (
        (parts.value_and_gradient(x)[1], whole.value_and_gradient(x)[1]),
        (parts.hessian_product(x, None, v), whole.hessian_product(x, None, v)),
        (parts.batch_gradient(x, batch), whole.batch_gradient(x, batch)),
        (parts.hessian_product(x, batch, v), whole.hessian_product(x, batch, v)),
    ):
        close(a, b)
    views = [problem.curvature_view() for problem in (parts, whole)]
    for view in views:
        view.evaluate(x)
    close(views[0].diagonal(), views[1].diagonal())
    for rows in (100, 500):
        close(*(view.blocks(rows, Draws(1, 0))[0] for view in views))
    for a, b in zip(*(view.changes(v, 64, False, Draws(1, 0), 0) for view in views), strict=True):
        close(a, b)
    close(trsvr.minimize(parts).value, trsvr.minimize(whole).value, 1e-11)


def test_streamed_rows_that_stay():
    X, y, rng = data(problems.Logistic(), n=3001)
    X = X.astype(np.float32)
    weights = rng.uniform(0.5, 2.0, 3001)
    row = 4 * P + 1 + 8  # float32 columns, a label in one byte, a weight
    whole = LinearModel(X, y, problems.Logistic(), PENALTY, sample_weight=weights)
    x, v = rng.normal(size=(2, P))
    for memory, staying in ((0, 0), (1000 * row + 5, 1000), (10**9, 3001)):
        parts = LinearModel(X, y, problems.Logistic(), PENALTY, sample_weight=weights, streamed=130, memory=memory)
        resident = parts.sums.resident
        assert (0 if resident is None else resident.n_rows) == staying
        close(parts.value_and_gradient(x)[0], whole.value_and_gradient(x)[0])
        close(parts.value_and_gradient(x)[1], whole.value_and_gradient(x)[1])
        close(parts.hessian_product(x, None, v), whole.hessian_product(x, None, v))
        found = trsvr.minimize(parts)
        assert found.success, found.message
        close(found.value, trsvr.minimize(whole).value, 1e-11)


def test_samples_are_drawn_from_rows_that_stay_and_these_from_everywhere():
    n = 20_000
    X = np.zeros((n, 2), dtype=np.float32)
    X[:, 0] = np.linspace(0.0, 1.0, n)  # a row says where it is
    X[:, 1] = 1.0
    problem = LinearModel(X, X[:, 0], problems.Squared(), problems.L2(0.0), streamed=1000, memory=n // 5 * 12)
    resident = problem.sums.resident
    assert resident.n_rows == n // 5
    places = resident.rows.values[:, 0].numpy()
    assert (np.diff(places) > 0).all(), "a row stays twice"
    assert np.histogram(places, 20, (0.0, 1.0))[0].min() > 0.9 * n // 5 / 20
    view = problem.curvature_view()
    view.evaluate(np.zeros(2))
    (matrix,), taken = view.blocks(1000, Draws(0, 0))
    assert 1000 <= taken <= 1024
    close(matrix, X.T.astype(float) @ X / n, 0.01)
    # All of them, where more is asked for than stays; all there are, where as much is asked for.
    values = resident.rows.values.double().numpy()
    (matrix,), taken = view.blocks(n // 2, Draws(0, 0))
    assert taken == n // 5
    close(matrix, values.T @ values / taken)
    (matrix,), taken = view.blocks(n, Draws(0, 0))
    assert taken == n
    close(matrix, X.T.astype(float) @ X / n)
    # A batch is a small part of what stays; single rows are drawn from all.
    assert view.changes(np.ones(2), n // 4, False, Draws(0, 0), 0)[2] <= n // 5 // 4 + 64
    first, second, rows = view.changes(np.ones(2), 20 * n, True, Draws(0, 0), 0)
    assert rows == 20 * n
    close(0.5 * (first + second), X.T.astype(float) @ X @ np.ones(2) / n, 0.01)


def test_same_seed_same_bits():
    X, y, _ = data(problems.Logistic(), n=2000)
    a, b = (trsvr.minimize(LinearModel(X, y), seed=3).x for _ in range(2))
    assert np.array_equal(a, b)


@pytest.mark.parametrize("streamed", [False, 40])
@pytest.mark.parametrize("loss", [problems.Logistic(), problems.Softmax()], ids=lambda loss: type(loss).__name__)
def test_an_offset_is_that_of_the_compiled_problem(loss, streamed):
    X, y, rng = data(loss)
    outputs = 3 if isinstance(loss, problems.Softmax) else 1
    offset, weights = rng.normal(size=(N, outputs)), rng.uniform(0.0, 2.0, N)
    weights[4] = 0.0
    options = {"intercept": True, "sample_weight": weights, "offset": offset}
    here = problems.LinearModel(X, y, loss, PENALTY, **options)
    there = LinearModel(X, y, loss, PENALTY, streamed=streamed, **options)
    x, v = rng.normal(size=(2, here.n_parameters))
    for found, wanted in zip(there.value_and_gradient(x), here.value_and_gradient(x), strict=True):
        close(found, wanted)
    batch = rng.integers(N - 1, size=11)
    close(there.batch_gradient(x, batch), here.batch_gradient(x, batch))
    for indices in (None, batch):
        close(there.hessian_product(x, indices, v), here.hessian_product(x, indices, v))
    if not streamed:
        close(there.decision(x), here.decision(x)[weights > 0.0])
    with pytest.raises(ValueError, match="fused must be False with an offset"):
        LinearModel(X, y, loss, PENALTY, offset=offset, fused=True)
    offset[3, 0] = np.inf
    with pytest.raises(ValueError, match="offset must be finite, got inf at row 3"):
        LinearModel(X, y, loss, PENALTY, offset=offset)
    with pytest.raises(ValueError, match="for each of the"):
        LinearModel(X, y, loss, PENALTY, offset=offset[1:])


FAMILIES = [
    problems.Poisson(),
    problems.Gamma(),
    problems.Tweedie(1.4),
    problems.Tweedie(2.0),
    problems.NegativeBinomial(0.5),
    problems.Binomial(),
]


@pytest.mark.parametrize("loss", FAMILIES, ids=repr)
def test_families_and_a_strength_for_each_column(loss):
    rng = np.random.default_rng(6)
    X, x = rng.normal(size=(N, P)), 0.3 * rng.normal(size=P + 1)
    y = rng.integers(1, 9, N) / 8.0 if isinstance(loss, problems.Binomial) else rng.integers(1, 9, N).astype(float)
    weights, penalty = rng.integers(0, 3, N).astype(float), problems.L2(np.arange(P) / 10.0)
    options = {"intercept": True, "sample_weight": weights, "offset": 0.1 * rng.normal(size=N)}
    there = LinearModel(X, y, loss, penalty, **options)
    here = problems.LinearModel(X, y, loss, penalty, **options)
    value, gradient = there.value_and_gradient(x)
    assert value == pytest.approx(here.value_and_gradient(x)[0], rel=1e-12)
    np.testing.assert_allclose(gradient, here.value_and_gradient(x)[1], rtol=1e-10)
    np.testing.assert_allclose(there.hessian_product(x, None, x), here.hessian_product(x, None, x), rtol=1e-10)
    np.testing.assert_allclose(trsvr.minimize(there).x, trsvr.minimize(here).x, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(there.predict(x), here.predict(x)[weights > 0])
    with pytest.raises(ValueError, match="fused must be False with"):
        LinearModel(X, y, loss, fused=True)


# ------------------------------------------------------------------------------------------------------- far from zero


@pytest.mark.parametrize(
    ("dtype", "deviations", "is_far"), [(np.float32, 50.0, False), (np.float32, 1e6, True), (np.float64, 1e6, True)]
)
@pytest.mark.parametrize("streamed", [False, 700])
def test_far_from_zero_the_rows_of_a_matrix_are_centred_first(dtype, deviations, is_far, streamed):
    rng = np.random.default_rng(4)
    far = deviations * np.array([1.0, 0.0, -1.0, 1.0])
    X = (rng.normal(size=(2000, 4)) + far).astype(dtype)
    centred = X.astype(np.float64) - far
    y = np.where(centred.sum(1) + rng.logistic(size=2000) > 0.0, 1.0, -1.0)
    inside = LinearModel(X, y, intercept=True, streamed=streamed).centred()
    assert inside.frame.is_far is is_far
    view = inside.curvature_view()
    z = 0.1 * rng.normal(size=5)
    view.evaluate(z)
    matrices, counted = view.blocks(2000, Draws(0, 0))
    assert counted == 2000
    oracle = Oracle(centred + (far - inside.frame.means), y, problems.Logistic(), problems.L2(0.0), True)
    np.testing.assert_allclose(matrices[0], oracle.hessian(z), atol=1e-7)


# ------------------------------------------------------------------------------------------------------ wide dense rows


@pytest.fixture
def wide_model(monkeypatch):
    """Rows that are taken for wide ones on a GPU."""
    monkeypatch.setattr(wide, "suits", lambda sums: True)
    random = np.random.default_rng(3)
    X = (random.normal(size=(900, 60)) * np.logspace(0.0, -2.0, 60)).astype(np.float32)
    y = np.where(X @ random.normal(size=60) + random.logistic(size=900) > 0.0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize("loss", [problems.Logistic(), problems.SquaredHinge(), problems.PseudoHuber(0.1)], ids=str)
def test_steps_on_wide_rows_stay_on_the_device_and_come_to_the_minimum(wide_model, loss):
    X, y = wide_model
    weights = np.arange(900) % 3 + 0.5
    problem = LinearModel(X, y, loss, problems.L2(1e-5), sample_weight=weights)
    assert isinstance(problem.curvature_view(), wide.WideTensorView)
    result = trsvr.minimize(problem)
    truth = trsvr.minimize(problems.LinearModel(X, y, loss, problems.L2(1e-5), sample_weight=weights))
    assert result.success, result.message
    assert abs(result.value - truth.value) <= 1e-11 * truth.value
    assert result.trace.hessian_products.iloc[-1] < 60  # with a diagonal it would be hundreds
    assert np.array_equal(result.x, trsvr.minimize(problem).x)


def test_a_run_on_wide_rows_is_resumed_to_the_same_bits(wide_model, tmp_path):
    problem = LinearModel(*wide_model, regularizer=problems.L2(1e-5))
    whole = trsvr.minimize(problem)
    trsvr.minimize(problem, max_epochs=3, checkpoint=tmp_path / "run")
    trsvr.minimize(problem, max_epochs=1)  # leaves another matrix behind
    resumed = trsvr.resume(tmp_path / "run", problem, max_epochs=100)
    assert np.array_equal(resumed.x, whole.x)
    assert resumed.passes == whole.passes
