"""Linear models against a dense oracle and against finite differences.

Types are paired, not crossed: every loss, every regulariser, both kinds of rows and both precisions appear, and each
pairing is compiled once. Intercept and weights cost no compiling, so hypothesis draws them.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime

from oracle import Oracle, scaled_weights
from trsvr import problems
from trsvr._compile import compiled_for
from trsvr.problems import L2, DoubleWell, LinearModel, Logistic, PseudoHuber, Softmax, Squared, SquaredHinge


@dataclass(frozen=True)
class Pairing:
    """One compiled combination."""

    loss: Any
    regularizer: Any
    sparse: bool
    dtype: Any

    def __str__(self) -> str:
        rows = "csr" if self.sparse else "dense"
        return f"{type(self.loss).__name__}-{type(self.regularizer).__name__}-{rows}-{np.dtype(self.dtype).name}"


PAIRINGS = [
    Pairing(Logistic(), L2(1e-2), sparse=False, dtype=np.float64),
    Pairing(Logistic(), L2(1e-2) + DoubleWell(0.3, 0.5), sparse=True, dtype=np.float64),
    Pairing(SquaredHinge(), DoubleWell(0.3, 0.5), sparse=False, dtype=np.float32),
    Pairing(Squared(), L2(1e-2), sparse=True, dtype=np.float32),
    Pairing(PseudoHuber(0.7), DoubleWell(0.3, 0.5) + L2(0.1), sparse=False, dtype=np.float64),
    Pairing(Softmax(), L2(1e-2), sparse=True, dtype=np.float64),
    Pairing(Softmax(), L2(1e-2) + DoubleWell(0.3, 0.5), sparse=False, dtype=np.float32),
]
every_pairing = pytest.mark.parametrize("pairing", PAIRINGS, ids=str)


@dataclass(frozen=True)
class Drawn:
    """What hypothesis decides; the numbers themselves come from a seeded generator."""

    n: int
    columns: int
    seed: int
    spread: float
    intercept: bool
    weighting: str


drawn = st.builds(
    Drawn,
    n=st.integers(3, 30),
    columns=st.integers(1, 7),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([1e-3, 1.0, 30.0]),
    intercept=st.booleans(),
    weighting=st.sampled_from(["none", "real", "some zero"]),
)


def build(pairing: Pairing, case: Drawn):
    """The problem, its oracle (over the rows that count), and a point with two directions."""
    rng = np.random.default_rng(case.seed)
    X = (case.spread * rng.normal(size=(case.n, case.columns))).astype(pairing.dtype)
    if pairing.sparse:
        X[rng.random(X.shape) < 0.6] = 0.0
    if isinstance(pairing.loss, Softmax):
        y = np.concatenate([[0, 1, 2], rng.integers(3, size=case.n - 3)]).astype(float)
    elif isinstance(pairing.loss, (Logistic, SquaredHinge)):
        y = np.concatenate([[-1.0, 1.0], rng.choice([-1.0, 1.0], size=case.n - 2)])
    else:
        y = rng.normal(size=case.n)
    weights = None
    if case.weighting != "none":
        weights = rng.uniform(0.1, 3.0, size=case.n)
        if case.weighting == "some zero" and case.n > 3:
            weights[3:][rng.random(case.n - 3) < 0.5] = 0.0
    problem = LinearModel(
        scipy.sparse.csr_array(X) if pairing.sparse else X,
        y,
        pairing.loss,
        pairing.regularizer,
        intercept=case.intercept,
        sample_weight=weights,
    )
    counted = slice(None) if weights is None else weights > 0
    scale = None if weights is None else scaled_weights(weights)[counted]
    oracle = Oracle(X[counted], y[counted], pairing.loss, pairing.regularizer, case.intercept, scale)
    x, v = rng.normal(size=(2, oracle.n_parameters)) / max(case.spread, 1.0)
    return problem, oracle, x, v, rng


def close(actual, expected, scale=1.0, rtol=1e-11):
    assert_allclose(actual, expected, rtol=rtol, atol=rtol * max(scale, float(np.max(np.abs(expected)))))


@every_pairing
@settings(max_examples=15)
@given(case=drawn)
def test_value_gradient_and_products_equal_the_oracle(pairing, case):
    problem, oracle, x, v, rng = build(pairing, case)
    assert (problem.n_samples, problem.n_parameters) == (len(oracle.y), oracle.n_parameters)

    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    close(problem.hessian_product(x, None, v), oracle.hessian(x) @ v)

    batch = rng.integers(problem.n_samples, size=int(rng.integers(1, 12)))  # rows may repeat
    close(problem.batch_gradient(x, batch), oracle.gradient(x, batch))
    close(problem.hessian_product(x, batch, v), oracle.hessian(x, batch) @ v)


@every_pairing
def test_gradient_and_products_equal_finite_differences(pairing):
    """Differences of the problem's own values and gradients: formulas and values belong together."""
    case = Drawn(n=25, columns=4, seed=7, spread=1.0, intercept=True, weighting="real")
    problem, _, x, v, rng = build(pairing, case)
    gradient = problem.value_and_gradient(x)[1]
    close(gradient, approx_fprime(x, lambda z: problem.value_and_gradient(z)[0], 1e-6), rtol=1e-4)

    batch = rng.integers(problem.n_samples, size=9)
    h = 1e-5
    change = (problem.batch_gradient(x + h * v, batch) - problem.batch_gradient(x - h * v, batch)) / (2 * h)
    close(problem.hessian_product(x, batch, v), change, rtol=1e-5)


