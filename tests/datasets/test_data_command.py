from __future__ import annotations

import pytest
from typer.testing import CliRunner

from trsvr import datasets
from trsvr.cli.data import app
from trsvr.datasets import DataNotFoundError, search


def _say(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    if result.exception:
        raise result.exception
    return result.output


def test_list_names_them_all():
    said = _say("list")
    for name in datasets.list().index:
        assert name in said
    assert "581012 × 54" in said
    assert "download" in said
    assert "generator" in said


def test_table():
    table = datasets.list()
    assert table.loc["covtype", "columns"] == 54
    assert table.loc["rcv1-subset-union", "where"] == "not found"
    assert table.loc["ijcnn1", "test_rows"] == 91701
    for name in ("synthetic", "breast-cancer", "digits-even"):
        data = datasets.load(name)
        assert (data.n_samples, data.n_features) == tuple(table.loc[name, ["rows", "columns"]])
        assert data.density == table.loc[name, "density"]
        assert table.loc[name, "preprocess"] == data.preprocess


def test_info_shows_every_number():
    said = _say("info", "breast-cancer", "--preprocess", "none")
    data = datasets.load("breast-cancer", preprocess="none")
    facts = datasets.facts(data)
    lines = {line[:14].strip(): line[14:] for line in said.splitlines()}
    assert lines["rows"] == "569"
    assert lines["columns"] == "30"
    assert lines["density"] == f"{data.density:.4g} (16992 nonzeros)"
    assert lines["labels"] == "0 → -1 (37.3%), 1 → +1 (62.7%)"
    assert lines["values"] == "0 … 4254"
    assert lines["condition"].startswith(f"{facts.condition:.4g}")
    assert lines["L"].startswith(f"{facts.lipschitz:.6g}")
    assert lines["L_max"] == f"{facts.lipschitz_max:.6g}"
    assert lines["sha256"] == data.sha256


def test_info_says_what_was_not_computed(monkeypatch):
    monkeypatch.setattr("trsvr.datasets.load", lambda *_, **__: datasets.text_like(30, 2000))
    assert "not computed: more than 1000 columns" in _say("info", "rcv1")


def test_info_of_a_singular_set():
    assert "singular, rank 61 of 64" in _say("info", "digits-even")


def test_fetch(served_toy):
    said = _say("fetch", "toy")
    assert said.startswith("toy: ")
    assert "toy.binary.bz2" in said
    assert "recorded on first use" in said
    assert _say("fetch", "toy", "toy").count("toy: ") == 2
    assert len(served_toy.asked) == 1


def test_fetch_of_what_needs_no_file():
    assert _say("fetch", "synthetic", "digits-even") == "synthetic: needs no file\ndigits-even: needs no file\n"


def test_path():
    said = _say("path")
    assert said.strip() == str(search.own_folder())
    assert search.own_folder().is_dir()


def test_errors_are_ours():
    with pytest.raises(ValueError, match="did you mean 'mushrooms'"):
        _say("fetch", "mushroom")
    with pytest.raises(ValueError, match="preprocess must be one of"):
        _say("info", "synthetic", "--preprocess", "whiten")
    with pytest.raises(DataNotFoundError, match="Put mushrooms into"):
        _say("info", "mushrooms")
