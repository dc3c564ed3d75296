"""Problems from the user's own functions, with and without values and products of their own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import trsvr
from trsvr.problems import FunctionProblem

RNG = np.random.default_rng(0)
A = RNG.normal(size=(100, 3))
B = RNG.normal(size=100)
SOLUTION = np.linalg.lstsq(A, B, rcond=None)[0]
SVRG = trsvr.SVRG(step=0.1, batch_size=10, inner_steps=50)
NEWTON = trsvr.TRSVR(alpha=10.0, batch_size=20, inner_steps=20)


def gradient(x, i):
    return A[i].T @ (A[i] @ x - B[i]) / len(i)


def value(x, i):
    return 0.5 * np.mean((A[i] @ x - B[i]) ** 2)


def hessian_product(x, i, v):
    return A[i].T @ (A[i] @ v) / len(i)


def full():
    return FunctionProblem(100, 3, gradient, value, hessian_product)


def test_its_members_are_the_users_functions():
    problem = full()
    x, v, batch = np.ones(3), np.arange(3.0), np.array([1, 1, 7])
    assert (problem.n_samples, problem.n_parameters, problem.has_value) == (100, 3, True)
    assert isinstance(problem, trsvr.problems.FiniteSum)
    assert_allclose(problem.value_and_gradient(x)[0], value(x, np.arange(100)))
    assert_allclose(problem.value_and_gradient(x)[1], gradient(x, np.arange(100)))
    assert_allclose(problem.batch_gradient(x, batch), gradient(x, batch))
    assert_allclose(problem.hessian_product(x, batch, v), hessian_product(x, batch, v))
    assert_allclose(problem.hessian_product(x, None, v), hessian_product(x, np.arange(100), v))


def test_gather_restricts_every_function():
    chosen = np.array([4, 9, 9, 50])
    part = full().gather(chosen)
    x, v = np.ones(3), np.arange(3.0)
    assert part.n_samples == 4
    assert_allclose(part.value_and_gradient(x)[0], value(x, chosen))
    assert_allclose(part.batch_gradient(x, np.array([1, 3])), gradient(x, np.array([9, 50])))
    assert_allclose(part.hessian_product(x, np.array([3]), v), hessian_product(x, np.array([50]), v))
    bare = FunctionProblem(100, 3, gradient).gather(chosen)
    assert not bare.has_value
    assert not bare.has_products


@pytest.mark.parametrize("solver", [SVRG, NEWTON], ids=["svrg", "trsvr"])
@pytest.mark.parametrize("with_value", [True, False], ids=["values", "no values"])
def test_it_is_minimised_with_and_without_values(solver, with_value):
    problem = FunctionProblem(100, 3, gradient, value if with_value else None)
    result = trsvr.minimize(problem, solver)
    assert result.success
    assert_allclose(result.x, SOLUTION, atol=1e-6)
    assert result.gradient_norm < 1e-6
    assert np.isnan(result.trace["value"]).all() == (not with_value)
    assert np.isnan(result.value) == (not with_value)


def test_without_values_the_best_point_is_the_one_of_smallest_gradient():
    """A step that is too long: the run gets worse, and the point returned is the best of its trace."""
    problem = FunctionProblem(100, 3, gradient)
    result = trsvr.minimize(problem, trsvr.SVRG(step=2.0, batch_size=5, inner_steps=3), max_epochs=6, tol=None)
    norms = result.trace["gradient_norm_sq"]
    assert norms.iloc[-1] > norms.min()
    assert_allclose(result.gradient_norm**2, norms.min(), rtol=1e-12)
    assert_allclose(np.linalg.norm(gradient(result.x, np.arange(100))) ** 2, norms.min(), rtol=1e-9)


def test_a_class_that_says_nan_for_its_value_is_a_problem_without_values():
    """The protocol allows NaN for a value; no further attribute should be needed."""

    class NoValue:
        n_samples, n_parameters = 100, 3

        def value_and_gradient(self, x):
            return float("nan"), gradient(x, np.arange(100))

        def batch_gradient(self, x, indices):
            return gradient(x, indices)

        def gather(self, indices):
            raise NotImplementedError

    result = trsvr.minimize(NoValue(), SVRG)
    assert result.success
    assert_allclose(result.x, SOLUTION, atol=1e-6)


def test_exact_products_are_used_where_asked_for():
    calls = []

    def counted(x, i, v):
        calls.append(len(i))
        return hessian_product(x, i, v)

    problem = FunctionProblem(100, 3, gradient, value, counted)
    exact = trsvr.TRSVR(alpha=10.0, batch_size=20, inner_steps=20, hessian="exact")
    result = trsvr.minimize(problem, exact, max_epochs=3, tol=None)
    assert set(calls) == {20}
    assert len(calls) == result.trace["hessian_products"].iloc[-1] > 60
    calls.clear()
    trsvr.minimize(problem, NEWTON, max_epochs=1)
    assert not calls


def test_gradient_calls_are_the_ones_counted():
    """Component gradients the user's function was asked for, against the count in the trace."""
    asked = []

    def counted(x, i):
        asked.append(len(i))
        return gradient(x, i)

    result = trsvr.minimize(FunctionProblem(100, 3, counted), NEWTON, max_epochs=3, tol=None)
    # The last full gradient only draws the last row of the trace.
    assert sum(asked) - 100 == result.gradient_evaluations


