"""Does "converged" tell the truth, and the certificate with it? Random linear models, through every door.

    python tests/endings.py --cases 100000 --jobs 16
    python tests/endings.py --family grown --begin 50000 --cases 50000 --jobs 16
    python tests/endings.py --family odd --begin 4711 --cases 1 --verbose

The truth is a solver of its own in extended precision (`tests/truth.py`). A case is a function of its family and number
alone. scikit-learn and Dask are needed for their doors: where one is missing, its cases go through `minimize`, and the
totals say how many.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib.util
import itertools
import math
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import trsvr
from trsvr.problems import (
    L2,
    Binomial,
    Gamma,
    LinearModel,
    Logistic,
    Poisson,
    PseudoHuber,
    Softmax,
    Squared,
    SquaredHinge,
    Tweedie,
)
from truth import Truth

FAMILIES = ("scaled", "grown", "odd")
MOST_EPOCHS = 1000
# Beyond this part of f a run has not converged; below the second the truth's own rounding begins.
WRONG, NOISE = 1e-9, 2e-17
# What Newton's method in extended precision leaves at most, of f and of f(0): else nothing is known of the case.
UNSURE, FAINT = 1e-13, 1e-19
# f may be so much smaller than f(0) that the rounding of margins hides the rest. Such a run must not say "converged".
LAST_BIT = float(np.finfo(float).eps)
# A certificate is useful within this factor of the gap, or below this part of f.
LOOSE, SMALL = 1e4, 1e-9
# What is counted, and no failure.
HARMLESS = {"loose bound", "no bound", "no such door", "false alarm", "lost in the rounding of f(0)"}


class Case(NamedTuple):
    """One problem and the door it goes through; ``labels`` are ±1, 0 … K−1 or numbers."""

    X: Any
    labels: np.ndarray
    loss: Any
    strength: float
    intercept: bool
    weights: np.ndarray | None
    offset: np.ndarray | None
    door: str
    story: str


# ----------------------------------------------------------------------------------------------------- making a case


def scaled(number: int) -> Case:
    """Columns of any scale, two in five sets far from the origin, from separable to noisy."""
    r = np.random.default_rng(number)
    n, d = int(r.integers(15, 400)), int(r.integers(2, 40))
    C = 10.0 ** r.uniform(-3, 5)
    X = r.normal(size=(n, d)) * 10.0 ** r.uniform(-4, 4, d)
    if r.random() < 0.4:
        X = X + X.std(0) * 10.0 ** r.uniform(-1, 4, d)
    y = ((X - X.mean(0)) / X.std(0)) @ r.normal(size=d) + r.choice([0, 0.3, 2.0]) * r.normal(size=n) > 0
    if y.all() or not y.any():
        y[0] = not y[0]
    return Case(X, np.where(y, 1.0, -1.0), Logistic(), 1.0 / (C * n), True, None, None, "estimator", f"C {C:.3g}")


KINDS = ("wide", "dependent", "weights", "repeated", "constant", "rare", "float32", "softmax", "sparse", "offset")
LOSSES = (Logistic(), Logistic(), SquaredHinge(), Squared(), PseudoHuber(0.7))


def grown(number: int) -> Case:
    """What the first family lacks, one or two kinds at a time, through all doors."""
    r = np.random.default_rng([26, number])
    kinds = {str(kind) for kind in r.choice(KINDS, size=int(r.integers(1, 3)), replace=False)}
    n, d = int(r.integers(15, 300)), int(r.integers(2, 25))
    if "wide" in kinds:
        n, d = int(r.integers(5, 30)), int(r.integers(30, 60))
    if "rare" in kinds:
        n, d = int(r.integers(2000, 12000)), int(r.integers(2, 5))
    loss: Any = LOSSES[r.integers(len(LOSSES))]
    classes = int(r.integers(3, 5))
    if "softmax" in kinds:
        loss, d = Softmax(), min(d, 10)
    spread = r.choice([0.0, 1.0, 3.0])
    X = r.normal(size=(n, d)) * 10.0 ** r.uniform(-spread, spread, d)
    intercept = bool(r.random() < 0.8)
    if r.random() < 0.4:  # without an intercept nothing is centred
        X = X + X.std(0) * 10.0 ** r.uniform(-1, r.choice([1, 4]) if intercept else 1, d)
    for _ in range(int(r.integers(1, 4)) if "dependent" in kinds else 0):
        first, second, third = r.integers(d, size=3)
        X[:, first] = r.choice([1.0, 0.5, 30.0]) * (X[:, second] + r.integers(2) * X[:, third])
    if "constant" in kinds:
        X[:, r.integers(d)] = r.choice([0.0, 1.0, 1e4, np.pi])
    if "repeated" in kinds:
        X = X[r.integers(n // 2 + 1, size=n)]
    if "sparse" in kinds:
        X = np.where(r.random(X.shape) < 0.7, 0.0, X)
    if "float32" in kinds:
        X = X.astype(np.float32)
    y = labels_for(X.astype(float), loss, classes, "rare" in kinds, r)
    weights = 10.0 ** r.uniform(-6, 6, n) if "weights" in kinds else None
    outputs = classes if isinstance(loss, Softmax) else 1
    offset = r.normal(size=(n, outputs)) if "offset" in kinds else None
    strength = 10.0 ** r.uniform(-8, 0)
    rows: Any = scipy.sparse.csr_array(X) if "sparse" in kinds else X
    case = Case(rows, y, loss, strength, intercept, weights, offset, "", "+".join(sorted(kinds)))
    return case._replace(door=_door(case, r))


ODD = ("zero weights", "huge row", "tiny penalty", "far offset", "lone label", "far columns", "dependent", "few rows")
ODD_LOSSES = (Poisson(), Gamma(), Tweedie(1.5), Binomial(), SquaredHinge(), Logistic(), PseudoHuber(0.1), Softmax())


def odd(number: int) -> Case:
    """Counts and amounts, and what a user would call a mistake."""
    r = np.random.default_rng([27, number])
    kinds = {str(kind) for kind in r.choice(ODD, size=int(r.integers(1, 3)), replace=False)}
    n, d = int(r.integers(15, 300)), int(r.integers(1, 12))
    if "few rows" in kinds:
        n = int(r.integers(3, 8))
    loss: Any = ODD_LOSSES[r.integers(len(ODD_LOSSES))]
    outputs = 3 if isinstance(loss, Softmax) else 1
    X = r.normal(size=(n, d)) * 10.0 ** r.uniform(-2, 2, d)
    if "dependent" in kinds:
        X[:, 0] = X[:, -1] * (1.0 + r.choice([0.0, 1e-12, 1e-7]) * r.normal(size=n))
    if "far columns" in kinds:
        X = X + X.std(0) * 10.0 ** r.uniform(0, 5, d)
    y = labels_for(X, loss, outputs, False, r)
    if "lone label" in kinds:
        y = _all_but_one(y, loss)
    if "huge row" in kinds:
        X[r.integers(n)] *= 10.0 ** r.uniform(2, 5)
    weights = offset = None
    if "zero weights" in kinds:
        weights = np.where(r.random(n) < 0.6, r.uniform(0.0, 2.0, n), 0.0)
        weights[_first_of_each(y)] = 1.0
    if "far offset" in kinds:
        offset = r.choice([-30.0, 0.0, 30.0], size=(n, outputs)) + r.normal(size=(n, outputs))
        if isinstance(loss, Poisson | Gamma | Tweedie):
            offset /= 10.0
    strength = 10.0 ** (-12.0 if "tiny penalty" in kinds else r.uniform(-6, 0))
    case = Case(X, y, loss, strength, bool(r.random() < 0.8), weights, offset, "", "+".join(sorted(kinds)))
    return case._replace(door=_door(case, r))


# Kinds of rows that are compiled: each costs seconds.
COMPILED = {
    *((kind, False, False) for kind in (Logistic, Softmax, PseudoHuber, SquaredHinge, Poisson)),
    (Logistic, True, False),
    (Logistic, False, True),
}


def _door(case: Case, r: np.random.Generator) -> str:
    """Any that takes the case; Dask's, which is slow, one time in fifty where it is compiled anyway."""
    estimates = type(case.loss) in ESTIMATED and not (
        case.offset is not None and type(case.loss) in (Logistic, Softmax)
    )
    door = str(r.choice(["minimize", "compiled", *(["estimator"] if estimates else [])]))
    kind = type(case.loss), scipy.sparse.issparse(case.X), case.X.dtype == np.float32
    if kind not in COMPILED:
        return door.replace("compiled", "minimize")
    return "dask" if r.random() < 0.02 else door


