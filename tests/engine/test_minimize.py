"""The loop: stopping, callbacks, the trace, divergence, what a result says."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import trsvr
from trsvr import Status
from trsvr.engine import Tolerance
from trsvr.parts import GradientRadius, Identity, PlainGradient
from trsvr.problems import FunctionProblem

NEWTON = trsvr.TRSVR(alpha=20.0, batch_size=100, inner_steps=20)
SHORT = trsvr.SVRG(step=0.1, batch_size=20, inner_steps=5)
PLAIN = trsvr.TrustRegionMethod(
    gradient=PlainGradient(), curvature=Identity(), radius=GradientRadius(0.1), batch_size=20, inner_steps=5
)


# ---------------------------------------------------------------------------------------------- limits


def test_epoch_limit(convex):
    result = trsvr.minimize(convex[0], SHORT, max_epochs=3, tol=None)
    assert result.status is Status.EPOCH_LIMIT
    assert (result.epochs, result.nit, len(result.trace)) == (3, 3, 4)
    assert not result.success


def test_no_epoch_at_all_is_the_starting_point(convex):
    problem, oracle = convex
    result = trsvr.minimize(problem, SHORT, x0=np.ones(6), max_epochs=0)
    assert result.status is Status.EPOCH_LIMIT
    assert (result.x == 1).all()
    assert_allclose(result.value, oracle.value(np.ones(6)))
    assert result.passes == 0
    assert len(result.trace) == 1


def test_pass_limit(convex):
    """The first epoch that reaches it is the last: 1.5 passes each."""
    result = trsvr.minimize(convex[0], SHORT, max_passes=4.0, max_epochs=None, tol=None)
    assert result.status is Status.PASS_LIMIT
    assert (result.epochs, result.passes) == (3, 4.5)


@pytest.mark.parametrize("epochs_of", ["one long epoch", "many short ones"])
def test_time_limit(convex, epochs_of):
    solver = dataclasses.replace(SHORT, step=1e-6, inner_steps=10**8 if epochs_of == "one long epoch" else 100)
    trsvr.minimize(convex[0], solver, max_seconds=1e-3, max_epochs=None, tol=None)  # compiles
    begun = time.perf_counter()
    result = trsvr.minimize(convex[0], solver, max_seconds=0.3, max_epochs=None, tol=None)
    assert time.perf_counter() - begun < 3.0
    assert result.status is Status.TIME_LIMIT
    assert 0.3 <= result.seconds < 1.5
    # An epoch that was cut short counts what it did, not what it should have done.
    last = result.trace.iloc[-1]
    assert last["gradient_evaluations"] == last["epoch"] * 400 + 2 * 20 * last["steps"]


# ------------------------------------------------------------------------------------------- tolerance


def test_an_absolute_tolerance_is_the_largest_entry_of_the_gradient(convex):
    problem, oracle = convex
    result = trsvr.minimize(problem, NEWTON, tol=1e-5)
    assert result.status is Status.CONVERGED
    assert result.success
    assert np.abs(oracle.gradient(result.x)).max() <= 1e-5
    assert np.sqrt(result.trace["gradient_norm_sq"].iloc[-2]) > 1e-5  # and not an epoch later than needed


def test_the_automatic_tolerance_is_relative_to_the_gradient_at_zero(convex):
    problem, oracle = convex
    scale = np.abs(oracle.gradient(np.zeros(6))).max()
    for start in (None, 3 * np.ones(6)):
        result = trsvr.minimize(problem, NEWTON, x0=start)
        assert result.status is Status.CONVERGED
        assert np.abs(oracle.gradient(result.x)).max() <= 1.001e-8 * scale


def test_a_start_at_the_minimum_ends_at_once(convex):
    problem, _ = convex
    minimum = trsvr.minimize(problem, NEWTON, tol=1e-10).x
    result = trsvr.minimize(problem, NEWTON, x0=minimum, tol=1e-10)
    assert (result.status, result.epochs) == (Status.CONVERGED, 0)
    assert (result.x == minimum).all()


def test_without_tolerance_only_limits_stop_a_run(convex):
    result = trsvr.minimize(convex[0], NEWTON, tol=None, max_epochs=40)
    assert result.status is Status.EPOCH_LIMIT


def test_the_rounding_floor_is_a_success_of_its_own(convex):
    """tol = 0 can not be reached: the run ends when the value stands still, and says so."""
    result = trsvr.minimize(convex[0], NEWTON, tol=0.0, max_epochs=500)
    assert result.status in (Status.ROUNDING_FLOOR, Status.CONVERGED)
    assert result.success
    assert result.epochs < 200
    assert result.gradient_norm < 1e-13


def test_a_tolerance_on_gradient_and_decrease_asks_for_both(convex):
    problem, oracle = convex
    scale = np.abs(oracle.gradient(np.zeros(6))).max()
    minimum = trsvr.minimize(problem).value
    # The gradient's limit is generous: what is left to gain decides, and the other way round.
    result = trsvr.minimize(problem, tol=Tolerance(gradient=1e3, decrease=1e-10))
    assert result.status is Status.CONVERGED
    assert 0 <= result.value - minimum <= 1e-9 * minimum
    assert trsvr.minimize(problem, tol=Tolerance(1e3, 1e3)).epochs <= 1 < result.epochs
    result = trsvr.minimize(problem, tol=Tolerance(1e-6, 1e3, relative=True), x0=np.ones(6))
    assert result.status is Status.CONVERGED
    assert np.abs(oracle.gradient(result.x)).max() <= 1e-6 * scale
    # A solver that expects nothing is held to the gradient alone.
    result = trsvr.minimize(problem, NEWTON, tol=Tolerance(1e-5, 1e-300))
    assert result.status is Status.CONVERGED
    assert np.abs(oracle.gradient(result.x)).max() <= 1e-5
    with pytest.raises(ValueError, match=r"tol's decrease must be a finite number >= 0, got -1"):
        Tolerance(1e-6, -1.0)


# ------------------------------------------------------------------------------------------ divergence


@pytest.mark.parametrize("step", [30.0, 1e6, 1e150])
@pytest.mark.parametrize("with_value", [True, False])
def test_divergence_returns_the_best_point(step, with_value):
    """No warning, no exception: the status says it, and the point is the best one seen."""
    A = np.random.default_rng(0).normal(size=(50, 3))
    problem = FunctionProblem(
        50,
        3,
        lambda x, i: np.clip(A[i].T @ np.clip(A[i] @ x - 1, -1e300, 1e300) / len(i), -1e300, 1e300),
        (lambda x, i: 0.5 * np.mean(np.clip(A[i] @ x - 1, -1e150, 1e150) ** 2)) if with_value else None,
    )
    solver = trsvr.SVRG(step=step, batch_size=5, inner_steps=2)
    result = trsvr.minimize(problem, solver, x0=np.ones(3))
    assert result.status is Status.DIVERGED
    assert not result.success
    assert "diverged" in result.message
    assert np.isfinite(result.x).all()
    assert np.isfinite(result.gradient).all()
    best = result.trace["value" if with_value else "gradient_norm_sq"].min()
    assert_allclose(result.value if with_value else result.gradient_norm**2, best)


def test_divergence_of_a_compiled_run_gives_no_warning(data):
    problem = trsvr.problems.LinearModel(
        data[0], data[1], trsvr.problems.PseudoHuber(0.7), trsvr.problems.DoubleWell(10.0) + trsvr.problems.L2(0.1)
    )
    result = trsvr.minimize(problem, trsvr.SVRG(step=10.0, batch_size=20, inner_steps=50), x0=np.ones(6))
    assert result.status is Status.DIVERGED
    assert (result.x == 1).all()
    assert np.isfinite(result.value)


def test_a_start_that_is_not_finite_ends_there():
    problem = FunctionProblem(10, 2, lambda x, i: np.full(2, np.inf), lambda x, i: np.inf)
    result = trsvr.minimize(problem, trsvr.SVRG(step=0.1, batch_size=2, inner_steps=5))
    assert (result.status, result.epochs) == (Status.DIVERGED, 0)
    assert (result.x == 0).all()


def test_growth_of_the_gradient_a_thousandfold_is_divergence():
    """f = −‖x‖²/2 has no minimum: the run goes downhill for ever and is ended by its gradient."""
    problem = FunctionProblem(10, 2, lambda x, i: -x, lambda x, i: -0.5 * x @ x)
    result = trsvr.minimize(problem, trsvr.SVRG(step=0.5, batch_size=2, inner_steps=1), x0=np.ones(2), max_epochs=100)
    assert result.status is Status.DIVERGED
    norms = result.trace["gradient_norm_sq"]
    assert norms.iloc[-2] <= 1e6 * norms.iloc[0] < norms.iloc[-1]


# ------------------------------------------------------------------------------------------- callbacks


def test_the_callback_sees_every_recorded_epoch(convex):
    seen = []
    result = trsvr.minimize(convex[0], SHORT, max_epochs=4, tol=None, callback=seen.append)
    assert [so_far.epochs for so_far in seen] == result.trace["epoch"].tolist()
    assert [so_far.passes for so_far in seen] == result.trace["passes"].tolist()
    for so_far in seen:
        assert so_far.status is Status.RUNNING
        assert len(so_far.trace) == so_far.epochs + 1
    values = [so_far.value for so_far in seen]
    assert values == np.minimum.accumulate(result.trace["value"]).tolist()


def test_both_of_scipys_conventions(convex):
    seen = []

    def by_keyword(*, intermediate_result):
        seen.append(intermediate_result.fun)

    def positional(result):
        seen.append(result.fun)

    class Watcher:
        def __call__(self, intermediate_result):
            seen.append(intermediate_result.fun)

    for callback in (by_keyword, positional, Watcher(), lambda intermediate_result: seen.append(1.0)):
        seen.clear()
        trsvr.minimize(convex[0], SHORT, max_epochs=2, tol=None, callback=callback)
        assert len(seen) >= 2


def test_stop_iteration_ends_the_run(convex):
    def callback(result):
        if result.epochs == 2:
            raise StopIteration

    result = trsvr.minimize(convex[0], SHORT, max_epochs=50, tol=None, callback=callback)
    assert result.status is Status.CALLBACK
    assert (result.epochs, len(result.trace)) == (2, 3)
    assert result.value == result.trace["value"].min()


def test_stop_iteration_of_the_users_function_is_an_error_not_a_stop():
    """Only the callback may end a run this way; a forgotten next() in a gradient is a mistake to be seen."""

    def broken(x, i):
        return next(iter(()))

    with pytest.raises((StopIteration, RuntimeError)):
        trsvr.minimize(FunctionProblem(10, 2, broken), trsvr.SVRG(step=0.1, batch_size=2, inner_steps=5))


def test_errors_of_the_callback_reach_the_user(convex):
    def callback(result):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trsvr.minimize(convex[0], SHORT, callback=callback)


def test_a_callback_may_write_into_what_it_is_given(convex):
    """The point shown is a copy: the run and its result do not change."""

    def vandal(result):
        result.x[:] = np.nan
        result.gradient[:] = np.nan
        result.rows.clear()

    untouched = trsvr.minimize(convex[0], SHORT, max_epochs=3, tol=None)
    touched = trsvr.minimize(convex[0], SHORT, max_epochs=3, tol=None, callback=vandal)
    assert (touched.x == untouched.x).all()
    assert (touched.gradient == untouched.gradient).all()
    assert len(touched.trace) == len(untouched.trace)
    # and once more where the first point stays the best one
    worse = trsvr.SVRG(step=30.0, batch_size=20, inner_steps=5)
    start = trsvr.minimize(convex[0], NEWTON).x
    result = trsvr.minimize(convex[0], worse, x0=start, max_epochs=1, tol=None, callback=vandal)
    assert (result.x == start).all()


# ------------------------------------------------------------------------------------- trace and output


def test_trace_every_thins_the_trace_and_nothing_else(convex):
    full = trsvr.minimize(convex[0], SHORT, max_epochs=7, tol=None)
    thin = trsvr.minimize(convex[0], SHORT, max_epochs=7, tol=None, trace_every=3)
    assert thin.trace["epoch"].tolist() == [0, 3, 6, 7]
    assert (thin.x == full.x).all()
    assert thin.passes == full.passes
    same = full.trace.set_index("epoch").loc[[0, 3, 6, 7], "value"]
    assert (thin.trace["value"].to_numpy() == same.to_numpy()).all()


def test_trace_every_spares_full_gradients_that_only_draw():
    """A method without a reference point takes one full gradient per recorded row, not per epoch."""
    full_passes = []

    def gradient(x, i):
        full_passes.append(len(i) == 100)
        return x - 1.0

    problem = FunctionProblem(100, 2, gradient)
    result = trsvr.minimize(problem, PLAIN, max_epochs=7, tol=None, trace_every=3)
    assert result.trace["epoch"].tolist() == [0, 3, 6, 7]
    assert sum(full_passes) == 4


def test_verbose_prints_a_line_per_row(convex, capsys):
    trsvr.minimize(convex[0], SHORT, max_epochs=3, tol=None, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"epoch    {k}") for k, line in enumerate(lines))


def test_the_progress_bar_writes_one_line_on_stderr(convex, capsys):
    trsvr.minimize(convex[0], SHORT, max_epochs=3, tol=None, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "SVRG" in captured.err
    assert "epoch 3" in captured.err


def test_silence_by_default(convex, capsys):
    trsvr.minimize(convex[0], SHORT, max_epochs=3, tol=None)
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------------- results


def test_scipys_names_are_the_same_things(convex):
    problem, oracle = convex
    result = trsvr.minimize(problem, NEWTON)
    assert result.fun == result.value
    assert (result.jac == result.gradient).all()
    assert (result.nit, result.nfev) == (result.epochs, result.gradient_evaluations)
    assert result.message.startswith("converged: at most ")
    assert_allclose(result.value, oracle.value(result.x), rtol=1e-13)
    assert_allclose(result.gradient, oracle.gradient(result.x), atol=1e-15)
    assert_allclose(result.gradient_norm, np.linalg.norm(result.gradient))
    assert result.x.dtype == np.float64
    known = scipy.optimize.minimize(oracle.value, np.zeros(6), jac=oracle.gradient, tol=1e-10)
    assert_allclose(result.x, known.x, atol=1e-6)
    assert "converged" in repr(result)


def test_every_status_carries_a_sentence():
    assert all(isinstance(status.value, str) and len(status.value) > 10 for status in Status)
    assert {status.name for status in Status if status.success} == {"CONVERGED", "ROUNDING_FLOOR"}


def test_the_best_point_is_returned_not_the_last(convex):
    """A run that gets worse: value, gradient and point all belong to its best row."""
    problem, oracle = convex
    start = trsvr.minimize(problem, NEWTON).x + 1e-3
    result = trsvr.minimize(problem, trsvr.SVRG(3.0, 5, 40), x0=start, max_epochs=4, tol=None)
    values = result.trace["value"]
    assert values.iloc[-1] > values.min()
    assert result.value == values.min()
    assert_allclose(oracle.value(result.x), result.value, rtol=1e-13)
    assert_allclose(oracle.gradient(result.x), result.gradient, atol=1e-14)


def test_the_start_is_not_written_to(convex):
    start = np.ones(6)
    trsvr.minimize(convex[0], SHORT, x0=start, max_epochs=2)
    assert (start == 1).all()
    again = trsvr.minimize(convex[0], SHORT, x0=[1, 1, 1, 1, 1, 1], max_epochs=2)
    assert again.epochs == 2


def test_nothing_to_choose(convex):
    """minimize(problem), no further argument: the minimum."""
    problem, oracle = convex
    result = trsvr.minimize(problem)
    assert result.success
    known = scipy.optimize.minimize(oracle.value, np.zeros(6), jac=oracle.gradient, tol=1e-10)
    assert result.value - known.fun < 1e-11


def test_nothing_to_choose_on_few_rows(data):
    """A user who chose no batch size is not to be told that it is too large."""
    X, y = data
    result = trsvr.minimize(trsvr.problems.logistic(X[:60], y[:60], l2=0.1))
    assert result.success


def test_plot_draws_the_run(convex):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    result = trsvr.minimize(convex[0], NEWTON)
    axes = result.plot()
    assert axes.get_xlabel() == "passes"
    assert_allclose(axes.lines[0].get_ydata(), result.trace["gradient_norm_sq"])
    same = result.plot(x="epoch", y="gap", reference=result.value - 1e-9, ax=axes)
    assert same is axes
    assert len(axes.lines) == 2
    pyplot.close("all")


def test_solvers_by_name(convex):
    named = trsvr.minimize(convex[0], "lbfgs")
    assert named.solver == trsvr.LBFGS()
    assert (named.x == trsvr.minimize(convex[0], trsvr.LBFGS()).x).all()
    with pytest.raises(ValueError, match=r"solver must be one of .*, got 'LBFSG'; did you mean 'lbfgs'"):
        trsvr.minimize(convex[0], "LBFSG")


def test_the_message_says_what_was_asked_for_and_found(convex):
    """The same three rules as in the docstring: what is left to gain, the gradient against zero's, a number."""
    problem = convex[0]
    gained = trsvr.minimize(problem)
    assert gained.message.startswith(f"converged: at most {gained.gap_bound:.1g} above the minimum (left to gain: ")
    assert float(gained.message.split()[-1].rstrip(")")) == pytest.approx(1e-12 * gained.value, rel=0.1)
    at_zero = np.abs(problem.value_and_gradient(np.zeros(problem.n_parameters))[1]).max()
    for solver, tol, asked in (("lbfgs", "auto", 1e-8 * at_zero), (None, 1e-5, 1e-5)):
        result = trsvr.minimize(problem, solver, tol=tol)
        assert "above the minimum (largest entry of the gradient: " in result.message
        assert float(result.message.split()[-1].rstrip(")")) == pytest.approx(asked, rel=0.1)


def test_results_and_problems_have_a_table_for_notebooks(convex):
    result = trsvr.minimize(convex[0], "svrg", max_epochs=2)
    page = result._repr_html_()
    assert f'<td style="text-align:left">{result.value:.12g}</td>' in page
    assert "epoch limit reached" in page
    assert "<script>" not in trsvr.engine.result.Result(**{**vars(result), "message": "<script>"})._repr_html_()
    assert "LinearModel" in convex[0]._repr_html_()


def test_datasets_are_listed():
    assert "datasets" in dir(trsvr)
    assert set(trsvr.__all__) <= set(dir(trsvr))
