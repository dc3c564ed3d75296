"""Mutated files for every parser: what comes out is a correct parse or our own error, nothing else.

python tests/hostile.py --each 10000
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import random
import resource
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from trsvr.cli.models import Model, load_model, save_model
from trsvr.cli.tables import Wanted, read_table
from trsvr.datasets import DataFileError, read_libsvm
from trsvr.engine import checkpoint as files
from trsvr.engine.checkpoint import CheckpointError

#: What a parser may raise over the bytes of a file.
OURS = (DataFileError, CheckpointError)


def table() -> pd.DataFrame:
    numbers = np.random.default_rng(0).normal(size=(12, 3)).round(3)
    return pd.DataFrame(numbers, columns=["a", "b", "c"]).assign(y=["yes", "no"] * 6)


def libsvm() -> bytes:
    return b"+1 1:0.5 3:-2e3 # c\n-1 2:.25\n\n2 1:123456789012345678901 7:1e-310\n1 4:1\n"


def npz() -> bytes:
    rows = scipy.sparse.csr_array(np.eye(4, 3))
    file = io.BytesIO()
    parts = {name: getattr(rows, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(file, y=np.array([0.0, 1.0, 0.0, 1.0]), **parts)
    return file.getvalue()


def compressed_npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, X=np.arange(12.0).reshape(4, 3), y=np.array(["a", "b", "a", "b"]))
    return file.getvalue()


def model() -> bytes:
    facts = {
        "loss": "logistic",
        "intercept": True,
        "n_features": 3,
        "n_outputs": 1,
        "columns": ["a", "k=y", "k=z"],
        "target": "y",
        "zero_based": False,
        "offset": "log(d)",
        "raw_columns": ["a", "k"],
        "levels": {"k": ["x", "y", "z"]},
        "drop_first": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        save_model(path, Model(np.arange(4.0), np.array(["no", "yes"]), facts))
        return path.read_bytes()


def model_text() -> bytes:
    """The JSON text inside a model; it is put into an archive after it has been mutated."""
    with zipfile.ZipFile(io.BytesIO(model())) as archive:
        return str(np.load(io.BytesIO(archive.read("model.npy")))).encode()


def parquet() -> bytes:
    file = io.BytesIO()
    table().to_parquet(file)
    return file.getvalue()


def csv() -> bytes:
    return table().to_csv(index=False).encode()


def kept() -> bytes:
    content = {"x": np.arange(5.0), "run": {"epoch": 3, "seconds": 0.5}, "rows": [np.arange(3), "text", None]}
    return b"".join(bytes(piece) for piece in files.packed(content))


def forged(raw: bytes) -> bytes:
    """A checkpoint with a right checksum, whatever it says."""
    import hashlib

    body = raw[:-32]
    return body + hashlib.sha256(body).digest()


def in_archive(text: bytes) -> bytes:
    """Mutated JSON as the text of a model."""
    file = io.BytesIO()
    label = np.array(text.decode("utf-8", "replace"))
    np.savez(file, model=label, x=np.arange(4.0), classes=np.array(["no", "yes"]))
    return file.getvalue()


def same(raw: bytes) -> bytes:
    return raw


def read_as(kind: str) -> Callable[[Path], Any]:
    return lambda path: check_table(read_table(path, Wanted(), kind), path)


def check_table(found: Any, path: Path) -> None:
    """Whole and in order; of an archive, what NumPy reads from it."""
    X, y = found.X, found.y
    if found.kind == "npz":
        with np.load(path, allow_pickle=False) as archive:
            assert np.array_equal(archive["y"], y)
            given = (
                archive["X"]
                if "X" in archive
                else scipy.sparse.csr_array(
                    tuple(archive[name] for name in ("data", "indices", "indptr")), shape=tuple(archive["shape"])
                )
            )
            difference = given != X
            assert not (difference.nnz if scipy.sparse.issparse(difference) else difference[~np.isnan(X)].any())
    assert X.ndim == 2 or scipy.sparse.issparse(X)
    assert y is None or y.dtype.kind != "O"
    if scipy.sparse.issparse(X):
        X.check_format(full_check=True)


def check_libsvm(path: Path) -> None:
    X, y = read_libsvm(path)
    X.check_format(full_check=True)
    assert np.isfinite(X.data).all()
    assert np.isfinite(y).all()
    agrees_with_python(path.read_bytes(), X, y)


def agrees_with_python(content: bytes, X: Any, y: Any) -> None:
    """The same file read in the slowest and plainest way."""
    row = 0
    for line in content.split(b"\n"):
        words = line.split(b"#")[0].replace(b"\r", b" ").replace(b"\t", b" ").split(b" ")
        words = [word for word in words if word]
        if not words:
            continue
        assert float(words[0]) == y[row]
        expected = {int(word.split(b":")[0]) - 1: float(word.split(b":")[1]) for word in words[1:]}
        entries = slice(X.indptr[row], X.indptr[row + 1])
        got = dict(zip(X.indices[entries], X.data[entries], strict=True))
        assert {k: v for k, v in got.items() if v} == {k: v for k, v in expected.items() if v}
        row += 1
    assert row == X.shape[0] == y.size


def check_model(path: Path) -> None:
    found = load_model(path)
    predicted = found.predict(np.ones((2, found.facts["n_features"])))
    assert predicted.shape == (2,)


def check_kept(path: Path) -> None:
    files.read(path)
    assert path.read_bytes() == kept(), "a checkpoint that was changed is accepted"


def check_forged(path: Path) -> None:
    assert isinstance(files.read(path), dict)


#: name: the whole file, what is done to it after the mutation, how it is read
PARSERS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], bytes], Callable[[Path], Any]]] = {
    "LIBSVM": (libsvm, same, check_libsvm),
    "NPZ": (npz, same, read_as("npz")),
    "NPZ compressed": (compressed_npz, same, read_as("npz")),
    "model": (model, same, check_model),
    "JSON of a model": (model_text, in_archive, check_model),
    "Parquet": (parquet, same, read_as("parquet")),
    "CSV": (csv, same, read_as("csv")),
    "checkpoint": (kept, same, check_kept),
    "checkpoint, forged": (kept, forged, check_forged),
}

if importlib.util.find_spec("trsvr.experiments") is not None:
    from trsvr.experiments import specification

    def study() -> bytes:
        return (Path(specification.__file__).parent / "studies" / "convex.toml").read_bytes()

    def check_study(path: Path) -> None:
        try:
            specification.parse(path.read_text(encoding="utf-8"), path.name, path.parent)
        except ValueError as error:
            raise DataFileError(path, None, str(error)) from None

    PARSERS["TOML of a study"] = (study, same, check_study)

WORDS = [
    b"\x00",
    b"\xff" * 8,
    b"-1",
    b"9" * 30,
    b"nan",
    b"inf",
    b"1e999",
    b"{",
    b"[" * 40,
    b"]",
    b'"',
    b"\n",
    b",",
    b":",
]


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, inserted, removed, repeated or cut off."""
    changed = bytearray(raw)
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        place = chance.randrange(len(changed) + 1)
        kind = chance.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1 and place < len(changed):
            changed[place] = chance.randrange(256)
        elif kind == 2:
            changed[place:place] = chance.choice(WORDS)
        elif kind == 3:
            del changed[place : place + chance.randrange(1, 9)]
        elif kind == 4:
            end = place + chance.randrange(1, 40)
            changed[place:place] = changed[place:end]
        elif chance.random() < 0.2:
            del changed[place:]
    return bytes(changed)


def attack(name: str, count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """So many mutations for one parser; returns how they ended and what was wrong."""
    make, finish, read = PARSERS[name]
    raw = make()
    path = folder / f"file{'.npz' if 'model' in name else ''}"
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(count):
        content = finish(mutated(raw, random.Random(f"{seed} {name} {number}")))
        path.write_bytes(content)
        try:
            read(path)
            ends["read"] += 1
        except OURS as error:
            ends["refused"] += 1
            if "\n" in str(error):
                wrong.append(f"{name} {number} of seed {seed}: a message of several lines: {error!r}")
        except BaseException as error:
            wrong.append(f"{name} {number} of seed {seed}: {error!r}")
    return ends, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=10_000)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    bad = 0
    for name in PARSERS if arguments.only is None else [arguments.only]:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            ends, wrong = attack(name, arguments.each, 1, Path(folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        bad += len(wrong)
        seconds = time.monotonic() - begun
        print(f"{name}: {json.dumps(ends)}, {len(wrong)} wrong, peak {peak:.0f} MiB, {seconds:.0f} s", flush=True)
        for line in wrong[:10]:
            print("   ", line, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
