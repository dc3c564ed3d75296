"""Counting: what a run has cost, to the last component gradient."""

from __future__ import annotations

import time

import numpy as np
import pytest

import trsvr
from trsvr.engine.result import TRACE_COLUMNS
from trsvr.parts import GradientRadius, Identity, PlainGradient
from trsvr.solvers.adaptive import AdaptiveTRSVR

N, B, S, K = 400, 30, 7, 4


def run(problem, solver, **options):
    return trsvr.minimize(problem, solver, **{"max_epochs": K, "tol": None, "seed": 3, **options})


@pytest.mark.parametrize("hessian", ["estimated", "exact", "identity"])
def test_passes_are_the_formula_of_the_plan(convex, hessian):
    """passes = K(1 + 2bS/N) + products·b/N, at every row of the trace, exactly."""
    result = run(convex[0], trsvr.TRSVR(alpha=5.0, batch_size=B, inner_steps=S, hessian=hessian))
    trace = result.trace
    products = trace["hessian_products"]
    evaluations = trace["epoch"] * (N + 2 * B * S) + products * B
    assert (trace["gradient_evaluations"] == evaluations).all()
    assert (trace["passes"] == evaluations / N).all()
    assert (trace["steps"] == trace["epoch"] * S).all()
    per_epoch = np.diff(products)
    if hessian == "identity":
        assert (products == 0).all()
    else:
        assert (per_epoch == trace["cg_iterations"][1:] * S).all()
        assert (per_epoch >= S).all()
    assert (result.gradient_evaluations, result.passes, result.epochs) == tuple(
        trace[["gradient_evaluations", "passes", "epoch"]].iloc[-1]
    )


def test_svrg_counts_two_gradients_a_row(convex):
    trace = run(convex[0], trsvr.SVRG(step=0.1, batch_size=B, inner_steps=S)).trace
    assert (trace["gradient_evaluations"] == trace["epoch"] * (N + 2 * B * S)).all()
    assert (trace["hessian_products"] == 0).all()


def test_a_method_without_a_reference_point_is_not_charged_for_the_curve(convex):
    """Full gradients drawn for the trace are free; those that `tol` asks for are not."""
    method = trsvr.TrustRegionMethod(
        gradient=PlainGradient(), curvature=Identity(), radius=GradientRadius(0.1), batch_size=B, inner_steps=S
    )
    free = run(convex[0], method).trace
    assert (free["gradient_evaluations"] == free["epoch"] * B * S).all()
    charged = run(convex[0], method, tol=0.0).trace
    assert (charged["gradient_evaluations"] == charged["epoch"] * (B * S + N)).all()
    assert (free["value"] == charged["value"]).all()


def test_the_gradient_that_ends_a_run_is_charged(convex):
    """Convergence is seen at a full gradient that no epoch uses: it counts."""
    result = trsvr.minimize(convex[0], trsvr.TRSVR(alpha=20.0, batch_size=100, inner_steps=20), tol=1e-6)
    assert result.status is trsvr.Status.CONVERGED
    trace, last = result.trace, result.trace.iloc[-1]
    expected = last["epoch"] * (N + 2 * 100 * 20) + last["hessian_products"] * 100 + N
    assert last["gradient_evaluations"] == expected == result.gradient_evaluations == result.nfev
    assert (np.diff(trace["passes"]) > 0).all()


def test_rows_of_weight_zero_do_not_count(data):
    X, y = data
    problem = trsvr.problems.logistic(X, y, l2=1e-2, sample_weight=np.arange(400) % 2)
    trace = run(problem, trsvr.SVRG(step=0.1, batch_size=B, inner_steps=S)).trace
    assert (trace["passes"] == trace["epoch"] * (1 + 2 * B * S / 200)).all()


def test_seconds_include_what_judging_takes(convex):
    """The adaptive mode looks a second time before it ends, with products of the whole Hessian."""

    class Slow(AdaptiveTRSVR):
        def judge(self, problem, state, report):
            time.sleep(0.1)
            return super().judge(problem, state, report)

    result = trsvr.minimize(convex[0], Slow(), max_epochs=2, tol=None)
    assert result.epochs == 2
    assert result.seconds >= 0.2


def test_seconds_grow_and_exclude_what_only_draws(convex):
    trace = run(convex[0], trsvr.SVRG(step=0.1, batch_size=B, inner_steps=S)).trace
    assert trace["seconds"].iloc[0] == 0.0
    assert (np.diff(trace["seconds"]) > 0).all()
    assert trace["seconds"].iloc[-1] < 5.0  # compiling is not in it


def test_the_trace_has_the_columns_of_the_plan(convex):
    result = run(convex[0], trsvr.TRSVR(alpha=5.0, batch_size=B, inner_steps=S))
    plan = [
        "epoch",
        "steps",
        "gradient_evaluations",
        "hessian_products",
        "passes",
        "seconds",
        "value",
        "gradient_norm_sq",
        "alpha",
        "batch_size",
        "inner_steps",
        "radius",
        "boundary_fraction",
        "cg_iterations",
        "rejected",
        "curvature_rows",
    ]
    assert list(result.trace.columns[: len(plan)]) == plan == list(TRACE_COLUMNS[: len(plan)])
    assert result.trace["epoch"].tolist() == list(range(K + 1))
    row = result.trace.iloc[-1]
    assert (row["alpha"], row["batch_size"], row["inner_steps"]) == (5.0, B, S)
    assert row["radius"] > 0
