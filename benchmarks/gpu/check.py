"""Every check that needs a CUDA device, without pytest: ``python benchmarks/gpu/check.py``.

The Triton kernels against the plain torch path (float64 data to 1e-12, float32 data to 1e-6), same seed and same
bits, sums of Jacobians against those of the host, offsets and families, columns far from zero, whole solves, no growth
of memory over a thousand solves.
tests/pytorch/test_torch_gpu.py runs the same functions. With ``--sanitize`` only small launches are made: for
``compute-sanitizer python benchmarks/gpu/check.py --sanitize``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import host_only  # noqa: F401  # must come before trsvr

import numpy as np
import scipy.sparse
import torch

import trsvr
import trsvr.torch
from trsvr import problems
from trsvr._draws import Draws
from trsvr.parts.norms import DenseNorm
from trsvr.torch import LinearModel
from trsvr.torch.linear.sums import Runs

LOSSES = (
    problems.Logistic(),
    problems.SquaredHinge(),
    problems.Squared(),
    problems.PseudoHuber(0.7),
    problems.Softmax(),
)
FAMILIES = (
    problems.Poisson(),
    problems.Gamma(),
    problems.Tweedie(1.4),
    problems.NegativeBinomial(0.5),
    problems.Binomial(),
)
PENALTY = problems.L2(1e-3) + problems.DoubleWell(1e-3, 0.5)


def toy(loss, n, p, dtype, sparse, seed=0):
    """Rows of uneven scale, and labels that suit the loss."""
    rng = np.random.default_rng([seed, n, p])
    X = rng.normal(size=(n, p)) * np.logspace(-1, 0.5, p)
    if sparse:
        X[rng.random((n, p)) > 0.3] = 0.0
        X[:, 0] = rng.normal(size=n)  # one full column, which is cut into pieces
        X[n // 2] = 0.0
    X = X.astype(dtype)
    score = X @ rng.normal(size=p) + rng.logistic(size=n)
    if isinstance(loss, problems.Softmax):
        y = np.digitize(score, np.quantile(score, [0.3, 0.6, 0.8]))
    elif isinstance(loss, problems.Squared | problems.PseudoHuber):
        y = score
    else:
        y = np.where(score > 0, 1.0, -1.0)
    return (scipy.sparse.csr_array(X) if sparse else X), y, rng


def pair(loss, n, p, dtype, sparse, intercept, weighted, device):
    """The same problem twice: plain torch and fused."""
    X, y, rng = toy(loss, n, p, dtype, sparse)
    weight = rng.integers(0, 3, n).astype(float) if weighted else None
    options = {"device": device, "intercept": intercept, "sample_weight": weight}
    plain = LinearModel(X, y, loss, PENALTY, **options, fused=False)
    fused = LinearModel(X, y, loss, PENALTY, **options, fused=True)
    return plain, fused, rng


def near(found, wanted, tolerance, what):
    """Largest deviation relative to the largest entry."""
    found, wanted = (np.asarray(a.cpu() if isinstance(a, torch.Tensor) else a, dtype=float) for a in (found, wanted))
    error = np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-300)
    assert np.isfinite(found).all(), f"{what}: not finite"
    assert error <= tolerance, f"{what}: relative deviation {error:.2e} > {tolerance:.0e}"


def check_sums(loss, n, p, dtype, sparse, intercept, weighted, device):
    """Every sum of the fused path against the plain one."""
    plain, fused, rng = pair(loss, n, p, dtype, sparse, intercept, weighted, device)
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    a, b = plain.sums, fused.sums
    x, v = (plain.to_device(0.5 * rng.normal(size=plain.n_parameters)) for _ in range(2))
    n = plain.n_samples
    for raised in (False, True):
        near(b.total_curvature(x, raised), a.total_curvature(x, raised), tolerance, "curvature")
        near(b.product(x, v, raised), a.product(x, v, raised), tolerance, "product")
        near(b.diagonal(x, raised), a.diagonal(x, raised), tolerance, "diagonal")
        near(b.matrices(x, raised), a.matrices(x, raised), tolerance, "matrix of all rows")
    for name, found, wanted in zip(("value", "gradient", "curvature"), b.evaluate(x), a.evaluate(x), strict=True):
        near(found, wanted, tolerance, name)
    host = b.evaluate_host(x.cpu().numpy())
    near(host[1], a.evaluate(x)[1], tolerance, "gradient on the host")
    near(host[0], a.evaluate(x)[0], tolerance, "value on the host")
    for length in (1, 8):
        runs = Runs(torch.from_numpy(rng.integers(n, size=20)).to(x.device), length)
        near(b.matrices(x, False, runs), a.matrices(x, False, runs), tolerance, "sampled matrix")
        for found, wanted in zip(b.changes(x, v, runs), a.changes(x, v, runs), strict=True):
            near(found, wanted, tolerance, "changes")
        if hasattr(b, "spread") and dtype == np.float32:
            starts = b.spread(21, length, 99)
            late = starts - torch.arange(21, device=x.device, dtype=torch.float64) * (n / 21)
            assert -b.phases_of(length) < float(late.min()) <= float(late.max()) < n / 21, "runs are not spread"
            for cut in ((21, length), None):
                found = b.matrix_host(x.cpu().numpy(), False, cut, 99)
                wanted = a.matrices(x, False, None if cut is None else Runs(starts, length))
                near(found, wanted[0], tolerance, "matrix on the host")
    batch = rng.integers(n, size=33)
    near(fused.batch_gradient(v.cpu(), batch), plain.batch_gradient(v.cpu(), batch), tolerance, "batch gradient")
    again = b.evaluate(x)
    assert torch.equal(again[1], b.evaluate(x)[1]), "same input, other bits"
    assert again[0] == b.evaluate(x)[0], "same input, other bits"


def check_line(loss, n, p, dtype, intercept, weighted, device):
    """Derivatives along a step, at its end, against plain torch; all rows are looked at."""
    plain, fused, rng = pair(loss, n, p, dtype, False, intercept, weighted, device)
    here, there = fused.curvature_view(), plain.curvature_view()
    x, step = 0.5 * rng.normal(size=(2, plain.n_parameters))
    _, gradient = here.evaluate(x)
    slope, curvature, rows = here.line(x, gradient, step)
    assert rows == plain.n_samples, f"{rows} rows"
    _, wanted = there.evaluate(x + step)
    bend = there.product(step) + plain.penalty.curvatures(x + step) * step
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    near(slope, wanted @ step, tolerance, "slope")
    near(curvature, bend @ step, tolerance, "curvature")


def check_variants(dtype, intercept, device, n=200_001, p=7):
    """Full passes in other shapes, against plain torch."""
    plain, fused, rng = pair(problems.Logistic(), n, p, dtype, False, intercept, False, device)
    if not hasattr(fused.sums, "cut"):
        return
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    x = plain.to_device(rng.normal(size=plain.n_parameters))
    wanted = plain.sums.evaluate(x)
    usual = fused.sums.shape

    def look(shape):
        fused.sums.cut(shape)
        for what, a, b in zip(("value", "gradient", "curvature"), fused.sums.evaluate(x), wanted, strict=True):
            near(a, b, tolerance, f"{what} by {shape}")
        near(fused.sums.evaluate_host(x.cpu().numpy())[1], wanted[1], tolerance, f"gradient on the host by {shape}")

    for change in (
        {},
        {"rows": 32, "warps": 1},
        {"rows": 128, "warps": 4},
        {"rows": 32, "warps": 4},  # more threads than rows, more rows in a sweep than in a tile
    ):
        look(usual._replace(**change))
    from trsvr.torch.linear import fused as module  # several products of factors in one program

    kept, module._CHUNK = module._CHUNK, 2
    try:
        look(usual._replace(programs=1))
    finally:
        module._CHUNK = kept


def check_inner_steps(loss, dtype, device, n=5000, p=9, intercept=True, weighted=True):
    """Inner steps on the device against the same steps on the host."""
    plain, fused, rng = pair(loss, n, p, dtype, False, intercept, weighted, device)
    n, d = plain.n_samples, plain.n_parameters
    at = 0.1 * rng.normal(size=d)
    view = plain.curvature_view()
    _, gradient = view.evaluate(at)
    norm = DenseNorm(view.blocks(n, Draws(0, 0))[0][0], np.abs(plain.penalty.curvatures(at)) + 1e-6)
    inverse, factor, count, length, most, key = norm.plain_inverse(), 0.7, 40, 16, 4, 12345
    start = at - factor * inverse @ gradient
    arguments = (at, start, gradient, fused.sums.stands_for(norm), fused.penalty.cubic, factor)
    found, steps = fused.sums.inner_steps(*arguments, (count, length, most), key)
    x, made = start, 0
    for step in range(most):
        starts = fused.sums.starts(step, count, length, key)
        assert 0 <= int(starts.min()) <= int(starts.max()) < n, "a run begins outside the data"
        halves = plain.sums.changes(plain.to_device(at), plain.to_device(x), Runs(starts, length))
        one, two = (half.cpu().numpy() / (count // 2 * length) for half in halves)
        estimate = gradient + 0.5 * (one + two) + plain.penalty.slopes(x) - plain.penalty.slopes(at)
        error = 0.5 * (one - two)
        if not error @ inverse @ error <= 0.3 * (estimate @ inverse @ estimate):
            break
        x = x - factor * inverse @ estimate
        made += 1
    assert steps == made, f"{steps} steps on the device, {made} on the host"
    near(found, x, 1e-10 if dtype == np.float64 else 1e-6, "x after the inner steps")
    again = fused.sums.inner_steps(*arguments, (count, length, most), key)
    assert again[1] == steps, "same key, another number of steps"
    assert np.array_equal(again[0], found), "same key, other bits"
    assert fused.sums.inner_steps(*arguments, (count, length, 1), key)[1] == min(made, 1)


def check_solve(loss, dtype, sparse, intercept, device, n=20_000, p=11):
    """Whole solves: fused and plain reach the same minimiser; the same seed gives the same bits."""
    plain, fused, _ = pair(loss, n, p, dtype, sparse, intercept, True, device)
    results = [trsvr.minimize(problem, seed=3) for problem in (plain, fused, fused)]
    for result in results:
        assert result.success, result.message
    near(results[1].value, results[0].value, 1e-11, "minimum")
    assert np.array_equal(results[1].x, results[2].x), "same seed, other bits"


def check_paper_solver(device):
    """TRSVR with a number for alpha runs over the plain protocol."""
    plain, fused, _ = pair(problems.Logistic(), 500, 6, np.float64, False, False, False, device)
    for hessian in ("identity", "exact"):
        solver = trsvr.TRSVR(alpha=0.1, batch_size=50, inner_steps=10, hessian=hessian)
        a, b = (trsvr.minimize(problem, solver, max_epochs=3, tol=None) for problem in (plain, fused))
        near(b.x, a.x, 1e-9, hessian)


def check_streamed(device, memory, n=30_000, p=12):
    """Data passed through in blocks, some of them or none or all staying, give what data on the device give."""
    X, y, rng = toy(problems.Logistic(), n, p, np.float32, False)
    whole = LinearModel(X, y, problems.Logistic(), problems.L2(1e-4), device=device)
    parts = LinearModel(X, y, problems.Logistic(), problems.L2(1e-4), device=device, streamed=7000, memory=memory)
    resident = 0 if parts.sums.resident is None else parts.sums.resident.n_rows
    assert resident == min(n, memory // (4 * p + 1)), f"{resident} rows stay on the device"
    x, v = rng.normal(size=p), rng.normal(size=p)
    near(parts.value_and_gradient(x)[1], whole.value_and_gradient(x)[1], 1e-12, "gradient")
    near(parts.hessian_product(x, None, v), whole.hessian_product(x, None, v), 1e-12, "product")
    a, b = trsvr.minimize(whole), trsvr.minimize(parts)
    assert a.success, a.message
    assert b.success, b.message
    near(b.value, a.value, 1e-11, "minimum")
    assert np.array_equal(b.x, trsvr.minimize(parts).x), "same seed, other bits"


def check_outputs(dtype, intercept, weighted, device, n=30_000, p=70, classes=12, solves=True):
    """Several outputs: answers beside the plain sums, a whole solve beside the host's, the same bits twice."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=n)
    X = (0.4 * rng.normal(size=(classes, p))[y] + rng.normal(size=(n, p))).astype(dtype)
    options = {"intercept": intercept, "sample_weight": rng.uniform(0.5, 2.0, size=n) if weighted else None}
    there = LinearModel(X, y, problems.Softmax(), problems.L2(1e-4), device=device, **options)
    here = LinearModel(X, y, problems.Softmax(), problems.L2(1e-4), device="cpu", **options)
    view, sums = there.curvature_view(), here.sums
    x, v = 0.1 * rng.normal(size=(2, there.n_parameters))
    value, gradient = view.evaluate(x)
    wanted = here.value_and_gradient(x)
    near(value, wanted[0], 1e-13, "value")
    near(gradient, wanted[1], 1e-11, "gradient")
    at, along = torch.from_numpy(x), torch.from_numpy(v)
    digits = 1e-11 if dtype == np.float64 else 5e-3  # products of float32 rows are made in TF32
    near(view.product(v), sums.product(at, along).numpy() / n, digits, "product")
    near(view.diagonal(), sums.diagonal(at).numpy() / n, digits, "diagonal")
    near(view.shared(), sums.matrices(at).mean(0).numpy() / n, digits, "shared matrix")
    if not solves:
        return
    first, second, host = trsvr.minimize(there), trsvr.minimize(there), trsvr.minimize(here)
    assert first.success, first.message
    assert host.success, host.message
    assert (first.x == second.x).all(), "two runs differ"
    near(first.value, host.value, 1e-11, "minimum")


