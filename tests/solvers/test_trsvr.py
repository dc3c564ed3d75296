"""TRSVR and SVRG against each other, against NumPy loops, and against SciPy's answer.

α is a knob: up to 1/λmax(H) TRSVR is SVRG, from 1/λmin(H) on it is a sub-sampled Newton method.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
from numpy.testing import assert_allclose

import trsvr
from oracle import Oracle, scaled_weights
from trsvr.parts import EstimatedHessian, ExactHessian, GradientRadius, PlainGradient, SteihaugCG, SVRGGradient
from trsvr.problems import L2, FunctionProblem, LinearModel, Softmax

START = np.array([0.5, -0.5, 0.3, 0.1, -0.2, 0.4])
B, S = 25, 16


def indices_of(seed, epoch, n, size):
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch]))).integers(n, size=size)


def plain(oracle):
    """The oracle as a problem of its own: runs the uncompiled text."""
    everything = np.arange(len(oracle.y))
    return FunctionProblem(
        everything.size,
        oracle.n_parameters,
        lambda x, i: oracle.gradient(x, i),
        lambda x, i: oracle.value(x),
        lambda x, i, v: oracle.hessian(x, i) @ v,
    )


def run(problem, solver, epochs=3, x0=START, seed=4):
    """A fixed number of epochs; the values fall, so the best point is the last iterate."""
    result = trsvr.minimize(problem, solver, x0=x0, max_epochs=epochs, tol=None, seed=seed)
    assert result.status is trsvr.Status.EPOCH_LIMIT
    assert (np.diff(result.trace["value"]) < 0).all(), "this test wants a run whose best point is its last"
    return result


def numpy_svrg(oracle, x, step, epochs, seed):
    for epoch in range(epochs):
        reference, full = x, oracle.gradient(x)
        for batch in indices_of(seed, epoch, len(oracle.y), B * S).reshape(S, B):
            x = x - step * (oracle.gradient(x, batch) - oracle.gradient(reference, batch) + full)
    return x


# ---------------------------------------------------------------------------- the SVRG end of the knob


@pytest.mark.parametrize("step", [0.05, 0.4])
def test_svrg_is_a_three_line_numpy_loop(convex, step):
    problem, oracle = convex
    for epochs in (1, 3):
        result = run(problem, trsvr.SVRG(step=step, batch_size=B, inner_steps=S), epochs)
        assert_allclose(result.x, numpy_svrg(oracle, START, step, epochs, 4), atol=1e-12)


def test_svrg_on_sparse_rows_is_the_same_loop(nonconvex):
    problem, oracle = nonconvex
    result = run(problem, trsvr.SVRG(step=0.2, batch_size=B, inner_steps=S))
    assert_allclose(result.x, numpy_svrg(oracle, START, 0.2, 3, 4), atol=1e-12)


@pytest.mark.parametrize("alpha", [0.05, 0.4, 1.0])
def test_with_the_identity_trsvr_is_svrg(convex, alpha):
    problem, _ = convex
    trust_region = run(problem, trsvr.TRSVR(alpha=alpha, batch_size=B, inner_steps=S, hessian="identity"))
    svrg = run(problem, trsvr.SVRG(step=alpha, batch_size=B, inner_steps=S))
    assert_allclose(trust_region.x, svrg.x, atol=1e-12)
    assert_allclose(trust_region.trace["value"], svrg.trace["value"], rtol=1e-12)
    if alpha < 1.0:  # at one the boundary and the Newton point coincide
        assert (trust_region.trace["boundary_fraction"][1:] == 1.0).all()
    assert (trust_region.trace["passes"] == svrg.trace["passes"]).all()


@pytest.mark.parametrize("hessian", ["exact", "estimated"])
def test_with_a_small_alpha_trsvr_is_svrg_whatever_the_curvature(convex, hessian):
    """α < 1/λmax of every batch Hessian: the first conjugate-gradient step already hits the boundary."""
    problem, oracle = convex
    alpha = 0.99 / (0.25 * (oracle.X**2).sum(axis=1).max() + 1e-2)
    trust_region = run(problem, trsvr.TRSVR(alpha=alpha, batch_size=B, inner_steps=S, hessian=hessian))
    svrg = run(problem, trsvr.SVRG(step=alpha, batch_size=B, inner_steps=S))
    assert_allclose(trust_region.x, svrg.x, atol=1e-12)
    assert (trust_region.trace["boundary_fraction"][1:] == 1.0).all()
    assert (trust_region.trace["cg_iterations"][1:] == 1.0).all()


# -------------------------------------------------------------------------- the Newton end of the knob


def test_with_a_large_alpha_the_constraint_never_binds(convex):
    problem, _ = convex
    solver = trsvr.TRSVR(alpha=2.0 / 1e-2, batch_size=100, inner_steps=8, hessian="exact")  # λmin ≥ 1e-2, the L2 term
    trace = trsvr.minimize(problem, solver, x0=START, max_epochs=5, tol=None).trace[1:]
    assert (trace["boundary_fraction"] == 0.0).all()
    assert (trace["negative_curvature"] == 0).all()
    assert (trace["cg_iterations"] > 1.5).all()


def test_one_newton_step_is_the_dense_solve(data):
    """b = N and S = 1 with an exact subproblem (many iterations): x − H⁻¹g over the drawn rows."""
    X, y = data
    oracle = Oracle(X, y, trsvr.problems.Logistic(), L2(1e-2))
    method = trsvr.TrustRegionMethod(
        curvature=ExactHessian(), radius=GradientRadius(1e4), subproblem=Accurate(), batch_size=B, inner_steps=1
    )
    result = trsvr.minimize(trsvr.problems.logistic(X, y, l2=1e-2), method, x0=START, max_epochs=1, tol=None, seed=2)
    batch = indices_of(2, 0, 400, B)
    newton = START - np.linalg.solve(oracle.hessian(START, batch), oracle.gradient(START))
    best = min((START, newton), key=oracle.value)
    assert_allclose(result.x, best, atol=1e-9)
    assert_allclose(result.trace["value"].iloc[-1], oracle.value(newton), rtol=1e-9)


class Accurate:
    """A subproblem solver of the user's own, in plain Python: conjugate gradients to the last digit."""

    def solve(self, hessian, gradient, norm, radius, work):
        return trsvr.parts.steihaug_cg(hessian, gradient, radius, 1e-13 * norm, 100, work)


