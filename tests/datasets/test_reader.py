from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import struct
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from trsvr.datasets import DataFileError, libsvm, read_libsvm


def test_rows_labels_and_gaps(read):
    X, y = read("+1 1:0.5 3:-2e3\n-1 2:.25\n\n  \t\n# a comment\n3.5  2:7. # 9:9\n-0\r\n", n_features=4)
    assert_array_equal(y, [1, -1, 3.5, 0])
    assert_array_equal(X.toarray(), [[0.5, 0, -2000, 0], [0, 0.25, 0, 0], [0, 7, 0, 0], [0, 0, 0, 0]])
    assert X.has_canonical_format


def test_last_line_may_lack_its_newline(read):
    X, y = read("1 1:1\n2 2:3")
    assert X.shape == (2, 2)
    assert y[1] == 2


def test_width_is_the_largest_index_unless_given(read):
    assert read("1 7:1\n")[0].shape == (1, 7)
    assert read("1 7:1\n", n_features=9)[0].shape == (1, 9)
    assert read("1\n")[0].shape == (1, 1)


def test_written_zeros_are_not_stored(read):
    X, _ = read("1 1:0 2:0.0 3:-0e5 4:2\n")
    assert X.nnz == 1
    assert X.shape == (1, 4)


def test_zero_based_only_when_asked(read):
    X, _ = read("1 0:5 2:6\n", zero_based=True)
    assert_array_equal(X.toarray(), [[5, 0, 6]])
    with pytest.raises(DataFileError, match=r"line 1: index 0 .*zero_based=True"):
        read("1 0:5 2:6\n")


def test_float32(read):
    X, y = read("1 1:0.1\n", dtype="float32")
    assert X.dtype == np.float32
    assert X.data[0] == np.float32(0.1)
    assert y.dtype == np.float64


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
def test_compression_is_recognised_whatever_the_name(read, pack):
    X, y = read(pack(b"1 1:2\n-1 2:3\n"), name="plain.svm")
    assert X.nnz == 2
    assert_array_equal(y, [1, -1])


def _numbers(count: int) -> list[str]:
    """Decimal numbers of every kind, with many that lie half-way between two floats."""
    choose = random.Random(0)
    kinds = [
        lambda: repr(struct.unpack("d", struct.pack("Q", choose.getrandbits(64)))[0]),
        lambda: repr(choose.gauss(0, 1)),
        lambda: (
            f"{choose.randrange(10 ** choose.randrange(1, 25))}.{choose.randrange(10**9)}e{choose.randrange(-40, 40)}"
        ),
        lambda: str((2 * (choose.getrandbits(52) | 2**52) + 1) * 2 ** choose.randrange(20)),
        lambda: f"{choose.randrange(1, 2**53)}e{choose.randrange(-25, 26)}",
        lambda: f"{choose.randrange(1, 2**64)}e{choose.randrange(-330, 290)}",
    ]
    numbers = [kinds[k % len(kinds)]() for k in range(count)]
    return [number for number in numbers if np.isfinite(float(number)) and float(number) != 0]


def test_numbers_are_those_of_python(read):
    numbers = _numbers(40_000)
    X, y = read("".join(f"{number} 1:{number}\n" for number in numbers))
    expected = np.array([float(number) for number in numbers])
    assert_array_equal(y, expected)
    assert_array_equal(X.data, expected)


def test_numbers_too_small_for_float64_become_zero(read):
    X, _ = read("1 1:1e-400 2:4.9e-324\n")
    assert_array_equal(X.toarray(), [[0.0, 4.9e-324]])


def test_agrees_with_scikit_learn(tmp_path):
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 40)) * (rng.random((500, 40)) < 0.3)
    y = rng.integers(-3, 3, 500)
    path = tmp_path / "theirs.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False, comment="a comment")
    ours, labels = read_libsvm(path, n_features=40)
    theirs, their_labels = load_svmlight_file(str(path), n_features=40)
    assert_array_equal(ours.toarray(), theirs.toarray())
    assert_array_equal(labels, their_labels)


@pytest.mark.parametrize("block", [64, 100, 2**12])
def test_small_blocks_give_the_same(read, monkeypatch, block):
    """Lines that do not fit into a block, rows and entries that do not fit into the scratch memory."""
    rng = np.random.default_rng(1)
    text = "".join(
        f"{rng.integers(2)}" + "".join(f" {j}:{rng.normal()!r}" for j in range(1, rng.integers(1, 60))) + "\n"
        for _ in range(200)
    )
    expected, labels = read(text, n_features=60)
    monkeypatch.setattr(libsvm, "_BLOCK_BYTES", block)
    monkeypatch.setattr(libsvm, "_SCRATCH_ROWS", 7)
    monkeypatch.setattr(libsvm, "_SCRATCH_ENTRIES", 5)
    monkeypatch.setattr(libsvm, "_SCRATCH_HARD", 1)
    got, got_labels = read(text, n_features=60)
    assert_array_equal(got.toarray(), expected.toarray())
    assert_array_equal(got_labels, labels)


