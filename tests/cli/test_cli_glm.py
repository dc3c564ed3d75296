"""Generalised linear models on the command line: families, offsets, categories, standard errors."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose

from trsvr.cli import main

CATEGORICAL = ["--categorical", "auto", "--drop-first"]
SOLVE = ["--target", "claims", "--loss", "poisson", "--penalty", "0", "--tol", "1e-11", "--offset", "log(exposure)"]


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims")
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, n).round(1),
            "region": rng.choice(["north", "south", "east"], n),
            "car": rng.integers(0, 3, n),
            "exposure": rng.uniform(0.1, 1.0, n).round(3),
            "site": rng.integers(0, 12, n),
            "w": rng.integers(1, 4, n),
        }
    )
    mean = np.exp(0.01 * frame.age + 0.4 * (frame.region == "south") - 0.2 * frame.car) * frame.exposure
    frame["claims"] = rng.poisson(mean)
    frame.to_csv(folder / "claims.csv", index=False)
    frame.assign(region=frame.region.astype("category")).to_parquet(folder / "claims.parquet")
    return folder, frame


@pytest.fixture
def run(claims, capsys, monkeypatch):
    def run(*arguments, status=0):
        monkeypatch.chdir(claims[0])
        monkeypatch.setenv("TRSVR_QUIET", "1")
        monkeypatch.setenv("COLUMNS", "120")
        found = main([str(word) for word in arguments])
        said = capsys.readouterr()
        assert found == status, said.err
        return said.out if status == 0 else said.err

    return run


def wanted(frame, **options):
    model = smf.glm(
        "claims ~ age + C(region) + C(car)",
        frame,
        family=sm.families.Poisson(),
        offset=np.log(frame.exposure),
        freq_weights=frame.w,
    )
    return model.fit(tol=1e-14, **options)


@pytest.mark.parametrize("name", ["claims.csv", "claims.parquet"])
@pytest.mark.parametrize("more", [(), ("--standardize",)], ids=["plain", "standardised"])
def test_counts_with_exposure_weights_and_categories(run, claims, tmp_path, name, more):
    fit = tmp_path / "fit"
    columns = ["--weights", "w", "--drop", "site", "--categorical", "car", *CATEGORICAL]
    report = json.loads(run("solve", name, *SOLVE, *columns, *more, "--out", fit, "--json"))
    theirs = wanted(claims[1])
    params = theirs.params.rename(lambda label: label.replace("C(", "").replace(")[T.", "=").replace("]", ""))
    assert report["coefficients"].keys() == {"age", "region=north", "region=south", "car=1", "car=2"}
    assert_allclose([report["coefficients"][key] for key in params.index[1:]], params.iloc[1:], rtol=1e-6)
    assert report["intercept"] == pytest.approx(params["Intercept"], rel=1e-6)
    assert report["train"]["d2"] > 0.0
    table = pd.read_csv(fit / "coefficients.csv", index_col=0)["coefficient"]
    assert table["region=south"] == pytest.approx(report["coefficients"]["region=south"], rel=1e-15)

    told = json.loads(run("summary", fit, "--json"))
    errors = [told["coefficients"][key]["standard error"] for key in params.index[1:]]
    assert_allclose(errors, theirs.bse.iloc[1:], rtol=1e-6)
    assert told["deviance"] == pytest.approx(theirs.deviance, rel=1e-8)
    assert told["log_likelihood"] == pytest.approx(theirs.llf, rel=1e-8)
    shown = run("summary", fit, "--kind", "HC0", "--out", tmp_path / "table.csv")
    assert "region=south" in shown
    white = pd.read_csv(tmp_path / "table.csv", index_col=0)["standard error"]
    assert_allclose(white[params.index[1:]], wanted(claims[1], cov_type="HC0").bse.iloc[1:], rtol=1e-6)

    predicted = pd.read_csv(_written(run("predict", fit, name), tmp_path))["prediction"]
    assert_allclose(predicted, theirs.fittedvalues, rtol=1e-6)


def _written(text, folder):
    (folder / "predicted.csv").write_text(text)
    return folder / "predicted.csv"


def test_groups_of_rows(run, claims, tmp_path):
    run("solve", "claims.csv", *SOLVE, "--drop", "site", "--drop", "w", *CATEGORICAL, "--out", tmp_path / "fit")
    told = json.loads(run("summary", tmp_path / "fit", "--groups", "site", "--json"))
    frame = claims[1]
    model = smf.glm("claims ~ age + region + car", frame, family=sm.families.Poisson(), offset=np.log(frame.exposure))
    theirs = model.fit(tol=1e-14, cov_type="cluster", cov_kwds={"groups": frame.site})
    assert told["kind"] == "cluster"
    assert told["coefficients"]["age"]["standard error"] == pytest.approx(theirs.bse["age"], rel=1e-6)


def test_a_penalty_on_standardised_columns(run, claims, tmp_path):
    """In units of their spread: the summary's penalty is then another for each column."""
    frame = claims[1]
    options = ["--target", "claims", "--loss", "poisson", "--penalty", "0.1", "--tol", "1e-11", "--standardize"]
    dropped = [word for name in ("region", "site", "w", "exposure") for word in ("--drop", name)]
    run("solve", "claims.csv", *options, *dropped, "--out", tmp_path / "fit")
    told = json.loads(run("summary", tmp_path / "fit", "--json"))
    X = frame[["age", "car"]].to_numpy(dtype=float)
    A = np.column_stack([X, np.ones(len(X))])
    x = np.array([told["coefficients"][name]["coefficient"] for name in ("age", "car", "(intercept)")])
    information = A.T @ (A * np.exp(A @ x)[:, None])
    inverse = np.linalg.inv(information + len(X) * np.diag([*(0.1 * X.var(axis=0)), 0.0]))
    errors = np.sqrt(np.diagonal(inverse @ information @ inverse))
    assert_allclose(
        [told["coefficients"][name]["standard error"] for name in ("age", "car", "(intercept)")], errors, rtol=1e-6
    )
    assert told["effective_coefficients"] == pytest.approx(np.trace(inverse @ information), rel=1e-8)