def check_wide(device, n=20_000, p=600):
    """Wide dense rows: the minimum that the host finds, the same bits twice."""
    X, y, _ = toy(problems.Logistic(), n, p, np.float32, False)
    there, here = (LinearModel(X, y, problems.Logistic(), problems.L2(1e-4), device=place) for place in (device, "cpu"))
    assert type(there.curvature_view()).__name__ == "WideTensorView"
    first, second, host = trsvr.minimize(there), trsvr.minimize(there), trsvr.minimize(here)
    assert first.success, first.message
    assert host.success, host.message
    assert (first.x == second.x).all(), "two runs differ"
    near(first.value, host.value, 1e-11, "minimum")


def check_beside_host(loss, dtype, sparse, device, n=20_000, p=11):
    """With an offset, weights and an intercept: answers and the minimum beside those on the host, the same bits twice.

    Losses of positive numbers need small margins: X is scaled, labels are drawn about their means.
    """
    X, y, rng = toy(loss, n, p, dtype, sparse)
    outputs = len(np.unique(y)) if isinstance(loss, problems.Softmax) else 1
    offset = 0.3 * rng.normal(size=(n, outputs))
    if isinstance(loss, tuple(map(type, FAMILIES))):
        X = (0.2 * X).astype(dtype)
        mean = np.exp(X @ rng.normal(size=p) + offset[:, 0])
        y = rng.poisson(mean).astype(float)
        if isinstance(loss, problems.Gamma):
            y = mean * rng.gamma(2.0, 0.5, size=n)
        elif isinstance(loss, problems.Binomial):
            y = rng.binomial(4, mean / (1.0 + mean)) / 4.0
    options = {"intercept": True, "sample_weight": rng.uniform(0.5, 2.0, size=n), "offset": offset}
    there, here = (LinearModel(X, y, loss, problems.L2(1e-4), device=place, **options) for place in (device, "cpu"))
    x, v = 0.2 * rng.normal(size=(2, here.n_parameters))
    for what, found, wanted in zip(
        ("value", "gradient"), there.value_and_gradient(x), here.value_and_gradient(x), strict=True
    ):
        near(found, wanted, 1e-12, what)
    batch = rng.integers(n, size=33)
    near(there.batch_gradient(x, batch), here.batch_gradient(x, batch), 1e-12, "batch gradient")
    near(there.hessian_product(x, None, v), here.hessian_product(x, None, v), 1e-12, "product")
    first, second, host = trsvr.minimize(there), trsvr.minimize(there), trsvr.minimize(here)
    assert first.success, first.message
    assert host.success, host.message
    assert (first.x == second.x).all(), "two runs differ"
    near(first.value, host.value, 1e-11, "minimum")


