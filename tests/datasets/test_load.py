"""Finding, checking, downloading and keeping files, shown on a toy set and a server on this machine."""

from __future__ import annotations

import bz2
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from toy_rows import TOY_LABELS, TOY_ROWS

from trsvr import datasets
from trsvr._compile import cache_folder
from trsvr.datasets import ContentError, DataFileError, DataNotFoundError, cache, loading, search, write_libsvm
from trsvr.datasets.registry import DataFile, Entry
from trsvr.datasets.verify import content_sha256


def _kept_files() -> list[str]:
    """Everything in the user's folder for downloads."""
    folder = search.own_folder()
    assert folder is not None
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


# ------------------------------------------------------------------------------------------------------------- folders


@pytest.mark.parametrize("name", ["toy.svm", "toy.svm.bz2", "toy.svm.gz", "toy.svm.xz", "toy.binary", "toy.binary.bz2"])
def test_every_accepted_name(toy, tmp_path, name):
    write_libsvm(tmp_path / name, TOY_ROWS, TOY_LABELS)
    data = datasets.load("toy", data_dir=tmp_path)
    assert_array_equal(data.X, TOY_ROWS)
    assert_array_equal(data.y, [-1, 1, 1, -1])
    assert data.label_map == {1.0: -1, 2.0: 1}
    assert (data.n_samples, data.n_features, data.density, data.split) == (4, 3, 0.5, "train")
    assert data.sha256 == content_sha256(np.array(TOY_ROWS), np.array(TOY_LABELS))
    assert name in data.source
    assert repr(data) == "<toy (train): 4 × 3, dense float64, density 0.5, preprocess none>"


def test_order_of_search(served_toy, toy, tmp_path, monkeypatch):
    given, named = tmp_path / "given", tmp_path / "named"
    for folder in (given, named):
        folder.mkdir()
        write_libsvm(folder / "toy.svm", TOY_ROWS, TOY_LABELS)
    monkeypatch.setenv("TRSVR_DATA_DIR", str(named))
    assert str(given) in datasets.load("toy", data_dir=given).source
    assert str(named) in datasets.load("toy").source
    monkeypatch.delenv("TRSVR_DATA_DIR")
    assert served_toy.asked == []
    assert str(search.own_folder()) in datasets.load("toy").source
    assert served_toy.asked == ["/toy.binary.bz2"]
    assert str(search.own_folder()) in datasets.load("toy").source
    assert served_toy.asked == ["/toy.binary.bz2"]


