"""Damped steps on models in PyTorch: SciPy's minimum, rows of J by both ways, and the choice of `minimize`."""

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

import trsvr.torch  # noqa: E402
from trsvr.torch import ModelResiduals  # noqa: E402


def net(*widths, seed=0):
    torch.manual_seed(seed)
    layers = [each for a, b in itertools.pairwise(widths) for each in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def data(n, d, k=1):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, size=(n, d))
    y = np.stack([np.sin(3 * X.sum(axis=1) + j) for j in range(k)], axis=1)
    return torch.from_numpy(X), torch.from_numpy(y)


class Derivative(nn.Module):
    """du/dx of a net, by autograd inside the forward pass: `torch.func` cannot transform it."""

    def __init__(self):
        super().__init__()
        self.net = net(1, 5, 1)

    def forward(self, x):
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize(("model", "inputs", "outputs"), [(net(2, 4, 3), 2, 3), (Derivative(), 1, 1)])
def test_rows_of_the_jacobian_are_those_of_differences(model, inputs, outputs):
    problem = ModelResiduals(model, data(50, inputs, outputs))
    x = problem.start()
    residuals = problem.residuals_at(x)
    assert residuals.shape == (50 * outputs,)
    found = np.concatenate([rows for _, rows in problem.jacobian_rows(x, residuals, False)])
    known = scipy.optimize.approx_fprime(x, problem.residuals_at, 1e-7)
    assert_allclose(found, known, atol=1e-5)
    gradient = problem.value_and_gradient(x)[1]
    assert_allclose(problem.batch_gradient(x, np.arange(50)), gradient, rtol=1e-10, atol=1e-14)
    numbers = scipy.optimize.approx_fprime(x, lambda p: problem.value_and_gradient(p)[0], 1e-7)
    assert_allclose(gradient, numbers, atol=1e-5)


@pytest.mark.parametrize(("n", "width"), [(300, 6), (20, 40)], ids=["more rows", "more unknowns"])
def test_it_fits_at_least_as_well_as_scipy(n, width):
    model = net(2, width, 1)
    problem = ModelResiduals(model, data(n, 2), weight_decay=1e-6)
    start = problem.start()
    result = trsvr.torch.least_squares(model, data(n, 2), weight_decay=1e-6, max_epochs=400)

    def value(x):
        f, g = problem.value_and_gradient(x)
        return f, g

    known = scipy.optimize.minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxfun": 400})
    assert result.value <= known.fun * (1.0 + 1e-9)
    assert result.value < 0.5 * result.rows[0]["value"]
    assert_allclose(problem.value_and_gradient(result.x)[0], result.value, rtol=1e-12)


def test_some_rows_of_the_jacobian_lead_to_the_same_minimum(monkeypatch):
    """With many rows a step does with an eighth of J and the gradient of all; the end is that of the whole J."""
    t = torch.linspace(0, 4, 20_000, dtype=torch.float64)
    y = 3 * torch.exp(-1.5 * t) + 0.5 + 0.3 * torch.cos(1000 * t)

    class Decay(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))

        def forward(self, t):
            return self.x[0] * torch.exp(-self.x[1] * t) + self.x[2]

    problem = ModelResiduals(Decay(), (t, y), weight_decay=1e-3)
    x = np.array([2.0, 1.1, 0.3])
    gradient = problem.value_and_gradient(x)[1]
    some = problem.sampled(x, problem.residuals_at(x))
    assert_allclose(some.gradient, gradient, rtol=1e-10)
    J = np.concatenate([rows for _, rows in problem.jacobian_rows(x, problem.residuals_at(x), False)])
    assert_allclose(some.matrix, J.T @ J / 20_000 + 1e-3 * np.eye(3), rtol=0.1)
    quick = trsvr.torch.least_squares(Decay(), (t, y))
    monkeypatch.setattr(ModelResiduals, "sampled", lambda self, x, residuals: None)
    whole = trsvr.torch.least_squares(Decay(), (t, y))
    assert quick.success
    assert whole.success
    assert_allclose(quick.x, whole.x, rtol=1e-8)