# ------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("1 1:2\n1 1:x\n", 2, r"expected a number after the colon, got '1:x'"),
        ("1 1:2\n1 1:2x\n", 2, "'1:2x'"),
        ("1 1:1_0\n", 1, "'1:1_0'"),
        ("1 1:0x10\n", 1, "'1:0x10'"),
        ("1 1:\n", 1, "'1:'"),
        ("1 1:1e\n", 1, "'1:1e'"),
        ("1 1:--1\n", 1, "'1:--1'"),
        ("1 1: 5\n", 1, "'1:'"),
        ("1 2:1 2:1\n", 1, "index 2 appears twice"),
        ("# c\n\n1 2:1 1:1\n", 3, "index 1 follows a larger one"),
        ("1 0:1\n", 1, "index 0"),
        ("1 -1:1\n", 1, "expected index:value, got '-1:1'"),
        ("1 5\n", 1, "expected index:value, got '5'"),
        ("1 a:5\n", 1, "expected index:value"),
        ("1 3000000000:5\n", 1, "beyond 2147483647"),
        ("1 qid:3 1:1\n", 1, "query ids are not supported"),
        ("one 1:1\n", 1, "expected a number as label, got 'one'"),
        ("1,2 1:1\n", 1, "expected a number as label"),
        ("1:1 2:1\n", 1, "expected a number as label"),
        ("1 1:1\nnan 1:1\n", 2, "the label is 'nan'; finite"),
        ("-inf 1:1\n", 1, "the label is '-?inf'; finite"),
        ("1 1:NaN\n", 1, "'1:NaN' is not finite"),
        ("1 1:-Infinity\n", 1, "'1:-Infinity' is not finite"),
        ("1 1:1\n\n1 1:1e999\n", 3, "'1e999' is too large"),
        ("1e999 1:1\n", 1, "'1e999' is too large"),
        ("\ufeff1 1:1\n", 1, "expected a number as label"),
        ("\0\0\0\n", 1, "expected a number as label"),
        ("", 1, "no row of data"),
        ("\n\n# nothing\n", 3, "no row of data"),
    ],
)
def test_damage_is_named_with_file_and_line(read, text, line, reason):
    with pytest.raises(DataFileError, match=reason) as caught:
        read(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{caught.value.path}, line {line}: ")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_index_beyond_the_given_width(read):
    with pytest.raises(DataFileError, match="line 2: index 5 is beyond the 4 columns"):
        read("1 4:1\n1 5:1\n", n_features=4)


def test_line_numbers_count_over_blocks(read):
    good = "1 1:0.5 2:0.25\n" * 100_000
    with pytest.raises(DataFileError, match="line 100001: "):
        read(good + "1 1:oops\n")


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
def test_truncated_compression(read, pack):
    rng = np.random.default_rng(0)
    whole = pack("".join(f"1 1:{rng.random()}\n" for _ in range(2000)).encode())
    with pytest.raises(DataFileError, match=r"line \d+: the compressed data is damaged or cut off"):
        read(whole[: len(whole) // 2])
    broken = bytearray(whole)
    broken[len(broken) // 2] ^= 0xFF
    with pytest.raises(DataFileError, match=r"line \d+: "):
        read(bytes(broken))


def test_two_classes(read):
    two = "5 1:1\n# c\n7 1:2\n"
    assert_array_equal(read(two, two_classes=True)[1], [5, 7])
    with pytest.raises(DataFileError, match=r"line 3: every label .* is 5; two classes are needed"):
        read("5 1:1\n# c\n5 1:2\n", two_classes=True)
    with pytest.raises(DataFileError, match="line 5: 9 is a third label besides 5 and 7"):
        read(two + "\n9 1:1\n", two_classes=True)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_libsvm(tmp_path / "nothing.svm")
    with pytest.raises(OSError, match="directory"):
        read_libsvm(tmp_path)


def test_arguments(read):
    for options in ({"dtype": "int32"}, {"n_features": 0}, {"max_line_bytes": 0}, {"dtype": "no type"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            read("1 1:1\n", **options)


_MEASURE = """
import resource, sys
from trsvr.datasets import DataFileError, read_libsvm
read_libsvm(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = 0
try:
    X, y = read_libsvm(sys.argv[2])
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
except DataFileError as error:
    print(error)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(size // 1024, after - before)
"""


def _measure(small, path) -> tuple[str, int, int]:
    """What a new process says, the size of the result and the growth of its memory, in KiB."""
    pytest.importorskip("resource")
    command = [sys.executable, "-c", _MEASURE, str(small), str(path)]
    # With the usual cache the new process need not compile the reader.
    usual = {name: value for name, value in os.environ.items() if name != "TRSVR_CACHE_DIR"}
    *said, numbers = subprocess.run(command, check=True, capture_output=True, text=True, env=usual).stdout.splitlines()
    size, growth = map(int, numbers.split())
    return "\n".join(said), size, growth


def test_ten_gigabytes_of_one_line(write, tmp_path):
    """A file with a hole in it: it takes no disk, and the reader must not try to hold it."""
    path = tmp_path / "long.svm"
    with open(path, "wb") as stream:
        stream.write(b"1 1:1")
        stream.truncate(10 * 2**30)
    said, _, growth = _measure(write("1 1:1\n"), path)
    path.unlink()
    assert "line 1: the line is longer than 67108864 bytes" in said
    assert growth < 300 * 1024


def test_bomb_of_one_line(write, tmp_path):
    """The same, compressed: half a kilobyte that unpacks to hundreds of megabytes."""
    path = tmp_path / "bomb.svm.bz2"
    path.write_bytes(b"".join([bz2.compress(b"1" * 2**24)] * 16))
    said, _, growth = _measure(write("1 1:1\n"), path)
    assert "line 1: the line is longer than" in said
    assert growth < 300 * 1024


def test_memory_beyond_the_result_is_small(write, tmp_path):
    path = tmp_path / "large.svm"
    line = "1 " + " ".join(f"{j}:{j / 7:.6f}" for j in range(1, 40)) + "\n"
    path.write_text(line * 80_000)
    _, size, growth = _measure(write("1 1:1\n"), path)
    assert size > 35_000
    assert growth < 1.3 * size + 16 * 1024
