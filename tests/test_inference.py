"""Standard errors, deviances and likelihoods beside statsmodels', glum's and a dense oracle's."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings

import glum
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.api as sm
from numpy.testing import assert_allclose
from statsmodels.stats.sandwich_covariance import cov_white_simple

import trsvr
from oracle import Oracle, scaled_weights
from trsvr.inference import covariance, summary
from trsvr.problems import (
    L2,
    Binomial,
    Gamma,
    LinearModel,
    Logistic,
    NegativeBinomial,
    Poisson,
    PseudoHuber,
    Softmax,
    Squared,
    Tweedie,
)

N, D = 240, 4
rng = np.random.default_rng(4)
X = rng.normal(size=(N, D)) * [1.0, 0.3, 5.0, 1.0] + [0.0, 2.0, -3.0, 0.0]
OFFSET = 0.3 * rng.normal(size=N)
WEIGHTS = rng.integers(1, 4, N).astype(float)
GROUPS = rng.integers(0, 15, N)
Z = X @ [0.3, -0.5, 0.1, 0.2] + 1.2 + OFFSET
MEAN = np.exp(Z)
links = sm.families.links
FAMILIES = {
    "poisson": (Poisson(), rng.poisson(MEAN).astype(float), sm.families.Poisson()),
    "gamma": (Gamma(), rng.gamma(2.0, MEAN / 2.0), sm.families.Gamma(links.Log())),
    "tweedie": (Tweedie(1.6), rng.poisson(MEAN) * rng.gamma(2.0, 0.5, N), sm.families.Tweedie(links.Log(), 1.6)),
    "negative binomial": (
        NegativeBinomial(0.7),
        rng.negative_binomial(1 / 0.7, 1.0 / (1.0 + 0.7 * MEAN)).astype(float),
        sm.families.NegativeBinomial(alpha=0.7),
    ),
    "logistic": (Logistic(), rng.binomial(1, 1.0 / (1.0 + np.exp(-Z))), sm.families.Binomial()),
    "normal": (Squared(), Z + rng.normal(size=N), sm.families.Gaussian()),
}
EVERY = list(
    itertools.product(FAMILIES, [None, WEIGHTS], [None, OFFSET], [True, False], [np.asarray, scipy.sparse.csr_array])
)

every = pytest.mark.parametrize(
    ("name", "weights", "offset", "intercept", "rows"),
    EVERY,
    ids=[
        f"{name}-{'weighted' if w is not None else 'plain'}-{'offset' if o is not None else 'none'}-{i}-{r.__name__}"
        for name, w, o, i, r in EVERY
    ],
)


def design(intercept):
    return np.column_stack([X, np.ones(N)]) if intercept else X


def theirs(name, intercept=True, **options):
    _, y, family = FAMILIES[name]
    fit = {"tol": 1e-14, "tol_criterion": "params", "maxiter": 500}
    fit |= {key: options.pop(key) for key in ("cov_type", "cov_kwds") if key in options}
    return sm.GLM(y, design(intercept), family=family, **options).fit(**fit)


def ours(name, intercept=True, rows=np.asarray, **options):
    loss, y, _ = FAMILIES[name]
    problem = LinearModel(rows(X), y, loss, L2(0.0), intercept=intercept, **options)
    return problem, trsvr.minimize(problem, tol=1e-11)


@every
def test_as_statsmodels(name, weights, offset, intercept, rows):
    if name == "tweedie" and not intercept:
        offset = OFFSET  # without both its iteration does not converge
    problem, result = ours(name, intercept, rows, sample_weight=weights, offset=offset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = theirs(name, intercept, freq_weights=weights, offset=offset)
        if name == "tweedie" and not wanted.converged:
            pytest.skip("statsmodels' iteration has not converged")
        llf, aic = wanted.llf, wanted.aic
        null_deviance = wanted.null_deviance
    found = summary(problem, result)
    table = found.table
    assert_allclose(table["coefficient"], wanted.params, rtol=1e-7, atol=1e-9)
    assert_allclose(table["standard error"], wanted.bse, rtol=1e-7)
    assert_allclose(table["z"], wanted.tvalues, rtol=1e-6, atol=1e-8)
    assert_allclose(table["p"], wanted.pvalues, rtol=1e-5, atol=1e-12)
    assert_allclose(table[["lower", "upper"]], wanted.conf_int(), rtol=1e-6, atol=1e-9)
    assert found.deviance == pytest.approx(wanted.deviance, rel=1e-9)
    assert found.null_deviance == pytest.approx(null_deviance, rel=1e-8)
    assert found.dispersion == pytest.approx(wanted.scale, rel=1e-7)
    assert found.degrees_of_freedom == pytest.approx(wanted.df_resid, rel=1e-9)
    if name != "tweedie":
        assert found.log_likelihood == pytest.approx(llf, rel=1e-8)
        assert found.aic == pytest.approx(aic, rel=1e-8)
    else:
        assert np.isnan(found.log_likelihood)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("rows", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "csr"])
def test_sandwiches(name, rows):
    problem, result = ours(name, rows=rows)
    white, grouped = (
        theirs(name, cov_type="HC0"),
        theirs(name, cov_type="cluster", cov_kwds={"groups": GROUPS}),
    )
    assert_allclose(covariance(problem, result, kind="HC0").standard_errors, white.bse, rtol=1e-7)
    corrected = cov_white_simple(theirs(name), use_correction=True)  # GLM's own "HC1" leaves the correction out
    assert_allclose(covariance(problem, result, kind="HC1").matrix, corrected, rtol=1e-6, atol=1e-12)
    assert_allclose(covariance(problem, result, kind="cluster", groups=GROUPS).standard_errors, grouped.bse, rtol=1e-7)
    labels = pd.Series(GROUPS.astype(str))
    assert_allclose(covariance(problem, result, kind="cluster", groups=labels).standard_errors, grouped.bse, rtol=1e-7)


def test_logit_and_ordinary_least_squares():
    """The same numbers from statsmodels' other models, with HC1 as they have it."""
    problem, result = ours("logistic")
    other = sm.Logit(FAMILIES["logistic"][1], design(True)).fit(disp=0, tol=1e-14)
    found = summary(problem, result)
    assert_allclose(found.table["standard error"], other.bse, rtol=1e-7)
    assert found.log_likelihood == pytest.approx(other.llf, rel=1e-10)
    problem, result = ours("normal")
    other = sm.OLS(FAMILIES["normal"][1], design(True)).fit()
    assert_allclose(covariance(problem, result).standard_errors, other.bse, rtol=1e-9)
    assert_allclose(covariance(problem, result, kind="HC1").standard_errors, other.HC1_se, rtol=1e-9)


