"""The same minimiser as scikit-learn's LogisticRegression, by default settings, without a warning."""

from __future__ import annotations

import itertools

import pytest
from agreement import compare, complaint

STRENGTHS = (1e-3, 1.0, 1e4)
# (intercept, weights, layout): every value of each meets every value of the others' somewhere.
VARIANTS = [
    (True, "none", "dense"),
    (False, "none", "csr"),
    (True, "sample", "csr"),
    (False, "class", "dense"),
    (True, "class", "csr"),
    (False, "sample", "dense"),
]


def agree(*case, **options):
    verdict = compare(*case, **options)
    assert not complaint(verdict), verdict


@pytest.mark.parametrize(("fit_intercept", "weighting", "layout"), VARIANTS)
@pytest.mark.parametrize("scaling", ["standardised", "raw"])
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_small_sets(name, scaling, fit_intercept, weighting, layout):
    for C in STRENGTHS:
        agree(name, scaling, C, fit_intercept, weighting, layout)


@pytest.mark.parametrize(
    ("scaling", "C", "variant"),
    [("standardised", 1e-3, 0), ("standardised", 1.0, 2), ("raw", 1e-3, 3)],
)
def test_ten_classes(scaling, C, variant):
    agree("digits", scaling, C, *VARIANTS[variant])


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "scaling", "C", "variant"),
    [
        ("mushrooms", "raw", 1.0, 1),
        ("mushrooms", "raw", 1e4, 2),
        ("ijcnn1", "raw", 1.0, 0),
        ("ijcnn1", "standardised", 1e4, 5),
    ],
)
def test_real_sets(data_folder, name, scaling, C, variant, monkeypatch):
    monkeypatch.setenv("TRSVR_DATA_DIR", str(data_folder))
    agree(name, scaling, C, *VARIANTS[variant])


@pytest.mark.data
@pytest.mark.slow
def test_wide_text(data_folder, monkeypatch):
    monkeypatch.setenv("TRSVR_DATA_DIR", str(data_folder))
    agree("rcv1", "raw", 1.0, True, "none", "as it is")


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize("scaling", ["standardised", "raw"])
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "mushrooms", "ijcnn1", "rcv1"])
def test_everything(data_folder, name, scaling, monkeypatch):
    """The whole cross-product; the wide set keeps its layout, since a dense copy of it would be 9 GB."""
    monkeypatch.setenv("TRSVR_DATA_DIR", str(data_folder))
    layouts = ("as it is",) if name == "rcv1" else ("dense", "csr")
    failed = []
    for case in itertools.product(STRENGTHS, (True, False), ("none", "sample", "class"), layouts):
        verdict = compare(name, scaling, *case, thorough=True)
        if complaint(verdict):
            failed.append((case, complaint(verdict)))
    assert not failed
