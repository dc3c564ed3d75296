"""The laboratory: every estimator × curvature × radius × subproblem; impossible pairs; solvers without arguments."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import loops
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

import trsvr
from oracle import Oracle
from trsvr.parts import (
    DenseSubproblem,
    EstimatedHessian,
    ExactHessian,
    FullGradient,
    GradientRadius,
    Identity,
    NoCurvature,
    PlainGradient,
    RatioTest,
    SAGAGradient,
    SARAHGradient,
    SteihaugCG,
    SVRGGradient,
    TRishRadius,
    record,
)
from trsvr.problems import L2, FunctionProblem, Logistic
from trsvr.solvers import BY_NAME
from trsvr.theory import recommended_step

ESTIMATORS = (PlainGradient(), SVRGGradient(), SARAHGradient(), SAGAGradient())
CURVATURES = (Identity(), NoCurvature(), ExactHessian(), EstimatedHessian())
RADII = (GradientRadius(0.5), TRishRadius(0.2, 2.0, 0.1))
SUBPROBLEMS = (SteihaugCG(20), DenseSubproblem())


def called(*parts):
    return "-".join(type(part).__name__ for part in parts)


@pytest.fixture(scope="module")
def small():
    """60 rows, 4 columns: a problem for runs in plain Python, as model and as oracle."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 4))
    y = np.where(X @ [1.0, -1.0, 0.5, 0.0] + rng.logistic(size=60) > 0, 1.0, -1.0)
    return trsvr.problems.logistic(X, y, l2=1e-2), Oracle(X, y, Logistic(), L2(1e-2))


ALL = list(itertools.product(ESTIMATORS, CURVATURES, RADII, SUBPROBLEMS))


@pytest.mark.parametrize("parts", ALL, ids=[called(*parts) for parts in ALL])
def test_every_combination_descends(small, parts):
    _, oracle = small
    gradient, curvature, radius, subproblem = parts
    method = trsvr.TrustRegionMethod(gradient, curvature, radius, subproblem, batch_size=20, inner_steps=10)
    result = trsvr.minimize(loops.plain(oracle), method, max_epochs=6, tol=None, seed=2)
    assert result.status is trsvr.Status.EPOCH_LIMIT
    trace = result.trace
    assert trace["gradient_norm_sq"].min() < 0.2 * trace["gradient_norm_sq"][0]
    assert result.value < trace["value"][0]
    products = trace["hessian_products"].iloc[-1]
    assert (products > 0) == isinstance(curvature, ExactHessian | EstimatedHessian)
    fixed = 6 * 10 * gradient.evaluations(20) + products * 20
    fixed += 60 * (6 if gradient.needs_reference else isinstance(gradient, SAGAGradient))
    assert result.gradient_evaluations == fixed


# Each needs some seconds to compile for the first time; other tests compile SVRG's pairs.
COMPILED = [
    (SARAHGradient(), ExactHessian(), TRishRadius(0.2, 2.0, 0.1), SteihaugCG(20)),
    (SAGAGradient(), EstimatedHessian(), GradientRadius(0.5), SteihaugCG(20)),
]


@pytest.mark.parametrize("parts", COMPILED, ids=[called(*parts) for parts in COMPILED])
def test_compiled_pairs_are_the_plain_ones(small, parts):
    problem, oracle = small
    method = trsvr.TrustRegionMethod(*parts, batch_size=20, inner_steps=10)
    x0 = np.array([0.3, -0.2, 0.1, 0.5])
    if isinstance(parts[0], SAGAGradient):
        # A compiled table holds slopes and the regulariser is exact; a plain one holds whole gradients. Both converge.
        ends = [trsvr.minimize(either, method, x0=x0, max_epochs=60).x for either in (problem, loops.plain(oracle))]
        assert_allclose(*ends, atol=1e-6)
    else:
        ends = [loops.last_iterate(either, method, x0, 2, 3) for either in (problem, loops.plain(oracle))]
        assert_allclose(*ends, atol=1e-10)