@pytest.mark.parametrize("loss", [None, trsvr.problems.PseudoHuber(0.1)], ids=["squares", "robust"])
@pytest.mark.parametrize("weights", [None, np.arange(50) % 3])
def test_sums_of_the_device_are_those_of_the_rows(loss, weights, monkeypatch):
    """JᵀJ and the gradient by torch, some rows at a time, against J̃ as a whole."""
    problem = ModelResiduals(net(2, 4, 3), data(50, 2, 3), loss=loss, weights=weights, weight_decay=1e-2)
    monkeypatch.setattr(ModelResiduals, "_at_once", lambda self: 7)
    x = problem.start()
    residuals = problem.residuals_at(x)
    found = problem.squares(x, residuals, True)
    blocks = list(problem.penalised(x, problem.linearized(x, residuals, True)))
    J = np.concatenate([block.jacobian for block in blocks])
    assert_allclose(found.matrix, J.T @ J, rtol=1e-12, atol=1e-15)
    assert_allclose(found.gradient, J.T @ np.concatenate([block.residuals for block in blocks]), rtol=1e-10, atol=1e-15)
    assert found.passes == 1.0
    of_host = super(ModelResiduals, problem).squares(x, residuals, True)
    assert_allclose(of_host.matrix, found.matrix, rtol=1e-12, atol=1e-15)
    assert_allclose(of_host.gradient, found.gradient, rtol=1e-10, atol=1e-15)


def test_minimize_chooses_damped_steps_for_squares_and_reports_the_loss_it_was_given():
    X, y = data(200, 2, 2)
    model = net(2, 5, 2)
    result = trsvr.torch.minimize(model, F.mse_loss, (X, y), weight_decay=1e-4, max_epochs=200)
    with torch.no_grad():
        squares = sum(float((p**2).sum()) for p in model.parameters())
        assert result.value == pytest.approx(float(F.mse_loss(model(X), y)) + 0.5e-4 * squares, rel=1e-10)
    other = trsvr.torch.minimize(net(2, 5, 2), F.mse_loss, (X, y), weight_decay=1e-4, hessian="exact", max_epochs=200)
    assert result.value < other.value


@pytest.mark.parametrize(
    "loss", [F.huber_loss, nn.HuberLoss(delta=0.05), F.smooth_l1_loss, nn.SmoothL1Loss(beta=0.05), nn.MSELoss()]
)
def test_minimize_chooses_damped_steps_for_every_loss_of_residuals(loss):
    X, y = data(200, 2, 2)
    y[::10] += 3.0
    model = net(2, 5, 2)
    result = trsvr.torch.minimize(model, loss, (X, y), weight_decay=1e-4, max_epochs=400)
    assert result.trace.hessian_products.sum() == 0  # damped steps are factored
    model.zero_grad()
    value = loss(model(X), y) + 0.5e-4 * sum((p**2).sum() for p in model.parameters())
    value.backward()
    assert result.value == pytest.approx(value.item(), rel=1e-12)
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-6
    summed = nn.HuberLoss(reduction="sum")
    chosen = trsvr.torch.minimize(net(2, 5, 2), lambda out, t: summed(out, t) / t.numel(), (X, y), max_epochs=1)
    assert chosen.trace.hessian_products.sum() > 0


def test_a_function_of_unknowns_is_as_good_as_a_model():
    """NIST's Misra1a, by its certified values; in numbers of NumPy and as tensors."""
    pressure = [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0]
    volume = [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78]
    rows = torch.tensor(pressure, dtype=torch.float64), torch.tensor(volume, dtype=torch.float64)

    def adsorption(x, p):
        return x[0] * (1.0 - torch.exp(-x[1] * p))

    for start in ([500.0, 0.0001], torch.tensor([500.0, 0.0001], dtype=torch.float64)):
        result = trsvr.torch.least_squares(adsorption, rows, x0=start)
        assert_allclose(result.x, [2.3894212918e02, 5.5015643181e-04], rtol=1e-8)
    assert start.tolist() == [500.0, 0.0001]  # the user's own is left alone


def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match=r"model must be a torch\.nn\.Module"):
        trsvr.torch.least_squares("model", data(5, 1))
    with pytest.raises(ValueError, match="x0 must be given with a function"):
        trsvr.torch.least_squares(lambda x, t: x, data(5, 1))
    with pytest.raises(ValueError, match="loss must be Squared"):
        trsvr.torch.least_squares(net(1, 2, 1), data(5, 1), loss="huber")


def test_targets_of_another_shape_are_refused():
    """(N, 1) less (N,) would be N² residuals."""
    X, y = data(40, 2)
    with pytest.raises(ValueError, match=r"targets of shape \(2,\) for outputs of shape \(2, 1\)"):
        trsvr.torch.least_squares(net(2, 3, 1), (X, y[:, 0]))
    with pytest.raises(ValueError, match="residuals must be rows"):
        trsvr.torch.least_squares(net(2, 3, 1), (X, y), residuals=lambda out, t: (out - t).sum()[None])


