"""A little of the soak by default, an hour of it by hand."""

from __future__ import annotations

import pytest

import soak


def test_a_few_random_runs_end_truly():
    """Dense logistic regressions, whose kernels other tests compile too, so that this costs seconds."""
    cases = (soak.make(number) for number in range(100))
    chosen = [case for case in cases if "dense float64" in case.story and isinstance(case.oracle.loss, soak.Logistic)]
    for case in chosen[:12]:
        soak.check(case)


@pytest.mark.parametrize("number", [1680, 6307])
def test_what_an_hour_has_found(number):
    """No penalty and more columns than rows: points so long that margins are rounded, and pairs that nearly vanish."""
    soak.check(soak.make(number))


@pytest.mark.long
def test_an_hour_of_random_runs():
    ends, failures = soak.soak(3600.0)
    print(dict(ends))
    assert not failures, "\n".join(failures)
    sizes = soak.grows(0, 60)
    print("MiB:", sizes)
    assert sizes[-1] - sizes[0] < 20.0
