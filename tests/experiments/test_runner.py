"""The runner: killed at any moment it goes on, asked again it does nothing, and the same seeds give the same bits."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tiny_study import TINY, command, run_here

from cases import cases
from trsvr._compile import cache_folder
from trsvr.experiments import references, results
from trsvr.experiments import runner as running
from trsvr.experiments.contents import document
from trsvr.experiments.document import Table
from trsvr.experiments.execute import TIMING_COLUMNS
from trsvr.experiments.subjects import Subject

BENCHOPT = ["objective_name", "dataset_name", "solver_name", "idx_rep", "sampling_strategy", "stop_val", "time"]
OURS = ["objective_value", "passes", "gradient_evaluations", "hessian_products", "gradient_norm_sq"]
# More and longer jobs than the tiny study has, so that there is something to kill.
LONGER = TINY.replace("epochs = 5", "epochs = 40").replace("seeds = 3", "seeds = 8")


def _contents(folder):
    """All result files without what may differ between two runs."""
    found = {}
    for path in sorted((folder / "results").glob("*.parquet")):
        table = pq.read_table(path)
        metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        found[path.name] = (metadata, table.drop_columns(list(TIMING_COLUMNS)).to_pydict())
    return found


def _tables(folder):
    """The report's tables without columns of time, machine and sessions."""
    tables = [block for block in document(results.read(folder)).blocks if isinstance(block, Table)]
    timed = ("seconds", "time of its runs", "s: whole budget / adaptive to 1e-9")
    return [
        [[cell for name, cell in zip(table.head, row, strict=True) if name not in timed] for row in table.rows]
        for table in tables[:-1]
    ]


def _same(left, right):
    """Equal, a NaN being equal to a NaN."""
    return json.dumps(left, default=str) == json.dumps(right, default=str)


def test_two_runs_are_the_same_but_for_the_time(finished, tiny, tmp_path):
    run_here([tiny, tiny.nonconvex()], tmp_path)
    first, second = _contents(finished), _contents(tmp_path)
    assert list(first) == list(second)
    assert len(first) == 18
    assert _same([t for _, t in first.values()], [t for _, t in second.values()])
    assert [m for m, _ in first.values()] == [m for m, _ in second.values()]


def test_columns_are_benchopts_and_ours(finished):
    path = next((finished / "results").glob("*.parquet"))
    frame = pd.read_parquet(path)
    assert {*BENCHOPT, *OURS, "p_obj_l2"} <= set(frame.columns)
    assert (frame["stop_val"] == frame["epoch"]).all()
    assert frame["time"].is_monotonic_increasing
    assert np.allclose(frame["passes"], frame["gradient_evaluations"] / 300)
    asked = json.loads(pq.read_schema(path).metadata[b"trsvr.job"])
    assert asked["seed"] == frame["seed"].iloc[0]


