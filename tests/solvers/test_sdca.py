"""SDCA: the dual step is the best one, the identities of the dual hold, and it ends at the known minimiser."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import trsvr
from trsvr import datasets
from trsvr._draws import Draws
from trsvr.problems import L2, DoubleWell, LinearModel, Logistic, PseudoHuber, Softmax, Squared, SquaredHinge, dual
from trsvr.problems.dual import DualAscent

LOSSES = (Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.7))
BY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def never() -> bool:
    return False


def slopes_of(loss, label):
    """Slopes that the loss takes on."""
    return [loss.slope(z, label) for z in (-30.0, -2.0, -0.3, 0.1, 0.9, 1.7, 25.0)]


def labels_of(loss):
    return (-1.0, 1.0) if isinstance(loss, Logistic | SquaredHinge) else (-1.3, 0.4)


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(3)
    X = random.standard_normal((240, 6)) @ np.diag([1.0, 2.0, 0.5, 1.0, 0.1, 1.0]) + 0.3
    margins = X @ random.standard_normal(6) + 1.0
    return X, np.where(random.logistic(size=240) < margins, 1.0, -1.0), margins + random.standard_normal(240)


def problem_of(rows, loss, l2=0.05, **more):
    X, classes, numbers = rows
    return LinearModel(X, classes if isinstance(loss, Logistic | SquaredHinge) else numbers, loss, L2(l2), **more)


# ------------------------------------------------------------------------------------------------------------- formulas


@BY_LOSS
def test_the_conjugate_is_the_largest_distance_of_the_line_above_the_loss(loss):
    for label in labels_of(loss):
        for slope in slopes_of(loss, label):
            line = scipy.optimize.minimize_scalar(
                lambda z, u=slope, y=label: loss.value(z, y) - u * z, (-1.0, 1.0), tol=1e-12
            )
            assert loss.conjugate(slope, label) == pytest.approx(-line.fun, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(
    ("slope", "loss"), [(0.2, Logistic()), (-1.2, Logistic()), (0.1, SquaredHinge()), (3.0, PseudoHuber())]
)
def test_beyond_the_slopes_of_the_loss_the_conjugate_is_infinite(loss, slope):
    assert loss.conjugate(slope, 1.0) == math.inf


@BY_LOSS
@pytest.mark.parametrize("q", [0.0, 1e-6, 0.3, 40.0, 1e5])
def test_no_other_slope_makes_the_dual_larger(loss, q):
    """The step maximises −φ*(u₊) + u₊ z − (q/2)(u₊ − u)²: at once or, with a logistic loss, nearly and in the end."""
    for label in labels_of(loss):
        for slope in slopes_of(loss, label):
            for margin in (-40.0, -3.0, 0.0, 0.8, 1.2, 60.0):

                def gain(u, margin=margin, slope=slope, label=label):
                    return -loss.conjugate(u, label) + u * margin - 0.5 * q * (u - slope) ** 2

                first = chosen = loss.dual_step(slope, margin, label, q)
                for _ in range(4):  # along the same row again: the margin has moved with u
                    chosen = loss.dual_step(chosen, margin - q * (chosen - slope), label, q)
                # u₊ = φ'(z − q (u₊ − u)) is the same condition.
                assert chosen == pytest.approx(
                    loss.slope(margin - q * (chosen - slope), label), rel=1e-6, abs=1e-9 * (1.0 + 1e3 * q)
                )
                best, rounding = gain(chosen), 1e-12 * (1.0 + abs(chosen * margin) + q * (chosen - slope) ** 2)
                assert all(gain(chosen + d) <= best + rounding for d in (-1e-3, -1e-5, 1e-5, 1e-3))
                wrong = 0.05 if isinstance(loss, Logistic) else 1e-6
                assert abs(first - chosen) <= wrong * abs(chosen - slope) + 1e-9 * (1.0 + abs(chosen))


# ----------------------------------------------------------------------------------------------------------- identities


@BY_LOSS
@pytest.mark.parametrize("weighted", [False, True])
def test_the_dual_is_below_the_minimum_and_w_follows_u(rows, loss, weighted):
    weights = np.random.default_rng(0).integers(0, 4, 240) if weighted else None
    problem = problem_of(rows, loss, sample_weight=weights)
    scale = problem.kernels.weights if weighted else np.ones(240)
    smallest = scipy.optimize.minimize(
        problem.value_and_gradient, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-10}
    ).fun
    ascent, x, gaps = DualAscent(problem), np.zeros(6), []
    ascent.begin(x)
    for epoch in range(150):
        value = problem.value_and_gradient(x)[0]
        conjugates = [loss.conjugate(u, y) for u, y in zip(ascent.slopes, problem.kernels.labels, strict=True)]
        dual = -(scale @ conjugates) / problem.n_samples - 0.5 * 0.05 * (x @ x)
        assert dual <= smallest + 1e-12 * abs(smallest)
        assert ascent.gap(x, value) == pytest.approx(value - dual, rel=1e-9, abs=1e-14)
        assert_allclose(x, -rows[0].T @ (scale * ascent.slopes) / (0.05 * problem.n_samples), rtol=1e-9, atol=1e-12)
        gaps.append(value - dual)
        ascent.epoch(x, Draws(0, epoch), 0, never)
    assert gaps[-1] <= 1e-9 * gaps[1]


@BY_LOSS
@pytest.mark.parametrize("intercept", [False, True])
def test_a_start_at_the_minimiser_stays_there(rows, loss, intercept):
    problem = problem_of(rows, loss, intercept=intercept)
    minimiser = trsvr.minimize(problem, trsvr.TrustRegion(), tol=1e-13).x
    x = minimiser.copy()
    DualAscent(problem).begin(x)
    assert_allclose(x, minimiser, atol=1e-8)
    result = trsvr.minimize(problem, trsvr.SDCA(), x0=minimiser, max_epochs=1, tol=None)
    assert result.trace["value"].iloc[1] - result.trace["value"].iloc[0] <= 1e-13


def test_the_gap_with_an_intercept_is_a_bound(rows):
    problem = problem_of(rows, Logistic(), intercept=True)
    smallest = trsvr.minimize(problem, trsvr.TrustRegion(), tol=1e-14).value
    ascent, x = DualAscent(problem), np.zeros(7)
    ascent.begin(x)
    for epoch in range(80):
        ascent.epoch(x, Draws(0, epoch), 0, never)
        value = problem.value_and_gradient(x)[0]
        assert ascent.gap(x, value) >= value - smallest - 1e-14
    assert ascent.gap(x, value) <= 1e-10


# ------------------------------------------------------------------------------------------------------------ agreement


@BY_LOSS
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, lambda X: X.astype(np.float32)])
def test_scipys_minimum(rows, loss, intercept, form):
    X, *labels = rows
    weights = np.random.default_rng(1).integers(0, 3, 240).astype(float)
    problem = problem_of((form(X), *labels), loss, intercept=intercept, sample_weight=weights)
    found = scipy.optimize.minimize(
        problem.value_and_gradient, np.zeros(problem.n_parameters), jac=True, method="BFGS", options={"gtol": 1e-10}
    )
    start = np.random.default_rng(2).standard_normal(problem.n_parameters)
    for x0 in (None, start):
        result = trsvr.minimize(problem, trsvr.SDCA(), x0=x0, max_epochs=1500)
        assert result.success
        assert result.value <= found.fun * (1.0 + 1e-11)
        assert_allclose(result.x, found.x, atol=2e-5)


@pytest.mark.parametrize("l2", [1.0, 1e-2])
def test_scikit_learns_minimisers_with_an_intercept(rows, l2):
    X, classes, numbers = rows
    n = len(X)
    logistic = LogisticRegression(C=1 / (n * l2), tol=1e-12, max_iter=10_000).fit(X, classes)
    ridge = Ridge(alpha=n * l2, tol=1e-14).fit(X, numbers)
    for loss, y, fitted in ((Logistic(), classes, logistic), (Squared(), numbers, ridge)):
        x = trsvr.minimize(LinearModel(X, y, loss, L2(l2), intercept=True), trsvr.SDCA(), max_epochs=3000, tol=1e-10).x
        assert_allclose(x, [*np.ravel(fitted.coef_), *np.ravel(fitted.intercept_)], atol=1e-6)


def test_scikit_learns_support_vectors(rows):
    X, classes, _ = rows
    fitted = LinearSVC(C=1 / (240 * 0.05), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, classes)
    # Its objective is ½‖w‖² + C Σ max(0, 1 − m)², ours λ/2 and 1/N: the same for C = 1/(λN).
    x = trsvr.minimize(problem_of(rows, SquaredHinge()), trsvr.SDCA(), max_epochs=2000, tol=1e-11).x
    assert_allclose(x, fitted.coef_[0], atol=1e-7)


# ---------------------------------------------------------------------------------------------------- threads and order


@pytest.fixture(scope="module")
def text():
    return datasets.text_like(3000, 6000, words_per_row=80.0, seed=2)


@pytest.mark.parametrize("intercept", [False, True])
def test_same_bits_on_any_number_of_threads(intercept):
    text = datasets.text_like(9000, 6000, words_per_row=80.0, seed=2)
    problem = LinearModel(text.X, text.y, Logistic(), L2(1e-4), intercept=intercept)
    assert DualAscent(problem).pieces == 2, "a set on which threads share the work"
    runs = [trsvr.minimize(problem, trsvr.SDCA(), max_epochs=4, tol=None, threads=threads) for threads in (1, 2, 16)]
    for other in runs[1:]:
        assert_array_equal(runs[0].x, other.x)
        assert runs[0].trace["value"].tolist() == other.trace["value"].tolist()


def test_a_file_sorted_by_label_takes_as_many_epochs(text):
    order = np.argsort(text.y, kind="stable")
    epochs = []
    for X, y in ((text.X, text.y), (text.X[order], text.y[order])):
        epochs.append(trsvr.minimize(LinearModel(X, y, Logistic(), L2(1e-4)), trsvr.SDCA(), max_epochs=100).epochs)
    assert epochs[1] <= 1.3 * epochs[0] + 1
    assert max(epochs) < 50


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_pieces_that_share_every_column_do_not_diverge(rows, pieces):
    """On dense rows all pieces correct the same errors: without a measure of that their sum overshoots."""
    problem = problem_of(rows, Logistic(), l2=1e-2)
    smallest = trsvr.minimize(problem, trsvr.TrustRegion(), tol=1e-13).value
    ascent, x = DualAscent(problem, 8), np.zeros(6)
    ascent.pieces, ascent.rounds = pieces, 1
    ascent.begin(x)
    for epoch in range(600):
        ascent.epoch(x, Draws(0, epoch), 0, never)
    assert problem.value_and_gradient(x)[0] - smallest <= 1e-8


def test_a_piece_waits_for_the_round_before(monkeypatch):
    """A thread that has waited for long for another's piece says which round is due, and goes on with that later."""
    monkeypatch.setattr(dual, "_LOOKS", 10)
    made = []
    epoch = SimpleNamespace(copies=np.empty((2, 2, 0)), ascend=lambda kernels, piece: made.append(piece))
    claimed, done = np.array([1, 1, 0, 0, 0, 0]), np.full(1, 1)  # a round of two pieces: both are taken, one is done
    assert dual._ascend(None, epoch, claimed, done, 1, 0, 3) == 1
    assert made == []
    done[0] = 2
    assert dual._ascend(None, epoch, claimed, done, 1, 1, 3) == -1
    assert made == [3, 2, 5, 4], "its own place first, then what nobody has taken"
    assert done[0] == 6


