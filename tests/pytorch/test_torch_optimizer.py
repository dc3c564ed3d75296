"""The optimiser on nets: what torch users have in theirs, and the ways in which two evaluations could differ."""

from __future__ import annotations

import copy
import doctest
import functools
import gc
import io
import math
import random
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import trsvr.torch
from trsvr.torch import TRSVR

HESSIANS = ("exact", "estimated", "gauss-newton", "identity")


def data(n=60, dtype=torch.double):
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(n, 4, dtype=dtype, generator=generator)
    return X, (X[:, :3] + 0.3 * torch.randn(n, 3, dtype=dtype, generator=generator)).argmax(1)


def mlp(*middle, dtype=torch.double):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), *middle, nn.Tanh(), nn.Linear(6, 3)).to(dtype)


def loss_for(net):
    def loss_on_batch(batch):
        outputs = net(batch[0])
        return F.cross_entropy(outputs, batch[1]), outputs

    return loss_on_batch


def batches(size=20, dtype=torch.double, n=60):
    X, y = data(n, dtype)
    return list(zip(X.split(size), y.split(size), strict=True))


def train(net, optimizer, epochs=2, size=20, scheduler=None):
    loss_on_batch, parts = loss_for(net), batches(size, next(net.parameters()).dtype)
    for _ in range(epochs):
        optimizer.set_reference(loss_on_batch, parts)
        for batch in parts:
            optimizer.step(lambda batch=batch: loss_on_batch(batch))
            if scheduler is not None:
                scheduler.step()
    return net


def flat(net):
    return torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])


def plain_gradient(net, batch):
    """By backward, without our code."""
    net.zero_grad()
    F.cross_entropy(net(batch[0]), batch[1]).backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in net.parameters()])
    net.zero_grad()
    return gradient


# ------------------------------------------------------------------------------------------------- the method


@pytest.mark.parametrize("hessian", HESSIANS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_curvature_trains_in_both_precisions(hessian, dtype):
    net = mlp(dtype=dtype)
    loss_on_batch, parts = loss_for(net), batches(dtype=dtype)
    optimizer = TRSVR(net.parameters(), alpha=0.5, hessian=hessian)
    first = optimizer.set_reference(loss_on_batch, parts)
    train(net, optimizer, epochs=10)
    last = optimizer.set_reference(loss_on_batch, parts)
    assert last < 0.6 * first
    assert all(parameter.dtype == dtype for parameter in net.parameters())
    assert first.dtype == last.dtype == dtype


def test_identity_is_svrg_by_hand():
    net, parts = mlp(), batches()
    other = copy.deepcopy(net)
    train(net, TRSVR(net.parameters(), alpha=0.3, hessian="identity", coefficient=0.7), epochs=2)
    for _ in range(2):
        reference = copy.deepcopy(other)
        full = torch.stack([plain_gradient(reference, batch) for batch in parts]).mean(0)
        for batch in parts:
            estimate = plain_gradient(other, batch) - 0.7 * (plain_gradient(reference, batch) - full)
            nn.utils.vector_to_parameters(flat(other) - 0.3 * estimate, other.parameters())
    assert torch.allclose(flat(net), flat(other), rtol=1e-11, atol=1e-13)


def test_unequal_batches_are_weighted_by_their_length():
    net = mlp()
    loss_on_batch = loss_for(net)
    X, y = data()
    uneven = list(zip(X.split([7, 30, 1, 22]), y.split([7, 30, 1, 22]), strict=True))
    optimizer = TRSVR(net.parameters(), alpha=0.1)
    loss = optimizer.set_reference(loss_on_batch, uneven)

    def known():
        return torch.cat([optimizer.state[p]["reference_gradient"].reshape(-1) for p in net.parameters()])

    whole = known()
    assert torch.allclose(whole, plain_gradient(net, (X, y)), rtol=1e-12, atol=1e-15)
    assert float(loss) == pytest.approx(float(F.cross_entropy(net(X), y).detach()), rel=1e-13)
    # in dictionaries and lists too, or by a function
    optimizer.set_reference(lambda b: loss_on_batch(b["pair"]), [{"pair": list(batch)} for batch in uneven])
    assert torch.equal(known(), whole)
    optimizer.set_reference(lambda b: loss_on_batch(b[1]), [(None, b) for b in uneven], size=lambda b: len(b[1][0]))
    assert torch.equal(known(), whole)


@pytest.mark.parametrize("hessian", HESSIANS)
def test_micro_batches_make_the_step_of_the_whole_batch(hessian):
    X, y = data()
    steps = []
    for sizes in ([60], [25, 25, 10]):
        net = mlp()
        loss_on_batch = loss_for(net)
        optimizer = TRSVR(net.parameters(), alpha=3.0, hessian=hessian)
        optimizer.set_reference(loss_on_batch, batches())
        for _ in range(3):
            loss = optimizer.step(loss_on_batch, list(zip(X.split(sizes), y.split(sizes), strict=True)))
        steps.append((flat(net), loss, optimizer.last_step.products))
    tolerance = 1e-6 if hessian == "estimated" else 1e-11
    assert torch.allclose(steps[0][0], steps[1][0], rtol=tolerance, atol=tolerance)
    assert torch.allclose(steps[0][1], steps[1][1])
    assert steps[0][2] == steps[1][2]


def test_groups_with_their_own_alpha_move_like_sgd_while_steps_are_short():
    for hessian in ("identity", "exact"):
        net, batch = mlp(), batches()[0]
        before, gradient = flat(net), plain_gradient(net, batch)
        cut = sum(p.numel() for p in net[0].parameters())
        optimizer = TRSVR(
            [{"params": net[0].parameters(), "alpha": 1e-3}, {"params": net[2].parameters(), "weight_decay": 0.5}],
            alpha=1e-2,
            hessian=hessian,
            coefficient=0.0,
        )
        assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-2]
        optimizer.step(functools.partial(loss_for(net), batch))
        wanted = before - torch.cat([1e-3 * gradient[:cut], 1e-2 * (gradient + 0.5 * before)[cut:]])
        assert torch.allclose(flat(net), wanted, rtol=1e-12, atol=1e-14)


