"""``trsvr compare``: real processes in an empty folder, their table, files and refusals."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
from command import assert_one_line, trsvr

from trsvr import cli, problems
from trsvr.cli.contestants import contestant, parse_methods
from trsvr.cli.paper_values import STUDIES
from trsvr.cli.race import Race
from trsvr.engine.stopping import Limits

LABELS = ["svrg step=0.0005", "svrg", "saga", "lbfgs", "trust-region"]
METHODS = "svrg:step=0.0005,svrg,saga,lbfgs,trust-region:initial_radius=2"


@pytest.fixture(scope="module")
def compared(files, tmp_path_factory):
    """A finished comparison with everything written."""
    folder = tmp_path_factory.mktemp("compared")
    process = trsvr(
        *("compare", files / "data.csv", "--target", "answer", "--l2", "0.01", "--methods", METHODS),
        *("--seeds", "3", "--passes", "60", "--out", "here"),
        folder=folder,
    )
    assert process.returncode == 0, process.stderr
    return folder / "here", process


def test_it_prints_a_table_and_where_it_wrote(compared):
    folder, process = compared
    assert process.stderr == ""  # no bars where nobody watches
    for word in ("data.csv: 300 × 3", "λ = 0.01", "passes", "≤1e-9", "median", "Written:", "here/figure.png"):
        assert word in process.stdout
    written = ["comparison.json", "figure.png", "figure.svg", "trace.csv"]
    assert sorted(path.name for path in folder.iterdir()) == written
    assert [path.name for path in folder.parent.iterdir()] == ["here"], "nothing half-written is left beside it"
    assert all(len(line) <= 100 for line in process.stdout.splitlines())


def test_the_smallest_value_is_scipys(compared, table):
    folder, _ = compared
    X, y = table
    signs = np.where(y == "yes", 1.0, -1.0)

    def value(w):
        return np.logaddexp(0.0, -signs * (X @ w)).mean() + 0.005 * w @ w

    report = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    known = scipy.optimize.minimize(value, np.zeros(3), tol=1e-12).fun
    assert report["smallest_value"] == pytest.approx(known, abs=1e-12)
    assert report["smallest_value"] <= known


def test_the_numbers_are_those_of_the_traces(compared):
    folder, _ = compared
    trace = pd.read_csv(folder / "trace.csv")
    assert list(trace.columns[:6]) == ["method", "seed", "gap", "epoch", "steps", "gradient_evaluations"]
    report = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert [line["method"] for line in report["methods"]] == LABELS == list(trace["method"].unique())
    assert (trace["gap"] >= 0).all()
    assert sorted(trace["seed"].unique()) == [0, 1, 2]
    for line in report["methods"]:
        runs = [run for _, run in trace[trace["method"] == line["method"]].groupby("seed")]
        for gap in (1e-3, 1e-6, 1e-9):
            for kind in ("passes", "seconds"):
                costs = sorted(run.loc[run["gap"] <= gap, kind].min() for run in runs)
                never = sum(np.isnan(cost) for cost in costs)
                expected = None if never > 1 else pytest.approx(sorted(np.nan_to_num(costs, nan=np.inf))[1])
                assert line[f"{kind}_to"][f"{gap:g}"] == expected
        assert line["final_gap"] == pytest.approx(np.median([run["gap"].iloc[-1] for run in runs]))
        assert line["runs"] == 3
    by_name = {line["method"]: line for line in report["methods"]}
    assert by_name["trust-region"]["settings"]["initial_radius"] == 2
    assert by_name["trust-region"]["passes_to"]["1e-09"] < 60
    assert by_name["saga"]["passes_to"]["0.001"] < 60
    assert by_name["svrg step=0.0005"]["passes_to"]["1e-09"] is None, "one that never comes there"


def test_figures_are_figures(compared):
    folder, _ = compared
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    drawn = (folder / "figure.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")


def test_the_papers_values(tmp_path):
    process = trsvr(
        *("compare", "synthetic", "--paper", "--methods", "trsvr-esth,trsvr-id,svrg:step=0.05,lbfgs"),
        *("--epochs", "2", "--seeds", "1", "--json"),
        folder=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert "no values for lbfgs" in process.stderr
    settings = {line["method"]: line["settings"] for line in report["methods"]}
    assert (settings["trsvr-esth"]["alpha"], settings["trsvr-esth"]["hessian"]) == (0.06, "estimated")
    assert (settings["trsvr-id"]["alpha"], settings["trsvr-id"]["hessian"]) == (0.05, "identity")
    for name in ("trsvr-esth", "trsvr-id", "svrg"):
        assert (settings[name]["batch_size"], settings[name]["inner_steps"]) == (200, 100)
    assert settings["svrg"]["step"] == 0.05  # the user's word counts more
    assert (report["start"], report["objective"]["gamma"], report["limits"]["epochs"]) == ("normal", 0.0, 2)
    # With the identity TRSVR is SVRG: same step, same rows, same start.
    gaps = {line["method"]: line["final_gap"] for line in report["methods"]}
    assert gaps["trsvr-id"] == pytest.approx(gaps["svrg"], rel=1e-9)
    assert not list(tmp_path.iterdir())


def test_a_data_set_by_name_prepared_otherwise(tmp_path):
    process = trsvr(
        *("compare", "breast-cancer", "--preprocess", "minmax", "--gamma", "0.001", "--methods", "trust-region,trish"),
        *("--seeds", "2", "--start", "normal", "--epochs", "5", "--json"),
        folder=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert (report["rows"], report["columns"], report["start"]) == (569, 30, "normal")
    assert report["objective"]["gamma"] == 0.001
    assert all(line["epochs"] == 5 for line in report["methods"])


def test_studies_name_what_exists():
    for study in STUDIES.values():
        for name, settings in study.methods.items():
            text = ":".join([name, *(f"{key}={value}" for key, value in settings.items())])
            assert parse_methods(text) == [(name, settings)]


def test_methods_are_read_without_being_run():
    assert parse_methods("svrg") == [("svrg", {})]
    assert parse_methods(" saga : step=1e-2:batch_size=20 , trsvr-id:alpha=0.5") == [
        ("saga", {"step": 0.01, "batch_size": 20}),
        ("trsvr-id", {"alpha": 0.5}),
    ]
    assert parse_methods("sgd:schedule=cosine")[0][1] == {"schedule": "cosine"}
    assert parse_methods("sgd:schedule=__import__('os')")[0][1] == {"schedule": "__import__('os')"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["synthetic", "--methods", "svgr"], ["--methods must be one of", "did you mean 'svrg'?"]),
        (["synthetic", "--methods", "svrg,"], ["--methods must be names separated by commas"]),
        (["synthetic", "--methods", "svrg:stp=1"], ["a setting of svrg must be one of", "did you mean 'step'?"]),
        (["synthetic", "--methods", "svrg:step"], ["a setting of svrg must be NAME=VALUE, got 'step'"]),
        (["breast-cancer", "--methods", "svrg:step=-1"], ["svrg: step must be a finite number > 0, got -1"]),
        (["breast-cancer", "--methods", "svrg:batch_size=600"], ["svrg: batch_size must be", "1 to 569, got 600"]),
        (["breast-cancer", "--methods", "svrg,svrg"], ["names svrg twice with the same settings"]),
        (["mushroms"], ["DATASET (there is no such file) must be one of", "did you mean 'mushrooms'?"]),
        (["nothing.csv"], ["nothing.csv"]),
        (["separable", "--paper"], ["--paper has values for synthetic", "not for separable"]),
        (["synthetic", "--start", "one"], ["--start must be one of 'zero', 'normal'"]),
        (["synthetic", "--seeds", "0"], ["--seeds must be a whole number >= 1, got 0"]),
        (["synthetic", "--passes", "-1"], ["--passes must be a finite number > 0"]),
        (["synthetic", "--target", "y"], ["--target, --format, --sep and --drop are for files"]),
        (["synthetic", "--l2", "-1"], ["--l2 must be a finite number >= 0"]),
    ],
)
def test_refused_in_one_line(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    for word in words:
        assert word in said.err


def test_refused_by_the_process_too(files, tmp_path):
    (tmp_path / "taken").write_text("a file")
    process = trsvr("compare", files / "data.csv", "--target", "answer", "--out", "taken", folder=tmp_path)
    assert_one_line(process, "--out must be a folder")
    assert (tmp_path / "taken").read_text() == "a file"


def test_an_interrupted_comparison_keeps_what_is_done(table):
    X, y = table
    problem = problems.logistic(X, y)
    contestants = [contestant(name, {}, problem) for name in ("svrg", "saga")]
    race = Race(problem, contestants, 4, "normal", Limits.checked(6, None, None), None)
    seen = []

    def report(contestant, done, gap):
        seen.append((contestant and contestant.name, done))
        if contestant is not None and contestant.name == "saga" and 1.3 < done < 1.4:  # in the second run
            raise KeyboardInterrupt

    race.run(report)
    assert race.interrupted
    assert [sorted(contestant.results) for contestant in contestants] == [[0, 1], [0, 1]]
    assert seen[0] == (None, 0.0)
    trace = race.trace()
    assert trace.groupby(["method", "seed"])["epoch"].max().to_dict() == {
        ("saga", 0): 6,
        ("saga", 1): 2,
        ("svrg", 0): 6,
        ("svrg", 1): 6,
    }
    assert race.summary(contestants[0])["runs"] == 2
