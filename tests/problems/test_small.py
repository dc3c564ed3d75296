"""Small data in NumPy, without compiling: the same answers as the compiled kernels, to rounding."""

import math
import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from threadpoolctl import threadpool_info

import trsvr
from oracle import Oracle, scaled_weights
from trsvr._draws import Draws
from trsvr.problems import L2, DoubleWell, LinearModel, Logistic, PseudoHuber, Softmax, Squared, SquaredHinge
from trsvr.problems.curvature import MarginView
from trsvr.problems.dense_outputs import DenseOutputView
from trsvr.problems.output_curvature import OutputView
from trsvr.problems.small import takes_arrays
from trsvr.problems.small_views import SmallOutputView, SmallView, WholeOutputView

LOSSES = (Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.7), Softmax())


class Quartic(NamedTuple):
    """A loss of one's own that takes arrays."""

    def value(self, margin, label):
        return np.where(margin > label, 0.25, 0.5) * (margin - label) ** 4

    def slope(self, margin, label):
        return np.where(margin > label, 1.0, 2.0) * (margin - label) ** 3

    def curvature(self, margin, label):
        return np.where(margin > label, 3.0, 6.0) * (margin - label) ** 2


class ForNumbers(NamedTuple):
    """A loss of one's own that does not."""

    def value(self, margin, label):
        return math.cosh(margin - label)

    def slope(self, margin, label):
        return math.sinh(margin - label)

    def curvature(self, margin, label):
        return math.cosh(margin - label)


class Clipped(NamedTuple):
    """And one that would give arrays something else: the truth of an array of one number is that number's."""

    def value(self, margin, label):
        return 0.5 * margin * margin if np.all(margin < 1.0) else margin - 0.5

    def slope(self, margin, label):
        return margin if np.all(margin < 1.0) else 1.0

    def curvature(self, margin, label):
        return 1.0 if np.all(margin < 1.0) else 0.0


def made(loss, sparse=False, intercept=True, weighted=True, dtype=np.float64, rows=300, d=6):
    """A small problem, and the same one as the compiled kernels see it."""
    rng = np.random.default_rng(rows + d)
    X = (rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.7)).astype(dtype)
    score = X @ np.linspace(-1.0, 1.0, d) + rng.logistic(size=rows)
    y = score if isinstance(loss, Squared | PseudoHuber) else score > 0.0
    y = np.digitize(score, [-1.0, 1.0]) if isinstance(loss, Softmax) else y
    weights = rng.random(rows) * (rng.random(rows) < 0.9) if weighted else None
    given = scipy.sparse.csr_array(X) if sparse else X
    both = [LinearModel(given, y, loss, L2(1e-3) + DoubleWell(1e-2), intercept, weights) for _ in range(2)]
    assert both[0].is_small
    vars(both[1])["is_small"] = False
    counted = np.ones(rows, dtype=bool) if weights is None else weights > 0.0
    scale = None if weights is None else scaled_weights(weights)[counted]
    labels = np.where(y, 1.0, -1.0) if y.dtype == bool else y
    oracle = Oracle(X[counted], labels[counted], loss, L2(1e-3) + DoubleWell(1e-2), intercept, scale)
    return *both, oracle, rng.normal(size=both[0].n_parameters), rng.normal(size=both[0].n_parameters)


def compiling_takes_long(loss, kind):
    """Most kinds of rows with most losses: the oracle has seen them."""
    return bool(kind) and not (isinstance(loss, Logistic) and kind.get("dtype") is not np.float32)


