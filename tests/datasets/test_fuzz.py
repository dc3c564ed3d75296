"""Whatever the bytes: the reader parses them or raises our error, and what it parses is what Python parses."""

from __future__ import annotations

import bz2
import gzip
import lzma

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trsvr.datasets import DataFileError, read_libsvm

_GOOD = b"+1 1:0.5 3:-2e3 # c\n-1 2:.25\n\n2 1:123456789012345678901 7:1e-310\n"
_ALPHABET = b"0123456789.:+-eE #\n\t\r\x00naifqd_x\xff"

quickly = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _read(path):
    """What the reader returns, and the one error it may raise."""
    try:
        return read_libsvm(path), None
    except DataFileError as error:
        return None, error


def _parse(path, content: bytes) -> None:
    path.write_bytes(content)
    result, error = _read(path)
    if error is not None:
        assert error.line is not None
        assert error.line >= 1
        assert "\n" not in str(error)
        return
    X, y = result
    X.check_format(full_check=True)
    assert np.isfinite(X.data).all()
    assert np.isfinite(y).all()
    _agrees_with_python(content, X, y)


def _agrees_with_python(content: bytes, X, y) -> None:
    """The same file read in the slowest and plainest way."""
    row = 0
    for line in content.split(b"\n"):
        words = line.split(b"#")[0].replace(b"\r", b" ").replace(b"\t", b" ").split(b" ")
        words = [word for word in words if word]
        if not words:
            continue
        assert float(words[0]) == y[row]
        expected = {int(word.split(b":")[0]) - 1: float(word.split(b":")[1]) for word in words[1:]}
        got = dict(
            zip(X.indices[X.indptr[row] : X.indptr[row + 1]], X.data[X.indptr[row] : X.indptr[row + 1]], strict=True)
        )
        assert {k: v for k, v in got.items() if v} == {k: v for k, v in expected.items() if v}
        row += 1
    assert row == X.shape[0] == y.size


@quickly
@given(st.lists(st.sampled_from(list(_ALPHABET)), max_size=80).map(bytes))
def test_noise(tmp_path, content):
    _parse(tmp_path / "noise.svm", content)


@quickly
@given(st.binary(max_size=60))
def test_bytes(tmp_path, content):
    _parse(tmp_path / "bytes.svm", b"1 " + content)


@quickly
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(_GOOD)),
            st.integers(0, 3),
            st.lists(st.sampled_from(list(_ALPHABET)), max_size=3).map(bytes),
        ),
        max_size=4,
    )
)
def test_mutations(tmp_path, changes):
    content = _GOOD
    for place, removed, inserted in changes:
        content = content[:place] + inserted + content[place + removed :]
    _parse(tmp_path / "mutated.svm", content)


@quickly
@given(st.sampled_from([bz2.compress, gzip.compress, lzma.compress]), *map(st.integers, (0, 1, 0), (200, 255, 40)))
def test_mutated_compression(tmp_path, compress, place, flip, cut):
    packed = bytearray(compress(_GOOD * 20))
    packed[place % len(packed)] ^= flip
    path = tmp_path / "packed.svm.bz2"
    path.write_bytes(bytes(packed[: len(packed) - cut]))
    _, error = _read(path)
    assert error is None or error.line >= 1