def test_groups_solve_the_scaled_subproblem():
    """A long region: the Newton step, whatever the scale; with one group of α = 0, Newton in the others."""
    X, _ = data()
    y = X @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]], dtype=torch.double) + 1.0
    for alphas, exact in (((1e3, 1e4), True), ((0.0, 1e4), False)):
        net = nn.Linear(4, 1).double()
        start = net.weight.detach().clone()
        optimizer = TRSVR([{"params": [net.weight]}, {"params": [net.bias]}], alpha=1.0, coefficient=0.0, max_cg=200)
        for group, alpha in zip(optimizer.param_groups, alphas, strict=True):
            group["lr"] = alpha
        for _ in range(60):
            optimizer.step(lambda net=net: F.mse_loss(net(X), y))
        if exact:
            assert torch.allclose(net.bias, torch.ones(1, dtype=torch.double), atol=1e-6)
            assert F.mse_loss(net(X), y) < 1e-12
        else:
            assert torch.equal(net.weight, start)
            assert torch.allclose(net.bias, (y - X @ start.T).mean(), atol=1e-6)


def test_schedulers_drive_alpha():
    net = mlp()
    optimizer = TRSVR(net.parameters(), alpha=0.4, hessian="identity")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    train(net, optimizer, epochs=2, scheduler=scheduler)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    report = optimizer.last_step
    assert report.radius == pytest.approx(0.2 * report.gradient_norm)  # the last step was before the last change
    assert report.step_norm == pytest.approx(report.radius)
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=6, cycle_momentum=False)
    train(net, optimizer, epochs=2, scheduler=one_cycle)


def test_the_coefficient_may_follow_a_schedule():
    net = mlp()
    optimizer = TRSVR(net.parameters(), alpha=0.1, coefficient=lambda step: max(0.0, 1.0 - step / 4))
    loss_on_batch, parts = loss_for(net), batches()
    seen, calls = [], []

    def counted(batch):
        calls.append(1)
        return loss_on_batch(batch)

    optimizer.set_reference(loss_on_batch, parts)
    for k in range(6):
        calls.clear()
        optimizer.step(lambda k=k: counted(parts[k % 3]))
        seen.append((optimizer.last_step.coefficient, len(calls)))
    # Two more calls at first: the probe. Without the control variate the reference is not evaluated.
    assert seen == [(1.0, 4), (0.75, 2), (0.5, 2), (0.25, 2), (0.0, 1), (0.0, 1)]
    optimizer.coefficient_schedule = lambda step: -1.0
    with pytest.raises(ValueError, match=r"coefficient must be a finite number >= 0, got -1\.0"):
        optimizer.step(lambda: loss_on_batch(parts[0]))


