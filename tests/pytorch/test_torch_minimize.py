"""A model in the engine's loop: against the compiled problem, against dense algebra, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import trsvr
from trsvr.torch import ModelProblem, minimize


def logistic(outputs, y):
    return -F.logsigmoid(y * outputs[:, 0]).mean()


@pytest.fixture(scope="module")
def tensors():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 6)) * np.array([0.3, 0.5, 1.0, 1.0, 1.5, 2.0])
    y = np.where(X @ rng.normal(size=6) + rng.logistic(size=400) > 0, 1.0, -1.0)
    return torch.from_numpy(X), torch.from_numpy(y)


def linear(dtype=torch.double):
    net = nn.Linear(6, 1, bias=False).to(dtype)
    nn.init.zeros_(net.weight)
    return net


def test_the_minimiser_of_the_compiled_problem(tensors):
    X, y = tensors
    compiled = trsvr.minimize(trsvr.problems.logistic(X.numpy(), y.numpy(), l2=1e-2))
    net = linear()
    result = minimize(net, logistic, tensors, weight_decay=1e-2)
    assert result.success
    assert_allclose(result.x, compiled.x, rtol=0, atol=1e-5)
    assert result.value == pytest.approx(compiled.value, abs=1e-12)
    assert_allclose(net.weight.detach().numpy()[0], result.x)
    assert list(result.trace["passes"]) == sorted(result.trace["passes"])


@pytest.mark.parametrize("solver", [
    trsvr.TRSVR(alpha=2.0, batch_size=50, inner_steps=8, hessian="exact"),
    trsvr.TRSVR(alpha=2.0, batch_size=50, inner_steps=8, hessian="estimated"),
    trsvr.SVRG(step=0.3, batch_size=20, inner_steps=20),
    trsvr.LBFGS(),
])  # fmt: skip
def test_any_solver_runs_on_the_same_rows(tensors, solver):
    X, y = tensors
    problem = trsvr.problems.logistic(X.numpy(), y.numpy(), l2=1e-2)
    compiled = trsvr.minimize(problem, solver, max_epochs=4, tol=None)
    options = {"weight_decay": 1e-2, "rows_at_once": 130, "max_epochs": 4, "tol": None}
    result = minimize(linear(), logistic, TensorDataset(X, y), solver, **options)
    assert_allclose(result.x, compiled.x, rtol=0, atol=1e-6)
    assert result.trace["gradient_evaluations"].tolist() == compiled.trace["gradient_evaluations"].tolist()


def test_products_and_gradients_of_a_net_in_pieces_and_whole(tensors):
    X, _ = tensors
    Y = torch.sin(X[:, :2])
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    rng = np.random.default_rng(0)
    for kind in ("exact", "gauss-newton"):
        whole = ModelProblem(net, F.mse_loss, (X, Y), hessian=kind)
        pieces = ModelProblem(net, F.mse_loss, (X, Y), hessian=kind, rows_at_once=37)
        x = whole.start()
        rows = rng.integers(400, size=90)
        for indices in (None, rows):
            for v in rng.normal(size=(2, x.size)):
                product = whole.hessian_product(x, indices, v)
                assert_allclose(product, pieces.hessian_product(x, indices, v), rtol=1e-9, atol=1e-12)
                if kind == "exact":  # against differences of gradients, which share nothing with double backward
                    part = whole if indices is None else whole.gather(indices)
                    up, down = (part.value_and_gradient(x + s * v)[1] for s in (1e-5, -1e-5))
                    assert_allclose(product, (up - down) / 2e-5, rtol=1e-6, atol=1e-8)
        value, gradient = whole.value_and_gradient(x)
        v = rng.normal(size=x.size)
        up, down = (whole.value_and_gradient(x + s * v)[0] for s in (1e-6, -1e-6))
        assert gradient @ v == pytest.approx((up - down) / 2e-6, rel=1e-6)
        assert_allclose(pieces.value_and_gradient(x)[1], gradient, rtol=1e-11, atol=1e-14)
        assert value == pytest.approx(float(F.mse_loss(net(X), Y).detach()), rel=1e-13)


def test_a_nonlinear_least_squares_fit_to_the_last_digits():
    """y = a exp(−bt) with the true parameters in reach: the residual goes to zero."""

    class Decay(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Parameter(torch.tensor(1.0, dtype=torch.double)) for _ in range(2))

        def forward(self, t):
            return self.a * torch.exp(-self.b * t)

    t = torch.linspace(0, 3, 50, dtype=torch.double)
    net = Decay()
    result = minimize(net, F.mse_loss, (t, 2.5 * torch.exp(-1.3 * t)), hessian="gauss-newton", tol=1e-12)
    assert result.success
    assert net.a.item() == pytest.approx(2.5, abs=1e-9)
    assert net.b.item() == pytest.approx(1.3, abs=1e-9)


def test_float32_models_and_data_sets_of_items(tensors):
    X, y = tensors

    class Items(Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i].float(), y[i].float()

    net = linear(torch.float32)
    result = minimize(net, logistic, Items(), max_epochs=5)
    exact = minimize(linear(), logistic, tensors)
    assert result.value == pytest.approx(exact.value, rel=1e-5)
    assert net.weight.dtype == torch.float32
    with pytest.raises(ValueError, match=r"needs a float64 model, got torch\.float32"):
        minimize(net, logistic, Items(), trsvr.TRSVR(alpha=0.1))


def test_frozen_parameters_and_callbacks(tensors):
    X, y = tensors
    net = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    net[0].requires_grad_(False)
    frozen = net[0].weight.clone()
    seen = []

    def stop(so_far):
        seen.append(so_far.value)
        if len(seen) == 3:
            raise StopIteration

    result = minimize(net, logistic, (X, y), callback=stop)
    assert result.status is trsvr.Status.CALLBACK
    assert result.x.size == 4
    assert torch.equal(net[0].weight, frozen)
    assert float(logistic(net(X), y).detach()) == pytest.approx(result.value, rel=1e-14)


def test_an_error_leaves_the_model_as_it_was(tensors):
    net, calls = linear(), []

    def fails(outputs, y):
        calls.append(1)
        if len(calls) == 12:
            raise KeyError("lost")
        return logistic(outputs, y)

    with pytest.raises(KeyError, match="lost"):
        minimize(net, fails, tensors)
    assert not net.weight.any()


def test_refused(tensors):
    X, y = tensors
    net = linear()
    for arguments, message in (
        ((net.weight, logistic, (X, y)), "model must be a torch.nn.Module"),
        ((net, "mse", (X, y)), "loss must be a function"),
        ((net, logistic, (X, y[:-1])), "of the same length, got shapes"),
        ((net, logistic, (X,)), r"tensors \(input, …, target\)"),
        ((net, logistic, iter([(X, y)])), "a stream has no full gradient"),
        ((net, logistic, (X[:0], y[:0])), "dataset is empty"),
        ((net, lambda o, t: logistic(o, t) * len(t), (X, y)), "mean over a batch.*reduction='mean'"),
        ((net, nn.MSELoss, (X, y)), r"loss must be a function of outputs and target.*MSELoss"),
        ((net, logistic, (X.tolist(), y.tolist())), "dataset must be tensors or arrays.*got lists"),
    ):
        with pytest.raises(ValueError, match=message):
            minimize(*arguments)
    with pytest.raises(ValueError, match="hessian must be one of 'exact', 'gauss-newton'"):
        minimize(net, logistic, (X, y), hessian="estimated")
    torch.manual_seed(0)
    for layer in (nn.Dropout(0.5), nn.BatchNorm1d(8)):
        deep = nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 1)).double()
        with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
            minimize(deep, logistic, (X, y))
        minimize(deep.eval(), logistic, (X, y), max_epochs=1)


def test_importing_trsvr_does_not_import_torch():
    code = "import sys, trsvr; assert 'torch' not in sys.modules; trsvr.torch.TRSVR; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    code = "import sys; sys.modules['torch'] = None\nimport trsvr\ntry: trsvr.torch\nexcept ImportError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], check=True, timeout=100, capture_output=True, text=True)
    assert "pip install 'trsvr[torch]'" in said.stdout


@pytest.mark.skipif(not hasattr(trsvr, "resume"), reason="this engine has no checkpoints yet")
def test_a_run_continues_from_its_checkpoint_to_the_same_bits(tensors, tmp_path):
    X, y = tensors

    def build():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    solver = trsvr.TRSVR(alpha=0.5, batch_size=50, inner_steps=4, hessian="exact")
    net = build()
    whole = minimize(net, logistic, (X, y), solver, max_epochs=6, tol=None)
    minimize(build(), logistic, (X, y), solver, max_epochs=3, tol=None, checkpoint=tmp_path / "run.ckpt")
    problem = ModelProblem(build(), logistic, (X, y))
    resumed = trsvr.resume(tmp_path / "run.ckpt", problem, max_epochs=6)
    assert (resumed.x == whole.x).all()
    problem.load(resumed.x)
    assert all(map(torch.equal, problem.model.parameters(), net.parameters()))


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lambda: linear(torch.float32), r"two of its samples are float64 \(2, 6\).*the parameters float32: .* dtype"),
        (lambda: nn.Linear(5, 1).double(), r"two of its samples are float64 \(2, 6\).*cannot be multiplied"),
    ],
)
def test_samples_that_do_not_suit_the_model_are_shown(tensors, net, words):
    with pytest.raises(ValueError, match=words):
        ModelProblem(net(), logistic, tensors)


def test_numpy_arrays_are_data(tensors):
    X, y = tensors
    ours = minimize(linear(), logistic, (X.numpy(), y.numpy()), "lbfgs", weight_decay=1e-2)
    assert_allclose(ours.x, minimize(linear(), logistic, tensors, trsvr.LBFGS(), weight_decay=1e-2).x)
    single = ModelProblem(linear(torch.float32), logistic, [X.numpy(), y.numpy()])  # floats follow the model
    assert single.value_and_gradient(np.zeros(6))[0] == pytest.approx(np.log(2.0))
    labels = ModelProblem(nn.Linear(6, 2).double(), F.cross_entropy, (X.numpy(), (y.numpy() > 0).astype(np.int64)))
    assert np.isfinite(labels.value_and_gradient(labels.start())[0])
    with pytest.raises(ValueError, match="arrays of numbers, got an array of <U"):
        ModelProblem(linear(), logistic, (X.numpy(), np.where(y.numpy() > 0, "a", "b")))


def test_batch_norm_in_training_mode_is_refused_by_name(tensors):
    X, y = tensors
    net = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    with pytest.raises(ValueError, match=r"model has BatchNorm1d in training mode.*call model\.eval\(\)"):
        minimize(net, logistic, (X, y))
    assert minimize(net.eval(), logistic, (X, y), max_epochs=1).epochs == 1


def test_shapes_that_are_stretched_to_each_other_are_named(tensors):
    X, y = tensors
    net = nn.Linear(6, 1).double()
    for targets in (y, torch.ones_like(y)):  # also where the first and the last sample cannot tell
        with pytest.raises(ValueError, match=r"\[2\]\).*input size \(torch\.Size\(\[2, 1\]\).*target\[:, None\]"):
            minimize(net, F.mse_loss, (X, targets))
    with pytest.raises(ValueError, match=r"outputs of shape \(2, 1\) and targets of shape \(2,\) .*target\[:, None\]"):
        minimize(net, lambda outputs, target: (outputs - target).square().mean(), (X, y))
    assert minimize(net, F.mse_loss, (X, y[:, None])).success


def test_the_learning_rate_by_its_usual_name():
    parameters = [nn.Parameter(torch.ones(2))]
    assert trsvr.torch.TRSVR(parameters, lr=0.25).param_groups[0]["lr"] == 0.25
    with pytest.raises(ValueError, match="alpha must be given, once"):
        trsvr.torch.TRSVR(parameters)
    with pytest.raises(ValueError, match=r"alpha must be given, once.*alpha=0\.1, lr=0\.2"):
        trsvr.torch.TRSVR(parameters, 0.1, lr=0.2)