def test_nothing_reachable_says_which_file_to_put_where(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("TRSVR_DATA_DIR", str(tmp_path / "absent"))
    with pytest.raises(DataNotFoundError) as caught:
        datasets.load("toy")
    message = str(caught.value)
    assert "absent (no such folder)" in message
    assert f"Put toy.binary.bz2 into {search.own_folder()}" in message
    assert "toy.svm[.bz2|.gz|.xz]" in message
    assert "Connection refused" in message
    assert "\n" not in message
    assert isinstance(caught.value, OSError)


def test_no_place_to_write_still_loads(toy, tmp_path, monkeypatch):
    write_libsvm(tmp_path / "toy.svm", TOY_ROWS, TOY_LABELS)
    monkeypatch.setattr(cache, "data_folder", lambda: None)
    assert_array_equal(datasets.load("toy", data_dir=tmp_path).X, TOY_ROWS)
    with pytest.raises(DataNotFoundError, match="TRSVR_CACHE_DIR"):
        datasets.load("toy")


def test_substitute_is_named_as_one(monkeypatch, tmp_path):
    """The name and the source say that it is not the set that was asked for."""
    real = DataFile("toy_train.binary.bz2", "toy.svm", 9, 3, 9, ((1, 5), (2, 4)))
    other = DataFile("toy-other", "toy-other.svm", 4, 3, 6, ((1, 2), (2, 2)), downloadable=False)
    entries = {
        "toy": Entry("toy", "", train=real, substitute="toy-other"),
        "toy-other": Entry("toy-other", "x", train=other),
    }
    for module in (loading, search):
        monkeypatch.setattr(module, "ENTRIES", MappingProxyType(entries))
    write_libsvm(tmp_path / "toy-other.svm.bz2", TOY_ROWS, TOY_LABELS)
    data = datasets.load("toy", data_dir=tmp_path)
    assert data.name == "toy-other"
    assert data.source.startswith("substitute for toy_train.binary: ")
    with pytest.raises(DataNotFoundError, match="no site offers it"):
        datasets.load("toy-other")


# -------------------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("rows", "labels", "reason"),
    [
        (TOY_ROWS[:3], TOY_LABELS[:3], "3 rows, expected 4"),
        ([*TOY_ROWS[:3], [1.0, 1.0, 0.0]], TOY_LABELS, "7 nonzeros, expected 6"),
        (TOY_ROWS, [1, 2, 2, 2], "1: 1, 2: 3 label counts, expected 1: 2, 2: 2"),
        (TOY_ROWS, [1, 2, 3, 1], "line 3: 3 is a third label"),
        (TOY_ROWS, [1, 1, 1, 1], "line 4: every label"),
        ([[*row, 1.0] for row in TOY_ROWS], TOY_LABELS, "line 1: index 4 is beyond the 3 columns"),
    ],
)
def test_other_content_is_refused(toy, tmp_path, rows, labels, reason):
    path = tmp_path / "toy.svm"
    write_libsvm(path, rows, labels)
    with pytest.raises(DataFileError, match=re.escape(reason)):
        datasets.load("toy", data_dir=tmp_path)
    assert path.exists(), "a user's own file is never removed"


def test_hash_is_recorded_on_first_use_and_checked_afterwards(toy, tmp_path, caplog):
    path = tmp_path / "toy.svm"
    write_libsvm(path, TOY_ROWS, TOY_LABELS)
    with caplog.at_level("INFO", logger="trsvr"):
        assert "recorded on first use" in datasets.load("toy", data_dir=tmp_path).source
    assert "no checksum is published" in caplog.text
    assert "equal to the one recorded" in datasets.load("toy", data_dir=tmp_path).source
    changed = [[9.0, 0.0, 2.5], *TOY_ROWS[1:]]
    write_libsvm(path, changed, TOY_LABELS)
    with pytest.raises(ContentError, match=r"was recorded on first use .*; if the change is right, remove "):
        datasets.load("toy", data_dir=tmp_path)


def test_known_hash_decides(toy, tmp_path, monkeypatch):
    right = content_sha256(np.array(TOY_ROWS), np.array(TOY_LABELS))
    known = replace(toy, content=(right,), content_is_final=True)
    monkeypatch.setattr(loading, "ENTRIES", {"toy": Entry("toy", "", train=known)})
    write_libsvm(tmp_path / "toy.svm", TOY_ROWS, TOY_LABELS)
    assert "content hash known and equal" in datasets.load("toy", data_dir=tmp_path).source
    write_libsvm(tmp_path / "toy.svm", [[9.0, 0.0, 2.5], *TOY_ROWS[1:]], TOY_LABELS)
    with pytest.raises(ContentError, match="shape and labels agree, but the content's sha256"):
        datasets.load("toy", data_dir=tmp_path)


# ----------------------------------------------------------------------------------------------------------- downloads


def test_download_is_kept_whole(served_toy, toy):
    data = datasets.load("toy")
    assert_array_equal(data.X, TOY_ROWS)
    assert _kept_files() == ["toy.binary.bz2"]


@pytest.mark.parametrize("damage", ["content", "cut", "page"])
def test_download_that_does_not_match_is_not_kept(served_toy, toy, damage):
    place = served_toy.folder / toy.upstream
    whole = place.read_bytes()
    if damage == "content":
        write_libsvm(place, TOY_ROWS[:2], TOY_LABELS[:2])
    elif damage == "cut":
        place.write_bytes(whole[:-10])
    else:
        place.write_bytes(b"<html>moved</html>")
    with pytest.raises(ContentError, match=r"http://127\.0\.0\.1.*the download was not kept"):
        datasets.load("toy")
    assert _kept_files() == []
    place.write_bytes(whole)
    assert datasets.load("toy").n_samples == 4