def labels_for(X: np.ndarray, loss: Any, classes: int, rare: bool, r: np.random.Generator) -> np.ndarray:
    """Labels of a linear model, from exact to noisy."""
    deviations = X.std(0)
    Z = (X - X.mean(0)) / np.where(deviations > 0.0, deviations, 1.0)
    K = classes if isinstance(loss, Softmax) else 1
    margins = Z @ r.normal(size=(X.shape[1], K)) + r.choice([0.0, 0.3, 2.0]) * r.normal(size=(len(X), K))
    if isinstance(loss, Squared | PseudoHuber):
        return margins[:, 0]
    if isinstance(loss, Softmax):
        y = margins.argmax(1)
        y[:K] = np.arange(K)
        return y.astype(float)
    means = np.exp(np.clip(margins[:, 0], -8.0, 4.0))
    if isinstance(loss, Poisson):
        return np.maximum(r.poisson(means), np.arange(len(X)) == 0).astype(float)
    if isinstance(loss, Gamma):
        return r.gamma(2.0, means / 2.0) + 1e-3
    if isinstance(loss, Tweedie):
        return r.poisson(means) * r.gamma(1.0, 1.0, len(X)) + (np.arange(len(X)) == 0)
    if isinstance(loss, Binomial):
        return r.binomial(10, means / (1.0 + means)) / 10.0
    limit = np.sort(margins[:, 0])[-max(1, len(X) // 10_000) - 1] if rare else 0.0
    y = np.where(margins[:, 0] > limit, 1.0, -1.0)
    if abs(y.sum()) == len(y):
        y[0] = -y[0]
    return y


def _all_but_one(y: np.ndarray, loss: Any) -> np.ndarray:
    """All labels alike, but one (of each further class)."""
    out = np.full_like(y, y.min())
    first = _first_of_each(y) if isinstance(loss, Softmax | Logistic | SquaredHinge) else [int(y.argmax())]
    out[first] = y[first]
    return out


def _first_of_each(y: np.ndarray) -> Any:
    return np.unique(y, return_index=True)[1] if len(np.unique(y)) <= 4 else [int(y.argmax())]


# ---------------------------------------------------------------------------------------------------------- the doors


class Ending(NamedTuple):
    """How a run ended."""

    status: str
    epochs: int
    x: np.ndarray
    bound: float
    warned: bool


def by_minimize(case: Case) -> Ending:
    """In memory; small data by NumPy."""
    return _minimized(_model(case))


def by_compiled_code(case: Case) -> Ending:
    """In memory, as if the data were large."""
    problem = _model(case)
    vars(problem)["is_small"] = False
    return _minimized(problem)


def by_dask(case: Case) -> Ending:
    """In three blocks, on a cluster within this process."""
    import trsvr.dask

    def cut(values: Any) -> Any:
        bounds = np.linspace(0, len(case.labels), 4).astype(int)
        return None if values is None else [values[a:b] for a, b in itertools.pairwise(bounds)]

    offset = case.offset if isinstance(case.loss, Softmax) or case.offset is None else case.offset[:, 0]
    return _minimized(
        trsvr.dask.LinearModel(
            cut(case.X),
            cut(case.labels),
            case.loss,
            L2(case.strength),
            case.intercept,
            cut(case.weights),
            cut(offset),
            client=_client(),
        )
    )


@functools.cache
def _client() -> Any:
    import distributed

    quiet = {"dashboard_address": ":0", "processes": False, "silence_logs": 50}
    client = distributed.Client(n_workers=1, threads_per_worker=1, set_as_default=False, **quiet)
    atexit.register(client.close)
    return client


ESTIMATED = {
    Logistic: "",
    Softmax: "",
    Squared: "squared_error",
    PseudoHuber: "pseudo_huber",
    Poisson: "poisson",
    Gamma: "gamma",
    Tweedie: "tweedie",
}


def by_estimator(case: Case) -> Ending:
    """scikit-learn's door."""
    from trsvr.sklearn import TRSVRClassifier, TRSVRRegressor

    total, name = float(len(case.labels) if case.weights is None else case.weights.sum()), ESTIMATED[type(case.loss)]
    given: dict[str, Any] = {"sample_weight": case.weights}
    if name:
        straight = isinstance(case.loss, Squared | PseudoHuber)
        model: Any = TRSVRRegressor(alpha=case.strength * (total if straight else 1.0), loss=name)
        if isinstance(case.loss, PseudoHuber):
            model.set_params(delta=case.loss.delta)
        given["offset"] = None if case.offset is None else case.offset[:, 0]
    else:
        model = TRSVRClassifier(C=1.0 / (case.strength * total))
    model.set_params(fit_intercept=case.intercept, max_iter=MOST_EPOCHS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(case.X, case.labels, **given)
    parts = [np.atleast_2d(model.coef_).T.astype(float)]
    if case.intercept:
        parts.append(np.atleast_2d(model.intercept_).astype(float))
    epochs = int(model.n_iter_.max())
    status = "EPOCH_LIMIT" if epochs >= MOST_EPOCHS else "CONVERGED"
    return Ending(status, epochs, np.vstack(parts).ravel(), model.gap_bound_, bool(caught))


DOORS = {"minimize": by_minimize, "compiled": by_compiled_code, "estimator": by_estimator, "dask": by_dask}
NEEDS = {"estimator": "sklearn", "dask": "distributed"}


def _is_missing(door: str) -> bool:
    return door in NEEDS and importlib.util.find_spec(NEEDS[door]) is None


def _model(case: Case) -> LinearModel:
    penalty = L2(case.strength)
    return LinearModel(case.X, case.labels, case.loss, penalty, case.intercept, case.weights, offset=case.offset)


def _minimized(problem: Any) -> Ending:
    result = trsvr.minimize(problem, max_epochs=MOST_EPOCHS, max_seconds=60.0, threads=1)
    return Ending(result.status.name, result.epochs, result.x, result.gap_bound, not result.success)


# ---------------------------------------------------------------------------------------------------------- the check


def check(family: str, number: int) -> tuple[list[str], str]:
    """What is wrong with a case, and what it is."""
    case = globals()[family](number)
    wrong = []
    if _is_missing(case.door):
        wrong.append("no such door")
        case = case._replace(door="minimize")
    ending, truth = DOORS[case.door](case), Truth(case)
    point = truth.point(ending.x)
    # From where the run has ended, which soon shows whether that is the minimum; now and then from zero.
    lowest, doubt = truth.minimum(0 * point if number % 20 == 0 else point)
    if not doubt <= UNSURE * abs(float(lowest)):
        lowest, doubt = truth.minimum(point)
    gap, size, at_zero = float(truth.value(point) - lowest), abs(float(lowest)), float(truth.value(0 * point))
    # Coefficients that an estimator has rounded to float32 are not those that were certified.
    rounded = case.door == "estimator" and case.X.dtype == np.float32
    if not doubt <= UNSURE * size + FAINT * at_zero:
        wrong.append("truth unsure")
    is_near = gap <= WRONG * size
    if ending.status not in ("CONVERGED", "ROUNDING_FLOOR"):
        wrong.append("burnt")
    elif ending.warned:
        wrong.append("false alarm" if is_near else "warned")
    elif not is_near and not rounded:
        claims = ending.status == "CONVERGED" and case.door != "estimator"  # which has no status of its own
        lost = gap <= _distance(case) * LAST_BIT * at_zero and not claims
        wrong.append("lost in the rounding of f(0)" if lost else "false ending")
    if math.isnan(ending.bound):
        wrong.append("no bound")
    elif gap > ending.bound + NOISE * size and not rounded:
        wrong.append("bound below the gap")
    elif ending.bound > max(LOOSE * gap, SMALL * size):
        wrong.append("loose bound")
    shape = f"{case.X.shape[0]} × {case.X.shape[1]}"
    story = f"{family} {number}: {shape} {case.loss} λ {case.strength:.1e} {case.story} by {case.door}, "
    story += f"{ending.status} after {ending.epochs}: f* {float(lowest):.6g}, gap {gap:.1e}, bound {ending.bound:.1e}"
    return wrong, story


def _distance(case: Case) -> float:
    """How many deviations a column is from the origin, where rows are not centred in a copy: so much digits cost."""
    if case.door not in ("compiled", "dask"):
        return 1.0
    X = case.X.toarray() if scipy.sparse.issparse(case.X) else case.X.astype(float)
    deviations = X.std(0)
    return max(1.0, float((np.abs(X.mean(0)) / np.where(deviations > 0.0, deviations, np.inf)).max()))


def _several(family: str, numbers: range) -> list[tuple[list[str], str]]:
    found = []
    for number in numbers:
        try:
            found.append(check(family, number))
        except Exception as error:
            found.append(([f"raised {type(error).__name__}"], f"{family} {number}: {str(error)[:200]}"))
    return found


def _compile(kind: tuple[Any, bool, bool]) -> None:
    """Once, before many processes would."""
    r, (loss, sparse, single) = np.random.default_rng(0), kind
    loss = PseudoHuber(0.7) if loss is PseudoHuber else loss()
    X = r.normal(size=(40, 3)).astype(np.float32 if single else np.float64)
    y = labels_for(X.astype(float), loss, 3, False, r)
    case = Case(scipy.sparse.csr_array(X) if sparse else X, y, loss, 1e-3, True, None, None, "", "")
    by_compiled_code(case)
    if not _is_missing("dask"):
        by_dask(case)


def _results(family: str, pieces: list[range], jobs: int) -> Iterator[list[tuple[list[str], str]]]:
    one, begun = functools.partial(_several, family), time.monotonic()
    kinds = sorted(COMPILED, key=str) if family != "scaled" else []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        run: Any = pool.map if jobs > 1 else map
        list(run(_compile, kinds))
        print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
        yield from run(one, pieces)


def main() -> int:
    """Run many cases; 1 where one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default="scaled")
    parser.add_argument("--begin", type=int, default=0, help="the first case's number")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    begun, end, size = time.monotonic(), chosen.begin + chosen.cases, 25
    for door in filter(_is_missing, DOORS):
        print(f"NOT TESTED: {NEEDS[door]} is missing; the door {door!r} is replaced by 'minimize'", flush=True)
    pieces = [range(k, min(k + size, end)) for k in range(chosen.begin, end, size)]
    counts: Counter[str] = Counter()
    done, told = 0, time.monotonic()
    for found in _results(chosen.family, pieces, chosen.jobs):
        done += len(found)
        for wrong, story in found:
            counts.update(wrong)
            if chosen.verbose or set(wrong) - HARMLESS:
                print(", ".join(wrong) or "true", "|", story, flush=True)
        if time.monotonic() > told + 20.0:
            told = time.monotonic()
            print(f"{done} of {chosen.cases}, {told - begun:.0f} s: {dict(counts)}", flush=True)
    failures = sum(number for kind, number in counts.items() if kind not in HARMLESS)
    useful = 1.0 - (counts["loose bound"] + counts["no bound"]) / max(1, done)
    print(
        f"{done} of {chosen.family}, numbers {chosen.begin} to {end - 1}: {failures} wrong, {dict(counts)}, "
        f"{100.0 * useful:.2f} % of the bounds useful, {time.monotonic() - begun:.0f} s"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
