"""The three lemmas of the paper, empirically: many batches, numbers from the dense oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched import steps_from

from oracle import Oracle
from trsvr import SVRG, TRSVR, problems, theory
from trsvr.parts import SteihaugCG
from trsvr.parts.subproblems import CGWork

DRAWS = 2000


class DenseHessian:
    def __init__(self, matrix):
        self.matrix = matrix

    def product(self, v, squared_norm, out):
        out[:] = self.matrix @ v
        return float(v @ out)


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 9),
    shift=st.sampled_from([-3.0, -0.5, 0.0, 0.5, 3.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 10.0]),
)
def test_cauchy_lemma(seed, size, shift, scale, alpha):
    """m(p) ≤ −‖g‖Δ + ½‖H‖Δ², for definite, indefinite and negative definite H."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    H = scale * ((A + A.T) / 2 + shift * np.eye(size))
    g = rng.normal(size=size)
    norm = float(np.linalg.norm(g))
    radius = alpha * norm
    work = CGWork.of_size(size)
    SteihaugCG().solve(DenseHessian(H), g, norm, radius, work)
    p = work.step
    model = g @ p + 0.5 * p @ H @ p
    bound = -norm * radius + 0.5 * np.linalg.norm(H, 2) * radius**2
    assert np.linalg.norm(p) <= radius * (1 + 1e-12)
    assert model <= bound + 1e-12 * abs(bound), f"m(p) = {model}, bound {bound}"


def test_cauchy_lemma_is_tight_for_a_multiple_of_the_identity():
    g = np.array([3.0, 4.0])
    work = CGWork.of_size(2)
    SteihaugCG().solve(DenseHessian(2.0 * np.eye(2)), g, 5.0, 1.0, work)
    assert g @ work.step + work.step @ work.step == pytest.approx(-5.0 * 1.0 + 0.5 * 2.0 * 1.0)


def variance_parts(problem, oracle, x, reference, batch_size, seed=0):
    """Measured E‖ḡ − g‖² over many batches, its standard error, and the exact value by enumeration of the rows."""
    # One SVRG step of length one from x gives x − ḡ.
    reached = steps_from(problem, SVRG(1.0, batch_size, DRAWS), x, reference, DRAWS, seed)
    errors = np.sum((x - reached - oracle.gradient(x)) ** 2, axis=1)
    change = oracle.component_gradients(x) - oracle.component_gradients(reference)
    exact = np.mean(np.sum((change - change.mean(axis=0)) ** 2, axis=1)) / batch_size
    return errors.mean(), errors.std() / np.sqrt(DRAWS), exact


@pytest.mark.parametrize("kind", ["convex", "nonconvex"])
@pytest.mark.parametrize("batch_size", [1, 20])
def test_variance_lemma(request, kind, batch_size):
    problem, oracle = request.getfixturevalue(kind)
    L = theory.component_smoothness(problem, radius=None if kind == "convex" else 2.0)
    rng = np.random.default_rng(batch_size)
    for distance in (1e-2, 1.0):
        reference = rng.uniform(-0.5, 0.5, size=6)
        x = reference + distance * rng.uniform(-1, 1, size=6)
        measured, error, exact = variance_parts(problem, oracle, x, reference, batch_size)
        bound = L**2 / batch_size * np.sum((x - reference) ** 2)
        numbers = f"measured {measured:.4g} ± {error:.1g}, exact {exact:.4g}, bound {bound:.4g}"
        assert abs(measured - exact) <= 5 * error, numbers
        assert measured <= bound, numbers


def test_variance_lemma_needs_the_largest_component():
    """Rows along different axes: L = (c + λN)/N of f is far below L_max = c + λ, and the lemma fails with it."""
    n = 40
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    problem, oracle = (
        problems.logistic(np.eye(n), y, l2=1e-3),
        Oracle(np.eye(n), y, problems.Logistic(), problems.L2(1e-3)),
    )
    L, largest = theory.smoothness(problem), theory.component_smoothness(problem)
    reference = np.zeros(n)
    x = 0.1 * np.random.default_rng(6).normal(size=n)
    measured, error, exact = variance_parts(problem, oracle, x, reference, batch_size=1)
    distance_sq = np.sum((x - reference) ** 2)
    with_mean, with_largest = L**2 * distance_sq, largest**2 * distance_sq
    numbers = f"measured {measured:.4g} ± {error:.1g}, with L {with_mean:.4g}, with L_max {with_largest:.4g}"
    assert abs(measured - exact) <= 5 * error, numbers
    assert measured - 5 * error > 10 * with_mean, numbers
    assert measured <= with_largest, numbers


@pytest.mark.parametrize(
    ("kind", "hessian"),
    [("convex", "identity"), ("convex", "exact"), ("convex", "estimated"), ("nonconvex", "estimated")],
)
def test_one_step_lemma(request, kind, hessian):
    """E f(x⁺) − f(x) ≤ −¼α‖g‖² + ½(L + 2κ)α² E‖ḡ − g‖², at the largest α allowed."""
    problem, oracle = request.getfixturevalue(kind)
    radius = None if kind == "convex" else 2.0
    L = theory.component_smoothness(problem, radius=radius)
    kappa = theory.hessian_bound(problem, hessian, radius=radius)
    alpha = 1.0 / (2.0 * (L + 2.0 * kappa))
    rng = np.random.default_rng(17)
    for distance in (0.05, 0.5):
        reference = rng.uniform(-0.5, 0.5, size=6)
        x = reference + distance * rng.uniform(-1, 1, size=6)
        solver = TRSVR(alpha, 4, DRAWS, hessian)
        reached = steps_from(problem, solver, x, reference, DRAWS, seed=3)
        assert np.abs(reached).max() <= 2.0
        changes = np.array([oracle.value(z) for z in reached]) - oracle.value(x)
        change, error = changes.mean(), changes.std() / np.sqrt(DRAWS)
        gradients = oracle.component_gradients(x) - oracle.component_gradients(reference)
        variance = np.mean(np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1)) / 4
        g = oracle.gradient(x)
        bound = -0.25 * alpha * g @ g + 0.5 * (L + 2 * kappa) * alpha**2 * variance
        assert change + 3 * error <= bound, (
            f"change {change:.4g} ± {error:.1g}, bound {bound:.4g}, variance {variance:.4g}"
        )