@every_pairing
def test_full_pass_in_many_pieces_equals_the_oracle(pairing):
    """More than 2^16 entries are cut into pieces that are summed afterwards; so is a problem with empty rows."""
    rng = np.random.default_rng(3)
    n, columns = (40_000, 9) if pairing.sparse else (24_000, 9)
    X = rng.normal(size=(n, columns)).astype(pairing.dtype)
    if pairing.sparse:
        X[rng.random(X.shape) < 0.2] = 0.0
        X[1000:3000] = 0.0
    y = rng.integers(3, size=n).astype(float) if isinstance(pairing.loss, Softmax) else rng.choice([-1.0, 1.0], size=n)
    problem = LinearModel(scipy.sparse.csr_array(X) if pairing.sparse else X, y, pairing.loss, pairing.regularizer)
    oracle = Oracle(X, y, pairing.loss, pairing.regularizer)
    x, v = rng.normal(size=(2, oracle.n_parameters))
    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    h = 1e-5
    change = (oracle.gradient(x + h * v) - oracle.gradient(x - h * v)) / (2 * h)
    close(problem.hessian_product(x, None, v), change, rtol=1e-3 if isinstance(pairing.loss, SquaredHinge) else 1e-6)


# --------------------------------------------------------------------------------------------- weights


@given(case=drawn, counts=st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_whole_weights_equal_repeated_rows(case, counts):
    """And a weight of zero equals a row that is not there."""
    rng = np.random.default_rng(case.seed)
    X = rng.normal(size=(case.n, case.columns))
    y = np.concatenate([[-1.0, 1.0], rng.choice([-1.0, 1.0], size=case.n - 2)])
    counts = np.array(counts[: case.n])
    counts[:2] += 1  # both classes stay
    weighted = problems.logistic(X, y, l2=1e-2, intercept=case.intercept, sample_weight=counts)
    repeated = problems.logistic(np.repeat(X, counts, axis=0), np.repeat(y, counts), l2=1e-2, intercept=case.intercept)
    assert weighted.n_samples == np.count_nonzero(counts)
    x, v = rng.normal(size=(2, weighted.n_parameters))
    close(weighted.value_and_gradient(x)[0], repeated.value_and_gradient(x)[0])
    close(weighted.value_and_gradient(x)[1], repeated.value_and_gradient(x)[1])
    close(weighted.hessian_product(x, None, v), repeated.hessian_product(x, None, v))


def test_rows_are_numbered_among_those_of_positive_weight(data):
    X, y = data
    weights = np.where(np.arange(400) % 3 == 0, 0.0, 2.0)
    problem = problems.logistic(X, y, sample_weight=weights)
    kept = problems.logistic(X[weights > 0], y[weights > 0])
    x = np.linspace(-1, 1, 6)
    assert problem.n_samples == kept.n_samples == 266
    for row in (0, 1, 100, 265):
        close(problem.batch_gradient(x, [row]), kept.batch_gradient(x, [row]))
    with pytest.raises(ValueError, match="indices"):
        problem.batch_gradient(x, [266])


def test_a_row_of_weight_zero_has_no_influence_however_wild(data):
    """Outliers are removed by weight zero: 0 · ∞ must not become NaN."""
    X, y = data[0].copy(), data[0] @ np.arange(6.0)
    X[5] = 1e200
    weights = np.ones(400)
    weights[5] = 0.0
    loss, regularizer = PAIRINGS[4].loss, PAIRINGS[4].regularizer
    problem = LinearModel(X, y, loss, regularizer, sample_weight=weights)
    oracle = Oracle(np.delete(X, 5, axis=0), np.delete(y, 5), loss, regularizer)
    x = np.linspace(-1, 1, 6)
    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    assert np.isfinite(problem.largest_squared_row)


# ------------------------------------------------------------------------------------- extreme numbers


@pytest.mark.parametrize("pairing", PAIRINGS[:5], ids=str)
@pytest.mark.parametrize("size", [1e6, -1e6])
def test_margins_of_a_million_are_safe(pairing, size):
    X = np.array([[size], [-size], [1.0]], dtype=pairing.dtype)
    y = np.array([1.0, 1.0, -1.0])
    problem = LinearModel(scipy.sparse.csr_array(X) if pairing.sparse else X, y, pairing.loss, pairing.regularizer)
    oracle = Oracle(X, y, pairing.loss, pairing.regularizer)
    x, v = np.array([1.0]), np.array([0.5])
    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    for row in range(3):
        close(problem.batch_gradient(x, [row]), oracle.gradient(x, [row]))
        close(problem.hessian_product(x, [row], v), oracle.hessian(x, [row]) @ v)


@pytest.mark.parametrize("pairing", PAIRINGS[5:], ids=str)
def test_softmax_is_safe_for_margins_of_a_million(pairing):
    X = np.array([[1e6], [-1e6], [1.0]], dtype=pairing.dtype)
    y = np.array([0.0, 1.0, 2.0])
    problem = LinearModel(scipy.sparse.csr_array(X) if pairing.sparse else X, y, pairing.loss, pairing.regularizer)
    oracle = Oracle(X, y, pairing.loss, pairing.regularizer)
    x, v = np.array([1.0, -1.0, 0.5]), np.array([0.5, 1.0, -2.0])
    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    close(problem.hessian_product(x, [0, 1, 2], v), oracle.hessian(x) @ v)


def test_logistic_losses_at_their_limits():
    """1e6 for a row on the wrong side, exactly zero curvature, a slope of −1 and not NaN."""
    problem = problems.logistic(np.array([[1.0], [1.0]]), np.array([1, -1]), l2=0.0)
    value, gradient = problem.value_and_gradient(np.array([1e6]))
    assert value == 5e5
    assert gradient == [0.5]
    assert 0.0 <= problem.hessian_product(np.array([1e6]), [0], np.array([1.0]))[0] <= 1e-300


# -------------------------------------------------------------------------------- what X and y may be


def _accepted():
    rng = np.random.default_rng(5)
    X = rng.integers(-3, 4, size=(60, 4)).astype(float)
    X[rng.random(X.shape) < 0.3] = 0.0
    return X, np.where(rng.random(60) < 0.5, 1.0, -1.0)


FORMS = {
    "list": lambda X: X.tolist(),
    "F-ordered": np.asfortranarray,
    "reversed view": lambda X: X[::-1][::-1],
    "strided view": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "float16": lambda X: X.astype(np.float16),
    "big-endian": lambda X: X.astype(">f8"),
    "int8": lambda X: X.astype(np.int8),
    "int64": lambda X: X.astype(np.int64),
    "read-only": lambda X: _read_only(X.copy()),
    "csr matrix": scipy.sparse.csr_matrix,
    "csr array": scipy.sparse.csr_array,
    "csc": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_array,
    "int32 csr": lambda X: scipy.sparse.csr_array(X.astype(np.int32)),
    "bool-like int8 csr": lambda X: scipy.sparse.csr_array(X.astype(np.int8)),
    "64-bit indices": lambda X: _wide_indices(scipy.sparse.csr_array(X)),
    "read-only csr": lambda X: _read_only_csr(scipy.sparse.csr_array(X)),
    "unsorted csr": lambda X: _unsorted(scipy.sparse.csr_array(X)),
    "csr with repeated entries": lambda X: _repeated(scipy.sparse.csr_array(X)),
}


def _read_only(array):
    array.flags.writeable = False
    return array


def _wide_indices(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert X.indices.dtype == np.int64
    return X


def _read_only_csr(X):
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    return X


def _unsorted(X):
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[begin:end] = X.indices[begin:end][::-1].copy()
        X.data[begin:end] = X.data[begin:end][::-1].copy()
    X.has_sorted_indices = False
    return X


def _repeated(X):
    coo = X.tocoo()
    rows, columns = np.tile(coo.row, 2), np.tile(coo.col, 2)
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=X.shape[0]))])
    return scipy.sparse.csr_array((np.tile(coo.data / 2, 2)[order], columns[order], indptr), shape=X.shape)