# --------------------------------------------------------------------------- frozen, shared, buffers, random layers


def test_frozen_parameters_stay_and_thawing_asks_for_a_new_reference():
    net = mlp()
    net[0].weight.requires_grad_(False)
    frozen = net[0].weight.clone()
    optimizer = TRSVR(net.parameters(), alpha=0.5)
    train(net, optimizer)
    assert torch.equal(net[0].weight, frozen)
    assert net[0].weight not in optimizer.state
    net[0].weight.requires_grad_(True)
    loss_on_batch, parts = loss_for(net), batches()
    with pytest.raises(ValueError, match=r"call set_reference.*added or unfrozen"):
        optimizer.step(lambda: loss_on_batch(parts[0]))
    train(net, optimizer)
    assert not torch.equal(net[0].weight, frozen)


def test_shared_parameters_count_once():
    """Tied weights against the same function of one matrix."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    torch.manual_seed(0)
    tied = Tied()
    matrix = nn.Parameter(tied.first.weight.detach().clone())
    biases = [nn.Parameter(layer.bias.detach().clone()) for layer in (tied.first, tied.second)]
    one = TRSVR(tied.parameters(), alpha=1.0)
    other = TRSVR([matrix, *biases], alpha=1.0)
    parts = batches()

    def by_hand(batch):
        hidden = torch.tanh(batch[0] @ matrix.T + biases[0])
        return F.cross_entropy(hidden @ matrix.T + biases[1], batch[1])

    train(tied, one)
    for _ in range(2):
        other.set_reference(by_hand, parts)
        for batch in parts:
            other.step(lambda batch=batch: by_hand(batch))
    assert torch.allclose(tied.second.weight, matrix, rtol=1e-12)
    assert tied.second.weight is tied.first.weight


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("hessian", HESSIANS)
def test_batch_norm_statistics_see_each_batch_once_at_the_parameters(hessian, told):
    net = mlp(nn.BatchNorm1d(6))
    optimizer = TRSVR(net.parameters(), alpha=0.5, hessian=hessian, model=net if told else None)
    parts = batches()

    def loss_on_batch(batch):
        # torch.compile compiles again whenever such a hook appears: with model= there is none.
        assert bool(nn.modules.module._global_forward_pre_hooks) != told
        return loss_for(net)(batch)

    start = [buffer.clone() for buffer in net.buffers()]
    optimizer.set_reference(loss_on_batch, parts)
    assert all(map(torch.equal, net.buffers(), start)), "the full pass leaves no trace"
    twin = copy.deepcopy(net)
    for batch in parts:
        twin.load_state_dict(net.state_dict())
        twin(batch[0])  # what one ordinary forward pass does
        optimizer.step(lambda batch=batch: loss_on_batch(batch))
        assert all(map(torch.equal, net.buffers(), twin.buffers()))
    assert int(net[1].num_batches_tracked) == len(parts)


@pytest.mark.parametrize("hessian", HESSIANS)
def test_dropout_has_one_mask_for_all_evaluations_of_a_step(hessian):
    net = mlp(nn.Dropout(0.5))
    masks = []
    net[1].register_forward_hook(lambda _, given, result: masks.append((result != 0) | (given[0] == 0)))
    optimizer = TRSVR(net.parameters(), alpha=0.5, hessian=hessian)
    loss_on_batch, parts = loss_for(net), batches()
    optimizer.set_reference(loss_on_batch, parts)
    assert not torch.equal(masks[0], masks[1]), "every batch has a mask of its own"
    per_step = []
    for batch in parts:
        masks.clear()
        torch.manual_seed(len(per_step))
        optimizer.step(lambda batch=batch: loss_on_batch(batch))
        after = torch.rand(1)
        assert len(masks) >= 2
        assert all(torch.equal(mask, masks[0]) for mask in masks)
        per_step.append(masks[0])
        # The generator goes on as after one evaluation.
        torch.manual_seed(len(per_step) - 1)
        net(batch[0])
        assert torch.equal(after, torch.rand(1))
    assert not torch.equal(per_step[0], per_step[1])


def test_a_generator_of_ones_own_is_replayed_if_it_is_known():
    net, parts = mlp(), batches()
    generator = torch.Generator().manual_seed(5)

    def noisy(batch):
        noise = torch.randn(batch[0].shape, generator=generator, dtype=torch.double)
        return F.cross_entropy(net(batch[0] + noise), batch[1])

    optimizer = TRSVR(net.parameters(), alpha=0.5, generators=[generator])
    optimizer.set_reference(noisy, parts)
    optimizer.step(lambda: noisy(parts[0]))
    optimizer = TRSVR(net.parameters(), alpha=0.5)
    optimizer.set_reference(noisy, parts)
    with pytest.warns(RuntimeWarning, match=r"not a function of the parameters.*generators="):
        optimizer.step(lambda: noisy(parts[0]))


def test_a_closure_that_draws_its_batch_is_noticed_once():
    net, parts = mlp(), batches()
    loss_on_batch = loss_for(net)
    random.seed(0)
    optimizer = TRSVR(net.parameters(), alpha=0.5)
    optimizer.set_reference(loss_on_batch, parts)
    stream = iter(parts * 10)
    with pytest.warns(RuntimeWarning, match="batch drawn inside the closure"):
        optimizer.step(lambda: loss_on_batch(next(stream)))
    optimizer.step(lambda: loss_on_batch(next(stream)))  # once is enough
    quiet = TRSVR(net.parameters(), alpha=0.5, probe=False)
    quiet.set_reference(loss_on_batch, parts)
    quiet.step(lambda: loss_on_batch(next(stream)))


def test_a_penalty_beside_the_outputs_is_noticed_with_gauss_newton():
    net, parts = mlp(), batches()

    def penalised(batch):
        outputs = net(batch[0])
        return F.cross_entropy(outputs, batch[1]) + 0.1 * net[0].weight.square().sum(), outputs

    optimizer = TRSVR(net.parameters(), alpha=0.5, hessian="gauss-newton", coefficient=0.0)
    with pytest.warns(RuntimeWarning, match="does not come through the outputs.*weight_decay"):
        optimizer.step(lambda: penalised(parts[0]))


def test_spectral_norm_vectors_are_the_same_in_both_evaluations():
    """Buffers that the loss depends on, and that every training-mode evaluation changes."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3)).double()
    optimizer = TRSVR(net.parameters(), alpha=0.5, hessian="identity")
    loss_on_batch, parts = loss_for(net), batches()
    optimizer.set_reference(loss_on_batch, [parts[0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the probe
        optimizer.step(lambda: loss_on_batch(parts[0]))
    # At the reference itself the control variate vanishes but for the drift of those vectors.
    full = plain_gradient(net, parts[0])
    assert optimizer.last_step.gradient_norm == pytest.approx(float(full.norm()), rel=0.5)


# ------------------------------------------------------------------------------------------------ resume and memory


@pytest.mark.parametrize("hessian", HESSIANS)
def test_resume_is_bit_identical(hessian):
    """State through a file, in the middle of an epoch, with dropout, batch norm and a schedule of the coefficient."""

    def build():
        net = mlp(nn.BatchNorm1d(6), nn.Dropout(0.2), dtype=torch.float32)
        return net, TRSVR(net.parameters(), alpha=0.8, hessian=hessian, coefficient=lambda step: 0.9**step)

    def go(net, optimizer, steps):
        loss_on_batch, parts = loss_for(net), batches(dtype=torch.float32)
        for k in steps:
            if k % 5 == 0:
                optimizer.set_reference(loss_on_batch, parts)
            optimizer.step(lambda k=k: loss_on_batch(parts[k % 3]))

    net, optimizer = build()
    go(net, optimizer, range(7))
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}, file)
    go(net, optimizer, range(7, 13))

    again, other = build()
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again.load_state_dict(saved["net"])
    other.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    go(again, other, range(7, 13))
    assert torch.equal(flat(net), flat(again))
    assert all(map(torch.equal, net.buffers(), again.buffers()))
    assert optimizer.last_step == other.last_step


def test_copies_of_the_optimiser_work():
    net = mlp()
    optimizer = TRSVR(net.parameters(), alpha=0.8, hessian="gauss-newton", probe=False)
    train(net, optimizer)
    twin_net, twin = copy.deepcopy((net, optimizer))
    train(net, optimizer)
    train(twin_net, twin)
    assert torch.equal(flat(net), flat(twin_net))
    with pytest.raises(ValueError, match="not one of TRSVR: its groups lack"):
        optimizer.load_state_dict(torch.optim.SGD(net.parameters(), lr=0.1).state_dict())


@pytest.mark.parametrize("hessian", ["exact", "gauss-newton", "estimated"])
def test_memory_does_not_grow_from_step_to_step(hessian):
    """Live tensors, counted without the garbage collector's help."""
    net = mlp()
    loss_on_batch, parts = loss_for(net), batches()
    optimizer = TRSVR(net.parameters(), alpha=0.01, hessian=hessian, probe=False)
    optimizer.set_reference(loss_on_batch, parts)

    def tensors():
        # By their type: to ask a proxy of somebody's for its class fails where that is gone.
        wanted = (torch.Tensor, torch.autograd.graph.Node)
        return sum(1 for thing in gc.get_objects() if issubclass(type(thing), wanted))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # isinstance looks into everybody's deprecated things
        gc.collect()
        gc.disable()
        try:
            for k in range(200):
                optimizer.step(lambda k=k: loss_on_batch(parts[k % 3]))
                if k == 20:
                    early = tensors()
            assert tensors() <= early
        finally:
            gc.enable()


# -------------------------------------------------------------------------------------------- refused with a sentence


def fresh(**options):
    net = mlp()
    optimizer = TRSVR(net.parameters(), **{"alpha": 0.1, **options})
    optimizer.set_reference(loss_for(net), batches())
    return net, optimizer


def test_backward_in_the_closure_is_an_error_that_explains():
    net, optimizer = fresh()
    before, batch = flat(net), batches()[0]

    def usual():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(batch[0]), batch[1])
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"not call backward\(\).*remove loss\.backward\(\)"):
        optimizer.step(usual)
    with pytest.raises(ValueError, match=r"not call backward\(\)"):
        optimizer.set_reference(lambda _: usual(), batches())
    assert torch.equal(flat(net), before)