def test_a_function_may_return_the_same_array_every_time():
    """NumPy's ``out=`` invites it: results must be copied, not kept."""
    buffer = np.empty(3)

    def reusing(x, i):
        buffer[:] = gradient(x, i)
        return buffer

    for solver in (SVRG, NEWTON):
        plain = trsvr.minimize(FunctionProblem(100, 3, gradient, value), solver, x0=np.ones(3), max_epochs=3, tol=None)
        again = trsvr.minimize(FunctionProblem(100, 3, reusing, value), solver, x0=np.ones(3), max_epochs=3, tol=None)
        assert (plain.x == again.x).all()
        assert (plain.gradient == again.gradient).all()
    auto = trsvr.minimize(FunctionProblem(100, 3, reusing, value), SVRG, x0=np.ones(3))
    assert_allclose(auto.x, SOLUTION, atol=1e-6)


def test_a_function_may_return_its_argument():
    """f = ‖x‖²/2: the gradient is x itself."""
    problem = FunctionProblem(10, 2, lambda x, i: x, lambda x, i: 0.5 * x @ x)
    solver = trsvr.SVRG(step=0.1, batch_size=2, inner_steps=5)
    result = trsvr.minimize(problem, solver, x0=[1.0, -2.0], max_epochs=2, tol=None)
    assert_allclose(result.x, 0.9**10 * np.array([1.0, -2.0]), rtol=1e-12)
    assert_allclose(result.gradient, result.x)


def test_other_return_types_are_converted():
    as_list = FunctionProblem(100, 3, lambda x, i: gradient(x, i).tolist(), lambda x, i: np.float32(value(x, i)))
    assert trsvr.minimize(as_list, SVRG, max_epochs=30).value < value(np.zeros(3), np.arange(100))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 3, gradient), "n_samples"),
        ((100.0, 3, gradient), "n_samples"),
        ((100, -1, gradient), "n_parameters"),
        ((100, 3, None), "gradient"),
        ((100, 3, "gradient"), "gradient"),
        ((100, 3, gradient, 7), "value"),
        ((100, 3, gradient, None, 7), "hessian_product"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        FunctionProblem(*arguments)


def test_a_result_of_the_wrong_shape_is_refused_with_the_function_named():
    with pytest.raises(ValueError, match=r"gradient must return .*\(3,\).*\(2,\)"):
        trsvr.minimize(FunctionProblem(100, 3, lambda x, i: np.zeros(2)), SVRG)
    wrong = FunctionProblem(100, 3, gradient, value, lambda x, i, v: np.zeros((3, 1)))
    with pytest.raises(ValueError, match="hessian_product must return"):
        trsvr.minimize(wrong, trsvr.TRSVR(alpha=1.0, batch_size=10, hessian="exact"))


def test_what_the_users_function_raises_reaches_the_user():
    def broken(x, i):
        raise RuntimeError("my own error")

    with pytest.raises(RuntimeError, match="my own error"):
        trsvr.minimize(FunctionProblem(100, 3, broken), SVRG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((gradient, gradient), r"value must return one number, got shape \(3,\); are gradient and value in each"),
        ((value, gradient), r"value must return one number, got shape \(3,\); are gradient and value in each"),
        ((value, value), r"gradient must return an array of shape \(3,\), got .*; are gradient and value in"),
        ((gradient, lambda x, i: None), "value must return one number, got None: is a return missing"),
        ((gradient, lambda x, i: "low"), "value must return one number, got 'low'"),
        ((lambda x, i: None, value), "gradient must return .*, got None: is a return missing"),
        ((lambda x, i: [[1.0], [2.0, 3.0]], value), "gradient must return .*, got list"),
    ],
)
def test_what_is_no_number_or_no_vector_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        trsvr.minimize(FunctionProblem(100, 3, *arguments), SVRG)


def test_an_error_inside_a_users_function_says_which_and_with_what():
    def swapped(indices, x):
        return A[indices].T @ (A[indices] @ x - B[indices]) / len(indices)

    with pytest.raises(IndexError) as caught:
        trsvr.minimize(FunctionProblem(100, 3, swapped), SVRG)
    notes = "raised in gradient(x, indices), with x of length 3 and 100 whole numbers as indices"
    assert caught.value.__notes__ == [notes]


@pytest.mark.parametrize("which", ["gradient", "value", "hessian_product"])
def test_a_function_that_changes_x_is_noticed(which):
    def changing(function):
        def changed(x, i, *v):
            x += 1.0
            return function(x, i, *v)

        return changed

    functions = {"gradient": gradient, "value": value, "hessian_product": hessian_product}
    functions[which] = changing(functions[which])
    start = np.ones(3)
    with pytest.raises(ValueError, match=f"{which} must not change its argument x"):
        trsvr.minimize(FunctionProblem(100, 3, **functions), trsvr.TrustRegion(), x0=start)
    assert (start == 1.0).all()


def test_it_introduces_itself():
    assert repr(full()) == "FunctionProblem(100 components, 3 parameters)"
    assert "<td" in full()._repr_html_()
    assert "FunctionProblem" in full()._repr_html_()