def test_what_an_epoch_gains_is_less_than_the_dual_grows(rows):
    problem = problem_of(rows, Logistic(), l2=1e-2)
    ascent, x, gaps, gains = DualAscent(problem), np.zeros(6), [], []
    ascent.begin(x)
    for epoch in range(20):
        value = problem.value_and_gradient(x)[0]
        gaps.append(ascent.gap(x, value) - value)  # minus the dual
        ascent.epoch(x, Draws(0, epoch), 0, never)
        gains.append(ascent.gain)
    grown = -np.diff(gaps)
    assert (np.array(gains[:-1]) <= grown + 1e-14).all()
    assert (np.array(gains[:-1]) >= 1e-3 * grown - 1e-14).all(), "and it falls like it"


# --------------------------------------------------------------------------------------------------- counting, refusals


def test_a_step_is_one_component_gradient_and_an_epoch_is_one_on_every_row(rows):
    result = trsvr.minimize(problem_of(rows, Logistic()), trsvr.SDCA(), max_epochs=3, tol=None)
    assert result.trace["steps"].tolist() == [0, 240, 480, 720]
    # The dual point is made from x0 by one pass; full gradients that only draw the curve are not counted.
    assert result.trace["gradient_evaluations"].tolist() == [0, 480, 720, 960]