KINDS = [
    {},
    {"sparse": True},
    {"intercept": False, "weighted": False},
    {"dtype": np.float32, "weighted": False},
    {"sparse": True, "dtype": np.float32},
    {"rows": 3000, "d": 40},
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_passes_are_those_of_the_kernels_and_of_the_oracle(loss, kind):
    small, compiled, oracle, x, v = made(loss, **kind)
    value, gradient = small.value_and_gradient(x)
    assert value == pytest.approx(oracle.value(x), rel=1e-12)
    np.testing.assert_allclose(gradient, oracle.gradient(x), rtol=1e-10, atol=1e-13)
    product = small.hessian_product(x, None, v)
    np.testing.assert_allclose(product, oracle.hessian(x) @ v, rtol=1e-9, atol=1e-12)
    if not compiling_takes_long(loss, kind):
        other = compiled.value_and_gradient(x)
        assert value == pytest.approx(other[0], rel=1e-12)
        np.testing.assert_allclose(gradient, other[1], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [*((loss, {}) for loss in LOSSES[:-1]), (Logistic(), KINDS[1]), (Logistic(), KINDS[-1])],
    ids=str,
)
def test_the_view_knows_what_the_compiled_one_knows(loss, kind):
    small, compiled, _, x, v = made(loss, **(kind | {"weighted": False}))
    here, there = small.curvature_view(), compiled.curvature_view()
    assert (type(here), type(there)) == (SmallView, MarginView)
    assert here.evaluate(x)[0] == pytest.approx(there.evaluate(x)[0], rel=1e-12)

    def same(ours, theirs):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)

    for raised in (None, (0.5, 0.0), (1.0, 0.01)):
        if raised is not None:
            here.evaluate(x), there.evaluate(x)
            same(here.raise_curvatures(*raised), there.raise_curvatures(*raised))
        same(here.total_weight(), there.total_weight())
        same(here.product(v), there.product(v))
        same(here.diagonal(), there.diagonal())
        for rows in (10**9, 100):
            ours, theirs = here.blocks(rows, Draws(3, 1)), there.blocks(rows, Draws(3, 1))
            assert ours[1] == theirs[1]
            same(ours[0], theirs[0])
    same(here.penalty_slopes(x), there.penalty_slopes(x))
    same(here.penalty_curvatures(x), there.penalty_curvatures(x))
    for scattered in (False, True):
        ours, theirs = (view.changes(x + 0.1 * v, 64, scattered, Draws(3, 1), 2) for view in (here, there))
        assert ours[2] == theirs[2]
        same(ours[0], theirs[0])
        same(ours[1], theirs[1])


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[-1]], ids=str)
def test_the_views_of_several_outputs(kind):
    small, compiled, oracle, x, v = made(Softmax(), **kind)
    there = compiled.curvature_view()
    assert isinstance(there, OutputView | DenseOutputView)
    views = [small.curvature_view(), SmallOutputView(small.small)]
    assert type(views[0]) is (WholeOutputView if x.size <= 96 else SmallOutputView)
    for here in views:
        np.testing.assert_allclose(here.evaluate(x)[1], there.evaluate(x)[1], rtol=1e-10, atol=1e-13)
        for raised in (None, (0.5, 0.0), (1.0, 0.01)):
            if raised is not None:
                assert here.raise_curvatures(*raised) == pytest.approx(there.raise_curvatures(*raised))
            # Of a probability that is next to zero little is left in the slope that a row keeps.
            digits = {"rtol": 1e-9, "atol": 1e-12} if raised is None else {"rtol": 1e-6, "atol": 1e-7}
            np.testing.assert_allclose(here.product(v), there.product(v), **digits)
            np.testing.assert_allclose(here.diagonal(), there.diagonal(), **digits)
            matrices = here.blocks(10**9, Draws(0, 0))[0]
            if isinstance(here, WholeOutputView):
                free = v.copy()  # of what all intercepts have in common, which this matrix holds
                if small.intercept:
                    free[-small.n_outputs :] -= free[-small.n_outputs :].mean()
                np.testing.assert_allclose(matrices[0] @ free, there.product(free), **digits)
            else:
                np.testing.assert_allclose(matrices, there.blocks(10**9, Draws(0, 0))[0], **digits)
        here.evaluate(x), there.evaluate(x)
    whole = small.hessian_product(x, None, v)
    np.testing.assert_allclose(whole, oracle.hessian(x) @ v, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[-1]], ids=str)
def test_both_lead_to_the_same_minimiser(loss, kind):
    small, compiled, *_ = made(loss, **kind)
    small, compiled = small.with_regularizer(L2(1e-2)), compiled.with_regularizer(L2(1e-2))
    vars(compiled)["is_small"] = False
    ours, theirs = trsvr.minimize(small), trsvr.minimize(compiled)
    assert ours.success
    assert ours.value == pytest.approx(theirs.value, rel=1e-11)
    x, other = ours.x.reshape(-1, small.n_outputs), theirs.x.reshape(-1, small.n_outputs)
    if small.n_outputs > 1:  # the same number may be added to all intercepts
        x, other = x - x.mean(axis=1, keepdims=True), other - other.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(x, other, rtol=1e-4, atol=1e-5)


