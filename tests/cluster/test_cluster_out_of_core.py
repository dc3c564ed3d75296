"""Data larger than the memory of the workers, and the command line."""

from __future__ import annotations

import json
import os
import pickle

import dask.array as da
import numpy as np
import pytest
from small import LIMIT, classification, small_cluster

import trsvr
import trsvr.dask
from trsvr.cli import main
from trsvr.datasets import write_libsvm

ROWS, COLUMNS, DISTINCT = 25_000, 120, 4
TRUTH = np.linspace(-0.3, 0.3, COLUMNS)


def big_stack(folder, size):
    """So many bytes of rows as an NPY stack; returns the few rows that are really there.

    To spare the disk, most blocks are further names of the same few files; the worker cannot know. All files have the
    same number of names, so f is that of the few rows.
    """
    count = DISTINCT * -(-size // (ROWS * COLUMNS * 4 * DISTINCT))
    for name, shape in (("X", (ROWS, COLUMNS)), ("y", (ROWS,))):
        (folder / name).mkdir()
        chunks = tuple((length,) * count if axis == 0 else (length,) for axis, length in enumerate(shape))
        info = {"chunks": chunks, "dtype": np.dtype(np.float32 if name == "X" else bool), "axis": 0}
        (folder / name / "info").write_bytes(pickle.dumps(info))  # as dask.array.to_npy_stack writes it
    parts = []
    for i in range(DISTINCT):
        random = np.random.default_rng(i)
        X = random.standard_normal((ROWS, COLUMNS), dtype=np.float32)
        y = X @ TRUTH + random.logistic(size=ROWS) > 0
        parts.append((X, y))
        np.save(folder / "X" / f"{i}.npy", X)
        np.save(folder / "y" / f"{i}.npy", y)
    for i in range(DISTINCT, count):
        for name in ("X", "y"):
            os.link(folder / name / f"{i % DISTINCT}.npy", folder / name / f"{i}.npy")
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def compile_first(folder):
    """The same on a few rows, by a worker with more memory: compiling takes some, and is done once for all workers."""
    big_stack(folder, 1)
    with small_cluster(1) as client:
        stacks = trsvr.dask.read_npy_stack(folder / "X", folder / "y")
        trsvr.minimize(trsvr.dask.LinearModel(*stacks, client=client, persist=False), max_epochs=1, tol=None)


def solve_out_of_core(client, folder, limit, **options):
    """Solve it with one worker that may use so much memory, and is not killed for using more."""
    before = client.run(os.getpid)
    assert len(before) == 1
    stacks = trsvr.dask.read_npy_stack(folder / "X", folder / "y")
    assert stacks[0].nbytes >= 3 * limit
    problem = trsvr.dask.LinearModel(*stacks, client=client)
    assert not problem.persisted  # nobody said so: it has compared sizes
    result = trsvr.minimize(problem, **options)
    assert client.run(os.getpid) == before
    return result


@pytest.mark.slow
def test_three_times_the_memory(tmp_path):
    """The first outer iteration, on a worker that has done nothing else; compared with the same rows in memory."""
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    compile_first(tmp_path / "few")
    X, y = big_stack(tmp_path / "many", 3 * LIMIT)
    with small_cluster(1, memory_limit=LIMIT) as client:
        result = solve_out_of_core(client, tmp_path / "many", LIMIT, max_epochs=1, tol=None)
    assert result.epochs == 1
    value, gradient = trsvr.problems.LinearModel(X, y).value_and_gradient(result.x)
    assert result.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(result.jac, gradient, atol=1e-12)
    assert value < 0.8 * np.log(2.0)


@pytest.mark.long
def test_three_times_the_memory_to_the_end(tmp_path):
    big_stack(tmp_path, 1_500_000_000)
    with small_cluster(1, memory_limit=500_000_000) as client:
        result = solve_out_of_core(client, tmp_path, 500_000_000, max_epochs=20)
    assert result.success
    np.testing.assert_allclose(result.x, TRUTH, atol=0.05)


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
    assert found["value"] == pytest.approx(
        trsvr.minimize(trsvr.problems.LinearModel(X, y, intercept=True)).value, rel=1e-11
    )


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
