"""Data larger than the memory of the workers, and the command line."""

from __future__ import annotations

import json
import os
import pickle

import dask.array as da
import numpy as np
import pytest
from small import classification, small_cluster

import trsvr
import trsvr.dask
from trsvr.cli import main
from trsvr.datasets import write_libsvm

LIMIT = 500_000_000


def test_three_times_the_memory(tmp_path):
    """One worker that may use 500 MB, its own interpreter included, and 1.5 GB of rows.

    To spare the disk, most blocks are further names of the same few files; the worker cannot know.
    """
    rows, d, distinct = 100_000, 30, 4
    truth = np.linspace(-1, 1, d)
    count = -(-3 * LIMIT // (rows * d * 4))
    for name, shape in (("X", (rows, d)), ("y", (rows,))):
        (tmp_path / name).mkdir()
        chunks = tuple((length,) * count if axis == 0 else (length,) for axis, length in enumerate(shape))
        info = {"chunks": chunks, "dtype": np.dtype(np.float32 if name == "X" else bool), "axis": 0}
        (tmp_path / name / "info").write_bytes(pickle.dumps(info))  # as dask.array.to_npy_stack writes it
    for i in range(distinct):
        random = np.random.default_rng(i)
        X = random.standard_normal((rows, d), dtype=np.float32)
        np.save(tmp_path / "X" / f"{i}.npy", X)
        np.save(tmp_path / "y" / f"{i}.npy", X @ truth + random.logistic(size=rows) > 0)
    for i in range(distinct, count):
        for name in ("X", "y"):
            os.link(tmp_path / name / f"{i % distinct}.npy", tmp_path / name / f"{i}.npy")
    with small_cluster(1, memory_limit=LIMIT) as client:
        before = client.run(os.getpid)
        stacks = trsvr.dask.read_npy_stack(tmp_path / "X", tmp_path / "y")
        assert stacks[0].nbytes >= 3 * LIMIT
        problem = trsvr.dask.LinearModel(*stacks, client=client)
        assert not problem.persisted  # nobody said so: it has compared sizes
        result = trsvr.minimize(problem, max_epochs=12)
        assert client.run(os.getpid) == before  # the worker was not killed for its memory
    assert result.success
    np.testing.assert_allclose(result.x, truth, atol=0.03)


def test_solve_on_workers(tmp_path, capsys):
    X, y = classification(400, 5, sparse=True)
    write_libsvm(tmp_path / "rows.svm", X, y)
    answers = []
    for more in ([], ["--dask", "--workers", "1"]):
        code = main(
            [
                "solve",
                str(tmp_path / "rows.svm"),
                "--intercept",
                "--json",
                "--out",
                str(tmp_path / f"o{len(more)}"),
                *more,
            ]
        )
        assert code == 0
        answers.append(json.loads(capsys.readouterr().out))
    local, remote = answers
    assert remote["value"] == pytest.approx(local["value"], rel=1e-12)
    assert remote["train"] == local["train"]
    assert remote["rows"] == 400
    code = main(["predict", str(tmp_path / "o3"), str(tmp_path / "rows.svm"), "--json"])
    assert code == 0


def test_solve_reaches_a_scheduler(client, tmp_path, capsys):
    X, y = classification(300, 4)
    (tmp_path / "data").mkdir()
    da.to_npy_stack(tmp_path / "data" / "X", da.from_array(X, chunks=(100, -1)))
    da.to_npy_stack(tmp_path / "data" / "y", da.from_array(y, chunks=100))
    address = client.scheduler.address
    assert main(["solve", str(tmp_path / "data"), "--scheduler", address, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["value"] == pytest.approx(trsvr.minimize(trsvr.problems.LinearModel(X, y)).value, rel=1e-11)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "--workers and --memory-limit go with --dask"),
        (["--dask", "--test-size", "0.5"], "--test-size is for data in memory"),
        (["--dask", "--format", "csv"], "--dask reads libsvm, parquet, zarr and npy-stack, got format 'csv'"),
        (["--scheduler", "tcp://127.0.0.1:1", "--workers", "1"], "the cluster at --scheduler has its own"),
    ],
)
def test_solve_refuses(tmp_path, capsys, options, message):
    (tmp_path / "rows.svm").write_text("1 1:1\n0 1:2\n")
    assert main(["solve", str(tmp_path / "rows.svm"), *options]) == 2
    assert message in capsys.readouterr().err
