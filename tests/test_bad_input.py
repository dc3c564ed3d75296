"""Bad input is refused at the door: ValueError with the argument's name, what was got and what is accepted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import trsvr
from trsvr.parts import ExactHessian, GradientRadius, SteihaugCG, SVRGGradient
from trsvr.problems import L2, DoubleWell, FunctionProblem, LinearModel, Logistic, PseudoHuber, Softmax, Squared

X = np.random.default_rng(0).normal(size=(30, 3))
Y = np.tile([-1.0, 1.0], 15)


def changed(array, place, entry):
    array = array.copy()
    array[place] = entry
    return array


def sparse(array):
    return scipy.sparse.csr_array(array)


# -------------------------------------------------------------------------------------------- problems

PROBLEMS = {
    # shapes that disagree
    "y too short": (lambda: LinearModel(X, Y[:-1]), r"y must .*30.*\(29,\)"),
    "y a matrix": (lambda: LinearModel(X, np.zeros((30, 2))), r"y must .*\(30, 2\)"),
    "y a number": (lambda: LinearModel(X, 1.0), r"y must"),
    "X a vector": (lambda: LinearModel(X[:, 0], Y), r"X must be two-dimensional.*\(30,\)"),
    "X three-dimensional": (lambda: LinearModel(np.zeros((30, 3, 2)), Y), r"X must be two-dimensional"),
    "X without rows": (lambda: LinearModel(np.zeros((0, 3)), []), r"X must .*\(0, 3\)"),
    "X without columns": (lambda: LinearModel(np.zeros((30, 0)), Y), r"X must .*\(30, 0\)"),
    "weights too short": (lambda: LinearModel(X, Y, sample_weight=[1.0]), r"sample_weight must .*30.*1"),
    # not finite, with the first position
    "X with NaN": (lambda: LinearModel(changed(X, (4, 2), np.nan), Y), r"X must be finite.*nan.*row 4.*column 2"),
    "X with inf": (lambda: LinearModel(changed(X, (4, 1), -np.inf), Y), r"X must be finite.*-inf.*row 4.*column 1"),
    "float32 X with inf": (
        lambda: LinearModel(changed(X, (4, 1), np.inf).astype(np.float32), Y, trsvr.problems.SquaredHinge()),
        r"X must be finite.*inf.*row 4.*column 1",
    ),
    "sparse X with NaN": (
        lambda: LinearModel(sparse(changed(X, (29, 0), np.nan)), Y),
        r"X must be finite.*nan.*row 29.*column 0",
    ),
    "y with NaN": (lambda: LinearModel(X, changed(Y, 7, np.nan)), r"y must be finite.*nan.*7"),
    "numbers with inf": (lambda: LinearModel(X, changed(Y, 7, np.inf), Squared()), r"y must be finite.*inf.*7"),
    "labels with NaN among objects": (
        lambda: LinearModel(X, np.where(Y > 0, 1.0, np.nan).astype(object)),
        r"y must .*nan",
    ),
    "weights with NaN": (
        lambda: LinearModel(X, Y, sample_weight=changed(np.ones(30), 3, np.nan)),
        r"sample_weight must be finite.*nan.*3",
    ),
    # labels
    "one class": (lambda: LinearModel(X, np.ones(30)), r"y must .*two classes.*1\.0"),
    "one class for softmax": (lambda: LinearModel(X, np.ones(30), Softmax()), r"y must .*two classes"),
    "one class, named": (lambda: LinearModel(X, ["spam"] * 30), r"y must .*two classes.*spam"),
    "three classes": (lambda: LinearModel(X, np.arange(30) % 3), r"y must .*exactly two classes.*3.*softmax"),
    "words for a regression": (lambda: LinearModel(X, ["a", "b"] * 15, Squared()), r"y must be numbers"),
    "mixed labels": (lambda: LinearModel(X, np.array(["a", 1] * 15, dtype=object)), r"y has labels"),
    # numbers of the wrong kind
    "words in X": (lambda: LinearModel(np.full((30, 3), "a"), Y), r"X must be .*numbers"),
    "complex X": (lambda: LinearModel(X + 1j, Y), r"X must be .*real numbers.*complex"),
    "complex sparse X": (lambda: LinearModel(sparse(X + 1j), Y), r"X must be .*real numbers.*complex"),
    "complex y": (lambda: LinearModel(X, Y + 1j, Squared()), r"y must be"),
    "X None": (lambda: LinearModel(None, Y), r"X must be .*got NoneType"),
    "y None": (lambda: LinearModel(X, None), r"y must .*got None"),
    "masked X": (lambda: LinearModel(np.ma.masked_greater(X, 1.0), Y), r"X must have no masked entries"),
    "rows of different lengths": (lambda: LinearModel([[1.0, 2.0], [3.0]], [0, 1]), r"X must be a matrix of numbers"),
    "a generator": (lambda: LinearModel((row for row in X), Y), r"X must be .*got generator"),
    "words in a frame": (
        lambda: LinearModel(pd.DataFrame(X, columns=list("abc")).assign(city="Rome"), Y),
        r"X must be .*numbers, got 'Rome' in column 'city'",
    ),
    "missing number in a frame": (
        lambda: LinearModel(pd.DataFrame(X, columns=list("abc")).astype("Float64").mask(X > 1.0), Y),
        r"X must be .*numbers, got <NA> in column '[abc]'",
    ),
    # weights
    "negative weight": (
        lambda: LinearModel(X, Y, sample_weight=changed(np.ones(30), 5, -1)),
        r"sample_weight must be >= 0.*-1.*5",
    ),
    "all weights zero": (lambda: LinearModel(X, Y, sample_weight=np.zeros(30)), r"sample_weight must"),
    "words as weights": (lambda: LinearModel(X, Y, sample_weight=["a"] * 30), r"sample_weight must"),
    # formulas
    "loss a class": (lambda: LinearModel(X, Y, Logistic), r"loss must be an instance"),
    "loss a name": (lambda: LinearModel(X, Y, "logistic"), r"loss must be .*'logistic'"),
    "regularizer a number": (lambda: LinearModel(X, Y, Logistic(), 0.1), r"regularizer must be .*0\.1"),
    "sum with a number": (lambda: LinearModel(X, Y, Logistic(), L2(0.1) + 3), r"regularizer must be .*3"),
    "regularizer in place of the loss": (lambda: LinearModel(X, Y, L2(0.1)), r"loss must be"),
    "loss in place of the regularizer": (lambda: LinearModel(X, Y, Logistic(), Logistic()), r"regularizer must be"),
    "no formulas at all": (lambda: LinearModel(X, Y, NamedTuple("Empty", [("a", float)])(1.0)), r"loss must"),
    "negative strength": (lambda: LinearModel(X, Y, Logistic(), L2(-1.0)), r"strength must .*-1"),
    "strength NaN": (lambda: LinearModel(X, Y, Logistic(), L2(np.nan)), r"strength must .*nan"),
    "strength a word": (lambda: LinearModel(X, Y, Logistic(), L2("big")), r"strength must .*'big'"),
    "negative gamma": (lambda: LinearModel(X, Y, Logistic(), L2() + DoubleWell(-1.0)), r"gamma must .*-1"),
    "a infinite": (lambda: LinearModel(X, Y, Logistic(), DoubleWell(1.0, np.inf)), r"a must .*inf"),
    "delta zero": (lambda: LinearModel(X, Y, PseudoHuber(0.0)), r"delta must .*0"),
    "l2 negative": (lambda: trsvr.problems.logistic(X, Y, l2=-1.0), r"l2 must .*-1"),
    "l2 a boolean": (lambda: trsvr.problems.logistic(X, Y, l2=True), r"l2 must .*True"),
    "gamma negative": (lambda: trsvr.problems.double_well_logistic(X, Y, gamma=-1.0), r"gamma must"),
    "a negative": (lambda: trsvr.problems.double_well_logistic(X, Y, a=-0.5), r"a must"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_problems(case):
    build, message = PROBLEMS[case]
    with pytest.raises(ValueError, match=message):
        build()


PREDICT = {
    "one row": (X[0], r"X must be two-dimensional"),
    "fewer columns": (X[:, :2], r"X must have 3 columns, as the model has, got 2"),
    "NaN": (changed(X, (4, 2), np.nan), r"X must be finite, got nan at row 4, column 2"),
    "inf in CSR": (sparse(changed(X, (4, 1), np.inf)), r"X must be finite, got inf at row 4, column 1"),
    "words": (np.full((30, 3), "a"), r"X must be a matrix of real numbers"),
}


@pytest.mark.parametrize("case", PREDICT)
def test_rows_to_predict(case):
    rows, message = PREDICT[case]
    with pytest.raises(ValueError, match=message):
        LinearModel(X, Y).predict(np.zeros(3), rows)


# --------------------------------------------------------------------------------------------- solvers

SOLVERS = {
    "alpha zero": (lambda: trsvr.TRSVR(alpha=0.0), r"alpha must .*0"),
    "alpha negative": (lambda: trsvr.TRSVR(alpha=-1.0), r"alpha must .*-1"),
    "alpha NaN": (lambda: trsvr.TRSVR(alpha=np.nan), r"alpha must .*nan"),
    "alpha a word": (lambda: trsvr.TRSVR(alpha="big"), r"alpha must .*'big'"),
    "alpha of the part": (lambda: trsvr.TrustRegionMethod(radius=GradientRadius(-1.0)), r"alpha must .*-1"),
    "step zero": (lambda: trsvr.SVRG(step=0), r"step must .*0"),
    "step infinite": (lambda: trsvr.SVRG(step=np.inf), r"step must .*inf"),
    "batch zero": (lambda: trsvr.TRSVR(batch_size=0), r"batch_size must .*0"),
    "batch a fraction": (lambda: trsvr.SVRG(batch_size=10.5), r"batch_size must .*10\.5"),
    "batch a boolean": (lambda: trsvr.SVRG(batch_size=True), r"batch_size must .*True"),
    "inner steps zero": (lambda: trsvr.SVRG(inner_steps=0), r"inner_steps must .*0"),
    "inner steps negative": (lambda: trsvr.TRSVR(inner_steps=-3), r"inner_steps must .*-3"),
    "max_cg zero": (lambda: trsvr.TRSVR(max_cg=0), r"max_cg must .*0"),
    "cg iterations of the part": (
        lambda: trsvr.TrustRegionMethod(subproblem=SteihaugCG(max_iterations=0)),
        r"max_iterations must .*0",
    ),
    "unknown hessian": (lambda: trsvr.TRSVR(hessian="estimate"), r"hessian must .*'estimate'.*mean 'estimated'"),
    "unknown gradient": (lambda: trsvr.TRSVR(gradient="svrq"), r"gradient must .*'svrq'.*mean 'svrg'"),
    "hessian of another type": (lambda: trsvr.TRSVR(hessian=None), r"hessian must .*None"),
    "part a class": (lambda: trsvr.TrustRegionMethod(gradient=SVRGGradient), r"gradient must"),
    "part of another kind": (lambda: trsvr.TrustRegionMethod(curvature=SteihaugCG()), r"curvature must"),
    "radius a number": (lambda: trsvr.TrustRegionMethod(radius=0.5), r"radius must .*0\.5"),
    "subproblem a function": (lambda: trsvr.TrustRegionMethod(subproblem=trsvr.parts.steihaug_cg), r"subproblem must"),
}


@pytest.mark.parametrize("case", SOLVERS)
def test_solvers(case):
    build, message = SOLVERS[case]
    with pytest.raises(ValueError, match=message):
        build()


# -------------------------------------------------------------------------------------------- minimize

SMALL = trsvr.SVRG(step=0.1, batch_size=5, inner_steps=2)
RUNS = {
    "x0 too long": ({"x0": np.zeros(4)}, r"x0 must .*3.*4"),
    "x0 a matrix": ({"x0": np.zeros((3, 1))}, r"x0 must .*\(3, 1\)"),
    "x0 with NaN": ({"x0": [0.0, np.nan, 0.0]}, r"x0 must be finite.*nan.*1"),
    "x0 words": ({"x0": ["a", "b", "c"]}, r"x0 must"),
    "batch larger than N": ({"solver": trsvr.SVRG(step=0.1, batch_size=31)}, r"batch_size must .*30.*31"),
    "batch larger than N, parts": ({"solver": trsvr.TrustRegionMethod(batch_size=31)}, r"batch_size must .*30.*31"),
    "negative epochs": ({"max_epochs": -1}, r"max_epochs must .*-1"),
    "epochs a fraction": ({"max_epochs": 1.5}, r"max_epochs must .*1\.5"),
    "passes zero": ({"max_passes": 0}, r"max_passes must .*0"),
    "seconds NaN": ({"max_seconds": np.nan}, r"max_seconds must .*nan"),
    "tol negative": ({"tol": -1e-3}, r"tol must .*-0\.001"),
    "tol unknown": ({"tol": "atuo"}, r"tol must .*'atuo'"),
    "tol unknown, with the nearest": ({"tol": "atuo"}, r"auto.*'atuo'|'atuo'.*'auto'"),
    "seed negative": ({"seed": -1}, r"seed must .*-1"),
    "seed a fraction": ({"seed": 0.5}, r"seed must .*0\.5"),
    "trace_every zero": ({"trace_every": 0}, r"trace_every must .*0"),
    "threads zero": ({"threads": 0}, r"threads must .*0"),
    "callback a number": ({"callback": 3}, r"callback must .*3"),
    "solver a class": ({"solver": trsvr.TRSVR}, r"solver must"),
    "solver a dict": ({"solver": {}}, r"solver must"),
}


@pytest.mark.parametrize("case", RUNS)
def test_runs(case):
    options, message = RUNS[case]
    with pytest.raises(ValueError, match=message):
        trsvr.minimize(trsvr.problems.logistic(X, Y), **{"solver": SMALL, **options})


def test_what_is_no_problem_is_refused_with_what_it_lacks():
    class Half:
        n_samples, n_parameters = 3, 2

    with pytest.raises(ValueError, match=r"problem must .*Half lacks value_and_gradient, batch_gradient"):
        trsvr.minimize(Half(), SMALL)
    with pytest.raises(ValueError, match="problem must"):
        trsvr.minimize(None, SMALL)
    with pytest.raises(ValueError, match="problem must"):
        trsvr.minimize(LinearModel, SMALL)


def test_a_missing_capability_is_refused_by_name():
    """And the message says what would work."""
    problem = FunctionProblem(30, 3, lambda x, i: x)
    message = r"curvature ExactHessian .*hessian_product.*FunctionProblem.*EstimatedHessian"
    with pytest.raises(ValueError, match=message):
        trsvr.minimize(problem, trsvr.TrustRegionMethod(curvature=ExactHessian(), batch_size=5))
    with pytest.raises(ValueError, match=message):
        trsvr.minimize(problem, trsvr.TRSVR(alpha=1.0, hessian="exact", batch_size=5))


def test_points_and_indices_of_a_problem():
    problem = trsvr.problems.logistic(X, Y)
    for x in (np.zeros(4), np.zeros((3, 1)), 0.0):
        with pytest.raises(ValueError, match=r"x must .*\(3,\)"):
            problem.value_and_gradient(x)
        with pytest.raises(ValueError, match=r"x must .*\(3,\)"):
            problem.batch_gradient(x, [0])
    with pytest.raises(ValueError, match=r"v must .*\(3,\)"):
        problem.hessian_product(np.zeros(3), [0], np.zeros(2))
    for indices in ([], [30], [-1], [[0, 1]]):
        with pytest.raises(ValueError, match="indices must"):
            problem.batch_gradient(np.zeros(3), indices)
        with pytest.raises(ValueError, match="indices must"):
            problem.gather(indices)


def test_a_broken_sparse_matrix_is_refused():
    matrix = sparse(X)
    matrix.indices[3] = 17  # the matrix has three columns
    with pytest.raises(ValueError, match="X"):
        LinearModel(matrix, Y)
