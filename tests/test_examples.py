"""Every example runs, in a process of its own and an empty folder, and says what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Warnings are errors; pyparsing takes that for a wish to hear its own, of which older matplotlibs have some; torch's
# forward differentiation scripts a function of its own, which it deprecates itself.
PYTHON = (sys.executable, "-W", "error", "-W", "ignore:::pyparsing", "-W", "ignore:`torch.jit:DeprecationWarning")


def run_example(name: str, folder: Path) -> str:
    done = subprocess.run([*PYTHON, EXAMPLES / name], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir()), "an example leaves nothing behind"
    return done.stdout


def test_the_scikit_learn_door(tmp_path):
    lines = run_example("scikit_learn.py", tmp_path).splitlines()
    theirs, ours = lines[1].split(), lines[2].split()
    assert (theirs[0], theirs[3], ours[0], ours[3]) == ("LogisticRegression", "yes", "TRSVRClassifier", "no")
    assert float(ours[1]) < float(theirs[1])
    assert float(ours[2]) < 1e-6
    assert lines[4].split()[-1] == "0.359"
    assert "C = 0.359" in lines[5]


def test_an_estimator_of_ones_own(tmp_path):
    lines = run_example("own_estimator.py", tmp_path).splitlines()
    assert lines[2].split() == ["estimator", "passes", "seconds", "gap"]
    rows = [line.split() for line in lines[3:]]
    assert [row[0] for row in rows] == ["SVRGGradient"] * 3 + ["LooplessSVRG"] * 3
    for some in (rows[:3], rows[3:]):
        gaps = [float(row[3]) for row in some]
        assert gaps[0] > gaps[1] > gaps[2]
        assert gaps[2] < 1e-6
        # A renewed reference is counted in the mean: 2b + qN a step.
        assert float(some[0][1]) == pytest.approx(8.1, abs=2.0)


@pytest.mark.parametrize(
    "name", ["fit", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlp", "cnn", "autoencoder", "physics"))]
)
def test_the_races_of_the_torch_front_door(name, tmp_path):
    """A few passes of each: every method learns something, and the figure is there, whole."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [*PYTHON, EXAMPLES / f"torch_{name}.py", "--fast", "--out", tmp_path / "figures"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split()[:3] == ["method", "setting", "training"]
    rows = lines[2 : lines.index("* the best setting lies at the end of its grid")]
    assert len(rows) == (6 if name == "fit" else 5)
    assert any("TRSVR, Gauss–Newton" in row for row in rows)
    figures = list((tmp_path / "figures").iterdir())
    assert [figure.name for figure in figures] == [f"torch_{name}.png"]
    assert figures[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["figures"], "an example leaves nothing else behind"


def run_and_draw(name: str, folder: Path) -> list[str]:
    """The lines of an example's quick run; its figure is there, whole, and nothing else is."""
    done = subprocess.run(
        [*PYTHON, EXAMPLES / f"{name}.py", "--fast", "--out", folder / "figures"],
        cwd=folder, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = list((folder / "figures").iterdir())
    assert [figure.name for figure in figures] == [f"{name}.png"]
    assert figures[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert 5_000 < figures[0].stat().st_size < 100_000
    assert [entry.name for entry in folder.iterdir()] == ["figures"], "an example leaves nothing else behind"
    return done.stdout.splitlines()


def numbers(line: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?", line)]


def test_alpha_from_svrg_to_newton(tmp_path):
    rows = [[float(word) for word in line.split()] for line in run_and_draw("alpha", tmp_path)[3:-1]]
    _, ours, theirs, boundary, products = rows[0]
    assert ours == theirs  # far below 1/λmax the two are one method
    assert (boundary, products) == (1.0, 1.0)
    assert rows[-1][3] == 0.0
    assert rows[-1][1] < 1e-6


def test_what_variance_reduction_does(tmp_path):
    lines = run_and_draw("variance", tmp_path)
    plain, reduced = numbers(lines[1])[1:]
    assert reduced < 1e-2 * plain
    assert numbers(lines[3])[-1] < 1e-2 * numbers(lines[2])[-1]  # SVRG's gap and SGD's


def test_a_trust_region_in_the_plane(tmp_path):
    gaps = [numbers(line)[-1] for line in run_and_draw("trust_region", tmp_path)[:3]]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-9


def test_solvers_side_by_side(tmp_path):
    pytest.importorskip("sklearn")
    rows = run_and_draw("compare_solvers", tmp_path)[3:-1]
    assert len(rows) == 9
    assert all("pass limit reached" in row or "converged" in row for row in rows)


@pytest.mark.slow  # such a loss is compiled anew in every process; docs/guides/own-loss.md does it by default
def test_a_loss_of_ones_own(tmp_path):
    lines = run_and_draw("own_loss", tmp_path)
    assert lines[0].startswith("converged")
    assert numbers(lines[2])[-1] < 1e-5


def test_who_leaves_the_saddle_point(tmp_path):
    lines = run_and_draw("double_well", tmp_path)
    svrg, lbfgs, trsvr = (line.split() for line in lines[3:6])
    assert (svrg[0], lbfgs[0], trsvr[0]) == ("SVRG", "LBFGS", "TRSVR")
    assert float(svrg[3]) < 0
    assert float(lbfgs[3]) < 0
    assert float(trsvr[3]) > 0
    assert float(trsvr[1]) < float(svrg[1]) - 0.1


def test_a_path_of_warm_starts(tmp_path):
    cold, warm, difference = (numbers(line)[0] for line in run_and_draw("path", tmp_path)[:3])
    assert warm < cold
    assert difference < 1e-3


def test_killed_and_resumed(tmp_path):
    lines = run_and_draw("checkpoint", tmp_path)
    assert "exit code 9" in lines[0]
    assert 12 <= numbers(lines[1])[0] <= 14
    assert lines[2].endswith("yes")


def test_rows_on_the_disk(tmp_path):
    lines = run_and_draw("memory_mapped", tmp_path)
    assert lines[0].startswith("a file of 20 MB: converged: at most ")


SHARED = ("drawing.py", "torch_race.py")  # what examples have in common


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_in_the_gallery(path):
    """Under sixty lines, so that it can be read at once; its first sentence says what one learns."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""')
    if path.name not in SHARED:
        assert len(text.splitlines()) < 60
        assert path.name in (EXAMPLES.parent / "docs" / "gallery.md").read_text(encoding="utf-8")


def test_a_calibration_has_the_certified_digits(tmp_path):
    done = subprocess.run(
        [*PYTHON, EXAMPLES / "calibration.py", "--fast", "--out", tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    digits = next(line for line in done.stdout.splitlines() if line.startswith("digits"))
    assert float(digits.split()[1]) > 9.0
    assert (tmp_path / "calibration.png").stat().st_size > 1000


def test_a_robust_fit_is_better_than_squares(tmp_path):
    rows = [line.split() for line in run_example("robust_fit.py", tmp_path).splitlines()[1:]]
    squares, pseudo_huber, tukey = (float(row[1]) for row in rows)
    assert max(pseudo_huber, tukey) < 0.1 * squares


def test_many_residuals(tmp_path):
    done = subprocess.run(
        [*PYTHON, EXAMPLES / "many_residuals.py", "--fast"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("converged")
    assert float(lines[2].split()[5]) < 5.0


def test_counts_have_honest_errors(tmp_path):
    lines = run_and_draw("counts", tmp_path)
    assert lines[0].split()[0] == "coefficient"
    assert numbers(next(line for line in lines if line.startswith("D²")))[-1] == pytest.approx(0.0956, abs=1e-3)
