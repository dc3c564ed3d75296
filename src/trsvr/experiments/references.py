"""The smallest value of a problem, to the last digits: two solvers that share no code must agree.

One is this library's adaptive TRSVR on its compiled kernels. The other is SciPy's trust region on the objective written
down once more in NumPy. For a nonconvex objective there is no such value, and the best one that a run finds takes its
place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special

from trsvr import theory
from trsvr._arrays import Vector
from trsvr._files import written_beside
from trsvr.engine import Result, minimize
from trsvr.experiments.subjects import Subject
from trsvr.problems import LinearModel
from trsvr.solvers import TRSVR, TrustRegion
from trsvr.theory.constants import natural_radius

#: How well the two have to agree.
AGREEMENT = 1e-13
_FALLS = 4 * np.finfo(float).eps


class StandsStill:
    """Callback that ends a run whose value no longer falls, up to its last digits."""

    patience = 3

    def __init__(self) -> None:
        self.smallest = np.inf
        self.since = 0

    def __call__(self, result: Result) -> None:
        """Look at the newest row."""
        value = result.rows[-1]["value"]
        falls = value < self.smallest - _FALLS * abs(value)
        self.smallest, self.since = min(value, self.smallest), 0 if falls else self.since + 1
        # A refused step of the trust region leaves the value where it was and only makes the radius smaller.
        if self.since >= self.patience and not result.rows[-1]["rejected"]:
            raise StopIteration


def polish(problem: Any, x0: Any = None, threads: int | None = None) -> Result:
    """The local minimiser that a trust region descends to from a point, as far as values can tell."""
    return minimize(problem, TrustRegion(), x0=x0, max_epochs=300, tol=None, callback=StandsStill(), threads=threads)


def own_value(problem: LinearModel, threads: int | None = None) -> tuple[float, Vector]:
    """Our own smallest value and where: adaptive TRSVR, then a trust region from there to the rounding floor."""
    found = minimize(problem, TRSVR(), max_epochs=300, tol=None, callback=StandsStill(), threads=threads)
    better = polish(problem, found.x, threads)
    return min((found.value, found.x), (better.value, better.x), key=lambda pair: pair[0])


def scipy_value(X: Any, y: Vector, l2: float, gamma: float, a: float) -> tuple[float, Vector]:
    """SciPy's smallest value and where, with the objective in NumPy."""
    n, d = X.shape
    transposed = X.T.tocsr() if scipy.sparse.issparse(X) else X.T

    def value_and_gradient(w: Vector) -> tuple[float, Vector]:
        margins = y * (X @ w)
        value = np.logaddexp(0.0, -margins).mean() + 0.5 * l2 * w @ w + gamma / d * np.sum((w * w - a * a) ** 2)
        gradient = transposed @ (-y * scipy.special.expit(-margins)) / n + l2 * w + 4 * gamma / d * w * (w * w - a * a)
        return float(value), gradient

    def product(w: Vector, v: Vector) -> Vector:
        p = scipy.special.expit(X @ w)
        wells = 4 * gamma / d * (3 * w * w - a * a)
        return np.asarray(transposed @ (p * (1 - p) * (X @ v)) / n + (l2 + wells) * v)

    w = np.zeros(d)
    for _ in range(2):  # a second start from the first result gets past a radius that had become too small
        found = scipy.optimize.minimize(
            value_and_gradient, w, jac=True, hessp=product, method="trust-ncg", options={"gtol": 1e-11, "maxiter": 500}
        )
        w = found.x
    return float(found.fun), w


def known_in(folder: Path) -> dict[str, dict[str, Any]]:
    """What the folder has, by the hash of the problem."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


def store(facts: dict[str, Any], folder: Path) -> None:
    """Write the facts of a problem into the folder, unless it has them."""
    path = folder / f"{facts['problem']}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with written_beside(path) as beside:
            beside.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")


def find(subject: Subject, known: dict[str, dict[str, Any]], threads: int | None = None) -> dict[str, Any]:
    """F* and the constants of a problem, computed unless they are known.

    Returns
    -------
    dict
        value (None where the objective is not convex), own_value, scipy_value, relative_difference, problem (its
        hash), rows, columns, nonzeros, smoothness (L), component_smoothness (L_max), and what is known of the data.
    """
    identity = subject.identity()
    if identity in known:
        return known[identity]
    data, problem, goal = subject.dataset(), subject.problem(), subject.objective
    gamma = goal.strength(data.n_features)
    radius = natural_radius(problem)
    facts: dict[str, Any] = {
        "problem": identity,
        "data": subject.data,
        "name": data.name,
        "source": data.source,
        "sha256": data.sha256,
        "preprocess": data.preprocess,
        "description": data.description,
        "rows": data.n_samples,
        "columns": data.n_features,
        "nonzeros": data.nonzeros,
        "l2": goal.l2,
        "gamma": gamma,
        "a": goal.a,
        "convex": goal.is_convex(data.n_features),
        "strong_convexity": theory.lowest_curvature(problem),
        "component_smoothness": theory.component_smoothness(problem, radius=radius),
        "smoothness": theory.smoothness(problem, radius=radius),
        "value": None,
    }
    if facts["convex"]:
        own, _ = own_value(problem, threads)
        other, _ = scipy_value(data.X, data.y, goal.l2, gamma, goal.a)
        facts |= {
            "value": min(own, other),
            "own_value": own,
            "scipy_value": other,
            "relative_difference": abs(own - other) / abs(own),
        }
    return facts
