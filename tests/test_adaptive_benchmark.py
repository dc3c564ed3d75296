"""benchmarks/adaptive.py: every rule that its ablation switches off exists, and no rule is needed to be right."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

import trsvr
from trsvr.problems import logistic
from trsvr.solvers.dual_start import DualRules, DualStart

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        return importlib.import_module("benchmarks.adaptive")


@pytest.fixture(scope="module")
def problem():
    random = np.random.default_rng(3)
    X = random.normal(size=(4000, 30)) * 10.0 ** random.uniform(-1, 1, size=30)
    y = np.where(X @ random.normal(size=30) + random.normal(size=4000) > 0.0, 1.0, -1.0)
    return logistic(X, y, l2=1e-4)


def test_without_any_rule_the_minimiser_is_the_same(benchmark, problem):
    best = scipy.optimize.minimize(
        problem.value_and_gradient, np.zeros(30), jac=True, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 1e-11}
    ).fun
    usual = trsvr.minimize(problem).passes
    changed = 0
    for rule, changes in benchmark.OFF.items():
        for norm in ("auto", "diagonal"):
            solver = DualStart(norm=norm, rules=replace(DualRules(), **changes))
            found = trsvr.minimize(problem, solver, max_passes=3000)
            assert found.success, (rule, norm)
            assert found.value <= best * (1.0 + 1e-10), (rule, norm)
            changed += norm == "auto" and found.passes != usual
    assert changed >= 4  # the rules were really switched off


@pytest.mark.parametrize("script", sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py")))
def test_every_benchmark_can_be_imported(script, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    importlib.import_module(f"benchmarks.{script}")