# --------------------------------------------------------------------- compiled and plain, from one text

INTERIOR = {"alpha": 30.0, "batch_size": 100, "inner_steps": 8}


@pytest.mark.parametrize(("hessian", "agreement"), [("identity", 1e-10), ("exact", 1e-10), ("estimated", 1e-6)])
def test_compiled_and_plain_runs_agree(convex, hessian, agreement):
    problem, oracle = convex
    solver = trsvr.TRSVR(**INTERIOR, hessian=hessian)
    if hessian == "identity":
        solver = dataclasses.replace(solver, alpha=0.9)
    compiled, uncompiled = run(problem, solver), run(plain(oracle), solver)
    assert_allclose(compiled.x, uncompiled.x, atol=agreement)
    assert_allclose(compiled.trace["value"], uncompiled.trace["value"], rtol=agreement)
    if hessian != "identity":
        trace = compiled.trace[1:]
        assert (trace["boundary_fraction"] == 0.0).all()
        assert (trace["cg_iterations"] >= 2.0).all()
        assert (trace["cg_iterations"].to_numpy() == uncompiled.trace["cg_iterations"][1:].to_numpy()).all()


def test_estimated_and_exact_curvature_agree_to_finite_difference_accuracy(convex):
    problem, _ = convex
    exact = run(problem, trsvr.TRSVR(**INTERIOR, hessian="exact"))
    estimated = run(problem, trsvr.TRSVR(**INTERIOR, hessian="estimated"))
    assert_allclose(estimated.x, exact.x, atol=1e-6)
    assert (estimated.trace["hessian_products"] == exact.trace["hessian_products"]).all()