def check_far(loss, dtype, deviations, p, device, n=20_000, **options):
    """Columns whose means are so many deviations from zero: the minimum that centred columns have on the host.

    Every third column stays where it is. The point is carried into centred coordinates in extended precision.
    """
    rng = np.random.default_rng([n, p])
    scale = np.logspace(-2, 2, p)
    far = np.where(np.arange(p) % 3 == 2, 0.0, deviations * scale * rng.choice([-1.0, 1.0], size=p))
    X = (rng.normal(size=(n, p)) * scale + far).astype(dtype)
    centred = X.astype(np.float64) - far
    score = (centred / scale) @ rng.normal(size=p) / math.sqrt(p) + rng.logistic(size=n)
    y = score if isinstance(loss, problems.Squared | problems.PseudoHuber) else np.where(score > 0.0, 1.0, -1.0)
    penalty = problems.L2(1e-6)
    there = LinearModel(X, y, loss, penalty, device=device, intercept=True, **options)
    here = LinearModel(centred, y, loss, penalty, device="cpu", intercept=True)
    found, truth = trsvr.minimize(there), trsvr.minimize(here)
    assert found.success, found.message
    assert truth.success, truth.message
    assert found.epochs <= 2 * truth.epochs + 5, f"{found.epochs} epochs, {truth.epochs} where columns are centred"
    x = found.x.astype(np.longdouble)
    x[-1] += far.astype(np.longdouble) @ x[:-1]
    gap = here.value_and_gradient(x.astype(np.float64))[0] / truth.value - 1.0
    assert gap <= 1e-10, f"relative gap {gap:.1e} in centred coordinates"
    assert np.array_equal(found.x, trsvr.minimize(there).x), "same seed, other bits"


