from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from trsvr.datasets import read_libsvm, write_libsvm


def _rows() -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.normal(size=(50, 9)) * 10.0 ** rng.integers(-200, 200, (50, 9)) * (rng.random((50, 9)) < 0.5)


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz", ".xz"])
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_what_is_written_is_read_exactly(tmp_path, suffix, form):
    X, y = _rows(), np.arange(50) / 3
    path = tmp_path / f"rows.svm{suffix}"
    write_libsvm(path, form(X), y, comment="two\nlines")
    got, labels = read_libsvm(path, n_features=9)
    assert_array_equal(got.toarray(), X)
    assert_array_equal(labels, y)


def test_zero_based_and_plain_numbers(tmp_path):
    path = tmp_path / "rows.svm"
    write_libsvm(path, [[1.0, 0.0, 0.1], [0, 0, 0]], [1, -1], zero_based=True)
    assert path.read_text() == "1 0:1 2:0.1\n-1\n"


def test_scikit_learn_reads_it(tmp_path):
    from sklearn.datasets import load_svmlight_file

    path = tmp_path / "rows.svm"
    write_libsvm(path, _rows(), np.arange(50))
    theirs, labels = load_svmlight_file(str(path), n_features=9)
    assert_array_equal(theirs.toarray(), _rows())
    assert_array_equal(labels, np.arange(50))


@pytest.mark.parametrize(
    ("X", "y", "reason"),
    [
        ([[1.0, np.nan]], [1], "X must be finite"),
        ([[1.0]], [np.inf], "y must be finite"),
        ([[1.0]], [1, 2], "y must have length 1"),
        ([1.0], [1], "two-dimensional"),
        ([["a"]], [1], "real numbers"),
    ],
)
def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path, X, y, reason):
    with pytest.raises(ValueError, match=reason):
        write_libsvm(tmp_path / "rows.svm", X, y)
    assert list(tmp_path.iterdir()) == []


def test_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "rows.svm"
    write_libsvm(path, [[1.0]], [1])
    with pytest.raises(ValueError):
        write_libsvm(path, [[np.nan]], [1])
    assert path.read_text() == "1 1:1\n"
