"""Does "converged" tell the truth, and the certificate with it? Random linear models, through every door.

    python tests/endings.py --cases 100000 --jobs 16
    python tests/endings.py --family grown --first 4711 --cases 1 --verbose

The truth is a solver of its own: Newton's method in extended precision, on standardised columns, in code that shares
nothing with the package. A case is a function of its family and number alone.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import trsvr
from trsvr.problems import L2, LinearModel, Logistic, PseudoHuber, Softmax, Squared, SquaredHinge
from trsvr.sklearn import TRSVRClassifier

Long = np.longdouble
FAMILIES = ("scaled", "grown")
DOORS = ("minimize", "estimator", "compiled")
MOST_EPOCHS = 1000
# Beyond this part of f a run has not converged; below the second the truth's own rounding begins.
WRONG, NOISE = 1e-9, 2e-17
# A certificate is useful within this factor of the gap, or below this part of f.
LOOSE, SMALL = 1e4, 1e-9


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
    y = _labels(X.astype(float), loss, classes, "rare" in kinds, r)
    weights = 10.0 ** r.uniform(-6, 6, n) if "weights" in kinds else None
    outputs = classes if isinstance(loss, Softmax) else 1
    offset = r.normal(size=(n, outputs)) if "offset" in kinds else None
    strength = 10.0 ** r.uniform(-8, 0)
    plain = isinstance(loss, Logistic | Softmax) and offset is None and "weights" not in kinds
    door = str(r.choice(DOORS if plain else ("minimize", "compiled")))
    if door == "compiled" and (type(loss), "sparse" in kinds, "float32" in kinds) not in COMPILED:
        door = "minimize"
    rows: Any = scipy.sparse.csr_array(X) if "sparse" in kinds else X
    return Case(rows, y, loss, strength, intercept, weights, offset, door, "+".join(sorted(kinds)))


# Kinds of rows that are compiled: each costs seconds.
COMPILED = {(Logistic, False, False), (Logistic, True, False), (Softmax, False, False)}


def _labels(X: np.ndarray, loss: Any, classes: int, rare: bool, r: np.random.Generator) -> np.ndarray:
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
    limit = np.sort(margins[:, 0])[-max(1, len(X) // 10_000) - 1] if rare else 0.0
    y = np.where(margins[:, 0] > limit, 1.0, -1.0)
    if abs(y.sum()) == len(y):
        y[0] = -y[0]
    return y


# ---------------------------------------------------------------------------------------------------------- the truth


def losses(loss: Any, Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses (n), slopes (n, K) and curvatures (n, K, K) at margins Z, in extended precision."""
    if isinstance(loss, Softmax):
        rows, own = np.arange(len(y)), y.astype(int)
        lower = Z - Z[rows, own][:, None]
        lower[rows, own] = -np.inf
        E = np.exp(np.minimum(lower, 8000))
        P = E / (1 + E.sum(1))[:, None]
        P[rows, own] = 1 / (1 + E.sum(1))
        slopes = P.copy()
        slopes[rows, own] = -(E.sum(1) / (1 + E.sum(1)))
        return np.log1p(E.sum(1)), slopes, P[:, :, None] * (np.eye(Z.shape[1]) - P[:, None, :])
    z = Z[:, 0]
    if isinstance(loss, Logistic):
        e = np.exp(-np.abs(z))
        value = np.maximum(-y * z, 0) + np.log1p(e)
        slope = -y * np.where(y * z > 0, e, 1) / (1 + e)
        curvature = e / (1 + e) ** 2
    elif isinstance(loss, SquaredHinge):
        gap = np.maximum(1 - y * z, 0)
        value, slope, curvature = gap**2, -2 * y * gap, 2 * (gap > 0).astype(Long)
    elif isinstance(loss, Squared):
        value, slope, curvature = (z - y) ** 2 / 2, z - y, np.ones_like(z)
    else:
        delta = Long(loss.delta)
        root = np.sqrt(1 + ((z - y) / delta) ** 2)
        value, slope, curvature = (z - y) ** 2 / (1 + root), (z - y) / root, root**-3
    return value, slope[:, None], curvature[:, None, None]


