"""Verdicts on results made up so that the answer is known, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from trsvr.experiments import claims
from trsvr.experiments.results import Line, Results, Run, StudyResults, SubjectResults

EPOCHS = np.arange(11.0)


def _run(heights, passes_per_epoch=1.0, seconds=1.0, boundary=1.0, products=0.0, seed=0):
    gaps = np.asarray(heights, dtype=float)
    count = gaps.size
    columns = {
        "epoch": EPOCHS[:count],
        "passes": passes_per_epoch * EPOCHS[:count],
        "passes_without": (passes_per_epoch - products) * EPOCHS[:count],
        "time": seconds * EPOCHS[:count],
        "objective_value": 1.0 + gaps,
        "gradient_norm_sq": gaps**2,
        "boundary_fraction": np.full(count, boundary),
        "cg_iterations": np.ones(count),
        "negative_curvature": np.zeros(count),
    }
    return Run(seed, columns, "epoch_limit", np.nan, 1.0)


def _subject(data, lines, **facts):
    known = {
        "data": data,
        "name": data,
        "problem": data,
        "value": 1.0,
        "rows": 100,
        "columns": 3,
        "source": "made up",
        "component_smoothness": 2.0,
        "l2": 1e-4,
        "strong_convexity": 9e-5,
    }
    subject = SubjectResults(known | facts)
    for label, options in lines.items():
        options = dict(options)
        role, group, alpha = options.pop("role", "paper"), options.pop("group", ""), options.pop("alpha", 0.1)
        line = Line(label, role, group, "trsvr", {"alpha": alpha}, subject, 1, [_run(**options)])
        subject.lines.append(line)
    return subject


def _results(**studies):
    made = {}
    for name, subjects in studies.items():
        name = name.replace("_", "-")
        made[name] = StudyResults(name, {"paper": True, "timed": False}, False, {}, subjects, [])
    return Results(made, {}, [])


def _falling(rate, start=1.0):
    return start * 10.0 ** (-rate * EPOCHS)


def _convex(estimated, saga, identity=0.3, svrg=0.3):
    lines = {
        "TRSVR-EstH": {"heights": _falling(estimated)},
        "TRSVR-Id": {"heights": _falling(identity)},
        "SVRG": {"heights": _falling(svrg)},
        "SARAH": {"heights": _falling(0.01)},
        "SAGA": {"heights": _falling(saga)},
        "SVRG at EstH's α": {"heights": _falling(estimated), "role": "extra"},
        "SVRG at Id's α": {"heights": _falling(identity), "role": "extra"},
    }
    return _results(convex=[_subject("synthetic", lines)])


def test_nothing_run_is_nothing_tested():
    for verdict in claims.judge(_results()):
        assert verdict.verdict == claims.UNTESTED
        assert np.isnan(verdict.margin)


def test_c1():
    won = claims.c1(_convex(0.5, 0.2))
    assert won.verdict == claims.REPRODUCED
    # The nearest rival is SVRG: 10^(0.5·10) against 10^(0.3·10).
    assert won.margin == pytest.approx(100.0)
    assert "same values of f to 0e+00" in won.finding
    lost = claims.c1(_convex(0.5, 0.6))
    assert lost.verdict == claims.PARTLY
    assert lost.margin == pytest.approx(0.1)
    assert claims.c1(_convex(0.005, 0.6)).verdict == claims.NOT


def test_c1_counts_passes_both_ways():
    results = _convex(0.5, 0.4)
    subject = results.studies["convex"].subjects[0]
    subject.lines[0].runs[0] = _run(_falling(0.5), passes_per_epoch=2.0, products=1.0)
    verdict = claims.c1(results)
    # Counted, its ten epochs of two passes each are behind SAGA and SVRG after ten passes; not counted, ahead of all.
    assert [part.holds for part in verdict.parts] == [False, True, False, True, True, True]


def test_c2():
    assert claims.c2(_convex(0.5, 0.2)).verdict == claims.REPRODUCED
    apart = claims.c2(_convex(0.5, 0.2, identity=0.5, svrg=0.3))
    assert apart.verdict == claims.PARTLY
    assert apart.margin == pytest.approx(0.02)


@pytest.mark.parametrize(("rate", "verdict"), [(0.5, claims.REPRODUCED), (0.1, claims.NOT)])
def test_c3(rate, verdict):
    lines = {
        "TRSVR-EstH": {"heights": _falling(rate)},
        **{name: {"heights": _falling(0.3)} for name in ("TRSVR-Id", "SVRG", "SARAH", "SAGA")},
    }
    results = _results(double_well=[_subject("rcv1", lines), _subject("mushrooms", lines)])
    found = claims.c3(results)
    assert found.verdict == verdict
    assert len(found.parts) == 16
    # Squared gradient norms: mean heights differ by 2·(rates apart)·(mean epoch 5) decades.
    assert found.margin == pytest.approx(10.0 ** (2 * (rate - 0.3) * 5.0), rel=1e-2)


def test_c4():
    plateau = np.maximum(_falling(1.0), 1e-4)
    lines = {"TRSVR-EstH": {"heights": _falling(0.8)}, "SGD": {"heights": plateau}, "Adam": {"heights": plateau}}
    assert claims.c4(_results(sgd_adam=[_subject("covtype", lines)])).verdict == claims.REPRODUCED
    slow = {**lines, "TRSVR-EstH": {"heights": _falling(0.01)}}
    found = claims.c4(_results(sgd_adam=[_subject("covtype", slow)]))
    assert [part.holds for part in found.parts] == [False, False, True, False, True]
    still_falling = {**lines, "SGD": {"heights": _falling(0.3)}}
    found = claims.c4(_results(sgd_adam=[_subject("covtype", still_falling)]))
    assert [part.holds for part in found.parts] == [True, True, False, True, True]


def _sensitivity(data, high, balanced, large):
    lines = {}
    for group, rate in (("high frequency", high), ("balanced", balanced), ("large batch", large)):
        for place in range(2):
            lines[f"{group} {place}"] = {"heights": _falling(rate + 0.01 * place), "group": group}
    return _results(sensitivity=[_subject(data, lines)])


def test_c5():
    assert claims.c5(_sensitivity("rcv1", 0.5, 0.3, 0.001)).verdict == claims.REPRODUCED
    not_stalled = claims.c5(_sensitivity("rcv1", 0.5, 0.3, 0.2))
    assert [part.holds for part in not_stalled.parts] == [True, True, False]
    assert claims.c5(_sensitivity("rcv1", 0.1, 0.3, 0.2)).verdict == claims.NOT


def test_c6():
    assert claims.c6(_sensitivity("covtype", 0.1, 0.3, 0.2)).verdict == claims.REPRODUCED
    assert claims.c6(_sensitivity("covtype", 0.3, 0.1, 0.2)).verdict == claims.NOT
    near = claims.c6(_sensitivity("covtype", 0.29, 0.3, 0.2))
    assert [part.holds for part in near.parts] == [True, False]


def _ablation(ours, classic, trish):
    lines = {"TRSVR-EstH": {"heights": ours}, "Classic TR": {"heights": classic}, "TRish": {"heights": trish}}
    return _results(ablation=[_subject("phishing", lines)])


def test_c7():
    still = np.full(11, 0.1)
    assert claims.c7(_ablation(_falling(0.5), _falling(0.45), still)).verdict == claims.REPRODUCED
    behind = claims.c7(_ablation(_falling(0.1), _falling(1.0), still))
    assert [part.holds for part in behind.parts] == [False, True, False]
    assert behind.verdict == claims.NOT
    assert "more than a decade behind" in behind.finding
    # At the rounding floor nobody is more precise.
    floor = np.maximum(_falling(4.0), 2e-16)
    assert [p.holds for p in claims.c7(_ablation(floor, np.maximum(_falling(5.0), 1e-17), still)).parts] == [True] * 3


def test_c8_is_decided_by_curvature():
    lines = {"TRSVR-EstH": {"heights": _falling(0.1)}}
    refuted = claims.c8(_results(ablation=[_subject("phishing", lines)]))
    assert refuted.verdict == claims.NOT
    assert "strongly convex" in refuted.finding
    truly = claims.c8(_results(ablation=[_subject("phishing", lines, strong_convexity=-1e-3)]))
    assert truly.verdict == claims.REPRODUCED