def test_a_loss_of_ones_own_is_tried_on_arrays():
    assert takes_arrays(Quartic(), np.ones(6))
    assert not takes_arrays(ForNumbers(), np.ones(6))
    assert not takes_arrays(Clipped(), np.ones(6))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    assert LinearModel(X, y, Quartic(), L2(0.1)).is_small
    for loss in (ForNumbers(), Clipped()):
        assert not LinearModel(X, y, loss, L2(0.1)).is_small
    numbers = trsvr.minimize(LinearModel(X, y, ForNumbers(), L2(0.1)))
    np.testing.assert_allclose(numbers.gradient, 0.0, atol=1e-5)
    small = LinearModel(X, y, Quartic(), L2(0.1))
    compiled = LinearModel(X, y, Quartic(), L2(0.1))
    vars(compiled)["is_small"] = False
    x = rng.normal(size=3)
    np.testing.assert_allclose(small.value_and_gradient(x)[1], compiled.value_and_gradient(x)[1], rtol=1e-11)


def test_what_is_small_depends_on_the_shape_alone():
    X = np.ones((2000, 70))
    y = np.arange(2000) % 2
    assert not LinearModel(X, y).is_small
    assert LinearModel(X[:1500], y[:1500]).is_small
    assert not LinearModel(np.ones((200, 200)), y[:200]).is_small  # its matrices are not
    assert LinearModel(scipy.sparse.csr_array(X[:1500]), y[:1500]).is_small


def test_rows_of_weight_zero_are_left_out():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    weights = np.ones(60)
    weights[::3] = 0.0
    small = LinearModel(X, y, intercept=True, sample_weight=weights)
    part = LinearModel(X[weights > 0], y[weights > 0], intercept=True)
    x = rng.normal(size=5)
    np.testing.assert_allclose(small.value_and_gradient(x)[1], part.value_and_gradient(x)[1], rtol=1e-13)
    assert small.curvature_view().n_rows == small.n_samples == 40


NOTHING_COMPILED = """
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, happening): compiled.append(happening.data["dispatcher"].py_func.__name__)
    def on_end(self, happening): pass
event.register("numba:compile", Listener())
import threading, numpy as np, scipy.sparse, trsvr
from trsvr.problems import *
from trsvr.sklearn import TRSVRClassifier, TRSVRRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 12))
score = X[:, 0] + rng.normal(size=400)
for A in (X, scipy.sparse.csr_array(X), X.astype(np.float32)):
    TRSVRClassifier().fit(A, score > 0)
    TRSVRClassifier().fit(A, np.digitize(score, [-1, 1]))
    TRSVRClassifier().fit(A, np.digitize(score, np.linspace(-2, 2, 12)))
    TRSVRRegressor(loss="pseudo_huber").fit(A, score)
trsvr.minimize(double_well_logistic(X, score > 0))
for norm in ("diagonal", "identity", "dense"):
    trsvr.minimize(logistic(X, score > 0), trsvr.TRSVR(norm=norm))
assert not compiled, compiled
assert threading.active_count() == 1, threading.enumerate()
"""


def test_nothing_is_compiled_and_no_thread_started(tmp_path):
    environment = os.environ | {"TRSVR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_COMPILED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "compiling" not in done.stderr


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_matrix_of_weights_of_either_sign(sign):
    """A loss of one's own may bend down: its weights have no roots."""
    problem = made(Logistic())[0]
    design, weights = problem.small.design, np.random.default_rng(1).random(problem.small.n)
    weights[0] *= sign
    found, wanted = problem.small.gram(weights), (design.T * weights) @ design / problem.n_samples
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(problem.small.gram(np.stack([weights, weights]))[1], wanted, rtol=1e-12, atol=1e-15)


def blas_threads():
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


def test_a_run_on_small_data_has_one_blas_thread_and_a_callback_those_that_were_set():
    problem, seen, heard = made(Logistic())[0], [], []
    scipy.linalg.cholesky(np.eye(2))  # SciPy's BLAS is there to be found
    before, measure = blas_threads(), problem.small.margins

    def margins(x):
        seen.append(blas_threads())
        return measure(x)

    vars(problem.small)["margins"] = margins
    result = trsvr.minimize(problem)
    assert seen == [[1] * len(before)] * len(seen)
    assert blas_threads() == before
    again = trsvr.minimize(problem, callback=lambda so_far: heard.append(blas_threads()))
    assert heard == [before] * len(heard)
    np.testing.assert_array_equal(again.x, result.x)
