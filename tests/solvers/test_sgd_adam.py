"""SGD and Adam: PyTorch's steps, schedules, and the plateau that falls with the step."""

from __future__ import annotations

import math
from typing import NamedTuple

import loops
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import trsvr
from trsvr import _compile
from trsvr._draws import generator
from trsvr.parts import Constant, Cosine, InverseTime, StepDecay

START = np.array([0.5, -0.5, 0.3, 0.1, -0.2, 0.4])
B, EPOCHS, SEED = 32, 3, 9

PAIRS = {
    "sgd": (trsvr.SGD(step=0.1, momentum=0.0, batch_size=B), "SGD", {"lr": 0.1}),
    "momentum": (trsvr.SGD(step=0.05, momentum=0.9, batch_size=B), "SGD", {"lr": 0.05, "momentum": 0.9}),
    "adam": (trsvr.Adam(step=0.02, batch_size=B), "Adam", {"lr": 0.02}),
    "adam, other memory": (
        trsvr.Adam(step=0.02, beta1=0.5, beta2=0.9, eps=1e-3, batch_size=B),
        "Adam",
        {"lr": 0.02, "betas": (0.5, 0.9), "eps": 1e-3},
    ),
    "cosine": (trsvr.SGD(step=0.1, batch_size=B, schedule=Cosine(2.5, 0.1)), "SGD", {"lr": 0.1, "momentum": 0.9}),
}


def our_iterates(problem, solver):
    state = solver.init(problem, START.copy())
    steps = math.ceil(problem.n_samples / B)
    iterates = []
    for epoch in range(EPOCHS):
        rows = loops.Stepwise(state, generator(SEED, epoch).integers(problem.n_samples, size=steps * B))
        solver.epoch(problem, state, rows)
        iterates += rows.iterates
    return np.array(iterates)


def torch_iterates(torch, X, y, name, options, factor):
    """The same batches through torch.optim, gradients by autograd."""
    A, labels = torch.tensor(X), torch.tensor(y)
    w = torch.tensor(START, requires_grad=True)
    optimizer = getattr(torch.optim, name)([w], **options)
    steps = math.ceil(len(y) / B)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(step / steps))
    iterates = []
    for epoch in range(EPOCHS):
        for batch in generator(SEED, epoch).integers(len(y), size=steps * B).reshape(steps, B):
            optimizer.zero_grad()
            loss = torch.nn.functional.softplus(-labels[batch] * (A[batch] @ w)).mean() + 0.5 * 1e-2 * (w @ w)
            loss.backward()
            optimizer.step()
            schedule.step()
            iterates.append(w.detach().numpy().copy())
    return np.array(iterates)


@pytest.mark.parametrize("name", PAIRS)
def test_every_step_is_torchs(data, convex, name):
    torch = pytest.importorskip("torch")
    solver, theirs, options = PAIRS[name]
    problem, oracle = convex
    schedule = getattr(solver, "schedule", "constant")
    factor = (lambda epochs: 1.0) if isinstance(schedule, str) else schedule.factor
    expected = torch_iterates(torch, *data, theirs, options, factor)
    assert expected.shape == (EPOCHS * 13, 6)
    assert_allclose(our_iterates(problem, solver), expected, rtol=0, atol=1e-10)
    assert_allclose(our_iterates(loops.plain(oracle), solver), expected, rtol=0, atol=1e-10)


def test_minimize_takes_those_very_steps(convex):
    problem, _ = convex
    solver = PAIRS["adam"][0]
    result = trsvr.minimize(problem, solver, x0=START, max_epochs=EPOCHS, tol=None, seed=SEED)
    last = our_iterates(problem, solver)[-1]
    assert result.trace["value"].iloc[-1] == pytest.approx(problem.value_and_gradient(last)[0], rel=1e-13)
    assert (result.trace["gradient_evaluations"] == result.trace["epoch"] * 13 * B).all()


