"""Files from strangers: a correct parse or our own error, before anything large is allocated, with nothing executed."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

import hostile
import trsvr
from trsvr import _check
from trsvr.cli.tables import Wanted, read_table
from trsvr.datasets import DataFileError, read_libsvm
from trsvr.datasets.arrays import read_arrays
from trsvr.engine import checkpoint as files


@pytest.mark.parametrize("name", hostile.PARSERS)
def test_mutations(tmp_path, name):
    ends, wrong = hostile.attack(name, 150, 0, tmp_path)
    assert not wrong, wrong[:5]
    assert ends["refused"] > 50


@pytest.mark.long
@pytest.mark.parametrize("name", hostile.PARSERS)
def test_ten_thousand_mutations(tmp_path, name):
    ends, wrong = hostile.attack(name, 10_000, 1, tmp_path)
    print(name, dict(ends))
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("name", hostile.PARSERS)
def test_the_unchanged_file_is_read(tmp_path, name):
    make, finish, read = hostile.PARSERS[name]
    path = tmp_path / "file.npz"
    path.write_bytes(finish(make()))
    read(path)


# -------------------------------------------------------------------------------------------------------- NPZ archives


def archive(tmp_path, **entries):
    path = tmp_path / "file.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, raw in entries.items():
            file.writestr(name.replace("__", "."), raw)
    return path


def npy(header):
    text = repr(header).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}


def test_a_header_that_asks_for_terabytes_allocates_nothing(tmp_path):
    path = archive(tmp_path, X__npy=npy(HUGE) + bytes(64), y__npy=npy(HUGE))
    with pytest.raises(DataFileError, match="its header asks for 8000000000"):
        read_arrays(path)


def test_an_archive_that_says_it_unpacks_to_terabytes_is_not_unpacked(tmp_path):
    path = archive(tmp_path, X__npy=npy(HUGE) + bytes(64))
    raw = bytearray(path.read_bytes())
    place = raw.rindex(b"PK\x01\x02")
    raw[place + 24 : place + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(bytes(raw))
    with pytest.raises(DataFileError):
        read_arrays(path)


def test_a_bomb_is_refused_by_its_announced_size(tmp_path, monkeypatch):
    """A thousand to one: 64 MiB of zeros in 64 KiB."""
    rows = np.zeros(2**23)
    file = io.BytesIO()
    np.savez_compressed(file, X=rows)
    path = tmp_path / "bomb.npz"
    path.write_bytes(file.getvalue())
    monkeypatch.setattr(_check, "free_memory", lambda: 2**25)
    with pytest.raises(DataFileError, match=r"its content would need 0\.1 GiB"):
        read_arrays(path)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a file was executed",))


def test_nothing_is_unpickled(tmp_path):
    objects = {"descr": "|O", "fortran_order": False, "shape": (1,)}
    path = archive(tmp_path, X__npy=npy(objects) + pickle.dumps([Trap()]), y__npy=npy(objects))
    with pytest.raises(DataFileError, match="holds Python objects"):
        read_arrays(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataFileError, match="is not an NPZ archive"):
        read_arrays(path)


@pytest.mark.parametrize("name", ["../../etc/passwd.npy", "/etc/x.npy", "a\\b.npy", "C:x.npy", "...npy", "readme.txt"])
def test_names_that_lead_out_of_a_folder_are_refused(tmp_path, name):
    path = tmp_path / "file.npz"
    good = io.BytesIO()
    np.save(good, np.zeros(2))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(zipfile.ZipInfo(name), good.getvalue())
    with pytest.raises(DataFileError, match="is not the name of an array"):
        read_arrays(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def test_structured_types_are_refused(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, X=np.zeros(3, dtype=[("a", float), ("b", int)]))
    with pytest.raises(DataFileError, match="only arrays of numbers and text"):
        read_arrays(path)


def test_what_numpy_writes_is_read(tmp_path):
    path = tmp_path / "file.npz"
    arrays = {
        "X": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 4)),
        "text": np.array(["ä", "b"]),
        "number": np.array(3),
        "big": np.arange(4, dtype=">i4"),
    }
    np.savez_compressed(path, **arrays)
    found = read_arrays(path)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape


def test_text_that_is_not_utf8_in_a_parquet_file(tmp_path):
    """It is decoded only when it is looked at, long after the file was read."""
    path = tmp_path / "file.parquet"
    hostile.table().to_parquet(path, compression=None)
    raw = path.read_bytes()
    assert b"yes" in raw
    path.write_bytes(raw.replace(b"yes", b"y\xf8s"))
    with pytest.raises(DataFileError, match=r"not UTF-8|damaged"):
        read_table(path, Wanted(), "parquet")


def test_an_archive_with_something_before_it_is_refused_as_numpy_does(tmp_path):
    path = tmp_path / "file.npz"
    path.write_bytes(b"x" + hostile.npz())
    with pytest.raises(DataFileError, match="is not an NPZ archive"):
        read_arrays(path)


# ------------------------------------------------------------------------------------------------------ sizes elsewhere


def test_a_column_number_that_would_fill_the_memory(tmp_path, monkeypatch):
    """Two short lines name column 2147483647: the file is read, a model of that size is refused before it is made."""
    path = tmp_path / "far.svm"
    path.write_bytes(b"1 2147483647:1\n-1 1:1\n")
    X, y = read_libsvm(path)
    assert X.shape == (2, 2147483647)
    monkeypatch.setattr(_check, "free_memory", lambda: 2**34)
    with pytest.raises(ValueError, match=r"a model with 2147483647 parameters would need 160\.0 GiB, and 16\.0 GiB"):
        trsvr.problems.logistic(X, y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda X: np.asfortranarray(X), "a copy of X in C order would need"),
        (lambda X: (10 * X).astype(np.int64), "a float64 copy of X"),
        (lambda X: __import__("scipy.sparse").sparse.csc_array(X), "X as CSR"),
    ],
)
def test_copies_are_estimated_before_they_are_made(monkeypatch, make, words):
    X = np.random.default_rng(0).normal(size=(400, 300))
    y = np.arange(400) % 2
    monkeypatch.setattr(_check, "free_memory", lambda: 2**16)
    monkeypatch.setattr(_check, "_SURELY_THERE", 0)
    with pytest.raises(_check.TooLarge, match=words):
        trsvr.problems.logistic(make(X), y)
    monkeypatch.setattr(_check, "free_memory", lambda: 2**30)
    trsvr.problems.logistic(make(X), y)


def test_the_size_of_a_dense_norm_and_of_a_table_are_told_with_the_alternative(convex, monkeypatch):
    monkeypatch.setattr(_check, "free_memory", lambda: 2**8)
    monkeypatch.setattr(_check, "_SURELY_THERE", 0)
    with pytest.raises(
        _check.TooLarge, match=r"norm 'dense' with 6 parameters would need .*; 'diagonal' needs no matrix"
    ):
        trsvr.minimize(convex[0], trsvr.TRSVR(norm="dense"))
    with pytest.raises(
        _check.TooLarge, match=r"SAGA's table of 400 gradients .* would need .*; SVRG and SARAH need none|no"
    ):
        trsvr.minimize(convex[0], trsvr.SAGA(step=0.1))


def test_free_memory_is_plausible():
    assert 2**20 < _check.free_memory() < 2**50


# ---------------------------------------------------------------------------------------------------------- checkpoints


def test_every_single_byte_of_a_checkpoint_is_guarded(tmp_path):
    raw = hostile.kept()
    path = tmp_path / "run.ckpt"
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(bytes(changed))
        with pytest.raises(files.CheckpointError):
            files.read(path)
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(files.CheckpointError):
            files.read(path)
    path.write_bytes(raw + b"\x00")
    with pytest.raises(files.CheckpointError):
        files.read(path)


@pytest.mark.parametrize(
    "header",
    [
        b'{"x": {"array": "<f8", "shape": [1000000000000]}}',
        b'{"x": {"array": "|O", "shape": [1]}}',
        b'{"x": {"array": "<f8", "shape": [-1]}}',
        b'{"x": {"array": "<f8", "shape": [4611686018427387904, 4611686018427387904]}}',
        b'{"x": {"array": "<f8", "shape": [true]}}',
        b"[" * 100_000,
        b"[1]",
        b"\xff",
        b'{"x": ' + b"9" * 10_000 + b"}",
    ],
)
def test_headers_that_ask_for_too_much(tmp_path, header):
    path = tmp_path / "run.ckpt"
    raw = b"trsvr checkpoint 1\n" + len(header).to_bytes(8, "little") + header + bytes(32)
    path.write_bytes(hostile.forged(raw))
    with pytest.raises(files.CheckpointError):
        files.read(path)