@pytest.mark.parametrize("form", FORMS)
def test_matrices_of_many_forms_are_the_same_problem(form):
    X, y = _accepted()
    given_X = FORMS[form](X)
    problem = (problems.double_well_logistic if scipy.sparse.issparse(given_X) else problems.logistic)(given_X, y)
    oracle = Oracle(X, y, problem.loss, problem.regularizer)
    x = np.linspace(-1, 1, 4)
    value, gradient = problem.value_and_gradient(x)
    close(value, oracle.value(x))
    close(gradient, oracle.gradient(x))
    close(problem.batch_gradient(x, [3, 3, 59]), oracle.gradient(x, [3, 3, 59]))
    dense = given_X.toarray() if scipy.sparse.issparse(given_X) else np.asarray(given_X, dtype=float)
    assert_allclose(dense, X)  # and the user's matrix is as it was


def test_data_frames_and_series_are_accepted():
    pd = pytest.importorskip("pandas")
    X, y = _accepted()
    frame = pd.DataFrame({"a": X[:, 0].astype(int), "b": X[:, 1] > 0, "c": X[:, 2], "d": X[:, 3].astype(np.float32)})
    problem = problems.logistic(frame, pd.Series(y).map({1.0: "yes", -1.0: "no"}))
    oracle = Oracle(frame.to_numpy(dtype=float), y, Logistic(), L2(1e-4))
    x = np.linspace(-1, 1, 4)
    close(problem.value_and_gradient(x)[0], oracle.value(x))
    assert problem.classes.tolist() == ["no", "yes"]


