"""``trsvr solve --checkpoint`` and ``trsvr resume``."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
from command import start, trsvr

from trsvr.cli import main
from trsvr.engine import checkpoint

LONG = ("--method", "svrg", "--tol", "none", "--epochs", "400")


def test_killed_and_resumed(files, tmp_path):
    """kill -9 in the middle; the result has the bits of the run that was left alone."""
    whole = trsvr("solve", files / "data.svm", *LONG, "--out", "whole", folder=tmp_path)
    assert whole.returncode == 0, whole.stderr
    process = start(
        "solve", files / "data.svm", *LONG, "--checkpoint", "run.ckpt", "--checkpoint-every", "1", folder=tmp_path
    )
    try:
        deadline = time.monotonic() + 100
        while not (tmp_path / "run.ckpt.previous").exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    finally:
        process.kill()
    done = trsvr("resume", "run.ckpt", "--out", "resumed", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["epochs"], told["status"], told["method"]) == (400, "epoch_limit", "svrg")
    with np.load(tmp_path / "whole" / "result.npz") as one, np.load(tmp_path / "resumed" / "result.npz") as other:
        assert np.array_equal(one["x"], other["x"])
    further = trsvr("resume", "run.ckpt", "--epochs", "500", folder=tmp_path)
    assert further.returncode == 0
    assert "500" in further.stdout


def test_terminated(files, tmp_path):
    """SIGTERM: the best point and the checkpoint are written, and the exit status says so."""
    process = start(
        *("solve", files / "data.svm", "--tol", "none", "--epochs", "100000000", "--method", "svrg"),
        *("--checkpoint", "run.ckpt", "--checkpoint-every", "1h", "--out", "o"),
        folder=tmp_path,
    )
    try:
        deadline = time.monotonic() + 100
        while not (tmp_path / "run.ckpt").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert b"by SIGTERM" in b" ".join(out.split())
    assert json.loads((tmp_path / "o" / "result.json").read_text(encoding="utf-8"))["status"] == "interrupted"
    assert json.loads((tmp_path / "o" / "result.json").read_text(encoding="utf-8"))["epochs"] > 1


def test_refusals(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refused(*arguments, words):
        assert main([str(argument) for argument in arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert all(word in err for word in words), err

    refused("resume", "none.ckpt", words=["there is no checkpoint"])
    solve = ("solve", files / "data.svm", "--epochs", "2", "--checkpoint", "run.ckpt")
    assert main([str(argument) for argument in solve]) in (0, 1)
    capsys.readouterr()
    refused(*solve, "--seed", "3", words=["another configuration", "seed was 0, is 3"])
    refused(*solve, "--l2", "3", words=["another problem"])
    refused("resume", "run.ckpt", "--data", files / "data.csv", words=["data.csv"])
    refused("solve", files / "data.svm", "--checkpoint-every", "3", words=["--checkpoint-every needs --checkpoint"])
    refused(*solve, "--checkpoint-every", "soon", words=["--checkpoint-every must be", "'soon'"])
    path = tmp_path / "run.ckpt"
    path.write_bytes(path.read_bytes()[:-3])
    (tmp_path / "run.ckpt.previous").unlink()
    refused("resume", "run.ckpt", words=["run.ckpt is damaged"])


def test_a_note_that_somebody_has_changed(files, tmp_path, monkeypatch, capsys):
    """What a checkpoint says about its data is checked like any input."""
    monkeypatch.chdir(tmp_path)
    main(["solve", str(files / "data.svm"), "--epochs", "1", "--checkpoint", "run.ckpt"])
    content = checkpoint.read(tmp_path / "run.ckpt")
    capsys.readouterr()
    for change in ({"loss": "os.system"}, {"header": "yes"}, {"file": 3}, {"seed": -1.5}, {"more": 1}):
        checkpoint.write(tmp_path / "run.ckpt", {**content, "note": {**content["note"], **change}})
        assert main(["resume", "run.ckpt"]) == 2
        assert capsys.readouterr().err.startswith("trsvr: error: ")
