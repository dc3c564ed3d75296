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


def test_generalised_linear_models_end_truly():
    """Counts to 1e9, offsets, zero weights, y at the edge of its domain; small, so that nothing is compiled."""
    for number in range(soak.FAMILY, soak.FAMILY + 60):
        soak.check(soak.make(number))


FOUND = {
    1680: "no penalty, more columns than rows: x so long that its margins are rounded",
    6307: "the same: the square of a quasi-Newton norm was negative",
    39324: "softmax, hardly penalised: a shift of all outputs was not seen in the norm",
    35874: "softmax without a penalty: a remembered direction whose curvature underflows",
    104701: "no penalty: a remembered direction whose curvature is nothing but rounding",
    37551: "L-BFGS begins where the value is zero",
    39735: "classic trust region, estimated curvature: a model that predicts a rise is no rounding floor",
    45616: "the same, with columns of very unlike scale",
    1104473: "squared hinge, few rows: P was made before some of them left the hinge",
    403372: "the same",
    905981: "softmax without a penalty: a step of one product does not see where the curvature is small",
    703046: "the same, with a batch of eight rows",
    1001378: "the same with the norm of nothing known, columns of very unlike scale",
    1203881: "the same",
    526068: "the same, no penalty",
    4008310: "one column that is nearly always zero: P was of another point, and the sum of curvatures did not show it",
    8001321: "few rows, a long way for conjugate gradients",
    12004386: "the norm of nothing known, an intercept: only the gradient can tell",
    9002505: "squared hinge: a margin that is not a number had no loss",
    6000108: "a value of 1e-162, where squares of squares underflow",
    3006263: "L-BFGS comes to a hinge: a gradient that grows while the value falls is no divergence",
    421289: "L-BFGS at a hinge: the slope turns on so short a way that values do not show it",
    1046704: "softmax without a penalty: a remembered direction so long that its size overflows",
    10045749: "SciPy's line search gives up where there is still a way down: no progress, and that is true",
    5051101: "the same, and the gradient is fairly small: a value that stands still was taken for rounding",
    9052416: "L-BFGS ends so near to its minimum that SciPy's curvatures overflow",
    3042516: "two equal columns, far from zero: only the penalty sees how they differ, and too late",
    301004965: "softmax from far away: by rounding a norm of several outputs was negative, and its root an error",
    302001077: "the same, and then conjugate gradients found nothing: that was taken for the end",
    307000215: "no penalty, tol 0: steps in rounding went far along what no row sees",
    307003781: "no penalty: a second look must not follow rounding either",
    14056625: "no column is used by the rows that count: values far away do not follow so small a gradient",
    506006777: "no penalty, dependent columns: a product more than before showed nothing, and that was believed",
    200014704: "a step that its radius had cut off changed nothing: no rounding floor",
}


@pytest.mark.parametrize("number", FOUND, ids=str)
def test_what_hours_have_found(number):
    soak.check(soak.make(number))


@pytest.mark.long
def test_an_hour_of_random_runs():
    ends, failures = soak.soak(3600.0)
    print(dict(ends))
    assert not failures, "\n".join(failures)
    sizes = soak.grows(0, 60)
    print("MiB:", sizes)
    assert sizes[-1] - sizes[0] < 20.0
