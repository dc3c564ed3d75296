"""The default mode on sparse rows: it begins in the dual, hands over to Newton steps and back, and ends truthfully."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

import trsvr
from trsvr import datasets
from trsvr.parts.caution import Caution
from trsvr.problems import L2, LinearModel, Logistic, PseudoHuber, Squared, SquaredHinge
from trsvr.solvers.adaptive import AdaptiveTRSVR
from trsvr.solvers.adaptive.state import NormState, Radius
from trsvr.solvers.dual_start import DualPhase, DualRules, DualStart, DualState

NEWTON = AdaptiveTRSVR()


@pytest.fixture(scope="module")
def text():
    return datasets.text_like(1500, 4000, words_per_row=60.0, seed=5)


def model(text, l2=1e-5, loss=None, **more):
    return LinearModel(text.X, text.y, loss or Logistic(), L2(l2), **more)


def phases(result):
    """For each outer iteration whether it was made of Newton steps."""
    return np.isfinite(result.trace["cg_iterations"].to_numpy()[1:])


@pytest.mark.parametrize(
    "loss", [Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.5)], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_minimum_of_newton_steps_alone_and_a_true_estimate(text, loss, intercept):
    for l2 in (1e-3, 1e-6):
        problem = model(text, l2, loss, intercept=intercept)
        smallest = trsvr.minimize(problem, NEWTON).value
        result = trsvr.minimize(problem)
        assert result.success
        if l2 == 1e-6:
            assert not phases(result)[0], "it begins in the dual"
        assert abs(result.value - smallest) <= 3e-12 * smallest


def test_where_it_does_not_begin_in_the_dual(text):
    dense = LinearModel(text.X[:200].toarray(), text.y[:200], Logistic(), L2(1e-3))
    for problem, solver in (
        (dense, trsvr.TRSVR()),
        (model(text, 0.0), trsvr.TRSVR()),
        (model(text), trsvr.TRSVR(norm="diagonal")),
        (model(text), NEWTON),
    ):
        assert phases(trsvr.minimize(problem, solver, max_epochs=2)).all()


def test_no_epoch_is_made_where_the_first_dual_value_says_that_newton_steps_are_better(text):
    """Only what f has to fall from the start says so, and the point is as it was."""
    assert phases(trsvr.minimize(model(text, 1e-2))).all()
    never = DualStart(rules=DualRules(near_at_once=0.0))
    assert not phases(trsvr.minimize(model(text, 1e-2), never))[0]
    assert not phases(trsvr.minimize(model(text, 1e-6)))[0]


def test_newton_steps_take_over_where_the_ascent_is_slow():
    """More rows than columns and a tiny λ: little is gained in the dual, and the run is not held up by it."""
    random = np.random.default_rng(0)
    X = scipy.sparse.random(4000, 2100, density=0.01, random_state=1, format="csr")
    y = X @ random.standard_normal(2100) + random.standard_normal(4000)
    problem = LinearModel(X, y, Squared(), L2(1e-8))
    result = trsvr.minimize(problem)
    assert result.success
    assert phases(result)[-1]
    assert phases(result).sum() >= len(phases(result)) - 8
    assert_allclose(result.value, trsvr.minimize(problem, NEWTON).value, rtol=1e-11)


@pytest.mark.parametrize("rules", [DualRules(), replace(DualRules(), quick_dual=math.inf)])
def test_bits_of_a_resumed_run_and_of_any_number_of_threads(text, tmp_path, rules):
    """In the dual, and where Newton steps take over."""
    problem, solver = model(text, 1e-6, intercept=True), DualStart(rules=rules)
    whole = trsvr.minimize(problem, solver, threads=1)
    assert phases(whole).any() or rules.quick_dual < math.inf
    assert_array_equal(trsvr.minimize(problem, solver, threads=3).x, whole.x)
    for epochs in range(1, whole.epochs, 3):
        path = tmp_path / f"{epochs}.ckpt"
        trsvr.minimize(problem, solver, max_epochs=epochs, checkpoint=path)
        assert_array_equal(trsvr.resume(path, problem, solver=solver, max_epochs=100).x, whole.x)


def drawn(seed):
    """A sparse problem of any kind, and f by NumPy."""
    random = np.random.default_rng(seed)
    n, d = int(random.integers(60, 2500)), int(random.integers(2001, 5000))
    X = scipy.sparse.random(n, d, density=random.choice([0.002, 0.01, 0.03]), random_state=random, format="csr")
    if random.random() < 0.5:
        X.data = random.standard_normal(X.nnz) * 10.0 ** random.uniform(-2.0, 2.0)
    if random.random() < 0.3:
        X = scipy.sparse.csr_matrix(X[random.integers(n, size=n)])  # rows that stand there several times
    margins = X @ random.standard_normal(d) + random.standard_normal()
    loss = [Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.5)][seed % 4]
    classes = seed % 4 < 2
    y = np.where(random.logistic(size=n) < margins, 1.0, -1.0) if classes else margins + random.standard_normal(n)
    if random.random() < 0.3:
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
    y[:2] = -1.0, 1.0
    weights = random.integers(0, 4, n).astype(float) if random.random() < 0.3 else None
    offset = random.standard_normal(n) if random.random() < 0.3 else None
    if weights is not None:
        weights[:2] = 1.0
    l2 = 10.0 ** random.uniform(-8.0, -1.0)
    problem = LinearModel(X, y, loss, L2(l2), bool(seed // 4 % 2), weights, offset=offset)

    def value(x):
        z = X @ x[:d] + x[d:].sum() + (0.0 if offset is None else offset)
        return float(np.average(loss.value(z, y), weights=weights) + 0.5 * l2 * (x[:d] @ x[:d]))

    return problem, value


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 48, 8))
def test_any_sparse_problem_ends_truthfully(first):
    """f by NumPy at the end is that of Newton steps alone, and no further above the least value than is said."""
    for seed in range(first, first + 8):
        problem, value = drawn(seed)
        result, other = trsvr.minimize(problem), trsvr.minimize(problem, NEWTON)
        ours, theirs = value(result.x), value(other.x)
        least = min(ours, theirs)
        if result.status is trsvr.Status.EPOCH_LIMIT:  # Newton steps on hinges may take more than a hundred iterations
            assert isinstance(problem.loss, SquaredHinge), seed
            continue
        assert result.success, seed
        assert result.value == pytest.approx(ours, rel=1e-12), seed
        assert ours - least <= 1e-11 * least + 1e-15, seed
        assert ours - least <= result.gap_bound + 1e-14 * abs(ours), seed
        assert_array_equal(trsvr.minimize(problem, threads=3).x, result.x)


# --------------------------------------------------------------------------------------------------- rules without data


class Ascending:
    """A run in the dual: an iteration of two epochs, each of which costs a product, has come to this gap."""

    def __init__(self, left, value, **phase):
        view = SimpleNamespace(prices=lambda: SimpleNamespace(dual=1.0))
        self.phase = DualPhase(True, True, **{"first_value": 9.0, "gap": 1.0, **phase})
        self.ascent = SimpleNamespace(gap=lambda x, value: left, begun=True)
        parts = Radius(1.0, 0.1), NormState(1.0), Caution(0.1)
        self.own = DualState("diagonal", view, view, *parts, 1.0, False, dual=self.phase, ascent=self.ascent)
        goal = SimpleNamespace(decrease=0.0, gradient=0.0)
        self.state = SimpleNamespace(x=np.ones(2), value=value, gradient=np.ones(2), goal=goal, own=self.own)
        before = SimpleNamespace(x=np.zeros(2), value=1.0, gradient=np.zeros(2))
        self.report = SimpleNamespace(outcome=before, rejected=0, gradient_evaluations=40, steps=20)
        self.problem, self.solver = SimpleNamespace(n_samples=10), DualStart()

    def seems_enough(self, gains):
        return self.solver._seems_enough(self.state, gains)

    def judge(self):
        return self.solver.judge(self.problem, self.state, self.report)


def test_looks_are_rare_and_end_where_the_gains_of_epochs_have_fallen_by_as_much_as_the_gap_must():
    it = Ascending(left=1.0, value=0.5, gap=1e-2, gain=1e-3, enough=1e-6)
    assert not it.seems_enough([1e-3, 1e-4, 1e-5, 1e-8])
    assert it.seems_enough([1e-3, 1e-4, 1e-6, 0.9e-9])
    # Slow: only where Newton steps would be tried, at a thousandth of f.
    assert not it.seems_enough([9e-4, 6e-4, 4e-4, 3e-4])
    assert it.seems_enough([9e-4, 9e-4, 9e-4, 9e-4]), "or where it stands still"
    assert it.seems_enough([3e-5, 2.9e-5, 2.8e-5, 2.7e-5])
    # Nothing to compare with in the first iteration.
    assert not Ascending(left=1.0, value=0.5).seems_enough([1e-9])


def test_a_signal_need_not_wait_where_no_matrix_is_made(text):
    """Python sees every pass then; else a thread of its own makes the calls."""
    problem = model(text)
    assert problem.lasts_long
    assert not AdaptiveTRSVR().lasts_long(problem)
    assert AdaptiveTRSVR(norm="dense").lasts_long(problem)


def test_a_quick_ascent_goes_on_and_its_gap_is_what_is_expected():
    it = Ascending(left=1e-2, value=0.5)
    assert it.judge().expected_decrease == 1e-2
    assert it.phase.active
    assert it.phase.rate == pytest.approx(math.log(100.0) / 3.0)


@pytest.mark.parametrize(("left", "phase"), [(0.9, {}), (0.7, {}), (1e-4, {"gap": 2e-4}), (0.1, {"first_value": 0.6})])
def test_it_hands_over_where_it_is_slow_or_little_is_left_or_the_way_was_short(left, phase):
    it = Ascending(left, 0.5, **phase)
    it.judge()
    assert not it.phase.active
    assert it.report.rejected == 0


def test_newton_steps_begin_at_the_better_point():
    it = Ascending(left=0.95, value=1.5)
    it.judge()
    assert not it.phase.active
    assert it.report.rejected == 1
    assert it.state.value == 1.0
    assert it.state.x.tolist() == [0.0, 0.0]


def test_one_slow_iteration_after_a_quick_one_is_forgiven():
    it = Ascending(left=0.99, value=0.5, rate=2.0)
    it.judge()
    assert it.phase.active