def test_file_damaged_in_the_cache_is_replaced(served_toy, toy, caplog):
    datasets.load("toy")
    kept = search.own_folder() / toy.upstream
    kept.write_bytes(bz2.compress(b"1 1:1\n2 1:1\n"))
    assert datasets.load("toy").n_samples == 4
    assert "removed from the cache" in caplog.text
    assert len(served_toy.asked) == 2


def test_progress_bar(served_toy, toy, capsys):
    with datasets.download.downloaded(toy, progress=True) as path:
        assert path.read_bytes() == (served_toy.folder / toy.upstream).read_bytes()
    assert toy.upstream in capsys.readouterr().err
    assert _kept_files() == []


def test_missing_on_the_server(site, toy):
    with pytest.raises(DataNotFoundError, match="the server answers 404"):
        datasets.load("toy")
    assert _kept_files() == []


def test_tries_again(served_toy, toy, monkeypatch):
    monkeypatch.setattr(datasets.download, "RETRIES", 1)
    good = served_toy.handler.do_GET

    def fail_once(self):
        served_toy.handler.do_GET = good
        self.send_error(503)

    served_toy.handler.do_GET = fail_once
    assert datasets.load("toy").n_samples == 4


def test_redirection_to_http_is_refused(served_toy, toy):
    served_toy.handler.redirect_to = "http://example.invalid/toy.binary.bz2"
    with pytest.raises(DataNotFoundError, match="is not https"):
        datasets.load("toy")


@pytest.mark.parametrize(
    "url", ["http://example.org/", "ftp://127.0.0.1/", "http://127.0.0.1.example.org/", "file:///x"]
)
def test_only_https_or_this_machine(toy, monkeypatch, url):
    monkeypatch.setenv("TRSVR_DATA_URL", url)
    with pytest.raises(ValueError, match="TRSVR_DATA_URL must begin with https://"):
        datasets.load("toy")


_FETCH = """
from types import MappingProxyType
from trsvr.datasets import load, loading
from trsvr.datasets.registry import DataFile, Entry
file = DataFile("toy.binary.bz2", "toy.svm", 4, 3, 6, ((1, 2), (2, 2)))
loading.ENTRIES = MappingProxyType({"toy": Entry("toy", "", train=file)})
print(load("toy").sha256)
"""


