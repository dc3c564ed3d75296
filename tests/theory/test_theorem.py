"""The theorem's settings, its Lyapunov function, and its bound on real runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from watched import squared_gradients

from oracle import Oracle
from trsvr import SVRG, TRSVR, problems, theory

SEEDS, EPOCHS = 12, 30


@pytest.fixture(scope="module")
def small(data):
    """Rows of length at most one and a larger ridge, so that a run at the theorem's short steps gets somewhere."""
    X, y = data
    X = X / np.linalg.norm(X, axis=1).max()
    return problems.logistic(X, y, l2=2e-2), Oracle(X, y, problems.Logistic(), problems.L2(2e-2))


def test_lyapunov_recursion_by_hand():
    """The closed form against the recursion as the paper writes it."""
    alpha, b, S, L, kappa, z = 0.05, 30, 17, 2.0, 1.5, 0.4
    found = theory.lyapunov(alpha, b, S, L, kappa, z)
    M = L + 2 * kappa
    weights = [0.0]
    for _ in range(S):
        growth = 1 + alpha * z + (alpha**2 + alpha / z) * L**2 / b
        weights.insert(0, alpha**2 * L**2 * M / (2 * b) + weights[0] * growth)
    assert found.weights == pytest.approx(weights, rel=1e-12)
    decreases = [alpha / 4 - w * (1 + 1 / (alpha * z)) * alpha**2 for w in weights[1:]]
    assert found.decreases == pytest.approx(decreases, rel=1e-12)
    assert found.smallest == found.decreases[0]


def test_best_coupling_is_best():
    for alpha, b, S, L, kappa in [(0.05, 30, 17, 2.0, 1.5), (0.01, 1, 200, 2.0, 0.0), (1e-4, 5, 3000, 40.0, 40.0)]:
        best = theory.best_lyapunov(alpha, b, S, L, kappa).smallest
        others = [theory.lyapunov(alpha, b, S, L, kappa, z).smallest for z in np.geomspace(1e-4, 1e4, 400)]
        assert best >= max(others) - 1e-9 * abs(best)
    assert theory.best_lyapunov(1.0, 1, 10**6, 50.0, 50.0).smallest < 0  # overflows, without a warning


@pytest.mark.parametrize("n", [1, 2, 100, 1000, 10**6])
@pytest.mark.parametrize(("mu0", "mu1"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.3), (0.1, 0.1)])
@pytest.mark.parametrize("gamma", [1 / 3, 2 / 3, 1.0])
def test_settings_satisfy_what_the_proof_needs(n, mu0, mu1, gamma):
    L = kappa = 3.0
    found = theory.theorem_settings(n, L, kappa, mu0=mu0, mu1=mu1, gamma=gamma)
    M = L + 2 * kappa
    assert found.batch_size == max(1, math.floor(mu1 * n**gamma + 1e-9))
    assert found.alpha == pytest.approx(mu0 * found.batch_size / (2 * M * n**gamma))
    assert found.alpha <= 1 / (2 * M) * (1 + 1e-12) or found.batch_size == 1
    rho = found.lyapunov.growth
    assert found.inner_steps == max(1, math.floor(1 / rho))
    if found.inner_steps > 1:
        assert (1 + rho) ** found.inner_steps <= math.e
        assert found.v0 > 0
        # Λ_min ≥ αv₀, the inequality at the end of the proof, with (L + 2κ)
        assert found.progress >= mu0 * found.mu1 * found.v0 / (2 * M) * (1 - 1e-12)


def test_where_the_paper_contradicts_itself():
    small_L = theory.theorem_settings(10**6, 1e-3, 1e-3, mu0=0.001, form="printed")
    proof = theory.theorem_settings(10**6, 1e-3, 1e-3, mu0=0.001)
    # The printed bound of S lets (1 + ρ)^S exceed e, for small L.
    assert small_L.inner_steps > proof.inner_steps
    assert (1 + small_L.lyapunov.growth) ** small_L.inner_steps > math.e
    # The printed v₀ is negative at settings whose guarantee is fine.
    ordinary = theory.theorem_settings(10**6, 1.0, 1.0)
    assert ordinary.v0_printed < 0 < ordinary.v0
    assert ordinary.progress > 0


