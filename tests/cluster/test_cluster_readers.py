"""Readers of data that need not fit into memory, against the same data in memory."""

from __future__ import annotations

import itertools

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from small import classification

import trsvr.dask
from trsvr import problems
from trsvr.dask.ranges import read_range
from trsvr.datasets import DataFileError, read_libsvm, write_libsvm


def same(there, X, y) -> None:
    here = problems.LinearModel(X, y)
    x = np.linspace(-1, 1, here.n_parameters)
    assert there.n_samples == here.n_samples
    assert np.array_equal(there.classes, here.classes)
    first, second = there.value_and_gradient(x), here.value_and_gradient(x)
    assert first[0] == pytest.approx(second[0], rel=1e-13)
    np.testing.assert_allclose(first[1], second[1], atol=1e-13)


def test_parquet(client, tmp_path):
    X, y = classification(500, 4)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=np.where(y, "yes", "no"))
    for part in range(3):
        frame.iloc[part * 180 : (part + 1) * 180].to_parquet(tmp_path / f"part{part}.parquet", row_group_size=60)
    blocks, none = trsvr.dask.read_parquet(tmp_path, "label")
    there = trsvr.dask.LinearModel(blocks, none, client=client)
    assert there.n_blocks >= 3
    same(there, X, frame["label"])
    some, _ = trsvr.dask.read_parquet(tmp_path, "label", columns=["d", "a"])
    same(trsvr.dask.LinearModel(some, client=client), X[:, [3, 0]], frame["label"])
    with pytest.raises(ValueError, match=r"column must be one of .* got 'labl'; did you mean 'label'"):
        trsvr.dask.read_parquet(tmp_path, "labl")


def test_zarr_and_npy_stack(client, tmp_path):
    import zarr

    X, y = classification(500, 6)
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    for name, values, chunks in (("X", X, (130, 4)), ("y", y, (200,))):
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks)[:] = values
    same(trsvr.dask.LinearModel(*trsvr.dask.read_zarr(tmp_path / "data.zarr"), client=client), X, y)
    da.to_npy_stack(tmp_path / "X", da.from_array(X, chunks=(150, -1)))  # on threads of this process: not by the client
    da.to_npy_stack(tmp_path / "y", da.from_array(y, chunks=150))
    there = trsvr.dask.LinearModel(
        *trsvr.dask.read_npy_stack(tmp_path / "X", tmp_path / "y"), client=client, persist=False
    )
    assert there.n_blocks == 4
    same(there, X, y)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    X, y = classification(211, 7, sparse=True)
    path = tmp_path_factory.mktemp("libsvm") / "rows.svm"
    write_libsvm(path, X, y, comment="made up\nfor a test")
    return path, X, y


def test_byte_ranges_cover_every_line_once(text):
    """Cuts at every kind of place, also in lines' middles and on their ends: together the ranges are the file."""
    path, X, _y = text
    total = path.stat().st_size
    whole, labels = read_libsvm(path)
    for size in (1, 7, 100, 1000, total - 1, total, total + 5):
        cuts = [*range(0, total, size), total]
        if len(cuts) > 400:
            cuts = cuts[:200] + cuts[-200:]  # the middle is one long range
        parts = [read_range(str(path), span, 7, False, np.dtype(float)) for span in itertools.pairwise(cuts)]
        rows = scipy.sparse.vstack([rows for rows, _ in parts])
        assert abs(rows - whole).max() == 0.0
        assert np.array_equal(np.concatenate([found for _, found in parts]), labels)
    assert abs(whole - X).max() == 0.0


def test_libsvm_blocks(client, text):
    path, X, y = text
    for options in ({}, {"n_features": 7}, {"block_bytes": 10_000_000}):
        blocks, none = trsvr.dask.read_libsvm(path, client=client, **{"block_bytes": 3000, **options})
        there = trsvr.dask.LinearModel(blocks, none, client=client)
        assert (there.n_blocks == 1) == (options.get("block_bytes", 0) > 3000)
        same(there, X, y.astype(float))


def test_damage_is_named_by_its_line_in_the_whole_file(client, tmp_path):
    path = tmp_path / "bad.svm"
    path.write_text("# first\n" + "1 1:1 2:2\n" * 500 + "0 1:1 2:oops\n" + "0 1:3\n" * 500)
    with pytest.raises(DataFileError, match=r"bad.svm, line 502: expected a number after the colon, got '2:oops'"):
        trsvr.dask.LinearModel(
            *trsvr.dask.read_libsvm(path, n_features=2, block_bytes=999, client=client), client=client
        )
    (tmp_path / "zipped.svm").write_bytes(b"BZh91AY")
    with pytest.raises(DataFileError, match="is compressed"):
        trsvr.dask.read_libsvm(tmp_path / "zipped.svm", client=client)
    (tmp_path / "empty.svm").touch()
    with pytest.raises(DataFileError, match="no row"):
        trsvr.dask.read_libsvm(tmp_path / "empty.svm", client=client)
