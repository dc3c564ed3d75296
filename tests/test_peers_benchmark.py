"""The benchmark beside other solvers: what counts as reached, that it survives what its peers do, that it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("threadpoolctl")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def command(*arguments: object) -> str:
    """The command as it is used, in a process of its own: it forks."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", *map(str, arguments)],
        capture_output=True, text=True, timeout=240, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_generated_text_is_the_same_each_time_and_in_any_order():
    from benchmarks.peers.text import Recipe, generate

    X, y = generate(Recipe(300, 500))
    again, by_label = generate(Recipe(300, 500)), generate(Recipe(300, 500, by_label=True))
    assert (again[0] != X).nnz == 0
    assert np.array_equal(again[1], y)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1.0)
    assert set(y) == {-1.0, 1.0}
    assert (np.diff(by_label[1]) >= 0).all()
    assert np.array_equal(np.sort(by_label[0].data), np.sort(X.data))


def test_a_package_that_is_kept_apart_is_found_in_its_folder_only(tmp_path, monkeypatch):
    from benchmarks.peers import install
    from benchmarks.peers.solvers import everybody

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    peer = next(peer for peer in everybody() if peer.apart)
    assert peer.missing() == "not installed"
    about = install.folder_of(peer.distribution) / "liblinear_multicore-2.5.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: liblinear-multicore\nVersion: 2.5\n", encoding="utf-8"
    )
    assert peer.missing() == ""
    assert peer.version() == "2.5"


def test_the_time_to_a_gap_is_that_of_the_fastest_run_that_ends_within_it():
    from benchmarks.peers.measure import Run, times

    runs = [Run(0, 1e-2, 1.0, 2.0 * (1 + 1e-4)), Run(0, 1e-6, 5.0, 2.0 * (1 + 1e-10)), Run(1, 1e-6, 3.0, np.nan)]
    found = times([*runs, Run(1, 1e-5, 4.0, 2.0 * (1 + 1e-7))], 2.0)
    assert {goal: run.seconds for goal, run in found.items()} == {1e-3: 1.0, 1e-6: 4.0, 1e-9: 5.0}


def test_a_torn_line_is_skipped_and_the_next_one_is_whole(tmp_path):
    from benchmarks.peers.store import Store

    store = Store(tmp_path / "deep" / "cells.jsonl")
    store.add({"kind": "cell", "id": "a", "n": 1})
    with store.path.open("ab") as file:
        file.write(b'{"kind": "cell", "id": "b", "n"')
    store.add({"kind": "cell", "id": "a", "n": 2})
    assert store.latest("cell") == {"a": {"kind": "cell", "id": "a", "n": 2}}


CHILDREN = """
import os, time
from benchmarks.peers.cell import in_a_process

def sleeps(tell): tell({"at_most": 0.5}); time.sleep(60)
def fails(tell): tell({"run": 1}); raise ValueError("no such thing")
def dies(tell): os._exit(3)
def ends(tell): tell({"run": 2})

for work in (sleeps, fails, dies, ends):
    heard = []
    note = in_a_process(work, heard.append)
    print(work.__name__, "|", note, "|", [message for message in heard if "run" in message])
"""


def test_a_peer_may_hang_fail_or_die():
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "sleeps | stopped after 0 s | []",
        "fails | ValueError: no such thing (fails) | [{'run': 1}]",
        "dies | its process died (exit code 3) | []",
        "ends |  | [{'run': 2}]",
    ], done.stderr


def test_a_misspelt_name_is_refused_with_those_that_exist():
    from benchmarks.peers.run import chosen

    assert chosen(["covtype", "covtype.scale"], "covtype", "data set") == ["covtype"]
    assert chosen(["snapml dual", "snapml primal", "trsvr"], "snapml", "peer") == ["snapml dual", "snapml primal"]
    with pytest.raises(SystemExit, match="no peer is called 'snappml'; there are snapml dual"):
        chosen(["snapml dual"], "snappml", "peer")


@pytest.mark.slow
def test_measured_continued_and_reported(tmp_path):
    pytest.importorskip("matplotlib")
    only = "breast-cancer;trsvr,our kernels,newton-cholesky"
    first = command("run", "--quick", "--only", only, "--out", tmp_path)
    assert "(known)" not in first
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    again = command("run", "--quick", "--only", only, "--out", tmp_path)
    assert again.count("(known)") == 5
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == len(lines) + 1  # the machine, once more

    command("report", "--out", tmp_path, "--docs", tmp_path / "docs")
    data = json.loads((tmp_path / "docs" / "figures" / "peers.json").read_text())
    (problem,) = data["problems"]
    assert (problem["rows"], problem["columns"], problem["storage"]) == (569, 30, "dense")
    for peer in ("trsvr", "trsvr, nothing set", "scikit-learn newton-cholesky"):
        seconds = problem["seconds"][peer]
        assert None not in seconds, f"{peer} must get to 1e-12 here"
        assert seconds == sorted(seconds), (
            "a smaller gap cannot take less time: that run would count for the larger too"
        )
    page = (tmp_path / "report.html").read_text()
    assert "data:image/svg+xml" in page
    assert "breast-cancer, 569 × 30, dense" in page
    assert "scikit-learn newton-cholesky" in (tmp_path / "docs" / "benchmarks.md").read_text()
    assert (tmp_path / "docs" / "figures" / "peers-profiles.png").stat().st_size > 10_000


def test_a_report_of_nothing_says_what_to_do(tmp_path):
    from benchmarks.peers.results import read
    from benchmarks.peers.store import Store

    with pytest.raises(ValueError, match="nothing has been measured yet; run"):
        read(Store(tmp_path / "cells.jsonl"))


def test_the_loosest_setting_that_reaches_a_gap_is_found():
    """A made-up solver: tolerance t ends at a gap of t²/2, on a clock that is not looked at."""
    from benchmarks.peers.measure import Cell, Limits, times
    from benchmarks.peers.solvers import Peer

    class Line:
        def value(self, w):
            return 1.0 + w[0]

    asked = []

    def prepare(task, threads):
        def solve(tol):
            asked.append(tol)
            return np.array([0.5 * tol**2])

        return solve

    told: list = []
    cell = Cell(Peer("made up", "numpy", "numpy", prepare), Line(), 1.0, Limits(5.0, 50.0), told.append)
    cell.climb()
    cell.refine()
    loosest = {}
    for goal in (1e-3, 1e-6, 1e-9, 1e-12):
        loosest[goal] = max(run.setting for run in cell.runs if run.value - 1.0 <= goal)
    assert loosest == pytest.approx({1e-3: 1e-2, 1e-6: 1e-3, 1e-9: 1e-5, 1e-12: 1e-6})
    assert min(asked) == pytest.approx(1e-8), "nothing is tried beyond what reaches the last goal"
    cell.repeat()
    assert all(run.setting >= 1e-8 for run in times(cell.runs, 1.0).values())
    assert sum("warm_up" in message for message in told) == 1
