"""Every sub-command as a real process in an empty folder, against scikit-learn and dense NumPy."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from command import trsvr
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LogisticRegression, Ridge

from trsvr._version import __version__
from trsvr.cli import main


@pytest.fixture(scope="module")
def solved(files, tmp_path_factory):
    """A finished ``trsvr solve`` of the CSV file, with everything written."""
    folder = tmp_path_factory.mktemp("solved")
    process = trsvr(
        *("solve", files / "data.csv", "--target", "answer", "--intercept", "--l2", "0.01"),
        *("--test-size", "60", "--out", "here", "--seed", "3"),
        folder=folder,
    )
    assert process.returncode == 0, process.stderr
    return folder / "here", process


def test_solve_prints_a_table(solved):
    folder, process = solved
    for word in ("converged", "gap", "passes", "seconds", "240 rows × 3 columns", "train", "held out (60)", "accuracy"):
        assert word in process.stdout
    assert process.stderr == ""
    assert sorted(path.name for path in folder.iterdir()) == [
        *("coefficients.csv", "figure.png", "result.json", "result.npz", "trace.csv")
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["here"]


def test_solve_finds_what_scikit_learn_finds(solved, table):
    folder, _ = solved
    X, y = table
    held_out = np.sort(np.random.default_rng(3).permutation(300)[:60])
    rest = np.setdiff1d(np.arange(300), held_out)
    theirs = LogisticRegression(C=1 / (0.01 * 240), tol=1e-10).fit(X[rest], y[rest])
    with np.load(folder / "result.npz", allow_pickle=False) as arrays:
        assert arrays["x"] == pytest.approx([*theirs.coef_[0], theirs.intercept_[0]], abs=1e-5)
        assert list(arrays["classes"]) == ["no", "yes"]
    report = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert report["train"]["accuracy"] == pytest.approx(theirs.score(X[rest], y[rest]))
    assert report["held_out"]["accuracy"] == pytest.approx(theirs.score(X[held_out], y[held_out]))
    assert report["gap"]["kind"] == "bound"
    assert 0.0 < report["gap"]["value"] < 1e-10
    assert report["status"] == "converged"
    assert report["column_names"] == ["height", "weight", "age"]


def test_trace_and_figure(solved):
    folder, _ = solved
    trace = pd.read_csv(folder / "trace.csv")
    assert {"epoch", "passes", "value", "gradient_norm_sq"} <= set(trace.columns)
    assert trace["epoch"].iloc[0] == 0
    assert trace["value"].iloc[-1] <= trace["value"].iloc[0]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("where", ["folder", "npz"])
def test_predict(solved, files, table, tmp_path, where):
    folder, _ = solved
    model = folder if where == "folder" else folder / "result.npz"
    X, y = table
    with np.load(folder / "result.npz") as arrays:
        margins = X @ arrays["x"][:3] + arrays["x"][3]
    expected = np.where(margins > 0, "yes", "no")
    if where == "folder":
        process = trsvr("predict", model, files / "data.csv", folder=tmp_path)
        rows = list(csv.reader(io.StringIO(process.stdout)))
        assert rows[0] == ["prediction"]
        assert [row[0] for row in rows[1:]] == expected.tolist()
        assert f"accuracy {np.mean(expected == y):.6g}" in process.stderr
        assert not list(tmp_path.iterdir())
    else:
        # Columns are found by name, a target is not needed.
        frame = pd.DataFrame(X, columns=["height", "weight", "age"])[["age", "height", "weight"]]
        frame.to_parquet(tmp_path / "new.parquet")
        process = trsvr("predict", model, "new.parquet", "--out", "p.csv", "--probabilities", folder=tmp_path)
        assert process.stdout == process.stderr == ""
        predicted = pd.read_csv(tmp_path / "p.csv")
        assert predicted["prediction"].tolist() == expected.tolist()
        assert predicted["probability of yes"].to_numpy() == pytest.approx(1 / (1 + np.exp(-margins)))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["new.parquet", "p.csv"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("data.parquet", ["--target", "answer"]),
        ("data.svm", []),
        ("dense.npz", []),
        ("sparse.npz", ["--target", "answer"]),
    ],
)
def test_every_format_gives_the_same_answer(answer, files, tmp_path, name, options):
    goal = ("--lambda", "0.01", "--no-intercept")
    report = answer("solve", files / name, *options, *goal, folder=tmp_path)
    csv_report = answer("solve", files / "data.csv", "--target", "answer", *goal, folder=tmp_path)
    assert report["value"] == pytest.approx(csv_report["value"], abs=1e-12)
    assert (report["rows"], report["columns"]) == (300, 3)
    assert report["gap"]["kind"] == "bound"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def answer(capsys, monkeypatch):
    """Runs a command with ``--json`` within this process, where warnings are errors; returns what it printed."""

    def run(*arguments, folder, status=0):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TRSVR_QUIET", "1")
        assert main([*map(str, arguments), "--json"]) == status
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out)

    return run


def test_regression_and_other_methods(answer, files, tmp_path, table):
    X, _ = table
    y = X @ [1.0, 2.0, 3.0] + 0.5
    pd.DataFrame(X).assign(y=y).to_csv(tmp_path / "numbers.csv", index=False, header=False)
    report = answer(
        *("solve", "numbers.csv", "--no-header", "--target", "3", "--loss", "squared", "--intercept", "--l2", "0.1"),
        *("--method", "svrg", "--batch-size", "10", "--set", "inner_steps=60", "--out", "m"),
        folder=tmp_path,
    )
    theirs = Ridge(alpha=0.1 * 300, tol=1e-12).fit(X, y)
    with np.load(tmp_path / "m" / "result.npz") as arrays:
        assert arrays["x"] == pytest.approx([*theirs.coef_, theirs.intercept_], abs=1e-5)
    assert report["train"]["r2"] == pytest.approx(theirs.score(X, y), abs=1e-6)
    assert report["settings"]["inner_steps"] == 60


def test_a_run_that_does_not_converge_says_so(answer, files, tmp_path):
    arguments = ("solve", files / "data.svm", "--method", "svrg", "--step", "1e-6", "--epochs", "2")
    process = trsvr(*arguments, "--json", folder=tmp_path)
    assert (process.returncode, process.stderr) == (1, "")
    report = json.loads(process.stdout)
    assert (report["status"], report["success"]) == ("epoch_limit", False)
    assert answer(*arguments, "--tol", "none", folder=tmp_path)["status"] == "epoch_limit"


def test_theory(answer, files, tmp_path, table):
    X, _ = table
    report = answer("theory", files / "data.svm", "--l2", "0.01", folder=tmp_path)
    assert pytest.approx(np.linalg.eigvalsh(0.25 * X.T @ X / 300)[-1] + 0.01, rel=1e-5) == report["L"]
    largest = 0.25 * (X**2).sum(axis=1).max() + 0.01
    assert report["L_max"] == pytest.approx(largest)
    assert report["mu"] == 0.01
    assert report["settings"]["batch_size"] == 44  # 300^(2/3) = 44.8
    assert report["settings"]["alpha"] == pytest.approx(44 / 300 ** (2 / 3) / (6 * largest))
    assert report["guaranteed"]
    assert report["steps"]["svrg"]["1"] == pytest.approx(1 / (6 * largest))
    shown = trsvr(
        *("theory", files / "data.csv", "--target", "answer", "--gamma", "1", "--alpha", "1"),
        *("--batch-size", "20", "--inner-steps", "100"),
        folder=tmp_path,
    )
    assert shown.returncode == 0, shown.stderr
    for word in ("L_max", "radius", "FAILS", "no guarantee", "Recommended step sizes", "sarah"):
        assert word in shown.stdout
    assert not list(tmp_path.iterdir())


def test_version_help_and_completion(tmp_path):
    assert trsvr("--version", folder=tmp_path).stdout == f"trsvr {__version__}\n"
    assert "Data sets" in trsvr("data", "--help", folder=tmp_path).stdout
    shown = trsvr("solve", "--help", folder=tmp_path)
    assert shown.returncode == 0
    for option in (
        *("target", "loss", "l2", "gamma", "a", "intercept", "alpha", "batch-size", "inner-steps", "hessian", "method"),
        *("epochs", "passes", "seconds", "tol", "seed", "threads", "test-size", "out"),
    ):
        assert f"--{option} " in shown.stdout
    completed = trsvr(
        folder=tmp_path,
        _TRSVR_COMPLETE="complete_bash",
        COMP_WORDS="trsvr solve file --loss squared-",
        COMP_CWORD="4",
    )
    assert completed.stdout.split() == ["squared-hinge"]


def test_the_library_does_not_need_the_command_line():
    code = (
        "import sys; sys.modules.update(typer=None, rich=None); import trsvr, trsvr.theory, trsvr.cli; "
        "assert not any(name.startswith('trsvr.cli.') for name in sys.modules); sys.exit(trsvr.cli.main(['--version']))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 2
    assert "pip install 'trsvr[cli]'" in process.stderr


@pytest.mark.data
def test_real_data_compressed(answer, data_folder, tmp_path):
    report = answer(*("solve", data_folder / "mushrooms.svm.bz2", "--test-size", "0.25"), folder=tmp_path)
    assert (report["rows"], report["held_out_rows"]) == (6093, 2031)
    assert report["held_out"]["accuracy"] > 0.99


def test_the_table_shows_the_objective_and_the_answer(solved):
    _, process = solved
    for words in ("logistic, λ = 0.01, with an intercept", "coefficients", "intercept", "weight -"):
        assert words in process.stdout
    assert "auto" not in process.stdout


def test_coefficients_have_names(solved):
    folder, _ = solved
    with (folder / "coefficients.csv").open(newline="") as file:  # older parsers of pandas lose a bit
        rows = {row["column"]: float(row["coefficient"]) for row in csv.DictReader(file)}
    table = pd.Series(rows)
    assert list(table.index) == ["height", "weight", "age", "(intercept)"]
    with np.load(folder / "result.npz") as arrays:
        assert (table.to_numpy() == arrays["x"]).all()
    report = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert report["coefficients"] == table.iloc[:3].to_dict()
    assert report["intercept"] == table["(intercept)"]


def test_coefficients_of_several_classes(answer, files, table, tmp_path):
    X, _ = table
    names = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=names).to_csv(tmp_path / "three.csv", index=False)
    report = answer("solve", "three.csv", "--loss", "softmax", "--l2", "0.1", "--out", "m", folder=tmp_path)
    theirs = LogisticRegression(C=1 / (0.1 * 300), tol=1e-10).fit(X, names)
    written = pd.read_csv(tmp_path / "m" / "coefficients.csv", index_col="column")
    assert list(written.columns) == ["high", "low", "middle"]
    assert written.iloc[:3].to_numpy() == pytest.approx(theirs.coef_.T, abs=1e-5)
    assert report["intercept"]["low"] == pytest.approx(written.loc["(intercept)", "low"], rel=1e-14)  # as pandas reads


def test_an_intercept_by_default_weights_separators_and_dropped_columns(answer, table, tmp_path):
    """A file as it comes: semicolons, a name in front of every row, weights beside it."""
    X, y = table
    weights = np.arange(300) % 3 + 1
    frame = pd.DataFrame(X, columns=["height", "weight", "age"]).assign(answer=y, w=weights)
    frame.insert(0, "id", [f"p{k}" for k in range(300)])
    theirs = LogisticRegression(C=1 / (0.01 * weights.sum()), tol=1e-10).fit(X, y, sample_weight=weights)
    for name, separator, more in (
        ("semi.csv", ";", []),
        ("tabs.txt", "\t", ["--format", "csv"]),
        ("bars.csv", "|", []),
    ):
        frame.to_csv(tmp_path / name, index=False, sep=separator)
        options = ("--target", "answer", "--weights", "w", "--drop", "id", "--l2", "0.01", *more)
        report = answer("solve", name, *options, folder=tmp_path)
        assert list(report["coefficients"].values()) == pytest.approx(theirs.coef_[0], abs=1e-5)
        assert report["intercept"] == pytest.approx(theirs.intercept_[0], abs=1e-5)
        assert report["train"]["accuracy"] == pytest.approx(theirs.score(X, y, sample_weight=weights))
    chosen = answer("solve", "bars.csv", "--sep", "|", *options, folder=tmp_path)
    assert chosen["value"] == report["value"]
    np.savez(tmp_path / "w.npz", X=X, y=y, w=weights)
    archive = answer("solve", "w.npz", "--weights", "w", "--l2", "0.01", folder=tmp_path)
    assert archive["value"] == pytest.approx(report["value"], abs=1e-12)


def test_the_index_of_a_data_frame_is_no_column(answer, files, table, tmp_path):
    X, y = table
    frame = pd.DataFrame(X, columns=["height", "weight", "age"]).assign(answer=y)
    frame.to_csv(tmp_path / "indexed.csv")
    report = answer("solve", "indexed.csv", "--target", "answer", folder=tmp_path)
    assert report["column_names"] == ["height", "weight", "age"]
    assert report["left_out"] == "Unnamed: 0"
    assert report["value"] == answer("solve", files / "data.csv", "--target", "answer", folder=tmp_path)["value"]


@pytest.mark.parametrize("name", ["data.csv", "data.svm", "dense.npz"])
def test_standardised_and_told_in_the_files_units(answer, files, table, tmp_path, name):
    X, y = table
    options = ("--target", "answer") if name == "data.csv" else ()
    report = answer("solve", files / name, *options, "--standardize", "--l2", "0.1", "--out", "m", folder=tmp_path)
    scale = X.std(axis=0)
    theirs = LogisticRegression(C=1 / (0.1 * 300), tol=1e-10).fit(X / scale, y)
    with np.load(tmp_path / "m" / "result.npz") as arrays:
        assert arrays["x"] == pytest.approx([*(theirs.coef_[0] / scale), theirs.intercept_[0]], abs=1e-5)
    assert report["train"]["accuracy"] == pytest.approx(theirs.score(X / scale, y))


def test_labels_that_a_model_does_not_know_are_not_scored(solved, files, table, tmp_path):
    """0 and 1 are not −1 and +1: half of them would count as wrong."""
    X, y = table
    fit = trsvr("solve", files / "data.svm", "--out", "m", folder=tmp_path)
    assert fit.returncode == 0
    dump_svmlight_file(X, np.where(y == "yes", 1, 0), str(tmp_path / "zero.svm"), zero_based=False)
    process = trsvr("predict", "m", "zero.svm", "--out", "p.csv", folder=tmp_path)
    assert process.returncode == 0
    assert process.stderr.splitlines() == ["zero.svm: no score: the target has the label 0, and the model knows -1, 1"]
    told = json.loads(trsvr("predict", "m", "zero.svm", "--out", "p.csv", "--json", folder=tmp_path).stdout)
    assert told["scores"] is None
    assert "label 0" in told["not_scored"]
