"""Every example runs, in a process of its own and an empty folder, and says what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name], cwd=folder, capture_output=True, text=True, timeout=120
    )
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


@pytest.mark.parametrize("name", ["mlp", "cnn", "autoencoder", "physics", "fit"])
def test_the_races_of_the_torch_front_door(name, tmp_path):
    """A few passes of each: every method learns something, and the figure is there, whole."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"torch_{name}.py", "--fast", "--out", tmp_path / "figures"],
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