def test_the_closed_form_bound():
    """By hand for L = κ = 1, N = 1000, μ₀ = μ₁ = 1: b = 100, M = 3, ρ = 1/10 + 1/3600 + 1/360, so S = 9."""
    found = theory.theorem_settings(1000, 1.0, 1.0)
    assert (found.batch_size, found.inner_steps) == (100, 9)
    v0 = 0.25 - (math.e - 1) * (100 / 1000 + 1) / (16 * 9)
    assert found.bound(5.0, epochs=20) == pytest.approx(2 * 3 * 5.0 / (20 * 9 * v0), rel=1e-12)
    assert found.bound(5.0, 20, "printed") == math.inf  # its v₀ is negative
    # Λ_min ≥ μ₀μ₁v₀/(2M): the closed form is the weaker statement.
    assert found.bound(5.0, 20) >= theory.gradient_bound(5.0, 20, 9, found.progress)
    # Where the printed v₀ is positive, the printed bound has (L + κ_H).
    short = theory.theorem_settings(1000, 1.0, 1.0, mu0=0.05)
    v0 = 0.25 - 0.05 * (math.e - 1) * (0.05 * 100 + 1) / (16 * 9)
    expected = 2 * 2 * 5.0 / (20 * short.inner_steps * 0.05 * v0)
    assert short.bound(5.0, 20, "printed") == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="form must be"):
        found.bound(5.0, 20, "printd")


def test_the_three_further_print_errors():
    """ρ's third term, the factor λ_{s+1} in the step of Φ, and the power of ε."""
    n, L, kappa = 10**6, 2.0, 1.5
    found = theory.theorem_settings(n, L, kappa)
    M, b, alpha, z = L + 2 * kappa, found.batch_size, found.alpha, found.lyapunov.coupling
    first, second = b / n, L**2 * b / (4 * M**2 * n ** (4 / 3))
    third, printed = (L**2 / (4 * square * n ** (1 / 3)) for square in (M**2, (L + kappa) ** 2))
    assert found.lyapunov.growth == pytest.approx(first + second + third, rel=1e-9)
    assert abs(first + second + printed - found.lyapunov.growth) > 0.1 * third
    weights, growth = found.lyapunov.weights, alpha * z + (alpha**2 + alpha / z) * L**2 / b
    source = alpha**2 * L**2 * M / (2 * b)
    assert source + weights[1] * (1 + growth) - weights[0] == pytest.approx(0.0, abs=1e-12 * weights[0])
    assert source + (1 + growth) - weights[0] > 0.5  # as printed, the terms do not cancel
    ask = [theory.complexity(e, 1.0, n, b, found.inner_steps, found.progress).iterations for e in (1e-6, 1e-8)]
    assert ask[1] / ask[0] == pytest.approx(100, rel=0.01)  # 1/ε, not 1/ε²


def test_predicted_samples_grow_like_the_corollary():
    """γ = 2/3: O(N + N^{2/3}/ε), so for small ε a thousand times the rows cost a hundred times the gradients."""
    costs = []
    for n in (10**6, 10**9):
        s = theory.theorem_settings(n, 1.0, 1.0)
        costs.append(theory.complexity(1e-9, 1.0, n, s.batch_size, s.inner_steps, s.progress).gradient_evaluations)
    assert costs[1] / costs[0] == pytest.approx(100, rel=0.05)


def test_complexity_counts():
    found = theory.complexity(0.01, 2.0, n_samples=1000, batch_size=10, inner_steps=5, progress=0.5)
    assert (found.epochs, found.iterations) == (80, 400)
    assert found.gradient_evaluations == 80 * (1000 + 2 * 10 * 5)
    assert found.passes == pytest.approx(88.0)
    assert theory.gradient_bound(2.0, found.epochs, 5, 0.5) <= 0.01
    assert theory.complexity(0.01, 2.0, 1000, 10, 5, progress=-1.0).epochs == math.inf
    assert theory.gradient_bound(2.0, 80, 5, progress=0.0) == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mu0": 2.0}, "mu0 must be a number in"),
        ({"gamma": 0.0}, "gamma must be a finite number > 0"),
        ({"smoothness": 0.0}, "smoothness must be"),
        ({"form": "prooof"}, "did you mean 'proof'"),
        ({"smoothness": 0.01, "hessian_bound": 0.01}, "wants alpha <= 1"),
    ],
)
def test_refused_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        theory.theorem_settings(**({"n_samples": 100, "smoothness": 1.0, "hessian_bound": 1.0} | arguments))


def runs(problem, oracle, solver, x0, epochs):
    """Means over the seeds of ‖g_{k,s}‖², the largest |w_j| seen, and the mean of f at the end."""
    outcomes = [squared_gradients(problem, oracle, solver, x0, epochs, seed) for seed in range(SEEDS)]
    norms = np.mean([norms for norms, _, _ in outcomes], axis=0)
    return norms, max(largest for _, largest, _ in outcomes), np.mean([oracle.value(x) for _, _, x in outcomes])


