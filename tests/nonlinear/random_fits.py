"""Random nonlinear fits: does every run end in a status that is true, and go on from a checkpoint to the same bits?

    python tests/nonlinear/random_fits.py --seconds 600

The truth is SciPy's, started at the end and beside it. A case is a function of its number alone: a failure is repeated
with ``--first NUMBER --cases 1``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

import trsvr
from trsvr.problems import LeastSquares, PseudoHuber

T = np.linspace(0.02, 4.0, 40)
MODELS = {
    "exponentials": (lambda x, t: sum(a * np.exp(-b * t) for a, b in zip(x[::2], x[1::2], strict=True)), 4),
    "lines": (lambda x, t: x[0] / (1 + ((t - x[1]) / x[2]) ** 2) + x[3], 4),
    "rational": (lambda x, t: (x[0] + x[1] * t) / (1 + x[2] * t + x[3] * t * t), 4),
    "growth": (lambda x, t: x[0] / (1 + np.exp(-x[1] * (t - x[2]))), 3),
    "root": (lambda x, t: x[0] * np.sqrt(x[1] + t) + np.log(x[2] * t), 3),
    "power": (lambda x, t: x[0] * (t + x[1]) ** x[2], 3),
    "wave": (lambda x, t: x[0] * np.cos(x[1] * t + x[2]) * np.exp(-x[3] * t), 4),
    "net": (lambda x, t: np.tanh(np.outer(t, x[:3]) + x[3:6]) @ x[6:9] + x[9], 10),
    "twins": (lambda x, t: (x[0] + x[1]) * np.exp(-x[2] * t), 3),  # two that cannot be told apart
    "product": (lambda x, t: x[0] * x[1] * t + x[2] ** 2, 3),  # saddle points at zero
}


class Case(NamedTuple):
    """One problem, where it starts, and how SciPy writes it."""

    problem: LeastSquares
    start: Any
    residuals: Any
    scipy: dict[str, Any]
    story: str


def make(number: int) -> Case:
    """Case ``number``."""
    random = np.random.default_rng([27, number])
    name = str(random.choice(list(MODELS)))
    model, d = MODELS[name]
    truth = random.uniform(0.3, 3.0, size=d)
    units = 10.0 ** random.uniform(-6, 6, size=d) if random.random() < 0.3 else np.ones(d)
    n = int(random.choice([1, d - 1, d, 40]))
    t = T[:n] if n < 40 else T
    y = model(truth, t)
    y = y + random.choice([0.0, 0.01, 0.3]) * (np.std(y) + 0.01) * random.normal(size=n)
    factor, l2 = np.ones(n), 0.0
    options: dict[str, Any] = {}
    kind = random.choice(["plain", "plain", "weights", "l2", "robust"])
    if kind == "weights":
        options["weights"] = random.integers(0, 3, size=n) + (np.arange(n) == 0)
        factor = np.sqrt(options["weights"] * n / options["weights"].sum())
    elif kind == "l2":
        l2 = options["l2"] = 10.0 ** random.uniform(-6, 0)
    elif kind == "robust":
        options["loss"] = PseudoHuber(0.1)
    differences = random.random() < 0.5

    def rows(x: Any, i: Any) -> Any:
        return model(x / units, t[i]) - y[i]

    def jacobian(x: Any, i: Any) -> Any:
        columns = []
        for j in range(d):
            shifted = x.astype(complex)
            shifted[j] += 1e-30j * units[j]
            columns.append(rows(shifted, i).imag / (1e-30 * units[j]))
        return np.stack(columns, axis=1)

    def everything(x: Any) -> Any:
        with np.errstate(all="ignore"):
            fit = factor * rows(x, slice(None)) / np.sqrt(n)
        return np.concatenate([fit, np.sqrt(l2) * x]) if l2 else fit

    start = units * truth * np.exp(random.choice([0.1, 0.7]) * random.normal(size=d))
    if random.random() < 0.1:
        start[random.integers(d)] = 0.0
    problem = LeastSquares(n, d, rows, None if differences else jacobian, **options)
    robust = {"loss": "soft_l1", "f_scale": 0.1 / np.sqrt(n)} if kind == "robust" else {}
    story = f"{name}, {n} residuals, {d} unknowns, {kind}, {'differences' if differences else 'derivatives'}"
    return Case(problem, start, everything, robust, story)


def check(number: int) -> tuple[str, str]:
    """What case ``number`` ended with, and what is wrong with it ("" if nothing)."""
    case = make(number)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = trsvr.minimize(case.problem, x0=case.start, max_epochs=300)
        if result.status is trsvr.Status.NOT_FINITE:
            residuals = case.problem.residuals_at(case.start)
            rows = [rows for _, rows in case.problem.jacobian_rows(case.start, residuals, False)]
            bad = np.isfinite(residuals).all() and all(np.isfinite(each).all() for each in rows)
            return result.status.name, "not finite, although the start is" if bad else ""
        first = result.rows[0]["value"]
        if not result.value <= first * (1.0 + 1e-12):
            return result.status.name, f"value {result.value} is above the start's {first}"
        if number % 5 == 0:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run"
                trsvr.minimize(case.problem, x0=case.start, max_epochs=7, checkpoint=path)
                again = trsvr.resume(path, case.problem, max_epochs=300)
            if not np.array_equal(again.x, result.x) or again.passes != result.passes:
                return result.status.name, "a resumed run has other bits"
        if not result.success or result.value <= 1e-22 * first:
            return result.status.name, ""
        random = np.random.default_rng(number)
        for aside in (0.0, 1e-3):
            x = result.x * (1.0 + aside * random.normal(size=result.x.size))
            if not np.isfinite(case.residuals(x)).all():
                continue
            tight = {"x_scale": "jac", "ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 300}
            try:
                known = scipy.optimize.least_squares(case.residuals, x, "3-point", **tight, **case.scipy)
            except ValueError:  # it stepped out of a domain
                continue
            gain = 1.0 - known.cost / result.value
            if gain > 1e-8:
                return result.status.name, f"SciPy gains {gain:.1e} of {result.value:.3e}"
    return result.status.name, ""


def misbehave(number: int) -> str:
    """What is wrong ("" if nothing) where a function of case ``number`` misbehaves in the middle of a run."""
    case, random = make(number), np.random.default_rng([28, number])
    problem, calls, at = case.problem, [0], int(random.integers(2, 40))
    kind = str(random.choice(["NaN", "some NaN", "raises", "writes into x", "another length", "complex"]))
    function = "_jacobian" if callable(problem._jacobian) and random.random() < 0.5 else "_residuals"
    proper = getattr(problem, function)
    always = random.random() < 0.5  # from then on, or once

    def wrapped(x: Any, i: Any) -> Any:
        found = np.array(proper(x, i))
        calls[0] += 1
        if kind == "writes into x":
            x[:] = np.nan
        elif calls[0] == at or (always and calls[0] > at):
            if kind == "raises":
                raise KeyError("mine")
            if kind == "another length":
                return found[..., :-1] if function == "_jacobian" else np.append(found, 1.0)
            if kind == "complex" and function == "_residuals":
                return found + 1.0j
            if "NaN" in kind:
                found[(0,) * found.ndim if kind == "some NaN" else ...] = np.nan
        return found

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = trsvr.minimize(case.problem, x0=case.start, max_epochs=60)
        setattr(problem, function, wrapped)
        try:
            result = trsvr.minimize(case.problem, x0=case.start, max_epochs=60)
        except KeyError as error:
            return "" if kind == "raises" and error.args == ("mine",) else f"{kind}: {error!r}"
        except ValueError as error:
            named = "must" in str(error) and kind in ("another length", "complex")
            return "" if named else f"{kind}: {error!r}"
    if kind == "writes into x" or calls[0] < at:
        return "" if np.array_equal(result.x, before.x) else f"{kind}: other bits"
    first = before.rows[0]["value"]
    fallen = result.status is trsvr.Status.NOT_FINITE or result.value <= first * (1.0 + 1e-12)
    known = "NaN" in kind or (kind == "complex" and function == "_jacobian")
    return "" if known and fallen and np.isfinite(result.x).all() else f"{kind}: {result}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10**9)
    chosen = parser.parse_args()
    begun, counts, wrong = time.time(), Counter[str](), 0
    for number in range(chosen.first, chosen.first + chosen.cases):
        status, problem = check(number)
        counts[status] += 1
        if problem:
            wrong += 1
            print(f"{number}: {status}: {problem} ({make(number).story})", flush=True)
        if time.time() - begun > chosen.seconds:
            break
    print(f"{sum(counts.values())} cases, {wrong} wrong, {dict(counts)}")


if __name__ == "__main__":
    main()