def test_gradients_of_the_user_are_left_alone():
    net, optimizer = fresh()
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(lambda: loss_for(net)(batches()[0]))
    assert all(bool((parameter.grad == 1).all()) for parameter in net.parameters())


def test_an_exception_in_the_closure_leaves_everything_as_it_was():
    net = mlp(nn.BatchNorm1d(6))
    optimizer = TRSVR(net.parameters(), alpha=0.5, hessian="estimated", probe=False)
    loss_on_batch, parts = loss_for(net), batches()
    optimizer.set_reference(loss_on_batch, parts)
    optimizer.step(lambda: loss_on_batch(parts[0]))
    before, buffers = flat(net), [buffer.clone() for buffer in net.buffers()]
    for fails_at in (1, 2, 3):  # at the reference; at the parameters; in a product
        count = 0

        def closure():
            nonlocal count
            count += 1
            result = loss_on_batch(parts[0])
            if count == fails_at:  # noqa: B023
                raise KeyError("disk")
            return result

        with pytest.raises(KeyError, match="disk"):
            optimizer.step(closure)
        assert torch.equal(flat(net), before)
        assert all(map(torch.equal, net.buffers(), buffers))


BAD_CLOSURES = {
    "a number": (lambda net, batch: 1.0, r"mean loss of its batch, a tensor with one number, got 1\.0"),
    "losses": (
        lambda net, batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none"),
        r"got a tensor of shape \(20,\)",
    ),
    "detached": (lambda net, batch: F.cross_entropy(net(batch[0]), batch[1]).detach(), "loss without a graph"),
    "another model": (lambda net, batch: nn.Linear(4, 1).double()(batch[0]).mean(), "does not depend on any parameter"),
    "detached outputs": (lambda net, batch: (net(batch[0]).mean(), net(batch[0]).detach()), "not detached"),
}