class Truth:
    """The same problem in extended precision: columns standardised, so that Newton's method sees no units."""

    def __init__(self, case: Case) -> None:
        dense = case.X.toarray() if scipy.sparse.issparse(case.X) else np.asarray(case.X)
        X, n = dense.astype(np.float64), len(dense)
        self.case, self.n = case, n
        weights = np.ones(n) if case.weights is None else case.weights
        self.scale = weights.astype(Long) * n / weights.astype(Long).sum()
        # Where the exact shift lies does not matter: differences from it are exact.
        self.means = X.mean(0) if case.intercept else np.zeros(X.shape[1])
        centred = X.astype(Long) - self.means.astype(Long)
        deviations = np.sqrt((centred**2).mean(0))
        self.units = np.where(deviations > 0, deviations, Long(1))
        self.columns = X.shape[1]
        self.A = centred / self.units
        if case.intercept:
            self.A = np.hstack([self.A, np.ones((n, 1), Long)])
        self.K = int(case.labels.max()) + 1 if isinstance(case.loss, Softmax) else 1
        self.offset = np.zeros((n, self.K)) if case.offset is None else case.offset.reshape(n, self.K)
        self.penalty = np.zeros((self.A.shape[1], self.K), Long)
        self.penalty[: self.columns] = (Long(case.strength) / self.units**2)[:, None]

    def value(self, U: np.ndarray) -> Any:
        """The value f."""
        values = losses(self.case.loss, self.A @ U + self.offset, self.case.labels)[0]
        return (self.scale * values).mean() + (self.penalty * U * U).sum() / 2

    def point(self, x: np.ndarray) -> np.ndarray:
        """The package's x in these coordinates; its intercept is put together exactly."""
        W = np.asarray(x, dtype=np.float64).reshape(-1, self.K)
        U = np.zeros((self.A.shape[1], self.K), Long)
        U[: self.columns] = W[: self.columns].astype(Long) * self.units[:, None]
        if self.case.intercept:
            for k in range(self.K):
                parts = (Fraction(float(m)) * Fraction(float(w)) for m, w in zip(self.means, W[:-1, k], strict=True))
                total = sum(parts, Fraction(float(W[-1, k])))
                high = float(total)
                U[-1, k] = Long(high) + Long(float(total - Fraction(high)))
        return U

    def minimum(self, start: np.ndarray) -> Any:
        """The smallest value of f: Newton's method with halving."""
        U, value = start, self.value(start)
        for _ in range(300):
            _, slopes, curvatures = losses(self.case.loss, self.A @ U + self.offset, self.case.labels)
            gradient = self.A.T @ (self.scale[:, None] * slopes) / self.n + self.penalty * U
            weighted = self.scale[:, None, None] * curvatures / self.n
            H = np.zeros((*U.shape, *U.shape), Long)
            for k, m in itertools.product(range(self.K), repeat=2):
                H[:, k, :, m] = (self.A.T * weighted[:, k, m]) @ self.A
            H = H.reshape(U.size, U.size) + np.diag(self.penalty.ravel())
            step = -_solve(H, gradient.ravel()).reshape(U.shape)
            falls, part = -(gradient * step).sum(), Long(1)
            while part > 1e-12:
                trial = self.value(U + part * step)
                if trial <= value - Long(1e-4) * part * falls:
                    break
                part /= 2
            else:
                break
            U, value = U + part * step, trial
            if falls < 1e-24 * abs(value):
                break
        return value