class Unrecorded:
    """A radius that cannot be compiled: the method then runs in plain Python, on a linear model too."""

    def radius_for(self, norm):
        return 0.5 * norm


@pytest.mark.parametrize(
    "gradient",
    [
        PlainGradient(),
        SVRGGradient(),
        SARAHGradient(),
        SAGAGradient(),
    ],
    ids=called,
)
def test_a_linear_model_runs_plain_where_a_part_is_plain(small, gradient):
    problem, _ = small
    method = trsvr.TrustRegionMethod(gradient, radius=Unrecorded(), batch_size=20, inner_steps=10)
    result = trsvr.minimize(problem, method, max_epochs=6, tol=None)
    assert result.value < result.trace["value"][0]


@pytest.mark.parametrize("gradient", ["svrg", "sarah", "saga", "plain"])
def test_the_short_form(small, gradient):
    _, oracle = small
    kinds = {"svrg": SVRGGradient, "sarah": SARAHGradient, "saga": SAGAGradient, "plain": PlainGradient}
    short = trsvr.TRSVR(alpha=0.7, batch_size=20, inner_steps=10, gradient=gradient)
    long = trsvr.TrustRegionMethod(kinds[gradient](), radius=GradientRadius(0.7), batch_size=20, inner_steps=10)
    ends = [loops.last_iterate(loops.plain(oracle), solver, np.zeros(4), 2, 1) for solver in (short, long)]
    assert (ends[0] == ends[1]).all()


# ------------------------------------------------------------------------------------------------- impossible pairs


def on(problem):
    return lambda **parts: trsvr.minimize(
        problem, trsvr.TrustRegionMethod(**parts, batch_size=2, inner_steps=2), x0=[1.0, 2.0]
    )


no_product = on(FunctionProblem(3, 2, lambda x, i: x, lambda x, i: 0.5 * x @ x))
no_value = on(FunctionProblem(3, 2, lambda x, i: x, None, lambda x, i, v: v))