@pytest.mark.parametrize("name", BAD_CLOSURES)
def test_bad_closures(name):
    closure, message = BAD_CLOSURES[name]
    net, optimizer = fresh()
    with pytest.raises(ValueError, match=message):
        optimizer.step(lambda: closure(net, batches()[0]))


def test_bad_arguments():
    net = mlp()
    for options, message in (
        ({"alpha": 0.0}, r"alpha must be a finite number > 0, got 0\.0"),
        ({"hessian": "exakt"}, "hessian must be one of .*did you mean 'exact'"),
        ({"max_cg": 0}, "max_cg must be a whole number >= 1, got 0"),
        ({"coefficient": -1.0}, "coefficient must be a finite number >= 0"),
        ({"weight_decay": "much"}, "weight_decay must be a finite number >= 0, got 'much'"),
        ({"process_group": "all"}, "process_group must be 'auto', None or a process group, got 'all'"),
        ({"process_group": object()}, "torch.distributed is not initialised"),
    ):
        with pytest.raises(ValueError, match=message):
            TRSVR(net.parameters(), **{"alpha": 0.1, **options})
    with pytest.raises(ValueError, match=r"float32 or float64, got torch\.bfloat16"):
        TRSVR(mlp(dtype=torch.bfloat16).parameters(), alpha=0.1)
    with pytest.raises(ValueError, match="one device"):
        TRSVR([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1, device="meta"))], 0.1).set_reference(len, [])
    with pytest.raises(ValueError, match="same in all groups"):
        TRSVR([{"params": net[0].parameters()}, {"params": net[2].parameters(), "max_cg": 3}], alpha=0.1)
    optimizer = TRSVR(net[0].parameters(), alpha=0.1, coefficient=0.0)
    with pytest.raises(ValueError, match="weight_decay must be"):
        optimizer.add_param_group({"params": net[2].parameters(), "weight_decay": -1.0})
    assert len(optimizer.param_groups) == 1
    optimizer.param_groups[0]["lr"] = math.nan  # a scheduler gone wrong
    with pytest.raises(ValueError, match="alpha must be a finite number >= 0, got nan"):
        optimizer.step(lambda: loss_for(net)(batches()[0]))
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # PyTorch 2.2 calls them new
        lazy = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="lazy parameter"):
        TRSVR(lazy.parameters(), alpha=0.1)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        TRSVR(net.parameters(), alpha=0.1).set_reference(len, [])


