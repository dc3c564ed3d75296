"""Studies as data: the paper's numbers, typed in once more from its tables, and refusals that name the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import TINY

from trsvr import theory
from trsvr.experiments import specification
from trsvr.experiments.specification import Objective, parse
from trsvr.experiments.subjects import Subject

PAPER = [name for name in specification.names() if specification.find(name).paper]


def _settings(study: str, data: str) -> dict:
    problem = next(p for p in specification.find(study).problems if p.data == data)
    return {m.label: m.settings for m in problem.methods}


def test_the_papers_studies_are_here():
    assert PAPER == ["convex", "double-well", "sgd-adam", "sensitivity", "ablation"]
    for name in PAPER:
        study = specification.find(name)
        assert (study.epochs, study.seeds, study.start, study.objective.l2) == (100, 5, "normal", 1e-4)
        assert study.objective.gamma == (0.0 if name == "convex" else 1e-4)
        assert study.quick
        assert study.grids


def test_values_of_study_1():
    found = _settings("convex", "synthetic")
    assert (found["TRSVR-Id"]["alpha"], found["TRSVR-EstH"]["alpha"]) == (0.05, 0.06)
    assert [found[name]["step"] for name in ("SVRG", "SARAH", "SAGA")] == [3.04e-2, 1e-3, 1.31e-2]
    assert (found["TRSVR-EstH"]["batch_size"], found["TRSVR-EstH"]["inner_steps"]) == (200, 100)
    assert found["TRSVR-EstH"]["max_cg"] == 200


@pytest.mark.parametrize(
    ("data", "values"),
    [("rcv1", (0.10, 0.15, 0.08, 0.045, 0.005)), ("mushrooms", (0.08, 0.09, 0.05, 0.015, 0.005))],
)
def test_values_of_study_2(data, values):
    found = _settings("double-well", data)
    identity, estimated, saga, svrg, sarah = values
    assert (found["TRSVR-Id"]["alpha"], found["TRSVR-EstH"]["alpha"]) == (identity, estimated)
    assert (found["SAGA"]["step"], found["SVRG"]["step"], found["SARAH"]["step"]) == (saga, svrg, sarah)
    assert found["SVRG at EstH's α"]["step"] == estimated
    assert found["SVRG at Id's α"]["step"] == identity


@pytest.mark.parametrize(
    ("data", "alpha", "sgd", "adam"), [("covtype", 0.0043, 3.7e-5, 9.5e-5), ("ijcnn1", 0.005, 2.3e-4, 2.3e-4)]
)
def test_values_of_study_3(data, alpha, sgd, adam):
    found = _settings("sgd-adam", data)
    assert found["TRSVR-EstH"] == {"alpha": alpha, "batch_size": 100, "inner_steps": 400, "hessian": "estimated"}
    assert found["SGD"] == {"step": sgd, "momentum": 0.9, "batch_size": 100}
    assert found["Adam"] == {"step": adam, "batch_size": 100}
    assert specification.find("sgd-adam").timed


@pytest.mark.parametrize("data", ["rcv1", "covtype"])
def test_values_of_study_4(data):
    problem = next(p for p in specification.find("sensitivity").problems if p.data == data)
    pairs = {
        (m.settings["batch_size"], m.settings["inner_steps"]): m.group for m in problem.methods if m.role == "paper"
    }
    assert len(pairs) == 12
    assert all(b * steps == 40_000 for b, steps in pairs)
    regimes = {b: group for (b, _), group in pairs.items()}
    assert {b for b, group in regimes.items() if group == "large batch"} == {500, 800, 1000, 2000, 4000}
    assert {b for b, group in regimes.items() if group == "balanced"} == {100, 200, 400}
    assert {b for b, group in regimes.items() if group == "high frequency"} == {10, 20, 40, 50}
    assert all(m.settings["alpha"] == 0.01 for m in problem.methods if m.role == "paper")


@pytest.mark.parametrize(
    ("data", "alpha", "b", "steps", "radius", "trish", "gammas"),
    [
        ("rcv1", 0.10, 20, 2000, 30.0, 0.40, (4.91, 0.03)),
        ("phishing", 0.09, 100, 400, 6.62, 0.007, (4.91, 0.49)),
        ("madelon", 0.08, 100, 400, 0.32, 0.14, (0.59, 0.008)),
        ("mushrooms", 0.01, 100, 400, 14.09, 0.40, (3.22, 0.04)),
        ("cod-rna", 0.26, 100, 400, 0.07, 0.14, (0.25, 0.002)),
        ("ijcnn1", 0.08, 20, 2000, 14.09, 9e-4, (4.91, 0.13)),
    ],
)
def test_values_of_study_5(data, alpha, b, steps, radius, trish, gammas):
    found = _settings("ablation", data)
    assert found["TRSVR-EstH"] == {"alpha": alpha, "batch_size": b, "inner_steps": steps, "hessian": "estimated"}
    assert found["Classic TR"] == {"initial_radius": radius, "hessian": "estimated"}
    assert (found["TRish"]["alpha"], found["TRish"]["gamma1"], found["TRish"]["gamma2"]) == (trish, *gammas)
    assert found["TRish"]["batch_size"] == b
    assert found["SVRG at EstH's α"] == {"step": alpha, "batch_size": b, "inner_steps": steps}


@pytest.mark.parametrize("name", specification.names())
def test_every_study_offers_what_was_promised(name):
    study = specification.find(name)
    assert all(any(m.role == "adaptive" for m in p.methods) for p in study.problems) or not study.paper
    variant = study.nonconvex()
    for d in (8, 47236):
        assert not variant.objective.is_convex(d)
        assert variant.objective.strength(d) == pytest.approx(10 * 1e-4 * d)
        assert study.objective.is_convex(d) == (name != "nonconvex")
    quick = study.quickly()
    assert quick.seeds <= 2
    assert (quick.epochs or quick.passes) < (study.epochs or study.passes)


def test_the_nonconvex_study_is_study_5_with_another_gamma():
    study, ablation = specification.find("nonconvex"), specification.find("ablation")
    assert (study.epochs, study.seeds, study.start) == (ablation.epochs, ablation.seeds, ablation.start)
    assert (study.objective.gamma_over_l2_d, study.objective.a) == (10.0, ablation.objective.a)
    wanted = {p.data: [m.settings for m in p.methods] for p in ablation.problems if p.data != "rcv1"}
    assert {p.data: [m.settings for m in p.methods] for p in study.problems} == wanted


def test_convexity_is_decided_as_the_second_derivative_says():
    # λ + (γ/d)(12w² − 4a²) at w = 0
    assert Objective(l2=1e-4, gamma=1e-4, a=0.5).is_convex(1)
    assert not Objective(l2=1e-4, gamma=1.01e-4, a=0.5).is_convex(1)
    assert Objective(l2=1e-4, gamma=3.9e-4, a=0.5).is_convex(4)


def test_only_names_data_sets_or_methods():
    study = specification.find("ablation")
    assert [p.data for p in study.only(["phishing"]).problems] == ["phishing"]
    assert {m.label for p in study.only(["TRish"]).problems for m in p.methods} == {"TRish"}
    both = study.only(["phishing", "TRish"])
    assert [(p.data, [m.label for m in p.methods]) for p in both.problems] == [("phishing", ["TRish"])]


def test_a_sweep_becomes_methods():
    study = specification.find("step-size")
    lines = [m for m in study.problems[0].methods if m.group == "SVRG"]
    assert len(lines) == 13
    assert lines[0].settings["step"] == pytest.approx(1e-3)
    assert lines[-1].settings["step"] == pytest.approx(1e3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("alpha = 0.5,", "alfa = 0.5,"), ["problem[0].method[0].settings.alfa", "did you mean 'alpha'"]),
        (
            ("alpha = 0.5,", "alpha = -1,"),
            ["problem[0].method[0].settings", "alpha must be a finite number > 0, got -1"],
        ),
        (('solver = "svrg"', 'solver = "svgr"'), ["problem[0].method[1].solver", "did you mean 'svrg'?"]),
        (('data = "synthetic"', 'data = "sinthetic"'), ["problem[0].data must be", "did you mean 'synthetic'?"]),
        (("epochs = 5\n", "epoks = 5\n"), ["epoks", "did you mean 'epochs'?"]),
        (("epochs = 5\n", ""), ["epochs or passes must be given"]),
        (("epochs = 5\n", 'epochs = "five"\n'), ["epochs must be a whole number >= 1, got 'five'"]),
        (("seeds = 3", "seeds = 0"), ["seeds must be a whole number >= 1, got 0"]),
        (("l2 = 0.1", "l2 = -1.0"), ["objective.l2 must be a finite number >= 0, got -1.0"]),
        (("[objective]", "[objective]\ngamma = 1.0\ngamma_over_l2_d = 2.0"), ["objective.gamma", "give one"]),
        (("points = 3", "points = 0"), ["grid.TRSVR-EstH.alpha.points", "got 0"]),
        (("low = 0.01, high = 1.0", "low = 1.0, high = 0.1"), ["grid.TRSVR-EstH.alpha.high must be at least low"]),
        (("[grid.TRSVR-EstH]", "[grid.TRSVR]"), ["grid.TRSVR", "did you mean"]),
        (('label = "TRSVR adaptive"', 'label = "TRSVR-EstH"'), ["problem[0].method", "'TRSVR-EstH' appears twice"]),
        (('name = "tiny"', 'name = "../tiny"'), ["name must be letters"]),
        (('name = "tiny"', "name = "), ["line 2"]),
        (("rows = 100 }", "rows = 100, cols = 1 }"), ["quick.cols"]),
    ],
)
def test_refusals_name_the_key(change, words):
    assert change[0] in TINY
    with pytest.raises(ValueError, match=r"^my\.toml: ") as caught:
        parse(TINY.replace(*change, 1), "my.toml")
    for word in words:
        assert word in str(caught.value)


def test_grids_of_unequal_size_are_refused():
    more = TINY + '\n[grid."TRSVR adaptive"]\nalpha = { low = 1, high = 10, points = 2 }\n'
    with pytest.raises(ValueError, match="same number of points for every method, got TRSVR-EstH 3, TRSVR adaptive 2"):
        parse(more, "my.toml")


@pytest.mark.parametrize("name", PAPER)
def test_grids_of_the_paper_have_twelve_points_each(name):
    """Points that the solver itself accepts: γ₁ ≤ γ₂ of TRish is none."""
    study = specification.find(name)
    for problem in study.problems:
        for method in problem.methods:
            if method.label in study.grids:
                points = method.on_grid(study.grids[method.label], 7.0)
                assert len(points) == 12
                for point in points:
                    replace(method, settings={**method.settings, **point}).build()


def test_rates_are_scaled_by_the_largest_smoothness():
    grid = specification.find("convex").grids["SVRG"]["step"]
    assert grid.values(100.0) == pytest.approx([value / 100.0 for value in grid.values(1.0)], rel=1e-5)
    absolute = specification.find("convex").grids["TRSVR-EstH"]["alpha"]
    assert absolute.values(100.0) == absolute.values(1.0)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "{b = " * 100_000])
def test_brackets_without_end_are_refused(text):
    with pytest.raises(ValueError, match=r"odd\.toml"):
        specification.parse(text, "odd.toml", Path())


def test_the_trish_grid_holds_the_papers_values():
    study = specification.find("ablation")
    grids = study.grids["TRish"]
    for problem in study.problems:
        for method in problem.methods:
            if method.label == "TRish":
                assert all(grid.low <= method.settings[key] <= grid.high for key, grid in grids.items())


def test_alternatives_change_one_choice_and_keep_what_it_changes():
    study = specification.find("ablation")
    zero = study.alternative("zero")
    assert (zero.name, zero.start, zero.problems) == ("ablation-zero", "zero", study.problems)
    scaled = study.alternative("minmax")
    assert {problem.data: problem.preprocess for problem in scaled.problems} == {
        "madelon": "minmax",
        "cod-rna": "minmax",
    }
    assert study.alternative("lmax").problems == ()
    order = ["convex", "convex-lmax", "double-well", "double-well-zero", "ablation-minmax", "step-size"]
    assert sorted(set(order), key=specification.rank) == order
    with pytest.raises(ValueError, match="did you mean 'zero'"):
        study.alternative("zeros")


@pytest.mark.slow
def test_the_lmax_alternative_has_the_papers_constant():
    problem = specification.find("convex").alternative("lmax").problems[0]
    found = Subject.of(problem, Objective(l2=1e-4)).problem()
    assert theory.component_smoothness(found) == pytest.approx(50.1, rel=1e-3)


def test_the_complexity_study_has_the_theorems_settings():
    """Rows of length one: L_max = ¼ + λ, whatever the data are."""
    study = specification.find("complexity")
    L = 0.25 + study.objective.l2
    for problem in study.problems:
        n = problem.rows or problem.parameters["n_samples"]
        wanted = theory.theorem_settings(n, L, L)
        assert problem.preprocess == "unit-rows"
        for method in problem.methods:
            chosen = method.settings
            assert chosen.get("alpha", chosen.get("step")) == pytest.approx(wanted.alpha, rel=1e-4)
            assert (chosen["batch_size"], chosen["inner_steps"]) == (wanted.batch_size, wanted.inner_steps)