def test_schedules_are_their_formulas():
    epochs = np.array([0.0, 0.5, 10.0, 29.99, 30.0, 75.0, 100.0, 250.0])
    assert [Constant().factor(e) for e in epochs] == [1.0] * 8
    assert_allclose([InverseTime(0.5).factor(e) for e in epochs], 1 / (1 + 0.5 * epochs))
    assert_allclose([StepDecay(0.5, 30).factor(e) for e in epochs], [1, 1, 1, 1, 0.5, 0.25, 0.125, 0.5**8])
    assert_allclose([Cosine(100, 0.2).factor(e) for e in (0.0, 50.0, 100.0, 300.0)], [1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(("kind", "step"), [(trsvr.SGD, 0.02), (trsvr.Adam, 0.02)])
def test_constant_steps_plateau_at_a_level_that_falls_with_the_step(convex, kind, step):
    problem, oracle = convex
    best = scipy.optimize.minimize(oracle.value, np.zeros(6), jac=oracle.gradient, tol=1e-12).fun
    levels = []
    for size in (step, step / 5):
        gaps = [
            trsvr.minimize(problem, kind(step=size, batch_size=10), max_epochs=120, tol=None, seed=seed)
            .trace["value"]
            .to_numpy()
            - best
            for seed in range(3)
        ]
        earlier, later = (np.median([gap[part] for gap in gaps]) for part in (slice(40, 80), slice(80, None)))
        assert later > 1e-7, "it converges: no plateau"
        assert 1 / 2 < later / earlier < 2, "still falling"
        levels.append(later)
    assert levels[1] < levels[0] / 2


def test_a_falling_step_leaves_the_plateau(convex):
    problem, _ = convex
    constant, falling = (
        trsvr.minimize(problem, trsvr.SGD(step=0.02, batch_size=10, schedule=schedule), max_epochs=150, tol=None)
        for schedule in ("constant", InverseTime(0.5))
    )
    last = [result.trace["gradient_norm_sq"][-20:].median() for result in (constant, falling)]
    assert last[1] < last[0] / 10


class Halving(NamedTuple):
    """A schedule of the user's own."""

    every: float = 1.0

    def factor(self, epochs):
        return 0.5 ** math.floor(epochs / self.every)


class Plain:
    """One that is no record."""

    def factor(self, epochs):
        return 0.5 ** math.floor(epochs)


def test_schedules_of_ones_own(convex, monkeypatch):
    """A NamedTuple is compiled, and what is compiled from outside the package is not kept as the package's own."""
    problem, _ = convex
    outside = []
    compile_one = _compile._compile
    monkeypatch.setattr(
        _compile, "_dispatcher", lambda function, *own: outside.append(own) or compile_one(function, *own)
    )
    theirs = our_iterates(problem, trsvr.SGD(step=0.1, batch_size=B, schedule=Halving()))
    assert outside
    assert all(own == (Halving,) for own in outside)
    monkeypatch.undo()
    assert_allclose(our_iterates(problem, trsvr.SGD(step=0.1, batch_size=B, schedule=Plain())), theirs, atol=1e-12)
    named = our_iterates(problem, trsvr.SGD(step=0.1, batch_size=B, schedule=StepDecay(0.5, 1.0)))
    assert_allclose(named, theirs, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trsvr.SGD(step=0.0), "step must be a finite number > 0, got 0.0"),
        (lambda: trsvr.SGD(momentum=1.0), "momentum must be a number from 0 to below 1, got 1.0"),
        (lambda: trsvr.SGD(schedule="cosin"), "schedule must be one of .* did you mean 'cosine'"),
        (lambda: trsvr.SGD(schedule=Cosine), r"schedule must .* have factor\(epochs\)"),
        (lambda: trsvr.Adam(beta2=1.5), "beta2 must be a number from 0 to below 1, got 1.5"),
        (lambda: trsvr.Adam(eps=-1.0), "eps must be a finite number > 0"),
        (lambda: trsvr.Adam(batch_size=0), "batch_size must be a whole number >= 1, got 0"),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