def test_rows_of_weight_zero_are_no_steps(rows):
    weights = np.ones(240)
    weights[::4] = 0.0
    result = trsvr.minimize(problem_of(rows, Logistic(), sample_weight=weights), trsvr.SDCA(), max_epochs=2, tol=None)
    assert result.trace["steps"].tolist() == [0, 180, 360]


@pytest.mark.parametrize(
    ("regularizer", "loss", "message"),
    [
        (L2(0.0), Logistic(), "SDCA needs the regularizer L2 with one strength > 0 .*got L2.*TRSVR"),
        (DoubleWell(), Logistic(), "SDCA needs the regularizer L2 with one strength > 0 .*got DoubleWell"),
        (L2(1e-3) + DoubleWell(), Logistic(), "SDCA needs the regularizer L2"),
        (L2(1e-3), Softmax(), "SDCA needs a linear model with one output .* got 3 outputs"),
    ],
)
def test_what_has_no_dual_is_refused_with_what_to_take(rows, regularizer, loss, message):
    labels = np.arange(240) % 3 if isinstance(loss, Softmax) else rows[1]
    with pytest.raises(ValueError, match=message):
        trsvr.minimize(LinearModel(rows[0], labels, loss, regularizer), trsvr.SDCA())


def test_a_loss_without_a_conjugate_and_a_function_are_refused(rows):
    from typing import NamedTuple

    from trsvr._compile import record

    @record
    class Cosh(NamedTuple):
        def value(self, margin, label):
            return math.cosh(margin - label)

        def slope(self, margin, label):
            return math.sinh(margin - label)

        def curvature(self, margin, label):
            return math.cosh(margin - label)

    with pytest.raises(ValueError, match=r"conjugate and dual_step, got Cosh.*SAGA"):
        trsvr.minimize(LinearModel(rows[0], rows[2], Cosh(), L2(1e-3)), trsvr.SDCA())
    with pytest.raises(ValueError, match="one output and its rows in memory, got FunctionProblem"):
        trsvr.minimize(trsvr.problems.FunctionProblem(5, 2, lambda x, indices: x), trsvr.SDCA())
    with pytest.raises(ValueError, match="bucket_size"):
        trsvr.SDCA(bucket_size=0)