def test_weights_and_intercept_take_part_in_every_step(data):
    """Rows of weight zero are never drawn: the plain run does not even have them."""
    X, y = data
    weights = np.where(np.arange(400) % 4 == 0, 0.0, np.linspace(0.2, 3.0, 400))
    kept = weights > 0
    problem = trsvr.problems.logistic(X, y, l2=1e-2, intercept=True, sample_weight=weights)
    oracle = Oracle(
        X[kept], y[kept], problem.loss, problem.regularizer, intercept=True, scale=scaled_weights(weights)[kept]
    )
    start = np.append(START, 0.7)
    for hessian, agreement in (("exact", 1e-10), ("estimated", 1e-6)):
        solver = trsvr.TRSVR(alpha=8.0, batch_size=100, inner_steps=8, hessian=hessian)
        compiled, uncompiled = run(problem, solver, x0=start), run(plain(oracle), solver, x0=start)
        assert_allclose(compiled.x, uncompiled.x, atol=agreement)
        assert (compiled.trace["passes"] == uncompiled.trace["passes"]).all()


def test_softmax_runs_compiled_as_it_does_plain():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(200, 4)) * (rng.random((200, 4)) < 0.7)
    y = (X @ rng.normal(size=(4, 3)) + rng.gumbel(size=(200, 3))).argmax(axis=1)
    weights = rng.uniform(0.5, 2.0, size=200)
    problem = LinearModel(scipy.sparse.csr_array(X), y, Softmax(), L2(1e-2), intercept=True, sample_weight=weights)
    oracle = Oracle(X, y, Softmax(), L2(1e-2), intercept=True, scale=scaled_weights(weights))
    solver = trsvr.TRSVR(alpha=5.0, batch_size=B, inner_steps=S, hessian="estimated")
    start = np.zeros(15)
    compiled, uncompiled = run(problem, solver, x0=start), run(plain(oracle), solver, x0=start)
    assert_allclose(compiled.x, uncompiled.x, atol=1e-6)


def test_a_part_of_the_users_own_runs_beside_ours(convex):
    """A plain class: the method then runs uncompiled, with the same steps."""

    class MyRadius:
        def radius_for(self, norm):
            return 5.0 * norm

    problem, _ = convex
    ours = trsvr.TrustRegionMethod(curvature=ExactHessian(), radius=GradientRadius(5.0), batch_size=B, inner_steps=S)
    theirs = dataclasses.replace(ours, radius=MyRadius())
    assert_allclose(run(problem, theirs).x, run(problem, ours).x, atol=1e-10)


def test_trsvr_is_a_preset_of_the_method(convex):
    problem, _ = convex
    preset = run(problem, trsvr.TRSVR(alpha=5.0, batch_size=B, inner_steps=S, max_cg=7))
    parts = trsvr.TrustRegionMethod(
        gradient=SVRGGradient(),
        curvature=EstimatedHessian(),
        radius=GradientRadius(5.0),
        subproblem=SteihaugCG(7),
        batch_size=B,
        inner_steps=S,
    )
    assert (preset.x == run(problem, parts).x).all()


def test_max_cg_limits_the_products_of_a_step(convex):
    problem, _ = convex
    trace = run(problem, trsvr.TRSVR(**INTERIOR, hessian="exact", max_cg=2)).trace
    assert trace["cg_iterations"].max() <= 2.0
    assert trace["hessian_products"].iloc[-1] <= 2 * 3 * 8


def test_the_plain_estimator_is_stochastic_descent(convex):
    """gradient = PlainGradient, H = I: x − α·(mean gradient of the batch)."""
    problem, oracle = convex
    method = trsvr.TRSVR(alpha=0.1, batch_size=B, inner_steps=S, hessian="identity", gradient="plain")
    result = trsvr.minimize(problem, method, x0=START, max_epochs=1, tol=None, seed=4)
    x = START
    for batch in indices_of(4, 0, 400, B * S).reshape(S, B):
        x = x - 0.1 * oracle.gradient(x, batch)
    assert_allclose(result.trace["value"].iloc[-1], oracle.value(x), rtol=1e-12)
    assert not trsvr.TrustRegionMethod(gradient=PlainGradient()).needs_reference


# ---------------------------------------------------------------------------------------- whole solves


@pytest.mark.parametrize(
    "solver",
    [
        trsvr.TRSVR(alpha=20.0, batch_size=50, inner_steps=20),
        trsvr.TRSVR(alpha=20.0, batch_size=50, inner_steps=20, hessian="exact"),
        trsvr.SVRG(step=0.4, batch_size=50, inner_steps=200),
    ],
    ids=["estimated", "exact", "svrg"],
)
def test_the_minimiser_is_the_one_scipy_finds(convex, solver):
    problem, oracle = convex
    known = scipy.optimize.minimize(
        oracle.value, np.zeros(6), jac=oracle.gradient, hess=oracle.hessian, method="trust-exact", tol=1e-12
    )
    result = trsvr.minimize(problem, solver, max_epochs=200)
    assert result.success
    assert_allclose(result.x, known.x, atol=1e-7)
    assert result.value - known.fun < 1e-14


