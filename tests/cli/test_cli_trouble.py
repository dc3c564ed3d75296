"""What goes wrong: the message, the exit status, and that nothing half-written stays."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
from command import assert_one_line, start, trsvr

from trsvr._files import written_beside
from trsvr.cli import main
from trsvr.cli.output import write_folder
from trsvr.cli.tables import Wanted, format_of, read_table


def in_process(capsys, *arguments):
    """The command within this process: the status and the one line on stderr."""
    status = main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("trsvr: error: ")
    return status, err


# --------------------------------------------------------------------------------------------- as real processes


def test_damaged_file(tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:0.5 2:1\n-1 1:0.5 2:oops\n")
    assert_one_line(trsvr("solve", "bad.svm", "--out", "o", folder=tmp_path), "bad.svm, line 2", "oops")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.svm"]


def test_missing_file_and_column(files, tmp_path):
    assert_one_line(trsvr("solve", "nothing.csv", folder=tmp_path), "nothing.csv", "No such file")
    process = trsvr("solve", files / "data.csv", "--target", "colour", folder=tmp_path)
    assert_one_line(process, "no column 'colour'", "height, weight, age, answer")
    assert not list(tmp_path.iterdir())


def test_unwritable_output(files, tmp_path):
    """Told before the run where that can be seen; afterwards nothing is left."""
    (tmp_path / "file").touch()
    arguments = ("solve", files / "data.csv", "--target", "answer", "--epochs", "1")
    assert_one_line(trsvr(*arguments, "--out", "file/o", folder=tmp_path), "--out file/o cannot be made")
    (tmp_path / "o" / "trace.csv").mkdir(parents=True)
    process = trsvr(*arguments, "--out", "o", folder=tmp_path)
    assert_one_line(process, "trace.csv", "this is a folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "o"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(files, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    process = trsvr("solve", files / "data.csv", "--target", "answer", "--out", "locked/o", folder=tmp_path)
    assert_one_line(process, "no permission")


def test_traceback_only_with_debug(tmp_path):
    process = trsvr("solve", "nothing.csv", "--debug", folder=tmp_path)
    assert process.returncode == 2
    assert "Traceback" in process.stderr
    assert process.stderr.splitlines()[-1].startswith("trsvr: error: ")


def wait_for(process, text, seconds=90):
    """Read stderr until the text appears."""
    os.set_blocking(process.stderr.fileno(), False)
    seen, deadline = b"", time.monotonic() + seconds
    while text not in seen:
        assert time.monotonic() < deadline, f"{text!r} did not appear in {seen!r}"
        assert process.poll() is None, f"ended early: {seen!r}"
        seen += process.stderr.read() or b""
        time.sleep(0.02)
    os.set_blocking(process.stderr.fileno(), True)


def test_interrupted_run_keeps_the_best_point(files, tmp_path):
    process = start(
        *("solve", files / "data.svm", "--tol", "none", "--epochs", "100000000", "--out", "o", "--progress"),
        folder=tmp_path,
    )
    try:
        wait_for(process, b"epoch ")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "interrupted: this is the best point so far" in " ".join(out.decode().split())
    assert b"Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["o"]
    assert len(list((tmp_path / "o").iterdir())) == 5
    assert json.loads((tmp_path / "o" / "result.json").read_text(encoding="utf-8"))["status"] == "interrupted"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_interrupted_while_reading_leaves_nothing(tmp_path):
    """The file is a pipe that never ends, so the command is certainly still reading."""
    pipe = tmp_path / "endless.svm"
    os.mkfifo(pipe)
    process = start("solve", pipe.name, "--out", "o", folder=tmp_path)
    try:
        with pipe.open("wb", buffering=0) as writer:  # waits until the command has opened it
            writer.write(b"1 1:1\n-1 1:2\n")
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == b""
    assert err.decode().splitlines()[-1] == "trsvr: interrupted"
    assert b"Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["endless.svm"]


# -------------------------------------------------------------------------------------------- within this process


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve"], ["Missing argument 'FILE'", "trsvr solve --help"]),
        (["slove"], ["No such command 'slove'"]),
        (["solve", "data.svm", "--epochs", "many"], ["--epochs"]),
        (["solve", "data.svm", "--bogus"], ["No such option: --bogus"]),
        (["solve", "data.svm", "--loss", "logstic"], ["--loss must be one of", "did you mean 'logistic'"]),
        (["solve", "data.svm", "--method", "trvr"], ["--method must be one of", "did you mean 'trsvr'"]),
        (["solve", "data.svm", "--method", "svrg", "--alpha", "1"], ["svrg has no setting 'alpha'"]),
        (["solve", "data.svm", "--alpha", "-1"], ["--alpha must be a finite number > 0"]),
        (["solve", "data.svm", "--alpha", "big"], ["--alpha must be a number or auto, got 'big'"]),
        (["solve", "data.svm", "--l2", "-1"], ["--l2 must be a finite number >= 0"]),
        (["solve", "data.svm", "--set", "max_cg"], ["--set must be NAME=VALUE"]),
        (["solve", "data.svm", "--tol", "tight"], ["--tol must be a number or auto or none"]),
        (["solve", "data.svm", "--batch-size", "301"], ["--batch-size must be a whole number from 1 to 300"]),
        (["solve", "data.svm", "--test-size", "300"], ["--test-size must be a share below 1"]),
        (["solve", "data.svm", "--target", "x"], ["--target is for CSV"]),
        (["solve", "data.svm", "--out", "data.svm"], ["--out must be a folder"]),
        (["solve", "data.csv"], ["choose one with --target"]),
        (["solve", "data.csv", "--target", "age"], ["column 'answer' must hold numbers", "'"]),
        (["solve", "data.csv", "--format", "parquet"], ["is not a Parquet file"]),
        (["solve", "data.csv", "--format", "npz"], ["is not an NPZ archive"]),
        (["solve", "data.parquet", "--format", "csv"], ["is not text in UTF-8"]),
        (["solve", "sparse.npz"], ["has no array 'y'"]),
        (["solve", "."], ["this is a folder"]),
        (["solve", "empty.csv"], ["empty.csv: is empty"]),
        (["solve", "utf16.csv"], ["utf16.csv: is not text in UTF-8"]),
        (["solve", "one.csv"], ["the target must contain at least two classes, got only the label 'no'"]),
        (["solve", "three.csv"], ["the target must contain exactly two classes", "the loss softmax takes several"]),
        (["solve", "data.csv", "--target", "anwser"], ["no column 'anwser'", "did you mean 'answer'?"]),
        (["solve", "data.csv", "--target", "answer", "--drop", "wieght"], ["to drop", "did you mean 'weight'?"]),
        (["solve", "data.csv", "--target", "answer", "--weights", "hight"], ["weights", "did you mean 'height'?"]),
        (["solve", "data.csv", "--target", "answer", "--weights", "age"], ["weight", ">= 0"]),
        (["solve", "data.csv", "--sep", "comma"], ["--sep must be one character, tab, space or auto, got 'comma'"]),
        (["solve", "data.svm", "--drop", "x"], ["--drop is for columns with names"]),
        (["solve", "data.svm", "--weights", "w"], ["--weights is for CSV"]),
        (["solve", "dense.npz", "--weights", "w"], ["no array 'w' for the weights"]),
        (["solve", "data.svm", "--lambd", "1"], ["--lambda"]),
        (["solve", "mushrooms"], ["known data set", "trsvr compare mushrooms"]),
        (["solve", "mushroms"], ["did you mean 'mushrooms'?"]),
        (["solve", "data.cvs"], ["did you mean 'data.csv'?"]),
        (["solve", "data.csv", "--target", "answer", "--drop", "answer"], ["--drop answer", "is the target"]),
        (["solve", "data.csv", "--target", "answer", "--weights", "answer"], ["--weights answer", "is the target"]),
        (["solve", "data.csv", "--target", "answer", "--offset", "answer"], ["--offset answer", "is the target"]),
        (["solve", "data.svm", "--a", "nan"], ["--a must be a finite number >= 0"]),
        (["solve", "data.svm", "--delta", "0"], ["--delta must be a finite number > 0"]),
        (["solve", "data.svm", "--power", "3"], ["--power must be a number from 1"]),
        (["solve", "data.svm", "--tol", "-1"], ["--tol must be a finite number >= 0"]),
        (["solve", "data.svm", "--checkpoint", "no/run.ckpt"], ["--checkpoint must be a file in a folder that exists"]),
        (["solve", "flat.npz"], ["flat.npz: X must be two-dimensional", "(4,)"]),
        (["solve", "nan.npz"], ["nan.npz: X must be finite, got nan at position 1, 2"]),
        (["solve", "data.svm", "--dask", "--workers", "0"], ["--workers must be a whole number >= 1"]),
        (["solve", "data.svm", "--dask", "--memory-limit", "much"], ["--memory-limit must be a size", "'much'"]),
        (["solve", "data.svm", "--dask", "--target", "y"], ["--target is for CSV"]),
        (["solve", "data.svm", "--dask", "--standardize"], ["--standardize is for data in memory"]),
        (["theory", "data.svm", "--alpha", "1"], ["must be complete", "--batch-size"]),
        (["theory", "data.svm", "--mu0", "2"], ["--mu0 must be a number in (0, 1]"]),
        (["theory", "dta.svm"], ["No such file", "did you mean 'data.svm'?"]),
        (["theory", "data.csv", "--target", "Answr"], ["did you mean 'answer'?"]),
        (["theory", "data.svm", "--hessian", "exakt"], ["--hessian must be one of", "did you mean 'exact'?"]),
        (["theory", "data.svm", "--batch-size", "8"], ["must be complete", "--alpha and --inner-steps missing"]),
        (["theory", "data.svm", "--loss", "poisson"], ["the target must be >= 0"]),
        (["theory", "huge.csv"], ["huge.csv: its numbers are so large", "scale the columns"]),
        (["theory", "text.csv", "--target", "answer"], ["must hold numbers, got 'old'", "--drop age leaves it out"]),
        (["predict", "fit", "text.csv"], ["column 'age' must hold numbers, got 'old'; this column is used as numbers"]),
        (["predict", "fit", "flat.npz"], ["flat.npz: X must be two-dimensional"]),
        (["predict", "fit", "nan.npz"], ["nan.npz: X must be finite"]),
        (["predict", "fit", "data.csv", "--out", "fit"], ["--out must be a file, got the folder fit"]),
        (["predict", "fit", "data.csv", "--out", "no/p.csv"], ["--out no/p.csv cannot be written", "is no folder"]),
        (["predict", "fit", "data.csv", "--out", "data.csv/p"], ["--out data.csv/p cannot be written", "is a file"]),
        (["summary", "nowhere"], ["nowhere", "No such file"]),
        (["summary", "data.csv"], ["is not a model"]),
        (["summary", "fit", "--kind", "HC9"], ["--kind must be one of", "did you mean 'HC1'?"]),
        (["summary", "fit", "--kind", "cluster"], ["--groups must be given for the kind 'cluster'"]),
        (["summary", "."], ["is not a folder that trsvr solve --out has written"]),
        (["summary", "fit", "--confidence", "2"], ["--confidence must be a number between 0 and 1"]),
        (["summary", "fit", "--data", "unnamed.csv"], ["has no column 'answer' for the target"]),
        (["summary", "fit", "--out", "no/s.csv"], ["--out no/s.csv cannot be written"]),
        (["predict", "data.svm", "data.svm"], ["is not a model"]),
        (["predict", ".", "data.svm"], ["is not a folder that trsvr solve --out has written", "result.npz"]),
        (["predict", "data.svm"], ["Missing argument 'FILE'"]),
        (["predict", "nowhere", "data.svm"], ["nowhere", "No such file"]),
        (["predict", "dense.npz", "data.svm"], ["is not a model"]),
        (["resume"], ["Missing argument 'CHECKPOINT'"]),
        (["resume", "none.ckpt"], ["there is no checkpoint"]),
        (["resume", "data.svm"], ["is not a checkpoint", "left as it is", "Name another file"]),
        (["resume", "."], ["this is a folder; a file is needed"]),
        (["resume", "none.ckpt", "--checkpoint-every", "soon"], ["there is no checkpoint"]),
        (["data", "info", "mushroms"], ["did you mean 'mushrooms'?"]),
        (["data", "info", "mushrooms", "--split", "tset"], ["--split must be one of", "did you mean 'test'?"]),
        (["data", "fetch"], ["Missing argument"]),
        (["data", "lst"], ["No such command 'lst'"]),
        (["data", "info", "breast-cancer", "--preprocess", "norm"], ["--preprocess must be one of"]),
        (["paper", "run", "figur"], ["STUDY, unless a file that ends in .toml, must be one of", "got 'figur'"]),
        (["paper", "rnu"], ["No such command 'rnu'"]),
        (["paper", "run", "--seeds", "many"], ["--seeds", "'many'"]),
        (["compare", "data.svm", "--l2=much"], ["--l2", "'much'"]),
        (["paper", "run", "nothing.toml"], ["nothing.toml"]),
        (["paper", "run", "bytes.toml"], ["bytes.toml: is not text in UTF-8"]),
        (["paper", "report", "nowhere"], ["nowhere"]),
        (["compare", "mushroms"], ["did you mean 'mushrooms'?"]),
        (["compare", "data.csv", "--target", "anser"], ["did you mean 'answer'?"]),
        (["compare", "data.svm", "--methods", "trvr"], ["did you mean 'trsvr'?"]),
        (["compare", "data.svm", "--seeds", "0"], ["--seeds must be a whole number >= 1"]),
        (["compare", "data.svm", "--methods", "svrg:stp=1"], ["did you mean 'step'?"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_one_line_for_bad_input(capsys, bad_files, monkeypatch, arguments, words):
    files = bad_files
    capsys.readouterr()
    monkeypatch.chdir(files)
    monkeypatch.setenv("TRSVR_QUIET", "1")
    before = sorted(files.iterdir())
    status, line = in_process(capsys, *arguments)
    assert status == 2
    for word in words:
        assert word in line
    assert sorted(files.iterdir()) == before


def test_bad_tables(tmp_path):
    def refused(content, message, target="y"):
        path = tmp_path / "t.csv"
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_table(path, Wanted(target=target))

    refused("a,y\n1,0\n,1\n", "column 'a' has no number in row 2")
    refused("a,y\n1,0\ninf,1\n", "column 'a' has an infinite number in row 2")
    refused("a,y\n1,0\n2,\n", "the target 'y' has no value in row 2")
    refused("a,y\n1,0\n2,1,3,4\n", "not a readable CSV file.*line 3")
    refused("a,y\n", "has no rows")
    refused("", "is empty")
    refused("y\n1\n", "no column besides the target")
    refused("a,y,label\n1,2,3\n", "several columns could be the target", target=None)


def test_bad_archives(tmp_path):
    def refused(message, **arrays):
        np.savez(tmp_path / "t.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / "t.npz", Wanted())

    y = np.array([1.0, -1.0])
    refused("holds Python objects", X=np.array([[1, "a"], [2, None]], dtype=object), y=y)
    refused("must hold X, or a CSR matrix", Z=np.eye(2), y=y)
    csr = {"data": np.ones(2), "indptr": np.array([0, 1, 2]), "shape": np.array([2, 2]), "y": y}
    refused("are no CSR matrix", indices=np.array([0, 7]), **csr)
    refused("in csc format", indices=np.array([0, 1]), format=np.array(b"csc"), **csr)
    (tmp_path / "t.npz").write_bytes((tmp_path / "t.npz").read_bytes()[:200])
    with pytest.raises(ValueError, match="not an NPZ archive"):
        read_table(tmp_path / "t.npz", Wanted())


def test_formats_by_name(tmp_path):
    names = {
        "a.csv": "csv",
        "a.CSV.gz": "csv",
        "a.tsv": "csv",
        "a.pq": "parquet",
        "a.npz": "npz",
        "a.svm.bz2": "libsvm",
    }
    for name, expected in (names | {"a": "libsvm", "a.t": "libsvm", "my.csv.svm": "libsvm"}).items():
        assert format_of(tmp_path / name) == expected
    pd.DataFrame({"a": [1.5, 2.0], "label": [True, False]}).to_csv(tmp_path / "t.tsv.gz", sep="\t", index=False)
    table = read_table(tmp_path / "t.tsv.gz", Wanted())
    assert table.X.tolist() == [[1.5], [2.0]]
    assert (table.y.tolist(), table.target, table.columns) == ([True, False], "label", ("a",))


@pytest.mark.parametrize("reason", [KeyboardInterrupt, OSError, MemoryError])
def test_nothing_half_written(tmp_path, reason):
    def fail(path):
        path.write_text("half")
        raise reason

    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "first").write_text("old")
    for folder in ("new", "old"):
        with pytest.raises(reason):
            write_folder(tmp_path / folder, {"first": lambda path: path.write_text("new"), "second": fail})
    with pytest.raises(reason), written_beside(tmp_path / "single") as path:
        fail(path)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old" / "first").read_text() == "old"


def test_existing_folder_is_updated(tmp_path):
    write_folder(tmp_path / "deep" / "o", {"a": lambda path: path.write_text("1")})
    (tmp_path / "deep" / "o" / "mine").touch()
    write_folder(tmp_path / "deep" / "o", {"a": lambda path: path.write_text("2")})
    assert sorted(path.name for path in (tmp_path / "deep" / "o").iterdir()) == ["a", "mine"]
    assert (tmp_path / "deep" / "o" / "a").read_text() == "2"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["o"]
