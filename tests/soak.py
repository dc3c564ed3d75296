"""Random problems, random solvers: does every run end in a status that is true?

    python tests/soak.py --seconds 3600

The truth is the dense oracle's: values, gradients and Hessians that share no code with the package. A case is a
function of its number alone, so a failure is repeated with ``--first NUMBER --cases 1``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import trsvr
from oracle import Oracle, scaled_weights
from trsvr import Status
from trsvr.parts import ExactHessian, GradientRadius, SARAHGradient
from trsvr.problems import (
    L2,
    Binomial,
    DoubleWell,
    Gamma,
    LinearModel,
    Logistic,
    NegativeBinomial,
    Poisson,
    PseudoHuber,
    Softmax,
    Squared,
    SquaredHinge,
    Tweedie,
)

# Which kinds of rows a loss is tried on: every kind somewhere, but not every pair, since each pair is compiled anew.
FORMS = {
    Logistic: ("dense float64", "CSR float64", "dense float32"),
    SquaredHinge: ("CSR float32",),
    Squared: ("dense float64",),
    PseudoHuber: ("dense float32",),
    Softmax: ("dense float64",),
}
#: Solvers that refuse steps uphill: they never diverge, and what they return is never worse than the start.
CAUTIOUS = (trsvr.TrustRegion, trsvr.LBFGS)
EPSILON = np.finfo(float).eps
#: From this number on columns depend on each other, and most runs are of the adaptive mode in some norm.
ENTANGLED = 2 * 10**8
#: From this number on they are generalised linear models.
FAMILY = 10**12


@dataclass
class Case:
    """One problem, one solver, one way to run it."""

    number: int
    problem: LinearModel
    oracle: Oracle
    solver: Any
    options: dict[str, Any]
    story: str
    random: np.random.Generator = field(repr=False)


# ----------------------------------------------------------------------------------------------------- making a case


def make(number: int) -> Case:
    """Case ``number``."""
    if number >= FAMILY:
        return make_family(number)
    random = np.random.default_rng([7, number])
    n, d = max(2, int(10 ** random.uniform(0.3, 3.3))), int(10 ** random.uniform(0, 2.2))
    losses = [Logistic(), Logistic(), Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.7), Softmax()]
    loss: Any = losses[random.integers(len(losses))]
    X = random.normal(size=(n, d))
    if random.random() < 0.3:
        X[:, random.integers(d)] = X[:, random.integers(d)]  # two equal columns
    if random.random() < 0.1:
        X[:, random.integers(d)] = 0.0
    if random.random() < 0.2:
        X[random.integers(n)] = 0.0
    entangled = number % 10**9 >= ENTANGLED
    if entangled:
        entangle(X, np.random.default_rng([8, number]))
    spread = random.choice([0.0, 0.0, 1.0, 3.0])
    X *= 10 ** random.uniform(-spread, spread, size=d)
    form = str(random.choice(FORMS[type(loss)]))
    sparse = form.startswith("CSR")
    if sparse:
        X[random.random(X.shape) < random.uniform(0.3, 0.98)] = 0.0
    X = X.astype(form.split()[1])
    y, numbers = labels(X, loss, random)
    regularizer = penalty(d, form == "CSR float64", random)
    intercept = bool(random.random() < 0.3)
    weights = None
    if random.random() < 0.3:
        weights = random.choice([random.exponential(size=n), random.integers(0, 3, size=n).astype(float)])
        weights[:2] = 1.0
    matrix: Any = scipy.sparse.csr_array(X) if sparse else (np.asfortranarray(X) if random.random() < 0.1 else X)
    problem = LinearModel(matrix, y, loss, regularizer, intercept=intercept, sample_weight=weights)
    scale = None if weights is None else scaled_weights(weights)
    kept = slice(None) if weights is None else weights > 0
    oracle = Oracle(
        X.astype(np.float64)[kept], numbers[kept], loss, regularizer, intercept, None if scale is None else scale[kept]
    )
    if isinstance(loss, Softmax) and oracle.outputs != problem.n_outputs:
        return make(number + 10**9)  # a class whose rows all have weight zero: the oracle does not know of it
    solver = any_solver(problem, random)
    if entangled and number % 4:
        solver = trsvr.TRSVR(norm=("diagonal", "auto", "diagonal")[number % 4 - 1])
    options = {
        "seed": int(random.integers(100)),
        "tol": random.choice(np.array(["auto", "auto", 1e-6, 0.0, None], dtype=object)),
        "max_epochs": int(random.choice([3, 30, 100])),
        "max_seconds": 5.0,
        "trace_every": int(random.choice([1, 1, 3])),
        "x0": None if random.random() < 0.7 else random.normal(size=problem.n_parameters),
    }
    form = f"{form} spread {spread:g}"
    shown = {name: value if name != "x0" else value is not None for name, value in options.items()}
    weighted = "" if weights is None else " weighted"
    story = f"{n} x {d} {form}{weighted}, {loss}, {regularizer}, intercept {intercept}, {solver}, {shown}"
    return Case(number, problem, oracle, solver, options, story, random)


def make_family(number: int) -> Case:
    """Case ``number`` of a generalised linear model: counts to 1e9, offsets, y at the edge of its domain."""
    random = np.random.default_rng([9, number])
    n, d = max(3, int(10 ** random.uniform(0.5, 3.0))), int(10 ** random.uniform(0, 1.5))
    loss: Any = [Poisson(), Gamma(), Tweedie(float(random.uniform(1.05, 1.95))), NegativeBinomial(0.5), Binomial()][
        random.integers(5)
    ]
    X = random.normal(size=(n, d)) * 10 ** random.uniform(-2, 2, size=d)
    if random.random() < 0.3:
        X = np.where(random.random(X.shape) < 0.7, 0.0, X)
    size = random.choice([0.3, 1.0, 3.0])
    margins = X @ (size * random.normal(size=d) / np.maximum(np.abs(X).max(axis=0), 1e-30)) / np.sqrt(d)
    offset = random.normal(size=n) * random.choice([0.1, 2.0]) if random.random() < 0.4 else None
    level = float(random.choice([-3.0, 0.0, 3.0, 8.0, 20.0]))
    mean = np.exp(margins + (0.0 if offset is None else offset) + level)
    if isinstance(loss, Binomial):
        y = random.binomial(4, mean / (1.0 + mean)) / 4.0
    elif isinstance(loss, Gamma):
        y = np.maximum(random.gamma(0.5, 2.0 * mean), 1e-12)
    else:
        y = random.poisson(np.minimum(mean, 1e9)).astype(float) * (
            random.gamma(2.0, 0.5, n) if type(loss) is Tweedie else 1.0
        )
        y[random.random(n) < random.choice([0.0, 0.5])] = 0.0
        y[:2] = [0.0, 1.0]
    strength = random.choice([0.0, 1e-6, 1e-2]) if n > 2 * d else 1e-3
    regularizer = L2(strength * random.integers(0, 2, d) + 1e-4) if random.random() < 0.3 else L2(float(strength))
    weights = random.integers(0, 4, n).astype(float) if random.random() < 0.3 else None
    if weights is not None:
        weights[:2] = 1.0
    intercept = bool(random.random() < 0.7)
    rows: Any = scipy.sparse.csr_array(X) if random.random() < 0.3 else X
    problem = LinearModel(rows, y, loss, regularizer, intercept, sample_weight=weights, offset=offset)
    kept = np.ones(n, dtype=bool) if weights is None else weights > 0.0
    scale = None if weights is None else scaled_weights(weights)[kept]
    shift = 0.0 if offset is None else offset[kept]
    oracle = Oracle(X[kept], y[kept], loss, regularizer, intercept, scale, shift)
    solver: Any = [trsvr.TRSVR(), trsvr.TRSVR(), trsvr.TrustRegion()][random.integers(3)]
    options = {"tol": random.choice(np.array(["auto", "auto", 1e-6], dtype=object)), "max_epochs": 200, "x0": None}
    story = f"{n} x {d}, {loss}, level {level}, {regularizer}, weights {weights is not None}, {solver}, {options}"
    return Case(number, problem, oracle, solver, options | {"max_seconds": 5.0}, story, random)


def entangle(X: np.ndarray, random: np.random.Generator) -> None:
    """Make a few columns multiples or sums of others: the penalty alone says how to share among them."""
    d = X.shape[1]
    for _ in range(int(random.integers(1, 4))):
        first, second, third = random.integers(d, size=3)
        X[:, first] = random.choice([1.0, 0.5, 3.0, 30.0]) * (X[:, second] + random.integers(2) * X[:, third])
    if random.random() < 0.3:
        X += random.choice([1.0, 10.0]) * random.normal(size=d)  # far from the origin


def labels(X: np.ndarray, loss: Any, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels for the problem, and as the oracle's numbers."""
    n, d = X.shape
    margins = X.astype(float) @ (random.normal(size=d) / np.maximum(np.abs(X).max(axis=0), 1e-30)) / np.sqrt(d)
    noise = random.choice([0.0, 0.3, 3.0]) * random.logistic(size=n)
    if isinstance(loss, Squared | PseudoHuber):
        y = margins + noise
        return y, y
    if isinstance(loss, Softmax):
        classes = int(random.integers(3, 5))
        y = np.digitize(margins + noise, np.linspace(-0.5, 0.5, classes - 1))
        y[:classes] = np.arange(classes)[: len(y)]
        names, places = np.unique(y, return_inverse=True)
        if len(names) < 3:
            y = np.arange(n) % 3 if n >= 3 else np.arange(n)
            names, places = np.unique(y, return_inverse=True)
        return y, places.astype(float)
    y = np.where(margins + noise > 0, 1.0, -1.0)
    y[: 2 if n > 1 else 1] = [1.0, -1.0][: len(y[:2])]
    return y, y