def test_a_truly_nonconvex_run_meets_negative_curvature_and_the_trace_shows_it(nonconvex):
    problem, oracle = nonconvex
    start = 0.02 * START
    assert np.linalg.eigvalsh(oracle.hessian(start))[0] < 0
    result = trsvr.minimize(problem, trsvr.TRSVR(alpha=1.0, batch_size=100, inner_steps=20), x0=start)
    trace = result.trace
    assert trace["negative_curvature"].iloc[0] == 0
    assert trace["negative_curvature"].sum() > 0
    assert (trace["negative_curvature"] <= 20).all()
    # a step of negative curvature ends on the boundary
    assert (trace["boundary_fraction"][1:] >= trace["negative_curvature"][1:] / 20).all()
    assert result.success
    assert_allclose(oracle.gradient(result.x), 0.0, atol=1e-7)
    assert np.linalg.eigvalsh(oracle.hessian(result.x))[0] > 0  # a minimum, not a saddle


@pytest.mark.data
def test_mushrooms_with_the_double_well(data_folder):
    """b = S = 200 and α = 20: gap below 1e-10 within 40 epochs (the paper's α = 0.09 is at 3e-3 after 100)."""
    load_svmlight_file = pytest.importorskip("sklearn.datasets").load_svmlight_file
    file = data_folder / "mushrooms.svm.bz2"
    if not file.exists():
        pytest.skip(f"there is no {file.name} in the data folder")
    X, y = load_svmlight_file(str(file))
    problem = trsvr.problems.double_well_logistic(X, y)
    oracle = Oracle(X.toarray(), np.where(y == y.max(), 1.0, -1.0), problem.loss, problem.regularizer)
    A, signs = oracle.X, oracle.y

    def hessian(w):  # without the oracle's N × K × K table
        p = scipy.special.expit(A @ w)
        diagonal = 1e-4 + 1e-4 / w.size * (12 * w**2 - 1)
        return (A.T * (p * (1 - p) / len(signs))) @ A + np.diag(diagonal)

    known = scipy.optimize.minimize(
        oracle.value, np.zeros(112), jac=oracle.gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-10}
    )
    solver = trsvr.TRSVR(alpha=20.0, batch_size=200, inner_steps=200)
    result = trsvr.minimize(problem, solver, max_epochs=40)
    assert result.value - known.fun < 1e-10
    assert_allclose(oracle.value(result.x), result.value, rtol=1e-12)


# --------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize("solver", [trsvr.TRSVR, trsvr.SVRG, trsvr.TrustRegionMethod])
def test_solvers_are_frozen_values(solver):
    assert solver() == solver()
    assert hash(solver()) == hash(solver())
    with pytest.raises(dataclasses.FrozenInstanceError):
        solver().batch_size = 3
    assert dataclasses.replace(solver(), batch_size=3).batch_size == 3


def test_numbers_may_be_numpys(convex):
    problem, _ = convex
    solver = trsvr.TRSVR(alpha=np.float32(0.5), batch_size=np.int64(B), inner_steps=np.int32(S))
    same = trsvr.TRSVR(alpha=0.5, batch_size=B, inner_steps=S)
    assert (run(problem, solver, epochs=1).x == run(problem, same, epochs=1).x).all()
    whole = trsvr.TRSVR(alpha=1, batch_size=B, inner_steps=S)
    assert (run(problem, whole, epochs=1).x == run(problem, trsvr.TRSVR(1.0, B, S), epochs=1).x).all()


@pytest.mark.parametrize("solver", [trsvr.TRSVR(1.0, B, S), trsvr.SVRG(0.1, B, S)], ids=["trsvr", "svrg"])
def test_the_state_is_a_flat_record_of_arrays_and_numbers(convex, solver):
    problem, _ = convex
    record = solver.resolve(problem, START, None).init(problem, START.copy()).snapshot()
    assert set(record) >= {"x", "value", "gradient"}
    for entry in record.values():
        assert isinstance(entry, (np.ndarray, int, float))
