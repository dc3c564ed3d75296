"""Random rows: a function of seed and epoch alone, however they are taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trsvr
from trsvr._draws import generator
from trsvr.engine.draws import RowSource


def reference(seed, epoch, n, size):
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch]))).integers(n, size=size)


@given(
    seed=st.integers(0, 2**70),
    epoch=st.integers(0, 10_000),
    n=st.one_of(st.integers(1, 1000), st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40])),
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=8),
)
def test_slices_are_one_call(seed, epoch, n, lengths):
    """Odd lengths too: Philox hands out 32-bit halves, and none may be lost between two slices."""
    rng = generator(seed, epoch)
    taken = np.concatenate([rng.integers(n, size=length) for length in lengths])
    assert (taken == reference(seed, epoch, n, sum(lengths))).all()


@given(batch_size=st.integers(1, 40), steps=st.integers(1, 300))
def test_the_source_hands_out_whole_batches_of_the_epoch(batch_size, steps):
    source = RowSource(5, 1234)
    for epoch in (0, 3):  # the second one in slices of other lengths
        source.begin(epoch, float("inf"))
        slices = list(source.slices(batch_size, steps))
        assert all(piece.size % batch_size == 0 for piece in slices)
        assert (np.concatenate(slices) == reference(5, epoch, 1234, batch_size * steps)).all()


def test_rows_are_uniform():
    counts = np.bincount(reference(0, 0, 7, 70_000), minlength=7)
    assert (np.abs(counts - 10_000) < 500).all()


@pytest.mark.parametrize("solver", [trsvr.TRSVR(5.0, 30, 7), trsvr.SVRG(0.1, 30, 7)], ids=["trsvr", "svrg"])
def test_same_seed_same_result_to_the_last_bit(convex, solver):
    problem, _ = convex
    first, again, other = (
        trsvr.minimize(problem, solver, max_epochs=4, tol=None, seed=seed) for seed in (7, np.int64(7), 8)
    )
    assert (first.x == again.x).all()
    assert (first.trace.drop(columns="seconds").iloc[1:] == again.trace.drop(columns="seconds").iloc[1:]).any().any()
    assert (first.trace["value"] == again.trace["value"]).all()
    assert (first.x != other.x).any()