def test_a_read_only_memory_map_is_used_where_it_lies(tmp_path):
    X, y = _accepted()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    problem = problems.logistic(mapped, y)
    assert np.shares_memory(problem.kernels.rows.values, mapped)
    close(problem.value_and_gradient(np.ones(4))[0], problems.logistic(X, y).value_and_gradient(np.ones(4))[0])


def test_no_copy_of_what_fits_and_a_word_about_what_does_not(caplog):
    X, y = _accepted()
    with caplog.at_level("INFO", logger="trsvr"):
        assert np.shares_memory(problems.logistic(X, y).kernels.rows.values, X)
        csr = scipy.sparse.csr_array(X)
        assert np.shares_memory(problems.double_well_logistic(csr, y).kernels.rows.data, csr.data)
        assert not caplog.messages
        problems.double_well_logistic(scipy.sparse.csc_array(X), y)
        assert any("csc" in message and "CSR" in message for message in caplog.messages)
        caplog.clear()
        problems.logistic(np.asfortranarray(X), y)
        assert any("C order" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("labels", "low", "high"),
    [
        (np.array([0, 1]), 0, 1),
        (np.array([False, True]), False, True),
        (np.array([3.5, -2.0]), -2.0, 3.5),
        (np.array(["spam", "ham"]), "ham", "spam"),
        (np.array(["b", "a"], dtype=object), "a", "b"),
    ],
)
def test_two_labels_of_any_kind_become_minus_and_plus_one(labels, low, high):
    X, y = _accepted()
    places = (y > 0).astype(int)
    named = labels[places]
    problem = problems.logistic(X, named)
    assert problem.classes.tolist() == [low, high]
    signs = np.where(named == high, 1.0, -1.0)
    close(problem.value_and_gradient(np.ones(4))[0], problems.logistic(X, signs).value_and_gradient(np.ones(4))[0])
    assert set(problem.predict(np.ones(4)).tolist()) <= {low, high}
    assert ((problem.predict(np.ones(4)) == high) == (X @ np.ones(4) > 0)).all()