def test_bad_calls():
    net = mlp()
    loss_on_batch, parts = loss_for(net), batches()
    optimizer = TRSVR(net.parameters(), alpha=0.1)
    with pytest.raises(ValueError, match="there is no reference point yet"):
        optimizer.step(lambda: loss_on_batch(parts[0]))
    with pytest.raises(ValueError, match="closure must be a function"):
        optimizer.step(None)
    with pytest.raises(ValueError, match="loader gave no batch; an iterator is used up"):
        optimizer.set_reference(loss_on_batch, iter(()))
    with pytest.raises(ValueError, match=r"batch size cannot be told from object.*give size="):
        optimizer.set_reference(lambda _: loss_on_batch(parts[0]), [object()])
    with pytest.raises(ValueError, match=r"first tensor of shape \(\)"):
        optimizer.set_reference(lambda _: loss_on_batch(parts[0]), [torch.tensor(1.0)])
    with pytest.raises(ValueError, match="size must return a number > 0"):
        optimizer.set_reference(loss_on_batch, parts, size=lambda batch: 0)
    optimizer.set_reference(loss_on_batch, parts)
    with pytest.raises(ValueError, match="at least one micro-batch"):
        optimizer.step(loss_on_batch, [])
    with pytest.raises(ValueError, match="size must be a function from a micro-batch"):
        optimizer.step(loss_on_batch, parts, size=3)
    newton = TRSVR(net.parameters(), alpha=0.1, hessian="gauss-newton", coefficient=0.0)
    with pytest.raises(ValueError, match=r"let the closure return \(loss, outputs\)"):
        newton.step(lambda: loss_on_batch(parts[0])[0])


def test_a_loss_that_is_not_finite_leaves_the_parameters():
    net, optimizer = fresh()
    before = flat(net)
    with pytest.raises(FloatingPointError, match=r"not finite.*smaller alpha"):
        optimizer.step(lambda: net(batches()[0][0]).sum() * math.inf)
    assert torch.equal(flat(net), before)


