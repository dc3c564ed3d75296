"""A backend of its own, rows in a Python list, runs the default mode through the protocol alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize

import trsvr
from trsvr.problems.base import Problem
from trsvr.problems.views import NOTHING_KNOWN, CurvatureView, Prices

# ----------------------------------------------------------------------------------------------- the backend: one class


class ListView(CurvatureView):
    """Ridge regression, one row after the other."""

    def __init__(self, problem):
        self.problem, self.n_rows, self.asked = problem, problem.n_samples, problem.asked
        self.x = np.zeros(problem.n_parameters)

    def prices(self):
        d, n = self.problem.n_parameters, self.n_rows
        return Prices.of_rows(n, d, 1, n * d)._replace(batch_row=math.inf, **self.problem.prices)

    def evaluate(self, x, coming=NOTHING_KNOWN):
        self.x = x.copy()
        return self.problem.value_and_gradient(x)

    def total_weight(self):
        return float(self.n_rows)

    def penalty_slopes(self, x):
        return self.problem.penalty * x

    def penalty_curvatures(self, x):
        return np.full_like(x, self.problem.penalty)

    def product(self, v):
        self.asked.add("product")
        return sum(row * float(row @ v) for row in self.problem.rows) / self.n_rows

    def diagonal(self):
        self.asked.add("diagonal")
        return sum(row * row for row in self.problem.rows) / self.n_rows

    def blocks(self, rows, draws):
        self.asked.add("blocks")
        chosen = range(self.n_rows) if rows >= self.n_rows else draws.stream("matrix").integers(self.n_rows, size=rows)
        matrix = sum(np.outer(self.problem.rows[i], self.problem.rows[i]) for i in chosen) / len(chosen)
        return matrix[None], len(chosen)

    def snapshot(self):
        return {"x": self.x}

    def restore(self, snapshot):
        self.x = snapshot["x"].copy()


class ListRidge(Problem):
    """(1/N) Σ ½(x_iᵀw − y_i)² + ½λ‖w‖²."""

    has_view = True

    def __init__(self, rows, labels, penalty, **prices):
        self.rows, self.labels, self.penalty, self.prices, self.asked = rows, labels, penalty, prices, set()
        self.n_samples, self.n_parameters = len(rows), rows[0].size

    def value_and_gradient(self, x):
        value, gradient = 0.5 * self.penalty * float(x @ x), self.penalty * x
        for row, label in zip(self.rows, self.labels, strict=True):
            residual = float(row @ x) - label
            value, gradient = value + 0.5 * residual**2 / self.n_samples, gradient + residual * row / self.n_samples
        return value, gradient

    def curvature_view(self):
        return ListView(self)


# ------------------------------------------------------------------------------------------------------------ the tests


@pytest.fixture(scope="module")
def ridge():
    random = np.random.default_rng(5)
    X = random.normal(size=(300, 6)) * 10.0 ** np.linspace(-2, 2, 6)
    y = X @ (random.normal(size=6) / 10.0 ** np.linspace(-2, 2, 6)) + random.normal(size=300)
    minimiser = np.linalg.solve(X.T @ X / 300 + 1e-3 * np.eye(6), X.T @ y / 300)
    return list(X), list(y), minimiser


@pytest.mark.parametrize(
    ("prices", "asked"),
    [
        ({}, {"blocks"}),
        ({"matrix_row": math.inf}, {"diagonal", "product"}),
        ({"matrix_row": math.inf, "diagonal": math.inf}, {"product"}),
    ],
    ids=["matrix", "diagonal", "products"],
)
def test_prices_alone_decide_what_it_is_asked_for(ridge, prices, asked):
    rows, labels, minimiser = ridge
    problem = ListRidge(rows, labels, 1e-3, **prices)
    result = trsvr.minimize(problem)
    assert result.success, result.message
    assert problem.asked == asked
    np.testing.assert_allclose(result.x, minimiser, rtol=1e-4, atol=1e-6)
    best = scipy.optimize.minimize(problem.value_and_gradient, minimiser, jac=True, options={"gtol": 1e-14}).fun
    assert result.value <= best * (1.0 + 1e-11)


def test_it_is_interrupted_and_resumed_to_the_same_bits(ridge, tmp_path):
    problem = ListRidge(*ridge[:2], 1e-3, matrix_row=math.inf)
    whole = trsvr.minimize(problem)
    part = trsvr.minimize(problem, max_epochs=2, checkpoint=tmp_path / "run")
    assert part.epochs == 2 < whole.epochs
    resumed = trsvr.resume(tmp_path / "run", problem, max_epochs=100)
    assert np.array_equal(resumed.x, whole.x)
    assert resumed.passes == whole.passes
