"""The adaptive mode with rows on the workers: same path with one block, same minimiser with several, few rounds."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from small import LENGTHS, classification, cut

import endings
import trsvr
import trsvr.dask
from trsvr import problems
from trsvr._draws import Draws
from trsvr.dask.subspace import build_subspace
from trsvr.parts.norms import DiagonalNorm
from trsvr.parts.subproblems import Exit
from trsvr.problems.curvature import MarginView
from trsvr.problems.output_curvature import OutputView
from trsvr.problems.views import Coming


def models(client, lengths, sparse=False, d=9, **options):
    X, y = classification(sum(lengths), d, sparse=sparse)
    there = trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), client=client, **options)
    return there, problems.LinearModel(X, y, **options)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
def test_one_block_takes_the_same_path(client, sparse, monkeypatch):
    monkeypatch.setattr("trsvr.problems.small_views.is_smooth", lambda loss: False)  # on a cluster no step is stretched
    there, here = models(client, [14_000], sparse)
    there.rows_worth = 140_000  # all the inner steps that there are in memory
    # Asked for, inner steps are always made; left to the method, a run in memory has fewer than one on a cluster.
    results = [trsvr.minimize(one, trsvr.TRSVR(inner_steps=10), seed=2) for one in (there, here)]
    assert results[1].trace["inner_steps"].max() > 1  # inner steps were made, on rows that came here
    # Near the end the run in memory may turn to products with the whole Hessian, which would be a round each there.
    traces = [result.trace.drop(columns="seconds")[:5] for result in results]
    np.testing.assert_allclose(*traces, rtol=1e-6, atol=1e-18)
    assert results[0].value == pytest.approx(results[1].value, rel=1e-11)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
@pytest.mark.parametrize("count", [3, 8])
def test_blocks_give_the_same_minimiser_in_two_rounds(client, count, sparse):
    there, here = models(client, [20 * length for length in LENGTHS[count]], sparse)
    rounds = []
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(there, callback=lambda _: rounds.append(traffic.counts().rounds))
    assert result.success
    assert rounds[0] == 1
    assert result.trace["inner_steps"].max() > 1
    assert max(np.diff(rounds)) <= 2
    assert result.value == pytest.approx(trsvr.minimize(here).value, rel=1e-11)


def test_refused_steps_and_far_starts_keep_to_two_rounds(client):
    """From afar curvatures are raised, steps refused and samples made again: each iteration still takes two rounds."""
    there, here = models(client, LENGTHS[3])
    start = np.full(9, 40.0)
    rounds = []
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(there, x0=start, callback=lambda _: rounds.append(traffic.counts().rounds))
    assert result.trace["rejected"].sum() > 0
    assert max(np.diff(rounds)) <= 2
    assert result.success
    assert result.value == pytest.approx(trsvr.minimize(here, x0=start).value, rel=1e-11)


def test_a_batch_too_large_to_travel_is_summed_where_it_lies(client):
    there, here = models(client, [20 * length for length in LENGTHS[3]])
    there.rows_worth = 0
    with trsvr.dask.Traffic(client) as traffic:
        rounds = []
        result = trsvr.minimize(there, callback=lambda _: rounds.append(traffic.counts().rounds))
        moved = traffic.counts()
    assert result.success
    assert max(np.diff(rounds)) <= 2
    assert result.trace["inner_steps"].max() == 2  # one inner step, in the second round
    assert moved.largest < 8 * 9 * 10 * 2 + 2000  # the curvature matrix is the largest thing that travels: no rows
    assert result.value == pytest.approx(trsvr.minimize(here).value, rel=1e-11)


def assert_same_curvatures(far, near, x, v, tolerance):
    """At x, plain and raised; both views are left raised."""
    assert far.evaluate(x, Coming("diagonal", raised=True))[0] == pytest.approx(near.evaluate(x)[0])
    for raised in (False, True):
        if raised:
            assert far.raise_curvatures(1.0, 0.0) == pytest.approx(near.raise_curvatures(1.0, 0.0))
        assert far.total_weight() == pytest.approx(near.total_weight())
        np.testing.assert_allclose(far.product(v), near.product(v), atol=tolerance)
        np.testing.assert_allclose(far.diagonal(), near.diagonal(), atol=tolerance)
        if isinstance(near, MarginView):
            whole = [view.blocks(700, Draws(0, 0))[0] for view in (far, near)]
            np.testing.assert_allclose(whole[0], whole[1], atol=tolerance)


def test_the_view_of_several_outputs_agrees_with_the_one_in_memory(client):
    lengths = [100, 350, 250]
    X, margins = classification(700, 6)[0], np.random.default_rng(2).normal(size=700)
    y = np.digitize(margins + X[:, 0], [-0.5, 0.5])
    there = trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), loss=problems.Softmax(), client=client)
    here = problems.LinearModel(X, y, problems.Softmax())
    far, near = there.curvature_view(), OutputView(here)
    x, v = 3.0 * np.random.default_rng(4).normal(size=(2, 18))
    assert_same_curvatures(far, near, x, v, 1e-12)


def test_the_view_agrees_with_the_one_in_memory(client):
    """All members, at one point, against the view in memory; weights of zero included."""
    lengths = [100, 350, 250]
    X, y = classification(700, 6)
    weights = np.random.default_rng(1).integers(0, 3, size=700).astype(float)
    there = trsvr.dask.LinearModel(
        cut(X, lengths), cut(y, lengths), intercept=True, sample_weight=cut(weights, lengths), client=client
    )
    here = problems.LinearModel(X, y, intercept=True, sample_weight=weights)
    far, near = there.curvature_view(), MarginView(here)
    rng = np.random.default_rng(4)
    x, moved, v = rng.normal(size=(3, 7))
    assert_same_curvatures(far, near, x, v, 1e-13)
    # Raised after the round, the diagonal is what the sample here says of it.
    late = there.curvature_view()
    late.evaluate(x)
    assert late.raise_curvatures(1.0, 0.0) == pytest.approx(far.raise_curvatures(1.0, 0.0))
    np.testing.assert_allclose(late.diagonal(), near.diagonal(), rtol=0.3)
    for worth in (10**6, 0):  # rows travel; sums travel
        far.problem.rows_worth = worth
        far.problem.pool.begin(None)
        for seed in range(4):  # some of the runs wrap around the end of the rows
            changes = [view.changes(moved, 90, False, Draws(seed, 0), 0) for view in (far, near)]
            assert changes[0][2] == changes[1][2]
            for half in (0, 1):
                np.testing.assert_allclose(changes[0][half], changes[1][half], atol=1e-13)
            far.problem.pool.begin(None)


def test_a_sampled_matrix_is_right_on_average(client):
    there, here = models(client, LENGTHS[3])
    view, exact = there.curvature_view(), MarginView(here)
    x = np.linspace(-0.5, 0.5, 9)
    view.evaluate(x)
    exact.evaluate(x)
    samples = [view.blocks(200, Draws(0, epoch)) for epoch in range(30)]
    assert np.mean([taken for _, taken in samples]) == pytest.approx(200, rel=0.1)
    mean, spread = np.mean([s for s, _ in samples], axis=0), np.std([s for s, _ in samples], axis=0)
    true = exact.blocks(700, Draws(0, 0))[0]
    assert np.abs(mean - true).max() < 5 * spread.max() / np.sqrt(30)


def classes(count):
    """Rows and labels of three classes."""
    X, _ = classification(count, 6)
    rng = np.random.default_rng(8)
    return X, (X @ rng.normal(size=(6, 3)) + rng.gumbel(size=(count, 3))).argmax(axis=1)


@pytest.mark.parametrize("case", ["diagonal, dense", "diagonal, CSR", "identity, dense", "softmax", "softmax, no rows"])
def test_without_a_matrix_two_rounds_are_enough(client, case):
    """Conjugate gradients on rows that are here, products with the whole Hessian in the second round."""
    norm = case.split(",")[0] if "softmax" not in case else "auto"
    lengths = [20 * length for length in LENGTHS[3]]
    if "softmax" in case:
        X, y = classes(sum(lengths))
        options = {"loss": problems.Softmax(), "intercept": True}
    else:
        X, y = classification(sum(lengths), 40, sparse="CSR" in case)
        options = {"regularizer": problems.L2(1e-3)}
    # Else few rows of several outputs would all come here.
    most = sum(lengths) - 1 if "softmax" in case else None
    there = trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), client=client, rows_at_once=most, **options)
    here = problems.LinearModel(X, y, **options)
    if "no rows" in case:
        there.rows_worth = 0  # no sample: directions from the diagonal, and the last steps
    rounds = []
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(
            there,
            trsvr.TRSVR(norm=norm),
            callback=lambda _: rounds.append(traffic.counts().rounds),
        )
        moved = traffic.counts()
    assert result.success
    assert rounds[0] == (2 if there.intercept else 1)  # the columns' means
    assert max(np.diff(rounds)) <= 2
    assert result.value == pytest.approx(trsvr.minimize(here, tol=1e-10).value, rel=2e-12)
    # The rows that come here to stay are at most a quarter, and they come once.
    size = sum(part.nbytes for part in (X.data, X.indices)) if "CSR" in case else X.nbytes
    vectors = 8 * there.n_parameters * 16 * result.epochs
    assert moved.to_caller < (0 if "no rows" in case else 0.4 * size) + vectors


@pytest.mark.parametrize("count", [1, 3, 8])
def test_few_rows_of_several_outputs_come_here_and_are_as_in_memory(client, count):
    """In one round: the bits are those of the model in memory, whatever the blocks are, and so is the certificate."""
    lengths = LENGTHS[count]
    X, y = classes(sum(lengths))
    options = {"loss": problems.Softmax(), "regularizer": problems.L2(1e-6), "intercept": True}
    there = trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), client=client, **options)
    here = problems.LinearModel(X, y, **options)
    with trsvr.dask.Traffic(client) as traffic:
        results = [trsvr.minimize(one) for one in (there, here)]
        assert traffic.counts().rounds == 1
    assert results[0].status is trsvr.Status.CONVERGED
    assert np.array_equal(results[0].x, results[1].x)
    assert results[0].gap_bound == results[1].gap_bound
    assert results[0].gap_bound < 1e-10
    np.testing.assert_array_equal(*[result.trace.drop(columns="seconds") for result in results])
    assert trsvr.theory.gap_bound(there, results[0].x) == trsvr.theory.gap_bound(here, results[1].x)


def test_few_rows_come_with_their_weights_and_offset_and_only_if_they_may(client):
    lengths, rng = LENGTHS[3], np.random.default_rng(6)
    X, y = classes(sum(lengths))
    weights, offset = rng.integers(3, size=y.size).astype(float), rng.normal(size=(y.size, 3))
    given = [cut(array, lengths) for array in (X, y)]
    shared = {"loss": problems.Softmax(), "regularizer": problems.L2(1e-4), "intercept": True}
    own = {"sample_weight": cut(weights, lengths), "offset": cut(offset, lengths), "client": client}
    here = trsvr.minimize(problems.LinearModel(X, y, sample_weight=weights, offset=offset, **shared))
    for most in (None, 100):
        there = trsvr.dask.LinearModel(*given, **shared, **own, rows_at_once=most)
        with trsvr.dask.Traffic(client) as traffic:
            result = trsvr.minimize(there)
            assert (traffic.counts().rounds == 1) == (most is None)
        assert result.success
        assert result.value == pytest.approx(here.value, rel=1e-11)


def test_wide_rows_that_are_few_come_here_too(client):
    """With one output: where a matrix would cost too much."""
    X, y = classification(120, 2500)
    options = {"regularizer": problems.L2(1e-3), "intercept": True}
    there = trsvr.dask.LinearModel(cut(X, [70, 50]), cut(y, [70, 50]), client=client, **options)
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(there)
        assert traffic.counts().rounds == 1
    assert np.array_equal(result.x, trsvr.minimize(problems.LinearModel(X, y, **options)).x)


def far_columns(count, outputs):
    """Columns up to 10⁴ deviations from zero, one of them the sum of two others."""
    rng = np.random.default_rng(12)
    Z = rng.normal(size=(count, 5))
    Z[:, 4] = Z[:, 0] + Z[:, 1]
    y = (Z @ rng.normal(size=(5, outputs)) + rng.gumbel(size=(count, outputs))).argmax(axis=1)
    return Z + np.array([0.0, 3.0, -100.0, 1e4, 5.0]), y


def test_the_diagonal_of_columns_far_from_zero_is_about_their_means(client):
    """By the rows that are here: no digits are left in that of rows as they are."""
    lengths = [20 * length for length in LENGTHS[3]]
    X, y = far_columns(sum(lengths), 3)
    there = trsvr.dask.LinearModel(
        cut(X, lengths), cut(y, lengths), problems.Softmax(), intercept=True, client=client, rows_at_once=3000
    )
    centred = there.for_run().centred()
    view, means = centred.curvature_view(), X.mean(axis=0)
    W = np.random.default_rng(1).normal(size=(6, 3))
    view.evaluate(centred.frame.inside(np.vstack([W[:5], W[5] - means @ W[:5]]).ravel()), Coming("diagonal"))
    margins = (X - means) @ W[:5] + W[5]
    chances = np.exp(margins - margins.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    curvatures = chances * (1.0 - chances)
    true = ((X - centred.frame.means) ** 2).T @ curvatures / len(y)
    np.testing.assert_allclose(view.diagonal().reshape(6, 3)[:5], true, rtol=0.2)
    result = trsvr.minimize(there)
    assert result.success
    assert result.epochs < 25
    here = trsvr.minimize(problems.LinearModel(X, y, problems.Softmax(), intercept=True))
    assert result.value == pytest.approx(here.value, rel=1e-11)


def test_a_matrix_of_all_rows_is_about_the_columns_means(client):
    X, y = far_columns(200, 2)
    X = X + 1e6
    there = trsvr.dask.LinearModel(cut(X, [120, 80]), cut(y, [120, 80]), intercept=True, client=client)
    centred = there.for_run().centred()
    view = centred.curvature_view()
    view.evaluate(np.zeros(6))
    found, taken = view.blocks(200, Draws(0, 0))
    rows = np.column_stack([X - centred.frame.means, np.ones(200)])
    assert taken == 200
    np.testing.assert_allclose(found[0], rows.T @ rows / 800, rtol=1e-11, atol=1e-14)


# Softmax: 0.1 above a minimum of 0.04 after 1000 iterations; a "rounding floor" 1e-7 above it. One output: columns 10³
# deviations from zero, and fewer rows than these.
@pytest.mark.parametrize("number", [39799, 17818, 64568])
def test_endings_that_were_wrong(client, monkeypatch, number):
    monkeypatch.setattr(endings, "_client", lambda: client)
    wrong, story = endings.check("grown", number)
    assert "by dask" in story
    assert not set(wrong) - endings.HARMLESS, story


def test_dependent_columns_of_rows_that_stay_there(client, monkeypatch):
    """Directions that only the penalty sees are in the space of a step: 1e-7 above the minimum was a "floor"."""
    case = endings.grown(26948)
    monkeypatch.setattr(endings, "_client", lambda: client)
    monkeypatch.setattr(trsvr.dask, "LinearModel", partial(trsvr.dask.LinearModel, rows_at_once=len(case.labels) - 1))
    wrong, story = endings.check("grown", 26948)
    assert not set(wrong) - endings.HARMLESS, story


def test_far_starts_and_weights_keep_to_two_rounds_without_a_matrix(client):
    """Curvatures are raised, steps refused; one block has no row that counts."""
    X, y = classification(700, 20, sparse=True)
    weights = np.random.default_rng(1).integers(0, 3, size=700).astype(float)
    weights[100:450] = 0.0
    options = {"sample_weight": cut(weights, LENGTHS[3])}
    there = trsvr.dask.LinearModel(cut(X, LENGTHS[3]), cut(y, LENGTHS[3]), client=client, **options)
    here = problems.LinearModel(X, y, sample_weight=weights)
    assert there.n_blocks == 2
    rounds = []
    with trsvr.dask.Traffic(client) as traffic:
        result = trsvr.minimize(
            there,
            trsvr.TRSVR(norm="diagonal"),
            x0=np.full(20, 10.0),
            callback=lambda _: rounds.append(traffic.counts().rounds),
        )
    assert result.success
    assert result.trace["rejected"].sum() > 0
    assert max(np.diff(rounds[1:])) <= 2  # before: the gradient at zero, the scale of the tolerance
    assert result.value == pytest.approx(trsvr.minimize(here, tol=1e-10).value, rel=2e-12)


def test_the_space_for_a_step_against_dense_algebra(client):
    """Basis, products and minimiser of one step, with NumPy's own Hessian."""
    X, y = classification(700, 15)
    there = trsvr.dask.LinearModel(cut(X, LENGTHS[3]), cut(y, LENGTHS[3]), client=client)
    view = there.curvature_view()
    x = np.linspace(-0.3, 0.3, 15)
    _, gradient = view.evaluate(x)
    p = 1.0 / (1.0 + np.exp(-X @ x))
    losses = X.T @ (X * (p * (1 - p))[:, None]) / 700
    penalty = view.penalty_curvatures(x)
    np.testing.assert_allclose(view.diagonal(), np.diagonal(losses), atol=1e-14)
    norm = DiagonalNorm(np.diagonal(losses) + penalty)
    earlier = np.random.default_rng(0).normal(size=(2, 15))
    request = SimpleNamespace(gradient=gradient, norm=norm, penalty=penalty, earlier=earlier)
    space = build_subspace(request, view._pool.held.at(x, False), view.diagonal(), view.product)
    hessian = losses + np.diag(penalty)
    np.testing.assert_allclose(space.images, space.basis @ hessian, atol=1e-13)
    np.testing.assert_allclose((space.basis * norm.diagonal) @ space.basis.T, np.eye(len(space.basis)), atol=1e-12)
    for wanted in (*earlier, gradient / norm.diagonal):  # they lie in the space
        inside = (space.basis @ (norm.diagonal * wanted)) @ space.basis
        np.testing.assert_allclose(inside, wanted, atol=1e-9 * np.abs(wanted).max())
    newton = np.linalg.solve(hessian, -gradient)
    free = space.step(1e10)
    assert free.exit is Exit.TOLERANCE
    np.testing.assert_allclose(space.basis @ (gradient + hessian @ free.step), 0.0, atol=1e-13)
    assert free.predicted(gradient) <= 0.5 * -gradient @ newton
    # 15 dimensions, about nine directions: most of Newton's decrease, and what is left is known roughly.
    left = 0.5 * -gradient @ newton - free.predicted(gradient)
    assert left < 0.05 * free.predicted(gradient)
    assert 0.3 * left < space.left(free) < 3.0 * left
    short = space.step(0.1 * free.length)
    assert short.exit is Exit.BOUNDARY
    assert np.sqrt(norm.diagonal @ short.step**2) == pytest.approx(0.1 * free.length)
    # Lagrange: −(g + Hp) is a positive multiple of Pp within the space.
    slopes = space.basis @ (gradient + hessian @ short.step)
    metric = space.basis @ (norm.diagonal * short.step)
    assert -slopes @ metric > 0
    np.testing.assert_allclose(slopes, (slopes @ metric) / (metric @ metric) * metric, atol=1e-10)


