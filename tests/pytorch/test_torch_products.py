"""Curvature products against dense Hessians from autograd, on small nets in float64."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call
from torch.nn import functional as F

from trsvr.torch.closures import Surroundings, call
from trsvr.torch.parameters import Flat
from trsvr.torch.processes import Processes
from trsvr.torch.products import Batch


class Tied(nn.Module):
    """One matrix twice: an autoencoder with tied weights, and a parameter that is never used."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 3), nn.Linear(3, 4)
        self.outer.weight = nn.Parameter(torch.empty(0))  # replaced by the same tensor, seen from the other side
        del self.outer.weight
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return F.linear(torch.tanh(self.inner(x)), self.inner.weight.T, self.outer.bias)


NETS = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 1, 2, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(9, 3)
    ),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Sigmoid(), nn.Linear(3, 3)),
    "relu": lambda: nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)
    ),  # some entries of ∇² are no graph at all
    "linear": lambda: nn.Linear(4, 3),
    "tied": Tied,
}


def setting(name, loss="cross entropy"):
    torch.manual_seed(3)
    net = NETS[name]().double()
    X = torch.randn(9, 4, dtype=torch.double)
    if name == "tied":
        y, criterion = X, F.mse_loss
    elif loss == "cross entropy":
        y, criterion = torch.arange(9) % 3, F.cross_entropy
    else:
        y, criterion = torch.randn(9, 3, dtype=torch.double), F.mse_loss
    flat = Flat(list(net.parameters()), [0] * len(list(net.parameters())))
    return net, X, y, criterion, flat


def batch_of(net, X, y, criterion, flat, pieces=1):
    def closure(rows):
        outputs = net(X[rows])
        return criterion(outputs, y[rows]), outputs

    parts = torch.arange(len(X)).tensor_split(pieces)
    closures = [lambda rows=rows: closure(rows) for rows in parts]
    surroundings = Surroundings(flat.device)
    return Batch(flat, closures, [len(rows) for rows in parts], Processes(None), surroundings)


def as_function(net, flat):
    """Outputs as a function of x, without any of our code."""
    names = [name for name, _ in net.named_parameters()]
    shapes = [parameter.shape for parameter in net.parameters()]

    def outputs(x, X):
        pieces = x.split([shape.numel() for shape in shapes])
        values = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return functional_call(net, values, (X,))

    return outputs


def dense(net, X, y, criterion, flat):
    """∇²f and JᵀH_ℓJ as matrices."""
    outputs, x = as_function(net, flat), flat.read()
    H = hessian(lambda x: criterion(outputs(x, X), y), x)
    J = jacobian(lambda x: outputs(x, X), x).reshape(-1, len(x))
    out = outputs(x, X).detach()
    L = hessian(lambda out: criterion(out, y), out).reshape(out.numel(), out.numel())
    return H, J.T @ L @ J


@pytest.mark.parametrize("loss", ["cross entropy", "squared"])
@pytest.mark.parametrize("name", NETS)
def test_products_equal_dense_matrices(name, loss):
    parts = setting(name, loss)
    x = parts[-1].read()
    products = {}
    for kind in ("exact", "gauss-newton", "estimated"):
        pieces = 1 if name == "batch norm" else 3  # batch norm couples the samples of a batch
        for count in {1, pieces}:
            _, product = batch_of(*parts, pieces=count).gradient_and_curvature(kind)
            products[kind, count] = torch.stack([product(unit) for unit in torch.eye(len(x), dtype=x.dtype)])
    H, G = dense(*parts)
    assert torch.equal(parts[-1].read(), x)
    scale = H.abs().max()
    for (kind, _), matrix in products.items():
        wanted, tolerance = (G, 1e-12) if kind == "gauss-newton" else (H, 1e-12 if kind == "exact" else 1e-6)
        if name == "relu" and kind == "estimated":
            tolerance = 1e-5
        assert (matrix - wanted).abs().max() <= tolerance * scale, kind
    assert torch.linalg.eigvalsh(products["gauss-newton", 1]).min() > -1e-10 * scale
    if name == "mlp":
        assert torch.linalg.eigvalsh(products["exact", 1]).min() < -1e-4 * scale  # truly indefinite