def test_offsets_of_new_rows(run, claims, tmp_path, capsys):
    fit = tmp_path / "fit"
    run("solve", "claims.csv", *SOLVE, "--drop", "site", "--drop", "w", *CATEGORICAL, "--out", fit)
    claims[1].drop(columns="exposure").to_csv(tmp_path / "new.csv", index=False)
    status = main(["predict", str(fit), str(tmp_path / "new.csv")])
    said = capsys.readouterr()
    assert status == 0
    assert "no 'log(exposure)': predicted with an offset of 0" in said.err
    without = pd.read_csv(_written(said.out, tmp_path))["prediction"]
    whole = pd.read_csv(_written(run("predict", fit, "claims.csv"), tmp_path))["prediction"]
    assert_allclose(whole, without * claims[1]["exposure"], rtol=1e-12)
    claims[1].assign(region="west").to_csv(tmp_path / "new.csv", index=False)
    assert "has the level 'west', which the model does not know" in run("predict", fit, tmp_path / "new.csv", status=2)


@pytest.mark.parametrize("loss", ["tweedie", "negative-binomial", "binomial"])
def test_other_families(run, tmp_path, loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    mean = np.exp(X @ [0.5, -0.3])
    y = rng.binomial(4, mean / (1 + mean)) / 4 if loss == "binomial" else rng.poisson(mean)
    np.savez(tmp_path / "d.npz", X=X, y=y, trials=np.full(200, 4.0), shift=np.zeros(200))
    fit, options = tmp_path / "fit", ["--power", "1.2", "--dispersion", "0.3", "--tol", "1e-10"]
    weights = ["--weights", "trials", "--offset", "shift"]
    run("solve", tmp_path / "d.npz", "--loss", loss, "--penalty", "0", *options, *weights, "--out", fit)
    told = json.loads(run("summary", fit, "--json", *(["--precision"] if loss == "binomial" else [])))
    family = {
        "tweedie": sm.families.Tweedie(sm.families.links.Log(), 1.2),
        "negative-binomial": sm.families.NegativeBinomial(alpha=0.3),
        "binomial": sm.families.Binomial(),
    }[loss]
    theirs = sm.GLM(y, sm.add_constant(X), family=family, freq_weights=np.full(200, 4.0)).fit(tol=1e-13)
    assert told["coefficients"]["1"]["coefficient"] == pytest.approx(theirs.params[1], rel=1e-5)
    assert told["coefficients"]["1"]["standard error"] == pytest.approx(
        theirs.bse[1], rel=2e-2 if loss == "tweedie" else 1e-5
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--loss", "tweedie", "--power", "2.5"], "--power must be a number from 1"),
        (["--loss", "negative-binomial", "--dispersion", "0"], "--dispersion must be a finite number > 0"),
        (["--loss", "gamma", "--drop", "region"], "--target must be > 0 for --loss gamma, got 0 in row"),
        (
            ["--loss", "poisson", "--target", "region"],
            "--target must hold numbers for --loss poisson, got '",
        ),
        (["--loss", "poisson", "--drop", "region", "--drop-first"], "--drop-first needs --categorical"),
        (
            ["--loss", "poisson", "--drop", "region", "--penalty", "-1"],
            "--penalty must be a finite number >= 0, got -1.0",
        ),
        (
            ["--loss", "poisson", "--drop", "region", "--weights", "claims"],
            "--weights claims: this column is the target",
        ),
        (
            ["--loss", "poisson", "--categorical", "claims"],
            "--categorical claims: this column is the target",
        ),
        (["--loss", "poisson", "--drop", "region", "--offset", "claims"], "--offset claims: this column is the target"),
        (["--loss", "poisson"], "--categorical region makes columns of 0 and 1 of it"),
        (["--loss", "poisson", "--categorical", "regoin"], "did you mean 'region'?"),
        (["--loss", "poisson", "--offset", "expsure"], "did you mean 'exposure'?"),
        (["--loss", "poisson", "--drop", "region", "--offset", "log(car)"], "needs numbers > 0, got 0.0 in row"),
    ],
)
def test_one_line_for_bad_input(run, arguments, words):
    said = run("solve", "claims.csv", "--target", "claims", *arguments, status=2)
    assert words in said
    assert len(said.splitlines()) == 1


def test_what_cannot_be_summarised(run, tmp_path, claims):
    (tmp_path / "no").mkdir()
    assert "no result.npz there" in run("summary", tmp_path / "no", status=2)
    run("solve", "claims.csv", "--target", "car", "--loss", "softmax", *CATEGORICAL, "--out", tmp_path / "fit")
    assert "one output" in run("summary", tmp_path / "fit", status=2)
    for damaged in ("[]", '{"task": {}}', "not json"):
        (tmp_path / "fit" / "result.json").write_text(damaged)
        assert "result.json" in run("summary", tmp_path / "fit", status=2)
    both = ["--categorical", "region", "--drop", "site", "--drop", "w"]
    run("solve", "claims.csv", *SOLVE, *both, "--out", tmp_path / "all")
    said = run("summary", tmp_path / "all", status=2)
    assert "'region=east', 'region=north', 'region=south', '(intercept)' depend on each other" in said