@pytest.mark.parametrize("part", [nn.Dropout(0.5), nn.BatchNorm1d(3).double()])
def test_a_model_in_training_mode_is_refused(part):
    model = nn.Sequential(nn.Linear(2, 3), part, nn.Linear(3, 1)).double()
    with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
        trsvr.torch.least_squares(model, data(40, 2))
    assert trsvr.torch.least_squares(model.eval(), data(40, 2), max_epochs=2).epochs == 2


class Curve(nn.Module):
    """Its unknowns are numbers without a shape; ``inside`` differentiates in the forward pass."""

    def __init__(self, inside=False):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.tensor(1.0, dtype=torch.float64)) for _ in range(2))
        self.inside = inside

    def forward(self, t):
        if not self.inside:
            return self.a * torch.exp(-self.b * t)
        t = t.detach().requires_grad_(True)
        whole = -self.a / self.b * torch.exp(-self.b * t)
        return torch.autograd.grad(whole.sum(), t, create_graph=True)[0]


@pytest.mark.parametrize("inside", [False, True])
def test_unknowns_may_be_single_numbers(inside):
    t = torch.linspace(0, 4, 40, dtype=torch.float64)
    y = 3.0 * torch.exp(-1.5 * t)
    assert_allclose(trsvr.torch.least_squares(Curve(inside), (t, y)).x, [3.0, 1.5], rtol=1e-8)
    if not inside:
        robust = trsvr.torch.minimize(Curve(), lambda out, t: torch.log1p((out - t) ** 2).mean(), (t, y))
        assert_allclose(robust.x, [3.0, 1.5], rtol=1e-4)
        logits = trsvr.torch.minimize(
            Curve(), F.binary_cross_entropy_with_logits, (t, (y > 1.0).double()), max_epochs=3
        )
        assert np.isfinite(logits.value)


def test_a_loss_of_ones_own_derived_from_torchs_is_the_one_that_is_minimised():
    class Quartic(nn.MSELoss):
        def forward(self, outputs, target):
            return ((outputs - target) ** 4).mean()

    X, y = data(60, 2)
    model = net(2, 3, 1)
    result = trsvr.torch.minimize(model, Quartic(), (X, y), max_epochs=20)
    with torch.no_grad():
        assert result.value == pytest.approx(float(((model(X) - y) ** 4).mean()), rel=1e-10)


def test_no_start_is_the_models_own():
    model = net(2, 4, 1)
    start = trsvr.torch.ModelResiduals(model, data(60, 2)).value_at(
        trsvr.torch.ModelResiduals(model, data(60, 2)).start()
    )
    for minimized in (
        trsvr.torch.least_squares(model, data(60, 2), x0=None, max_epochs=0),
        trsvr.torch.minimize(model, lambda out, t: 0.5 * ((out - t) ** 2).mean(), data(60, 2), x0=None, max_epochs=0),
    ):
        assert minimized.value == pytest.approx(start[0], rel=1e-12)


def test_rows_at_once_bound_what_the_model_sees():
    seen = []

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(2, 4, 1)

        def forward(self, x):
            seen.append(len(x))
            return self.inner(x)

    trsvr.torch.minimize(Watched(), F.mse_loss, data(60, 2), rows_at_once=7, max_epochs=3)
    assert max(seen) <= 7


@pytest.mark.parametrize("n", [20, 30])
def test_weight_decay_keeps_to_the_space_of_residuals(n, monkeypatch):
    """1601 parameters and few residuals: nothing of their number squared is made."""
    made = []
    eye = np.eye
    monkeypatch.setattr(np, "eye", lambda d, *rest: made.append(d) or eye(d, *rest))
    model = net(2, 400, 1)
    result = trsvr.torch.minimize(model, F.mse_loss, data(n, 2), weight_decay=1e-3, max_epochs=100)
    assert not made
    problem = ModelResiduals(model, data(n, 2), weight_decay=1e-3, scale=2**0.5)
    options = {"maxiter": 300, "maxfun": 300}
    known = scipy.optimize.minimize(problem.value_and_gradient, result.x, jac=True, method="L-BFGS-B", options=options)
    assert result.value <= known.fun * (1.0 + 1e-3)