def test_softmax_predicts_in_the_users_own_terms():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.tile(["red", "green", "blue"], 10)
    problem = LinearModel(scipy.sparse.csr_array(X), y, Softmax(), L2(1e-2), intercept=True)
    assert problem.n_parameters == 9
    x = rng.normal(size=9)
    margins = X @ x[:6].reshape(2, 3) + x[6:]
    close(problem.decision(x), margins)
    close(problem.decision(x, X[:4]), margins[:4])
    assert (problem.predict(x) == np.array(["blue", "green", "red"])[margins.argmax(axis=1)]).all()


# ---------------------------------------------------------------------------------------------- gather


@every_pairing
def test_gather_is_the_batch_as_a_problem_of_its_own(pairing):
    case = Drawn(n=28, columns=5, seed=11, spread=1.0, intercept=True, weighting="some zero")
    problem, oracle, x, v, rng = build(pairing, case)
    batch = rng.integers(problem.n_samples, size=10)
    part = problem.gather(batch)
    assert part.n_samples == 10
    close(part.value_and_gradient(x)[1], oracle.gradient(x, batch))
    close(part.value_and_gradient(x)[1], problem.batch_gradient(x, batch))
    close(part.hessian_product(x, None, v), oracle.hessian(x, batch) @ v)
    close(part.batch_gradient(x, [4]), oracle.gradient(x, batch[[4]]))
    close(part.gather([4]).batch_gradient(x, [0]), oracle.gradient(x, batch[[4]]))


def test_gather_copies(data):
    X, y = data[0].copy(), data[1]
    part = problems.logistic(X, y).gather(np.arange(50))
    before = part.value_and_gradient(np.ones(6))[0]
    X[:] = 0.0
    assert part.value_and_gradient(np.ones(6))[0] == before


@pytest.mark.parametrize("indices", [np.arange(400) % 2 == 0, np.array([0.5, 1.7])], ids=["mask", "fractions"])
def test_indices_that_are_no_whole_numbers_are_refused(convex, indices):
    """A mask or fractions would silently be rounded to the rows 0 and 1."""
    problem, _ = convex
    with pytest.raises(ValueError, match="indices"):
        problem.gather(indices)
    with pytest.raises(ValueError, match="indices"):
        problem.batch_gradient(np.zeros(6), indices)


# ------------------------------------------------------------------------------------------- odds, ends


def test_row_norms_are_those_of_the_oracle(data):
    """Step sizes are derived from them."""
    X, y = data
    weights = np.linspace(0.5, 2.0, 400)
    squares = scaled_weights(weights) * ((X**2).sum(axis=1) + 1)
    problem = problems.logistic(X, y, intercept=True, sample_weight=weights)
    assert_allclose(problem.largest_squared_row, squares.max(), rtol=1e-12)
    assert_allclose(problem.mean_squared_row, squares.mean(), rtol=1e-12)


def test_row_norms_of_float32_rows_are_taken_in_float64():
    X = np.array([[1e20], [1.0]], dtype=np.float32)
    problem = LinearModel(X, [1, -1], SquaredHinge(), DoubleWell())
    assert_allclose(problem.largest_squared_row, float(X[0, 0]) ** 2, rtol=1e-12)


def test_points_of_any_layout_and_type_are_read_right(convex):
    problem, oracle = convex
    x = np.linspace(-1, 1, 6)
    close(problem.value_and_gradient(np.repeat(x, 2)[::2])[0], oracle.value(x))
    close(problem.value_and_gradient(list(x))[0], oracle.value(x))
    ints = np.arange(6)
    close(problem.batch_gradient(ints, [1]), oracle.gradient(ints.astype(float), [1]))