def test_two_processes_at_once(served_toy, toy):
    """Both wait at the server until the other one has come, so that they really download at the same time."""
    kernels = cache_folder()
    if kernels is not None:
        # The new processes find the reader compiled.
        place = Path(os.environ["TRSVR_CACHE_DIR"])
        place.mkdir(exist_ok=True)
        (place / "kernels").symlink_to(kernels.parent)
    meeting = threading.Barrier(2, timeout=60)
    good = served_toy.handler.do_GET

    def together(self):
        meeting.wait()
        good(self)

    served_toy.handler.do_GET = together
    running = [
        subprocess.Popen([sys.executable, "-c", _FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert said[0][0] == said[1][0] != ""
    assert len(served_toy.asked) == 2
    assert _kept_files() == ["toy.binary.bz2"]


# --------------------------------------------------------------------------------------------------------------- cache


def _entries() -> list[Path]:
    root = cache.data_folder()
    return sorted((root / "arrays").iterdir())


def test_second_load_reads_no_text(toy, tmp_path, monkeypatch):
    write_libsvm(tmp_path / "toy.svm", TOY_ROWS, TOY_LABELS)
    first = datasets.load("toy", data_dir=tmp_path, preprocess="standardize", dtype="float32")
    monkeypatch.setattr(loading, "read_libsvm", None)
    second = datasets.load("toy", data_dir=tmp_path, preprocess="standardize", dtype="float32")
    assert_array_equal(first.X, second.X)
    assert second.X.dtype == np.float32
    assert not second.X.flags.writeable
    assert first.sha256 == second.sha256


@pytest.mark.parametrize("damage", ["cut", "facts", "missing", "type", "pickle"])
def test_damaged_entry_is_made_again(toy, tmp_path, damage):
    write_libsvm(tmp_path / "toy.svm", TOY_ROWS, TOY_LABELS)
    datasets.load("toy", data_dir=tmp_path)
    for entry in _entries():
        part = sorted(entry.glob("*.npy"))[0]
        if damage == "cut":
            part.write_bytes(part.read_bytes()[:-1])
        elif damage == "facts":
            (entry / "facts.json").write_text("{")
        elif damage == "missing":
            part.unlink()
        elif damage == "type":
            facts = json.loads((entry / "facts.json").read_text())
            facts["arrays"][part.stem]["dtype"] = "<f2"
            (entry / "facts.json").write_text(json.dumps(facts))
        else:
            np.save(part, np.array([{}], dtype=object), allow_pickle=True)
            facts = json.loads((entry / "facts.json").read_text())
            facts["arrays"][part.stem]["bytes"] = part.stat().st_size
            (entry / "facts.json").write_text(json.dumps(facts))
    assert_array_equal(datasets.load("toy", data_dir=tmp_path).X, TOY_ROWS)
    assert_array_equal(datasets.load("toy", data_dir=tmp_path).X, TOY_ROWS)
    assert not [path for path in _entries() if path.name.startswith(".")]


def test_cache_is_private(toy, tmp_path):
    write_libsvm(tmp_path / "toy.svm", TOY_ROWS, TOY_LABELS)
    datasets.load("toy", data_dir=tmp_path)
    if hasattr(os, "getuid"):
        assert cache.data_folder().stat().st_mode & 0o077 == 0


def test_storing_the_same_twice_keeps_the_first():
    name = cache.key("a", 1)
    assert cache.fetch(name) is None
    assert cache.store(name, {"a": np.arange(3), "empty": np.empty((0, 2))}, {"k": 1})
    assert cache.store(name, {"a": np.arange(4)}, {"k": 2})
    arrays, facts = cache.fetch(name)
    assert_array_equal(arrays["a"], [0, 1, 2])
    assert arrays["empty"].shape == (0, 2)
    assert facts == {"k": 1}


# ----------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("covtyp", {}, "did you mean 'covtype'"),
        ("covtype", {"preprocess": "standardise"}, "did you mean 'standardize'"),
        ("covtype", {"split": "valid"}, "split must be one of 'train', 'test'"),
        ("covtype", {"dtype": int}, "dtype must be float64 or float32"),
        ("covtype", {"seed": 3}, "covtype takes no parameter 'seed'"),
        ("covtype", {"split": "test"}, "covtype has no test split"),
        ("breast-cancer", {"split": "test"}, "breast-cancer has no test split"),
        ("synthetic", {"split": "test"}, "synthetic has no test split"),
        ("synthetic", {"seeds": 3}, "did you mean 'seed'"),
        ("covtype", {"data_dir": "no/such/folder"}, "data_dir must be a folder"),
    ],
)
def test_bad_arguments(name, options, reason):
    with pytest.raises(ValueError, match=reason):
        datasets.load(name, **options)


def test_import_is_cheap():
    """The reader, the downloader and scikit-learn are loaded when they are needed."""
    code = (
        "import sys, types; package = types.ModuleType('trsvr'); package.__path__ = [sys.argv[1]];"
        "sys.modules['trsvr'] = package; import trsvr.datasets;"
        "print([m for m in ('numba', 'pandas', 'sklearn', 'pooch', 'requests', 'rich') if m in sys.modules])"
    )
    source = Path(datasets.__file__).parents[1]
    said = subprocess.run([sys.executable, "-c", code, str(source)], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[]"