@pytest.mark.parametrize("hessian", ["estimated", "identity"])
@pytest.mark.parametrize("kind", ["small", "nonconvex"])
def test_bound_of_the_theorem(request, kind, hessian):
    """Sharper than printed: f_inf is replaced by the mean of f at the end, as the proof allows."""
    problem, oracle = request.getfixturevalue(kind)
    radius = None if kind == "small" else 3.0
    L = theory.component_smoothness(problem, radius=radius)
    settings = theory.theorem_settings(problem.n_samples, L, theory.hessian_bound(problem, hessian, radius=radius))
    solver = settings.solver(hessian)
    x0 = np.random.default_rng(2).normal(size=6)
    norms, largest, end = runs(problem, oracle, solver, x0, EPOCHS)
    assert radius is None or largest <= radius
    bound = theory.gradient_bound(oracle.value(x0) - end, EPOCHS, solver.inner_steps, settings.progress)
    numbers = (
        f"mean squared gradient {norms.mean():.4g}, bound {bound:.4g}, alpha {settings.alpha:.3g}, "
        f"b {settings.batch_size}, S {settings.inner_steps}, L_max {L:.4g}, Lambda_min {settings.progress:.4g}"
    )
    assert norms.mean() <= bound, numbers
    assert norms.mean() >= bound / 50, f"the bound is worthless here: {numbers}"


def test_bound_for_other_settings(small):
    """SVRG with one row a step and far more steps than the theorem's: the best z still gives a bound, and it holds."""
    problem, oracle = small
    solver = SVRG(step=0.05, batch_size=1, inner_steps=100)
    report = theory.check(problem, solver, x0=np.ones(6))
    assert report.holds, str(report)
    norms, _, end = runs(problem, oracle, solver, np.ones(6), 10)
    bound = theory.gradient_bound(oracle.value(np.ones(6)) - end, 10, 100, report.progress)
    assert norms.mean() <= bound, f"mean squared gradient {norms.mean():.4g}, bound {bound:.4g}"


@pytest.mark.parametrize("kind", ["small", "nonconvex"])
def test_mean_decays_like_one_over_steps(request, kind):
    """Slope of log(mean of ‖g‖² over the first K epochs) over log(K·S), fitted on the last three quarters."""
    problem, oracle = request.getfixturevalue(kind)
    epochs = 300
    L = theory.component_smoothness(problem, radius=None if kind == "small" else 3.0)
    solver = theory.theorem_settings(problem.n_samples, L, L).solver("identity")
    per_seed = [squared_gradients(problem, oracle, solver, np.ones(6), epochs, seed)[0] for seed in range(3)]
    norms = np.mean(per_seed, axis=0).ravel()
    taken = np.arange(1, norms.size + 1)
    running = np.cumsum(norms) / taken
    late = taken >= norms.size // 4
    slope = np.polyfit(np.log(taken[late]), np.log(running[late]), 1)[0]
    assert slope <= -0.97, f"slope {slope:.4f}; mean squared gradient {running[late][[0, -1]]}"


def test_check_in_words(convex, nonconvex):
    problem, _ = convex
    L = theory.component_smoothness(problem)
    good = theory.check(problem, theory.theorem_settings(400, L, L))
    assert good.holds
    assert "the mean of E‖∇f‖² is at most" in str(good)
    assert str(good).count("holds") == 6
    assert good.useful_after.epochs >= 1
    bad = theory.check(problem, TRSVR(alpha=1.0, batch_size=20, inner_steps=200))
    assert not bad.holds
    assert "times too large" in str(bad)
    assert "no guarantee" in bad.guarantee
    assert not theory.check(problem, TRSVR(alpha=1e-3, batch_size=20, inner_steps=5, gradient="plain")).holds
    well = theory.check(nonconvex[0], TRSVR(alpha=1e-3, batch_size=20, inner_steps=5))
    assert "as long as every |w_j| <=" in str(well)
    allowed = next(s.sentence for s in bad.statements if s.name == "epochs are short")
    longest = int(allowed.split("S <= ")[1].split()[0])
    assert theory.best_lyapunov(1.0, 20, longest, L, L).smallest > 0
    assert theory.best_lyapunov(1.0, 20, longest + 1, L, L).smallest <= 0


def test_check_refuses_what_it_cannot_judge(convex):
    with pytest.raises(ValueError, match="settings must be a TRSVR"):
        theory.check(convex[0], "trsvr")
    with pytest.raises(ValueError, match="batch_size"):
        theory.check(convex[0], SVRG(step=0.1, batch_size=401, inner_steps=10))
    with pytest.raises(ValueError, match="adaptive settings"):
        theory.check(convex[0], TRSVR(alpha="auto", batch_size=1, inner_steps=1))