def test_a_problem_survives_pickling(convex):
    problem, _ = convex
    problem.value_and_gradient(np.ones(6))
    again = pickle.loads(pickle.dumps(problem))
    assert again.value_and_gradient(np.ones(6))[0] == problem.value_and_gradient(np.ones(6))[0]


def test_a_pass_does_not_change_its_arguments(convex):
    problem, _ = convex
    x, v, batch = np.ones(6), np.full(6, 2.0), np.array([5, 1])
    problem.value_and_gradient(x)
    problem.batch_gradient(x, batch)
    problem.hessian_product(x, batch, v)
    problem.hessian_product(x, None, v)
    assert (x == 1).all()
    assert (v == 2).all()
    assert batch.tolist() == [5, 1]
    first = problem.value_and_gradient(x)[1]
    problem.value_and_gradient(2 * x)
    assert (first == problem.value_and_gradient(x)[1]).all()  # results are the caller's own arrays


def test_sums_of_regularisers_add_up():
    three = L2(0.1) + DoubleWell(0.3, 0.5) + L2(0.2)
    for w in (-2.0, 0.0, 0.4):
        separate = [L2(0.1), DoubleWell(0.3, 0.5), L2(0.2)]
        assert_allclose(three.value(w, 3), sum(part.value(w, 3) for part in separate))
        assert_allclose(three.slope(w, 3), sum(part.slope(w, 3) for part in separate))
        assert_allclose(three.curvature(w, 3), sum(part.curvature(w, 3) for part in separate))


def test_a_short_margins_array_is_refused_and_not_overrun():
    X = np.random.default_rng(0).normal(size=(50, 3))
    problem = LinearModel(X, np.arange(50) % 2)
    run = compiled_for(type(problem.kernels).batch_gradient, problem.kernels)
    with pytest.raises(ValueError, match="margins is too short"):
        run(problem.kernels, np.zeros(3), np.arange(50), np.zeros(10), np.zeros(3))


def test_classes_that_are_known_beforehand():
    """A part of the data may lack a class: the problem has its weights all the same."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.arange(40) % 3
    whole, part = LinearModel(X, y, Softmax()), LinearModel(X, y, Softmax(), classes=[0, 1, 2])
    x = np.linspace(-1, 1, 9)
    assert whole.value_and_gradient(x)[0] == part.value_and_gradient(x)[0]
    two = y < 2
    lacking = LinearModel(X[two], np.array(["a", "b", "c"])[y[two]], Softmax(), classes=["a", "b", "c"])
    assert lacking.n_parameters == 9
    assert lacking.value_and_gradient(x)[0] == whole.gather(np.flatnonzero(two)).value_and_gradient(x)[0]
    signs = LinearModel(X, np.ones(40), Logistic(), classes=[0.0, 1.0]).kernels.labels
    assert (signs == 1.0).all()
    for labels, classes, message in [
        (y, [0, 1], r"y must contain only labels of classes, got .*2.* at position 2"),
        (y, [2, 1, 0], r"classes must be two or more labels in ascending order"),
        (y, [0], r"classes must be two or more labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            LinearModel(X, labels, Softmax(), classes=classes)
    with pytest.raises(ValueError, match=r"classes must be exactly two labels for this loss, got 3"):
        LinearModel(X, y, Logistic(), classes=[0, 1, 2])


def test_another_regulariser_over_the_same_rows(data):
    X, y = data
    weak = LinearModel(X, y, Logistic(), L2(1e-3), intercept=True)
    strong = weak.with_regularizer(L2(1.0))
    x = np.linspace(-1, 1, 7)
    assert strong.kernels.rows.values is weak.kernels.rows.values
    expected = LinearModel(X, y, Logistic(), L2(1.0), intercept=True).value_and_gradient(x)
    assert_allclose(strong.value_and_gradient(x)[1], expected[1], rtol=0, atol=0)
    assert strong.value_and_gradient(x)[0] == expected[0] != weak.value_and_gradient(x)[0]
    with pytest.raises(ValueError, match=r"regularizer strength must be"):
        weak.with_regularizer(L2(-1.0))