@pytest.mark.parametrize("kind", ["exact", "gauss-newton", "estimated", "identity"])
def test_gradients_equal_backward(kind):
    net, X, y, criterion, flat = setting("mlp")
    for pieces in (1, 4):
        evaluated, _ = batch_of(net, X, y, criterion, flat, pieces).gradient_and_curvature(kind)
        net.zero_grad()
        loss = criterion(net(X), y)
        loss.backward()
        assert torch.allclose(evaluated.gradient, flat.join([p.grad for p in flat.tensors]), rtol=1e-12, atol=1e-14)
        assert evaluated.loss == pytest.approx(float(loss.detach()), rel=1e-14)


def test_several_outputs_share_one_gauss_newton_matrix():
    torch.manual_seed(0)
    first, second = nn.Linear(3, 2).double(), nn.Linear(2, 1).double()
    flat = Flat([*first.parameters(), *second.parameters()], [0] * 4)
    X = torch.randn(7, 3, dtype=torch.double)

    def both():
        hidden = torch.tanh(first(X))
        return hidden * 1.5, second(hidden).exp()

    def loss_of(a, b):
        return (a**4).mean() + (b.sin() * a.sum(1, keepdim=True)).mean()

    def closure():
        outputs = both()
        return loss_of(*outputs), outputs

    batch = Batch(flat, [closure], [7], Processes(None), Surroundings(flat.device))
    _, product = batch.gradient_and_curvature("gauss-newton")
    matrix = torch.stack([product(unit) for unit in torch.eye(11, dtype=torch.double)])

    # Columns of J by plain autograd, one output number at a time; H_ℓ likewise.
    outputs = torch.cat([output.reshape(-1) for output in both()])
    rows = [torch.autograd.grad(output, flat.tensors, retain_graph=True, allow_unused=True) for output in outputs]
    J = torch.stack([flat.join(row) for row in rows])
    L = hessian(lambda out: loss_of(out[:14].view(7, 2), out[14:].view(7, 1)), outputs.detach())
    assert torch.allclose(matrix, J.T @ L @ J, rtol=1e-10, atol=1e-12)

    def one_from_the_other():
        hidden = torch.tanh(first(X))
        outputs = hidden, second(hidden).exp()
        return loss_of(*outputs), outputs

    batch = Batch(flat, [one_from_the_other], [7], Processes(None), Surroundings(flat.device))
    with pytest.raises(ValueError, match="must not depend on one another"):
        batch.gradient_and_curvature("gauss-newton")


def test_no_graph_outlives_its_step():
    """Without the garbage collector: reference counts alone must free what a step has built."""
    net, X, y, criterion, flat = setting("mlp")
    seen = []

    def closure():
        outputs = net(X)
        loss = criterion(outputs, y)
        seen.extend([weakref.ref(loss), weakref.ref(outputs)])
        return loss, outputs

    gc.collect()
    gc.disable()
    try:
        for kind in ("exact", "gauss-newton", "estimated"):
            batch = Batch(flat, [closure], [9.0], Processes(None), Surroundings(flat.device))
            evaluated, product = batch.gradient_and_curvature(kind)
            product(evaluated.gradient)
            assert not evaluated.gradient.requires_grad
            del batch, evaluated, product
            assert seen
            assert all(reference() is None for reference in seen), kind
    finally:
        gc.enable()


def test_what_cannot_be_differentiated_twice_is_said():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise NotImplementedError("derivative for once is not implemented")

    w = nn.Parameter(torch.ones(2))
    flat = Flat([w], [0])
    batch = Batch(flat, [lambda: Once.apply(w).sum()], [1.0], Processes(None), Surroundings(flat.device))
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice.*hessian='estimated'"):
        batch.gradient_and_curvature("exact")


def test_a_loss_of_one_number_in_any_shape():
    w = nn.Parameter(torch.ones(2))
    assert call(lambda: w.sum().reshape(1, 1), [w]).loss.shape == ()
