"""The map from the paper's figures and tables to ours, and the figures that are drawn as the paper draws them."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from test_claims import _falling, _results, _subject

from trsvr.experiments import figures, specification
from trsvr.experiments.paper_figures import places

PAPER = Path(__file__).parents[3] / "shared" / "paper"


def test_every_figure_and_table_has_a_place():
    """The paper's numbers: 9 figures in the text, 32 in the appendix, 4 tables."""
    found = [place.paper for place in places()]
    assert found == [f"Figure {k}" for k in range(1, 42)] + [f"Table {k}" for k in range(1, 5)]


@pytest.mark.skipif(not PAPER.is_dir(), reason="the paper's text is not part of the repository")
def test_the_map_follows_the_papers_captions():
    """The captions in their order, with what each one names."""
    text = next(PAPER.glob("*.txt")).read_text(encoding="utf-8")
    found = re.findall(r"\\caption\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    captions = [caption for caption in found if "TRSVR)" not in caption and "Optimal Config" not in caption]
    assert len(captions) == 41
    for place, caption in zip(places(), captions, strict=False):
        height, axis = place.shows.split(": ")[1].split(" against ")
        assert ("gap" in caption.lower()) == (height == "gap"), (place, caption)
        assert {"epochs": "epochs", "passes": "effective passes", "seconds": "wall-clock"}[axis] in caption, place
        for name in ("RCV1", "Mushroom", "Covertype", "IJCNN1"):
            assert (name in caption) == (name in place.shows), (place, caption)


def test_the_files_are_those_that_are_drawn():
    known = {
        f"{name}-{problem.data}" for name in specification.names() for problem in specification.find(name).problems
    }
    known |= {name for name, _ in figures.figures_of(_ablation())}
    for place in places():
        if place.file.startswith("figures/"):
            assert Path(place.file).stem in known
        assert place.command.removeprefix("trsvr paper run ") in specification.names()


def _ablation():
    lines = {
        "TRSVR-EstH": {"heights": _falling(0.5)},
        "Classic TR": {"heights": _falling(1.0)[:4]},
        "TRish": {"heights": np.full(11, 0.1)},
    }
    subjects = [_subject(data, lines) for data in ("rcv1", "phishing", "madelon", "mushrooms", "cod-rna", "ijcnn1")]
    results = _results(ablation=subjects)
    results.studies["ablation"].study["axes"] = ["epoch", "passes"]
    return results


def test_six_panels_with_curves_continued_after_the_floor():
    mpl.use("Agg")
    results = _ablation()
    for subject in results.studies["ablation"].subjects:
        run = subject.line("Classic TR").runs[0]
        subject.line("Classic TR").runs[0] = type(run)(0, run.columns, "rounding_floor", np.nan, 1.0)
    figure = figures.six_panel_figure(results.studies["ablation"], "gradient_norm_sq", "epoch")
    panels = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == [subject.title for subject in results.studies["ablation"].subjects]
    ends = {line.get_label(): line.get_xdata()[-1] for line in panels[0].lines}
    assert ends == {"TRSVR-EstH": 10.0, "Classic TR": 10.0, "TRish": 10.0}
    mpl.pyplot.close(figure)