def test_a_run_from_its_checkpoint_has_the_same_bits(text, tmp_path):
    problem = LinearModel(text.X, text.y, Logistic(), L2(1e-4), intercept=True)
    whole = trsvr.minimize(problem, trsvr.SDCA(), max_epochs=6, tol=None)
    trsvr.minimize(problem, trsvr.SDCA(), max_epochs=3, tol=None, checkpoint=tmp_path / "run.ckpt")
    resumed = trsvr.resume(tmp_path / "run.ckpt", problem, max_epochs=6)
    assert_array_equal(resumed.x, whole.x)
    assert resumed.trace["value"].tolist() == whole.trace["value"].tolist()


# ------------------------------------------------------------------------------------- pieces that overlap


def test_pieces_that_overlap_never_lose_what_they_gain():
    """Rows with many columns in common: two pieces change the same weights, more than either reckons with."""
    random, n, d, words, l2 = np.random.default_rng(0), 5400, 1500, 50, 1e-5
    chances = 1.0 / (np.arange(d) + 20.0)
    columns = np.stack([random.choice(d, words, replace=False, p=chances / chances.sum()) for _ in range(n)])
    X = scipy.sparse.csr_matrix((np.full(n * words, words**-0.5), columns.ravel(), np.arange(0, n * words + 1, words)))
    X.sort_indices()
    y = np.where(random.logistic(size=n) < 4.0 * (X @ random.standard_normal(d)), 1.0, -1.0)
    problem = trsvr.problems.logistic(X, y, l2=l2)
    ascent, x = DualAscent(problem), np.zeros(X.shape[1])
    assert ascent.pieces > 1
    ascent.begin(x)

    def dual_value(slopes):
        a = -y * slopes
        weights = X.T @ slopes / (l2 * n)
        return -np.mean(scipy.special.xlogy(a, a) + scipy.special.xlog1py(1.0 - a, -a)) - 0.5 * l2 * weights @ weights

    before, overlaps = dual_value(ascent.slopes), []
    for epoch in range(5):
        ascent.epoch(x, Draws(0, 0), epoch, never)
        after = dual_value(ascent.slopes)
        assert after - before >= ascent.gain > 0.0
        assert_allclose(x, -X.T @ ascent.slopes / (l2 * n), rtol=1e-9, atol=1e-9 * np.abs(x).max())
        overlaps.append(ascent.overlap)
        before = after
    assert max(overlaps) > 1.05