def test_a_finished_run_costs_nothing(finished, tiny):
    runner = running.Runner(finished)
    stamps = {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")}
    told = []
    runner.report = lambda *what: told.append(what)
    plans = runner.plan([tiny])
    assert runner.run([job for plan in plans for _, _, job in plan.jobs()]) == 0
    assert told[-1][:2] == (9, 9)
    assert stamps == {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")}


def test_workers_give_what_this_process_gives(finished, tiny, tmp_path):
    runner = running.Runner(tmp_path, running.in_processes(2), 2)
    plans = runner.plan([tiny])
    left = []
    runner.report = lambda done, total, seconds, note: left.append((done, total, seconds))
    assert runner.run([job for plan in plans for _, _, job in plan.jobs()]) == 9
    assert [done for done, *_ in left] == list(range(10))
    assert left[-1] == (9, 9, 0.0)
    mine = _contents(tmp_path)
    known = _contents(finished)
    assert _same([mine[name][1] for name in mine], [known[name][1] for name in mine])


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_tables(tmp_path):
    (tmp_path / "longer.toml").write_text(LONGER)
    arguments = ("run", "longer.toml", "--no-report")
    whole = command(*arguments, "--jobs", "1", "--out", "whole", folder=tmp_path)
    assert whole.wait(600) == 0, whole.stderr.read()
    chance = random.Random(7)
    killed = 0
    results_folder = tmp_path / "cut" / "results"
    while killed < 10:
        before = len(list(results_folder.glob("*.parquet")))
        process = command(*arguments, "--jobs", str(1 + killed % 2), "--out", "cut", folder=tmp_path)
        # Any moment: while it starts, between two jobs, within one. Half of the time it may first finish something.
        patience = time.monotonic() + chance.uniform(0.0, 2.0)
        wait_for_one = chance.random() < 0.5 and before < 20
        while process.poll() is None and (
            time.monotonic() < patience or (wait_for_one and len(list(results_folder.glob("*.parquet"))) == before)
        ):
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait(60)
        process.stdout.close()
        process.stderr.close()
    last = command(*arguments, "--jobs", "2", "--out", "cut", folder=tmp_path)
    assert last.wait(600) == 0, last.stderr.read()
    for process in (whole, last):
        process.stdout.close()
        process.stderr.close()
    assert _same(list(_contents(tmp_path / "cut").items()), list(_contents(tmp_path / "whole").items()))
    assert _tables(tmp_path / "cut")[1:] == _tables(tmp_path / "whole")[1:]
    leftovers = [path for path in (tmp_path / "cut").rglob(".*") if path.name != ".lock"]
    assert leftovers == []


def test_a_file_cut_short_is_never_seen(finished, tiny, tmp_path, monkeypatch):
    """Killed while it writes: the half-written file has another name and is swept up by the next run."""
    half = tmp_path / "results" / ".abc.parquet.xyz.part"
    half.parent.mkdir()
    half.write_bytes(b"half")
    with running.at_work(tmp_path):
        assert not half.exists()
        with pytest.raises(ValueError, match="another run is at work there"), running.at_work(tmp_path):
            pass
    with running.at_work(tmp_path):
        pass


def test_without_data_files_it_says_what_is_missing(tmp_path):
    """The process itself, with no folder to look in and no network to ask."""
    spec = TINY.replace("[grid.TRSVR-EstH]", "").replace("alpha = { low = 0.01, high = 1.0, points = 3 }", "")
    spec += '\n[[problem]]\ndata = "mushrooms"\n[[problem.method]]\nlabel = "SVRG"\nsolver = "svrg"\n'
    (tmp_path / "two.toml").write_text(spec)
    (tmp_path / "empty").mkdir()
    # A cache without data sets, but with the kernels that are compiled already.
    (tmp_path / "cache").mkdir(mode=0o700)
    if cache_folder() is not None:
        (tmp_path / "cache" / "kernels").symlink_to(cache_folder().parent)
    process = command(
        *("run", "two.toml", "--out", "out", "--jobs", "1", "--quick"),
        folder=tmp_path,
        TRSVR_DATA_DIR=str(tmp_path / "empty"),
        https_proxy="http://127.0.0.1:9",
        HTTPS_PROXY="http://127.0.0.1:9",
        TRSVR_CACHE_DIR=str(tmp_path / "cache"),
    )
    said, complaints = process.communicate(timeout=240)
    assert process.returncode == 0, complaints
    assert "tiny runs without mushrooms" in complaints
    assert "Put mushrooms" in complaints
    assert "Written:" in said
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "These data sets are missing" in report
    assert "Quick run" in report
    assert "100 rows drawn" in report


def test_the_smallest_value_is_agreed_on(finished, tiny):
    subject = Subject.of(tiny.problems[0], tiny.objective)
    facts = references.find(subject, references.known_in(finished / "references"))
    assert facts["relative_difference"] <= references.AGREEMENT
    assert facts["value"] == min(facts["own_value"], facts["scipy_value"])
    assert (finished / "references" / f"{subject.identity()}.json").exists()
    # Two formulas for the same function: the one in NumPy at our minimiser.
    data = subject.dataset()
    _, w = references.own_value(subject.problem())
    value = np.logaddexp(0, -data.y * (data.X @ w)).mean() + 0.05 * w @ w
    assert value == pytest.approx(facts["value"], rel=1e-13)


def test_scipys_objective_has_the_right_derivatives():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 5)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    value, w = references.scipy_value(X, y, 1e-2, 0.3, 0.5)

    def f(v):
        return np.logaddexp(0, -y * (X @ v)).mean() + 0.005 * v @ v + 0.3 / 5 * np.sum((v * v - 0.25) ** 2)

    assert value == pytest.approx(f(w), rel=1e-14)
    for _ in cases(5, seed=3):
        direction = rng.normal(size=5)
        assert abs(f(w + 1e-5 * direction) - f(w - 1e-5 * direction)) / 2e-5 < 1e-7


def test_the_nonconvex_variant_counts_basins(finished, tiny):
    read = results.read(finished)
    subject = read.study("tiny-nonconvex").subjects[0]
    assert subject.facts["value"] is None
    assert subject.facts["gamma"] == pytest.approx(10 * 0.1 * 4)
    ends = [run.basin_value for line in subject.lines for run in line.runs]
    assert len(ends) == 9
    assert np.isfinite(ends).all()
    assert subject.reference == min(min(run["objective_value"].min() for ln in subject.lines for run in ln.runs), *ends)
    others, of = subject.other_basins()
    assert of == 9
    assert others == sum(end > min(ends) + 1e-9 for end in ends)
    assert others > 0, "starts with normal entries do not all fall into one of 2^4 wells"


def test_products_can_be_left_out_of_the_passes(finished):
    line = results.read(finished).study("tiny").subjects[0].line("TRSVR-EstH")
    for run in line.runs:
        epochs = run["epoch"]
        # A full gradient and 20 steps of 2·10 component gradients an epoch.
        assert run["passes_without"] == pytest.approx(epochs * (300 + 20 * 20) / 300)
        assert (run["passes"][1:] > run["passes_without"][1:]).all()
        assert run["passes"][1:] * 300 == pytest.approx(epochs[1:] * 700 + 10 * run["hessian_products"][1:])


def test_parts_of_a_study_add_up(tiny, tmp_path):
    """Methods, seeds and data sets asked for later join what is there; another budget replaces it."""
    first = dataclasses.replace(tiny.only(["TRSVR-EstH"]), seeds=1)
    runner = running.Runner(tmp_path)

    def lines(study, quick=False):
        running.record(tmp_path, runner.plan([study]), quick)
        entry = running.read_run(tmp_path)["studies"]["tiny"]
        return {(line["label"], line["seed"]) for line in entry["jobs"]}, entry["study"]["seeds"]

    assert lines(first) == ({("TRSVR-EstH", 0)}, 1)
    labels = [method.label for method in tiny.problems[0].methods]
    everything = {(label, seed) for label in labels for seed in range(3)}
    assert lines(tiny) == (everything, 3)
    assert lines(first) == (everything, 3)
    assert lines(dataclasses.replace(tiny, epochs=6, seeds=1)) == ({(label, 0) for label in labels}, 1)
    assert lines(first, quick=True) == ({("TRSVR-EstH", 0)}, 1)


def test_a_timed_job_runs_alone(tiny, tmp_path):
    """One after the other in this process, whatever the mapper is."""

    def refuse(work, items):
        assert not items
        return iter(())

    runner = running.Runner(tmp_path, refuse, 2)
    timed = dataclasses.replace(tiny, timed=True, seeds=1)
    subject = Subject.of(tiny.problems[0], tiny.objective)
    plan = running.Plan(timed, {subject: references.find(subject, {})})
    assert runner.run([job for _, _, job in plan.jobs()]) == 3