def test_weights_are_repeated_rows():
    loss, y, _ = FAMILIES["gamma"]
    times = WEIGHTS.astype(int)
    weighted, result = ours("gamma", sample_weight=WEIGHTS)
    repeated = LinearModel(np.repeat(X, times, axis=0), np.repeat(y, times), loss, L2(0.0), intercept=True)
    for kind in ("model", "HC0", "HC1"):
        one, other = (summary(problem, result, kind=kind) for problem in (weighted, repeated))
        assert_allclose(one.table, other.table, rtol=1e-8)
        assert_allclose(list(one.facts().values()), list(other.facts().values()), rtol=1e-8)


def test_weights_are_precisions():
    for name in FAMILIES:
        problem, result = ours(name, sample_weight=WEIGHTS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = theirs(name, var_weights=WEIGHTS)
            white, llf = theirs(name, var_weights=WEIGHTS, cov_type="HC0"), wanted.llf
        found = summary(problem, result, weights="precision")
        assert_allclose(found.table["standard error"], wanted.bse, rtol=1e-7)
        assert found.observations == N
        assert_allclose(
            covariance(problem, result, kind="HC0", weights="precision").standard_errors, white.bse, rtol=1e-7
        )
        if name != "tweedie":
            assert found.log_likelihood == pytest.approx(llf, rel=1e-7)


def test_successes_and_failures():
    trials = rng.integers(1, 9, N)
    successes = rng.binomial(trials, 1.0 / (1.0 + np.exp(-Z)))
    counts = np.column_stack([successes, trials - successes])
    problem = LinearModel(X, counts, Binomial(), L2(0.0), intercept=True)
    wanted = sm.GLM(counts, design(True), family=sm.families.Binomial()).fit(tol=1e-14)
    found = summary(problem, trsvr.minimize(problem, tol=1e-11), weights="precision")
    assert_allclose(found.table["standard error"], wanted.bse, rtol=1e-7)
    assert found.deviance == pytest.approx(wanted.deviance, rel=1e-9)
    assert found.null_deviance == pytest.approx(wanted.null_deviance, rel=1e-9)
    assert found.log_likelihood == pytest.approx(wanted.llf, rel=1e-9)


# ------------------------------------------------------------------------------------------------------ with a penalty


@every
def test_under_a_penalty(name, weights, offset, intercept, rows):
    """Against the dense formulas, and glum's coefficients."""
    loss, y, _ = FAMILIES[name]
    strengths = np.array([0.0, 0.05, 0.3, 0.01])
    options = {"sample_weight": weights, "offset": offset, "intercept": intercept}
    problem = LinearModel(rows(X), y, loss, L2(strengths), **options)
    x = trsvr.minimize(problem, tol=1e-11).x
    numbers = np.where(y > 0, 1.0, -1.0) if isinstance(loss, Logistic) else y
    times, shift = np.ones(N) if weights is None else weights, np.zeros(N) if offset is None else offset
    oracle = Oracle(X, numbers, loss, L2(strengths), intercept, scaled_weights(times), shift)
    bare = Oracle(X, numbers, loss, L2(0.0), intercept, scaled_weights(times), shift)
    total = times.sum()
    penalty = np.diag([*(total * strengths), 0.0][: x.size])
    assert np.abs(oracle.gradient(x)).max() < 1e-9
    slopes = bare.component_gradients(x)
    inverse = np.linalg.inv(total * bare.hessian(x) + penalty)
    meat = total / N * (slopes / scaled_weights(times)[:, None]).T @ slopes
    assert_allclose(covariance(problem, x, kind="HC0").matrix, inverse @ meat @ inverse, rtol=1e-8, atol=1e-13)
    mean = np.exp(oracle.A @ x + shift)
    information = {
        "poisson": mean,
        "gamma": np.ones(N),
        "tweedie": mean**0.4,
        "negative binomial": mean / (1.0 + 0.7 * mean),
        "logistic": mean / (1.0 + mean) ** 2,
        "normal": np.ones(N),
    }[name]
    A = oracle.A.T @ (oracle.A * (times * information)[:, None])
    inverse = np.linalg.inv(A + penalty)
    found = summary(problem, x)
    matrix = found.dispersion * inverse @ A @ inverse
    assert_allclose(found.table["standard error"], np.sqrt(np.diagonal(matrix)), rtol=1e-8)
    assert found.effective_coefficients == pytest.approx(np.trace(inverse @ A), rel=1e-10)
    if rows is np.asarray:
        assert_allclose(x, by_glum(name, strengths, weights, offset, intercept), rtol=1e-6, atol=1e-7)


def by_glum(name, strengths, weights, offset, intercept):
    family = {
        "gamma": glum.GammaDistribution(),
        "tweedie": glum.TweedieDistribution(1.6),
        "negative binomial": glum.NegativeBinomialDistribution(0.7),
        "logistic": "binomial",
    }.get(name, name)
    link = "auto" if name in ("normal", "logistic") else "log"
    options = {"family": family, "link": link, "P2": np.diag(strengths), "alpha": 1.0, "l1_ratio": 0}
    model = glum.GeneralizedLinearRegressor(**options, fit_intercept=intercept, gradient_tol=1e-10, max_iter=1000)
    model.fit(X, FAMILIES[name][1].astype(float), sample_weight=weights, offset=offset)
    return [*model.coef_, model.intercept_] if intercept else model.coef_


# ------------------------------------------------------------------------------------------------------ what is refused


def frame():
    levels = rng.integers(0, 3, N)
    columns = {"age": X[:, 0], **{name: (levels == k) * 1.0 for k, name in enumerate("abc")}}
    return pd.DataFrame(columns), levels


def test_dependent_columns_are_named():
    table, _ = frame()
    y = FAMILIES["poisson"][1]
    problem = LinearModel(table, y, Poisson(), L2(0.0), intercept=True)
    result = trsvr.minimize(problem)
    with pytest.raises(ValueError, match=r"columns 'a', 'b', 'c', '\(intercept\)' depend on each other"):
        summary(problem, result)
    with pytest.raises(ValueError, match="'twice' depend on each other"):
        covariance(LinearModel(table.assign(twice=2 * X[:, 0])[["age", "twice"]], y, Poisson(), L2(0.0)), np.zeros(2))
    with pytest.raises(ValueError, match="'k' has no standard error: its column is constant"):
        covariance(LinearModel(table[["age"]].assign(k=3.0), y, Poisson(), L2(0.0), intercept=True), np.zeros(3))
    penalised = LinearModel(table, y, Poisson(), L2([0.0, 1e-3, 1e-3, 1e-3]), intercept=True)
    found = summary(penalised, trsvr.minimize(penalised))
    assert list(found.table.index) == ["age", "a", "b", "c", "(intercept)"]
    assert 3.0 < found.effective_coefficients < 4.0


def test_separated_data_are_told():
    table, levels = frame()
    y = np.where(levels == 1, 0.0, FAMILIES["poisson"][1])
    problem = LinearModel(table[["age", "b", "c"]], y, Poisson(), L2(0.0), intercept=True)
    with pytest.raises(ValueError, match="the data are separated: without a penalty 'b' can predict"):
        summary(problem, trsvr.minimize(problem))
    problem = LinearModel(table[["age"]], table["age"] > 0.1, Logistic(), L2(0.0), intercept=True)
    with pytest.raises(ValueError, match="the data are separated"):
        covariance(problem, trsvr.minimize(problem, max_epochs=30))
    assert (covariance(problem.with_regularizer(L2(1e-3)), [3.0, 0.1]).standard_errors < 10.0).all()


def test_columns_far_from_zero():
    y = FAMILIES["poisson"][1]
    near, far = (LinearModel(X[:, :1] + shift, y, Poisson(), L2(0.0), intercept=True) for shift in (0.0, 1e5))
    errors = [covariance(problem, trsvr.minimize(problem)).standard_errors[0] for problem in (near, far)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)


def test_bad_arguments():
    problem, result = ours("poisson")
    for options, message in (
        ({"kind": "HC9"}, "kind must be one of"),
        ({"kind": "cluster"}, "groups must be given for the kind 'cluster', and for no other"),
        ({"groups": GROUPS}, "groups must be given for the kind 'cluster', and for no other"),
        ({"kind": "cluster", "groups": GROUPS[:5]}, "groups must have one entry for each of the 240 rows of X, got 5"),
        ({"kind": "cluster", "groups": np.zeros(N)}, "groups must be two or more"),
        ({"weights": "analytic"}, "weights must be one of"),
        ({"known_variance": -1.0}, "known_variance must be"),
    ):
        with pytest.raises(ValueError, match=message):
            covariance(problem, result, **options)
    with pytest.raises(ValueError, match="confidence must be"):
        summary(problem, result, confidence=95)
    with pytest.raises(ValueError, match="result must have 5 numbers, got 2"):
        summary(problem, np.zeros(2))
    with pytest.raises(ValueError, match="one output"):
        summary(LinearModel(X, GROUPS, Softmax()), np.zeros(60))
    with pytest.raises(ValueError, match="which is no likelihood"):
        summary(LinearModel(X, Z, PseudoHuber()), np.zeros(4))
    with pytest.raises(ValueError, match="in memory or on Dask"):
        summary(trsvr.problems.FunctionProblem(3, 2, lambda x, i: x), np.zeros(2))


def test_a_robust_loss_has_a_sandwich():
    """√n (x̂ − x) of an M-estimator: against the formulas on dense rows."""
    problem = LinearModel(X, Z + rng.standard_t(2, N), PseudoHuber(1.0), L2(0.0), intercept=True)
    x = trsvr.minimize(problem, tol=1e-11).x
    oracle = Oracle(X, problem.kernels.labels, PseudoHuber(1.0), L2(0.0), True)
    slopes, inverse = oracle.component_gradients(x), np.linalg.inv(N * oracle.hessian(x))
    found = summary(problem, x, kind="HC0")
    wanted = np.sqrt(np.diagonal(inverse @ slopes.T @ slopes @ inverse))
    assert_allclose(found.table["standard error"], wanted, rtol=1e-8)
    assert np.isnan(found.deviance)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_large_data_are_summed_by_compiled_passes(name):
    """The same statistics from the rows many times over, dense and CSR: they take another way."""
    loss, y, _ = FAMILIES[name]
    some = np.where(GROUPS == 3, 0.0, WEIGHTS)
    tiled, cases = np.tile(X, (150, 1)), ((np.ones(N), None, None), (some, np.tile(some, 150), OFFSET))
    for rows, (each, weights, offset) in itertools.product((tiled, scipy.sparse.csr_array(tiled)), cases):
        small, result = ours(name, sample_weight=150.0 * each, offset=offset)
        shifts = None if offset is None else np.tile(offset, 150)
        large = LinearModel(rows, np.tile(y, 150), loss, L2(0.0), intercept=True, sample_weight=weights, offset=shifts)
        assert not large.is_small
        for options in ({}, {"kind": "HC1"}, {"kind": "cluster"}):
            groups = (
                [{"groups": each} for each in (GROUPS, np.tile(GROUPS, 150))]
                if options.get("kind") == "cluster"
                else [{}, {}]
            )
            one, other = (
                summary(problem, result, **options, **each)
                for problem, each in zip((small, large), groups, strict=True)
            )
            assert_allclose(one.table, other.table, rtol=1e-7)
            assert_allclose(list(one.facts().values()), list(other.facts().values()), rtol=1e-9)


@pytest.mark.slow
def test_separated_rows_among_many_are_told():
    """In one reading, from curvatures alone; rows of small means that are no zeros are not to blame."""
    levels = np.arange(60_000) % 3
    table = scipy.sparse.csr_array(np.column_stack([rng.normal(size=60_000), levels == 1, levels == 2]).astype(float))
    for y, told in ((rng.poisson(2.0, 60_000), False), (rng.poisson(2.0 * (levels != 1)), True)):
        problem = LinearModel(table, y.astype(float), Poisson(), L2(0.0), intercept=True)
        result = trsvr.minimize(problem)
        if told:
            with pytest.raises(ValueError, match="the data are separated: without a penalty 'x1' can predict"):
                summary(problem, result)
        else:
            assert (summary(problem, result).table["standard error"] < 0.1).all()
    rare = np.where(levels == 1, 1e-9, 1.0) * rng.gamma(2.0, 1.0, 60_000)
    problem = LinearModel(table, rare, Poisson(), L2(0.0), intercept=True)
    assert np.isfinite(summary(problem, trsvr.minimize(problem, tol=1e-11)).table["standard error"]).all()


def test_a_summary_can_be_read():
    problem, result = ours("poisson")
    found = summary(problem, result)
    assert "(intercept)" in repr(found)
    assert "deviance" in repr(found)
    assert "<table" in found._repr_html_()


TALL = """
import resource, sys, time
import numpy as np, scipy.sparse
import trsvr
from trsvr.inference import summary
from trsvr.problems import L2, LinearModel, Poisson

n, levels = 1_000_000, [5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60, 33]
rng = np.random.default_rng(0)
ends = np.concatenate([[0], np.cumsum(levels)])
columns = [begin + rng.integers(0, count, n) for begin, count in zip(ends[:-1], levels)]
indices = np.ascontiguousarray(np.stack(columns, axis=1).ravel().astype(np.int32))
indptr = np.arange(0, 12 * n + 1, 12, dtype=np.int32)
X = scipy.sparse.csr_array((np.ones(12 * n), indices, indptr), shape=(n, ends[-1]))
kept = np.setdiff1d(np.arange(ends[-1]), ends[:-1])  # without the first level of each
X = scipy.sparse.csr_array(X[:, kept])
y = rng.poisson(np.exp(X @ (0.3 * rng.normal(size=kept.size)) - 2.0)).astype(float)
problem = LinearModel(X, y, Poisson(), L2(0.0), intercept=True)
result = trsvr.minimize(problem)
found = summary(problem, result, kind="HC1")
megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(result.status.name, X.shape[1], found.table["standard error"].max(), megabytes)
"""


@pytest.mark.long
def test_a_million_rows_in_two_gigabytes():
    """Dense, this table alone would take 2.4 GB; statsmodels wants it dense, and copies it."""
    done = subprocess.run([sys.executable, "-c", TALL], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    status, columns, largest, megabytes = done.stdout.split()
    assert (status, int(columns)) == ("CONVERGED", 288)
    assert 0.0 < float(largest) < 0.1
    assert int(megabytes) < 2000