def check_memory(device, solves=1000):
    """No growth over a thousand solves."""
    X, y, _ = toy(problems.Logistic(), 2000, 8, np.float32, False)
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(1e-3), device=device)
    for _ in range(20):
        trsvr.minimize(problem)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(solves):
        trsvr.minimize(problem)
    for _ in range(20):  # problems that come and go, with their graphs
        trsvr.minimize(LinearModel(X, y, problems.Logistic(), problems.L2(1e-3), device=device))
    torch.cuda.synchronize()
    after = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    assert after[0] <= before[0] + 2**20, f"allocated memory grew from {before[0]} to {after[0]} bytes"
    assert after[1] <= before[1] + 2**25, f"reserved memory grew from {before[1]} to {after[1]} bytes"


def check_least_squares(layers, device):
    """Sums of J on the device against those of the host, and a fit there against one here."""
    random = np.random.default_rng(0)
    inputs = torch.from_numpy(random.uniform(-1.0, 1.0, size=(2500, layers[0])))
    targets = torch.sin(3.0 * inputs.sum(dim=1, keepdim=True) + torch.arange(float(layers[-1])))

    def net():
        torch.manual_seed(0)
        parts = [part for a, b in itertools.pairwise(layers) for part in (torch.nn.Linear(a, b), torch.nn.Tanh())]
        return torch.nn.Sequential(*parts[:-1]).double()

    here, there = (trsvr.torch.ModelResiduals(net().to(to), (inputs, targets)) for to in ("cpu", device))
    x = here.start()
    residuals = here.residuals_at(x)
    np.testing.assert_allclose(there.residuals_at(x), residuals, rtol=1e-12, atol=1e-13)
    of_host, of_device = (problem.squares(x, residuals, True) for problem in (here, there))
    np.testing.assert_allclose(of_device.matrix, of_host.matrix, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(of_device.gradient, of_host.gradient, rtol=1e-9, atol=1e-12)
    options = {"weight_decay": 1e-4, "max_epochs": 30}
    ends = [trsvr.torch.least_squares(net().to(to), (inputs, targets), **options) for to in ("cpu", device, device)]
    assert ends[1].value < 0.1 * ends[1].rows[0]["value"]
    assert abs(ends[1].value - ends[0].value) <= 0.05 * ends[0].value
    np.testing.assert_array_equal(ends[1].x, ends[2].x)


def all_checks(device="cuda", small=False):
    """(name, function) of every check."""
    sizes = ((257, 5),) if small else ((257, 5), (3001, 28), (1500, 40), (900, 37), (700, 150), (600, 301))
    for loss, dtype, sparse, (n, p) in itertools.product(LOSSES, (np.float64, np.float32), (False, True), sizes):
        for intercept, weighted in ((False, False), (True, True)):
            name = f"sums {type(loss).__name__} {np.dtype(dtype)} {n}x{p} sparse={sparse} {intercept} {weighted}"
            yield (
                name,
                lambda loss=loss, n=n, p=p, dtype=dtype, sparse=sparse, intercept=intercept, weighted=weighted: (
                    check_sums(loss, n, p, dtype, sparse, intercept, weighted, device)
                ),
            )
    if not small:  # rows whose length is no multiple of 16 bytes, enough of them for samples of whole lines
        for dtype, p, intercept in ((np.float32, 27, True), (np.float32, 54, False), (np.float64, 27, False)):
            name = f"sums Logistic {np.dtype(dtype)} 70003x{p} {intercept}"
            yield (
                name,
                lambda dtype=dtype, p=p, intercept=intercept: check_sums(
                    LOSSES[0], 70_003, p, dtype, False, intercept, intercept, device
                ),
            )
    for loss, dtype, p in itertools.product(LOSSES[:4], (np.float64, np.float32), (100, 250, 500)):
        if small and p > 100:
            continue
        name = f"along a line {type(loss).__name__} {np.dtype(dtype)} {p}"
        yield name, lambda loss=loss, dtype=dtype, p=p: check_line(loss, 640, p, dtype, p == 100, False, device)
    for dtype, intercept in ((np.float32, False), (np.float64, True)):
        name = f"variants {np.dtype(dtype)} {intercept}"
        yield name, lambda dtype=dtype, intercept=intercept: check_variants(dtype, intercept, device)
    kinds = (
        ("few", 9, True, 5000), ("few plain", 12, False, 5000), ("few, odd", 37, True, 5000),
        ("many rows, odd", 27, True, 70_003),
    )  # fmt: skip
    for loss, dtype, (kind, p, extras, n) in itertools.product(LOSSES[:4], (np.float64, np.float32), kinds):
        name = f"inner steps {type(loss).__name__} {np.dtype(dtype)} {kind}"
        yield (
            name,
            lambda loss=loss, dtype=dtype, p=p, extras=extras, n=n: check_inner_steps(
                loss, dtype, device, n, p, extras, extras
            ),
        )
    for layers in ((3, 8, 2), (3, 16, 16, 1)):
        name = f"least squares, net {'-'.join(map(str, layers))}"
        yield name, lambda layers=layers: check_least_squares(layers, device)
    if small:  # rows in phases, matrices in tiles, several outputs
        for p, extras in ((27, True), (27, False), (70, True), (70, False)):
            name = f"sums Logistic float32 257x{p} {extras}"
            yield (
                name,
                lambda p=p, extras=extras: check_sums(LOSSES[0], 257, p, np.float32, False, extras, extras, device),
            )
        for extras in (True, False):
            yield (
                f"outputs, float32, 13 columns, 3 classes, {extras}",
                lambda extras=extras: check_outputs(np.float32, extras, extras, device, 300, 13, 3, solves=False),
            )
        return
    for loss, sparse in itertools.product(LOSSES, (False, True)):
        name = f"solve {type(loss).__name__} sparse={sparse}"
        yield name, lambda loss=loss, sparse=sparse: check_solve(loss, np.float32, sparse, sparse, device)
    yield "paper's solver", lambda: check_paper_solver(device)
    for loss, sparse, p in ((LOSSES[0], False, 120), (LOSSES[0], True, 120), (LOSSES[3], True, 80)):
        name = f"solve {type(loss).__name__} sparse={sparse} {p} columns"
        yield name, lambda loss=loss, sparse=sparse, p=p: check_solve(loss, np.float32, sparse, True, device, 40_000, p)
    yield "wide rows", lambda: check_wide(device)
    for memory in (0, 400_000, 10**9):
        yield f"streamed, {memory} bytes stay", lambda memory=memory: check_streamed(device, memory)
    for dtype, intercept, weighted in ((np.float32, True, False), (np.float32, False, True), (np.float64, True, True)):
        for p, classes in ((70, 12), (130, 12), (13, 3), (33, 30)):
            name = f"outputs, {dtype.__name__}, {p} columns, {classes} classes, {intercept} {weighted}"
            yield (
                name,
                lambda d=dtype, i=intercept, w=weighted, p=p, k=classes: check_outputs(d, i, w, device, p=p, classes=k),
            )
    for loss, dtype, sparse in itertools.product((*LOSSES, *FAMILIES), (np.float32, np.float64), (False, True)):
        if not (sparse and dtype == np.float32):
            name = f"offset {type(loss).__name__} {np.dtype(dtype)} sparse={sparse}"
            yield name, lambda loss=loss, dtype=dtype, sparse=sparse: check_beside_host(loss, dtype, sparse, device)
    for dtype, deviations, p in itertools.product((np.float32, np.float64), (50, 1e4, 1e6), (9, 54, 120, 600)):
        loss = LOSSES[p % 4]
        name = f"far from zero {type(loss).__name__} {np.dtype(dtype)} {p} columns, {deviations:g} deviations"
        yield name, lambda loss=loss, t=dtype, k=deviations, p=p: check_far(loss, t, k, p, device)
    for dtype in (np.float32, np.float64):
        name = f"far from zero, streamed, {np.dtype(dtype)}"
        options = {"streamed": 7000, "memory": 400_000}
        yield name, lambda dtype=dtype, options=options: check_far(LOSSES[0], dtype, 1e5, 12, device, **options)
    yield "memory over a thousand solves", lambda: check_memory(device)


def run(arguments) -> dict:
    """The checks that were asked for, one after the other."""
    begun, passed, failed, left = time.perf_counter(), 0, [], 0
    first, jobs = arguments.part
    if jobs > 1:
        torch.set_num_threads(1)
    chosen = [pair for pair in all_checks(small=arguments.sanitize) if arguments.match in pair[0]]
    for name, check in chosen[first::jobs]:
        if time.perf_counter() - begun > arguments.seconds:
            left += 1
            continue
        started = time.perf_counter()
        try:
            check()
            passed += 1
        except Exception as error:
            failed.append(name)
            lines = traceback.format_exc().splitlines()
            print(f"FAILED {name}: {str(error)[:300]}\n    " + "\n    ".join(lines[-7:-1]), flush=True)
        if time.perf_counter() - started > 20.0:
            print(f"slow: {name} took {time.perf_counter() - started:.1f} s", flush=True)
    return {"passed": passed, "failed": failed, "not begun": left, "seconds": time.perf_counter() - begun}


def run_in_processes(jobs: int) -> dict:
    """The same, shared out: what takes time is compiling kernels, which a process does one at a time."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for k in range(jobs):
            place = Path(folder) / str(k)
            command = [sys.executable, __file__, *sys.argv[1:], "--jobs", "1", "--part", str(k), str(jobs)]
            processes.append((place, subprocess.Popen([*command, "--out", str(place)])))
        found = {"passed": 0, "failed": [], "not begun": 0}
        for place, process in processes:
            process.wait()
            written = list(place.glob("*.json"))
            part = json.loads(written[0].read_text()) if written else {"failed": [f"process ended: {place.name}"]}
            for key in found:
                found[key] += part.get(key, 0 if key != "failed" else [])
    return found | {"seconds": time.perf_counter() - begun}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sanitize", action="store_true", help="small launches only")
    parser.add_argument("--match", default="", help="only checks whose name contains this")
    parser.add_argument("--seconds", type=float, default=500.0, help="begin no further check after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the checks")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help=argparse.SUPPRESS)
    parser.add_argument("--out", help="folder for check.json")
    arguments = parser.parse_args()
    if arguments.jobs > 1:
        found = run_in_processes(arguments.jobs)
    else:
        found = run(arguments)
    print(f"{found['passed']} passed, {len(found['failed'])} failed, {found['not begun']} not begun, "
          f"{found['seconds']:.0f} s", flush=True)  # fmt: skip
    if arguments.out:
        from common import write  # beside this file

        options = [option for option in sys.argv[1:] if option not in ("--out", arguments.out)]
        write(found | {"options": options}, arguments.out, "sanitize" if arguments.sanitize else "check")
    return 1 if found["failed"] or found["not begun"] else 0


if __name__ == "__main__":
    sys.exit(main())
