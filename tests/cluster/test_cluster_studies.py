"""``trsvr paper run --scheduler``: the runner's jobs on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from small import classification

import trsvr.dask
from trsvr.cli import main, remote
from trsvr.dask.studies import OnCluster, _Work
from trsvr.datasets import write_libsvm
from trsvr.experiments import runner as running
from trsvr.experiments import specification
from trsvr.experiments.execute import TIMING_COLUMNS

STUDY = """
name = "small"
epochs = 4
seeds = 2

[objective]
l2 = 0.1

[[problem]]
data = "mine"
file = "mine.svm"

[[problem.method]]
label = "TRSVR"
solver = "trsvr"
settings = { alpha = 0.5, batch_size = 10, inner_steps = 20, hessian = "estimated" }

[[problem.method]]
label = "adaptive"
solver = "trsvr"
role = "adaptive"

[grid.TRSVR]
alpha = { low = 0.01, high = 1.0, points = 3 }
"""


@pytest.fixture
def study(tmp_path):
    X, y = classification(200, 4)
    write_libsvm(tmp_path / "mine.svm", X, y)
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


def contents(folder):
    """All result files without what may differ between two runs, and the reference values."""
    found = {}
    for path in sorted((folder / "results").glob("*.parquet")):
        table = pq.read_table(path)
        asked = table.schema.metadata[b"trsvr.job"].decode()
        found[path.name] = (asked, table.drop_columns(list(TIMING_COLUMNS)).to_pydict())
    references = {path.name: path.read_text() for path in (folder / "references").glob("*.json")}
    return json.dumps([found, references], default=str, sort_keys=True), len(found)


def paper(*arguments):
    return main(["paper", *map(str, arguments)])


def test_the_same_files_as_a_local_run(client, study, tmp_path, capsys, monkeypatch):
    """Tuning runs the study itself too; a second run finds everything done."""
    monkeypatch.setattr("trsvr.cli.paper._write_report", lambda folder: None)  # tested elsewhere, and slow
    address = client.scheduler.address
    for place, how in (("here", ["--jobs", 1]), ("there", ["--scheduler", address])):
        assert paper("tune", study, "--out", tmp_path / place, *how) == 0
    said = capsys.readouterr()
    assert "of" in said.err
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert contents(tmp_path / "there")[1] >= 2 * 2 + 3
    entries = [running.read_run(tmp_path / place)["studies"]["small"] for place in ("here", "there")]
    assert entries[0] == entries[1]
    assert running.read_run(tmp_path / "there")["sessions"][-1]["workers"] == 2
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "there").rglob("*.parquet")}
    assert paper("run", study, "--out", tmp_path / "there", "--scheduler", address) == 0
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "there").rglob("*.parquet")}
    assert running.read_run(tmp_path / "there")["sessions"][-1]["jobs"] == 0


def test_data_that_workers_do_not_find_is_sent(client, study, tmp_path):
    """The caller has read the file; then it is gone, as it is on another machine."""
    [found] = [specification.find(str(study))]
    local = running.Runner(tmp_path / "here")
    local.run([job for plan in local.plan([found]) for _, _, job in plan.jobs()])
    (tmp_path / "mine.svm").unlink()
    cluster = OnCluster(client)
    runner = running.Runner(tmp_path / "there", cluster, 2, ship=cluster.ship)
    plans = runner.plan([found])
    assert not plans[0].missing
    assert runner.run([job for plan in plans for _, _, job in plan.jobs()]) == 4
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_a_file_that_nobody_has_is_an_error(client, study, tmp_path, capsys):
    study.write_text(STUDY.replace("mine.svm", "gone.svm"))
    assert paper("run", study, "--out", tmp_path / "out", "--scheduler", client.scheduler.address) == 2
    assert "gone.svm: No such file" in capsys.readouterr().err


def test_an_address_that_does_not_answer(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(remote, "_ANSWER_SECONDS", 1)
    assert paper("run", study, "--out", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--scheduler tcp://127.0.0.1:1: no scheduler answers there" in said
    assert "dask scheduler" in said


def test_processes_and_a_cluster_exclude_each_other(study, tmp_path, capsys):
    assert paper("run", study, "--out", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1", "--jobs", 2) == 2
    assert "--jobs is for processes of this machine" in capsys.readouterr().err


def test_workers_with_other_sources_are_refused(client):
    with pytest.raises(
        ValueError, match=r"a worker has another trsvr than the caller: .*, not trsvr 9.9, sources beef"
    ):
        next(iter(_refused(client)))


def _refused(client):
    for _, answer in trsvr.dask.run_jobs(_Work(str, ("beef", {"trsvr": "9.9"})), [1], client, retries=0):
        raise answer


def _slow(number):
    time.sleep(0.3)
    return number


def _waiting(dask_scheduler):
    return sum(str(key).startswith("trsvr-job-") for key in dask_scheduler.tasks)


def test_leaving_early_cancels_what_has_not_begun(client):
    loop = trsvr.dask.run_jobs(_slow, range(40), client)
    next(loop)
    loop.close()
    deadline = time.monotonic() + 10
    while client.run_on_scheduler(_waiting) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.run_on_scheduler(_waiting) == 0


def test_interrupted_it_keeps_what_is_finished(client, study, tmp_path):
    """Ctrl-C on the command itself, in a process of its own."""
    study.write_text(STUDY.replace("seeds = 2", "seeds = 200").replace("epochs = 4", "epochs = 100"))
    options = ["--out", tmp_path / "out", "--no-report", "--scheduler", client.scheduler.address]
    process = subprocess.Popen(
        [sys.executable, "-m", "trsvr.cli", "paper", "run", study, *options],
        env={**os.environ, "TRSVR_QUIET": "1"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    results = tmp_path / "out" / "results"
    deadline = time.monotonic() + 90
    while not list(results.glob("*.parquet")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "trsvr: interrupted" in said
    assert "Traceback" not in said
    finished = list(results.glob("*.parquet"))
    assert 0 < len(finished) < 400
    assert all(pq.read_table(path).num_rows > 1 for path in finished)
    assert not list(results.glob(".*"))