def _solve(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """H⁻¹g by Cholesky's method; directions that H does not see are held."""
    d = len(g)
    diagonal = np.diag(H).copy()
    root = np.sqrt(np.where(diagonal > 0, diagonal, 1))
    M = H / root / root[:, None] + Long(1e-18) * np.eye(d, dtype=Long)
    L = np.zeros((d, d), Long)
    for j in range(d):
        pivot = M[j, j] - L[j, :j] @ L[j, :j]
        L[j, j] = np.sqrt(max(pivot, Long(1e-18)))
        L[j + 1 :, j] = (M[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    y = g / root
    for j in range(d):
        y[j] = (y[j] - L[j, :j] @ y[:j]) / L[j, j]
    for j in reversed(range(d)):
        y[j] = (y[j] - L[j + 1 :, j] @ y[j + 1 :]) / L[j, j]
    return y / root


# ---------------------------------------------------------------------------------------------------------- the check


class Ending(NamedTuple):
    """How a run ended."""

    status: str
    epochs: int
    x: np.ndarray
    bound: float
    warned: bool


def end(case: Case) -> Ending:
    """Run the package."""
    if case.door == "estimator":
        n = len(case.labels)
        model = TRSVRClassifier(C=1.0 / (case.strength * n), fit_intercept=case.intercept, max_iter=MOST_EPOCHS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(case.X, case.labels)
        parts = [model.coef_.T.astype(float)]
        if case.intercept:
            parts.append(model.intercept_[None, :].astype(float))
        epochs = int(model.n_iter_.max())
        status = "EPOCH_LIMIT" if epochs >= MOST_EPOCHS else "CONVERGED"
        return Ending(status, epochs, np.vstack(parts).ravel(), model.gap_bound_, bool(caught))
    problem = LinearModel(
        case.X, case.labels, case.loss, L2(case.strength), case.intercept, case.weights, offset=case.offset
    )
    if case.door == "compiled":
        vars(problem)["is_small"] = False
    result = trsvr.minimize(problem, max_epochs=MOST_EPOCHS, max_seconds=60.0)
    return Ending(result.status.name, result.epochs, result.x, result.gap_bound, not result.success)


def check(family: str, number: int) -> tuple[list[str], str]:
    """What is wrong with a case, and what it is."""
    case = globals()[family](number)
    ending, truth = end(case), Truth(case)
    point = truth.point(ending.x)
    # From where the run has ended, which soon shows whether that is the minimum; now and then from zero.
    found, lowest = truth.value(point), truth.minimum(0 * point if number % 20 == 0 else point)
    gap, size = float(found - lowest), abs(float(lowest))
    wrong = []
    # Coefficients that an estimator has rounded to float32 are not those that were certified.
    rounded = case.door == "estimator" and case.X.dtype == np.float32
    if ending.status in ("CONVERGED", "ROUNDING_FLOOR") and gap > WRONG * size and not ending.warned and not rounded:
        wrong.append("false ending")
    if ending.status not in ("CONVERGED", "ROUNDING_FLOOR"):
        wrong.append("burnt")
    if gap > ending.bound + NOISE * size and not rounded:
        wrong.append("bound below the gap")
    if np.isnan(ending.bound):
        wrong.append("no bound")
    elif ending.bound > max(LOOSE * gap, SMALL * size):
        wrong.append("loose bound")
    shape = f"{case.X.shape[0]} × {case.X.shape[1]}"
    story = f"{family} {number}: {shape} {case.loss} λ {case.strength:.1e} {case.story} by {case.door}, "
    story += f"{ending.status} after {ending.epochs}: f* {float(lowest):.6g}, gap {gap:.1e}, bound {ending.bound:.1e}"
    return wrong, story


def _several(family: str, numbers: range) -> list[tuple[list[str], str]]:
    found = []
    for number in numbers:
        try:
            found.append(check(family, number))
        except Exception as error:
            found.append(([f"raised {type(error).__name__}"], f"{family} {number}: {error}"))
    return found


def main() -> int:
    """Run many cases; 1 where one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default="scaled")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    last, size, begun = chosen.first + chosen.cases, 50, time.monotonic()
    pieces = [range(k, min(k + size, last)) for k in range(chosen.first, last, size)]
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        one = functools.partial(_several, chosen.family)
        for done, found in enumerate(pool.map(one, pieces) if chosen.jobs > 1 else map(one, pieces)):
            for wrong, story in found:
                counts.update(wrong)
                if chosen.verbose or (wrong and wrong != ["loose bound"]):
                    print(", ".join(wrong) or "true", "|", story, flush=True)
            if done % 40 == 39:
                print(f"{(done + 1) * size} cases, {time.monotonic() - begun:.0f} s: {dict(counts)}", flush=True)
    print(f"{chosen.cases} of {chosen.family}: {dict(counts) or 'nothing wrong'}, {time.monotonic() - begun:.0f} s")
    return int(any(kind != "loose bound" for kind in counts))


if __name__ == "__main__":
    sys.exit(main())