def test_sparse_gradients_are_refused():
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = TRSVR(table.parameters(), alpha=0.1)
    with pytest.raises(ValueError, match="sparse=False"):
        optimizer.set_reference(lambda batch: table(batch).square().mean(), [torch.tensor([0, 1])])


def test_autocast_works_inside_the_closure_and_is_refused_around_it():
    net = mlp(dtype=torch.float32)
    parts = batches(dtype=torch.float32)

    def loss_on_batch(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = net(batch[0])
            assert outputs.dtype == torch.bfloat16
            return F.cross_entropy(outputs.float(), batch[1]), outputs

    for hessian in ("exact", "gauss-newton", "identity"):
        optimizer = TRSVR(net.parameters(), alpha=0.3, hessian=hessian)
        first = optimizer.set_reference(loss_on_batch, parts)
        for _ in range(4):
            optimizer.set_reference(loss_on_batch, parts)
            for batch in parts:
                optimizer.step(lambda batch=batch: loss_on_batch(batch))
        assert optimizer.set_reference(loss_on_batch, parts) < first
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ValueError, match=r"put torch\.autocast inside the closure"):
            optimizer.step(lambda: loss_on_batch(parts[0]))
        with pytest.raises(ValueError, match=r"put torch\.autocast inside the closure"):
            optimizer.set_reference(loss_on_batch, parts)
    estimated = TRSVR(net.parameters(), alpha=0.3, hessian="estimated", coefficient=0.0)
    with pytest.raises(ValueError, match="autocast's rounding drowns"):
        estimated.step(lambda: loss_on_batch(parts[0]))


def test_the_loop_of_the_documentation_with_a_loader():
    net = mlp(dtype=torch.float32)
    loader = DataLoader(TensorDataset(*data(dtype=torch.float32)), batch_size=16, shuffle=True)
    full_loader = DataLoader(TensorDataset(*data(dtype=torch.float32)), batch_size=32)

    def loss_on_batch(batch):
        return F.cross_entropy(net(batch[0]), batch[1])

    optimizer = trsvr.torch.TRSVR(net.parameters(), alpha=0.5)
    losses = []
    for _ in range(8):
        losses.append(float(optimizer.set_reference(loss_on_batch, full_loader)))
        for batch in loader:
            optimizer.step(lambda batch=batch: loss_on_batch(batch))
    assert losses[-1] < 0.5 * losses[0]


def test_the_example_in_the_docstring():
    done = doctest.testmod(sys.modules[TRSVR.__module__])
    assert done.attempted > 5
    assert not done.failed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("hessian", HESSIANS)
def test_cuda_walks_like_the_cpu(hessian):
    walks = []
    for device in ("cpu", "cuda"):
        net = mlp(nn.BatchNorm1d(6)).to(device)
        parts = [tuple(part.to(device) for part in batch) for batch in batches()]
        loss_on_batch = loss_for(net)
        optimizer = TRSVR(net.parameters(), alpha=0.5, hessian=hessian)
        for _ in range(3):
            optimizer.set_reference(loss_on_batch, parts)
            for batch in parts:
                optimizer.step(functools.partial(loss_on_batch, batch))
        walks.append(flat(net).cpu())
    assert torch.allclose(*walks, rtol=0, atol=1e-5 if hessian == "estimated" else 1e-8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_dropout_is_replayed_and_memory_does_not_grow():
    net = mlp(nn.Dropout(0.5)).cuda()
    masks = []
    handle = net[1].register_forward_hook(lambda _, given, result: masks.append(result != 0))
    parts = [tuple(part.cuda() for part in batch) for batch in batches()]
    loss_on_batch = loss_for(net)
    optimizer = TRSVR(net.parameters(), alpha=0.05)
    optimizer.set_reference(loss_on_batch, parts)
    masks.clear()
    optimizer.step(lambda: loss_on_batch(parts[0]))
    assert all(torch.equal(mask, masks[0]) for mask in masks)
    handle.remove()
    masks.clear()
    for k in range(200):
        optimizer.step(lambda k=k: loss_on_batch(parts[k % 3]))
        if k == 20:
            early = torch.cuda.memory_allocated()
    assert torch.cuda.memory_allocated() <= early
