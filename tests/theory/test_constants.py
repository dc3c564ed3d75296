"""L, L_max, μ and κ_H against dense eigenvalues, random differences of gradients and scanned formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from cases import cases
from oracle import Oracle, loss_terms, scaled_weights
from trsvr import problems, theory
from trsvr.problems import L2, DoubleWell, LinearModel, Logistic, PseudoHuber, Softmax, Squared, SquaredHinge

# Suprema of the curvatures, from the definitions of the losses; the next test looks at them by scanning.
SUPREMA = [(Logistic(), 0.25), (SquaredHinge(), 2.0), (Squared(), 1.0), (PseudoHuber(0.7), 1.0), (Softmax(), 0.5)]
LOSSES = [pytest.param(loss, c, id=type(loss).__name__) for loss, c in SUPREMA]


def labels_for(loss, y):
    if isinstance(loss, Softmax):
        return (np.arange(y.size) % 3).astype(float)
    return y * 1.3 if isinstance(loss, Squared | PseudoHuber) else y


@pytest.mark.parametrize(("loss", "c"), LOSSES)
def test_suprema_of_the_losses(loss, c):
    if isinstance(loss, Softmax):
        Z = np.array([[z, z, -40.0] for z in np.linspace(-2, 2, 9)] + [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
        largest = np.linalg.eigvalsh(loss_terms(loss, Z, np.zeros(len(Z)))[2]).max(axis=1)
    else:
        Z = np.linspace(-30, 30, 6001)[:, None]
        largest = loss_terms(loss, Z, np.ones(len(Z)))[2][:, 0, 0]
    assert largest.max() == pytest.approx(c, rel=1e-4)
    assert largest.max() <= c * (1 + 1e-12)


def dense_constants(A, weights, c, strength, penalised):
    """L_max and L from d × d matrices."""
    ridge = np.diag([strength] * penalised + [0.0] * (A.shape[1] - penalised))
    largest = max(np.linalg.eigvalsh(c * w * np.outer(a, a) + ridge)[-1] for a, w in zip(A, weights, strict=True))
    return largest, np.linalg.eigvalsh(c * (A.T * weights) @ A / len(A) + ridge)[-1]


@pytest.mark.parametrize("kind", ["dense", "CSR", "float32"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("loss", "c"), LOSSES)
def test_smoothness_against_dense_eigenvalues(data, loss, c, intercept, kind):
    X, y = data
    X = X[:60].astype(np.float32)
    strength = 0.3
    given = scipy.sparse.csr_array(X.astype(float)) if kind == "CSR" else X.astype(float) if kind == "dense" else X
    problem = LinearModel(given, labels_for(loss, y[:60]), loss, L2(strength), intercept=intercept)
    A = np.column_stack([X, np.ones(60)]) if intercept else X
    largest, mean = dense_constants(A.astype(float), np.ones(60), c, strength, 6)
    assert theory.smoothness(problem) == pytest.approx(mean, rel=1e-6)
    got = theory.component_smoothness(problem)
    if intercept:
        assert largest * (1 - 1e-6) <= got <= largest + strength
    else:
        assert got == pytest.approx(largest, rel=1e-6)


def test_smoothness_with_weights_and_left_out_rows(data):
    X, y = data
    weights = np.random.default_rng(3).integers(0, 4, size=len(y)).astype(float)
    problem = LinearModel(X, y, Logistic(), L2(1e-2), sample_weight=weights)
    kept = weights > 0
    largest, mean = dense_constants(X[kept], scaled_weights(weights)[kept], 0.25, 1e-2, 6)
    assert theory.component_smoothness(problem) == pytest.approx(largest, rel=1e-10)
    assert theory.smoothness(problem) == pytest.approx(mean, rel=1e-6)
    assert theory.constants(problem).component_smoothness == theory.component_smoothness(problem)


def test_logistic_smoothness_is_the_supremum_and_is_attained_at_zero(convex):
    problem, oracle = convex
    L = theory.smoothness(problem)
    assert np.linalg.eigvalsh(oracle.hessian(np.zeros(6)))[-1] == pytest.approx(L, rel=1e-6)
    rng = np.random.default_rng(5)
    tops = [
        np.linalg.eigvalsh(oracle.hessian(rng.normal(size=6) * s))[-1] for s in (0.01, 0.1, 1, 10) for _ in range(10)
    ]
    assert max(tops) <= L * (1 + 1e-9)


@pytest.mark.parametrize("radius", [0.1, 0.5, 3.0])
def test_double_well_within_its_radius(nonconvex, radius):
    problem, oracle = nonconvex
    L, largest = theory.smoothness(problem, radius=radius), theory.component_smoothness(problem, radius=radius)
    low = theory.lowest_curvature(problem)
    rng = np.random.default_rng(7)
    ratios = []
    for _ in cases(200, seed=7):
        x, y = rng.uniform(-radius, radius, size=(2, 6))
        values = np.linalg.eigvalsh(oracle.hessian(x))
        assert np.abs(values).max() <= L * (1 + 1e-9)
        assert values[0] >= low - 1e-12
        change = oracle.component_gradients(x) - oracle.component_gradients(y)
        ratios.append(np.linalg.norm(change, axis=1).max() / np.linalg.norm(x - y))
    assert max(ratios) <= largest * (1 + 1e-9)
    corner = np.full(6, radius)
    edge = np.linalg.eigvalsh(0.25 * oracle.X.T @ oracle.X / 400 + np.diag(oracle._penalty(corner)[2]))
    assert pytest.approx(max(edge[-1], -low), rel=1e-6) == L


def test_double_well_outgrows_every_global_constant(nonconvex):
    problem, oracle = nonconvex
    with pytest.raises(ValueError, match="radius must be given"):
        theory.component_smoothness(problem)
    L = theory.smoothness(problem, radius=1.0)
    assert np.linalg.eigvalsh(oracle.hessian(np.full(6, 4.0)))[-1] > 3 * L


def test_sublevel_radius_contains_the_level_set(nonconvex):
    problem, oracle = nonconvex
    rng = np.random.default_rng(11)
    for _ in cases(200, seed=11):
        x = rng.normal(size=6) * rng.uniform(0.1, 5)
        assert np.abs(x).max() <= theory.sublevel_radius(problem, oracle.value(x)) * (1 + 1e-12)
    convex_only = LinearModel(oracle.X, oracle.y, Logistic(), L2(0.5))
    assert theory.sublevel_radius(convex_only, 1.0) == pytest.approx(2.0)
    assert theory.sublevel_radius(LinearModel(oracle.X, oracle.y, Logistic(), L2(0.0)), 1.0) == np.inf


def test_softmax_bounds_hold(data):
    X, y = data
    labels = labels_for(Softmax(), y)
    problem = LinearModel(X, labels, Softmax(), L2(1e-2), intercept=True)
    oracle = Oracle(X, labels, Softmax(), L2(1e-2), intercept=True)
    L, largest = theory.smoothness(problem), theory.component_smoothness(problem)
    rng = np.random.default_rng(2)
    for _ in cases(20, seed=2):
        x, v = rng.normal(size=(2, problem.n_parameters))
        assert np.linalg.eigvalsh(oracle.hessian(0.1 * x))[-1] <= L
        change = oracle.component_gradients(x) - oracle.component_gradients(x + 1e-3 * v)
        assert np.linalg.norm(change, axis=1).max() <= largest * 1e-3 * np.linalg.norm(v)


@pytest.mark.parametrize(
    ("regularizer", "intercept", "expected"),
    [
        (L2(0.3), False, 0.3),
        (L2(0.3), True, 0.0),
        (L2(0.3) + DoubleWell(0.6, 0.5), False, 0.3 - 4 * 0.6 * 0.25 / 6),
        (L2(0.3) + DoubleWell(6.0, 0.5), False, 0.0),
    ],
    ids=["L2", "intercept", "double well", "nonconvex"],
)
def test_strong_convexity(data, regularizer, intercept, expected):
    X, y = data
    problem = LinearModel(X, y, Logistic(), regularizer, intercept=intercept)
    assert theory.strong_convexity(problem) == pytest.approx(expected, abs=1e-15)
    oracle = Oracle(X, y, Logistic(), regularizer, intercept=intercept)
    rng = np.random.default_rng(4)
    smallest = min(np.linalg.eigvalsh(oracle.hessian(rng.normal(size=oracle.n_parameters) * s))[0] for s in (0, 0.1, 3))
    assert smallest >= theory.lowest_curvature(problem) - 1e-12


def test_the_papers_nonconvex_objective_is_strongly_convex(data):
    problem = problems.double_well_logistic(*data)
    assert theory.strong_convexity(problem) == pytest.approx(1e-4 * (1 - 1 / 6))


def test_hessian_bound_holds_for_every_batch_of_one(convex):
    problem, oracle = convex
    kappa = theory.hessian_bound(problem, "exact")
    rng = np.random.default_rng(8)
    norms = [np.linalg.norm(oracle.hessian(rng.normal(size=6), [i]), 2) for i in range(400)]
    assert max(norms) <= kappa
    assert np.linalg.norm(oracle.hessian(np.zeros(6), [int(np.argmax((oracle.X**2).sum(1)))]), 2) == pytest.approx(
        kappa
    )
    assert theory.hessian_bound(problem, "estimated") == kappa
    assert theory.hessian_bound(problem, "identity") == 1.0


def test_other_problems_are_refused_or_looked_at_locally(convex):
    _, oracle = convex
    problem = problems.FunctionProblem(400, 6, lambda x, i: oracle.gradient(x, i))
    with pytest.raises(ValueError, match="FunctionProblem are unknown functions"):
        theory.component_smoothness(problem)
    with pytest.raises(ValueError, match="linear model"):
        theory.smoothness(problem)
    x = np.random.default_rng(0).normal(size=6)
    expected = np.linalg.eigvalsh(oracle.hessian(x))[-1]
    assert theory.local_smoothness(problem, x) == pytest.approx(expected, rel=1e-5)
    exact = problems.FunctionProblem(
        400, 6, lambda x, i: oracle.gradient(x, i), hessian_product=lambda x, i, v: oracle.hessian(x, i) @ v
    )
    assert theory.local_smoothness(exact, x) == pytest.approx(expected, rel=1e-6)


def test_one_and_two_columns_and_rows_of_zeros():
    y = np.array([1.0, -1.0, 1.0])
    one = LinearModel(np.array([[1.0], [2.0], [-1.0]]), y, Squared(), L2(0.5))
    assert theory.smoothness(one) == pytest.approx(2.0 + 0.5)
    two = LinearModel(np.array([[1.0], [2.0], [-1.0]]), y, Squared(), L2(0.5), intercept=True)
    assert theory.smoothness(two) == pytest.approx(np.linalg.eigvalsh([[2.5, 2 / 3], [2 / 3, 1.0]])[-1])
    empty = LinearModel(np.zeros((3, 2)), y, Logistic(), L2(0.0))
    assert theory.smoothness(empty) == 0.0
    with pytest.raises(ValueError, match="no curvature"):
        theory.recommended_step(empty, "svrg")


@pytest.mark.parametrize("replacement", [True, False])
def test_expected_smoothness_is_one(replacement):
    """E‖∇f_B(x) − ∇f_B(y)‖² ≤ 2𝓛(f(x) − f(y) − ∇f(y)ᵀ(x − y)): all batches of two rows, enumerated."""
    rng = np.random.default_rng(12)
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    oracle = Oracle(X, y, Squared(), L2(0.1))
    bound = theory.expected_smoothness(LinearModel(X, y, Squared(), L2(0.1)), 2, replacement=replacement)
    for _ in cases(50, seed=12):
        a, b = rng.normal(size=(2, 3))
        change = oracle.component_gradients(a) - oracle.component_gradients(b)
        squares = [
            np.sum((change[i] + change[j]) ** 2) / 4 for i in range(12) for j in range(12) if replacement or i != j
        ]
        divergence = oracle.value(a) - oracle.value(b) - oracle.gradient(b) @ (a - b)
        assert np.mean(squares) <= 2 * bound * divergence
    assert theory.smoothness(LinearModel(X, y, Squared(), L2(0.1))) < bound


def test_expected_smoothness_ends(convex):
    problem, _ = convex
    assert theory.expected_smoothness(problem, 1) == theory.component_smoothness(problem)
    whole = theory.expected_smoothness(problem, 400, replacement=False)
    assert whole == pytest.approx(theory.smoothness(problem))
    with pytest.raises(ValueError, match="batch_size"):
        theory.expected_smoothness(problem, 401)
