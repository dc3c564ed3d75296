"""Gauss and Newton's matrix as the norm of steps: dense algebra, SciPy's minimum, and when `minimize` takes it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import trsvr

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from trsvr.torch import ModelProblem, minimize  # noqa: E402
from trsvr.torch.gauss_newton import GaussNewtonMatrix  # noqa: E402

BCE = F.binary_cross_entropy_with_logits


def net(*widths, seed=0):
    torch.manual_seed(seed)
    layers = [each for a, b in itertools.pairwise(widths) for each in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def rows(n, classes=1):
    """Labels that no small net can tell for sure."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 10))
    margins = 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3] + random.logistic(size=n)
    if classes == 1:
        return torch.from_numpy(X), torch.from_numpy((margins > 0.0).astype(float)[:, None])
    return torch.from_numpy(X), torch.from_numpy(np.digitize(margins, np.linspace(-2.0, 2.0, classes - 1)))


def offered(model, loss, data, **options):
    problem = ModelProblem(model, loss, data, **options)
    problem.offer_matrix()
    return problem


@pytest.fixture
def taken(monkeypatch):
    """How often the matrix was made."""
    calls, made = [], GaussNewtonMatrix.matrix
    monkeypatch.setattr(GaussNewtonMatrix, "matrix", lambda self: calls.append(1) or made(self))
    return calls


@pytest.mark.parametrize("frozen", [False, True])
def test_the_matrix_is_that_of_derivatives_and_probabilities(frozen):
    X, y = rows(60, 3)
    model = net(10, 4, 3)
    model[0].bias.requires_grad_(not frozen)
    problem = offered(model, F.cross_entropy, (X, y), weight_decay=0.1)
    x = problem.start() + 0.1
    found, penalty, looked = problem.curvature_matrix(x)
    assert (looked, penalty[0]) == (60, 0.1)
    known = np.zeros_like(found)
    for row in X:
        outputs = model(row)
        trainable = [p for p in model.parameters() if p.requires_grad]
        J = np.array([np.concatenate([g.numpy().ravel() for g in torch.autograd.grad(z, trainable, retain_graph=True)])
                      for z in outputs])  # fmt: skip
        p = torch.softmax(outputs, 0).detach().numpy()
        known += J.T @ (np.diag(p) - np.outer(p, p)) @ J / 60
    assert_allclose(found, known, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("loss", [BCE, nn.BCEWithLogitsLoss(), lambda z, t: F.softplus((1.0 - 2.0 * t) * z).mean()])
def test_the_matrix_multiplies_as_products_do(loss):
    data = rows(50)
    problem = offered(net(10, 3, 1), loss, data)
    products = ModelProblem(net(10, 3, 1), loss, data, hessian="gauss-newton")
    x = problem.start()
    matrix = problem.curvature_matrix(x)[0]
    for v in np.random.default_rng(1).normal(size=(3, x.size)):
        assert_allclose(matrix @ v, products.hessian_product(x, None, v), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("classes", "loss"), [(1, BCE), (3, F.cross_entropy)])
def test_it_ends_at_a_minimum_after_fewer_passes(taken, classes, loss):
    data, passes = rows(8000, classes), np.zeros(2)
    for seed in range(2):
        options = {"weight_decay": 1e-4, "max_epochs": 1000}
        result = minimize(net(10, 5, classes, seed=seed), loss, data, **options)
        assert result.success
        assert taken
        del taken[:]
        exact = minimize(net(10, 5, classes, seed=seed), loss, data, hessian="exact", **options)
        assert not taken
        passes += result.passes, exact.passes
        problem = ModelProblem(net(10, 5, classes), loss, data, weight_decay=1e-4)
        beside = result.x * (1.0 + 1e-3 * np.cos(np.arange(result.x.size)))
        known = scipy.optimize.minimize(problem.value_and_gradient, beside, jac=True, options={"gtol": 1e-8})
        assert result.value <= known.fun * (1.0 + 1e-9)
        assert result.value == pytest.approx(problem.value_and_gradient(result.x)[0], rel=1e-14)
    assert passes[0] < 0.75 * passes[1]


class Derivative(nn.Module):
    """du/dx of a net, by autograd inside the forward pass: `torch.func` cannot transform it."""

    def __init__(self):
        super().__init__()
        self.net = net(10, 6, 1)

    def forward(self, x):
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0][:, :1]


@pytest.mark.parametrize(("model", "loss", "n", "options"), [
    (net(10, 6, 1), BCE, 100, {}),  # dearer than the products that it saves
    (net(10, 1), BCE, 8000, {}),  # few unknowns need few products
    (net(10, 6, 1), lambda z, t: F.relu(1.0 - (2.0 * t - 1.0) * z).mean(), 8000, {}),  # no curvature in the outputs
    (net(10, 6, 1), lambda z, t: torch.sigmoid((1.0 - 2.0 * t) * z).mean(), 8000, {}),  # not convex in the outputs
    (Derivative(), BCE, 8000, {}),
    (net(10, 6, 1), BCE, 8000, {"hessian": "exact"}),
    (net(10, 6, 1), BCE, 8000, {"solver": trsvr.TRSVR()}),
], ids=["few rows", "few unknowns", "hinge", "sigmoid", "autograd inside", "exact", "a solver"])  # fmt: skip
def test_where_it_does_not_pay_products_alone_are_taken(taken, model, loss, n, options):
    result = minimize(model, loss, rows(n), max_epochs=3, **options)
    assert result.value < result.rows[0]["value"]
    assert not taken


def test_the_same_bits_each_time_and_from_a_checkpoint(tmp_path):
    data, path = rows(8000), tmp_path / "run.ckpt"
    whole, again = (minimize(net(10, 6, 1), BCE, data, weight_decay=1e-3, max_epochs=12) for _ in range(2))
    assert (whole.x == again.x).all()
    minimize(net(10, 6, 1), BCE, data, weight_decay=1e-3, max_epochs=5, checkpoint=path)
    result = trsvr.resume(path, offered(net(10, 6, 1), BCE, data, weight_decay=1e-3), max_epochs=12)
    assert (result.x == whole.x).all()
    assert result.gradient_evaluations == whole.gradient_evaluations


def test_where_losses_go_to_zero_with_their_curvature_the_matrix_is_given_up(taken):
    X, _ = rows(8000)
    result = minimize(net(10, 6, 1), BCE, (X, (X[:, :1] > 0.0).double()), max_epochs=400)
    assert 0 < len(taken) < 200
    assert result.value < 1e-9


def test_single_precision(taken):
    X, y = rows(8000, 3)
    model = net(10, 6, 3).float()
    result = minimize(model, F.cross_entropy, (X.float(), y), weight_decay=1e-3, max_epochs=100)
    assert taken
    exact = minimize(net(10, 6, 3), F.cross_entropy, (X, y), weight_decay=1e-3, max_epochs=400)
    assert result.value < 1.05 * exact.value
