"""Verdicts on results made up so that the answer is known, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from trsvr.experiments import claims, findings
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
    verdicts = claims.judge(_results())
    assert [verdict.claim for verdict in verdicts] == [f"C{k}" for k in range(1, 15)]
    for verdict in verdicts:
        assert verdict.verdict == claims.UNTESTED
        assert np.isnan(verdict.margin)
        assert verdict.section
        assert not verdict.alternatives


def test_c1_is_judged_along_the_whole_curve():
    won = claims.c1(_convex(0.5, 0.2))
    assert won.verdict == claims.REPRODUCED
    assert len(won.parts) == 12  # gap and ‖∇f‖², two ways of counting, three rivals
    lost = claims.c1(_convex(0.5, 0.6))
    assert lost.verdict == claims.PARTLY
    assert lost.margin == 0.0  # behind SAGA everywhere
    assert claims.c1(_convex(0.005, 0.6)).verdict == claims.NOT
    # Ahead at the end, behind for half of the way: that is not consistent.
    late = _convex(0.5, 0.2)
    late.studies["convex"].subjects[0].lines[0].runs[0] = _run(np.where(EPOCHS < 5, 1.0, _falling(0.8)))
    assert [part.holds for part in claims.c1(late).parts[:3]] == [False] * 3


def test_c1_counts_passes_both_ways():
    results = _convex(0.5, 0.4)
    subject = results.studies["convex"].subjects[0]
    subject.lines[0].runs[0] = _run(_falling(0.5), passes_per_epoch=2.0, products=1.0)
    verdict = claims.c1(results)
    # Counted, its ten epochs of two passes each are behind SAGA and SVRG; not counted, ahead of all.
    assert [part.holds for part in verdict.parts] == [False, True, False, True, True, True] * 2


def test_c2_is_about_all_three():
    found = claims.c2(_convex(0.5, 0.3))
    # SVRG and SAGA have Id's rate; SARAH hardly falls.
    assert [part.holds for part in found.parts] == [True, True, False, False, True, True]
    apart = claims.c2(_convex(0.5, 0.2, identity=0.5, svrg=0.3))
    assert apart.verdict == claims.NOT


@pytest.mark.parametrize(("rate", "verdict"), [(0.9, claims.REPRODUCED), (0.4, claims.NOT), (0.1, claims.NOT)])
def test_c3_wants_twice_as_fast(rate, verdict):
    lines = {
        "TRSVR-EstH": {"heights": _falling(rate)},
        **{name: {"heights": _falling(0.3)} for name in ("TRSVR-Id", "SVRG", "SARAH", "SAGA")},
    }
    results = _results(double_well=[_subject("rcv1", lines), _subject("mushrooms", lines)])
    found = claims.c3(results)
    assert found.verdict == verdict
    assert len(found.parts) == 18
    # Each height is reached after rate/0.3 times fewer epochs; heights that are never reached count zero.
    expected = rate / 0.3 / 2 if rate > 0.3 else 0.0
    assert min(part.margin for part in found.parts[:8]) == pytest.approx(expected, rel=1e-2)
    # The paper's own concession: final ‖∇f‖² at most a decade above SVRG's.
    assert found.parts[8].holds == (rate > 0.3)


def test_c4():
    plateau = np.maximum(_falling(0.6), 1e-4)
    lines = {"TRSVR-EstH": {"heights": _falling(1.3)}, "SGD": {"heights": plateau}, "Adam": {"heights": plateau}}
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
    assert [part.holds for part in not_stalled.parts] == [True, True, True, True, False]
    assert claims.c5(_sensitivity("rcv1", 0.1, 0.3, 0.2)).verdict == claims.NOT


def test_c6():
    assert claims.c6(_sensitivity("covtype", 0.1, 0.3, 0.2)).verdict == claims.REPRODUCED
    assert claims.c6(_sensitivity("covtype", 0.3, 0.1, 0.2)).verdict == claims.NOT
    near = claims.c6(_sensitivity("covtype", 0.29, 0.3, 0.2))
    assert [part.holds for part in near.parts] == [True, False, True, False]


def test_c5_and_c6_look_at_the_whole_curve():
    """Best at the end, behind for most of the way: one of the two ways of looking fails."""
    results = _sensitivity("covtype", 0.1, 0.3, 0.2)
    subject = results.studies["sensitivity"].subjects[0]
    for line in subject.lines:
        if line.group == "balanced":
            line.runs[0] = _run(np.where(EPOCHS < 9, 1.0, _falling(0.35)))
    mean, _, end, _ = claims.c6(results).parts
    assert not mean.holds
    assert end.holds


def test_c14():
    assert claims.c14(_sensitivity("rcv1", 0.5, 0.3, 0.1)).verdict == claims.REPRODUCED
    assert claims.c14(_sensitivity("rcv1", 0.31, 0.3, 0.29)).verdict == claims.NOT


def _ablation(ours, classic, trish):
    lines = {"TRSVR-EstH": {"heights": ours}, "Classic TR": {"heights": classic}, "TRish": {"heights": trish}}
    return _results(ablation=[_subject("phishing", lines)])


def test_c7():
    still = np.full(11, 0.1)
    first = claims.c7(_ablation(_falling(0.5), _falling(0.45), still))
    # Per set: precision, stagnation, TRish behind, the classic method's accuracy, full gradients; over all: faster.
    assert [part.holds for part in first.parts] == [True, True, True, True, True, False]
    assert "where TRSVR needs fewer: phishing" in first.parts[-1].text
    behind = claims.c7(_ablation(_falling(0.1), _falling(1.0), still))
    assert [part.holds for part in behind.parts] == [False, True, False, False, False, False]
    assert behind.verdict == claims.NOT
    # TRish that is ahead: variance reduction did not help.
    trish = claims.c7(_ablation(_falling(0.1), _falling(1.0), _falling(0.2)))
    assert [part.holds for part in trish.parts[:3]] == [False, False, False]
    # Within 1e-12 of f* nobody is more precise.
    floor = np.maximum(_falling(4.0), 8e-13)
    arrived = claims.c7(_ablation(floor, np.maximum(_falling(5.0), 1e-17), still))
    assert [part.holds for part in arrived.parts[:4]] == [True] * 4


def test_c7_wants_several_sets():
    lines = {
        "TRSVR-EstH": {"heights": _falling(0.5)},
        "Classic TR": {"heights": _falling(0.45)},
        "TRish": {"heights": np.full(11, 0.1)},
    }
    two = claims.c7(_results(ablation=[_subject("phishing", lines), _subject("madelon", lines)]))
    assert two.verdict == claims.REPRODUCED


def test_c8_is_decided_by_curvature():
    lines = {"TRSVR-EstH": {"heights": _falling(0.1)}}
    refuted = claims.c8(_results(ablation=[_subject("phishing", lines)]))
    assert refuted.verdict == claims.NOT
    assert "strongly convex" in refuted.finding
    truly = claims.c8(_results(ablation=[_subject("phishing", lines, strong_convexity=-1e-3)]))
    assert truly.verdict == claims.REPRODUCED


def _wide(rate, decades):
    """Three runs whose heights are so many decades apart."""
    return [_run(_falling(rate, 10.0**shift), seed=k) for k, shift in enumerate((-decades, 0.0, decades))]


def test_c9_over_seeds_and_alpha():
    results = _convex(0.5, 0.3)
    subject = results.studies["convex"].subjects[0]
    subject.lines[0].runs = _wide(0.5, 0.1)
    for line in subject.lines[2:5]:
        line.runs = _wide(0.3, 0.4)
    assert claims.c9(results).verdict == claims.REPRODUCED
    subject.lines[0].runs = _wide(0.5, 1.0)
    assert claims.c9(results).verdict == claims.NOT
    lines = {}
    for method, rates in (("TRSVR-EstH", (0.5, 0.5, 0.5)), ("SVRG", (0.1, 0.5, 0.1)), ("TRish", (0.1, 0.1, 0.1))):
        for k, rate in enumerate(rates):
            lines[f"{method} {k}"] = {"heights": _falling(rate), "group": method, "role": "extra"}
    steps = _subject("synthetic", lines)
    assert claims.good_steps(steps) == {"TRSVR-EstH": 3, "SVRG": 1, "TRish": 0}
    found = claims.c9(_results(step_size=[steps]))
    assert found.verdict == claims.REPRODUCED
    assert len(found.parts) == 2


def test_c10_and_c11_compare_at_the_same_step():
    """EstH that is SVRG with step α owes nothing to curvature, however far ahead of the others it is."""
    same = _convex(0.5, 0.2)
    assert claims.c1(same).verdict == claims.REPRODUCED
    assert claims.c10(same).verdict == claims.NOT
    assert claims.c11(same).verdict == claims.NOT
    subject = same.studies["convex"].subjects[0]
    subject.line("SVRG at EstH's α").runs[0] = _run(_falling(0.2))
    subject.lines[0].runs[0] = _run(_falling(0.5), boundary=0.5)
    assert claims.c10(same).verdict == claims.REPRODUCED
    assert claims.c11(same).verdict == claims.REPRODUCED


def test_c12_slow_or_on_a_plateau():
    fast = _convex(0.8, 0.2, svrg=0.3)
    assert claims.c12(fast).verdict == claims.REPRODUCED
    slow = claims.c12(_convex(0.05, 0.8, svrg=0.8))
    # TRSVR does not arrive, SVRG and SAGA do; SARAH hardly moves.
    assert [part.holds for part in slow.parts] == [False, False, True, False]


@pytest.mark.parametrize(("power", "verdict"), [(-1 / 3, claims.REPRODUCED), (0.0, claims.PARTLY)])
def test_c13_fits_the_power_of_n(power, verdict):
    """Passes to a precision that fall like N^{−1/3} are N^{2/3} component gradients; constant passes are N."""
    subjects = []
    for size in (1000, 8000, 64000):
        passes = (size / 1000) ** power
        heights = np.sqrt(_falling(0.75))  # ‖∇f‖² is the square of the gap here
        lines = {name: {"heights": heights, "passes_per_epoch": passes} for name in ("TRSVR-EstH", "SVRG")}
        subjects.append(_subject("synthetic", lines, rows=size, problem=str(size)))
    found = claims.c13(_results(complexity=subjects))
    assert found.verdict == verdict
    assert f"N^{1 + power:.3f}" in found.parts[0].text
    assert [part.holds for part in found.parts] == [power < 0, True, power < 0, True, True]


def test_alternatives_are_judged_beside():
    results = _convex(0.5, 0.2)
    other = _convex(0.005, 0.6).studies["convex"]
    other.name = "convex-zero"
    results.studies["convex-zero"] = other
    first = claims.judge(results)[0]
    assert first.verdict == claims.REPRODUCED
    assert first.alternatives["start at zero"].verdict == claims.NOT


def test_our_findings_stand_apart():
    results = _convex(0.5, 0.2)
    found = findings.find(results)
    assert found[0].rows == (("convex", "synthetic", "0e+00"),)
    assert found[1].rows == (("convex", "synthetic", "0.2", "100.00%", "1", "0e+00"),)
    assert findings.find(_results()) == []