def test_a_matrix_for_every_output_needs_rows_in_memory(client):
    X, y = classes(60)
    there = trsvr.dask.LinearModel(cut(X, [20, 40]), cut(y, [20, 40]), problems.Softmax(), client=client)
    with pytest.raises(ValueError, match="norm 'dense' with several outputs needs the rows in memory"):
        trsvr.minimize(there, trsvr.TRSVR(norm="dense"))


def test_nonconvex_runs_leave_the_saddle(client):
    X, y = classification(400, 5)
    options = {"regularizer": problems.L2(0.1) + problems.DoubleWell(10 * 0.1 * 5, 0.5)}
    there = trsvr.dask.LinearModel(cut(X, [150, 250]), cut(y, [150, 250]), client=client, **options)
    results = [trsvr.minimize(one) for one in (there, problems.LinearModel(X, y, **options))]
    assert results[0].success
    assert results[0].gradient_norm < 1e-8
    assert results[0].value == pytest.approx(results[1].value, rel=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_an_offset_is_that_of_the_model_in_memory(client, outputs):
    lengths = LENGTHS[3]
    rng = np.random.default_rng(5)
    X, y = classification(sum(lengths), 5)
    loss = problems.Logistic() if outputs == 1 else problems.Softmax()
    y = y if outputs == 1 else rng.integers(3, size=y.size)
    offset, weights = rng.normal(size=(y.size, outputs)), rng.integers(3, size=y.size).astype(float)
    options = {"loss": loss, "intercept": True}
    here = problems.LinearModel(X, y, sample_weight=weights, offset=offset, **options)
    given = [cut(array, lengths) for array in (X, y, weights, offset)]
    there = trsvr.dask.LinearModel(*given[:2], sample_weight=given[2], offset=given[3], client=client, **options)
    x, v = rng.normal(size=(2, here.n_parameters))
    for found, wanted in zip(there.value_and_gradient(x), here.value_and_gradient(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)
    some = rng.integers(here.n_samples, size=9)
    np.testing.assert_allclose(there.batch_gradient(x, some), here.batch_gradient(x, some), atol=1e-12)
    np.testing.assert_allclose(there.hessian_product(x, None, v), here.hessian_product(x, None, v), atol=1e-12)
    assert trsvr.minimize(there).value == pytest.approx(trsvr.minimize(here).value, rel=1e-11)
    assert there.fingerprint() != trsvr.dask.LinearModel(*given[:2], client=client, **options).fingerprint()


def test_a_wrong_offset_is_named_with_its_row(client):
    lengths = LENGTHS[3]
    X, y = classification(sum(lengths), 5)
    offset = np.zeros(y.size)
    offset[lengths[0] + 2] = np.inf
    with pytest.raises(ValueError, match=f"offset must be finite, got inf at row {lengths[0] + 2} "):
        trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), offset=cut(offset, lengths), client=client)
    two = np.zeros((y.size, 2))
    with pytest.raises(ValueError, match="offset must have 1 numbers for each row of X, got 2"):
        trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), offset=cut(two, lengths), client=client)
    with pytest.raises(ValueError, match="offset must have one entry for each"):
        trsvr.dask.LinearModel(cut(X, lengths), cut(y, lengths), offset=np.zeros(3), client=client)