IMPOSSIBLE = {
    "ratio test without full gradients": (
        lambda: trsvr.TrustRegionMethod(gradient=SVRGGradient(), radius=RatioTest()),
        "radius RatioTest and gradient SVRGGradient do not go together: RatioTest needs the full gradient and value",
    ),
    "full gradients without the ratio test": (
        lambda: trsvr.TrustRegionMethod(gradient=FullGradient(), radius=GradientRadius(1.0)),
        "radius GradientRadius and gradient FullGradient do not go together",
    ),
    "ratio test with the identity": (
        lambda: no_product(gradient=FullGradient(), radius=RatioTest(), curvature=Identity()),
        "radius RatioTest needs curvature ExactHessian or EstimatedHessian",
    ),
    "exact curvature of a problem without it": (
        lambda: no_product(curvature=ExactHessian()),
        "curvature ExactHessian needs a problem with hessian_product, which FunctionProblem has not; EstimatedHessian",
    ),
    "ratio test without values": (
        lambda: no_value(gradient=FullGradient(), radius=RatioTest(), curvature=ExactHessian()),
        "compares function values: give the FunctionProblem a value function",
    ),
    "a dense matrix that is too large": (
        lambda: no_product(subproblem=DenseSubproblem(largest=1)),
        "subproblem DenseSubproblem forms a 2 x 2 matrix, at most 1; SteihaugCG needs none",
    ),
    "a class instead of a part": (
        lambda: trsvr.TrustRegionMethod(gradient=SVRGGradient),
        "gradient must be a part with a method 'estimate'",
    ),
    "a part in the wrong place": (
        lambda: trsvr.TrustRegionMethod(radius=SteihaugCG()),
        "radius must be a part with a method 'radius_for'",
    ),
    "a negative alpha": (lambda: trsvr.TrustRegionMethod(radius=GradientRadius(-1.0)), "alpha must be a finite"),
    "an unknown estimator": (lambda: trsvr.TRSVR(gradient="sagga"), "gradient must be .* did you mean 'saga'"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_pairs_are_refused_with_what_is_missing(name):
    make, message = IMPOSSIBLE[name]
    with pytest.raises(ValueError, match=message):
        make()


# --------------------------------------------------------------------------------------------- parts from outside


@record
class Shrinking(NamedTuple):
    """A radius rule of the user's own, compiled: Δ = α‖g‖ / (1 + ‖g‖)."""

    alpha: float = 0.5

    def radius_for(self, norm):
        return self.alpha * norm / (1.0 + norm)


class PlainShrinking:
    """The same, not compiled."""

    def radius_for(self, norm):
        return 0.5 * norm / (1.0 + norm)


def test_a_record_from_outside_is_compiled_and_gives_the_same_steps(small):
    problem, _ = small
    ends = [
        loops.last_iterate(
            problem, trsvr.TrustRegionMethod(radius=rule, batch_size=20, inner_steps=10), np.ones(4), 2, 1
        )
        for rule in (Shrinking(), PlainShrinking())
    ]
    assert_allclose(*ends, atol=1e-7)  # estimated curvature: differences of gradients
    assert trsvr.problems.record is trsvr.parts.record


# -------------------------------------------------------------------------------------------- solvers as they are


@pytest.fixture(scope="module")
def usual():
    """400 rows as a user has them: standardised columns, noisy labels."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 8))
    y = np.where(X @ rng.normal(size=8) + rng.logistic(size=400) > 0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize("form", ["dense", "CSR", "function"])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_solver_without_arguments_does_something_sensible(usual, name, form):
    X, y = usual
    solver = BY_NAME[name]()
    if (name, form) == ("sdca", "function"):
        pytest.skip("a function has no dual")
    oracle = Oracle(X, y, Logistic(), L2(1e-2))
    problem = {
        "dense": lambda: trsvr.problems.logistic(X, y, l2=1e-2),
        "CSR": lambda: trsvr.problems.logistic(scipy.sparse.csr_array(X), y, l2=1e-2),
        "function": lambda: loops.plain(oracle),
    }[form]()
    # In plain Python some epochs are enough: SVRG makes 2N steps in each.
    result = trsvr.minimize(problem, solver, max_epochs=3 if form == "function" else 100)
    trace = result.trace
    assert result.status is not trsvr.Status.DIVERGED
    assert trace["value"].iloc[-1] < trace["value"][0]
    if form == "function" or name in ("sgd", "adam", "trish"):
        # torch's default steps are small: three epochs of Adam hardly move
        assert trace["gradient_norm_sq"].iloc[-1] < (0.95 if form == "function" else 0.3) * trace["gradient_norm_sq"][0]
    else:
        assert result.success
        assert np.abs(oracle.gradient(result.x)).max() < 1e-7


@pytest.mark.parametrize("kind", [trsvr.SVRG, trsvr.SARAH, trsvr.SAGA])
def test_the_automatic_step_of_unknown_functions_is_near_the_known_one(usual, kind):
    X, y = usual
    known, unknown = trsvr.problems.logistic(X, y, l2=1e-2), loops.plain(Oracle(X, y, Logistic(), L2(1e-2)))
    for b in (1, 20):
        steps = [
            kind(batch_size=b).resolve(problem, np.zeros(8), recommended_step).step for problem in (known, unknown)
        ]
        assert 0.3 < steps[1] / steps[0] < 2.0


def test_where_there_is_no_curvature_a_step_is_asked_for():
    flat = FunctionProblem(10, 3, lambda x, i: np.ones(3))
    with pytest.raises(ValueError, match=r"no curvature.* give a number, such as step=0\.1"):
        trsvr.minimize(flat, trsvr.SVRG())


def test_an_automatic_step_grows_with_the_batch(usual):
    X, y = usual
    problem = trsvr.problems.logistic(X, y)
    steps = [trsvr.SVRG(batch_size=b).resolve(problem, np.zeros(8), recommended_step).step for b in (1, 10, 100)]
    assert steps[0] < steps[1] < steps[2]