def penalty(d: int, with_wells: bool, random: np.random.Generator) -> Any:
    """None at all, a ridge, or a ridge and a double well."""
    kind = random.random()
    if kind < 0.15:
        return L2(0.0)
    if kind < 0.75 or not with_wells:
        return L2(float(10 ** random.uniform(-8, 0)))
    return L2(float(10 ** random.uniform(-4, -1))) + DoubleWell(float(d * 10 ** random.uniform(-4, 0.5)), 0.5)


def any_solver(problem: LinearModel, random: np.random.Generator) -> Any:
    n = problem.n_samples
    batch = int(random.choice([1, min(8, n), max(1, n // 10), n]))
    inner = int(random.integers(1, 60))
    length = float(10 ** random.uniform(-3, 1))
    choices = [
        trsvr.TRSVR(),
        trsvr.TRSVR(),
        trsvr.TRSVR(norm=str(random.choice(["identity", "diagonal" if problem.n_outputs == 1 else "identity"]))),
        trsvr.TRSVR(batch_size=batch, inner_steps=inner),
        trsvr.TRSVR(alpha=length, batch_size=batch, inner_steps=inner),
        trsvr.TRSVR(alpha=length, batch_size=batch, inner_steps=inner, hessian="exact"),
        trsvr.SVRG(batch_size=batch),
        trsvr.SAGA(batch_size=batch),
        trsvr.SARAH(batch_size=batch),
        trsvr.SVRG(step=length, batch_size=batch, inner_steps=inner),
        trsvr.SGD(step=length, batch_size=batch),
        trsvr.Adam(step=length, batch_size=batch),
        trsvr.TrustRegion(),
        trsvr.TrustRegion(hessian="estimated"),
        trsvr.TRish(alpha=length, batch_size=batch),
        trsvr.LBFGS(),
        trsvr.TrustRegionMethod(
            gradient=SARAHGradient(),
            curvature=ExactHessian(),
            radius=GradientRadius(length),
            batch_size=batch,
            inner_steps=inner,
        ),
    ]
    return choices[random.integers(len(choices))]


# ------------------------------------------------------------------------------------------------------------ the truth


def check(case: Case) -> str:
    """Run a case and compare what it says with the oracle; raises AssertionError. Returns how it ended."""
    if has_no_curvature(case):
        return refused(case)
    result = trsvr.minimize(case.problem, case.solver, **case.options)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    truthful(case, result)
    kind = case.random.random()
    # A time limit cuts where the clock says.
    if result.status is not Status.TIME_LIMIT and kind < 0.3:
        again = same_again(case) if kind < 0.15 else interrupted_and_resumed(case, result)
        if again.status is not Status.TIME_LIMIT:
            assert again.status is result.status, (again.message, result.message)
            assert np.array_equal(again.x, result.x), "other bits in x"
            mine, other = (run.trace.drop(columns="seconds") for run in (result, again))
            assert mine.equals(other), f"another trace:\n{mine.tail(3)}\n{other.tail(3)}"
    return result.status.name


def has_no_curvature(case: Case) -> bool:
    """No column is used and nothing is penalised: there is no step size to derive."""
    start = np.zeros(case.problem.n_parameters)
    return getattr(case.solver, "step", None) == "auto" and not np.abs(case.oracle.hessian(start)).max() > 0.0


def refused(case: Case) -> str:
    """A run that cannot begin says why."""
    with pytest.raises(ValueError, match="no curvature"):
        trsvr.minimize(case.problem, case.solver, **case.options)
    return "refused"


def same_again(case: Case) -> trsvr.Result:
    """The same run on another number of threads."""
    return trsvr.minimize(case.problem, case.solver, threads=int(case.random.choice([1, 2, 4])), **case.options)


def interrupted_and_resumed(case: Case, result: trsvr.Result) -> trsvr.Result:
    """The same run, interrupted once and continued from its checkpoint."""
    at = int(case.random.integers(0, result.epochs + 1))

    def interrupt(so_far: trsvr.Result) -> None:
        if so_far.epochs >= at:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.ckpt"
        keeping = {"checkpoint": path, "checkpoint_every": int(case.random.choice([1, 5, 1000]))}
        trsvr.minimize(case.problem, case.solver, callback=interrupt, **case.options, **keeping)
        return trsvr.resume(path, case.problem)


def truthful(case: Case, result: trsvr.Result) -> None:
    oracle, tol, x = case.oracle, case.options["tol"], result.x
    assert np.isfinite(x).all()
    start = np.zeros(x.size) if case.options["x0"] is None else case.options["x0"]
    value, gradient = oracle.value(x), oracle.gradient(x)
    scale = 1.0 + abs(value)
    # What rounding can do to a margin, and so to the value: without a penalty x may be very long.
    sizes = float((np.abs(oracle.A) @ np.abs(x.reshape(-1, oracle.outputs))).max(initial=0.0))
    allowed = 1e-9 * scale + 1e2 * EPSILON * sizes * (1.0 + sizes if isinstance(oracle.loss, Squared) else 1.0)
    assert abs(result.value - value) <= allowed, f"value {result.value}, truly {value}"
    # And to a gradient: its terms, one by one.
    rounding = 1e3 * EPSILON * np.abs(oracle.component_gradients(x)).max(axis=0, initial=0.0).max(initial=0.0)
    rounding += 1e3 * EPSILON * np.abs(oracle.A).max(initial=0.0) * sizes
    rounding += 1e3 * EPSILON * np.abs(np.diagonal(oracle.hessian(x))).max() * np.abs(x).max()  # of x itself
    assert np.abs(result.gradient - gradient).max() <= 1e-6 * np.abs(gradient).max() + rounding, "another gradient"
    assert result.value <= oracle.value(start) + 1e-9 * scale, "worse than the start"
    assert len(result.trace) >= 1
    status = result.status
    if isinstance(case.solver, CAUTIOUS) or (isinstance(case.solver, trsvr.TRSVR) and case.solver.alpha == "auto"):
        assert status is not Status.DIVERGED, "a method that refuses steps uphill has diverged"
    if status is Status.CONVERGED:
        if isinstance(tol, float):
            assert np.abs(gradient).max() <= tol * (1 + 1e-6) + rounding, f"|g| is {np.abs(gradient).max()}, tol {tol}"
        else:
            at_zero = np.abs(oracle.gradient(np.zeros(x.size))).max()
            small = np.abs(gradient).max() <= 1.01e-8 * at_zero + rounding
            assert small or decrement(oracle, x, gradient) <= 1e-9 * max(abs(value), 1e-300), (
                f"converged, but |g| is {np.abs(gradient).max():.2e} ({at_zero:.2e} at zero), "
                f"and {decrement(oracle, x, gradient):.2e} can be gained of {value:.6e}"
            )
    elif status is Status.ROUNDING_FLOOR:
        gain = decrement(oracle, x, gradient)
        # A value of 1e-160 where it began at one is zero: squares of squares underflow.
        assert gain <= 1e-6 * max(abs(value), 1e-100 * oracle.value(start)) or np.abs(gradient).max() <= rounding, (
            f"at the rounding floor, but {gain:.2e} can be gained of {value:.6e}"
        )
    elif status is Status.EPOCH_LIMIT:
        assert result.epochs == case.options["max_epochs"]
    elif status is Status.TIME_LIMIT:
        assert result.seconds >= case.options["max_seconds"]
    elif status is Status.NO_PROGRESS:
        assert np.abs(gradient).max() > 1e-6 * np.abs(oracle.gradient(start)).max(), "no progress at a minimum"
        assert not isinstance(case.solver, trsvr.TrustRegion), f"no progress: {result.message}"
        # SciPy's line search gives up now and then where there is still a way down.
        lengths = 2.0 ** -np.arange(60.0) / np.abs(gradient).max()
        lowest = min(oracle.value(x - length * gradient) for length in lengths)
        # Of losses that are nearly zero the oracle's values are none.
        assert lowest < value - 1e-14 * abs(value) or value <= 1e-15 * oracle.value(start), "no way down"
    else:
        assert status is Status.DIVERGED, f"an unexpected status: {result.message}"


def decrement(oracle: Oracle, x: np.ndarray, gradient: np.ndarray) -> float:
    """½ gᵀH⁺g: what a Newton step would gain, if the Hessian is positive semidefinite."""
    values, vectors = np.linalg.eigh(oracle.hessian(x))
    along = vectors.T @ gradient
    sound = values > 1e-13 * np.abs(values).max(initial=0.0)
    return float(0.5 * np.sum(along[sound] ** 2 / values[sound]))


# ----------------------------------------------------------------------------------------------------------- the driver


def memory_in_use() -> float:
    """Resident memory in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(seconds: float, first: int = 0, cases: int | None = None, said: Any = print) -> tuple[Counter[str], list[str]]:
    """Cases until the time is up; returns how runs have ended and what was wrong."""
    begun, shown = time.monotonic(), time.monotonic()
    ends: Counter[str] = Counter()
    failures: list[str] = []
    number = first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while time.monotonic() - begun < seconds and (cases is None or number < first + cases):
            story = f"case {number}"
            try:
                case = make(number)
                story = f"case {number}: {case.story}"
                ends[check(case)] += 1
            except Exception as error:
                kind = "".join(traceback.format_exception(error)[-3:]) if not isinstance(error, AssertionError) else ""
                failures.append(f"{story}\n    {type(error).__name__}: {error}\n{kind}")
                said(failures[-1])
            number += 1
            if time.monotonic() - shown > 60:
                shown = time.monotonic()
                minutes = (shown - begun) / 60
                said(f"{minutes:.0f} min, {number - first} cases, {memory_in_use():.0f} MiB, {dict(ends)}")
    return ends, failures


def grows(first: int, cases: int, rounds: int = 3) -> list[float]:
    """Memory after each of several rounds of the same cases, all of them compiled before."""
    found = []
    for _ in range(rounds):
        for number in range(first, first + cases):
            case = make(number)
            if not has_no_curvature(case):
                trsvr.minimize(case.problem, case.solver, **case.options)
        found.append(memory_in_use())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int)
    arguments = parser.parse_args()
    begun = time.monotonic()
    ends, failures = soak(arguments.seconds, arguments.first, arguments.cases, lambda *text: print(*text, flush=True))
    print(f"{sum(ends.values())} true endings {dict(ends)}, {len(failures)} failures, {time.monotonic() - begun:.0f} s")
    print("memory after equal rounds of 60 cases, MiB:", [round(size, 1) for size in grows(arguments.first, 60)])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
